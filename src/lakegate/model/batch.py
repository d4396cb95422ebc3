"""The files of one ingest, checked before anything is written, how to read CSV, and files that other runs know."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from lakegate.errors import InputError, SchemaError
from lakegate.model.base import Value
from lakegate.model.locations import canonical
from lakegate.model.schema import is_masked

FileFormat = Literal["parquet", "csv", "json", "avro", "orc", "excel"]

MISSING_WORDS = ("NA", "N/A", "n/a", "#N/A", "NULL", "null", r"\N")
"""Texts that mean NULL in CSV columns whose other values are numbers, dates, times or booleans.

In text columns they stay text: ``NA`` is also Namibia. :attr:`CsvOptions.null_values` applies to all columns.
"""
# Both Arrow, which infers types, and Spark, which parses the text, support these regular expressions.
DECIMAL_COMMA = r"^[+-]?([0-9]{1,3}(\.[0-9]{3})+|[0-9]+)(,[0-9]+)?$"
"""A number with a decimal comma. Dots may group its digits by three."""
FINE_TIME = r"[0-9]:[0-9]{2}\.[0-9]{6}[0-9]*[1-9]"
"""Part of a time that has more digits than those of its microsecond."""
NAMED_MONTH = r"(?:[0-9]{1,2}[ ./-]?)?(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(?i:[a-z]*)[ ,./-]{1,2}[0-9]"
"""Start of a date with the name of a month."""
TOO_LARGE = r"^-?[0-9.]+[eE]\+?(?:[1-9][0-9]{3,}|[4-9][0-9]{2}|3[1-9][0-9]|309)$"
"""A number that's larger than a double can be."""
SHORTENED = r"^-?[1-9](?:\.[0-9]{1,5})?E\+(?:1[1-9]|[2-9][0-9])$"
"""How Excel shows numbers of more than eleven digits, and saves them as CSV: with the first six of them."""
HEADERLESS = re.compile(r"[+-]?[0-9][0-9.,:/ TZ+-]*")
"""A number, date or time, which is hardly the name of a column."""
NON_FINITE = ("NaN", "Inf", "-Inf", "Infinity", "-Infinity")
"""Values of a double that aren't numbers."""
LONE_DIGIT = r"\b([0-9])\b"
"""A digit that needs a leading zero in SQL's date format."""
_PARTS = {
    "%d": "(?P<d>[0-9]{1,2})",
    "%m": "(?P<m>[0-9]{1,2})",
    "%Y": "(?P<Y>[0-9]{4})",
    "%H": "(?P<H>[0-9]{1,2})",
    "%M": "(?P<M>[0-9]{2})",
    "%S": "(?P<S>[0-9]{2})",
}
_DATE, _TIME = ("Y", "m", "d"), ("H", "M", "S")
_DIRECTIVE = re.compile(r"%.|[^%]+", re.DOTALL)

DELIMITERS = {"\\t": "\t", "tab": "\t"}
"""Delimiters that may be spelled out."""


def is_csv_character(text: str) -> bool:
    """Return whether ``text`` can be the delimiter or the quote of CSV files."""
    return len(text) == 1 and text.isascii() and text not in "\r\n\0"


def is_zone(name: str) -> bool:
    """Return whether there's a time zone of that name, such as ``Europe/Berlin``.

    Example:
        >>> is_zone("UTC"), is_zone("Mars/Base")
        (True, False)
    """
    try:
        ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return False
    return True


class CsvOptions(Value):
    """How to read CSV (RFC 4180 by default).

    ``null_values`` are texts that mean NULL in every column, in addition to the empty one; see :data:`MISSING_WORDS`.
    """

    header: bool = True
    """Whether the first line is a header."""
    delimiter: str = ","
    """Separator between values, one ASCII character. Default: ``,`` (a tab for ``.tsv``)."""
    quote: str = '"'
    """Quote character."""
    encoding: str = "utf-8"
    """The files' encoding."""
    null_values: tuple[str, ...] = ("",)
    """Texts that mean NULL in every column, in addition to the empty value."""
    decimal: Literal[".", ","] = "."
    """Decimal separator. With a comma, dots may group digits: ``1.234,56``."""
    numbers: Literal["plain", "accounting"] = "plain"
    """``accounting`` also reads ``1,234.50``, ``123-``, ``(123)`` and a currency sign: ``$``, ``€``, ``£``, ``¥``."""
    date_format: str | None = None
    """Format of dates, such as ``%d.%m.%Y``. Default: as ``2026-01-31``."""
    timestamp_format: str | None = None
    """Format of times, such as ``%d.%m.%Y %H:%M``. Default: as ``2026-01-31 10:00:00``."""
    types: Mapping[str, str] = {}
    """Types of columns, instead of the inferred ones, such as ``zip = "string"``."""
    skip_lines: int = Field(default=0, ge=0)
    """Number of lines before the header to leave out."""
    skip_footer: int = Field(default=0, ge=0)
    """Number of lines at the end to leave out, such as totals. Empty lines after them don't count."""

    def __hash__(self) -> int:
        """Return a hash of the options."""
        return hash(self.model_dump_json())

    @property
    def number(self) -> str | None:
        """A pattern for numbers to rewrite in SQL's notation; ``None`` if there are none."""
        if self.numbers == "plain":
            return DECIMAL_COMMA if self.decimal == "," else None
        return accounting(self.decimal)


