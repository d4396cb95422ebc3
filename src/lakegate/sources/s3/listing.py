"""Finding objects: a page of keys at a time, so that a bucket of any size is looked through in little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from lakegate.config import S3Settings
from lakegate.errors import ConfigurationError, InputError, SourceError
from lakegate.sources.paths import SPARK_GLOB_CHARACTERS, is_ignored, partition_keys
from lakegate.sources.problems import Problem
from lakegate.sources.s3.objects import S3Object, locate
from lakegate.sources.s3.pattern import S3Pattern
from lakegate.storage.s3 import CREDENTIALS_HINT, s3_client, translated


def is_s3(text: str) -> bool:
    """Tell whether a path is one of S3."""
    return text[:5].lower() == "s3://"


def present(text: str, suffixes: Sequence[str], settings: S3Settings) -> Iterator[S3Object]:
    """Yield the objects that one path means, as they are listed. An object of that very key is taken alone.

    Args:
        text: ``s3://bucket/`` and a key, a prefix (with ``/`` at its end or not) or a pattern.
        suffixes: Lower-case endings of the files to take from folders.
        settings: How to reach S3.

    Raises:
        InputError: When it cannot be a path of S3.
        SourceError: When the bucket does not exist or may not be listed.
        ConfigurationError: When there are no valid credentials.
        StorageUnavailableError: When S3 does not answer.
    """
    pattern = S3Pattern.parse(text)
    exact, denied = _exact(pattern, settings)
    if exact is not None:
        yield exact
        return
    found = False
    try:
        for listed in _listed(pattern, suffixes, settings):
            found = True
            yield listed
    except PermissionError as error:
        raise _may_not(pattern, denied or error) from error
    if denied is not None and not found:
        raise _may_not(pattern, denied)


def resolve(
    paths: Sequence[str], suffixes: Sequence[str], settings: S3Settings
) -> tuple[tuple[S3Object, ...], tuple[Problem, ...]]:
    """Return the objects that ``paths`` mean, each once and sorted, and what is wrong with the paths.

    Raises:
        ConfigurationError: When there are no valid credentials.
        StorageUnavailableError: When S3 does not answer.
    """
    found: dict[tuple[str, str], S3Object] = {}
    problems: list[Problem] = []
    for text in paths:
        before = len(found)
        known = 0
        try:
            for listed in present(text, suffixes, settings):
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
    patterns = [S3Pattern.parse(path) for path in paths]
    starts = sorted(f"{pattern.bucket}/{pattern.prefix.rstrip('/')}" for pattern in patterns)
    return any(later.startswith(earlier) for earlier, later in pairwise(starts))


def _exact(pattern: S3Pattern, settings: S3Settings) -> tuple[S3Object | None, PermissionError | None]:
    """Return the object whose key the text literally is, or why nobody may know whether there is one."""
    if not pattern.key or pattern.key.endswith("/"):
        return None, None
    try:
        return locate(pattern.text, settings), None
    except PermissionError as error:  # also what S3 says of keys that are not there to those who may not list
        return None, None if pattern.is_glob else error


def _listed(pattern: S3Pattern, suffixes: Sequence[str], settings: S3Settings) -> Iterator[S3Object]:
    pages = s3_client(settings).get_paginator("list_objects_v2").paginate(Bucket=pattern.bucket, Prefix=pattern.prefix)
    turned = iter(pages)
    while True:
        with translated(pattern.text):
            page = next(turned, None)
        if page is None:
            return
        for entry in page.get("Contents", ()):
            folders = pattern.below(entry["Key"], suffixes)
            if folders is not None:
                yield S3Object(
                    pattern.bucket,
                    entry["Key"],
                    entry["Size"],
                    entry["ETag"].strip('"'),
                    entry["LastModified"],
                    settings,
                    partition_keys(folders),
                )


def _may_not(pattern: S3Pattern, error: OSError) -> SourceError:
    return SourceError(
        f"'{pattern.text}' may not be read: {error.strerror}.",
        hint=f"It takes s3:ListBucket on the bucket and s3:GetObject on its objects. {CREDENTIALS_HINT}",
        path=pattern.text,
    )


def _nothing(text: str, suffixes: Sequence[str]) -> Problem:
    if S3Pattern.parse(text).is_glob:
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


def _name_problems(file: S3Object) -> Iterator[Problem]:
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
