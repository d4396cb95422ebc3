"""Classify what happened to a table between two states, and check whether data files of one fit the other.

A snapshot's ``operation`` only describes the change from its parent. It doesn't say whether ``main`` is at that parent,
whether snapshots in between were expired, whether the table was rolled back or replaced, or whether columns changed
their names or ids. All of these decide which rows a table has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from lakegate.errors import NotReplayableError
from lakegate.iceberg.metadata import Document, find_snapshot, properties, schema_of, specs
from lakegate.iceberg.validation import MAIN_BRANCH
from lakegate.model.refs import NO_SNAPSHOT, TablePointer
from lakegate.model.tables import DELETING_PROPERTIES, REPLACE, Snapshot, TableChange, is_on
from lakegate.model.types import can_promote

_IGNORED_FIELDS = frozenset(
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
"""Fields of a metadata file that don't affect how rows are read, or that are compared separately."""
_NESSIE_PROPERTIES = frozenset({"nessie.commit.id", "nessie.gc.no-warning"})
_COPIED = "spark.merge-into.num-target-rows-copied"


@dataclass(frozen=True, slots=True)
class TableState:
    """What matters about a table at one commit when two of its states are compared.

    Attributes:
        uuid: Identifies the table over its whole life.
        current: Id of its current snapshot; ``None`` if it has none.
        snapshots: All snapshots in its metadata, oldest first.
        definition: What decides how its rows are read and written: schemas, partition specs, sort orders, properties.
        refs: Iceberg's branches and tags inside the table, except its main branch, and the ids of their snapshots.
        next_row_id: Id of its next new row (format version 3).
        contents: Each snapshot's manifest list, or its manifests (format version 1). A rebased snapshot keeps its id,
            but has another list.
    """

    uuid: str
    current: int | None
    snapshots: Sequence[Snapshot]
    definition: Any
    refs: Mapping[str, int] = field(default_factory=dict)
    next_row_id: int | None = None
    contents: Mapping[int, Any] = field(default_factory=dict)


def state_of(document: Mapping[str, Any], pointer: TablePointer, snapshots: Sequence[Snapshot]) -> TableState:
    """Return the state at ``pointer``, given its metadata file's JSON and its snapshots, oldest first."""
    kept = {key: value for key, value in document.items() if key not in _IGNORED_FIELDS}
    properties = significant_properties(document.get("properties") or {})
    ids = (pointer.schema_id, pointer.spec_id, pointer.sort_order_id)
    return TableState(
        uuid=str(document["table-uuid"]),
        current=None if pointer.snapshot_id == NO_SNAPSHOT else pointer.snapshot_id,
        snapshots=snapshots,
        definition=(_normalised(kept), _normalised(properties), ids),
        refs={name: ref["snapshot-id"] for name, ref in (document.get("refs") or {}).items() if name != MAIN_BRANCH},
        next_row_id=document.get("next-row-id"),
        contents={
            one["snapshot-id"]: one.get("manifest-list") or one.get("manifests")
            for one in document.get("snapshots") or ()
        },
    )


