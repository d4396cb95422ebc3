"""What commands are made of: their examples, and the options that all of them take."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from lakegate.cli.app import App

PROGRAM = "lakegate"
HELP = {"help_option_names": ["-h", "--help"]}
"""On every command, not on the root alone: click remembers a command's help option from the first context it meets."""
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    # Given on both levels, the inner one wins; not given here, it must not undo the outer one.
    if value and param.name:
        setattr(ctx.ensure_object(App), param.name, value.absolute() if isinstance(value, Path) else value)


def global_options(*, hidden: bool) -> list[click.Parameter]:
    """Return the options accepted before and after a command's name; only the root's help shows them."""
    option = functools.partial(click.Option, expose_value=False, hidden=hidden, callback=_remember)
    return [
        option(["--home"], type=_FOLDER, metavar="DIR", help="The project's folder."),
        option(["--engine"], metavar="URL", help="Spark Connect address. Overrides engine.url."),
        option(["--catalog"], metavar="URI", help="Nessie API v2 address. Overrides catalog.uri."),
        option(["--quiet", "-q"], is_flag=True, help="Print no progress on standard error."),
        option(["--debug"], is_flag=True, help="Show tracebacks and logs."),
        option(
            ["--log-format"],
            type=click.Choice(["text", "json"]),
            help="Write standard error as text, or as one JSON object per line. Overrides log.format.",
        ),
    ]


class _Documented(click.Command):
    """A command or group that takes the global options, too, and ends its help with examples."""

    def __init__(self, *args: Any, examples: Sequence[str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args``. An error names this command; click leaves it out when an option's value is missing."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters and the global options."""
        return [*super().get_params(ctx), *global_options(hidden=True)]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class LakegateCommand(_Documented):
    """A command whose function gets the :class:`App` first; ``formats`` are the choices of its ``--output``."""

    def __init__(self, *args: Any, formats: Sequence[str] = ("table", "json"), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        if formats:
            output = click.Option(
                ["--output", "-o"],
                type=click.Choice(formats),
                default=formats[0],
                show_default=True,
                is_eager=True,  # so that errors in other options are reported in the same format
                expose_value=False,
                callback=_remember,
                help="Format of standard output.",
            )
            self.params.append(output)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, once standard error is what was asked for."""
        app = ctx.ensure_object(App)
        app.begin_log(ctx)
        assert self.callback is not None  # noqa: S101 - every command is made from a function
        return ctx.invoke(self.callback, app, **ctx.params)


class LakegateGroup(_Documented, click.Group):
    """A group of such commands; ``default`` names the one that runs when none is named."""

    command_class = LakegateCommand

    def __init__(self, *args: Any, default: str | None = None, **attributes: Any) -> None:
        super().__init__(*args, no_args_is_help=default is None, **attributes)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args``, with the default command before them if they begin with no command."""
        if self.default is not None and not ctx.resilient_parsing:
            of_group = {name for one in self.get_params(ctx) for name in one.opts}
            if not args or (args[0].startswith("-") and args[0] not in of_group):
                args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; where none is named, but what it would be about, suggest the likely one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            likely = next((name for name in ("show", "create") if name in self.commands), None)
            # What has a dot or a number in it is a table or a run, and no mistyped command.
            is_name = likely != "show" or any(one == "." or one.isdecimal() for one in args[0])
            if likely is not None and is_name and "Did you mean" not in error.format_message():
                ctx.fail(f"{error.message} Did you mean '{likely} {args[0]}'?")
            raise


def command(name: str, *, examples: Sequence[str], **attributes: Any) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function the command ``name``; its docstring is the help."""
    return click.command(name, cls=LakegateCommand, examples=examples, context_settings=HELP, **attributes)


def group(
    name: str, *, examples: Sequence[str], default: str | None = None
) -> Callable[[Callable[..., None]], LakegateGroup]:
    """Make a function the group ``name``; its docstring is the help. ``default`` runs when no command is named."""
    return click.group(name, cls=LakegateGroup, examples=examples, default=default, context_settings=HELP)
