"""What lakegate needs of a target: users' own Iceberg catalog, which knows one state of each table."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from lakegate.catalogs.rules import Key
from lakegate.iceberg.metadata import Document
from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer

if TYPE_CHECKING:
    from lakegate.catalogs.target.capabilities import Capabilities


class Step(Value):
    """The change of one table.

    Attributes:
        table: Its name afterwards.
        base: The table as it must be in the target, with another name if it's renamed; ``None`` for a new one.
        staged: The table as it is to be; ``None`` to drop it.
    """

    table: TableIdentifier
    base: TablePointer | None
    staged: TablePointer | None

    @property
    def old_name(self) -> TableIdentifier | None:
        """The name that the table has before it's renamed; ``None`` if it isn't renamed."""
        return None if self.base is None or self.base.table == self.table else self.base.table

    def onto(self, now: TablePointer | None) -> Step:
        """Return the step from where the table is ``now``, which may have its new name already."""
        return self.model_copy(update={"base": now})

    def back(self, published: TablePointer | None) -> Step:
        """Return the step that undoes this one.

        Args:
            published: The table as this step left it.
        """
        return Step(table=self.table if self.base is None else self.base.table, base=published, staged=self.base)


class StaleError(Exception):
    """A table isn't as a step's ``base`` says. Nothing was changed."""

    def __init__(self, table: TableIdentifier, reason: str = "") -> None:
        super().__init__(f"{table}: {reason}")
        self.table = table


class Target(Protocol):
    """An Iceberg catalog that lakegate publishes to.

    All methods raise :class:`~lakegate.errors.CatalogUnavailableError` when the catalog doesn't respond.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    def check(self, steps: Sequence[Step]) -> None:
        """Raise :class:`~lakegate.errors.InputError` if the catalog can't make what somebody asked for."""

    def identity(self) -> str:
        """Return what distinguishes this catalog from others."""

    def tables(self, names: Collection[TableIdentifier]) -> Mapping[TableIdentifier, TablePointer | None]:
        """Return the state of each table now; ``None`` where there's none. A table's content id is its UUID."""

    def list_tables(self) -> Iterator[TableIdentifier]:
        """Yield all tables whose names lakegate allows."""

    def list_namespaces(self) -> Iterator[Key]:
        """Yield all namespaces whose names lakegate allows."""

    def folder(self, namespace: Key) -> str | None:
        """Return the folder that the catalog has for a namespace's tables; ``None`` if it doesn't say."""

    def has_namespace(self, name: Key) -> bool:
        """Return whether a namespace exists."""

    def create_namespace(self, name: Key) -> None:
        """Create a namespace if it doesn't exist."""

    def document(self, pointer: TablePointer) -> Document:
        """Return the metadata file at ``pointer``; raises as :meth:`lakegate.iceberg.files.TableFiles.metadata`."""

    def writers(self, pointer: TablePointer) -> frozenset[int]:
        """Return the ids of the snapshots that wrote the manifests of a table, even if they have expired since."""

    def access(self, pointer: TablePointer) -> Document:
        """Return what the catalog gives readers of a table's files now: ``config`` and ``storage-credentials``.

        Args:
            pointer: The table, also as it's staged; nothing is given if the catalog has another one of that name.
        """

    def apply(self, steps: Sequence[Step]) -> Sequence[TablePointer | None]:
        """Make steps, just one unless it can make them together, and return each table afterwards.

        Raises:
            StaleError: If a table isn't at its base. Nothing was changed.
            InputError: If the catalog can't make or refuses this change. Nothing was changed.
            OutcomeUnknownError: If there was no answer.
        """

    def close(self) -> None:
        """Release connections. Idempotent."""
