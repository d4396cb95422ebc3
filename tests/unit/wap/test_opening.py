"""Openings of the gate: when a writer may write, and what becomes of what was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import update

from lakegate.checks import parse_checks
from lakegate.errors import ConflictError, InputError, LakegateError, NotFoundError
from lakegate.journal.schema import LEASES, as_text
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest
from lakegate.model.run import Run
from lakegate.model.tables import WriteTarget
from lakegate.wap.ingest import ingest
from lakegate.wap.opening import ClosedError, JournalOpenings, Order, open_branch, renew, seal
from lakegate.wap.opening import opened as opened_while
from lakegate.wap.recover import recover
from lakegate.wap.review import accepted, discard_run, publish_branch
from lakegate.wap.stage import ensure_namespace, new_table
from support.fakes import Died, FakeLakehouse
from support.flow_support import CLEAN, MORE, TRIPS, WITH_NULLS, branches, ordered, when_reached
from support.steps_support import commits, ids, known

BRANCH = "wap/nightly"
ZONES = TableIdentifier.parse("nyc.zones")


def order(*checks: str, run: str = "g1", branch: str = BRANCH, open_s: float = 3600.0) -> Order:
    asked = {TRIPS: [check for text in checks for check in parse_checks(text)]} if checks else {}
    return Order(run_id=run, name="nightly", branch=branch, target="main", checks=asked, open_s=open_s)


def opened(house: FakeLakehouse, *checks: str, **options: Any) -> Run:
    return open_branch(house.context, order(*checks, **options))


def is_open(house: FakeLakehouse, run: str = "g1") -> bool:
    """Return whether the gate takes writes of an opening."""
    found = JournalOpenings(house.journal).get(run)
    assert found is not None
    assert (found.opening_id, found.branch) == (run, BRANCH)
    return not found.is_sealed and found.deadline > datetime.now(UTC)


def use(house: FakeLakehouse, read: str, writer: str | None = None) -> None:
    JournalOpenings(house.journal).note_use("g1", reads=[read], client=writer)


def write(house: FakeLakehouse, rows: Sequence[dict[str, Any]] = CLEAN, table: TableIdentifier = TRIPS) -> None:
    ensure_namespace(house.context, table, BRANCH, "g1")
    create = new_table(house.context, table, "g1")
    target = WriteTarget(table=table, ref=BRANCH, table_schema=None, create=create, snapshot_properties={})
    house.append(house.batch(f"by dbt {table} {rows}", rows), target)


def sealed(house: FakeLakehouse, *configured: str, run: str = "g1") -> Run:
    checks: list[Check] = [check for text in configured for check in parse_checks(text)]
    return seal(house.context, run, lambda _: checks)


def expire(house: FakeLakehouse) -> None:
    with house.database.writing() as tx:
        tx.execute(update(LEASES).values(expires_at=as_text(datetime(2000, 1, 1, tzinfo=UTC))))


def test_what_is_written_until_the_seal_is_audited_and_published_in_one_commit(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house, MORE))
    opened(house, "not_null(passengers)")
    write(house)
    write(house, [{"zone": 1}], ZONES)
    assert (is_open(house), ids(house)) == (True, [5])

    run = sealed(house)

    assert (run.status, run.kind, set(run.tables)) == ("published", "gate", {"nyc.trips", "nyc.zones"})
    assert [result.check for report in run.reports for result in report.results] == ["not_null(passengers)"]
    assert (ids(house), house.rows_on("main", "nyc.zones"), commits(house, "g1")) == ([1, 2, 5], [{"zone": 1}], 1)
    assert BRANCH not in branches(house)
    assert sealed(house) == run  # once
    assert not is_open(house)


def test_a_rejected_branch_stays_and_may_be_accepted(house: FakeLakehouse) -> None:
    opened(house)
    write(house, WITH_NULLS)
    assert sealed(house, "not_null(passengers)").status == "rejected"
    assert BRANCH in branches(house)
    run = publish_branch(
        house.context,
        BRANCH,
        configured=lambda _: [*parse_checks("not_null(passengers)")],
        acceptance=accepted("The vendor knows."),
    )
    assert (run.status, run.kind, ids(house)) == ("published", "gate", [3, 4])


def test_an_opening_that_nobody_seals_expires_and_its_branch_is_never_published(house: FakeLakehouse) -> None:
    opened(house)
    write(house)
    with pytest.raises(InputError, match="was never sealed: its writer may not have finished") as refused:
        publish_branch(house.context, BRANCH, configured=lambda _: ())
    assert refused.value.hint == f"When its writer is done: lakegate gate seal {BRANCH}"
    assert recover(house.context) == ()
    expire(house)

    (run,) = recover(house.context)

    assert (run.status, run.branch_kept, BRANCH in branches(house), ids(house)) == ("failed", True, True, [])
    assert run.error is not None
    assert run.error.message.startswith("It wasn't sealed by its deadline (")
    attempts: Sequence[Callable[[], object]] = (
        lambda: publish_branch(house.context, BRANCH, configured=lambda _: ()),
        lambda: sealed(house),
        lambda: renew(house.context, "g1", open_s=60),
    )
    for attempt in attempts:
        with pytest.raises(InputError):
            attempt()
    assert (is_open(house), ids(house)) == (False, [])


def test_an_opening_can_be_renewed_until_it_ends(house: FakeLakehouse) -> None:
    opened(house, open_s=-1.0)
    assert not is_open(house)
    renew(house.context, "g1", open_s=60.0)
    assert is_open(house)
    write(house)
    sealed(house)
    with pytest.raises(ClosedError, match="has ended"):
        renew(house.context, "g1", open_s=60.0)


def test_yesterdays_token_doesnt_open_todays_branch_of_the_same_name(house: FakeLakehouse) -> None:
    opened(house)
    write(house)
    sealed(house)
    opened(house, run="g2")
    assert (is_open(house), is_open(house, "g2")) == (False, True)


def test_a_write_under_way_is_below_the_seal_or_refused(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate commits on the head that it read before it looked at the opening."""
    opened(house)
    write(house)
    before = house.catalog.get_ref(BRANCH)
    late = CommitRequest(branch=BRANCH, base=before.hash, message="late", at_head=True, properties={"by": "dbt"})
    refused = []

    def commit() -> None:
        try:
            house.catalog.commit(late)
        except ConflictError as error:
            refused.append(error)

    with when_reached(monkeypatch, "after-stage", commit):
        run = sealed(house)
    assert (run.status, len(refused)) == ("published", 1)


