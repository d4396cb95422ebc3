"""Inspect a table's metadata: list every file it reaches, with the facts it states, and find contradictions."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
)

from lakegate.errors import ConfigurationError, InputError, NotFoundError, SourceError
from lakegate.iceberg.deletion_vectors import is_vector, to_deletion_vector
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.manifests import (
    ListedManifest,
    ManifestList,
    count_mismatches,
    counts_of,
    explicit_first_row_id,
    read_list,
    read_manifest,
)
from lakegate.iceberg.metadata import Document, find_snapshot, lacks_schemas, schemas, specs
from lakegate.model.maintenance import DeletionVector, Flaw, NeededFile
from lakegate.model.refs import NO_SNAPSHOT, TablePointer
from lakegate.model.tables import REPLACE
from lakegate.model.words import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ColumnSchema, FileMetaData
    from pyroaring import BitMap64

_PARQUET = "PARQUET"
_OPERATIONS = ("append", REPLACE, "overwrite", "delete")
_RUNNING_TOTALS = (
    ("total-records", "added-records", "deleted-records"),
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-files-size", "added-files-size", "removed-files-size"),
)
"""Keys of a snapshot's summary (spec, "Optional Snapshot Summary Fields"): a total, and the counts that change it."""


class Inspector:
    """Inspects one state of a table; see :meth:`lakegate.ports.TableReader.inspect`."""

    def __init__(self, pointer: TablePointer, files: TableFiles, walked: set[str]) -> None:
        self._pointer = pointer
        self._files = files
        self._walked = walked
        self._is_current = True
        self._next_row_id = 0
        self._columns = frozenset[int]()
        self._specs = frozenset[int]()
        self._numbers: Mapping[int, int] = {}
        self._row_id_ranges: list[tuple[int, int, str]] = []
        self._live_rows: dict[str, int] = {}
        self._vectors: dict[str, DeletionVector] = {}

    def inspect(self) -> Iterator[NeededFile | Flaw]:
        """Yield the files and flaws of the state, those of its current snapshot first."""
        file = NeededFile(self._pointer.metadata_location, "metadata file")
        yield file
        if self._was_walked(file.path):
            return
        try:
            document = self._files.metadata(self._pointer).document
        except InputError as error:
            yield _read_flaw(file, error)
            return
        current = self._pointer.snapshot_id
        self._next_row_id = document.get("next-row-id") or 0
        self._specs = frozenset(specs(document))
        self._columns = frozenset(one for schema in schemas(document) for one in _field_ids(schema))
        last, newest = document.get("last-column-id"), max(self._columns, default=0)
        if last is not None and last < newest:
            problem = f"a column has id {newest}, but last-column-id is {last}, so new columns would reuse ids"
            yield Flaw("wrong-count", file, problem)
        if lacks_schemas(document):
            self._columns |= frozenset(range(1, (last or newest) + 1))
        self._numbers = dict(_data_sequence_numbers(document))
        for snapshot in sorted(document.get("snapshots") or (), key=lambda one: one["snapshot-id"] != current):
            self._is_current = snapshot["snapshot-id"] == current
            self._row_id_ranges, self._live_rows, self._vectors = [], {}, {}
            yield from self._snapshot(snapshot)
            yield from self._overlapping_row_ids(file)
            yield from _running_total_flaws(document, snapshot, file)
        for key in ("statistics", "partition-statistics"):
            for one in document.get(key) or ():
                is_current = one["snapshot-id"] == current
                size = one.get("file-size-in-bytes")
                yield NeededFile(one["statistics-path"], "statistics file", size, is_current=is_current)

    def _snapshot(self, snapshot: Document) -> Iterator[NeededFile | Flaw]:
        location = snapshot.get("manifest-list")
        if location is None:  # format version 1 may list the manifests in the snapshot itself
            for path in snapshot.get("manifests") or ():
                yield from self._manifest(NeededFile(path, "manifest", is_current=self._is_current), None)
            return
        file = NeededFile(location, "manifest list", is_current=self._is_current)
        yield file
        if self._was_walked(location):
            return
        try:
            manifests: ManifestList = self._files.read("Manifest list", location, self._pointer, read_list)
        except InputError as error:
            yield _read_flaw(file, error)
            return
        # Data manifests first: deletion vectors are compared with the data files.
        for line in sorted(manifests.manifests, key=lambda one: one.file.content != ManifestContent.DATA):
            size = line.file.manifest_length
            need = NeededFile(line.file.manifest_path, "manifest", size, is_current=self._is_current)
            yield from self._manifest(need, line)
        yield from self._sequence_number_flaws(snapshot, manifests, file)
        yield from self._list_flaws(manifests, file)
        yield from _delete_file_flaws(snapshot, manifests, file)
        yield from _operation_flaws(snapshot, manifests, file)
        if snapshot.get("first-row-id") is not None:
            yield from self._row_id_flaws(snapshot, manifests, file)
        has_counts = all(line.has_counts for line in manifests.manifests)
        # Only a list from before an upgrade, whose snapshot has no sequence number, may lack counts.
        if snapshot.get("sequence-number") and not has_counts:
            yield Flaw("unreadable-file", file, "it lacks counts or snapshot ids that other readers require")
        if has_counts:
            for problem in count_mismatches(snapshot, manifests):
                yield Flaw("wrong-count", file, problem)

    def _list_flaws(self, manifests: ManifestList, file: NeededFile) -> Iterator[Flaw]:
        """Yield a manifest that is listed twice, or has a partition spec that the table doesn't have."""
        paths = Counter(line.file.manifest_path for line in manifests.manifests)
        for path, times in paths.items():
            if times > 1:
                problem = f"it lists manifest {path} {times} times, so its rows count {times} times"
                yield Flaw("wrong-count", file, problem)
        for line in manifests.manifests:
            if line.file.partition_spec_id not in self._specs:
                problem = f"manifest {line.file.manifest_path} has partition spec {line.file.partition_spec_id}"
                yield Flaw("wrong-count", file, f"{problem}, which the table doesn't have")

    def _sequence_number_flaws(self, snapshot: Document, manifests: ManifestList, file: NeededFile) -> Iterator[Flaw]:
        """Yield a manifest whose sequence number isn't that of the snapshot that added it: deletes depend on it."""
        number = snapshot.get("sequence-number") or 0
        own = (one.file for one in manifests.manifests if one.file.added_snapshot_id == snapshot["snapshot-id"])
        wrong = next((one for one in own if (one.sequence_number or 0) != number), None)
        if wrong is not None:
            problem = f"manifest {wrong.manifest_path} has sequence number {wrong.sequence_number}"
            yield Flaw("wrong-count", file, f"{problem}, but the snapshot that added it has {number}")

        later = next((one.file for one in manifests.manifests if (one.file.sequence_number or 0) > number), None)
        if later is not None and wrong is None:
            problem = f"manifest {later.manifest_path} has sequence number {later.sequence_number}"
            yield Flaw("wrong-count", file, f"{problem}, but the snapshot itself has {number}")

    def _row_id_flaws(self, snapshot: Document, manifests: ManifestList, file: NeededFile) -> Iterator[Flaw]:
        first, added = snapshot["first-row-id"], snapshot.get("added-rows") or 0
        if not 0 <= first <= first + added <= self._next_row_id:
            problem = f"snapshot {snapshot['snapshot-id']} assigned {added} row ids from {first} on"
            yield Flaw("wrong-count", file, f"{problem}, but the table's next row id is {self._next_row_id}")
        for line in manifests.manifests:
            first = line.first_row_id
            if line.file.content == ManifestContent.DATA and (first is None or not 0 <= first <= self._next_row_id):
                problem = f"the row ids of manifest {line.file.manifest_path} begin with {first}"
                yield Flaw("wrong-count", file, f"{problem}, but the table's next row id is {self._next_row_id}")

    def _overlapping_row_ids(self, file: NeededFile) -> Iterator[Flaw]:
        """Yield files of one snapshot that share row ids, or have row ids that new rows will get."""
        previous_end, previous_path = 0, ""
        for first, end, path in sorted(self._row_id_ranges):
            if first < previous_end:
                yield Flaw("wrong-count", file, f"{path} and {previous_path} share row ids from {first} on")
                return
            previous_end, previous_path = end, path
        if previous_end > self._next_row_id:
            last = f"the last row id of {previous_path} is {previous_end - 1}"
            yield Flaw("wrong-count", file, f"{last}, but the table's next row id is {self._next_row_id}")

    def _note_row_id_ranges(self, entries: Sequence[ManifestEntry], next_row_id: int) -> None:
        for entry in entries:
            if entry.status != ManifestEntryStatus.DELETED:
                file, first = entry.data_file, explicit_first_row_id(entry.data_file)
                if first is None:
                    first, next_row_id = next_row_id, next_row_id + file.record_count
                self._row_id_ranges.append((first, first + file.record_count, file.file_path))

    def _manifest(self, file: NeededFile, line: ListedManifest | None) -> Iterator[NeededFile | Flaw]:
        yield file
        if self._was_walked(file.path):
            return
        try:
            entries = self._files.read("Manifest", file.path, self._pointer, read_manifest)
        except InputError as error:
            yield _read_flaw(file, error)
            return
        if line is not None:
            held = counts_of((entry.status, entry.data_file.record_count) for entry in entries)
            wrong = [key for key, number in held.items() if getattr(line.file, key) not in (None, number)]
            if wrong:
                says = ", ".join(f"{key} is {getattr(line.file, key)}, not {held[key]}" for key in wrong)
                yield Flaw("wrong-count", file, f"its counts in the manifest list don't match its entries: {says}")
            yield from self._entry_flaws(entries, line, file)
            if line.first_row_id is not None and line.file.content == ManifestContent.DATA:
                self._note_row_id_ranges(entries, line.first_row_id)
        for entry in entries:
            if entry.status != ManifestEntryStatus.DELETED:
                yield from self._live_file(entry, line, file)

    def _live_file(
        self, entry: ManifestEntry, line: ListedManifest | None, file: NeededFile
    ) -> Iterator[NeededFile | Flaw]:
        data = entry.data_file
        has_rows, vector = data.content in (None, DataFileContent.DATA), None
        keys: tuple[int, ...] = ()
        if data.content == DataFileContent.EQUALITY_DELETES:
            keys = tuple(data.equality_ids or ())
            if not keys or not self._columns.issuperset(keys):
                named = ", ".join(map(str, keys)) or "none"
                problem = f"{data.file_path} deletes rows by columns that the table never had (ids: {named})"
                yield Flaw("wrong-count", file, problem)
                keys = ()  # so its footer isn't checked for them
        if not has_rows and is_vector(data):
            try:
                vector = to_deletion_vector(data)
            except ValueError as error:
                yield Flaw("wrong-count", file, str(error))
            else:
                if self._vectors.setdefault(vector.target, vector) != vector:
                    yield Flaw("wrong-count", file, f"it names a second deletion vector for {vector.target}")
        yield NeededFile(
            data.file_path,
            "data file" if has_rows else "delete file",
            data.file_size_in_bytes,
            data.record_count if str(data.file_format).upper().endswith(_PARQUET) else None,
            line.file.added_snapshot_id if entry.snapshot_id is None and line is not None else entry.snapshot_id,
            self._is_current,
            _bounds(data) if has_rows else {},
            vector,
            None if vector is None else self._live_rows.get(vector.target),
            keys,
            dict(data.null_value_counts or {}) if has_rows else {},
        )

    def _entry_flaws(self, entries: Sequence[ManifestEntry], line: ListedManifest, file: NeededFile) -> Iterator[Flaw]:
        """Yield an entry that contradicts the manifest list: from another snapshot, or for a file listed twice."""
        by = line.file.added_snapshot_id
        changed = [entry for entry in entries if entry.status != ManifestEntryStatus.EXISTING]
        other = next(
            (entry for entry in changed if None not in (by, entry.snapshot_id) and entry.snapshot_id != by), None
        )
        if other is not None:
            path, at = other.data_file.file_path, other.snapshot_id
            yield Flaw("wrong-count", file, f"snapshot {by} wrote it, but snapshot {at} added or removed {path}")
        is_data = line.file.content == ManifestContent.DATA
        for entry in entries:
            path, number = entry.data_file.file_path, entry.sequence_number or 0
            if (entry.data_file.content in (None, DataFileContent.DATA)) != is_data:
                there = "data" if is_data else "delete"
                yield Flaw("wrong-count", file, f"it's a manifest of {there} files, but {path} isn't one")
            elif number > (line.file.sequence_number or 0):
                problem = f"{path} has sequence number {number}"
                yield Flaw("wrong-count", file, f"{problem}, but the manifest itself has {line.file.sequence_number}")
            elif entry.status != ManifestEntryStatus.DELETED and entry.sequence_number is not None:
                yield from self._file_number_flaws(entry, line, file)
        for data in (one.data_file for one in entries if is_data and one.status != ManifestEntryStatus.DELETED):
            if data.file_path in self._live_rows:
                problem = f"it lists {data.file_path}, which the snapshot already has, so its rows count twice"
                yield Flaw("wrong-count", file, problem)
                return
            self._live_rows[data.file_path] = data.record_count

    def _file_number_flaws(self, entry: ManifestEntry, line: ListedManifest, file: NeededFile) -> Iterator[Flaw]:
        """Yield a file whose sequence number has changed, so that other delete files apply to it."""
        number, least = entry.sequence_number or 0, line.file.min_sequence_number or 0
        adder = entry.snapshot_id
        expected = None if adder is None else self._numbers.get(adder)
        problem = f"{entry.data_file.file_path} has sequence number {number}"
        if number < least:
            yield Flaw("wrong-count", file, f"{problem}, but by the manifest list, the lowest is {least}")
        elif expected not in (None, number):
            yield Flaw("wrong-count", file, f"{problem}, but snapshot {adder}, which added it, has {expected}")

    def _was_walked(self, path: str) -> bool:
        known = path in self._walked
        self._walked.add(path)
        return known


