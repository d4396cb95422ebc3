"""What the local Spark needs to reach object stores: jars, settings, and credentials as variables."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping

from lakegate.config import AdlsSettings, GcsSettings, S3Settings, StorageSettings
from lakegate.model.artifacts import S3_ARTIFACTS, Artifact
from lakegate.model.base import Value

_TASK_ATTEMPTS = 4


class SparkStores(Value):
    """The object stores that Spark reaches, or must reach. Other stores are ``None``.

    Attributes:
        s3: The endpoint and region of S3.
    """

    s3: S3Settings | None = None
    gcs: GcsSettings | None = None
    adls: AdlsSettings | None = None

    def __bool__(self) -> bool:
        return self != SparkStores()

    def covers(self, wanted: SparkStores) -> bool:
        """Return whether these stores include all of ``wanted``, with the same settings."""
        return self.merged(wanted) == self

    def merged(self, wanted: SparkStores) -> SparkStores:
        """Return these stores and ``wanted`` together. Where both have settings, those of ``wanted`` win.

        Example:
            >>> SparkStores(s3=S3Settings(region="a")).merged(SparkStores(gcs=GcsSettings())).s3.region
            'a'
        """
        return SparkStores(
            s3=wanted.s3 or self.s3,
            gcs=wanted.gcs or self.gcs,
            adls=wanted.adls or self.adls,
        )


def stores_of(uris: Iterable[str], storage: StorageSettings) -> SparkStores:
    """Return the stores of some files, with settings completed from variables and profiles.

    Args:
        uris: Files or folders. Those on this machine need no store.

    Raises:
        ConfigurationError: If a store's library isn't installed, or its own configuration is wrong.
    """
    from lakegate.storage.objects import ObjectAddress, is_remote

    services = {ObjectAddress.parse(uri).service for uri in uris if is_remote(uri)}
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
    """Return the jars that Spark needs to reach the stores."""
    return (
        *(S3_ARTIFACTS if stores.s3 else ()),
        *(GCS_ARTIFACTS if stores.gcs else ()),
        *(ADLS_ARTIFACTS if stores.adls else ()),
    )


def spark_master(stores: SparkStores) -> str:
    """Return Spark's master: all cores and, with stores, retries of tasks whose connection breaks.

    Hadoop's S3A retries requests itself, but not a vectored read whose response is cut off.
    """
    return f"local[*, {_TASK_ATTEMPTS}]" if stores else "local[*]"


def store_properties(stores: SparkStores) -> Mapping[str, str]:
    """Return Spark's settings for reading from the stores, without secrets."""
    hadoop = {
        **(s3_properties(stores.s3) if stores.s3 else {}),
        **(gcs_properties(stores.gcs) if stores.gcs else {}),
    }
    return {f"spark.hadoop.{key}": value for key, value in hadoop.items()}


def store_variables(stores: SparkStores, source: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables from which the stores' libraries take credentials.

    Args:
        source: The variables to select from; by default this process's.

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
    """Return a keyed hash of the credentials in this process's environment, which doesn't reveal them.

    Args:
        instance: Random text of the server that gets the credentials, used as the key. So two servers' hashes can't be
            compared.
        stores: The stores that the credentials are for. Without any, the result is ``None``.
    """
    if not stores:
        return None
    text = "\0".join(f"{name}={value}" for name, value in store_variables(stores).items())
    return hmac.new(instance.encode(), text.encode(), hashlib.sha256).hexdigest()


# The variables that AWS's tools read. They must not go into Spark's settings, which every client can read.
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
    """Return Hadoop's settings for reading ``s3://`` and ``s3a://``, without secrets.

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
    # Google's libraries for Iceberg's GCSFileIO, which is in the runtime itself. Version 1.12.0 couldn't be resolved.
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
"""Additional jars to reach Google Cloud Storage."""
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
"""Additional jars to keep tables in Azure Data Lake Storage."""

# The variables that Google's and Azure's tools read. They must not go into Spark's settings either.
GCS_VARIABLES = ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG")
ADLS_VARIABLES = (
    *("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH"),
    *("AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST", "AZURE_CONFIG_DIR"),
    *("IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "MSI_SECRET"),
)


def gcs_properties(gcs: GcsSettings) -> Mapping[str, str]:
    """Return Hadoop's settings for reading ``gs://``, without secrets.

    By default the connector uses the credentials that ``GOOGLE_APPLICATION_CREDENTIALS`` names, or the machine's.
    Source: https://github.com/GoogleCloudDataproc/hadoop-connectors/blob/branch-2.2.x/gcs/CONFIGURATION.md
    """
    return {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
        **({"fs.gs.storage.root.url": f"{gcs.endpoint.rstrip('/')}/"} if gcs.endpoint else {}),
    }
