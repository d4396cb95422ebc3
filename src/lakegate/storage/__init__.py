"""Object stores: the connection to each, and its errors in our words; for source files and for the warehouse alike."""

from __future__ import annotations

from lakegate.config import StorageSettings
from lakegate.storage.objects import Address, ObjectStore


def open_store(uri: str, settings: StorageSettings) -> ObjectStore:
    """Return the store that ``uri`` is in.

    Args:
        uri: An object, or only its bucket: ``s3://…``, ``s3a://…``, ``gs://…``, ``abfs://…``, ``abfss://…``.

    Raises:
        InputError: When it names no bucket, or is of another scheme.
        ConfigurationError: When the library of the store isn't installed, or its own configuration is wrong.
    """
    address = Address.parse(uri)
    if address.service == "s3":
        from lakegate.storage.s3 import S3Store

        return S3Store(settings.s3)
    if address.service == "gcs":
        from lakegate.storage.gcs import GcsStore

        return GcsStore(settings.gcs)
    from lakegate.storage.adls import AdlsStore

    return AdlsStore(address, settings.adls)