def vector_flaw(file: NeededFile, places: BitMap64) -> Flaw | None:
    """Return how a deletion vector contradicts its data file; ``None`` if it doesn't."""
    if file.target_rows is not None and places and places.max() >= file.target_rows:
        problem = f"it deletes row {places.max():,} of a data file with {file.target_rows:,} rows"
        return Flaw("wrong-rows", file, problem)
    return None


def _data_sequence_numbers(document: Document) -> Iterator[tuple[int, int]]:
    """Yield each snapshot whose files got its own sequence number: a compaction's may keep those of their rows."""
    for snapshot in document.get("snapshots") or ():
        if (snapshot.get("summary") or {}).get("operation") not in (None, REPLACE):
            yield snapshot["snapshot-id"], snapshot.get("sequence-number") or 0


def _delete_file_flaws(snapshot: Document, manifests: ManifestList, file: NeededFile) -> Iterator[Flaw]:
    """Yield a snapshot that miscounts its delete files: without any, its totals would prove the number of rows."""
    total = str((snapshot.get("summary") or {}).get("total-delete-files"))
    lines = [line for line in manifests.manifests if line.file.content == ManifestContent.DELETES]
    if total.isdecimal() and all(line.has_counts for line in lines):
        held = sum(line.live_files for line in lines)
        if int(total) != held:
            problem = f"snapshot {snapshot['snapshot-id']} counts {total} delete files (total-delete-files)"
            yield Flaw("wrong-count", file, f"{problem}, but its manifests hold {held}")


