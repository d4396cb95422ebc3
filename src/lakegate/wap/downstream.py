"""Notify downstream systems of each publish: at least once, and in order for each table.

Events are in the journal's outbox before they're sent (:mod:`lakegate.journal.outbox`). The process that ended a run
sends due events, within a time budget; so do ``recover``, ``watch``, every later run, and
``lakegate admin downstream retry``. Only one process at a time sends to a system. Nothing here changes a run's outcome.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime, timedelta

from lakegate.context import Context, Subscriber
from lakegate.errors import (
    CatalogUnavailableError,
    DownstreamError,
    DownstreamUnavailableError,
    LakegateError,
    NotFoundError,
    RetryableError,
)
from lakegate.ledger.sync import sync
from lakegate.model.downstream import ChangedTable, Delivery, DownstreamCheck, DownstreamEvent
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, Ref, TablePointer
from lakegate.ports import Downstream
from lakegate.progress import one_line, without_secrets
from lakegate.wap import failpoints
from lakegate.wap.alerting import alert_undelivered

BUDGET_S = 30.0
"""Seconds after which a process that ended a run starts no further delivery."""
_FIRST_WAIT_S = 30.0
_LONGEST_WAIT_S = 3600.0
_LOCK_S = 5.0
_MOST_FAILURES = 3
"""Number of failures after which this process stops sending to a system."""
_PAGE = 500
_LONGEST_REASON = 500
_LOG = logging.getLogger(__name__)

TableStates = Mapping[str, TablePointer | None]
"""The state of each table, by its name; ``None`` for a table that doesn't exist."""


def send(
    context: Context,
    *,
    within_s: float = BUDGET_S,
    left_s: float = math.inf,
    target: str | None = None,
    name: str | None = None,
) -> Sequence[Delivery]:
    """Send due events to each downstream system; those that can't be sent stay queued. Never raises an error.

    Args:
        within_s: Seconds after which no further delivery starts.
        left_s: Seconds until this process is stopped; a delivery that may take longer isn't started.
        target: First read the new commits of this branch, which queues their events.
        name: Send only to this system; by default to all.
    """
    subscribers = [one for one in context.downstreams if name in (None, one.subscription.name)]
    if not subscribers or within_s <= 0:
        return ()
    if target is not None:
        with suppress(LakegateError):
            sync(context, target)
    now = time.monotonic()
    senders = [_Sender(context, one, now + min(within_s, left_s - one.timeout_s)) for one in subscribers]
    # In parallel, so that an unavailable system doesn't delay the others; daemons, so that none keeps us alive.
    threads = [
        threading.Thread(target=copy_context().run, args=(one.work,), name=f"downstream {one.name}", daemon=True)
        for one in senders[1:]
    ]
    for thread in threads:
        thread.start()
    senders[0].work()
    for thread in threads:
        thread.join()
    return tuple(delivery for one in senders for delivery in one.tried)


