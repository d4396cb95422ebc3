"""Inspect source files: detect their formats, compare their columns, and describe their problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakegate.errors import InputError, SchemaError, SourceError
from lakegate.model.batch import HEADERLESS, FileFormat, SourceColumn
from lakegate.model.schema import reserved_names
from lakegate.model.types import struct_fields, struct_text
from lakegate.model.words import appearance, escaped
from lakegate.sources.files import Located, shown
from lakegate.storage.objects import ReplacedError


@dataclass(frozen=True, slots=True)
class Format:
    """How to recognise files of a format.

    Attributes:
        name: What messages call such a file.
        suffixes: Endings of file names, in lower case.
        starts: Possible first bytes of a file; none for text.
        is_ambiguous: Whether other kinds of files start with the same bytes, so that only the name decides.
    """

    name: str
    suffixes: tuple[str, ...]
    starts: tuple[bytes, ...] = ()
    is_ambiguous: bool = False


_PARQUET_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
FORMATS: Mapping[FileFormat, Format] = {
    "parquet": Format("parquet", (".parquet", ".parq", ".pq"), (_PARQUET_MAGIC, _ENCRYPTED_MAGIC)),
    "csv": Format("CSV", (".csv", ".csv.gz", ".tsv", ".tsv.gz")),
    "json": Format(
        "JSON", tuple(f".{name}{packed}" for packed in ("", ".gz", ".zst") for name in ("json", "jsonl", "ndjson"))
    ),
    "avro": Format("an Avro file", (".avro",), (b"Obj\x01",)),
    "orc": Format("an ORC file", (".orc",), (b"ORC",)),
    "excel": Format(
        "an Excel workbook",
        (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
        (b"PK\x03\x04", b"\xd0\xcf\x11\xe0"),
        is_ambiguous=True,
    ),
}
"""All formats. The engine reads the first; :mod:`lakegate.sources.copies` converts the others to parquet."""

# What a file that isn't what its name says may be, by its first bytes: other formats, and kinds that people try.
_FOREIGN: Mapping[bytes, str] = {
    **{start: each.name for kind, each in FORMATS.items() if kind != "parquet" for start in each.starts},
    b"PK\x03\x04": "a zip archive (or an Excel workbook)",
    b"ARROW1": "an Arrow IPC file",
    b"BZh": "compressed with bzip2",
    _ZSTD_MAGIC: "compressed with zstd",
    b"\xfd7zXZ": "compressed with xz",
    b"SQLite format 3": "an SQLite database",
    b"%PDF": "a PDF document",
}
# Spark chooses a codec by these endings, whatever the content is.
_OTHER_CODECS = (".bz2", ".zst", ".snappy", ".lz4", ".deflate", ".xz")
_HEAD_BYTES = 16
_PARQUET_MIN_BYTES = 12  # magic, length of the footer, magic
_MOST_LISTED = 10


class Inspected(Protocol):
    """An inspected file, with the names and types of its columns."""

    @property
    def file(self) -> Located:
        """The file."""
        ...

    @property
    def columns(self) -> tuple[SourceColumn, ...]:
        """Its columns, in order."""
        ...


def unreadable(path: str, error: OSError) -> SourceError:
    """Return the error for a file that was found but can't be read."""
    if isinstance(error, FileNotFoundError):
        return SourceError(f"'{path}' was deleted while it was read.", hint="Run the command again.", path=path)
    if isinstance(error, ReplacedError):
        return SourceError(f"'{path}' was replaced while it was read.", hint="Run the command again.", path=path)
    return SourceError(f"'{path}' can't be read: {error.strerror or error}.", hint="Check its permissions.", path=path)