def significant_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return ``properties`` without those that Iceberg's Nessie client sets whenever it loads a table (``NessieUtil``).

    The client turns off the properties that make Iceberg delete files. Turning one on is a change like any other.
    """
    return {
        key: value
        for key, value in properties.items()
        if key not in _NESSIE_PROPERTIES and not (key in DELETING_PROPERTIES and not is_on(properties, key))
    }


def classify(
    before: TableState | None,
    after: TableState | None,
    only_added: Callable[[Snapshot], bool],
    *,
    evolves: bool = False,
    compacted: bool = False,
) -> TableChange:
    """Return what happened to a table between ``before`` and ``after``.

    Args:
        before: The earlier state; ``None`` when the table didn't exist.
        after: The later state; ``None`` when the table was dropped.
        only_added: Returns whether the manifests of a snapshot of ``after`` only add data files. Called last, and only
            for snapshots that look like appends in every other way.
        evolves: Report an append that also added or widened columns as ``evolve`` instead of ``rewrite``.
        compacted: Ignore compactions among appends (operation ``replace``: in Iceberg's spec, the same rows in other
            files) if the row counts agree.
    """
    if after is None:
        return TableChange(kind="drop", reason="it was dropped")
    rebased = set() if before is None else _rebased(before, after)
    known = set() if before is None else {snapshot.snapshot_id for snapshot in before.snapshots} - rebased
    parent = None if before is None else before.current
    written = tuple(snapshot for snapshot in after.snapshots if snapshot.snapshot_id not in known)
    chain = None if parent in rebased else _chain(after, parent)
    evolved = evolves and before is not None and before.definition != after.definition and _is_evolution(before, after)
    if evolved and before is not None:
        after = replace(after, definition=before.definition)
    reason = _difference(before, after) or _not_appended(before, chain, only_added, compacted=compacted)
    if before is not None and not rebased and _same_snapshots(before, after):
        kind = "metadata"
    elif before is not None and not reason and not written and _only_expired(before, after):
        kind, reason = "expire", "older snapshots were expired"
    elif before is not None and not chain:
        kind, reason = "rewrite", reason or "it has new snapshots that aren't current, or some were expired"
    else:
        kind = "rewrite" if reason else "create" if before is None else "evolve" if evolved else "append"
    if compacted and not reason and chain:
        chain = tuple(one for one in chain if one.operation != REPLACE)
    added, removed = _net_rows(chain)
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


_NAMES = "schema.name-mapping.default"
_SCHEMA_PARTS = ("schema", "schemas", "current-schema-id", "last-column-id")


def _is_evolution(before: TableState, after: TableState) -> bool:
    """Return whether a table's definition only differs by new columns and wider column types.

    Existing rows then read as before: a new column without a default is NULL in them, and a wider type holds the same
    value.
    """
    (was, properties, ids), (now, properties_now, ids_now) = before.definition, after.definition
    rest, rest_now = ({key: value for key, value in one.items() if key not in _SCHEMA_PARTS} for one in (was, now))
    if (rest, ids[1:]) != (rest_now, ids_now[1:]) or not _only_names_added(properties, properties_now):
        return False
    schemas, schemas_now = ({one["schema-id"]: one for one in part.get("schemas", [])} for part in (was, now))
    old, new = schemas.get(ids[0]), schemas_now.get(ids_now[0])
    if old is None or new is None or any(schemas_now.get(key) != one for key, one in schemas.items()):
        return False
    if {**old, "schema-id": 0, "fields": 0} != {**new, "schema-id": 0, "fields": 0}:
        return False
    return _only_added_or_widened(old, new, was.get("last-column-id", 0))


def _only_names_added(properties: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether properties only differ by names for new columns: PyIceberg keeps those for files without ids."""
    if properties == now:
        return True
    rest, rest_now = dict(properties), dict(now)
    try:
        old, new = json.loads(rest.pop(_NAMES)), json.loads(rest_now.pop(_NAMES))
    except (KeyError, ValueError):
        return False
    return rest == rest_now and all(name in new for name in old)


def _only_added_or_widened(old: Mapping[str, Any], new: Mapping[str, Any], last: int) -> bool:
    """Return whether two structs differ only by wider types, and by added optional fields without a default.

    Args:
        last: The highest field id before; added fields have higher ones.
    """
    fields = {field["id"]: field for field in new.get("fields", ())}
    kept = [_is_field_same_or_wider(field, fields.pop(field["id"], None), last) for field in old.get("fields", ())]
    return all(kept) and all(
        field["id"] > last and not field.get("required") and field.get("initial-default") is None
        for field in fields.values()
    )


def _is_field_same_or_wider(field: Mapping[str, Any], now: Mapping[str, Any] | None, last: int) -> bool:
    if now is None or {**field, "type": 0} != {**now, "type": 0}:
        return False
    return _is_same_or_wider(field["type"], now["type"], last)


def _is_same_or_wider(one: Any, other: Any, last: int) -> bool:
    if one == other:
        return True
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and can_promote(one, other)
    if one.get("type") == "struct":
        return bool(other.get("type") == "struct") and _only_added_or_widened(one, other, last)
    inner = "element" if one.get("type") == "list" else "value"  # a map's keys can't change
    same = {**one, inner: 0} == {**other, inner: 0}
    return same and _is_same_or_wider(one[inner], other[inner], last)


