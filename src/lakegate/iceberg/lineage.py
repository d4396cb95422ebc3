"""What happened to a table between two of its states: decided by its lineage and metadata, never by a guess.

A snapshot's ``operation`` says what *it* did to its parent. It says nothing about whether that parent is what ``main``
has, about snapshots that were expired in between, about a table that was rolled back or replaced, or about columns that
changed their names or ids. All of these decide what the rows of a table are (docs/decisions/0027).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
"""Parts of a metadata file that do not say how the table's rows are read, or that are compared on their own."""
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
        before: Its state then; ``None`` when it did not exist.
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
    """Return the snapshots from ``parent`` to the current one; ``None`` when they do not lead there."""
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
    """Return in which way ``after`` is not the same table, defined in the same way."""
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
    """Return why the way to the current snapshot is not one of appends."""
    if chain is None:
        return "its current snapshot does not follow the one before, or snapshots in between were expired"
    total = _total(None if before is None else before.snapshots, None if before is None else before.current)
    for snapshot in chain:
        if snapshot.operation != "append":
            return f"snapshot {snapshot.snapshot_id} isn't an append: its operation is '{snapshot.operation}'"
        now = _number(snapshot, "total-records")
        added = _number(snapshot, "added-records", missing=0)
        if None not in (total, now, added) and total + added != now:  # type: ignore[operator]  # none of them is None
            return f"snapshot {snapshot.snapshot_id} does not hold the rows that were there before it"
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
        # Rows that a MERGE wrote anew as they were, beside those that it changed.
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
    # A delete by position hits one row; how many rows a delete by equality hits is not known.
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
