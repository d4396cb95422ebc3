"""Runs: what an ingest, a publish, or the list of runs shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakegate.cli.render.checks import check_payload, show_failing, summary
from lakegate.cli.render.console import add_row, make_table, next_commands, safe, say, show
from lakegate.cli.render.skipped import NO_STATUSES, Statuses, show_skipped, skipped_payload, told_skipped
from lakegate.cli.render.text import count, counted, duration

if TYPE_CHECKING:
    from lakegate.cli.app import App
    from lakegate.model.checks import CheckResult
    from lakegate.model.run import Publication, Run, StagedTable

_WHOLE = ("status", "rows", "took")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
STYLES = {
    "published": "green",
    "rejected": "red",
    "failed": "red",
    "skipped": "yellow",
    "discarded": "yellow",
    "reverted": "yellow",
}


def source_rows(run: Run) -> int | None:
    """Return the rows in the run's source files; ``None`` when neither the request nor the write is known."""
    if run.request is not None:
        return run.request.batch.rows
    return sum(staged.rows for staged in run.staged) if run.staged else None


def standing_branch(run: Run) -> str | None:
    """Return the run's branch while it stands."""
    return run.branch if run.branch_kept else None


def run_payload(run: Run) -> dict[str, Any]:
    """Return what ``ingest --output json`` prints (``schemas/ingest-result.schema.json``)."""
    published = run.publication
    return {
        "run_id": run.run_id,
        "kind": run.kind,
        "table": run.table,
        "tables": list(run.tables),
        "status": run.status,
        "branch": standing_branch(run),
        "commit": published.commit if published else None,
        "replayed": list(published.replayed) if published else [],
        "rows": {"source": source_rows(run), "published": published.rows if published else 0},
        "skipped_files": skipped_payload(run.skipped_files),
        "checks": [
            {"table": report.table, **check_payload(result)} for report in run.reports for result in report.results
        ],
        "seconds": run.seconds,
    }


def journal_payload(run: Run) -> dict[str, Any]:
    """Return a run as ``runs --output json`` prints it: as an ingest does, and what the journal knows besides."""
    return {
        **run_payload(run),
        "name": run.name,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "base": run.base,
        "files": list(run.request.batch.uris) if run.request else [],
        "version_ids": _version_ids(run),
        "steps": [step.model_dump(mode="json") for step in run.steps],
        "reverts": list(run.reverts),
        "undone": [undone.model_dump(mode="json") for undone in run.undone],
        "reverted_by": run.reverted_by,
        "detail": run.detail,
        "error": run.error.model_dump(mode="json") if run.error else None,
        "notifications": [told.model_dump(mode="json") for told in run.notifications],
    }


def _version_ids(run: Run) -> dict[str, str]:
    files = run.request.batch.files if run.request else ()
    return {file.uri: file.version_id for file in files if file.version_id}


def show_run(app: App, run: Run, statuses: Statuses = NO_STATUSES) -> None:
    """Print how a run ended and what can be done next.

    Args:
        app: The invocation.
        run: The run.
        statuses: How the runs stand that have the files it left out.
    """
    show_outcome(run, statuses)
    show_next(app, run)


def show_outcome(run: Run, statuses: Statuses) -> None:
    """Print how a run ended."""
    say(f"[bold {STYLES.get(run.status, 'cyan')}]{run.status}[/]  {headline(run, statuses)}")
    say(f"  [dim]run {run.run_id}{_took(run)}[/]")
    if run.publication is not None and run.publication.replayed:
        say(f"  published on top of newer changes to {safe(', '.join(run.publication.replayed))}; nothing rewritten")
    if run.status != "skipped":
        show_skipped(run, statuses)
    if len(run.staged) > 1:
        _show_tables(run)
    show_undone(run)
    for report in run.reports:
        of = f" of {safe(report.table)}" if len(run.reports) > 1 else ""
        show_failing(f"Failed checks{of}", report.failures, "red")
        show_failing(f"Warnings{of}", report.warnings, "yellow")


def show_next(app: App, run: Run) -> None:
    """Print what can be done with a run that ended."""
    if run.status == "rejected":
        _after_rejection(app, run)
    elif run.status == "published":
        _after_publication(app, run)
    elif run.status == "skipped":
        next_commands(("Look at earlier runs of the table", app.command("runs", "--table", run.tables[0])))


def show_runs(runs: Sequence[Run]) -> None:
    """Print a list of runs, newest first. A run's id tells when it began."""
    table = make_table("run", "table", "status", "rows", "took", "notes", right=("rows", "took"), whole=_WHOLE)
    for run in runs:
        add_row(
            table,
            run.run_id,
            run.table,
            run.status,
            count(run.publication.rows if run.publication else source_rows(run)),
            "" if run.seconds is None else duration(run.seconds),
            ", ".join(_notes(run)),
            style=STYLES.get(run.status),
        )
    show(table)


