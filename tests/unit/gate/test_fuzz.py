"""Requests of writers with anything in them: each is answered, no table is damaged, and main stays as it was."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.reader import IcebergTableReader
from support.gate_world import Writer, memory_world, pyiceberg_writer, served
from support.rest_world import valid

SCHEMA: Any = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "tags", "required": False, "type": {
            "type": "list", "element-id": 3, "element": "string", "element-required": False}},
    ],
}  # fmt: skip
SPEC: Any = {"spec-id": 0, "fields": [{"source-id": 1, "transform": "bucket[4]", "name": "b"}]}
ORDER: Any = {
    "order-id": 1,
    "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
}
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(["", "main", "nyc", "mine", "append", "-1", "..", "\x00", "\ud7ff", "s3://x", "variant"]),
        st.sampled_from([-1, 0, 1, 2, 3, 2**31, 2**63]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def requests(metadata: Any) -> list[tuple[str, str, Any]]:
    """Return good requests of each kind."""
    snapshot = {
        **metadata["snapshots"][0],
        "snapshot-id": 7,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "parent-snapshot-id": metadata["current-snapshot-id"],
    }
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": SCHEMA, "last-column-id": 3},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": SPEC},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": ORDER},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 7},
        {"action": "set-location", "location": metadata["location"]},
        {"action": "set-properties", "updates": {"a": "1"}},
        {"action": "remove-properties", "removals": ["a"]},
        {"action": "remove-snapshots", "snapshot-ids": [7]},
        {"action": "set-statistics", "snapshot-id": 7, "statistics": {
            "snapshot-id": 7, "statistics-path": f"{metadata['location']}/metadata/s.puffin",
            "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}},
        {"action": "remove-statistics", "snapshot-id": 7},
        {"action": "remove-partition-specs", "spec-ids": [3]},
        {"action": "remove-schemas", "schema-ids": [3]},
    ]  # fmt: skip
    requirements = [
        {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": metadata["current-snapshot-id"]},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3},
    ]
    change = {"identifier": {"namespace": ["nyc"], "name": "mine"}, "requirements": requirements, "updates": updates}
    create = {
        "name": "new",
        "schema": SCHEMA,
        "partition-spec": SPEC,
        "write-order": ORDER,
        "stage-create": True,
        "properties": {"format-version": "2"},
    }
    names = {"source": {"namespace": ["nyc"], "name": "none"}, "destination": {"namespace": ["nyc"], "name": "other"}}
    alone = [("POST", "namespaces/nyc/tables/mine", {"requirements": [], "updates": [one]}) for one in updates]
    return [
        ("POST", "namespaces", {"namespace": ["lab"], "properties": {"owner": "dana"}}),
        ("POST", "namespaces/nyc/tables", create),
        ("POST", "namespaces/nyc/tables/mine", change),
        ("POST", "transactions/commit", {"table-changes": [change]}),
        ("POST", "tables/rename", names),
        ("POST", "v1/aws/s3/sign", {"method": "GET", "uri": "http://x/y", "headers": {"a": ["b"]}, "region": "r"}),
        *alone,
        *alone,
    ]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where in a body there is something, as keys and indices."""
    yield at
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from places(inner, (*at, key))


def changed(body: Any, at: tuple[Any, ...], value: Any, *, drops: bool) -> Any:
    """Return a body with another value in a place, or without it."""
    if not at:
        return value
    copied = copy.deepcopy(body)
    parent = copied
    for key in at[:-1]:
        parent = parent[key]
    if drops:
        del parent[at[-1]]
    else:
        parent[at[-1]] = value
    return copied


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Writer, Any]:
    world = memory_world(tmp_path_factory.mktemp("lake"))
    opening = world.open("wap/day")
    with served(world.app()) as url, pyiceberg_writer(url, opening) as catalog:
        catalog.create_namespace("nyc")
        rows = pa.table({"id": [1, 2, 3]})
        catalog.create_table("nyc.mine", rows.schema).append(rows)
    return world.writer(opening), world.catalog


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_anything_is_answered_and_nothing_is_damaged(scene: tuple[Writer, Any], data: st.DataObject) -> None:
    writer, catalog = scene
    main = catalog.get_ref("main")
    method, path, body = data.draw(st.sampled_from(requests(writer.load("mine")["metadata"])))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(list(places(body))))
        body = changed(body, at, data.draw(JSON), drops=bool(at) and data.draw(st.booleans()))
    response = writer.send(method, path, json.loads(json.dumps(body)))
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        valid("IcebergErrorResponse", response.json())
    assert catalog.get_ref("main") == main
    reader = IcebergTableReader(TableFiles())
    for pointer in catalog.list_tables(catalog.get_ref("wap/day")):
        reader.require_loadable(pointer, "wap/day")
        reader.metadata(pointer)
    assert Path(writer.load("mine")["metadata-location"].removeprefix("file://")).is_file()
