"""A catalog whose branches, tags and commits are all in the journal's database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime

from lakegate.catalogs import nothing_committed, require_zone
from lakegate.catalogs.rules import ROOT_HASH, Contents, Key, changed_contents, check_keys, differences, written_keys
from lakegate.catalogs.target.log import Changes, Log
from lakegate.errors import InputError, NotFoundError
from lakegate.journal.database import Database
from lakegate.model.identifiers import TableIdentifier, is_commit_hash, validate_ref_name
from lakegate.model.refs import MAIN, Commit, CommitRequest, Ref, RefKind, TableDifference, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY


class OverlayCatalog:
    """Implements :class:`~lakegate.ports.Catalog` on a database, without any other catalog.

    Several processes may use one database. It holds no metadata files: a table's pointer is whatever was committed.

    Args:
        database: The journal's. Closing the catalog doesn't close it.
        page_size: Commits of a history to read at once.

    Raises:
        ConfigurationError: If the database has an overlay of another format.
    """

    def __init__(self, database: Database, *, page_size: int = 50) -> None:
        self._database = database
        self._log = Log(database, page_size)

    def identity(self) -> str | None:
        """Return an id that the overlay got when it was created."""
        return self._log.identity

    def get_ref(self, name: str) -> Ref:
        """Return branch or tag ``name``, or the bare commit if ``name`` is a hash."""
        if is_commit_hash(name):
            self._log.entry(name)
            return Ref.detached(name)
        return self._log.ref(name)

    def list_refs(self) -> Iterator[Ref]:
        """Yield all branches and tags, by name."""
        return iter(self._log.refs())

    def create_branch(self, name: str, source: Ref) -> Ref:
        """Create a branch at ``source.hash``; see :meth:`lakegate.ports.Catalog.create_branch`."""
        return self._create(name, source, "branch")

    def create_tag(self, name: str, source: Ref) -> Ref:
        """Create a tag at ``source.hash``. Raises what :meth:`create_branch` does."""
        return self._create(name, source, "tag")

    def assign_ref(self, ref: Ref, target: Ref) -> Ref:
        """Point ``ref`` at ``target.hash``; see :meth:`lakegate.ports.Catalog.assign_ref`."""
        self._log.move_ref(self._movable(ref), target.hash)
        return ref.model_copy(update={"hash": target.hash})

    def delete_ref(self, ref: Ref) -> None:
        """Delete ``ref`` if it is still at ``ref.hash``; see :meth:`lakegate.ports.Catalog.delete_ref`."""
        self._log.delete_ref(self._movable(ref))

    def history(
        self, ref: str, *, until: str | None = None, run_id: str | None = None, operations: bool = False
    ) -> Iterator[Commit]:
        """Yield commits, newest first; see :meth:`lakegate.ports.Catalog.history`."""
        for entry in self._log.ancestors(self.get_ref(ref).hash):
            if entry.hash == until:
                return
            if run_id is None or entry.properties.get(RUN_ID_PROPERTY) == run_id:
                yield entry.commit(operations=operations)

    def resolve(self, ref: str, at: str | datetime | None) -> Ref:
        """Return the commit of ``ref`` to read at, pinned (``detached``) if ``at`` is given.

        A hash may name any existing commit, even one that ``ref`` doesn't contain.
        """
        head = self.get_ref(ref)
        if at is None:
            return head
        if isinstance(at, str):
            if not is_commit_hash(at):
                raise InputError(
                    f"'{at}' isn't a commit hash.", hint=f"See hashes with 'lakegate log {ref}'.", ref=ref, at=at
                )
            self._log.entry(at)
            return Ref(name=ref, hash=at, kind="detached")
        require_zone(ref, at)
        found = next((entry.hash for entry in self._log.ancestors(head.hash) if entry.time <= at), None)
        if found is None:
            raise nothing_committed(ref, at)
        return Ref(name=ref, hash=found, kind="detached")

    def list_tables(self, ref: Ref) -> Iterator[TablePointer]:
        """Yield every table at ``ref.hash``, by name."""
        contents = sorted(self._contents(ref.hash).items())
        return iter([content for _, content in contents if isinstance(content, TablePointer)])

    def list_namespaces(self, ref: Ref) -> Iterator[tuple[str, ...]]:
        """Yield every namespace that exists at ``ref.hash``, by name."""
        contents = sorted(self._contents(ref.hash).items())
        return iter([key for key, content in contents if not isinstance(content, TablePointer)])

    def get_table(self, table: TableIdentifier, ref: Ref) -> TablePointer | None:
        """Return the state of ``table`` at ``ref.hash``; ``None`` if it doesn't exist there.

        Raises:
            InputError: If there is a namespace of this name.
        """
        return self.get_tables([table], ref)[table]

    def get_tables(
        self, tables: Collection[TableIdentifier], ref: Ref
    ) -> Mapping[TableIdentifier, TablePointer | None]:
        """Return the state of each of ``tables`` at ``ref.hash``. Raises what :meth:`get_table` does."""
        contents = self._contents(ref.hash, [table.parts for table in tables])
        return {table: _required_table(table, contents, ref) for table in tables}

    def get_ref_with_tables(
        self, name: str, tables: Collection[TableIdentifier]
    ) -> tuple[Ref, Mapping[TableIdentifier, TablePointer | None]]:
        """Return branch or tag ``name`` and the state of each of ``tables`` at its head."""
        ref = self.get_ref(name)
        return ref, self.get_tables(tables, ref)

    def commit(self, request: CommitRequest) -> Ref:
        """Apply ``request`` in one atomic commit; see :meth:`lakegate.ports.Catalog.commit`."""
        check_keys(request)
        while True:
            head = self._branch(request.branch).hash
            draft = self._log.draft(head, self._changes(request, head), request.message, request.properties)
            with self._database.writing() as tx:
                if self._log.append(tx, request.branch, draft):
                    return Ref(name=request.branch, hash=draft.hash)

    def diff(self, left: Ref, right: Ref) -> Iterator[TableDifference]:
        """Yield the keys that differ between two commits, by name."""
        return differences(self._contents(left.hash), self._contents(right.hash))

    def spark_options(self, ref: Ref | None = None) -> Mapping[str, str]:
        """Return the options of an Iceberg REST catalog bound to ``ref``, without the address of a server."""
        options = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            "type": "rest",
            "ref": MAIN if ref is None else ref.name,
        }
        return options if ref is None or ref.kind != "detached" else {**options, "ref.hash": ref.hash}

    def close(self) -> None:
        """Do nothing: the connections are the journal's."""

    def _create(self, name: str, source: Ref, kind: RefKind) -> Ref:
        created = Ref(name=validate_ref_name(name), hash=source.hash, kind=kind)
        self._log.create_ref(created)
        return created

    def _movable(self, ref: Ref) -> Ref:
        if ref.kind == "detached":
            raise InputError(f"'{ref.name}' at {ref.hash[:12]} is a bare commit, not a branch or tag.", ref=ref.name)
        return ref

    def _branch(self, name: str) -> Ref:
        branch = self._log.ref(name)
        if branch.kind != "branch":
            raise NotFoundError(f"'{name}' isn't a branch.", ref=name)
        return branch

    def _contents(self, commit: str, keys: Collection[Key] | None = None) -> Contents:  # noqa: ARG002 - for subclasses
        """Return what is there at a commit: at least ``keys``, by default all."""
        return {key: content for key, content in self._log.state(commit).items() if content is not None}

    def _changes(self, request: CommitRequest, head: str) -> Changes:
        """Return what ``request`` makes of each key, if it's based on the branch and nothing conflicts on ``head``."""
        if request.base != ROOT_HASH and not self._log.has_ancestor(head, request.base):
            raise NotFoundError(
                f"Commit {request.base[:12]} isn't on branch '{request.branch}'.", ref=request.branch, hash=request.base
            )
        keys = None if request.drops else _keys_of(request)
        base, now = self._contents(request.base, keys), self._contents(head, keys)
        after = changed_contents(request, base, now, behind=request.base != head)
        return {key: after.get(key) for key in written_keys(request)}


def _keys_of(request: CommitRequest) -> list[Key]:
    """Return all keys that a request is about, and the namespaces that those are in."""
    keys = [*written_keys(request), *(table.parts for table in request.unchanged)]
    return [*keys, *(key[:-1] for key in keys if len(key) > 1)]


def _required_table(table: TableIdentifier, contents: Contents, ref: Ref) -> TablePointer | None:
    content = contents.get(table.parts)
    if content is None or isinstance(content, TablePointer):
        return content
    raise InputError(
        f"'{table}' on '{ref.name}' isn't a table but a namespace.",
        hint=f"List the tables with 'lakegate table list --ref {ref.name}'.",
        table=str(table),
        ref=ref.name,
    )
