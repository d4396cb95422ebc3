"""What a target is asked for, so that its table becomes what was staged: Iceberg's requirements and updates.

The target writes a metadata file of its own. Snapshots keep their ids, manifest lists and sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lakegate.errors import ClockError, InputError
from lakegate.iceberg import metadata
from lakegate.iceberg.metadata import Document
from lakegate.iceberg.validation import MAIN_BRANCH
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import NO_SNAPSHOT
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.words import duration

_LAST_ADDED = -1
_TOLERANCE_MS = 60_000


class Written(NamedTuple):
    """A run that wrote a snapshot, and when, by the writer's clock."""

    run_id: str
    time_ms: int


class Asked(NamedTuple):
    """A commit as Iceberg's REST API describes it."""

    requirements: list[Document]
    updates: list[Document]


def updates_between(base: Document | None, staged: Document, table: TableIdentifier) -> Asked:
    """Return what makes ``staged`` of ``base``, or a new table if that is ``None``.

    Raises:
        InputError: If no update expresses the difference.
    """
    asked = Asked([], [])
    for part in (_table, _schemas, _specs, _sort_orders, _properties, _snapshots):
        part(asked, base, staged, table)
    return asked


def alterations(staged: Document, published: Document, base: Document | None = None) -> list[str]:
    """Return how a target's table differs from what was staged, in words; empty if readers see the same.

    Args:
        base: The table before. Snapshots that it had, or had had before they expired, needn't be there.
    """
    found = [
        what
        for what, differs in (
            ("the columns differ", _columns(staged) != _columns(published)),
            ("the partitioning differs", _plain(_spec(staged)) != _plain(_spec(published))),
            ("the current snapshot differs", _current(staged) != _current(published)),
        )
        if differs
    ]
    there = snapshots_of(published)
    for number, snapshot in snapshots_of(staged).items():
        if number not in there:
            if not _is_old(snapshot, base):
                found.append(f"snapshot {number} is missing")
        else:
            found += _snapshot_alterations(number, (staged, snapshot), (published, there[number]))
    return found


def snapshots_of(document: Document) -> dict[int, Document]:
    """Return a table's snapshots by id."""
    return {one["snapshot-id"]: one for one in document.get("snapshots") or ()}


def follows(document: Document, metadata_location: str) -> bool:
    """Return whether a table's metadata says that it directly replaced another file. Some catalogs add properties."""
    log = list(document.get("metadata-log") or ())
    return bool(log) and log[-1]["metadata-file"] == metadata_location


def newest_of_run(document: Document) -> Written | None:
    """Return the newest snapshot that a run of lakegate wrote; ``None`` if there's none."""
    for one in sorted(snapshots_of(document).values(), key=_age, reverse=True):
        run_id = (one.get("summary") or {}).get(RUN_ID_PROPERTY)
        if run_id:
            return Written(run_id, one["timestamp-ms"])
    return None


def newest_added(base: Document | None, staged: Document) -> int | None:
    """Return the newest snapshot that ``staged`` adds to ``base``; ``None`` if it adds none."""
    old = snapshots_of(base or {})
    added = (one for number, one in snapshots_of(staged).items() if number not in old)
    newest = max(added, key=_age, default=None)
    return None if newest is None else newest["snapshot-id"]


def goes_back(base: Document | None, staged: Document, now: Document) -> bool:
    """Return whether ``staged`` makes an earlier snapshot current, and a table descends from that one."""
    left, current, known = _current(base or {}), _current(staged), snapshots_of(now)
    at = _current(now)
    while at is not None and at not in (left, current):
        at = known.get(at, {}).get("parent-snapshot-id")
    return left != current and at == current


def _table(asked: Asked, base: Document | None, staged: Document, table: TableIdentifier) -> None:
    if base is None:
        asked.requirements.append({"type": "assert-create"})
        asked.updates.append({"action": "assign-uuid", "uuid": staged["table-uuid"]})
        asked.updates.append(_upgrade(staged))
        asked.updates.append({"action": "set-location", "location": staged["location"]})
        return
    if base["table-uuid"] != staged["table-uuid"]:
        raise _cannot(table, "another table has its name")
    if base["location"].rstrip("/") != staged["location"].rstrip("/"):
        raise _cannot(table, f"its location changes from {base['location']} to {staged['location']}")
    asked.requirements.append({"type": "assert-table-uuid", "uuid": base["table-uuid"]})
    asked.requirements.append({"type": "assert-ref-snapshot-id", "ref": MAIN_BRANCH, "snapshot-id": _current(base)})
    if base["format-version"] != staged["format-version"]:
        asked.updates.append(_upgrade(staged))


