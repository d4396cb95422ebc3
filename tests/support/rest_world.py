"""A lake in memory with real metadata files, its REST catalog, and the response schemas of Iceberg's OpenAPI document.

The schemas are those of ``open-api/rest-catalog-open-api.yaml`` (apache/iceberg), as far as our responses need them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from lakegate.gate.app import create_app
from lakegate.iceberg.files import TableFiles
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.ports import Catalog
from lakegate.testing.memory import MemoryCatalog
from support.iceberg_tables import IcebergTables, append, pointer_to

_NAMESPACE = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_PROPERTIES = {"type": "object", "additionalProperties": {"type": "string"}}
_PAGE_TOKEN = {"type": ["string", "null"]}
_INTEGER = {"type": "integer"}
_STRUCT = {
    "type": "object",
    "required": ["type", "fields"],
    "properties": {
        "type": {"const": "struct"},
        "fields": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "name", "type", "required"],
                "properties": {"id": _INTEGER, "name": {"type": "string"}, "required": {"type": "boolean"}},
            },
        },
    },
}
_SNAPSHOT = {
    "type": "object",
    "required": ["snapshot-id", "timestamp-ms", "manifest-list", "summary"],
    "properties": {
        "snapshot-id": _INTEGER,
        "timestamp-ms": _INTEGER,
        "manifest-list": {"type": "string"},
        "summary": {
            **_PROPERTIES,
            "required": ["operation"],
            "properties": {"operation": {"enum": ["append", "replace", "overwrite", "delete"]}},
        },
    },
}
_TABLE_METADATA = {
    "type": "object",
    "required": ["format-version", "table-uuid"],
    "properties": {
        "format-version": {"type": "integer", "minimum": 1, "maximum": 3},
        "table-uuid": {"type": "string"},
        "location": {"type": "string"},
        "last-updated-ms": _INTEGER,
        "properties": _PROPERTIES,
        "schemas": {"type": "array", "items": _STRUCT},
        "current-schema-id": _INTEGER,
        "partition-specs": {"type": "array", "items": {"type": "object", "required": ["fields"]}},
        "sort-orders": {"type": "array", "items": {"type": "object", "required": ["order-id", "fields"]}},
        "snapshots": {"type": "array", "items": _SNAPSHOT},
        "refs": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["type", "snapshot-id"],
                "properties": {"type": {"enum": ["tag", "branch"]}, "snapshot-id": _INTEGER},
            },
        },
        "current-snapshot-id": _INTEGER,
    },
}
SCHEMAS: Mapping[str, dict[str, Any]] = {
    "CatalogConfig": {
        "type": "object",
        "required": ["defaults", "overrides"],
        "properties": {
            "defaults": _PROPERTIES,
            "overrides": _PROPERTIES,
            "endpoints": {
                "type": "array",
                "items": {"type": "string", "pattern": "^(GET|HEAD|POST|DELETE) /v1/[^ ]+$"},
            },
            "idempotency-key-lifetime": {"type": "string"},
        },
        "additionalProperties": False,
    },
    "ListNamespacesResponse": {
        "type": "object",
        "required": ["namespaces"],
        "properties": {"next-page-token": _PAGE_TOKEN, "namespaces": {"type": "array", "items": _NAMESPACE}},
        "additionalProperties": False,
    },
    "GetNamespaceResponse": {
        "type": "object",
        "required": ["namespace"],
        "properties": {"namespace": _NAMESPACE, "properties": _PROPERTIES},
        "additionalProperties": False,
    },
    "ListTablesResponse": {
        "type": "object",
        "required": ["identifiers"],
        "properties": {
            "next-page-token": _PAGE_TOKEN,
            "identifiers": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["namespace", "name"],
                    "properties": {"namespace": _NAMESPACE, "name": {"type": "string"}},
                    "additionalProperties": False,
                },
            },
        },
        "additionalProperties": False,
    },
    "LoadTableResult": {
        "type": "object",
        "required": ["metadata"],
        "properties": {"metadata-location": {"type": "string"}, "metadata": _TABLE_METADATA, "config": _PROPERTIES},
        "additionalProperties": False,  # no storage-credentials
    },
    "IcebergErrorResponse": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "code"],
                "properties": {
                    "message": {"type": "string", "minLength": 1},
                    "type": {"type": "string"},
                    "code": {"type": "integer", "minimum": 400, "maximum": 600},
                },
                "additionalProperties": False,
            }
        },
        "additionalProperties": False,
    },
}


def valid(schema: str, value: Any) -> Any:
    """Return ``value``, which must be what the OpenAPI document calls ``schema``."""
    Draft202012Validator(SCHEMAS[schema]).validate(value)
    return value


class CountingFiles(TableFiles):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_locations: list[str] = []

    def content(self, location: str) -> bytes:
        self.read_locations.append(location)
        return super().content(location)


@dataclass
class RestWorld:
    """A lake in memory, whose tables are real, and clients of its REST catalog."""

    tables: IcebergTables
    catalog: MemoryCatalog
    files: CountingFiles
    opened: ExitStack

    def client(
        self,
        token: Callable[[], str] | None = None,
        find_again: Callable[[], Catalog] | None = None,
        **options: Any,
    ) -> TestClient:
        app = create_app(self.catalog, self.files, token=token, find_again=find_again)
        client = TestClient(app, base_url=options.pop("base_url", "http://localhost"), **options)
        # Open, it has one event loop for all its requests; else each has its own.
        return self.opened.enter_context(client)

    def new_state(self, name: str, rows: int = 3, **changes: Any) -> TablePointer:
        """Write a table with some rows and return its state, which no commit has yet."""
        table = self.tables.create()
        append(table, range(rows))
        pointer = pointer_to(table, content_id=None)
        return pointer.model_copy(update={"table": TableIdentifier.parse(name), **changes})

    def commit(self, *pointers: TablePointer, branch: str = "main") -> Ref:
        """Commit tables to a branch, with the namespaces that they need."""
        ref = self.catalog.get_ref(branch)
        there = set(self.catalog.list_namespaces(ref))
        levels = {p.table.namespace[: n + 1] for p in pointers for n in range(len(p.table.namespace))}
        known = [self.catalog.get_table(p.table, ref) for p in pointers]
        request = CommitRequest(
            branch=branch,
            base=ref.hash,
            message=uuid4().hex,
            namespaces=tuple(sorted(levels - there)),
            puts=tuple(
                p.model_copy(update={"content_id": None if old is None else old.content_id})
                for p, old in zip(pointers, known, strict=True)
            ),
        )
        return self.catalog.commit(request)


def location_of(pointer: TablePointer) -> Path:
    return Path(pointer.metadata_location.removeprefix("file://"))
