"""JDBC drivers: which jar a database takes, and the class in it."""

from __future__ import annotations

from zipfile import BadZipFile, ZipFile

from lakegate.config import SourceSettings
from lakegate.errors import ConfigurationError
from lakegate.local.artifacts import prepare
from lakegate.model.artifacts import POSTGRESQL, Artifact
from lakegate.ports import Narrator

_SERVICE = "META-INF/services/java.sql.Driver"


def driver_artifact(source: SourceSettings) -> Artifact:
    """Return the driver of a database; the settings of another than PostgreSQL name it."""
    if source.driver is None:
        return POSTGRESQL
    group, name, version = source.driver.split(":")
    return Artifact(group=group, name=name, version=version, size_bytes=0, sha256=source.driver_sha256 or "")


def driver_class(artifact: Artifact, narrator: Narrator) -> str:
    """Return the class of a driver, which is in the cache then.

    Raises:
        LocalStackError: When it can't be fetched, or is not the jar that the settings expect.
        ConfigurationError: When the settings don't say which jar they expect, or it holds no driver.
    """
    jar = prepare(narrator, artifacts=[artifact])[artifact]
    try:
        with ZipFile(jar) as found:
            lines = found.read(_SERVICE).decode().splitlines()
        return next(name for line in lines if (name := line.partition("#")[0].strip()))
    except (BadZipFile, KeyError, UnicodeDecodeError, StopIteration):
        raise ConfigurationError(
            f"{jar.name} holds no JDBC driver.", hint="Set driver to the coordinates of one.", file=jar.name
        ) from None
