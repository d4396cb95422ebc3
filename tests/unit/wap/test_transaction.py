"""Transactions on a lakehouse in memory: several tables, one commit."""

from __future__ import annotations

import pytest

from lakegate.errors import AuditFailedError, ClockError, ConfigurationError, ConflictError, InputError, QueryError
from lakegate.model.quarantine import quarantine_of
from lakegate.wap.ingest import ingest
from lakegate.wap.recover import recover
from lakegate.wap.transaction import Transaction
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, TRIPS, WITH_NULLS, begun, branches, ordered, when_reached

ASIDE = quarantine_of(TRIPS)
TOTALS = [{"zone": "a", "trips": 2}]


def test_all_tables_appear_in_one_commit(house: FakeLakehouse) -> None:
    with begun(house.context) as tx:
        tx.append("nyc.trips", CLEAN)
        tx.append("nyc.totals", TOTALS)
        assert house.rows_on("main", "nyc.trips") == []

    commit = next(house.catalog.history("main", operations=True))
    assert set(commit.tables) == {"nyc", "nyc.trips", "nyc.totals"}
    assert len(list(house.catalog.history("main"))) == 1
    assert (tx.run.status, tx.run.tables) == ("published", ("nyc.totals", "nyc.trips"))
    assert house.rows_on("main", "nyc.trips") == CLEAN
    assert branches(house) == ["main"]
    assert house.journal.get("t1") == tx.run


def test_an_exception_discards_everything(house: FakeLakehouse) -> None:
    with pytest.raises(ZeroDivisionError), begun(house.context) as tx:
        tx.append("nyc.trips", CLEAN)
        raise ZeroDivisionError
    assert branches(house) == ["main"]
    assert house.rows_on("main", "nyc.trips") == []
    assert tx.run.status == "failed"


@pytest.mark.parametrize(
    ("raised", "recorded"),
    [
        (
            QueryError("Spark failed: CAST_INVALID_INPUT.", detail="The value 'me@x.org' …"),
            "Spark failed: CAST_INVALID_INPUT.",
        ),
        (ValueError("me@x.org is no address"), "Internal error: ValueError."),
    ],
)
def test_the_journal_keeps_no_words_that_may_quote_values(
    house: FakeLakehouse, raised: Exception, recorded: str
) -> None:
    with pytest.raises(type(raised)) as caught, begun(house.context) as tx:
        raise raised
    assert caught.value is raised  # who ran it sees all of it
    assert tx.run.error is not None
    assert tx.run.error.message == recorded
    assert "me@x.org" not in tx.run.model_dump_json()


def test_the_journal_keeps_no_secret_that_an_exception_holds(house: FakeLakehouse) -> None:
    with pytest.raises(ValueError, match="hunter22"), begun(house.context) as tx:
        raise ValueError("Can't reach postgresql://me:hunter22@db/x?token=abcdef")
    assert tx.run.error is not None
    assert tx.run.error.message == "Internal error: ValueError."
    with pytest.raises(InputError), begun(house.context, "t2") as tx:
        raise InputError("No.", hint="Ask me:hunter22@db.", path="s3://me:hunter22@db/x", rows=3)
    assert tx.run.error is not None
    assert tx.run.error.context == {"path": "s3://…@db/x", "rows": 3, "run_id": "t2"}


def test_a_table_of_a_fast_clock_is_named_with_the_way_out(house: FakeLakehouse) -> None:
    with begun(house.context) as tx:
        tx.append("nyc.trips", CLEAN)
    with (
        pytest.raises(ClockError, match=r"No\. nyc\.trips can't be written until 20\d\d-\d\d-\d\dT.*Z\.") as caught,
        begun(house.context, "t2") as tx,
    ):
        tx.append("nyc.totals", TOTALS)
        tx.append("nyc.trips", MORE)
        raise ClockError("No.", hint="Set the clock.")
    assert "lakegate table restore nyc.trips --at COMMIT" in (caught.value.hint or "")


def test_one_failing_table_holds_back_all(house: FakeLakehouse) -> None:
    with pytest.raises(AuditFailedError, match=r"not_null\(passengers\)"), begun(house.context) as tx:
        tx.append("nyc.totals", TOTALS)
        tx.append("nyc.trips", WITH_NULLS)
        tx.check("nyc.trips", "not_null(passengers)")
    assert list(house.catalog.history("main")) == []
    assert (tx.run.status, tx.run.branch_kept) == ("rejected", True)
    assert tx.branch in branches(house)


