"""References, commits, and the tables they point at."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from lakegate.model.files import AddedFiles, DataFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, CommitRequest, Ref, TableDifference, TablePointer
from lakegate.model.tables import (
    Snapshot,
    StoredFile,
    TableMetadata,
)


class Catalog(Protocol):
    """References, commits and table pointers (``lakegate.catalogs``).

    All methods raise :class:`~lakegate.errors.CatalogUnavailableError` when the catalog does not answer in time.
    """

    def get_ref(self, name: str) -> Ref:
        """Return branch or tag ``name``, or the bare commit when ``name`` is a hash.

        Raises:
            NotFoundError: When there is none.
        """
        ...

    def list_refs(self) -> Iterator[Ref]:
        """Yield all branches and tags, fetching page by page."""
        ...

    def create_branch(self, name: str, source: Ref) -> Ref:
        """Create a branch at ``source``'s hash.

        Raises:
            AlreadyExistsError: When a reference of this name exists.
            NotFoundError: When ``source`` does not exist.
        """
        ...

    def create_tag(self, name: str, source: Ref) -> Ref:
        """Create a tag at ``source``'s hash; raises as :meth:`create_branch`."""
        ...

    def assign_ref(self, ref: Ref, target: Ref) -> Ref:
        """Point ``ref`` at ``target``'s hash, if it still stands at ``ref.hash``.

        Raises:
            ConflictError: When it moved meanwhile.
            NotFoundError: When either does not exist.
        """
        ...

    def delete_ref(self, ref: Ref) -> None:
        """Delete ``ref`` if it still stands at ``ref.hash``.

        Raises:
            ConflictError: When it moved meanwhile.
            NotFoundError: When it does not exist.
        """
        ...

    def history(
        self, ref: str, *, until: str | None = None, run_id: str | None = None, operations: bool = False
    ) -> Iterator[Commit]:
        """Yield the commits of ``ref``, newest first, fetching page by page.

        Args:
            ref: Branch, tag or hash.
            until: Hash at which to stop; that commit itself is not yielded.
            run_id: Yield only commits whose ``lakegate.run-id`` property is this.
            operations: Fill :attr:`~lakegate.model.refs.Commit.tables` and :attr:`~lakegate.model.refs.Commit.puts`.
        """
        ...

    def resolve(self, ref: str, at: str | datetime | None) -> Ref:
        """Return the commit of ``ref`` to read at: its head, a given commit hash, or the last one at a time.

        Args:
            ref: Branch, tag or hash.
            at: ``None`` for the head, a commit hash, or an aware datetime.

        Returns:
            A ref whose ``name`` is ``ref`` and whose ``hash`` is the commit found.

        Raises:
            NotFoundError: When ``ref`` or the commit does not exist, or nothing was committed by then.
        """
        ...

    def list_tables(self, ref: Ref) -> Iterator[TablePointer]:
        """Yield every table as it stands at ``ref.hash``."""
        ...

    def list_namespaces(self, ref: Ref) -> Iterator[tuple[str, ...]]:
        """Yield every namespace that exists at ``ref.hash``."""
        ...

    def get_table(self, table: TableIdentifier, ref: Ref) -> TablePointer | None:
        """Return where ``table`` stands at ``ref.hash``; ``None`` when it does not exist there."""
        ...

    def get_tables(
        self, tables: Collection[TableIdentifier], ref: Ref
    ) -> Mapping[TableIdentifier, TablePointer | None]:
        """Return where each of ``tables`` stands at ``ref.hash``, as :meth:`get_table` does, all in one request."""
        ...

    def get_ref_with_tables(
        self, name: str, tables: Collection[TableIdentifier]
    ) -> tuple[Ref, Mapping[TableIdentifier, TablePointer | None]]:
        """Return branch or tag ``name`` and where each of ``tables`` stands at its head, all in one request.

        Raises:
            NotFoundError: When there is no such reference.
        """
        ...

    def commit(self, request: CommitRequest) -> Ref:
        """Apply ``request`` in one atomic commit and return the branch at its new head.

        Raises:
            ConflictError: When a key that the request touches or relies on changed after ``request.base``.
            NotFoundError: When the branch does not exist.
            OutcomeUnknownError: When the request was sent and no answer came.
        """
        ...

    def diff(self, left: Ref, right: Ref) -> Iterator[TableDifference]:
        """Yield the keys that stand differently at two commits."""
        ...

    def spark_options(self, ref: Ref | None = None) -> Mapping[str, str]:
        """Return the options of a Spark catalog bound to ``ref`` (``main`` when ``None``), without the prefix."""
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...


class TableReader(Protocol):
    """Table metadata without an engine (``lakegate.catalogs.metadata``)."""

    def metadata(self, pointer: TablePointer) -> TableMetadata:
        """Return schema, partitioning and snapshots of the table at ``pointer``."""
        ...

    def snapshots(self, pointer: TablePointer) -> Sequence[Snapshot]:
        """Return the table's snapshots, oldest first."""
        ...

    def files(self, pointer: TablePointer) -> Iterator[DataFile]:
        """Yield the live data files of the snapshot at ``pointer``."""
        ...

    def added_files(self, pointer: TablePointer, snapshot_ids: Sequence[int]) -> AddedFiles:
        """Return the data files that the given snapshots added."""
        ...

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        """Yield the location of every file that the metadata at ``pointer`` needs, all its snapshots' and itself.

        Args:
            pointer: The table's state.
            walked: Metadata files, manifest lists and manifests whose files were yielded before; they are left out,
                and the ones that were walked to their end now are added. ``None`` leaves nothing out.

        Raises:
            LakegateError: When one of the files cannot be read; what was yielded until then is not all there is.
        """
        ...


class TableEditor(Protocol):
    """Changes of tables that touch metadata only; no data file is read or written (``lakegate.catalogs.editor``).

    Each method writes new metadata beside the old and returns where it is; nothing is visible before it is committed.
    """

    def replay(self, source: TablePointer, snapshot_ids: Sequence[int], onto: TablePointer) -> TablePointer:
        """Append to ``onto`` the data files that ``snapshot_ids`` (oldest first) appended to ``source``.

        The snapshots keep their ids, so that what is published is what was audited; the result carries
        ``onto.content_id`` and has the schema, the partition specs and the sort orders of ``onto``.

        Raises:
            NotReplayableError: When a snapshot did more than append, or the files do not fit the table any more: a
                column they hold was dropped or changed its type, one they lack is required, or their partition spec
                means something else there.
        """
        ...

    def trimmed(self, pointer: TablePointer, *, at_least: int = 1) -> TablePointer:
        """Return the same state with metadata that lists no more snapshots than it is to keep, ``pointer`` if it does.

        Args:
            pointer: The table's state.
            at_least: Number of the newest snapshots to keep in any case.
        """
        ...

    def drop_files(self, pointer: TablePointer, paths: Collection[str], summary: Mapping[str, str]) -> TablePointer:
        """Remove exactly the data files at ``paths`` in one new snapshot (operation ``delete``).

        Args:
            pointer: The table's state.
            paths: Data files, as their manifest entries spell them.
            summary: Extra entries of the snapshot's summary.

        Raises:
            NotReplayableError: When one of them is not a live data file of this state, or delete files apply to one.
        """
        ...


class FileStore(Protocol):
    """The warehouse's files, for what collects the ones that nothing needs (``lakegate.catalogs.filestore``)."""

    def list(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all files below ``prefix``, a folder as URI, in no particular order, without holding them all."""
        ...

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; ones that are gone already are no error."""
        ...
