"""Rebuild a lost journal from the catalog: what the target's commits and the branches of rejected runs say."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile

from lakegate.context import Context
from lakegate.errors import NewerFormatError, RetryableError
from lakegate.ledger.sync import History, read_history
from lakegate.model.maintenance import RebuiltJournal
from lakegate.model.refs import Ref
from lakegate.model.run import Run
from lakegate.ports import Overlay
from lakegate.wap.branches import stored_runs_in


def rebuild(context: Context, target: str) -> RebuiltJournal:
    """Rebuild the journal's record of published files from all commits of ``target``.

    Rejected runs that the journal doesn't know are read from their branches, except those of a newer lakegate. A
    catalog without branches has no history but the journal's own: there, what's published is accepted as it is.

    Raises:
        NewerFormatError: When a commit of ``target`` names source files in an unknown format.
        RetryableError: When the catalog or the journal is unavailable; the journal is unchanged then.
    """
    with context.narrator.step(f"Reading the history of {target}") as step:
        (known, unread), published = context.journal.synced_and_unread(target), context.journal.published()
        head = context.catalog.get_ref(target)
        past = read_history(context, head.hash, step=step)
    with context.narrator.step("Reading the branches of rejected runs"):
        rejected = _rejected_runs(context, target, {commit.hash for commit in past.commits})
    with context.narrator.step("Writing the journal"):
        while not context.journal.record(
            target,
            past.commits,
            head.hash,
            rebuild=True,
            known=known,
            gone=published - past.runs,
            unread=unread,
        ):
            known = context.journal.synced(target)
            head, past = _with_newer(context, target, past, head)
        for run in rejected:
            with suppress(RetryableError):  # another process has started it, and knows more
                context.journal.end(run, context.journal.begin(run, anew=True))
    lost = ""
    if isinstance(context.catalog, Overlay):
        context.catalog.accept_past()
        lost = (
            "The catalog has no history, so what a lost journal knew is lost: branches, tags, earlier commits, and "
            "which source files are published. The tables are accepted as they are; files that were published "
            "before would be ingested again."
        )
    return RebuiltJournal(
        lost=lost,
        head=head,
        commits=len(past.commits),
        runs=len(past.runs),
        files=context.journal.count()[1],
        rejected=len(rejected),
    )


def _with_newer(context: Context, target: str, past: History, head: Ref) -> tuple[Ref, History]:
    """Return the target's head now, and the history up to it."""
    now = context.catalog.get_ref(target)
    if now.hash == head.hash:
        return head, past
    newer = read_history(context, now.hash, until=head.hash)
    return now, newer if newer.whole else replace(past, commits=[*past.commits, *newer.commits])


def _rejected_runs(context: Context, target: str, commits: Collection[str]) -> list[Run]:
    """Return the rejected runs that are stored on their branches but not in the journal."""
    found = []
    for ref in context.catalog.list_refs():
        if ref.kind != "branch" or ref.name == target or ref.hash in commits:
            continue
        own = list(takewhile(lambda commit: commit.hash not in commits, context.catalog.history(ref.hash)))
        try:
            stored = stored_runs_in(ref.name, own)
        except NewerFormatError as error:  # this doesn't affect what's published
            context.narrator.note(error.message)
            continue
        for run in stored:
            if run.failures and run.branch == ref.name and context.journal.get(run.run_id) is None:
                kept = {"status": "rejected", "branch_kept": True, "finished_at": own[0].time}
                found.append(run.model_copy(update={**kept, "detail": "Known from its branch only."}))
    return found
