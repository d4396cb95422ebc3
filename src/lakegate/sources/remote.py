"""Resolve URIs that the user typed to objects, one page of keys at a time, so that a bucket may have any size."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from lakegate.config import StorageSettings
from lakegate.errors import ConfigurationError, InputError, SourceError
from lakegate.sources.files import SPARK_GLOB_CHARACTERS, RemoteFile, is_ignored, partition_keys, stat_object
from lakegate.sources.listing import Wanted, remote_tables, require_no_table
from lakegate.storage import adls, gcs, open_store, s3
from lakegate.storage.objects import ObjectAddress, Service, canonical

_VERSION = re.compile(r"\?versionId=([^/?*\[&]+)\Z")
_GLOB = re.compile(r"[*?\[]")
_ANY_DEPTH = "**"
_RIGHTS: Mapping[Service, str] = {
    "s3": f"It needs s3:ListBucket on the bucket and s3:GetObject on its objects. {s3.ERRORS.credentials}",
    "gcs": f"It needs the role Storage Object Viewer on the bucket. {gcs.ERRORS.credentials}",
    "adls": f"It needs the role Storage Blob Data Reader on the container. {adls.ERRORS.credentials}",
}


@dataclass(frozen=True)
class RemotePattern:
    """A parsed URI of one or more objects, such as ``s3://landing/trips/*.parquet``.

    It isn't percent-decoded: ``%20`` means ``%20`` in the key.

    Attributes:
        address: The bucket, and a key, prefix or pattern.
        version_id: The only version of the key to read, if given.
    """

    text: str
    address: ObjectAddress
    version_id: str | None = None

    @classmethod
    def parse(cls, text: str) -> RemotePattern:
        """Parse a URI.

        Example:
            >>> RemotePattern.parse("s3a://landing/trips/2024-*/*.parquet").start
            's3://landing/trips/2024-'
            >>> RemotePattern.parse("s3://landing/a.csv?versionId=3HL4kqtJ").version_id
            '3HL4kqtJ'
        """
        pinned = _VERSION.search(text)
        address = ObjectAddress.parse(canonical(text[: pinned.start()] if pinned else text))
        return cls(text, address, pinned[1] if pinned else None)

    @property
    def key(self) -> str:
        """The key, the prefix or the pattern."""
        return self.address.key

    @property
    def start(self) -> str:
        """The common prefix of all matching URIs, if it's a pattern or a folder."""
        return f"{self.address.root}/{self.prefix}"

    @property
    def is_glob(self) -> bool:
        """Whether it has wildcards."""
        return _GLOB.search(self.key) is not None

    @property
    def prefix(self) -> str:
        """The common prefix of all matching keys. For a folder, it's empty or ends in ``/``."""
        wildcard = _GLOB.search(self.key)
        if wildcard is not None:
            return self.key[: wildcard.start()]
        return self.key if self.key.endswith("/") or not self.key else f"{self.key}/"

    def below(self, key: str) -> tuple[tuple[str, ...], bool] | None:
        """Match a key. A pattern also matches the files in folders that it matches, unless it has ``**``.

        Names that Spark ignores only match where the pattern spells them out.

        Args:
            key: A key that starts with :attr:`prefix`.

        Returns:
            The folders between the matched folder and the object, and whether the pattern matches the object itself,
            so that its name doesn't matter; ``None`` if the key doesn't match.

        Example:
            >>> days = RemotePattern.parse("s3://data/day=*")
            >>> days.below("day=1/hour=2/a.csv"), days.below("day=1/_x.csv")
            ((('hour=2',), False), None)
        """
        if key.endswith("/"):  # a folder marker, which some tools create
            return None
        parts = key.split("/")
        if any(is_ignored(part) for part in parts[self._fixed :]):
            return None
        if not self.is_glob:
            return tuple(parts[self._fixed : -1]), False
        if _match(self._parts, parts):
            return (), True
        depth = len(self._parts)
        if _ANY_DEPTH not in self._parts and depth < len(parts) and _match(self._parts, parts[:depth]):
            return tuple(parts[depth:-1]), False
        return None

    def hidden(self, key: str) -> str | None:
        """Return the part of a key in this folder, up to the first name that Spark ignores; ``None`` if it has none."""
        parts = key.split("/")
        at = next((at for at, part in enumerate(parts) if at >= self._fixed and is_ignored(part)), None)
        if self.is_glob or at is None or parts[at] == "_temporary":
            return None
        return "/".join(parts[: at + 1]) + ("/" if at + 1 < len(parts) else "")

    @cached_property
    def _parts(self) -> tuple[str | re.Pattern[str], ...]:
        parts = self.key.rstrip("/").split("/")
        return tuple(part if part == _ANY_DEPTH else re.compile(fnmatch.translate(part)) for part in parts)

    @cached_property
    def _fixed(self) -> int:
        """The number of leading parts of a key that the pattern spells out."""
        return self.prefix.count("/")


