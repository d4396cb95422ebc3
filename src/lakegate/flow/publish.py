"""Publish: one commit on the target that carries exactly what was audited, or nothing.

Not a merge: Nessie merges no two branches that touched one table, and a merge's expected hash is no lock
(projectnessie/nessie#2513). A commit's conflicts are checked key by key since its base, which is the head that was
looked at; what moved before that is replayed, and what relied on it is audited again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from lakegate.errors import AuditFailedError, ConflictError, LakegateError, OutcomeUnknownError
from lakegate.flow import faults
from lakegate.flow.audit import audit_again
from lakegate.flow.discard import discard
from lakegate.flow.history import (
    AUDIT_PROPERTY,
    BRANCH_PROPERTY,
    FILES_PROPERTY,
    READS_PROPERTY,
    REVERTS_PROPERTY,
    TABLES_PROPERTY,
    encode_files,
)
from lakegate.flow.onhead import commit_on_head, turns
from lakegate.flow.onto import Onto, put_onto
from lakegate.flow.rivals import not_replayable, require_not_published
from lakegate.flow.rooms import Rooms
from lakegate.flow.stage import missing_namespaces
from lakegate.model.checks import AuditReport
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Publication, Run, StagedTable

States = Mapping[TableIdentifier, TablePointer | None]


class RejectedLateError(AuditFailedError):
    """A check that had passed fails on what the target became meanwhile; ``reports`` are the run's, as of now."""

    def __init__(self, message: str, *, reports: tuple[AuditReport, ...], hint: str, **context: object) -> None:
        super().__init__(message, hint=hint, **context)
        self.reports = reports


def publish(
    rooms: Rooms,
    run: Run,
    *,
    fresh: bool = False,
    require_lease: Callable[[], None] | None = None,
    note_reports: Callable[[tuple[AuditReport, ...]], None] | None = None,
) -> Publication:
    """Make the audited state of every table of ``run`` visible in one commit, once, and drop its branch.

    Called again after it succeeded, it finds its commit.

    Args:
        rooms: The lake's rooms.
        run: Its ``staged`` tables and their ``reports``, in the same order.
        fresh: Whether this is surely the first time: then the target's history is not asked for the run's commit.
        require_lease: Called before each attempt; raises when somebody else has taken the run over.
        note_reports: Called with the run's reports when checks were answered again.

    Raises:
        AuditFailedError: When a report has failures or is not about the state that is to be published; as
            :class:`RejectedLateError` when checks of scope ``table`` fail on what the target is now.
        NotReplayableError: When the target changed on a table in a way that the run cannot be put on top of.
        ConflictError: When the branch changed after its audit, a source file was published by another run meanwhile,
            or the target never stood still.
        OutcomeUnknownError: When the catalog went away with the commit and has not come back.
    """
    for staged, report in zip(run.staged, run.reports, strict=True):
        _require_passed(staged, report)
    publication = None if fresh else find_publication(rooms, run)
    branch = None
    if publication is None:
        branch = _require_untouched(rooms, run)
        faults.reach("before-publish")
        with rooms.narrator.step(f"Publishing {run.table} to {run.target}"), turns(rooms, run.target, run.tables):
            attempt = _Attempt(rooms, run, note_reports)
            publication = _publish(rooms, run, attempt, require_lease)
    faults.reach("after-publish")
    left = not _delete_branch(rooms, run.branch, branch)
    faults.reach("after-branch-delete")
    return publication.model_copy(update={"branch_left": left})


def find_publication(rooms: Rooms, run: Run, *, since: str | None = None) -> Publication | None:
    """Return the run's publication as the target's history has it since ``since`` (default: its base), or ``None``."""
    until = since or run.base
    if until is None:
        return None
    for commit in rooms.catalog.history(run.target, until=until, run_id=run.run_id):
        return _publication(run, commit.hash)
    return None


def _publish(rooms: Rooms, run: Run, attempt: _Attempt, require_lease: Callable[[], None] | None) -> Publication:
    commit = commit_on_head(
        rooms,
        run.target,
        run.run_id,
        attempt.build,
        unknown=lambda: _unknown(run),
        look=attempt.look,
        require_lease=require_lease,
    )
    return _publication(run, commit, replayed=attempt.replayed)


def _unknown(run: Run) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"The catalog went away while branch {run.branch} was published; it may or may not have happened.",
        hint=f"When the catalog is back: lakegate publish {run.branch} (it never publishes twice)",
        branch=run.branch,
        run_id=run.run_id,
    )


