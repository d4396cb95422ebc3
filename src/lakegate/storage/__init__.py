"""Object stores, for source files and the warehouse: the connection to each, with lakegate's errors."""

from __future__ import annotations

from lakegate.config import StorageSettings
from lakegate.storage.objects import ObjectAddress, ObjectStore


def open_store(uri: str, settings: StorageSettings) -> ObjectStore:
    """Return the store of ``uri``.

    Args:
        uri: An object or a bucket: ``s3://…``, ``s3a://…``, ``gs://…``, ``abfs://…``, ``abfss://…``.

    Raises:
        InputError: When it doesn't name a bucket, or has another scheme.
        ConfigurationError: When the store's library isn't installed, or its own configuration is invalid.
    """
    address = ObjectAddress.parse(uri)
    if address.service == "s3":
        from lakegate.storage.s3 import S3Store

        return S3Store(settings.s3)
    if address.service == "gcs":
        from lakegate.storage.gcs import GcsStore

        return GcsStore(settings.gcs)
    from lakegate.storage.adls import AdlsStore

    return AdlsStore(address, settings.adls)
