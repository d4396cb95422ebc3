"""What the local Spark needs to read files on S3: more jars, a few settings, and credentials in its environment."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path

from lakegate.config import S3Settings
from lakegate.local.artifacts import S3_ARTIFACTS, Artifact
from lakegate.local.state import ServiceState

# What AWS's own tools look at, none of which Spark's settings are to hold: those can be read by every client.
_VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"),
    *("AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_WEB_IDENTITY_TOKEN_FILE"),
    *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    *("AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    *("AWS_EC2_METADATA_DISABLED", "AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_STS_REGIONAL_ENDPOINTS"),
    *("AWS_REGION", "AWS_DEFAULT_REGION"),
)
_TASK_ATTEMPTS = 4
_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_DEFAULT_CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


def s3_jars(jars: Mapping[Artifact, Path]) -> tuple[str, ...]:
    """Return the paths of the jars that reading from S3 takes."""
    return tuple(str(jars[artifact]) for artifact in S3_ARTIFACTS)


def spark_master(s3: S3Settings | None) -> str:
    """Return Spark's master: all cores; a task that reads from S3 is tried again when a connection is cut.

    Hadoop's S3A repeats requests by itself, but not a vectored read whose answer breaks off.
    """
    return f"local[*, {_TASK_ATTEMPTS}]" if s3 else "local[*]"


def s3_properties(s3: S3Settings) -> Mapping[str, str]:
    """Return Spark's settings for reading ``s3://`` and ``s3a://``; no secret is among them.

    Source: https://hadoop.apache.org/docs/r3.4.2/hadoop-aws/tools/hadoop-aws/index.html
    """
    properties = {
        "fs.s3.impl": _FILE_SYSTEM,
        "fs.s3a.aws.credentials.provider": _DEFAULT_CHAIN,
        "fs.s3a.path.style.access": str(s3.path_style).lower(),
        **({"fs.s3a.endpoint": s3.endpoint} if s3.endpoint else {}),
        **({"fs.s3a.endpoint.region": s3.region} if s3.region else {}),
    }
    return {f"spark.hadoop.{key}": value for key, value in properties.items()}


def s3_variables(source: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables by which the AWS library finds credentials, as they are here.

    Args:
        source: Where to take them from; default the process's own.

    Example:
        >>> s3_variables({"AWS_PROFILE": "lake", "AWS_SOMETHING": "x", "PATH": "/bin"})
        {'AWS_PROFILE': 'lake'}
    """
    values = os.environ if source is None else source
    return {name: values[name] for name in _VARIABLES if name in values}


def credentials_mark(instance: str) -> str:
    """Return what tells the credentials of this process's environment from others, and tells nothing else of them.

    Args:
        instance: Random text of the server that gets them: keyed with it, marks of two servers cannot be compared.
    """
    text = "\0".join(f"{name}={value}" for name, value in s3_variables().items())
    return hmac.new(instance.encode(), text.encode(), hashlib.sha256).hexdigest()


def reads_s3(service: ServiceState, s3: S3Settings) -> bool:
    """Tell whether Spark was started so that it reads from there."""
    return service.s3 == s3


def has_our_credentials(service: ServiceState) -> bool:
    """Tell whether Spark was started with the credentials that this process's environment has."""
    return service.credentials_mark == credentials_mark(service.instance)
