"""From all that the user typed to files, each path by the kind of storage that it names."""

from __future__ import annotations

from collections.abc import Sequence

from lakegate.config import S3Settings
from lakegate.sources import paths as local
from lakegate.sources import s3 as remote
from lakegate.sources.located import Located
from lakegate.sources.problems import Problem


def resolve(
    paths: Sequence[str], suffixes: Sequence[str], s3: S3Settings
) -> tuple[tuple[Located, ...], tuple[Problem, ...]]:
    """Return the files that ``paths`` name, each once and sorted by storage and path, and what is wrong with the paths.

    Args:
        paths: As typed.
        suffixes: Lower-case endings of the files to take from folders.
        s3: How to reach S3.

    Raises:
        ConfigurationError: When a storage cannot be asked: no library, no credentials.
        StorageUnavailableError: When a storage does not answer.
    """
    here, problems = local.resolve([path for path in paths if not remote.is_s3(path)], suffixes)
    there = [path for path in paths if remote.is_s3(path)]
    if not there:
        return here, problems
    objects, more = remote.resolve(there, suffixes, s3)
    return (*here, *objects), (*problems, *more)
