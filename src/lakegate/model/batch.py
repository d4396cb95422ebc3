"""The files of one ingest, checked before anything is written, and those that runs know already."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from lakegate.errors import SchemaError
from lakegate.model.base import Value
from lakegate.model.schema import is_masked

FileFormat = Literal["parquet", "csv", "json", "avro", "orc", "excel"]

# An entity tag of S3 that is a hash of the content, or of its parts' hashes; other stores' are counters or times.
_S3_CONTENT = re.compile(r'etag:"?[0-9a-fA-F]{32}(?:-[0-9]+)?"?:[0-9]+')

MISSING_WORDS = ("NA", "N/A", "n/a", "#N/A", "NULL", "null")
"""Texts that mean NULL in CSV columns whose other values are numbers, dates, times or booleans.

In a column of text they are text: ``NA`` is also Namibia. :attr:`CsvOptions.null_values` holds for all columns.
"""


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
    """What separates the fraction of numbers. With a comma, points may group digits: ``1.234,56``."""
    date_format: str | None = None
    """How dates are written if not as ``2026-01-31``, such as ``%d.%m.%Y``."""
    timestamp_format: str | None = None
    """How times are written if not as ``2026-01-31 10:00:00``, such as ``%d.%m.%Y %H:%M``."""
    types: Mapping[str, str] = {}
    """Types of columns that aren't to be inferred, such as ``zip = "string"``."""

    def __hash__(self) -> int:
        """Return the hash of what it says."""
        return hash(self.model_dump_json())


class SourceFile(Value):
    """One source file in the version that was looked at.

    Attributes:
        uri: Absolute location, ``file:///…``; of the real file, when it was found by a link.
        version: Identifies this content of the path: ``sha256:…`` for local files.
        stamp: Size and time of the last change, or size and entity tag: as long as it is the same, so is the file.
            Empty when it isn't known.
        rows: Number of rows, counted from the footer (parquet) or by parsing (CSV).
        version_id: What the object store calls this version, where it keeps versions and was asked for this very key
            (S3's listings have none). For people only; ``version`` alone identifies the content.
        identity: What a local file keeps when it's renamed or linked: device, inode and time of last change. Two paths
            with one ``version`` and one ``identity`` are one file. Empty in object stores.
        aliases: Other URIs by which it was found: those of links to it.
        copy_uri: Parquet that was made of its rows, which the engine reads instead; ``None`` for parquet and CSV.
    """

    uri: str
    size_bytes: int
    version: str
    stamp: str = ""
    rows: int
    version_id: str | None = None
    identity: str = ""
    aliases: tuple[str, ...] = ()
    copy_uri: str | None = None

    @property
    def names_content(self) -> bool:
        """Whether another file of the same ``version`` surely has the same bytes: a SHA-256, or S3's entity tag.

        Of S3, equal tags mean equal content; different ones mean nothing (an upload in parts has another).
        """
        return self.version.startswith("sha256:") or (
            self.uri.startswith("s3:") and _S3_CONTENT.fullmatch(self.version) is not None
        )

    def is_same_file(self, other: SourceFile) -> bool:
        """Return whether ``other``, of the same version, is this very file under another name."""
        return (bool(self.identity) and self.identity == other.identity) or other.uri in self.aliases


class SourceColumn(Value):
    """A column of the files.

    ``type`` is the Arrow type as text (``int64``, ``timestamp[us]`` …), for CSV and text in JSON the one inferred from
    all values, and ``null`` for a column without any value. ``file_name`` is what the files call it, if the
    batch calls it otherwise. ``inferred`` is the Iceberg type of what is nested, where parts of it have none, such as
    ``list<unknown>`` for lists that are all empty. It's known of all that is nested in JSON.
    """

    name: str
    type: str
    file_name: str | None = None
    inferred: str | None = None

    @property
    def in_file(self) -> str:
        """What the files call it."""
        return self.file_name or self.name


class ColumnText(Value):
    """What the text of a CSV column looks like, beyond its type.

    Attributes:
        odd: For text: the first value that kept it from being numbers, dates or times; empty if there was none.
        digits: For numbers: the most digits of a value.
        fraction: For numbers: the most digits of a fraction; many for one with an exponent.
        words: For text: which of :data:`MISSING_WORDS` it holds, which stay text.
        beyond_int: For integers: whether one needs more than 32 bits.
        fields_beyond_int: For what is nested in JSON: where integers need more than 32 bits, in lower case.
    """

    name: str
    odd: str = ""
    digits: int = 0
    fraction: int = 0
    words: tuple[str, ...] = ()
    beyond_int: bool = False
    fields_beyond_int: tuple[tuple[str, ...], ...] = ()

    @property
    def inexact_as_double(self) -> bool:
        """Whether it holds integers too long for a double."""
        return not self.fraction and self.digits > 15  # digits that a double always keeps


def united(columns: Iterable[Sequence[SourceColumn]]) -> tuple[SourceColumn, ...]:
    """Return each column of several files once, by its name in any case; with a type, if one of them has values."""
    found: dict[str, SourceColumn] = {}
    for column in (column for some in columns for column in some):
        known = found.get(column.name.lower())
        if known is None:
            found[column.name.lower()] = column
        elif known.type == "null":
            found[column.name.lower()] = known.model_copy(update={"type": column.type})
    return tuple(found.values())


