"""Whether data files written for one state of a table are right in another one (Iceberg spec, "Schema Evolution")."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NoReturn

from lakegate.errors import NotReplayableError
from lakegate.iceberg.lineage import own_properties
from lakegate.iceberg.metadata import Document, find_snapshot, properties, schema_of, specs
from lakegate.model.refs import TablePointer

RUN_AGAIN = "Run the write again on main as it is now."
_VERSIONS = (2, 3)
_PROMOTIONS = {("int", "long"), ("float", "double")}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def refuse(pointer: TablePointer, reason: str, hint: str, **context: object) -> NoReturn:
    """Raise the error that says why data files of a table can't be added or dropped."""
    raise NotReplayableError(f"Table {pointer.table}: {reason}.", hint=hint, table=str(pointer.table), **context)


def is_editable(document: Document) -> bool:
    """Return whether the metadata is of a format version that is edited here."""
    return document["format-version"] in _VERSIONS


def check_version(document: Document, pointer: TablePointer) -> None:
    """Raise a ``NotReplayableError`` for a format version whose metadata is not edited here."""
    version = document["format-version"]
    if not is_editable(document):
        refuse(
            pointer,
            f"its format version is {version}, and only versions 2 and 3 can be changed through their metadata",
            "ALTER TABLE … SET TBLPROPERTIES ('format-version' = '2') raises it. Else run the write again on main as "
            "it is now.",
            format_version=version,
        )


def check_no_downgrade(source: Document, onto: Document, onto_pointer: TablePointer) -> None:
    """Raise a ``NotReplayableError`` for files of a newer format version than the table's."""
    ours, theirs = source["format-version"], onto["format-version"]
    if ours > theirs:
        refuse(
            onto_pointer,
            f"its format version is {theirs}, and what was added since is of version {ours}",
            "What raised the version of a table can't be reverted once something was published with it. "
            "To put the table back as it was, without what came later: lakegate table restore TABLE --at TIME",
            format_version=theirs,
        )


def check_lineage(source: Document, snapshot_ids: Sequence[int], onto: Document, onto_pointer: TablePointer) -> None:
    """Check that both are the same table, or that two runs created it at the same time and defined it the same way.

    Column ids mean the same within one table's life only.

    Raises:
        NotReplayableError: When ``onto`` is another table that the files weren't written for, or one that lacks a
            property of the one that was created.
    """
    if source["table-uuid"] == onto["table-uuid"]:
        return
    first = find_snapshot(source, snapshot_ids[0]) if snapshot_ids else None
    if first is not None and first.get("parent-snapshot-id") is not None:
        refuse(onto_pointer, "it was replaced by another table with the same name", RUN_AGAIN)
    other = next(_differences(source, onto), None)
    if other is not None:
        refuse(onto_pointer, f"another run created it, too, with {other}", RUN_AGAIN)


def _differences(source: Document, onto: Document) -> Iterator[str]:
    """Yield in what ``onto``, which was created at the same time as ``source``, is not what that was to be."""
    theirs = properties(onto)
    for key, value in own_properties(properties(source)).items():
        if theirs.get(key) != value:
            yield f"property {key} = {theirs.get(key)!r}, not {value!r}"
    if _default(source, "partition-specs", "spec-id") != _default(onto, "partition-specs", "spec-id"):
        yield "another partitioning"
    if _default(source, "sort-orders", "order-id") != _default(onto, "sort-orders", "order-id"):
        yield "another sort order"


def _default(document: Document, key: str, id_key: str) -> Any:
    wanted = document[f"default-{'sort-order' if id_key == 'order-id' else 'spec'}-id"]
    return next((each["fields"] for each in document[key] if each[id_key] == wanted), [])


