"""Rows of a table without an engine: PyIceberg plans and reads, through the stores' connections of lakegate."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyarrow import types
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.io import pyarrow as pyiceberg_arrow
from pyiceberg.io.pyarrow import ArrowScan, expression_to_pyarrow, schema_to_pyarrow
from pyiceberg.manifest import FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.metadata import TableMetadataUtil

from lakegate.errors import InputError
from lakegate.iceberg import metadata
from lakegate.iceberg.deletion_vectors import by_data_file, is_vector, positions
from lakegate.iceberg.files import TableFiles, only_spark, reading, reading_metadata
from lakegate.iceberg.manifests import read_list, read_manifest
from lakegate.iceberg.metadata import Document
from lakegate.iceberg.validation import MAIN
from lakegate.iceberg.where import find_column, parse_where
from lakegate.model.maintenance import DeletionVector
from lakegate.model.refs import NO_SNAPSHOT, TablePointer

_READABLE = (FileFormat.PARQUET, FileFormat.ORC)
_FILES_AHEAD = 4
_SMALL_BYTES = 8 << 20
_SMALL_ROWS = 200_000
_PLAIN: Mapping[str, Any] = {
    **dict.fromkeys(("large_string", "string_view"), pa.string()),
    **dict.fromkeys(("large_binary", "binary_view"), pa.binary()),
    # Spark and Iceberg have no unsigned numbers.
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
}


def _checksummed(kind: FileFormat, **options: Any) -> Any:
    """Return Arrow's format, which compares a parquet file's pages with their checksums: PyIceberg has no option."""
    more = {"page_checksum_verification": True} if kind == FileFormat.PARQUET else {}
    return _format_of(kind, **options, **more)


_format_of: Any = pyiceberg_arrow._get_file_format  # noqa: SLF001 - see above
pyiceberg_arrow._get_file_format = _checksummed  # type: ignore[assignment]  # noqa: SLF001 - see above


def open_scan(
    pointer: TablePointer,
    files: TableFiles,
    *,
    columns: Sequence[str] | None,
    where: str | None,
    limit: int | None,
) -> pa.RecordBatchReader:
    """Plan the reading of a table's rows, and return a reader of them.

    A few small files are read ahead; of large ones, a few batches are in memory at a time, however many rows the table
    has.

    Args:
        columns: Names of columns, or of fields in structs, in the order wanted; ``None`` for all.
        where: Row filter (:mod:`lakegate.iceberg.where`).

    Raises:
        InputError: A name, the filter or the limit is wrong, or the table holds what can't be read here without Spark.
        NotFoundError: A file of the table is missing; from reading, too.
    """
    most: object = limit  # users have no type checker
    if most is not None and (not isinstance(most, int) or most < 0):
        raise InputError(f"limit is {most!r}; it must be a whole number, 0 or more.")
    names = [columns] if isinstance(columns, str) else columns
    if not all(isinstance(one, str) for one in [*(names or ()), where or ""]):
        raise InputError("columns and where must be text.", hint="columns=['id', 'fare'], where='fare > 10'")
    found = files.metadata(pointer)
    snapshot = metadata.snapshot_of(found.document, pointer)  # raises when the file lacks it
    with reading_metadata(found, pointer):
        table = TableMetadataUtil.parse_obj(_at(found.document, pointer))
    schema = table.schema()
    wanted = schema if names is None else _selected(schema, names)
    row_filter = AlwaysTrue() if where is None else parse_where(where, schema)
    late = _Late(row_filter, schema, wanted) if _is_widened(row_filter, schema, found.document) else None
    if late is not None:
        row_filter = AlwaysTrue()
    file_io = _TableIO(files)
    with reading(f"A manifest of table {pointer.table}", pointer):
        try:
            tasks = list(DataScan(table, file_io, row_filter).plan_files())
        except ValueError as error:
            if "equality deletes" not in str(error):
                raise
            raise only_spark(pointer, "has equality deletes, which PyIceberg can't apply") from error
    for task in tasks:
        if task.file.file_format not in _READABLE:
            raise only_spark(pointer, f"has data files in the format {task.file.file_format.name}")
    has_vectors = any(is_vector(one) for task in tasks for one in task.delete_files)
    vectors = _vectors(snapshot, files, pointer) if snapshot is not None and has_vectors else {}
    scan = _Scan(
        ArrowScan(table, file_io, wanted if late is None else late.read, row_filter),
        pointer,
        plain_schema(schema_to_pyarrow(wanted, include_field_ids=False)),
        late,
        _Deletes(file_io, files, pointer, vectors),
    )
    return pa.RecordBatchReader.from_batches(scan.schema, scan.batches(tasks, limit))


class _Late:
    """A filter that is applied to the rows once they are of the table's types."""

    def __init__(self, row_filter: BooleanExpression, schema: Schema, wanted: Schema) -> None:
        bound = bind(schema, row_filter, case_sensitive=True)
        asked = {schema.find_column_name(field).partition(".")[0] for field in extract_field_ids(bound)}  # type: ignore[union-attr]  # it's bound
        names = {field.name for field in wanted.fields}
        more = (field for field in schema.fields if field.name in asked - names)
        self.read = Schema(*wanted.fields, *more, schema_id=schema.schema_id)
        self._types = plain_schema(schema_to_pyarrow(self.read, include_field_ids=False))
        self._condition = expression_to_pyarrow(bound, schema)

    def filtered(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch that the filter keeps."""
        yield from pa.Table.from_batches([batch.cast(self._types)]).filter(self._condition).to_batches()


def _is_widened(row_filter: BooleanExpression, schema: Schema, document: Document) -> bool:
    """Return whether a column of the filter had another type before.

    PyIceberg then narrows the filter's values to the type of each file: ``i < 3000000000`` becomes true of every row
    of a file with ``int``, of NULL, too.
    """
    asked = extract_field_ids(bind(schema, row_filter, case_sensitive=True))
    if not asked:
        return False
    every = [Schema.model_validate(one) for one in metadata.schemas(document)]
    return any(len({str(one.find_type(field)) for one in every if one.find_column_name(field)}) > 1 for field in asked)


class _Scan:
    """Reads planned files into batches of one schema."""

    def __init__(
        self, scan: ArrowScan, pointer: TablePointer, schema: pa.Schema, late: _Late | None, deletes: _Deletes
    ) -> None:
        self.schema = schema
        self._late = late
        self._scan = scan
        self._pointer = pointer
        self._deletes = deletes

    def batches(self, tasks: Sequence[FileScanTask], limit: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files in order, up to ``limit`` of them."""
        left = limit
        if left == 0:
            return
        for batch in self._in_order(tasks, ahead=_FILES_AHEAD if limit is None else 0):
            if left is None:
                yield batch
                continue
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
            if left == 0:
                return

    def _in_order(self, tasks: Sequence[FileScanTask], *, ahead: int) -> Iterator[pa.RecordBatch]:
        waiting: deque[tuple[FileScanTask, Future[list[pa.RecordBatch]] | None]] = deque()
        with ExitStack() as stack:
            pool = ThreadPoolExecutor(max(ahead, 1), thread_name_prefix="lakegate-scan")
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            for task in tasks:
                is_read_ahead = ahead and _is_small(task)
                waiting.append((task, pool.submit(lambda one: list(self._of(one)), task) if is_read_ahead else None))
                if len(waiting) > ahead:
                    yield from self._next(waiting)
            while waiting:
                yield from self._next(waiting)

    def _next(
        self, waiting: deque[tuple[FileScanTask, Future[list[pa.RecordBatch]] | None]]
    ) -> Iterator[pa.RecordBatch]:
        task, read = waiting.popleft()
        yield from self._of(task) if read is None else read.result()

    def _of(self, task: FileScanTask) -> Iterator[pa.RecordBatch]:
        with reading(f"Data file {task.file.file_path} of table {self._pointer.table}", self._pointer):
            # PyIceberg's public ways hold all batches of a file at once, and start to read all files.
            scan: Any = self._scan
            deletes = self._deletes.of(task)
            for batch in scan._record_batches_from_scan_tasks_and_deletes([task], deletes):  # noqa: SLF001 - see above
                for kept in (batch,) if self._late is None else self._late.filtered(batch):
                    yield kept.select(self.schema.names).cast(self.schema)


class _Deletes:
    """Reads which rows of a planned file are deleted."""

    def __init__(
        self, file_io: FileIO, files: TableFiles, pointer: TablePointer, vectors: Mapping[str, DeletionVector]
    ) -> None:
        self._io = file_io
        self._files = files
        self._pointer = pointer
        self._vectors = vectors

    def of(self, task: FileScanTask) -> dict[str, list[Any]]:
        """Return the places of a file's deleted rows, by its path."""
        vector = self._vectors.get(task.file.file_path)
        # PyIceberg's plan knows by sequence number which files of deletes apply, but not which vectors in them.
        if vector is not None and any(one.file_path == vector.path for one in task.delete_files):
            with reading(f"Deletion vector {vector.path} of table {self._pointer.table}", self._pointer):
                places = positions(vector, self._files.open)
            return {vector.target: [pa.chunked_array([pa.array(places.to_array(), pa.int64())])]}
        others = {one for one in task.delete_files if not is_vector(one)}
        if not others:
            return {}
        from pyiceberg.io.pyarrow import _read_all_delete_files

        found: dict[str, list[Any]] = _read_all_delete_files(self._io, [FileScanTask(task.file, others)])
        return found


def _vectors(snapshot: Document, files: TableFiles, pointer: TablePointer) -> Mapping[str, DeletionVector]:
    """Return a snapshot's deletion vectors by their data files: PyIceberg's manifest entries lack their places."""
    lines = files.read("Manifest list", str(snapshot.get("manifest-list")), pointer, read_list).manifests
    with reading(f"A manifest of table {pointer.table}", pointer):
        return by_data_file(
            entry.data_file
            for line in lines
            if line.file.content == ManifestContent.DELETES
            for entry in files.read("Manifest", line.file.manifest_path, pointer, read_manifest)
            if entry.status != ManifestEntryStatus.DELETED
        )


def _is_small(task: FileScanTask) -> bool:
    return task.file.file_size_in_bytes <= _SMALL_BYTES and task.file.record_count <= _SMALL_ROWS


def _at(document: Document, pointer: TablePointer) -> dict[str, Any]:
    """Return the metadata with that current which the catalog names, whatever the file itself has for it."""
    refs = {name: ref for name, ref in (document.get("refs") or {}).items() if name != MAIN}
    current = None if pointer.snapshot_id == NO_SNAPSHOT else pointer.snapshot_id
    if current is not None:
        refs[MAIN] = {"snapshot-id": current, "type": "branch"}
    return {
        **document,
        "current-schema-id": metadata.schema_id(document, pointer),
        "current-snapshot-id": current,
        "refs": refs,
    }


def _selected(schema: Schema, columns: Sequence[str]) -> Schema:
    names = [find_column(schema, name) for name in columns]
    top = [name for name in names if name in {field.name for field in schema.fields}]
    if len(top) < len(names):
        nested = next(name for name in names if name not in top)
        raise InputError(
            f"'{nested}' is a field of a struct; only whole columns can be selected.",
            hint=f"Select '{nested.partition('.')[0]}'.",
            column=nested,
        )
    twice = next((name for name in top if top.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"Column '{twice}' is selected twice.", column=twice)
    if not top:
        raise InputError("No column is selected.", hint="Leave out columns to read all of them.")
    by_name = {field.name: field for field in schema.fields}
    return Schema(*(by_name[name] for name in top), schema_id=schema.schema_id)


class _TableIO(FileIO):
    """PyIceberg's access to files, read-only, with lakegate's credentials, retries and errors."""

    def __init__(self, files: TableFiles) -> None:
        super().__init__()
        self._files = files

    def new_input(self, location: str) -> InputFile:
        return _TableFile(location, self._files)

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError


class _TableFile(InputFile):
    def __init__(self, location: str, files: TableFiles) -> None:
        super().__init__(location)
        self._files = files

    def __len__(self) -> int:
        with self.open() as stream:
            return stream.seek(0, 2)

    def exists(self) -> bool:
        return self._files.exists(self.location)

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - PyIceberg's interface
        stream: InputStream = self._files.open(self.location)
        return stream


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with :func:`plain_type` for each column, without metadata."""
    return pa.schema([_plain_field(field) for field in schema])


def plain_type(kind: Any) -> Any:
    """Return the type that holds the same values: no large or view types, no dictionaries, signed numbers.

    Fields in it may be NULL: Arrow casts no struct that is NULL if one of its fields may not be.

    What Arrow has in one form only, and ``uint64``, which nothing wider holds, stays as it is.

    Example:
        >>> plain_type(pa.large_list(pa.dictionary(pa.int8(), pa.large_string())))
        ListType(list<item: string>)
        >>> plain_type(pa.struct([("n", pa.uint32())]))
        StructType(struct<n: int64>)
    """
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(_nested(kind.value_field))
    if types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _nested(kind.item_field))
    if types.is_struct(kind):
        return pa.struct([_nested(kind.field(at)) for at in range(kind.num_fields)])
    return _PLAIN.get(str(kind), kind)


def _nested(field: Any) -> Any:
    return pa.field(field.name, plain_type(field.type))


def _plain_field(field: Any) -> Any:
    return pa.field(field.name, plain_type(field.type), nullable=field.nullable)