def renamed(columns: Sequence[SourceColumn], names: Mapping[str, str]) -> tuple[SourceColumn, ...]:
    """Return the columns called as ``names`` says, by their names in the files, in any case.

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
                f"The files have both '{other.in_file}' and '{column.in_file}', which would both be '{new}'.",
                hint="Map only one of them (--column, or columns in the table's settings).",
                column=new,
            )
        found.append(named)
    return tuple(found)


class FileColumns(Value):
    """Files of a batch that have the same columns, where those of others differ."""

    columns: tuple[SourceColumn, ...]
    uris: tuple[str, ...]


class Batch(Value):
    """The set of source files of one ingest: all of one format, none damaged.

    Attributes:
        columns: The columns of the files; where they differ, those of all of them.
        variants: The columns of each file, where they differ; else empty.
        texts: CSV only: what the text of its columns looks like.
        multiline: CSV only: some quoted value spans lines, so files can't be split by line.
    """

    format: FileFormat
    files: tuple[SourceFile, ...]
    columns: tuple[SourceColumn, ...]
    csv: CsvOptions | None = None
    texts: tuple[ColumnText, ...] = ()
    multiline: bool = False
    variants: tuple[FileColumns, ...] = ()

    def parts(self) -> tuple[Batch, ...]:
        """Return the batch in parts whose files have the same columns each."""
        if not self.variants:
            return (self,)
        parts = []
        for variant in self.variants:
            files = tuple(file for file in self.files if file.uri in set(variant.uris))
            if files:
                parts.append(self.model_copy(update={"files": files, "columns": variant.columns, "variants": ()}))
        return tuple(parts)

    def renamed(self, names: Mapping[str, str]) -> Batch:
        """Return the batch with columns called as ``names`` says, by their names in the files; others stay."""
        if not names:
            return self
        variants = tuple(one.model_copy(update={"columns": renamed(one.columns, names)}) for one in self.variants)
        columns = united(one.columns for one in variants) if variants else renamed(self.columns, names)
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
        """Return the batch with its columns called ``names``, by position, where the files themselves name none.

        CSV without a header has made-up names (``_c0``, ``_c1`` …); a table's own say what the columns are. A batch
        with names of its own, with names that were mapped, or with another number of columns, is returned as it is.
        """
        if self.csv is None or self.csv.header or len(names) != len(self.columns):
            return self
        if any(column.file_name is not None for column in self.columns):
            return self
        pairs = dict(zip((column.name for column in self.columns), names, strict=True))
        columns = tuple(column.model_copy(update={"name": pairs[column.name]}) for column in self.columns)
        texts = tuple(text.model_copy(update={"name": pairs[text.name]}) for text in self.texts)
        return self.model_copy(update={"columns": columns, "texts": texts})

    def hiding(self, masked: Sequence[str]) -> Batch:
        """Return the batch without the values of columns that the patterns ``masked`` name."""
        hidden = (text.model_copy(update={"odd": ""}) if is_masked(masked, text.name) else text for text in self.texts)
        return self.model_copy(update={"texts": tuple(hidden)})

    def only(self, files: tuple[SourceFile, ...]) -> Batch:
        """Return the batch with just these of its files."""
        return self.model_copy(update={"files": files})

    @property
    def rows(self) -> int:
        """Rows in all files."""
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
        """Locations of what the engine reads: the files, or the parquet that was made of them."""
        return tuple(file.copy_uri or file.uri for file in self.files)


class KnownFile(Value):
    """A source file that a run published, or is ingesting.

    Attributes:
        same_file_as: URI by which that run knows the file, if it's another one: it was renamed, or has two links.
        same_content_as: URI of another file of that run with the same bytes.
    """

    file: SourceFile
    run_id: str
    same_file_as: str | None = None
    same_content_as: str | None = None


class Claim(Value):
    """The answer to a claim. Each file is in exactly one of these.

    Attributes:
        claimed: Claimed by this run now.
        published: Published before in this version, and by which run.
        busy: Claimed by another live run, in this version or another one of the path.
        changed: Published before in another version, which the :class:`KnownFile` holds.
        same_content: Has the same bytes as another file that a run published or is ingesting, or that comes earlier in
            the batch. Where that doesn't matter, the file is also ``claimed`` or ``free``.
        free: Could be claimed, but wasn't because others of the batch were busy.
        went_back: Which newer version was published of the path of a file that is ``published`` in this version: the
            file went back to what it held before.
    """

    claimed: tuple[SourceFile, ...] = ()
    published: tuple[KnownFile, ...] = ()
    busy: tuple[KnownFile, ...] = ()
    changed: tuple[KnownFile, ...] = ()
    same_content: tuple[KnownFile, ...] = ()
    free: tuple[SourceFile, ...] = ()
    went_back: tuple[KnownFile, ...] = ()

    def with_changed_back(self) -> Claim:
        """Return the answer with files that went back to an earlier version as ``changed``, as they are since then."""
        uris = {known.file.uri for known in self.went_back}
        published = tuple(known for known in self.published if known.file.uri not in uris)
        return self.model_copy(
            update={"published": published, "changed": (*self.changed, *self.went_back), "went_back": ()}
        )
