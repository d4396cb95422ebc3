"""A table's metadata file as the JSON it is, so that what this version doesn't know of it survives (Iceberg spec)."""

from __future__ import annotations

import gzip
import json
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias
from uuid import uuid4

from pydantic import Field
from pydantic_core import from_json
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from lakegate.errors import NotFoundError
from lakegate.iceberg.validation import MAIN, check_shape
from lakegate.model.refs import NO_SNAPSHOT, TablePointer
from lakegate.model.tables import Snapshot

Document: TypeAlias = Mapping[str, Any]
"""A metadata file, or a part of one. Never changed in place: parsed files are shared."""

KEEP_SNAPSHOTS: Final = "lakegate.keep-snapshots"
"""Table property: how many snapshots a metadata file keeps. Older states are read at the catalog's older commits."""

_KEEP_SNAPSHOTS_DEFAULT = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GZIP_MAGIC = b"\x1f\x8b"
_COMPRESSED = (".gz.metadata.json", ".metadata.json.gz")
"""How Iceberg names compressed metadata files: now, and in older versions."""
_FORMAT_VERSIONS = (1, 2, 3)
_FIRST_FIELD = 1000
"""Ids of partition fields begin here where version 1 names none (Iceberg spec, "Partition Evolution")."""
_TYPED = ("fields", "type", "element", "key", "value")
"""Members of a schema that are types, or hold them."""
_TOTALS = {
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}