def _running_total_flaws(document: Document, snapshot: Document, file: NeededFile) -> Iterator[Flaw]:
    """Yield a snapshot whose totals don't follow from its parent's: a manifest may be gone, and totals adjusted."""
    parent = find_snapshot(document, snapshot.get("parent-snapshot-id") or NO_SNAPSHOT)
    before, now = ((one or {}).get("summary") or {} for one in (parent, snapshot))
    for total_key, added_key, removed_key in _RUNNING_TOTALS:
        counts = [str(one) for one in (before.get(total_key), now.get(total_key))]
        counts += [str(now.get(key, 0)) for key in (added_key, removed_key)]
        if not all(one.isdecimal() for one in counts):
            continue
        then, total, added, removed = map(int, counts)
        if total != then + added - removed:
            problem = f"snapshot {snapshot['snapshot-id']} says {total_key} is {total}"
            why = f"its parent has {then}, {added_key} is {added} and {removed_key} is {removed}"
            yield Flaw("wrong-count", file, f"{problem}, but {why}")


def _operation_flaws(snapshot: Document, manifests: ManifestList, file: NeededFile) -> Iterator[Flaw]:
    """Yield a snapshot whose operation isn't what it did: some readers skip snapshots by their operation."""
    operation = (snapshot.get("summary") or {}).get("operation")
    own = [one.file for one in manifests.manifests if one.file.added_snapshot_id == snapshot["snapshot-id"]]
    data = [one for one in own if one.content == ManifestContent.DATA]
    added, removed = (
        sum(getattr(one, name) or 0 for one in data) for name in ("added_files_count", "deleted_files_count")
    )
    contradiction = None
    if operation not in (None, *_OPERATIONS):
        contradiction = "which doesn't exist"
    elif operation == "append" and removed:
        contradiction = f"but it removed {counted(removed, 'file')}"
    elif operation == "delete" and added:
        contradiction = f"but it added {counted(added, 'data file')}"
    if contradiction is not None:
        name = f"snapshot {snapshot['snapshot-id']}"
        yield Flaw("wrong-count", file, f"{name} has the operation '{operation}', {contradiction}")


