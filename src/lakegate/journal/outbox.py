"""Two queues: events for downstream systems, and runs that wait for a publish lock.

Events are queued in the transaction that records their cause: the target's new commits
(:func:`lakegate.journal.history.record`), or the end of a run that published nothing. They're queued for every system
that any process has registered, so no event is lost if one process's settings lack a system.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, get_args

from sqlalchemy import ColumnElement, Row, and_, delete, exists, func, not_, or_, select, update

from lakegate.errors import NotFoundError
from lakegate.journal.database import Database, JournalTransaction
from lakegate.journal.schema import DELIVERIES, DOWNSTREAMS, HISTORY, MIRRORED, as_text
from lakegate.model.downstream import Delivery, DeliveryState, DownstreamKind, DownstreamStatus, Subscription
from lakegate.model.refs import TablePointer
from lakegate.model.run import Run

_COLUMNS = ("downstream", "kind", "ref", "commit_hash", "run_id", "tables", "state", "tries", "queued_at", "next_at")
_WAITING = ("pending", "failed")
_KINDS = get_args(DownstreamKind)
_OUTBOX_LOCK = "outbox"
_SUBSCRIPTIONS = select(DOWNSTREAMS.c.document).order_by(DOWNSTREAMS.c.name)


def queue(
    tx: JournalTransaction,
    kind: DownstreamKind,
    tables: Iterable[str],
    *,
    ref: str,
    commit: str | None = None,
    run_id: str | None = None,
    only: str | None = None,
) -> int:
    """Queue an event for every system that wants it; return the number of tables in these events.

    Args:
        tx: The transaction that records the event's cause.
        tables: The event's tables. For systems that mirror tables, each table gets its own event, so that a refused one
            doesn't block the others.
        commit: The commit that the event describes.
        only: Queue it for this system only.
    """
    tables = tuple(dict.fromkeys(tables))
    subscriptions = _subscriptions(tx) if tables else {}
    if not subscriptions:
        return 0
    # A sender must not see a later event before an earlier one.
    tx.lock(_OUTBOX_LOCK)
    now, found = as_text(tx.now()), 0
    rows: list[tuple[str | int | None, ...]] = []
    for name, subscription in subscriptions.items():
        wanted = subscription.wanted(kind, tables) if only in (None, name) else ()
        found += len(wanted)
        apart = subscription.mirrors and commit is not None
        events = [(one,) for one in wanted] if apart else filter(None, [wanted])
        rows += [(name, kind, ref, commit, run_id, json.dumps(one), "pending", 0, now, now) for one in events]
    tx.insert(DELIVERIES, rows, _COLUMNS)
    return found


def queue_end(tx: JournalTransaction, run: Run) -> None:
    """Queue the end of a run that published nothing because it was rejected or failed."""
    match run.status:
        case "rejected" | "failed":
            queue(tx, run.status, run.tables, ref=run.target, run_id=run.run_id)


class Outbox:
    """The queue of each downstream system."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # Systems

    def register(self, subscriptions: Collection[Subscription]) -> None:
        """Queue events for these systems too from now on, as their settings say."""
        with self._database.reading() as tx:
            known = _subscriptions(tx)
        new = [one for one in subscriptions if known.get(one.name) != one]
        if not new:
            return
        with self._database.writing() as tx:
            tx.lock(_OUTBOX_LOCK)
            since = as_text(tx.now())
            rows = [(one.name, one.model_dump_json(), since) for one in new]
            tx.insert(DOWNSTREAMS, rows, key="name", replace=("document",))

    def forget(self, name: str) -> int:
        """Stop queueing events for a system, skip those in its queue, and return their number."""
        with self._database.writing() as tx:
            tx.lock(_OUTBOX_LOCK)
            if not tx.execute(delete(DOWNSTREAMS).where(DOWNSTREAMS.c.name == name)).rowcount:
                raise NotFoundError(f"Downstream '{name}' isn't known.", hint="lakegate admin downstream status")
            tx.execute(delete(MIRRORED).where(MIRRORED.c.downstream == name))
            return _end(tx, _waiting_for(name), "skipped", "The system was forgotten.")

    def status(self) -> Sequence[DownstreamStatus]:
        """Return the status of each system's queue."""
        state = DELIVERIES.c.state
        counted = select(
            DELIVERIES.c.downstream,
            state,
            func.count().label("number"),
            func.min(DELIVERIES.c.queued_at).label("oldest"),
            func.min(DELIVERIES.c.next_at).label("next_at"),
            func.max(DELIVERIES.c.ended_at).label("last"),
        ).group_by(DELIVERIES.c.downstream, state)
        with self._database.reading() as tx:
            known = {name: (document, since) for name, document, since in tx.execute(select(DOWNSTREAMS)).tuples()}
            states: dict[str, dict[str, Any]] = {name: {} for name in known}
            for row in tx.execute(counted):
                if row.downstream in states:
                    states[row.downstream][row.state] = row
            reasons = {name: self._reason(tx, name) for name in known}
        return tuple(
            _status(Subscription.model_validate_json(document), since, states[name], reasons[name])
            for name, (document, since) in sorted(known.items())
        )

    # Deliveries

    def waiting(self, name: str, *, after: int = 0, limit: int = 100) -> Sequence[Delivery]:
        """Return a system's deliveries that are pending or given up, in order, ``after`` a delivery's number."""
        which = _waiting_for(name) & (DELIVERIES.c.delivery_id > after)
        query = select(DELIVERIES).where(which).order_by(DELIVERIES.c.delivery_id).limit(limit)
        with self._database.reading() as tx:
            return tuple(map(_delivery, tx.execute(query)))

    def list(
        self,
        *,
        name: str | None = None,
        run_id: str | None = None,
        states: Collection[DeliveryState] = (),
        limit: int = 50,
    ) -> Sequence[Delivery]:
        """Return deliveries, newest first."""
        query = select(DELIVERIES).order_by(DELIVERIES.c.delivery_id.desc()).limit(limit)
        if name is not None:
            query = query.where(DELIVERIES.c.downstream == name)
        if run_id is not None:
            query = query.where(DELIVERIES.c.run_id == run_id)
        if states:
            query = query.where(DELIVERIES.c.state.in_(states))
        with self._database.reading() as tx:
            return tuple(_delivery(row) for row in tx.execute(query))

    def begin(self, delivery: Delivery) -> bool:
        """Count one more try; return ``False`` if another process has tried it or ended it meanwhile."""
        known = DELIVERIES.c
        same = known.delivery_id == delivery.delivery_id, known.tries == delivery.tries, known.state == "pending"
        with self._database.writing() as tx:
            return tx.execute(update(DELIVERIES).where(*same).values(tries=delivery.tries + 1)).rowcount == 1

    def sent(self, delivery: Delivery, mirrored: Mapping[str, TablePointer | None] | None = None) -> None:
        """Record that a delivery arrived.

        Args:
            mirrored: The state of each table that the system now mirrors; ``None`` for a dropped table.
        """
        with self._database.writing() as tx:
            _end(tx, DELIVERIES.c.delivery_id == delivery.delivery_id, "sent", None)
            for table, pointer in (mirrored or {}).items():
                key = MIRRORED.c.downstream == delivery.downstream, MIRRORED.c.table_name == table
                tx.execute(delete(MIRRORED).where(*key))
                if pointer is not None:
                    now = as_text(tx.now())
                    tx.insert(MIRRORED, [(delivery.downstream, table, pointer.model_dump_json(), now)])

    def postponed(self, delivery: Delivery, reason: str, *, next_at: datetime) -> None:
        """Record that a delivery failed and will be retried."""
        with self._database.writing() as tx:
            since = delivery.failing_since or tx.now()
            changes = {"next_at": as_text(next_at), "failing_since": as_text(since), "reason": reason}
            same = DELIVERIES.c.delivery_id == delivery.delivery_id, DELIVERIES.c.state == "pending"
            tx.execute(update(DELIVERIES).where(*same).values(changes))

    def ended(self, deliveries: Iterable[Delivery], state: DeliveryState, reason: str) -> None:
        """Record that deliveries were given up, skipped or superseded."""
        numbers = [one.delivery_id for one in deliveries]
        with self._database.writing() as tx:
            _end(tx, DELIVERIES.c.delivery_id.in_(numbers) & DELIVERIES.c.state.in_(_WAITING), state, reason)

    def again(self, name: str | None = None) -> int:
        """Queue deliveries that were given up again, make all queued ones due now, and return their number."""
        with self._database.writing() as tx:
            which: list[ColumnElement[bool]] = [DELIVERIES.c.state.in_(_WAITING)]
            if name is not None:
                which.append(DELIVERIES.c.downstream == name)
            changes = {"state": "pending", "next_at": as_text(tx.now()), "failing_since": None, "ended_at": None}
            return tx.execute(update(DELIVERIES).where(*which).values(changes)).rowcount

    def send_current(self, name: str, tables: Sequence[str], *, ref: str, commit: str) -> int:
        """Queue the state of each of ``tables`` on ``ref``; return how many of them the system wants.

        Args:
            commit: The commit to describe, unless the journal has recorded a later one. The later one's events are
                queued already, and an older state behind them would look like the newest.
        """
        with self._database.writing() as tx:
            tx.lock(_OUTBOX_LOCK)
            recorded: str | None = tx.scalar(select(HISTORY.c.head).where(HISTORY.c.target == ref))
            return queue(tx, "current", tables, ref=ref, commit=recorded or commit, only=name)

    def mirrored(self) -> Sequence[TablePointer]:
        """Return the states that systems mirror."""
        with self._database.reading() as tx:
            return tuple(TablePointer.model_validate_json(one) for one in tx.scalars(select(MIRRORED.c.pointer)))

    def unsent_states(self) -> Sequence[Delivery]:
        """Return deliveries whose state a system that mirrors tables may need or already have.

        Even a skipped delivery, or one that failed and was superseded, may have arrived: somebody made the change
        manually, or only the response was lost. It counts until the table's next delivery.
        """
        one, later = DELIVERIES.alias(), DELIVERIES.alias()
        moved_on = exists().where(
            later.c.downstream == one.c.downstream,
            later.c.state == "sent",
            later.c.delivery_id > one.c.delivery_id,
            later.c.tables == one.c.tables,
        )
        left = or_(one.c.state == "skipped", and_(one.c.state == "superseded", one.c.tries > 0))
        with self._database.reading() as tx:
            names = [name for name, known in _subscriptions(tx).items() if known.mirrors]
            which = one.c.downstream.in_(names), one.c.commit_hash != "", one.c.state != "sent"
            query = select(one).where(*which, or_(one.c.state.in_(_WAITING), and_(left, not_(moved_on))))
            return tuple(_delivery(row) for row in tx.execute(query))

    def now(self) -> datetime:
        """Return the time by the clock that deliveries use."""
        with self._database.reading() as tx:
            return tx.now()

    def _reason(self, tx: JournalTransaction, name: str) -> str | None:
        """Return why the first delivery that is held up wasn't sent."""
        query = select(DELIVERIES.c.reason).where(_waiting_for(name), DELIVERIES.c.reason.is_not(None))
        reason: str | None = tx.scalar(query.order_by(DELIVERIES.c.delivery_id).limit(1))
        return reason


