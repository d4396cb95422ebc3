"""Validate table metadata (Iceberg spec): that lakegate can use it, and that other readers can load it.

Only the fields that lakegate uses are checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lakegate.errors import InputError
from lakegate.model.refs import NO_SNAPSHOT, TablePointer
from lakegate.model.tables import CLOCKS_DIFFER

MAIN_BRANCH: Final = "main"
"""The Iceberg branch, inside a table, of its current snapshot."""

_Int: TypeAlias = Annotated[int, Field(ge=-(2**31), lt=2**31)]
_Long: TypeAlias = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Time: TypeAlias = Annotated[int, Field(ge=-62_135_596_800_000, lt=253_402_300_800_000)]
"""Milliseconds since 1970, in the years 1 to 9999."""
_PrimitiveType: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^(boolean|int|long|float|double|date|time|timestamp|timestamptz|timestamp_ns|timestamptz_ns|string"
        r"|uuid|binary|unknown|variant|decimal\(\s*\d{1,2}\s*,\s*\d{1,2}\s*\)|fixed\[\s*\d{1,9}\s*\]"
        r"|(geometry|geography)(\(.*\))?)$"
    ),
]
_COUNT = re.compile(r"-?\d{1,18}", re.ASCII)
_COUNT_KEYS = frozenset(
    f"{way}-{what}"
    for way in ("added", "deleted", "removed", "total")
    for what in ("records", "files-size", "data-files", "delete-files", "position-deletes", "equality-deletes")
)


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, alias_generator=lambda name: name.replace("_", "-"))


class _FieldShape(_Shape):
    id: _Int
    name: str
    required: bool
    type: _Type


class _StructShape(_Shape):
    type: Literal["struct"]
    fields: list[_FieldShape]


class _SchemaShape(_StructShape):
    schema_id: _Int = 0
    identifier_field_ids: list[_Int] = []


class _ListShape(_Shape):
    type: Literal["list"]
    element_id: _Int
    element: _Type
    element_required: bool


class _MapShape(_Shape):
    type: Literal["map"]
    key_id: _Int
    key: _Type
    value_id: _Int
    value: _Type
    value_required: bool


_Type: TypeAlias = _PrimitiveType | _StructShape | _ListShape | _MapShape


class _PartitionFieldShape(_Shape):
    name: str
    transform: str
    source_id: _Int
    field_id: _Int | None = None


class _SpecShape(_Shape):
    spec_id: _Int
    fields: list[_PartitionFieldShape]


class _SortOrderShape(_Shape):
    order_id: _Int
    fields: list[dict[str, Any]]


def _check_counts(summary: dict[str, str]) -> dict[str, str]:
    for key, value in summary.items():  # hot: runs for all snapshots of each metadata file
        if key in _COUNT_KEYS and not _COUNT.fullmatch(value):
            raise ValueError(f"{key} isn't a number")
    return summary


class _SnapshotShape(_Shape):
    snapshot_id: _Long
    parent_snapshot_id: _Long | None = None
    sequence_number: _Long | None = None
    timestamp_ms: _Time
    summary: Annotated[dict[str, str], AfterValidator(_check_counts)] | None = None
    manifest_list: str | None = None
    manifests: list[str] | None = None
    schema_id: _Int | None = None
    first_row_id: _Long | None = None
    added_rows: _Long | None = None


class _RefShape(_Shape):
    snapshot_id: _Long
    type: Literal["branch", "tag"]


class _LogEntryShape(_Shape):
    snapshot_id: _Long
    timestamp_ms: _Long


class _MetadataLogEntryShape(_Shape):
    metadata_file: str
    timestamp_ms: _Long


class _StatisticsShape(_Shape):
    snapshot_id: _Long


class _MetadataShape(_Shape):
    format_version: Annotated[int, Field(ge=1, le=3)]
    table_uuid: str
    location: str
    last_updated_ms: _Time
    last_sequence_number: _Long | None = None
    next_row_id: _Long | None = None
    current_snapshot_id: _Long | None = None
    current_schema_id: _Int | None = None
    default_spec_id: _Int | None = None
    default_sort_order_id: _Int | None = None
    schema_: _SchemaShape | None = Field(None, alias="schema")
    schemas: list[_SchemaShape] | None = None
    partition_spec: list[_PartitionFieldShape] | None = None
    partition_specs: list[_SpecShape] | None = None
    sort_orders: list[_SortOrderShape] | None = None
    properties: dict[str, str] | None = None
    snapshots: list[_SnapshotShape] | None = None
    refs: dict[str, _RefShape] | None = None
    snapshot_log: list[_LogEntryShape] | None = None
    metadata_log: list[_MetadataLogEntryShape] | None = None
    statistics: list[_StatisticsShape] | None = None
    partition_statistics: list[_StatisticsShape] | None = None


def check_shape(document: Any) -> None:
    """Check the types of all fields that lakegate uses.

    Raises:
        ValueError: When one has the wrong type; it names the first.
    """
    try:
        _MetadataShape.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(
            str(step) for step in first["loc"] if not str(step).startswith(("_", "constrained", "nullable"))
        )
        raise ValueError(f"{where or 'it'}: {first['msg']}") from error


def require_loadable(
    document: Mapping[str, Any], pointer: TablePointer, branch: str | None = None, *, as_named: bool
) -> None:
    """Check that any Iceberg reader can load the table at ``pointer``, and sees the snapshot that ``pointer`` names.

    Readers with access to the catalog take its snapshot, others the file's current one. No known writer lets the two
    differ. If they do, readers could see rows that weren't audited.

    Args:
        document: The metadata file, after :func:`check_shape`.
        branch: The branch to name in errors.
        as_named: Whether the file is compressed if, and only if, its name says so.

    Raises:
        InputError: When a reader can't load it, or sees another snapshot.
    """
    table = f"Table {pointer.table}" + (f" on branch '{branch}'" if branch else "")
    context = {"table": str(pointer.table), "branch": branch, "path": pointer.metadata_location}
    drop = f" Or drop it: lakegate discard {branch}" if branch else ""
    current = document.get("current-snapshot-id")
    current = NO_SNAPSHOT if current is None else int(current)
    main = (document.get("refs") or {}).get(MAIN_BRANCH, {}).get("snapshot-id", current)
    if {current, main} != {pointer.snapshot_id}:
        own = (
            _snapshot_text(current)
            if current == main
            else f"{_snapshot_text(current)}, and its branch '{MAIN_BRANCH}' at {_snapshot_text(main)}"
        )
        raise InputError(
            f"{table} is at {_snapshot_text(pointer.snapshot_id)} in the catalog, but at {own} in its metadata file "
            f"{pointer.metadata_location}. lakegate can't tell which one is right, so it publishes neither.",
            hint="Write the table on its branch with Spark, so that file and catalog agree, then audit it again."
            f"{drop}",
            catalog_snapshot=pointer.snapshot_id,
            file_snapshot=current,
            **context,
        )
    reason = next(_refusals(document, pointer), None)
    if not as_named:
        reason = "the file name is wrong about compression"
    if reason is not None:
        raise InputError(
            f"Spark can't load {table[0].lower()}{table[1:]}: in its metadata file {pointer.metadata_location}, "
            f"{reason}.",
            hint=f"Nothing was published. Write the table with Spark instead of editing its files.{drop}",
            **context,
        )


def require_same_past(
    document: Mapping[str, Any], before: Mapping[str, Any], pointer: TablePointer, branch: str
) -> None:
    """Check that a branch left the schemas, partition specs and snapshots that it began with as they were.

    By their ids, readers see older rows through them, which no check reads. Iceberg only adds and removes them.

    Raises:
        InputError: When one was changed.
    """
    if document["table-uuid"] != before["table-uuid"]:
        return
    for key, id_key, parts in _PAST:
        known = {one.get(id_key, 0): one for one in before.get(key) or ()}
        for one in document.get(key) or ():
            then = known.get(one.get(id_key, 0), one)
            if any(then.get(part) != one.get(part) for part in parts):
                raise InputError(
                    f"Branch '{branch}' changes what table {pointer.table} was before: {id_key.replace('-', ' ')} "
                    f"{one.get(id_key, 0)} is another one in its metadata file {pointer.metadata_location}. It isn't "
                    "published.",
                    hint="Write the table with Spark instead of editing its files. To drop the branch: "
                    f"lakegate discard {branch}",
                    table=str(pointer.table),
                    branch=branch,
                    path=pointer.metadata_location,
                )


def _snapshot_text(snapshot_id: int) -> str:
    return "no snapshot" if snapshot_id == NO_SNAPSHOT else f"snapshot {snapshot_id}"


_SINCE_VERSION_2 = (
    "current-schema-id",
    "default-sort-order-id",
    "default-spec-id",
    "last-partition-id",
    "last-sequence-number",
    "partition-specs",
    "schemas",
    "sort-orders",
)
_NEVER_NULL = ("metadata-log", "properties", "refs", "snapshot-log", "snapshots", "statistics", "partition-statistics")
_IDS = (
    ("current-schema-id", "schema_id", "schemas", "schema-id"),
    ("default-spec-id", "spec_id", "partition-specs", "spec-id"),
    ("default-sort-order-id", "sort_order_id", "sort-orders", "order-id"),
)


def _refusals(document: Mapping[str, Any], pointer: TablePointer) -> Iterator[str]:
    """Yield why Iceberg's ``TableMetadataParser`` and ``SnapshotParser`` would refuse the file."""
    version = document["format-version"]
    required = (
        "last-column-id",
        *(_SINCE_VERSION_2 if version > 1 else ()),
        *(("next-row-id",) if version > 2 else ()),  # since version 3
    )
    for key in required:
        if document.get(key) is None:
            yield f"{key} is missing"
    for key in (*required, *_NEVER_NULL):
        if key in document and document[key] is None:
            yield f"{key} is null"
    for default, attribute, listed, key in _IDS:
        known = {one.get(key, 0) for one in document.get(listed) or ()}
        for wanted in (document.get(default), getattr(pointer, attribute)):
            if known and wanted is not None and wanted not in known:
                yield f"{default} {wanted} isn't among its {listed}"
    if document.get("current-schema-id", pointer.schema_id) != pointer.schema_id:
        yield f"the schema is {document['current-schema-id']}, but {pointer.schema_id} in the catalog"
    yield from _snapshot_refusals(document)
    yield from _time_refusals(document)
    yield from _property_refusals(document)


