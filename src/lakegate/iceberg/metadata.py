"""Read and change a table's metadata file as plain JSON, so that fields unknown to this version survive."""

from __future__ import annotations

import gzip
import json
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, TypeAlias
from uuid import uuid4

from pydantic import Field, ModelWrapValidatorHandler, model_validator
from pydantic_core import from_json
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from lakegate.errors import NotFoundError
from lakegate.iceberg.validation import MAIN_BRANCH, check_shape
from lakegate.model.refs import NO_SNAPSHOT, TablePointer
from lakegate.model.tables import Snapshot

Document: TypeAlias = Mapping[str, Any]
"""A metadata file, or a part of one. Never changed in place, because parsed files are shared."""

KEEP_SNAPSHOTS: Final = "lakegate.keep-snapshots"
"""Table property: how many snapshots a metadata file keeps. Older states stay readable at older catalog commits."""

_KEEP_SNAPSHOTS_DEFAULT = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GZIP_MAGIC = b"\x1f\x8b"
_COMPRESSED = (".gz.metadata.json", ".metadata.json.gz")
"""Suffixes of compressed metadata files: today's, and that of older Iceberg versions."""
_FORMAT_VERSIONS = (1, 2, 3)
_FIRST_FIELD = 1000
"""First partition field id where format version 1 has none (Iceberg spec, "Partition Evolution")."""
_TYPED = ("fields", "type", "element", "key", "value")
"""Keys of a schema's JSON whose values are types or contain types."""
_OPAQUE = ("variant", "geometry", "geography")
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
    """A parsed metadata file, with cached views of it.

    Attributes:
        as_named: Whether it is compressed if, and only if, its name says so.
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
        return tuple(map(to_snapshot, oldest_first))

    @cached_property
    def specs(self) -> dict[int, PartitionSpec]:
        """The partition specs by id."""
        return {number: PartitionSpec.model_validate(spec) for number, spec in specs(self.document).items()}

    def schema(self, pointer: TablePointer) -> Schema:
        """Return the schema at ``pointer``.

        Raises:
            ValueError: When the schema or a partition spec has something that PyIceberg doesn't know.
        """
        schema = iceberg_schema(schema_of(self.document, pointer))
        if pointer.spec_id not in self.specs and (self.document.get("default-spec-id") or 0) not in self.specs:
            raise ValueError("it lacks its default partition spec")
        return schema

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """Return the snapshot with this id, if the file has it."""
        found = find_snapshot(self.document, snapshot_id)
        return None if found is None else to_snapshot(found)


def to_snapshot(snapshot: Document) -> Snapshot:
    """Convert a snapshot from its JSON."""
    summary = {key: str(value) for key, value in (snapshot.get("summary") or {}).items()}
    return Snapshot(
        snapshot_id=snapshot["snapshot-id"],
        parent_id=snapshot.get("parent-snapshot-id"),
        time=_EPOCH + timedelta(milliseconds=snapshot["timestamp-ms"]),
        operation=summary.pop("operation", None),
        summary=summary,
    )


def parse(content: bytes) -> Document:
    """Parse a metadata file, compressed or not.

    Raises:
        ValueError: When it isn't one, or has a newer format version.
    """
    # As strict as other readers: UTF-8 without a byte order mark, and no NaN.
    document = from_json(decompressed(content), allow_inf_nan=False)
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
    """Serialize a metadata file to write at ``location``, whose name says whether it's compressed."""
    content = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return gzip.compress(content) if is_compressed(location) else content


def properties(document: Document) -> Mapping[str, str]:
    """Return the table's properties."""
    found: Mapping[str, str] = document.get("properties") or {}
    return found


def folder(document: Document) -> str:
    """Return the folder of the table's metadata files."""
    location = properties(document).get("write.metadata.path") or f"{document['location'].rstrip('/')}/metadata"
    return str(location).rstrip("/")


