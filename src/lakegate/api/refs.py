"""Find the refs, commits and tables that callers name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime

from lakegate.components import Components
from lakegate.errors import LakegateError
from lakegate.ledger.sync import sync
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Ref
from lakegate.points import find, is_hash_prefix, resolve, unknown_table
from lakegate.ports import CommitIndex
from lakegate.table import Table


def find_ref(components: Components, name: str) -> Ref:
    """Return the branch, tag or commit of this name."""
    return find(components.catalog, name, index=_commit_index(components) if is_hash_prefix(name) else None)


def resolve_ref(
    components: Components,
    name: str,
    at: str | datetime | None = None,
    *,
    reads: Callable[[], Collection[TableIdentifier]] = tuple,
) -> Ref:
    """Return a ref at the commit that it had at a time, tag or commit. Default: now.

    Args:
        reads: Returns the tables that will be read there. On a catalog that others write to without lakegate's log,
            ``main`` is as they left these tables.
    """
    if components.settings.catalog.is_target and name == MAIN and at is None:
        return components.catalog.get_ref_with_tables(MAIN, reads())[0]
    index = None if at is None and not is_hash_prefix(name) else _commit_index(components)
    return resolve(components.catalog, name, at, index=index)


def get_table(components: Components, name: str, ref: str = MAIN, at: str | datetime | None = None) -> Table:
    """Return a table as a ref has it, or had it at a time, tag or commit."""
    identifier = TableIdentifier.parse(name)
    resolved = resolve_ref(components, ref, at, reads=lambda: [identifier])
    pointer = components.catalog.get_table(identifier, resolved)
    if pointer is None:
        raise unknown_table(components.catalog, name, resolved)
    return Table(pointer, components.reader, commit=resolved.hash if ref == MAIN and at is None else "")


def _commit_index(components: Components) -> CommitIndex | None:
    """Return the journal's index of ``main``'s commits, if it knows all of them."""
    commits = components.journal.commits
    with suppress(LakegateError):  # without the index, the history is read
        if commits.head(MAIN) is not None:
            head = sync(components.context, MAIN)
            return commits if commits.head(MAIN) == head.hash else None
    return None
