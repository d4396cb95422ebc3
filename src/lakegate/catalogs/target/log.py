"""The overlay's log: commits, branches and tags, in tables of the journal's database.

A commit never changes. It has the keys that it changed, and every 64th has the state of all keys, so that a state is
read from 64 rows at most. A branch moves by compare-and-set: whoever loses checks again on its new head.
"""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from sqlalchemy import Row, delete, insert, select, update

from lakegate.catalogs import moved_reference
from lakegate.catalogs.rules import ROOT_HASH, Content, Key, new_hash
from lakegate.catalogs.target.schema import COMMITS, REFS, ensure_schema
from lakegate.errors import AlreadyExistsError, NotFoundError
from lakegate.journal.database import Database, JournalTransaction
from lakegate.journal.schema import as_text, storable
from lakegate.model.identifiers import REF_NAME
from lakegate.model.refs import Commit, Ref, RefKind, TablePointer

Changes: TypeAlias = Mapping[Key, Content | None]
"""Keys and their new contents, ``None`` for one that was removed."""

FULL_STATE_EVERY: Final = 64
_STATES_KEPT = 64
_ENTRIES_KEPT = 1000
_READ = tuple(column for column in COMMITS.c if column.name != "state")


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit of the log.

    Attributes:
        number: Its distance from the root.
        state: The contents of all keys after it, if it's one of those that have them.
    """

    hash: str
    parent: str
    number: int
    time: datetime
    message: str
    author: str
    properties: Mapping[str, str]
    changes: Changes
    state: Changes | None = None

    def commit(self, *, operations: bool = True) -> Commit:
        """Return it as the interface has it."""
        puts = (content for content in self.changes.values() if isinstance(content, TablePointer))
        return Commit(
            hash=self.hash,
            parent=self.parent,
            message=self.message,
            author=self.author,
            time=self.time,
            properties=dict(self.properties),
            tables=tuple(map(".".join, self.changes)) if operations else (),
            puts=tuple(puts) if operations else (),
        )


_ROOT = Entry(ROOT_HASH, ROOT_HASH, 0, datetime.min.replace(tzinfo=UTC), "", "", {}, {})


class Log:
    """Commits, branches and tags. Thread-safe; several processes may use one database.

    Creating it creates its tables, with an empty branch ``main``, if the database lacks them.

    Args:
        page_size: Commits of a history to read at once.

    Raises:
        ConfigurationError: If the tables have another format.
    """

    def __init__(self, database: Database, page_size: int) -> None:
        self._database = database
        self._page_size = page_size
        self.identity = ensure_schema(database)
        # Safe to cache: commits never change.
        self.entry = lru_cache(_ENTRIES_KEPT)(self._entry)
        self.state = lru_cache(_STATES_KEPT)(self._state)

    def _entry(self, commit: str) -> Entry:
        """Return a commit.

        Raises:
            NotFoundError: If there's none.
        """
        if commit == ROOT_HASH:
            return _ROOT
        with self._database.reading() as tx:
            row = tx.execute(select(*_READ).where(COMMITS.c.hash == commit)).one_or_none()
        if row is None:
            raise NotFoundError(f"Commit '{commit}' doesn't exist.", hash=commit)
        return _to_entry(row)

    def _state(self, commit: str) -> Changes:
        """Return the contents of all keys that were ever changed up to ``commit``.

        Raises:
            NotFoundError: If that was forgotten (:mod:`lakegate.catalogs.target.pruning`).
        """
        entry = self.entry(commit)
        full = entry.number - entry.number % FULL_STATE_EVERY
        chain, state = self._chain(entry, max(full, 1)), dict[Key, Content | None]()
        known = self._full_state(chain[-1].hash) if full else {}
        if known is None:
            raise NotFoundError(
                f"What the tables were at commit {commit[:12]} isn't kept any more: it's older than gc.keep.",
                hint="To keep a state for longer, tag it in time: lakegate tag create NAME",
                hash=commit,
            )
        state.update(known)
        for one in reversed(chain[:-1] if full else chain):
            state |= one.changes
        return state

    def ancestors(self, commit: str) -> Iterator[Entry]:
        """Yield a commit and those before it, newest first, page by page."""
        entry = self.entry(commit)
        while entry.number:
            page = self._chain(entry, max(entry.number - self._page_size + 1, 1))
            yield from page
            entry = self.entry(page[-1].parent)

    def has_ancestor(self, commit: str, base: str) -> bool:
        """Return whether ``base`` is ``commit``, or before it."""
        if base in (commit, ROOT_HASH):
            return True
        oldest = self.entry(base)
        entry = self.entry(commit)
        if oldest.number >= entry.number:
            return False
        return self._chain(entry, oldest.number)[-1].hash == base

    def ref(self, name: str) -> Ref:
        """Return a branch or tag.

        Raises:
            NotFoundError: If there's none.
        """
        found = None
        if REF_NAME.fullmatch(name):
            with self._database.reading() as tx:
                found = tx.execute(select(REFS).where(REFS.c.name == name)).one_or_none()
        if found is None:
            raise _no_ref(name)
        return _to_ref(found)

    def refs(self) -> Sequence[Ref]:
        """Return all branches and tags, by name."""
        with self._database.reading() as tx:
            return [_to_ref(row) for row in tx.execute(select(REFS).order_by(REFS.c.name))]

    def create_ref(self, ref: Ref) -> None:
        """Create a branch or tag.

        Raises:
            AlreadyExistsError: If there is one of this name.
            NotFoundError: If there's no such commit.
        """
        self.entry(ref.hash)
        with self._database.writing() as tx:
            tx.lock(f"overlay ref {ref.name}")
            if tx.scalar(select(REFS.c.hash).where(REFS.c.name == ref.name)) is not None:
                raise AlreadyExistsError(
                    f"Can't create {ref.kind} '{ref.name}': a branch or tag of this name exists.", ref=ref.name
                )
            tx.execute(insert(REFS).values(name=ref.name, hash=ref.hash, kind=ref.kind))

    def move_ref(self, ref: Ref, commit: str) -> None:
        """Point a branch or tag at ``commit``, if it is still at ``ref.hash``.

        Raises:
            ConflictError: If it has moved.
            NotFoundError: If either doesn't exist.
        """
        self.entry(commit)
        with self._database.writing() as tx:
            if not _compare_and_set(tx, ref.name, ref.hash, commit):
                raise _moved(tx, ref)

    def delete_ref(self, ref: Ref) -> None:
        """Delete a branch or tag, if it is still at ``ref.hash``. Raises what :meth:`move_ref` does."""
        with self._database.writing() as tx:
            done = tx.execute(delete(REFS).where(REFS.c.name == ref.name, REFS.c.hash == ref.hash))
            if not done.rowcount:
                raise _moved(tx, ref)

    def draft(
        self,
        parent: str,
        changes: Changes,
        message: str,
        properties: Mapping[str, str],
        *,
        author: str | None = None,
        commit: str | None = None,
    ) -> Entry:
        """Return a commit to :meth:`append`; ``commit`` is its hash if it has one already."""
        before = self.entry(parent)
        number = before.number + 1
        state = {**self.state(parent), **changes} if number % FULL_STATE_EVERY == 0 else None
        commit = commit or new_hash(parent)
        return Entry(commit, parent, number, before.time, message, author or _user(), properties, changes, state)

    def is_at(self, tx: JournalTransaction, branch: str, head: str) -> bool:
        """Return whether ``branch`` is at ``head``."""
        return tx.scalar(select(REFS.c.hash).where(REFS.c.name == branch)) == head

    def has(self, tx: JournalTransaction, commit: str) -> bool:
        """Return whether a commit is in the log."""
        return tx.scalar(select(COMMITS.c.hash).where(COMMITS.c.hash == commit)) is not None

    def append(self, tx: JournalTransaction, branch: str, draft: Entry) -> bool:
        """Make a draft the head of ``branch``; return whether the branch was still at the draft's parent."""
        if not _compare_and_set(tx, branch, draft.parent, draft.hash):
            return False
        # Later than its parent, whatever the clocks of the two writers say.
        time = max(tx.now(), draft.time + timedelta(microseconds=1))
        tx.execute(insert(COMMITS).values(_to_row(replace(draft, time=time))))
        return True

    def _chain(self, newest: Entry, least: int) -> Sequence[Entry]:
        """Return a commit and those before it down to number ``least``, newest first, in one query."""
        if newest.number < least:
            return []
        chain = select(*_READ).where(COMMITS.c.hash == newest.hash).cte("chain", recursive=True)
        parents = select(*_READ).join(chain, COMMITS.c.hash == chain.c.parent).where(chain.c.number > least)
        chain = chain.union_all(parents)
        with self._database.reading() as tx:
            return [_to_entry(row) for row in tx.execute(select(chain).order_by(chain.c.number.desc()))]

    def _full_state(self, commit: str) -> Changes | None:
        with self._database.reading() as tx:
            text = tx.scalar(select(COMMITS.c.state).where(COMMITS.c.hash == commit))
        return None if text is None else from_json(text)