def _upgrade(staged: Document) -> Document:
    return {"action": "upgrade-format-version", "format-version": staged["format-version"]}


def _schemas(asked: Asked, base: Document | None, staged: Document, table: TableIdentifier) -> None:
    was, now = _schemas_by_id(base), _schemas_by_id(staged)
    added = [number for number in sorted(now) if number not in was]
    for expected, number in enumerate(added, max(was, default=-1) + 1):
        if number != expected:
            raise _cannot(table, f"it has a schema {number}, and the catalog would number that {expected}")
        last = staged["last-column-id"]
        asked.updates.append({"action": "add-schema", "schema": now[number], "last-column-id": last})
    if base is not None:
        if added:
            last = base["last-column-id"]
            asked.requirements.append({"type": "assert-last-assigned-field-id", "last-assigned-field-id": last})
        current = base.get("current-schema-id", 0)
        asked.requirements.append({"type": "assert-current-schema-id", "current-schema-id": current})
    current = staged.get("current-schema-id", 0)
    if base is None or base.get("current-schema-id", 0) != current:
        asked.updates.append({"action": "set-current-schema", "schema-id": _chosen(current, added)})


def _specs(asked: Asked, base: Document | None, staged: Document, _table: TableIdentifier) -> None:
    was, now = {} if base is None else metadata.specs(base), metadata.specs(staged)
    added = [number for number in sorted(now) if number not in was]
    asked.updates.extend({"action": "add-spec", "spec": now[number]} for number in added)
    if base is not None and added:
        last = base["last-partition-id"]
        asked.requirements.append({"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": last})
    before, after = (base or {}).get("default-spec-id"), staged.get("default-spec-id", 0)
    if before != after:
        if before is not None:
            asked.requirements.append({"type": "assert-default-spec-id", "default-spec-id": before})
        asked.updates.append({"action": "set-default-spec", "spec-id": _chosen(after, added)})


def _sort_orders(asked: Asked, base: Document | None, staged: Document, _table: TableIdentifier) -> None:
    was = {one["order-id"] for one in (base or {}).get("sort-orders") or ()}
    added = [one for one in staged.get("sort-orders") or () if one["order-id"] not in was]
    numbers = [one["order-id"] for one in added]
    asked.updates.extend({"action": "add-sort-order", "sort-order": one} for one in added)
    before, after = (base or {}).get("default-sort-order-id"), staged.get("default-sort-order-id", 0)
    if before != after:
        if before is not None:
            asked.requirements.append({"type": "assert-default-sort-order-id", "default-sort-order-id": before})
        asked.updates.append({"action": "set-default-sort-order", "sort-order-id": _chosen(after, numbers)})


def _chosen(number: int, added: list[int]) -> int:
    """Return how to name a schema, spec or sort order: the one that was added last has another name."""
    return _LAST_ADDED if added and added[-1] == number else number


def _properties(asked: Asked, base: Document | None, staged: Document, _table: TableIdentifier) -> None:
    was, now = metadata.properties(base or {}), metadata.properties(staged)
    put = {key: value for key, value in now.items() if was.get(key) != value}
    gone = [key for key in was if key not in now]
    if put:
        asked.updates.append({"action": "set-properties", "updates": put})
    if gone:
        asked.updates.append({"action": "remove-properties", "removals": gone})


def _snapshots(asked: Asked, base: Document | None, staged: Document, table: TableIdentifier) -> None:
    was, now = snapshots_of(base or {}), snapshots_of(staged)
    again = [number for number in was if number in now and _files(was[number]) != _files(now[number])]
    if again:
        raise _cannot(
            table,
            f"snapshot {again[0]} has other files than in the catalog, as in a revert under later appends",
            "Revert the later runs first: lakegate log. Or go back to an earlier state, without later changes: "
            f"lakegate table restore {table} --at TIME",
        )
    # If an earlier state is to be current again, snapshots before it may have expired meanwhile.
    needed = {ref["snapshot-id"] for ref in _refs(staged).values()}
    missing = (one for number, one in now.items() if number not in was)
    added = sorted((one for one in missing if one["snapshot-id"] in needed or not _is_old(one, base)), key=_sequence)
    _require_ahead(base, added, table)
    _require_recent(base, added, table)
    asked.updates.extend({"action": "add-snapshot", "snapshot": one} for one in added)
    asked.updates.extend(_moved_refs(base or {}, staged))
    # The current snapshot is only dropped by the next change: without it, this one couldn't be put back.
    kept = _current(base or {}) if added else None
    lost = [number for number in was if number not in now and number != kept]
    if lost:
        asked.updates.append({"action": "remove-snapshots", "snapshot-ids": lost})


