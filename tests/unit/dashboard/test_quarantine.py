"""Quarantined rows in the read model: how many wait, why, and what of them may be seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lakegate.dashboard.overview import overview
from lakegate.dashboard.quarantine import QuarantineDetail, get_quarantine
from lakegate.model.run import Run
from lakegate.model.schema import MASK
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


def test_home_shows_which_tables_have_rows_that_wait(house: FakeLakehouse, run: Run) -> None:
    found = overview(model_of(house))
    assert [(one.table, one.needs, one.quarantined) for one in found.items] == [
        (run.tables[0], ("quarantined",), 2),
        ("nyc.calm", (), 0),
    ]