def accounting(decimal: str) -> str:
    """Return the pattern of numbers as accounts have them, with the given decimal separator."""
    group, point = (r"\.", ",") if decimal == "," else (",", r"\.")
    number = f"(?:[0-9]{{1,3}}(?:{group}[0-9]{{3}})+|[0-9]+)(?:{point}[0-9]+)?"
    amount = f"(?:[$€£¥] ?)?{number}(?: ?[$€£¥])?"
    return rf"^(?:[+-]?{amount}|[$€£¥] ?-{number}|{amount}-|{number}- ?[$€£¥]|\({amount}\))$"


@dataclass(frozen=True, slots=True)
class TimeRewrite:
    """How to rewrite a date or time of CSV in SQL's format.

    Attributes:
        pattern: Matches a whole value.
        order: Group numbers of year, month, day, hour, minute and second, if present.
    """

    pattern: str
    order: tuple[int, ...]

    def replacement(self, sign: str) -> str:
        r"""Return the replacement; ``sign`` introduces a group reference: ``$`` in Java, ``\`` in RE2.

        Example:
            >>> time_rewrite("%d.%m.%Y", option="date-format").replacement("$")
            '$3-$2-$1'
        """
        groups = [f"{sign}{number}" for number in self.order]
        day, clock = "-".join(groups[: len(_DATE)]), ":".join(groups[len(_DATE) :])
        return f"{day} {clock}" if clock else day


def time_rewrite(form: str, *, option: str) -> TimeRewrite:
    """Return how to rewrite dates or times of CSV.

    Args:
        form: A ``strptime`` format with ``%d``, ``%m``, ``%Y``, ``%H``, ``%M``, ``%S`` and text between them.

    Raises:
        InputError: If it has other directives, or lacks one that a date or time needs.
    """
    parts = _DIRECTIVE.findall(form)
    unknown = [part for part in parts if part.startswith("%") and part not in _PARTS]
    names = [part[1] for part in parts if part in _PARTS]
    wanted = _DATE if option == "date-format" else (*_DATE, *_TIME[: max(2, sum(name in _TIME for name in names))])
    if unknown or sorted(names) != sorted(wanted):
        example = "%d.%m.%Y" if option == "date-format" else "%d.%m.%Y %H:%M:%S"
        raise InputError(
            f"Invalid --{option} '{form}': it needs {', '.join(f'%{name}' for name in wanted)}, each once.",
            hint=f"For example --{option} '{example}'.",
            option=option,
        )
    pieces = []
    for before, part, after in zip(["", *parts], parts, [*parts[1:], ""], strict=False):
        piece = re.sub(r"\?P<.>", "", _PARTS[part]) if part in _PARTS else _csv_literal(part)
        # Without a separator, a single digit could belong to either part.
        pieces.append(piece.replace("{1,2}", "{2}") if before in _PARTS or after in _PARTS else piece)
    pattern = "".join(pieces)
    return TimeRewrite(pattern=f"^{pattern}$", order=tuple(names.index(name) + 1 for name in wanted))


def _csv_literal(text: str) -> str:
    return "".join(f"[{character}]" if character in ".$|()*+?{}" else re.escape(character) for character in text)


class SourceFile(Value):
    """One version of a source file.

    Attributes:
        uri: Absolute location, ``file:///…``. If a link led to the file, this is the target.
        version: Identifies the content: ``sha256:…`` for local files.
        stamp: Fingerprint: size and modification time, or size and entity tag. While it's the same, so is the file.
            Empty if unknown.
        rows: Number of rows, from the footer (Parquet) or by reading it.
        version_id: The object store's id of this version, if the store keeps versions and returned it (S3's listings
            don't). For people only: ``version`` alone identifies the content.
        aliases: URIs of links that led to the file.
        copy_uri: Parquet file made from its rows, which the engine reads instead; ``None`` for Parquet.
    """

    uri: str
    size_bytes: int
    version: str
    stamp: str = ""
    rows: int
    version_id: str | None = None
    aliases: tuple[str, ...] = ()
    copy_uri: str | None = None


