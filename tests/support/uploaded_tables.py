"""Iceberg tables in any place that takes bytes: PyIceberg writes them, through a file IO that hands each file over."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, ClassVar

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile


class UploadedTables(SqlCatalog):
    """A catalog whose tables' files are handed to ``put`` by their location, and kept. One at a time."""

    def __init__(self, warehouse: str, put: Callable[[str, bytes], object]) -> None:
        implementation = f"{__name__}.{Uploads.__name__}"
        super().__init__("uploaded", uri="sqlite:///:memory:", warehouse=warehouse, **{"py-io-impl": implementation})
        Uploads.files = {}
        Uploads.puts = [put]


class Uploads(FileIO):
    """PyIceberg makes these itself, wherever it needs one."""

    files: ClassVar[dict[str, bytes]] = {}
    puts: ClassVar[list[Callable[[str, bytes], object]]] = []

    def new_input(self, location: str) -> InputFile:
        return _Upload(location, self)

    def new_output(self, location: str) -> OutputFile:
        return _Upload(location, self)

    def delete(self, location: Any) -> None:
        raise NotImplementedError


class _Upload(InputFile, OutputFile):
    def __init__(self, location: str, uploads: Uploads) -> None:
        super().__init__(location)
        self._uploads = uploads

    def __len__(self) -> int:
        return len(self._uploads.files[self.location])

    def exists(self) -> bool:
        return self.location in self._uploads.files

    def open(self, seekable: bool = True) -> Any:  # noqa: FBT002 - PyIceberg's interface
        return io.BytesIO(self._uploads.files[self.location])

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT002 - as above
        return _Stream(self.location, self._uploads)


class _Stream(io.BytesIO):
    def __init__(self, location: str, uploads: Uploads) -> None:
        super().__init__()
        self._location = location
        self._uploads = uploads

    def close(self) -> None:
        if not self.closed:
            self._uploads.files[self._location] = self.getvalue()
            for put in self._uploads.puts:
                put(self._location, self.getvalue())
        super().close()
