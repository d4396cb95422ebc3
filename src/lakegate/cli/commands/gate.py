"""Let other engines write, and audit and publish it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.app import App, group
from lakegate.cli.options import complete_branches, span, with_options
from lakegate.cli.output import echo_json, next_commands, safe, say, show_rows
from lakegate.cli.run_output import show_result
from lakegate.errors import AuditFailedError, ExitCode, LakegateError, NothingWrittenError
from lakegate.gate.connect import WRITERS, writer_snippet
from lakegate.gate.dbt import DbtProject, find_project
from lakegate.model.words import duration, enumerated, moment

if TYPE_CHECKING:
    from lakegate.api.gate import OpenGate
    from lakegate.model.run import Run

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
"""Exit codes of shells for a command that can't be started."""
_SIGNALLED = 128
_PATIENCE_S = 10.0


class _CommandFailedError(LakegateError):
    """The wrapped command failed; so does ours, with its exit code."""

    code = "command-failed"

    def __init__(self, message: str, exit_code: int, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


def _checks(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, list[str]]:
    checks: dict[str, list[str]] = {}
    for text in values:
        table, colon, check = (part.strip() for part in text.partition(":"))
        if not (table and colon and check):
            raise click.BadParameter(f"'{text}' isn't TABLE:CHECK, such as 'nyc.trips:not_null(fare)'.")
        checks.setdefault(table, []).append(check)
    return checks


_opening_options = with_options(
    click.option("--name", metavar="NAME", help="Name of what is written, for the history."),
    click.option(
        "--check",
        "-c",
        "checks",
        multiple=True,
        metavar="TABLE:CHECK",
        callback=_checks,
        help="A check that a table must pass, beside those of its contract and settings. Repeatable.",
    ),
    click.option("--branch", metavar="BRANCH", help="Name of the branch. Default: one made from the name."),
    click.option(
        "--for",
        "open_for",
        type=span,
        default="24h",
        show_default=True,
        metavar="SPAN",
        help="How long writes are taken at most.",
    ),
)
_opened_argument = click.argument("opened", metavar="BRANCH|RUN", shell_complete=complete_branches)


@group(
    "gate",
    examples=(
        "lakegate gate run -- python nightly.py",
        "lakegate gate run --check 'nyc.trips:not_null(fare)' -- spark-submit job.py",
        "lakegate gate open --name backfill",
        "lakegate gate seal wap/backfill_20260131T070509-0badcafe",
        "lakegate gate status",
    ),
    default="status",
)
def gate() -> None:
    """Let other engines write to a branch, then audit and publish it.

    The gate is an Iceberg REST catalog. Who holds the token of an open branch can write to that branch, and to nothing
    else. When it's sealed, each table that changed is audited, and all of them are published in one commit, or none.
    """


@gate.command(
    "run",
    makes_run=True,
    examples=(
        "lakegate gate run -- python nightly.py",
        "lakegate gate run --name totals --check 'nyc.totals:row_count(min=1)' -- spark-submit totals.py",
    ),
)
@_opening_options
@click.option("--dbt", "is_dbt", is_flag=True, help="COMMAND runs dbt in its project's folder.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(app: App, /, *, command: tuple[str, ...], is_dbt: bool, **options: Any) -> None:
    """Run COMMAND, then audit and publish what it wrote.

    PyIceberg's load_catalog() and the Spark that COMMAND starts find the gate by themselves. Others find its address
    and token in LAKEGATE_GATE_URI and LAKEGATE_GATE_TOKEN.

    With --dbt, outputs of type spark and duckdb in the user's profiles write through the gate. Tests of dbt that fail
    are failed checks.

    If COMMAND fails, nothing is published, the branch stays, and the exit code is that of COMMAND.
    """
    project = find_project(os.environ, command) if is_dbt else None
    with app.lake(may_create_project=True) as lake:
        with (
            suppress(AuditFailedError, NothingWrittenError),  # shown below
            lake.gate(**options) as opened,
            lake.gate.environment(opened) as environment,
        ):
            app.narrator.note(f"Writing to {opened.branch}")
            if project is None:
                _require_done(app, opened, command, _execute(app, command, environment, opened))
            else:
                _run_dbt(app, opened, command, environment, project)
        _show_end(app, opened.run)


def _run_dbt(
    app: App, opened: OpenGate, command: Sequence[str], environment: Mapping[str, str], project: DbtProject
) -> None:
    """Run a command that runs dbt, and raise if it or one of dbt's tests fails."""
    with project.writing(environment, opened.uri, opened.branch, opened.token) as variables:
        status = _execute(app, command, variables, opened)
    said = project.outcome()
    views = "Views can't be published; build tables instead (+materialized: table in dbt_project.yml). "
    _require_done(app, opened, command, status, said.failures, hint=views if said.views else "")
    opened.remember(f"dbt: {said.summary}." if said.summary else None)


def _show_end(app: App, run: Run) -> None:
    """Show how an opening ended. Unless it's published, end the command with 1."""
    show_result(app, run)
    if run.status != "published":
        raise click.exceptions.Exit(ExitCode.AUDIT_FAILED)


def _execute(app: App, command: Sequence[str], environment: Mapping[str, str], opened: OpenGate) -> int:
    """Run the command, and return how it ended. Its standard output is ours, unless ours is JSON."""
    try:
        process = subprocess.Popen(command, env=environment, stdout=sys.stderr if app.json else None)
    except OSError as error:
        code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
        raise _failed(app, opened, f"Can't run {command[0]}: {error.strerror}.", code) from error
    try:
        return process.wait()
    except BaseException:
        with suppress(subprocess.TimeoutExpired):  # Ctrl-C reaches it, too
            process.wait(_PATIENCE_S)
        process.kill()
        raise


def _require_done(
    app: App, opened: OpenGate, command: Sequence[str], status: int, failures: Sequence[str] = (), hint: str = ""
) -> None:
    """Raise if a command failed, or if something that it ran did."""
    happened = f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
    why = f": {enumerated(failures, '; ')}" if failures else ""
    if status or failures:
        code = _SIGNALLED - status if status < 0 else status or ExitCode.AUDIT_FAILED
        raise _failed(app, opened, f"{command[0]} {happened}{why}.", code, hint)


def _failed(app: App, opened: OpenGate, message: str, exit_code: int, hint: str = "") -> _CommandFailedError:
    seen = app.command("diff", "main", opened.branch)
    return _CommandFailedError(message, exit_code, hint=f"{hint}Nothing was published. See what it wrote: {seen}")


@gate.command("open", makes_run=True, examples=("lakegate gate open --name backfill", "lakegate gate open -o json"))
@_opening_options
def open_gate(app: App, /, **options: Any) -> None:
    """Open a branch for a writer, and print its token.

    The writer uses the gate of `lakegate serve`. The token can't be shown again. A branch that
    isn't sealed in time is never published.
    """
    with app.lake(may_create_project=True) as lake:
        opened = lake.gate.open(**options)
    if app.json:
        echo_json({"run_id": opened.run_id, "branch": opened.branch, "token": opened.token})
        return
    say(f"Branch [bold]{safe(opened.branch)}[/] is open for whoever sends this token:", f"  {safe(opened.token)}")
    next_commands(
        ("Serve the gate", app.command("serve")),
        ("See what to paste into an engine", app.command("gate", "connect", opened.branch, "--engine", "spark")),
        ("When the writer is done: audit and publish", app.command("gate", "seal", opened.branch)),
        ("Or for a writer that never is", app.command("watch", "--branch", opened.branch, "--every", "1m")),
    )


@gate.command("seal", makes_run=True, examples=("lakegate gate seal wap/backfill_20260131T070509-0badcafe",))
@_opened_argument
def seal(app: App, /, *, opened: str) -> None:
    """Audit and publish what was written to BRANCH, or nothing.

    From now on, it takes no more writes. If it's interrupted, type it again.
    """
    with app.lake() as lake:
        _show_end(app, lake.gate.seal(opened))


@gate.command("renew", examples=("lakegate gate renew wap/backfill_20260131T070509-0badcafe --for 6h",))
@_opened_argument
@click.option("--for", "open_for", type=span, default="24h", show_default=True, metavar="SPAN", help="From now on.")
def renew(app: App, /, *, opened: str, open_for: Any) -> None:
    """Let BRANCH be open for longer, with the same token."""
    with app.lake() as lake:
        renewed = lake.gate.renew(opened, open_for=open_for)
    if app.json:
        echo_json(_payload(renewed))
    elif renewed.opening is not None:
        say(f"Branch [bold]{safe(renewed.branch)}[/] is open until {moment(renewed.opening.deadline)}.")


@gate.command(
    "connect",
    examples=(
        "lakegate gate connect wap/backfill_20260131T070509-0badcafe --engine spark",
        "lakegate gate connect wap/backfill_20260131T070509-0badcafe --engine duckdb --uri http://lake:8181",
    ),
)
@_opened_argument
@click.option("--engine", required=True, type=click.Choice(tuple(WRITERS)), help="The engine that writes.")
@click.option("--uri", metavar="URL", help="Address of the gate. Default: that of `lakegate serve` by the settings.")
def connect(app: App, /, *, opened: str, engine: str, uri: str | None) -> None:
    """Print what to paste into an engine.

    The engine then writes to BRANCH. It takes the token of `lakegate gate open` from LAKEGATE_GATE_TOKEN.
    """
    with app.lake() as lake:
        run = lake.gate.find(opened)
    settings = app.settings().serve
    text = writer_snippet(engine, uri or f"http://{settings.host}:{settings.port}", run.branch)
    if app.json:
        echo_json({"engine": engine, "branch": run.branch, "text": text})
    else:
        click.echo(text)


@gate.command("status", examples=("lakegate gate status", "lakegate gate status -o json"))
def status(app: App, /) -> None:
    """List the branches that are open for writers now."""
    with app.lake() as lake:
        runs = lake.gate.openings()
    if app.json:
        echo_json([_payload(one) for one in runs])
        return
    show_rows(
        ("branch", "run", "expires in", "writers"),
        ((one.branch, one.run_id, _left(one), ", ".join(one.opening.writers) if one.opening else "") for one in runs),
        whole=("run", "expires in"),
        cut="branch",
        empty="No branch is open.",
    )


def _left(run: Run) -> str:
    left_s = (run.opening.deadline - datetime.now(UTC)).total_seconds() if run.opening is not None else 0.0
    return duration(left_s) if left_s > 0 else "expired"


def _payload(run: Run) -> dict[str, Any]:
    opening = run.opening
    return {
        "run_id": run.run_id,
        "name": run.name,
        "branch": run.branch,
        "started_at": run.started_at,
        "deadline": None if opening is None else opening.deadline,
        "writers": [] if opening is None else list(opening.writers),
        "reads": list(run.reads),
        "checks": {table: [str(check) for check in checks] for table, checks in run.checks.items()},
    }
