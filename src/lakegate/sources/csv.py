"""Inspect CSV files: normalise their options for Python, Arrow and Spark, and read all their values once."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from lakegate.errors import InputError, LakegateError, SchemaError, SourceError
from lakegate.model.batch import (
    DELIMITERS,
    ColumnText,
    CsvOptions,
    SourceColumn,
    TimeRewrite,
    is_csv_character,
    time_rewrite,
)
from lakegate.model.words import counted, did_you_mean
from lakegate.sources.csv_stream import BLOCK_BYTES, QUOTE_HINT, ROW_HINT, CsvStream, QuoteScan, csv_reader
from lakegate.sources.csv_types import Inference, arrow_type, infer, rewritten
from lakegate.sources.files import Located, shown
from lakegate.sources.inspection import is_gzip, is_tab_separated, name_problems, reserved_name_problems, unreadable

# Python's codec name → the name that Spark supports, too. By default, Spark 4 only supports the first seven
# (`CharsetProvider.VALID_CHARSETS`); the others need `spark.sql.legacy.javaCharsets=true`.
_ENCODINGS = {
    "utf-8": "utf-8",
    "utf-8-sig": "utf-8",
    "ascii": "us-ascii",
    "iso8859-1": "iso-8859-1",
    "utf-16": "utf-16",
    "utf-16-le": "utf-16le",
    "utf-16-be": "utf-16be",
    "utf-32": "utf-32",
    **{f"cp{page}": f"windows-{page}" for page in range(1250, 1259)},
    **{f"iso8859-{part}": f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 9, 13, 15)},
    "koi8-r": "koi8-r",
}
_OTHER_DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}
# The characters that Java's String.trim removes. Spark skips lines that only have these, unless it reads multi-line.
_JAVA_WHITESPACE = "".join(map(chr, range(1, 33)))
_MAX_ROWS_NAMED = 3
_LONGEST_SHOWN = 40


def normalise_options(csv: CsvOptions | None, files: Sequence[Located]) -> CsvOptions:
    r"""Return the options to read ``files`` with, normalised for the engine.

    The encoding becomes its registered name (``latin-1`` → ``iso-8859-1``). ``\t`` and ``tab`` become a tab, which is
    also the default for ``.tsv`` files. An empty value always means NULL, so ``null_values`` only has ``""`` if it has
    nothing else.

    Raises:
        InputError: When the delimiter or quote isn't one ASCII character, the encoding is unknown, or ``.tsv`` and
            ``.csv`` files are mixed and no delimiter was given.

    Example:
        >>> normalise_options(CsvOptions(encoding="latin-1", delimiter="tab", null_values=("", "NA")), ())
        CsvOptions(delimiter='\t', encoding='iso-8859-1', null_values=('NA',))
    """
    options = csv or CsvOptions()
    delimiter = DELIMITERS.get(options.delimiter, options.delimiter)
    if "delimiter" not in options.model_fields_set:
        delimiter = _default_delimiter(files)
    _require_character("delimiter", delimiter)
    if options.quote:
        _require_character("quote", options.quote)
    if delimiter == options.quote:
        raise InputError("Delimiter and quote can't be the same character.", hint="Change --delimiter.")
    return CsvOptions(
        header=options.header,
        delimiter=delimiter,
        quote=options.quote,
        encoding=_encoding(options.encoding),
        null_values=tuple(dict.fromkeys(text for text in options.null_values if text)) or ("",),
        **_written(options, delimiter),
    )


def _written(options: CsvOptions, delimiter: str) -> dict[str, Any]:
    """Check the options about how values are written, and return those that differ from the default."""
    if options.decimal == delimiter:
        raise InputError(
            "Delimiter and decimal separator can't both be a comma.",
            hint="Pass the delimiter, such as --delimiter ';'.",
        )
    rules(options)
    given = {name: getattr(options, name) for name in ("decimal", "date_format", "timestamp_format", "types")}
    return {name: value for name, value in given.items() if value != CsvOptions.model_fields[name].default}


def rules(options: CsvOptions) -> list[TimeRewrite]:
    """Return the rules that rewrite dates and times in SQL's notation."""
    forms = {"date-format": options.date_format, "timestamp-format": options.timestamp_format}
    return [time_rewrite(form, option=option) for option, form in forms.items() if form is not None]


