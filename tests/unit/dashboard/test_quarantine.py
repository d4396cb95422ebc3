"""Quarantined rows in the read model: how many wait, why, and which values may be seen."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lakegate.alerts.message import compose
from lakegate.config import NotifySettings
from lakegate.dashboard.overview import overview
from lakegate.dashboard.quarantine import QuarantineDetail, count_waiting, get_quarantine
from lakegate.model.downstream import Notice
from lakegate.model.run import Run
from lakegate.model.schema import MASK
from lakegate.model.tables import DataFile
from lakegate.reports.junit import junit
from lakegate.reports.period_page import period, period_page
from lakegate.reports.run_page import run_page
from support.fakes import FakeLakehouse
from unit.dashboard.conftest import model_of

CHECKS = ("not_null(id, severity='quarantine')", "in_range(fare, min=0, severity='quarantine')")
Load = Callable[..., Run]


@pytest.fixture
def run(load: Load) -> Run:
    load({"id": 1, "fare": 1, "name": "Ann"}, table="nyc.calm")
    rows = (
        {"id": 1, "fare": 1, "name": "Ann"},
        {"id": None, "fare": -1, "name": "Bob"},
        {"id": None, "fare": 2, "name": ""},
    )
    return load(*rows, checks=CHECKS)


def detail(house: FakeLakehouse, **settings: object) -> QuarantineDetail:
    found = get_quarantine(model_of(house, **settings), "nyc.trips")
    assert found is not None
    return found


def test_rows_that_wait_are_counted_by_check_and_column(house: FakeLakehouse, run: Run) -> None:
    found = detail(house)
    assert (found.rows, found.waiting) == (2, 2)
    (mine,) = found.runs
    assert (mine.run_id, mine.checks) == (run.run_id, {"not_null_id": 2, "in_range_fare": 1})
    assert [(one.check, one.column, one.rows) for one in mine.reasons] == [
        ("not_null_id", "id", 2),
        ("in_range_fare", "fare", 1),
    ]
    assert [(one.columns, one.values["name"], one.position) for one in found.examples] == [
        (("id", "fare"), "Bob", 1),
        (("id",), "", 2),
    ]
    assert "lakegate quarantine fix nyc.trips --set COLUMN=SQL" in [one.command for one in found.commands]
    assert get_quarantine(model_of(house), "nyc.calm") is None
    assert get_quarantine(model_of(house), "nyc.trips", run_id="other") is None


def test_what_is_masked_or_not_to_be_shown_is_in_no_example(house: FakeLakehouse, run: Run, load: Load) -> None:
    assert run.status == "published"
    assert detail(house, ui={"examples": 0}).examples == ()
    masked = detail(house, ui={"masked": ["name"]}, audit={"mask": ["fare"]})
    assert [(one.values["name"], one.values["fare"]) for one in masked.examples] == [(MASK, MASK)] * 2
    load({"id": 3, "fare": -9, "name": "Eve"}, checks="in_range(fare, min=0, severity='quarantine', examples=0)")
    found = detail(house)
    assert (found.waiting, [one.values["name"] for one in found.examples]) == (3, ["Bob", ""])


@pytest.mark.parametrize("check", ["not_null(id, {})", "sql('fare < 0', {})"])
def test_no_row_of_a_check_without_examples_is_shown(house: FakeLakehouse, load: Load, check: str) -> None:
    load({"id": None, "fare": -1, "name": "Bob"}, checks=check.format("severity='quarantine', examples=0"))
    found = detail(house)
    assert (found.waiting, found.examples) == (1, ())


def test_home_shows_which_tables_have_rows_that_wait(house: FakeLakehouse, run: Run) -> None:
    found = overview(model_of(house))
    assert [(one.table, one.needs, one.quarantined) for one in found.items] == [
        (run.tables[0], ("quarantined",), 2),
        ("nyc.calm", (), 0),
    ]


def test_reports_and_alerts_say_what_was_quarantined(house: FakeLakehouse, run: Run) -> None:
    page, junit_text = run_page(run), junit(run)
    assert "2 rows</b> of the batch set aside" in page
    assert f"lakegate quarantine show nyc.trips --run {run.run_id}" in page
    assert '<property name="quarantined" value="2"' in junit_text
    found = period(model_of(house), since=None)
    (trips,) = (one for one in found.report.tables if one.table == "nyc.trips")
    assert (found.report.rows, trips.rows, trips.quarantined) == (2, 1, 2)
    assert [(one.name, one.severity, one.failing_rows) for one in found.report.checks] == [
        ("in_range_fare", "quarantine", 1),
        ("not_null_id", "quarantine", 2),
    ]
    assert "2 rows in quarantine" in period_page(found)
    notice = Notice(event="quarantined", severity="warn", tables=("nyc.trips",), run=run, at=run.started_at)
    message = compose(notice, NotifySettings())
    assert ("Quarantined by", "not_null_id (2), in_range_fare (1)") in message.facts
    assert any("quarantine show" in command for _, command in message.commands)


def test_no_file_of_a_quarantine_table_is_left_uncounted() -> None:
    file = DataFile(path="f", rows=3, size_bytes=1, columns={})
    reader = SimpleNamespace(files=lambda _: iter([file] * 10_001))
    model: Any = SimpleNamespace(
        reader=reader, read_each=lambda items, do: [*map(do, items)], cached=lambda _, __, compute: compute()
    )
    pointer: Any = SimpleNamespace(table="nyc.trips__quarantine")
    assert count_waiting(model, {"nyc.trips__quarantine": pointer}) == {"nyc.trips": 30_003}
