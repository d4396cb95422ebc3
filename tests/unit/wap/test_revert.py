"""Reverting publishes on a lakehouse in memory: what is reverted, what stays, and what prevents a revert."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from lakegate.errors import (
    CatalogUnavailableError,
    InputError,
    NotFoundError,
    NotReplayableError,
    NotRevertableError,
    OutcomeUnknownError,
)
from lakegate.ledger.sync import sync
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import RUN_ID_PROPERTY, UndoneTable
from lakegate.wap import review
from lakegate.wap.rebuild import rebuild
from lakegate.wap.recover import recover
from lakegate.wap.revert import restore_table
from lakegate.wap.transaction import Transaction
from support.flow_support import TRIPS
from support.ledger_support import event_in
from support.revert_support import A, B, C, D, House
from support.steps_support import known

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
        "lakegate": '{"v":1,"run":"x-r2","kind":"revert","tables":{"nyc.trips":{"add":{"x-r2":[]},"remove":["r2"]}}}',
    }
    snapshots = three.snapshots(commit.puts[0])
    assert [s.operation for s in snapshots] == ["append", "append", "append", "delete"]
    assert snapshots[-1].summary[RUN_ID_PROPERTY] == "x-r2"
    assert three.status("r2") == ("reverted", "x-r2")
    assert three.journal.get("x-r2") == run


def test_a_lost_journal_learns_of_reverts_from_the_history(three: House) -> None:
    three.undo("r2")
    three.lose_journal()
    rebuild(three.context, "main")

    assert three.status("r2") == ("reverted", "x-r2")
    assert three.add("again-2", B, file="r2").status == "published"


def test_a_table_that_the_run_created_goes_with_it(house: House) -> None:
    house.add("r1", A)
    run = house.undo("r1")

    assert run.undone == (UndoneTable(table="nyc.trips", rows=-1, data_files=-1, dropped=True),)
    assert house.catalog.get_table(TableIdentifier.parse("nyc.trips"), house.head()) is None
    assert house.add("again", A, file="r1").status == "published"
    assert house.rows() == A


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


def test_the_branch_of_a_reverted_run_is_not_published_again(three: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: Ref) -> None:
        raise CatalogUnavailableError("Nessie is away.")

    with monkeypatch.context() as patch:
        patch.setattr(three.catalog, "delete_ref", away)
        three.add("r4", [{"id": 6, "passengers": 6}])
    left = known(three, "r4")
    assert (left.status, left.branch_kept) == ("published", True)
    three.undo("r4")

    trips = TableIdentifier.parse("nyc.trips")
    assert review.audit_branch(three.context, trips, left.branch, checks=(), configured=lambda _: ()).passed
    with pytest.raises(
        InputError, match=r"Branch .* holds the rows of run .*, which was published and reverted by run"
    ):
        review.publish_branch(three.context, left.branch, configured=lambda _: ())
    undone = known(three, "r4")
    assert undone.status == "reverted"


def test_an_append_that_a_later_run_rewrote_is_refused_until_that_one_is_reverted(three: House) -> None:
    three.work("over", lambda tx: tx.engine.overwrite(TRIPS, D, None))
    head = three.head()
    with pytest.raises(NotRevertableError, match="run over has since deleted or rewritten its rows in nyc") as caught:
        three.undo("r2")
    assert caught.value.hint == (
        "Revert the later runs first, the newest first. Or restore the table to an earlier state: lakegate table "
        "restore nyc.trips --at TIME"
    )
    assert caught.value.context["dependents"] == ["over"]
    assert three.head() == head
    assert three.journal.get("x-r2") is None

    three.undo("over")
    three.undo("r2")
    assert three.rows() == [*A, *C]


def test_a_change_that_a_later_one_built_on_is_refused(three: House) -> None:
    three.work("over", lambda tx: tx.engine.overwrite(TRIPS, D, None))
    three.work("more", lambda tx: tx.engine.upsert(TRIPS, [{"id": 5, "passengers": 9}], ["id"], None))
    with pytest.raises(NotRevertableError, match=r"run more has since changed nyc.trips by more than adding rows"):
        three.undo("over")
    three.undo("more")
    three.undo("over")
    assert three.rows() == [*A, *B, *C]


def test_rows_that_were_compacted_by_others_cannot_be_taken_out(three: House) -> None:
    three.rewrite_all_files()
    with pytest.raises(NotRevertableError, match=r"compacted\) has since deleted or rewritten its rows"):
        three.undo("r2")
    three.add("r4", D)
    three.undo("r4")
    assert three.rows() == [*A, *B, *C]


def test_a_revert_is_not_reverted_and_its_rows_are_restored(three: House) -> None:
    before = three.head()
    three.undo("r2")
    with pytest.raises(InputError, match="Run x-r2 is a revert; it can't be reverted") as caught:
        three.undo("x-r2")
    assert caught.value.hint == (
        f"To restore the table's state before it: lakegate table restore nyc.trips --at {before.hash}"
    )
    restore_table(three.context, TRIPS, before, new_run_id="y")
    assert three.rows() == [*A, *B, *C]
    for _ in range(2):
        assert (three.status("r2"), three.status("x-r2")) == (("published", None), ("reverted", "y"))
        assert three.add("again", B, file="r2").status == "skipped"
        three.lose_journal()
        rebuild(three.context, "main")
    three.undo("r2", new="x2")
    assert three.rows() == [*A, *C]


def test_what_a_replacing_run_had_replaced_comes_back(house: House) -> None:
    house.add("r1", A)
    house.add("r2", B, file="f")
    house.add("r3", C, file="f", version="2", on_changed="replace")
    assert house.rows() == [*A, *C]
    house.undo("r3")

    assert house.rows() == [*A, *B]
    commit = next(house.catalog.history("main"))
    assert event_in(commit).tables["nyc.trips"].add == {"r2": (("file:///f.parquet", "1"),), "x-r3": ()}
    assert house.status("r2") == ("published", None)
    assert house.add("r4", B, file="f").status == "skipped"
    with pytest.raises(InputError, match="Run r4 is skipped: it published nothing"):
        house.undo("r4")
    house.undo("r2")
    assert house.rows() == A
    assert house.add("r5", B, file="f").status == "published"


def test_files_that_were_published_again_are_not_brought_back_twice(house: House) -> None:
    house.add("r2", B, file="f")
    house.add("r3", C, file="f", version="2", on_changed="replace")
    house.add("r4", B, file="f", on_changed="append")
    with pytest.raises(NotRevertableError, match=r"rows of file:///f.parquet, which run r4 has since published"):
        house.undo("r3")


def test_a_dry_run_reports_and_changes_nothing(three: House) -> None:
    head, edits = three.head(), len(three.versions)
    run = three.undo("r2", dry_run=True)

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
    with pytest.raises(NotRevertableError, match=r"run reader read nyc.trips as this run left it"):
        three.undo("r2")
    assert (concurrent, three.rows(), three.status("r2")) == ([], [*A, *B, *C], ("published", None))


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


def _before_commit(house: House, monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> list[object]:
    """Have ``do`` done right before the next commit on main; returns what is still to be done."""
    # The concurrent commit comes while we hold the lock.
    monkeypatch.setattr("lakegate.wap.publish_lock._LOCK_TIMEOUT_S", 0.0)
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
    house.undo("r2")
    house.undo("gone")
    assert house.rows() == [*A, *B, *C]


def test_rows_that_a_later_run_deleted_by_delete_files_stay(three: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a run leaves all data files where they are."""
    three.work("deleted", lambda tx: tx.append("nyc.trips", D))
    pointer = three.pointer()
    version = three.versions[pointer.metadata_location]
    summary = {**version.snapshots[-1].summary, "total-delete-files": "1"}
    snapshots = (*version.snapshots[:-1], version.snapshots[-1].model_copy(update={"summary": summary}))
    monkeypatch.setitem(three.versions, pointer.metadata_location, replace(version, snapshots=snapshots))
    with pytest.raises(NotRevertableError, match="run deleted has since deleted or rewritten its rows"):
        three.undo("r2")
