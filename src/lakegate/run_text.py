"""A run in words, for pages, alerts and the dashboard: what happened, what that means, and commands to run next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from typing import Literal

from lakegate.errors import AuditFailedError
from lakegate.model.checks import CheckResult
from lakegate.model.identifiers import rows_query
from lakegate.model.run import Publication, Run, StagedTable, changed_rows, published_tables
from lakegate.model.states import OPEN
from lakegate.model.words import command_line, count, counted, share
from lakegate.progress import without_secrets

Tone = Literal["good", "bad", "warn", "idle"]
"""How a run ended. Pages have a colour and a sign for each tone."""
_TITLES = {
    "published": "Published",
    "rejected": "Rejected",
    "failed": "Failed",
    "skipped": "Nothing to do",
    "discarded": "Discarded",
    "reverted": "Reverted",
    "created": "Running",
    "planned": "Running",
    "staged": "Waiting for its audit",
    "audited": "Waiting to be published",
}
_TONES: dict[str, Tone] = {"published": "good", "rejected": "bad", "failed": "bad"}
_MOST_QUERIES = 3
_CHANGES = {"append": "appended", "evolve": "appended, with new columns", "metadata": "redefined"}


@dataclass(frozen=True, slots=True)
class StatusText:
    """The status of a run, or of many, in words.

    Attributes:
        tone: How it ended.
        title: The status in a word or two.
        happened: What happened.
        means: What that means for readers of the tables.
        commands: Purpose and text of commands to run next.
    """

    tone: Tone
    title: str
    happened: str
    means: str
    commands: tuple[tuple[str, str], ...]


def describe_run(run: Run) -> StatusText:
    """Describe a run."""
    tone, title = _TONES.get(run.status, "idle"), _TITLES[run.status]
    if run.status == "published":
        if run.kind in ("revert", "restore"):
            title = "Reverted" if run.kind == "revert" else "Dropped" if _is_drop(run) else "Restored"
        elif run.accepted is not None:
            tone, title = "warn", "Published despite failed checks"
        elif any(report.warnings for report in run.reports):
            tone, title = "warn", "Published with warnings"
    return StatusText(tone, title, _happened(run), _means(run), tuple(_commands(run)))


def subject_of(run: Run) -> str:
    """Return what a run is about: its tables, or else how its user named it; it may fail before it writes to any."""
    return run.table or run.name or ("a transaction" if run.opening is None else run.branch)


def rejection(run: Run) -> AuditFailedError:
    """Return the error for a run that its audit rejected; it carries the run."""
    failed = ", ".join(f"{report.table}: {result.name}" for report in run.reports for result in report.failures)
    what = {"transaction": "The transaction", "gate": f"What was written to {run.branch}"}.get(run.kind, "The batch")
    error = AuditFailedError(
        f"{what} isn't published; {run.detail or f'{failed} failed.'}",
        hint=f"lakegate runs {run.run_id}",
        run_id=run.run_id,
        tables=list(run.tables),
        branch=run.branch if run.branch_kept else None,
    )
    error.run = run
    return error


def rows_of(run: Run) -> int | None:
    """Return the number of rows that a run brought; ``None`` if unknown."""
    return source_rows(run) if run.publication is None else run.rows_published


def source_rows(run: Run) -> int | None:
    """Return the number of rows in a run's source files; ``None`` if neither the request nor the write is known."""
    if run.request is not None:
        return run.request.batch.rows
    return sum(staged.rows for staged in published_tables(run.staged)) if run.staged else None


def change_of(staged: StagedTable) -> str:
    """Return what a run did to a table, in a word or two."""
    return "created" if staged.before is None else _CHANGES.get(staged.change, "changed")


def checks_of(run: Run) -> int:
    """Return the number of checks that a run's audits ran."""
    return sum(len(report.results) for report in run.reports)


def failing(result: CheckResult) -> str:
    """Return the text after a number of failing rows: the total and the share."""
    if not 0 < result.failing_rows <= result.total_rows:
        return " row" if result.failing_rows == 1 else " rows"
    verb = "fails" if result.failing_rows == 1 else "fail"
    return f" of {counted(result.total_rows, 'row')} {verb} ({share(result.failing_rows, result.total_rows)})"


def failing_rows(run: Run) -> Iterator[tuple[str, str]]:
    """Yield what a query shows, and the query: for the first failing checks, the rows that fail them."""
    failed = [(report.table, one) for report in run.reports for one in report.failures]
    named = [(table, one) for table, one in failed if one.condition]
    for table, one in named[:_MOST_QUERIES]:
        yield f"See rows that violate {one.name}", rows_query(table, one.condition or "", limit=20)
    tables = [table for table, _ in failed] or run.tables  # a transaction may fail before it writes to a table
    if tables and not named:
        yield "See the rows", rows_query(tables[0], limit=20)


