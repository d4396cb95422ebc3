"""The publish lock of a table: whoever publishes to it takes turns, and who lost to others may go first.

Nothing that is published depends on the locks: the catalog detects conflicts. They save retries, let a run that keeps
losing be written again in peace, and whoever cancels a run waits for them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TypeVar

from lakegate.context import Context
from lakegate.errors import NotReplayableError, RetryableError
from lakegate.model.run import Run
from lakegate.telemetry.metrics import WAIT_SECONDS, measure

LOSSES_BEFORE_LOCK = 2
"""How often a run may lose to others until it holds the publish lock while it's written again."""
_LOCK_TIMEOUT_S = 60.0
_SETTLE_TIMEOUT_S = 10.0
"""How long to wait for a process that is publishing a run that is cancelled or discarded."""
_NESTED_TIMEOUT_S = 1.0
"""How long to wait for a lock while we hold another one, whose waiters may hold the first."""
_HELD: ContextVar[Mapping[str, ExitStack]] = ContextVar("lakegate_publish_locks", default=MappingProxyType({}))
"""The publish locks that the current work holds while it writes a run again (``target/table``)."""

T = TypeVar("T")


@contextmanager
def publish_lock(
    context: Context,
    target: str,
    tables: Sequence[str],
    *,
    timeout_s: float = math.inf,
) -> Iterator[bool]:
    """Wait for the publish lock of each table, always in the same order; yield whether we have them all."""
    began, held = time.monotonic(), _HELD.get()
    wait_s = min(timeout_s, context.publish_within_s, _NESTED_TIMEOUT_S if held else _LOCK_TIMEOUT_S)
    with ExitStack() as stack:
        keys = [f"{target}/{table}" for table in sorted(tables)]
        locked = [key in held or stack.enter_context(context.journal.lock(key, timeout_s=wait_s)) for key in keys]
        measure(WAIT_SECONDS, time.monotonic() - began, queue="publish")
        yield all(locked)


@contextmanager
def holding_publish_lock(
    context: Context, target: str, tables: Iterable[str], *, at_most_s: float = math.inf
) -> Iterator[None]:
    """Hold the publish locks of tables while the body writes a run again that lost to others: nobody starves.

    The others wait in :func:`publish_lock`. If a lock isn't to be had within ``at_most_s``, the body starts anyway.
    """
    with ExitStack() as stack:
        before = _HELD.get()
        until = time.monotonic() + min(at_most_s, context.publish_within_s)
        for key in sorted({f"{target}/{table}" for table in tables} - before.keys()):
            left_s = min(until - time.monotonic(), _NESTED_TIMEOUT_S if before else math.inf)
            if stack.enter_context(context.journal.lock(key, timeout_s=max(left_s, 0.0))):
                _HELD.set({**_HELD.get(), key: stack})
        try:
            yield
        finally:
            _HELD.set(before)


def redo(
    context: Context, target: str, work: Callable[[], T], *, attempts: int, note: Callable[[NotReplayableError], str]
) -> T:
    """Do ``work`` again each time that others have changed what it depends on; from the second redo on, they wait.

    Args:
        attempts: How often to try in all.
        note: Returns what to tell the user before each redo.

    Raises:
        NotReplayableError: When the last attempt lost, too.
    """
    with ExitStack() as stack:
        for attempt in range(1, attempts):
            try:
                return work()
            except NotReplayableError as error:
                context.narrator.note(note(error))
                if attempt >= LOSSES_BEFORE_LOCK:
                    tables = [str(error.context.get("table"))]
                    stack.enter_context(holding_publish_lock(context, target, tables))
        return work()


def give_up_publish_locks() -> None:
    """Release the locks of :func:`holding_publish_lock`: we're about to wait for a run that may need them."""
    for stack in _HELD.get().values():
        stack.close()
    _HELD.set({})


class BeingPublishedError(RetryableError):
    """Its owner may be publishing a run right now, so the run's outcome is unknown."""


def require_nobody_publishes(context: Context, run: Run) -> None:
    """Wait for any process that began to publish ``run`` before we had its lease.

    The run's process may be stopped between checking its lease and committing. It holds the publish lock then. Whoever
    takes the lock after us finds the lease lost.

    Raises:
        BeingPublishedError: When that takes too long.
    """
    if run.branch and not run.staged:
        return  # nothing to publish yet; only a run without a branch commits straight to its target
    with publish_lock(context, run.target, run.tables, timeout_s=_SETTLE_TIMEOUT_S) as is_over:
        if is_over:
            return
        look = f"Try again; to see whether it was published: lakegate runs {run.run_id}"
        busy = [table for table in run.tables if context.journal.is_locked(f"{run.target}/{table}")]
        raise BeingPublishedError(
            f"A process that is publishing to {', '.join(busy)} may be publishing run {run.run_id} right now."
            if busy
            else f"Can't tell whether run {run.run_id} is being published right now: nobody seems to be "
            f"publishing to {run.table}, but we couldn't get the publish lock to make sure.",
            hint=look if busy else f"{look}. If this process does much at the same time, raise journal.max_connections",
            run_id=run.run_id,
            branch=run.branch or None,
        )
