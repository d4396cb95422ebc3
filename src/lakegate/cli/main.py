"""Entry point of ``lakegate``. Turns every error into a message, a hint and an exit code, without a traceback.

It imports only click. Each command imports what it needs.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, NamedTuple, NoReturn

import click
from click.shell_completion import CompletionItem

from lakegate import __version__
from lakegate.cli import streams
from lakegate.cli.app import PROGRAM, App, global_options
from lakegate.cli.wrapping import wrapped, wrapped_hint
from lakegate.errors import ExitCode, LakegateError
from lakegate.progress import one_line, without_secrets

PANELS = {
    "Every day": (
        "inspect",
        "ingest",
        "query",
        "runs",
        "ui",
        "diff",
        "publish",
        "discard",
        "quarantine",
        "revert",
    ),
    "Checks": ("check", "checks", "audit"),
    "Tables": ("table", "log", "branch", "tag"),
    "Unattended": ("watch", "backfill", "report", "serve", "gate"),
    "Project": ("demo", "generate", "up", "down", "status", "admin"),
}
"""Headings of the help, and the commands below each, in order. Commands that aren't listed come last."""
_COMMANDS = Path(__file__).parent / "commands"
_MARGIN = len("error: ")
_NARROWEST = 20
"""Fewest characters of an error's message to a line."""
INTERNAL = 70
"""Exit code of an unexpected exception: EX_SOFTWARE of ``sysexits.h``."""

_MEMORY_HINT = "Raise the limit (ulimit -v, or the container's) and retry. To see how far the run got: lakegate runs"
_LOADER_OUT_OF_MEMORY = "failed to map segment"
"""The dynamic loader's error when there's no memory for a library."""
_DEPTH_HINT = "Use fewer parentheses in the query or check, or fewer levels in the file."


