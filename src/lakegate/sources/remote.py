"""From the URIs that the user typed to objects: a page of keys at a time, so that a bucket may be of any size."""

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
from lakegate.storage import adls, gcs, open_store, s3
from lakegate.storage.objects import Address, Service, canonical

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
    """What a string such as ``s3://landing/trips/*.parquet`` means.

    Nothing in it is decoded: a ``%20`` in it is a ``%20`` in the key.

    Attributes:
        address: Bucket and what follows it: a key, a prefix or a pattern.
        version_id: The version of its key that is meant, and no other.
    """

    text: str
    address: Address
    version_id: str | None = None

    @classmethod
    def parse(cls, text: str) -> RemotePattern:
        """Return the pattern of a URI.

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
        """Return whether a key is meant, and below which folders.

        A pattern takes what it matches whatever the ending, and, unless it holds ``**``, the files of the folders that
        it matches. Names that Spark ignores are left out where the pattern leaves them open.

        Args:
            key: A key that starts with :attr:`prefix`.
            suffixes: Lower-case endings of the files to take from folders.

        Returns:
            The folders between the one that is meant and the object; ``None`` when the key isn't meant.

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
        if not rest:
            return bool(parts)  # "a/**" is what's below "a", not an object of that very name
        return any(_match(rest, parts[depth:]) for depth in range(len(parts)))
    return bool(parts) and isinstance(first, re.Pattern) and bool(first.match(parts[0])) and _match(rest, parts[1:])


def present(text: str, suffixes: Sequence[str], storage: StorageSettings) -> Iterator[RemoteFile]:
    """Yield the objects that one path means, as they are listed. An object of that very key is taken alone.

    Args:
        text: ``s3://bucket/`` (or ``gs://bucket/`` …) and a key, a prefix (with ``/`` at its end or not) or a pattern.
        suffixes: Lower-case endings of the files to take from folders.
    """
    pattern = RemotePattern.parse(text)
    if pattern.version_id is not None:
        yield from _pinned(pattern, storage)
        return
    denied: PermissionError | None = None
    if pattern.key and not pattern.key.endswith("/"):
        try:
            exact = stat_object(pattern.text, storage)
        except PermissionError as error:  # also what S3 says of missing keys to those who may not list
            exact, denied = None, None if pattern.is_glob else error
        if exact is not None:
            yield exact
            return
    found = False
    try:
        for stored in open_store(pattern.start, storage).list(pattern.start):
            folders = pattern.below(Address.parse(stored.uri).key, suffixes)
            if folders is not None:
                found = True
                yield RemoteFile.of(stored, storage, partition_keys(folders))
    except PermissionError as error:
        raise _may_not_read(pattern, denied or error) from error
    if denied is not None and not found:
        raise _may_not_read(pattern, denied)


def resolve(
    paths: Sequence[str], suffixes: Sequence[str], storage: StorageSettings
) -> tuple[tuple[RemoteFile, ...], list[InputError]]:
    """Return the objects that ``paths`` mean, each once and sorted, and what is wrong with the paths."""
    found: dict[str, RemoteFile] = {}
    problems: list[InputError] = []
    for text in paths:
        is_empty = True
        try:
            for file in present(text, suffixes, storage):
                is_empty = False
                found.setdefault(file.uri, file)
        except ConfigurationError:
            raise
        except InputError as error:
            problems.append(type(error)(error.message, hint=error.hint, path=text))
            continue
        if is_empty:
            problems.append(_nothing(text, suffixes))
    files = tuple(sorted(found.values(), key=lambda file: file.uri))
    problems.extend(problem for file in files for problem in _name_problems(file))
    return files, problems


def overlap(paths: Sequence[str]) -> bool:
    """Return whether two of the paths may mean the same object.

    Example:
        >>> overlap(["s3://data/a/", "s3://data/c/*"]), overlap(["s3://data/a/", "s3://data/*/x.csv"])
        (False, True)
    """
    patterns = [RemotePattern.parse(path) for path in paths]
    starts = sorted(pattern.start.rstrip("/") for pattern in patterns)
    return any(later.startswith(earlier) for earlier, later in pairwise(starts))


def _pinned(pattern: RemotePattern, storage: StorageSettings) -> Iterator[RemoteFile]:
    """Yield the version of an object that is asked for by its id: the current one, as Spark reads no other."""
    uri = pattern.address.uri
    try:
        found = stat_object(uri, storage)
    except PermissionError as error:
        raise _may_not_read(pattern, error) from error
    if found is None:
        return
    if found.version_id != pattern.version_id:
        now = f"its version is {found.version_id} by now" if found.version_id else "it has no versions"
        raise SourceError(
            f"'{uri}' can't be read in version {pattern.version_id}: {now}, and Spark reads current versions only.",
            hint="Take the current one (without ?versionId=), or copy that version to a key of its own.",
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
            "Check the pattern; names that start with '_' or '.' never match. "
            "Quote it in the shell so that lakegate expands it."
        )
        return SourceError(f"No object matches '{text}'.", hint=hint, path=text)
    plain = ", ".join(suffix for suffix in suffixes if suffix.count(".") == 1)  # compressed ones go without saying
    return SourceError(
        f"'{text}' is neither an object nor the folder of one that ends in {plain}.",
        hint="Check the path, or name files of other endings by a pattern together with --format. "
        "Names that start with '_' or '.' are left out, and so are uploads that weren't completed.",
        path=text,
    )


def _name_problems(file: RemoteFile) -> Iterator[SourceError]:
    if is_ignored(file.name):
        yield SourceError(
            f"'{file.uri}' has a name that Spark takes for a hidden or unfinished file, and skips.",
            hint="Rename it: no leading '_' or '.', no '._COPYING_' at the end.",
            path=file.uri,
        )
    key = Address.parse(file.uri).key
    if ":" in key and SPARK_GLOB_CHARACTERS & set(key):
        message = f"'{file.uri}' holds a ':' together with one of *?[]{{}}\\ , which Spark can't read."
        yield SourceError(message, hint="Copy it to another key.", path=file.uri)
    if any(part in {"", ".", ".."} for part in key.split("/")):
        message = f"'{file.uri}' has an empty part, '.' or '..' in its key, which Spark can't read."
        yield SourceError(message, hint="Copy it to a key without '//', '/./' and '/../'.", path=file.uri)
