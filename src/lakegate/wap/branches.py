"""Runs stored on their branches, and which run wrote a branch, by the journal or by the branch itself."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from pydantic import Field, ValidationError

from lakegate.context import Context
from lakegate.errors import InputError, LakegateError, NewerFormatError
from lakegate.ledger.event import packed, unpacked
from lakegate.model.base import Value
from lakegate.model.quarantine import is_quarantine
from lakegate.model.refs import Commit, CommitRequest, Ref
from lakegate.model.request import IngestRequest
from lakegate.model.run import RUN_ID_PROPERTY, Acceptance, Run, StagedTable
from lakegate.model.tables import Snapshot

RUN_PROPERTY = "lakegate.run"
FORMAT: Final = 1
_NAMED_BY_A_RUN = re.compile(r"(?:.*/)?[^/]+_(\d{8}T\d{6}-[0-9a-f]{8})")


class _StoredRun(Value):
    """A run as stored on its branch; ``format`` goes up with each change."""

    format: int = Field(ge=FORMAT, le=FORMAT)
    run: Run


def store_run(context: Context, run: Run, branch: Ref) -> Ref:
    """Store ``run`` on ``branch``, in a commit: its request, and its verdict if it has one. Return the new head.

    Raises:
        ConflictError: When something was committed to the branch since it was read.
    """
    stored = _StoredRun(format=FORMAT, run=_without_evidence(run))
    verdict = "its audit failed" if run.failures else "written" if run.staged else "begun"
    return context.catalog.commit(
        CommitRequest(
            branch=branch.name,
            base=branch.hash,
            message=f"Run {run.run_id}: {verdict}",
            at_head=True,
            properties={
                RUN_ID_PROPERTY: run.run_id,
                RUN_PROPERTY: packed(stored.model_dump_json()),
            },
        )
    )


def store_request(context: Context, request: IngestRequest, branch: Ref) -> Ref:
    """Store an ingest's request on its branch before writing there, unless the branch has it already."""
    if branch.hash != request.base:
        known = stored_runs(context, branch.name, request.base)
        if any(run.request == request for run in known):
            return branch
    return store_run(context, Run.begun(request), branch)


def store_verdict(context: Context, run: Run) -> None:
    """Store on a rejected run's branch that it's rejected.

    Best effort: without it, a lake whose journal doesn't know the run audits the branch again.
    """
    with suppress(LakegateError):
        store_run(context, run.model_copy(update={"status": "rejected"}), context.catalog.get_ref(run.branch))


def stored_runs(context: Context, branch: str, base: str) -> tuple[Run, ...]:
    """Return the runs stored in the commits of ``branch`` since ``base``, each as stored last."""
    return stored_runs_in(branch, context.catalog.history(branch, until=base))


def stored_runs_in(branch: str, newest_first: Iterator[Commit] | Sequence[Commit]) -> tuple[Run, ...]:
    """Return the runs stored in the given commits; see :func:`stored_runs`."""
    found: dict[str, Run] = {}
    for commit in newest_first:
        if RUN_PROPERTY in commit.properties and commit.properties.get(RUN_ID_PROPERTY) not in found:
            run = _stored_run(branch, commit)
            found[run.run_id] = run
    return tuple(found.values())


def _run_named_by(branch: str) -> str | None:
    """Return the run id in a branch's name, if lakegate named the branch.

    Example:
        >>> _run_named_by("wap/nyc.trips_20260131T070509-0badcafe"), _run_named_by("wap/january")
        ('20260131T070509-0badcafe', None)
    """
    named = _NAMED_BY_A_RUN.fullmatch(branch)
    return None if named is None else named[1]


def is_unchanged_since(context: Context, branch: Ref, head: str, run_id: str) -> bool:
    """Return whether all commits to ``branch`` after ``head`` only store the run, and change no table."""
    for commit in context.catalog.history(branch.hash, until=head, operations=True):
        if commit.tables or RUN_PROPERTY not in commit.properties or commit.properties.get(RUN_ID_PROPERTY) != run_id:
            return False
        if commit.parent == head:
            return True
    return branch.hash == head


def _without_evidence(run: Run) -> Run:
    """Return the run without example rows, steps and notifications, which nobody needs on the branch."""
    reports = tuple(
        report.model_copy(
            update={"results": tuple(one.model_copy(update={"examples": (), "files": ()}) for one in report.results)}
        )
        for report in run.reports
    )
    return run.model_copy(update={"order": None, "steps": (), "notifications": (), "error": None, "reports": reports})


def _stored_run(branch: str, commit: Commit) -> Run:
    try:
        return _StoredRun.model_validate_json(unpacked(commit.properties[RUN_PROPERTY])).run
    except (ValidationError, ValueError, zlib.error) as error:
        raise NewerFormatError(
            f"Branch '{branch}' stores run {commit.properties.get(RUN_ID_PROPERTY)} in a format that this version of "
            f"lakegate can't read (commit {commit.hash[:12]}, {RUN_PROPERTY}). It was written by a newer lakegate.",
            hint="Upgrade: pip install --upgrade lakegate",
            branch=branch,
            commit=commit.hash,
            run_id=commit.properties.get(RUN_ID_PROPERTY),
            property=RUN_PROPERTY,
        ) from error


