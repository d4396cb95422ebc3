"""PyIceberg's file interface over an object store.

PyIceberg's own ways there go through Arrow or fsspec, with connections, credentials and retries of their own; and they
replace an object that is there, where a file of a table must be new.
"""

from __future__ import annotations

import io
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from pyiceberg.io import FileIO, InputFile, OutputFile, OutputStream

if TYPE_CHECKING:
    from lakegate.storage.objects import ObjectStore


class _ObjectFile(InputFile):
    def __init__(self, location: str, store: ObjectStore) -> None:
        super().__init__(location)
        self._store = store

    def __len__(self) -> int:
        return self._store.stat(self.location).size_bytes

    def exists(self) -> bool:
        return _exists(self.location, self._store)

    def open(self, seekable: bool = True) -> BinaryIO:  # noqa: FBT001, FBT002 - PyIceberg's signature
        del seekable
        found = self._store.stat(self.location)
        # All that reads these files reads them whole, and asking once for all of it is the fewest requests.
        with self._store.open(self.location, etag=found.etag, size_bytes=found.size_bytes) as stream:
            return io.BytesIO(stream.read(found.size_bytes))


class _NewObjectStream(OutputStream):
    """An object that is sent when all of it was written, and otherwise isn't."""

    def __init__(self, location: str, store: ObjectStore) -> None:
        self._location = location
        self._store = store
        self._content = io.BytesIO()

    def write(self, b: bytes) -> int:
        return self._content.write(b)

    def tell(self) -> int:
        return self._content.tell()

    def close(self) -> None:
        if not self._content.closed:
            content = self._content.getvalue()
            self._content.close()
            self._store.create(self._location, content)

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(
        self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None
    ) -> None:
        if exctype is None:
            self.close()
        else:
            self._content.close()


class _NewObject(OutputFile):
    def __init__(self, location: str, store: ObjectStore) -> None:
        super().__init__(location)
        self._store = store

    def __len__(self) -> int:
        return self._store.stat(self.location).size_bytes

    def exists(self) -> bool:
        return _exists(self.location, self._store)

    def to_input_file(self) -> InputFile:
        return _ObjectFile(self.location, self._store)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - PyIceberg's signature
        if overwrite:
            raise PermissionError(f"{self.location} may not be overwritten")
        return _NewObjectStream(self.location, self._store)


class ObjectFileIO(FileIO):
    """Reads objects; writes and deletes nothing.

    Args:
        store: Where they are.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__()
        self._store = store

    def new_input(self, location: str) -> InputFile:
        """Return the object at ``location``."""
        return _ObjectFile(location, self._store)

    def new_output(self, location: str) -> OutputFile:
        """Refuse: this is for reading."""
        _read_only(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Refuse: this is for reading."""
        _read_only(location if isinstance(location, str) else location.location)


class NewObjectsIO(ObjectFileIO):
    """Reads objects and writes new ones, each at its end and whole; overwrites and deletes nothing."""

    def new_output(self, location: str) -> OutputFile:
        """Return the object that will be at ``location``; closing its stream raises ``FileExistsError`` for another."""
        return _NewObject(location, self._store)


def _exists(location: str, store: ObjectStore) -> bool:
    try:
        store.stat(location)
    except FileNotFoundError:
        return False
    return True


def _read_only(location: str) -> NoReturn:
    raise PermissionError(f"{location} is opened for reading only")