def headline(run: Run, statuses: Statuses = NO_STATUSES) -> str:
    """Return one line of markup: the tables, and what became of the batch."""
    table = f"[bold]{safe(run.table)}[/]"
    rows = source_rows(run)
    batch = "" if rows is None else f" {counted(rows, 'row')}"
    if run.publication is not None:
        reverted = "" if run.reverted_by is None else f"; reverted by run {run.reverted_by}"
        return f"{table}  {told_publication(run, run.publication)} in commit {run.publication.commit[:12]}{reverted}"
    if run.status == "rejected" and run.reports:
        failed, all_of = len(run.failures), sum(len(report.results) for report in run.reports)
        return f"{table}  {failed} of {counted(all_of, 'check')} failed; none of{batch} was published"
    if run.status == "skipped" and run.skipped_files:
        return f"{table}  {safe(told_skipped(run, statuses))}"
    return f"{table}  {safe(run.detail or batch.strip())}"


def told_publication(run: Run, publication: Publication) -> str:
    """Return what a run's commit brought, or took back."""
    if run.kind in ("revert", "restore"):
        return f"{run.kind} of {counted(len(publication.tables), 'table')}"
    return counted(publication.rows, "row")


def _notes(run: Run) -> list[str]:
    notes = [] if run.kind == "ingest" else [run.kind if run.name is None else f"{run.kind} {run.name}"]
    notes += [f"{result.name} failed" for result in run.failures]
    if run.reverts:
        notes.append(f"undid {run.reverts[0]}" + (f" and {len(run.reverts) - 1} more" if len(run.reverts) > 1 else ""))
    if run.skipped_files:
        notes.append(f"{counted(len(run.skipped_files), 'file')} skipped")
    if run.publication is not None and run.publication.replayed:
        notes.append("replayed")
    if run.reverted_by is not None:
        notes.append(f"by {run.reverted_by}")
    if run.error is not None:
        notes.append(run.error.code)
    return notes


def _took(run: Run) -> str:
    checks = f", {safe(summary(*run.reports))}" if run.reports else ""
    return ("" if run.seconds is None else f", {duration(run.seconds)}") + checks


def _show_tables(run: Run) -> None:
    replayed = run.publication.replayed if run.publication else ()
    table = make_table("table", "change", "rows added", "files added", right=("rows added", "files added"))
    for staged in run.staged:
        change = _change(staged) + (", replayed" if str(staged.table) in replayed else "")
        add_row(table, str(staged.table), change, count(staged.rows), count(staged.data_files))
    say("")
    show(table, indent=2)


def show_undone(run: Run) -> None:
    """Print what an undoing did to each table, or would do."""
    if not run.undone:
        return
    table = make_table("table", "rows", "data files", "", right=("rows", "data files"))
    for undone in run.undone:
        cells = (undone.table, f"{undone.rows:+,}", f"{undone.data_files:+,}", "dropped" if undone.dropped else "")
        add_row(table, *cells)
    say("")
    show(table, indent=2)


def _change(staged: StagedTable) -> str:
    if staged.before is None:
        return "created"
    return "appended" if staged.change == "append" else "changed"


def _after_publication(app: App, run: Run) -> None:
    gone = {undone.table for undone in run.undone if undone.dropped}
    looks = [
        (f"Look at {table if len(run.tables) > 1 else 'the table'}", app.command("query", _first_rows(table)))
        for table in run.tables
        if table not in gone
    ]
    next_commands(*looks, ("See it in the history", app.command("log", "--limit", "5")))


def _after_rejection(app: App, run: Run) -> None:
    branch = standing_branch(run)
    if branch is None:
        say("", f"Branch {safe(run.branch)} was dropped, and the batch with it.")
        return
    say("", f"The batch stays on branch [bold]{safe(branch)}[/]; main is as it was.")
    next_commands(
        ("Look at the rows", app.command("query", _failing_rows(run), "--ref", branch)),
        ("See what the branch changes", app.command("diff", "main", branch)),
        ("Publish it, once its audit passes", app.command("publish", branch)),
        ("Or drop it", app.command("discard", branch)),
    )


def _failing_rows(run: Run) -> str:
    failing = ((report.table, result) for report in run.reports for result in report.failures)
    table, failure = next(failing, (run.tables[0], None))
    return f"SELECT * FROM {sql_name(table)}{_where(failure)} LIMIT 20"  # noqa: S608 - shown, not run; names are quoted


def _where(failure: CheckResult | None) -> str:
    if failure is None or not failure.check.startswith("not_null(") or not failure.columns:
        return ""
    return " WHERE " + " OR ".join(f"{sql_name(column)} IS NULL" for column in failure.columns)


def _first_rows(table: str) -> str:
    return f"SELECT * FROM {sql_name(table)} LIMIT 10"  # noqa: S608 - shown, not run; names are quoted


def sql_name(name: str) -> str:
    """Return a table's or a column's name for SQL, quoted only where it must be.

    Example:
        >>> sql_name("nyc.trips"), sql_name("nyc.trips-2026")
        ('nyc.trips', 'nyc.`trips-2026`')
    """
    return ".".join(part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in name.split("."))
