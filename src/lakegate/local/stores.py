"""What the local Spark needs to reach object stores and databases: jars, settings, credentials in its environment."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Collection, Iterable, Mapping

from lakegate.config import AdlsSettings, GcsSettings, S3Settings, StorageSettings
from lakegate.model.artifacts import S3_ARTIFACTS, Artifact
from lakegate.model.base import Value

_TASK_ATTEMPTS = 4


class SparkStores(Value):
    """Object stores and databases that Spark reaches, or is to reach; a store is ``None`` when it doesn't.

    Attributes:
        s3: Where S3 is.
        drivers: Of the databases that it reaches.
    """

    s3: S3Settings | None = None
    gcs: GcsSettings | None = None
    adls: AdlsSettings | None = None
    drivers: tuple[Artifact, ...] = ()

    def __bool__(self) -> bool:
        return self != SparkStores()

    def covers(self, wanted: SparkStores) -> bool:
        """Return whether every requested server runs, at the requested place."""
        return self.having(wanted) == self

    def without_drivers_but(self, known: Collection[Artifact]) -> SparkStores:
        """Return these stores without the drivers that aren't among ``known``."""
        return self.model_copy(update={"drivers": tuple(one for one in self.drivers if one in known)})

    def having(self, wanted: SparkStores) -> SparkStores:
        """Return these stores with those that are wanted, which win where both name a place.

        Example:
            >>> SparkStores(s3=S3Settings(region="a")).having(SparkStores(gcs=GcsSettings())).s3.region
            'a'
        """
        return SparkStores(
            s3=wanted.s3 or self.s3,
            gcs=wanted.gcs or self.gcs,
            adls=wanted.adls or self.adls,
            # Of two versions on a class path, the first would hold.
            drivers=tuple({(one.group, one.name): one for one in (*self.drivers, *wanted.drivers)}.values()),
        )


def stores_of(uris: Iterable[str], storage: StorageSettings) -> SparkStores:
    """Return the stores that files lie in, with where each is by settings, variables and profile together.

    Args:
        uris: Files or folders; those on this machine take no store.

    Raises:
        ConfigurationError: When the library of a store isn't installed, or its own configuration is wrong.
    """
    from lakegate.storage.objects import Address, is_remote

    services = {Address.parse(uri).service for uri in uris if is_remote(uri)}
    s3 = None
    if "s3" in services:
        from lakegate.storage.s3 import s3_place

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
        # Not handed to a session: Java keeps a driver for good, and a session's classes go when it ends.
        *stores.drivers,
    )


def spark_master(stores: SparkStores) -> str:
    """Return Spark's master: all cores; a task that reads from a store is retried when a connection breaks.

    Hadoop's S3A repeats requests by itself, but not a vectored read whose response is cut off.
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
    """Return this machine's variables from which the stores' libraries take credentials.

    Args:
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
    """Return a mark of the credentials in this process's environment, which doesn't reveal them.

    Args:
        instance: Random text of the server that gets them: keyed with it, marks of two servers can't be compared.
        stores: What the credentials are for; without any, nothing is marked.
    """
    if not stores:
        return None
    text = "\0".join(f"{name}={value}" for name, value in store_variables(stores).items())
    return hmac.new(instance.encode(), text.encode(), hashlib.sha256).hexdigest()


# What AWS's own tools look at, none of which Spark's settings are to hold: those can be read by every client.
S3_VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"),
    *("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    *("AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    *("AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_STS_REGIONAL_ENDPOINTS"),
    *("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION"),
    *("AWS_REGION", "AWS_DEFAULT_REGION"),
)
_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_DEFAULT_CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


def s3_properties(s3: S3Settings) -> Mapping[str, str]:
    """Return Hadoop's settings for reading ``s3://`` and ``s3a://``; no secret is among them.

    Source: https://hadoop.apache.org/docs/r3.4.2/hadoop-aws/tools/hadoop-aws/index.html
    """
    return {
        "fs.s3.impl": _FILE_SYSTEM,
        "fs.s3a.aws.credentials.provider": _DEFAULT_CHAIN,
        "fs.s3a.path.style.access": str(s3.path_style).lower(),
        **({"fs.s3a.endpoint": s3.endpoint} if s3.endpoint else {}),
        **({"fs.s3a.endpoint.region": s3.region} if s3.region else {}),
    }


GCS_ARTIFACTS = (
    # Google's libraries for Iceberg's GCSFileIO, which itself is in the runtime. That of 1.12.0 couldn't be resolved.
    Artifact(
        group="org.apache.iceberg",
        name="iceberg-gcp-bundle",
        version="1.10.0",
        size_bytes=61_369_769,
        sha256="a5c623768c28335161fc4802df88308f81701a156dec596a60ad42e1f047d5e1",
    ),
    Artifact(
        group="com.google.cloud.bigdataoss",
        name="gcs-connector",
        version="hadoop3-2.2.26",
        classifier="shaded",
        size_bytes=38_573_571,
        sha256="cbaa2773283c2237f933f48deb77a6f912619e367b26efe186aee74f4b35d89c",
    ),
)
"""What Spark needs besides to reach Google Cloud Storage."""
ADLS_ARTIFACTS = (
    # As above, for ADLSFileIO.
    Artifact(
        group="org.apache.iceberg",
        name="iceberg-azure-bundle",
        version="1.10.0",
        size_bytes=18_687_191,
        sha256="f143be94b94bb380e76d1c45ee9a63e143f4a7f813c6aa1ed72f5bfd44f52d05",
    ),
)
"""What Spark needs besides to keep tables in Azure Data Lake Storage."""

# What Google's and Azure's own tools look at, none of which Spark's settings are to hold.
GCS_VARIABLES = ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG")
ADLS_VARIABLES = (
    *("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH"),
    *("AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST", "AZURE_CONFIG_DIR"),
    *("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "MSI_SECRET"),
)


def gcs_properties(gcs: GcsSettings) -> Mapping[str, str]:
    """Return Hadoop's settings for reading ``gs://``; no secret is among them.

    Without further settings the connector takes the credentials that ``GOOGLE_APPLICATION_CREDENTIALS`` names, or the
    machine's. Source: https://github.com/GoogleCloudDataproc/hadoop-connectors/blob/branch-2.2.x/gcs/CONFIGURATION.md
    """
    return {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
        **({"fs.gs.storage.root.url": f"{gcs.endpoint.rstrip('/')}/"} if gcs.endpoint else {}),
    }
