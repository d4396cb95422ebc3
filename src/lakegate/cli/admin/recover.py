"""Finish or undo runs whose process died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App, command
from lakegate.cli.options import complete_runs
from lakegate.cli.output import Styled, echo_json, next_commands, show_rows
from lakegate.cli.run_output import STYLES, journal_payload
from lakegate.cli.wrapping import tell
from lakegate.errors import ExitCode, LakegateError
from lakegate.model.words import count, moment

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.run import Run


@command(
    "recover",
    makes_run=True,
    examples=("lakegate admin recover", "lakegate admin recover 20260131T0705", "lakegate admin recover -o json"),
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=complete_runs)
def recover(app: App, /, *, runs: tuple[str, ...]) -> None:
    """Finish or undo every run whose process died.

    Checks in the catalog how far each run got: a run that published is recorded as published, a run that passed its
    audit is published, and any other run is undone. Every ingest does this first, so there's seldom anything left to
    do. It's safe at any time, even while other runs are in progress.

    A run that an orchestrator executes step by step is suspended between its steps, and isn't touched until
    journal.park_s has passed. To finish or undo it now, pass its id, or a prefix of it at least as long as
    20260131T0705.

    Exits with 3 if a run couldn't be recovered, or if another process is still recovering one. The others are still
    recovered.
    """
    with app.lake() as lake:
        recovered = _recover_each(app, lake, runs) if runs else lake.recover()
        suspended = {} if runs else lake.maintenance.suspended_runs()
        status = None if runs else lake.maintenance.journal_status()
    left = () if status is None else status.abandoned
    recovering = {} if status is None else status.recovering
    if app.json:
        echo_json([journal_payload(run) for run in recovered])
    elif recovered:
        _show(app, recovered)
    elif not left and not recovering:
        tell("No run to recover.")
    _note_suspended(app, suspended)
    if left:
        others = f" and {count(len(left) - 1)} more" if len(left) > 1 else ""
        tell(f"Run {left[0]}{others} couldn't be recovered.")
        tell(f"To try again and see why: {app.command('admin', 'recover', left[0])}")
    for run_id, process in recovering.items():
        tell(f"Run {run_id} is still being recovered by {process}. See: {app.command('runs', run_id)}")
    if left or recovering:
        raise click.exceptions.Exit(ExitCode.RETRYABLE)


def _recover_each(app: App, lake: Lake, names: Sequence[str]) -> Sequence[Run]:
    """Recover all runs of ``names`` that can be, and raise the first error only then."""
    recovered: dict[str, Run] = {}
    errors: list[LakegateError] = []
    for name in dict.fromkeys(names):
        try:
            recovered |= {run.run_id: run for run in lake.recover([name])}
        except LakegateError as error:
            errors.append(error)
    if errors:
        outcomes = [f"Run {run.run_id} is {run.status}." for run in recovered.values()]
        app.done = " ".join((*(error.message for error in errors[1:]), *outcomes)) or None
        raise errors[0]
    return tuple(recovered.values())


def _show(app: App, runs: Sequence[Run]) -> None:
    rows = []
    for run in runs:
        how = " ".join(filter(None, (run.detail, run.error.message if run.error else None)))
        rows.append(Styled((run.run_id, run.table, run.status, how), STYLES.get(run.status)))
    show_rows(("run", "table", "is now", "how"), rows, whole=("is now",))
    kept = [run.run_id for run in runs if run.branch_kept]
    next_commands(*((f"See why {run_id} failed its audit", app.command("runs", run_id)) for run_id in kept))


def _note_suspended(app: App, suspended: Mapping[str, datetime]) -> None:
    if not suspended:
        return
    first, until = next(iter(suspended.items()))
    if len(suspended) == 1:
        note = f"1 run is suspended until its next step; it's left alone until {moment(until)}."
    else:
        number = count(len(suspended))
        note = f"{number} runs are suspended until their next step; the first is left alone until {moment(until)}."
    tell(note)
    tell(f"To finish or undo one now: {app.command('admin', 'recover', first)}")
