"""Publish: one commit on the target that carries exactly what was audited, or nothing.

Not a merge: Nessie merges no two branches that touched one table, and a merge's expected hash is no lock
(projectnessie/nessie#2513). A commit's conflicts are checked key by key since its base, which is.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakegate.errors import AuditFailedError, ConflictError, LakegateError, OutcomeUnknownError
from lakegate.flow import faults
from lakegate.flow.rooms import Rooms
from lakegate.flow.stage import missing_namespaces
from lakegate.model.checks import AuditReport
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Publication, StagedBatch

_ATTEMPTS = 5


def publish(rooms: Rooms, staged: Sequence[StagedBatch], reports: Sequence[AuditReport]) -> Publication:
    """Make the audited state of every staged table visible in one commit, once.

    All of ``staged`` are of one run and one branch. Called again after it succeeded, it finds its commit.

    Args:
        rooms: The lake's rooms.
        staged: What was written, a table each.
        reports: The audit of each, in the same order.

    Raises:
        AuditFailedError: When a report has failures, or is not about the state that is to be published.
        ConflictError: When the branch changed after its audit, or the target changed on one of the tables.
        OutcomeUnknownError: When the catalog went away with the commit and has not come back.
    """
    first = staged[0]
    for one, report in zip(staged, reports, strict=True):
        _require_passed(one, report)
    publication = find_publication(rooms, first, staged)
    if publication is None:
        _require_untouched(rooms, staged)
        faults.reach("before-publish")
        with rooms.narrator.step(f"Publishing {', '.join(str(s.table) for s in staged)} to {first.target}"):
            publication = _commit(rooms, staged, reports)
    faults.reach("after-publish")
    _delete_branch(rooms, first.branch)
    faults.reach("after-branch-delete")
    return publication


def find_publication(rooms: Rooms, first: StagedBatch, staged: Sequence[StagedBatch]) -> Publication | None:
    """Return the run's publication as the target's history since the run's base has it, or ``None``."""
    for commit in rooms.catalog.history(first.target, until=first.base, run_id=first.run_id):
        return _publication(commit.hash, staged)
    return None


def _publication(commit: str, staged: Sequence[StagedBatch]) -> Publication:
    return Publication(
        run_id=staged[0].run_id,
        target=staged[0].target,
        commit=commit,
        tables=tuple(str(one.table) for one in staged),
        rows=sum(one.rows for one in staged),
    )


def _require_passed(staged: StagedBatch, report: AuditReport) -> None:
    if report.metadata_location != staged.pointer.metadata_location:
        raise AuditFailedError(
            f"The audit of {staged.table} is not about what stands on branch {staged.branch}.",
            hint=f"lakegate audit {staged.table} --branch {staged.branch}",
            branch=staged.branch,
        )
    if not report.passed:
        failed = ", ".join(result.name for result in report.failures)
        raise AuditFailedError(
            f"Branch {staged.branch} is not published: {staged.table} failed {failed}.",
            hint=f"lakegate audit {staged.table} --branch {staged.branch}",
            branch=staged.branch,
            table=str(staged.table),
        )


def _require_untouched(rooms: Rooms, staged: Sequence[StagedBatch]) -> None:
    branch = rooms.catalog.get_ref(staged[0].branch)
    for one in staged:
        now = rooms.catalog.get_table(one.table, branch)
        if now is None or now.metadata_location != one.pointer.metadata_location:
            raise ConflictError(
                f"{one.table} changed on branch {one.branch} after it was audited.",
                hint=f"lakegate audit {one.table} --branch {one.branch}",
                branch=one.branch,
                table=str(one.table),
            )


