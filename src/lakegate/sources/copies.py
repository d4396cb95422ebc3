"""Copies of source files for the engine to read: as parquet, or in the warehouse's object store.

With parquet copies, each format has a single reader, and exactly the values that were checked are written. Nothing
depends on how another reader, on another machine, would parse the same text. Copies in the object store are for an
engine on another machine. All copies are deleted with their run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakegate.config import StorageSettings
from lakegate.errors import InputError, LakegateError, RetryableError, SchemaError, SourceError
from lakegate.model.batch import Batch, ColumnText, FileFormat, SourceColumn, SourceFile
from lakegate.model.types import common_type, type_differences
from lakegate.ports import Narrator
from lakegate.private_files import private_folder
from lakegate.sources.csv_types import INEXACT_IN_DOUBLE, MANY, Inference, infer, whole_numbers
from lakegate.sources.files import Located, from_uri, shown
from lakegate.sources.inspection import unreadable
from lakegate.sources.parquet import schema_problems
from lakegate.sources.rows import Rows
from lakegate.storage import open_store
from lakegate.storage.objects import ObjectStore, first_line

_EXACT_DIGITS = 15
"""Number of digits that a double always preserves."""
_WIDER = {
    frozenset({"int64", "double"}): "double",
    frozenset({"date32[day]", "timestamp[us]"}): "timestamp[us]",
}
_TEXTS = frozenset({"string", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]"})
"""Types inferred from text in JSON."""
_UPLOADS = ".lakegate-sources"
"""Folder in the warehouse for the uploads. ``lakegate admin gc`` deletes what killed processes left there."""
_ENDINGS = re.compile(r"(?:\.[A-Za-z0-9]{1,8}){1,2}$")


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A source file, and the parquet copy that was made of it.

    Attributes:
        stored: The columns as they are in the copy.
    """

    file: Located
    rows: int
    columns: tuple[SourceColumn, ...]
    copy: Path
    types: Sequence[Inference] = ()
    stored: tuple[SourceColumn, ...] = ()


Reader = Callable[[Located, Callable[[int], None]], Rows]
"""Reads a file, and calls the function with the number of bytes read, from any thread."""


def reader_of(kind: FileFormat) -> Reader:
    """Return the reader of a format: the ``read`` function of the module of its name in this package."""
    return cast("Reader", import_module(f"lakegate.sources.{kind}").read)


def copy_file(
    file: Located, read: Reader, folder: Path, on_read: Callable[[int], None]
) -> tuple[CopiedFile | None, Sequence[InputError]]:
    """Convert ``file`` to parquet, or return its problems.

    Args:
        folder: Where to write the copy.
        on_read: Called with the number of bytes read, from any thread.

    Raises:
        RetryableError: When the copy can't be written, for example because the disk is full.
    """
    path = shown(file.path)
    copy = folder / f"{sha256(file.uri.encode()).hexdigest()[:24]}.parquet"
    try:
        found = read(file, on_read)
        problems = list(schema_problems(path, found.schema))
        if problems:
            return None, problems
        rows = write(found.batches, found.schema, copy)
    except InputError as error:
        copy.unlink(missing_ok=True)
        return None, (error,)
    except RecursionError:
        message = f"'{path}' is nested too deeply."
        return None, (SourceError(message, hint="Write it with less nesting, or as text.", path=path),)
    except _NotWrittenError as error:
        raise RetryableError(  # the file isn't to blame
            f"'{path}' can't be copied to {copy.parent}: {error.strerror}.",
            hint="The copy is needed until the run ends. Free space there.",
            path=path,
        ) from error
    except OSError as error:
        copy.unlink(missing_ok=True)
        return None, (unreadable(path, error),)
    stored = tuple(SourceColumn(name=field.name, type=str(field.type)) for field in found.schema)
    return CopiedFile(file, rows, found.columns, copy, found.types, stored), ()


class _NotWrittenError(OSError):
    """A copy can't be written; its source may be fine."""


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _NotWrittenError(error.errno, error.strerror or str(error), error.filename) from error


