"""Runs in SQL: the run itself as JSON, next to the columns for searching."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import from_json
from sqlalchemy import ColumnElement, Row, Select, Table, and_, bindparam, select

from lakegate.journal.database import JournalTransaction
from lakegate.journal.schema import CHECK_RESULTS, RUN_TABLES, RUNS, STEPS, as_text, storable
from lakegate.model.run import Run
from lakegate.model.states import RunStatus

SHOWN = (RUNS.c.run_id, RUNS.c.branch, RUNS.c.status, RUNS.c.started_at, RUNS.c.document)
_ONE = select(*SHOWN).where(RUNS.c.run_id == bindparam("run_id"))
_ONE_TO_CHANGE = _ONE.with_for_update()
_BATCH = 500
_LAST = "\U0010ffff"
"""The greatest character, in byte order: ends the range of ids with a prefix."""
_Row = tuple[str | int | None, ...]


class UnreadRun(Run):
    """The readable part of a run whose document can't be read. Never store it: that would lose the rest."""


def store(tx: JournalTransaction, *runs: Run, known: Run | None = None) -> None:
    """Insert or replace ``runs`` in all their tables, in a few statements however many runs there are.

    Args:
        known: The only run, as stored now. Tables in which it has the same rows aren't written.
    """
    for start in range(0, len(runs), _BATCH):
        batch = runs[start : start + _BATCH]
        store_documents(tx, batch)
        for table, table_rows in _ROWS.items():
            rows = [row for run in batch for row in table_rows(run)]
            if known is None or rows != list(table_rows(known)):
                tx.delete(table.c.run_id, [run.run_id for run in batch])
                tx.insert(table, rows)


def put(tx: JournalTransaction, run: Run, known: Run | None) -> Run:
    """Insert or replace ``run``, and return it as stored: see :func:`with_history`.

    Args:
        known: The run as :func:`get` returned it, ``to_change``.
    """
    kept = with_history(known, run)
    store(tx, kept, known=None if isinstance(known, UnreadRun) else known)
    return kept


def with_history(known: Run | None, run: Run) -> Run:
    """Return ``run`` with the facts from the target's history, which override everything else.

    This is where a new status meets the stored one: a run that the catalog has published is published, whatever its
    owner or the process that took it over concluded.
    """
    if known is None or known.publication is None or known.status not in ("published", "reverted"):
        return run
    same = run.publication is not None and run.publication.commit == known.publication.commit
    if run.status == "reverted" or (run.status == "published" and (known.status == "published" or not same)):
        return run
    facts = {name: getattr(known, name) for name in ("status", "reverted_by", "finished_at")}
    publication = run.publication if same else known.publication
    return run.model_copy(update={**facts, "publication": publication, "error": None})


def get(tx: JournalTransaction, run_id: str, *, to_change: bool = False) -> Run | None:
    """Return the run, or ``None``; ``to_change`` locks it until the transaction ends."""
    found = tx.execute(_ONE_TO_CHANGE if to_change else _ONE, {"run_id": run_id}).one_or_none()
    return None if found is None else read_row(found)


def get_all(tx: JournalTransaction, run_ids: Sequence[str]) -> Mapping[str, Run]:
    """Return the runs that exist, by id, and lock them until the transaction ends."""
    query = select(*SHOWN).where(RUNS.c.run_id.in_(tx.values(run_ids))).order_by(RUNS.c.run_id)
    found = read(tx, query.with_for_update())
    return {run.run_id: run for run in found}


def has_prefix(prefix: str) -> ColumnElement[bool]:
    """Return the condition for runs whose id starts with ``prefix``."""
    return and_(RUNS.c.run_id >= prefix, RUNS.c.run_id < prefix + _LAST)


def newest_first() -> Select[Any]:
    """Return the query for all runs, newest first."""
    return select(*SHOWN).order_by(RUNS.c.started_at.desc(), RUNS.c.run_id.desc())


def read(tx: JournalTransaction, query: Select[Any], *, whole: bool = True) -> list[Run]:
    """Return the runs that ``query`` selects; without ``whole``, only what a list shows: see :func:`_outlined`."""
    return [read_row(row, whole=whole) for row in tx.execute(query)]


def read_row(row: Row[Any], *, whole: bool = True) -> Run:
    """Return the run in a row of :data:`SHOWN`; an :class:`UnreadRun` if its document can't be read."""
    try:
        return Run.model_validate_json(row.document) if whole else Run.model_validate(_outlined(row.document))
    except (ValidationError, ValueError, LookupError, TypeError):
        return _readable_part(row)