def footer_flaw(file: NeededFile, footer: FileMetaData) -> Flaw | None:
    """Return how a data or delete file's footer contradicts its manifest; ``None`` if it doesn't.

    Comparing bounds finds a file that was replaced by one of the same size and number of rows. It's limited to types
    that manifests and footers encode the same way, whoever wrote them: integers, dates, microsecond timestamps and
    strings. Numbers of NULLs are compared for all types, because audits answer ``not_null`` from them.
    """
    if footer.num_rows != file.rows:
        return Flaw("wrong-rows", file, f"it holds {footer.num_rows:,} rows, not {file.rows:,}")
    if file.keys and (lacking := _missing_field_ids(file.keys, footer)):
        return Flaw("wrong-rows", file, f"it lacks the column with field id {lacking[0]}, by which it deletes rows")
    for place, field_id in _flat_columns(footer):
        column = footer.schema.column(place)
        held = [footer.row_group(number).column(place).statistics for number in range(footer.num_row_groups)]
        nulls = file.nulls.get(field_id)
        counts = [one.null_count for one in held if one is not None and one.null_count is not None]
        if nulls is not None and len(counts) == len(held) and sum(counts) != nulls:
            return Flaw("wrong-rows", file, f"its column {column.path} holds {sum(counts):,} NULLs, not {nulls:,}")
        decode = _bound_decoder(column) if field_id in file.bounds else None
        values: list[Any] = [
            value for one in held if one is not None and one.has_min_max for value in (one.min_raw, one.max_raw)
        ]
        if decode is None or not values or len(values) < 2 * len(held):
            continue
        least, most = map(decode, file.bounds[field_id])
        if not least <= min(values) <= max(values) <= most:
            return Flaw("wrong-rows", file, f"its column {column.path} has values outside the bounds in its manifest")
    return None


