"""How to reach a table's files, wherever they lie: on this machine or in an object store."""

from __future__ import annotations

from pyiceberg.io import FileIO

from lakegate.catalogs.localfiles import LocalFileIO, NewFilesIO, is_local
from lakegate.config import StorageSettings


class TableFileIO:
    """Chooses PyIceberg's file interface by location.

    Args:
        storage: How to reach the object stores; default: by the usual ways of their own tools.
    """

    def __init__(self, storage: StorageSettings | None = None) -> None:
        self._storage = storage or StorageSettings()

    def reading(self, location: str) -> FileIO:
        """Return what reads files like ``location``.

        Raises:
            InputError: When it lies neither on this machine nor in a store that is known.
            ConfigurationError: When the library of the store is not installed, or its own configuration is wrong.
        """
        if is_local(location):
            return LocalFileIO()
        from lakegate.catalogs.objectfiles import ObjectFileIO  # noqa: PLC0415 - for remote warehouses only
        from lakegate.storage.opening import open_store  # noqa: PLC0415

        return ObjectFileIO(open_store(location, self._storage))

    def writing(self, location: str) -> FileIO:
        """Return what reads files like ``location`` and writes new ones, which overwrite nothing; raises as above."""
        if is_local(location):
            return NewFilesIO()
        from lakegate.catalogs.objectfiles import NewObjectsIO  # noqa: PLC0415 - for remote warehouses only
        from lakegate.storage.opening import open_store  # noqa: PLC0415

        return NewObjectsIO(open_store(location, self._storage))
