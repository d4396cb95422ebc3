"""The catalog: references, commits, and table states in them."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, Self

from pydantic import Field

from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import ColumnChange

RefKind = Literal["branch", "tag", "detached"]
MAIN: Final = "main"
"""The branch that everyone reads, and that runs publish to by default."""
TORN_PROPERTY: Final = "lakegate.torn-run"
"""Names the run of which a commit has a part that couldn't be put back."""
NO_SNAPSHOT: Final = -1
"""The ``snapshot_id`` of a table without a snapshot."""


class Ref(Value):
    """A reference and the commit it points at.

    ``kind="detached"`` is a bare commit: its ``name`` is the hash.
    """

    name: str
    hash: str
    kind: RefKind = "branch"

    @classmethod
    def detached(cls, commit: str) -> Self:
        """Return a bare commit as a reference."""
        return cls(name=commit, hash=commit, kind="detached")


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
    """The rows of a table at one commit.

    Attributes:
        ref: A branch or tag whose history contains the commit.
        hash: The commit.
        without: Paths of data files whose rows don't count because the run is about to remove them.
        where: A validated predicate that the rows meet.
        lacks: Columns of the audited rows that the table doesn't have yet, or lacks fields of. What's missing is NULL.
        opaque: Columns on which a filter mustn't skip files by their bounds.
    """

    table: TableIdentifier
    ref: str
    hash: str
    without: tuple[str, ...] = ()
    where: str | None = None
    lacks: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()


class Commit(Value):
    """One entry of a reference's history."""

    hash: str
    parent: str | None
    message: str
    author: str
    time: datetime
    properties: dict[str, str] = Field(default_factory=dict)
    tables: tuple[str, ...] = ()
    """Keys that the commit changed (tables and namespaces); empty if operations weren't fetched."""
    puts: tuple[TablePointer, ...] = ()
    """Tables as the commit left them; empty if operations weren't fetched."""
    foreign: tuple[str, ...] = ()
    """Metadata files of anything else in the commit: views, and tables whose names lakegate doesn't allow."""


class CommitRequest(Value):
    """One atomic change of a branch.

    Attributes:
        base: Hash of the commit that the change is based on. If a key in ``puts``, ``deletes`` or ``unchanged`` has
            changed on the branch since then, the commit fails with a conflict.
        puts: Tables to create (``content_id=None``) or to move to new metadata. A new name with the content id of a
            table in ``deletes`` renames that.
        deletes: Tables to drop.
        unchanged: Tables that must be the same at the head as at ``base``. With one that doesn't exist at ``base``, any
            later commit is a conflict.
        at_head: Whether ``base`` must be the head, so that any later commit is a conflict. Such a commit may hold
            properties only.
        namespaces: Namespaces to create, without ones that exist at ``base``.
        drops: Namespaces to drop. They must be empty.
        properties: Commit properties (text to text), such as ``lakegate.run-id``.
    """

    branch: str
    base: str
    message: str
    puts: tuple[TablePointer, ...] = ()
    deletes: tuple[TableIdentifier, ...] = ()
    unchanged: tuple[TableIdentifier, ...] = ()
    namespaces: tuple[tuple[str, ...], ...] = ()
    drops: tuple[tuple[str, ...], ...] = ()
    at_head: bool = False
    properties: dict[str, str] = Field(default_factory=dict)


class TableDifference(Value):
    """One key that differs between two references; ``None`` where it doesn't exist.

    Attributes:
        kind: What the key is.
        left: The table's state on the left.
        right: The table's state on the right.
        schema_changes: Changes to the table's columns from left to right. Only :meth:`lakegate.Lake.diff` sets it.
        base: The commit of ``left``. Only :meth:`lakegate.Lake.diff` sets it.
    """

    table: str
    kind: Literal["table", "namespace", "other"]
    left: TablePointer | None
    right: TablePointer | None
    schema_changes: tuple[ColumnChange, ...] = ()
    base: str = ""

    @property
    def change(self) -> Literal["added", "removed", "changed"]:
        """How the table differs on the right from the left."""
        if self.kind == "table":
            if self.left is None:
                return "added"
            if self.right is None:
                return "removed"
        return "changed"
