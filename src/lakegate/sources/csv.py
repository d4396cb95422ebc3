"""Read CSV files with DuckDB, and infer the types of their columns from all values."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakegate.errors import InputError, SchemaError, SourceError
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
from lakegate.sources.copies import CopiedFile, copy_file
from lakegate.sources.csv_types import Inference, arrow_type, infer, rewritten
from lakegate.sources.files import Located, shown
from lakegate.sources.inspection import is_tab_separated, name_problems
from lakegate.sources.rows import Rows, decompressed
from lakegate.storage.objects import first_line

_OTHER_DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}
_LONGEST_SHOWN = 40
_LONGEST_FIELD = 2**31 - 1
_LONGEST_ROW = 8 << 20
"""Bytes. A row that Python's reader tells apart may have half as many characters, because quotes are doubled."""
_BLOCK_BYTES = 4 << 20
_BATCH_ROWS = 100_000
_MAX_ROWS_NAMED = 3
_ASCII_COMPATIBLE = frozenset({"utf-8", "ascii"})
_HEAD_BYTES = 1 << 10
_WORD_ENDS = (b"\n", b"\r", b",", b";", b"\t", b"|", b'"')
_ENCODINGS = ("windows-1252", "windows-1250", "windows-1251", "mac_roman", "shift_jis", "gb18030", "cp850")
"""Encodings to show a word in. Most bytes are text in most of them, so that nothing but reading it tells which fits."""
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DELIMITER_LINE = re.compile(rb'"?sep=([ -~\t])"?(?:\r\n?|\n)', re.IGNORECASE)
"""What tells Excel the delimiter, in the first line."""
_TYPES = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "date32[day]": pa.date32(),
    "timestamp[us]": pa.timestamp("us"),
}
_LINE_ENDS = {"\n": r"'\n'", "\r": r"'\r'"}
"""DuckDB's spelling. Unless told, it takes a file's first line ending, even inside a value, for that of the rows.
It reads CR LF right only if it isn't told, and there's no other."""
_QUOTE_HINT = (
    "Quote whole values, double the quotes inside them, and close each one. If the file uses another quote character, "
    "set the table's csv.quote."
)
_BACKSLASH_HINT = (
    "If backslashes escape quotes there, as in MySQL's exports, rewrite it in Python: "
    "duckdb.read_csv({path!r}, sep={sep!r}, header={header}, escapechar='\\\\', all_varchar=True)"
    ".write_csv('doubled.csv', sep={sep!r}, header={header})"
)
_NAMES_HINT = (
    "Give every column a name. If the header is on a later line, pass the number of lines before it with --skip-lines."
)
_FIRST_HINT = (
    "Give it a name. If it's the row numbers of pandas or R, leave them out there: to_csv(..., index=False), or "
    "write.csv(..., row.names=FALSE)."
)
_LOOKED_AT = 3
"""Lines after the header that may show the delimiter."""
_ROW_HINT = "Check its quotes and line endings."


