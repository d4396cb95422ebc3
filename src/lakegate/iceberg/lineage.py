"""What happened to a table between two of its states, and whether data files written for one are right in the other.

A snapshot's ``operation`` says what *it* did to its parent. It says nothing about whether that parent is what ``main``
has, about snapshots that were expired in between, about a table that was rolled back or replaced, or about columns that
changed their names or ids. All of these decide what the rows of a table are (docs/decisions/0027).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from lakegate.errors import NotReplayableError
from lakegate.iceberg.metadata import Document, find_snapshot, properties, schema_of, specs
from lakegate.iceberg.validation import MAIN
from lakegate.model.refs import NO_SNAPSHOT, TablePointer
from lakegate.model.tables import DELETING_PROPERTIES, Snapshot, TableChange, is_on
from lakegate.model.types import can_promote

_PASSING = frozenset(
    {
        "current-snapshot-id",
        "last-sequence-number",
        "last-updated-ms",
        "metadata-log",
        "next-row-id",
        "partition-statistics",
        "properties",
        "refs",
        "snapshot-log",
        "snapshots",
        "statistics",
    }
)
"""Parts of a metadata file that don't say how the table's rows are read, or that are compared on their own."""
_COMMIT_PROPERTY = "nessie.commit.id"
_COPIED = "spark.merge-into.num-target-rows-copied"


@dataclass(frozen=True, slots=True)
class TableState:
    """What decides about a table at one commit.

    Attributes:
        uuid: The table, over its whole life.
        current: Id of its current snapshot; ``None`` without one.
        snapshots: All snapshots that it knows, oldest first.
        definition: All that its rows are read and written by: schemas, partitioning, sort orders, properties.
        refs: Iceberg's own branches and tags inside the table, other than its main one, and the snapshots they name.
        next_row_id: Id of its next new row (format version 3).
    """

    uuid: str
    current: int | None
    snapshots: Sequence[Snapshot]
    definition: Any
    refs: Mapping[str, int] = field(default_factory=dict)
    next_row_id: int | None = None


def state_of(document: Mapping[str, Any], pointer: TablePointer, snapshots: Sequence[Snapshot]) -> TableState:
    """Return the state at ``pointer`` from the JSON of its metadata file and its snapshots, oldest first."""
    kept = {key: value for key, value in document.items() if key not in _PASSING}
    properties = own_properties(document.get("properties") or {})
    ids = (pointer.schema_id, pointer.spec_id, pointer.sort_order_id)
    return TableState(
        uuid=str(document["table-uuid"]),
        current=None if pointer.snapshot_id == NO_SNAPSHOT else pointer.snapshot_id,
        snapshots=snapshots,
        definition=(_normalised(kept), _normalised(properties), ids),
        refs={name: ref["snapshot-id"] for name, ref in (document.get("refs") or {}).items() if name != MAIN},
        next_row_id=document.get("next-row-id"),
    )


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return ``properties`` without what Iceberg's Nessie client sets whenever it loads a table (``NessieUtil``).

    It turns off what deletes files. Turning it on is a change like any other.
    """
    return {
        key: value
        for key, value in properties.items()
        if key != _COMMIT_PROPERTY and not (key in DELETING_PROPERTIES and not is_on(properties, key))
    }


def classify(
    before: TableState | None,
    after: TableState | None,
    only_added: Callable[[Snapshot], bool],
    *,
    evolves: bool = False,
) -> TableChange:
    """Return what happened to a table on the way from ``before`` to ``after``.

    Args:
        before: Its state then; ``None`` when it didn't exist.
        after: Its state now; ``None`` when it was dropped.
        only_added: Returns whether the manifests of a snapshot of ``after`` say that it only added data files. Called
            last, for snapshots that are an append by everything else.
        evolves: Whether an append that also added columns, or widened some, is to be distinguished from a rewrite.
    """
    if after is None:
        return TableChange(kind="drop", reason="it was dropped")
    known = set() if before is None else {snapshot.snapshot_id for snapshot in before.snapshots}
    parent = None if before is None else before.current
    written = tuple(snapshot for snapshot in after.snapshots if snapshot.snapshot_id not in known)
    chain = _chain(after, parent)
    evolved = evolves and before is not None and before.definition != after.definition and _evolved(before, after)
    if evolved and before is not None:
        after = replace(after, definition=before.definition)
    reason = _difference(before, after) or _broken(before, chain, only_added)
    if before is not None and _same_snapshots(before, after):
        kind = "metadata"
    elif before is not None and not reason and not written and _only_forgot(before, after):
        kind, reason = "expire", "older snapshots were expired"
    elif before is not None and not chain:
        kind, reason = "rewrite", reason or "snapshots of it were added aside or expired"
    else:
        kind = "rewrite" if reason else "create" if before is None else "evolve" if evolved else "append"
    added, removed = _rows(chain)
    return TableChange.model_validate(
        {
            "kind": kind,
            "snapshots": chain or (),
            "written": written,
            "parent_snapshot_id": parent,
            "rows_added": added,
            "rows_removed": removed,
            "reason": reason,
            "refs": tuple(name for name, at in after.refs.items() if at not in known | {after.current}),
        }
    )


