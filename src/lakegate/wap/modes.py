"""Write modes: what a batch does to existing rows, and which problems can be found without writing.

In a mode other than append, the run depends on existing rows: the whole table is audited, and the run is never rebased.
If the table has changed on the target, the run plans, writes and audits again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakegate.context import Context
from lakegate.errors import CheckError, InputError, SchemaError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import RELEASED_BY
from lakegate.model.refs import Ref, TablePointer
from lakegate.model.request import IngestRequest, ModeName, WriteMode
from lakegate.model.schema import Schema
from lakegate.model.types import type_differences
from lakegate.model.words import counted, unknown_column
from lakegate.wap.quarantine import quarantine_table

if TYPE_CHECKING:
    from lakegate.checks.predicates import Predicate
    from lakegate.model.batch import Batch
    from lakegate.model.checks import Check


def choose_mode(
    default: WriteMode,
    mode: ModeName | None = None,
    *,
    key: Sequence[str] = (),
    delete_when: str | None = None,
) -> WriteMode:
    """Return the mode of a batch: the given one, or the table's by default.

    Args:
        default: The table's mode.
        mode: The given mode.
        key: Columns that identify a row. Default: the table's.
        delete_when: Predicate for rows of the batch that delete. Default: the table's.
    """
    if isinstance(key, str):
        raise InputError(f"key={key!r} is text, not a list.", hint=f"Name the columns as a list: key=[{key!r}].")
    name = mode or default.name
    if name != "upsert" and (key or delete_when is not None):
        given = "--key" if key else "--delete-when"
        raise InputError(f"{given} belongs to mode upsert, not to {name}.", hint="Add --mode upsert, or leave it out.")
    if name != "upsert":
        return WriteMode(name=name)
    found = WriteMode(
        name=name,
        key=tuple(key) or default.key,
        delete_when=default.delete_when if delete_when is None else delete_when,
    )
    if not found.key:
        raise InputError(
            "Mode upsert needs the columns that identify a row.", hint="Name them: --key id (repeat it for several)"
        )
    return found


def require_mode(
    context: Context, request: IngestRequest, pointer: TablePointer | None, partition_by: Sequence[str], at: Ref
) -> None:
    """Check that the batch can be written in its mode.

    Args:
        at: The target's commit that the run starts from.
        pointer: The table; ``None`` if it will be created.
        partition_by: The partitioning of the table, or of the one to create.

    Raises:
        CheckError: When a check has severity ``quarantine``.
        InputError: When the mode can't be used with the table or with ``on_changed``, or would leave the table's
            quarantined rows behind.
    """
    mode, table = request.mode, request.table
    if mode.appends:
        return
    _require_no_quarantine(request.checks, mode.name)
    if request.on_changed == "replace":
        raise InputError(
            f"--on-changed replace removes the rows that an earlier file appended; mode {mode.name} can't tell which "
            "those are.",
            hint="Leave it out: the mode writes a file with new content like any other file.",
            table=str(table),
        )
    if mode.name == "replace-partitions":
        _require_partitions(context, table, pointer, partition_by)
    if mode.name == "overwrite":
        require_empty_quarantine(context, table, at)


def resolve_mode(mode: WriteMode, schema: Schema, table: TableIdentifier) -> WriteMode:
    """Return the mode with key columns as the table's ``schema`` spells them, and with a validated predicate."""
    if mode.name != "upsert":
        return mode
    predicate = None if mode.delete_when is None else _predicate(mode.delete_when).sql
    return mode.model_copy(update={"key": _key_columns(schema, mode.key, table, str(table)), "delete_when": predicate})


def require_same_columns(context: Context, request: IngestRequest, batch: Batch) -> None:
    """Check that all files of an upsert have the same columns, and the same fields in them.

    If the whole batch lacks a column, updated rows keep their values of it. If only some files lack it, their rows get
    NULL. A field that a file lacks becomes NULL even if all files in ``batch`` lack it.

    Args:
        batch: The files that the run claimed.
    """
    if request.mode.name != "upsert":
        return
    parts = batch.parts()
    for name in {column.name.lower(): column.name for part in parts for column in part.columns}.values():
        lacking = next((one for one in parts if all(c.name.lower() != name.lower() for c in one.columns)), None)
        if lacking is not None:
            raise SchemaError(
                f"{lacking.files[0].uri} has no column '{name}', which other files of the batch have: an upsert would "
                "set it to NULL. Nothing was written.",
                hint="Ingest files with different columns one by one; columns that a file lacks keep their values.",
                table=str(request.table),
                column=name,
                file=lacking.files[0].uri,
            )
    if any("<" in column.type for part in request.batch.parts()[1:] for column in part.columns):
        _require_same_fields(context, request, parts)