def normalise_options(csv: CsvOptions | None, files: Sequence[Located]) -> CsvOptions:
    r"""Return the options to read ``files`` with, normalised.

    The encoding becomes Python's name for it (``latin-1`` → ``iso8859-1``). ``\t`` and ``tab`` become a tab, which is
    also the default for ``.tsv`` files. An empty value always means NULL, so ``null_values`` only has ``""`` if it has
    nothing else.

    Raises:
        InputError: When the delimiter or quote isn't one ASCII character, the encoding is unknown, or ``.tsv`` and
            ``.csv`` files are mixed and no delimiter was given.

    Example:
        >>> normalise_options(CsvOptions(encoding="latin-1", delimiter="tab", null_values=("", "NA")), ())
        CsvOptions(delimiter='\t', encoding='iso8859-1', null_values=('NA',))
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
        **_written(options),
    )


def _written(options: CsvOptions) -> dict[str, Any]:
    """Check the options about how values are written, and return those that differ from the default."""
    rules(options)
    names = ("decimal", "numbers", "date_format", "timestamp_format", "types", "skip_lines", "skip_footer")
    given = {name: getattr(options, name) for name in names}
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
        "a".encode(name)  # raises for what isn't text, too, such as base64
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise InputError(
            f"CSV encoding '{name}' isn't supported.",
            hint=did_you_mean(name, ["latin-1", "utf-8", "utf-16", "windows-1252"])
            + "Pass a name that Python knows, such as utf-8, utf-16, latin-1, windows-1252, shift_jis or gb18030.",
            option="encoding",
        ) from error


def common_types(inspections: Sequence[CopiedFile]) -> dict[str, Inference]:
    """Return, for each column name in lower case, the type that holds its values of all files."""
    types: dict[str, Inference] = {}
    for inspection in inspections:
        for column, inference in zip(inspection.columns, inspection.types, strict=True):
            name = column.name.lower()
            types[name] = types[name].join(inference) if name in types else inference
    return types


def common_columns(
    inspections: Sequence[CopiedFile], types: Mapping[str, Inference], given: Mapping[str, str]
) -> list[tuple[SourceColumn, ...]]:
    """Return the columns of each file, with the types in ``given``, or else those inferred from all files.

    Raises:
        SchemaError: When the values of a column don't fit its given type, or there is no such column.
    """
    wanted = {name.lower(): kind for name, kind in given.items()}
    names = {column.name.lower(): column.name for inspection in inspections for column in inspection.columns}
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
            for name in (column.name for column in inspection.columns)
        )
        for inspection in inspections
    ]


def column_texts(
    inspections: Sequence[CopiedFile], types: Mapping[str, Inference], options: CsvOptions
) -> tuple[ColumnText, ...]:
    """Return details about the text of columns, for those that have any."""
    names: dict[str, str] = {}
    for name in (column.name for inspection in inspections for column in inspection.columns):
        names.setdefault(name.lower(), name)
    texts = (
        ColumnText(
            name=name,
            **(_odd(inspections, name, found.odd, options) if found.odd else {}),
            flags=found.flags and found.kind in {"string", "int64"},
            digits=found.digits if found.are_numbers else 0,
            fraction=found.fraction,
            words=tuple(sorted(found.words)) if found.kind == "string" else (),
            beyond_int=found.kind == "int64" and found.beyond_int,
            whole=found.kind == "double" and found.whole,
        )
        for name, found in ((name, types[key]) for key, name in names.items())
    )
    return tuple(text for text in texts if text.odd or text.digits or text.words or text.flags)


def _odd(inspections: Sequence[CopiedFile], name: str, odd: str, options: CsvOptions) -> dict[str, Any]:
    """Return an odd value of a column, and where its first occurrence is."""
    told: dict[str, Any] = {"odd": odd.strip()[:_LONGEST_SHOWN]}
    for inspection in inspections:
        own = next((column.name for column in inspection.columns if column.name.lower() == name.lower()), None)
        before = 0
        with pq.ParquetFile(inspection.copy) as copy:
            kind = pa.null() if own is None else copy.schema_arrow.field(own).type
            value = float(odd) if pa.types.is_float64(kind) else odd
            for batch in copy.iter_batches(columns=[own]) if pa.types.is_string(kind) or value != odd else ():
                index = pc.index(batch.column(0), pa.scalar(value)).as_py()
                if index >= 0:
                    row = before + index + 1
                    at = f"line {_line_of(inspection.file, row, options)} of '{inspection.file.name}'"
                    return {**told, "odd_at": at, "odd_is_last": row == inspection.rows}
                before += batch.num_rows
    return told  # rewritten by an option, so that it isn't in the file like this


def _line_of(file: Located, row: int, options: CsvOptions) -> int:
    """Return the line on which a row begins, the first after the header being 1."""
    blocks = _text_blocks(file, options.encoding, lambda _: None)
    first = next(blocks, b"")
    start, options = _start(shown(file.path), first, options)
    before = 1 + _line_ends(first[:start])
    reader, left, line = _python_reader(_lines(chain([first[start:]], blocks)), options), row + options.header, before
    with suppress(csv.Error):
        for values in reader:
            left -= bool(values)
            if not left:
                break
            line = before + reader.line_num
    return line


def _line_ends(text: bytes) -> int:
    return text.count(b"\n") or text.count(b"\r")


def _start(path: str, text: bytes, options: CsvOptions) -> tuple[int, CsvOptions]:
    """Return where the first row begins in a file's first block, and the options with the delimiter that it names."""
    start = _skipped(path, text, options.skip_lines)
    start = len(text) - len(text[start:].lstrip(b"\r\n"))
    told = _DELIMITER_LINE.match(text, start)
    return (
        (start, options) if told is None else (told.end(), options.model_copy(update={"delimiter": told[1].decode()}))
    )


