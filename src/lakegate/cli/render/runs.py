"""Runs: what an ingest, a publish, or the list of runs shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakegate.cli.render.checks import check_payload, show_all, show_failing, summary
from lakegate.cli.render.console import add_row, make_table, next_commands, safe, say, show
from lakegate.cli.render.text import count, counted, duration, moment, size

if TYPE_CHECKING:
    from lakegate.cli.app import App
    from lakegate.model.checks import CheckResult
    from lakegate.model.run import Run

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STYLES = {"published": "green", "rejected": "red", "failed": "red", "skipped": "yellow", "discarded": "yellow"}


def source_rows(run: Run) -> int | None:
    """Return the rows in the run's source files; ``None`` when neither the request nor the write is known."""
    if run.request is not None:
        return run.request.batch.rows
    return run.staged.rows if run.staged is not None else None


def standing_branch(run: Run) -> str | None:
    """Return the run's branch while it stands."""
    return run.branch if run.branch_kept else None


def run_payload(run: Run) -> dict[str, Any]:
    """Return what ``ingest --output json`` prints (``schemas/ingest-result.schema.json``)."""
    return {
        "run_id": run.run_id,
        "table": run.table,
        "status": run.status,
        "branch": standing_branch(run),
        "commit": run.publication.commit if run.publication else None,
        "rows": {"source": source_rows(run), "published": run.publication.rows if run.publication else 0},
        "checks": [check_payload(result) for result in run.report.results] if run.report else [],
        "seconds": run.seconds,
    }


def journal_payload(run: Run) -> dict[str, Any]:
    """Return a run as ``runs --output json`` prints it: as an ingest does, and what the journal knows besides."""
    return {
        **run_payload(run),
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "files": list(run.request.batch.uris) if run.request else [],
        "detail": run.detail,
        "error": run.error.model_dump(mode="json") if run.error else None,
    }


def show_run(app: App, run: Run) -> None:
    """Print how a run ended and what can be done next."""
    say(f"[bold {_STYLES.get(run.status, 'cyan')}]{run.status}[/]  {headline(run)}")
    say(f"  [dim]run {run.run_id}{_took(run)}[/]")
    if run.report is not None:
        show_failing("Failed checks", run.report.failures, "red")
        show_failing("Warnings", run.report.warnings, "yellow")
    if run.status == "rejected":
        _after_rejection(app, run)
    elif run.status == "published":
        _after_publication(app, run)
    elif run.status == "skipped":
        next_commands(("Look at earlier runs of the table", app.command("runs", "--table", run.table)))


def show_runs(runs: Sequence[Run]) -> None:
    """Print a list of runs, newest first."""
    columns = ("run", "table", "status", "rows", "failed checks", "started", "took")
    table = make_table(*columns, right=("rows", "took"), whole=("status", "rows", "started", "took"))
    for run in runs:
        failures = run.report.failures if run.report else ()
        add_row(
            table,
            run.run_id,
            run.table,
            run.status,
            count(run.publication.rows if run.publication else source_rows(run)),
            ", ".join(result.name for result in failures),
            moment(run.started_at),
            "" if run.seconds is None else duration(run.seconds),
            style=_STYLES.get(run.status),
        )
    show(table)


def show_journal(app: App, run: Run) -> None:
    """Print all that the journal knows of one run."""
    show_run(app, run)
    facts = [("started", moment(run.started_at)), ("finished", moment(run.finished_at)), ("branch", _branch(run))]
    if run.publication:
        facts.append(("commit", run.publication.commit))
    if run.error:
        facts += [("error", run.error.message), ("hint", run.error.hint or "")]
    say("", *(f"  [dim]{name:<9}[/] {safe(value)}" for name, value in facts if value))
    if run.request:
        for file in run.request.batch.files:
            say(f"  [dim]file     [/] {safe(file.uri)}  [dim]{count(file.rows)} rows, {size(file.size_bytes)}[/]")
    if run.report:
        show_all(run.report)


def headline(run: Run) -> str:
    """Return one line of markup: the table, and what became of the batch."""
    table = f"[bold]{safe(run.table)}[/]"
    rows = source_rows(run)
    batch = "" if rows is None else f" {counted(rows, 'row')}"
    if run.publication is not None:
        return f"{table}  {counted(run.publication.rows, 'row')} in commit {run.publication.commit[:12]}"
    if run.status == "rejected" and run.report is not None:
        failed, all_of = len(run.report.failures), len(run.report.results)
        return f"{table}  {failed} of {counted(all_of, 'check')} failed; none of{batch} was published"
    return f"{table}  {safe(run.detail or batch.strip())}"


def _took(run: Run) -> str:
    checks = f", {safe(summary(run.report))}" if run.report is not None else ""
    return ("" if run.seconds is None else f", {duration(run.seconds)}") + checks


def _branch(run: Run) -> str:
    return f"{run.branch} ({'stands' if run.branch_kept else 'gone'})"


def _after_publication(app: App, run: Run) -> None:
    sql = f"SELECT * FROM {sql_name(run.table)} LIMIT 10"  # noqa: S608 - shown, not run; names are quoted
    next_commands(
        ("Look at the table", app.command("query", sql)),
        ("See it in the history", app.command("log", "--limit", "5")),
    )


def _after_rejection(app: App, run: Run) -> None:
    branch = standing_branch(run)
    if branch is None:
        say("", f"Branch {safe(run.branch)} was dropped, and the batch with it.")
        return
    say("", f"The batch stays on branch [bold]{safe(branch)}[/]; main is as it was.")
    first = run.report.failures[0] if run.report and run.report.failures else None
    next_commands(
        ("Look at the rows", app.command("query", _sql_for(run.table, first), "--ref", branch)),
        ("See what the branch changes", app.command("diff", "main", branch)),
        ("Publish it, once its audit passes", app.command("publish", branch)),
        ("Or drop it", app.command("discard", branch)),
    )


def _sql_for(table: str, failure: CheckResult | None) -> str:
    where = ""
    if failure is not None and failure.check.startswith("not_null(") and failure.columns:
        where = " WHERE " + " OR ".join(f"{sql_name(column)} IS NULL" for column in failure.columns)
    return f"SELECT * FROM {sql_name(table)}{where} LIMIT 20"  # noqa: S608 - shown, not run; names are quoted


def sql_name(name: str) -> str:
    """Return a table's or a column's name for SQL, quoted only where it must be.

    Example:
        >>> sql_name("nyc.trips"), sql_name("nyc.trips-2026")
        ('nyc.trips', 'nyc.`trips-2026`')
    """
    return ".".join(part if _PLAIN.fullmatch(part) else "`" + part.replace("`", "``") + "`" for part in name.split("."))
