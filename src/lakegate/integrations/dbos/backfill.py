"""Historical files: the chunks of a range of time on a queue, so many at a time, gone on with by asking again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypedDict

from dbos import WorkflowHandle

from lakegate.errors import LakegateError
from lakegate.integrations.dbos.program import result_of
from lakegate.integrations.dbos.queues import BACKFILL, enqueue
from lakegate.integrations.dbos.workflows import Order, Outcome
from lakegate.lake import Lake
from lakegate.loading.backfill import Backfill
from lakegate.loading.backfill_plan import BackfillChunk, DatedBy


class ChunkOutcome(TypedDict):
    """What became of a chunk.

    Attributes:
        chunk: Its name: its span of time, or its file's name.
        outcome: Its run's outcome; ``None`` when the run failed.
        error: Why it failed, as :meth:`lakegate.errors.LakegateError.to_dict` has it.
    """

    chunk: str
    run_id: str
    outcome: Outcome | None
    error: dict[str, object] | None


def backfill(
    opener: Callable[[], Lake],
    table: str,
    paths: Sequence[str],
    since: str | None = None,
    until: str | None = None,
    *,
    by: DatedBy = "path",
    chunk: str | None = None,
    checks: Sequence[str] = (),
) -> Iterator[ChunkOutcome]:
    """Put the chunks that are not published on the backfill's queue, and yield what becomes of each, oldest first.

    Those that an earlier backfill left on the queue are found there, and not put there twice. The first chunk of a
    table that does not exist goes alone: it settles the table's columns.

    Args:
        opener: Opens the lake.
        table: ``namespace.table``.
        paths: Files, folders, globs; also with a date in them, ``trips/%Y-%m-%d.parquet``.
        since: Date, month or time from which on files are wanted.
        until: Likewise; it is in the range, to its end.
        by: What tells which time a file is about.
        chunk: What is ingested together; see :class:`lakegate.loading.backfill.Backfill`.
        checks: Checks beside those of the table's settings.

    Raises:
        InputError: When no file of the range is there, or something cannot be read.
        RetryableError: When catalog or journal are away.
    """
    plan = Backfill(opener, table, paths, since, until, by=by, chunk=chunk).plan()
    to_do = list(plan.to_do)
    if plan.creates and to_do:
        first = to_do.pop(0)
        yield _ended(first, _queued(first, checks))
    queued = [(one, _queued(one, checks)) for one in to_do]
    for one, workflow in queued:
        yield _ended(one, workflow)


def _queued(chunk: BackfillChunk, checks: Sequence[str]) -> WorkflowHandle[Outcome]:
    paths = [file.uri for file in chunk.to_do]
    order = Order(table=chunk.table, paths=paths, checks=list(checks), on_busy="skip")
    return enqueue(order, queue=BACKFILL)


def _ended(chunk: BackfillChunk, workflow: WorkflowHandle[Outcome]) -> ChunkOutcome:
    ended = ChunkOutcome(chunk=chunk.name, run_id=workflow.get_workflow_id(), outcome=None, error=None)
    try:
        ended["outcome"] = result_of(workflow)
    except LakegateError as error:
        ended["error"] = {**error.to_dict(), "exit_code": int(error.exit_code)}
    return ended
