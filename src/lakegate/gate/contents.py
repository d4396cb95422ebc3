"""Which commits readers may see, and their contents: namespaces, tables, and metadata as the API returns it.

Readers may see the commits in the history of ``main``. Every request names a state by a prefix, which only
:meth:`Published.ref` resolves to a commit. A prefix can't name another branch than ``main``.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any, Final

from lakegate.errors import IdentifierError, NotFoundError
from lakegate.gate.refusals import not_published, unavailable
from lakegate.iceberg import metadata
from lakegate.iceberg.files import TableFiles, read_errors
from lakegate.iceberg.metadata import Document
from lakegate.model.identifiers import TableIdentifier, is_commit_hash, validate_ref_name
from lakegate.model.quarantine import is_quarantine
from lakegate.model.refs import MAIN, NO_SNAPSHOT, Commit, Ref, TablePointer
from lakegate.ports import Catalog

Namespace = tuple[str, ...]

_CACHED_COMMITS: Final = 8
_CACHED_TABLES: Final = 64
PINNED: Final = "pinned"
"""Warehouse name for clients that want to keep reading the commit that is newest when they connect."""

_COMMITS_PER_REQUEST = 10_000


@dataclass(frozen=True, slots=True)
class Listing:
    """The sorted names at one commit, without quarantine tables.

    Attributes:
        namespaces: All namespaces, including those that only contain others.
        tables: The table names in each namespace that has any.
    """

    namespaces: tuple[Namespace, ...]
    tables: Mapping[Namespace, tuple[str, ...]]

    def below(self, parent: Namespace) -> tuple[Namespace, ...]:
        """Return the namespaces directly in ``parent``; ``()`` is the top level."""
        level = len(parent) + 1
        return tuple(one for one in self.namespaces if len(one) == level and one[:-1] == parent)


class Contents:
    """Reads the contents of commits. Thread-safe.

    Commits and metadata files never change, so it caches them, within limits.

    Args:
        catalog: Returns the catalog at its current address.
    """

    def __init__(self, catalog: Callable[[], Catalog], files: TableFiles) -> None:
        self._catalog = catalog
        self._files = files
        self._lock = threading.Lock()
        self._listing = lru_cache(_CACHED_COMMITS)(self._list)
        self._named = lru_cache(_CACHED_COMMITS)(self._list_namespaces)
        self._table = lru_cache(_CACHED_TABLES)(self._read)

    def listing(self, ref: Ref) -> Listing:
        """Return the names at ``ref.hash``. Raises the catalog's errors."""
        with self._lock:  # many clients that connect at once share one read
            return self._listing(ref.hash)

    def has_namespace(self, ref: Ref, namespace: Namespace) -> bool:
        """Return whether a namespace exists at ``ref.hash``, mostly without a listing of all tables.

        Raises the catalog's errors.
        """
        with self._lock:
            return namespace in self._named(ref.hash) or namespace in self._listing(ref.hash).namespaces

    def etag(self, pointer: TablePointer) -> str:
        """Return the entity tag of the result of :meth:`table`."""
        identity = pointer.model_dump_json(exclude={"table", "content_id"})
        return f'"{hashlib.sha256(identity.encode()).hexdigest()[:32]}"'

    def table(self, pointer: TablePointer) -> bytes:
        """Return the ``LoadTableResult`` of a table as JSON: the location and contents of its metadata file.

        Returns:
            The file's own JSON, including members that this version doesn't know. It differs only where the catalog
            names another snapshot, schema, partition spec or sort order.
        """
        return self._table(pointer)

    def _list(self, commit: str) -> Listing:
        ref = Ref(name=commit, hash=commit, kind="detached")
        tables: dict[Namespace, list[str]] = defaultdict(list)
        for pointer in self._catalog().list_tables(ref):
            if not is_quarantine(pointer.table):
                tables[pointer.table.namespace].append(pointer.table.name)
        named = {*self._named(commit), *tables}
        namespaces = {tuple(levels) for one in named for levels in accumulate([level] for level in one)}
        return Listing(tuple(sorted(namespaces)), {one: tuple(sorted(names)) for one, names in tables.items()})

    def _list_namespaces(self, commit: str) -> frozenset[Namespace]:
        return frozenset(self._catalog().list_namespaces(Ref(name=commit, hash=commit, kind="detached")))

    def _read(self, pointer: TablePointer) -> bytes:
        location = pointer.metadata_location
        with read_errors(f"Metadata file {location} of table {pointer.table}", pointer):
            content = metadata.decompressed(self._files.content(location))
            document = metadata.parse(content)
            changes = catalog_overrides(document, pointer)
        if changes:
            content = json.dumps({**document, **changes}, separators=(",", ":"), ensure_ascii=False).encode()
        # The config has no credentials, and nothing that would let a client write.
        return b'{"metadata-location":%b,"metadata":%b,"config":{}}' % (json.dumps(location).encode(), content.strip())