def copy_csv(
    file: Located, options: CsvOptions, folder: Path, on_read: Callable[[int], None]
) -> tuple[CopiedFile | None, Sequence[InputError]]:
    """Convert ``file`` to parquet, or return its problems, as :func:`lakegate.sources.copies.copy_file` does."""
    how: dict[str, bool] = {}

    def read_so(file: Located, on_read: Callable[[int], None]) -> Rows:
        return read(file, options, (lambda _: None) if how else on_read, **how)

    while True:
        try:
            return copy_file(file, read_so, folder, on_read)
        except _NotOfTypeError:
            how["typed"] = False
        except DoubtfulRowsError as error:
            if "careful" in how:
                path = shown(file.path)
                return None, (SourceError(f"'{path}' can't be parsed: {error}.", hint=_ROW_HINT, path=path),)
            how["careful"] = True


class _NotOfTypeError(Exception):
    """A later value of a column can't be told from one of the type that its first ones have."""


class DoubtfulRowsError(Exception):
    """DuckDB can't tell a file's rows apart. Python's own reader can, or says which are broken."""


def read(
    file: Located,
    options: CsvOptions,
    on_read: Callable[[int], None],
    *,
    careful: bool = False,
    typed: bool = True,
) -> Rows:
    """Read a CSV file as rows, and infer their types meanwhile.

    Args:
        options: How to read it, normalised.
        on_read: Called with the number of bytes read after each block, from any thread.
        careful: Have Python's own CSV reader, which is slow, tell the rows apart.
        typed: Convert columns whose text can be told from their values. The others stay text, because a table's column
            may be text.

    Raises:
        SourceError: When it isn't text, or its first row can't be read; while reading the rows, when one of them is
            broken.
        DoubtfulRowsError: While reading the rows, when only a careful reader may tell them apart.
        _NotOfTypeError: While reading the rows, when a column that was converted has to stay text.
    """
    path = shown(file.path)
    blocks = _text_blocks(file, options.encoding, on_read)
    if options.skip_footer:
        blocks = _without_footer(blocks, path, options.skip_footer)
    first = next(blocks, b"")
    start, options = _start(path, first, options)
    names, line_end = _first_row(path, first[start:].decode(), options)
    source = _Source(file, options, names, before=first[:start], line_end="\n" if careful else line_end)
    rows: Iterator[bytes] = chain([first[start:]], blocks)
    if careful:
        rows = source.rewritten(rows)
    elif line_end == "\r\n":
        rows = _only_crlf(rows)
    types = [Inference() for _ in source.kept]
    tables = _tables(source, rows, types, typed=typed)
    empty = pa.schema([(name, pa.string()) for name in source.kept]).empty_table()
    head = next(tables, empty)
    return Rows(
        schema=head.schema,
        columns=tuple(SourceColumn(name=name, type="text") for name in source.kept),
        batches=chain([head], tables),
        types=types,
    )


def _skipped(path: str, text: bytes, count: int) -> int:
    """Return where the line after the first ``count`` lines begins."""
    lines = text.splitlines(keepends=True)[:count] if count else []
    if len(lines) < count or (lines and len(lines[-1]) == len(lines[-1].rstrip(b"\r\n"))):
        message = f"'{path}' has no line after the {counted(count, 'line')} to skip at its start."
        raise SourceError(message, hint="Check --skip-lines.", path=path)
    return sum(map(len, lines))


