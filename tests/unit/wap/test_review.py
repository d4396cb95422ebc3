"""Kept branches that are audited or published later: no failure then drops them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakegate.checks import parse_checks
from lakegate.context import Context
from lakegate.errors import (
    AlreadyPublishedError,
    AuditFailedError,
    CheckError,
    ConflictError,
    EngineUnavailableError,
    RetryableError,
)
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import Run, StagedTable
from lakegate.model.tables import WriteTarget
from lakegate.upkeep.branches import drop_orphaned_branches, expire_branches
from lakegate.wap import review
from lakegate.wap.ingest import Stage, ingest, resume
from lakegate.wap.recover import recover
from lakegate.wap.revert import reset_branch, revert
from support.fakes import Died, FakeLakehouse
from support.flow_support import CLEAN, MORE, TRIPS, WITH_NULLS, branches, ordered

ASKED_MORE = ("row_count(min=1)",)
Audit = Callable[..., AuditReport]


def configured(_: TableIdentifier) -> list[Check]:
    return [check for text in ASKED_MORE for check in parse_checks(text)]


def rejected(house: FakeLakehouse, _: pytest.MonkeyPatch) -> Run:
    """A rejected run whose branch somebody has changed since, so that it must be audited again."""
    run = ingest(house.context, ordered(house, checks=("row_count(min=3)",)))
    target = WriteTarget(table=TRIPS, ref=run.branch, table_schema=None, snapshot_properties={})
    house.append(house.batch("by hand", MORE), target)
    return run


def conflicted(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> Run:
    commit = house.catalog.commit

    def refuse(request: CommitRequest) -> Ref:
        if request.branch == "main":
            raise ConflictError("main changed.")
        return commit(request)

    with monkeypatch.context() as patch:
        patch.setattr("lakegate.wap.commit_loop._LONGEST_PAUSE_S", 0.0)
        patch.setattr(house.catalog, "commit", refuse)
        with pytest.raises(ConflictError):
            ingest(house.context, ordered(house))
    return known(house)


def known(house: FakeLakehouse) -> Run:
    run = house.journal.get("r1")
    assert run is not None
    return run


def in_the_audit(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    audit: Audit = review.audit_table

    def work(context: Context, run: Run, staged: StagedTable, checks: list[Check], **options: Any) -> AuditReport:
        happens()
        return audit(context, run, staged, checks, **options)

    monkeypatch.setattr(review, "audit_table", work)


def raises(error: BaseException) -> Callable[[], object]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize("kept", [rejected, conflicted])
def test_a_kept_branch_survives_a_publish_that_is_killed_in_its_audit(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, kept: Callable[..., Run]
) -> None:
    kept(house, monkeypatch)
    before, stood = known(house), branches(house)
    assert before.finished_at is not None
    later = before.finished_at + timedelta(days=99)

    def dies() -> None:
        # While it is under way, its branch doesn't go with those whose time is over.
        assert expire_branches(house.context, keep=timedelta(0), now=later, dry_run=False)[0] == []
        raise Died

    with monkeypatch.context() as patch:
        in_the_audit(patch, dies)
        with pytest.raises(Died):
            review.publish_branch(house.context, before.branch, configured=configured)
    house.kill()

    assert [run.run_id for run in recover(house.context)] == ["r1"]
    now = known(house)
    assert branches(house) == stood == ["main", before.branch]
    for name in ("status", "error", "finished_at", "branch", "branch_kept"):
        assert getattr(now, name) == getattr(before, name), name
    assert [report.passed for report in now.reports] == [report.passed for report in before.reports]
    assert review.publish_branch(house.context, before.branch, configured=configured).status == "published"
    assert house.rows_on("main", "nyc.trips") == ([*CLEAN, *MORE] if kept is rejected else CLEAN)


@pytest.mark.parametrize("error", [EngineUnavailableError("Spark went away."), KeyboardInterrupt()])
@pytest.mark.parametrize("kept", [rejected, conflicted])
def test_a_kept_branch_survives_a_publish_that_fails(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, kept: Callable[..., Run], error: BaseException
) -> None:
    branch = kept(house, monkeypatch).branch
    before = known(house)
    with monkeypatch.context() as patch:
        in_the_audit(patch, raises(error))
        with pytest.raises(type(error)):
            review.publish_branch(house.context, branch, configured=configured)
    assert branches(house) == ["main", branch]
    for name in ("status", "error", "finished_at", "branch", "branch_kept"):
        assert getattr(known(house), name) == getattr(before, name), name
    drop_orphaned_branches(house.context)
    later = datetime.now(UTC) + timedelta(days=99)
    dropped, problems = expire_branches(house.context, keep=timedelta(0), now=later, dry_run=False)
    assert (dropped, [one.subject for one in problems]) == ([], [branch])
    assert branches(house) == ["main", branch]
    assert review.publish_branch(house.context, branch, configured=configured).status == "published"
    assert house.rows_on("main", "nyc.trips") == ([*CLEAN, *MORE] if kept is rejected else CLEAN)


def forgotten(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A rejected run whose rows somebody has mended on its branch, and whose journal is lost."""
    run = rejected(house, monkeypatch)
    house.lose_journal()
    return run


