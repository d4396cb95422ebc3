"""Which files of a folder are read, which are left out, and which folders are tables of another format."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath

from lakegate.config import StorageSettings
from lakegate.errors import SourceError
from lakegate.model.batch import FileFormat, LeftOut
from lakegate.sources.files import Located, is_ignored, shown, to_uri
from lakegate.sources.inspection import FORMATS, format_by_start, suffixes_for
from lakegate.storage import open_store

_MOST_LEFT_OUT = 1_000
_START_BYTES = 16
_SNIFFED_KEPT = 10_000
_EXTENSION = re.compile(r"\.[A-Za-z][A-Za-z0-9]*$")
_DELTA, _HUDI, _ICEBERG = "_delta_log", ".hoodie", "metadata"
_ICEBERG_METADATA = re.compile(r"(v\d+|\d{5,}-[0-9a-f-]{36})(\.gz)?\.metadata\.json(\.gz)?")
_TABLES = {
    _DELTA: "a Delta table, which its folder '_delta_log' says",
    _HUDI: "a Hudi table, which its folder '.hoodie' says",
    _ICEBERG: "an Iceberg table, which the metadata files in its folder 'metadata' say",
}
_PAGE = 1_000
_BUCKET_PARTS = 3  # s3://bucket


class Wanted:
    """Decides which files of a folder are read, and remembers those that it leaves out.

    Attributes:
        suffixes: Endings, in lower case, of the files to read from folders.
        left_out: The files that were left out; a thousand at most.
    """

    def __init__(self, format: FileFormat | None) -> None:
        self.suffixes = suffixes_for(format)
        self.left_out: dict[str, LeftOut] = {}
        self._format = format

    def has_suffix(self, name: str) -> bool:
        """Return whether a name has a known ending."""
        return name.lower().endswith(self.suffixes)

    def may_take(self, name: str) -> bool:
        """Return whether :meth:`takes` may be true for a file of this name."""
        return self.has_suffix(name) or _EXTENSION.search(name) is None

    def takes(self, file: Located) -> bool:
        """Return whether to read a file from a folder: by its ending or, if it has none, by its first bytes."""
        if self.has_suffix(file.name):
            return True
        return self.may_take(file.name) and _format_within(file) in ({self._format} if self._format else FORMATS)

    def leave_out(self, uri: str) -> None:
        """Remember that a file, or a folder if ``uri`` ends in ``/``, was left out."""
        if len(self.left_out) < _MOST_LEFT_OUT:
            hidden = is_ignored(uri.rstrip("/").rpartition("/")[2])
            reason = "Spark skips names that start with '_' or '.'" if hidden else "it's of no known format"
            self.left_out.setdefault(uri, LeftOut(uri=uri, reason=reason))

    def leave_out_hidden(self, path: str) -> None:
        """Remember a local file or folder with a hidden name, if it would be read under another."""
        found = Path(path)
        if not found.is_dir():
            if self.has_suffix(path):
                self.leave_out(to_uri(path))
        elif found.name not in _NOT_DATA and any(self.has_suffix(each.name) for each in found.rglob("*")):
            self.leave_out(f"{to_uri(path)}/")


_NOT_DATA = frozenset({"_temporary", ".lakegate", ".git"})


@lru_cache(_SNIFFED_KEPT)
def _format_within(file: Located) -> FileFormat | None:
    try:
        with file.open() as stream:
            return format_by_start(stream.read(_START_BYTES))
    except OSError:
        return None


def table_error(place: str, marker: str) -> SourceError:
    """Return the error for files of a table of another format."""
    return SourceError(
        f"'{shown(place)}' is {_TABLES[marker]}. Its files alone aren't its rows: some were deleted or replaced.",
        hint="Read the table with its own engine, and write its rows in a transaction (lake.transaction()) or pass "
        "them to lake.ingest(TABLE, frame).",
        path=place,
    )


def local_tables(files: Iterable[Located]) -> Iterator[SourceError]:
    """Yield an error for each table of another format that one of the local ``files`` is in."""
    folders = {folder for parent in {PurePosixPath(file.path).parent for file in files} for folder in _up(parent)}
    for folder in sorted(folders):
        path = Path(folder)
        if (path / _DELTA).is_dir():
            yield table_error(str(folder), _DELTA)
        elif (path / _HUDI).is_dir():
            yield table_error(str(folder), _HUDI)
        elif (path / _ICEBERG).is_dir() and any(map(_is_metadata, _names(path / _ICEBERG))):
            yield table_error(str(folder), _ICEBERG)


def _up(folder: PurePosixPath) -> Iterator[PurePosixPath]:
    yield folder
    yield from folder.parents


def _names(folder: Path) -> Sequence[str]:
    try:
        return [each.name for each in folder.iterdir()]
    except OSError:
        return []


def _is_metadata(name: str) -> bool:
    return _ICEBERG_METADATA.fullmatch(name) is not None


def require_no_table(uri: str) -> None:
    """Refuse an object that says that its folder is a table of another format."""
    parts = uri.split("/")
    for at, part in enumerate(parts[:-1]):
        if part in {_DELTA, _HUDI} or (part == _ICEBERG and at == len(parts) - 2 and _is_metadata(parts[-1])):
            raise table_error("/".join(parts[:at]), part)


def remote_tables(uris: Iterable[str], storage: StorageSettings) -> Iterator[SourceError]:
    """Yield an error for each table of another format that one of the objects, or of the prefixes, is in."""
    parts = [uri.split("/")[:-1] for uri in uris]
    depths = ((folders, depth) for folders in parts for depth in range(_BUCKET_PARTS, len(folders) + 1))
    places = sorted({"/".join(folders[:depth]) for folders, depth in depths if "=" not in folders[depth - 1]})

    for place in places:
        try:
            for marker in _TABLES:
                for stored in islice(open_store(place, storage).list(f"{place}/{marker}/"), _PAGE):
                    require_no_table(stored.uri)
        except SourceError as error:
            yield error
        except PermissionError:
            continue  # what's above may not be listed
