"""The shapes commands are made of: lazy loading, panels, examples, and the options that are accepted everywhere."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from lakegate.cli import errors, log_choice
from lakegate.cli.app import App
from lakegate.cli.registry import COMMANDS, PANELS, Entry

PROGRAM = "lakegate"
_CLOSED_PIPE = 141
"""128 + SIGPIPE: what a shell reports of a program whose reader went away."""


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    # Given on both levels, the inner one wins; not given here, it must not undo the outer one.
    if value and param.name:
        setattr(ctx.ensure_object(App), param.name, value)


def _require_folder(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    _remember(ctx, param, value.absolute() if value else None)


def global_options(*, hidden: bool) -> list[click.Parameter]:
    """Return the options accepted before and after a command's name; only the root's help shows them."""
    folder = click.Path(exists=True, file_okay=False, path_type=Path)
    common: dict[str, Any] = {"expose_value": False, "hidden": hidden, "callback": _remember}
    home = {**common, "callback": _require_folder}
    return [
        click.Option(["--home"], type=folder, metavar="DIR", help="The project's folder.", **home),
        click.Option(["--engine"], metavar="URL", help="Spark Connect address; overrides engine.url.", **common),
        click.Option(["--catalog"], metavar="URI", help="Nessie API v2; overrides catalog.uri.", **common),
        click.Option(["--quiet", "-q"], is_flag=True, help="No progress on standard error.", **common),
        click.Option(["--debug"], is_flag=True, help="Show tracebacks and logs.", **common),
        click.Option(
            ["--log-format"],
            type=click.Choice(["text", "json"]),
            help="Standard error: text for people, or JSON, one object per line; overrides log.format.",
            **common,
        ),
    ]


HELP = {"help_option_names": ["-h", "--help"]}
"""On every command, not on the root alone: click remembers a command's help option from the first context it meets."""


class _Examples:
    """Verbatim examples at the end of a command's help."""

    examples: Sequence[str]

    def write_examples(self, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class LakegateCommand(_Examples, click.Command):
    """A command that takes the global options too and shows examples in its help."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters and the global options."""
        return [*super().get_params(ctx), *global_options(hidden=True)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, on a standard error that is what was asked for."""
        log_choice.begin(ctx.ensure_object(App), ctx)
        return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        self.write_examples(formatter)


class LakegateGroup(_Examples, click.Group):
    """A group of such commands."""

    command_class = LakegateCommand

    def __init__(self, *args: Any, examples: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the group's own parameters and the global options."""
        return [*super().get_params(ctx), *global_options(hidden=True)]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        self.write_examples(formatter)


def command(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., None]], LakegateCommand]:
    """Make a function the command ``name``; its docstring is the help."""
    return click.command(name, cls=LakegateCommand, examples=examples, context_settings=HELP)


def group(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., None]], LakegateGroup]:
    """Make a function the group ``name``; its docstring is the help."""
    return click.group(name, cls=LakegateGroup, examples=examples, context_settings=HELP)


class Root(click.Group):
    """The ``lakegate`` command: loads commands when they are used, and turns every ending into an exit code."""

    def __init__(self, *args: Any, entries: Sequence[Entry] = COMMANDS, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._entries = {entry.name: entry for entry in entries}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the global options."""
        return [*global_options(hidden=False), *super().get_params(ctx)]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order of the help."""
        del ctx
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command called ``cmd_name``; ``None`` when there is none."""
        del ctx
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"lakegate.cli.commands.{entry.module}")
        loaded: click.Command = getattr(module, entry.attribute)
        loaded.short_help = entry.help
        return loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one is spelt most like it (click does so only from 8.4 on)."""
        if args and args[0] not in self._entries and not args[0].startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415 - for mistakes only

            close = get_close_matches(args[0], self._entries, n=1)
            ctx.fail(f"No such command '{args[0]}'." + (f" Did you mean '{close[0]}'?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by panel, from the registry alone."""
        del ctx
        width = max(map(len, self._entries))
        for panel in PANELS:
            rows = [(entry.name.ljust(width), entry.help) for entry in self._entries.values() if entry.panel == panel]
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands from the registry alone, and options."""
        names = [CompletionItem(e.name, help=e.help) for e in self._entries.values() if e.name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; end quietly when the reader of standard output has gone."""
        try:
            result = super().invoke(ctx)
            errors.flush_stdout()
        except click.exceptions.Exit:
            # The verdict is known; that nobody reads the rest of it changes nothing.
            if errors.stdout_is_gone():
                errors.abandon_stdout()
            raise
        except BrokenPipeError:
            if not errors.stdout_is_gone():
                raise
            errors.abandon_stdout()
            raise click.exceptions.Exit(_CLOSED_PIPE) from None
        return result

    def main(  # type: ignore[override]  # always exits: our exit codes are not click's
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Parse ``args``, run, report whatever went wrong, and exit."""
        words = sys.argv[1:] if args is None else list(args)
        app = extra.pop("obj", None) or App()
        app.words = tuple(words)
        extra.pop("standalone_mode", None)
        try:
            result = super().main(words, prog_name or PROGRAM, standalone_mode=False, obj=app, **extra)
            code = result if isinstance(result, int) else 0
        except Exception as error:  # noqa: BLE001 - the last line of defence
            code = errors.report(error, app)
        if app.logs is not None:
            app.logs.close(code)
            app.logs = None
        sys.exit(code)
