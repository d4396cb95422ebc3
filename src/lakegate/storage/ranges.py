"""A stream over ranges of an object, fetched as they are read."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import BinaryIO, cast

from lakegate.storage.retrying import retried

_READ_AHEAD_BYTES = 64 << 10


def ranged(fetch: Callable[[int, int], bytes], size_bytes: int) -> BinaryIO:
    """Return a buffered stream that can seek.

    Args:
        fetch: Returns the bytes from a first position up to and without a last one; called again when it raises
            :class:`~lakegate.storage.retrying.CutError`.
        size_bytes: Length of the whole.
    """
    return cast("BinaryIO", io.BufferedReader(_Ranges(fetch, size_bytes), _READ_AHEAD_BYTES))


class _Ranges(io.RawIOBase):
    def __init__(self, fetch: Callable[[int, int], bytes], size_bytes: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def readall(self) -> bytes:
        # by itself it would ask for 8 KiB at a time
        if self._position >= self._size_bytes:
            return b""
        content = retried(lambda: self._fetch(self._position, self._size_bytes))
        self._position += len(content)
        return content

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        end = min(self._position + len(view), self._size_bytes)
        if end <= self._position:
            return 0
        content = retried(lambda: self._fetch(self._position, end))
        view[: len(content)] = content
        self._position += len(content)
        return len(content)