def combine(problems: Sequence[InputError]) -> InputError:
    """Combine all ``problems`` (at least one) into one error, which lists up to ten of them.

    Example:
        >>> error = combine([SourceError("a is empty.", hint="Drop it.", path="a"), SourceError("b is missing.")])
        >>> print(error.message)
        2 problems with the source files:
          - a is empty. Drop it.
          - b is missing.
    """
    if len(problems) == 1:
        return problems[0]
    kinds = {type(problem) for problem in problems}
    hints = {problem.hint for problem in problems}
    shared_hint = hints.pop() if len(hints) == 1 else None

    listed = problems[:_MOST_LISTED]
    lines = [
        f"  - {problem.message}" + (f" {problem.hint}" if problem.hint not in {None, shared_hint} else "")
        for problem in listed
    ]
    if len(problems) > _MOST_LISTED:
        lines.append(f"  - and {len(problems) - _MOST_LISTED} more.")
    details = (f"  - {problem.message} {problem.detail}" for problem in listed if problem.detail)
    return (kinds.pop() if len(kinds) == 1 else SourceError)(
        "\n".join([f"{len(problems)} problems with the source files:", *lines]),
        hint=shared_hint or "Repair these files or leave them out, then run the command again.",
        detail="\n".join(details) or None,
        paths=[problem.context["path"] for problem in problems if "path" in problem.context],
    )


def suffixes_for(given: FileFormat | None) -> tuple[str, ...]:
    """Return the endings of the files to read from a folder."""
    formats = [FORMATS[given]] if given else FORMATS.values()
    return tuple(suffix for each in formats for suffix in each.suffixes)


def is_gzip(name: str) -> bool:
    """Return whether Spark would decompress a file of this name as gzip. Only the ending matters."""
    return name.lower().endswith(".gz")


def is_zstandard(name: str) -> bool:
    """Return whether a file is compressed with zstd, by its name."""
    return name.lower().endswith(".zst")


def is_tab_separated(name: str) -> bool:
    """Return whether a file is tab-separated, by its name."""
    return name.lower().endswith((".tsv", ".tsv.gz"))


def format_of(name: str) -> FileFormat | None:
    """Return a file's format, by its name.

    Example:
        >>> format_of("a.CSV.gz"), format_of("part-0.snappy.parquet"), format_of("a.txt")
        ('csv', 'parquet', None)
    """
    return next((known for known, each in FORMATS.items() if name.lower().endswith(each.suffixes)), None)


def detect(file: Located, given: FileFormat | None) -> FileFormat:
    """Detect the format of ``file``, reading only its first and last bytes.

    Args:
        given: The format that the user passed, which the first bytes must not contradict.

    Raises:
        SourceError: When it's empty, unreadable, of an unknown format, or not of the format its name says.
    """
    path = shown(file.path)
    if file.size_bytes == 0:
        raise SourceError(f"'{path}' is empty (0 bytes).", hint="Write it again, or exclude it.", path=path)
    try:
        with file.open() as stream:
            head = stream.read(_HEAD_BYTES)
            stream.seek(max(file.size_bytes - len(_PARQUET_MAGIC), 0))
            tail = stream.read(len(_PARQUET_MAGIC))
    except OSError as error:
        raise unreadable(path, error) from error
    expected = given or format_of(file.name) or format_by_start(head)
    if expected == "parquet":
        problems = _parquet_problems(head, tail, file.size_bytes)
    elif expected is not None and FORMATS[expected].starts:
        problems = _binary_problems(head, FORMATS[expected])
    else:
        problems = _text_problems(path, head, expected)
    for what, hint in problems:
        raise SourceError(f"'{path}' {what}.", hint=hint, path=path)
    return expected or "csv"


def format_by_start(head: bytes) -> FileFormat | None:
    """Return the format that a file's first bytes name without doubt; ``None`` for all others."""
    sure = (known for known, each in FORMATS.items() if not each.is_ambiguous)
    return next((known for known in sure if head.startswith(FORMATS[known].starts)), None)


def _parquet_problems(head: bytes, tail: bytes, size_bytes: int) -> Iterator[tuple[str, str]]:
    """Yield the problems of a parquet file, each with a hint."""
    if _ENCRYPTED_MAGIC in {head[:4], tail}:
        yield "is encrypted parquet", "Write it without encryption."
    if not head.startswith(_PARQUET_MAGIC):
        hint = "Write it as parquet, or pass --format csv if it's text."
        yield "isn't a parquet file: it doesn't start with PAR1", hint
    if tail != _PARQUET_MAGIC or size_bytes < _PARQUET_MIN_BYTES:
        hint = "Copy or download it again."
        yield f"is cut off: a parquet file without its footer ({size_bytes:,} bytes)", hint


