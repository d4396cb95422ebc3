"""What the local Spark needs to reach object stores: more jars, a few settings, and credentials in its environment."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping

from lakegate.config import AdlsSettings, GcsSettings, S3Settings, StorageSettings
from lakegate.local.artifacts import S3_ARTIFACTS, Artifact
from lakegate.local.gcs_adls import ADLS_ARTIFACTS, ADLS_VARIABLES, GCS_ARTIFACTS, GCS_VARIABLES, gcs_properties
from lakegate.local.s3 import S3_VARIABLES, s3_properties
from lakegate.model.base import Value

_TASK_ATTEMPTS = 4


class SparkStores(Value):
    """Object stores that Spark reaches, or is to reach; each is ``None`` when it does not.

    Attributes:
        s3: Where S3 is.
        gcs: Where Google Cloud Storage is.
        adls: Where Azure Data Lake Storage is.
    """

    s3: S3Settings | None = None
    gcs: GcsSettings | None = None
    adls: AdlsSettings | None = None

    def __bool__(self) -> bool:
        return self != SparkStores()

    def covers(self, wanted: SparkStores) -> bool:
        """Tell whether all that is wanted is reached, and where it is wanted."""
        return self.having(wanted) == self

    def having(self, wanted: SparkStores) -> SparkStores:
        """Return these stores with those that are wanted, which win where both name a place.

        Example:
            >>> SparkStores(s3=S3Settings(region="a")).having(SparkStores(gcs=GcsSettings())).s3
            S3Settings(endpoint=None, region='a', path_style=False)
        """
        return SparkStores(s3=wanted.s3 or self.s3, gcs=wanted.gcs or self.gcs, adls=wanted.adls or self.adls)


def stores_of(uris: Iterable[str], storage: StorageSettings) -> SparkStores:
    """Return the stores that files lie in, with where each is by settings, variables and profile together.

    Args:
        uris: Files or folders; those on this machine take no store.
        storage: The settings.

    Raises:
        ConfigurationError: When the library of a store is not installed, or its own configuration is wrong.
    """
    from lakegate.storage.addresses import Address, is_remote  # noqa: PLC0415 - for remote files only

    services = {Address.parse(uri).service for uri in uris if is_remote(uri)}
    s3 = None
    if "s3" in services:
        from lakegate.storage.s3 import s3_place  # noqa: PLC0415 - loads boto3

        s3 = s3_place(storage.s3)
    return SparkStores(
        s3=s3,
        gcs=storage.gcs if "gcs" in services else None,
        adls=storage.adls if "adls" in services else None,
    )


def store_artifacts(stores: SparkStores) -> tuple[Artifact, ...]:
    """Return the jars that reaching the stores takes."""
    return (
        *(S3_ARTIFACTS if stores.s3 else ()),
        *(GCS_ARTIFACTS if stores.gcs else ()),
        *(ADLS_ARTIFACTS if stores.adls else ()),
    )


def spark_master(stores: SparkStores) -> str:
    """Return Spark's master: all cores; a task that reads from a store is tried again when a connection is cut.

    Hadoop's S3A repeats requests by itself, but not a vectored read whose answer breaks off.
    """
    return f"local[*, {_TASK_ATTEMPTS}]" if stores else "local[*]"


def store_properties(stores: SparkStores) -> Mapping[str, str]:
    """Return Spark's settings for reading from the stores; no secret is among them."""
    hadoop = {
        **(s3_properties(stores.s3) if stores.s3 else {}),
        **(gcs_properties(stores.gcs) if stores.gcs else {}),
    }
    return {f"spark.hadoop.{key}": value for key, value in hadoop.items()}


def store_variables(stores: SparkStores, source: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables by which the stores' libraries find credentials, as they are here.

    Args:
        stores: The stores.
        source: Where to take them from; default the process's own.

    Example:
        >>> store_variables(SparkStores(s3=S3Settings()), {"AWS_PROFILE": "lake", "AWS_SOMETHING": "x", "PATH": "/bin"})
        {'AWS_PROFILE': 'lake'}
    """
    values = os.environ if source is None else source
    names = (
        *(S3_VARIABLES if stores.s3 else ()),
        *(GCS_VARIABLES if stores.gcs else ()),
        *(ADLS_VARIABLES if stores.adls else ()),
    )
    return {name: values[name] for name in names if name in values}


def credentials_mark(instance: str, stores: SparkStores) -> str | None:
    """Return what tells the credentials of this process's environment from others, and tells nothing else of them.

    Args:
        instance: Random text of the server that gets them: keyed with it, marks of two servers cannot be compared.
        stores: What the credentials are for; without any there is no mark.
    """
    if not stores:
        return None
    text = "\0".join(f"{name}={value}" for name, value in store_variables(stores).items())
    return hmac.new(instance.encode(), text.encode(), hashlib.sha256).hexdigest()