def _default_delimiter(files: Sequence[Located]) -> str:
    tabs = [file for file in files if is_tab_separated(file.name)]
    if tabs and len(tabs) != len(files):
        other = next(file for file in files if not is_tab_separated(file.name))
        raise InputError(
            f"'{shown(tabs[0].path)}' is tab-separated by its name, but '{shown(other.path)}' isn't.",
            hint="Ingest .tsv and .csv files separately, or pass --delimiter.",
        )
    return "\t" if tabs else ","


def _require_character(what: str, text: str) -> None:
    if not is_csv_character(text):
        raise InputError(
            f"The CSV {what} must be one ASCII character, not {text!r}.", hint=f"Example: --{what} ';'", option=what
        )


def _encoding(name: str) -> str:
    try:
        python_name = codecs.lookup(name).name
    except LookupError:
        python_name = ""
    known = _ENCODINGS.get(python_name)
    if known is None:
        raise InputError(
            f"CSV encoding '{name}' isn't supported.",
            hint=did_you_mean(name, ["latin-1", *_ENCODINGS.values()])
            + "Supported: utf-8, us-ascii, latin-1 and other iso-8859 parts, windows-1250 to 1258, koi8-r, utf-16, "
            "utf-32. Convert other encodings to UTF-8, for example with iconv.",
            option="encoding",
        )
    return known


@dataclass(frozen=True, slots=True)
class CsvInspection:
    """An inspected CSV file.

    Attributes:
        rows: Number of rows, without the header and blank lines.
        types: The inferred type of each column.
        multiline: Whether it can't be split into rows by line.
        line_ends: The kinds of line endings of its rows.
        first_line_end: The kind of its first line ending, which may be inside a value; empty if it has none.
        has_cr: Whether a value has a CR.
    """

    file: Located
    rows: int
    names: tuple[str, ...]
    types: tuple[Inference, ...]
    multiline: bool
    line_ends: frozenset[str]
    first_line_end: str
    has_cr: bool

    @property
    def columns(self) -> tuple[SourceColumn, ...]:
        """The columns, all as text. Types are joined over all files, so they never differ."""
        return tuple(SourceColumn(name=name, type="text") for name in self.names)


def inspect_csv(
    file: Located, options: CsvOptions, on_read: Callable[[int], None]
) -> tuple[CsvInspection | None, Sequence[InputError]]:
    """Inspect ``file``, or return its problems.

    Args:
        options: How to read it, normalised.
        on_read: Called with the number of bytes read after each block, from any thread.
    """
    try:
        with CsvStream(file, options, on_read) as stream:
            problems = _column_problems(shown(file.path), stream, options)
            return (None, problems) if problems else (_read(stream, file, options), ())
    except SourceError as error:
        return None, (error,)
    except OSError as error:
        return None, (unreadable(shown(file.path), error),)


def common_types(inspections: Sequence[CsvInspection]) -> dict[str, Inference]:
    """Return, for each column name in lower case, the type that holds its values of all files."""
    types: dict[str, Inference] = {}
    for inspection in inspections:
        for name, inference in zip(map(str.lower, inspection.names), inspection.types, strict=True):
            types[name] = types[name].join(inference) if name in types else inference
    return types


def common_columns(
    inspections: Sequence[CsvInspection], types: Mapping[str, Inference], given: Mapping[str, str]
) -> list[tuple[SourceColumn, ...]]:
    """Return the columns of each file, with the types in ``given``, or else those inferred from all files.

    Raises:
        SchemaError: When the values of a column don't fit its given type, or there is no such column.
    """
    wanted = {name.lower(): kind for name, kind in given.items()}
    names = {name.lower(): name for inspection in inspections for name in inspection.names}
    for name in given:
        if name.lower() not in names:
            raise SchemaError(
                f"You set the type of column '{name}' to {given[name]}, but the files have no such column.",
                hint=did_you_mean(name, list(names.values())) + "Check --types.",
                column=name,
            )
    found = {name: arrow_type(names[name], kind, types[name]) for name, kind in wanted.items()}
    return [
        tuple(
            SourceColumn(name=name, type=found.get(name.lower()) or types[name.lower()].arrow_type)
            for name in inspection.names
        )
        for inspection in inspections
    ]