def find_owner(
    context: Context, branch: str, staged: Sequence[StagedTable], *, acceptance: Acceptance | None = None
) -> Run:
    """Return the run whose rows are on ``branch``; a new run of kind ``branch`` if it was written by hand.

    The snapshots decide, not the branch's name: a branch created from a run's branch belongs to that run.

    Args:
        acceptance: If given, rows of an unknown run count as written by hand.

    Raises:
        InputError: When the branch holds rows of several runs, of an unknown run, or of a run that was reverted or
            failed during its write; or when the rows of its run are gone.
        NewerFormatError: When a newer lakegate stored the run on the branch.
    """
    on_branch = {run.run_id: run for run in stored_runs(context, branch, staged[0].base)}
    snapshots = [
        snapshot for one in staged for snapshot in context.reader.change(one.before, one.pointer).live_snapshots
    ]
    written = {run_id for one in snapshots if (run_id := one.summary.get(RUN_ID_PROPERTY))}
    run_ids = sorted(written | on_branch.keys())
    if len(run_ids) > 1:
        raise InputError(
            f"Branch '{branch}' holds rows of {len(run_ids)} runs: {', '.join(run_ids)}. Each run must be audited and "
            "published from its own branch.",
            hint=f"See what it holds: lakegate log {branch}",
            branch=branch,
            run_ids=run_ids,
        )
    run_id = run_ids[0] if run_ids else _run_named_by(branch)
    run = _known_run(context, on_branch, run_id) if run_ids and run_id else None
    if run is None:
        if run_id is not None and acceptance is None:
            raise _unknown_run_error(branch, run_id, has_rows=bool(run_ids))
        if not run_ids:
            _require_own_quarantine(context, branch, staged, None)
        return manual_run(branch, staged, run_id=run_id if run_ids else None)
    _require_complete(context, run, branch, snapshots, base=staged[0].base)
    if run.status == "reverted":
        raise InputError(
            f"Branch {branch} holds the rows of run {run.run_id}, which was published and reverted by run "
            f"{run.reverted_by}.",
            hint=f"Ingest its files again, and drop the branch: lakegate discard {branch}",
            branch=branch,
            run_id=run.run_id,
        )
    _require_own_quarantine(context, branch, staged, run)
    failures = {(report.table, report.metadata_location) for report in run.reports if not report.passed}
    stored = on_branch[run.run_id].reports if run.run_id in on_branch else ()
    unknown = (one for one in stored if not one.passed and (one.table, one.metadata_location) not in failures)
    # If main has lost commits since, the branch also adds their rows, which the run's audit didn't read.
    audited = {(one.pointer.metadata_location, one.parent_snapshot_id) for one in run.staged}
    states = ((one.pointer.metadata_location, one.parent_snapshot_id) for one in staged)
    unread = {location for location, parent in states if (location, parent) not in audited}
    reports = (one for one in run.reports if not one.passed or one.metadata_location not in unread)
    return run.model_copy(
        update={
            "tables": tuple(str(one.table) for one in staged),
            "staged": tuple(as_classified(run, one) for one in staged),
            # A rejection by another lake counts; a pass there proves nothing.
            "reports": (*reports, *unknown),
            "base": run.base or staged[0].base,
            "branch": branch,
            "branch_kept": True,
        }
    )


def as_classified(run: Run, found: StagedTable) -> StagedTable:
    """Return a table that was found on a run's branch. If the run planned its new columns, only added rows count."""
    same = (one for one in run.staged if one.pointer == found.pointer and one.before == found.before)
    own = next((one for one in same if one.change == "evolve"), found)
    names = ("parent_snapshot_id", "snapshot_ids", "change", "reason", "rows", "rows_removed", "data_files")
    return found.model_copy(update={"run_id": run.run_id, **{name: getattr(own, name) for name in names}})


def _require_own_quarantine(context: Context, branch: str, staged: Sequence[StagedTable], run: Run | None) -> None:
    """Refuse changes to quarantine tables other than the run's own: released rows could be released again."""

    def own(one: StagedTable) -> bool:
        if run is None:
            return False
        if any(one.pointer.metadata_location == known.pointer.metadata_location for known in run.staged):
            return True
        added = context.reader.change(one.before, one.pointer).live_snapshots if one.only_adds else ()
        return {snapshot.summary.get(RUN_ID_PROPERTY) for snapshot in added} == {run.run_id}

    for one in staged:
        if is_quarantine(one.table) and not own(one):
            raise InputError(
                f"Branch '{branch}' changes {one.table}. Only lakegate writes to tables of quarantined rows.",
                hint=f"Drop the branch: lakegate discard {branch}. To publish, correct or drop quarantined rows: "
                "lakegate quarantine --help",
                branch=branch,
                table=str(one.table),
            )