@dataclass(frozen=True)
class MetadataFile:
    """A metadata file, and what is made of it once.

    Attributes:
        as_named: Whether it is compressed just when its name says so.
    """

    document: Document
    as_named: bool

    @classmethod
    def parse(cls, location: str, content: bytes) -> MetadataFile:
        """Return the metadata file at ``location``. Raises what :func:`parse` does."""
        return cls(parse(content), is_compressed(location) == content.startswith(_GZIP_MAGIC))

    @cached_property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """All snapshots, oldest first."""
        known = self.document.get("snapshots") or ()
        oldest_first = sorted(known, key=lambda one: (one.get("sequence-number") or 0, one["timestamp-ms"]))
        return tuple(map(snapshot_value, oldest_first))

    @cached_property
    def specs(self) -> dict[int, PartitionSpec]:
        """The partition specs by id."""
        return {number: PartitionSpec.model_validate(spec) for number, spec in specs(self.document).items()}

    def schema(self, pointer: TablePointer) -> Schema:
        """Return the schema at ``pointer``.

        Raises:
            ValueError: When PyIceberg doesn't know all that it and the partition specs name.
        """
        schema = iceberg_schema(schema_of(self.document, pointer))
        if pointer.spec_id not in self.specs and (self.document.get("default-spec-id") or 0) not in self.specs:
            raise ValueError("it lacks its default partition spec")
        return schema

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return the snapshot of this id."""
        found = find_snapshot(self.document, snapshot_id)
        return None if found is None else snapshot_value(found)


def snapshot_value(snapshot: Document) -> Snapshot:
    """Return a snapshot of a metadata file as the rest of lakegate knows it."""
    summary = {key: str(value) for key, value in (snapshot.get("summary") or {}).items()}
    return Snapshot(
        snapshot_id=snapshot["snapshot-id"],
        parent_id=snapshot.get("parent-snapshot-id"),
        time=_EPOCH + timedelta(milliseconds=snapshot["timestamp-ms"]),
        operation=summary.pop("operation", None),
        summary=summary,
    )


def parse(content: bytes) -> Document:
    """Return the metadata file ``content``, compressed or not."""
    # Other readers take UTF-8 alone, without a mark in front, and no NaN.
    document = from_json(unpacked(content), allow_inf_nan=False)
    if not isinstance(document, dict) or "table-uuid" not in document:
        raise ValueError("not a table's metadata")
    version = document.get("format-version")
    if version not in _FORMAT_VERSIONS:
        raise ValueError(f"its format version is {version!r}, and {max(_FORMAT_VERSIONS)} is the newest known")
    check_shape(document)
    for what, count in (("schema", len(schemas(document))), ("partition spec", len(specs(document)))):
        if count == 0:
            raise ValueError(f"it has no {what}")
    return document


def serialise(location: str, document: Document) -> bytes:
    """Return the content of the metadata file at ``location``."""
    content = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return gzip.compress(content) if is_compressed(location) else content


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
    return f"{version:05d}-{uuid4()}{'.gz' if codec.lower() == 'gzip' else ''}.metadata.json"


def snapshot_of(document: Document, pointer: TablePointer) -> Document | None:
    """Return the snapshot at ``pointer``; ``None`` for a table without one."""
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
    found: Iterator[Document] = (s for s in document.get("snapshots") or () if s["snapshot-id"] == snapshot_id)
    return next(found, None)


def descends(document: Document, pointer: TablePointer, snapshot_id: int) -> bool:
    """Return whether the listed snapshots lead from the one at ``pointer`` back to ``snapshot_id``."""
    parents = {one["snapshot-id"]: one.get("parent-snapshot-id") for one in document.get("snapshots") or ()}
    at: int | None = pointer.snapshot_id
    while at is not None and at != snapshot_id:
        at = parents.pop(at, None)
    return at is not None


def new_snapshot_id(document: Document) -> int:
    """Return an id that no snapshot of the table has."""
    while find_snapshot(document, drawn := secrets.randbits(63)) is not None or drawn == 0:
        pass
    return drawn


def now_ms(document: Document) -> int:
    """Return the time in milliseconds since 1970 for a new snapshot: never earlier than the table's last change."""
    return max(time.time_ns() // 1_000_000, int(document["last-updated-ms"]))


def updated_at(document: Document) -> datetime:
    """Return when a metadata file was made, by the clock of whoever made it."""
    return _EPOCH + timedelta(milliseconds=int(document["last-updated-ms"]))


def with_totals(summary: Mapping[str, str], before: Document | None) -> dict[str, str]:
    """Return ``summary`` with the totals of the table after it, except those that ``before`` lacks."""
    known = dict.fromkeys(_TOTALS, "0") if before is None else before.get("summary") or {}
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
        added: New snapshots, oldest first.
    """
    newest = added[-1]
    now = newest["timestamp-ms"]
    main = {**(document.get("refs") or {}).get(MAIN, {}), "snapshot-id": newest["snapshot-id"], "type": "branch"}
    snapshots = {
        "last-sequence-number": newest["sequence-number"],
        "current-snapshot-id": newest["snapshot-id"],
        "refs": {**(document.get("refs") or {}), MAIN: main},
        "snapshots": [*(document.get("snapshots") or ()), *added],
        # As Iceberg does, only what became current for others to see is logged.
        "snapshot-log": [
            *(document.get("snapshot-log") or ()),
            {"timestamp-ms": now, "snapshot-id": newest["snapshot-id"]},
        ],
    }
    if newest.get("first-row-id") is not None:
        snapshots["next-row-id"] = newest["first-row-id"] + newest["added-rows"]
    document = {**document, "current-schema-id": schema_id(document, pointer), **snapshots}
    return _following(document, pointer.metadata_location, now)


def without_snapshots(document: Document) -> Document:
    """Return the metadata of the same table before its first snapshot."""
    gone = ("snapshots", "snapshot-log", "statistics", "partition-statistics", "refs")
    kept = {key: value for key, value in document.items() if key not in gone}
    return {**kept, "current-snapshot-id": NO_SNAPSHOT, "last-sequence-number": 0, "snapshots": []}


def without_old_snapshots(document: Document, at_least: int = 1) -> Document:
    """Return ``document`` with no more snapshots than its table is to keep; itself when there aren't more.

    The newest ancestors of the current snapshot stay (``at_least`` so many, whatever the table's property says), and
    those that an Iceberg branch or tag names.
    """
    snapshots = document.get("snapshots") or ()
    limit = max(setting(document, KEEP_SNAPSHOTS, _KEEP_SNAPSHOTS_DEFAULT), at_least, 1)
    if len(snapshots) <= limit:
        return document
    kept = set(_ancestors(document, limit)) | {ref["snapshot-id"] for ref in (document.get("refs") or {}).values()}
    return _with_only(document, kept)


def trimmed(
    document: Document,
    previous: str,
    at_least: int = 1,
    without: Collection[int] = (),
    before: datetime | None = None,
) -> Document:
    """Return the metadata that follows the one at ``previous`` without old snapshots; itself when there are none.

    The snapshots ``without`` go in any case. They were current on a branch only: the log of the target lacks just them.
    Those from earlier than ``before`` go, too, but for the newest ``at_least`` and what an Iceberg branch or tag names.
    """
    known = {snapshot["snapshot-id"] for snapshot in document.get("snapshots") or ()}
    shorter = _with_only(document, known - set(without))
    if shorter is not document:
        log = [entry for entry in document.get("snapshot-log") or () if entry["snapshot-id"] not in without]
        shorter = {**shorter, "snapshot-log": log}
    if before is not None:
        limit = int(before.timestamp() * 1000)
        young = {one["snapshot-id"] for one in shorter.get("snapshots") or () if one["timestamp-ms"] >= limit}
        named = {ref["snapshot-id"] for ref in (shorter.get("refs") or {}).values()}
        if shorter.get("snapshots"):
            shorter = _with_only(shorter, young | named | set(_ancestors(shorter, max(at_least, 1))))
    else:
        shorter = without_old_snapshots(shorter, at_least)
    return document if shorter is document else _following(shorter, previous, now_ms(document))


def continued(document: Document, previous: str, changes: Mapping[str, Any]) -> Document:
    """Return the metadata that follows the one at ``previous`` with some members changed."""
    return _following({**document, **changes}, previous, now_ms(document))


def schema_id(document: Document, pointer: TablePointer) -> int:
    """Return the id of the schema at ``pointer``; the file's own current one when the catalog names one it lacks."""
    known = {schema.get("schema-id", 0) for schema in schemas(document)}
    return pointer.schema_id if pointer.schema_id in known else int(document.get("current-schema-id") or 0)


def schema_of(document: Document, pointer: TablePointer) -> Document:
    """Return the schema at ``pointer``."""
    wanted = schema_id(document, pointer)
    return next(schema for schema in schemas(document) if schema.get("schema-id", 0) == wanted)


def schemas(document: Document) -> Sequence[Document]:
    """Return all schemas. Version 1 may have one of them only (Iceberg spec, "Table Metadata Fields")."""
    found: Sequence[Document] | None = document.get("schemas")
    return [document["schema"]] if found is None and "schema" in document else found or ()


class VariantType(PrimitiveType):
    """The type of a value of any type (format version 3), which PyIceberg doesn't know."""

    root: Literal["variant"] = Field(default="variant")


def iceberg_schema(schema: Document) -> Schema:
    """Return a schema of a metadata file as PyIceberg's.

    Raises:
        ValueError: When PyIceberg doesn't know all that it names, besides variants.
    """
    return Schema.model_validate(_with_variants(schema))


def _with_variants(part: Any) -> Any:
    if isinstance(part, list):
        return [_with_variants(one) for one in part]
    if not isinstance(part, Mapping):
        return VariantType() if part == "variant" else part
    return {key: _with_variants(value) if key in _TYPED else value for key, value in part.items()}


def specs(document: Document) -> dict[int, Document]:
    """Return the partition specs by id. Version 1 may have the fields of one of them only, without ids of their own."""
    found = document.get("partition-specs")
    if found is None and "partition-spec" in document:
        fields = document["partition-spec"]
        found = [{"spec-id": 0, "fields": [{"field-id": _FIRST_FIELD + n, **field} for n, field in enumerate(fields)]}]
    return {spec["spec-id"]: spec for spec in found or ()}


def bound_spec(document: Document, spec_id: int) -> tuple[PartitionSpec, Schema] | None:
    """Return a partition spec with the newest schema that has all its columns; ``None`` when there is no such schema.

    A spec outlives its columns: they may be dropped once no new data is partitioned by them.
    """
    spec = PartitionSpec.model_validate(specs(document)[spec_id])
    columns = {field.source_id for field in spec.fields}
    for candidate in reversed(schemas(document)):
        schema = iceberg_schema(candidate)
        if all(schema.find_column_name(column) for column in columns):
            return spec, schema
    return None


def setting(document: Document, key: str, default: int) -> int:
    """Return a table property that is a number; ``default`` when it is missing or isn't one."""
    value = str(properties(document).get(key, default))
    return int(value) if value.isdecimal() else default


def _following(document: Document, previous: str, now: int) -> Document:
    """Return ``document`` as the metadata file that follows the one at ``previous``, which it was made from."""
    before = {"timestamp-ms": document["last-updated-ms"], "metadata-file": previous}
    log = [*(document.get("metadata-log") or ()), before]
    limit = max(1, setting(document, "write.metadata.previous-versions-max", 100))
    return {**document, "last-updated-ms": now, "metadata-log": log[-limit:]}


def _with_only(document: Document, kept: set[int]) -> Document:
    """Return ``document`` with no other snapshots than those; itself when it has no other."""
    if all(snapshot["snapshot-id"] in kept for snapshot in document.get("snapshots") or ()):
        return document
    shorter: dict[str, Any] = {
        key: [item for item in document.get(key) or () if item["snapshot-id"] in kept]
        for key in ("snapshots", "statistics", "partition-statistics")
        if key in document
    }
    if document.get("refs"):
        shorter["refs"] = {name: ref for name, ref in document["refs"].items() if ref["snapshot-id"] in kept}
    return {**document, **shorter, "snapshot-log": _log_of(document, kept)}


def _ancestors(document: Document, limit: int) -> Iterator[int]:
    """Yield the newest ancestors of the current snapshot, itself first.

    Where a parent is missing, as that of a change in several steps is, the newest snapshot before it follows.
    """
    oldest_first = sorted(document["snapshots"], key=lambda one: one.get("sequence-number") or 0)
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in oldest_first}
    current = by_id.get(document.get("current-snapshot-id"))
    for _ in range(limit):
        if current is None:
            return
        yield current["snapshot-id"]
        parent, number = current.get("parent-snapshot-id"), current.get("sequence-number") or 0
        earlier = (one for one in reversed(oldest_first) if (one.get("sequence-number") or 0) < number)
        current = by_id.get(parent) or (None if parent is None else next(earlier, None))


def _log_of(document: Document, kept: set[int]) -> list[Document]:
    # The spec: what comes before a removed entry is removed with it, or a time in between would find another snapshot.
    log: list[Document] = list(document.get("snapshot-log") or ())
    removed = [index for index, entry in enumerate(log) if entry["snapshot-id"] not in kept]
    return log[removed[-1] + 1 :] if removed else log


def is_compressed(location: str) -> bool:
    """Return whether a metadata file is compressed, judging by its name as other readers do."""
    return location.endswith(_COMPRESSED)


def unpacked(content: bytes) -> bytes:
    """Return the JSON of a metadata file, whatever the file is called."""
    return gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
