"""Secrets by reference, read when they're used; and the authorities that TLS trusts."""

from __future__ import annotations

import json
import os
import ssl
import stat
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lakegate.errors import ConfigurationError, LakegateError, RetryableError, missing_package
from lakegate.model.secrets import FORMS, Scheme, SecretReference
from lakegate.progress import hide

_LONGEST_BYTES = 65_536
_SECRET_MOUNTS = (Path("/run/secrets"), Path("/var/run/secrets"))
_CACHE_S = 300.0
_ATTEMPTS = 4
_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 10
_SERVER_ERROR = 500
_BUSY = frozenset({"InternalServiceError", "ThrottlingException", "RequestTimeout", "RequestTimeTooSkewed"})
_PERMISSION_HINT = "The role needs secretsmanager:GetSecretValue on it, and kms:Decrypt if it has its own key."
_CREDENTIALS_HINT = (
    "Provide credentials and a region in the usual ways: a role, AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_REGION."
)


class Secret:
    """A secret that a setting refers to. Variables and files are read on each use, so changes take effect at once.

    Args:
        reference: ``env:NAME``, ``file:/path`` or ``aws-secret:name-or-arn#json-key``.
        setting: Name of the setting, for messages.

    Raises:
        ConfigurationError: When it isn't a reference. The message doesn't show it, because it may be the secret itself.

    Example:
        >>> Secret("env:NESSIE_TOKEN", setting="catalog.token")
        Secret('env:NESSIE_TOKEN')
    """

    def __init__(self, reference: str, *, setting: str) -> None:
        try:
            self._reference = SecretReference.parse(reference)
        except ValueError:
            raise ConfigurationError(
                f"Setting {setting} isn't a reference to a secret.",
                hint=f"Put the secret where only lakegate can read it, and write {setting} as {FORMS}.",
                setting=setting,
            ) from None
        self._setting = setting

    def __repr__(self) -> str:
        return f"Secret('{self._reference}')"

    def value(self) -> str:
        """Return the secret's current value; those from AWS are cached for five minutes. Logs redact it from now on.

        Raises:
            ConfigurationError: When it's missing, empty or inaccessible, or its file is readable by everyone.
            RetryableError: When AWS Secrets Manager is unavailable.
        """
        value = _READERS[self._reference.scheme](self._reference, self._setting)
        hide(value)
        return value

    def renew(self) -> None:
        """Drop the secret's cached value after it was rejected, so that the next use reads it again."""
        if self._reference.scheme == "aws-secret":
            _AWS_SECRETS.forget(self._reference)