_SCHEMA_PARTS = ("schema", "schemas", "current-schema-id", "last-column-id")


def _evolved(before: TableState, after: TableState) -> bool:
    """Return whether all that changed of a table's definition is that it got columns, or columns of wider types.

    Every row that was there is read as before then: a new column is NULL in it, and a wider type holds the same value.
    """
    (then, properties, ids), (now, properties_now, ids_now) = before.definition, after.definition
    rest, rest_now = ({key: value for key, value in one.items() if key not in _SCHEMA_PARTS} for one in (then, now))
    if (rest, properties, ids[1:]) != (rest_now, properties_now, ids_now[1:]):
        return False
    schemas, schemas_now = ({one["schema-id"]: one for one in part.get("schemas", [])} for part in (then, now))
    old, new = schemas.get(ids[0]), schemas_now.get(ids_now[0])
    if old is None or new is None or any(schemas_now.get(key) != one for key, one in schemas.items()):
        return False
    if {**old, "schema-id": 0, "fields": 0} != {**new, "schema-id": 0, "fields": 0}:
        return False
    return _grew(old, new, then.get("last-column-id", 0))


def _grew(old: Mapping[str, Any], new: Mapping[str, Any], last: int) -> bool:
    """Return whether all that differs between two structs is that fields were added, or are of wider types.

    Args:
        last: The highest id that a field had.
    """
    fields = {field["id"]: field for field in new.get("fields", ())}
    kept = [_same_or_wider(field, fields.pop(field["id"], None), last) for field in old.get("fields", ())]
    return all(kept) and all(field["id"] > last and not field.get("required") for field in fields.values())


def _same_or_wider(field: Mapping[str, Any], now: Mapping[str, Any] | None, last: int) -> bool:
    if now is None or {**field, "type": 0} != {**now, "type": 0}:
        return False
    return _wider_type(field["type"], now["type"], last)


def _wider_type(one: Any, other: Any, last: int) -> bool:
    if one == other:
        return True
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and can_promote(one, other)
    if one.get("type") == "struct":
        return bool(other.get("type") == "struct") and _grew(one, other, last)
    inner = "element" if one.get("type") == "list" else "value"  # a map's keys don't change
    same = {**one, inner: 0} == {**other, inner: 0}
    return same and _wider_type(one[inner], other[inner], last)


def _chain(after: TableState, parent: int | None) -> tuple[Snapshot, ...] | None:
    """Return the snapshots from ``parent`` to the current one; ``None`` when they don't lead there."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in after.snapshots}
    chain: list[Snapshot] = []
    at = after.current
    while at != parent:
        snapshot = None if at is None else by_id.pop(at, None)
        if snapshot is None:
            return None
        chain.append(snapshot)
        at = snapshot.parent_id
    return tuple(reversed(chain))


def _difference(before: TableState | None, after: TableState) -> str | None:
    """Return in which way ``after`` isn't the same table, defined in the same way."""
    if before is None:
        return "it has branches or tags of its own" if after.refs else None
    if before.uuid != after.uuid:
        return "it was replaced by another table with the same name"
    if before.definition != after.definition:
        return "its schema, partitioning, sort order or properties changed"
    if before.refs != after.refs:
        return "branches or tags of its own changed"
    return None


def _broken(
    before: TableState | None, chain: Sequence[Snapshot] | None, only_added: Callable[[Snapshot], bool]
) -> str | None:
    """Return why the way to the current snapshot isn't one of appends."""
    if chain is None:
        return "its current snapshot doesn't follow the one before, or snapshots in between were expired"
    total = _total(None if before is None else before.snapshots, None if before is None else before.current)
    for snapshot in chain:
        if snapshot.operation != "append":
            return f"snapshot {snapshot.snapshot_id} isn't an append: its operation is '{snapshot.operation}'"
        now = _number(snapshot, "total-records")
        added = _number(snapshot, "added-records", missing=0)
        if None not in (total, now, added) and total + added != now:  # type: ignore[operator]  # none of them is None
            return f"snapshot {snapshot.snapshot_id} doesn't hold the rows that were there before it"
        total = now
    wrong = next((snapshot for snapshot in chain if not only_added(snapshot)), None)
    return None if wrong is None else f"snapshot {wrong.snapshot_id} did more than add data files"


