"""PyIceberg's file interface over plain files of this machine.

PyIceberg's own way to local files goes through Arrow: it takes a third of a second to import and brings pandas along.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, NoReturn

from pyiceberg.io import FileIO, InputFile, OutputFile

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


def _read_only(location: str) -> NoReturn:
    raise PermissionError(f"{location} is opened for reading only")