@pytest.mark.parametrize("where", ["", "  ", "-- all"])
def test_a_deletion_needs_a_condition(house: FakeLakehouse, where: str) -> None:
    ingest(house.context, ordered(house))
    with pytest.raises(QueryError, match="The condition is empty") as caught, begun(house.context) as tx:
        tx.delete("nyc.trips", where)
    assert "lakegate table truncate nyc.trips" in str(caught.value.hint)
    assert house.rows_on("main", "nyc.trips") == CLEAN


def test_checks_of_a_table_that_is_not_written_are_a_mistake(house: FakeLakehouse) -> None:
    with pytest.raises(InputError, match=r"nyc\.other"), begun(house.context) as tx:
        tx.append("nyc.trips", CLEAN)
        tx.check("nyc.other", "not_null(id)")
    assert branches(house) == ["main"]


def test_a_transaction_that_changes_nothing_is_skipped(house: FakeLakehouse) -> None:
    with begun(house.context) as tx:
        pass
    assert (tx.run.status, branches(house)) == ("skipped", ["main"])


def test_appends_are_replayed_when_main_moved(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    with begun(house.context) as tx:
        tx.append("nyc.trips", MORE)
        ingest(house.context, ordered(house, WITH_NULLS, run="r2", checks=()))

    assert tx.run.publication is not None
    assert tx.run.publication.replayed == ("nyc.trips",)
    assert house.rows_on("main", "nyc.trips") == [*CLEAN, *WITH_NULLS, *MORE]


@pytest.mark.parametrize("what", ["overwrite", "upsert", "read"])
def test_rows_computed_from_an_outdated_state_are_a_conflict(house: FakeLakehouse, what: str) -> None:
    ingest(house.context, ordered(house))
    with (
        pytest.raises(ConflictError, match=r"nyc\.trips changed on main after this run started"),
        begun(house.context) as tx,
    ):
        if what == "overwrite":
            tx.overwrite("nyc.trips", MORE)
        elif what == "upsert":
            tx.upsert("nyc.trips", MORE, keys=["id"])
        else:
            tx.append("nyc.totals", [{"zone": "a", "trips": len(tx.table("nyc.trips"))}])
        ingest(house.context, ordered(house, WITH_NULLS, run="r2", checks=()))

    assert house.rows_on("main", "nyc.trips") == [*CLEAN, *WITH_NULLS]
    assert branches(house) == ["main"]
    assert tx.run.status == "failed"


@pytest.mark.parametrize("name", ["nyc.trips.changes", "nyc.trips.files", "nyc.trips.files.files"])
@pytest.mark.parametrize("by_sql", [True, False])
def test_what_is_read_below_a_table_is_read_of_the_table(house: FakeLakehouse, name: str, *, by_sql: bool) -> None:
    ingest(house.context, ordered(house))
    with (
        pytest.raises(ConflictError, match=r"nyc\.trips changed on main after this run started"),
        begun(house.context) as tx,
    ):
        rows = tx.sql(f"TABLE {name}") if by_sql else tx.table(name)
        assert tx.reads == ("nyc.trips",)
        tx.append("nyc.totals", [{"zone": "a", "trips": len(rows)}])
        ingest(house.context, ordered(house, WITH_NULLS, run="r2", checks=()))


def test_another_state_of_a_table_is_not_for_a_transaction(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    with begun(house.context) as tx:
        for selector in ("branch_main", "Tag_x", "snapshot_id_7", "at_timestamp_7", "branch_b.files", "files.tag_x"):
            for read in (lambda name: tx.sql(f"TABLE {name}"), tx.table):
                with pytest.raises(QueryError, match=r"another state of nyc\.trips"):
                    read(f"nyc.trips.{selector}")
        name = "nyc.trips.branch_main"
        for change in (tx.append, tx.overwrite, lambda name, rows: tx.upsert(name, rows, keys=["id"])):
            with pytest.raises(QueryError, match="can't be changed"):
                change(name, MORE)
        with pytest.raises(QueryError, match="can't be changed"):
            tx.sql(f"DROP TABLE {name}")
        tx.append("nyc.deep.branch_sales", TOTALS)
        assert tx.table("nyc.deep.branch_sales") == TOTALS, "a table that is only called so"
    assert tx.run.tables == ("nyc.deep.branch_sales",)
    assert tx.run.reads == ("nyc.deep.branch_sales",)


def test_tables_that_were_read_are_asserted_in_the_commit(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(house.context, ordered(house))
    with (
        pytest.raises(ConflictError),
        when_reached(monkeypatch, "before-commit", lambda: ingest(house.context, ordered(house, MORE, run="r2"))),
        begun(house.context) as tx,
    ):
        tx.append("nyc.totals", [{"zone": "a", "trips": len(tx.table("nyc.trips"))}])
    assert house.rows_on("main", "nyc.totals") == []


def test_overwriting_and_upserting_publish_what_they_say(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    with begun(house.context) as tx:
        tx.upsert("nyc.trips", [{"id": 2, "passengers": 9}, {"id": 7, "passengers": 7}], keys=["id"])
        tx.overwrite("nyc.totals", TOTALS)
    rows = {row["id"]: row["passengers"] for row in house.rows_on("main", "nyc.trips")}
    assert rows == {1: 2, 2: 9, 7: 7}

    with begun(house.context, "t2") as tx:
        tx.overwrite("nyc.trips", MORE)
    assert house.rows_on("main", "nyc.trips") == MORE


@pytest.mark.parametrize(
    ("point", "published"),
    [("after-branch", False), ("after-stage", False), ("before-publish", True), ("after-publish", True)],
)
def test_a_dead_transaction_is_finished_or_undone(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str, published: bool
) -> None:
    def work() -> None:
        with begun(house.context) as tx:
            tx.append("nyc.trips", CLEAN)
            tx.append("nyc.totals", TOTALS)

    house.dies_at(monkeypatch, point, work)
    (settled,) = recover(house.context)
    assert settled.status == ("published" if published else "failed")
    assert branches(house) == ["main"]
    found = [house.rows_on("main", name) for name in ("nyc.trips", "nyc.totals")]
    assert found == ([CLEAN, TOTALS] if published else [[], []])


@pytest.mark.parametrize(
    "by",
    [
        "overwrite",
        "INSERT OVERWRITE nyc.trips SELECT * FROM nyc.more",
        "INSERT OVERWRITE nyc.trips (id, passengers) SELECT * FROM nyc.more",
        "INSERT OVERWRITE nyc.trips\n  PARTITION (id)\n SELECT * FROM nyc.more",
        "CREATE OR REPLACE TABLE nyc.trips AS SELECT * FROM nyc.more",
        " replace\n table nyc.trips AS SELECT * FROM nyc.more",
        "DROP TABLE IF EXISTS nyc.trips",
        "-- start anew\nDROP TABLE nyc.trips",
        "/* anew */ CREATE OR /* again */ REPLACE TABLE nyc.trips AS SELECT * FROM nyc.more",
    ],
)
def test_a_table_with_quarantined_rows_is_not_overwritten(
    house: FakeLakehouse, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(house.context, ordered(house, WITH_NULLS, run="r1", checks=("not_null(passengers, severity='quarantine')",)))
    before = house.rows_on("main", "nyc.trips")

    def replace_all(tx: Transaction) -> None:
        if by == "overwrite":
            tx.overwrite("nyc.trips", MORE)
        else:
            monkeypatch.setattr(tx.engine, "used_by", lambda _: ((), (TRIPS,)))
            tx.sql(by)

    with pytest.raises(InputError, match=r"1 row of nyc\.trips is in quarantine"), begun(house.context) as tx:
        replace_all(tx)
    assert house.rows_on("main", "nyc.trips") == before


@pytest.mark.parametrize(
    "by",
    [
        "append",
        "overwrite",
        "upsert",
        "UPDATE",
        "DROP TABLE",
        "ALTER TABLE nyc.trips__quarantine DROP COLUMN id --",
        "ALTER TABLE nyc.trips__quarantine RENAME COLUMN _released_by TO x --",
        "ALTER TABLE nyc.rename COLUMN --",
    ],
)
def test_tables_of_quarantined_rows_are_not_for_transactions(
    house: FakeLakehouse, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(house.context, ordered(house, WITH_NULLS, run="r1", checks=("not_null(passengers, severity='quarantine')",)))
    before = house.catalog.get_ref("main")

    def write(tx: Transaction) -> None:
        monkeypatch.setattr(tx.engine, "used_by", lambda _: ((), (ASIDE,)))
        if by == "upsert":
            tx.upsert(str(ASIDE), CLEAN, keys=["id"])
        elif by.islower():
            getattr(tx, by)(str(ASIDE), CLEAN)
        else:
            tx.sql(f"{by} {ASIDE}")

    with pytest.raises(ConfigurationError, match=r"Can't write to nyc\.trips__quarantine"), begun(house.context) as tx:
        write(tx)
    assert house.catalog.get_ref("main") == before


@pytest.mark.parametrize("space", [" ", "\n    "])
def test_a_partition_of_a_table_with_quarantined_rows_may_be_overwritten(
    house: FakeLakehouse, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(house.context, ordered(house, WITH_NULLS, run="r1", checks=("not_null(passengers, severity='quarantine')",)))
    with begun(house.context) as tx:
        monkeypatch.setattr(tx.engine, "used_by", lambda _: ((), (TRIPS,)))
        tx.sql(f"INSERT OVERWRITE TABLE nyc.trips{space}PARTITION (id = 1){space}TABLE nyc.trips")
