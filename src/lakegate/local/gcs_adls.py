"""What the local Spark needs to reach Google's and Azure's object stores."""

from __future__ import annotations

from collections.abc import Mapping

from lakegate.config import GcsSettings
from lakegate.local.artifacts import Artifact

GCS_ARTIFACTS = (
    # Google's libraries for Iceberg's GCSFileIO, which itself is in the runtime. That of 1.12.0 could not be resolved.
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
