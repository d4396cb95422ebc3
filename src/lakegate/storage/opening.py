"""From a URI to the store that it lies in."""

from __future__ import annotations

from lakegate.config import StorageSettings
from lakegate.storage.addresses import Address
from lakegate.storage.objects import ObjectStore


def open_store(uri: str, settings: StorageSettings) -> ObjectStore:
    """Return the store that ``uri`` lies in.

    Args:
        uri: An object, or only its bucket: ``s3://…``, ``s3a://…``, ``gs://…``, ``abfs://…``, ``abfss://…``.
        settings: How to reach the stores.

    Raises:
        InputError: When it names no bucket, or is of another scheme.
        ConfigurationError: When the library of the store is not installed, or its own configuration is wrong.
    """
    address = Address.parse(uri)
    if address.service == "s3":
        from lakegate.storage.s3_store import S3Store  # noqa: PLC0415 - loads boto3

        return S3Store(settings.s3)
    if address.service == "gcs":
        from lakegate.storage.gcs_store import GcsStore  # noqa: PLC0415 - loads Google's library

        return GcsStore(settings.gcs)
    from lakegate.storage.adls_store import AdlsStore  # noqa: PLC0415 - loads Azure's library

    return AdlsStore(address, settings.adls)
