"""Single objects: looked at by their metadata, and read in ranges of one and the same content."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import BinaryIO, cast

from lakegate.config import S3Settings
from lakegate.errors import StorageUnavailableError
from lakegate.sources.s3.pattern import S3Pattern
from lakegate.storage.s3 import ATTEMPTS, s3_client, translated

_READ_AHEAD_BYTES = 64 << 10
_LONGEST_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class S3Object:
    """Implements :class:`~lakegate.sources.located.Located`.

    Its version and stamp are entity tag and size: those are of the content, so an object that is copied over itself is
    the same one, and its version id on a versioned bucket plays no part.

    Attributes:
        bucket: Its bucket.
        key: Its key, as it is.
        size_bytes: Length in bytes.
        etag: Entity tag, without quotes.
        modified_at: When it was written.
        settings: How to reach it.
        partition_keys: See :class:`~lakegate.sources.located.Located`.
    """

    bucket: str
    key: str
    size_bytes: int
    etag: str
    modified_at: datetime
    settings: S3Settings = field(repr=False)
    partition_keys: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The same as :attr:`uri`: how people write it."""
        return self.uri

    @property
    def name(self) -> str:
        """Last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def uri(self) -> str:
        """``s3://bucket/key``, nothing encoded."""
        return f"s3://{self.bucket}/{self.key}"

    @property
    def stamp(self) -> str:
        """Size and entity tag, ``<bytes>-<etag>``."""
        return f"{self.size_bytes}-{self.etag}"

    @property
    def identity(self) -> tuple[str, str]:
        """Bucket and key."""
        return self.bucket, self.key

    def open(self) -> BinaryIO:
        """Return its content as a stream; see :meth:`~lakegate.sources.located.Located.open`."""
        return cast("BinaryIO", io.BufferedReader(_Ranges(self), _READ_AHEAD_BYTES))

    def content_version(self) -> str:
        """Return ``etag:<etag>:<bytes>``, as it was found; reads nothing."""
        return f"etag:{self.etag}:{self.size_bytes}"

    def stamp_now(self) -> str | None:
        """Return the stamp that the object has now; ``None`` when it is gone.

        Raises:
            StorageUnavailableError: When S3 does not answer.
        """
        return stamp_now(self.uri, self.settings)


def locate(uri: str, settings: S3Settings) -> S3Object | None:
    """Return the object of that very key as it stands now; ``None`` when there is none.

    Raises:
        PermissionError: When it may not be looked at.
        LakegateError: When S3 cannot be asked.
    """
    named = S3Pattern.parse(uri)
    if not named.key:
        return None
    try:
        with translated(uri):
            head = s3_client(settings).head_object(Bucket=named.bucket, Key=named.key)
    except FileNotFoundError:
        return None
    return S3Object(
        named.bucket, named.key, head["ContentLength"], head["ETag"].strip('"'), head["LastModified"], settings
    )


def stamp_now(uri: str, settings: S3Settings) -> str | None:
    """Return the stamp of an object as it is now; ``None`` when it is gone or may not be looked at.

    Raises:
        StorageUnavailableError: When S3 does not answer.
    """
    try:
        found = locate(uri, settings)
    except PermissionError:
        return None
    return None if found is None else found.stamp


class _CutError(StorageUnavailableError):
    """The answer broke off: the library, which repeats requests by itself, leaves that to us."""


class _Ranges(io.RawIOBase):
    """Reads an object range by range, each of the content that was found, and again when the connection is cut."""

    def __init__(self, found: S3Object) -> None:
        super().__init__()
        self._object = found
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._object.size_bytes}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        end = min(self._position + len(view), self._object.size_bytes)
        if end <= self._position:
            return 0
        content = _retried(lambda: self._fetch(self._position, end))
        view[: len(content)] = content
        self._position += len(content)
        return len(content)

    def _fetch(self, start: int, end: int) -> bytes:
        found = self._object
        with translated(found.uri):
            answer = s3_client(found.settings).get_object(
                Bucket=found.bucket, Key=found.key, Range=f"bytes={start}-{end - 1}", IfMatch=f'"{found.etag}"'
            )
        try:
            with translated(found.uri):
                return answer["Body"].read()
        except StorageUnavailableError as error:
            raise _CutError(error.message, hint=error.hint, file=found.uri) from error


def _retried(fetch: Callable[[], bytes]) -> bytes:
    """Call ``fetch`` again, with pauses, when an answer breaks off."""
    from tenacity import (  # noqa: PLC0415 - slow to import, and only for reading
        Retrying,
        retry_if_exception_type,
        stop_after_attempt,
        wait_exponential_jitter,
    )

    retrying = Retrying(
        retry=retry_if_exception_type(StorageUnavailableError),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_exponential_jitter(multiplier=0.1, max=_LONGEST_WAIT_S),
        reraise=True,
    )
    return retrying(fetch)
