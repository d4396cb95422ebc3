"""The commits of a branch whose whole history the journal has read, by their digits and by their time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, func, select, update

from lakegate.journal.database import Database, Transaction
from lakegate.journal.schema import EVENTS, HISTORY, as_text
from lakegate.model.journal import PastCommit

_LAST = "g"
"""Greater than all digits of hashes."""


class CommitIndex:
    """Finds commits that the journal has read, without reading the history; see :class:`lakegate.ports.CommitIndex`.

    Raises:
        RetryableError: From every method, if the database is locked for too long or unreachable.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def head(self, target: str) -> str | None:
        """Return the newest commit of ``target`` that is known; ``None`` unless all before it are."""
        with self._database.reading() as tx:
            query = select(HISTORY.c.head).where(HISTORY.c.target == target, HISTORY.c.has_all_commits == 1)
            head: str | None = tx.scalar(query)
            return head

    def beginning(self, target: str, digits: str, *, limit: int) -> Sequence[str]:
        """Return commits whose hashes begin with ``digits``."""
        hashes = EVENTS.c.commit_hash
        query = select(hashes).where(EVENTS.c.target == target, hashes >= digits, hashes < digits + _LAST)
        with self._database.reading() as tx:
            return list(tx.scalars(query.order_by(hashes).limit(limit)))

    def at(self, target: str, time: datetime) -> str | None:
        """Return the newest commit that was made by ``time``, or ``None``."""
        made = EVENTS.c.committed_at
        query = select(EVENTS.c.commit_hash).where(EVENTS.c.target == target, made <= as_text(time))
        with self._database.reading() as tx:
            found: str | None = tx.scalar(query.order_by(made.desc()).limit(1))
            return found

    def has(self, target: str, commit: str) -> bool:
        """Return whether ``commit`` is one of them."""
        with self._database.reading() as tx:
            query = select(func.count()).select_from(EVENTS).where(*_is(target, commit))
            return tx.execute(query).scalar_one() > 0

    def complete(self, target: str, commits: Sequence[PastCommit], head: str) -> None:
        """Add all commits up to ``head``, for a journal of an earlier release, unless it has read others since."""
        with self._database.writing() as tx:
            tx.lock(f"history {target}")
            if tx.scalar(select(HISTORY.c.head).where(HISTORY.c.target == target)) == head:
                add(tx, target, commits)
                tx.execute(update(HISTORY).where(HISTORY.c.target == target).values(has_all_commits=1))


def add(tx: Transaction, target: str, commits: Sequence[PastCommit]) -> None:
    """Add commits; those that are there get their time."""
    # Of runs that share a commit, and its tables, one will do.
    rows = [(target, one.hash, one.events[-1].run_id if one.events else "", as_text(one.time)) for one in commits]
    tx.insert(EVENTS, rows, key="target, commit_hash", replace=("committed_at",))


def _is(target: str, commit: str) -> tuple[ColumnElement[bool], ...]:
    return EVENTS.c.target == target, EVENTS.c.commit_hash == commit
