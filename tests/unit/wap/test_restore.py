"""Restoring tables and resetting branches, on a lakehouse in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakegate.errors import InputError, NotFoundError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import Run, UndoneTable
from lakegate.wap.rebuild import rebuild
from lakegate.wap.revert import reset_branch, restore_table
from lakegate.wap.table_changes import drop_table, expire_snapshots
from lakegate.wap.transaction import Transaction
from support.revert_support import A, B, C, D, House

TRIPS = TableIdentifier.parse("nyc.trips")


@pytest.fixture
def house() -> House:
    return House()


def restore(house: House, at: Ref, run: str = "y", table: TableIdentifier = TRIPS) -> Run:
    pinned = Ref(name="main", hash=at.hash, kind="detached")
    return restore_table(house.context, table, pinned, new_run_id=run)


def test_a_table_is_put_back_and_goes_on_from_there(house: House) -> None:
    house.add("r1", A)
    then = house.head()
    house.add("r2", B)
    house.work("over", lambda tx: tx.overwrite("nyc.trips", D))
    run = restore(house, then)

    assert house.rows() == A
    assert (run.kind, run.status, run.reverts) == ("restore", "published", ("over", "r2"))
    assert run.undone == (UndoneTable(table="nyc.trips", rows=0, data_files=0),)
    assert house.status("r2") == ("reverted", "y")
    assert house.add("again-1", A, file="r1").status == "skipped"
    assert house.add("again-2", B, file="r2").status == "published"
    assert house.rows() == [*A, *B]


def test_a_table_is_gone_once_the_run_that_created_it_is_reverted_whatever_was_restored_between(house: House) -> None:
    house.work("r1", lambda tx: tx.append("nyc.trips", A))
    then = house.head()
    house.work("emptied", lambda tx: tx.overwrite("nyc.trips", []))
    restore(house, then)

    house.undo("r1")

    assert house.catalog.get_table(TRIPS, house.head()) is None


def test_a_run_that_wrote_other_tables_too_is_not_reverted_but_its_files_are_free_here(house: House) -> None:
    house.add("r1", A)
    then = house.head()

    def both(tx: Transaction) -> None:
        tx.append("nyc.trips", B)
        tx.append("nyc.zones", [{"id": 1}])

    house.work("tx", both)
    restore(house, then)

    assert house.rows() == A
    assert house.rows("nyc.zones") == [{"id": 1}]
    assert house.status("tx") == ("published", None)
    house.undo("tx")
    assert house.rows() == A
    assert house.catalog.get_table(TableIdentifier.parse("nyc.zones"), house.head()) is None


def test_a_dropped_table_comes_back(house: House) -> None:
    house.add("r1", A)
    then = house.head()
    house.undo("r1")
    assert house.catalog.get_table(TRIPS, house.head()) is None
    restore(house, then)

    assert house.rows() == A
    assert house.add("again", A, file="r1").status == "skipped"
    house.add("r2", B)
    assert house.rows() == [*A, *B]


def test_files_that_were_reverted_count_as_published_when_their_rows_are_back(house: House) -> None:
    house.add("r1", A)
    house.add("r2", B)
    then = house.head()
    house.undo("r2")
    restore(house, then)

    assert house.rows() == [*A, *B]
    assert house.add("again", B, file="r2").status == "skipped"
    house.lose_journal()
    rebuild(house.context, "main")
    assert house.add("again", B, file="r2").status == "skipped"


def test_a_table_that_stands_so_is_left_alone(house: House) -> None:
    house.add("r1", A)
    then = house.head()
    house.work("other", lambda tx: tx.append("nyc.zones", [{"id": 1}]))
    head = house.head()
    run = restore(house, then)

    assert (run.status, house.head()) == ("skipped", head)
    assert "nothing to do" in (run.detail or "")
    assert house.journal.get("y") == run


def test_a_commit_of_another_branch_is_refused(house: House) -> None:
    house.add("r1", A)
    house.catalog.create_branch("side", house.head())
    house.catalog.commit(
        CommitRequest(branch="side", base=house.head().hash, message="side", namespaces=(("elsewhere",),))
    )
    house.add("r2", B)
    with pytest.raises(InputError, match="isn't in the history of 'main'"):
        restore(house, house.catalog.get_ref("side"))


def test_a_branch_is_reset(house: House) -> None:
    house.add("r1", A)
    house.catalog.create_branch("dev", house.head())
    house.add("r2", B)
    assert house.rows_on("dev", "nyc.trips") == A
    assert reset_branch(house.context, "dev", house.head()).hash == house.head().hash
    assert house.rows_on("dev", "nyc.trips") == [*A, *B]


def test_main_is_reset_only_by_force_and_its_lost_files_may_be_ingested_again(house: House) -> None:
    house.add("r1", A)
    then = house.head()
    house.add("r2", B)
    with pytest.raises(InputError, match="removes commits from its history") as caught:
        reset_branch(house.context, "main", then)
    assert "lakegate table restore" in (caught.value.hint or "")

    reset_branch(house.context, "main", then, force=True)
    assert house.rows() == A
    assert house.add("again", B, file="r2").status == "published"
    assert house.add("again-1", A, file="r1").status == "skipped"


def test_a_dropped_table_is_gone_its_files_are_free_and_it_can_be_restored(house: House) -> None:
    house.add("r1", A)
    then = house.head()
    house.add("r2", B)
    before = house.head()
    run = drop_table(house.context, TRIPS, new_run_id="z")

    assert house.context.catalog.get_table(TRIPS, house.head()) is None
    assert (run.kind, run.status, run.reverts) == ("restore", "published", ("r2", "r1"))
    assert run.undone == (UndoneTable(table="nyc.trips", rows=-len([*A, *B]), data_files=0, dropped=True),)
    assert house.status("r1") == house.status("r2") == ("reverted", "z")
    with pytest.raises(NotFoundError, match=r"nyc\.trips doesn't exist on main"):
        drop_table(house.context, TRIPS, new_run_id="z2")
    with pytest.raises(InputError, match="is a restore") as caught:
        house.undo("z")
    assert f"lakegate table restore nyc.trips --at {before.hash}" in str(caught.value.hint)

    restore(house, before)
    assert house.rows() == [*A, *B]
    assert house.status("r2") == ("published", None)
    assert house.add("again", B, file="r2").status == "skipped"

    drop_table(house.context, TRIPS, new_run_id="z3")
    assert house.add("anew", A, file="r1").status == "published"
    assert house.rows() == A
    restore(house, then, run="y2")
    assert rebuild(house.context, "main").runs > 0


def test_old_snapshots_are_forgotten_and_nothing_else(house: House) -> None:
    for number, rows in enumerate((A, B, C)):
        house.add(f"r{number}", rows)
    then = house.head()
    later = datetime.now(UTC) + timedelta(days=1)
    run = expire_snapshots(house.context, TRIPS, before=later, keep=2, new_run_id="x")

    assert (run.kind, run.status, run.reverts) == ("maintenance", "published", ())
    assert house.rows() == [*A, *B, *C]
    now = house.context.catalog.get_table(TRIPS, house.head())
    assert now is not None
    assert len(house.context.reader.snapshots(now)) == 2
    assert [house.status(f"r{number}") for number in range(3)] == [("published", None)] * 3
    at = house.context.catalog.get_table(TRIPS, then)
    assert at is not None
    assert len(house.context.reader.snapshots(at)) == 3

    again = expire_snapshots(house.context, TRIPS, before=later, keep=2, new_run_id="x2")
    assert (again.status, again.publication) == ("skipped", None)
    assert house.add("r3", D).status == "published"
    assert house.undo("r1").status == "published"
    assert house.rows() == [*A, *C, *D]
    with pytest.raises(NotFoundError):
        expire_snapshots(house.context, TableIdentifier.parse("nyc.no"), before=later, keep=1, new_run_id="x3")


ASIDE = TableIdentifier.parse("nyc.trips__quarantine")
MIXED = [{"id": 1, "fare": 1}, {"id": 2, "fare": -1}]
SETS_ASIDE = ("in_range(fare, min=0, severity='quarantine')",)


def quarantined(house: House) -> int:
    return len(house.rows_on("main", str(ASIDE))) if house.catalog.get_table(ASIDE, house.head()) else 0


@pytest.mark.parametrize("rebuilds", [False, True])
@pytest.mark.parametrize("drops", [False, True])
def test_quarantined_rows_go_with_the_table_that_their_file_is_ingested_into_again(
    house: House, drops: bool, rebuilds: bool
) -> None:
    """They'd else be there twice, and could be released twice."""
    house.add("r1", [{"id": 0, "fare": 0}], checks=())
    then = house.head()
    house.add("r2", MIXED, checks=SETS_ASIDE)
    both = house.head()
    assert (len(house.rows()), quarantined(house)) == (2, 1)

    run = drop_table(house.context, TRIPS, new_run_id="y") if drops else restore(house, then)
    assert run.tables == ("nyc.trips", str(ASIDE))
    assert [(one.rows, one.dropped) for one in run.undone] == [(-2 if drops else -1, drops), (-1, True)]
    assert (quarantined(house), house.status("r2")) == (0, ("reverted", "y"))
    if rebuilds:
        rebuild(house.context, "main")
    assert house.add("r3", MIXED, file="r2", checks=SETS_ASIDE).status == "published"
    assert quarantined(house) == 1

    restore(house, both, "z")
    assert (len(house.rows()), quarantined(house)) == (2, 1)
    assert house.add("r4", MIXED, file="r2", checks=SETS_ASIDE).status == "skipped"


def test_a_quarantine_table_is_restored_with_its_table_only(house: House) -> None:
    """Alone, it would take the runs back that wrote to its table since, whose rows stay there."""
    house.add("r1", MIXED, checks=SETS_ASIDE)
    then = house.head()
    house.add("r2", [{"id": 3, "fare": 3}], checks=())
    with pytest.raises(InputError, match=r"can't be restored alone") as refused:
        restore_table(house.context, ASIDE, then, new_run_id="x")
    assert refused.value.hint == f"To restore both: lakegate table restore nyc.trips --at {then.hash[:12]}"
    assert house.status("r2") == ("published", None)


def test_a_lost_journal_learns_what_was_reverted_before_its_table_was_dropped(house: House) -> None:
    house.add("r1", MIXED, checks=SETS_ASIDE)
    house.add("r2", [{"id": 3, "fare": 3}], checks=())
    house.undo("r1")
    assert drop_table(house.context, TRIPS, new_run_id="y").tables == ("nyc.trips",)
    for _ in range(2):
        assert (house.status("r1"), house.status("r2")) == (("reverted", "x-r1"), ("reverted", "y"))
        house.lose_journal()
        rebuild(house.context, "main")
