"""Reverting publishes on a lakehouse in memory: what is reverted, what stays, and what prevents a revert."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from lakegate.errors import (
    CatalogUnavailableError,
    ConflictError,
    InputError,
    NotFoundError,
    NotReplayableError,
    NotRevertableError,
    OutcomeUnknownError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import RUN_ID_PROPERTY, UndoneTable
from lakegate.model.schema import Column, Schema
from lakegate.wap import revert, review
from lakegate.wap.context import Context
from lakegate.wap.discard import discard_run
from lakegate.wap.history import revived_in, sync
from lakegate.wap.recover import rebuild, recover
from lakegate.wap.revert_plan import BranchHistory, CommitChange, RevertPlan, plan_revert
from lakegate.wap.transaction import Transaction
from support.fakes import Died
from support.fakes_editor import TableEdits
from support.flow_support import TRIPS, when_reached
from support.revert_support import A, B, C, D, House

ZONES = TableIdentifier.parse("nyc.zones")


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def three() -> House:
    return _three().copy()


@cache
def _three() -> House:
    house = House()
    house.add("r1", A)
    house.add("r2", B)
    house.add("r3", C)
    return house


def test_the_middle_of_three_goes_and_its_data_files_exactly(three: House) -> None:
    run = three.undo("r2")

    assert three.rows() == [*A, *C]
    assert (run.kind, run.status, run.tables, run.reverts) == ("revert", "published", ("nyc.trips",), ("r2",))
    assert run.undone == (UndoneTable(table="nyc.trips", rows=-1, data_files=-1),)
    commit = next(three.catalog.history("main", operations=True))
    assert run.publication is not None
    assert run.publication.commit == commit.hash
    assert commit.properties == {
        "lakegate.run-id": "x-r2",
        "lakegate.kind": "revert",
        "lakegate.tables": "nyc.trips",
        "lakegate.reverts": "r2",
    }
    snapshots = three.snapshots(commit.puts[0])
    assert [s.operation for s in snapshots] == ["append", "append", "append", "delete"]
    assert snapshots[-1].summary[RUN_ID_PROPERTY] == "x-r2"
    assert three.status("r2") == ("reverted", "x-r2")
    assert three.journal.get("x-r2") == run


def test_its_files_may_be_ingested_again_and_those_of_others_not(three: House) -> None:
    assert three.add("again", B, file="r2").status == "skipped"
    three.undo("r2")

    assert three.add("again-1", A, file="r1").status == "skipped"
    assert three.add("again-2", B, file="r2").status == "published"
    assert three.rows() == [*A, *B, *C]
    three.undo("again-2")
    assert three.rows() == [*A, *C]


def test_a_lost_journal_learns_of_reverts_from_the_history(three: House) -> None:
    three.undo("r2")
    three.lose_journal()
    rebuild(three.context, "main")

    assert three.status("r2") == ("reverted", "x-r2")
    assert three.add("again-2", B, file="r2").status == "published"


def test_ingesting_goes_on_after_a_revert(three: House) -> None:
    three.undo("r3")
    three.add("r4", D)
    assert three.rows() == [*A, *B, *D]


def test_a_table_that_the_run_created_goes_with_it(house: House) -> None:
    house.add("r1", A)
    run = house.undo("r1")

    assert run.undone == (UndoneTable(table="nyc.trips", rows=-1, data_files=-1, dropped=True),)
    assert house.catalog.get_table(TableIdentifier.parse("nyc.trips"), house.head()) is None
    assert house.add("again", A, file="r1").status == "published"
    assert house.rows() == A


def test_a_table_that_the_run_created_stays_when_others_wrote_to_it(three: House) -> None:
    run = three.undo("r1")
    assert not run.undone[0].dropped
    assert three.rows() == [*B, *C]


def test_a_created_table_goes_when_what_was_added_is_gone_too(house: House) -> None:
    house.add("r1", A)
    house.add("r2", B)
    house.undo("r2")
    assert house.undo("r1").undone[0].dropped


def test_a_transaction_goes_from_all_its_tables_in_one_commit(three: House) -> None:
    def body(tx: Transaction) -> None:
        tx.append("nyc.trips", D)
        tx.append("nyc.zones", [{"id": 9}])

    three.work("tx", body)
    before = three.head()
    run = three.undo("tx")

    assert run.tables == ("nyc.trips", "nyc.zones")
    assert len(list(three.catalog.history("main", until=before.hash))) == 1
    assert three.rows() == [*A, *B, *C]
    assert three.catalog.get_table(ZONES, three.head()) is None
    assert three.status("tx") == ("reverted", "x-tx")


def test_what_an_overwrite_replaced_comes_back_and_later_appends_stay(three: House) -> None:
    three.work("over", lambda tx: tx.overwrite("nyc.trips", D))
    three.add("r4", [{"id": 6, "passengers": 6}])
    assert three.rows() == [*D, {"id": 6, "passengers": 6}]
    files = three.writes
    three.undo("over")

    assert three.rows() == [*A, *B, *C, {"id": 6, "passengers": 6}]
    assert three.writes == files
    three.add("r5", D)
    assert len(three.rows()) == 6


def test_a_change_that_began_before_a_revert_does_not_bring_the_reverted_rows_back(three: House) -> None:
    three.work("over", lambda tx: tx.overwrite("nyc.trips", D))
    three.add("r4", [{"id": 6, "passengers": 6}])

    def change(tx: Transaction) -> None:
        tx.upsert("nyc.trips", [{"id": 6, "passengers": 7}], keys=["id"])
        three.undo("over")  # the current snapshot keeps its id

    with pytest.raises(NotReplayableError, match="changed on main after this run started"):
        three.work("up", change)
    assert three.rows() == [*A, *B, *C, {"id": 6, "passengers": 6}]


def test_an_upsert_is_undone(three: House) -> None:
    three.work("up", lambda tx: tx.upsert("nyc.trips", [{"id": 1, "passengers": 9}, *D], keys=["id"]))
    assert three.rows()[0]["passengers"] == 9
    run = three.undo("up")
    assert three.rows() == [*A, *B, *C]
    assert run.undone == (UndoneTable(table="nyc.trips", rows=-1, data_files=0),)


def test_dropping_the_branch_of_a_reverted_run_leaves_it_reverted(three: House) -> None:
    run = three.journal.get("r2")
    assert run is not None
    three.catalog.create_branch(run.branch, three.catalog.get_ref("main"))
    three.undo("r2")

    discarded = discard_run(three.context, run.branch)
    assert discarded is not None
    assert (discarded.status, discarded.branch_kept) == ("reverted", False)


def test_the_branch_of_a_reverted_run_is_not_published_again(three: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: Ref) -> None:
        raise CatalogUnavailableError("Nessie is away.")

    with monkeypatch.context() as patch:
        patch.setattr(three.catalog, "delete_ref", away)
        three.add("r4", [{"id": 6, "passengers": 6}])
    left = three.journal.get("r4")
    assert left is not None
    assert (left.status, left.branch_kept) == ("published", True)
    three.undo("r4")

    trips = TableIdentifier.parse("nyc.trips")
    assert review.audit_branch(three.context, trips, left.branch, checks=(), configured=lambda _: ()).passed
    with pytest.raises(InputError, match=r"was published from branch .* and reverted"):
        review.publish_branch(three.context, left.branch, configured=lambda _: ())
    undone = three.journal.get("r4")
    assert undone is not None
    assert undone.status == "reverted"


def test_appends_that_were_reverted_meanwhile_do_not_come_back(three: House) -> None:
    three.work("over", lambda tx: tx.overwrite("nyc.trips", D))
    three.add("r4", [{"id": 6, "passengers": 6}])
    three.add("r5", [{"id": 7, "passengers": 7}])
    three.undo("r4")
    three.undo("over")
    assert three.rows() == [*A, *B, *C, {"id": 7, "passengers": 7}]


def test_an_append_that_a_later_run_rewrote_is_refused_naming_it(three: House) -> None:
    three.work("over", lambda tx: tx.overwrite("nyc.trips", D))
    head = three.head()
    with pytest.raises(NotRevertableError, match="alone: run over read the reverted rows in nyc") as caught:
        three.undo("r2")

    assert caught.value.hint == "To revert them together: lakegate revert r2 --cascade"
    assert caught.value.context["dependents"] == ["over"]
    assert three.head() == head
    assert three.journal.get("x-r2") is None


def test_cascade_takes_the_later_run_too_in_one_commit(three: House) -> None:
    three.work("over", lambda tx: tx.overwrite("nyc.trips", D))
    three.add("r4", [{"id": 6, "passengers": 6}])
    before = three.head()
    run = three.undo("r2", cascade=True)

    assert run.reverts == ("over", "r2")
    assert three.rows() == [*A, *C, {"id": 6, "passengers": 6}]
    assert len(list(three.catalog.history("main", until=before.hash))) == 1
    assert three.status("over") == three.status("r2") == ("reverted", "x-r2")


@pytest.mark.parametrize("replaced", ["table", "column"])
def test_rows_that_only_fit_a_runs_schema_are_reverted_with_it(three: House, replaced: str) -> None:
    def redefine(tx: Transaction) -> None:
        engine: Any = tx.engine
        columns = (Column(name="id", type="long"), Column(name="passengers", type="long"))
        if replaced == "column":
            engine.redefine(TRIPS, schema=Schema(columns=(*columns, Column(name="zone", type="long"))))
        else:
            engine.redefine(TRIPS, location="mem://another")

    later = [{"id": 5, "passengers": 5, "zone": 5}] if replaced == "column" else D
    three.work("redefine", redefine)
    three.add("r4", later)
    with pytest.raises(
        NotRevertableError, match="run r4 appended rows that don't fit the earlier state of nyc"
    ) as said:
        three.undo("redefine")
    assert said.value.hint == "To revert them together: lakegate revert redefine --cascade"
    assert three.rows() == later
    assert three.undo("redefine", cascade=True).reverts == ("r4", "redefine")
    assert three.rows() == [*A, *B, *C]


def test_cascade_is_transitive_across_tables(three: House) -> None:
    def totals(tx: Transaction) -> None:
        tx.append("nyc.totals", [{"id": len(tx.table("nyc.trips"))}])

    def report(tx: Transaction) -> None:
        tx.append("nyc.report", [{"id": len(tx.table("nyc.totals"))}])

    three.work("totals", totals)
    three.add("r4", D)
    three.work("report", report)
    with pytest.raises(NotRevertableError, match=r"run totals read the reverted rows in nyc.trips; run report read"):
        three.undo("r2")
    run = three.undo("r2", cascade=True)

    assert run.reverts == ("report", "totals", "r2")
    assert three.rows() == [*A, *C, *D]
    assert {str(p.table) for p in three.catalog.list_tables(three.head())} == {"nyc.trips"}


def test_a_reader_that_was_reverted_does_not_count(three: House) -> None:
    three.work("totals", lambda tx: tx.append("nyc.totals", [{"id": len(tx.table("nyc.trips"))}]))
    three.undo("totals")
    assert three.undo("r2").reverts == ("r2",)


def test_an_append_that_checked_only_its_own_table_is_no_dependent(house: House) -> None:
    unique = ("unique(id, scope='table')",)
    house.add("r1", A, checks=unique)
    house.add("r2", B, checks=unique)
    assert house.undo("r1").reverts == ("r1",)
    assert house.rows() == B


def test_rows_that_were_compacted_by_others_cannot_be_taken_out(three: House) -> None:
    three.rewrite_all_files()
    for cascade in (False, True):
        with pytest.raises(NotRevertableError, match=r"compacted\) deleted or rewrote .* wasn't published by lakegate"):
            three.undo("r2", cascade=cascade)
    three.add("r4", D)
    three.undo("r4")
    assert three.rows() == [*A, *B, *C]


def test_cascade_stops_at_an_undoing(three: House) -> None:
    three.work("over", lambda tx: tx.overwrite("nyc.trips", D))
    three.undo("r3", cascade=True)
    three.work("over2", lambda tx: tx.overwrite("nyc.trips", D))
    three.undo("over2")
    assert three.undo("r1").reverts == ("r1",)
    assert three.rows() == B


def test_an_append_that_was_reverted_stays_so_when_a_rewrite_between_goes(three: House) -> None:
    three.add("r4", D, file="r1", version="2", on_changed="replace")
    three.undo("r2")
    assert three.rows() == [*C, *D]
    three.undo("r4")
    assert three.rows() == [*A, *C]
    assert (three.status("r1"), three.status("r2")) == (("published", None), ("reverted", "x-r2"))
    three.undo("x-r4")
    assert three.rows() == [*C, *D]


def test_a_run_goes_with_its_compaction_though_another_went_since(three: House) -> None:
    three.work("compact", lambda tx: tx.engine.upsert(TRIPS, A, ["id"], None))  # writes rows of one file as they were
    three.undo("r2")
    three.add("r4", D)
    three.undo("r1", cascade=True)
    assert three.rows() == [*C, *D]
    assert [three.status(run)[0] for run in ("r1", "compact", "r2", "r4")] == [*["reverted"] * 3, "published"]


def test_what_a_replacing_run_had_replaced_comes_back(house: House) -> None:
    house.add("r1", A)
    house.add("r2", B, file="f")
    house.add("r3", C, file="f", version="2", on_changed="replace")
    assert house.rows() == [*A, *C]
    house.undo("r3")

    assert house.rows() == [*A, *B]
    commit = next(house.catalog.history("main"))
    assert revived_in(commit) == (("nyc.trips", "file:///f.parquet", "1", "r2"),)
    assert house.status("r2") == ("published", None)
    assert house.add("r4", B, file="f").status == "skipped"
    house.undo("r2")
    assert house.rows() == A
    assert house.add("r5", B, file="f").status == "published"


def test_both_a_replacing_run_and_the_replaced_one_can_go(house: House) -> None:
    house.add("r1", A)
    house.add("r2", B, file="f")
    house.add("r3", C, file="f", version="2", on_changed="replace")
    with pytest.raises(InputError, match="Run r2 is already reverted, by run r3"):
        house.undo("r2")
    house.undo("r1")
    assert house.rows() == C


def test_files_that_were_published_again_are_not_brought_back_twice(house: House) -> None:
    house.add("r2", B, file="f")
    house.add("r3", C, file="f", version="2", on_changed="replace")
    house.add("r4", B, file="f", on_changed="append")
    with pytest.raises(NotRevertableError, match=r"rows of file:///f.parquet, which run r4 has since published"):
        house.undo("r3")


def test_files_that_were_published_with_other_content_since_are_not_brought_back_beside_it(house: House) -> None:
    house.add("r1", A, file="f")
    house.work("emptied", lambda tx: tx.overwrite("nyc.trips", B), undoes=lambda _: ("r1",))
    house.add("r2", C, file="f", version="2")
    with pytest.raises(
        NotRevertableError, match=r"rows of file:///f.parquet, which run r2 has since published"
    ) as said:
        house.undo("emptied")
    assert said.value.hint == "Revert the later run first: lakegate revert r2"
    house.undo("r2")
    house.undo("emptied")
    assert house.rows() == A


def test_versions_of_a_file_that_are_appended_to_each_other_come_back_beside_each_other(house: House) -> None:
    house.add("r1", A, file="latest", on_changed="append")
    house.work("emptied", lambda tx: tx.overwrite("nyc.trips", B), undoes=lambda _: ("r1",))
    house.add("r2", C, file="latest", version="2", on_changed="append")
    house.undo("emptied")
    assert house.rows() == [*A, *C]


def test_a_revert_is_reverted_and_puts_the_rows_back(three: House) -> None:
    three.undo("r2")
    three.work("other", lambda tx: tx.append("nyc.zones", [{"id": 1}]))
    run = three.undo("x-r2", new="y")

    assert three.rows() == [*A, *B, *C]
    assert run.reverts == ("x-r2",)
    assert run.undone == (UndoneTable(table="nyc.trips", rows=1, data_files=1),)
    assert three.status("x-r2") == ("reverted", "y")
    assert three.status("r2") == ("published", None)
    assert three.add("again", B, file="r2").status == "skipped"
    three.lose_journal()
    rebuild(three.context, "main")
    assert three.add("again", B, file="r2").status == "skipped"
    with pytest.raises(InputError, match="Run x-r2 is already reverted, by run y"):
        three.undo("x-r2", new="y2")
    three.undo("r2", new="x2")
    assert three.rows() == [*A, *C]
    assert three.status("r2") == ("reverted", "x2")
    three.undo("x2", new="y2")
    three.add("r4", D)
    assert three.rows() == [*A, *B, *C, *D]


def test_a_revert_of_a_transaction_is_reverted_in_all_its_tables(three: House) -> None:
    def body(tx: Transaction) -> None:
        tx.overwrite("nyc.trips", D)
        tx.append("nyc.zones", [{"id": 9}])

    three.work("tx", body)
    three.undo("tx")
    assert three.catalog.get_table(ZONES, three.head()) is None
    three.undo("x-tx", new="y")

    assert three.rows() == D
    assert three.rows("nyc.zones") == [{"id": 9}]
    assert three.status("tx") == ("published", None)
    three.lose_journal()
    rebuild(three.context, "main")
    assert three.status("tx") == ("published", None)
    three.undo("y", new="z")
    assert three.rows() == [*A, *B, *C]
    assert three.status("tx")[0] == "reverted"


def test_a_revert_stays_when_something_was_published_since(three: House) -> None:
    """What was published was audited without the rows that would come back."""
    three.undo("r2")
    three.add("r4", D)
    with pytest.raises(
        NotRevertableError, match=r"alone: run r4 was audited without the rows that would return to nyc.trips"
    ):
        three.undo("x-r2", new="y")
    assert three.undo("x-r2", new="y", cascade=True).reverts == ("r4", "x-r2")
    assert three.rows() == [*A, *B, *C]


def test_a_revert_is_refused_after_a_later_one_of_an_earlier_run(three: House) -> None:
    three.undo("r2")
    three.undo("r1")
    with pytest.raises(NotRevertableError, match=r"x-r1 was audited without .*, and is a revert itself"):
        three.undo("x-r2", new="y", cascade=True)
    assert three.rows() == C


def test_a_revert_of_what_had_replaced_files_is_reverted(house: House) -> None:
    house.add("r1", A)
    house.add("r2", B, file="f")
    house.add("r3", C, file="f", version="2", on_changed="replace")
    house.undo("r3")
    house.undo("x-r3", new="y")

    assert house.rows() == [*A, *C]
    assert house.status("r2")[0] == "reverted"
    assert house.status("r3") == ("published", None)
    house.undo("r3", new="x2")
    assert house.rows() == [*A, *B]
    for _ in range(2):
        assert house.status("r2") == ("published", None)
        assert house.add("again", B, file="f").status == "skipped"
        house.lose_journal()
        rebuild(house.context, "main")


def test_a_chain_of_replaced_files_goes_back_step_by_step(house: House) -> None:
    house.add("r1", A, file="f")
    house.add("r2", B, file="f", version="2", on_changed="replace")
    house.add("r3", C, file="f", version="3", on_changed="replace")
    with pytest.raises(InputError, match="Run r1 is already reverted, by run r2"):
        house.undo("r1")
    house.undo("r3")
    assert house.rows() == B
    house.undo("r2")
    assert house.rows() == A
    assert [house.status(run)[0] for run in ("r1", "r2", "r3")] == ["published", "reverted", "reverted"]


@pytest.mark.parametrize("cascade", [False, True])
def test_a_dry_run_reports_and_changes_nothing(three: House, cascade: bool) -> None:
    head, edits = three.head(), len(three.versions)
    run = three.undo("r2", dry_run=True, cascade=cascade)

    assert (run.status, run.reverts) == ("skipped", ("r2",))
    assert run.undone == (UndoneTable(table="nyc.trips", rows=-1, data_files=-1),)
    assert (three.head(), len(three.versions), three.journal.get("x-r2")) == (head, edits, None)


def test_only_what_was_published_and_stands_can_be_reverted(three: House) -> None:
    with pytest.raises(NotFoundError, match="Run nobody wasn't published"):
        three.undo("nobody")
    three.undo("r2")
    with pytest.raises(InputError, match="Run r2 is already reverted, by run x-r2"):
        three.undo("r2", new="x-2")


def test_a_concurrent_ingest_is_kept(three: House, monkeypatch: pytest.MonkeyPatch) -> None:
    concurrent = _before_commit(three, monkeypatch, lambda: three.add("r4", D))
    run = three.undo("r2")

    assert concurrent == []
    assert run.status == "published"
    assert three.rows() == [*A, *C, *D]


def test_only_a_concurrent_append_is_rebased_again(three: House, monkeypatch: pytest.MonkeyPatch) -> None:
    three.work("over", lambda tx: tx.overwrite("nyc.trips", D))
    later = [{"id": 10 + number, "passengers": 1} for number in range(5)]
    for number, row in enumerate(later[:4]):
        three.add(f"later{number}", [row])
    together: list[int] = []
    rebase_each = TableEdits.rebase_each

    def noted(self: TableEdits, sources: Sequence[Any], *args: Any, **options: Any) -> Any:
        together.append(len(sources))
        return rebase_each(self, sources, *args, **options)

    monkeypatch.setattr(revert, "_APPENDS_TOGETHER", 3)
    concurrent = _before_commit(three, monkeypatch, lambda: three.add("later4", later[4:]))
    monkeypatch.setattr(TableEdits, "rebase_each", noted)

    assert three.undo("over").status == "published"
    assert (concurrent, together) == ([], [3, 1, 1])
    assert three.rows() == [*A, *B, *C, *later]


def test_a_concurrent_dependent_stops_the_revert(three: House, monkeypatch: pytest.MonkeyPatch) -> None:
    over = _before_commit(three, monkeypatch, lambda: three.work("over", lambda tx: tx.overwrite("nyc.trips", D)))
    with pytest.raises(NotRevertableError, match="run over"):
        three.undo("r2")
    assert over == []
    assert three.rows() == D
    assert three.status("x-r2")[0] == "failed"
    assert three.status("r2") == ("published", None)


def test_a_concurrent_reader_stops_the_revert(three: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader puts another table: nothing but the head itself orders the two."""

    def count(tx: Transaction) -> None:
        tx.append("nyc.zones", [{"id": len(tx.table("nyc.trips"))}])

    concurrent = _before_commit(three, monkeypatch, lambda: three.work("reader", count))
    with pytest.raises(NotRevertableError, match="run reader read the reverted rows in"):
        three.undo("r2")
    assert (concurrent, three.rows(), three.status("r2")) == ([], [*A, *B, *C], ("published", None))


