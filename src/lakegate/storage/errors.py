"""What storage says of a file that Python has no exception for, and what all stores say alike."""

from __future__ import annotations

import errno

from lakegate.errors import SourceError, StorageUnavailableError


class ReplacedError(OSError):
    """The file has other content than when it was found."""


def gone(uri: str) -> FileNotFoundError:
    """Return the error for an object that is not there."""
    return FileNotFoundError(errno.ENOENT, "it does not exist (any more)", uri)


def exists(uri: str) -> FileExistsError:
    """Return the error for an object that was to be created."""
    return FileExistsError(errno.EEXIST, "it exists already", uri)


def replaced(uri: str) -> ReplacedError:
    """Return the error for an object that is another one by now."""
    return ReplacedError(errno.ESTALE, "it was replaced while it was read", uri)


def denied(uri: str, said: str) -> PermissionError:
    """Return the error for an object that may not be used so."""
    return PermissionError(errno.EACCES, f"access denied ({said})", uri)


def no_bucket(uri: str, endpoint: str) -> SourceError:
    """Return the error for a bucket that does not exist; ``endpoint`` is the setting of the store's address."""
    return SourceError(
        f"The bucket of '{uri}' does not exist.", hint=f"Check its name, and the endpoint ({endpoint}).", file=uri
    )


def unavailable(store: str, uri: str, said: str, endpoint: str) -> StorageUnavailableError:
    """Return the error for a store that was asked again and again; ``endpoint`` as in :func:`no_bucket`."""
    return StorageUnavailableError(
        f"{store} could not serve '{uri}', though it was asked again and again ({said}).",
        hint=f"Nothing was published. Check the network and the endpoint ({endpoint}); try again.",
        file=uri,
    )
