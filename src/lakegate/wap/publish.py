"""Publish: one commit on the target that carries exactly what was audited, or nothing.

This isn't a merge: Nessie can't merge two branches that changed the same table, and a merge's expected hash isn't a
lock (projectnessie/nessie#2513). The catalog detects conflicts in each table since the head that the commit is based
on. Tables that changed before that head are rebased, and checks that read them run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from lakegate.context import Context
from lakegate.errors import (
    AlreadyExistsError,
    AuditFailedError,
    ConflictError,
    LakegateError,
    NotFoundError,
    OutcomeUnknownError,
)
from lakegate.ledger.event import Event, as_properties, effects_on, mode_of, past_commit
from lakegate.ledger.publication import find_publication, publication_of, require_not_published
from lakegate.model.checks import AuditReport
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, CommitRequest, Ref, TablePointer
from lakegate.model.run import (
    Publication,
    Run,
    StagedTable,
    changed_rows,
    published_tables,
    total_removed,
)
from lakegate.wap import failpoints
from lakegate.wap.audit import recheck_table
from lakegate.wap.commit_loop import commit_change
from lakegate.wap.deadline import NEVER
from lakegate.wap.discard import discard, discard_own
from lakegate.wap.rebase import not_replayable, rebase
from lakegate.wap.session import RunSession
from lakegate.wap.stage import kept_writing

TableStates = Mapping[TableIdentifier, TablePointer | None]
_MOST_NAMED = 5


class RejectedLateError(AuditFailedError):
    """A check that passed on the branch fails against the current target."""


class BranchChangedError(ConflictError):
    """Somebody has written to a run's branch since its audit."""


def publish(
    context: Context,
    run: Run,
    *,
    fresh: bool = False,
    session: RunSession | None = None,
) -> Publication:
    """Publish the audited state of every table of ``run`` in one commit, exactly once, and drop its branch.

    Called again after it succeeded, it finds that commit and returns the same publication.

    Args:
        run: The run, with ``staged`` and ``reports`` in the same order.
        fresh: Whether this is certainly the first attempt, so that the target can't have the run's commit yet.
        session: The run in progress. Its lease is checked right before each commit, and it records the reports of
            rerun checks.

    Raises:
        AuditFailedError: When a report has failures or isn't about the state to publish.
        RejectedLateError: When checks of scope ``table`` fail against the current target.
        NotReplayableError: When a table changed on the target in a way that rules out a rebase.
        ConflictError: When the branch changed after its audit, another run has published one of the source files, or
            the target kept moving.
        OutcomeUnknownError: When the catalog became unavailable during the commit and isn't back.
    """
    for staged, report in zip(run.staged, run.reports, strict=True):
        _require_audited(run, staged, report)
    deadline = NEVER if session is None else session.deadline
    publication = None if fresh else find_publication(context, run)
    branch = None
    if publication is None:
        branch = require_untouched(context, run)
        failpoints.reach("before-publish")
        unknown = OutcomeUnknownError(
            f"The catalog became unavailable while branch {run.branch} was being published; it may or may not be "
            "published.",
            hint=f"When the catalog is back: lakegate publish {run.branch} (it never publishes twice)",
            branch=run.branch,
            run_id=run.run_id,
        )
        with context.narrator.step(f"Publishing {run.table} to {run.target}"):
            author = _StagedRun(context, run, session)
            commit = commit_change(
                context,
                run,
                author,
                unknown=unknown,
                confirm=None if session is None else session.require_lease,
                wait_s=deadline.left_s,
            )
        publication = publication_of(run, str(commit), replayed=author.replayed)
    failpoints.reach("after-publish")
    branch_left = False
    try:
        _drop_branch(context, run, branch)
    except LakegateError as error:
        # Untidy, but not wrong: the data is published.
        context.narrator.note(f"Branch {run.branch} couldn't be dropped: {error.message}")
        branch_left = True
    failpoints.reach("after-branch-delete")
    return publication.model_copy(update={"branch_left": branch_left})


def _drop_branch(context: Context, run: Run, seen: Ref | None) -> None:
    if seen is None and not run.is_users_branch:
        # An earlier attempt published it, and may have dropped its branch: one of that name may be somebody else's.
        with suppress(AlreadyExistsError):
            discard_own(context, run)
        return
    try:
        discard(context, run.branch, seen=seen)
    except ConflictError:
        now = context.catalog.get_ref(run.branch)
        if not kept_writing(context, run):
            raise
        discard(context, run.branch, seen=now)  # the late commits come from another attempt at the published run