def _commit(rooms: Rooms, staged: Sequence[StagedBatch], reports: Sequence[AuditReport]) -> Publication:
    first = staged[0]
    for attempt in range(1, _ATTEMPTS + 1):
        request = _request(rooms, staged, reports)
        try:
            return _publication(rooms.catalog.commit(request).hash, staged)
        except ConflictError as error:
            # A commit whose answer was lost may have arrived after we looked for it.
            publication = find_publication(rooms, first, staged)
            if publication is not None:
                return publication
            # A run that creates the same namespace meanwhile is no rival for the tables: look again and go on.
            rival = _moved_table(rooms, staged)
            if rival is not None:
                raise _conflict(rooms, rival) from error
            if attempt == _ATTEMPTS:
                raise
        except OutcomeUnknownError as error:
            settled = _settle(rooms, staged, error)
            if settled is not None:
                return settled
    raise ConflictError(f"The catalog kept refusing to publish branch {first.branch}.", hint="Try again.")


def _request(rooms: Rooms, staged: Sequence[StagedBatch], reports: Sequence[AuditReport]) -> CommitRequest:
    first = staged[0]
    head = rooms.catalog.get_ref(first.target)
    namespaces = {level for one in staged for level in missing_namespaces(rooms, one.table.namespace, head)}
    return CommitRequest(
        branch=first.target,
        base=first.base,
        message=f"Publish {', '.join(str(one.table) for one in staged)} ({sum(o.rows for o in staged):,} rows)",
        puts=tuple(_put(rooms, one) for one in staged),
        namespaces=tuple(sorted(namespaces, key=len)),
        properties={
            RUN_ID_PROPERTY: first.run_id,
            "lakegate.branch": first.branch,
            "lakegate.audit": _summary(reports),
        },
    )


def _put(rooms: Rooms, staged: StagedBatch) -> TablePointer:
    # A table that the target lacks must be put without an id, one that it has with the target's.
    before = _at_base(rooms, staged)
    return staged.pointer.model_copy(update={"content_id": before.content_id if before else None})


def _at_base(rooms: Rooms, staged: StagedBatch) -> TablePointer | None:
    return rooms.catalog.get_table(staged.table, Ref(name=staged.base, hash=staged.base, kind="detached"))


def _moved_table(rooms: Rooms, staged: Sequence[StagedBatch]) -> StagedBatch | None:
    head = rooms.catalog.get_ref(staged[0].target)
    return next((one for one in staged if rooms.catalog.get_table(one.table, head) != _at_base(rooms, one)), None)


def _conflict(rooms: Rooms, rival: StagedBatch) -> ConflictError:
    commits = rooms.catalog.history(rival.target, until=rival.base, operations=True)
    other = next((commit for commit in commits if str(rival.table) in commit.tables), None)
    by = f" (commit {other.hash[:12]}: {other.message})" if other else ""
    return ConflictError(
        f"{rival.table} changed on {rival.target} after this run started{by}; branch {rival.branch} is kept.",
        hint=f"Drop the branch and ingest again: lakegate discard {rival.branch}",
        table=str(rival.table),
        branch=rival.branch,
        run_id=rival.run_id,
        commit=other.hash if other else None,
    )


def _settle(rooms: Rooms, staged: Sequence[StagedBatch], error: OutcomeUnknownError) -> Publication | None:
    try:
        return find_publication(rooms, staged[0], staged)
    except LakegateError:
        raise OutcomeUnknownError(
            f"The catalog went away while branch {staged[0].branch} was published; it may or may not have happened.",
            hint=f"When the catalog is back: lakegate publish {staged[0].branch} (it never publishes twice)",
            branch=staged[0].branch,
            run_id=staged[0].run_id,
        ) from error


def _summary(reports: Sequence[AuditReport]) -> str:
    results = [result for report in reports for result in report.results]
    failed = sum(result.verdict == "fail" for result in results)
    return f"{len(results) - failed} passed, {failed} warned"


def _delete_branch(rooms: Rooms, name: str) -> None:
    # The data is published; a branch that cannot be dropped now is untidy, not wrong.
    try:
        rooms.catalog.delete_ref(rooms.catalog.get_ref(name))
    except LakegateError as error:
        rooms.narrator.note(f"Branch {name} could not be dropped: {error.message}")
