"""Which format a file is of: by its ending, by its first bytes, or because the user says so."""

from __future__ import annotations

from collections.abc import Mapping

from lakegate.model.batch import FileFormat
from lakegate.sources.located import Located
from lakegate.sources.paths import shown
from lakegate.sources.problems import Problem, ProblemError, unreadable

SUFFIXES: Mapping[FileFormat, tuple[str, ...]] = {
    "parquet": (".parquet",),
    "csv": (".csv", ".csv.gz", ".tsv", ".tsv.gz"),
}
"""Endings by which a format is recognised, lower case."""

_PARQUET_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_GZIP_MAGIC = b"\x1f\x8b"
# What people take for CSV or parquet, by its first bytes.
_FOREIGN: Mapping[bytes, str] = {
    b"PK\x03\x04": "a zip archive (or an Excel workbook)",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"ARROW1": "an Arrow IPC file",
    b"BZh": "compressed with bzip2",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"\xfd7zXZ": "compressed with xz",
    b"SQLite format 3": "an SQLite database",
    b"%PDF": "a PDF document",
}
# Spark picks a codec by these endings, whatever the file holds.
_OTHER_CODECS = (".bz2", ".zst", ".snappy", ".lz4", ".deflate", ".xz")
_HEAD_BYTES = 16
_PARQUET_MIN_BYTES = 12  # magic, length of the footer, magic


def suffixes_for(given: FileFormat | None) -> tuple[str, ...]:
    """Return the endings of the files to take from a folder."""
    return SUFFIXES[given] if given else tuple(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)


def is_gzip(name: str) -> bool:
    """Tell whether Spark would decompress a file of this name (it goes by the ending alone)."""
    return name.lower().endswith(".gz")


def is_tab_separated(name: str) -> bool:
    """Tell whether the name says that the delimiter is a tab."""
    return name.lower().endswith((".tsv", ".tsv.gz"))


def detect(file: Located, given: FileFormat | None) -> FileFormat:
    """Return the format of ``file``, reading its first and last bytes only.

    Args:
        file: The file.
        given: What the user says it is; its first bytes must not speak against it.

    Raises:
        ProblemError: When it is empty, unreadable, of no known format, or not what its name says.
    """
    path = shown(file.path)
    if file.size_bytes == 0:
        raise ProblemError(Problem(f"'{path}' is empty (0 bytes).", "Write it again, or leave it out.", path))
    try:
        head, tail = _ends(file)
    except OSError as error:
        raise ProblemError(unreadable(path, error)) from error
    expected = given or by_name(file.name)
    if expected == "parquet" or (expected is None and head.startswith((_PARQUET_MAGIC, _ENCRYPTED_MAGIC))):
        _require_parquet(path, head, tail, file.size_bytes)
        return "parquet"
    foreign = next((what for magic, what in _FOREIGN.items() if head.startswith(magic)), None)
    if foreign is not None:
        raise ProblemError(
            Problem(f"'{path}' is {foreign}.", "Convert it to parquet or CSV (plain or gzip) first.", path)
        )
    if expected is None:
        raise ProblemError(
            Problem(
                f"The format of '{path}' is not known from its name.",
                "Say it with --format parquet or --format csv, or narrow the glob.",
                path,
            )
        )
    _require_csv(path, head)
    return "csv"


def by_name(name: str) -> FileFormat | None:
    """Return the format that a file name stands for.

    Example:
        >>> by_name("a.CSV.gz"), by_name("part-0.snappy.parquet"), by_name("a.txt")
        ('csv', 'parquet', None)
    """
    return next((known for known, suffixes in SUFFIXES.items() if name.lower().endswith(suffixes)), None)


def _ends(file: Located) -> tuple[bytes, bytes]:
    with file.open() as stream:
        head = stream.read(_HEAD_BYTES)
        stream.seek(max(file.size_bytes - len(_PARQUET_MAGIC), 0))
        return head, stream.read(len(_PARQUET_MAGIC))


def _require_parquet(path: str, head: bytes, tail: bytes, size_bytes: int) -> None:
    if _ENCRYPTED_MAGIC in {head[:4], tail}:
        raise ProblemError(Problem(f"'{path}' is encrypted parquet.", "Write it without encryption.", path))
    if not head.startswith(_PARQUET_MAGIC):
        raise ProblemError(
            Problem(
                f"'{path}' is not a parquet file: it does not start with PAR1.",
                "Write it as parquet, or say --format csv if it is text.",
                path,
            )
        )
    if tail != _PARQUET_MAGIC or size_bytes < _PARQUET_MIN_BYTES:
        raise ProblemError(
            Problem(
                f"'{path}' is cut off: a parquet file whose footer is missing ({size_bytes:,} bytes).",
                "Copy or download it again.",
                path,
            )
        )


def _require_csv(path: str, head: bytes) -> None:
    if head.startswith((_PARQUET_MAGIC, _ENCRYPTED_MAGIC)):
        raise ProblemError(Problem(f"'{path}' is parquet, not CSV.", "Rename it, or say --format parquet.", path))
    if path.lower().endswith(_OTHER_CODECS):
        raise ProblemError(
            Problem(f"'{path}' has the ending of a compression other than gzip.", "Decompress or rename it.", path)
        )
    if head.startswith(_GZIP_MAGIC) and not is_gzip(path):
        raise ProblemError(Problem(f"'{path}' is compressed with gzip.", "Rename it so that it ends in .gz.", path))
    if is_gzip(path) and not head.startswith(_GZIP_MAGIC):
        raise ProblemError(Problem(f"'{path}' ends in .gz but is not gzip.", "Rename or compress it.", path))