class _StagedRun:
    """The author that publishes a staged run. It keeps what it has read of the target's tables between attempts.

    Attributes:
        replayed: Tables that the last change rebases onto a newer state.
    """

    def __init__(self, context: Context, run: Run, session: RunSession | None) -> None:
        self._context = context
        self._run = run
        self._session = session
        self._reports = run.reports
        self._base = run.base or run.staged[0].base
        self._checked_at = {report.table: report.at or self._base for report in run.reports}
        self._states: TableStates = {}
        self.replayed: tuple[TableIdentifier, ...] = ()

    @property
    def states(self) -> Sequence[tuple[TablePointer | None, TablePointer]]:
        """What the run staged, with the state before."""
        return [(staged.before, staged.pointer) for staged in self._run.staged]

    def read_target(self) -> tuple[Ref, Sequence[Commit]]:
        """Read the states of the run's tables; and the history since its base, if one of them has changed."""
        read = [TableIdentifier.stored(name) for name in self._reads()]
        tables = dict.fromkeys([*(staged.table for staged in self._run.staged), *read])
        head, self._states = self._context.catalog.get_ref_with_tables(self._run.target, list(tables))
        if all(self._states[staged.table] == staged.before for staged in self._run.staged):
            return head, ()
        for staged in self._run.staged:  # read now, so that the rebase needn't under the lock
            self._context.reader.require_loadable(staged.pointer, self._run.branch)
        return head, list(self._context.catalog.history(head.hash, until=self._base))

    def change(self, head: Ref, newer: Sequence[Commit]) -> CommitRequest:
        """Rebase each table onto its state at ``head``. Checks that read what has changed since run again."""
        run = self._run
        require_not_published(run, [past_commit(commit) for commit in reversed(newer)])
        self._states = _states_after(self._states, newer)
        self._require_reads(head)
        self._recheck(head)
        states = self._states
        pointers = [rebase(self._context, run, staged, states[staged.table], head) for staged in run.staged]
        self.replayed = tuple(staged.table for staged in run.staged if states[staged.table] != staged.before)
        return CommitRequest(
            branch=run.target,
            base=head.hash,
            message=_message(run),
            puts=tuple(pointers),
            unchanged=tuple(TableIdentifier.stored(name) for name in self._reads()),
            properties=as_properties(self._event()),
        )

    def _reads(self) -> tuple[str, ...]:
        by_checks = [table for report in self._reports for table in report.reads]
        return tuple(dict.fromkeys([*self._run.reads, *by_checks]))

    def _relied_on(self) -> tuple[str, ...]:
        """Return the tables whose rows this run's outcome depends on."""
        # A key that was new to the table stays new when other rows are removed.
        results = (one for report in self._reports for one in report.results if not one.check.startswith("unique("))
        return tuple(dict.fromkeys([*self._run.reads, *(table for one in results for table in one.reads)]))

    def _new_keys(self) -> tuple[str, ...]:
        """Return the run's own tables whose keys it checked as new; rows restored there later could repeat them."""
        return tuple(
            report.table
            for report in self._reports
            if any(one.reads and one.check.startswith("unique(") for one in report.results)
        )

    def _require_reads(self, head: Ref) -> None:
        """Check that no table that the run's rows were computed from has changed on the target."""
        if self._run.reads and head.hash != self._base:
            moved = self._changed_since(self._run.reads, self._base)
            if moved:
                raise not_replayable(self._context, self._run, moved[0], _why_read(self._run))

    def _recheck(self, head: Ref) -> None:
        """Rerun the checks that read a table that has changed since the audit."""
        if not any(report.reads for report in self._reports):
            return
        run, reports = self._run, []
        for staged, report in zip(run.staged, self._reports, strict=True):
            moved = {str(table) for table in self._changed_since(report.reads, self._checked_at[report.table])}
            again = recheck_table(self._context, run, staged, report, moved=moved, at=head) if moved else report
            reports.append(again)
            self._checked_at[report.table] = head.hash
        self._reports = tuple(reports)
        if self._session is not None:
            self._session.update(reports=self._reports)
        if run.accepted is None and not all(report.passed for report in reports):
            failing = [result for report in reports for result in report.failures]
            if run.kind == "ingest" and all(result.severity == "quarantine" for result in failing):
                # If the run starts over on the current target, it quarantines these rows.
                reason = f"more of its rows fail {failing[0].name} now, which quarantines them"
                raise not_replayable(self._context, run, run.staged[0].table, reason)
            failed = ", ".join(result.name for report in reports for result in report.failures)
            raise RejectedLateError(
                f"Branch {run.branch} isn't published: {run.table} fails {failed} against the current {run.target}.",
                hint=f"lakegate runs {run.run_id}",
                branch=run.branch,
                run_id=run.run_id,
                commit=head.hash,
            )

    def _changed_since(self, names: Sequence[str], since: str) -> list[TableIdentifier]:
        """Return the tables whose state has changed since the commit ``since``."""
        tables = [TableIdentifier.stored(name) for name in names]
        then = self._context.catalog.get_tables(tables, Ref.detached(since))
        moved = (table for table in tables if then[table] != self._states[table])
        # Expiring snapshots changes no rows.
        return [
            table for table in moved if self._context.reader.change(then[table], self._states[table]).kind != "expire"
        ]

    def _event(self) -> Event:
        run, request = self._run, self._run.request
        files = () if request is None else tuple((file.uri, file.version) for file in request.own_files)
        removes = run.reverts if request is None else request.replaces
        changes = (f"{one.table}: {change}" for one in run.staged for change in one.schema_changes)
        return Event(
            run=run.run_id,
            kind=run.kind,
            tables=effects_on(run.tables, run.run_id, files, removes),
            branch=run.branch,
            audit=_summary(self._reports),
            accepted=run.accepted,
            reads=self._relied_on(),
            keys=tuple(map(str, self._new_keys())),
            mode=mode_of(run) or "",
            columns="; ".join(changes),
            slice=run.slice,
        )