class Root(click.Group):
    """The ``lakegate`` command: imports commands when they're used, and turns every outcome into an exit code.

    Each module in ``commands/`` is a command with its name. The first line of its docstring is its summary in the help.
    """

    @cached_property
    def panels(self) -> dict[str, list[str]]:
        """The commands below each heading of the help."""
        panels = {panel: list(names) for panel, names in PANELS.items()}
        listed = {name for names in PANELS.values() for name in names}
        panels["Project"] += sorted({path.stem for path in _COMMANDS.glob("[a-z]*.py")} - listed)
        return panels

    @cached_property
    def summaries(self) -> dict[str, str]:
        """One-line summaries of all commands, in the order of the help."""
        return {name: _summary(_COMMANDS / f"{name}.py") for names in self.panels.values() for name in names}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the global options."""
        return [*global_options(hidden=False), *super().get_params(ctx)]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order of the help."""
        del ctx
        return list(self.summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command called ``cmd_name``; ``None`` if there's none."""
        del ctx
        if cmd_name not in self.summaries:
            return None
        loaded: click.Command = getattr(importlib.import_module(f"lakegate.cli.commands.{cmd_name}"), cmd_name)
        return loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest those with the closest spelling, none of which click has loaded."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            if (_COMMANDS.parent / "admin" / f"{args[0]}.py").is_file():
                ctx.fail(f"No such command '{args[0]}'. Did you mean 'admin {args[0]}'?")
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self.summaries, ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by panel, without importing them."""
        del ctx
        width = max(map(len, self.summaries))
        for panel, names in self.panels.items():
            with formatter.section(panel):
                formatter.write_dl([(name.ljust(width), self.summaries[name]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands and options, without importing any command."""
        names = [
            CompletionItem(name, help=text) for name, text in self.summaries.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Report a broken connection or truncated data as an error.

        Click would take the first for a closed pipe, and the second for Ctrl-D at a prompt.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ConnectionAbortedError(str(error)) from error
        except EOFError as error:
            raise RuntimeError(str(error) or "unexpected end of data") from error

    def main(  # type: ignore[override]  # always exits: our exit codes aren't click's
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Parse ``args``, run the command, report any error, and exit."""
        words = sys.argv[1:] if args is None else list(args)
        app = extra.pop("obj", None) or App()
        app.words = tuple(words)
        extra.pop("standalone_mode", None)
        try:
            result = super().main(words, prog_name or PROGRAM, standalone_mode=False, obj=app, **extra)
            code = result if isinstance(result, int) else 0
        except Exception as error:  # noqa: BLE001 - the last line of defence
            code = report(error, app)
        code = finish_output(code, app)
        if app.logs is not None:
            app.logs.close(code)
            app.logs = None
        sys.exit(code)


def _summary(module: Path) -> str:
    with module.open(encoding="utf-8") as source:
        return source.readline().strip().strip('"')


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 audit failed, 2 invalid input, 3 try again, 4 outcome unknown, "
    "5 done but output lost, 70 internal error, 130 interrupted.",
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
def cli() -> None:
    """Write–audit–publish for Iceberg lakehouses.

    Writes files to a branch, audits them there, and publishes them to main in one commit, or not at all.
    To see it work, run: lakegate demo
    """


def main() -> NoReturn:
    """Run the command line on ``sys.argv`` and exit."""
    signal.signal(signal.SIGTERM, _interrupt)
    # If this process inherited that it's ignored, the programs that it runs would all seem to end with exit code 0.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    streams.guard()
    # A command ends before garbage piles up, and collecting it among the libraries' objects takes 0.2 s.
    gc.set_threshold(1_000_000, 50, 100)
    code: str | int | None = ExitCode.OK
    try:
        cli.main(prog_name=PROGRAM)
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:  # during the last output
        code = ExitCode.INTERRUPTED
    except BaseException:  # noqa: BLE001 - Python would exit with 1, which means a failed audit
        traceback.print_exc()
        code = INTERNAL
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # The commands' context managers have closed what must be closed. Destroying the libraries' objects one by one would
    # take another half second.
    os._exit(code if isinstance(code, int) else int(code is not None))


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


class _Failure(NamedTuple):
    """What is known about a failure.

    Attributes:
        detail: What another program said: for the terminal only, not for ``--output json`` or logs.
    """

    exit_code: int
    error: dict[str, object]
    usage: str | None = None
    detail: str | None = None


def report(error: BaseException, app: App) -> int:
    """Print an error on standard error (and, with JSON output, on standard output), and return the exit code."""
    app.start_log(error.ctx if isinstance(error, click.UsageError) else None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and app.logs is None:
        error.show()
        return error.exit_code
    failure = _explain(error, makes_run=app.makes_run)
    if app.done:
        failure.error["message"] = f"{failure.error['message']} {app.done}"
    if app.debug and app.logs is None:
        # Its causes are other programs' errors, which may name secrets.
        click.echo(without_secrets("".join(traceback.format_exception(error))), err=True, nl=False)
    if app.output == "json" or (isinstance(error, click.UsageError) and _wants_json(app.words)):
        click.echo(streams.as_json({"error": failure.error}, indent=2))
    if app.logs is None:
        _print(failure)
    else:
        app.logs.error(failure.error, failure.exit_code, error)
    return failure.exit_code


def _print(failure: _Failure) -> None:
    _say("error:", "red", str(failure.error["message"]), wrapped)
    if failure.detail:
        _say("cause:", "yellow", without_secrets(failure.detail), wrapped)
    if failure.usage:
        click.echo(failure.usage, err=True)
    if failure.error["hint"]:
        _say("hint: ", "cyan", str(failure.error["hint"]), wrapped_hint)


def finish_output(code: int, app: App) -> int:
    """Flush standard output, report if some of it was lost, and return the exit code: ``code``, if all went well."""
    code, reason = streams.final_exit_code(code)
    if reason is not None:
        done = app.done or ("The command completed." if code == ExitCode.OUTPUT_LOST else None)
        message = f"Standard output is incomplete: {reason}." + (f" {done}" if done else "")
        hint = "You don't need to repeat it. To see the run: lakegate runs" if app.done else None
        failure = _Failure(code, _facts("output-lost", message, hint))
        if app.logs is None:
            _print(failure)
        else:
            app.logs.error(failure.error, code)
    return code


def _explain(error: BaseException, *, makes_run: bool) -> _Failure:
    if isinstance(error, LakegateError):
        return _Failure(error.exit_code, error.to_dict(), detail=error.detail)
    if isinstance(error, click.Abort):
        if isinstance(error.__cause__, click.ClickException):  # the answer was no
            return _Failure(ExitCode.INTERRUPTED, _facts("interrupted", error.__cause__.format_message()))
        cause = str(error.__cause__ or "")
        if not cause and makes_run:
            cause = "To see how far the run got: lakegate runs"
        return _Failure(ExitCode.INTERRUPTED, _facts("interrupted", f"Interrupted. {cause}".rstrip()))
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "lakegate"
        usage = error.ctx.get_usage().replace("Usage:", "usage:") if error.ctx else None
        # Its message would be the whole help.
        missing = isinstance(error, click.exceptions.NoArgsIsHelpError)
        # Click lists the choices of a missing option on lines of their own, with tabs.
        message = "Missing command." if missing else error.format_message().replace("\n\t", " ")
        facts = _facts("usage", message, f"For help, run: {path} --help")
        return _Failure(ExitCode.USAGE, facts, usage)
    if isinstance(error, click.ClickException):
        return _Failure(ExitCode.USAGE, _facts("usage", error.format_message()))
    return _explain_python(error)


def _explain_python(error: BaseException) -> _Failure:
    if isinstance(error, OSError) and not isinstance(error, ConnectionError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return _Failure(ExitCode.USAGE, _facts("system", f"{error.strerror}{place}"))
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and _LOADER_OUT_OF_MEMORY in str(error)):
        return _Failure(ExitCode.RETRYABLE, _facts("out-of-memory", "Out of memory.", _MEMORY_HINT))
    if isinstance(error, RecursionError):
        return _Failure(ExitCode.USAGE, _facts("too-deep", "The input is nested too deeply.", _DEPTH_HINT))
    message = without_secrets(f"internal error: {type(error).__name__}: {error}")
    return _Failure(
        INTERNAL,
        _facts("internal", message, "This is a bug in lakegate. For a traceback, run the command again with --debug."),
    )


def _facts(code: str, message: str, hint: str | None = None) -> dict[str, object]:
    return {"code": code, "message": message, "hint": hint, "context": {}}


def _wants_json(words: Sequence[str]) -> bool:
    line = f" {' '.join(words)} "
    return any(f" {spelling} " in line for spelling in ("-o json", "-ojson", "--output json", "--output=json"))


def _say(label: str, color: str, text: str, fit: Callable[..., str]) -> None:
    """Print a labelled text, on a terminal made to fit; what programs read stays as it is."""
    # Names in it may come from data, and must not control the terminal.
    lines = "\n".join(map(one_line, text.split("\n")))
    if sys.stderr and sys.stderr.isatty():
        lines = fit(lines, max(get_terminal_size().columns - _MARGIN, _NARROWEST), indent=" " * _MARGIN)
    if "NO_COLOR" not in os.environ:
        label = click.style(label, fg=color, bold=True)
    click.echo(f"{label} {lines}", err=True)
