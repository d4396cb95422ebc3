"""Base classes of commands, and the state of one invocation: global options, and access to the lake."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import augment_usage_errors

from lakegate.cli.wrapping import wrapped_command
from lakegate.errors import ConfigurationError, LakegateError
from lakegate.model.words import command_line
from lakegate.progress import redact

if TYPE_CHECKING:
    from lakegate.cli.stderr import Logs
    from lakegate.components import Components
    from lakegate.config import Settings
    from lakegate.lake import Lake
    from lakegate.local.stack import LocalStack
    from lakegate.model.run import Run
    from lakegate.ports import Narrator


def _connect(*args: Any, **options: Any) -> Lake:
    from lakegate.lake import connect

    return connect(*args, **options)


def _local_stack(*args: Any) -> LocalStack:
    from lakegate.components import local_stack

    return local_stack(*args)


@dataclass
class App:
    """State of one invocation, click's ``ctx.obj``. Parsing the global options fills it in.

    Attributes:
        home: The project's folder; ``None`` to search for it upwards from the current one.
        engine: Spark Connect address that overrides the settings.
        catalog: Nessie address, or ``sql``, that overrides the settings.
        log_format: ``text`` or ``json`` on standard error; ``None`` for the settings' choice.
        logs: Writes standard error as JSON lines, if that's its format.
        output: The command's ``--output``; ``table`` until it's parsed.
        words: The command line, for messages that repeat it.
        makes_run: Whether interrupting the command may leave a run behind.
        done: What the command has irrevocably done, as a sentence, in case its output fails.
        connect: Opens the lake. Tests replace this and ``local_stack``.
    """

    home: Path | None = None
    engine: str | None = None
    catalog: str | None = None
    quiet: bool = False
    debug: bool = False
    log_format: str | None = None
    logs: Logs | None = None
    output: str = "table"
    words: tuple[str, ...] = ()
    makes_run: bool = False
    done: str | None = None
    connect: Callable[..., Lake] = field(default=_connect)
    local_stack: Callable[..., LocalStack] = field(default=_local_stack)

    @property
    def json(self) -> bool:
        """Whether standard output is JSON."""
        return self.output == "json"

    @cached_property
    def narrator(self) -> Narrator:
        """Shows progress on standard error, if that's a terminal or a log."""
        if self.logs is not None:
            return self.logs.narrator
        from lakegate.cli.stderr import make_narrator

        return make_narrator(quiet=self.quiet)

    def start_log(self, ctx: click.Context | None) -> None:
        """Write standard error as JSON lines if options or settings say so, until the log is closed. Idempotent."""
        if self.logs is not None or not self._wants_json_log():
            return
        from lakegate.cli.stderr import Logs, secret_variables

        command = ctx.command_path.removeprefix(ctx.find_root().command_path).strip() if ctx else ""
        try:
            settings = self.settings().model_dump(mode="json")
        except (LakegateError, OSError):
            settings = {}
        self.logs = Logs(command or None, quiet=self.quiet, debug=self.debug, hidden=secret_variables(settings))

    def _wants_json_log(self) -> bool:
        # The option may be among arguments that couldn't be parsed.
        words = f" {' '.join(self.words)} ".replace("--log-format=", "--log-format ")
        given = self.log_format or next((kind for kind in ("json", "text") if f" --log-format {kind} " in words), None)
        if given is not None:
            return given == "json"
        try:
            here = self.home or Path.cwd()
            folders = (here,) if self.home else (here, *here.parents)
            # Loading the settings takes longer than reporting a typo. Do it only if they can matter.
            if "LAKEGATE_LOG_FORMAT" in os.environ or any((one / "lakegate.toml").is_file() for one in folders):
                return self.settings().log.format == "json"
        except (LakegateError, OSError):  # the folder may have been deleted, or be closed to this user
            return os.environ.get("LAKEGATE_LOG_FORMAT") == "json"
        return False

    def remember_outcome(self, run: Run) -> None:
        """Remember how a run ended, so that a later failure doesn't hide it."""
        self.done = f"Run {run.run_id} into {run.table} is {run.status}."

    def lake(self, *, may_create_project: bool = False) -> Lake:
        """Open the lake, as a context manager.

        Args:
            may_create_project: Whether the command may start a new project.
        """
        self._prepare(may_create_project=may_create_project)
        context = click.get_current_context(silent=True)
        name = None if context is None else context.info_name
        return self.connect(
            self.home,
            engine=self.engine,
            catalog=self.catalog,
            narrator=self.narrator,
            orchestrator=name if name in ("watch", "backfill") else "cli",
        )

    def components(self) -> Components:
        """Return the lake's components, for what :class:`~lakegate.lake.Lake` doesn't offer. Close them after use."""
        from lakegate.components import Components

        self._prepare()
        return Components(self.folder(), self.settings(), session=None, narrator=self.narrator)

    def stack(self) -> LocalStack:
        """Return the handle of this project's local stack. Starts nothing."""
        return self.local_stack(self.folder(), self.settings(), self.narrator)

    def catalog_answers(self) -> bool:
        """Return whether the catalog can be used without starting anything: it's remote, or the local stack runs.

        If only one of the local servers runs, using it would start the other one.
        """
        if not self.settings().catalog.needs_nessie:
            return True
        return all(service.state == "running" for service in self.stack().status())

    def is_in_project(self) -> bool:
        """Return whether a project exists, or the settings name a remote catalog."""
        from lakegate.config import is_project

        return self.home is not None or is_project(self.folder()) or not self.settings().catalog.is_local

    def _prepare(self, *, may_create_project: bool = False) -> None:
        if not (may_create_project or self.is_in_project()):
            raise ConfigurationError(
                f"There's no lakegate project in {self.folder()} or any folder above it.",
                hint="Change to your project's folder, or pass --home. To start a project here: lakegate ingest "
                "TABLE FILES, or lakegate demo",
            )
        if self.logs is None:
            _quieten_libraries(debug=self.debug)

    def folder(self) -> Path:
        """Return the project's folder."""
        from lakegate.config import find_home

        return self.home or find_home()

    def settings(self) -> Settings:
        """Return the settings in effect."""
        from lakegate.config import load_settings

        return load_settings(self.folder(), flags=self.flags())

    def flags(self) -> dict[str, str | None]:
        """Return the settings that global options override, by dotted key."""
        from lakegate.config import catalog_flags

        return {"engine.url": self.engine, "log.format": self.log_format, **catalog_flags(self.catalog)}

    def command_without_dry_run(self) -> str:
        """Return the current command line without ``--dry-run``, to type again. Secrets are left out."""
        return redact(command_line(["lakegate", *(word for word in self.words if word != "--dry-run")]))

    def command(self, *words: str) -> str:
        """Return a lakegate command to type next, quoted for a shell, for the same lake as this one."""
        prefix = ["lakegate"]
        for option, value in (("--home", self.home), ("--engine", self.engine), ("--catalog", self.catalog)):
            if value is not None and redact(str(value)) == str(value):
                prefix += [option, str(value)]
        return command_line([*prefix, *words])