def next_name(document: Document, previous: str) -> str:
    """Return a name for the metadata file after ``previous``, in Iceberg's naming scheme.

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
            hint="It may have been expired. List the commits you can read with 'lakegate log'.",
            table=str(pointer.table),
            snapshot_id=pointer.snapshot_id,
        )
    return snapshot


def find_snapshot(document: Document, snapshot_id: int) -> Document | None:
    """Return the snapshot with this id, if the document has it."""
    found: Iterator[Document] = (s for s in document.get("snapshots") or () if s["snapshot-id"] == snapshot_id)
    return next(found, None)


def new_snapshot_id(document: Document) -> int:
    """Return an unused snapshot id."""
    while find_snapshot(document, drawn := secrets.randbits(63)) is not None or drawn == 0:
        pass
    return drawn


def now_ms(document: Document) -> int:
    """Return a new snapshot's time in milliseconds since 1970: now, but not before the table's last change."""
    return max(time.time_ns() // 1_000_000, int(document["last-updated-ms"]))


def updated_at(document: Document) -> datetime:
    """Return when a metadata file was written, by its writer's clock."""
    return _EPOCH + timedelta(milliseconds=int(document["last-updated-ms"]))


def with_running_totals(summary: Mapping[str, str], before: Document | None) -> dict[str, str]:
    """Return ``summary`` with the table's new totals, as far as snapshot ``before`` has the old ones."""
    old = dict.fromkeys(_TOTALS, "0") if before is None else before.get("summary") or {}
    kept = {key: str(value) for key, value in summary.items() if key not in _TOTALS}
    totals = {
        total: str(int(old[total]) + int(summary.get(added, 0)) - int(summary.get(removed, 0)))
        for total, (added, removed) in _TOTALS.items()
        if total in old
    }
    return kept | totals


def append_snapshots(document: Document, pointer: TablePointer, added: Sequence[Document]) -> Document:
    """Return the successor of ``document`` with ``added`` snapshots, the last of them current.

    Args:
        document: The metadata at ``pointer``.
        added: New snapshots, oldest first.
    """
    newest = added[-1]
    now = newest["timestamp-ms"]
    main = {**(document.get("refs") or {}).get(MAIN_BRANCH, {}), "snapshot-id": newest["snapshot-id"], "type": "branch"}
    snapshots = {
        "last-sequence-number": newest["sequence-number"],
        "current-snapshot-id": newest["snapshot-id"],
        "refs": {**(document.get("refs") or {}), MAIN_BRANCH: main},
        "snapshots": [*(document.get("snapshots") or ()), *added],
        # Like Iceberg, log only the snapshot that becomes visible as current.
        "snapshot-log": [
            *(document.get("snapshot-log") or ()),
            {"timestamp-ms": now, "snapshot-id": newest["snapshot-id"]},
        ],
    }
    if newest.get("first-row-id") is not None:
        snapshots["next-row-id"] = newest["first-row-id"] + newest["added-rows"]
    document = {**document, "current-schema-id": schema_id(document, pointer), **snapshots}
    return _successor(document, pointer.metadata_location, now)


def without_old_snapshots(document: Document, at_least: int = 1) -> Document:
    """Return ``document`` with only the snapshots that the table keeps; itself if it has no others.

    It keeps the newest ancestors of the current snapshot (as many as :data:`KEEP_SNAPSHOTS` says, and no fewer than
    ``at_least``), and the snapshots of Iceberg branches and tags.
    """
    snapshots = document.get("snapshots") or ()
    limit = max(int_property(document, KEEP_SNAPSHOTS, _KEEP_SNAPSHOTS_DEFAULT), at_least, 1)
    if len(snapshots) <= limit:
        return document
    kept = set(_ancestors(document, limit)) | {ref["snapshot-id"] for ref in (document.get("refs") or {}).values()}
    return _keep_only(document, kept)


def trim_snapshots(document: Document, previous: str, at_least: int, before: datetime) -> Document:
    """Return the successor of the document at ``previous`` without old snapshots; itself if there are none.

    Args:
        at_least: Number of the newest snapshots to keep.
        before: Drop all older snapshots, except those of Iceberg branches and tags.
    """
    if not document.get("snapshots"):
        return document
    limit = int(before.timestamp() * 1000)
    young = {one["snapshot-id"] for one in document["snapshots"] if one["timestamp-ms"] >= limit}
    named = {ref["snapshot-id"] for ref in (document.get("refs") or {}).values()}
    shorter = _keep_only(document, young | named | set(_ancestors(document, max(at_least, 1))))
    return document if shorter is document else _successor(shorter, previous, now_ms(document))


