"""List quarantined rows, and release or drop them in a transaction: a run of its own, with the current checks.

A release first marks the chosen rows with its run, then publishes the marked rows. So even if the condition would match
other rows the second time, exactly the marked rows are published. Marking rewrites the rows' data files: of two
concurrent releases, the catalog accepts one, and the other starts over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakegate.checks import validate_checks
from lakegate.context import Context
from lakegate.errors import AuditFailedError, CheckError, InputError, NotFoundError, SchemaError
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier, quote, sql_name
from lakegate.model.quarantine import (
    COLUMNS,
    QUARANTINED_AT,
    REASONS,
    RELEASED_BY,
    RUN_ID,
    QuarantineSummary,
    ReasonCount,
    RowSelection,
    is_quarantine,
    quarantine_of,
    table_of,
)
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.rows import rows_of
from lakegate.model.run import Run
from lakegate.model.schema import Schema
from lakegate.model.sqltext import sql_string
from lakegate.model.types import type_differences, type_parts
from lakegate.model.words import command_line, counted, unknown_column
from lakegate.ports import Catalog, TableReader
from lakegate.wap.quarantine import QUARANTINE_OF_PROPERTY, takes
from lakegate.wap.transaction import Transaction

if TYPE_CHECKING:
    import pyarrow as pa

_SUMMARISED = (RUN_ID, REASONS, QUARANTINED_AT, RELEASED_BY)


def quarantined(
    catalog: Catalog, reader: TableReader, at: Ref, table: TableIdentifier | None
) -> tuple[QuarantineSummary, ...]:
    """Return a summary for each run that quarantined rows of one table, or of any table, newest first."""
    if table is None:
        named = (pointer for pointer in catalog.list_tables(at) if is_quarantine(pointer.table))
        pointers = [one for one in named if QUARANTINE_OF_PROPERTY in reader.metadata(one).properties]
    else:
        pointers = [find_quarantine(catalog, at, table)]
    found = [one for pointer in pointers for one in summaries(reader, pointer)]
    return tuple(sorted(found, key=lambda one: (one.quarantined_at, one.table), reverse=True))


def quarantined_rows(
    reader: TableReader, pointer: TablePointer, chosen: RowSelection, limit: int
) -> list[dict[str, Any]]:
    """Return up to ``limit`` rows in quarantine that aren't released, as column name to value."""
    found: list[dict[str, Any]] = []
    for batch in reader.read_rows(pointer, where=chosen.where):
        for row in rows_of(batch):
            by_check = chosen.check in {None, *(reason["check"] for reason in row[REASONS])}
            if by_check and row[RELEASED_BY] is None and chosen.run_id in (None, row[RUN_ID]):
                found.append(row)
                if len(found) == limit:
                    return found
    return found


@dataclass(slots=True)
class _RunTally:
    """What a run's rows in a quarantine table add up to."""

    since: datetime
    rows: int = 0
    waiting: int = 0
    checks: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    released_by: dict[str, None] = field(default_factory=dict)


def summaries(reader: TableReader, pointer: TablePointer) -> Iterator[QuarantineSummary]:
    """Yield a summary for each run that quarantined rows: how many, why, and how many aren't released."""
    runs: dict[str, _RunTally] = {}
    for batch in reader.read_rows(pointer, columns=_SUMMARISED):
        _count_rows(batch, runs)
        _count_reasons(batch, runs)
    for run_id, tally in runs.items():
        yield QuarantineSummary(
            table=str(table_of(pointer.table)),
            run_id=run_id,
            quarantined_at=tally.since,
            rows=tally.rows,
            waiting=tally.waiting,
            checks=dict(tally.checks),
            reasons=tuple(
                ReasonCount(check=check, column=column, rows=number)
                for (check, column), number in tally.reasons.most_common()
            ),
            released_by=tuple(tally.released_by),
        )


def _count_rows(batch: pa.RecordBatch, runs: dict[str, _RunTally]) -> None:
    import pyarrow as pa

    grouped = pa.Table.from_batches([batch]).group_by([RUN_ID, RELEASED_BY])
    for one in grouped.aggregate([([], "count_all"), (QUARANTINED_AT, "min")]).to_pylist():
        first = one[f"{QUARANTINED_AT}_min"]
        tally = runs.setdefault(one[RUN_ID], _RunTally(first))
        tally.since = min(first, tally.since)
        tally.rows += one["count_all"]
        if one[RELEASED_BY] is None:
            tally.waiting += one["count_all"]
        else:
            tally.released_by[one[RELEASED_BY]] = None


