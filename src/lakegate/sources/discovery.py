"""From paths to one batch: every file found, checked, and described; or everything that is wrong, at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from lakegate.config import StorageSettings
from lakegate.errors import InputError, SchemaError
from lakegate.model.batch import Batch, CsvOptions, FileFormat, SourceColumn, SourceFile
from lakegate.protocols import Narrator
from lakegate.sources.csv_dialect import normalise_options
from lakegate.sources.csv_files import CsvInspection, common_columns, inspect_csv, line_end_problems
from lakegate.sources.finding import resolve
from lakegate.sources.formats import detect, suffixes_for
from lakegate.sources.inspection import Inspection
from lakegate.sources.located import Located
from lakegate.sources.parquet import inspect_parquet
from lakegate.sources.paths import shown
from lakegate.sources.problems import Problem, ProblemError, combine, unreadable
from lakegate.sources.schemas import difference_problems
from lakegate.sources.versions import source_file

_FOOTER_THREADS = 16
_CSV_THREADS = 4
_MANY_FILES = 20
_MANY_BYTES = 64 << 20
_T = TypeVar("_T")


def discover(
    paths: Sequence[str],
    *,
    format: FileFormat | None = None,  # noqa: A002 - the word of the command line
    csv: CsvOptions | None = None,
    storage: StorageSettings | None = None,
    narrator: Narrator | None = None,
) -> Batch:
    """Find the files that ``paths`` name, check them, and return them as one batch.

    Parquet is checked by its footers. CSV is read to its end once, in bounded memory, and its types are inferred from
    all values. An empty CSV value, quoted or not, always means NULL, as do ``csv.null_values``.

    Args:
        paths: Files, globs (``*``, ``**``, ``?``, ``[]``), folders (searched to the bottom), ``file:`` URIs, or the
            same in an object store (``s3://bucket/prefix/*.parquet``, ``gs://…``, ``abfss://…``). Each file counts
            once, under whatever names it is found.
        format: What the files are; by their names and first bytes when ``None``.
        csv: How to read CSV.
        storage: How to reach the object stores; by their own tools' variables and profiles when ``None``.
        narrator: Is told how far it is when there are many files, or large ones.

    Returns:
        A batch with its files sorted by path. URIs are those of :func:`~lakegate.sources.paths.to_uri`, or
        ``s3://bucket/key``; a file's ``version`` is the hash of its content, in an object store its entity tag. Its CSV
        options are in the form that the engine takes (see :func:`~lakegate.sources.csv_dialect.normalise_options`).

    Raises:
        InputError: When a path or option cannot be used.
        SourceError: When files are missing, damaged, or not what they say they are.
        SchemaError: When the columns of a file cannot be taken, or differ from file to file. In all cases, all problems
            of the batch are told at once.
        StorageUnavailableError: When an object store does not answer.
    """
    if not paths:
        raise InputError(
            "No source files were given.", hint="Give a file, a folder or a glob such as 'data/*.parquet'."
        )
    files, found = resolve(paths, suffixes_for(format), storage or StorageSettings())
    problems = list(found)
    formats = _formats(files, format, problems)
    problems.extend(_mixed_formats(formats))
    if "csv" in formats.values() and "parquet" not in formats.values():
        batch = _csv_batch(tuple(formats), normalise_options(csv, files), narrator, problems)
    else:
        parquet = tuple(file for file, kind in formats.items() if kind == "parquet")
        batch = _parquet_batch(parquet, narrator, problems)
    if batch is None or problems:
        raise combine(problems)
    return batch


def _formats(files: Sequence[Located], given: FileFormat | None, problems: list[Problem]) -> dict[Located, FileFormat]:
    def look(file: Located) -> FileFormat | Problem:
        try:
            return detect(file, given)
        except ProblemError as error:
            return error.problem

    found = dict(zip(files, _in_threads(look, files, _FOOTER_THREADS), strict=True))
    problems.extend(what for what in found.values() if isinstance(what, Problem))
    return {file: what for file, what in found.items() if not isinstance(what, Problem)}


def _mixed_formats(formats: dict[Located, FileFormat]) -> Iterator[Problem]:
    examples = {kind: shown(file.path) for file, kind in formats.items()}
    if len(examples) > 1:
        yield Problem(
            f"The batch mixes formats: '{examples['parquet']}' is parquet, '{examples['csv']}' is CSV.",
            "Ingest them one after the other, or pick one with --format.",
        )


def _parquet_batch(files: Sequence[Located], narrator: Narrator | None, problems: list[Problem]) -> Batch | None:
    with _progress(narrator, files, "files") as advance:

        def inspect(file: Located) -> tuple[Inspection | None, tuple[Problem, ...]]:
            found = inspect_parquet(file)
            advance(1)
            return found

        results = _in_threads(inspect, files, _FOOTER_THREADS)
    inspections = _good(results, problems)
    problems.extend(difference_problems(inspections, ordered=False))
    problems.extend(_partition_problems(inspections))
    if problems or not inspections:
        return None
    return Batch(
        format="parquet",
        files=_with_versions(inspections, narrator),
        columns=inspections[0].columns,
    )


def _csv_batch(
    files: Sequence[Located], options: CsvOptions, narrator: Narrator | None, problems: list[Problem]
) -> Batch | None:
    with _progress(narrator, files, "bytes") as advance:
        results = _in_threads(lambda file: inspect_csv(file, options, advance), files, _CSV_THREADS)
    inspections = _good(results, problems)
    multiline = any(each.multiline for each in inspections)
    headers = tuple(Inspection(each.file, each.rows, _untyped(each)) for each in inspections)
    problems.extend(difference_problems(headers, ordered=True))
    problems.extend(_partition_problems(headers))
    problems.extend(line_end_problems(inspections) if multiline else ())
    problems.extend(_changed(inspections))
    if problems or not inspections:
        return None
    return Batch(
        format="csv",
        files=_with_versions(inspections, narrator),
        columns=common_columns(inspections),
        csv=options,
        multiline=multiline,
    )


def _untyped(inspection: CsvInspection) -> tuple[SourceColumn, ...]:
    """Return the header alone: types are joined over files, so they never differ."""
    return tuple(SourceColumn(name=name, type="text") for name in inspection.names)


def _with_versions(
    inspections: Sequence[Inspection] | Sequence[CsvInspection], narrator: Narrator | None
) -> tuple[SourceFile, ...]:
    rows = {each.file: each.rows for each in inspections}
    with _progress(narrator, tuple(rows), "bytes", "Fingerprinting") as advance:

        def describe(file: Located) -> SourceFile:
            try:
                described = source_file(file, rows[file])
            except OSError as error:
                raise combine([unreadable(shown(file.path), error)]) from error
            advance(file.size_bytes)
            return described

        return tuple(_in_threads(describe, tuple(rows), _FOOTER_THREADS))


def _good(results: Sequence[tuple[_T | None, tuple[Problem, ...]]], problems: list[Problem]) -> tuple[_T, ...]:
    """Add the problems of all ``results`` to ``problems``; return the inspections that have none."""
    for _, found in results:
        problems.extend(found)
    return tuple(inspection for inspection, found in results if inspection is not None and not found)


def _partition_problems(inspections: Sequence[Inspection]) -> Iterator[Problem]:
    """Yield the first file whose folders hold values that no column does: they would be lost."""
    for inspection in inspections:
        names = {column.name.lower() for column in inspection.columns}
        missing = [key for key in inspection.file.partition_keys if key.lower() not in names]
        if missing:
            path = shown(inspection.file.path)
            yield Problem(
                f"'{path}' lies in folders named by '{missing[0]}=…', and '{missing[0]}' is no column of the file: its "
                "values would be lost.",
                f"Write '{missing[0]}' into the files; or name them by a glob ('**/*.parquet') to do without it.",
                path,
                SchemaError,
            )
            return


def _changed(inspections: Sequence[CsvInspection]) -> Iterator[Problem]:
    """Yield files that were written to while they were read: what was counted is not what is there."""
    for inspection in inspections:
        if inspection.file.stamp_now() != inspection.file.stamp:
            path = shown(inspection.file.path)
            yield Problem(f"'{path}' changed while it was read.", "Wait until it is written, then try again.", path)


def _in_threads(work: Callable[[Located], _T], files: Sequence[Located], limit: int) -> list[_T]:
    if len(files) <= 1:
        return [work(file) for file in files]
    workers = min(limit, len(files), 2 * (os.cpu_count() or 1))
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="lakegate-sources")
    try:
        return list(pool.map(work, files))
    finally:
        # on an interrupt, files not yet begun are not begun any more
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _progress(
    narrator: Narrator | None, files: Sequence[Located], unit: str, doing: str = "Checking"
) -> Iterator[Callable[[int], None]]:
    """Yield what to call with the number of ``unit`` just done, from any thread."""
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