def test_a_concurrent_publish_to_another_table_keeps_the_plan(three: House, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[str] = []

    def plan(context: Context, history: BranchHistory, run_id: str, *, cascade: bool) -> RevertPlan:
        plans.append(run_id)
        return plan_revert(context, history, run_id, cascade=cascade)

    monkeypatch.setattr(revert, "plan_revert", plan)
    concurrent = _before_commit(three, monkeypatch, lambda: three.add("zones", A, table=ZONES))

    assert three.undo("r2").status == "published"
    assert (concurrent, plans, three.rows(), three.rows("nyc.zones")) == ([], ["r2"], [*A, *C], A)


@pytest.mark.parametrize("arrived", [True, False])
def test_a_lost_answer_is_settled_from_the_history(
    three: House, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    commit, answers = three.catalog.commit, iter([OutcomeUnknownError("gone")])

    def lossy(request: CommitRequest) -> Ref:
        error = next(answers, None) if request.branch == "main" else None
        if error is None:
            return commit(request)
        if arrived:
            commit(request)
        raise error

    monkeypatch.setattr(three.catalog, "commit", lossy)
    run = three.undo("r2")

    assert run.status == "published"
    assert three.rows() == [*A, *C]
    assert [c.properties[RUN_ID_PROPERTY] for c in three.catalog.history("main")] == ["x-r2", "r3", "r2", "r1"]


@pytest.mark.parametrize(("point", "status"), [("before-publish", "failed"), ("after-publish", "published")])
def test_a_revert_that_was_killed_is_recovered(
    three: House, monkeypatch: pytest.MonkeyPatch, point: str, status: str
) -> None:
    three.dies_at(monkeypatch, point, lambda: three.undo("r2"))
    recover(three.context)
    sync(three.context, "main")

    assert three.status("x-r2")[0] == status
    assert three.status("r2")[0] == ("reverted" if status == "published" else "published")
    assert three.rows() == ([*A, *C] if status == "published" else [*A, *B, *C])


def test_a_revert_that_was_planned_again_and_killed_is_recovered_as_it_was_committed(
    three: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def revert_all() -> None:
        with when_reached(monkeypatch, "before-publish", lambda: three.work("over", overwrite)):
            three.undo("r1", cascade=True)

    def overwrite(tx: Transaction) -> None:
        tx.overwrite("nyc.trips", D)

    def die(request: CommitRequest) -> Ref:
        made = commit(request)
        if request.branch == "main" and request.message.startswith("Revert"):
            raise Died
        return made

    commit = three.catalog.commit
    with monkeypatch.context() as patch:
        patch.setattr(three.catalog, "commit", die)
        with pytest.raises(Died):
            revert_all()
    three.kill()
    recover(three.context)
    run = three.journal.get("x-r1")
    assert run is not None
    assert (run.status, run.reverts) == ("published", ("over", "r1"))
    assert run.undone == (UndoneTable(table="nyc.trips", rows=2, data_files=1),)


def test_a_main_that_keeps_moving_is_a_conflict(three: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: CommitRequest) -> Ref:
        raise ConflictError("moved")

    monkeypatch.setattr("lakegate.wap.optimistic_commit._LONGEST_PAUSE_S", 0.0)
    monkeypatch.setattr(three.catalog, "commit", refuse)
    with pytest.raises(ConflictError, match="moved"):
        three.undo("r2")
    assert three.status("x-r2")[0] == "failed"


def _before_commit(house: House, monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> list[object]:
    """Have ``do`` done right before the next commit on main; returns what is still to be done."""
    # The concurrent commit comes while we hold the lock.
    monkeypatch.setattr("lakegate.wap.optimistic_commit._LOCK_TIMEOUT_S", 0.0)
    commit, pending = house.catalog.commit, list[object]([do])

    def overtaken(request: CommitRequest) -> Ref:
        if request.branch == "main" and pending:
            pending.clear()
            do()
        return commit(request)

    monkeypatch.setattr(house.catalog, "commit", overtaken)
    return pending


def test_keys_that_were_new_without_the_rows_that_come_back_go_with_them(house: House) -> None:
    house.add("r1", [*A, *B])
    house.work("gone", lambda tx: tx.overwrite("nyc.trips", B))
    house.add("r2", A, file="again", checks=("unique(id, scope='table')",))
    house.add("r3", C)
    with pytest.raises(
        NotRevertableError, match="run r2 checked its keys without the rows that would return"
    ) as refused:
        house.undo("gone")
    assert refused.value.context["dependents"] == ["r2"]

    house.undo("gone", cascade=True)
    assert house.rows() == [*A, *B, *C]


def test_a_run_goes_with_its_compaction_and_later_keys_stay(house: House) -> None:
    """A compaction removes no rows, so none return with it."""
    for run, rows in (("r1", A), ("r2", B)):
        house.add(run, rows, checks=("unique(id, scope='table')",))
    house.compact("compact")
    house.add("r3", C, checks=("unique(id, scope='table')",))
    house.work("other", lambda tx: tx.append("nyc.zones", [{"id": len(tx.table("nyc.trips"))}]))
    assert house.undo("compact", dry_run=True).reverts == ("compact",)
    house.undo("other")

    assert house.undo("r1", cascade=True).reverts == ("compact", "r1")
    assert house.rows() == [*B, *C]


def test_a_change_of_rows_is_no_compaction_whatever_its_snapshot_says(house: House) -> None:
    house.add("r1", A)
    house.compact("more", [*A, *B])
    house.work("other", lambda tx: tx.append("nyc.zones", [{"id": len(tx.table("nyc.trips"))}]))
    with pytest.raises(NotRevertableError, match="run other read the reverted rows"):
        house.undo("more")
    assert house.undo("more", cascade=True).reverts == ("other", "more")
    assert house.rows() == A


@pytest.mark.parametrize("compacts", [True, False])
def test_keys_go_with_the_rows_that_the_second_of_two_changes_had_deleted(house: House, *, compacts: bool) -> None:
    def alter(tx: Transaction) -> None:
        branch = house.catalog.get_ref(tx.branch)
        pointer = house.catalog.get_table(TRIPS, branch)
        assert pointer is not None
        altered = house.with_properties(pointer, {"owner": "ada"})
        house.catalog.commit(CommitRequest(branch=branch.name, base=branch.hash, message="alter", puts=(altered,)))

    house.add("r1", [*A, *B])
    if compacts:
        house.compact("first")
    else:
        house.work("first", alter)
    house.work("gone", lambda tx: tx.overwrite("nyc.trips", B))
    house.add("r2", A, file="again", checks=("unique(id, scope='table')",))
    house.add("r3", C)

    assert house.undo("first", cascade=True).reverts == ("r2", "gone", "first")
    assert house.rows() == [*A, *B, *C]


@pytest.mark.parametrize(("then", "now", "adds"), [("0", "1", True), ("2", "2", False), (None, "1", True)])
def test_what_a_change_in_several_steps_deleted_is_seen_in_its_totals(
    house: House, monkeypatch: pytest.MonkeyPatch, then: str | None, now: str, adds: bool
) -> None:
    """Of a delete and an insert in one transaction, only the insert's snapshot is published."""
    house.add("r1", A)
    house.add("r2", B)
    new, old = list(house.catalog.history("main", operations=True))[:2]
    change = CommitChange(house.context, new, TRIPS, old.puts[0], new.puts[0])
    assert not change.adds_delete_files
    for pointer, total in ((old.puts[0], then), (new.puts[0], now)):
        version = house.versions[pointer.metadata_location]
        newest = version.snapshots[-1]
        summary = newest.summary if total is None else {**newest.summary, "total-delete-files": total}
        kept = (*version.snapshots[:-1], newest.model_copy(update={"summary": summary}))
        monkeypatch.setitem(house.versions, pointer.metadata_location, replace(version, snapshots=kept))
    assert change.adds_delete_files is adds