def _without_footer(blocks: Iterable[bytes], path: str, count: int) -> Iterator[bytes]:
    """Yield blocks of whole characters without the last ``count`` lines. Empty lines after them don't count."""
    rest = b""
    for block in blocks:
        rest += block
        end = max(len(rest) - _BLOCK_BYTES, 0)
        while end and rest[end] & 0xC0 == 0x80:  # inside a character
            end -= 1
        if end >= _BLOCK_BYTES:
            yield rest[:end]
            rest = rest[end:]
    lines = rest.rstrip().splitlines(keepends=True)
    if len(lines) <= count:
        message = f"'{path}' has no line before the {counted(count, 'line')} to skip at its end."
        raise SourceError(message, hint="Check --skip-footer.", path=path)
    yield b"".join(lines[:-count])


def _first_row(path: str, text: str, options: CsvOptions) -> tuple[tuple[str, ...], str]:
    """Return the names of the columns, and how the first row of a block of text ends."""
    lines = io.StringIO(text, newline="")
    reader = _python_reader(lines, options)
    try:
        row: list[str] = next(reader, [])
    except csv.Error as error:
        message = f"'{path}', line {reader.line_num}: the header's quotes don't match ({error})."
        raise SourceError(message, hint=_QUOTE_HINT, path=path) from error
    if not row:
        raise SourceError(f"'{path}' has no line of text.", hint="Write it again, or exclude it.", path=path)
    before = text[: lines.tell()]
    line_end = before[len(before.rstrip("\r\n")) :]
    if not options.header:
        return tuple(f"_c{index}" for index in range(len(row))), line_end
    if lines.tell() == len(text) >= _BLOCK_BYTES:
        message = f"'{path}' has no end of line in its first {_BLOCK_BYTES:,} bytes."
        raise SourceError(message, hint=_ROW_HINT, path=path)
    following = [line for line in lines.readlines(_HEAD_BYTES) if line.strip()]
    for mark, spelled in _OTHER_DELIMITERS.items() if len(row) == 1 else ():
        count = row[0].count(mark)
        if count and (not following or any(line.count(mark) == count for line in following[:_LOOKED_AT])):
            message = f"'{path}' has one column, '{row[0]}'. Its delimiter doesn't seem to be {options.delimiter!r}."
            raise SourceError(message, hint=f"Pass --delimiter {spelled}.", path=path)
    unnamed = [str(index) for index, name in enumerate(row[:-1], start=1) if not name.strip()]
    if unnamed:
        raise SchemaError(
            f"'{path}': column {', '.join(unnamed)} has no name.",
            hint=_FIRST_HINT if unnamed == ["1"] else _NAMES_HINT,
            path=path,
        )
    return tuple(row), line_end


def _python_reader(lines: Iterable[str], options: CsvOptions) -> Any:
    csv.field_size_limit(_LONGEST_FIELD)  # of the whole process; by default, 131,072 characters
    if not options.quote:
        return csv.reader(lines, delimiter=options.delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=options.delimiter, quotechar=options.quote, strict=True)


def _tables(source: _Source, blocks: Iterable[bytes], types: list[Inference], *, typed: bool) -> Iterator[pa.Table]:
    """Yield the rows of UTF-8 ``blocks``, and put the types inferred from all of them into ``types``."""
    options = source.options
    forms, is_plain = rules(options), options.number is None
    # Numbers that aren't all dates, such as ids of eight digits, stay numbers.
    as_is = list(types)
    kinds: list[Any] | None = None
    for batch in _ahead(_batches(source, blocks)):
        if source.repeats_header(batch):
            raise DoubtfulRowsError("a row repeats the header")
        if any(column.null_count < len(column) for column in batch.columns[len(types) :]):
            raise next(name_problems(shown(source.file.path), source.names))
        columns = batch.columns[: len(types)]
        for index, column in enumerate(columns):
            types[index] = infer(rewritten(column, options, forms), types[index])
            if forms:
                as_is[index] = infer(rewritten(column, options), as_is[index])
        if kinds is None:
            kinds = [_stored(found) if typed and is_plain and not forms else pa.string() for found in types]
        yield _converted(columns, source.kept, kinds, types)
    if forms:
        types[:] = [other if found.kind == "string" else found for found, other in zip(types, as_is, strict=True)]


