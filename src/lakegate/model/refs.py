"""The catalog's side: references, commits and what they hold."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from pydantic import Field

from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import ColumnChange

RefKind = Literal["branch", "tag", "detached"]
NO_SNAPSHOT: Final = -1
"""The ``snapshot_id`` of a table without a snapshot."""


class Ref(Value):
    """A reference and the commit it points at.

    ``kind="detached"`` is a bare commit: its ``name`` is the hash.
    """

    name: str
    hash: str
    kind: RefKind = "branch"


class TablePointer(Value):
    """The state of one table at one commit: what the catalog stores for it.

    ``content_id`` identifies the table over its whole life; ``None`` asks the catalog for a new one.
    The other fields are those of Nessie's ``IcebergTable`` content.
    """

    table: TableIdentifier
    content_id: str | None
    metadata_location: str
    snapshot_id: int
    schema_id: int
    spec_id: int
    sort_order_id: int


class TableAt(Value):
    """A table at one commit, by hash; ``ref`` is a branch or tag whose history holds that commit.

    ``without`` are paths of data files whose rows don't count, because they are about to go. With ``where``, a
    validated predicate, only rows for which it is true count. ``lacks`` are columns that audited rows of the same table
    have, and that it lacks: they are NULL.
    """

    table: TableIdentifier
    ref: str
    hash: str
    without: tuple[str, ...] = ()
    where: str | None = None
    lacks: tuple[str, ...] = ()


class Commit(Value):
    """One entry of a reference's history."""

    hash: str
    parent: str | None
    message: str
    author: str
    time: datetime
    properties: dict[str, str] = Field(default_factory=dict)
    tables: tuple[str, ...] = ()
    """Keys the commit changed, as text (tables and namespaces); empty when operations weren't fetched."""
    puts: tuple[TablePointer, ...] = ()
    """Tables as the commit left them; empty when operations weren't fetched."""
    foreign: tuple[str, ...] = ()
    """Metadata files of whatever else it put: views, tables whose names lakegate doesn't allow."""


class CommitRequest(Value):
    """One atomic change of a branch: all of it or nothing.

    Attributes:
        base: Hash the change was computed from. A key in ``puts``, ``deletes`` or ``unchanged`` that was changed on
            the branch after ``base`` makes the commit fail with a conflict.
        puts: Tables to create (``content_id=None``) or to move to new metadata.
        deletes: Tables to drop.
        unchanged: Tables that must be the same at the head as at ``base``.
        at_head: Whether ``base`` must be the head itself: any commit made to the branch after it is a conflict.
            Such a request needs no change: the commit then holds its properties only.
        namespaces: Namespaces to create. Ones that exist at ``base`` must not be listed.
        properties: Commit properties (text to text), such as ``lakegate.run-id``.
    """

    branch: str
    base: str
    message: str
    puts: tuple[TablePointer, ...] = ()
    deletes: tuple[TableIdentifier, ...] = ()
    unchanged: tuple[TableIdentifier, ...] = ()
    namespaces: tuple[tuple[str, ...], ...] = ()
    at_head: bool = False
    properties: dict[str, str] = Field(default_factory=dict)


class TableDifference(Value):
    """One key that differs between two references; ``None`` where it doesn't exist.

    Attributes:
        kind: What it is.
        left: The table's state on the left.
        right: The table's state on the right.
        schema_changes: What differs between the table's columns on the way from left to right. Only
            :meth:`lakegate.Lake.diff` fills it in.
    """

    table: str
    kind: Literal["table", "namespace", "other"]
    left: TablePointer | None
    right: TablePointer | None
    schema_changes: tuple[ColumnChange, ...] = ()

    @property
    def change(self) -> Literal["added", "removed", "changed"]:
        """What happened to the table on the way from left to right."""
        if self.kind == "table":
            if self.left is None:
                return "added"
            if self.right is None:
                return "removed"
        return "changed"
