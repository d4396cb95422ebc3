"""Finding objects: a page of keys at a time, so that a bucket of any size is looked through in little memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from lakegate.config import StorageSettings
from lakegate.errors import ConfigurationError, InputError, SourceError
from lakegate.sources.paths import SPARK_GLOB_CHARACTERS, is_ignored, partition_keys
from lakegate.sources.problems import Problem
from lakegate.sources.remote.objects import RemoteFile, locate
from lakegate.sources.remote.pattern import RemotePattern
from lakegate.storage import adls, gcs, s3
from lakegate.storage.addresses import Address, Service
from lakegate.storage.opening import open_store

_RIGHTS: Mapping[Service, str] = {
    "s3": f"It takes s3:ListBucket on the bucket and s3:GetObject on its objects. {s3.CREDENTIALS_HINT}",
    "gcs": f"It takes the role Storage Object Viewer on the bucket. {gcs.CREDENTIALS_HINT}",
    "adls": f"It takes the role Storage Blob Data Reader on the container. {adls.CREDENTIALS_HINT}",
}


def present(text: str, suffixes: Sequence[str], storage: StorageSettings) -> Iterator[RemoteFile]:
    """Yield the objects that one path means, as they are listed. An object of that very key is taken alone.

    Args:
        text: ``s3://bucket/`` (or ``gs://bucket/`` …) and a key, a prefix (with ``/`` at its end or not) or a pattern.
        suffixes: Lower-case endings of the files to take from folders.
        storage: How to reach the stores.

    Raises:
        InputError: When it names no bucket.
        SourceError: When the bucket does not exist or may not be listed.
        ConfigurationError: When there are no valid credentials.
        StorageUnavailableError: When its store does not answer.
    """
    pattern = RemotePattern.parse(text)
    if pattern.version_id is not None:
        yield from _pinned(pattern, storage)
        return
    exact, denied = _exact(pattern, storage)
    if exact is not None:
        yield exact
        return
    found = False
    try:
        for listed in _listed(pattern, suffixes, storage):
            found = True
            yield listed
    except PermissionError as error:
        raise _may_not(pattern, denied or error) from error
    if denied is not None and not found:
        raise _may_not(pattern, denied)


def resolve(
    paths: Sequence[str], suffixes: Sequence[str], storage: StorageSettings
) -> tuple[tuple[RemoteFile, ...], tuple[Problem, ...]]:
    """Return the objects that ``paths`` mean, each once and sorted, and what is wrong with the paths.

    Raises:
        ConfigurationError: When there are no valid credentials.
        StorageUnavailableError: When its store does not answer.
    """
    found: dict[str, RemoteFile] = {}
    problems: list[Problem] = []
    for text in paths:
        before = len(found)
        known = 0
        try:
            for listed in present(text, suffixes, storage):
                known += listed.identity in found
                found.setdefault(listed.identity, listed)
        except ConfigurationError:
            raise
        except InputError as error:
            problems.append(Problem(error.message, error.hint, text, type(error)))
            continue
        if len(found) == before and not known:
            problems.append(_nothing(text, suffixes))
    files = tuple(sorted(found.values(), key=lambda file: file.uri))
    problems.extend(problem for file in files for problem in _name_problems(file))
    return files, tuple(problems)


def overlap(paths: Sequence[str]) -> bool:
    """Tell whether two of the paths may mean the same object.

    Example:
        >>> overlap(["s3://data/a/", "s3://data/c/*"]), overlap(["s3://data/a/", "s3://data/*/x.csv"])
        (False, True)
    """
    patterns = [RemotePattern.parse(path) for path in paths]
    starts = sorted(pattern.start.rstrip("/") for pattern in patterns)
    return any(later.startswith(earlier) for earlier, later in pairwise(starts))


def _exact(pattern: RemotePattern, storage: StorageSettings) -> tuple[RemoteFile | None, PermissionError | None]:
    """Return the object whose key the text literally is, or why nobody may know whether there is one."""
    if not pattern.key or pattern.key.endswith("/"):
        return None, None
    try:
        return locate(pattern.text, storage), None
    except PermissionError as error:  # also what S3 says of keys that are not there to those who may not list
        return None, None if pattern.is_glob else error


def _listed(pattern: RemotePattern, suffixes: Sequence[str], storage: StorageSettings) -> Iterator[RemoteFile]:
    for stored in open_store(pattern.start, storage).list(pattern.start):
        folders = pattern.below(Address.parse(stored.uri).key, suffixes)
        if folders is not None:
            yield RemoteFile(stored, storage, partition_keys(folders))


def _pinned(pattern: RemotePattern, storage: StorageSettings) -> Iterator[RemoteFile]:
    """Yield the version of an object that is asked for by its id: the current one, as Spark reads no other."""
    uri = pattern.address.uri
    try:
        found = locate(uri, storage)
    except PermissionError as error:
        raise _may_not(pattern, error) from error
    if found is None:
        return
    if found.found.version_id != pattern.version_id:
        now = f"its version is {found.found.version_id} by now" if found.found.version_id else "it has no versions"
        raise SourceError(
            f"'{uri}' cannot be read in version {pattern.version_id}: {now}, and Spark reads current versions only.",
            hint="Take the current one (without ?versionId=), or copy that version to a key of its own.",
            path=pattern.text,
        )
    yield found


def _may_not(pattern: RemotePattern, error: OSError) -> SourceError:
    return SourceError(
        f"'{pattern.text}' may not be read: {error.strerror}.",
        hint=_RIGHTS[pattern.address.service],
        path=pattern.text,
    )


def _nothing(text: str, suffixes: Sequence[str]) -> Problem:
    if RemotePattern.parse(text).is_glob:
        return Problem(
            f"No object matches '{text}'.",
            "Check the pattern; names that start with '_' or '.' never match. "
            "Quote it in the shell so that lakegate expands it.",
            text,
        )
    endings = ", ".join(suffixes)
    return Problem(
        f"'{text}' is neither an object nor the folder of one that ends in {endings}.",
        "Check the path, or name files of other endings by a pattern together with --format. "
        "Names that start with '_' or '.' are left out, and so are uploads that were not completed.",
        text,
    )


def _name_problems(file: RemoteFile) -> Iterator[Problem]:
    if is_ignored(file.name):
        yield Problem(
            f"'{file.uri}' has a name that Spark takes for a hidden or unfinished file, and skips.",
            "Rename it: no leading '_' or '.', no '._COPYING_' at the end.",
            file.uri,
        )
    if ":" in file.key and SPARK_GLOB_CHARACTERS & set(file.key):
        yield Problem(
            f"'{file.uri}' holds a ':' together with one of *?[]{{}}\\ , which Spark cannot read.",
            "Copy it to another key.",
            file.uri,
        )
    if any(part in {"", ".", ".."} for part in file.key.split("/")):
        yield Problem(
            f"'{file.uri}' has an empty part, '.' or '..' in its key, which Spark cannot read.",
            "Copy it to a key without '//', '/./' and '/../'.",
            file.uri,
        )
