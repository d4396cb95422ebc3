"""The home page: every table, those that need a human first, even if parts can't be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakegate.config import Settings
from lakegate.dashboard.branches import get_branch, list_branches
from lakegate.dashboard.model import ReadModel
from lakegate.dashboard.overview import Overview, overview
from lakegate.errors import CatalogUnavailableError
from lakegate.journal.database import SqliteDatabase
from lakegate.journal.journal import Journal
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.run import Run
from lakegate.wap.alerting import find_late
from lakegate.wap.ingest import ingest
from lakegate.wap.revert import restore_table
from lakegate.wap.table_changes import drop_table, rename_table
from support.big_lake import BigLake, big_lake
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, WITH_NULLS, Rows, ordered
from unit.dashboard.conftest import model_of

Load = Callable[..., Run]


def test_an_empty_lake_has_an_empty_page(model: ReadModel) -> None:
    page = overview(model)
    assert (page.items, page.total, page.problems, page.branches) == ((), 0, (), 0)


def test_a_table_says_how_it_is(model: ReadModel, load: Load) -> None:
    load({"id": 1}, {"id": 2})
    last = load({"id": 3})
    (one,) = overview(model).items
    assert (one.table, one.rows, one.needs, one.exists) == ("nyc.trips", 3, (), True)
    assert (one.published_at, one.last_run, one.last_status) == (last.finished_at, last.run_id, "published")


def test_what_needs_a_human_is_first(house: FakeLakehouse, load: Load) -> None:
    load({"id": 1}, table="nyc.aa_fine")
    load({"id": 1}, table="nyc.bb_rejected")
    load({"id": None}, {"id": 9}, table="nyc.bb_rejected")
    failed = load({"id": 1}, table="nyc.cc_failed")
    house.journal.save(failed.model_copy(update={"run_id": "r9", "status": "failed", "started_at": datetime.now(UTC)}))
    model = model_of(house, notify={"late": {"nyc.dd_late": "1d", "nyc.aa_fine": "1d"}})
    page = overview(model)
    assert [(one.table, one.needs) for one in page.items] == [
        ("nyc.cc_failed", ("failed",)),
        ("nyc.bb_rejected", ("rejected",)),
        ("nyc.dd_late", ("late",)),
        ("nyc.aa_fine", ()),
    ]
    assert page.needing == 3
    assert page.items[1].waiting == 1
    assert (page.items[2].exists, page.items[2].late_s) == (False, 0.0)
    assert [one.table for one in overview(model, needing=True).items] == [one.table for one in page.items[:3]]
    first = overview(model, limit=3)
    assert [one.table for one in overview(model, cursor=first.next).items] == ["nyc.aa_fine"]


def test_a_run_that_failed_long_ago_is_still_the_newest(house: FakeLakehouse, load: Load) -> None:
    failed = load({"id": 1})
    house.journal.save(failed.model_copy(update={"run_id": "r9", "status": "failed", "started_at": datetime.now(UTC)}))
    model = model_of(house)
    model.now = lambda: datetime.now(UTC) + timedelta(days=90)
    assert overview(model).items[0].needs == ("failed",)


def test_a_rejected_file_that_was_tried_again_waits_no_more(model: ReadModel, house: FakeLakehouse) -> None:
    def load(run: str, rows: Rows, file: str) -> None:
        ingest(house.context, ordered(house, rows, run=run, file=file, version=run))

    pages = house.journal.pages
    load("r1", WITH_NULLS, "a")
    load("r2", WITH_NULLS, "a")
    assert overview(model).items[0].waiting == 1
    assert pages.superseded(["r1", "r2"]) == {"r1": "r2"}
    load("r3", WITH_NULLS, "b")
    assert overview(model).items[0].waiting == 2

    load("r4", CLEAN, "a")

    assert overview(model).items[0].waiting == 1
    assert pages.superseded(["r1", "r2", "r3", "r4"]) == {"r1": "r4", "r2": "r4"}
    shown = [(one.branch, one.superseded_by) for one in list_branches(model).items]
    assert shown == [("wap/nyc.trips_r3", None), ("wap/nyc.trips_r2", "r4"), ("wap/nyc.trips_r1", "r4")]
    assert get_branch(model, "wap/nyc.trips_r1").superseded_by == "r4"
    assert {ref.name for ref in model.branches()} >= {"wap/nyc.trips_r1", "wap/nyc.trips_r2", "wap/nyc.trips_r3"}


def test_a_rejected_batch_waits_as_long_as_its_branch_exists(
    model: ReadModel, house: FakeLakehouse, load: Load
) -> None:
    run = load({"id": None}, {"id": 9})
    assert overview(model).items[0].waiting == 1
    house.catalog.delete_ref(house.catalog.get_ref(run.branch))
    assert overview(model).items[0].waiting == 0


def test_freshness_is_measured_against_its_limit(house: FakeLakehouse, load: Load) -> None:
    load({"id": 1})
    model = model_of(house, notify={"late": {"nyc.trips": "1h"}})
    assert overview(model).items[0].late_s is None
    model.now = lambda: datetime.now(UTC) + timedelta(hours=3)
    (one,) = overview(model).items
    assert one.late_s == pytest.approx(7200, abs=60)


def test_late_tables_are_those_that_alerts_name(house: FakeLakehouse, load: Load) -> None:
    first, second = load({"id": 1}), load({"id": 2})
    long = first.model_copy(update={"finished_at": datetime.now(UTC)})  # it ended after the run that began after it
    house.journal.save(long)
    late = {"nyc.trips": "1d", "nyc.rides": "1d"}

    def last() -> dict[str, tuple[datetime | None, tuple[str, ...]]]:
        model = model_of(house, notify={"late": late})
        alerted = [one.table for one in find_late(house.journal, late, datetime.now(UTC))]
        items = overview(model).items
        assert sorted(alerted) == sorted(one.table for one in items if "late" in one.needs)
        return {one.table: (one.published_at, one.needs) for one in items}

    assert last() == {"nyc.trips": (long.finished_at, ()), "nyc.rides": (None, ("late",))}
    trips, rides = TableIdentifier.parse("nyc.trips"), TableIdentifier.parse("nyc.rides")
    rename_table(house.context, trips, rides, new_run_id="n")
    assert last() == {"nyc.rides": (long.finished_at, ()), "nyc.trips": (None, ("late",))}
    before = house.catalog.get_ref("main")
    drop_table(house.context, rides, new_run_id="d")
    assert last() == {"nyc.rides": (None, ("late",)), "nyc.trips": (None, ("late",))}
    restore_table(house.context, rides, before, new_run_id="x")
    assert last() == {"nyc.rides": (long.finished_at, ()), "nyc.trips": (None, ("late",))}
    assert second.status == "published"


def test_without_the_catalog_the_journal_is_shown(house: FakeLakehouse, load: Load) -> None:
    load({"id": 1})
    load({"id": None}, {"id": 9})

    def away() -> Any:
        raise CatalogUnavailableError("Nessie is away.", hint="lakegate up")

    model = ReadModel(catalog=away, reader=lambda: house, journal=lambda: house.journal, settings=Settings())
    page = overview(model)
    assert [(one.part, one.message, one.hint) for one in page.problems] == [
        ("catalog", "Nessie is away.", "lakegate up")
    ]
    assert [(one.table, one.exists, one.rows, one.waiting) for one in page.items] == [("nyc.trips", None, None, 1)]


def test_with_a_locked_journal_the_catalog_is_shown(big: BigLake, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(SqliteDatabase(path, busy_timeout_s=0.02))
    holder = SqliteDatabase(path).engine
    whole = big.model()
    model = ReadModel(
        catalog=lambda: big.catalog, reader=lambda: whole.reader, journal=lambda: journal, settings=Settings()
    )
    with holder.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        journal.close()
        connection.exec_driver_sql("PRAGMA locking_mode=EXCLUSIVE")
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        page = overview(model)
        connection.exec_driver_sql("COMMIT")
    holder.dispose()
    journal.close()
    assert [one.part for one in page.problems] == ["journal"]
    assert "locked" in page.problems[0].message
    assert len(page.items) == len(big.tables)
    assert all(one.rows for one in page.items)


def test_a_table_whose_metadata_is_gone_leaves_the_others(tmp_path: Path) -> None:
    lake = big_lake(tmp_path, runs=12, tables=3, branches=0)
    shutil.rmtree(tmp_path / ".lakegate/warehouse" / lake.tables[0].replace(".", "/"))
    page = overview(lake.model())
    lake.close()
    gone = page.items[0]
    assert gone.table == lake.tables[0]
    assert gone.needs[0] == "unreadable"
    assert gone.problem is not None
    assert "doesn't exist" in gone.problem.message
    assert gone.published_at is not None
    assert sum(one.rows is not None for one in page.items) == 2


def test_the_page_survives_json(big: BigLake) -> None:
    page = overview(big.model())
    assert Overview.model_validate_json(page.model_dump_json()) == page
    assert sum(one.waiting for one in page.items) > 10
    assert all(one.trend[-1] == one.rows for one in page.items)
