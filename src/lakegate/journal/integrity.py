"""Find and repair rows of the journal that are wrong regardless of ``main``'s history."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple, get_args

from sqlalchemy import Column, ColumnElement, Delete, Row, Select, Table, and_, delete, select, tuple_

from lakegate.journal import runs
from lakegate.journal.database import Database, JournalTransaction
from lakegate.journal.files import CLAIMED, PUBLISHED
from lakegate.journal.schema import CHECK_RESULTS, CLAIMS, LEASES, METADATA, RUN_TABLES, RUNS, STEPS, is_time
from lakegate.model.run import Run, RunKind, RunStatus

_AT_ONCE = 1_000
_TIMES = ("_at", "since")
_JSON = frozenset({"document", "tables", "pointer", "labels"})
_CHOICES: Mapping[Column[Any], Collection[str]] = {
    RUNS.c.kind: get_args(RunKind),
    RUNS.c.status: get_args(RunStatus),
    CLAIMS.c.state: (CLAIMED, PUBLISHED),
}
_OF_RUNS = (RUN_TABLES, STEPS, CHECK_RESULTS)
"""Tables that repeat parts of the runs' documents, for searching."""
_SHOWN = 60


class BadRow(NamedTuple):
    """A row that can't be right.

    Attributes:
        table: The journal's table.
        key: The row's primary key.
        problem: What's wrong with it.
        is_newer: Whether a newer lakegate may have written it.
    """

    table: str
    key: str
    problem: str
    is_newer: bool = False


def bad_rows(database: Database) -> Iterator[BadRow]:
    """Yield rows with values that no lakegate writes, and rows that contradict the document of their run."""
    for table in METADATA.sorted_tables:
        for page in _pages(table, database.reading):
            for row in page:
                problem = _problem(table, row)
                if problem is not None:
                    key = " ".join(map(str, _key(table, row)))
                    yield BadRow(table.name, key, problem, table is RUNS and runs.may_be_newer(row))
            if table is RUNS:
                yield from _lasting_mismatches(database, page)
    with database.reading() as tx:
        for row in tx.execute(select(CLAIMS).where(*_orphaned_claims())):
            problem = f"run {row.run_id} has claimed {row.path}, but isn't in progress"
            yield BadRow(CLAIMS.name, str(row.claim_id), problem)


def repair(tx: JournalTransaction, known: Collection[str]) -> None:
    """Rewrite bad rows of runs from the runs' documents, and delete all other bad rows.

    Rows that a newer lakegate may have written stay.

    Args:
        known: Runs whose history is about to be recorded, from which a run with a damaged document is restored.
    """
    again: list[Run] = []
    for table in METADATA.sorted_tables:
        bad = [row for page in _pages(table, lambda: nullcontext(tx)) for row in page if _problem(table, row)]
        for row in bad:
            if table is not RUNS:
                _delete(tx, table, row)
                continue
            if runs.may_be_newer(row):
                continue
            run = runs.read_row(row)
            if isinstance(run, runs.UnreadRun):
                names = tx.scalars(select(RUN_TABLES.c.table_name).where(RUN_TABLES.c.run_id == row.run_id))
                left = {**run.model_dump(), "tables": tuple(map(str, names)), "detail": "Its record was damaged."}
                again += [Run.model_validate(left)] if run.run_id not in known else ()
            elif run.run_id == row.run_id or runs.get(tx, run.run_id) is None:
                again.append(run)
            _delete(tx, table, row)
    runs.store(tx, *again)
    for page in _pages(RUNS, lambda: nullcontext(tx)):
        suspects = {run.run_id for run, _ in _mismatches(tx, page)}
        # Lock and read again: in Postgres, a run may have changed since its page was read.
        locked = select(RUNS).where(RUNS.c.run_id.in_(tx.values(suspects))).order_by(RUNS.c.run_id).with_for_update()
        reread = tx.execute(locked).all() if suspects else ()
        runs.store(tx, *{run.run_id: run for run, _ in _mismatches(tx, reread)}.values())
    for statement in _delete_orphans():
        tx.execute(statement)


def _lasting_mismatches(database: Database, page: Sequence[Row[Any]]) -> Iterator[BadRow]:
    """Yield mismatches, except for runs that changed while they were read."""
    with database.reading() as tx:
        suspects = [run.run_id for run, _ in _mismatches(tx, page)]
    if suspects:
        with database.reading() as tx:
            query = select(RUNS).where(RUNS.c.run_id.in_(tx.values(suspects)))
            again = tx.execute(query).all()
            found = list(_mismatches(tx, again))
            # In Postgres, each statement sees everything committed before it.
            lasting = {row.run_id for row in set(again).intersection(tx.execute(query))}
        yield from (bad for run, bad in found if run.run_id in lasting)


