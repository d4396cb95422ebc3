"""A source file as it was found, wherever it lies: what all kinds of storage have in common."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from typing import BinaryIO, Protocol


class Located(Protocol):
    """A file as it stood when it was found; hashable, and readable as long as it is the same.

    Attributes:
        path: How people name it: an absolute path, or ``s3://bucket/key``.
        size_bytes: Length in bytes.
        modified_at: Time of the last change.
        partition_keys: The ``key`` of each ``key=value`` folder between the folder asked for and the file.
        name: Last part of the path.
        uri: Its location, as :attr:`lakegate.model.batch.SourceFile.uri` has it.
        stamp: Changes when the file does, without reading it.
        version_id: What its store calls this version, where that is known.
        identity: The same for all names of one file.
    """

    @property
    def path(self) -> str: ...  # noqa: D102 - described above

    @property
    def size_bytes(self) -> int: ...  # noqa: D102

    @property
    def modified_at(self) -> datetime: ...  # noqa: D102

    @property
    def partition_keys(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def uri(self) -> str: ...  # noqa: D102

    @property
    def stamp(self) -> str: ...  # noqa: D102

    @property
    def version_id(self) -> str | None: ...  # noqa: D102

    @property
    def identity(self) -> Hashable: ...  # noqa: D102

    def open(self) -> BinaryIO:
        """Open it for reading.

        Raises:
            OSError: When it cannot be opened. Reading raises so too, :class:`ReplacedError` among others.
            StorageUnavailableError: When the storage does not answer, from reading too.
        """
        ...

    def content_version(self) -> str:
        """Return what tells its content from any other: ``sha256:…``, ``etag:…``; raises as :meth:`open`."""
        ...

    def stamp_now(self) -> str | None:
        """Return the stamp as it is now; ``None`` when the file is gone or cannot be looked at."""
        ...