def _outlined(document: str) -> Any:
    """Return a run without examples and its original request, which can make up megabytes of a document."""
    found = from_json(document, cache_strings="keys")
    found["order"] = None
    for report in found.get("reports", ()):
        for result in report["results"]:
            result["examples"] = ()
    return found


def _readable_part(row: Row[Any]) -> UnreadRun:
    """Return what can be read of a run: one unreadable run must not hide the others."""
    found: dict[str, Any] = {}
    with suppress(ValueError, TypeError):
        found = dict(json.loads(row.document))
    try:
        tables = tuple(str(table) for table in found["tables"])
    except (KeyError, TypeError):
        tables = ()
    ended = found.get("finished_at")
    return UnreadRun(
        run_id=str(row.run_id),
        tables=tables,
        branch=str(row.branch),
        status=row.status if row.status in get_args(RunStatus) else "failed",
        started_at=_time_or_zero(row.started_at),
        finished_at=None if ended is None else _time_or_zero(ended),
        detail="This version of lakegate can't read the rest of this run's record in the journal.",
    )


def _time_or_zero(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, TypeError):
        return datetime.fromtimestamp(0, UTC)


def expire(tx: JournalTransaction, before: datetime, note: str, *, after: str, limit: int) -> tuple[int, str | None]:
    """Delete steps, reports and alerts of old runs, but keep what the runs did and how they ended.

    A run whose branch is kept stays complete: its report may still be needed to publish it.

    Args:
        note: What to add to :attr:`~lakegate.model.run.Run.detail`.
        after: Id of the run before the first one to consider.

    Returns:
        The number of runs that changed, and the id of the last run considered; ``None`` if there are no more.
    """
    # Start from the steps and check results: runs without any aren't read, however many there are.
    having = set[str]()
    for table in (STEPS, CHECK_RESULTS):
        some = select(table.c.run_id).distinct().where(table.c.run_id > after).order_by(table.c.run_id).limit(limit)
        having.update(tx.scalars(some))
    considered = sorted(having)[:limit]
    query = select(RUNS.c.run_id, RUNS.c.document).where(RUNS.c.run_id.in_(tx.values(considered)))
    query = query.where(RUNS.c.finished_at < as_text(before)).order_by(RUNS.c.run_id)
    found = tx.execute(query.with_for_update()).all()
    old: list[Run] = []
    for row in found:
        with suppress(ValidationError):  # it's damaged
            old.append(Run.model_validate_json(row.document))
    gone = {"steps": (), "reports": (), "notifications": (), "order": None}
    shorter = [
        run.model_copy(update={**gone, "detail": f"{run.detail} {note}" if run.detail else note})
        for run in old
        if not run.branch_kept
    ]
    store(tx, *shorter)
    return len(shorter), considered[-1] if len(considered) == limit else None


def store_documents(tx: JournalTransaction, runs: Sequence[Run]) -> None:
    """Insert or replace ``runs`` without their tables, steps and check results."""
    tx.insert(RUNS, [columns_of(run) for run in runs], key="run_id")


def columns_of(run: Run) -> _Row:
    """Return a run as a row, in the order of its table's columns."""
    about = (run.run_id, run.kind, run.name, run.branch, run.status)
    return (
        *about,
        as_text(run.started_at),
        _or_null(run.finished_at),
        run.reverted_by,
        run.model_dump_json(),
        run.orchestrator,
        int(run.branch_kept),
    )


def _table_rows(run: Run) -> Iterator[_Row]:
    for name in dict.fromkeys(run.tables):
        yield run.run_id, name, as_text(run.started_at)


def _step_rows(run: Run) -> Iterator[_Row]:
    for position, step in enumerate(run.steps):
        times = as_text(step.started_at), _or_null(step.finished_at)
        yield run.run_id, position, step.name, *times, step.outcome


def _check_rows(run: Run) -> Iterator[_Row]:
    found = ((report.table, result) for report in run.reports for result in report.results)
    for position, (table, result) in enumerate(found):
        # A check may be named after a column, and a column may have any name.
        about = (storable(result.name), result.check, result.severity, result.verdict, result.evidence)
        yield run.run_id, position, table, *about, result.failing_rows, result.total_rows


_ROWS: Mapping[Table, Callable[[Run], Iterator[_Row]]] = {
    RUN_TABLES: _table_rows,
    STEPS: _step_rows,
    CHECK_RESULTS: _check_rows,
}


def _or_null(time: datetime | None) -> str | None:
    return None if time is None else as_text(time)
