"""Options of Spark's catalogs that depend on where the warehouse is."""

from __future__ import annotations

from collections.abc import Mapping

from lakegate.config import StorageSettings
from lakegate.storage.objects import is_remote


def spark_file_io(warehouse: str, storage: StorageSettings) -> Mapping[str, str]:
    """Return the options for a Spark catalog to reach its tables' files; none is a secret.

    Iceberg's ``ResolvingFileIO`` picks the implementation by a file's scheme. So the same options serve all stores, and
    tables from before the warehouse moved stay readable.
    Source: https://iceberg.apache.org/docs/1.12.0/aws/#s3-fileio

    Args:
        warehouse: URI of the root of the tables' files. A local one needs no options.
        storage: Where Spark finds the stores; Spark's own environment decides what isn't set.
    """
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
