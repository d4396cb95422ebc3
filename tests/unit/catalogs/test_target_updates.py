"""What a target is asked for: nothing that some catalogs take and then count backwards, or give row ids twice."""

from __future__ import annotations

from typing import Any

import pytest

from lakegate.catalogs.target.updates import alterations, updates_between
from lakegate.errors import ClockError, InputError
from lakegate.model.identifiers import TableIdentifier

TRIPS = TableIdentifier.parse("nyc.trips")
ID = {"id": 1, "name": "id", "required": False, "type": "long"}
FARE = {"id": 2, "name": "fare", "required": False, "type": "double"}


def schema(number: int, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "schema-id": number, "fields": list(fields)}


def snapshot(number: int, parent: int | None, **changed: Any) -> dict[str, Any]:
    made = {"snapshot-id": number, "sequence-number": number, "timestamp-ms": number, "manifest-list": f"{number}.avro"}
    return {**made, "schema-id": 0, **({} if parent is None else {"parent-snapshot-id": parent}), **changed}


def table(*snapshots: dict[str, Any], **changed: Any) -> dict[str, Any]:
    current = snapshots[-1]["snapshot-id"] if snapshots else -1
    return {
        "format-version": 2,
        "table-uuid": "u",
        "location": "file:///lake/trips",
        "last-sequence-number": max((one["sequence-number"] for one in snapshots), default=0),
        "last-column-id": 2,
        "schemas": [schema(0, ID)],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {},
        "current-snapshot-id": current,
        "snapshots": list(snapshots),
        "refs": {"main": {"snapshot-id": current, "type": "branch"}} if snapshots else {},
        **changed,
    }


def actions(base: dict[str, Any] | None, staged: dict[str, Any]) -> list[str]:
    return [one["action"] for one in updates_between(base, staged, TRIPS).updates]


BASE = table(snapshot(1, None))
APPENDED = table(snapshot(1, None), snapshot(2, 1))


def test_an_append_is_asked_for_on_top_of_what_it_was_staged_on() -> None:
    asked = updates_between(BASE, APPENDED, TRIPS)
    assert [one["action"] for one in asked.updates] == ["add-snapshot", "set-snapshot-ref"]
    assert {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1} in asked.requirements
    assert {"type": "assert-current-schema-id", "current-schema-id": 0} in asked.requirements
    assert updates_between(BASE, BASE, TRIPS).updates == []


def test_a_new_column_comes_with_its_rows() -> None:
    widened = {"schemas": [schema(0, ID), schema(1, ID, FARE)], "current-schema-id": 1}
    staged = table(snapshot(1, None), snapshot(2, 1, **{"schema-id": 1}), **widened)
    assert actions(BASE, staged) == ["add-schema", "set-current-schema", "add-snapshot", "set-snapshot-ref"]


def test_a_revert_goes_back_and_removes_the_snapshot() -> None:
    assert actions(APPENDED, BASE) == ["set-snapshot-ref", "remove-snapshots"]
    assert actions(BASE, table()) == ["remove-snapshot-ref", "remove-snapshots"]


@pytest.mark.parametrize(
    ("staged", "reason"),
    [
        (table(snapshot(1, None), snapshot(2, 1, **{"sequence-number": 1})), "has number 1, and the table had 1"),
        (table(snapshot(1, None, **{"manifest-list": "other.avro"}), snapshot(2, 1)), "has other files"),
        (table(snapshot(1, None), location="file:///elsewhere"), "its location changes"),
        (table(snapshot(1, None), **{"table-uuid": "v"}), "another table has its name"),
        (
            table(snapshot(1, None), schemas=[schema(0, ID), schema(7, ID, FARE)]),
            "a schema 7, and the catalog would number that 1",
        ),
    ],
)
def test_what_a_catalog_would_count_otherwise_is_refused(staged: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=rf"nyc\.trips can't be published .*{reason}"):
        updates_between(BASE, staged, TRIPS)


@pytest.mark.parametrize("first", [5, 15])
def test_row_ids_follow_each_other_without_a_gap(first: int) -> None:
    base = table(snapshot(1, None), **{"format-version": 3, "next-row-id": 10})
    staged = table(
        snapshot(1, None), snapshot(2, 1, **{"first-row-id": first, "added-rows": 3}), **{"format-version": 3}
    )
    with pytest.raises(InputError, match=f"row ids begin at {first}, and the table's next is 10"):
        updates_between(base, staged, TRIPS)


def test_what_a_catalog_keeps_otherwise_is_named() -> None:
    assert alterations(APPENDED, {**APPENDED, "properties": {"a": "b"}, "metadata-log": []}) == []
    assert alterations(APPENDED, BASE) == ["the current snapshot differs", "snapshot 2 is missing"]
    other = table(snapshot(1, None), snapshot(2, 1, **{"sequence-number": 9}), schemas=[schema(0, FARE)])
    assert alterations(APPENDED, other) == [
        "the columns differ",
        "snapshot 1 has other columns",
        "sequence-number of snapshot 2 is 9 instead of 2",
        "snapshot 2 has other columns",
    ]


def test_a_change_that_is_older_than_the_tables_last_one_names_the_clocks() -> None:
    base = table(snapshot(1, None), **{"last-updated-ms": 600_000})
    within = table(snapshot(1, None), snapshot(2, 1, **{"timestamp-ms": 540_000}))
    assert "add-snapshot" in actions(base, within)
    before = table(snapshot(1, None), snapshot(2, 1, **{"timestamp-ms": 500_000}))
    with pytest.raises(ClockError, match=r"nyc\.trips can't be published: it was written 1 min 40 s before"):
        updates_between(base, before, TRIPS)


def test_appends_of_format_version_1_have_no_sequence_numbers() -> None:
    first, second = (snapshot(number, None, **{"sequence-number": 0}) for number in (1, 2))
    old = {"format-version": 1, "last-sequence-number": 0}
    assert "add-snapshot" in actions(table(first, **old), table(first, second, **old))


def test_an_earlier_state_needs_none_of_the_snapshots_that_expired_before_it() -> None:
    now = table(snapshot(2, 1), snapshot(3, 2))
    earlier = table(snapshot(1, None), snapshot(2, 1))
    assert actions(now, earlier) == ["set-snapshot-ref", "remove-snapshots"]
    assert alterations(earlier, table(snapshot(2, 1)), now) == []
    with pytest.raises(InputError, match="snapshot 1 has number 1, and the table had 3"):
        actions(now, table(snapshot(1, None)))


def test_the_current_snapshot_is_dropped_by_the_change_after_the_next() -> None:
    asked = updates_between(table(snapshot(1, None), snapshot(2, 1)), table(snapshot(3, 2)), TRIPS)
    assert asked.updates[-1] == {"action": "remove-snapshots", "snapshot-ids": [1]}
