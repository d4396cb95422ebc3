"""Runs stored on their branches: without the journal, with another one, and on copies, the outcome is the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from lakegate.checks import parse_checks
from lakegate.errors import (
    AlreadyPublishedError,
    AuditFailedError,
    InputError,
    NewerFormatError,
)
from lakegate.ledger.event import event_of
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest
from lakegate.model.run import RUN_ID_PROPERTY, Run
from lakegate.model.tables import WriteTarget
from lakegate.wap import review
from lakegate.wap.branches import RUN_PROPERTY
from lakegate.wap.ingest import ingest, resume
from lakegate.wap.rebuild import rebuild
from lakegate.wap.recover import recover
from lakegate.wap.review import accepted
from lakegate.wap.transaction import Transaction
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, TRIPS, WITH_NULLS, begun, branches, ordered
from support.ledger_support import event_in

RUN = "20260131T070509-0badcafe"


def publish(house: FakeLakehouse, branch: str, *checks: str, accept: str | None = None) -> Run:
    return review.publish_branch(
        house.context,
        branch,
        configured=lambda _: parsed(*checks),
        acceptance=None if accept is None else accepted(accept),
    )


def look(house: FakeLakehouse, branch: str, *checks: str) -> bool:
    given = parsed(*checks) if checks else None
    return review.audit_branch(house.context, TRIPS, branch, checks=given, configured=lambda _: ()).passed


def parsed(*texts: str) -> list[Check]:
    return [check for text in texts for check in parse_checks(text)]


def write_by_hand(house: FakeLakehouse, branch: str, rows: Sequence[dict[str, object]], **properties: str) -> None:
    target = WriteTarget(table=TRIPS, ref=branch, table_schema=None, snapshot_properties=properties)
    house.append(house.batch(f"by hand {branch}", rows), target)


def work(house: FakeLakehouse, body: Callable[[Transaction], None], *, run: str = "tx") -> None:
    with begun(house.context, run) as tx:
        body(tx)


def files(house: FakeLakehouse) -> list[tuple[str, ...]]:
    events = map(event_of, house.catalog.history("main"))
    return [tuple(uri for uri, _ in event.files) if event else () for event in events]


@pytest.mark.parametrize("by", ["ingest", "transaction"])
def test_a_journal_from_a_backup_costs_no_run_that_was_rejected_since(house: FakeLakehouse, by: str) -> None:
    """The backup was made while the run was being written."""
    ingest(house.context, ordered(house, CLEAN, run="first"))
    if by == "ingest":
        ingest(house.context, ordered(house, WITH_NULLS, run="tx", file="f"))
    else:

        def write(tx: Transaction) -> None:
            tx.append("nyc.trips", WITH_NULLS)
            tx.check("nyc.trips", "not_null(passengers)")

        with pytest.raises(AuditFailedError):
            work(house, write)
    rejected = house.journal.get("tx")
    assert rejected is not None
    unwritten = {"status": "planned", "staged": (), "reports": (), "finished_at": None, "branch_kept": False}
    house.journal.abandon("tx", house.journal.begin(rejected.model_copy(update=unwritten)))

    assert [run.run_id for run in recover(house.context)] == ["tx"]
    found = house.journal.get("tx")
    assert found is not None
    assert (found.status, found.branch_kept) == ("rejected", True)
    assert [one.check for one in found.failures] == [one.check for one in rejected.failures]
    assert rejected.branch in branches(house)
    with pytest.raises(AuditFailedError):
        publish(house, rejected.branch)


def test_a_rejected_run_stays_rejected_without_the_journal(house: FakeLakehouse) -> None:
    rejected = ingest(house.context, ordered(house, WITH_NULLS))
    house.lose_journal()
    scans = house.scans

    with pytest.raises(AuditFailedError, match=r"failed not_null\(passengers\)"):
        publish(house, rejected.branch)
    assert (branches(house), house.scans) == (["main", rejected.branch], scans)
    learned = house.journal.get("r1")
    assert learned is not None
    assert (learned.status, learned.branch_kept, learned.request) == ("rejected", True, rejected.request)
    assert all(result.examples == () for result in learned.failures)


def test_a_run_that_nobody_audited_is_audited_by_its_own_checks_without_the_journal(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.dies_at(monkeypatch, "after-stage", lambda: ingest(house.context, ordered(house, WITH_NULLS)))
    house.lose_journal()
    house.dies_at(monkeypatch, "after-stage", lambda: ingest(house.context, ordered(house, CLEAN, run="r2")))
    house.lose_journal()

    with pytest.raises(AuditFailedError, match=r"failed not_null\(passengers\)"):
        publish(house, "wap/nyc.trips_r1")
    run = publish(house, "wap/nyc.trips_r2", "not_null(id)")
    assert (run.run_id, run.kind, run.status) == ("r2", "ingest", "published")
    assert {result.check for report in run.reports for result in report.results} == {
        "not_null(id)",
        "not_null(passengers)",
    }
    assert files(house) == [("file:///r2.parquet",)]
    assert ingest(house.context, ordered(house, CLEAN, run="r3", file="r2")).status == "skipped"
    assert house.rows_on("main", "nyc.trips") == CLEAN


def test_a_pass_by_another_lake_is_audited_again_with_the_current_checks(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house, CLEAN, checks=()), until="audit", suspends=True)
    with pytest.raises(AuditFailedError, match="row_count"):
        publish(house, "wap/nyc.trips_r1", "row_count(min=9)")
    assert publish(house, "wap/nyc.trips_r1", "row_count(min=9)", accept="small today").status == "published"


def test_a_suspended_run_that_another_project_published_is_recognized(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house), until="write", suspends=True)
    ours = house.journal
    house.lose_journal()
    assert publish(house, "wap/nyc.trips_r1").status == "published"

    house.journal = ours
    run = resume(house.context, "r1", until="publish")
    assert (run.status, run.publication is not None) == ("published", True)
    assert house.rows_on("main", "nyc.trips") == CLEAN


def test_copies_of_a_branch_are_one_run(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house), until="write", suspends=True)
    original = house.catalog.get_ref("wap/nyc.trips_r1")
    house.catalog.create_branch("copy", original)
    house.catalog.create_branch("changed", original)
    write_by_hand(house, "changed", MORE)

    run = publish(house, "copy")
    assert (run.run_id, run.status, files(house)) == ("r1", "published", [("file:///r1.parquet",)])
    with pytest.raises(InputError, match=r"was published already, in commit .* differs from what was published"):
        publish(house, "changed")
    assert publish(house, original.name).publication == run.publication
    assert (branches(house), house.rows_on("main", "nyc.trips")) == (["changed", "main"], CLEAN)


def test_files_that_were_published_from_elsewhere_are_not_published_again(house: FakeLakehouse) -> None:
    rejected = ingest(house.context, ordered(house, WITH_NULLS, file="f"))
    house.lose_journal()
    assert ingest(house.context, ordered(house, WITH_NULLS, run="r2", file="f", checks=())).status == "published"
    with pytest.raises(AlreadyPublishedError, match="by run r2") as refused:
        publish(house, rejected.branch, accept="it is right")
    assert refused.value.exit_code == 2, "trying again can't help"
    assert f"lakegate discard {rejected.branch}" in (refused.value.hint or "")
    assert house.rows_on("main", "nyc.trips") == WITH_NULLS


def test_a_fixed_branch_is_audited_by_the_runs_checks(house: FakeLakehouse) -> None:
    rejected = ingest(house.context, ordered(house, WITH_NULLS, checks=("row_count(min=3)", "not_null(id)")))
    write_by_hand(house, rejected.branch, [{"id": None, "passengers": 1}])
    house.lose_journal()
    with pytest.raises(AuditFailedError, match=r"failed not_null\(id\)"):
        publish(house, rejected.branch)

    write_by_hand(house, rejected.branch, MORE)
    enough = ingest(house.context, ordered(house, CLEAN, run="r2", checks=("row_count(min=3)",)))
    write_by_hand(house, enough.branch, MORE)
    run = publish(house, enough.branch)
    assert (run.run_id, files(house)) == ("r2", [("file:///r2.parquet",)])
    assert house.rows_on("main", "nyc.trips") == [*CLEAN, *MORE]


def test_two_runs_on_one_branch_are_refused(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house), until="write", suspends=True)
    write_by_hand(house, "wap/nyc.trips_r1", MORE, **{RUN_ID_PROPERTY: "r2"})
    with pytest.raises(InputError, match="rows of 2 runs: r1, r2"):
        publish(house, "wap/nyc.trips_r1")


def test_metrics_on_a_branch_are_no_evidence_whichever_run_they_name(house: FakeLakehouse) -> None:
    kept = ingest(house.context, ordered(house, checks=("row_count(min=3)",), on_failure="keep"))
    write_by_hand(house, kept.branch, MORE, **{RUN_ID_PROPERTY: kept.run_id})
    report = review.audit_branch(
        house.context, TRIPS, kept.branch, checks=parsed("not_null(passengers)"), configured=lambda _: (), explain=True
    )
    assert [one.method for one in report.explanations] == ["scan"]
    assert "another writer may have written some" in (report.explanations[0].reason or "")


def test_an_unknown_run_is_refused_unless_accepted(house: FakeLakehouse) -> None:
    main = house.catalog.get_ref("main")
    ingest(house.context, ordered(house))
    for branch, properties in ((f"wap/nyc.trips_{RUN}", {}), ("old", {RUN_ID_PROPERTY: "lost"}), ("january", {})):
        house.catalog.create_branch(branch, house.catalog.get_ref("main"))
        write_by_hand(house, branch, MORE if branch == "january" else WITH_NULLS, **properties)
    assert main.hash != house.catalog.get_ref("main").hash
    with pytest.raises(InputError, match=f"is named after run {RUN}, but neither") as named:
        publish(house, f"wap/nyc.trips_{RUN}")
    assert "lakegate branch create NAME --from" in (named.value.hint or "")
    with pytest.raises(InputError, match="holds rows of run lost, but neither"):
        publish(house, "old")
    assert publish(house, "january").kind == "branch"
    taken = publish(house, "old", "not_null(passengers)", accept="I wrote it")
    assert (taken.run_id, taken.status, len(taken.failures)) == ("lost", "published", 1)


def test_a_branch_that_holds_nothing_of_its_run_is_refused(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house, run="r0"))
    base = house.catalog.get_ref("main")
    ingest(house.context, ordered(house), until="write", suspends=True)
    branch = house.catalog.get_ref("wap/nyc.trips_r1")
    first = list(house.catalog.history(branch.name, until=base.hash))[-1]
    house.catalog.assign_ref(branch, branch.model_copy(update={"hash": first.hash}))
    write_by_hand(house, branch.name, MORE)
    with pytest.raises(InputError, match=r"no longer holds what run r1 wrote there \(0 of 2 rows\)"):
        publish(house, branch.name)
    house.lose_journal()
    with pytest.raises(InputError, match="An incomplete batch can't be published"):
        publish(house, branch.name)


def test_other_checks_leave_the_verdict_and_a_re_audit_changes_it(house: FakeLakehouse) -> None:
    zones = TableIdentifier.parse("nyc.zones")
    ingest(house.context, ordered(house, CLEAN, run="z", table=zones, checks=()))
    check = "relationships(passengers, to='nyc.zones', to_columns=id)"
    rejected = ingest(house.context, ordered(house, MORE, checks=(check,)))
    before = house.journal.get("r1")
    assert look(house, rejected.branch, "not_null(id)")
    assert not look(house, rejected.branch, "row_count(min=100)")
    assert house.journal.get("r1") == before
    with pytest.raises(AuditFailedError):
        publish(house, rejected.branch)

    ingest(house.context, ordered(house, [{"id": 3, "passengers": 1}], run="z2", table=zones, checks=()))
    house.lose_journal()
    assert look(house, rejected.branch), "the zones have been loaded since"
    assert publish(house, rejected.branch).status == "published"


def test_an_acceptance_is_recorded(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEGATE_ACTOR", "ada")
    rejected = ingest(house.context, ordered(house, WITH_NULLS))
    with pytest.raises(InputError, match="needs a reason"):
        publish(house, rejected.branch, accept=" \n")
    run = publish(house, rejected.branch, accept="the meters\nwere off")

    commit = next(house.catalog.history("main"))
    assert run.accepted is not None
    assert (run.status, run.accepted.actor, run.accepted.reason) == ("published", "ada", "the meters were off")
    assert [result.name for result in run.failures] == ["not_null(passengers)"]
    assert house.journal.get("r1") == run
    accepted = event_in(commit).accepted
    assert accepted is not None
    assert (accepted.reason, accepted.actor) == ("the meters were off", "ada")
    assert event_in(commit).audit == "0 passed, 0 warned, 1 failed"
    assert event_in(commit).files == (("file:///r1.parquet", "1"),)


def test_a_rebuilt_journal_knows_rejected_runs_again(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    rejected = ingest(house.context, ordered(house, WITH_NULLS, run="r2"))
    house.catalog.create_branch("fresh", house.catalog.get_ref("main"))
    house.lose_journal()
    rebuilt = rebuild(house.context, "main")
    assert (rebuilt.runs, rebuilt.rejected) == (1, 1)
    found = house.journal.find_by_branch(rejected.branch)
    assert found is not None
    assert (found.run_id, found.status, found.branch_kept) == ("r2", "rejected", True)
    assert [result.name for result in found.failures] == ["not_null(passengers)"]
    assert rebuild(house.context, "main").rejected == 0


def rejected_by_a_newer_lakegate(house: FakeLakehouse) -> Run:
    rejected = ingest(house.context, ordered(house, WITH_NULLS))
    branch = house.catalog.get_ref(rejected.branch)
    properties = {RUN_ID_PROPERTY: "r1", RUN_PROPERTY: '{"format":2,"run":{}}'}
    house.catalog.commit(
        CommitRequest(branch=branch.name, base=branch.hash, message="m", at_head=True, properties=properties)
    )
    return rejected


def test_what_a_newer_lakegate_wrote_is_an_error(house: FakeLakehouse) -> None:
    rejected = rejected_by_a_newer_lakegate(house)
    with pytest.raises(NewerFormatError, match="newer lakegate"):
        publish(house, rejected.branch)