def trusting(ca_file: Path | str | None, *, setting: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the authorities in ``ca_file`` (PEM), or by default the system's."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # includes ssl.SSLError
        reason = "has no certificates" if isinstance(error, ssl.SSLError) else f"can't be read: {error.strerror}"
        raise ConfigurationError(
            f"The file {ca_file} of trusted certificate authorities {reason}.",
            hint=f"Set {setting} to a file in PEM format.",
            setting=setting,
            file=str(ca_file),
        ) from None


def resolve_secret(reference: str | None, *, setting: str) -> str | None:
    """Return the secret that ``reference`` points to; ``None`` without a reference.

    Example:
        >>> resolve_secret(None, setting="engine.token") is None
        True
    """
    return None if reference is None else Secret(reference, setting=setting).value()


def _read_variable(reference: SecretReference, setting: str) -> str:
    value = os.environ.get(reference.place)
    if not value:
        raise ConfigurationError(
            f"Setting {setting} refers to the variable {reference.place}, which isn't set.",
            hint=f"Set it: export {reference.place}=…",
            setting=setting,
        )
    return value


def _read_file(reference: SecretReference, setting: str) -> str:
    path = Path(reference.place)
    try:
        with path.open("rb") as file:
            _require_private(path, os.fstat(file.fileno()), setting)
            content = file.read(_LONGEST_BYTES + 1)
    except OSError as error:
        raise _unusable(setting, path, f"can't be read: {error.strerror}") from None
    try:
        value = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise _unusable(setting, path, "isn't UTF-8 text") from None
    if not value:
        raise _unusable(setting, path, "is empty")
    if len(content) > _LONGEST_BYTES:
        raise _unusable(setting, path, f"has more than {_LONGEST_BYTES:,} bytes")
    return value


def _require_private(path: Path, found: os.stat_result, setting: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _unusable(setting, path, "isn't a file")
    # Container engines mount secrets there for a single container, readable by all of its users.
    readable = stat.S_IROTH if not any(path.is_relative_to(folder) for folder in _SECRET_MOUNTS) else 0
    if found.st_mode & (stat.S_IWOTH | readable):
        raise ConfigurationError(
            f"Setting {setting} refers to the file {path}, which every user of this machine can read or change.",
            hint=f"chmod 600 {path}; in Kubernetes, set the volume's defaultMode to 0440.",
            setting=setting,
            file=str(path),
        )


def _unusable(setting: str, path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"Setting {setting} refers to the file {path}, which {reason}.", setting=setting, file=str(path)
    )


class AwsSecrets:
    """Reads secrets from AWS Secrets Manager, and caches them for five minutes. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: dict[str, tuple[float, str]] = {}

    def read(self, reference: SecretReference, setting: str) -> str:
        """Return the value that ``reference`` points to."""
        with self._lock:
            read_at, text = self._cached.get(reference.place, (float("-inf"), ""))
            if self._clock() - read_at >= _CACHE_S:
                text = _fetch(reference, setting)
                self._cached[reference.place] = (self._clock(), text)
        return _value(text, reference, setting)

    def forget(self, reference: SecretReference) -> None:
        """Fetch the secret at its next use."""
        with self._lock:
            self._cached.pop(reference.place, None)


def _fetch(reference: SecretReference, setting: str) -> str:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise missing_package(
            f"Setting {setting} refers to AWS Secrets Manager, which needs", "boto3", "s3", setting=setting
        ) from None
    config = Config(
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
    )
    region = reference.place.split(":")[3] if reference.place.startswith("arn:") else os.environ.get("AWS_REGION")
    try:
        # A separate session, because boto3's default one isn't thread-safe.
        client: Any = boto3.Session(region_name=region).client("secretsmanager", config=config)
        answer = client.get_secret_value(SecretId=reference.place)
    except ClientError as error:
        raise _refused(error, reference, setting) from None
    except (BotoCoreError, ValueError) as error:
        raise _fetch_error(error, reference, setting) from None
    if "SecretString" not in answer:
        raise _secret_unusable(reference, setting, "is binary, not text")
    return str(answer["SecretString"])


def _value(text: str, reference: SecretReference, setting: str) -> str:
    if reference.key is None:
        if not text.strip():
            raise _secret_unusable(reference, setting, "is empty")
        return text.rstrip("\r\n")
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise _secret_unusable(
            reference, setting, "isn't a JSON object", hint="Remove '#' and everything after it from the reference."
        )
    value = document.get(reference.key)
    if not isinstance(value, str) or not value:
        keys = ", ".join(sorted(document))
        raise _secret_unusable(
            reference, setting, f"has no text at '{reference.key}'", hint=f"It has the keys: {keys}."
        )
    return value


def _refused(error: Any, reference: SecretReference, setting: str) -> LakegateError:
    code = str(error.response["Error"].get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _BUSY or status >= _SERVER_ERROR:
        return _unavailable(reference, setting, code)
    if code == "ResourceNotFoundException":
        return _secret_unusable(
            reference, setting, "doesn't exist", hint="Check its name, and the region (AWS_REGION) and account."
        )
    return _secret_unusable(reference, setting, f"can't be read ({code})", hint=_PERMISSION_HINT)


def _fetch_error(error: Exception, reference: SecretReference, setting: str) -> LakegateError:
    from botocore import exceptions

    if isinstance(error, (exceptions.HTTPClientError, exceptions.ConnectionError)):
        return _unavailable(reference, setting, type(error).__name__)
    said = str(error).rstrip(".")
    return _secret_unusable(reference, setting, f"can't be fetched: {said}", hint=_CREDENTIALS_HINT)


def _secret_unusable(
    reference: SecretReference, setting: str, reason: str, *, hint: str | None = None
) -> ConfigurationError:
    return ConfigurationError(
        f"Setting {setting} refers to the secret '{reference.place}' in AWS Secrets Manager, which {reason}.",
        hint=hint,
        setting=setting,
    )


def _unavailable(reference: SecretReference, setting: str, said: str) -> RetryableError:
    return RetryableError(
        f"AWS Secrets Manager couldn't return '{reference.place}', which setting {setting} refers to ({said}).",
        hint="Check the network and the endpoint (AWS_ENDPOINT_URL, VPC endpoints), then try again.",
        setting=setting,
    )


_AWS_SECRETS = AwsSecrets()
_READERS: Mapping[Scheme, Callable[[SecretReference, str], str]] = {
    "env": _read_variable,
    "file": _read_file,
    "aws-secret": _AWS_SECRETS.read,
}
