"""What the local Spark needs to reach S3."""

from __future__ import annotations

from collections.abc import Mapping

from lakegate.config import S3Settings

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
