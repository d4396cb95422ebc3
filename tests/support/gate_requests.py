"""Requests to the gate for tests to spoil: good ones of each kind, and how to change something in a body."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

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