def _rebased(before: TableState, after: TableState) -> set[int]:
    """Return the snapshots that both states have, but with other manifests, and so maybe with other rows.

    A revert rebases later appends onto the state before the reverted run, for example.
    """
    both = before.contents.keys() & after.contents.keys()
    return {snapshot_id for snapshot_id in both if before.contents[snapshot_id] != after.contents[snapshot_id]}


def _chain(after: TableState, parent: int | None) -> tuple[Snapshot, ...] | None:
    """Return the snapshots after ``parent`` up to the current one; ``None`` if ``parent`` isn't an ancestor."""
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
    """Return how ``after`` differs in anything but its snapshots; ``None`` if it doesn't."""
    if before is None:
        return "it has Iceberg branches or tags" if after.refs else None
    if before.uuid != after.uuid:
        return "it was replaced by another table with the same name"
    if before.definition != after.definition:
        return "its schema, partitioning, sort order or properties changed"
    if before.refs != after.refs:
        return "its Iceberg branches or tags changed"
    return None


def _not_appended(
    before: TableState | None,
    chain: Sequence[Snapshot] | None,
    only_added: Callable[[Snapshot], bool],
    *,
    compacted: bool,
) -> str | None:
    """Return why the snapshots since ``before`` aren't all appends, or allowed compactions; ``None`` if they are."""
    if chain is None:
        return "its current snapshot doesn't descend from the earlier one, or snapshots in between were expired"
    total = _total_rows(None if before is None else before.snapshots, None if before is None else before.current)
    has_deletes = before is not None and any(
        _has_deletes(one) for one in before.snapshots if one.snapshot_id == before.current
    )
    for snapshot in chain:
        if compacted and snapshot.operation == REPLACE:
            replaced, rows = (_summary_int(snapshot, f"{what}-records", missing=0) for what in ("deleted", "added"))
            # Rows that delete files hid aren't in the new files.
            if replaced is None or rows is None or replaced < rows or (replaced > rows and not has_deletes):
                return f"snapshot {snapshot.snapshot_id} replaced {replaced} rows with {rows}, so it's no compaction"
            total, has_deletes = _summary_int(snapshot, "total-records"), _has_deletes(snapshot)
            continue
        if snapshot.operation != "append":
            return f"snapshot {snapshot.snapshot_id} isn't an append: its operation is '{snapshot.operation}'"
        now = _summary_int(snapshot, "total-records")
        added = _summary_int(snapshot, "added-records", missing=0)
        if None not in (total, now, added) and total + added != now:  # type: ignore[operator]  # none of them is None
            return f"snapshot {snapshot.snapshot_id} lost or added rows beyond those it says it added"
        total = now
    appends = (snapshot for snapshot in chain if snapshot.operation == "append")
    wrong = next((snapshot for snapshot in appends if not only_added(snapshot)), None)
    return None if wrong is None else f"snapshot {wrong.snapshot_id} did more than add data files"


def _has_deletes(snapshot: Snapshot) -> bool:
    """Return whether delete files may hide rows of it."""
    return _summary_int(snapshot, "total-delete-files") != 0


def _same_snapshots(before: TableState, after: TableState) -> bool:
    ids = [{snapshot.snapshot_id for snapshot in state.snapshots} for state in (before, after)]
    same = before.uuid == after.uuid and before.current == after.current and ids[0] == ids[1]
    return same and before.refs == after.refs


def _only_expired(before: TableState, after: TableState) -> bool:
    has_current = any(snapshot.snapshot_id == after.current for snapshot in after.snapshots)
    # A higher next row id means that ids were given to rows in between, even if these are gone again. A run that began
    # before must not assign the same ids, so such a change is more than an expiry.
    return has_current and before.current == after.current and before.next_row_id == after.next_row_id