class _Sender:
    """Sends events to one system, in order for each table."""

    def __init__(self, context: Context, subscriber: Subscriber, deadline: float) -> None:
        self._context = context
        self._subscriber = subscriber
        self._deadline = deadline
        self._outbox = context.journal.outbox
        self._opened: Downstream | None = None
        self._failures = 0
        self.name = subscriber.subscription.name
        self.tried: list[Delivery] = []

    def work(self) -> None:
        """Send due events until there are none left, or time is over."""
        try:
            if self._is_over or not self._outbox.waiting(self.name, limit=1):
                return
            wait_s = max(min(_LOCK_S, self._left_s), 0.001)
            with self._context.journal.lock(f"downstream {self.name}", timeout_s=wait_s) as is_ours:
                # Without the lock, another process is sending; it checks the queue again before it stops.
                while is_ours and self._send_due():
                    pass
        except Exception as error:  # noqa: BLE001 - a publish doesn't depend on it
            reason = error.message if isinstance(error, LakegateError) else type(error).__name__
            _LOG.warning("Downstream '%s' wasn't notified: %s", self.name, reason)

    @property
    def _left_s(self) -> float:
        return self._deadline - time.monotonic()

    @property
    def _is_over(self) -> bool:
        return self._left_s <= 0 or self._failures >= _MOST_FAILURES

    def _send_due(self) -> bool:
        """Go through the queue once; return whether something was sent, so that more may be due."""
        sent = False
        held: set[str] = set()
        now = self._outbox.now()
        for delivery in self._queued():
            if self._is_over:
                return False
            due = delivery.state == "pending" and (delivery.next_at or delivery.queued_at) <= now
            if due and held.isdisjoint(delivery.tables) and self._send(delivery):
                sent = True
            else:
                # Later events of these tables have to wait for this one.
                held.update(delivery.tables)
        return sent

    def _queued(self) -> Iterator[Delivery]:
        after = 0
        while page := self._outbox.waiting(self.name, after=after, limit=_PAGE):
            after = page[-1].delivery_id
            if self._subscriber.subscription.mirrors:
                page = self._still_wanted(page)
            yield from page

    def _still_wanted(self, page: Sequence[Delivery]) -> Sequence[Delivery]:
        """End deliveries that a system that mirrors tables needn't get, and return the rest."""
        covered = self._superseded(page)
        if covered:
            self._outbox.ended(covered, "superseded", "A later event of the same tables covers it.")
        return [one for one in page if one not in covered]

    def _superseded(self, page: Sequence[Delivery]) -> Sequence[Delivery]:
        """Return the deliveries whose tables all have a later delivery: only the newest state matters."""
        later: set[str] = set()
        found = []
        for delivery in reversed(page):
            if delivery.commit is None:
                continue
            if later.issuperset(delivery.tables):
                found.append(delivery)
            later.update(delivery.tables)
        return found

    def _send(self, delivery: Delivery) -> bool:
        """Send one event; return whether it's done with, even if it wasn't sent."""
        if not self._outbox.begin(delivery):
            return False
        tried = delivery.model_copy(update={"tries": delivery.tries + 1})
        try:
            if self._opened is None:
                self._opened = self._subscriber.open()
            event, states = describe(self._context, delivery)
            run = None if delivery.run_id is None else self._context.journal.get(delivery.run_id)
            failpoints.reach("before-send")
            with self._context.narrator.step(f"Notifying {self.name} of {_label(delivery)}"):
                self._opened.deliver(event, run)
            failpoints.reach("after-send")
        except CatalogUnavailableError:
            raise  # the system is fine; the next process retries
        except _CommitLostError:
            self._outbox.ended([tried], "skipped", reason := "Its commit is no longer in the catalog.")
            self.tried.append(tried.model_copy(update={"state": "skipped", "reason": reason}))
            return True
        except Exception as error:  # noqa: BLE001 - a failing system must not affect others
            self._failures += 1
            self._failed(tried, error)
            return False
        self._outbox.sent(tried, states if self._subscriber.subscription.mirrors and delivery.commit else None)
        self.tried.append(tried.model_copy(update={"state": "sent", "reason": None}))
        return True

    def _failed(self, delivery: Delivery, error: Exception) -> None:
        now = self._outbox.now()
        reason = _reason(error)
        since = delivery.failing_since or now
        if isinstance(error, DownstreamError) or now - since > self._subscriber.give_up:
            ended = delivery.model_copy(update={"state": "failed", "reason": reason, "ended_at": now})
            self._outbox.ended([delivery], "failed", reason)
            self._narrate(f"{reason} Given up. After fixing it: lakegate admin downstream retry {self.name}", delivery)
            alert_undelivered(self._context, ended)
        else:
            next_at = now + timedelta(seconds=_wait_s(delivery.tries, error))
            ended = delivery.model_copy(update={"reason": reason, "next_at": next_at, "failing_since": since})
            self._outbox.postponed(delivery, reason, next_at=next_at)
            self._narrate(
                f"{reason} It will be retried. To retry now: lakegate admin downstream retry {self.name}", delivery
            )
        self.tried.append(ended)

    def _narrate(self, text: str, delivery: Delivery) -> None:
        self._context.narrator.note(f"{self.name} didn't get {_label(delivery)}: {text}")
        facts = {"downstream": self.name, "run_id": delivery.run_id, "tables": list(delivery.tables)}
        _LOG.warning("Downstream '%s' didn't get an event: %s", self.name, text, extra={"facts": facts})


class _CommitLostError(Exception):
    """The commit of an event can't be found any more."""


def _wait_s(tries: int, error: Exception) -> float:
    """Return how long to wait before the next try.

    Example:
        >>> [_wait_s(tries, ValueError()) for tries in (1, 2, 3, 99)]
        [30.0, 60.0, 120.0, 3600.0]
    """
    asked_s = error.after_s or 0.0 if isinstance(error, DownstreamUnavailableError) else 0.0
    backoff_s = _FIRST_WAIT_S * 2.0 ** min(tries - 1, 20)
    return min(max(backoff_s, asked_s), _LONGEST_WAIT_S)


def _reason(error: Exception) -> str:
    # Another library's message may contain the secrets that it was given.
    text = error.message if isinstance(error, LakegateError) else f"It failed: {type(error).__name__}."
    hint = f" {error.hint}" if isinstance(error, LakegateError) and error.hint else ""
    return one_line(without_secrets(text + hint))[:_LONGEST_REASON]