def _count_reasons(batch: pa.RecordBatch, runs: Mapping[str, _RunTally]) -> None:
    """Count why the rows that aren't released are in quarantine."""
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute  # its stubs lack half of it
    open_rows = batch.filter(pc.is_null(batch.column(RELEASED_BY)))
    lists = open_rows.column(REASONS)
    row, reason = pc.list_parent_indices(lists), pc.list_flatten(lists)
    why = pa.table(
        {
            "run": open_rows.column(RUN_ID).take(row),
            "row": row,
            "check": pc.struct_field(reason, "check"),
            "column": pc.struct_field(reason, "column"),
        }
    )
    for one in why.group_by(["run", "check", "column"]).aggregate([([], "count_all")]).to_pylist():
        runs[one["run"]].reasons[one["check"], one["column"]] += one["count_all"]
    for one in why.group_by(["run", "check"]).aggregate([("row", "count_distinct")]).to_pylist():
        runs[one["run"]].checks[one["check"]] += one["row_count_distinct"]


def release(
    context: Context,
    tx: Transaction,
    table: TableIdentifier,
    chosen: RowSelection,
    changes: Mapping[str, str],
    *,
    accepts: bool,
) -> None:
    """Append the chosen rows to their table, and mark them as released.

    The transaction also runs the checks that set them aside, unless the table has others of the same kind by now.

    Args:
        changes: Columns to change, each with a SQL expression. For a column that only the quarantine table has, it may
            be ``NULL``: the column's values are left out then.
        accepts: Whether rows that fail a check are to be published, too.

    Raises:
        InputError: When no row is chosen, an expression can't be used, or a check can't be run again.
        SchemaError: When a column to change doesn't exist; or when the table has no column for a value of one of the
            rows, or a column of a type that can't hold it.
    """
    engine = tx.engine
    quarantine = quarantine_of(table)
    _, pointers = context.catalog.get_ref_with_tables(tx.branch, [table, quarantine])
    pointer, aside = pointers[table], pointers[quarantine]
    if pointer is None or aside is None:
        raise NotFoundError(
            f"Table {table if pointer is None else quarantine} doesn't exist any more.", hint="lakegate table list"
        )
    schema, held = (context.reader.metadata(one).table_schema for one in (pointer, aside))
    columns, lost = columns_to_release(table, schema, held, changes)
    mark = f"{RELEASED_BY} = {sql_string(tx.run.run_id)}"
    with context.narrator.step(f"Looking for quarantined rows of {table}"):
        rows, failed, losing = _count(tx, quarantine, chosen, lost)
    for name, number in losing.items():
        if number:
            raise _loses_values(table, name, number, held, renamed=_renamed_to(context.reader, pointer, name))
    checks, unknown = _checks_of(context, schema, failed, tx._all_checks(table))  # noqa: SLF001
    if unknown and not accepts:
        raise InputError(
            f"{', '.join(unknown)} set some of the chosen rows of {table} aside, and can't be run again: the journal "
            "doesn't know the check any more, or the table lacks a column of it. Nothing was released.",
            hint="To release them all the same, as they are or as --set changes them, add --accept 'REASON'.",
            table=str(table),
        )
    if checks:
        tx.check(str(table), *checks)
    with context.narrator.step(f"Releasing {counted(rows, 'row')} of {table}"):
        engine.sql(_update(quarantine, mark, _condition(chosen)))
        engine.append(table, engine.sql(_select(", ".join(columns), quarantine, mark)), None, fills=True)


def _checks_of(
    context: Context, schema: Schema, failed: Mapping[str, set[str]], today: Sequence[Check]
) -> tuple[list[Check], list[str]]:
    """Return the checks that set rows aside, and the names of those that can't be run again.

    Args:
        failed: Names of the checks that rows fail, by the run that set them aside.
        today: The table's checks, which judge the rows anyway. One of the same kind and columns replaces an old one.
    """
    covered = {check.name for check in today}
    rules = {(check.kind, check.columns) for check in today}
    checks: list[Check] = []
    unknown: list[str] = []
    for run_id, names in failed.items():
        run = context.journal.get(run_id)
        known: dict[str, Check] = {}
        if run is not None and run.request is not None and run.reports:
            answered = zip(run.request.checks, run.reports[0].results, strict=True)
            known = {result.name: check for check, result in answered}
        for name in sorted(names.difference(covered)):
            try:
                check = known[name]
                if (check.kind, check.columns) not in rules:
                    checks += validate_checks([check], schema, masked=context.masked)
            except (KeyError, CheckError):
                unknown.append(name)
    return checks, list(dict.fromkeys(unknown))


