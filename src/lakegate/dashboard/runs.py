"""Runs, and the details of one run."""

from __future__ import annotations

from datetime import UTC, datetime

from lakegate.dashboard.model import (
    CheckLine,
    Problem,
    ReadModel,
    ResultPage,
    invalid_cursor,
    page_size,
    searchable,
)
from lakegate.errors import NotFoundError
from lakegate.journal.pages import RunFilter
from lakegate.model.base import Value
from lakegate.model.downstream import Delivery
from lakegate.model.run import Run, RunLine
from lakegate.run_text import describe_run

_MOST_NAMED = 5
_LONGEST_ID = 120
_MOST_DELIVERIES = 100


class RunSummary(RunLine):
    """One run in a list. Fields not described here are those of :class:`~lakegate.model.run.Run`.

    Attributes:
        seconds: Seconds that its steps took; ``None`` while it runs.
        rows: Rows that it added, or would add; ``None`` if unknown.
        quarantined: Rows of its batch that it set aside.
        failed_checks: Number of failed checks that block the publish.
        warned_checks: Number of failed checks of severity ``warn``.
        failing: Names of up to five failed checks.
        commit: Its commit on ``main``, once published.
    """

    tables: tuple[str, ...]
    seconds: float | None = None
    rows: int | None = None
    quarantined: int = 0
    files: int = 0
    checks: int = 0
    failed_checks: int = 0
    warned_checks: int = 0
    failing: tuple[str, ...] = ()
    commit: str | None = None
    accepted_by: str | None = None
    error_code: str | None = None


class RunDetail(Value):
    """One run.

    Attributes:
        run: The run as the journal has it. Its reports contain values that the settings may hide: show ``checks``.
        checks: Results of its checks, failed ones first.
        deliveries: Its events for downstream systems, sent or pending, newest first.
        suspended_until: Until when it waits for its orchestrator.
        branch_exists: Whether its branch exists; ``None`` if it had none, or the catalog is unavailable.
        commands: Commands to run next.
    """

    summary: RunSummary
    run: Run
    checks: tuple[CheckLine, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    suspended_until: datetime | None = None
    branch_exists: bool | None = None
    commands: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def list_runs(
    model: ReadModel, wanted: RunFilter | None = None, *, limit: int = 50, cursor: str | None = None
) -> ResultPage[RunSummary]:
    """Return a page of runs, newest first.

    Args:
        wanted: Which runs. Default: all. A search by file reads 20,000 runs at most; ``next`` continues from there.
    """
    wanted, size = wanted or RunFilter(), page_size(limit)
    after = None if cursor is None else _after(cursor)
    typed = {key: searchable(value) for key, value in wanted if isinstance(value, str)}
    wanted = wanted.model_copy(update=typed)
    found, end = model.journal.pages.runs(wanted, limit=size, after=after, whole=False)
    return ResultPage[RunSummary](
        items=tuple(map(summary_of, found)),
        next=None if end is None else f"{end[0].isoformat()} {end[1]}",
    )


def get_run(model: ReadModel, run_id: str, *, examples: int = 10) -> RunDetail:
    """Return one run, with ``ui.examples`` failing rows per check at most."""
    run = find_run(model, run_id)
    problems: list[Problem] = []
    exists: bool | None = None
    if run.branch:
        with model.reading("catalog", problems):
            exists = any(ref.name == run.branch for ref in model.branches())
    known = run if exists is None else run.model_copy(update={"branch_kept": exists})
    return RunDetail(
        summary=summary_of(run),
        run=run,
        checks=checks_of(model, run, examples=examples),
        deliveries=tuple(model.journal.outbox.list(run_id=run.run_id, limit=_MOST_DELIVERIES)),
        suspended_until=model.journal.suspended().get(run.run_id) if run.finished_at is None else None,
        branch_exists=exists,
        commands=tuple(command for _, command in describe_run(known).commands),
        problems=tuple(problems),
    )


def find_run(model: ReadModel, run_id: str) -> Run:
    """Return the run with this id or unique prefix of one. Raises the same errors as :func:`get_run`."""
    run_id = searchable(run_id[:_LONGEST_ID])
    journal = model.journal
    run = journal.get(run_id) if run_id else None
    if run is not None:
        return run
    # Find a prefix by id alone: a run's document can have megabytes.
    begin = journal.pages.with_prefix(run_id, limit=_MOST_NAMED) if run_id else []
    if len(begin) == 1 and (run := journal.get(begin[0])) is not None:
        return run
    many = f"{len(begin)} or more" if len(begin) == _MOST_NAMED else f"{len(begin)}"
    message = f"{many} runs start with '{run_id}'." if begin else f"Run '{run_id}' doesn't exist."
    raise NotFoundError(message, hint="lakegate runs", run_id=run_id)


def summary_of(run: Run) -> RunSummary:
    """Return a run as one line of a list."""
    results = [result for report in run.reports for result in report.results]
    failed = [result for result in results if result.verdict == "fail"]
    batch = None if run.request is None else run.request.batch
    rows = None if batch is None else batch.rows
    if run.publication is not None:
        rows = run.rows_published
    elif run.staged:
        rows = sum(staged.rows for staged in run.staged) - run.quarantined
    return RunSummary(
        run_id=run.run_id,
        kind=run.kind,
        name=run.name,
        orchestrator=run.orchestrator,
        tables=run.tables,
        branch=run.branch,
        status=run.status,
        started_at=run.started_at,
        finished_at=run.finished_at,
        seconds=run.seconds,
        rows=rows,
        quarantined=run.quarantined,
        files=0 if batch is None else len(batch.files),
        checks=len(results),
        failed_checks=sum(result.blocks for result in failed),
        warned_checks=sum(result.warns for result in failed),
        failing=tuple(result.name for result in failed[:_MOST_NAMED]),
        commit=None if run.publication is None else run.publication.commit,
        accepted_by=None if run.accepted is None else run.accepted.actor,
        reverted_by=run.reverted_by,
        error_code=None if run.error is None else run.error.code,
    )


def checks_of(model: ReadModel, run: Run, *, examples: int = 0) -> tuple[CheckLine, ...]:
    """Return the results of a run's checks, failed ones first, with as many rows as the settings allow."""
    shown = min(examples, model.settings.ui.examples)
    lines = (
        CheckLine.of(report.table, result, examples=shown, masked=model.settings.masked)
        for report in run.reports
        for result in report.results
    )
    return tuple(sorted(lines, key=lambda line: (line.verdict != "fail", line.severity == "warn")))


def _after(cursor: str) -> tuple[datetime, str]:
    time, _, run_id = cursor.partition(" ")
    try:
        at = datetime.fromisoformat(time)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC), searchable(run_id)
    except (ValueError, OverflowError):
        raise invalid_cursor(cursor) from None
