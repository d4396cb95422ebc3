"""How a command ends when something went wrong: one sentence, a hint, an exit code, and no traceback."""

from __future__ import annotations

import json
import os
import select
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from lakegate.cli import log_choice
from lakegate.errors import ExitCode, LakegateError

if TYPE_CHECKING:
    from lakegate.cli.app import App

INTERNAL = 70
"""Exit code of an unexpected exception: EX_SOFTWARE of ``sysexits.h``."""


class _Ending(NamedTuple):
    exit_code: int
    error: dict[str, object]
    usage: str | None = None


def report(error: BaseException, app: App) -> int:
    """Tell of ``error`` on standard error (and with JSON output as one object on standard output too).

    Args:
        error: What ended the command.
        app: The invocation.

    Returns:
        The exit code.
    """
    log_choice.begin(app, error.ctx if isinstance(error, click.UsageError) else None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and app.logs is None:
        error.show()
        return error.exit_code
    ending = _explain(error)
    if app.debug and app.logs is None:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    if app.output == "json" or (isinstance(error, click.UsageError) and _asks_for_json(app.words)):
        _echo_json({"error": ending.error})
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


def flush_stdout() -> None:
    """Write out what is buffered, if there is a standard output at all.

    Raises:
        OSError: When it cannot be written: the pipe is closed, the disk full.
    """
    if sys.stdout is not None:
        sys.stdout.flush()


def stdout_is_gone() -> bool:
    """Tell whether standard output is a pipe or terminal that nobody reads any more."""
    try:
        watch = select.poll()
        watch.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in watch.poll(0))
    except (AttributeError, OSError, ValueError):
        return False


def abandon_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush does not fail."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError):
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, descriptor)
    os.close(sink)


def _explain(error: BaseException) -> _Ending:
    if isinstance(error, LakegateError):
        return _Ending(error.exit_code, error.to_dict())
    if isinstance(error, click.Abort):
        told = str(error.__cause__ or "") or "Nothing more was done; `lakegate runs` shows how far a run came."
        return _Ending(ExitCode.INTERRUPTED, _facts("interrupted", f"Interrupted. {told}"))
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "lakegate"
        usage = error.ctx.get_usage().replace("Usage:", "usage:") if error.ctx else None
        # Its message would be the whole help.
        missing = isinstance(error, click.exceptions.NoArgsIsHelpError)
        message = "Missing command." if missing else error.format_message()
        facts = _facts("usage", message, f"`{path} --help` shows what it takes.")
        return _Ending(ExitCode.USAGE, facts, usage)
    if isinstance(error, click.ClickException):
        return _Ending(ExitCode.USAGE, _facts("usage", error.format_message()))
    if isinstance(error, OSError) and not isinstance(error, ConnectionError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return _Ending(ExitCode.USAGE, _facts("system", f"{error.strerror}{place}"))
    message = f"internal error: {type(error).__name__}: {error}"
    return _Ending(INTERNAL, _facts("internal", message, "Run it again with --debug to see where."))


def _facts(code: str, message: str, hint: str | None = None) -> dict[str, object]:
    return {"code": code, "message": message, "hint": hint, "context": {}}


def _asks_for_json(words: Sequence[str]) -> bool:
    joined = " ".join(words)
    return any(
        spelling in f" {joined} " for spelling in (" -o json ", " -ojson ", " --output json ", " --output=json ")
    )


def _echo_json(value: object) -> None:
    try:
        click.echo(json.dumps(value, ensure_ascii=False, indent=2))
    except OSError:
        abandon_stdout()


def _say(label: str, color: str, text: str) -> None:
    if "NO_COLOR" not in os.environ:
        label = click.style(label, fg=color, bold=True)
    click.echo(f"{label} {text}", err=True)