def _label(delivery: Delivery) -> str:
    tables = ", ".join(delivery.tables[:3]) + (" …" if len(delivery.tables) > 3 else "")
    return f"{tables} ({delivery.kind})"


def check(subscriber: Subscriber, type_: str) -> DownstreamCheck:
    """Check whether a system can be reached from here. Never raises an error."""
    name = subscriber.subscription.name
    try:
        detail = subscriber.open().test()
    except Exception as error:  # noqa: BLE001 - the check reports every failure
        return DownstreamCheck(name=name, type=type_, works=False, detail=_reason(error))
    return DownstreamCheck(name=name, type=type_, works=True, detail=detail)


def describe(context: Context, delivery: Delivery) -> tuple[DownstreamEvent, TableStates]:
    """Return a delivery's event, and the state of its tables by the catalog."""
    run = None if delivery.run_id is None else context.journal.get(delivery.run_id)
    if delivery.commit is None:
        at = delivery.queued_at if run is None else run.finished_at or delivery.queued_at
        return _event(delivery, at, [ChangedTable(table=name) for name in delivery.tables]), {}
    commit, before, after = _states(context, delivery, delivery.commit)
    is_current = delivery.kind == "current"
    tables = [
        _changed(context, name, None if is_current else before[name], after[name], is_current=is_current)
        for name in delivery.tables
    ]
    actor = run.accepted.actor if run is not None and run.accepted is not None else commit.author
    return _event(delivery, commit.time, tables, parent=commit.parent, actor=actor or None), after


def _states(context: Context, delivery: Delivery, commit_hash: str) -> tuple[Commit, TableStates, TableStates]:
    tables = [TableIdentifier.stored(name) for name in delivery.tables]
    try:
        commit = next(iter(context.catalog.history(commit_hash)), None)
        if commit is None:
            raise _CommitLostError
        before: Mapping[TableIdentifier, TablePointer | None] = {}
        if commit.parent is not None and delivery.kind != "current":
            before = context.catalog.get_tables(tables, Ref.detached(commit.parent))
        after = context.catalog.get_tables(tables, Ref.detached(commit_hash))
    except NotFoundError:
        raise _CommitLostError from None
    return commit, {str(table): before.get(table) for table in tables}, {str(one): after.get(one) for one in tables}


def _event(
    delivery: Delivery,
    at: datetime,
    tables: Sequence[ChangedTable],
    *,
    parent: str | None = None,
    actor: str | None = None,
) -> DownstreamEvent:
    about = [delivery.kind, delivery.ref, delivery.commit, delivery.run_id, *delivery.tables]
    return DownstreamEvent(
        event_id=hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32],
        kind=delivery.kind,
        run_id=delivery.run_id,
        ref=delivery.ref,
        commit=delivery.commit,
        parent=parent,
        actor=actor,
        at=at,
        tables=tuple(tables),
    )


def _changed(
    context: Context,
    name: str,
    before: TablePointer | None,
    after: TablePointer | None,
    *,
    is_current: bool,
) -> ChangedTable:
    known: dict[str, object] = {
        "before": None if before is None else before.metadata_location,
        "after": None if after is None else after.metadata_location,
        "created": before is None and after is not None and not is_current,
        "dropped": after is None,
    }
    try:
        old = None if before is None else context.reader.metadata(before)
        if not is_current and not (before is None and after is None):
            change = context.reader.change(before, after)
            known |= {"change": change.kind, "rows_added": change.rows_added, "rows_removed": change.rows_removed}
            known["snapshot_ids"] = change.snapshot_ids
        if after is not None:
            new = context.reader.metadata(after)
            known |= {"location": new.location, "table_schema": new.table_schema, "rows": new.rows}
            known["snapshot_id"] = None if new.snapshot is None else new.snapshot.snapshot_id
            known["schema_changed"] = old is not None and old.table_schema != new.table_schema
    except RetryableError:
        raise
    except LakegateError as error:
        # The system still gets the event, with what is known.
        _LOG.warning("The metadata of %s can't be read: %s", name, error.message)
    return ChangedTable.model_validate({"table": name, **known})


def needed_states(context: Context) -> Iterator[TablePointer]:
    """Yield table states that downstream systems mirror or haven't been notified of yet; ``gc`` keeps their files."""
    # In this order, so that an event that's sent in between isn't missed.
    unsent = context.journal.outbox.unsent_states()
    yield from context.journal.outbox.mirrored()
    for delivery in unsent:
        with suppress(_CommitLostError):
            _, _, after = _states(context, delivery, delivery.commit or "")
            yield from filter(None, after.values())