def suspended(house: FakeLakehouse, _: pytest.MonkeyPatch | None) -> Run:
    """A run that an orchestrator has written, and hasn't audited yet."""
    run = ingest(house.context, ordered(house), until="write", suspends=True)
    assert run.finished_at is None
    return run


@pytest.mark.parametrize(
    "how", [EngineUnavailableError("Away."), CheckError("No such column."), KeyboardInterrupt(), Died()]
)
@pytest.mark.parametrize("kept", [forgotten, suspended])
def test_a_failed_publish_by_name_keeps_the_branch(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, kept: Callable[..., Run], how: BaseException
) -> None:
    branch = kept(house, monkeypatch).branch
    with monkeypatch.context() as patch:
        in_the_audit(patch, raises(how))
        with pytest.raises(type(how)):
            review.publish_branch(house.context, branch, configured=configured)
    if isinstance(how, Died):
        house.kill()
    recover(house.context)
    drop_orphaned_branches(house.context)
    assert branches(house) == ["main", branch]
    after = known(house)
    waits = kept is suspended and not isinstance(how, Died)
    assert (after.finished_at is None, after.order is not None) == (waits, kept is suspended)
    if waits:
        assert resume(house.context, "r1", until="publish").status == "published"
    else:
        assert after.branch_kept
        assert review.publish_branch(house.context, branch, configured=configured).status == "published"
    assert house.rows_on("main", "nyc.trips") == (CLEAN if kept is suspended else [*CLEAN, *MORE])


@pytest.mark.parametrize("on_changed", ["refuse", "replace", "append"])
def test_a_rejected_file_is_not_published_beside_its_correction(house: FakeLakehouse, on_changed: str) -> None:
    run = ingest(house.context, ordered(house, WITH_NULLS, file="f", on_changed=on_changed))
    corrected = [{**row, "passengers": 1} for row in WITH_NULLS]
    ingest(house.context, ordered(house, corrected, run="r2", file="f", version="2", on_changed=on_changed))
    acceptance = review.accepted("It's right.", "ada")

    def publish_it() -> Run:
        return review.publish_branch(house.context, run.branch, configured=lambda _: (), acceptance=acceptance)

    if on_changed != "append":
        with pytest.raises(
            AlreadyPublishedError, match=r"f\.parquet was published .* by run r2, with other content"
        ) as said:
            publish_it()
        assert said.value.hint is not None
        assert f"lakegate discard {run.branch}" in said.value.hint
        assert "lakegate revert r2" in said.value.hint
        assert said.value.exit_code == 2
        after = house.context.journal.get(run.run_id)
        assert after is not None
        assert (after.status, after.branch_kept, after.error) == ("rejected", True, None), "it's as before"
        assert house.rows_on("main", "nyc.trips") == corrected
        revert(house.context, "r2", new_run_id="x")
    assert publish_it().status == "published"
    assert house.rows_on("main", "nyc.trips") == [*(corrected if on_changed == "append" else []), *WITH_NULLS]


