"""Secrets by reference: read when they are used, and read anew when they change."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from lakegate.credentials.aws import AwsSecrets
from lakegate.errors import ConfigurationError
from lakegate.model.references import FORMS, Scheme, SecretReference
from lakegate.narration import hide

_LONGEST_BYTES = 65_536
_MOUNTED = (Path("/run/secrets"), Path("/var/run/secrets"))
_AWS_SECRETS = AwsSecrets()


class Secret:
    """A secret that a setting refers to. Variables and files are read at each use, so a new value counts at once.

    Args:
        reference: ``env:NAME``, ``file:/path`` or ``aws-secret:name-or-arn#json-key``.
        setting: Name of the setting, for messages.

    Raises:
        ConfigurationError: When it is not a reference. It is not shown: it may be the secret itself.

    Example:
        >>> Secret("env:NESSIE_TOKEN", setting="catalog.token")
        Secret('env:NESSIE_TOKEN')
    """

    def __init__(self, reference: str, *, setting: str) -> None:
        try:
            self._reference = SecretReference.parse(reference)
        except ValueError:
            raise ConfigurationError(
                f"Setting {setting} holds something that is not a reference to a secret.",
                hint=f"Put the secret where only lakegate can read it, and write {setting} as {FORMS}.",
                setting=setting,
            ) from None
        self._setting = setting

    def __repr__(self) -> str:
        return f"Secret('{self._reference}')"

    def value(self) -> str:
        """Return the secret as it is now; one of AWS as it was in the last five minutes. Logs leave it out from now on.

        Raises:
            ConfigurationError: When it is not there, is empty, or may not be read; or when everybody can read its file.
            RetryableError: When AWS Secrets Manager does not answer, or cannot serve now.
        """
        value = _READERS[self._reference.scheme](self._reference, self._setting)
        hide(value)
        return value

    def renew(self) -> None:
        """Forget what was remembered of the secret, because its value was refused; the next use reads it anew."""
        if self._reference.scheme == "aws-secret":
            _AWS_SECRETS.forget(self._reference)


def resolve_secret(reference: str | None, *, setting: str) -> str | None:
    """Return the secret that ``reference`` points at; ``None`` when there is no reference.

    Raises:
        ConfigurationError: When it is not a reference; and as :meth:`Secret.value` does.
        RetryableError: As :meth:`Secret.value` does.

    Example:
        >>> resolve_secret(None, setting="engine.token") is None
        True
    """
    return None if reference is None else Secret(reference, setting=setting).value()


def _read_variable(reference: SecretReference, setting: str) -> str:
    value = os.environ.get(reference.place)
    if not value:
        raise ConfigurationError(
            f"Setting {setting} refers to the variable {reference.place}, which is not set.",
            hint=f"export {reference.place}=…",
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
        raise _unusable(setting, path, f"cannot be read: {error.strerror}") from None
    try:
        value = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise _unusable(setting, path, "does not hold text in UTF-8") from None
    if not value:
        raise _unusable(setting, path, "is empty")
    if len(content) > _LONGEST_BYTES:
        raise _unusable(setting, path, f"holds more than {_LONGEST_BYTES:,} bytes")
    return value


def _require_private(path: Path, found: os.stat_result, setting: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _unusable(setting, path, "is not a file")
    # Container engines mount secrets there for one container alone, and readable for whoever runs in it.
    readable = stat.S_IROTH if not any(path.is_relative_to(folder) for folder in _MOUNTED) else 0
    if found.st_mode & (stat.S_IWOTH | readable):
        raise ConfigurationError(
            f"Setting {setting} refers to the file {path}, which every user of this machine can read or change.",
            hint=f"chmod 600 {path}; in Kubernetes, set defaultMode: 0440 of the volume.",
            setting=setting,
            file=str(path),
        )


def _unusable(setting: str, path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"Setting {setting} refers to the file {path}, which {reason}.", setting=setting, file=str(path)
    )


_READERS: Mapping[Scheme, Callable[[SecretReference, str], str]] = {
    "env": _read_variable,
    "file": _read_file,
    "aws-secret": _AWS_SECRETS.read,
}