def as_audited(
    document: Document, pointer: TablePointer, published: Document | None, audited: Collection[int]
) -> Document:
    """Return the successor of the document at ``pointer`` that readers may see; itself if it's that already.

    It lists the snapshots that readers see today, as they see them, and those that an audit has read, in the schema
    that the audit read them in: by its id, Iceberg shows a snapshot in the schema that it names.

    Args:
        published: The table as readers see it today; ``None`` if there's none.
        audited: Snapshots that an audit has read.
    """
    is_same_table = published is not None and published["table-uuid"] == document["table-uuid"]
    earlier = {one["snapshot-id"]: one for one in (published or {}).get("snapshots") or () if is_same_table}
    wanted, snapshots = schema_id(document, pointer), list[Document]()
    for one in document.get("snapshots") or ():
        if (seen := earlier.get(one["snapshot-id"])) is not None:
            snapshots.append(seen)
        elif one["snapshot-id"] in audited:
            snapshots.append(one if one.get("schema-id", wanted) == wanted else {**one, "schema-id": wanted})
    kept = {one["snapshot-id"] for one in snapshots}
    shorter = _keep_only(document, kept)
    if shorter is not document:  # these were current on a branch only, so the log just loses their entries
        log = [entry for entry in document.get("snapshot-log") or () if entry["snapshot-id"] in kept]
        shorter = {**shorter, "snapshot-log": log}
    if snapshots != list(shorter.get("snapshots") or ()):
        shorter = {**shorter, "snapshots": snapshots}
    shorter = without_old_snapshots(shorter, max(len(audited), 1))
    return document if shorter is document else _successor(shorter, pointer.metadata_location, now_ms(document))


def next_metadata(document: Document, previous: str, changes: Mapping[str, Any]) -> Document:
    """Return the successor of the document at ``previous`` with ``changes`` to its top-level fields."""
    return _successor({**document, **changes}, previous, now_ms(document))


def schema_id(document: Document, pointer: TablePointer) -> int:
    """Return the schema id at ``pointer``, or the document's current one if it doesn't have that schema."""
    known = {schema.get("schema-id", 0) for schema in schemas(document)}
    return pointer.schema_id if pointer.schema_id in known else int(document.get("current-schema-id") or 0)


def schema_of(document: Document, pointer: TablePointer) -> Document:
    """Return the schema at ``pointer``."""
    wanted = schema_id(document, pointer)
    return next(schema for schema in schemas(document) if schema.get("schema-id", 0) == wanted)


def schemas(document: Document) -> Sequence[Document]:
    """Return all schemas. Format version 1 may have a single one (spec, "Table Metadata Fields")."""
    found: Sequence[Document] | None = document.get("schemas")
    return [document["schema"]] if found is None and "schema" in document else found or ()


def lacks_schemas(document: Document) -> bool:
    """Return whether data files may have a schema that the metadata doesn't list.

    Expiring snapshots may remove their schemas, too, and format version 1 may list none.
    """
    found = document.get("schemas") or ()
    return len(found) <= max((one.get("schema-id", 0) for one in found), default=0)


class OpaqueType(PrimitiveType):
    """A type of format version 3 as the file spells it. PyIceberg knows no variants, and only ``geometry('…')``."""

    root: str = Field()

    @model_validator(mode="wrap")
    @classmethod
    def handle_primitive_type(cls, value: Any, handler: ModelWrapValidatorHandler[OpaqueType]) -> OpaqueType:
        """Take any text: PyIceberg's own validator, which this replaces, parses it."""
        return handler(value)


def iceberg_schema(schema: Document) -> Schema:
    """Convert a schema to PyIceberg's.

    Raises:
        ValueError: When it has something, other than an :class:`OpaqueType`, that PyIceberg doesn't know.
    """
    return Schema.model_validate(_with_opaque_types(schema))


