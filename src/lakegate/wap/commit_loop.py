"""The one commit loop: commit to a branch what an author wants changed on its head, exactly once.

An author is a staged run, a revert, or another change of whole tables. It gives its change for one head. When somebody
else has committed first, it's asked again for the new head: it rebases its change, makes it anew, or refuses.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from lakegate.context import Context
from lakegate.errors import AuditFailedError, ConflictError, LakegateError, LeaseLostError, OutcomeUnknownError
from lakegate.ledger.event import run_of
from lakegate.ledger.publication import find_publication
from lakegate.model.refs import Commit, CommitRequest, Ref, TablePointer
from lakegate.model.run import Run
from lakegate.telemetry.metrics import RETRIES, measure
from lakegate.wap import failpoints
from lakegate.wap.publish_lock import publish_lock
from lakegate.wap.retention import require_files
from lakegate.wap.stage import namespaces_for

_LONGEST_PAUSE_S = 1.0
_CURRENT_S = 0.005
"""How long a head that was read counts as current. If it's stale after all, the catalog refuses the commit."""
_SETTLES = (ConflictError, AuditFailedError, LeaseLostError)
"""Errors after which a commit without an answer can't be made any more, because something that it changes or relies on
has changed; or after which another process finds out whether it was made."""


class Author(Protocol):
    """Says what a run changes on its target."""

    @property
    def states(self) -> Sequence[tuple[TablePointer | None, TablePointer]]:
        """States that the change brings to the target, each with the one whose files are there for sure."""

    def read_target(self) -> tuple[Ref, Sequence[Commit]]:
        """Read the target anew; return its head, and commits before it that may concern the run, newest first."""

    def change(self, head: Ref, newer: Sequence[Commit]) -> CommitRequest | None:
        """Return what to commit on top of ``head``, but for namespaces; ``None`` if there's nothing to do any more.

        Args:
            newer: The commits that :meth:`read_target` returned, and those since then or since the last call, newest
                first.

        Raises:
            NotReplayableError: When the change must be made anew, and the author can't do that itself.
        """


class UnansweredCommitInterrupt(KeyboardInterrupt):
    """Interrupted while a commit had no answer: it may be made later."""


class _HeadMoved(Exception):  # noqa: N818 - not an error: somebody was faster, so we try again
    """The branch moved between reading its head and committing, or a commit got no answer.

    Attributes:
        error: The error to raise if there's no further attempt.
    """

    def __init__(self, error: LakegateError) -> None:
        super().__init__(error.message)
        self.error = error


def commit_change(
    context: Context,
    run: Run,
    author: Author,
    head: Ref | None = None,
    *,
    unknown: OutcomeUnknownError,
    confirm: Callable[[], None] | None = None,
    wait_s: float = math.inf,
) -> str | None:
    """Commit what ``author`` wants changed on the target of ``run``, exactly once, and return the commit's hash.

    Args:
        head: The head that the author has read already, if it has.
        unknown: The error to raise if we can't find out whether a commit without an answer was made.
        confirm: Called right before each commit; raises if another process has taken the run over.
        wait_s: How long to wait for others that publish to the same tables.

    Returns:
        The hash of the run's commit, even if an earlier attempt made it; ``None`` if there was nothing to commit.

    Raises:
        ConflictError: When the target kept moving, or files of the change are gone.
        LakegateError: What the author and the catalog raise.
    """
    checked = author.states
    require_files(context, run, checked)
    head, newer = author.read_target() if head is None else (head, ())
    began = time.monotonic()
    unanswered = _Unanswered(unknown)
    with publish_lock(context, run.target, run.tables, timeout_s=wait_s), unanswered.reported():
        is_current = time.monotonic() - began < _CURRENT_S
        try:
            for attempt in _retrying(context):
                with attempt:
                    if not is_current:
                        head, newer = _follow(context, run, author, head, newer)
                    is_current = False
                    own = _own_commit(context, run, newer)
                    change = None if own else author.change(head, newer)
                    if change is None:
                        return own
                    newer = ()
                    if author.states != checked:
                        checked = author.states
                        require_files(context, run, checked)
                    return _commit(context, change, head, confirm, unanswered)
        except _HeadMoved as moved:
            # The last commit may be there even if its answer was a conflict, because requests are sent again.
            publication = find_publication(context, run)
            if publication is None:
                raise moved.error from None
            return publication.commit
    raise AssertionError("tenacity ends by returning or raising")


def _retrying(context: Context) -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(_HeadMoved),
        stop=stop_after_attempt(context.publish_attempts) | stop_after_delay(context.publish_within_s),
        wait=wait_random_exponential(multiplier=0.02, max=_LONGEST_PAUSE_S),
        reraise=True,
    )


def _follow(
    context: Context, run: Run, author: Author, head: Ref, newer: Sequence[Commit]
) -> tuple[Ref, Sequence[Commit]]:
    """Return the target's head now, and the commits that the author doesn't know yet."""
    commits = list(context.catalog.history(run.target, until=head.hash, operations=True))
    if not commits:
        return head, newer
    if commits[-1].parent != head.hash:
        return author.read_target()  # the target was reset
    return head.model_copy(update={"hash": commits[0].hash}), [*commits, *newer]


def _own_commit(context: Context, run: Run, newer: Sequence[Commit]) -> str | None:
    """Return the run's commit among newer ones: its answer was lost, or another process has published the run."""
    own = next((commit for commit in newer if run_of(commit) == run.run_id), None)
    publication = None if own is None else find_publication(context, run, since=own.parent)
    return None if publication is None else publication.commit


def _commit(
    context: Context, change: CommitRequest, head: Ref, confirm: Callable[[], None] | None, unanswered: _Unanswered
) -> str:
    change = change.model_copy(update={"namespaces": namespaces_for(context, change.puts, head)})
    failpoints.reach("before-commit")
    # As late as possible: a process that takes the run over relies on us not to commit after that.
    if confirm is not None:
        confirm()
    failpoints.reach("confirmed")
    try:
        with _interrupts_deferred(), unanswered.noted():
            return context.catalog.commit(change).hash
    except ConflictError as conflict:
        measure(RETRIES)
        raise _HeadMoved(conflict) from conflict
    except OutcomeUnknownError:
        raise _HeadMoved(unanswered.error) from None


@dataclass(slots=True)
class _Unanswered:
    """Whether a commit of the run got no answer, so that it may still be made.

    Attributes:
        error: The error to raise if we can't find out.
    """

    error: OutcomeUnknownError
    is_any: bool = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Remember the commit that the body makes if it gets no answer."""
        try:
            yield
        except (OutcomeUnknownError, KeyboardInterrupt):
            self.is_any = True
            raise

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Replace errors and interrupts of the body after which a commit may still be made."""
        try:
            yield
        except LakegateError as error:
            if not self.is_any or error is self.error or isinstance(error, _SETTLES):
                raise
            raise self.error from error
        except KeyboardInterrupt as interrupt:
            if not self.is_any:
                raise
            raise UnansweredCommitInterrupt from interrupt


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM after the body, when we know whether it committed. A second signal isn't deferred."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    current = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in current.items() if callable(handler)}
    received: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        if received:
            handlers[signal.Signals(number)](number, frame)
        received.append(number)

    try:
        for number in handlers:
            signal.signal(number, defer)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            handlers[signal.Signals(received[0])](received[0], None)