def column_texts(inspections: Sequence[CsvInspection], types: Mapping[str, Inference]) -> tuple[ColumnText, ...]:
    """Return details about the text of columns, for those that have any."""
    names: dict[str, str] = {}
    for name in (name for inspection in inspections for name in inspection.names):
        names.setdefault(name.lower(), name)
    texts = (
        ColumnText(
            name=name,
            odd=found.odd.strip()[:_LONGEST_SHOWN] if found.kind == "string" else "",
            digits=found.digits,
            fraction=found.fraction,
            words=tuple(sorted(found.words)) if found.kind == "string" else (),
            beyond_int=found.kind == "int64" and found.beyond_int,
        )
        for name, found in ((name, types[key]) for key, name in names.items())
    )
    return tuple(text for text in texts if text.odd or text.digits or text.words)


def common_line_end(inspections: Sequence[CsvInspection]) -> str:
    """Return the line ending of all files' rows if Spark needs it to read them correctly; ``""`` otherwise.

    By default, Spark takes a file's first line ending for that of its rows, even if it's inside a value, and turns all
    others like it inside values into LF.
    """
    found = {end for inspection in inspections for end in inspection.line_ends}
    # A file of a single row without an end can be read with any.
    return (found or {"\n"}).pop() if any(map(_needs_line_end, inspections)) else ""


def line_end_problems(inspections: Sequence[CsvInspection]) -> Iterator[SourceError]:
    """Yield an error for each file with mixed line endings: a multi-line reader only supports one kind per file."""
    common = {end for inspection in inspections for end in inspection.line_ends}
    for inspection in inspections:
        path = shown(inspection.file.path)
        kinds = " and ".join(sorted(repr(end)[1:-1] for end in inspection.line_ends))
        if len(inspection.line_ends) > 1:
            yield SourceError(
                f"'{path}' has mixed line endings ({kinds}), and quoted values in the batch span lines.",
                hint="Write it with one kind of line ending.",
                path=path,
            )
        elif len(common) > 1 and _needs_line_end(inspection):
            ends = f"its rows end in {kinds}" if kinds else "no row ends"
            yield SourceError(
                f"'{path}' has line endings inside values, and {ends}, unlike those of other files in the batch. Spark "
                "can't read both at once.",
                hint="Ingest it separately.",
                path=path,
            )


def _needs_line_end(inspection: CsvInspection) -> bool:
    ends = inspection.line_ends
    is_misled = bool(ends) and inspection.first_line_end not in ends
    return is_misled or (inspection.has_cr and "\n" not in ends)


def _column_problems(path: str, stream: CsvStream, options: CsvOptions) -> Sequence[InputError]:
    names = stream.columns
    if len(names) == 1 and options.header:
        (name,) = names
        line = stream.next_line
        for mark, spelled in _OTHER_DELIMITERS.items():
            if mark in name and (not line or line.count(mark) == name.count(mark)):
                message = f"'{path}' has one column, '{name}'. Its delimiter doesn't seem to be {options.delimiter!r}."
                return [SourceError(message, hint=f"Pass --delimiter {spelled}.", path=path)]
    return [*name_problems(path, names), *reserved_name_problems(path, names)]


def _read(stream: CsvStream, file: Located, options: CsvOptions) -> CsvInspection:
    types = [Inference() for _ in stream.columns]
    rows, has_blank_rows = 0, False
    blanks_matter = len(types) == 1 or options.delimiter in _JAVA_WHITESPACE
    ragged: list[str] = []
    forms, has_comma = rules(options), options.decimal == ","
    as_is = list(types)
    try:
        for batch in _batches(stream, options, ragged):
            rows += batch.num_rows
            if forms:
                plain = (rewritten(column, (), decimal_comma=has_comma) for column in batch.columns)
                as_is = [infer(column, known) for column, known in zip(plain, as_is, strict=True)]
            columns = (rewritten(column, forms, decimal_comma=has_comma) for column in batch.columns)
            types = [infer(column, known) for column, known in zip(columns, types, strict=True)]
            has_blank_rows = has_blank_rows or (blanks_matter and _has_blank_row(batch))
            if ragged:
                break
    except (pa.ArrowException, LakegateError, OSError, ValueError) as error:
        if stream.failure is not None:
            raise stream.failure from error
        _check_rows(file, options, stream, found=str(error))
    scan = stream.scan
    if ragged or scan.is_open or scan.doubtful:
        _check_rows(
            file, options, stream, found=f"a row with a different number of values: {ragged[0]}" if ragged else None
        )
    return CsvInspection(
        file=file,
        rows=rows,
        names=stream.columns,
        # Numbers that aren't all dates, such as ids of eight digits, stay numbers.
        types=tuple(
            other if found.kind == "string" else found
            for found, other in zip(types, as_is if forms else types, strict=True)
        ),
        # In UTF-16 and UTF-32, a line feed isn't one byte: files can't be split into lines before decoding.
        multiline=scan.multiline or has_blank_rows or options.encoding.startswith(("utf-16", "utf-32")),
        line_ends=frozenset(scan.line_ends),
        first_line_end=scan.first_line_end,
        has_cr=scan.has_cr,
    )