def _missing_field_ids(keys: Sequence[int], footer: FileMetaData) -> list[int]:
    """Return the ``keys`` (field ids) that a file lacks; none if it has no ids and matches columns by name."""
    import pyarrow as pa

    fields, held = _arrow_fields(footer), set[int]()
    while fields:
        field = fields.pop()
        field_id = _field_id(field)
        held |= set() if field_id is None else {field_id}
        if pa.types.is_struct(field.type):
            fields += list(field.type)
    return [key for key in keys if held and key not in held]


def _field_ids(type_: Any) -> Iterator[int]:
    """Yield the ids of all fields of a schema, including nested ones."""
    if not isinstance(type_, dict):
        return
    for field in type_.get("fields") or ():
        yield field["id"]
        yield from _field_ids(field["type"])
    for part in ("element", "key", "value"):
        if f"{part}-id" in type_:
            yield type_[f"{part}-id"]
            yield from _field_ids(type_[part])


def _flat_columns(footer: FileMetaData) -> Iterator[tuple[int, int]]:
    """Yield the index and the field id of each column that isn't nested."""
    import pyarrow as pa

    places = defaultdict[str, list[int]](list)
    for place in range(len(footer.schema)):
        places[footer.schema.column(place).path].append(place)
    for field in _arrow_fields(footer):
        field_id = _field_id(field)
        if field_id is not None and len(places[field.name]) == 1 and not pa.types.is_nested(field.type):
            yield places[field.name][0], field_id


def _arrow_fields(footer: FileMetaData) -> list[pa.Field[Any]]:
    """Return the top-level fields; none if Arrow doesn't know one of their types."""
    from pyarrow import ArrowException

    try:
        return list(footer.schema.to_arrow_schema())
    except ArrowException:
        return []


def _field_id(field: pa.Field[Any]) -> int | None:
    found = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if found is None else int(found)


def _bound_decoder(column: ColumnSchema) -> Callable[[bytes], Any] | None:
    """Return a function to decode a column's bounds for comparison; ``None`` if the type isn't comparable."""
    described = json.loads(column.logical_type.to_json())
    kind, unit = described["Type"], described.get("timeUnit")
    if kind == "String":
        return bytes  # a long upper bound is truncated and its last character incremented, so it's still a bound
    is_number = kind in ("None", "Date") or (kind == "Int" and described["isSigned"]) or unit == "microseconds"
    if is_number and column.physical_type in ("INT32", "INT64"):
        return partial(int.from_bytes, byteorder="little", signed=True)
    return None


def _bounds(data: DataFile) -> Mapping[int, tuple[bytes, bytes]]:
    lower, upper = data.lower_bounds or {}, data.upper_bounds or {}
    return {key: (lower[key], upper[key]) for key in lower.keys() & upper.keys()}


def _read_flaw(file: NeededFile, error: InputError) -> Flaw:
    """Return the flaw of a file that couldn't be read; re-raise errors that aren't about the file itself."""
    if isinstance(error, (ConfigurationError, SourceError)):
        raise error
    return Flaw("missing-file" if isinstance(error, NotFoundError) else "unreadable-file", file, error.message)
