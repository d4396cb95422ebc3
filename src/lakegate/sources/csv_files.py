"""CSV files: one streaming pass over all values for rows, types and everything that could go wrong later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from lakegate.errors import StorageUnavailableError
from lakegate.model.batch import CsvOptions, SourceColumn
from lakegate.sources.csv_dialect import splits_by_line
from lakegate.sources.csv_rows import check_rows
from lakegate.sources.csv_stream import BLOCK_BYTES, QUOTE_HINT, ROW_HINT, CsvStream
from lakegate.sources.csv_types import Inference, infer
from lakegate.sources.located import Located
from lakegate.sources.paths import shown
from lakegate.sources.problems import Problem, ProblemError, unreadable
from lakegate.sources.schemas import name_problems

_OTHER_DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}
# What Java's String.trim takes off: Spark skips lines of nothing else, unless it reads multi-line.
_JAVA_WHITESPACE = "".join(map(chr, range(1, 33)))


@dataclass(frozen=True, slots=True)
class CsvInspection:
    """One CSV file, read to its end.

    Attributes:
        file: The file as it stood on disk.
        rows: Number of rows, header and blank lines not counted.
        names: Column names in order.
        types: What was inferred of each column.
        multiline: Whether it cannot be split by line.
        line_ends: The kinds of line ends that end its rows.
    """

    file: Located
    rows: int
    names: tuple[str, ...]
    types: tuple[Inference, ...]
    multiline: bool
    line_ends: frozenset[str]


def inspect_csv(
    file: Located, options: CsvOptions, on_read: Callable[[int], None]
) -> tuple[CsvInspection | None, tuple[Problem, ...]]:
    """Return what ``file`` holds, or what is wrong with it.

    Args:
        file: The file.
        options: How to read it, normalised.
        on_read: Called with the number of bytes read after each block, from any thread.
    """
    try:
        with CsvStream(file, options, on_read) as stream:
            problems = _column_problems(shown(file.path), stream, options)
            return (None, problems) if problems else (_read(stream, file, options), ())
    except ProblemError as error:
        return None, (error.problem,)
    except OSError as error:
        return None, (unreadable(shown(file.path), error),)


def common_columns(inspections: Sequence[CsvInspection]) -> tuple[SourceColumn, ...]:
    """Return the columns of files with the same header, typed by the values of all of them."""
    first, *others = inspections
    types = list(first.types)
    for other in others:
        types = [mine.join(theirs) for mine, theirs in zip(types, other.types, strict=True)]
    return tuple(
        SourceColumn(name=name, type=inference.arrow_type) for name, inference in zip(first.names, types, strict=True)
    )


def line_end_problems(inspections: Sequence[CsvInspection]) -> Iterator[Problem]:
    """Yield the files whose kinds of line ends are mixed: a reader that spans lines knows only one kind a file."""
    for inspection in inspections:
        if len(inspection.line_ends) > 1:
            path = shown(inspection.file.path)
            kinds = " and ".join(sorted(repr(end)[1:-1] for end in inspection.line_ends))
            yield Problem(
                f"'{path}' ends its rows in more than one way ({kinds}) while quoted values of the batch span lines.",
                "Write its rows with one kind of line end.",
                path,
            )


def _column_problems(path: str, stream: CsvStream, options: CsvOptions) -> tuple[Problem, ...]:
    names = stream.columns
    if len(names) == 1 and options.header:
        (name,) = names
        line = stream.next_line
        other = next(
            (mark for mark in _OTHER_DELIMITERS if mark in name and (not line or line.count(mark) == name.count(mark))),
            None,
        )
        if other is not None:
            return (
                Problem(
                    f"'{path}' has one column, '{name}': it is not delimited by {options.delimiter!r}.",
                    f"Say --delimiter {_OTHER_DELIMITERS[other]}.",
                    path,
                ),
            )
    return tuple(name_problems(path, names))


def _read(stream: CsvStream, file: Located, options: CsvOptions) -> CsvInspection:
    types = [Inference() for _ in stream.columns]
    rows, has_blank_rows, is_ragged = 0, False, False
    blanks_matter = len(types) == 1 or options.delimiter in _JAVA_WHITESPACE
    ragged: list[str] = []
    try:
        for batch in _batches(stream, options, ragged):
            rows += batch.num_rows
            types = [infer(column, known) for column, known in zip(batch.columns, types, strict=True)]
            has_blank_rows = has_blank_rows or (blanks_matter and _has_blank_row(batch))
            if ragged:
                break
    except (pa.ArrowException, ProblemError, StorageUnavailableError, OSError, ValueError) as error:
        if stream.trouble is not None:
            raise stream.trouble from error
        if stream.problem is not None:
            raise ProblemError(stream.problem) from error
        _check(file, options, stream, required=str(error))
    is_ragged = bool(ragged)
    multiline = stream.scan.multiline
    if is_ragged or stream.scan.is_open or stream.scan.doubtful:
        required = f"a row of another length: {ragged[0]}" if is_ragged else None
        multiline |= _check(file, options, stream, required=required)
    return CsvInspection(
        file=file,
        rows=rows,
        names=stream.columns,
        types=tuple(types),
        multiline=multiline or has_blank_rows or not splits_by_line(options.encoding),
        line_ends=frozenset(stream.scan.line_ends),
    )


def _batches(stream: CsvStream, options: CsvOptions, ragged: list[str]) -> Iterator[pa.RecordBatch]:
    if not stream.has_data:
        return

    def note(row: pv.InvalidRow) -> Literal["skip"]:
        ragged.append(row.text[:80])
        return "skip"

    # positions for names: the file's own may hold anything, and are checked elsewhere
    names = [str(index) for index in range(len(stream.columns))]
    source: Any = pa.PythonFile(stream, mode="r")
    yield from pv.open_csv(
        source,
        read_options=pv.ReadOptions(block_size=BLOCK_BYTES, column_names=names),
        parse_options=pv.ParseOptions(
            delimiter=options.delimiter,
            quote_char=options.quote or False,
            newlines_in_values=True,
            invalid_row_handler=note,
        ),
        convert_options=pv.ConvertOptions(
            check_utf8=False,  # the stream has decoded it
            column_types=dict.fromkeys(names, pa.string()),
            null_values=["", *options.null_values],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def _has_blank_row(batch: pa.RecordBatch) -> bool:
    """Tell whether a row is nothing but whitespace, its delimiters included."""
    nothing = pa.scalar("")
    blank: Any = None
    for column in batch.columns:
        texts: Any = column.fill_null("")
        empty = pc.equal(pc.ascii_trim(texts, characters=_JAVA_WHITESPACE), nothing)
        blank = empty if blank is None else pc.and_(blank, empty)
        if not pc.any(blank).as_py():
            return False
    return True


def _check(file: Located, options: CsvOptions, stream: CsvStream, *, required: str | None) -> bool:
    """Read the file row by row and return whether a value spans lines.

    Raises:
        ProblemError: For what is found, or, when nothing is, for what the fast pass ``required`` to be found.
    """
    path = shown(file.path)
    found = check_rows(file, options, len(stream.columns))
    if found.problem is not None:
        raise ProblemError(found.problem)
    if required is not None:
        raise ProblemError(Problem(f"'{path}' cannot be parsed: {required.rstrip('.')}.", ROW_HINT, path))
    if stream.scan.is_open and not stream.scan.doubtful:
        raise ProblemError(Problem(f"'{path}' ends inside a quoted value.", QUOTE_HINT, path))
    return found.multiline