def write(batches: Iterable[Any], schema: pa.Schema, target: Path) -> int:
    """Write Arrow tables or batches to a new parquet file, and return the number of rows."""
    rows = 0
    with _writing():
        private_folder(target.parent)
    # Rename at the end: two processes may work on the same run, and neither may read the other's incomplete file.
    unfinished = target.with_name(f".{target.name}.{token_hex(4)}")
    try:
        with _writing():
            writer = pq.ParquetWriter(unfinished, schema, store_schema=False)
        try:
            for batch in batches:
                table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
                with _writing():
                    writer.write_table(table if table.schema.equals(schema) else _cast(table, schema))
                rows += len(table)
        finally:
            with _writing():
                writer.close()
        with _writing():
            unfinished.replace(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        reason = first_line(str(error) or "a value doesn't fit")
        raise SourceError("A value can't be written.", hint="Correct the value.", detail=f"{reason}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a table without loss, except of fractions of microseconds, which no table can hold."""
    columns = [
        pc.floor_temporal(column, unit="microsecond") if str(field.type).startswith("timestamp[ns") else column
        for field, column in zip(table.schema, table.columns, strict=True)
    ]
    return pa.table(columns, names=table.schema.names).cast(schema, safe=True)


def number_texts(files: Sequence[CopiedFile]) -> tuple[ColumnText, ...]:
    """Return the sizes of the numbers in inferred columns, so that a table's type can't round them unnoticed.

    Also return what keeps text from being times.
    """
    found: dict[str, Inference] = {}
    names = {column.name.lower(): column.name for file in reversed(files) for column in file.columns}
    nested: dict[str, set[tuple[str, ...]]] = {}
    broken: set[str] = set()
    for file in files:
        flat = [column.name for column in file.columns if column.type in {"int64", "double"}]
        with pq.ParquetFile(file.copy) as copy:
            for name, *path in _beyond_int(copy):
                nested.setdefault(name, set()).update([tuple(path)] if path else ())
            for batch in copy.iter_batches(columns=flat) if flat else ():
                for name in flat:
                    numbers, known = batch.column(name), found.get(name.lower(), Inference())
                    is_whole = pa.types.is_int64(numbers.type)
                    if not is_whole and pc.all(pc.equal(pc.trunc(numbers), numbers)).as_py() is False:
                        broken.add(name.lower())
                    joined = known.join(whole_numbers(numbers)) if is_whole else infer(_spelled(numbers), known)
                    found[name.lower()] = joined
    flat_texts = (
        ColumnText(
            name=names[name],
            digits=one.digits,
            fraction=MANY if one.kind == "string" else one.fraction,
            beyond_int=one.kind == "int64" and one.beyond_int,
            whole=name not in broken,
        )
        for name, one in found.items()
        if one.digits or one.kind == "string"
    )
    nested_texts = (
        ColumnText(name=names[name], fields_beyond_int=tuple(sorted(paths))) for name, paths in nested.items() if paths
    )
    odd = {
        column.name.lower(): one.odd
        for file in files
        for column, one in zip(file.columns, file.types, strict=False)
        if one.odd
    }
    texts = (ColumnText(name=names[name], odd=value) for name, value in odd.items())
    return (*flat_texts, *nested_texts, *texts)


def _beyond_int(copy: Any) -> Iterator[tuple[str, ...]]:
    """Yield the paths, in lower case, of integers that need more than 32 bits, by the copy's own statistics."""
    paths = [path for field in copy.schema_arrow for path in _leaves(field.type, (field.name.lower(),))]
    for index in range(copy.metadata.num_row_groups):
        group = copy.metadata.row_group(index)
        for at, path in enumerate(paths):
            chunk = group.column(at)
            bounds = chunk.statistics
            if chunk.physical_type == "INT64" and bounds is not None and bounds.has_min_max:
                low, high = bounds.min, bounds.max
                if isinstance(low, int) and (low < -(2**31) or high >= 2**31):
                    yield path


def _leaves(kind: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the leaf columns of a parquet file, in its order."""
    if pa.types.is_list(kind):
        yield from _leaves(kind.value_type, (*path, "element"))
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type, (*path, field.name.lower()))
    else:
        yield path


def _spelled(numbers: Any) -> Any:
    """Return numbers as text, with an exponent only for tiny fractions and where a double doesn't keep all digits."""
    texts = pc.cast(numbers, pa.string())
    has_exponent = pc.match_substring(texts, "e+").fill_null(fill_value=False)
    if not pc.any(has_exponent).as_py():
        return texts
    exact = (Decimal(repr(number)) for number in numbers.filter(has_exponent).to_pylist())
    plain = [f"{one:e}" if len(one.normalize().as_tuple().digits) > _EXACT_DIGITS else f"{one:f}" for one in exact]
    return pc.replace_with_mask(texts, has_exponent, pa.array(plain, pa.string()))


def agreed(columns: Sequence[tuple[SourceColumn, ...]]) -> list[tuple[SourceColumn, ...]]:
    """Return the columns of each file. Text that is only dates or times in some of the files stays text in all.

    Example:
        >>> day, text = (SourceColumn(name="d", type=kind) for kind in ("date32[day]", "string"))
        >>> agreed([(day,), (text,)])[0]
        (SourceColumn(name='d', type='string'),)
    """
    types: dict[str, set[str]] = {}
    for column in (column for some in columns for column in some):
        types.setdefault(column.name.lower(), set()).add(column.type)

    def common(column: SourceColumn) -> SourceColumn:
        found = types[column.name.lower()] - {"null"}
        if column.type not in _TEXTS or not found <= _TEXTS or len(found) == 1:
            return column
        kind = "timestamp[us]" if found == {"date32[day]", "timestamp[us]"} else "string"
        return column.model_copy(update={"type": kind})

    return [tuple(common(column) for column in some) for some in columns]


def widened(columns: Sequence[tuple[SourceColumn, ...]]) -> list[tuple[SourceColumn, ...]]:
    """Return the columns of each file, with types widened to hold the values of all files."""
    types: dict[str, set[str]] = {}
    inside: dict[str, set[str]] = {}
    for column in (column for some in columns for column in some):
        types.setdefault(column.name.lower(), set()).add(column.type)
        if column.type != "null":
            inside.setdefault(column.name.lower(), set()).add(column.inferred or "")
    nested = {name: joined for name, some in inside.items() if (joined := _same_fields(some)) is not None}

    def wide(column: SourceColumn) -> SourceColumn:
        found = types[column.name.lower()] - {"null"}
        kind = next(iter(found)) if len(found) == 1 else _WIDER.get(frozenset(found), column.type)
        return column.model_copy(update={"type": nested.get(column.name.lower(), kind)})

    return [tuple(wide(column) for column in some) for some in columns]


def _same_fields(types: Collection[str]) -> str | None:
    """Return the nested type that holds the values of all types with the same fields; ``None`` if fields differ."""
    if len(types) < 2 or "" in types:
        return None
    wide = common_type(sorted(types))
    differ = (one for kind in types for one in type_differences(wide or kind, kind))
    return wide if wide and all(one.other is not None for one in differ) else None


def inexact(files: Sequence[CopiedFile], wide: Sequence[Sequence[SourceColumn]]) -> Iterator[SchemaError]:
    """Yield an error for each column with fractions in one file and integers too large for a double in another."""
    for file, columns in zip(files, wide, strict=True):
        doubles = {column.name for column in columns if column.type == "double"}
        names = [column.name for column in file.columns if column.type == "int64" and column.name in doubles]
        for name in names:
            bounds = pc.min_max(pq.read_table(file.copy, columns=[name]).column(0))
            largest = max(-bounds["min"].as_py(), bounds["max"].as_py())
            if largest > INEXACT_IN_DOUBLE:
                path = shown(file.file.path)
                yield SchemaError(
                    f"Column '{name}' has a number in '{path}', which a double would round, and fractions in another "
                    "file.",
                    hint="Write the numbers as text, or ingest the files separately.",
                    detail=f"The number is {largest}.",
                    path=path,
                    column=name,
                )


def upload(batch: Batch, warehouse: str, run_id: str, storage: StorageSettings, narrator: Narrator) -> Batch:
    """Copy the batch's local files to ``warehouse`` (a URI), and return the batch with the copies' URIs."""
    if not any(map(_is_local, batch.files)):
        return batch
    store, files = open_store(warehouse, storage), []
    folder = f"{warehouse.rstrip('/')}/{_UPLOADS}/{run_id}"
    with narrator.step(f"Copying {sum(map(_is_local, batch.files)):,} files to where the engine reads them") as step:
        for done, file in enumerate(batch.files, start=1):
            files.append(_upload_file(file, folder, store) if _is_local(file) else file)
            step.progress(done, len(batch.files), "files")
    return batch.only(tuple(files))


def _upload_file(file: SourceFile, folder: str, store: ObjectStore) -> SourceFile:
    path = from_uri(file.copy_uri or file.uri)
    ending = _ENDINGS.search(path)  # tells Spark the compression
    target = f"{folder}/{token_hex(8)}{ending[0] if ending else ''}"
    try:
        store.upload(target, Path(path))
    except OSError as error:
        raise SourceError(
            f"'{shown(path)}' can't be copied to {target}: {error.strerror or error}.",
            hint="The engine runs on another machine, and reads it there. Check your permissions on the warehouse.",
            path=shown(path),
        ) from error
    return file.model_copy(update={"copy_uri": target})


def drop_uploads(files: Sequence[SourceFile], storage: StorageSettings) -> None:
    """Delete the uploaded copies. If that fails, ``lakegate admin gc`` deletes them later."""
    uris = [file.copy_uri for file in files if file.copy_uri is not None and f"/{_UPLOADS}/" in file.copy_uri]
    if uris:
        with suppress(LakegateError, OSError):
            open_store(uris[0], storage).delete(uris)


def _is_local(file: SourceFile) -> bool:
    return (file.copy_uri or file.uri).startswith("file:")
