"""Read a table's rows without an engine: PyIceberg plans and reads, through lakegate's connections to the stores."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or, UnboundPredicate
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, extract_field_ids, rewrite_not
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.io.pyarrow import ArrowScan, expression_to_pyarrow, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    StructType,
    UUIDType,
)
from pyparsing import ParseBaseException

from lakegate.errors import InputError
from lakegate.iceberg import metadata
from lakegate.iceberg.arrow_types import plain_schema
from lakegate.iceberg.files import (
    TableFiles,
    metadata_errors,
    needs_spark_error,
    read_errors,
    require_manifest_list,
)
from lakegate.iceberg.metadata import Document
from lakegate.iceberg.validation import MAIN_BRANCH
from lakegate.model.quarantine import REASONS, is_quarantine
from lakegate.model.refs import NO_SNAPSHOT, TablePointer
from lakegate.model.words import did_you_mean

_READABLE = (FileFormat.PARQUET, FileFormat.ORC)
_WIDE = (DecimalType, DoubleType, LongType)
"""Types that a column may have got from a narrower one."""
_MAX_COLUMNS_SHOWN = 20
_FILES_AHEAD = 4
_SMALL_BYTES = 8 << 20
_SMALL_ROWS = 200_000


def open_scan(
    pointer: TablePointer,
    files: TableFiles,
    *,
    columns: Sequence[str] | None,
    where: str | None,
    limit: int | None,
) -> pa.RecordBatchReader:
    """Plan a scan of a table, and return a reader of its rows.

    Memory use is bounded, however large the table is: a few small files are read ahead, and large files are streamed.

    Args:
        columns: Columns to read, in this order; ``None`` for all.
        where: Row filter in PyIceberg's language, such as ``fare > 10 AND vendor IN ('a', 'b')``.
        limit: The most rows to read; ``None`` for all.

    Raises:
        InputError: When a name, the filter or the limit is invalid, or only Spark can read the table.
        NotFoundError: When a file of the table is missing. The reader may raise it, too.
    """
    most: object = limit  # users may pass anything
    if most is not None and (not isinstance(most, int) or most < 0):
        raise InputError(f"limit is {most!r}; it must be a whole number, 0 or more.")
    names = [columns] if isinstance(columns, str) else columns
    if not all(isinstance(one, str) for one in [*(names or ()), where or ""]):
        raise InputError("columns and where must be text.", hint="Example: columns=['id', 'fare'], where='fare > 10'")
    found = files.metadata(pointer)
    snapshot = metadata.snapshot_of(found.document, pointer)  # raises if the metadata file doesn't have it
    if snapshot is not None:
        require_manifest_list(snapshot, pointer)
    with metadata_errors(found, pointer):
        table = TableMetadataUtil.parse_obj(_pinned(found.document, pointer))
    schema = table.schema()
    wanted = schema if names is None else _select(schema, names)
    _require_kept_nulls(wanted, pointer)
    row_filter = AlwaysTrue() if where is None else parse_filter(where, schema)
    is_changed = _filters_changed_column(row_filter, schema, found.document)
    planned = AlwaysTrue() if is_changed else row_filter
    pushed_down = _without_floats(planned, schema)
    post_filter = None if pushed_down == row_filter else _PostFilter(row_filter, schema, wanted)
    file_io = _TableIO(files)
    with read_errors(f"A manifest of table {pointer.table}", pointer):
        try:
            tasks = list(DataScan(table, file_io, planned, case_sensitive=False).plan_files())
        except ValueError as error:
            if "equality deletes" not in str(error):
                raise
            raise needs_spark_error(pointer, "has equality deletes, which PyIceberg can't apply") from error
    for task in tasks:
        if task.file.file_format not in _READABLE:
            raise needs_spark_error(pointer, f"has data files in the format {task.file.file_format.name}")
    if snapshot is not None and any(map(_is_in_nan, tasks)) and _has_deletes(snapshot, files, pointer):
        raise needs_spark_error(pointer, "has deletes in a partition of NaN, which PyIceberg doesn't apply")
    scan = _RowReader(
        ArrowScan(table, file_io, post_filter.read if post_filter else wanted, pushed_down, case_sensitive=False),
        pointer,
        plain_schema(schema_to_pyarrow(wanted, include_field_ids=False)),
        post_filter,
        _DeletedRows(file_io, pointer),
    )
    return pa.RecordBatchReader.from_batches(scan.schema, scan.batches(tasks, limit))


def parse_filter(text: str, schema: Schema) -> BooleanExpression:
    """Parse a row filter in PyIceberg's language, without NOT around comparisons.

    Raises:
        InputError: When it's invalid, names an unknown column, or compares one with a value of another type.

    Example:
        >>> from pyiceberg.types import LongType, NestedField
        >>> parse_filter("NOT id > 7", Schema(NestedField(1, "id", LongType())))  # doctest: +ELLIPSIS
        LessThanOrEqual(...id...7...)
    """
    try:
        found = rewrite_not(parse(text))
        filtered = extract_field_ids(bind(schema, found, case_sensitive=False))
        for name in map(schema.find_column_name, filtered):
            _require_filterable(schema, str(name))
    except (ParseBaseException, ValueError, TypeError, NotImplementedError, RecursionError) as error:
        why = "it isn't a comparison" if isinstance(error, ParseBaseException) else str(error).rstrip(".")
        raise InputError(
            f"Can't use the filter {text[:200]!r}: {why}.",
            hint="A filter compares columns with values: fare > 10, vendor IN ('a', 'b'), name LIKE 'New%', "
            "pickup >= '2024-01-31T07:00:00', tip IS NOT NULL. Combine comparisons with AND, OR, NOT and parentheses. "
            f"For anything else, use lake.query(), which takes SQL. {_columns_of(schema)}",
        ) from None
    return found


def _require_filterable(schema: Schema, name: str) -> None:
    """Refuse a column by which PyIceberg can't filter, though it binds a filter to it."""
    parts = name.split(".")
    around = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
    fields = [schema.find_field(one) for one in around if one in schema.column_names]
    if any("." in field.name for field in fields):
        raise ValueError(f"the name of column '{name}' has a dot, and PyIceberg can't filter by such columns")
    if not fields[-1].field_type.is_primitive or isinstance(fields[-1].field_type, UUIDType):
        raise ValueError(f"column '{name}' has type {fields[-1].field_type}, by which PyIceberg can't filter")


