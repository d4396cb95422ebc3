"""Finds the files that paths name: checks and describes them as one batch, or only lists them."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, compress, islice
from pathlib import Path
from typing import TypeVar

from lakegate.config import StorageSettings
from lakegate.errors import InputError, SchemaError, SourceError
from lakegate.model.batch import (
    Batch,
    CsvOptions,
    FileColumns,
    FileFormat,
    LeftOut,
    SourceColumn,
    SourceFile,
    merged_columns,
)
from lakegate.ports import Narrator
from lakegate.sources import local, remote
from lakegate.sources.copies import CopiedFile, agreed, copy_file, inexact, number_texts, reader_of, widened
from lakegate.sources.csv import column_texts, common_columns, common_types, copy_csv, normalise_options
from lakegate.sources.files import LocalFile, Located, find_now, shown, to_uri
from lakegate.sources.inspection import (
    FORMATS,
    Inspected,
    combine,
    detect,
    difference_problems,
    shape,
    twin_problems,
    unreadable,
)
from lakegate.sources.listing import Wanted, local_tables
from lakegate.sources.parquet import ParquetInspection, inspect_parquet
from lakegate.storage.objects import is_remote

_FOOTER_THREADS = 16
_CSV_THREADS = 4
_STAMP_THREADS = 16
_MANY_FILES = 20
_MANY_BYTES = 64 << 20
_T = TypeVar("_T")
_FILES_IN_A_TURN = 500


def discover(
    paths: Sequence[str],
    *,
    format: FileFormat | None = None,
    csv: CsvOptions | None = None,
    storage: StorageSettings | None = None,
    narrator: Narrator | None = None,
    may_differ: bool = False,
    copies: Path | None = None,
) -> Batch:
    """Find the files that ``paths`` name, check them, and return them as one batch.

    Parquet files are checked by their footers. Files of other formats are read completely, and converted to parquet.
    The types of CSV columns are inferred from all values. Empty CSV values, quoted or not, and ``csv.null_values``
    always mean NULL.

    Args:
        paths: Files, globs (``*``, ``**``, ``?``, ``[]``), folders (searched recursively), ``file:`` URIs, or the same
            in an object store (``s3://bucket/prefix/*.parquet``, ``gs://…``, ``abfss://…``). A file that is found under
            several names counts once.
        format: The format of the files; ``None`` to detect it from their names and first bytes.
        csv: How to read CSV files.
        storage: How to reach the object stores; ``None`` for the variables and profiles of their own tools.
        narrator: Gets the progress if there are many or large files.
        may_differ: Accept files with different columns.
        copies: Folder for the converted files; ``None`` for a temporary one.

    Returns:
        A batch with its files sorted by path. URIs are those of :func:`~lakegate.sources.files.to_uri`, or
        ``s3://bucket/key``. A file's ``version`` is the hash of its content, or its entity tag in an object store. CSV
        options are normalised (see :func:`~lakegate.sources.csv.normalise_options`).

    Raises:
        InputError: When a path or option is invalid.
        SourceError: When files are missing, damaged, or not in the expected format.
        SchemaError: When the columns of a file aren't supported, or differ between files. In all cases, one error lists
            all problems of the batch.
        RetryableError: When a converted file can't be written, or a store can't be reached.
    """
    if not paths:
        raise InputError(
            "No source files were given.", hint="Pass a file, a folder or a glob such as 'data/*.parquet'."
        )
    stores = storage or StorageSettings()
    wanted = Wanted(format)
    files, problems = _resolve(paths, wanted, stores)
    formats = _formats(files, format, problems)
    examples = {kind: shown(file.path) for file, kind in formats.items()}
    if len(examples) > 1:
        each = " and ".join(f"'{path}' is {FORMATS[kind].name}" for kind, path in list(examples.items())[:2])
        problems.append(
            SourceError(
                f"The batch mixes formats: {each}.",
                hint="Ingest them separately, or choose one with --format.",
            )
        )
    kind: FileFormat = next(iter(examples), "parquet")
    same = tuple(file for file, found in formats.items() if found == kind)
    if kind == "parquet":
        batch = _parquet_batch(same, narrator, problems, may_differ=may_differ)
    else:
        folder = copies or Path(tempfile.mkdtemp(prefix="lakegate-"))
        if kind == "csv":
            options = normalise_options(csv, same)
            differ = may_differ and options.header
            batch = _csv_batch(same, options, folder, stores, narrator, problems, may_differ=differ)
        else:
            batch = _copied_batch(kind, same, folder, stores, narrator, problems, may_differ=may_differ)
    if batch is None or problems:
        raise combine(problems)
    return batch.model_copy(update={"left_out": tuple(wanted.left_out.values())})


def require_csv(csv: CsvOptions | None, batch: Batch) -> None:
    """Refuse CSV options for files of another format, where they would have no effect."""
    if csv is None or csv == CsvOptions() or batch.format == "csv":
        return
    raise InputError(
        f"You passed options for CSV, but '{batch.uris[0]}' is {FORMATS[batch.format].name}.",
        hint="Remove them, or pass --format csv to read a text file of any name as CSV. For a table that exists, text "
        "in JSON is parsed as the column's type.",
    )


def changed_files(batch: Batch, storage: StorageSettings | None = None) -> Sequence[SourceFile]:
    """Return the files of ``batch`` that are gone, or whose content may have changed."""
    stores = storage or StorageSettings()

    def has_changed(file: SourceFile) -> bool:
        if file.copy_uri is not None and find_now(file.copy_uri, stores) is None:
            return True
        now = find_now(file.uri, stores)
        return now is None or now.stamp != file.stamp or not now.has_version(file.version)

    # Concurrently, because each look is a request in an object store.
    with ThreadPoolExecutor(_STAMP_THREADS, thread_name_prefix="lakegate-stamps") as pool:
        return list(compress(batch.files, pool.map(has_changed, batch.files)))


def _resolve(
    paths: Sequence[str], wanted: Wanted, storage: StorageSettings
) -> tuple[tuple[Located, ...], list[InputError]]:
    """Return the files that ``paths`` name, each once, local ones first, and the problems with the paths."""
    found, problems = local.resolve([path for path in paths if not is_remote(path)], wanted)
    if tables := tuple(local_tables(found)):
        raise combine(tables)
    in_stores = [path for path in paths if is_remote(path)]
    if not in_stores:
        return found, problems
    objects, more = remote.resolve(in_stores, wanted, storage)
    return (*found, *objects), [*problems, *more]


def _formats(
    files: Sequence[Located], given: FileFormat | None, problems: list[InputError]
) -> dict[Located, FileFormat]:
    def look(file: Located) -> FileFormat | SourceError:
        try:
            return detect(file, given)
        except SourceError as error:
            return error

    found = dict(zip(files, _in_threads(look, files, _FOOTER_THREADS), strict=True))
    problems.extend(what for what in found.values() if isinstance(what, SourceError))
    return {file: what for file, what in found.items() if not isinstance(what, SourceError)}


def _parquet_batch(
    files: Sequence[Located], narrator: Narrator | None, problems: list[InputError], *, may_differ: bool
) -> Batch | None:
    with _progress(narrator, files, "files") as advance:

        def inspect(file: Located) -> tuple[ParquetInspection | None, Sequence[InputError]]:
            found = inspect_parquet(file)
            advance(1)
            return found

        inspections = _good(_in_threads(inspect, files, _FOOTER_THREADS), problems)
    problems.extend(() if may_differ else difference_problems(inspections, ordered=False))
    problems.extend(twin_problems(inspections))
    problems.extend(_partition_problems(inspections))
    if problems or not inspections:
        return None
    return Batch(
        format="parquet",
        files=_described(inspections, narrator),
        columns=merged_columns(each.columns for each in inspections),
        variants=_variants(inspections, [each.columns for each in inspections], ordered=False),
    )


def _csv_batch(
    files: Sequence[Located],
    options: CsvOptions,
    folder: Path,
    storage: StorageSettings,
    narrator: Narrator | None,
    problems: list[InputError],
    *,
    may_differ: bool,
) -> Batch | None:
    with _progress(narrator, files, "bytes", "Reading") as advance:
        results = _in_threads(lambda file: copy_csv(file, options, folder, advance), files, _CSV_THREADS)
    inspections = _good(results, problems)
    problems.extend(() if may_differ else difference_problems(inspections, ordered=True))
    problems.extend(twin_problems(inspections))
    problems.extend(_partition_problems(inspections))
    problems.extend(_changed(inspections, storage))
    if problems or not inspections:
        return None
    types = common_types(inspections)
    columns = common_columns(inspections, types, options.types)
    return Batch(
        format="csv",
        texts=column_texts(inspections, types, options),
        files=_with_copies(inspections, narrator),
        columns=merged_columns(columns),
        csv=options,
        variants=_apart(inspections, [each.stored for each in inspections], columns, ordered=True),
    )


def _copied_batch(
    kind: FileFormat,
    files: Sequence[Located],
    folder: Path,
    storage: StorageSettings,
    narrator: Narrator | None,
    problems: list[InputError],
    *,
    may_differ: bool,
) -> Batch | None:
    read = reader_of(kind)
    with _progress(narrator, files, "bytes", "Reading") as advance:
        results = _in_threads(lambda file: copy_file(file, read, folder, advance), files, _CSV_THREADS)
    inspections = _good(results, problems)
    inferred = kind in {"json", "excel"}
    own = [each.columns for each in inspections]
    # Only JSON has text that may be parsed as another type.
    columns = agreed(own) if kind == "json" else own
    # An inferred type may be narrower in one file than in another. That isn't a difference.
    wide = widened(columns) if inferred else columns
    compared = [replace(each, columns=has) for each, has in zip(inspections, wide, strict=True)]
    columns = [
        tuple(mine if mine.type == "null" else its for mine, its in zip(has, wider, strict=True))
        for has, wider in zip(columns, wide, strict=True)
    ]
    problems.extend(inexact(inspections, wide))
    found = [replace(each, columns=has) for each, has in zip(inspections, columns, strict=True)]
    problems.extend(() if may_differ else difference_problems(compared, ordered=False))
    problems.extend(twin_problems(inspections))
    problems.extend(_partition_problems(found))
    problems.extend(_changed(found, storage))
    if problems or not found:
        return None
    return Batch(
        format=kind,
        texts=number_texts(found) if inferred else (),
        files=_with_copies(found, narrator),
        columns=merged_columns(columns),
        variants=_apart(inspections, own, columns, ordered=False),
    )


def _changed(inspections: Sequence[Inspected], storage: StorageSettings) -> Iterator[SourceError]:
    """Yield an error for each file that changed while it was read."""
    for file in (each.file for each in inspections):
        now = find_now(file.uri, storage)
        if now is None or now.stamp != file.stamp:
            yield _changed_error(file)


def _changed_error(file: Located) -> SourceError:
    path = shown(file.path)
    return SourceError(
        f"'{path}' changed while it was read.",
        hint="Nothing was ingested. Wait until the file is complete, then try again.",
        path=path,
    )


def _variants(
    inspections: Sequence[Inspected], columns: Sequence[tuple[SourceColumn, ...]], *, ordered: bool
) -> tuple[FileColumns, ...]:
    """Group the files by their columns; return nothing if all have the same columns."""
    uris: dict[tuple[SourceColumn, ...], list[str]] = {}
    for inspection, has in zip(inspections, columns, strict=True):
        uris.setdefault(has, []).append(inspection.file.uri)
    by_columns = (FileColumns(columns=has, uris=tuple(some)) for has, some in uris.items())
    # The inferred types count, because lists without
    # values and lists of text have the same type in a file, but not in a table.
    shapes = {
        (shape(has, ordered=ordered, exact=True), frozenset((one.name.lower(), one.inferred) for one in has))
        for has in uris
    }
    return tuple(by_columns) if len(shapes) > 1 else ()


def _apart(
    files: Sequence[CopiedFile],
    stored: Sequence[tuple[SourceColumn, ...]],
    columns: Sequence[tuple[SourceColumn, ...]],
    *,
    ordered: bool,
) -> tuple[FileColumns, ...]:
    """Group the files by what is ``stored`` in their copies: types may differ though they become one in ``columns``."""
    settled = {each.file.uri: has for each, has in zip(files, columns, strict=True)}
    groups = _variants(files, stored, ordered=ordered)
    return tuple(one.model_copy(update={"columns": settled[one.uris[0]]}) for one in groups)


def _with_copies(files: Sequence[CopiedFile], narrator: Narrator | None) -> tuple[SourceFile, ...]:
    """Describe the files, each with its content version and copy."""
    copies = {each.file.uri: to_uri(each.copy) for each in files}
    return tuple(file.model_copy(update={"copy_uri": copies[file.uri]}) for file in _described(files, narrator))


def _described(
    inspections: Sequence[ParquetInspection] | Sequence[CopiedFile], narrator: Narrator | None
) -> tuple[SourceFile, ...]:
    """Describe the files, each with its content version."""
    rows = {each.file: each.rows for each in inspections}
    with _progress(narrator, tuple(rows), "bytes", "Fingerprinting") as advance:

        def describe(file: Located) -> SourceFile:
            try:
                version = file.content_version()
            except OSError as error:
                raise unreadable(shown(file.path), error) from error
            if file.has_changed():  # so its rows and its version may be those of different contents
                raise _changed_error(file)
            advance(file.size_bytes)
            return SourceFile(
                uri=file.uri,
                size_bytes=file.size_bytes,
                version=version,
                stamp=file.stamp,
                rows=rows[file],
                version_id=file.version_id,
                aliases=() if file.found_uri == file.uri else (file.found_uri,),
            )

        return tuple(_in_threads(describe, tuple(rows), _FOOTER_THREADS))


def _good(results: Sequence[tuple[_T | None, Sequence[InputError]]], problems: list[InputError]) -> tuple[_T, ...]:
    """Add the problems of all ``results`` to ``problems``, and return the inspections without problems."""
    for _, found in results:
        problems.extend(found)
    return tuple(inspection for inspection, found in results if inspection is not None and not found)


def _partition_problems(inspections: Sequence[Inspected]) -> Iterator[SchemaError]:
    """Yield an error for the first file in folders named for columns that it lacks: their values would be lost."""
    for inspection in inspections:
        names = {column.name.lower() for column in inspection.columns}
        missing = [key for key in inspection.file.partition_keys if key.lower() not in names]
        if missing:
            path = shown(inspection.file.path)
            yield SchemaError(
                f"'{path}' is in folders named '{missing[0]}=…', but the file has no column '{missing[0]}', so its "
                "values would be lost.",
                hint=f"Write '{missing[0]}' into the files, or use a glob ('**/*.parquet') to ingest them without it.",
                path=path,
            )
            return


def _in_threads(work: Callable[[Located], _T], files: Sequence[Located], limit: int) -> list[_T]:
    if len(files) <= 1:
        return [work(file) for file in files]
    workers = min(limit, len(files), 2 * (os.cpu_count() or 1))
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="lakegate-sources")
    try:
        return list(pool.map(work, files))
    finally:
        # After an interrupt, don't start on further files.
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _progress(
    narrator: Narrator | None, files: Sequence[Located], unit: str, doing: str = "Checking"
) -> Iterator[Callable[[int], None]]:
    """Yield a function to report progress, in ``unit``, from any thread."""
    size_bytes = sum(file.size_bytes for file in files)
    is_long = len(files) > _MANY_FILES or (unit == "bytes" and size_bytes > _MANY_BYTES)
    if narrator is None or not is_long:
        yield lambda _: None
        return
    total = size_bytes if unit == "bytes" else len(files)
    done = 0
    lock = threading.Lock()
    with narrator.step(f"{doing} {len(files):,} source {'file' if len(files) == 1 else 'files'}") as step:

        def advance(amount: int) -> None:
            nonlocal done
            with lock:
                done += amount
                step.progress(done, total, unit)

        yield advance


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file in a listing.

    Attributes:
        uri: Absolute location by which it was found, without following links.
        stamp: A fingerprint that changes when the file does, like :attr:`lakegate.model.batch.SourceFile.stamp`.
        is_recognised: Whether its ending or its first bytes say its format, so that it's read from a folder.
    """

    uri: str
    size_bytes: int
    stamp: str
    modified_at: datetime
    is_recognised: bool = True


def list_files(
    paths: Sequence[str],
    *,
    format: FileFormat | None = None,
    storage: StorageSettings | None = None,
    left_out: Callable[[LeftOut], object] | None = None,
) -> Iterator[FoundFile]:
    """Yield the files that ``paths`` name, each once, as they are found.

    Missing files are skipped: a watcher may start before its files arrive.

    Args:
        paths: Files, globs, folders, ``file:`` URIs and URIs in object stores, as for
            :func:`lakegate.sources.discover`.
        format: List only files of this format in folders; ``None`` for all known formats.
        storage: How to reach the object stores; ``None`` for the variables and profiles of their own tools.
        left_out: Called at the end with each file in folders that isn't of a known format, or has a hidden name.

    Raises:
        InputError: When a path is invalid (empty, or of an unknown scheme).
        SourceError: When a folder or bucket can't be read, or a folder is a table of another format.
    """
    wanted = Wanted(format)
    here = (_outside_tables(local.present(path, wanted)) for path in paths if not is_remote(path))
    found = _each_once(here)
    in_stores = [path for path in paths if is_remote(path)]
    if in_stores:
        listings = (remote.present(path, wanted, storage or StorageSettings()) for path in in_stores)
        # A bucket may have millions of files: remember those seen only if two paths overlap.
        found = chain(found, _each_once(listings) if remote.overlap(in_stores) else _in_turns(listings))
    for file in found:
        yield FoundFile(file.found_uri, file.size_bytes, file.stamp, file.modified_at, wanted.takes(file))
    if left_out is not None:
        for one in wanted.left_out.values():
            left_out(one)


def _outside_tables(listing: Iterable[LocalFile]) -> Iterator[LocalFile]:
    """Yield the files, and fail at the first in a table of another format."""
    known: set[str] = set()
    for file in listing:
        folder = file.path.rpartition("/")[0]
        if folder not in known:
            known.add(folder)
            for error in local_tables([file]):
                raise error
        yield file


def _each_once(listings: Iterable[Iterator[Located]]) -> Iterator[Located]:
    seen: set[str] = set()
    for listing in listings:
        for file in listing:
            if file.uri not in seen:
                seen.add(file.uri)
                yield file


def _in_turns(listings: Iterable[Iterator[Located]]) -> Iterator[Located]:
    """Yield some files of each listing in turn, so that new files needn't wait for a million in another folder."""
    waiting = deque(listings)
    while waiting:
        listing = waiting.popleft()
        count = 0
        for file in islice(listing, _FILES_IN_A_TURN):
            count += 1
            yield file
        if count == _FILES_IN_A_TURN:
            waiting.append(listing)
