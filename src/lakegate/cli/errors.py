"""How a command ends when something went wrong: a message, a hint and an exit code, but no traceback."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from lakegate.cli import streams
from lakegate.errors import ExitCode, LakegateError

if TYPE_CHECKING:
    from lakegate.cli.app import App

INTERNAL = 70
"""Exit code of an unexpected exception: EX_SOFTWARE of ``sysexits.h``."""

_MEMORY_HINT = "Raise its limit (ulimit -v, or the container's) and retry. To see how far a run got: lakegate runs"
_NOT_MAPPED = "failed to map segment"
"""The loader's error when there is no memory for a library."""
_DEPTH_HINT = "Use fewer parentheses in the query or check, or fewer levels in the file."


class _Ending(NamedTuple):
    exit_code: int
    error: dict[str, object]
    usage: str | None = None


def report(error: BaseException, app: App) -> int:
    """Print an error on standard error (and, with JSON output, on standard output), and return the exit code."""
    app.begin_log(error.ctx if isinstance(error, click.UsageError) else None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and app.logs is None:
        error.show()
        return error.exit_code
    ending = _explain(error)
    if app.done:
        ending.error["message"] = f"{ending.error['message']} {app.done}"
    if app.debug and app.logs is None:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if app.output == "json" or (isinstance(error, click.UsageError) and _asks_for_json(app.words)):
        click.echo(streams.as_json({"error": ending.error}, indent=2))
    if app.logs is None:
        _print(ending)
    else:
        app.logs.error(ending.error, ending.exit_code, error)
    return ending.exit_code


def _print(ending: _Ending) -> None:
    _say("error:", "red", str(ending.error["message"]))
    if ending.usage:
        click.echo(ending.usage, err=True)
    if ending.error["hint"]:
        _say("hint: ", "cyan", str(ending.error["hint"]))


def settle(code: int, app: App) -> int:
    """Flush standard output, report what could not be written, and return the exit code, by default ``code``."""
    code, reason = streams.ending(code)
    if reason is not None:
        done = app.done or ("The command completed." if code == ExitCode.OUTPUT_LOST else None)
        message = f"Standard output is incomplete: {reason}." + (f" {done}" if done else "")
        hint = "You don't need to repeat it. To see the run: lakegate runs" if app.done else None
        ending = _Ending(code, _facts("output-lost", message, hint))
        if app.logs is None:
            _print(ending)
        else:
            app.logs.error(ending.error, code)
    return code


def _explain(error: BaseException) -> _Ending:
    if isinstance(error, LakegateError):
        return _Ending(error.exit_code, error.to_dict())
    if isinstance(error, click.Abort):
        cause = str(error.__cause__ or "") or "To see how far a run got: lakegate runs"
        return _Ending(ExitCode.INTERRUPTED, _facts("interrupted", f"Interrupted. {cause}"))
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "lakegate"
        usage = error.ctx.get_usage().replace("Usage:", "usage:") if error.ctx else None
        # Its message would be the whole help.
        missing = isinstance(error, click.exceptions.NoArgsIsHelpError)
        message = "Missing command." if missing else error.format_message()
        facts = _facts("usage", message, f"For help, run: {path} --help")
        return _Ending(ExitCode.USAGE, facts, usage)
    if isinstance(error, click.ClickException):
        return _Ending(ExitCode.USAGE, _facts("usage", error.format_message()))
    return _of_the_machine(error)


def _of_the_machine(error: BaseException) -> _Ending:
    """Explain what Python itself raises."""
    if isinstance(error, OSError) and not isinstance(error, ConnectionError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return _Ending(ExitCode.USAGE, _facts("system", f"{error.strerror}{place}"))
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and _NOT_MAPPED in str(error)):
        return _Ending(ExitCode.RETRYABLE, _facts("out-of-memory", "Out of memory.", _MEMORY_HINT))
    if isinstance(error, RecursionError):
        return _Ending(ExitCode.USAGE, _facts("too-deep", "The input is nested too deeply.", _DEPTH_HINT))
    message = f"internal error: {type(error).__name__}: {error}"
    return _Ending(
        INTERNAL,
        _facts("internal", message, "This is a bug in lakegate. To see the traceback, run it again with --debug."),
    )


def _facts(code: str, message: str, hint: str | None = None) -> dict[str, object]:
    return {"code": code, "message": message, "hint": hint, "context": {}}


def _asks_for_json(words: Sequence[str]) -> bool:
    line = f" {' '.join(words)} "
    return any(f" {spelling} " in line for spelling in ("-o json", "-ojson", "--output json", "--output=json"))


def _say(label: str, color: str, text: str) -> None:
    if "NO_COLOR" not in os.environ:
        label = click.style(label, fg=color, bold=True)
    click.echo(f"{label} {text}", err=True)