def _batches(stream: CsvStream, options: CsvOptions, ragged: list[str]) -> Iterator[pa.RecordBatch]:
    if not stream.has_data:
        return

    def note(row: pv.InvalidRow) -> Literal["skip"]:
        ragged.append(row.text[:80])
        return "skip"

    # Positions instead of the file's names, which may contain anything and are checked elsewhere.
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
            check_utf8=False,  # the stream decoded it
            column_types=dict.fromkeys(names, pa.string()),
            null_values=["", *options.null_values],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def _has_blank_row(batch: pa.RecordBatch) -> bool:
    """Return whether a row, including its delimiters, is only whitespace."""
    nothing = pa.scalar("")
    blank: Any = None
    for column in batch.columns:
        texts: Any = column.fill_null("")
        empty = pc.equal(pc.ascii_trim(texts, characters=_JAVA_WHITESPACE), nothing)
        blank = empty if blank is None else pc.and_(blank, empty)
        if not pc.any(blank).as_py():
            return False
    return True


def _check_rows(file: Located, options: CsvOptions, stream: CsvStream, *, found: str | None) -> None:
    """Read the file with Python's own reader, slowly and exactly, and complete the stream's scan.

    Raises:
        SourceError: If rows have a different number of values than the header (the error names the first three), quotes
            don't match, or the fast pass ``found`` a problem.
    """
    path, width = shown(file.path), len(stream.columns)
    bad = _read_slowly(file, options, width, stream.scan)
    if bad:
        raise SourceError(
            f"'{path}' has rows with a different number of values than its first row ({width}): {'; '.join(bad)}.",
            hint="Quote values that contain the delimiter, and repair truncated rows; or check --delimiter.",
            path=path,
        )
    if found is not None:
        raise _unparsed(path, found)
    if stream.scan.is_open and not stream.scan.doubtful:
        raise SourceError(f"'{path}' ends inside a quoted value.", hint=QUOTE_HINT, path=path)


def _read_slowly(file: Located, options: CsvOptions, width: int, scan: QuoteScan) -> list[str]:
    """Describe the first rows that don't have ``width`` values, and complete the scan of line endings."""
    path = shown(file.path)
    bad: list[str] = []
    line = ""

    def each_line(lines: Iterable[str]) -> Iterator[str]:
        nonlocal line
        for text in lines:
            line = text
            yield text

    encoding = "utf-8-sig" if options.encoding == "utf-8" else options.encoding
    with (
        file.open() as raw,
        cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if is_gzip(file.name) else raw as source,
        io.TextIOWrapper(source, encoding=encoding, newline="") as lines,
    ):
        reader = csv_reader(each_line(lines), options)
        before = 0
        try:
            for row in reader:
                if row and len(row) != width:
                    bad.append(f"line {before + 1} has {counted(len(row), 'value')}")
                    if len(bad) == _MAX_ROWS_NAMED:
                        break
                scan.multiline |= reader.line_num - before > 1
                before = reader.line_num
                scan.has_cr |= any("\r" in value for value in row)
                if end := line[len(line.rstrip("\r\n")) :]:
                    scan.line_ends.add(end)
        except csv.Error as error:
            message = f"'{path}': the quotes in the row that starts on line {before + 1} don't match ({error})."
            raise SourceError(message, hint=QUOTE_HINT, path=path) from error
        except (UnicodeError, EOFError, zlib.error, OSError) as error:
            if not bad:
                message = f"'{path}' can't be read from about line {before + 1}: {error}."
                raise SourceError(message, hint="Check its encoding, or copy it again.", path=path) from error
    return bad


def _unparsed(path: str, found: str) -> SourceError:
    if "straddling" in found:
        message = f"'{path}' has a row longer than {BLOCK_BYTES:,} bytes, the limit for CSV."
        return SourceError(message, hint="Write it as parquet or JSON lines, which allow longer values.", path=path)
    return SourceError(f"'{path}' can't be parsed: {found.rstrip('.')}.", hint=ROW_HINT, path=path)