class SourceColumn(Value):
    """A column of the files.

    Attributes:
        name: Its name in the batch.
        type: Its Arrow type as text: ``int64``, ``timestamp[us]``, … For CSV and JSON text, the type inferred from all
            values. ``null`` for a column without values.
        file_name: Its name in the files, if that differs.
        inferred: For nested columns: the Iceberg type, if a part of it has no values, such as ``list<unknown>`` if all
            lists are empty. Always set for nested JSON.
    """

    name: str
    type: str
    file_name: str | None = None
    inferred: str | None = None

    @property
    def in_file(self) -> str:
        """Its name in the files."""
        return self.file_name or self.name


class ColumnText(Value):
    """What the text of a CSV column looks like, beyond its type.

    Attributes:
        odd: For text: the first value that isn't a number, date or time. For
            doubles: one that Excel may have shortened.
        odd_at: Its line and file.
        odd_is_last: Whether it's in the last row, which may hold totals.
        digits: For numbers: the largest number of digits of a value.
        fraction: For numbers: the largest number of fractional digits; large for exponents.
        words: For text: the :data:`MISSING_WORDS` it contains, which stay text.
        beyond_int: For integers: whether a value needs more than 32 bits.
        whole: For doubles: whether all are whole numbers, such as ``6.0``.
        flags: Whether text or integers are all words for true and false: ``t``, ``Y``, ``no``, ``0``, …
        fields_beyond_int: For nested JSON: lower-case paths of integers that need more than 32 bits.
    """

    name: str
    odd: str = ""
    odd_at: str = ""
    odd_is_last: bool = False
    digits: int = 0
    fraction: int = 0
    words: tuple[str, ...] = ()
    beyond_int: bool = False
    flags: bool = False
    whole: bool = False
    fields_beyond_int: tuple[tuple[str, ...], ...] = ()

    @property
    def inexact_as_double(self) -> bool:
        """Whether it holds integers too long for a double."""
        return not self.fraction and self.digits > 15  # a double keeps 15 digits


def merged_columns(columns: Iterable[Sequence[SourceColumn]]) -> tuple[SourceColumn, ...]:
    """Merge the columns of several files by name, ignoring case. Types come from files where a column has values."""
    found: dict[str, SourceColumn] = {}
    for column in (column for some in columns for column in some):
        known = found.get(column.name.lower())
        if known is None:
            found[column.name.lower()] = column
        elif known.type == "null":
            found[column.name.lower()] = known.model_copy(update={"type": column.type})
    return tuple(found.values())


def renamed(columns: Sequence[SourceColumn], names: Mapping[str, str]) -> tuple[SourceColumn, ...]:
    """Return the columns renamed by ``names``, a mapping from names in the files (in any case) to new ones.

    Example:
        >>> renamed([SourceColumn(name="Fare", type="double")], {"fare": "fare_amount"})
        (SourceColumn(name='fare_amount', type='double', file_name='Fare'),)
    """
    wanted = {old.lower(): new for old, new in names.items()}
    found: list[SourceColumn] = []
    for column in columns:
        new = wanted.get(column.in_file.lower(), column.name)
        named = column if new == column.name else column.model_copy(update={"name": new, "file_name": column.in_file})
        other = next((one for one in found if one.name.lower() == new.lower()), None)
        if other is not None:
            raise SchemaError(
                f"The files' columns '{other.in_file}' and '{column.in_file}' would both be called '{new}'.",
                hint="Map only one of them (--column, or columns in the table's settings).",
                column=new,
            )
        found.append(named)
    return tuple(found)


class FileColumns(Value):
    """Files of a batch that have the same columns, if not all files do."""

    columns: tuple[SourceColumn, ...]
    uris: tuple[str, ...]


class LeftOut(Value):
    """A file in a folder that isn't read, or a folder in it, and why."""

    uri: str
    reason: str


