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
from lakegate.model.run import Run
from lakegate.run_text import describe_run

_MOST_NAMED = 5
_LONGEST_ID = 120
_MOST_DELIVERIES = 100


class RunDetail(Value):
    """One run.

    Attributes:
        run: The run as the journal has it. Its reports contain values that the settings may hide: show ``checks``.
        checks: Results of its checks, failed ones first.
        deliveries: Its events for downstream systems, sent or pending, newest first.
        suspended_until: Until when it waits for its orchestrator.
        branch_exists: Whether its branch exists; ``None`` if it had none, or the catalog is unavailable.
        happened: What happened, in a sentence.
        means: What that means for readers of its tables.
        commands: Commands to run next.
    """

    run: Run
    checks: tuple[CheckLine, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    suspended_until: datetime | None = None
    branch_exists: bool | None = None
    happened: str = ""
    means: str = ""
    commands: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()


def list_runs(
    model: ReadModel, wanted: RunFilter | None = None, *, limit: int = 50, cursor: str | None = None
) -> ResultPage[Run]:
    """Return a page of runs, newest first.

    Args:
        wanted: Which runs. Default: all. A search by file reads 20,000 runs at most; ``next`` continues from there.
    """
    wanted, size = wanted or RunFilter(), page_size(limit)
    after = None if cursor is None else _after(cursor)
    typed = {key: searchable(value) for key, value in wanted if isinstance(value, str)}
    wanted = wanted.model_copy(update=typed)
    found, end = model.journal.pages.runs(wanted, limit=size, after=after, whole=False)
    return ResultPage[Run](
        items=tuple(found),
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
    told = describe_run(known)
    return RunDetail(
        run=run,
        checks=checks_of(model, run, examples=examples),
        deliveries=tuple(model.journal.outbox.list(run_id=run.run_id, limit=_MOST_DELIVERIES)),
        suspended_until=model.journal.suspended().get(run.run_id) if run.finished_at is None else None,
        branch_exists=exists,
        happened=told.happened,
        means=told.means,
        commands=tuple(command for _, command in told.commands),
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
