"""Which commits readers may see: those in the history of ``main``, and no others.

Every request names a state by a prefix, and :meth:`Published.ref` is the only way from there to a commit. No branch but
``main`` can be named by it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from lakegate.errors import IdentifierError, NotFoundError
from lakegate.model.identifiers import TableIdentifier, is_commit_hash, validate_ref_name
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.ports import Catalog
from lakegate.rest_catalog.answers import not_published, unavailable

MAIN: Final = "main"
PINNED: Final = "pinned"
"""The warehouse of clients that want to read everything from the commit that is the newest when they connect."""

_COMMITS_AT_ONCE = 10_000


class Published:
    """Finds the commits that prefixes name. Thread-safe.

    Args:
        catalog: Returns the catalog with all branches, as it can be reached now.
        commits_at_once: How many commits of the history one request reads at most.
    """

    def __init__(self, catalog: Callable[[], Catalog], commits_at_once: int = _COMMITS_AT_ONCE) -> None:
        self._catalog = catalog
        self._history = _History(catalog, commits_at_once)

    def ref(self, prefix: str) -> Ref:
        """Return the commit that ``prefix`` names.

        Args:
            prefix: ``main``, ``tag:NAME`` or ``commit:HASH``.

        Returns:
            The commit. Its name is ``main`` for that, and the hash for the others.

        Raises:
            RefusedError: When it names nothing, or a state that isn't in the history of ``main``.
            LakegateError: When the catalog can't be asked.
        """
        if prefix == MAIN:
            return self._catalog().get_ref(MAIN)
        kind, _, name = prefix.partition(":")
        commit = self._tagged(name) if kind == "tag" else name if kind == "commit" else None
        if commit is None or not self.has(commit):
            raise not_published(prefix)
        return Ref(name=commit, hash=commit, kind="detached")

    def table(self, prefix: str, table: TableIdentifier) -> tuple[Ref, TablePointer | None]:
        """Return the commit that ``prefix`` names, and the state of ``table`` there; ``None`` when it isn't there.

        For ``main``, that's one request to the catalog. Raises as :meth:`ref`.
        """
        if prefix == MAIN:
            ref, found = self._catalog().get_ref_with_tables(MAIN, [table])
            return ref, found[table]
        ref = self.ref(prefix)
        return ref, self._catalog().get_table(table, ref)

    def has(self, commit: str) -> bool:
        """Return whether a commit is in the history of ``main``; raises as :meth:`ref`."""
        return is_commit_hash(commit) and self._history.has(commit)

    def prefix(self, warehouse: str) -> str:
        """Return the prefix for the ``warehouse`` that a client asks for; raises as :meth:`ref`."""
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
    """The commits of ``main``, read from the newest back as far as anybody asked, and once.

    The head is asked for each time: when ``main`` was moved back, what it left behind must not be served any longer.
    """

    def __init__(self, catalog: Callable[[], Catalog], at_once: int) -> None:
        self._catalog = catalog
        self._at_once = at_once
        self._lock = threading.Lock()
        self._head: str | None = None
        self._known: set[str] = set()
        self._unread: str | None = None
        """The newest commit whose ancestors aren't known yet."""

    def has(self, commit: str) -> bool:
        with self._lock:
            self._follow(self._catalog().get_ref(MAIN).hash)
            if commit not in self._known and self._unread is not None:
                self._read_on()
            if commit in self._known:
                return True
            if self._unread is not None:
                raise unavailable("The history of main is long and still being read. Try again.", retry_after_s=1)
            return False

    def _follow(self, head: str) -> None:
        """Add what came on top; begin anew when ``main`` went elsewhere, or far ahead."""
        if head == self._head:
            return
        added = list(islice(self._catalog().history(head, until=self._head), self._at_once))
        if self._head is not None and added and added[-1].parent == self._head:
            self._known.update(commit.hash for commit in added)
        else:
            self._known = {head}
            self._note(added)
        self._head = head

    def _read_on(self) -> None:
        assert self._unread is not None  # noqa: S101 - for the type checker
        self._note(list(islice(self._catalog().history(self._unread), self._at_once)))

    def _note(self, commits: Sequence[Commit]) -> None:
        self._known.update(commit.hash for commit in commits)
        oldest = commits[-1].parent if commits else None
        if oldest is not None:
            self._known.add(oldest)
        self._unread = oldest if len(commits) == self._at_once else None
