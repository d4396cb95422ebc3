"""Whether data files written for one state of a table are right in another one (Iceberg spec, "Schema Evolution")."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, NoReturn

from lakegate.catalogs.editor.metadata import Document, schema_of, specs
from lakegate.errors import NotReplayableError
from lakegate.model.refs import TablePointer

_VERSION = 2
_PROMOTIONS = {("int", "long"), ("float", "double")}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def refuse(pointer: TablePointer, reason: str, hint: str, **context: object) -> NoReturn:
    """Raise the error that says why data files of a table can't be added or dropped."""
    raise NotReplayableError(f"Table {pointer.table}: {reason}.", hint=hint, table=str(pointer.table), **context)


def check_version(document: Document, pointer: TablePointer) -> None:
    """Refuse tables of a format version whose metadata is not edited here.

    Raises:
        NotReplayableError: When it is another one than 2.
    """
    version = document["format-version"]
    if version != _VERSION:
        raised = "ALTER TABLE … SET TBLPROPERTIES ('format-version' = '2') raises it. " if version < _VERSION else ""
        refuse(
            pointer,
            f"its format version is {version}, and only version {_VERSION} can be changed through its metadata",
            f"{raised}Else run the write again on main as it is now.",
            format_version=version,
        )


def check_schema(source: Document, source_pointer: TablePointer, onto: Document, onto_pointer: TablePointer) -> None:
    """Check that files with ``source``'s columns are right under ``onto``'s schema.

    Raises:
        NotReplayableError: When a column was dropped or changed its type, or one that the files lack is required; or
            the two are different tables and differ in a column's name.
    """
    ours, theirs = schema_of(source, source_pointer), schema_of(onto, onto_pointer)
    if ours["fields"] == theirs["fields"]:
        return
    strangers = source["table-uuid"] != onto["table-uuid"]
    problem = next(_struct_problems(ours, theirs, "", strangers), None)
    if problem is not None:
        column, reason = problem
        refuse(
            onto_pointer,
            f"column '{column}' {reason}, so the files of this run do not fit it any more",
            "Run the write again on main as it is now.",
            column=column,
        )


def check_layout(source: Document, onto: Document, onto_pointer: TablePointer, spec_ids: Collection[int]) -> None:
    """Check that partition specs and sort orders with the same id are the same in both.

    Args:
        source: Metadata the files were written for.
        onto: Metadata they are to be added to.
        onto_pointer: Names the table.
        spec_ids: Partition specs of the files.

    Raises:
        NotReplayableError: When they aren't.
    """
    ours, theirs = specs(source), specs(onto)
    for spec_id in sorted(spec_ids):
        if spec_id not in theirs or ours[spec_id]["fields"] != theirs[spec_id]["fields"]:
            told = ", ".join(field["name"] for field in ours[spec_id]["fields"]) or "nothing"
            refuse(
                onto_pointer,
                f"partition spec {spec_id} (by {told}) of this run's files means something else there",
                "Run the write again on main as it is now.",
                spec_id=spec_id,
            )
    orders = {order["order-id"]: order["fields"] for order in onto["sort-orders"]}
    for order in source["sort-orders"]:
        if orders.get(order["order-id"], order["fields"]) != order["fields"]:
            refuse(
                onto_pointer,
                f"sort order {order['order-id']} of this run's files means something else there",
                "Run the write again on main as it is now.",
                sort_order_id=order["order-id"],
            )


def _struct_problems(ours: Document, theirs: Document, prefix: str, strangers: bool) -> Iterator[tuple[str, str]]:  # noqa: FBT001 - ours alone
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
        elif strangers and there["name"] != field["name"]:
            yield column, f"is '{there['name']}' there, in another table of that name"
        else:
            yield from _type_problems(field["type"], there["type"], column, strangers)


def _type_problems(ours: Any, theirs: Any, column: str, strangers: bool) -> Iterator[tuple[str, str]]:  # noqa: FBT001 - ours alone
    if ours == theirs:
        return
    if isinstance(ours, str) or isinstance(theirs, str) or ours["type"] != theirs["type"]:
        if not _is_promotion(ours, theirs):
            yield column, f"has type {_word(theirs)} there and {_word(ours)} in the files"
    elif ours["type"] == "struct":
        yield from _struct_problems(ours, theirs, f"{column}.", strangers)
    else:
        for part in ("element", "key", "value"):
            if part in ours:
                yield from _part_problems(ours, theirs, part, column, strangers)


def _part_problems(
    ours: Document,
    theirs: Document,
    part: str,
    column: str,
    strangers: bool,  # noqa: FBT001 - ours alone
) -> Iterator[tuple[str, str]]:
    column = f"{column}.{part}"
    required = f"{part}-required"
    if ours[f"{part}-id"] != theirs[f"{part}-id"]:
        yield column, "is not there (it has another id)"
    elif theirs.get(required) and not ours.get(required):
        yield column, "is required now, and was not when they were written"
    else:
        yield from _type_problems(ours[part], theirs[part], column, strangers)


def _is_promotion(ours: Any, theirs: Any) -> bool:
    if not isinstance(ours, str) or not isinstance(theirs, str):
        return False
    before, after = _DECIMAL.fullmatch(ours), _DECIMAL.fullmatch(theirs)
    if before and after:
        return before[2] == after[2] and int(before[1]) <= int(after[1])
    return (ours, theirs) in _PROMOTIONS


def _word(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