def manual_run(branch: str, staged: Sequence[StagedTable], *, run_id: str | None = None) -> Run:
    """Return a run for what was written to ``branch`` by hand."""
    run_id = run_id or staged[0].run_id
    return Run(
        run_id=run_id,
        kind="branch",
        tables=tuple(str(one.table) for one in staged),
        branch=branch,
        status="staged",
        started_at=datetime.now(UTC),
        target=staged[0].target,
        base=staged[0].base,
        staged=tuple(one.model_copy(update={"run_id": run_id}) for one in staged),
        branch_kept=True,
    )


def _known_run(context: Context, on_branch: Mapping[str, Run], run_id: str) -> Run | None:
    """Return the run from the journal, or from the branch if the journal knows it only from a commit."""
    known, found = context.journal.get(run_id), on_branch.get(run_id)
    if found is None:
        return known
    found = found.model_copy(update={"reports": ()})
    if known is None:
        return found
    if known.request is not None or known.staged or known.status == "failed":
        return known
    ended = {"status": known.status, "publication": known.publication, "reverted_by": known.reverted_by}
    return found.model_copy(update=ended)


def _require_complete(context: Context, run: Run, branch: str, snapshots: Sequence[Snapshot], *, base: str) -> None:
    """Check that the branch still holds everything that the run wrote, perhaps among other changes."""
    if run.opening is not None and not run.staged:
        raise _not_sealed(run, branch)
    half = run.status in {"created", "planned", "failed"} and not run.staged
    gone, number = False, ""
    if run.request is not None:
        own = [one for one in snapshots if one.summary.get(RUN_ID_PROPERTY) == run.run_id]
        rows, wanted = sum(int(one.summary.get("added-records", 0)) for one in own), run.request.batch.rows
        wrong = rows != wanted if run.request.mode.writes_each_row else not own
        half = wrong or (run.status == "failed" and not run.staged)
        gone, number = half and bool(run.staged), f" ({rows:,} of {wanted:,} rows)"
        # Halfway through a quarantine, duplicated rows may make up the count for missing ones.
        half = half or (not run.reports and ends_with_quarantine(context, branch, base))
    elif not half:
        gone = not _snapshots_of(context, run) <= {one.snapshot_id for one in snapshots}
    if gone:
        raise InputError(
            f"Branch {branch} no longer holds what run {run.run_id} wrote there{number}: the table has since been "
            "rolled back or replaced, for example with DROP and CREATE.",
            hint=f"Drop the branch, then write it again: lakegate discard {branch}. To fix rows on a branch, use "
            "DELETE, UPDATE or MERGE, which keep the table.",
            branch=branch,
            run_id=run.run_id,
        )
    if half:
        raise InputError(
            f"Run {run.run_id} failed before it had written everything to branch {branch}. An incomplete batch can't "
            "be published.",
            hint=f"Drop the branch: lakegate discard {branch}",
            branch=branch,
            run_id=run.run_id,
        )


def _not_sealed(run: Run, branch: str) -> InputError:
    hint = f"Drop the branch: lakegate discard {branch}"
    if run.finished_at is None:
        hint = f"When its writer is done: lakegate gate seal {branch}"
    return InputError(
        f"Branch {branch} was never sealed: its writer may not have finished. It can't be audited or published.",
        hint=hint,
        branch=branch,
        run_id=run.run_id,
    )


def ends_with_quarantine(context: Context, branch: str, base: str) -> bool:
    """Return whether the last change on a branch is to a quarantine table: the run was interrupted halfway."""
    commits = context.catalog.history(branch, until=base, operations=True)
    last = next((commit for commit in commits if commit.tables), None)
    return last is not None and all(map(is_quarantine, last.tables))


def _snapshots_of(context: Context, run: Run) -> frozenset[int]:
    """Return the snapshots that the run staged, without those that its tables had before."""
    found: set[int] = set()
    for one in run.staged:
        before = () if one.before is None else context.reader.snapshots(one.before)
        found |= {*one.snapshot_ids, one.pointer.snapshot_id} - {snapshot.snapshot_id for snapshot in before} - {-1}
    return frozenset(found)


def _unknown_run_error(branch: str, run_id: str, *, has_rows: bool) -> InputError:
    what = "holds rows of" if has_rows else "is named after"
    copy = "" if has_rows else f"If you wrote it by hand: lakegate branch create NAME --from {branch}. "
    return InputError(
        f"Branch '{branch}' {what} run {run_id}, but neither the journal nor the branch has the run's checks and "
        "source files. Publishing it could skip its checks, or publish files twice.",
        hint=f"{copy}Drop it and ingest the files again: lakegate discard {branch}. "
        f'Or publish it as it is: lakegate publish {branch} --accept "REASON"',
        branch=branch,
        run_id=run_id,
    )
