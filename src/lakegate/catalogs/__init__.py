"""Catalogs: references, commits and where tables stand. Nessie is the one that lakegate runs on.

How to add a catalog:

1. Write a class that has the methods of :class:`lakegate.protocols.Catalog` and is made by
   ``YourCatalog(uri, warehouse, token=…, timeout_s=…)``. The token is a
   :class:`lakegate.credentials.tokens.Token`, whose ``value()`` may change while the catalog is used.
2. Name it in the entry point group ``lakegate.catalogs`` of your package; our own stands there too::

       [project.entry-points."lakegate.catalogs"]
       yours = "your_package.catalog:YourCatalog"

3. Run the suite of ``tests/contract/test_catalog_contract.py`` over it: that is what the rest of lakegate relies on.

Its room may import ``lakegate.model``, ``lakegate.errors``, ``lakegate.protocols``, ``lakegate.credentials`` and
``lakegate.config`` only.
Nothing is imported here before it is asked for, so that front doors stay quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from lakegate.errors import ConfigurationError

if TYPE_CHECKING:
    from lakegate.credentials.tokens import Token
    from lakegate.protocols import Catalog

ENTRY_POINT_GROUP = "lakegate.catalogs"

_BUILT_IN = {"nessie": "lakegate.catalogs.nessie:NessieCatalog"}


class CatalogFactory(Protocol):
    """What an entry point of ``lakegate.catalogs`` names: a class or function that makes a catalog."""

    def __call__(self, uri: str, warehouse: str, *, token: Token | None = None, timeout_s: float = 30.0) -> Catalog:
        """Return a catalog at ``uri`` with tables under ``warehouse`` that waits ``timeout_s`` seconds for answers."""
        ...


def find_catalog(name: str) -> CatalogFactory:
    """Return the catalog registered as ``name``, importing only that one.

    Args:
        name: Name of an entry point in the group ``lakegate.catalogs``; ``nessie`` is always there.

    Raises:
        ConfigurationError: When no catalog has this name, or it cannot be imported.

    Example:
        >>> find_catalog("nessie").__name__
        'NessieCatalog'
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - costs more than the rest of this module

    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return cast("CatalogFactory", getattr(import_module(module), attribute))
    registered = entry_points(group=ENTRY_POINT_GROUP)
    if name not in registered.names:
        known = ", ".join(sorted({*_BUILT_IN, *registered.names}))
        raise ConfigurationError(
            f"There is no catalog called '{name}'.", hint=f"Known catalogs: {known}.", catalog=name
        )
    try:
        return cast("CatalogFactory", registered[name].load())
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"The catalog '{name}' cannot be imported: {error}.",
            hint=f"Install or repair the package that registers it ({registered[name].value}).",
            catalog=name,
        ) from error
