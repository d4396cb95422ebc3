"""Restoring tables and resetting branches, on a lakehouse in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest

from lakegate.errors import CatalogUnavailableError, InputError, NotFoundError, NotReplayableError, NotRevertableError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import Run, UndoneTable
from lakegate.model.tables import CreateTable
from lakegate.wap.recover import rebuild
from lakegate.wap.revert import reset_branch, restore_table
from lakegate.wap.table_changes import drop_table, expire_snapshots, rewrite_manifests, runs_in
from lakegate.wap.transaction import Transaction
from support.fakes_editor import TableEdits
from support.flow_support import when_reached
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


def test_files_that_were_replaced_come_back_with_their_rows(house: House) -> None:
    house.add("r1", A, file="f")
    then = house.head()
    house.add("r2", B, file="f", version="2", on_changed="replace")
    restore(house, then)

    assert house.rows() == A
    assert house.add("again", A, file="f").status == "skipped"
    assert house.add("r3", B, file="f", version="2", on_changed="replace").status == "published"
    assert house.rows() == B


def test_a_restore_replaces_files_again_that_a_revert_had_brought_back(house: House) -> None:
    house.add("r1", A)
    house.add("r2", B, file="f")
    house.add("r3", C, file="f", version="2", on_changed="replace")
    then = house.head()
    house.undo("r3")
    restore(house, then)
    assert house.rows() == [*A, *C]
    assert house.status("r2") == ("reverted", "y")

    assert house.status("r3") == ("published", None)
    with pytest.raises(NotRevertableError, match=r"run y has since changed nyc.trips by more than adding rows"):
        house.undo("r3", new="x2")


def test_an_undone_restore_can_be_restored_in_turn(house: House) -> None:
    house.add("r1", A)
    first = house.head()
    house.add("r2", B)
    second = house.head()
    restore(house, first)
    restore(house, second, run="z")

    assert house.rows() == [*A, *B]
    assert house.add("again", B, file="r2").status == "skipped"
    with pytest.raises(InputError, match="Run z is a restore; it can't be reverted"):
        house.undo("z")


def test_what_others_did_is_undone_as_well(house: House) -> None:
    house.add("r1", A)
    house.add("r2", B)
    then = house.head()
    house.rewrite_all_files()
    house.add("r3", C)
    restore(house, then)

    assert house.rows() == [*A, *B]
    assert house.undo("r2").status == "published"
    assert house.rows() == A


def test_a_table_that_stands_so_is_left_alone(house: House) -> None:
    house.add("r1", A)
    then = house.head()
    house.work("other", lambda tx: tx.append("nyc.zones", [{"id": 1}]))
    head = house.head()
    run = restore(house, then)

    assert (run.status, house.head()) == ("skipped", head)
    assert "nothing to do" in (run.detail or "")
    assert house.journal.get("y") == run


def test_a_table_that_did_not_exist_then_is_refused(house: House) -> None:
    house.add("r1", A)
    then = house.head()
    with pytest.raises(NotFoundError, match=r"nyc.zones didn't exist at commit"):
        restore(house, then, table=TableIdentifier.parse("nyc.zones"))


def test_a_commit_of_another_branch_is_refused(house: House) -> None:
    house.add("r1", A)
    house.catalog.create_branch("side", house.head())
    house.catalog.commit(
        CommitRequest(branch="side", base=house.head().hash, message="side", namespaces=(("elsewhere",),))
    )
    house.add("r2", B)
    with pytest.raises(InputError, match="isn't in the history of 'main'"):
        restore(house, house.catalog.get_ref("side"))


def test_a_revert_goes_on_after_a_restore(house: House) -> None:
    house.add("r1", A)
    house.add("r2", B)
    then = house.head()
    house.add("r3", C)
    restore(house, then)
    house.undo("r2")
    assert house.rows() == A
    restored = next(one for one in house.catalog.history("main") if "y" in one.properties.values())
    with pytest.raises(InputError, match="Run r3 is already reverted, by run y") as caught:
        house.undo("r3")
    assert f"lakegate table restore nyc.trips --at {restored.parent}" in str(caught.value.hint)


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


def test_files_of_a_commit_that_main_lost_before_the_journal_read_it_may_be_ingested_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.add("r1", A)
    then = house.head()
    with monkeypatch.context() as patch:
        patch.setattr("lakegate.wap.lifecycle.sync", Mock(side_effect=CatalogUnavailableError("Nessie is away.")))
        house.add("r2", B)
    assert house.journal.synced("main") == then.hash

    reset_branch(house.context, "main", then, force=True)
    assert house.status("r2") == ("discarded", None)
    assert house.add("again", B, file="r2").status == "published"


def test_a_tag_is_not_reset(house: House) -> None:
    house.catalog.create_tag("v1", house.head())
    with pytest.raises(InputError, match="'v1' is a tag, not a branch"):
        reset_branch(house.context, "v1", house.head())


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


def test_manifests_that_cannot_be_rewritten_are_no_conflict(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NotReplayableError("Its format version is 1.", hint="Raise it.")

    house.add("r1", A)
    monkeypatch.setattr(TableEdits, "rewrite_manifests", refuse)
    with pytest.raises(InputError, match=r"Its format version is 1\.") as refused:
        rewrite_manifests(house.context, TRIPS, new_run_id="x")
    assert refused.value.hint == "Raise it."


def test_rows_computed_from_a_table_that_only_forgot_snapshots_are_appended_to_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.add("r0", A)
    house.add("r1", B)

    def expire() -> None:
        later = datetime.now(UTC) + timedelta(days=1)
        expire_snapshots(house.context, TRIPS, before=later, keep=1, new_run_id="x")

    def double(tx: Transaction) -> None:
        tx.append("nyc.trips", [{**row, "id": row["id"] + 10} for row in tx.table("nyc.trips")])

    with when_reached(monkeypatch, "before-publish", expire):
        assert house.work("double", double).status == "published"
    assert [row["id"] for row in house.rows()] == [1, 2, 11, 12]


def test_rows_that_a_compaction_put_among_others_are_not_replaced(house: House) -> None:
    house.add("r1", A, file="f")
    house.rewrite_all_files()
    with pytest.raises(InputError, match="its data files have since been rewritten") as caught:
        house.add("r2", B, file="f", version="2", on_changed="replace")
    assert "lakegate revert r1" in str(caught.value.hint)
    assert [ref.name for ref in house.catalog.list_refs() if ref.name.startswith("wap/")] == []


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


def test_a_quarantine_table_is_put_back_alone_only_if_its_table_stayed(house: House) -> None:
    house.add("r1", MIXED, checks=SETS_ASIDE)
    then = house.head()
    house.work("dropped", lambda tx: tx.engine.overwrite(ASIDE, [], None))
    assert restore(house, then, "y", ASIDE).tables == (str(ASIDE),)
    assert (len(house.rows()), quarantined(house)) == (1, 1)

    house.add("r2", MIXED, checks=SETS_ASIDE)
    with pytest.raises(InputError, match="can't be restored alone: run r2 has since changed it together with"):
        restore(house, then, "z", ASIDE)


def test_a_table_that_is_called_like_a_quarantine_table_and_is_none_stays(house: House) -> None:
    house.add("r1", A)
    house.work("named", lambda tx: tx.engine.append(ASIDE, [{"id": 9}], CreateTable(location="mem://named")))
    assert drop_table(house.context, TRIPS, new_run_id="y").tables == ("nyc.trips",)
    assert quarantined(house) == 1
    long = TableIdentifier.parse("nyc." + "t" * 120)
    house.add("r2", A, table=long)
    assert drop_table(house.context, long, new_run_id="z").status == "published"


def test_a_truncation_takes_back_runs_with_rows_and_no_maintenance(house: House) -> None:
    house.add("r1", A)
    house.work("more", lambda tx: tx.append("nyc.trips", C))
    house.add("r2", B)
    run = expire_snapshots(house.context, TRIPS, before=datetime.now(UTC), keep=1, new_run_id="x")
    assert run.status == "published"
    house.undo("r1")
    assert runs_in(house.context, TRIPS, house.head()) == ("r2", "more")


def test_a_lost_journal_learns_what_was_reverted_before_its_table_was_dropped(house: House) -> None:
    house.add("r1", MIXED, checks=SETS_ASIDE)
    house.add("r2", [{"id": 3, "fare": 3}], checks=())
    house.undo("r1")
    assert drop_table(house.context, TRIPS, new_run_id="y").tables == ("nyc.trips",)
    for _ in range(2):
        assert (house.status("r1"), house.status("r2")) == (("reverted", "x-r1"), ("reverted", "y"))
        house.lose_journal()
        rebuild(house.context, "main")


def test_what_a_drop_took_comes_back_neither_to_the_table_nor_to_its_quarantine(house: House) -> None:
    house.add("r1", [{"id": 3, "fare": 3}], checks=())
    house.add("r2", MIXED, checks=SETS_ASIDE)
    house.undo("r2")
    assert drop_table(house.context, TRIPS, new_run_id="y").tables == ("nyc.trips",)
    with pytest.raises(InputError, match="already reverted, by run x-r2"):
        house.undo("r2")
    assert list(house.catalog.list_tables(house.head())) == []