def _net_rows(chain: Sequence[Snapshot] | None) -> tuple[int | None, int | None]:
    if chain is None:
        return None, None
    added, removed = [], []
    for one in chain:
        plus, minus = _summary_int(one, "added-records", missing=0), _removed(one)
        # A MERGE also rewrites unchanged rows that share a file with changed ones.
        copied = _summary_int(one, _COPIED, missing=0) or 0
        same = copied if plus is not None and minus is not None and 0 <= copied <= min(plus, minus) else 0
        added.append(None if plus is None else plus - same)
        removed.append(None if minus is None else minus - same)
    return _sum_known(added), _sum_known(removed)


def _sum_known(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(filter(None, counts))


def _removed(snapshot: Snapshot) -> int | None:
    """Return how many rows a snapshot removed, with data files or by delete files; ``None`` if it's unknown."""
    removed = _summary_int(snapshot, "deleted-records", missing=0)
    if removed is None or not any(
        _summary_int(snapshot, key, missing=0) for key in ("added-delete-files", "removed-delete-files")
    ):
        return removed
    # A position delete removes one row. How many an equality delete removes is unknown.
    positions = [_summary_int(snapshot, f"{way}-position-deletes", missing=0) for way in ("added", "removed")]
    equalities = [_summary_int(snapshot, f"{way}-equality-deletes", missing=0) for way in ("added", "removed")]
    if None in positions or not any(positions) or any(count != 0 for count in equalities):
        return None
    removed += (positions[0] or 0) - (positions[1] or 0)
    return removed if removed >= 0 else None


def _total_rows(snapshots: Sequence[Snapshot] | None, current: int | None) -> int | None:
    """Return the row count in the current snapshot's summary; ``None`` if it has none."""
    if current is None:
        return 0
    found = next((one for one in snapshots or () if one.snapshot_id == current), None)
    return None if found is None else _summary_int(found, "total-records")


def _summary_int(snapshot: Snapshot, key: str, missing: int | None = None) -> int | None:
    value = snapshot.summary.get(key)
    if value is None:
        return missing
    return int(value) if value.isdecimal() else None


def _normalised(value: Any) -> Any:
    """Return ``value`` without empty fields, which some writers omit and others write."""
    if isinstance(value, Mapping):
        kept = {key: _normalised(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, [], {})}
    return [_normalised(item) for item in value] if isinstance(value, list) else value


RUN_AGAIN = "Run the write again on main as it is now."
_VERSIONS = (2, 3)


def refuse(pointer: TablePointer, reason: str, hint: str, **context: Any) -> NoReturn:
    """Raise the ``NotReplayableError`` that says why a table can't be changed through its metadata."""
    raise NotReplayableError(f"Table {pointer.table}: {reason}.", hint=hint, table=str(pointer.table), **context)


def check_version(document: Document, pointer: TablePointer) -> None:
    """Raise a ``NotReplayableError`` if the table's format version can't be edited here."""
    version = document["format-version"]
    if version not in _VERSIONS:
        refuse(
            pointer,
            f"its format version is {version}, and only versions 2 and 3 can be changed through their metadata",
            "Raise it with ALTER TABLE … SET TBLPROPERTIES ('format-version' = '2'), or run the write again on main as "
            "it is now.",
            format_version=version,
        )


def check_no_downgrade(source: Document, onto: Document, onto_pointer: TablePointer) -> None:
    """Raise a ``NotReplayableError`` if the files are of a newer format version than the table."""
    ours, theirs = source["format-version"], onto["format-version"]
    if ours > theirs:
        refuse(
            onto_pointer,
            f"its format version is {theirs}, and the files added since are of version {ours}",
            "A run that raised a table's format version can't be reverted once something was published after it. "
            "To go back to an earlier state, without later changes: lakegate table restore TABLE --at TIME",
            format_version=theirs,
        )


def check_lineage(source: Document, snapshot_ids: Sequence[int], onto: Document, onto_pointer: TablePointer) -> None:
    """Check that both are the same table, or that two runs created it concurrently with the same definition.

    Column ids are only comparable within one table's life.

    Raises:
        NotReplayableError: When ``onto`` is another table, or was created with another definition.
    """
    if source["table-uuid"] == onto["table-uuid"]:
        return
    first = find_snapshot(source, snapshot_ids[0]) if snapshot_ids else None
    if first is not None and first.get("parent-snapshot-id") is not None:
        refuse(onto_pointer, "it was replaced by another table with the same name", RUN_AGAIN)
    other = next(_differences(source, onto), None)
    if other is not None:
        refuse(onto_pointer, f"another run created it meanwhile, with {other}", RUN_AGAIN)


def _differences(source: Document, onto: Document) -> Iterator[str]:
    """Yield how the definition of ``onto`` differs from that of ``source``, which was created concurrently."""
    theirs = properties(onto)
    for key, value in significant_properties(properties(source)).items():
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
    """Check that files with ``source``'s columns fit ``onto``'s schema.

    A renamed column doesn't fit: checks read it by its old name, which another column may have now.

    Raises:
        NotReplayableError: When a column was dropped, renamed or changed its type, or is required and missing in the
            files.
    """
    ours, theirs = schema_of(source, source_pointer), schema_of(onto, onto_pointer)
    if ours["fields"] == theirs["fields"]:
        return
    problem = next(_struct_problems(ours, theirs, ""), None)
    if problem is not None:
        column, reason = problem
        refuse(
            onto_pointer,
            f"column '{column}' {reason}, so the files of this run no longer fit the table",
            RUN_AGAIN,
            column=column,
        )


def check_layout(source: Document, onto: Document, onto_pointer: TablePointer, spec_ids: Collection[int]) -> None:
    """Check that partition specs ``spec_ids``, and sort orders with equal ids, mean the same in both tables."""
    ours, theirs = specs(source), specs(onto)
    for spec_id in sorted(spec_ids):
        if spec_id not in theirs or ours[spec_id]["fields"] != theirs[spec_id]["fields"]:
            columns = ", ".join(field["name"] for field in ours[spec_id]["fields"]) or "nothing"
            refuse(
                onto_pointer,
                f"partition spec {spec_id} (by {columns}) of this run's files means something else in the table",
                RUN_AGAIN,
                spec_id=spec_id,
            )
    orders = {order["order-id"]: order["fields"] for order in onto["sort-orders"]}
    for order in source["sort-orders"]:
        if orders.get(order["order-id"], order["fields"]) != order["fields"]:
            refuse(
                onto_pointer,
                f"sort order {order['order-id']} of this run's files means something else in the table",
                RUN_AGAIN,
                sort_order_id=order["order-id"],
            )


def _struct_problems(ours: Document, theirs: Document, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield each column that doesn't fit, and why. ``ours`` is the files' schema, ``theirs`` the table's."""
    written = {one["id"]: one for one in ours["fields"]}
    for one in theirs["fields"]:
        column = f"{prefix}{one['name']}"
        if one["id"] not in written:
            if one["required"] and "initial-default" not in one:
                yield column, "was added and is required"
        elif one["required"] and not written[one["id"]]["required"]:
            yield column, "is now required, and wasn't when the files were written"
    expected = {one["id"]: one for one in theirs["fields"]}
    for one in ours["fields"]:
        column, there = f"{prefix}{one['name']}", expected.get(one["id"])
        if there is None:
            yield column, "isn't in the table (it was dropped, or has another id)"
        elif there["name"] != one["name"]:
            yield column, f"is called '{there['name']}' in the table"
        else:
            yield from _type_problems(one["type"], there["type"], column)


def _type_problems(ours: Any, theirs: Any, column: str) -> Iterator[tuple[str, str]]:
    if ours == theirs:
        return
    if isinstance(ours, str) or isinstance(theirs, str) or ours["type"] != theirs["type"]:
        if not (isinstance(ours, str) and isinstance(theirs, str) and can_promote(ours, theirs)):
            yield column, f"has type {_type_name(theirs)} in the table and {_type_name(ours)} in the files"
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
        yield column, "isn't in the table (it has another id)"
    elif theirs.get(required) and not ours.get(required):
        yield column, "is now required, and wasn't when the files were written"
    else:
        yield from _type_problems(ours[part], theirs[part], column)


def _type_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