def _require_ahead(base: Document | None, added: list[Document], table: TableIdentifier) -> None:
    """Refuse what some catalogs take, and then count backwards or give row ids twice."""
    last, row_id = (base or {}).get("last-sequence-number") or 0, (base or {}).get("next-row-id") or 0
    for one in added:
        if _is_old(one, base):
            raise _cannot(table, f"snapshot {one['snapshot-id']} has number {_sequence(one)}, and the table had {last}")
        last = _sequence(one)
        if "first-row-id" in one:
            if one["first-row-id"] != row_id:
                raise _cannot(table, f"row ids begin at {one['first-row-id']}, and the table's next is {row_id}")
            row_id += one["added-rows"]


def _require_recent(base: Document | None, added: list[Document], table: TableIdentifier) -> None:
    """Refuse what Iceberg's own readers and catalogs refuse: a change that's a minute older than the one before it."""
    last = (base or {}).get("last-updated-ms") or 0
    behind = max((last - one["timestamp-ms"] for one in added), default=0)
    if behind > _TOLERANCE_MS:
        raise ClockError(
            f"The change of table {table} can't be published: it was written {duration(behind / 1000)} before the "
            "table's last change, by the clocks of their writers, and Iceberg takes no more than a minute.",
            hint="Set the clock of the machine that writes by NTP, then run the write again.",
            table=str(table),
        )


def _is_old(snapshot: Document, base: Document | None) -> bool:
    """Return whether a table with ``base`` has had a snapshot of this sequence number (all are 0 in version 1)."""
    return base is not None and base["format-version"] > 1 and _sequence(snapshot) <= base["last-sequence-number"]


def _moved_refs(base: Document, staged: Document) -> Iterator[Document]:
    was, now = _refs(base), _refs(staged)
    for name, ref in now.items():
        if was.get(name) != ref:
            yield {"action": "set-snapshot-ref", "ref-name": name, **ref}
    for name in was:
        if name not in now:
            yield {"action": "remove-snapshot-ref", "ref-name": name}


def _refs(document: Document) -> dict[str, Document]:
    refs = dict(document.get("refs") or {})
    current = _current(document)
    if current is not None:
        refs.setdefault(MAIN_BRANCH, {"snapshot-id": current, "type": "branch"})
    return refs


def _current(document: Document) -> int | None:
    number: int | None = document.get("current-snapshot-id")
    return None if number in (None, NO_SNAPSHOT) else number


def _schemas_by_id(document: Document | None) -> Mapping[int, Document]:
    return {} if document is None else {one.get("schema-id", 0): one for one in metadata.schemas(document)}


def _age(snapshot: Document) -> tuple[int, int]:
    return _sequence(snapshot), snapshot["timestamp-ms"]


def _sequence(snapshot: Document) -> int:
    return snapshot.get("sequence-number") or 0


def _files(snapshot: Document) -> Any:
    return snapshot.get("manifest-list") or snapshot.get("manifests")


def _columns(document: Document, number: int | None = None) -> Any:
    wanted = document.get("current-schema-id", 0) if number is None else number
    schema = _schemas_by_id(document).get(wanted)
    return None if schema is None else _plain(schema["fields"])


def _spec(document: Document) -> Any:
    return metadata.specs(document).get(document.get("default-spec-id", 0))


def _snapshot_alterations(
    number: int, staged: tuple[Document, Document], published: tuple[Document, Document]
) -> Iterator[str]:
    (document, snapshot), (other, now) = staged, published
    for key in ("manifest-list", "sequence-number", "parent-snapshot-id", "timestamp-ms", "first-row-id", "added-rows"):
        # PyIceberg forgets a parent that has expired.
        is_gone = key == "parent-snapshot-id" and now.get(key) is None and snapshot.get(key) not in snapshots_of(other)
        if snapshot.get(key) != now.get(key) and not is_gone:
            yield f"{key} of snapshot {number} is {now.get(key)} instead of {snapshot.get(key)}"
    was, has = _columns(document, snapshot.get("schema-id")), _columns(other, now.get("schema-id"))
    if was != has:
        yield f"snapshot {number} has other columns"


def _plain(value: Any) -> Any:
    """Return JSON without what some writers leave out: nulls."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items() if one is not None}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _cannot(table: TableIdentifier, reason: str, hint: str = "Run the write again.") -> InputError:
    return InputError(
        f"The change of table {table} can't be published to this catalog: {reason}.",
        hint=f"Nothing was published. {hint}",
        table=str(table),
    )
