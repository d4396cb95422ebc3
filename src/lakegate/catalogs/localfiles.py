"""PyIceberg's file interface over plain files of this machine.

PyIceberg's own way to local files goes through Arrow: it takes a third of a second to import and brings pandas along.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NoReturn

from pyiceberg.io import FileIO, InputFile, OutputFile, OutputStream

_SCHEME = "file:"


def is_local(location: str) -> bool:
    """Tell whether ``location`` is a file of this machine: a ``file:`` URI or an absolute path.

    Example:
        >>> is_local("file:///lake/t"), is_local("/lake/t"), is_local("s3://lake/t")
        (True, True, False)
    """
    return location.startswith((_SCHEME, "/"))


def local_path(location: str) -> Path:
    """Return the path of a local location. Nothing is unquoted: Hadoop writes paths into URIs as they are.

    Example:
        >>> local_path("file:///lake/a b%20").as_posix(), local_path("file:/lake/t").as_posix()
        ('/lake/a b%20', '/lake/t')
    """
    path = location.removeprefix(_SCHEME)
    return Path(path[2:].removeprefix("localhost") if path.startswith("//") else path)


class _LocalFile(InputFile):
    def __len__(self) -> int:
        return local_path(self.location).stat().st_size

    def exists(self) -> bool:
        return local_path(self.location).exists()

    def open(self, seekable: bool = True) -> BinaryIO:  # noqa: FBT001, FBT002 - PyIceberg's signature
        del seekable
        return local_path(self.location).open("rb")


class _NewStream(OutputStream):
    """A file that is there when all of it was written, and otherwise isn't."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("xb")

    def write(self, b: bytes) -> int:
        try:
            return self._file.write(b)
        except BaseException:
            self._abandon()
            raise

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        try:
            self._file.close()
        except BaseException:
            # What was buffered is written here at the latest, so a full disk shows here too.
            self._abandon()
            raise

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(
        self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None
    ) -> None:
        if exctype is None:
            self.close()
        else:
            self._abandon()

    def _abandon(self) -> None:
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._file.close()


class _NewFile(OutputFile):
    def __len__(self) -> int:
        return local_path(self.location).stat().st_size

    def exists(self) -> bool:
        return local_path(self.location).exists()

    def to_input_file(self) -> InputFile:
        return _LocalFile(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - PyIceberg's signature
        if overwrite:
            raise PermissionError(f"{self.location} may not be overwritten")
        return _NewStream(local_path(self.location))


class LocalFileIO(FileIO):
    """Reads local files; writes and deletes nothing."""

    def new_input(self, location: str) -> InputFile:
        """Return the file at ``location``."""
        return _LocalFile(location)

    def new_output(self, location: str) -> OutputFile:
        """Refuse: this is for reading."""
        _read_only(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Refuse: this is for reading."""
        _read_only(location if isinstance(location, str) else location.location)


class NewFilesIO(LocalFileIO):
    """Reads local files and writes new ones; overwrites and deletes nothing.

    Folders are made as needed. A file that could not be written to its end is removed.
    """

    def new_output(self, location: str) -> OutputFile:
        """Return the file that will be at ``location``; creating it raises ``FileExistsError`` when there is one."""
        return _NewFile(location)


def _read_only(location: str) -> NoReturn:
    raise PermissionError(f"{location} is opened for reading only")