def _subscriptions(tx: JournalTransaction) -> Mapping[str, Subscription]:
    return {one.name: one for one in map(Subscription.model_validate_json, tx.scalars(_SUBSCRIPTIONS))}


def _waiting_for(name: str) -> ColumnElement[bool]:
    return and_(DELIVERIES.c.downstream == name, DELIVERIES.c.state.in_(_WAITING))


def _end(tx: JournalTransaction, which: ColumnElement[bool], state: DeliveryState, reason: str | None) -> int:
    changes = {"state": state, "ended_at": as_text(tx.now()), "next_at": None, "reason": reason}
    return tx.execute(update(DELIVERIES).where(which).values(changes)).rowcount


def _delivery(row: Row[Any]) -> Delivery:
    values = row._asdict()
    commit = values.pop("commit_hash")
    return Delivery.model_validate({**values, "commit": commit, "tables": json.loads(values["tables"])})


def _status(subscription: Subscription, since: str, states: Mapping[str, Any], reason: str | None) -> DownstreamStatus:
    waiting = [states[state] for state in _WAITING if state in states]
    return DownstreamStatus.model_validate(
        {
            "name": subscription.name,
            "mirrors": subscription.mirrors,
            "since": since,
            **{state: states[state].number for state in ("pending", "failed", "sent") if state in states},
            "oldest": min((row.oldest for row in waiting), default=None),
            "next_at": states["pending"].next_at if "pending" in states else None,
            "last_sent_at": states["sent"].last if "sent" in states else None,
            "reason": reason,
        }
    )
