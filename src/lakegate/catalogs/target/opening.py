"""Finds the target that the settings name: PyIceberg's properties, and which class publishes by them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import URI, WAREHOUSE_LOCATION, Catalog, load_catalog
from pyiceberg.utils.config import Config
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from lakegate.catalogs.target.pyiceberg_target import PyIcebergTarget, is_denied, reason_of
from lakegate.config import CatalogSettings
from lakegate.credentials.secret import Secret
from lakegate.errors import CatalogUnavailableError, ConfigurationError
from lakegate.iceberg.files import TableFiles
from lakegate.model.secrets import is_reference
from lakegate.progress import hide

if TYPE_CHECKING:
    from lakegate.catalogs.target.targets import Target

_HINT = "See docs/how-to/use-your-own-catalog.md, and what PyIceberg needs: https://py.iceberg.apache.org/configuration"


def target_properties(settings: CatalogSettings, home: Path) -> Mapping[str, str]:
    """Return PyIceberg's properties: those in ``.pyiceberg.yaml`` and the settings' own, with secrets in place.

    Args:
        home: The project's folder, to which the file of an SQLite catalog is relative.

    Raises:
        ConfigurationError: If there are none, or a secret can't be read.
    """
    stored = Config().get_catalog_config(settings.name) if settings.name else None
    known = {**(stored or {}), **settings.properties}
    if not known:
        raise _nothing_known(settings)
    properties = {
        key: Secret(value, setting=f"catalog.properties.{key}").value() if _refers(value) else value
        for key, value in known.items()
        if isinstance(value, str)
    }
    if URI in properties:
        properties[URI] = _usable(properties[URI], home)
        password = urlsplit(properties[URI]).password
        if password:
            hide(unquote(password))
    return properties


def open_target(name: str, properties: Mapping[str, str], files: TableFiles) -> Target:
    """Return the target that PyIceberg's properties describe.

    Args:
        name: PyIceberg's name of the catalog. In a SQL catalog, it's a part of each row.
        files: Reads the tables' metadata.

    Raises:
        ConfigurationError: If the properties are wrong, or a library isn't installed.
        CatalogUnavailableError: If it doesn't answer.
    """
    catalog = _loaded(name, properties)
    identity = _identity(name, catalog)
    if type(catalog).__name__ == "SqlCatalog":
        from pyiceberg.catalog.sql import SqlCatalog

        from lakegate.catalogs.target.sql_swap import SqlSwapTarget

        return SqlSwapTarget(cast("SqlCatalog", catalog), files, identity)
    if type(catalog).__name__ == "RestCatalog":
        from pyiceberg.catalog.rest import RestCatalog

        from lakegate.catalogs.target.rest_target import RestTarget

        return RestTarget(cast("RestCatalog", catalog), files, identity)
    return PyIcebergTarget(catalog, files, identity)


def _refers(value: str) -> bool:
    """Return whether a property's value is a reference to a secret, and not a folder."""
    return is_reference(value) and not value.startswith("file://")


def _loaded(name: str, properties: Mapping[str, str]) -> Catalog:
    try:
        return load_catalog(name, **properties)
    except (ImportError, ValueError, KeyError, ArgumentError) as error:
        raise ConfigurationError(
            f"PyIceberg can't open catalog '{name}': {reason_of(error)}.", hint=_HINT, setting="catalog.properties"
        ) from error
    except Exception as error:  # each of PyIceberg's catalogs has errors of its own
        if is_denied(error):
            raise ConfigurationError(
                f"Catalog '{name}' at {_place(properties)} doesn't let this user sign in: {reason_of(error)}.",
                hint="Check the credentials in catalog.properties.",
                setting="catalog.properties",
            ) from error
        raise CatalogUnavailableError(
            f"Catalog '{name}' at {_place(properties)} doesn't answer: {reason_of(error)}.",
            hint="Check the address and the credentials in catalog.properties, and whether the catalog runs.",
        ) from error


def _identity(name: str, catalog: Catalog) -> str:
    """Return what distinguishes a catalog from others, without a secret."""
    properties = catalog.properties
    kind = type(catalog).__name__.removesuffix("Catalog").lower()
    if kind == "sql":
        return f"{_place(properties)}#{name}"
    parts = [properties.get(key) for key in ("glue.id", "glue.region", "client.region", "prefix", WAREHOUSE_LOCATION)]
    return " ".join([f"{kind} {_place(properties)}", *(part for part in parts if part)])


def _place(properties: Mapping[str, str]) -> str:
    """Return an address without user, password and options."""
    uri = properties.get(URI, "")
    if "://" not in uri:
        return uri
    scheme, host = uri.partition(":")[0].partition("+")[0], urlsplit(uri).netloc.rpartition("@")[2]
    return f"{scheme}://{host}{urlsplit(uri).path}"


def _usable(uri: str, home: Path) -> str:
    """Return an address of a database that SQLAlchemy can use: with our driver, and not relative to this process."""
    if uri.startswith(("postgresql://", "postgres://")):
        return f"postgresql+pg8000://{uri.partition('://')[2]}"
    if not uri.startswith("sqlite:///"):
        return uri
    file = make_url(uri).database
    return uri if not file else f"sqlite:///{home.absolute() / file}"


def _nothing_known(settings: CatalogSettings) -> ConfigurationError:
    if settings.name:
        names = ", ".join(Config().get_known_catalogs()) or "none"
        return ConfigurationError(
            f"Neither catalog.properties nor .pyiceberg.yaml says where catalog '{settings.name}' is.",
            hint=f"Catalogs that PyIceberg knows here: {names}.",
            setting="catalog.name",
        )
    return ConfigurationError(
        "catalog.type is iceberg, but nothing says where the catalog is.",
        hint='Set [catalog.properties], such as type = "rest" and uri = "https://…", or catalog.name to one in '
        ".pyiceberg.yaml.",
        setting="catalog.properties",
    )
