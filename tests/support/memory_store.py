"""An object store in memory."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import BinaryIO

from lakegate.storage.objects import StoredObject


class MemoryStore:
    """Objects in a dictionary; implements ``ObjectStore``."""

    def __init__(self, *, trouble: Exception | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.trouble = trouble

    def list(self, prefix: str) -> Iterator[StoredObject]:
        self._fail()
        return (self.stat(uri) for uri in sorted(self.objects) if uri.startswith(prefix))

    def stat(self, uri: str) -> StoredObject:
        if uri not in self.objects:
            raise FileNotFoundError(uri)
        content = self.objects[uri]
        return StoredObject(uri, len(content), datetime(2026, 1, 1, tzinfo=UTC), str(hash(content)))

    def open(self, uri: str, *, etag: str | None = None, size_bytes: int | None = None) -> BinaryIO:
        assert (etag, size_bytes) == (self.stat(uri).etag, self.stat(uri).size_bytes)
        return io.BytesIO(self.objects[uri])

    def create(self, uri: str, content: bytes) -> None:
        self._fail()
        if uri in self.objects:
            raise FileExistsError(uri)
        self.objects[uri] = content

    def delete(self, uris: Sequence[str]) -> None:
        self._fail()
        for uri in uris:
            self.objects.pop(uri, None)

    def _fail(self) -> None:
        if self.trouble is not None:
            raise self.trouble