class _Attempt:
    """Puts the run on top of the target, and remembers between tries how much of its history it has seen.

    Attributes:
        replayed: Tables that were replayed in the last try.
    """

    def __init__(self, rooms: Rooms, run: Run, note_reports: Callable[[tuple[AuditReport, ...]], None] | None) -> None:
        self._rooms = rooms
        self._run = run
        self._note_reports = note_reports or _nothing
        self._reports = run.reports
        self._seen = run.base or run.staged[0].base
        self._checked_at = {report.table: report.at or self._seen for report in run.reports}
        self._states: States = {}
        self.replayed: tuple[TableIdentifier, ...] = ()

    def look(self) -> Ref:
        """Return the target as it is now, and remember its tables for :meth:`build`."""
        head, self._states = self._rooms.catalog.get_ref_with_tables(self._run.target, self._tables())
        return head

    def build(self, head: Ref) -> CommitRequest | str:
        """Return what to commit on top of ``head``, or the run's commit when it is there already."""
        rooms, run, states = self._rooms, self._run, self._states
        self.replayed = ()
        published = self._look_at_history(head, states)
        if published is not None:
            return published
        self._require_reads(head, states)
        self._audit_again(head, states)
        onto = [put_onto(rooms, run, staged, states[staged.table], head) for staged in run.staged]
        self.replayed = tuple(one.pointer.table for one in onto if one.replayed)
        return self._request(head, onto)

    def _tables(self) -> list[TableIdentifier]:
        read = [TableIdentifier.parse(name) for name in self._reads()]
        return list(dict.fromkeys([*(staged.table for staged in self._run.staged), *read]))

    def _reads(self) -> tuple[str, ...]:
        by_checks = [table for report in self._reports for table in report.reads]
        return tuple(dict.fromkeys([*self._run.reads, *by_checks]))

    def _relied_on(self) -> tuple[str, ...]:
        """Return the tables whose rows must stay for this run's outcome to stay right."""
        by_checks = [
            table
            for report in self._reports
            for result in report.results
            for table in result.reads
            # That a key was new to the table stays true when other rows of the table go.
            if table != report.table or not result.check.startswith("unique(")
        ]
        return tuple(dict.fromkeys([*self._run.reads, *by_checks]))

    def _look_at_history(self, head: Ref, states: States) -> str | None:
        """Find out from what was committed since we last looked whether we are too late; or done already."""
        if head.hash == self._seen or not any(states[staged.table] != staged.before for staged in self._run.staged):
            return None
        commits = list(self._rooms.catalog.history(head.hash, until=self._seen))
        own = next((c for c in commits if c.properties.get(RUN_ID_PROPERTY) == self._run.run_id), None)
        if own is not None:
            # A commit whose answer was lost has arrived after we looked for it.
            return own.hash
        require_not_published(self._run, commits)
        self._seen = head.hash
        return None

    def _require_reads(self, head: Ref, states: States) -> None:
        """Stop when the target changed on a table that the run's rows were computed from."""
        run = self._run
        tables = [TableIdentifier.parse(name) for name in run.reads]
        base = run.base or run.staged[0].base
        if not tables or head.hash == base:
            return
        then = self._rooms.catalog.get_tables(tables, Ref(name=base, hash=base, kind="detached"))
        moved = next((table for table in tables if then[table] != states[table]), None)
        if moved is not None:
            raise not_replayable(self._rooms, run, moved, "this run has read it")

    def _audit_again(self, head: Ref, states: States) -> None:
        """Answer again what checks asked of tables that stand otherwise than when they were read."""
        if not any(report.reads for report in self._reports):
            return
        reports = []
        for staged, report in zip(self._run.staged, self._reports, strict=True):
            moved = self._moved(report, states)
            again = audit_again(self._rooms, self._run, staged, report, moved=moved, at=head) if moved else report
            reports.append(again)
            self._checked_at[report.table] = head.hash
        self._reports = tuple(reports)
        self._note_reports(self._reports)
        if not all(report.passed for report in reports):
            raise self._rejected(head)

    def _moved(self, report: AuditReport, states: States) -> set[str]:
        tables = [TableIdentifier.parse(name) for name in report.reads]
        checked_at = self._checked_at[report.table]
        then = self._rooms.catalog.get_tables(tables, Ref(name=checked_at, hash=checked_at, kind="detached"))
        return {str(table) for table in tables if then[table] != states[table]}

    def _rejected(self, head: Ref) -> RejectedLateError:
        run = self._run
        failed = ", ".join(result.name for report in self._reports for result in report.failures)
        return RejectedLateError(
            f"Branch {run.branch} is not published: {run.table} fails {failed} on what {run.target} is now.",
            reports=self._reports,
            hint=f"lakegate runs {run.run_id}",
            branch=run.branch,
            run_id=run.run_id,
            commit=head.hash,
        )

    def _request(self, head: Ref, onto: Sequence[Onto]) -> CommitRequest:
        run = self._run
        created = {one.pointer.table.namespace for one in onto if one.pointer.content_id is None}
        levels = {level for namespace in created for level in missing_namespaces(self._rooms, namespace, head)}
        reads = self._reads()
        properties = {
            RUN_ID_PROPERTY: run.run_id,
            BRANCH_PROPERTY: run.branch,
            TABLES_PROPERTY: " ".join(run.tables),
            AUDIT_PROPERTY: _summary(self._reports),
            READS_PROPERTY: " ".join(self._relied_on()),
        }
        if run.request is not None:
            properties[FILES_PROPERTY] = encode_files(run.request.batch.files)
            properties[REVERTS_PROPERTY] = " ".join(run.request.replaces)
        rows = sum(staged.rows for staged in run.staged)
        return CommitRequest(
            branch=run.target,
            base=head.hash,
            message=f"Publish {run.name or run.table} ({rows:,} rows)",
            puts=tuple(one.pointer for one in onto),
            unchanged=tuple(TableIdentifier.parse(name) for name in reads),
            namespaces=tuple(sorted(levels, key=len)),
            properties={key: value for key, value in properties.items() if value},
        )