def still_failing(table: TableIdentifier, run: Run, chosen: RowSelection) -> AuditFailedError:
    """Return the error for rows that a release didn't publish, because they fail a check."""
    failures = run.failures
    why = "; ".join(
        f"{one.failing_rows:,} of {counted(one.total_rows, 'chosen row')} "
        f"{'fails' if one.failing_rows == 1 else 'fail'} {one.name}"
        if one.failing_rows
        else f"{one.name} fails"
        for one in failures
    )
    options = (("--run", chosen.run_id), ("--check", chosen.check))
    show = ["quarantine", "show", str(table), *(word for option in options if option[1] for word in option)]
    column = next((name for one in failures for name in one.columns), "COLUMN")
    return AuditFailedError(
        f"No row of {table} was released: {why}.",
        hint=f"Correct them with --set '{column}=EXPRESSION', or publish them as they are with --accept 'REASON'. To "
        f"see them: {command_line(['lakegate', *map(str, show)])}",
        table=str(table),
        run_id=run.run_id,
    )


def columns_to_release(
    table: TableIdentifier, schema: Schema, held: Schema, changes: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the SQL expression for each of the table's columns, and the quarantine columns whose values would be lost.

    Args:
        held: The columns of the quarantine table.
        changes: Column to SQL expression.

    Raises:
        InputError: When an expression can't be used.
        SchemaError: When a column to change doesn't exist, or a column's type can't hold the quarantined values.
    """
    from lakegate.checks.predicates import expression_columns

    lost = {one.name.lower(): one.name for one in held.columns if not (one.name in COLUMNS or schema.find(one.name))}
    new = {}
    for name, text in changes.items():
        if name.lower() in lost and text.strip().upper() == "NULL":
            del lost[name.lower()]
            continue
        column = schema.find(name)
        if column is None:
            raise unknown_column(f"{table} has no column '{name}'.", name, schema.names, table=str(table))
        new[column.name] = _expression(text)
        for read in expression_columns(text):
            lost.pop(read.lower(), None)
    texts = []
    for one in schema.columns:
        there = held.find(one.name)
        if one.name not in new and there is not None and not _can_hold(one.type, there.type):
            raise SchemaError(
                f"Column '{one.name}' is {there.type} in {quarantine_of(table)} and {one.type} in {table}, which "
                "can't hold all of its values.",
                hint=f"Say how to convert it: add --set '{one.name}=EXPRESSION'.",
                table=str(table),
                column=one.name,
            )
        value = new.get(one.name) or ("NULL" if there is None else quote(there.name))
        texts.append(f"{value} AS {quote(one.name)}")
    return texts, list(lost.values())


def _can_hold(wide: str, narrow: str) -> bool:
    """Return whether a column of type ``wide`` can hold all values of ``narrow``; its structs may have more fields."""
    if not type_parts(narrow):
        return takes(narrow, wide)
    differences = type_differences(narrow, wide)
    return all(one.other is not None and (one.one is None or takes(one.one, one.other)) for one in differences)


def drop(context: Context, tx: Transaction, table: TableIdentifier, chosen: RowSelection) -> None:
    """Delete the chosen rows from the quarantine table, unless they're released. Raises as :func:`release`."""
    quarantine = quarantine_of(table)
    with context.narrator.step(f"Looking for quarantined rows of {table}"):
        rows, *_ = _count(tx, quarantine, chosen)
    with context.narrator.step(f"Dropping {counted(rows, 'row')} of {quarantine}"):
        tx.engine.sql(f"DELETE FROM {_name(quarantine)} WHERE {_condition(chosen)}")  # noqa: S608 - as below


def find_quarantine(catalog: Catalog, at: Ref, table: TableIdentifier) -> TablePointer:
    """Return the quarantine table of ``table`` at a commit."""
    pointer = catalog.get_table(quarantine_of(table), at)
    if pointer is not None:
        return pointer
    raise NotFoundError(
        f"No row of {table} was ever quarantined.",
        hint="To see all tables with quarantined rows: lakegate quarantine list",
        table=str(table),
    )


def _count(
    tx: Transaction, quarantine: TableIdentifier, chosen: RowSelection, columns: Sequence[str] = ()
) -> tuple[int, Mapping[str, set[str]], Mapping[str, int]]:
    """Count the chosen rows.

    Returns:
        The number of rows; the names of the checks that they fail, by the run that set them aside; and how many have a
        value in each of ``columns``.

    Raises:
        InputError: When no row is chosen.
    """
    failed = f"collect_set(struct({RUN_ID}, transform({REASONS}, reason -> reason.check)))"
    counts = ", ".join(("count(1)", failed, *(f"count({quote(name)})" for name in columns)))
    [(rows, pairs, *values)] = tx.engine.fetch(_select(counts, quarantine, _condition(chosen)))
    if not rows:
        raise InputError(
            f"No row of {table_of(quarantine)} that waits in quarantine matches.",
            hint=f"lakegate quarantine show {table_of(quarantine)}",
            table=str(table_of(quarantine)),
        )
    names: dict[str, set[str]] = {}
    for run_id, checks in pairs:
        names.setdefault(run_id, set()).update(checks)
    return rows, names, dict(zip(columns, values, strict=True))


def _renamed_to(reader: TableReader, pointer: TablePointer, name: str) -> str | None:
    """Return the name that a former column of a table has now."""
    versions = reader.schemas(pointer)
    now = next((one.by_id for one in versions if one.schema_id == pointer.schema_id), {})
    ids = (key for one in versions for key, column in one.by_id.items() if column.name.lower() == name.lower())
    return next((now[key].name for key in ids if key in now), None)


def _loses_values(table: TableIdentifier, name: str, number: int, held: Schema, *, renamed: str | None) -> SchemaError:
    """Return the error for rows that have a value in a column that their table doesn't have."""
    there = None if renamed is None else held.find(renamed)
    value = sql_name(name) if there is None else f"coalesce({sql_name(there.name)},{sql_name(name)})"
    moves = (
        f"If the column was renamed, add --set 'NEW_NAME={name}'."
        if renamed is None
        else f"Column {renamed} was called {name} before: add --set '{renamed}={value}'."
    )
    return SchemaError(
        f"{number:,} of the chosen rows {'has' if number == 1 else 'have'} a value in column '{name}', which {table} "
        "doesn't have. The values would be lost.",
        hint=f"{moves} To leave its values out, add --set '{name}=NULL'.",
        table=str(table),
        column=name,
    )


def _condition(chosen: RowSelection) -> str:
    from lakegate.checks.predicates import PredicateError, read_predicate

    parts = [f"{RELEASED_BY} IS NULL"]
    if chosen.run_id is not None:
        parts.append(f"{RUN_ID} = {sql_string(chosen.run_id)}")
    if chosen.check is not None:
        parts.append(f"exists({REASONS}, reason -> reason.check = {sql_string(chosen.check)})")
    if chosen.where is not None:
        try:
            # Cast to text, so that Iceberg doesn't use it as a filter: its bounds leave out NaN.
            parts.append(f"CAST(({read_predicate(chosen.where).sql}) AS STRING) = 'true'")
        except PredicateError as error:
            raise InputError(f"--where {chosen.where!r} {error}.", hint="Write a condition about one row.") from None
    return " AND ".join(parts)


def _expression(text: str) -> str:
    from lakegate.checks.predicates import PredicateError, read_expression

    try:
        return f"({read_expression(text)})"
    except PredicateError as error:
        raise InputError(
            f"The expression {text!r} {error}.", hint="Write Spark SQL about one row: --set 'fare=abs(fare)'"
        ) from None


def _select(columns: str, quarantine: TableIdentifier, condition: str) -> str:
    return f"SELECT {columns} FROM {_name(quarantine)} WHERE {condition}"  # noqa: S608 - each part is validated or quoted


def _update(quarantine: TableIdentifier, assignment: str, condition: str) -> str:
    return f"UPDATE {_name(quarantine)} SET {assignment} WHERE {condition}"  # noqa: S608 - likewise


def _name(table: TableIdentifier) -> str:
    return ".".join(map(quote, table.parts))