def _match(pattern: Sequence[str | re.Pattern[str]], parts: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    first, *rest = pattern
    if first == _ANY_DEPTH:
        if not rest:
            return bool(parts)  # "a/**" matches what's below "a", not an object "a"
        return any(_match(rest, parts[depth:]) for depth in range(len(parts)))
    return bool(parts) and isinstance(first, re.Pattern) and bool(first.match(parts[0])) and _match(rest, parts[1:])


def present(text: str, wanted: Wanted, storage: StorageSettings) -> Iterator[RemoteFile]:
    """Yield the objects that one path names, as they are listed. If an object has exactly this key, yield only that.

    Args:
        text: ``s3://bucket/`` (or ``gs://bucket/`` …) and a key, a prefix (with or without a final ``/``) or a pattern.
        wanted: Decides which files to read from folders.
    """
    pattern = RemotePattern.parse(text)
    denied: PermissionError | None = None
    if pattern.key and not pattern.key.endswith("/"):
        try:
            exact = stat_object(pattern.text, storage)
        except PermissionError as error:  # also S3's answer for a missing key without permission to list
            exact, denied = None, None if pattern.is_glob else error
        if exact is not None:
            yield exact
            return
    if pattern.version_id is not None:
        yield from _pinned(pattern, storage)
        return
    found = False
    try:
        for file in _listed(pattern, wanted, storage):
            found = True
            yield file
    except PermissionError as error:
        raise _may_not_read(pattern, denied or error) from error
    if denied is not None and not found:
        raise _may_not_read(pattern, denied)


def _listed(pattern: RemotePattern, wanted: Wanted, storage: StorageSettings) -> Iterator[RemoteFile]:
    for stored in open_store(pattern.start, storage).list(pattern.start):
        require_no_table(stored.uri)
        address = ObjectAddress.parse(stored.uri)
        match = pattern.below(address.key)
        if match is None:
            hidden = pattern.hidden(address.key)
            if hidden is not None and wanted.has_suffix(address.key):
                wanted.leave_out(f"{address.root}/{hidden}")
            continue
        folders, is_named = match
        file = RemoteFile.of(stored, storage, partition_keys(folders))
        if is_named or wanted.takes(file):
            yield file
        else:
            wanted.leave_out(file.uri)


def resolve(
    paths: Sequence[str], wanted: Wanted, storage: StorageSettings
) -> tuple[tuple[RemoteFile, ...], list[InputError]]:
    """Return the objects that ``paths`` name, each once and sorted, and the problems with the paths."""
    found: dict[str, RemoteFile] = {}
    problems: list[InputError] = []
    for text in paths:
        is_empty = True
        try:
            for file in present(text, wanted, storage):
                is_empty = False
                found.setdefault(file.uri, file)
        except ConfigurationError:
            raise
        except InputError as error:
            problems.append(type(error)(error.message, hint=error.hint, detail=error.detail, path=text))
            continue
        if is_empty:
            problems.append(_nothing(text, wanted.suffixes))
    files = tuple(sorted(found.values(), key=lambda file: file.uri))
    problems.extend(problem for file in files for problem in _name_problems(file))
    if files and not problems:
        patterns = map(RemotePattern.parse, paths)
        problems.extend(remote_tables((one.start if one.is_glob else one.address.uri for one in patterns), storage))
    return files, problems


def overlap(paths: Sequence[str]) -> bool:
    """Return whether two of the paths may name the same object.

    Example:
        >>> overlap(["s3://data/a/", "s3://data/c/*"]), overlap(["s3://data/a/", "s3://data/*/x.csv"])
        (False, True)
    """
    patterns = [RemotePattern.parse(path) for path in paths]
    starts = sorted(pattern.start.rstrip("/") for pattern in patterns)
    return any(later.startswith(earlier) for earlier, later in pairwise(starts))


def _pinned(pattern: RemotePattern, storage: StorageSettings) -> Iterator[RemoteFile]:
    """Yield an object if the given version is the current one, which is the only one that Spark can read."""
    uri = pattern.address.uri
    try:
        found = stat_object(uri, storage)
    except PermissionError as error:
        raise _may_not_read(pattern, error) from error
    if found is None:
        return
    if found.version_id != pattern.version_id:
        now = f"the current version is {found.version_id}" if found.version_id else "it has no versions"
        raise SourceError(
            f"'{uri}' can't be read in version {pattern.version_id}: {now}, and Spark only reads current versions.",
            hint="Read the current version (without ?versionId=), or copy the other one to a new key.",
            path=pattern.text,
        )
    yield found


def _may_not_read(pattern: RemotePattern, error: OSError) -> SourceError:
    return SourceError(
        f"'{pattern.text}' can't be read: {error.strerror}.",
        hint=_RIGHTS[pattern.address.service],
        path=pattern.text,
    )


def _nothing(text: str, suffixes: Sequence[str]) -> SourceError:
    if RemotePattern.parse(text).is_glob:
        hint = (
            "Check the pattern. Names that start with '_' or '.' never match. "
            "Quote it in the shell so that lakegate expands it."
        )
        return SourceError(f"No object matches '{text}'.", hint=hint, path=text)
    plain = ", ".join(suffix for suffix in suffixes if suffix.count(".") == 1)  # without the compressed variants
    return SourceError(
        f"'{text}' isn't an object, nor a folder with an object that ends in {plain}.",
        hint="Check the path, or pass a pattern and --format for files with other endings. Names that start with '_' "
        "or '.', and incomplete uploads, are skipped.",
        path=text,
    )


def _name_problems(file: RemoteFile) -> Iterator[SourceError]:
    if is_ignored(file.name):
        yield SourceError(
            f"'{file.uri}' has a name that Spark skips as hidden or unfinished.",
            hint="Rename it, without '_' or '.' at the start or '._COPYING_' at the end.",
            path=file.uri,
        )
    key = ObjectAddress.parse(file.uri).key
    if ":" in key and SPARK_GLOB_CHARACTERS & set(key):
        message = f"'{file.uri}' has both a ':' and one of *?[]{{}}\\ in its key, which Spark can't read."
        yield SourceError(message, hint="Copy it to another key.", path=file.uri)
    if any(part in {"", ".", ".."} for part in key.split("/")):
        message = f"'{file.uri}' has an empty part, '.' or '..' in its key, which Spark can't read."
        yield SourceError(message, hint="Copy it to a key without '//', '/./' and '/../'.", path=file.uri)
