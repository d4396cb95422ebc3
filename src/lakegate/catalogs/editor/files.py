"""Reading and writing the metadata files of one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyiceberg.io import FileIO

from lakegate.catalogs.metadata import reading
from lakegate.errors import ConfigurationError, EngineError
from lakegate.model.refs import TablePointer

_Parsed = TypeVar("_Parsed")


class TableFiles:
    """A table's metadata files: read where they are, written as new ones into one folder.

    Args:
        pointer: The table, for what errors say.
        io: How to reach its files.
        folder: Where new ones go.
    """

    def __init__(self, pointer: TablePointer, io: FileIO, folder: str = "") -> None:
        self._pointer = pointer
        self._io = io
        self._folder = folder

    def read(self, what: str, location: str, parse: Callable[[bytes], _Parsed]) -> _Parsed:
        """Return what ``parse`` makes of the file at ``location``.

        Raises:
            NotFoundError: When it is missing.
            InputError: When it is damaged.
            EngineError: When it cannot be read just now.
        """

        def load() -> _Parsed:
            with self._io.new_input(location).open() as stream:
                return parse(stream.read())

        return reading(f"{what} {location} of table {self._pointer.table}", self._pointer, load)

    def path(self, name: str) -> str:
        """Return where a new file called ``name`` will be."""
        return f"{self._folder}/{name}"

    def write(self, location: str, content: bytes) -> None:
        """Write a new file.

        Raises:
            ConfigurationError: When it may not be written.
            EngineError: When it cannot be written; then it isn't there.
        """
        try:
            with self._io.new_output(location).create() as stream:
                stream.write(content)
        except PermissionError as error:
            raise ConfigurationError(
                f"Metadata of table {self._pointer.table} may not be written to {location}: {error.strerror or error}.",
                hint="Nothing was published. Check the rights to the warehouse (setting catalog.warehouse).",
                table=str(self._pointer.table),
                path=location,
            ) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise EngineError(
                f"Metadata of table {self._pointer.table} cannot be written to {location}: {reason}.",
                hint="Nothing was published. Check that the warehouse has room and may be written to, then try again.",
                table=str(self._pointer.table),
                path=location,
            ) from error
