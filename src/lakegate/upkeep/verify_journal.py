"""Compare the journal with ``main``'s history: runs, source files and leases. Also find commits that no run made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from lakegate.context import Context
from lakegate.journal.history import outcomes, with_outcome
from lakegate.journal.pages import PageCursor, RunFilter
from lakegate.ledger.event import PastCommit, past_commit, unreadable_in
from lakegate.ledger.fold import FileKey, Ledger, fold
from lakegate.model.maintenance import VerifyFinding
from lakegate.model.refs import MAIN, TORN_PROPERTY, Commit, Ref
from lakegate.model.run import Run
from lakegate.model.words import counted
from lakegate.ports import Overlay, Step

_PROGRESS_EVERY = 100
_RUNS_AT_ONCE = 500
_FILES_AT_ONCE = 10_000
_SHOWN = 12
_REBUILD = "Read it again from main's commits: lakegate admin journal rebuild"


@dataclass
class MainCommits:
    """``main``'s commits, read once.

    Attributes:
        tables: Names of the tables to verify; empty for all.
        since: Report commits that no run made only after this commit; ``None`` for all of them.
        commits: Number of commits.
        runs: The commit that published each run, by run id.
        head: The newest commit.
        past: The commits, newest first.
        unread: How many of the newest ``past`` ones the journal hasn't read yet; ``None`` if it hasn't read any.
        findings: Problems with the commits themselves.
        _compactions: Commits by Iceberg that a later commit says a run made.
    """

    context: Context
    tables: Collection[str]
    since: Ref | None
    commits: int = 0
    runs: dict[str, str] = field(default_factory=dict)
    head: str = ""
    past: list[PastCommit] = field(default_factory=list)
    unread: int | None = None
    findings: list[VerifyFinding] = field(default_factory=list)
    _compactions: set[str] = field(default_factory=set)

    def is_wanted(self, tables: Collection[str]) -> bool:
        """Return whether one of ``tables`` is to be verified."""
        return not self.tables or not set(tables).isdisjoint(self.tables)

    def read(self, synced: str | None, step: Step) -> None:
        """Read all commits; ``synced`` is the last one that the journal has read."""
        if isinstance(self.context.catalog, Overlay):
            self.context.catalog.notice_all()
        self.head = self.context.catalog.get_ref(MAIN).hash
        is_new = True
        for commit in self.context.catalog.history(self.head, operations=True):
            self.commits += 1
            if commit.hash == synced:
                self.unread = len(self.past)
            is_new = is_new and (self.since is None or commit.hash != self.since.hash)
            self._add(commit, is_new=is_new)
            if self.commits % _PROGRESS_EVERY == 0:
                step.progress(self.commits, 0, "commits")
        if synced is not None and self.unread is None and synced != self.head:
            self.findings.append(
                VerifyFinding(
                    kind="journal-ahead",
                    message=f"The journal has read main up to commit {synced[:_SHOWN]}, which isn't in main's history: "
                    "main was reset, or restored from a backup.",
                    fix=_REBUILD,
                    commit=synced,
                )
            )

    def _add(self, commit: Commit, *, is_new: bool) -> None:
        reason = unreadable_in(commit)
        if reason is not None:
            fix = "pip install --upgrade lakegate"
            self.findings.append(VerifyFinding(kind="newer-format", message=reason, fix=fix, commit=commit.hash))
            return
        past = past_commit(commit)
        self.past.append(past)
        if past.event is not None:
            self.runs[past.event.run] = commit.hash
            self._compactions.add(past.event.compaction)
        is_foreign = is_new and past.event is None and commit.hash not in self._compactions
        if is_foreign and (changed := self._changed(commit)):
            self.findings.append(_foreign(commit, changed))

    def _changed(self, commit: Commit) -> list[str]:
        """Return the tables, views and other content that a commit changed, but not namespaces: they hold no rows."""
        changed = {str(pointer.table) for pointer in commit.puts}
        others = set(commit.tables) - changed
        for at in (commit.hash, commit.parent) if others else ():
            ref = None if at is None else Ref.detached(at)
            others -= set() if ref is None else {".".join(one) for one in self.context.catalog.list_namespaces(ref)}
        return sorted(one for one in changed | others if self.is_wanted((one,)))


def _foreign(commit: Commit, changed: list[str]) -> VerifyFinding:
    named = ", ".join(changed)
    if commit.properties.get(TORN_PROPERTY):
        return VerifyFinding(
            kind="torn-publish",
            message=f"Commit {commit.hash[:_SHOWN]} has a part of a publish of run {commit.properties[TORN_PROPERTY]}: "
            f"{named} got its rows, its other tables didn't, and somebody else has changed {named} since.",
            fix="Remove them by a transaction. Or, if later changes of the table may go, too: "
            f"lakegate table restore {changed[0]} --at {(commit.parent or '')[:_SHOWN]}",
            table=changed[0],
            run_id=commit.properties[TORN_PROPERTY],
            commit=commit.hash,
        )
    undo = f". To undo it: lakegate table restore {changed[0]} --at {commit.parent[:_SHOWN]}" if commit.parent else ""
    return VerifyFinding(
        kind="foreign-commit",
        message=f"Commit {commit.hash[:_SHOWN]} on main changed {named} without a run, and so without an audit "
        f"({commit.author}: {commit.message.partition(chr(10))[0]}).",
        fix="If it's right, pass --since with a later commit, or with a tag at one. "
        f"To review it: lakegate log {commit.hash[:_SHOWN]} --limit 1{undo}",
        table=changed[0],
        commit=commit.hash,
    )


def journal_findings(context: Context, history: MainCommits, step: Step) -> Iterator[VerifyFinding]:
    """Read ``main``'s commits into ``history``, and yield the differences between them and the journal."""
    # The journal first: what it records while the commits are read must not look like a difference.
    synced = context.journal.synced(MAIN)
    ended, published = list(_ended_runs(context)), set(_published_files(context))
    history.read(synced, step)
    yield from history.findings
    lost = (*context.journal.abandoned(), *context.journal.without_lease())
    yield from (_lost(run) for run in lost if history.is_wanted(run.tables))
    for run in ended:
        if run.run_id not in history.runs and history.is_wanted(run.tables):
            commit = run.publication.commit if run.publication is not None else None
            named = f"commit {commit[:_SHOWN]}" if commit else "no commit"
            yield VerifyFinding(
                kind="run-without-commit",
                message=f"By the journal, run {run.run_id} is {run.status} on main ({named}), but main has no commit "
                "of this run.",
                fix=_REBUILD,
                table=next(iter(run.tables), None),
                run_id=run.run_id,
                commit=commit,
            )
    if history.unread is not None:
        # What the journal had read before, and what it may have read since.
        ledgers = [fold(history.past[start::][::-1]) for start in sorted({history.unread, 0}, reverse=True)]
        yield from _differing_runs(context, history, ledgers)
        yield from _differing_files(history, ledgers, published)


