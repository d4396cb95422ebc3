"""Keep the journal's copy of the ledger up to date, commit by commit, or rebuild it from the whole history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakegate.context import Context
from lakegate.ledger.event import PastCommit, past_commit
from lakegate.model.refs import Ref
from lakegate.ports import Step

_PROGRESS_EVERY = 100


def sync(context: Context, target: str) -> Ref:
    """Record the commits of ``target`` that the journal hasn't read yet, and return the head up to which it has now.

    The journal is rebuilt from the whole history if it's new, or if the target has lost the last commit that it had
    read, or the commit of a run that has ended since.

    Raises:
        NewerFormatError: When a commit is in an unknown format, so that its source files could be published a second
            time. The journal doesn't change.
    """
    if context.downstreams:
        # First, so that events recorded now are also queued for a system that is new in the settings.
        context.journal.outbox.register([one.subscription for one in context.downstreams])
    # In this order: if the head were read first, commits that others record in between would look like a reset.
    known, unread = context.journal.synced_and_unread(target)
    head = context.catalog.get_ref(target)
    if known == head.hash and not unread:
        return head
    past = History((), whole=False) if known == head.hash else read_history(context, head.hash, until=known)
    ended_with = () if past.whole else unread - {commit.hash for commit in past.commits}
    if not all(context.journal.commits.has(target, commit) for commit in ended_with):
        past = read_history(context, head.hash)  # the target has lost the commit that a run ended with
    gone = frozenset[str]()
    if known is not None and past.whole:
        # The branch was reset and lost the commit that we knew: only its current history counts.
        published = context.journal.published()
        if context.catalog.get_ref(target).hash != head.hash:
            return sync(context, target)
        gone = published - past.runs
    if not context.journal.record(
        target, past.commits, head.hash, rebuild=past.whole, known=known, gone=gone, unread=unread
    ):
        return sync(context, target)  # another process rebuilt it while we read
    return head


@dataclass(frozen=True)
class History:
    """The commits of a branch, oldest first, as far as they were read.

    Attributes:
        whole: Whether this is the branch's whole history, from its first commit on.
    """

    commits: Sequence[PastCommit]
    whole: bool

    @property
    def runs(self) -> set[str]:
        """The runs that made them."""
        return {commit.event.run for commit in self.commits if commit.event is not None}


def read_history(context: Context, head: str, *, until: str | None = None, step: Step | None = None) -> History:
    """Read the history of ``head`` back to ``until``; all of it if it doesn't contain ``until``.

    Raises:
        NewerFormatError: When a commit is in an unknown format.
    """
    newest_first: list[PastCommit] = []
    oldest: str | None = None
    for commit in context.catalog.history(head, until=until):
        newest_first.append(past_commit(commit))
        oldest = commit.parent
        if step is not None and len(newest_first) % _PROGRESS_EVERY == 0:
            step.progress(len(newest_first), 0, "commits")
    return History(newest_first[::-1], whole=until is None or oldest != until)
