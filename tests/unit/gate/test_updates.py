"""Requirements and updates on metadata files: what each one makes of a table, without a file or a server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableUpdate, update_table_metadata

from lakegate.gate.new_tables import new_table
from lakegate.gate.refusals import RefusedError
from lakegate.gate.updates import apply_updates, check_requirements

BASE = "s3://lake/nyc/trips"
PREVIOUS = f"{BASE}/metadata/00000-a.metadata.json"
UUID = "5a6dbd96-0f4b-4b1c-8b0e-6f0a7f6b9d01"
T0 = 1_700_000_000_000
SCHEMA: Any = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "day", "required": False, "type": "date"},
    ],
    "identifier-field-ids": [1],
}


def snapshot(number: int, parent: int | None = None, **changes: Any) -> dict[str, Any]:
    made = {
        "snapshot-id": number,
        "sequence-number": number,
        "timestamp-ms": T0 + number,
        "manifest-list": f"{BASE}/metadata/snap-{number}.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
        **({} if parent is None else {"parent-snapshot-id": parent}),
    }
    return {key: value for key, value in {**made, **changes}.items() if value is not None}


def add(number: int, parent: int | None = None, **changes: Any) -> list[dict[str, Any]]:
    return [
        {"action": "add-snapshot", "snapshot": snapshot(number, parent, **changes)},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number},
    ]


def table(version: int = 2, **changes: Any) -> dict[str, Any]:
    """Return a table with one snapshot, and something that only a later Iceberg knows."""
    found = new_table(
        {
            "schema": SCHEMA,
            "partition-spec": {"fields": [{"source-id": 2, "transform": "month", "name": "m"}]},
            "properties": {"format-version": str(version), "owner": "dana"},
        },
        UUID,
        BASE,
    )
    lineage = {"first-row-id": 0, "added-rows": 3} if version > 2 else {}
    made = apply_updates({**found, "last-updated-ms": T0}, PREVIOUS, add(1, **lineage))
    return {**made, "x-of-the-future": {"n": 1}, **changes}


def applied(*updates: dict[str, Any], version: int = 2, **changes: Any) -> Any:
    return apply_updates(table(version, **changes), PREVIOUS.replace("00000", "00001"), updates)


def refused(*updates: dict[str, Any], version: int = 2, **changes: Any) -> tuple[int, str]:
    with pytest.raises(RefusedError) as error:
        applied(*updates, version=version, **changes)
    return int(error.value.status), error.value.message


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_new_table_has_numbers_of_its_own(version: int) -> None:
    nested = {
        "type": "struct",
        "fields": [
            {"id": 7, "name": "tags", "required": False, "type": {
                "type": "map", "key-id": 70, "key": "string", "value-id": 71, "value-required": False, "value": {
                    "type": "list", "element-id": 72, "element": "int", "element-required": False}}},
            {"id": 3, "name": "id", "required": True, "type": "long"},
        ],
        "identifier-field-ids": [3],
    }  # fmt: skip
    made = new_table(
        {
            "schema": nested,
            "partition-spec": {"fields": [{"source-id": 3, "transform": "bucket[4]", "name": "b"}]},
            "write-order": {"fields": [
                {"source-id": 3, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]},
            "properties": {"format-version": str(version), "k": "v"},
        },
        UUID,
        BASE,
    )  # fmt: skip
    tags, key = made["schemas"][0]["fields"]
    # Iceberg numbers a struct's own fields first, then what is inside of each.
    assert (tags["id"], key["id"], made["last-column-id"]) == (1, 2, 5)
    assert (tags["type"]["key-id"], tags["type"]["value-id"], tags["type"]["value"]["element-id"]) == (3, 4, 5)
    assert made["schemas"][0]["identifier-field-ids"] == [2]
    assert made["partition-specs"] == [
        {"spec-id": 0, "fields": [{"source-id": 2, "transform": "bucket[4]", "name": "b", "field-id": 1000}]}
    ]
    assert (made["default-sort-order-id"], made["sort-orders"][0]["fields"][0]["source-id"]) == (1, 2)
    assert made["properties"] == {"write.parquet.compression-codec": "zstd", "k": "v"}
    assert (made["format-version"], made.get("next-row-id")) == (version, 0 if version == 3 else None)
    if version < 3:
        assert TableMetadataUtil.parse_obj(dict(made)).schema().highest_field_id == 5


def test_an_append_moves_the_table_on() -> None:
    before, after = table(), applied(*add(2, 1))
    assert (after["current-snapshot-id"], after["last-sequence-number"]) == (2, 2)
    assert after["refs"] == {"main": {"snapshot-id": 2, "type": "branch"}}
    assert after["snapshots"] == [*before["snapshots"], snapshot(2, 1)]
    assert after["snapshot-log"][-1] == {"timestamp-ms": T0 + 2, "snapshot-id": 2}
    assert after["last-updated-ms"] == T0 + 2
    assert [one["metadata-file"] for one in after["metadata-log"]] == [PREVIOUS, PREVIOUS.replace("00000", "00001")]
    assert after["x-of-the-future"] == {"n": 1}


def test_only_the_last_of_several_snapshots_was_ever_current() -> None:
    after = applied(*add(2, 1), *add(3, 2))
    assert [entry["snapshot-id"] for entry in after["snapshot-log"]] == [1, 3]
    assert [one["snapshot-id"] for one in after["snapshots"]] == [1, 2, 3]


def test_version_3_counts_its_rows() -> None:
    after = applied(*add(2, 1, **{"first-row-id": 3, "added-rows": 4}), version=3)
    assert after["next-row-id"] == 7


def test_what_is_added_is_numbered_and_named_by_minus_one() -> None:
    wider = {**SCHEMA, "schema-id": 0, "fields": [
        *SCHEMA["fields"], {"id": 3, "name": "fare", "required": False, "type": "double"}]}  # fmt: skip
    order = [{"source-id": 3, "transform": "identity", "direction": "desc", "null-order": "nulls-last"}]
    after = applied(
        {"action": "add-schema", "schema": wider},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"fields": [
            {"source-id": 1, "transform": "bucket[8]", "name": "b"},
            {"source-id": 2, "transform": "month", "name": "month"}]}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": order}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    )  # fmt: skip
    assert (after["current-schema-id"], after["last-column-id"]) == (1, 3)
    assert (after["default-spec-id"], after["last-partition-id"]) == (1, 1001)
    # The month of the same column keeps its id.
    assert [field["field-id"] for field in after["partition-specs"][1]["fields"]] == [1001, 1000]
    assert (after["default-sort-order-id"], after["sort-orders"][-1]) == (1, {"order-id": 1, "fields": order})


def test_what_there_is_already_is_not_added_again() -> None:
    before = table()
    after = applied(
        {"action": "add-schema", "schema": {**SCHEMA, "schema-id": 9}},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 5, "fields": [{"source-id": 2, "transform": "month", "name": "m"}]}},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
    )
    for key in ("schemas", "partition-specs", "sort-orders", "current-schema-id", "default-spec-id"):
        assert after[key] == before[key]


def test_a_table_is_upgraded_version_by_version() -> None:
    second = applied({"action": "upgrade-format-version", "format-version": 2}, version=1)
    assert "schema" not in second
    assert "partition-spec" not in second
    third = apply_updates(second, PREVIOUS, [{"action": "upgrade-format-version", "format-version": 3}])
    assert (third["format-version"], third["next-row-id"]) == (3, 0)


def test_version_1_keeps_what_its_readers_know() -> None:
    dropped = {**SCHEMA, "fields": [*SCHEMA["fields"], {"id": 3, "name": "x", "required": False, "type": "int"}]}
    after = applied(
        {"action": "add-schema", "schema": dropped}, {"action": "set-current-schema", "schema-id": -1}, version=1
    )
    assert after["schema"] == after["schemas"][1]
    assert after["partition-spec"] == after["partition-specs"][0]["fields"]
    oldest = {key: one for key, one in table(1).items() if key not in (
        "schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "sort-orders",
        "default-sort-order-id", "last-sequence-number")}  # fmt: skip
    check_requirements(oldest, [{"type": "assert-current-schema-id", "current-schema-id": 0}])
    assert apply_updates(oldest, PREVIOUS, add(2, 1))["schemas"] == table(1)["schemas"]


def test_snapshots_are_removed_with_what_belongs_to_them() -> None:
    statistics = {"snapshot-id": 1, "statistics-path": f"{BASE}/metadata/a.puffin"}
    before = applied({"action": "set-statistics", "snapshot-id": 1, "statistics": statistics}, *add(2, 1))
    assert before["statistics"] == [statistics]
    after = apply_updates(before, PREVIOUS, [{"action": "remove-snapshots", "snapshot-ids": [1]}])
    assert [one["snapshot-id"] for one in after["snapshots"]] == [2]
    assert (after["statistics"], [entry["snapshot-id"] for entry in after["snapshot-log"]]) == ([], [2])


def test_a_replaced_table_begins_without_rows() -> None:
    after = applied({"action": "remove-snapshot-ref", "ref-name": "main"})
    assert (after["current-snapshot-id"], after["refs"], after["snapshot-log"]) == (-1, {}, [])


def test_properties_are_set_and_removed() -> None:
    after = applied(
        {"action": "set-properties", "updates": {"a": "1", "format-version": "2", "uuid": "x"}},
        {"action": "remove-properties", "removals": ["owner", "none"]},
    )
    assert after["properties"] == {"write.parquet.compression-codec": "zstd", "a": "1"}


OTHER = {"id": 1, "name": "id", "required": True, "type": "long"}
WRONG: list[tuple[list[dict[str, Any]], int, str]] = [
    ([{"action": "assign-uuid", "uuid": "uuid-2"}], 400, "UUID can't be changed"),
    ([{"action": "set-location", "location": "s3://lake/other"}], 400, "location can't be changed"),
    ([{"action": "upgrade-format-version", "format-version": 1}], 400, "can't be lowered"),
    ([{"action": "upgrade-format-version", "format-version": 4}], 400, "isn't known here"),
    ([{"action": "add-schema", "schema": {"fields": [OTHER, {**OTHER, "name": "b"}]}}], 400, "two fields the id 1"),
    ([{"action": "add-schema", "schema": {"fields": [{**OTHER, "type": "variant"}]}}], 400, "needs format version 3"),
    ([{"action": "add-schema", "schema": {"fields": [{**OTHER, "type": "text"}]}}], 400, "schemas.1.fields.0.type"),
    ([{"action": "set-current-schema", "schema-id": -1}], 400, "no schema -1"),
    ([{"action": "set-current-schema", "schema-id": 4}], 400, "no schema 4"),
    ([{"action": "set-default-spec", "spec-id": 4}], 400, "no partition spec 4"),
    ([{"action": "set-default-sort-order", "sort-order-id": 4}], 400, "no sort order 4"),
    (
        [{"action": "add-schema", "schema": {"fields": [OTHER]}}, {"action": "set-current-schema", "schema-id": -1}],
        400,
        "partition spec uses column 2",
    ),
    (
        [{"action": "add-spec", "spec": {"fields": [
            {"source-id": 1, "transform": "identity", "name": "i", "field-id": 1000}]}}],
        400,
        "id 1000 of another one",
    ),
    (add(1), 409, "snapshot 1 already"),
    (
        [*add(2, 1), {"action": "remove-snapshots", "snapshot-ids": [1]}, *add(1, 2)],
        409,
        "snapshot 1 already",
    ),
    (add(-1, 1), 400, "positive number, not -1"),
    (add(2, 1, **{"sequence-number": 1}), 409, "Sequence number 1 is taken"),
    (add(2, 1, **{"sequence-number": 2**63 - 1}), 400, "last-sequence-number would go from 1 to"),
    (
        [{"action": "add-schema", "schema": {"fields": [{**OTHER, "id": 2**31 - 1, "name": "b"}]}}],
        400,
        "last-column-id would go from 2 to",
    ),
    (
        [{"action": "add-spec", "spec": {"fields": [
            {"source-id": 1, "transform": "identity", "name": "i", "field-id": 2**31 - 1}]}}],
        400,
        "last-partition-id would go from 1000 to",
    ),
    (add(2, 7), 409, "parent snapshot 7"),
    (add(2, 1, **{"manifest-list": None}), 400, "needs a manifest list"),
    (add(2, 1, **{"timestamp-ms": T0 - 120_000}), 400, "Set that clock"),
    ([{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 9}], 400, "no snapshot 9"),
    ([{"action": "set-snapshot-ref", "ref-name": "main", "type": "tag", "snapshot-id": 1}], 400, "is a branch"),
    ([{"action": "set-snapshot-ref", "ref-name": "x", "type": "tag", "snapshot-id": 1}], 400, "inside a table"),
    ([{"action": "remove-snapshot-ref", "ref-name": "x"}], 400, "inside a table"),
    ([{"action": "remove-snapshots", "snapshot-ids": [1]}], 400, "can't be removed"),
    ([{"action": "set-properties", "updates": {"format-version": "3"}}], 400, "upgrade-format-version"),
    ([{"action": "set-properties", "updates": {"a": 1}}], 400, "properties.a"),
    ([{"action": "remove-schemas", "schema-ids": [0]}], 400, "current schema"),
    ([{"action": "remove-partition-specs", "spec-ids": [0]}], 400, "default partition spec"),
    ([{"action": "add-encryption-key", "encryption-key": {}}], 400, "Encrypted tables"),
    ([{"action": "add-view-version"}], 400, "isn't one that can be made"),
    ([{"action": "__init__"}], 400, "isn't one that can be made"),
    ([{"action": ["x"]}], 400, "isn't what Iceberg's REST API describes"),
    ([{}], 400, "lacks 'action'"),
    ([{"action": "add-snapshot"}], 400, "lacks 'snapshot'"),
    ([{"action": "add-snapshot", "snapshot": {"snapshot-id": 5}}], 400, "lacks 'timestamp-ms'"),
    ([{"action": "set-properties", "updates": "x"}], 400, "isn't what Iceberg's REST API describes"),
]  # fmt: skip


@pytest.mark.parametrize(("updates", "status", "message"), WRONG, ids=lambda one: None)
def test_what_is_wrong_is_refused(updates: list[dict[str, Any]], status: int, message: str) -> None:
    before = table()
    found = refused(*updates)
    assert (found[0], message in found[1]) == (status, True), found
    assert before == table()


def test_version_3_refuses_rows_without_ids_of_their_own() -> None:
    assert refused(*add(2, 1), version=3)[0] == 400
    assert refused(*add(2, 1, **{"first-row-id": 1, "added-rows": 1}), version=3)[0] == 409
    assert "next-row-id would go" in refused(*add(2, 1, **{"first-row-id": 3, "added-rows": 2**62}), version=3)[1]


REQUIREMENTS: list[tuple[dict[str, Any], bool]] = [
    ({"type": "assert-create"}, False),
    ({"type": "assert-table-uuid", "uuid": UUID.upper()}, True),
    ({"type": "assert-table-uuid", "uuid": "uuid-2"}, False),
    ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}, True),
    ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2}, False),
    ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}, False),
    ({"type": "assert-ref-snapshot-id", "ref": "x", "snapshot-id": None}, True),
    ({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2}, True),
    ({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 1}, False),
    ({"type": "assert-current-schema-id", "current-schema-id": 0}, True),
    ({"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000}, True),
    ({"type": "assert-default-spec-id", "default-spec-id": 1}, False),
    ({"type": "assert-default-sort-order-id", "default-sort-order-id": 0}, True),
]


@pytest.mark.parametrize(("requirement", "is_met"), REQUIREMENTS)
def test_requirements_are_met_or_not(requirement: dict[str, Any], is_met: bool) -> None:
    if is_met:
        check_requirements(table(), [requirement])
        return
    with pytest.raises(RefusedError) as error:
        check_requirements(table(), [requirement])
    assert (error.value.status, error.value.kind) == (409, "CommitFailedException")


def test_a_table_that_is_not_there_meets_only_its_creation() -> None:
    check_requirements(None, [{"type": "assert-create"}])
    for one, status in (({"type": "assert-table-uuid", "uuid": "x"}, 409), ({"type": "x"}, 409), ({}, 400)):
        with pytest.raises(RefusedError) as error:
            check_requirements(None, [one])
        assert error.value.status == status


_FIELD = st.builds(
    lambda number, kind: {"id": number, "name": f"c{number}", "required": False, "type": kind},
    st.integers(3, 6),
    st.sampled_from(["int", "long", "string", "decimal(9, 2)"]),
)
_CHANGES = st.one_of(
    st.just("append"),
    st.lists(_FIELD, max_size=3, unique_by=lambda field: field["id"]).map(lambda added: ("columns", added)),
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), min_size=1).map(lambda new: ("set", new)),
    st.sampled_from(["identity", "bucket[4]", "truncate[2]"]).map(lambda transform: ("partition", transform)),
)


@given(version=st.sampled_from([1, 2]), changes=st.lists(_CHANGES, min_size=1, max_size=5))
def test_it_agrees_with_pyiceberg_where_that_is_right(version: int, changes: list[Any]) -> None:
    """Where it isn't: ids of what is there already, unknown fields, and what only versions 1 or 3 have."""
    ours = {key: value for key, value in table(version).items() if key != "x-of-the-future"}
    theirs: Any = TableMetadataUtil.parse_obj(ours)
    for change in changes:
        updates = _updates(ours, change)
        typed = TypeAdapter(tuple[TableUpdate, ...]).validate_python(tuple(updates))
        ours = dict(apply_updates(ours, PREVIOUS, updates))
        theirs = update_table_metadata(theirs, typed, metadata_location=PREVIOUS)
        # It stamps the clock where we keep the snapshot's time.
        theirs = theirs.model_copy(update={"last_updated_ms": ours["last-updated-ms"]})
    parsed: Any = TableMetadataUtil.parse_obj(ours)
    not_compared = ("metadata_log", *(["partition_spec", "schema_"] if version == 1 else []))
    assert parsed == theirs.model_copy(update={name: getattr(parsed, name) for name in not_compared})