class Batch(Value):
    """The source files of one ingest: all of one format, none damaged.

    Attributes:
        left_out: Files in the given folders that aren't read; a thousand at most.
        columns: The columns of all files.
        variants: The columns of each file if they differ; else empty.
        timezone: The zone that times without one are in, for columns of times with a zone; ``None`` if unknown.
        texts: CSV only: what the text in its columns looks like.
    """

    format: FileFormat
    files: tuple[SourceFile, ...]
    columns: tuple[SourceColumn, ...]
    csv: CsvOptions | None = None
    texts: tuple[ColumnText, ...] = ()
    variants: tuple[FileColumns, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    timezone: str | None = None

    def parts(self) -> tuple[Batch, ...]:
        """Split the batch into parts whose files have the same columns."""
        if not self.variants:
            return (self,)
        parts = []
        for variant in self.variants:
            files = tuple(file for file in self.files if file.uri in set(variant.uris))
            if files:
                parts.append(self.model_copy(update={"files": files, "columns": variant.columns, "variants": ()}))
        return tuple(parts)

    def renamed(self, names: Mapping[str, str]) -> Batch:
        """Return the batch with columns renamed by ``names``, a mapping from names in the files to new ones."""
        if not names:
            return self
        variants = tuple(one.model_copy(update={"columns": renamed(one.columns, names)}) for one in self.variants)
        columns = merged_columns(one.columns for one in variants) if variants else renamed(self.columns, names)
        return self.model_copy(update={"columns": columns, "variants": variants, "texts": self._texts_of(columns)})

    def _texts_of(self, columns: Sequence[SourceColumn]) -> tuple[ColumnText, ...]:
        names = {column.in_file.lower(): column.name for column in columns}
        return tuple(text.model_copy(update={"name": names.get(text.name.lower(), text.name)}) for text in self.texts)

    @property
    def has_one_shape(self) -> bool:
        """Whether all files have the same columns of the same types, by name; in CSV also in the same order."""
        shapes = ([(column.name.lower(), column.type) for column in one.columns] for one in self.variants)
        return len({tuple(shape if self.csv is not None else sorted(shape)) for shape in shapes}) <= 1

    def named_like(self, names: tuple[str, ...]) -> Batch:
        """Return the batch with columns named ``names`` by position, if the files have no column names.

        Columns of CSV without a header are called ``_c0``, ``_c1``, …, so the table's names are better. A batch with
        column names, with renamed columns, or with another number of columns is returned unchanged.
        """
        if self.csv is None or self.csv.header or len(names) != len(self.columns):
            return self
        if any(column.file_name is not None for column in self.columns):
            return self
        pairs = dict(zip((column.name for column in self.columns), names, strict=True))
        return self.renamed(pairs)

    def hiding(self, masked: Sequence[str]) -> Batch:
        """Return the batch without values of columns that match one of the patterns ``masked``."""
        hidden = (text.model_copy(update={"odd": ""}) if is_masked(masked, text.name) else text for text in self.texts)
        return self.model_copy(update={"texts": tuple(hidden)})

    def only(self, files: tuple[SourceFile, ...]) -> Batch:
        """Return the batch with only these of its files."""
        return self.model_copy(update={"files": files})

    @property
    def rows(self) -> int:
        """Number of rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes in all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def uris(self) -> tuple[str, ...]:
        """Locations of all files."""
        return tuple(file.uri for file in self.files)

    @property
    def read_uris(self) -> tuple[str, ...]:
        """Locations of what the engine reads: the files, or the Parquet copies of them."""
        return tuple(file.copy_uri or file.uri for file in self.files)

    def files_at(self, paths: Iterable[str]) -> dict[str, SourceFile]:
        """Return the files by the paths that an engine gives what it read, without those whose path isn't clear."""
        spelled = [canonical(unquote(uri)) for uri in self.read_uris]
        known, times = dict(zip(spelled, self.files, strict=True)), Counter(spelled)
        clear = ((path, canonical(unquote(path))) for path in paths)
        return {path: known[own] for path, own in clear if times[own] == 1}


class KnownFile(Value):
    """A source file that a run published or is ingesting."""

    file: SourceFile
    run_id: str


class Claim(Value):
    """The result of claiming a batch's files. Each file is in exactly one of these.

    Attributes:
        claimed: Now claimed by this run.
        published: Already published in this version, with the run that did so.
        busy: Claimed by another live run, in this or another version.
        changed: Already published in another version, which the :class:`KnownFile` holds.
        free: Not claimed, but only because other files of the batch were busy.
        went_back: The newer version that was published of a file in ``published``: the file changed back to earlier
            content.
    """

    claimed: tuple[SourceFile, ...] = ()
    published: tuple[KnownFile, ...] = ()
    busy: tuple[KnownFile, ...] = ()
    changed: tuple[KnownFile, ...] = ()
    free: tuple[SourceFile, ...] = ()
    went_back: tuple[KnownFile, ...] = ()

    def with_changed_back(self) -> Claim:
        """Return the result with files that changed back to an earlier version counted as ``changed``."""
        uris = {known.file.uri for known in self.went_back}
        published = tuple(known for known in self.published if known.file.uri not in uris)
        return self.model_copy(
            update={"published": published, "changed": (*self.changed, *self.went_back), "went_back": ()}
        )
