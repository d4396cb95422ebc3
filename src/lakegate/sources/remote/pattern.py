"""Which keys of a bucket a text means: one object, all below a prefix, or those that match a pattern."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lakegate.sources.paths import is_ignored
from lakegate.storage.addresses import Address, canonical

_VERSION = re.compile(r"\?versionId=([^/?*\[&]+)\Z")
_GLOB = re.compile(r"[*?\[]")
_ANY_DEPTH = "**"


@dataclass(frozen=True)
class RemotePattern:
    """What a text such as ``s3://landing/trips/*.parquet`` means.

    Nothing in it is decoded: a ``%20`` in it is a ``%20`` in the key.

    Attributes:
        text: As typed.
        address: Bucket and what follows it: a key, a prefix or a pattern.
        version_id: The version of its key that is meant, and no other.
    """

    text: str
    address: Address
    version_id: str | None = None

    @classmethod
    def parse(cls, text: str) -> RemotePattern:
        """Return the pattern of a URI.

        Raises:
            InputError: When it names no bucket.

        Example:
            >>> RemotePattern.parse("s3a://landing/trips/2024-*/*.parquet").start
            's3://landing/trips/2024-'
            >>> RemotePattern.parse("s3://landing/a.csv?versionId=3HL4kqtJ").version_id
            '3HL4kqtJ'
        """
        pinned = _VERSION.search(text)
        address = Address.parse(canonical(text[: pinned.start()] if pinned else text))
        return cls(text, address, pinned[1] if pinned else None)

    @property
    def key(self) -> str:
        """The key, the prefix or the pattern."""
        return self.address.key

    @property
    def start(self) -> str:
        """What all its URIs start with, taken for a pattern or a folder."""
        return f"{self.address.root}/{self.prefix}"

    @property
    def is_glob(self) -> bool:
        """Whether it holds wildcards."""
        return _GLOB.search(self.key) is not None

    @property
    def prefix(self) -> str:
        """What all its keys start with, taken for a pattern or a folder; empty or ending in ``/`` for a folder."""
        wildcard = _GLOB.search(self.key)
        if wildcard is not None:
            return self.key[: wildcard.start()]
        return self.key if self.key.endswith("/") or not self.key else f"{self.key}/"

    def below(self, key: str, suffixes: Sequence[str]) -> tuple[str, ...] | None:
        """Tell whether a key is meant, and below which folders.

        A pattern takes what it matches whatever the ending, and, unless it holds ``**``, the files of the folders that
        it matches. Names that Spark ignores are left out where the pattern leaves them open.

        Args:
            key: A key that starts with :attr:`prefix`.
            suffixes: Lower-case endings of the files to take from folders.

        Returns:
            The folders between the one that is meant and the object; ``None`` when the key is not meant.

        Example:
            >>> days = RemotePattern.parse("s3://data/day=*")
            >>> days.below("day=1/hour=2/a.csv", (".csv",)), days.below("day=1/_x.csv", (".csv",))
            (('hour=2',), None)
        """
        if key.endswith("/"):  # a marker that some tools leave for a folder
            return None
        parts = key.split("/")
        if any(is_ignored(part) for part in parts[self._fixed :]):
            return None
        in_folder = key.lower().endswith(tuple(suffixes))
        if not self.is_glob:
            return tuple(parts[self._fixed : -1]) if in_folder else None
        if _match(self._parts, parts):
            return ()
        depth = len(self._parts)
        if in_folder and _ANY_DEPTH not in self._parts and depth < len(parts) and _match(self._parts, parts[:depth]):
            return tuple(parts[depth:-1])
        return None

    @cached_property
    def _parts(self) -> tuple[str | re.Pattern[str], ...]:
        parts = self.key.rstrip("/").split("/")
        return tuple(part if part == _ANY_DEPTH else re.compile(fnmatch.translate(part)) for part in parts)

    @cached_property
    def _fixed(self) -> int:
        """How many parts of a key the text itself spells out."""
        return self.prefix.count("/")


def _match(pattern: Sequence[str | re.Pattern[str]], parts: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    first, *rest = pattern
    if first == _ANY_DEPTH:
        depths = range(len(parts)) if rest else range(len(parts) + 1)
        return any(_match(rest, parts[depth:]) for depth in depths)
    return bool(parts) and isinstance(first, re.Pattern) and bool(first.match(parts[0])) and _match(rest, parts[1:])