class _Mapped(BaseModel):
    names: list[str]
    field_id: int | None = Field(default=None, alias="field-id")
    fields: list[_Mapped] = []


_MAPPING_KEY: Final = "schema.name-mapping.default"
"""Table property: the columns of files without field ids, by their names. Readers of any file parse it."""
_NAME_MAPPING = TypeAdapter(list[_Mapped])
_PAST = (
    ("schemas", "schema-id", ("fields",)),
    ("partition-specs", "spec-id", ("fields",)),
    ("snapshots", "snapshot-id", ("manifest-list", "manifests")),
)
_CLOCKS_DIFFER_MS = CLOCKS_DIFFER // timedelta(milliseconds=1)


def _property_refusals(document: Mapping[str, Any]) -> Iterator[str]:
    mapping = (document.get("properties") or {}).get(_MAPPING_KEY)
    if mapping is not None:
        try:
            _NAME_MAPPING.validate_json(mapping)
        except ValidationError:
            yield f"the property {_MAPPING_KEY} isn't a name mapping"


def _time_refusals(document: Mapping[str, Any]) -> Iterator[str]:
    for key in ("snapshot-log", "metadata-log"):
        times = [entry["timestamp-ms"] for entry in document.get(key) or ()]
        if any(earlier - later > _CLOCKS_DIFFER_MS for earlier, later in pairwise(times)):
            yield f"the entries of {key} aren't in chronological order"
        if times and times[-1] - document["last-updated-ms"] > _CLOCKS_DIFFER_MS:
            yield f"last-updated-ms is before the last entry of {key}"


def _snapshot_refusals(document: Mapping[str, Any]) -> Iterator[str]:
    newest, ids = document.get("last-sequence-number") or 0, set()
    for snapshot in document.get("snapshots") or ():
        snapshot_id = snapshot["snapshot-id"]
        if snapshot_id in ids:
            yield f"snapshot {snapshot_id} is listed twice"
        ids.add(snapshot_id)
        for key in ("summary", "sequence-number", "manifest-list"):
            if key in snapshot and snapshot[key] is None:
                yield f"{key} of snapshot {snapshot_id} is null"
        if "manifest-list" not in snapshot and (document["format-version"] > 1 or "manifests" not in snapshot):
            yield f"snapshot {snapshot_id} has no manifest-list"
        if snapshot.get("sequence-number", 0) > newest:
            yield f"the sequence-number of snapshot {snapshot_id} is greater than last-sequence-number"
    for name, ref in (document.get("refs") or {}).items():
        if ref["snapshot-id"] not in ids:
            yield f"ref '{name}' names snapshot {ref['snapshot-id']}, which isn't in the file"
