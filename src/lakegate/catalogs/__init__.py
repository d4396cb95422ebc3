"""Catalogs: references, commits and the state of each table. lakegate runs on Nessie, or beside any Iceberg catalog.

To add a catalog, see ``docs/how-to/write-your-own-catalog.md``: a class with the methods of
:class:`lakegate.ports.Catalog`, an entry point in the group ``lakegate.catalogs``, and the tests of
:class:`lakegate.testing.catalog.CatalogContract`. Importing this package imports no catalog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from lakegate.errors import ConfigurationError, ConflictError, InputError, NotFoundError
from lakegate.model.words import moment

if TYPE_CHECKING:
    from lakegate.credentials.tokens import Token
    from lakegate.ports import Catalog

ENTRY_POINT_GROUP = "lakegate.catalogs"

_BUILT_IN = {"nessie": "lakegate.catalogs.nessie:NessieCatalog"}
_TARGETS = ("iceberg", "sql")
"""Types that aren't created from an address: ``lakegate.catalogs.target.opening``."""


class CatalogFactory(Protocol):
    """The class or function that an entry point of ``lakegate.catalogs`` names."""

    def __call__(self, uri: str, warehouse: str, *, token: Token | None = None, timeout_s: float = 30.0) -> Catalog:
        """Return a catalog at ``uri``, with tables below ``warehouse`` and ``timeout_s`` seconds per request."""
        ...


def find_catalog(name: str) -> CatalogFactory:
    """Return the catalog registered as ``name``, importing only that one.

    Args:
        name: ``nessie``, or the name of an entry point in the group ``lakegate.catalogs``.

    Raises:
        ConfigurationError: If no catalog has this name, or it can't be imported.

    Example:
        >>> find_catalog("nessie").__name__
        'NessieCatalog'
    """
    from importlib.metadata import entry_points

    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return cast("CatalogFactory", getattr(import_module(module), attribute))
    registered = entry_points(group=ENTRY_POINT_GROUP)
    if name not in registered.names:
        known = ", ".join(sorted({*_BUILT_IN, *_TARGETS, *registered.names}))
        raise ConfigurationError(f"Catalog '{name}' doesn't exist.", hint=f"Known catalogs: {known}.", catalog=name)
    try:
        return cast("CatalogFactory", registered[name].load())
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"Can't import catalog '{name}': {error}.",
            hint=f"Install or repair the package that provides it ({registered[name].value}).",
            catalog=name,
        ) from error


CONFLICTS: dict[str, str] = {
    "VALUE_DIFFERS": "was changed",
    "KEY_EXISTS": "was created",
    "KEY_DOES_NOT_EXIST": "doesn't exist",
    "CONTENT_ID_DIFFERS": "was dropped and created again",
    "PAYLOAD_DIFFERS": "became something else",
    "NAMESPACE_ABSENT": "(a namespace) doesn't exist",
    "NAMESPACE_NOT_EMPTY": "(a namespace) isn't empty",
    "NOT_A_NAMESPACE": "isn't a namespace",
    "UNEXPECTED_HASH": "moved",
}
"""The kinds of conflicts, as Nessie's API v2 calls them, and what the error says about the key."""


@dataclass(frozen=True, slots=True)
class KeyConflict:
    """A conflict on one key of a commit.

    Attributes:
        kind: One of :data:`CONFLICTS`. Newer servers of Nessie may have more.
    """

    key: str
    kind: str

    def __str__(self) -> str:
        return f"{self.key} {CONFLICTS.get(self.kind, 'conflicts')}"


HEAD_MOVED = KeyConflict("its head", "UNEXPECTED_HASH")
"""The conflict of a commit that had to be made on the branch's head, and wasn't."""


def commit_conflict(branch: str, base: str, conflicts: Sequence[KeyConflict], detail: str = "") -> ConflictError:
    """Return the error for a commit that was refused because of ``conflicts``.

    Its context has ``branch``, ``base``, ``tables`` (the keys as text) and ``conflicts`` (keys and kinds as text).

    Args:
        conflicts: The conflicting keys; empty if the catalog names none.
        detail: The catalog's own message, used if it names no key.
    """
    reason = "; ".join(str(conflict) for conflict in conflicts) or detail or "the catalog gave no reason"
    return ConflictError(
        f"Branch '{branch}' changed after commit {base[:12]}: {reason}.",
        hint="Nothing was committed. Check what changed, then commit on top of the branch's new head.",
        branch=branch,
        base=base,
        tables=[conflict.key for conflict in conflicts],
        conflicts=[f"{conflict.key}: {conflict.kind}" for conflict in conflicts],
    )


def moved_reference(name: str, expected: str, actual: str | None = None) -> ConflictError:
    """Return the error for a reference that has moved."""
    now = f"; it's at {actual[:12]}" if actual else ""
    return ConflictError(
        f"'{name}' is no longer at commit {expected[:12]}{now}.",
        hint="Another process moved it. See its commits with 'lakegate log', then try again.",
        ref=name,
        expected=expected,
        actual=actual,
    )


def require_zone(ref: str, at: datetime) -> None:
    """Raise an :class:`InputError` if a time to read ``ref`` at has no zone."""
    if at.tzinfo is None:
        raise InputError(f"The time {at} has no zone.", hint="Write it as 2026-01-31T07:00:00Z.", ref=ref)


def nothing_committed(ref: str, at: datetime) -> NotFoundError:
    """Return the error for a time before the first commit of ``ref``."""
    return NotFoundError(
        f"Nothing was committed to '{ref}' by {moment(at)}.",
        hint=f"See when its commits were made with 'lakegate log {ref}'.",
        ref=ref,
        at=at.isoformat(),
    )