def _binary_problems(head: bytes, expected: Format) -> Iterator[tuple[str, str]]:
    """Yield the problem if the first bytes of a binary file, other than parquet, aren't those of its format."""
    if not head.startswith(expected.starts):
        foreign = next((what for magic, what in _FOREIGN.items() if head.startswith(magic)), None)
        what = f"is {foreign}, not {expected.name}" if foreign else f"isn't {expected.name}, although it's named so"
        yield what, "Rename it to match its content, or pass --format."


def _text_problems(path: str, head: bytes, expected: FileFormat | None) -> Iterator[tuple[str, str]]:
    foreign = next((what for magic, what in _FOREIGN.items() if head.startswith(magic)), None)
    is_zstd = expected == "json" and is_zstandard(path)
    if foreign is not None and not (is_zstd and head.startswith(_ZSTD_MAGIC)):
        yield (
            f"is {foreign}",
            f"Convert it, or rename it to match its content. lakegate reads {', '.join(FORMATS)}.",
        )
    if expected is None:
        listed = ", ".join(FORMATS)
        yield "has an unknown file extension", f"Pass --format ({listed}), or narrow the glob."
    if head.startswith((_PARQUET_MAGIC, _ENCRYPTED_MAGIC)):
        yield f"is parquet, not {FORMATS[expected or 'csv'].name}", "Rename it, or pass --format parquet."
    if path.lower().endswith(_OTHER_CODECS) and not is_zstd:
        known = "gzip or zstd" if expected == "json" else "gzip"
        yield f"has a file extension for a compression other than {known}", "Decompress or rename it."
    if is_zstd and not head.startswith(_ZSTD_MAGIC):
        yield "ends in .zst but isn't zstd", "Rename or compress it."
    if head.startswith(_GZIP_MAGIC) and not is_gzip(path):
        yield "is compressed with gzip", "Rename it so that it ends in .gz."
    if is_gzip(path) and not head.startswith(_GZIP_MAGIC):
        yield "ends in .gz but isn't gzip", "Rename or compress it."


def name_problems(path: str, names: Sequence[str]) -> Iterator[SchemaError]:
    """Yield the problems with a file's column names: none at all, empty names, and duplicates.

    As in Spark, names that differ only by case are duplicates; so are names that look the same.
    """
    if not names:
        yield SchemaError(f"'{path}' has no columns.", hint="Write it again with columns.", path=path)
    empty = [str(index) for index, name in enumerate(names, start=1) if not name.strip()]
    if empty:
        message = f"'{path}': column {', '.join(empty)} has no name."
        yield SchemaError(message, hint="Give every column a name.", path=path)
    by_appearance: dict[str, list[str]] = {}
    for name in names:
        by_appearance.setdefault(appearance(name), []).append(name)
    for same in by_appearance.values():
        if len({name.lower() for name in same}) > 1:
            listed = ", ".join(f"'{escaped(name)}'" for name in same)
            yield SchemaError(
                f"'{path}' has {len(same)} columns whose names look the same: {listed}.",
                hint="Rename or drop all but one.",
                path=path,
            )
        elif len(same) > 1 and same[0].strip():
            listed = ", ".join(f"'{name}'" for name in same)
            yield SchemaError(
                f"'{path}' has {len(same)} columns with the same name: {listed} (names ignore case).",
                hint="Rename or drop all but one.",
                path=path,
            )


def twin_problems(inspections: Sequence[Inspected]) -> Iterator[SchemaError]:
    """Yield an error for each file with a column whose name looks like that of another file's column, but isn't."""
    first: dict[str, tuple[str, Located]] = {}
    for inspection in inspections:
        for column in inspection.columns:
            name, file = first.setdefault(appearance(column.name), (column.name, inspection.file))
            if name.lower() != column.name.lower():
                path = shown(inspection.file.path)
                yield SchemaError(
                    f"'{path}': column '{escaped(column.name)}' looks like '{escaped(name)}' in '{shown(file.path)}', "
                    "but is spelled with other characters.",
                    hint="Give it the same name in both files.",
                    path=path,
                )