def _quieten_libraries(*, debug: bool) -> None:
    # Libraries' logs are for developers. Users get lakegate's own errors and progress.
    import logging
    import warnings

    if debug:
        logging.basicConfig(level=logging.INFO)
        return
    logging.getLogger().addHandler(logging.NullHandler())
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


PROGRAM = "lakegate"
HELP = {"help_option_names": ["-h", "--help"]}
"""Set on every command, not just the root: click caches a command's help option from the first context it sees."""
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    # If it's given both before and after the command's name, the latter wins. If it isn't given here, the former stays.
    if value and param.name:
        if isinstance(value, Path):
            from lakegate.config import home_at

            value = home_at(value)
        setattr(ctx.ensure_object(App), param.name, value)


def global_options(*, hidden: bool) -> list[click.Parameter]:
    """Return the options accepted before and after a command's name. Only the root's help shows them."""
    option = functools.partial(click.Option, expose_value=False, hidden=hidden, callback=_remember)
    return [
        option(["--home"], type=_FOLDER, metavar="DIR", help="The project's folder."),
        option(["--engine"], metavar="URL", help="Spark Connect address. Overrides engine.url."),
        option(["--catalog"], metavar="URI", help="Nessie API v2 address, or sql. Overrides catalog.uri."),
        option(["--quiet", "-q"], is_flag=True, help="Print no progress on standard error."),
        option(["--debug"], is_flag=True, help="Show tracebacks and logs."),
        option(
            ["--log-format"],
            type=click.Choice(["text", "json"]),
            help="Write standard error as text, or as one JSON object per line. Overrides log.format.",
        ),
    ]


class _Documented(click.Command):
    """A command or group that also takes the global options, and whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args``. Errors name this command: click omits it when an option's value is missing."""
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters and the global options."""
        return [*super().get_params(ctx), *global_options(hidden=True)]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, as commands to copy."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            indent = " " * formatter.current_indent
            for example in self.examples:
                shown = wrapped_command(example, formatter.width - len(indent), indent=indent)
                formatter.write(f"{indent}{shown}\n")


class LakegateCommand(_Documented):
    """A command whose function gets the :class:`App` first.

    Args:
        formats: The choices of its ``--output``.
        makes_run: See :class:`App`.
    """

    def __init__(
        self, *args: Any, formats: Sequence[str] = ("table", "json"), makes_run: bool = False, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.makes_run = makes_run
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
        """Set up standard error, then run the command."""
        app = ctx.ensure_object(App)
        app.makes_run = self.makes_run
        app.start_log(ctx)
        return None if self.callback is None else ctx.invoke(self.callback, app, **ctx.params)


class LakegateGroup(_Documented, click.Group):
    """A group of such commands. ``default`` names the one that runs when none is named."""

    command_class = LakegateCommand

    def __init__(self, *args: Any, default: str | None = None, **attributes: Any) -> None:
        super().__init__(*args, no_args_is_help=default is None, **attributes)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse ``args``. If they don't start with a command, insert the default one."""
        if self.default is not None and not ctx.resilient_parsing:
            group_options = {name for one in self.get_params(ctx) for name in one.opts}
            if not args or (args[0].startswith("-") and args[0] not in group_options):
                args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. If the name of a table or a run comes instead, suggest the likely command."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            likely = next((name for name in ("show", "create") if name in self.commands), None)
            # With a dot or a digit, it's a table or a run rather than a mistyped command.
            is_name = likely != "show" or any(one == "." or one.isdecimal() for one in args[0])
            if likely is not None and is_name and "Did you mean" not in error.format_message():
                ctx.fail(f"{error.message} Did you mean '{likely} {args[0]}'?")
            raise


def command(name: str, *, examples: Sequence[str], **attributes: Any) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function the command ``name``. Its docstring is the help."""
    return click.command(name, cls=LakegateCommand, examples=examples, context_settings=HELP, **attributes)


def group(
    name: str, *, examples: Sequence[str], default: str | None = None
) -> Callable[[Callable[..., None]], LakegateGroup]:
    """Make a function the group ``name``. Its docstring is the help. ``default`` runs when no command is named."""
    return click.group(name, cls=LakegateGroup, examples=examples, default=default, context_settings=HELP)