def catalog_overrides(document: Document, pointer: TablePointer) -> dict[str, Any]:
    """Return the members of a metadata file that the catalog overrides.

    The catalog takes precedence, as for every reader that uses Nessie itself. lakegate publishes only files that agree
    with the catalog, but other writers may not.
    """
    orders = {order.get("order-id") for order in document.get("sort-orders") or ()}
    named = {
        "current-schema-id": metadata.schema_id(document, pointer),
        "default-spec-id": pointer.spec_id if pointer.spec_id in metadata.specs(document) else None,
        "default-sort-order-id": pointer.sort_order_id if pointer.sort_order_id in orders else None,
    }
    changes: dict[str, Any] = {
        key: value for key, value in named.items() if value is not None and document.get(key) not in (value, None)
    }
    metadata.snapshot_of(document, pointer)  # raises if the file lacks the snapshot
    current = document.get("current-snapshot-id")
    refs: Mapping[str, Any] = document.get("refs") or {}
    if (NO_SNAPSHOT if current is None else current) != pointer.snapshot_id or (
        MAIN in refs and refs[MAIN]["snapshot-id"] != pointer.snapshot_id
    ):
        changes["current-snapshot-id"] = pointer.snapshot_id
        others = {name: ref for name, ref in refs.items() if name != MAIN}
        main = {MAIN: {**refs.get(MAIN, {}), "snapshot-id": pointer.snapshot_id, "type": "branch"}}
        changes["refs"] = others if pointer.snapshot_id == NO_SNAPSHOT else {**others, **main}
    return changes


class Published:
    """Resolves prefixes to published commits. Thread-safe.

    Args:
        catalog: Returns the catalog with all branches, at its current address.
        commits_per_request: Most commits of the history that one request reads.
    """

    def __init__(self, catalog: Callable[[], Catalog], commits_per_request: int = _COMMITS_PER_REQUEST) -> None:
        self._catalog = catalog
        self._history = _History(catalog, commits_per_request)

    def ref(self, prefix: str) -> Ref:
        """Return the commit that ``prefix`` names.

        Args:
            prefix: ``main``, ``tag:NAME`` or ``commit:HASH``.

        Returns:
            The commit, named ``main`` for that prefix and by its hash for others.

        Raises:
            RefusedError: It names nothing, or a state outside the history of ``main``.
            LakegateError: The catalog can't be reached.
        """
        if prefix == MAIN:
            return self._catalog().get_ref(MAIN)
        kind, _, name = prefix.partition(":")
        commit = self._tagged(name) if kind == "tag" else name if kind == "commit" else None
        if commit is None or not self.has(commit):
            raise not_published(prefix)
        return Ref(name=commit, hash=commit, kind="detached")

    def branch(self, name: str) -> Ref:
        """Return the head of a branch that its writer may read. Raises the catalog's errors."""
        return self._catalog().get_ref(name)

    def table(self, prefix: str, table: TableIdentifier, *, is_open: bool = False) -> tuple[Ref, TablePointer | None]:
        """Return the commit that ``prefix`` names, and the table there; ``None`` if the table doesn't exist.

        For a branch, this takes one request to the catalog. Quarantine tables are hidden, because their rows failed a
        check. Raises the same errors as :meth:`ref`.

        Args:
            is_open: Whether the prefix is a branch that its writer may read.
        """
        if is_quarantine(table):
            return self.branch(prefix) if is_open else self.ref(prefix), None
        if prefix == MAIN or is_open:
            ref, found = self._catalog().get_ref_with_tables(prefix, [table])
            return ref, found[table]
        ref = self.ref(prefix)
        return ref, self._catalog().get_table(table, ref)

    def has(self, commit: str) -> bool:
        """Return whether a commit is in the history of ``main``. Raises the same errors as :meth:`ref`."""
        return is_commit_hash(commit) and self._history.has(commit)

    def prefix(self, warehouse: str) -> str:
        """Return the prefix for the ``warehouse`` that a client names. Raises the same errors as :meth:`ref`."""
        if warehouse in ("", MAIN):
            return MAIN
        if warehouse == PINNED:
            return f"commit:{self._catalog().get_ref(MAIN).hash}"
        self.ref(warehouse)
        return warehouse

    def _tagged(self, name: str) -> str | None:
        try:
            ref = self._catalog().get_ref(validate_ref_name(name))
        except (IdentifierError, NotFoundError):
            return None
        return ref.hash if ref.kind == "tag" else None


class _History:
    """The commits of ``main``, read from the newest back, once, as far as requests need.

    Each lookup reads the head again: if ``main`` was moved back, the commits it left must no longer be served.
    """

    def __init__(self, catalog: Callable[[], Catalog], commits_per_request: int) -> None:
        self._catalog = catalog
        self._commits_per_request = commits_per_request
        self._lock = threading.Lock()
        self._head: str | None = None
        self._known: set[str] = set()
        self._unread: str | None = None
        """The newest commit whose ancestors haven't been read."""

    def has(self, commit: str) -> bool:
        with self._lock:
            self._advance_to(self._catalog().get_ref(MAIN).hash)
            if commit not in self._known and self._unread is not None:
                self._add(list(islice(self._catalog().history(self._unread), self._commits_per_request)))
            if commit in self._known:
                return True
            if self._unread is not None:
                raise unavailable("The history of main is long and still being read. Try again.", retry_after_s=1)
            return False

    def _advance_to(self, head: str) -> None:
        """Add new commits. Start over if ``main`` was moved elsewhere, or is far ahead."""
        if head == self._head:
            return
        added = list(islice(self._catalog().history(head, until=self._head), self._commits_per_request))
        if self._head is not None and added and added[-1].parent == self._head:
            self._known.update(commit.hash for commit in added)
        else:
            self._known = {head}
            self._add(added)
        self._head = head

    def _add(self, commits: Sequence[Commit]) -> None:
        self._known.update(commit.hash for commit in commits)
        oldest = commits[-1].parent if commits else None
        if oldest is not None:
            self._known.add(oldest)
        self._unread = oldest if len(commits) == self._commits_per_request else None
