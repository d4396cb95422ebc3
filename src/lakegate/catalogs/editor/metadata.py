"""A table's metadata file as the JSON it is, so that what this version doesn't know of it survives (Iceberg spec)."""

from __future__ import annotations

import gzip
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import uuid4

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from lakegate.errors import NotFoundError
from lakegate.model.refs import TablePointer

Document: TypeAlias = Mapping[str, Any]
"""A metadata file, or a part of one. Never changed in place: parsed files are shared."""

NO_SNAPSHOT: Final = -1
KEEP_SNAPSHOTS: Final = "lakegate.keep-snapshots"
"""Table property: how many snapshots a metadata file keeps. Older states are read at the catalog's older commits."""

_KEEP_SNAPSHOTS_DEFAULT = 100
_GZIPPED = ".gz.metadata.json"
_MAIN = "main"
_TOTALS = {
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


def parse(location: str, content: bytes) -> Document:
    """Return the metadata file ``content``, which stands at ``location``.

    Raises:
        ValueError: When it is not one.
    """
    document = json.loads(gzip.decompress(content) if location.endswith(_GZIPPED) else content)
    if not isinstance(document, dict) or "table-uuid" not in document:
        raise ValueError("not a table's metadata")
    return document


def serialise(location: str, document: Document) -> bytes:
    """Return the content of the metadata file at ``location``."""
    content = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return gzip.compress(content) if location.endswith(_GZIPPED) else content


def properties(document: Document) -> Mapping[str, str]:
    """Return the table's properties."""
    found: Mapping[str, str] = document.get("properties") or {}
    return found


def folder(document: Document) -> str:
    """Return where the table's metadata files go."""
    location = properties(document).get("write.metadata.path") or f"{document['location'].rstrip('/')}/metadata"
    return str(location).rstrip("/")


def next_name(document: Document, previous: str) -> str:
    """Return a name for the metadata file that follows ``previous``, as Iceberg names them.

    Example:
        >>> next_name({"properties": {}}, "file:/t/metadata/00041-5a1f.metadata.json")[:6]
        '00042-'
    """
    number = previous.rpartition("/")[2].partition("-")[0]
    version = int(number) + 1 if number.isdecimal() else 0
    codec = properties(document).get("write.metadata.compression-codec", "none")
    return f"{version:05d}-{uuid4()}{_GZIPPED if codec.lower() == 'gzip' else '.metadata.json'}"


def snapshot_of(document: Document, pointer: TablePointer) -> Document | None:
    """Return the snapshot that ``pointer`` stands at, ``None`` for a table without one.

    Raises:
        NotFoundError: When the metadata file does not have it.
    """
    if pointer.snapshot_id == NO_SNAPSHOT:
        return None
    snapshot = find_snapshot(document, pointer.snapshot_id)
    if snapshot is None:
        raise NotFoundError(
            f"Table {pointer.table} has no snapshot {pointer.snapshot_id} in {pointer.metadata_location}.",
            hint="It may have been expired. See the commits with 'lakegate log'.",
            table=str(pointer.table),
            snapshot_id=pointer.snapshot_id,
        )
    return snapshot


def find_snapshot(document: Document, snapshot_id: int) -> Document | None:
    """Return the snapshot of this id."""
    found: Iterator[Document] = (s for s in document.get("snapshots", ()) if s["snapshot-id"] == snapshot_id)
    return next(found, None)


def new_snapshot_id(document: Document) -> int:
    """Return an id that no snapshot of the table has."""
    while find_snapshot(document, drawn := secrets.randbits(63)) is not None or drawn == 0:
        pass
    return drawn


def now_ms(document: Document) -> int:
    """Return the time in milliseconds since 1970 for a new snapshot: never earlier than the table's last change."""
    return max(time.time_ns() // 1_000_000, int(document["last-updated-ms"]))


def with_totals(summary: Mapping[str, str], before: Document | None) -> dict[str, str]:
    """Return ``summary`` with the totals of the table after it, left out where ``before`` does not tell them."""
    known = dict.fromkeys(_TOTALS, "0") if before is None else before.get("summary", {})
    kept = {key: str(value) for key, value in summary.items() if key not in _TOTALS}
    totals = {
        total: str(int(known[total]) + int(summary.get(more, 0)) - int(summary.get(less, 0)))
        for total, (more, less) in _TOTALS.items()
        if total in known
    }
    return kept | totals


def with_snapshots(document: Document, pointer: TablePointer, added: Sequence[Document]) -> Document:
    """Return the metadata that follows ``document`` with ``added`` snapshots, the last of them current.

    Args:
        document: The metadata at ``pointer``.
        pointer: Where the catalog says that the table stands.
        added: New snapshots, oldest first.
    """
    newest = added[-1]
    now = newest["timestamp-ms"]
    main = {**document.get("refs", {}).get(_MAIN, {}), "snapshot-id": newest["snapshot-id"], "type": "branch"}
    snapshots = {
        "last-sequence-number": newest["sequence-number"],
        "current-snapshot-id": newest["snapshot-id"],
        "refs": {**document.get("refs", {}), _MAIN: main},
        "snapshots": [*document.get("snapshots", ()), *added],
        # As Iceberg does, only what became current for others to see is logged.
        "snapshot-log": [
            *document.get("snapshot-log", ()),
            {"timestamp-ms": now, "snapshot-id": newest["snapshot-id"]},
        ],
    }
    document = {**document, "current-schema-id": schema_id(document, pointer), **snapshots}
    return _following(document, pointer.metadata_location, now)


def without_old_snapshots(document: Document, at_least: int = 1) -> Document:
    """Return ``document`` with no more snapshots than its table is to keep; itself when there aren't more.

    The newest ancestors of the current snapshot stay, and those that an Iceberg branch or tag names.

    Args:
        document: Metadata.
        at_least: Number of the newest snapshots to keep whatever the table's property says.
    """
    snapshots = document.get("snapshots", ())
    limit = max(setting(document, KEEP_SNAPSHOTS, _KEEP_SNAPSHOTS_DEFAULT), at_least, 1)
    if len(snapshots) <= limit:
        return document
    kept = set(_ancestors(document, limit)) | {ref["snapshot-id"] for ref in document.get("refs", {}).values()}
    if len(kept) >= len(snapshots):
        return document
    shorter = {
        key: [item for item in document[key] if item["snapshot-id"] in kept]
        for key in ("snapshots", "statistics", "partition-statistics")
        if key in document
    }
    return {**document, **shorter, "snapshot-log": _log_of(document, kept)}


def trimmed(document: Document, previous: str, at_least: int = 1) -> Document:
    """Return the metadata that follows the one at ``previous`` without old snapshots; itself when there are none."""
    shorter = without_old_snapshots(document, at_least)
    return document if shorter is document else _following(shorter, previous, now_ms(document))


def schema_id(document: Document, pointer: TablePointer) -> int:
    """Return the id of the schema at ``pointer``; the file's own current one when the catalog names one it lacks."""
    known = {schema["schema-id"] for schema in document["schemas"]}
    return pointer.schema_id if pointer.schema_id in known else int(document["current-schema-id"])


def schema_of(document: Document, pointer: TablePointer) -> Document:
    """Return the schema at ``pointer``."""
    wanted = schema_id(document, pointer)
    found: Iterator[Document] = (schema for schema in document["schemas"] if schema["schema-id"] == wanted)
    return next(found)


def specs(document: Document) -> dict[int, Document]:
    """Return the partition specs by id."""
    return {spec["spec-id"]: spec for spec in document["partition-specs"]}


def bound_spec(document: Document, spec_id: int) -> tuple[PartitionSpec, Schema] | None:
    """Return a partition spec with the newest schema that has all its columns; ``None`` when there is no such schema.

    A spec outlives its columns: they may be dropped once no new data is partitioned by them.
    """
    spec = PartitionSpec.model_validate(specs(document)[spec_id])
    columns = {field.source_id for field in spec.fields}
    for candidate in reversed(document["schemas"]):
        schema = Schema.model_validate(candidate)
        if all(schema.find_column_name(column) for column in columns):
            return spec, schema
    return None


def setting(document: Document, key: str, default: int) -> int:
    """Return a table property that is a number; ``default`` when it is missing or isn't one."""
    value = str(properties(document).get(key, default))
    return int(value) if value.isdecimal() else default


def _following(document: Document, previous: str, now: int) -> Document:
    """Return ``document`` as the metadata file that follows the one at ``previous``, which it was made from."""
    log = [*document.get("metadata-log", ()), {"timestamp-ms": document["last-updated-ms"], "metadata-file": previous}]
    limit = max(1, setting(document, "write.metadata.previous-versions-max", 100))
    return {**document, "last-updated-ms": now, "metadata-log": log[-limit:]}


def _ancestors(document: Document, limit: int) -> Iterator[int]:
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in document["snapshots"]}
    current = by_id.get(document.get("current-snapshot-id"))
    for _ in range(limit):
        if current is None:
            return
        yield current["snapshot-id"]
        current = by_id.get(current.get("parent-snapshot-id"))


def _log_of(document: Document, kept: set[int]) -> list[Document]:
    # The spec: what comes before an entry whose snapshot is gone is removed with it, or times between would lie.
    log: list[Document] = list(document.get("snapshot-log", ()))
    gone = [index for index, entry in enumerate(log) if entry["snapshot-id"] not in kept]
    return log[gone[-1] + 1 :] if gone else log