def _mismatches(tx: JournalTransaction, page: Sequence[Row[Any]]) -> Iterator[tuple[Run, BadRow]]:
    """Yield valid runs for which another table contradicts the document, with the problem."""
    read = (runs.read_row(row) for row in page if _problem(RUNS, row) is None)
    known = {run.run_id: run for run in read}
    for table in _OF_RUNS:
        found = defaultdict[str, set[tuple[Any, ...]]](set)
        for row in tx.execute(select(table).where(table.c.run_id.in_(tx.values(known)))):
            if _problem(table, row) is None:
                found[row.run_id].add(tuple(row))
            else:
                known.pop(row.run_id, None)  # such a row is reported and repaired by itself
        for run_id, run in known.items():
            expected = set(runs.rows_of(run, table))
            if found[run_id] != expected:
                wrong = [row for row in found[run_id] if row not in expected]
                is_lacking = f"{len(expected - found[run_id])} of its rows are missing"
                problem = f"{_shortened(wrong[0][1:])} isn't what its run's document says" if wrong else is_lacking
                yield run, BadRow(table.name, run_id, problem)
    yield from _wrong_sizes(tx, known)


def _wrong_sizes(tx: JournalTransaction, known: Mapping[str, Run]) -> Iterator[tuple[Run, BadRow]]:
    """Yield runs with a published file that has another size than in their document. A rebuild forgets all sizes."""
    requests = ((run.run_id, run.request) for run in known.values() if run.request is not None)
    sizes = {
        (run_id, file.uri, file.version): file.size_bytes
        for run_id, request in requests
        for file in request.batch.files
        if file.names_content  # otherwise, another run may have recorded other content of this version
    }
    of_runs = CLAIMS.c.run_id.in_(tx.values({run_id for run_id, *_ in sizes}))
    for row in tx.execute(select(CLAIMS).where(of_runs, CLAIMS.c.state == PUBLISHED)) if sizes else ():
        size = sizes.get((row.run_id, row.path, row.version))
        # The size is 0 if the journal knows the file from a commit only.
        if size is not None and _problem(CLAIMS, row) is None and row.size_bytes not in (0, size):
            problem = f"its size_bytes is {row.size_bytes}, but {size} in its run's document"
            yield known[row.run_id], BadRow(CLAIMS.name, str(row.claim_id), problem)


@cache
def _delete_orphans() -> Sequence[Delete]:
    rows = (delete(table).where(table.c.run_id.not_in(select(RUNS.c.run_id))) for table in _OF_RUNS)
    return (*rows, delete(CLAIMS).where(*_orphaned_claims()))


def _orphaned_claims() -> tuple[ColumnElement[bool], ...]:
    """Return the condition for claims that block files for a run that will never end."""
    under_way = select(RUNS.c.run_id).where(RUNS.c.finished_at.is_(None))
    return (
        CLAIMS.c.state == CLAIMED,
        CLAIMS.c.run_id.not_in(under_way),
        CLAIMS.c.run_id.not_in(select(LEASES.c.run_id)),
    )


def _delete(tx: JournalTransaction, table: Table, row: Row[Any]) -> None:
    tx.execute(delete(table).where(and_(*(column == getattr(row, column.name) for column in table.primary_key))))


def _pages(
    table: Table, transaction: Callable[[], AbstractContextManager[JournalTransaction]]
) -> Iterator[list[Row[Any]]]:
    query = _first_page(table)
    while True:
        with transaction() as tx:
            page = list(tx.execute(query))
        yield page
        if len(page) < _AT_ONCE:
            return
        query = _first_page(table).where(tuple_(*table.primary_key) > tuple(_key(table, page[-1])))


@cache
def _first_page(table: Table) -> Select[Any]:
    return select(table).order_by(*table.primary_key).limit(_AT_ONCE)


def _key(table: Table, row: Row[Any]) -> list[Any]:
    return [getattr(row, column.name) for column in table.primary_key]


def _problem(table: Table, row: Row[Any]) -> str | None:
    for column, value in zip(table.c, row, strict=True):
        if not _is_valid(column, value):
            return f"its {column.name} is {_shortened(value)}"
    if table is not RUNS:
        return None
    run = runs.read_row(row)
    if isinstance(run, runs.UnreadRun):
        return "its document isn't a run's"
    for column, value, expected in zip(table.c, row, runs.columns_of(run), strict=True):
        if column is not RUNS.c.document and value != expected:
            return f"its {column.name} is {_shortened(value)}, but {_shortened(expected)} in its document"
    return None


def _is_valid(column: Column[Any], value: object) -> bool:
    if value is None:
        return bool(column.nullable)
    kind = column.type.python_type
    if not isinstance(value, (int, float) if kind is float else kind):
        return False
    if column.name.endswith(_TIMES):
        return is_time(value)
    if column.name in _JSON:
        return _is_json(str(value))
    return value in _CHOICES.get(column, (value,))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