def _stored(found: Inference) -> Any:
    """Return the type of a copy's column: that of its values where they tell their text, or else text."""
    return _TYPES.get(found.kind, pa.string()) if found.plain else pa.string()


def _converted(columns: Sequence[Any], names: Sequence[str], kinds: Sequence[Any], types: Sequence[Inference]) -> Any:
    if any(kind not in {pa.string(), _stored(found)} for kind, found in zip(kinds, types, strict=True)):
        raise _NotOfTypeError
    return pa.table([pc.cast(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=list(names))


def _ahead(batches: Generator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches, and let another thread read the next one meanwhile."""
    with closing(batches), ThreadPoolExecutor(1, thread_name_prefix="lakegate-csv") as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch


def _batches(source: _Source, blocks: Iterable[bytes]) -> Generator[pa.RecordBatch]:
    settings: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    import duckdb  # only where it's needed: a process that is forked after it was loaded aborts at its exit

    with duckdb.connect(config=settings) as connection, _piped(blocks) as (pipe, failures):
        try:
            yield from connection.execute(source.query(pipe)).to_arrow_reader(_BATCH_ROWS)
        except (duckdb.Error, OSError) as error:  # reading a batch raises the latter
            if not failures:
                raise DoubtfulRowsError(first_line(str(error))) from error
        if failures:
            raise failures[0]


@contextmanager
def _piped(blocks: Iterable[bytes]) -> Iterator[tuple[str, list[Exception]]]:
    """Yield the path of a pipe with ``blocks``, and a list for the error that stops them early."""
    reading, writing = os.pipe()
    failures: list[Exception] = []

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as pipe:
            try:
                for block in blocks:
                    pipe.write(block)
            except BrokenPipeError:  # nobody reads on
                raise
            except Exception as error:  # noqa: BLE001 (raised by the reader)
                failures.append(error)

    writer = threading.Thread(target=write, name="lakegate-csv", daemon=True)
    writer.start()
    try:
        yield f"/dev/fd/{reading}", failures
    finally:
        os.close(reading)
        writer.join()


@dataclass(frozen=True, slots=True)
class _Source:
    """A file and how to read it.

    Attributes:
        names: Names of its columns.
        before: What precedes its first row.
        line_end: How its rows end.
    """

    file: Located
    options: CsvOptions
    names: tuple[str, ...]
    before: bytes
    line_end: str

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns without a last one that has no name, as where each line ends in a delimiter. It has no values."""
        is_empty = self.options.header and len(self.names) > 1 and not self.names[-1].strip()
        return self.names[:-1] if is_empty else self.names

    def query(self, pipe: str) -> str:
        """Return DuckDB's SQL to read the rows from a pipe."""
        options, names = self.options, [f"c{index}" for index in range(len(self.names))]
        is_single = len(names) == 1
        given = {
            "auto_detect": "false",
            "strict_mode": "true",
            "header": str(options.header).lower(),
            "delim": _literal(options.delimiter),
            "quote": _literal(options.quote),
            "escape": _literal(options.quote),
            "columns": "{" + ", ".join(f"{name}: 'VARCHAR'" for name in names) + "}",
            "nullstr": "['']",
            # In a single column, an empty line isn't a row, but empty quotes are.
            "allow_quoted_nulls": str(not is_single).lower(),
            "max_line_size": str(_LONGEST_ROW),
        }
        if self.line_end in _LINE_ENDS:
            given["new_line"] = _LINE_ENDS[self.line_end]
        words = [word for word in options.null_values if word] + ([""] if is_single else [])
        values = [
            f"if({name} IN ({', '.join(map(_literal, words))}), NULL, {name})" if words else name for name in names
        ]
        rows = f"read_csv({_literal(pipe)}, {', '.join(f'{name} = {value}' for name, value in given.items())})"
        return f"SELECT {', '.join(values)} FROM {rows}{' WHERE c0 IS NOT NULL' if is_single else ''}"  # noqa: S608

    def is_header(self, row: Sequence[str]) -> bool:
        """Return whether a row is the header, even after a byte order mark. A single value may equal it by chance."""
        if not self.options.header or len(row) <= 1 or tuple(row[1:]) != self.names[1:]:
            return False
        return (row[0] or "").lstrip("\ufeff").strip(self.options.quote or None) == self.names[0]

    def repeats_header(self, rows: pa.RecordBatch) -> bool:
        """Return whether one of some rows is the header."""
        for index, name in list(enumerate(self.names))[1:]:
            if not rows.num_rows:
                return False
            rows = rows.filter(pc.equal(rows.column(index), pa.scalar(name)))
        return any(map(self.is_header, zip(*(column.to_pylist() for column in rows.columns), strict=True)))

    def rewritten(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the rows in ``blocks`` with all values in quotes, and one kind of line ending.

        Raises:
            SourceError: When rows are broken; it names their lines.
        """
        path, reader = shown(self.file.path), _python_reader(_lines(blocks), self.options)
        text = io.StringIO(newline="")
        writer = csv.writer(
            text,
            delimiter=self.options.delimiter,
            quotechar=self.options.quote or None,
            quoting=csv.QUOTE_ALL if self.options.quote else csv.QUOTE_NONE,
            lineterminator="\n",
        )
        ragged: list[tuple[int, int]] = []
        before = 1 + _line_ends(self.before)
        line, last_good = before, 0
        try:
            for row in reader:
                if line > before and self.is_header(row):
                    raise SourceError(
                        f"'{path}' repeats its header on line {line}.",
                        hint="If it's several files in one, delete that line, or ingest them as separate files.",
                        path=path,
                    )
                if row and len(row) != len(self.names):
                    ragged.append((line, len(row)))
                elif row:
                    last_good = line
                if len(ragged) > _MAX_ROWS_NAMED:
                    break
                if sum(map(len, row)) > _LONGEST_ROW // 2:
                    message = f"'{path}' has a row of more than {_LONGEST_ROW // 2:,} characters (line {line})."
                    hint = "Check its quotes; or write it as parquet or JSON lines, which allow longer values."
                    raise SourceError(message, hint=hint, path=path)
                line = before + reader.line_num
                writer.writerow(row)
                if text.tell() >= _BLOCK_BYTES:
                    yield text.getvalue().encode()
                    text.seek(text.truncate(0))
        except csv.Error as error:
            message = f"'{path}': the quotes in the row that starts on line {line} don't match ({error})."
            start = next(_text_blocks(self.file, self.options.encoding, lambda _: None), b"")
            way = _BACKSLASH_HINT.format(path=path, sep=self.options.delimiter, header=self.options.header)
            hint = way if b'\\"' in start else _QUOTE_HINT
            raise SourceError(message, hint=hint, path=path) from error
        if ragged:
            raise self._ragged(ragged, last_good)
        yield text.getvalue().encode()

    def _ragged(self, rows: Sequence[tuple[int, int]], last_good: int) -> SourceError:
        """Return the error for rows of another length, given as their lines and lengths."""
        path = shown(self.file.path)
        listed = "; ".join(f"line {line} has {counted(count, 'value')}" for line, count in rows[:_MAX_ROWS_NAMED])
        hint = "Quote values that contain the delimiter, and repair truncated rows; or check --delimiter."
        skipped = self.options.skip_lines
        first, longest = rows[0][0], max(count for _, count in rows)
        if self.options.header and longest > len(self.names) and longest == rows[-1][1] and last_good < rows[-1][0]:
            header = next(line for line, count in rows if count == longest)
            hint = f"If line {header} is its header, pass --skip-lines {header - 1}. Else: {hint[0].lower()}{hint[1:]}"
        elif len(rows) <= _MAX_ROWS_NAMED and first > last_good > 1 + skipped:
            since = f"line {first} is" if len(rows) == 1 else f"the lines from {first} on are"
            hint = f"If {since} a total or a remark, pass --skip-footer {len(rows)}. Else: {hint[0].lower()}{hint[1:]}"
        return SourceError(
            f"'{path}' has rows with a different number of values than its first row ({len(self.names)}): {listed}.",
            hint=hint,
            path=path,
        )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _lines(blocks: Iterable[bytes]) -> Iterator[str]:
    rest = ""
    for block in blocks:
        lines = list(io.StringIO(rest + block.decode(), newline=""))
        rest = lines.pop() if lines else ""
        yield from lines
    if rest:
        yield rest


def _only_crlf(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes, and raise ``DoubtfulRowsError`` if a line ends otherwise than by CR LF."""
    rest = b""
    for block in blocks:
        text = rest + block
        rest = text[-1:] if text.endswith(b"\r") else b""
        text = text[: len(text) - len(rest)]
        if not text.count(b"\r\n") == text.count(b"\r") == text.count(b"\n"):
            raise DoubtfulRowsError("lines end differently")
        yield text
    if rest:
        raise DoubtfulRowsError("lines end differently")


def _text_blocks(file: Located, encoding: str, on_read: Callable[[int], None]) -> Iterator[bytes]:
    """Yield a file's text as blocks of whole characters in UTF-8, decompressed and without a byte order mark."""
    path, lines, is_first = shown(file.path), 1, True
    decoder = codecs.getincrementaldecoder(encoding)()
    with decompressed(file, on_read) as stream:
        while True:
            raw = stream.read(_BLOCK_BYTES)
            if raw.isascii() and encoding in _ASCII_COMPATIBLE and not decoder.getstate()[0]:
                block = raw
            else:
                try:
                    block = decoder.decode(raw, final=not raw).encode()
                except UnicodeError as error:
                    raise _not_of(path, encoding, error, raw if is_first else b"", lines) from error
            if is_first:
                block = block.removeprefix(codecs.BOM_UTF8)
            if b"\0" in block:
                line = lines + block.count(b"\n", 0, block.index(0))
                raise SourceError(
                    f"'{path}' isn't text: it has a NUL byte (line {line}).",
                    hint=_wide(raw) if is_first and _wide(raw) else "Copy or write it again.",
                    path=path,
                )
            lines += block.count(b"\n")
            if block:
                yield block
                is_first = False
            if not raw:
                return


def _not_of(path: str, encoding: str, error: UnicodeError, start: bytes, lines: int) -> SourceError:
    """Return the error for bytes that aren't of the file's encoding."""
    if not isinstance(error, UnicodeDecodeError):  # no byte order mark
        hint = "Pass its encoding, such as --encoding utf-16le or --encoding utf-16be."
        return SourceError(f"'{path}' isn't {encoding}: {error}.", hint=hint, path=path)
    line = lines + error.object[: error.start].count(b"\n")
    byte = error.object[error.start]
    hint = _wide(start) or _candidates(error.object, error.start, encoding)
    return SourceError(
        f"'{path}' isn't {encoding}: byte 0x{byte:02x} on line {line} ({error.reason}).", hint=hint, path=path
    )


def _wide(start: bytes) -> str:
    """Return a hint if a file that begins like this is UTF-16; ``""`` if it isn't."""
    if start.startswith(_UTF16_MARKS):
        return "It looks like UTF-16: pass --encoding utf-16."
    head = start[:_HEAD_BYTES]
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) * 8 < len(head) or min(even, odd) * 8 > max(even, odd):
        return ""
    return f"It looks like UTF-16: pass --encoding utf-16{'be' if even > odd else 'le'}."


def _candidates(text: bytes, at: int, encoding: str) -> str:
    """Return a hint that shows how a word with a wrong byte reads in other encodings."""
    start = max(text.rfind(mark, 0, at) for mark in _WORD_ENDS) + 1
    ends = [end for mark in _WORD_ENDS if (end := text.find(mark, at)) >= 0]
    word = text[start : min([*ends, len(text)])][:_LONGEST_SHOWN]
    found: dict[str, str] = {}
    for name in _ENCODINGS:
        with suppress(UnicodeError):
            shown_as = word.decode(name)
            if shown_as.isprintable() and codecs.lookup(name).name != encoding:
                found.setdefault(shown_as, name)
    if not found:
        return "Pass its encoding with --encoding."
    listed = ", ".join(f"'{shown_as}' in {name}" for shown_as, name in found.items())
    return f"Pass its encoding with --encoding. Only you know which one reads right: {listed}."