def _message(run: Run) -> str:
    staged = run.staged
    changed = changed_rows(sum(one.rows for one in published_tables(staged)), total_removed(staged))
    changes = [str(change) for one in staged for change in one.schema_changes]
    if changes and all(one.change == "metadata" for one in staged):
        changed = ", ".join(changes[:_MOST_NAMED]) + (", …" if len(changes) > _MOST_NAMED else "")
    mode = mode_of(run)
    changed = f"{mode}: {changed}" if mode else changed
    quarantined = f", {run.quarantined:,} quarantined" if run.quarantined else ""
    return f"Publish {run.name or run.table} ({changed}{quarantined})"


def _why_read(run: Run) -> str:
    mode = mode_of(run)
    return "this run read it" if mode is None else f"what mode {mode} writes depends on its rows"


def _states_after(states: TableStates, newest_first: Sequence[Commit]) -> TableStates:
    """Return the tables' states after the commits that followed ``states``."""
    now = dict(states)
    for commit in reversed(newest_first):
        left = {pointer.table: pointer for pointer in commit.puts}
        now |= {table: left.get(table) for table in now if str(table) in commit.tables}
    return now


def _require_audited(run: Run, staged: StagedTable, report: AuditReport) -> None:
    """Check that the report is about the state to publish, and that it passed or was accepted."""
    branch, table = staged.branch, str(staged.table)
    if report.metadata_location != staged.pointer.metadata_location:
        raise AuditFailedError(
            f"The current state of {table} on branch {branch} hasn't been audited.",
            hint=f"lakegate audit {table} --branch {branch}",
            branch=branch,
            table=table,
        )
    if not report.passed and run.accepted is None:
        failed = ", ".join(result.name for result in report.failures)
        raise AuditFailedError(
            f"Branch {branch} isn't published: {table} failed {failed}.",
            hint=f"See why: lakegate runs {staged.run_id}. To drop it: lakegate discard {branch}. To publish it "
            f'anyway: lakegate publish {branch} --accept "REASON"',
            branch=branch,
            table=table,
        )


def require_untouched(context: Context, run: Run) -> Ref:
    """Check that the branch holds what the run staged and nothing else, and return it.

    Raises:
        BranchChangedError: When somebody else has written to it.
        NotFoundError: When it's gone.
    """
    head, branch = run.staged[0].head, run.branch
    try:
        commits = list(context.catalog.history(branch, until=head, operations=True))
    except NotFoundError as error:
        if any(ref.name == branch for ref in context.catalog.list_refs()):
            raise
        raise NotFoundError(
            f"Branch {branch} of run {run.run_id} was dropped before it was published. Nothing was published.",
            hint=f"Somebody may have discarded it: lakegate runs {run.run_id}",
            branch=branch,
            run_id=run.run_id,
        ) from error
    was_reset = bool(commits) and commits[-1].parent != head
    # Of our own commits since then, those that store the run change nothing. Nor does a namespace that somebody adds.
    names = [run.table] if was_reset else [name for commit in commits for name in commit.tables if "." in name]
    if names:
        audited = {str(staged.table) for staged in run.staged}
        other = next((name for name in names if name in audited), names[0])
        raise BranchChangedError(
            f"{other} changed on branch {branch} after it was {'audited' if run.reports else 'written'}."
            if other in audited
            else f"Branch {branch} also changed {other}, which hasn't been audited.",
            hint=f"lakegate audit {other} --branch {branch}",
            branch=branch,
            table=other,
        )
    return Ref(name=branch, hash=commits[0].hash if commits else head)


def _summary(reports: Sequence[AuditReport]) -> str:
    results = [result for report in reports for result in report.results]
    warned = sum(len(report.warnings) for report in reports)
    failed = sum(len(report.failures) for report in reports)
    text = f"{len(results) - warned - failed} passed, {warned} warned"
    return f"{text}, {failed} failed" if failed else text