def _publication(run: Run, commit: str, replayed: Sequence[TableIdentifier] = ()) -> Publication:
    return Publication(
        run_id=run.run_id,
        target=run.target,
        commit=commit,
        tables=run.tables,
        rows=sum(one.rows for one in run.staged),
        replayed=tuple(str(table) for table in replayed),
    )


def _require_passed(staged: StagedTable, report: AuditReport) -> None:
    if report.metadata_location != staged.pointer.metadata_location:
        raise AuditFailedError(
            f"What stands in {staged.table} on branch {staged.branch} has not been audited.",
            hint=f"lakegate audit {staged.table} --branch {staged.branch}",
            branch=staged.branch,
            table=str(staged.table),
        )
    if not report.passed:
        failed = ", ".join(result.name for result in report.failures)
        raise AuditFailedError(
            f"Branch {staged.branch} is not published: {staged.table} failed {failed}.",
            hint=f"lakegate audit {staged.table} --branch {staged.branch}",
            branch=staged.branch,
            table=str(staged.table),
        )


def _require_untouched(rooms: Rooms, run: Run) -> Ref:
    """Check that the branch holds what was audited and nothing else, and return it."""
    return _untouched_by_its_commits(rooms, run) or _untouched_by_difference(rooms, run)


def _untouched_by_its_commits(rooms: Rooms, run: Run) -> Ref | None:
    """Return the branch when its own commits, mostly one, prove that it holds what was audited and nothing else.

    Comparing it with its base takes longer the more tables there are, and has to tell only what is wrong.
    """
    audited: dict[str, str | None] = {str(one.table): one.pointer.metadata_location for one in run.staged}
    namespaces = {
        ".".join(level) for one in run.staged for level in accumulate((part,) for part in one.table.namespace)
    }
    head: str | None = None
    found: dict[str, str | None] = {}
    for commit in rooms.catalog.history(run.branch, until=run.staged[0].base, operations=True):
        head = head or commit.hash
        if commit.foreign or not audited.keys() | namespaces >= set(commit.tables):
            return None
        left = {str(pointer.table): pointer.metadata_location for pointer in commit.puts}
        for table in audited.keys() & set(commit.tables):
            found.setdefault(table, left.get(table))
    return Ref(name=run.branch, hash=head) if head is not None and found == audited else None


def _untouched_by_difference(rooms: Rooms, run: Run) -> Ref:
    base = run.staged[0].base
    branch = rooms.catalog.get_ref(run.branch)
    audited = {str(staged.table): staged.pointer.metadata_location for staged in run.staged}
    found = dict.fromkeys(audited, "")
    for difference in rooms.catalog.diff(Ref(name=base, hash=base, kind="detached"), branch):
        if difference.kind != "namespace":
            found[difference.table] = difference.right.metadata_location if difference.right else ""
    other = next((table for table, location in found.items() if audited.get(table) != location), None)
    if other is not None:
        raise ConflictError(
            f"{other} changed on branch {run.branch} after it was audited."
            if other in audited
            else f"{other} was written to branch {run.branch} too, and has not been audited.",
            hint=f"lakegate audit {other} --branch {run.branch}",
            branch=run.branch,
            table=other,
        )
    return branch


def _summary(reports: Sequence[AuditReport]) -> str:
    results = [result for report in reports for result in report.results]
    failed = sum(result.verdict == "fail" for result in results)
    return f"{len(results) - failed} passed, {failed} warned"


def _delete_branch(rooms: Rooms, name: str, seen: Ref | None) -> bool:
    """Try to drop a branch whose data is published; return whether it is gone."""
    # One that cannot be dropped now is untidy, not wrong.
    try:
        discard(rooms, name, seen=seen)
    except LakegateError as error:
        rooms.narrator.note(f"Branch {name} could not be dropped: {error.message}")
        return False
    return True


def _nothing(_: tuple[AuditReport, ...]) -> None:
    pass