def _ended_runs(context: Context) -> Iterator[Run]:
    """Yield the runs that the journal has as published to ``main``."""
    for status in ("published", "reverted"):
        after: PageCursor | None = None
        while True:
            page, after = context.journal.pages.runs(
                RunFilter(status=status), limit=_RUNS_AT_ONCE, after=after, whole=False
            )
            yield from (run for run in page if run.target == MAIN)
            if after is None:
                break


def _lost(run: Run) -> VerifyFinding:
    of = f" of {run.table}" if run.tables else ""  # a transaction has no tables before it writes
    return VerifyFinding(
        kind="lost-lease",
        message=f"Run {run.run_id}{of} is {run.status}, but its process is gone.",
        fix=f"Finish or undo it: lakegate admin recover {run.run_id}",
        table=next(iter(run.tables), None),
        run_id=run.run_id,
    )


def _differing_runs(context: Context, history: MainCommits, ledgers: Sequence[Ledger]) -> Iterator[VerifyFinding]:
    by_commits = [outcomes([ledger], ledger.runs) for ledger in ledgers]
    run_ids = list(by_commits[0])
    for start in range(0, len(run_ids), _RUNS_AT_ONCE):
        batch = run_ids[start : start + _RUNS_AT_ONCE]
        known = context.journal.pages.runs_of(batch, whole=False)
        for run_id in batch:
            was = known.get(run_id)
            expected = [with_outcome(was, run_id, known_runs[run_id], MAIN) for known_runs in by_commits]
            now = expected[-1]
            if now is None or not history.is_wanted(now.tables) or any(_is_same(was, one) for one in expected):
                continue
            commit = _commit_of(now) or history.runs.get(run_id)
            says = "the journal doesn't know it"
            if was is not None:
                there = _commit_of(was)
                other = f" (commit {there[:_SHOWN]})" if there not in (None, commit) else ""
                says = f"by the journal, it's {was.status}{other}"
            yield VerifyFinding(
                kind="unknown-run" if was is None else "differing-run",
                message=f"By main's commits, run {run_id} is {now.status}"
                f"{f' (commit {commit[:_SHOWN]})' if commit else ''}; {says}.",
                fix=_REBUILD,
                table=now.tables[0] if now.tables else None,
                run_id=run_id,
                commit=commit,
            )


def _is_same(was: Run | None, now: Run | None) -> bool:
    """Return whether both have the same status and commit. ``reverted_by`` may differ if two runs reverted the run."""
    if was is None or now is None:
        return was is now
    return was.status == now.status and _commit_of(was) in (None, _commit_of(now))


def _commit_of(run: Run) -> str | None:
    return None if run.publication is None else run.publication.commit


def _differing_files(
    history: MainCommits, ledgers: Sequence[Ledger], published: Collection[FileKey]
) -> Iterator[VerifyFinding]:
    """Yield differences in which source files are published, and so in what an ingest skips."""
    extra = [key for key in published if all(key not in ledger.files for ledger in ledgers)]
    lacking = sorted(key for key in ledgers[0].files if key in ledgers[-1].files and key not in published)
    for keys, how in (
        (extra, "by the journal, but not by main's commits: an ingest would skip it"),
        (lacking, "by main's commits, but not by the journal: an ingest might publish it again"),
    ):
        by_table = defaultdict[str, list[str]](list)
        for table, uri, _ in keys:
            by_table[table].append(uri)
        for table, uris in by_table.items():
            if history.is_wanted((table,)):
                yield VerifyFinding(
                    kind="source-files",
                    message=f"{counted(len(uris), 'source file')}: {uris[0]} is published to {table} {how}.",
                    fix=_REBUILD,
                    table=table,
                    files=tuple(uris),
                    number=len(uris),
                )


def _published_files(context: Context) -> Iterator[FileKey]:
    """Yield each source file that the journal has as published."""
    before: int | None = None
    while True:
        page = context.journal.pages.files(limit=_FILES_AT_ONCE, before=before)
        yield from ((file.table, file.uri, file.version) for file in page if file.published)
        if len(page) < _FILES_AT_ONCE:
            return
        before = page[-1].number