def test_rows_that_main_lost_do_not_come_back_with_a_branch_unaudited(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(house.context, ordered(house, MORE, run="r0"))
    then = house.catalog.get_ref("main")
    pointer = house.pointer(then.hash)
    foreign = house.edit(pointer, WITH_NULLS, "append")
    house.catalog.commit(CommitRequest(branch="main", base=then.hash, message="by hand", puts=(foreign,)))
    branch = conflicted(house, monkeypatch).branch  # it passed its audit
    reset_branch(house.context, "main", then, force=True)

    with pytest.raises(AuditFailedError, match=r"failed not_null\(passengers\)"):
        review.publish_branch(house.context, branch, configured=lambda _: ())
    assert house.rows_on("main", "nyc.trips") == MORE


def test_an_audit_records_nothing_in_a_run_that_somebody_works_on(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = rejected(house, monkeypatch).branch
    before = known(house)

    def audit() -> AuditReport:
        return review.audit_branch(house.context, TRIPS, branch, checks=None, configured=configured)

    lease = house.journal.resume("r1", ended=True)
    assert lease is not None
    assert lease.token is not None
    with pytest.raises(RetryableError, match="r1") as caught:
        audit()
    assert caught.value.exit_code == 3
    assert known(house) == before
    house.journal.end(before, lease.token)

    with monkeypatch.context() as patch:
        in_the_audit(patch, lambda: house.journal.amend(before, status="discarded"))
        with pytest.raises(
            RetryableError, match=r"status of run r1 changed to 'discarded' while its branch .* was being audited"
        ):
            audit()
    assert known(house).status == "discarded"
    house.journal.amend(known(house), status="rejected")

    assert audit().passed
    assert known(house).status == "audited"
    assert known(house).reports[0].passed


def test_who_acts_for_somebody_is_recorded(house: FakeLakehouse) -> None:
    kept = ingest(house.context, ordered(house, checks=("row_count(min=3)",)))

    def publish_as(actor: str, accept: str | None) -> Run:
        acceptance = None if accept is None else review.accepted(accept, actor)
        action = review.acted("publish", actor)
        return review.publish_branch(
            house.context, kept.branch, configured=lambda _: (), acceptance=acceptance, action=action
        )

    with pytest.raises(AuditFailedError):
        publish_as("ann", None)
    assert known(house).actions == (), "nothing was done"
    run = publish_as(" ann@example.com\n", "seen and fine")
    assert [(one.action, one.actor) for one in run.actions] == [("publish", "ann@example.com")]
    assert run.accepted is not None
    assert run.accepted.actor == "ann@example.com"
    assert known(house).actions == run.actions


def test_a_suspended_run_whose_branch_is_audited_goes_on_with_that_report(house: FakeLakehouse) -> None:
    branch = suspended(house, None).branch
    waits = dict(house.journal.suspended())
    assert review.audit_branch(house.context, TRIPS, branch, checks=None, configured=configured).passed
    now = known(house)
    assert (now.status, now.finished_at, house.journal.suspended()) == ("audited", None, waits)
    assert [result.name for result in now.reports[0].results] == ["not_null(passengers)", "row_count(min=1)"]
    assert resume(house.context, "r1", until="publish").reports == now.reports
    assert house.rows_on("main", "nyc.trips") == CLEAN


@pytest.mark.parametrize("until", ["audit", "publish"])
def test_a_branch_that_somebody_wrote_to_since_is_neither_passed_nor_published_as_the_runs(
    house: FakeLakehouse, until: Stage
) -> None:
    branch = suspended(house, None).branch
    house.append(
        house.batch("by hand", MORE), WriteTarget(table=TRIPS, ref=branch, table_schema=None, snapshot_properties={})
    )
    with pytest.raises(ConflictError, match=f"changed on branch {branch} after it was written") as said:
        resume(house.context, "r1", until=until)
    assert said.value.hint == f"lakegate audit nyc.trips --branch {branch}"
    assert (known(house).status, known(house).branch_kept) == ("failed", True)
    assert review.publish_branch(house.context, branch, configured=configured).status == "published"
    assert house.rows_on("main", "nyc.trips") == [*CLEAN, *MORE]