def to_json(changes: Changes) -> str:
    """Return contents as text."""
    return json.dumps([[list(key), _encoded(content)] for key, content in changes.items()], separators=(",", ":"))


def _encoded(content: Content | None) -> object:
    if isinstance(content, TablePointer):
        return content.model_dump(mode="json")
    return None if content is None else True


def from_json(text: str) -> Changes:
    """Return what :func:`to_json` made text of."""
    return {tuple(key): _decoded(tuple(key), content) for key, content in json.loads(text)}


def _decoded(key: Key, content: Any) -> Content | None:
    if content is None:
        return None
    return key if content is True else TablePointer.model_validate(content)


def _to_row(entry: Entry) -> dict[str, object]:
    return {
        "hash": entry.hash,
        "parent": entry.parent,
        "number": entry.number,
        "time": as_text(entry.time),
        "message": storable(entry.message),
        "author": storable(entry.author),
        "properties": json.dumps(dict(entry.properties)),
        "changes": to_json(entry.changes),
        "state": None if entry.state is None else to_json(entry.state),
    }


def _to_entry(row: Row[Any]) -> Entry:
    return Entry(
        row.hash,
        row.parent,
        row.number,
        datetime.fromisoformat(row.time),
        row.message,
        row.author,
        json.loads(row.properties),
        from_json(row.changes),
    )


def _to_ref(row: Row[Any]) -> Ref:
    return Ref(name=row.name, hash=row.hash, kind=cast("RefKind", row.kind))


def _compare_and_set(tx: JournalTransaction, name: str, old: str, new: str) -> bool:
    done = tx.execute(update(REFS).where(REFS.c.name == name, REFS.c.hash == old).values(hash=new))
    return done.rowcount == 1


def _moved(tx: JournalTransaction, ref: Ref) -> Exception:
    now = tx.scalar(select(REFS.c.hash).where(REFS.c.name == ref.name))
    return _no_ref(ref.name) if now is None else moved_reference(ref.name, ref.hash, now)


def _no_ref(name: str) -> NotFoundError:
    hint = "'lakegate branch list' shows what exists."
    return NotFoundError(f"There is no branch or tag '{name}'.", hint=hint, ref=name)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "lakegate"