def _same_snapshots(before: TableState, after: TableState) -> bool:
    ids = [{snapshot.snapshot_id for snapshot in state.snapshots} for state in (before, after)]
    same = before.uuid == after.uuid and before.current == after.current and ids[0] == ids[1]
    return same and before.refs == after.refs


def _only_forgot(before: TableState, after: TableState) -> bool:
    is_there = any(snapshot.snapshot_id == after.current for snapshot in after.snapshots)
    # Others may have had ids since, in rows that are gone again: what began before must not give these to its own.
    return is_there and before.current == after.current and before.next_row_id == after.next_row_id


def _rows(chain: Sequence[Snapshot] | None) -> tuple[int | None, int | None]:
    if chain is None:
        return None, None
    added, removed = [], []
    for one in chain:
        more, gone = _number(one, "added-records", missing=0), _removed(one)
        # Rows that a MERGE rewrote unchanged, beside those that it changed.
        copied = _number(one, _COPIED, missing=0) or 0
        same = copied if more is not None and gone is not None and 0 <= copied <= min(more, gone) else 0
        added.append(None if more is None else more - same)
        removed.append(None if gone is None else gone - same)
    return _sum(added), _sum(removed)


def _sum(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(filter(None, counts))


def _removed(snapshot: Snapshot) -> int | None:
    """Return how many rows a snapshot removed, with their data files or by delete files."""
    gone = _number(snapshot, "deleted-records", missing=0)
    if gone is None or not any(
        _number(snapshot, key, missing=0) for key in ("added-delete-files", "removed-delete-files")
    ):
        return gone
    # A delete by position hits one row; how many rows a delete by equality hits isn't known.
    positions = [_number(snapshot, f"{way}-position-deletes", missing=0) for way in ("added", "removed")]
    equalities = [_number(snapshot, f"{way}-equality-deletes", missing=0) for way in ("added", "removed")]
    if None in positions or not any(positions) or any(count != 0 for count in equalities):
        return None
    found = gone + (positions[0] or 0) - (positions[1] or 0)
    return found if found >= 0 else None


def _total(snapshots: Sequence[Snapshot] | None, current: int | None) -> int | None:
    """Return how many rows a table's data files hold, if its current snapshot says so."""
    if current is None:
        return 0
    found = next((one for one in snapshots or () if one.snapshot_id == current), None)
    return None if found is None else _number(found, "total-records")


def _number(snapshot: Snapshot, key: str, missing: int | None = None) -> int | None:
    value = snapshot.summary.get(key)
    if value is None:
        return missing
    return int(value) if value.isdecimal() else None


def _normalised(value: Any) -> Any:
    """Return ``value`` without empty fields: some writers leave them out, others write them."""
    if isinstance(value, Mapping):
        kept = {key: _normalised(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, [], {})}
    return [_normalised(item) for item in value] if isinstance(value, list) else value


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
    """Raise a ``NotReplayableError`` for a format version whose metadata isn't edited here."""
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
            "A run that raised a table's format version can't be reverted once something was published after it. "
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
    """Yield in what ``onto``, which was created at the same time as ``source``, isn't what that was to be."""
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
            f"column '{column}' {reason}, so the files of this run don't fit it any more",
            RUN_AGAIN,
            column=column,
        )


def check_layout(source: Document, onto: Document, onto_pointer: TablePointer, spec_ids: Collection[int]) -> None:
    """Check that sort orders, and the partition specs of the files, are the same in both where their ids are."""
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
    written = {one["id"]: one for one in ours["fields"]}
    for one in theirs["fields"]:
        column = f"{prefix}{one['name']}"
        if one["id"] not in written:
            if one["required"] and "initial-default" not in one:
                yield column, "was added and is required"
        elif one["required"] and not written[one["id"]]["required"]:
            yield column, "is required now, and wasn't when they were written"
    expected = {one["id"]: one for one in theirs["fields"]}
    for one in ours["fields"]:
        column, there = f"{prefix}{one['name']}", expected.get(one["id"])
        if there is None:
            yield column, "isn't there (it was dropped, or has another id)"
        elif there["name"] != one["name"]:
            yield column, f"is called '{there['name']}' there"
        else:
            yield from _type_problems(one["type"], there["type"], column)


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
        yield column, "isn't there (it has another id)"
    elif theirs.get(required) and not ours.get(required):
        yield column, "is required now, and wasn't when they were written"
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