def _with_opaque_types(part: Any) -> Any:
    if isinstance(part, list):
        return [_with_opaque_types(one) for one in part]
    if not isinstance(part, Mapping):
        return OpaqueType(part) if str(part).startswith(_OPAQUE) else part
    return {key: _with_opaque_types(value) if key in _TYPED else value for key, value in part.items()}


def specs(document: Document) -> dict[int, Document]:
    """Return the partition specs by id. Format version 1 may have a single ``partition-spec`` without field ids."""
    found = document.get("partition-specs")
    if found is None and "partition-spec" in document:
        fields = document["partition-spec"]
        found = [{"spec-id": 0, "fields": [{"field-id": _FIRST_FIELD + n, **field} for n, field in enumerate(fields)]}]
    return {spec["spec-id"]: spec for spec in found or ()}


def unpartitioned_specs(document: Document) -> frozenset[int]:
    """Return the ids of the partition specs without partitions: their equality deletes apply to the whole table.

    Dropped fields stay in a spec of format version 1, as ``void``.
    """
    return frozenset(
        spec_id
        for spec_id, spec in specs(document).items()
        if all(field.get("transform") == "void" for field in spec.get("fields") or ())
    )


def bound_spec(document: Document, spec_id: int) -> tuple[PartitionSpec, Schema] | None:
    """Return a partition spec and the newest schema that has all its columns; ``None`` if no schema does.

    A spec may outlive its columns: they can be dropped once no new data is partitioned by them.
    """
    spec = PartitionSpec.model_validate(specs(document)[spec_id])
    columns = {field.source_id for field in spec.fields}
    for candidate in reversed(schemas(document)):
        schema = iceberg_schema(candidate)
        if all(schema.find_column_name(column) for column in columns):
            return spec, schema
    return None


def int_property(document: Document, key: str, default: int) -> int:
    """Return a numeric table property; ``default`` if it's missing or not a whole number."""
    value = str(properties(document).get(key, default))
    return int(value) if value.isdecimal() else default


def _successor(document: Document, previous: str, now: int) -> Document:
    """Return ``document`` with the time and the metadata log of a file that replaces the one at ``previous``."""
    before = {"timestamp-ms": document["last-updated-ms"], "metadata-file": previous}
    log = [*(document.get("metadata-log") or ()), before]
    limit = max(1, int_property(document, "write.metadata.previous-versions-max", 100))
    return {**document, "last-updated-ms": now, "metadata-log": log[-limit:]}


def _keep_only(document: Document, kept: set[int]) -> Document:
    """Return ``document`` with only the snapshots in ``kept``; itself if it has no others."""
    if all(snapshot["snapshot-id"] in kept for snapshot in document.get("snapshots") or ()):
        return document
    shorter: dict[str, Any] = {
        key: [item for item in document.get(key) or () if item["snapshot-id"] in kept]
        for key in ("snapshots", "statistics", "partition-statistics")
        if key in document
    }
    if document.get("refs"):
        shorter["refs"] = {name: ref for name, ref in document["refs"].items() if ref["snapshot-id"] in kept}
    return {**document, **shorter, "snapshot-log": _trimmed_log(document, kept)}


def _ancestors(document: Document, limit: int) -> Iterator[int]:
    """Yield the current snapshot and its newest ancestors, up to ``limit`` in total.

    If a parent was dropped, as those within a change of several steps are, the next older snapshot is used instead.
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


def _trimmed_log(document: Document, kept: set[int]) -> list[Document]:
    # The spec: remove all entries before a removed one, too. Otherwise time travel to a time between would find the
    # wrong snapshot.
    log: list[Document] = list(document.get("snapshot-log") or ())
    removed = [index for index, entry in enumerate(log) if entry["snapshot-id"] not in kept]
    return log[removed[-1] + 1 :] if removed else log


def is_compressed(location: str) -> bool:
    """Return whether a metadata file's name says that it's compressed, which is what other readers go by."""
    return location.endswith(_COMPRESSED)


def decompressed(content: bytes) -> bytes:
    """Return a metadata file's JSON, decompressed if its content (not its name) says so."""
    return gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