def _updates(document: dict[str, Any], change: Any) -> list[dict[str, Any]]:
    if change == "append":
        now = document["current-snapshot-id"]
        later = {"timestamp-ms": document["last-updated-ms"] + 1}
        return add(now + 1, now, **later)
    kind, what = change
    if kind == "set":
        return [{"action": "set-properties", "updates": what}]
    if kind == "columns":
        fields = [*SCHEMA["fields"], *sorted(what, key=lambda field: field["id"])]
        schema = {**SCHEMA, "fields": fields}
        same = next((one for one in document["schemas"] if one["fields"] == fields), None)
        if same is not None:
            return [{"action": "set-current-schema", "schema-id": same["schema-id"]}]
        number = max(one["schema-id"] for one in document["schemas"]) + 1
        return [
            {"action": "add-schema", "schema": {**schema, "schema-id": number}},
            {"action": "set-current-schema", "schema-id": -1},
        ]
    number, last = len(document["partition-specs"]), document["last-partition-id"]
    field = {"source-id": 1, "transform": what, "name": f"p{number}", "field-id": last + 1}
    specs = document["partition-specs"]
    if any(one["transform"] == what for spec in specs for one in spec["fields"]):
        return [{"action": "set-default-spec", "spec-id": 0}]
    return [
        {"action": "add-spec", "spec": {"spec-id": number, "fields": [field]}},
        {"action": "set-default-spec", "spec-id": -1},
    ]
