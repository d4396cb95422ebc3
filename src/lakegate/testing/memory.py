"""An in-memory catalog for tests, with Nessie's rules: a graph of commits, and conflicts per key."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from lakegate.catalogs import moved_reference, nothing_committed, require_zone
from lakegate.catalogs.rules import (
    ROOT_HASH,
    Content,
    Contents,
    Key,
    changed_contents,
    check_keys,
    differences,
    new_hash,
    written_keys,
)
from lakegate.errors import AlreadyExistsError, InputError, NotFoundError
from lakegate.model.identifiers import TableIdentifier, is_commit_hash, validate_ref_name
from lakegate.model.refs import Commit, CommitRequest, Ref, RefKind, TableDifference, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY


@dataclass(frozen=True, slots=True)
class _Node:
    commit: Commit
    contents: Mapping[Key, Content] = field(default_factory=dict)


class MemoryCatalog:
    """Implements :class:`~lakegate.ports.Catalog` in memory. Thread-safe.

    It starts with an empty branch ``main``. It holds no data: a table's pointer is whatever was committed.

    Example:
        >>> catalog = MemoryCatalog()
        >>> branch = catalog.create_branch("wap/x", catalog.get_ref("main"))
        >>> catalog.commit(CommitRequest(branch="wap/x", base=branch.hash, message="m", namespaces=(("nyc",),))).name
        'wap/x'
        >>> list(catalog.list_namespaces(catalog.get_ref("wap/x")))
        [('nyc',)]
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._nodes: dict[str, _Node] = {}
        self._refs: dict[str, Ref] = {"main": Ref(name="main", hash=ROOT_HASH)}
        self._last_time = datetime.min.replace(tzinfo=UTC)

    def copy(self) -> MemoryCatalog:
        """Return another catalog with the same branches, tags and commits, for a test that starts from them."""
        other = MemoryCatalog()
        with self._lock:
            vars(other).update(_nodes=dict(self._nodes), _refs=dict(self._refs), _last_time=self._last_time)
        return other

    def identity(self) -> str | None:
        """Return a name that no other catalog has while this one exists."""
        return f"memory:{id(self)}"

    def get_ref(self, name: str) -> Ref:
        """Return branch or tag ``name``, or the bare commit if ``name`` is a hash."""
        if is_commit_hash(name):
            self._contents(name)
            return Ref(name=name, hash=name, kind="detached")
        if name not in self._refs:
            raise NotFoundError(
                f"There is no branch or tag '{name}'.", hint="'lakegate branch list' shows what exists.", ref=name
            )
        return self._refs[name]

    def list_refs(self) -> Iterator[Ref]:
        """Yield all branches and tags, by name."""
        return iter([self._refs[name] for name in sorted(self._refs)])

    def create_branch(self, name: str, source: Ref) -> Ref:
        """Create a branch at ``source.hash``."""
        return self._create(name, source, "branch")

    def create_tag(self, name: str, source: Ref) -> Ref:
        """Create a tag at ``source.hash``."""
        return self._create(name, source, "tag")

    def assign_ref(self, ref: Ref, target: Ref) -> Ref:
        """Point ``ref`` at ``target.hash`` if it is still at ``ref.hash``."""
        with self._lock:
            current = self._expected(ref)
            self._contents(target.hash)
            self._refs[ref.name] = current.model_copy(update={"hash": target.hash})
            return self._refs[ref.name]

    def delete_ref(self, ref: Ref) -> None:
        """Delete ``ref`` if it is still at ``ref.hash``."""
        with self._lock:
            self._expected(ref)
            del self._refs[ref.name]

    def history(
        self, ref: str, *, until: str | None = None, run_id: str | None = None, operations: bool = False
    ) -> Iterator[Commit]:
        """Yield the commits of ``ref``, newest first, down to but excluding ``until``."""
        for commit in self._ancestors(self.get_ref(ref).hash):
            if commit.hash == until:
                return
            if run_id is None or commit.properties.get(RUN_ID_PROPERTY) == run_id:
                yield commit if operations else commit.model_copy(update={"tables": (), "puts": ()})

    def resolve(self, ref: str, at: str | datetime | None) -> Ref:
        """Return the commit of ``ref`` to read at; pinned (``detached``) if ``at`` is given."""
        head = self.get_ref(ref)
        if at is None:
            return head
        if isinstance(at, str):
            if not is_commit_hash(at):
                raise InputError(f"'{at}' isn't a commit hash.", ref=ref, at=at)
            self._contents(at)
            return Ref(name=ref, hash=at, kind="detached")
        require_zone(ref, at)
        for commit in self._ancestors(head.hash):
            if commit.time <= at:
                return Ref(name=ref, hash=commit.hash, kind="detached")
        raise nothing_committed(ref, at)

    def list_tables(self, ref: Ref) -> Iterator[TablePointer]:
        """Yield every table at ``ref.hash``, by name."""
        contents = self._contents(ref.hash)
        return iter([value for _, value in sorted(contents.items()) if isinstance(value, TablePointer)])

    def list_namespaces(self, ref: Ref) -> Iterator[tuple[str, ...]]:
        """Yield every namespace that exists at ``ref.hash``, by name."""
        contents = self._contents(ref.hash)
        return iter([key for key, value in sorted(contents.items()) if not isinstance(value, TablePointer)])

    def get_table(self, table: TableIdentifier, ref: Ref) -> TablePointer | None:
        """Return the state of ``table`` at ``ref.hash``; ``None`` if it doesn't exist there."""
        content = self._contents(ref.hash).get(table.parts)
        if content is None or isinstance(content, TablePointer):
            return content
        raise InputError(f"'{table}' on '{ref.name}' isn't a table but a namespace.", table=str(table), ref=ref.name)

    def get_tables(
        self, tables: Collection[TableIdentifier], ref: Ref
    ) -> Mapping[TableIdentifier, TablePointer | None]:
        """Return the state of each of ``tables`` at ``ref.hash``."""
        return {table: self.get_table(table, ref) for table in tables}

    def get_ref_with_tables(
        self, name: str, tables: Collection[TableIdentifier]
    ) -> tuple[Ref, Mapping[TableIdentifier, TablePointer | None]]:
        """Return branch or tag ``name`` and the state of each of ``tables`` at its head."""
        ref = self.get_ref(name)
        return ref, self.get_tables(tables, ref)

    def commit(self, request: CommitRequest) -> Ref:
        """Apply ``request`` in one atomic commit and return the branch at its new head."""
        with self._lock:
            branch = self.get_ref(request.branch)
            if branch.kind != "branch":
                raise NotFoundError(f"'{request.branch}' isn't a branch.", ref=request.branch)
            # Starting at the head, since most bases are near it.
            known = any(commit.hash == request.base for commit in self._ancestors(branch.hash))
            if not known and request.base != ROOT_HASH:
                raise NotFoundError(
                    f"Commit {request.base[:12]} isn't on branch '{request.branch}'.",
                    ref=request.branch,
                    hash=request.base,
                )
            check_keys(request)
            base, head = self._contents(request.base), self._contents(branch.hash)
            contents = changed_contents(request, base, head, behind=request.base != branch.hash)
            node = self._node(request, branch.hash, contents)
            self._nodes[node.commit.hash] = node
            self._refs[request.branch] = branch.model_copy(update={"hash": node.commit.hash})
            return self._refs[request.branch]

    def diff(self, left: Ref, right: Ref) -> Iterator[TableDifference]:
        """Yield the keys that differ between two commits."""
        yield from differences(self._contents(left.hash), self._contents(right.hash))

    def spark_options(self, ref: Ref | None = None) -> Mapping[str, str]:
        """Return options that identify ``ref`` in tests. Spark can't read this catalog."""
        options = {"": "memory", "ref": "main" if ref is None else ref.name}
        return options if ref is None or ref.kind != "detached" else {**options, "ref.hash": ref.hash}

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _create(self, name: str, source: Ref, kind: RefKind) -> Ref:
        with self._lock:
            if validate_ref_name(name) in self._refs:
                raise AlreadyExistsError(
                    f"Can't create {kind} '{name}': a branch or tag of this name exists.", ref=name
                )
            self._contents(source.hash)
            self._refs[name] = Ref(name=name, hash=source.hash, kind=kind)
            return self._refs[name]

    def _expected(self, ref: Ref) -> Ref:
        if ref.kind == "detached":
            raise InputError(f"'{ref.name}' at {ref.hash[:12]} is a bare commit, not a branch or tag.", ref=ref.name)
        current = self.get_ref(ref.name)
        if current.hash != ref.hash:
            raise moved_reference(ref.name, ref.hash, current.hash)
        return current

    def _contents(self, commit: str) -> Contents:
        if commit == ROOT_HASH:
            return {}
        if commit not in self._nodes:
            raise NotFoundError(f"Commit '{commit}' doesn't exist.", hash=commit)
        return self._nodes[commit].contents

    def _ancestors(self, commit: str) -> Iterator[Commit]:
        while commit in self._nodes:
            node = self._nodes[commit]
            yield node.commit
            commit = node.commit.parent or ROOT_HASH

    def _node(self, request: CommitRequest, parent: str, contents: Mapping[Key, Content]) -> _Node:
        self._last_time = max(datetime.now(UTC), self._last_time + timedelta(microseconds=1))
        commit = Commit(
            hash=new_hash(parent),
            parent=parent,
            message=request.message,
            author="lakegate",
            time=self._last_time,
            properties=request.properties,
            tables=tuple(map(".".join, written_keys(request))),
            puts=tuple(p for put in request.puts if isinstance(p := contents[put.table.parts], TablePointer)),
        )
        return _Node(commit, contents)
