"""Secrets in AWS Secrets Manager, through AWS's own library and its rules for credentials, region and endpoint."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from lakegate.errors import ConfigurationError, LakegateError, RetryableError
from lakegate.model.references import SecretReference

_KEPT_S = 300.0
_ATTEMPTS = 4
_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 10
_SERVER_ERROR = 500
_BUSY = frozenset({"InternalServiceError", "ThrottlingException", "RequestTimeout", "RequestTimeTooSkewed"})
_PERMISSION_HINT = "The role needs secretsmanager:GetSecretValue on it, and kms:Decrypt when it has a key of its own."
_CREDENTIALS_HINT = "Give credentials and region in the usual ways: a role, AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_REGION."


class AwsSecrets:
    """Reads secrets, and remembers them for five minutes, so that none is fetched at each use. Thread-safe.

    Args:
        clock: Seconds that only go up, for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, str]] = {}

    def read(self, reference: SecretReference, setting: str) -> str:
        """Return the value that ``reference`` points at.

        Raises:
            ConfigurationError: When boto3 is not installed, there are no credentials, the secret is not there or may
                not be read, or holds no such key.
            RetryableError: When AWS does not answer, or cannot serve now.
        """
        with self._lock:
            read_at, text = self._kept.get(reference.place, (float("-inf"), ""))
            if self._clock() - read_at >= _KEPT_S:
                text = _fetch(reference, setting)
                self._kept[reference.place] = (self._clock(), text)
        return _value(text, reference, setting)

    def forget(self, reference: SecretReference) -> None:
        """Fetch the secret at its next use."""
        with self._lock:
            self._kept.pop(reference.place, None)


def _fetch(reference: SecretReference, setting: str) -> str:
    try:
        import boto3  # noqa: PLC0415 - an extra, and slow to import
        from botocore.config import Config  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            f"Setting {setting} refers to AWS Secrets Manager, which needs the package boto3; it is not installed.",
            hint="pip install 'lakegate[s3]'",
            setting=setting,
        ) from None
    config = Config(
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
    )
    region = reference.place.split(":")[3] if reference.place.startswith("arn:") else os.environ.get("AWS_REGION")
    try:
        # A session of its own: boto3's default one may not be used by several threads.
        client: Any = boto3.Session(region_name=region).client("secretsmanager", config=config)
        answer = client.get_secret_value(SecretId=reference.place)
    except ClientError as error:
        raise _refused(error, reference, setting) from None
    except (BotoCoreError, ValueError) as error:
        raise _not_asked(error, reference, setting) from None
    if "SecretString" not in answer:
        raise _unusable(reference, setting, "holds bytes, not text")
    return str(answer["SecretString"])


def _value(text: str, reference: SecretReference, setting: str) -> str:
    if reference.key is None:
        if not text.strip():
            raise _unusable(reference, setting, "is empty")
        return text.rstrip("\r\n")
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise _unusable(reference, setting, "does not hold a JSON object", hint="Leave the part from '#' on out.")
    value = document.get(reference.key)
    if not isinstance(value, str) or not value:
        keys = ", ".join(sorted(document))
        raise _unusable(reference, setting, f"has no text at '{reference.key}'", hint=f"It has the keys: {keys}.")
    return value


def _refused(error: Any, reference: SecretReference, setting: str) -> LakegateError:
    code = str(error.response["Error"].get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _BUSY or status >= _SERVER_ERROR:
        return _unavailable(reference, setting, code)
    if code == "ResourceNotFoundException":
        return _unusable(
            reference, setting, "does not exist", hint="Check its name, and the region (AWS_REGION) and account."
        )
    return _unusable(reference, setting, f"may not be read ({code})", hint=_PERMISSION_HINT)


def _not_asked(error: Exception, reference: SecretReference, setting: str) -> LakegateError:
    from botocore import exceptions  # noqa: PLC0415 - an extra, and slow to import

    if isinstance(error, (exceptions.HTTPClientError, exceptions.ConnectionError)):
        return _unavailable(reference, setting, type(error).__name__)
    said = str(error).rstrip(".")
    return _unusable(reference, setting, f"cannot be asked for: {said}", hint=_CREDENTIALS_HINT)


def _unusable(reference: SecretReference, setting: str, reason: str, *, hint: str | None = None) -> ConfigurationError:
    return ConfigurationError(
        f"Setting {setting} refers to the secret '{reference.place}' in AWS Secrets Manager, which {reason}.",
        hint=hint,
        setting=setting,
    )


def _unavailable(reference: SecretReference, setting: str, said: str) -> RetryableError:
    return RetryableError(
        f"AWS Secrets Manager could not serve '{reference.place}', which setting {setting} refers to ({said}).",
        hint="Try again; check the network and the endpoint (AWS_ENDPOINT_URL, VPC endpoints).",
        setting=setting,
    )
