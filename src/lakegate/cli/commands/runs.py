"""List runs, or show one: its steps, files and checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from lakegate.cli.admin.downstream import show_deliveries
from lakegate.cli.admin.notify import show_notifications
from lakegate.cli.app import App, command
from lakegate.cli.check_output import show_all
from lakegate.cli.commands.report import RUN_FORMATS, write_run
from lakegate.cli.options import complete_runs, complete_tables, file_option, limit_option, since_option
from lakegate.cli.output import Styled, echo_json, safe, say, short_hash, show_rows
from lakegate.cli.run_output import journal_payload, show_next, show_outcome, show_runs, statuses_of
from lakegate.cli.wrapping import tell
from lakegate.model.run import RunKind
from lakegate.model.states import RunStatus
from lakegate.model.words import count, duration, moment, share, size

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.run import Run, RunStep


_OUTCOMES = {"done": "", "failed": "failed", "running": "in progress"}


@command(
    "runs",
    examples=(
        "lakegate runs",
        "lakegate runs --table nyc.trips --status rejected --since 7d",
        "lakegate runs --kind transaction --since 2026-01-31T07:00:00Z -o json",
        "lakegate runs --source yellow_tripdata_2026-01 --orchestrator watch",
        "lakegate runs 20260131T0705",
        "lakegate runs 20260131T0705 -o html --file report.html",
        "lakegate runs 20260131T0705 -o junit > checks.xml",
        "lakegate runs 20260131T0705 -o openlineage > lineage.jsonl",
    ),
    formats=("table", "json", *RUN_FORMATS),
)
@click.argument("run", required=False, shell_complete=complete_runs)
@click.option("--table", metavar="TABLE", help="Only runs of this table.", shell_complete=complete_tables)
@click.option(
    "--status",
    type=click.Choice(get_args(RunStatus)),
    metavar="STATUS",
    help=f"Only runs with this status: {', '.join(get_args(RunStatus))}.",
)
@click.option("--kind", type=click.Choice(get_args(RunKind)), help="Only runs of this kind.")
@click.option("--orchestrator", metavar="NAME", help="Only runs started by NAME: cli, python, watch, prefect, dbos, …")
@click.option("--source", metavar="TEXT", help="Only runs with a source file whose path contains this.")
@since_option("Only runs started since then, such as 2026-01-31T07:00:00Z, 24h or 7d.")
@limit_option(50)
@file_option
def runs(app: App, /, *, run: str | None, limit: int, file: Path | None, **filters: Any) -> None:
    """List runs, newest first; or show one RUN (a run id or a prefix of one).

    For one run, shows its commits, the duration of each step, its files and its audit report. A run id starts with the
    time at which the run started, in UTC. With --output, you can also get one run as a page to send to
    others (html), for CI systems (junit), or for lineage tools (openlineage).
    """
    given = [f"--{name}" for name, value in filters.items() if value is not None]
    if run is not None and given:
        raise click.UsageError(f"{', '.join(given)} can't be combined with a RUN.")
    if app.output in RUN_FORMATS and run is None:
        raise click.UsageError(f"--output {app.output} needs a RUN. A report about many runs: lakegate report")
    if file is not None and app.output not in RUN_FORMATS:
        raise click.UsageError(f"--file needs --output {', '.join(RUN_FORMATS)}.")
    with app.lake() as lake:
        if run is not None:
            found_run = lake.run(run)
            if app.output in RUN_FORMATS:
                write_run(app, lake, found_run, file)
            else:
                _show(app, lake, found_run)
            return
        found = lake.runs(**filters, limit=limit)
        superseded = lake.superseded([one.run_id for one in found if one.status == "rejected"])
    if app.json:
        echo_json([{**journal_payload(one), "superseded_by": superseded.get(one.run_id)} for one in found])
    elif found:
        show_runs(found, superseded)
    else:
        tell("No runs.")


def _show(app: App, lake: Lake, run: Run) -> None:
    deliveries = lake.downstream.deliveries(run=run.run_id)
    if app.json:
        echo_json({**journal_payload(run), "deliveries": deliveries})
        return
    show_outcome(run, statuses_of(lake, run.skipped_files))
    facts = [(name, value) for name, value in _facts(run) if value]
    say("", *(f"  [dim]{name:<11}[/] {safe(value)}" for name, value in facts))
    _show_steps(run.steps)
    _show_files(run)
    for report in run.reports:
        if len(run.reports) > 1:
            say("", f"  Checks of [bold]{safe(report.table)}[/]")
        show_all(report)
    if run.notifications:
        say("")
        show_notifications(run.notifications, indent=2)
    if deliveries:
        say("")
        show_deliveries(deliveries, indent=2)
    show_next(app, run)


def _facts(run: Run) -> list[tuple[str, str]]:
    return [
        ("kind", "" if run.kind == "ingest" else run.kind),
        ("name", run.name or ""),
        ("started", moment(run.started_at)),
        ("finished", moment(run.finished_at)),
        ("branch", _branch(run)),
        ("base", short_hash(run.base or "")),
        ("commit", short_hash(run.publication.commit) if run.publication else ""),
        ("rebased", ", ".join(run.publication.replayed) if run.publication else ""),
        ("written by", ", ".join(run.opening.writers) if run.opening else ""),
        ("reads", ", ".join(run.reads)),
        ("reverts", ", ".join(run.reverts)),
        ("reverted by", run.reverted_by or ""),
        ("detail", "" if run.status == "rejected" else run.detail or ""),
        ("error", run.error.message if run.error else ""),
        ("hint", (run.error.hint or "") if run.error else ""),
    ]


def _branch(run: Run) -> str:
    until = f" until {moment(run.branch_until)}" if run.branch_until else ""
    return f"{run.branch} ({f'kept{until}' if run.branch_kept else 'deleted'})" if run.branch else ""


def _show_steps(steps: Sequence[RunStep]) -> None:
    if not steps:
        return
    total = sum(_seconds(step) for step in steps)
    rows = []
    for step in steps:
        took = _seconds(step)
        cells = (
            step.name,
            moment(step.started_at),
            "" if step.finished_at is None else duration(took),
            share(round(1000 * took), round(1000 * total)),
            _OUTCOMES[step.outcome],
        )
        rows.append(Styled(cells, "red" if step.outcome == "failed" else None))
    say("")
    show_rows(("step", "started", "took", "share", ""), rows, right=("took", "share"), indent=2)


def _seconds(step: RunStep) -> float:
    return 0.0 if step.finished_at is None else (step.finished_at - step.started_at).total_seconds()


def _show_files(run: Run) -> None:
    written = run.request.batch.files if run.request else ()
    uris = {file.uri for file in written}
    left_out = [known.file for known in run.skipped_files if known.file.uri not in uris]
    if not written and not left_out:
        return
    # The request of a run that had nothing to do still lists all its files.
    owners = {known.file.uri: known.run_id for known in run.skipped_files}
    rows = []
    for file in (*written, *left_out):
        version = f"version {file.version_id}" if file.version_id else ""
        note = f"skipped: {owners[file.uri]}" if file.uri in owners else version
        cells = (file.uri, count(file.rows), size(file.size_bytes), note)
        rows.append(Styled(cells, None if file.uri in uris else "dim"))
    say("")
    show_rows(("file", "rows", "size", ""), rows, right=("rows", "size"), indent=2)