def check_schema(source: Document, source_pointer: TablePointer, onto: Document, onto_pointer: TablePointer) -> None:
    """Check that files with ``source``'s columns are right under ``onto``'s schema.

    A renamed column doesn't fit either: checks read it by its old name, which may be another column's now.

    Raises:
        NotReplayableError: When a column was dropped, renamed or changed its type, or one that the files lack is
            required.
    """
    ours, theirs = schema_of(source, source_pointer), schema_of(onto, onto_pointer)
    if ours["fields"] == theirs["fields"]:
        return
    problem = next(_struct_problems(ours, theirs, ""), None)
    if problem is not None:
        column, reason = problem
        refuse(
            onto_pointer,
            f"column '{column}' {reason}, so the files of this run do not fit it any more",
            RUN_AGAIN,
            column=column,
        )


def check_layout(source: Document, onto: Document, onto_pointer: TablePointer, spec_ids: Collection[int]) -> None:
    """Check that sort orders, and the partition specs of the files, are the same in both where their ids are.

    Raises:
        NotReplayableError: When they aren't.
    """
    ours, theirs = specs(source), specs(onto)
    for spec_id in sorted(spec_ids):
        if spec_id not in theirs or ours[spec_id]["fields"] != theirs[spec_id]["fields"]:
            columns = ", ".join(field["name"] for field in ours[spec_id]["fields"]) or "nothing"
            refuse(
                onto_pointer,
                f"partition spec {spec_id} (by {columns}) of this run's files means something else there",
                RUN_AGAIN,
                spec_id=spec_id,
            )
    orders = {order["order-id"]: order["fields"] for order in onto["sort-orders"]}
    for order in source["sort-orders"]:
        if orders.get(order["order-id"], order["fields"]) != order["fields"]:
            refuse(
                onto_pointer,
                f"sort order {order['order-id']} of this run's files means something else there",
                RUN_AGAIN,
                sort_order_id=order["order-id"],
            )


def _struct_problems(ours: Document, theirs: Document, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the columns that don't fit, and why, by their names in the files' table."""
    written = {field["id"]: field for field in ours["fields"]}
    for field in theirs["fields"]:
        column = f"{prefix}{field['name']}"
        if field["id"] not in written:
            if field["required"] and "initial-default" not in field:
                yield column, "was added and is required"
        elif field["required"] and not written[field["id"]]["required"]:
            yield column, "is required now, and was not when they were written"
    expected = {field["id"]: field for field in theirs["fields"]}
    for field in ours["fields"]:
        column, there = f"{prefix}{field['name']}", expected.get(field["id"])
        if there is None:
            yield column, "is not there (it was dropped, or has another id)"
        elif there["name"] != field["name"]:
            yield column, f"is called '{there['name']}' there"
        else:
            yield from _type_problems(field["type"], there["type"], column)


def _type_problems(ours: Any, theirs: Any, column: str) -> Iterator[tuple[str, str]]:
    if ours == theirs:
        return
    if isinstance(ours, str) or isinstance(theirs, str) or ours["type"] != theirs["type"]:
        if not _is_promotion(ours, theirs):
            yield column, f"has type {_type_name(theirs)} there and {_type_name(ours)} in the files"
    elif ours["type"] == "struct":
        yield from _struct_problems(ours, theirs, f"{column}.")
    else:
        for part in ("element", "key", "value"):
            if part in ours:
                yield from _part_problems(ours, theirs, part, column)


def _part_problems(ours: Document, theirs: Document, part: str, column: str) -> Iterator[tuple[str, str]]:
    column = f"{column}.{part}"
    required = f"{part}-required"
    if ours[f"{part}-id"] != theirs[f"{part}-id"]:
        yield column, "is not there (it has another id)"
    elif theirs.get(required) and not ours.get(required):
        yield column, "is required now, and was not when they were written"
    else:
        yield from _type_problems(ours[part], theirs[part], column)


def _is_promotion(ours: Any, theirs: Any) -> bool:
    if not isinstance(ours, str) or not isinstance(theirs, str):
        return False
    before, after = _DECIMAL.fullmatch(ours), _DECIMAL.fullmatch(theirs)
    if before and after:
        return before[2] == after[2] and int(before[1]) <= int(after[1])
    return (ours, theirs) in _PROMOTIONS


def _type_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