def _require_same_fields(context: Context, request: IngestRequest, parts: Sequence[Batch]) -> None:
    engine = context.engine()
    whole = engine.source_schema(request.batch)
    for part in parts:
        own = engine.source_schema(part)
        pairs = ((column, found) for column in whole.columns if (found := own.find(column.name)) is not None)
        differ = (one for column, found in pairs for one in type_differences(column.type, found.type, (column.name,)))
        lacking = next((one for one in differ if one.other is None), None)
        if lacking is not None:
            raise SchemaError(
                f"{part.files[0].uri} has no field '{lacking.name}', which other files of the batch have: an upsert "
                "would set it to NULL. Nothing was written.",
                hint="Add the field to all of the files.",
                table=str(request.table),
                column=lacking.path[0],
                file=part.files[0].uri,
            )


def _key_columns(schema: Schema, key: Sequence[str], table: TableIdentifier, what: str) -> tuple[str, ...]:
    names = []
    for name in key:
        column = schema.find(name)
        if column is None:
            raise unknown_column(f"{what} has no key column '{name}'.", name, schema.names, table=str(table))
        names.append(column.name)
    return tuple(dict.fromkeys(names))


def columns_to_write(mode: WriteMode, batch: Schema, table: Schema | None, name: TableIdentifier) -> Schema:
    """Return the columns of a batch to write: all but those that only say which rows to delete.

    Args:
        table: The table's columns, by its schema or contract; ``None`` if the table gets all columns of the batch.

    Raises:
        InputError: When ``delete_when`` isn't a predicate about one row.
        SchemaError: When the batch lacks a column that the mode needs.
    """
    _key_columns(batch, mode.key, name, "The batch")
    if mode.delete_when is None:
        return batch
    named = _predicate(mode.delete_when).columns
    unknown = [column for column in named if batch.find(column) is None]
    if unknown:
        problem = f"The batch has no column '{unknown[0]}', which --delete-when {mode.delete_when!r} needs."
        raise unknown_column(problem, unknown[0], batch.names, table=str(name))
    if table is None:
        return batch
    lower = {column.lower() for column in named}
    return Schema(
        columns=tuple(one for one in batch.columns if one.name.lower() not in lower or table.find(one.name) is not None)
    )


def _predicate(predicate: str) -> Predicate:
    from lakegate.checks.predicates import PredicateError, read_predicate

    try:
        return read_predicate(predicate)
    except PredicateError as error:
        raise InputError(
            f"--delete-when {predicate!r} {error}.", hint="Write a condition about one row of the batch: \"op = 'D'\""
        ) from None


def _require_no_quarantine(checks: Sequence[Check], mode: str) -> None:
    named = next((check for check in checks if check.severity == "quarantine"), None)
    if named is not None:
        raise CheckError(
            f"Rows can't be quarantined in mode {mode}, and {named} has severity 'quarantine'.",
            hint="Add the rows with --mode append, or give the check severity='error' or 'warn'.",
            check=str(named),
        )


def require_empty_quarantine(context: Context, table: TableIdentifier, at: Ref) -> None:
    """Refuse to replace a table that has quarantined rows: if they were released later, they'd join the new rows.

    Raises:
        InputError: Saying how many rows are in quarantine, and how to delete or publish them.
    """
    quarantine = quarantine_table(context, table, at)
    if quarantine is None:
        return
    marks = context.reader.read_rows(quarantine, columns=(RELEASED_BY,))
    waiting = sum(batch.column(RELEASED_BY).null_count for batch in marks)
    if waiting:
        raise InputError(
            f"{counted(waiting, 'row')} of {table} {'is' if waiting == 1 else 'are'} in quarantine; replacing the "
            "table would leave them behind. Nothing was written.",
            hint=f"Delete them: lakegate quarantine drop {table} --yes. Or publish them first: lakegate quarantine "
            f"release {table}",
            table=str(table),
        )


def _require_partitions(
    context: Context, table: TableIdentifier, pointer: TablePointer | None, partition_by: Sequence[str]
) -> None:
    if not partition_by:
        raise InputError(
            f"{table} isn't partitioned, so mode replace-partitions would replace all of it.",
            hint="Replace the table with --mode overwrite"
            + (", or partition it: --partition-by 'days(pickup)'" if pointer is None else "."),
            table=str(table),
        )
    if pointer is not None and context.reader.has_other_specs(pointer):
        raise InputError(
            f"{table} has files with an earlier partitioning; replace-partitions would keep their rows beside the new "
            "ones.",
            hint="Use --mode upsert or --mode overwrite.",
            table=str(table),
        )
