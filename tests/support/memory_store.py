"""An object store in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import BinaryIO

from lakegate.storage.objects import ObjectStore, ReplacedError, StoredObject


class MemoryStore(ObjectStore):
    """Objects in a dictionary."""

    def __init__(self, *, trouble: Exception | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.trouble = trouble
        self._described: dict[str, Mapping[str, str]] = {}

    def list(self, prefix: str) -> Iterator[StoredObject]:
        self._fail()
        return (self.stat(uri) for uri in sorted(self.objects) if uri.startswith(prefix))

    def stat(self, uri: str) -> StoredObject:
        if uri not in self.objects:
            raise FileNotFoundError(uri)
        content = self.objects[uri]
        return StoredObject(uri, len(content), datetime(2026, 1, 1, tzinfo=UTC), str(hash(content)))

    def delete(self, uris: Sequence[str]) -> None:
        self._fail()
        for uri in uris:
            self.objects.pop(uri, None)

    def _read(self, uri: str, etag: str, start: int, end: int) -> bytes:
        assert etag == self.stat(uri).etag
        return self.objects[uri][start:end]

    def _create(self, uri: str, content: bytes, metadata: dict[str, str]) -> None:
        self._fail()
        if uri in self.objects:
            raise ReplacedError(uri)
        self.objects[uri], self._described[uri] = content, metadata

    def _upload(self, uri: str, file: BinaryIO) -> None:
        self._fail()
        self.objects[uri] = file.read()

    def _metadata(self, uri: str) -> Mapping[str, str]:
        return self._described.get(uri, {})

    def _fail(self) -> None:
        if self.trouble is not None:
            raise self.trouble
