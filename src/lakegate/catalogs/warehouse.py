"""A warehouse in an object store: whether it can be written to, and how Spark reaches it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from lakegate.errors import ConfigurationError, LakegateError, RetryableError

if TYPE_CHECKING:
    from lakegate.config import StorageSettings

MARKER = ".lakegate"
"""Name of the object below the root whose being there proves that the warehouse can be written to."""
_CONTENT = b"Tables of lakegate lie below. See `lakegate table list`; do not delete files here by hand.\n"


def require_writable(warehouse: str, storage: StorageSettings) -> None:
    """Make sure that a warehouse in an object store takes new files; two requests, and nothing is overwritten.

    Args:
        warehouse: Its root, as URI; one on this machine is left alone.
        storage: How to reach it.

    Raises:
        ConfigurationError: When its bucket does not exist, credentials are missing or refused, or it may not be
            written to.
        StorageUnavailableError: When the store does not answer.
    """
    from lakegate.storage.addresses import is_remote  # noqa: PLC0415 - for remote warehouses only
    from lakegate.storage.opening import open_store  # noqa: PLC0415 - for remote warehouses only

    if not is_remote(warehouse):
        return
    marker = f"{warehouse.rstrip('/')}/{MARKER}"
    try:
        store = open_store(warehouse, storage)
        with suppress(PermissionError):
            # Some stores make a bucket that is missing when something is put into it: a misspelt name would pass.
            next(store.list(marker), None)
        store.create(marker, _CONTENT)
    except FileExistsError:
        return
    except OSError as error:
        hint = "These credentials need the right to read and write below it."
        raise _unusable(warehouse, error.strerror or str(error), hint) from error
    except RetryableError:
        raise
    except LakegateError as error:
        raise _unusable(warehouse, error.message, error.hint or "") from error


def spark_file_io(warehouse: str, storage: StorageSettings) -> Mapping[str, str]:
    """Return the options by which a Spark catalog reaches the files of its tables; no secret is among them.

    Iceberg's ``ResolvingFileIO`` takes each store's own implementation by a file's scheme, so the same options serve
    all stores, and tables that were made while the warehouse was elsewhere stay readable.
    Source: https://iceberg.apache.org/docs/1.12.0/aws/#s3-fileio

    Args:
        warehouse: Root of the tables' files, as URI; one on this machine takes no options.
        storage: Where the stores are, as Spark is to see them; what is not set is for Spark's own environment to tell.
    """
    from lakegate.storage.addresses import is_remote  # noqa: PLC0415 - light, but not needed for what is local

    if not is_remote(warehouse):
        return {}
    s3, gcs = storage.s3, storage.gcs
    return {
        "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        **({"client.region": s3.region} if s3.region else {}),
        **({"s3.endpoint": s3.endpoint} if s3.endpoint else {}),
        **({"s3.path-style-access": "true"} if s3.path_style else {}),
        **({"gcs.service.host": gcs.endpoint} if gcs.endpoint else {}),
    }


def _unusable(warehouse: str, reason: str, hint: str) -> ConfigurationError:
    return ConfigurationError(
        f"The warehouse {warehouse} cannot be used: {reason.rstrip('.')}.",
        hint=f"Nothing was written. {hint} The setting is catalog.warehouse.".replace("  ", " "),
        setting="catalog.warehouse",
        warehouse=warehouse,
    )