def _happened(run: Run) -> str:
    rows = rows_of(run)
    batch = "The batch" if rows is None else f"The batch of {counted(rows, 'row')}"
    match run.status:
        case "published" | "reverted" if run.publication is not None:
            return _published(run, run.publication)
        case "rejected":
            return f"{_failed_checks(run)}, so nothing was published."
        case "failed":
            return without_secrets(run.error.message) if run.error is not None else "It couldn't finish."
        case "skipped":
            owners = sorted({known.run_id for known in run.skipped_files})
            by = f" by run {owners[0]}" if len(owners) == 1 else f" by {len(owners)} other runs"
            return run.detail or f"All its files were ingested{by} before."
        case "discarded":
            return f"{batch} was discarded; none of it was published."
        case _:
            return f"{batch} is in progress: {run.steps[-1].name if run.steps else 'just started'}."


def _published(run: Run, publication: Publication) -> str:
    if run.kind == "maintenance":
        return f"{run.table}: {run.name or 'maintained'}; no row changed."
    if run.kind == "revert":
        return f"{run.table}: restored to its state before the reverted run."
    if run.kind == "restore":
        return f"{run.table}: {'dropped' if _is_drop(run) else 'restored to an earlier state'}."
    if run.rows_published is None:
        return f"{run.table} was changed. The journal has only the commit, which doesn't say how many rows it added."
    aside = f" {counted(publication.quarantined, 'row')} of the batch quarantined." if publication.quarantined else ""
    added, removed = publication.rows, publication.rows_removed
    if removed == 0:
        return f"{counted(added, 'row')} {'was' if added == 1 else 'were'} added to {run.table}.{aside}"
    return f"{run.table} changed by {changed_rows(added, removed)}.{aside}"


def _is_drop(run: Run) -> bool:
    """Return whether a run dropped its tables, which is a ``restore`` to the state without them."""
    return run.kind == "restore" and bool(run.undone) and all(one.dropped for one in run.undone)


def _failed_checks(run: Run) -> str:
    if not checks_of(run):  # deleted with the run's details, or lost with the process
        return "Its audit failed"
    return f"{count(len(run.failures))} of {counted(checks_of(run), 'check')} failed"


def _means(run: Run) -> str:
    target, publication = run.target, run.publication
    if run.status == "reverted":
        by = f" by run {run.reverted_by}" if run.reverted_by else ""
        return f"It was published to {target} and later reverted{by}. Readers no longer see it."
    if publication is not None:
        since = "then" if run.finished_at is None else f"{run.finished_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
        seen = f"Readers of {target} have seen it since {since}, in commit {publication.commit[:12]}."
        return f"{seen} {_verdict(run)}".strip()
    if run.may_be_published:
        return "The catalog became unavailable during the publish, which may or may not have happened."
    if run.status in OPEN:
        return f"Readers of {target} see none of it until all checks have passed."
    if run.status == "skipped":
        return f"{target} already holds these files." if run.skipped_files else f"{target} is unchanged."
    waits = f" They wait on branch {run.branch} for a decision." if _waits(run) else ""
    return f"{target} is unchanged: no reader has seen any of these rows.{waits}"


def _verdict(run: Run) -> str:
    if run.accepted is not None:
        return f"{_failed_checks(run)}; {run.accepted.actor} published it anyway: {run.accepted.reason}"
    checks = checks_of(run)
    if not checks:
        # With a detail, the report may have existed: it was deleted with the run's details, or lost with the process.
        return "" if run.detail or run.kind in ("maintenance", "revert", "restore") else "No check was configured."
    warned = sum(len(report.warnings) for report in run.reports)
    skipped = sum(len(report.skipped) for report in run.reports)
    if warned:
        return f"{warned} of {counted(checks, 'check')} gave a warning, which doesn't stop a publish."
    if skipped:
        return f"{skipped} of {counted(checks, 'check')} had nothing to check; none failed."
    return f"All {counted(checks, 'check')} passed." if checks > 1 else "Its check passed."


def _waits(run: Run) -> bool:
    return run.status in ("rejected", "failed") and bool(run.branch) and run.branch_kept


def _commands(run: Run) -> Iterator[tuple[str, str]]:
    yield "See the run", _join("runs", run.run_id)
    if run.status in ("created", "planned"):
        yield "If its process died, finish or undo it", _join("admin", "recover")
    if _waits(run) or (run.status in ("staged", "audited") and run.branch_kept):
        for purpose, query in failing_rows(run):
            yield purpose, _join("query", query, "--ref", run.branch)
        yield "See what the branch changes", _join("diff", run.target, run.branch)
        yield "Discard it", _join("discard", run.branch)
        if run.status == "rejected":
            yield "Or publish it anyway", _join("publish", run.branch, "--accept", "REASON")
        elif run.staged:
            yield "Or publish it", _join("publish", run.branch)
    if run.status == "published" and run.quarantined:
        yield "See the quarantined rows", _join("quarantine", "show", run.tables[0], "--run", run.run_id)
    if run.status == "published" and run.kind not in ("revert", "restore"):
        yield "Undo it", _join("revert", run.run_id, "--dry-run")


def _join(*words: str) -> str:
    return command_line(("lakegate", *words))
