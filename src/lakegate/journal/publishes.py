"""Runs that wait for a table's publish lock, where whoever holds it finds them (docs/decisions/0060).

A row is an offer, and nothing more: that it was taken doesn't say that the run was published. Only the catalog does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import timedelta

from pydantic import ValidationError
from sqlalchemy import delete, select, update

from lakegate.journal.database import Database, Transaction
from lakegate.journal.schema import LEASES, PUBLISH_QUEUE, as_text
from lakegate.model.journal import QueuedPublish

_COLUMNS = ("run_id", "target", "table_name", "queued_at", "document")


def withdraw(tx: Transaction, run_id: str) -> bool:
    """Take back the offer of a run, which has ended, or has another owner; return whether there was one."""
    return tx.execute(delete(PUBLISH_QUEUE).where(PUBLISH_QUEUE.c.run_id == run_id)).rowcount == 1


class PublishQueue:
    """The runs that wait to publish."""

    def __init__(self, database: Database, lease: timedelta) -> None:
        self._database = database
        self._lease = lease

    def join(self, one: QueuedPublish) -> None:
        """Offer a run to whoever publishes to its table."""
        run = one.run
        with self._database.writing() as tx:
            row = (run.run_id, run.target, run.table, as_text(tx.now()), one.model_dump_json())
            tx.insert(PUBLISH_QUEUE, [row], _COLUMNS, key="run_id")

    def is_waiting(self, run_id: str) -> bool:
        """Return whether a run is on offer, and nobody has taken it."""
        with self._database.reading() as tx:
            return tx.scalar(select(PUBLISH_QUEUE.c.run_id).where(PUBLISH_QUEUE.c.run_id == run_id)) is not None

    def leave(self, run_id: str) -> bool:
        """Withdraw a run; return whether it was on offer. If not, whoever took it may be publishing it right now."""
        with self._database.writing() as tx:
            return withdraw(tx, run_id)

    def waiting(self, target: str, table: str, *, limit: int) -> Sequence[QueuedPublish]:
        """Return runs that are on offer for a table, longest waiting first.

        An offer that can't be read, such as a newer lakegate's, is left to the run that made it.
        """
        which = PUBLISH_QUEUE.c.target == target, PUBLISH_QUEUE.c.table_name == table
        oldest_first = PUBLISH_QUEUE.c.queued_at, PUBLISH_QUEUE.c.run_id
        query = select(PUBLISH_QUEUE.c.document).where(*which).order_by(*oldest_first).limit(limit)
        with self._database.reading() as tx:
            documents = list(tx.scalars(query))
        found: list[QueuedPublish] = []
        for document in documents:
            with suppress(ValidationError):
                found.append(QueuedPublish.model_validate_json(document))
        return found

    def take(self, wanted: Sequence[QueuedPublish], *, taken: Collection[str], own: str) -> frozenset[str]:
        """Take runs from the queue to publish them, and renew their leases, in one transaction.

        Nobody takes a run over from its owner for as long as a lease lasts from now on.

        Args:
            wanted: The runs. One whose lease somebody else has by now is dropped from the queue, and not taken.
            taken: Those of them that were taken before, and are in the queue no more.
            own: The run that takes them. It doesn't wait any more.

        Returns:
            The ids of those that are ours to publish.
        """
        ids, tokens = [one.run.run_id for one in wanted], [one.token for one in wanted]
        with self._database.writing() as tx:
            queued = PUBLISH_QUEUE.c.run_id.in_(tx.values([*ids, own]))
            offered = set(tx.scalars(delete(PUBLISH_QUEUE).where(queued).returning(PUBLISH_QUEUE.c.run_id)))
            now = tx.now()
            times = {"renewed_at": as_text(now), "expires_at": as_text(now + self._lease)}
            theirs = LEASES.c.run_id.in_(tx.values(ids)), LEASES.c.token.in_(tx.values(tokens))
            renewed = update(LEASES).where(*theirs).values(times).returning(LEASES.c.run_id)
            return frozenset(tx.scalars(renewed)) & (offered | set(taken))
