"""What the orchestrators' programs share: how a table is named, and how errors are shown."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import click

from lakegate.errors import ExitCode, InputError, LakegateError
from lakegate.model.identifiers import TableIdentifier
from lakegate.progress import without_secrets

_INTERNAL = 70


def full_name(table: str, namespace: str | None) -> str:
    """Return ``namespace.table``, given as one value or as two."""
    if namespace is None or table.startswith(f"{namespace}."):
        return str(TableIdentifier.parse(table))
    if "." in table:
        raise InputError(f"--table_name '{table}' isn't in --namespace '{namespace}'.", hint="Name the namespace once.")
    return str(TableIdentifier.parse(f"{namespace}.{table}"))


def run_command(command: click.Command, program: str, words: Sequence[str] | None = None) -> int:
    """Run a command with ``words``, by default those of the command line, and return its exit code."""
    try:
        code = command.main(None if words is None else list(words), prog_name=program, standalone_mode=False)
    except LakegateError as error:
        return _report(error.message, error.hint, error.exit_code)
    except click.UsageError as error:
        path = program if error.ctx is None else error.ctx.command_path
        return _report(error.format_message(), f"For help, run: {path} --help", ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _report("Interrupted.", "To see how far a run got: lakegate runs", ExitCode.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - Python's own exit code, 1, would mean that the audit failed
        if "--debug" in (sys.argv if words is None else words):
            click.echo(without_secrets(traceback.format_exc()), err=True, nl=False)
        message = without_secrets(f"internal error: {type(error).__name__}: {error}")
        return _report(message, "This is a bug. To see how far a run got: lakegate runs", _INTERNAL)
    return code if isinstance(code, int) else ExitCode.OK


def _report(message: str, hint: str | None, code: int) -> int:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint:  {hint}", err=True)
    return int(code)
