"""From all that the user typed to files, each path by the kind of storage that it names."""

from __future__ import annotations

from collections.abc import Sequence

from lakegate.config import StorageSettings
from lakegate.sources import paths as local
from lakegate.sources import remote
from lakegate.sources.located import Located
from lakegate.sources.problems import Problem


def resolve(
    paths: Sequence[str], suffixes: Sequence[str], storage: StorageSettings
) -> tuple[tuple[Located, ...], tuple[Problem, ...]]:
    """Return the files that ``paths`` name, each once and sorted by storage and path, and what is wrong with the paths.

    Args:
        paths: As typed.
        suffixes: Lower-case endings of the files to take from folders.
        storage: How to reach the object stores.

    Raises:
        ConfigurationError: When a storage cannot be asked: no library, no credentials.
        StorageUnavailableError: When a storage does not answer.
    """
    here, problems = local.resolve([path for path in paths if not remote.is_remote(path)], suffixes)
    there = [path for path in paths if remote.is_remote(path)]
    if not there:
        return here, problems
    objects, more = remote.resolve(there, suffixes, storage)
    return (*here, *objects), (*problems, *more)