def find_column(schema: Schema, name: str) -> str:
    """Return the full name of a column or a struct's field as the schema spells it. An exact match wins.

    Raises:
        InputError: When there is none, or several that differ only by case. It suggests the most similar name.
    """
    known = schema.column_names
    found = [name] if name in known else [one for one in known if one.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    raise InputError(
        f"The table has {'several columns' if found else 'no column'} '{name}'.",
        hint=did_you_mean(name, known) + _columns_of(schema),
        column=name,
    )


def _columns_of(schema: Schema) -> str:
    top = [field.name for field in schema.fields[:_MAX_COLUMNS_SHOWN]]
    more = f" and {len(schema.fields) - _MAX_COLUMNS_SHOWN} more" if len(schema.fields) > _MAX_COLUMNS_SHOWN else ""
    return f"Its columns: {', '.join(top)}{more}."


def _require_kept_nulls(wanted: Schema, pointer: TablePointer) -> None:
    """Refuse lists and maps of structs that may be NULL: PyIceberg 0.12 reads a NULL there as an empty list or map."""
    for field in wanted.fields:
        is_reasons = field.name == REASONS and is_quarantine(pointer.table)  # lakegate's own list, which is never NULL
        if not is_reasons and _loses_nulls(field.field_type, is_required=field.required):
            raise needs_spark_error(
                pointer, f"has column '{field.name}', in which PyIceberg would read a NULL list or map as an empty one"
            )


def _loses_nulls(kind: IcebergType, *, is_required: bool) -> bool:
    if isinstance(kind, StructType):
        return any(_loses_nulls(field.field_type, is_required=field.required) for field in kind.fields)
    if isinstance(kind, ListType):
        inner, is_inner_required = kind.element_type, kind.element_required
    elif isinstance(kind, MapType):
        inner, is_inner_required = kind.value_type, kind.value_required
        if _loses_nulls(kind.key_type, is_required=True):
            return True
    else:
        return False
    return (isinstance(inner, StructType) and not is_required) or _loses_nulls(inner, is_required=is_inner_required)


def _is_in_nan(task: FileScanTask) -> bool:
    values = (task.file.partition[at] for at in range(len(task.file.partition)))
    return any(isinstance(value, float) and math.isnan(value) for value in values)


def _has_deletes(snapshot: Document, files: TableFiles, pointer: TablePointer) -> bool:
    lines = files.manifest_list(snapshot, pointer).manifests
    return any(line.file.content == ManifestContent.DELETES for line in lines)


class _PostFilter:
    """Filters rows after they are cast to the table's types."""

    def __init__(self, row_filter: BooleanExpression, schema: Schema, wanted: Schema) -> None:
        bound = bind(schema, row_filter, case_sensitive=False)
        filtered = {schema.find_column_name(field).partition(".")[0] for field in extract_field_ids(bound)}  # type: ignore[union-attr]  # it's bound
        names = {field.name for field in wanted.fields}
        more = (field for field in schema.fields if field.name in filtered - names)
        self.read = Schema(*wanted.fields, *more, schema_id=schema.schema_id)
        self._types = plain_schema(schema_to_pyarrow(self.read, include_field_ids=False))
        self._condition = expression_to_pyarrow(bound, schema)

    def filtered(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch that the filter keeps."""
        yield from pa.Table.from_batches([batch.cast(self._types)]).filter(self._condition).to_batches()


def _without_floats(row_filter: BooleanExpression, schema: Schema) -> BooleanExpression:
    """Return a filter that keeps at least the same rows, without comparisons of floats.

    Arrow skips row groups by their bounds, in which many writers ignore NaN. If a row group has 5.0 and NaN, Arrow
    believes that every value is 5.0, and finds no value that is NaN or differs from 5.0.
    """
    if isinstance(row_filter, (And, Or)):
        return type(row_filter)(*(_without_floats(part, schema) for part in (row_filter.left, row_filter.right)))
    if not isinstance(row_filter, UnboundPredicate):
        return row_filter
    kind = row_filter.term.bind(schema, case_sensitive=False).ref().field.field_type
    return AlwaysTrue() if isinstance(kind, (FloatType, DoubleType)) else row_filter


def _filters_changed_column(row_filter: BooleanExpression, schema: Schema, document: Document) -> bool:
    """Return whether some files may store a column of the filter with a narrower type, or lack one with a default.

    PyIceberg narrows the filter's values to each file's type: on a file with ``int``, ``i < 3000000000`` becomes true
    for every row, even for NULL. And it compares a default as the text in the metadata.
    """
    filtered = extract_field_ids(bind(schema, row_filter, case_sensitive=False))
    if not filtered:
        return False
    every = [Schema.model_validate(one) for one in metadata.schemas(document)]
    is_unsure = metadata.lacks_schemas(document)
    return any(
        schema.find_field(field).initial_default is not None
        or (is_unsure and isinstance(schema.find_type(field), _WIDE))
        or len({str(one.find_type(field)) for one in every if one.find_column_name(field)}) > 1
        for field in filtered
    )


@dataclass(frozen=True, slots=True)
class _RowReader:
    """Reads planned files into batches of one schema."""

    scan: ArrowScan
    pointer: TablePointer
    schema: pa.Schema
    post_filter: _PostFilter | None
    deletes: _DeletedRows

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
                is_small = task.file.file_size_in_bytes <= _SMALL_BYTES and task.file.record_count <= _SMALL_ROWS
                read = pool.submit(lambda one: list(self._read_file(one)), task) if ahead and is_small else None
                waiting.append((task, read))
                if len(waiting) > ahead:
                    yield from self._read_next(waiting)
            while waiting:
                yield from self._read_next(waiting)

    def _read_next(
        self, waiting: deque[tuple[FileScanTask, Future[list[pa.RecordBatch]] | None]]
    ) -> Iterator[pa.RecordBatch]:
        task, read = waiting.popleft()
        yield from self._read_file(task) if read is None else read.result()

    def _read_file(self, task: FileScanTask) -> Iterator[pa.RecordBatch]:
        with read_errors(f"Data file {task.file.file_path} of table {self.pointer.table}", self.pointer):
            # PyIceberg's public methods hold all batches of a file in memory, and start reading all files at once.
            scan: Any = self.scan
            deletes = self.deletes.of(task)
            for batch in scan._record_batches_from_scan_tasks_and_deletes([task], deletes):  # noqa: SLF001 - see above
                for kept in (batch,) if self.post_filter is None else self.post_filter.filtered(batch):
                    yield kept.select(self.schema.names).cast(self.schema)


class _DeletedRows:
    """Finds the deleted rows of planned files."""

    def __init__(self, file_io: FileIO, pointer: TablePointer) -> None:
        self._file_io = file_io
        self._pointer = pointer
        self._vectors: dict[str, Mapping[str, list[Any]]] = {}

    def of(self, task: FileScanTask) -> dict[str, list[Any]]:
        """Return the positions of a file's deleted rows, keyed by its path."""
        path, positions = task.file.file_path, list[Any]()
        for delete in task.delete_files:
            with read_errors(f"Delete file {delete.file_path} of table {self._pointer.table}", self._pointer):
                positions += self._read(task, delete).get(path, ())
        return {path: positions} if positions else {}

    def _read(self, task: FileScanTask, delete: DataFile) -> Mapping[str, list[Any]]:
        """Return the positions in a delete file by data file. A Puffin file, with vectors of many, is read once."""
        from pyiceberg.io.pyarrow import _read_all_delete_files

        found = self._vectors.get(delete.file_path)
        if found is None:
            found = _read_all_delete_files(self._file_io, [FileScanTask(task.file, {delete})])
            if delete.file_format == FileFormat.PUFFIN:
                self._vectors[delete.file_path] = found
        return found


def _pinned(document: Document, pointer: TablePointer) -> dict[str, Any]:
    """Return the metadata with the catalog's snapshot and schema as the current ones, whatever the file says."""
    refs = {name: ref for name, ref in (document.get("refs") or {}).items() if name != MAIN_BRANCH}
    current = None if pointer.snapshot_id == NO_SNAPSHOT else pointer.snapshot_id
    if current is not None:
        refs[MAIN_BRANCH] = {"snapshot-id": current, "type": "branch"}
    return {
        **document,
        "current-schema-id": metadata.schema_id(document, pointer),
        "current-snapshot-id": current,
        "refs": refs,
    }


def _select(schema: Schema, columns: Sequence[str]) -> Schema:
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
    """Read-only file IO for PyIceberg, with lakegate's credentials, retries and errors."""

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