def reserved_name_problems(path: str, names: Sequence[str]) -> Iterator[SchemaError]:
    """Yield an error for each top-level column that is named like one of Iceberg's metadata columns."""
    for name in reserved_names(names):
        yield SchemaError(
            f"'{path}': column '{name}' has the name of an Iceberg metadata column. A table with it can't be read.",
            hint=f"Rename it in the file, for example to '{name.lstrip('_')}'.",
            path=path,
        )


def difference_problems(inspections: Sequence[Inspected], *, ordered: bool) -> Iterator[SchemaError]:
    """Yield an error for each file whose columns differ from those of most files.

    Args:
        ordered: Whether the order of columns counts, as in CSV, whose columns match by position.
    """
    if not inspections:
        return
    shapes = Counter(shape(inspection.columns, ordered=ordered) for inspection in inspections)
    usual, _ = shapes.most_common(1)[0]
    reference = next(each for each in inspections if shape(each.columns, ordered=ordered) == usual)
    for inspection in inspections:
        differences = tuple(differences_between(reference.columns, inspection.columns, ordered=ordered))
        if differences:
            path = shown(inspection.file.path)
            differs = "; ".join(differences)
            hint = (
                "To ingest files with different columns in one batch, pass --schema evolve (adds columns to the table) "
                "or --schema ignore_extra."
            )
            if ordered and any(HEADERLESS.fullmatch(column.name) for column in inspection.columns):
                hint = "Its first line looks like a row: if it has no header, ingest it separately, with --no-header."
            yield SchemaError(
                f"'{path}' doesn't have the columns of '{shown(reference.file.path)}': {differs}.", hint=hint, path=path
            )


def differences_between(
    reference: Sequence[SourceColumn], other: Sequence[SourceColumn], *, ordered: bool = False
) -> Iterator[str]:
    """Describe each difference of ``other`` from ``reference``. Nullability and case don't count.

    Example:
        >>> a = [SourceColumn(name="fee", type="double"), SourceColumn(name="id", type="int64")]
        >>> b = [SourceColumn(name="Fee", type="int64"), SourceColumn(name="zone", type="string")]
        >>> list(differences_between(a, b))
        ["'fee' is int64 instead of double", "'id' (int64) is missing", "'zone' (string) is additional"]
    """
    found = {column.name.lower(): column for column in other}
    kinds = {column: "" if ordered else f" ({column.type})" for column in (*reference, *other)}
    for column in reference:
        same = found.pop(column.name.lower(), None)
        if same is None:
            yield f"'{column.name}'{kinds[column]} is missing"
        elif _with_sorted_fields(same.type) != _with_sorted_fields(column.type):
            yield f"'{column.name}' is {same.type} instead of {column.type}"
    yield from (f"'{column.name}'{kinds[column]} is additional" for column in found.values())
    names, others = ([column.name.lower() for column in columns] for columns in (reference, other))
    if ordered and names != others and sorted(names) == sorted(others):
        yield f"the columns are in another order ({', '.join(column.name for column in other)})"


def shape(columns: Sequence[SourceColumn], *, ordered: bool, exact: bool = False) -> tuple[tuple[str, str], ...]:
    """Return the names, in lower case, and types of columns, to compare files by.

    Args:
        ordered: Whether the order of columns counts.
        exact: Whether the order of struct fields counts.
    """
    kinds = [column.type if exact else _with_sorted_fields(column.type) for column in columns]
    pairs = tuple((column.name.lower(), kind) for column, kind in zip(columns, kinds, strict=True))
    return pairs if ordered else tuple(sorted(pairs))


def _with_sorted_fields(kind: str) -> str:
    """Return Arrow's text of a type with struct fields sorted by name, in lower case.

    Example:
        >>> _with_sorted_fields("list<element: struct<b: int32, A: struct<y: string, x: date32[day]>>>")
        'list<element: struct<a: struct<x: date32[day], y: string>, b: int32>>'
    """
    if kind.startswith("list<"):
        name, _, inner = kind.removeprefix("list<")[:-1].partition(": ")
        return f"list<{name}: {_with_sorted_fields(inner)}>"
    fields = struct_fields(kind)
    if struct_text(fields) != kind:  # not a struct, or one with ambiguous names
        return kind
    return struct_text(sorted((name.lower(), _with_sorted_fields(inner)) for name, inner in fields))