@pytest.mark.parametrize("point", ["after-stage", "after-audit", "before-publish", "before-commit", "after-publish"])
def test_a_seal_that_is_killed_goes_on_when_its_called_again(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    opened(house, "not_null(passengers)")
    write(house)
    house.dies_at(monkeypatch, point, lambda: sealed(house))
    assert not is_open(house)

    assert sealed(house).status == "published"
    assert (ids(house), commits(house, "g1"), known(house, "g1").status) == ([1, 2], 1, "published")


@pytest.mark.parametrize(("point", "status"), [("after-stage", "failed"), ("before-publish", "published")])
def test_recovery_ends_a_seal_that_was_killed(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str, status: str
) -> None:
    opened(house)
    write(house)
    house.dies_at(monkeypatch, point, lambda: sealed(house))
    (run,) = recover(house.context)
    assert (run.status, BRANCH in branches(house)) == (status, status == "failed")
    assert ids(house) == ([] if status == "failed" else [1, 2])


def test_a_seal_of_nothing_is_skipped(house: FakeLakehouse) -> None:
    opened(house, "not_null(passengers)")
    run = sealed(house)
    assert (run.status, run.detail) == ("skipped", f"No table was changed on {BRANCH}. Did the writer use the gate?")
    assert BRANCH not in branches(house)


def test_a_discarded_opening_takes_no_writes(house: FakeLakehouse) -> None:
    opened(house)
    discard_run(house.context, BRANCH)
    assert (known(house, "g1").status, BRANCH in branches(house), is_open(house)) == ("discarded", False, False)


def test_what_was_read_and_has_changed_on_main_refuses_the_publish(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house, MORE))
    opened(house)
    use(house, "nyc.trips", "Spark")
    use(house, "nyc.zones", "PyIceberg")
    write(house, [{"zone": 1}], ZONES)
    ingest(house.context, ordered(house, CLEAN, run="r2"))
    with pytest.raises(ConflictError, match=r"nyc\.trips"):
        sealed(house)
    found = known(house, "g1")
    assert (found.status, found.branch_kept, found.opening and found.opening.writers) == (
        "failed",
        True,
        ("Spark", "PyIceberg"),
    )


def test_appends_are_replayed_on_what_was_published_meanwhile(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house, MORE))
    opened(house)
    use(house, "nyc.trips")  # a writer loads what it appends to
    write(house)
    ingest(house.context, ordered(house, WITH_NULLS, run="r2", checks=()))
    assert (sealed(house).status, ids(house)) == ("published", [1, 2, 3, 4, 5])


def test_checks_of_a_table_that_wasnt_written_are_an_error(house: FakeLakehouse) -> None:
    opened(house, "not_null(passengers)")
    write(house, [{"zone": 1}], ZONES)
    with pytest.raises(InputError, match=r"Checks were asked for on nyc\.trips, but nothing was written to it"):
        sealed(house)
    assert (known(house, "g1").status, BRANCH in branches(house)) == ("failed", True)


def test_unknown_openings_and_taken_branches_are_named(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    for run in ("g9", "r1"):
        with pytest.raises(NotFoundError, match=f"Run '{run}' isn't an opening"):
            sealed(house, run=run)
    opened(house)
    for branch, way in ((BRANCH, f"discard {BRANCH}"), ("main", "another name")):
        with pytest.raises(LakegateError, match="exists already") as refused:
            opened(house, run="g2", branch=branch)
        assert (refused.value.hint or "").endswith(way)


def test_a_branch_that_is_open_while_a_block_runs_is_sealed_at_its_end(house: FakeLakehouse) -> None:
    with opened_while(house.context, order(), lambda _: parse_checks("row_count(min=1)")) as session:
        assert is_open(house)
        use(house, "nyc.zones", "dbt")
        write(house)
        assert house.journal.suspended() == {}
    assert (session.run.status, session.run.reads, ids(house)) == ("published", ("nyc.zones",), [1, 2])
    assert session.run.opening is not None
    assert session.run.opening.writers == ("dbt",)
    assert [step.name for step in session.run.steps] == ["write", "audit", "publish"]


@pytest.mark.parametrize("error", [LakegateError("dbt build exited with 2."), KeyboardInterrupt(), Died()])
def test_a_block_that_fails_or_dies_publishes_nothing(house: FakeLakehouse, error: BaseException) -> None:
    def build() -> None:
        with opened_while(house.context, order(), lambda _: ()):
            write(house)
            raise error

    with pytest.raises(type(error)):
        build()
    house.kill()
    recover(house.context)
    assert (known(house, "g1").status, known(house, "g1").branch_kept) == ("failed", True)
    assert (BRANCH in branches(house), ids(house)) == (True, [])
