"""A contract tried on earlier batches, each as of the time of its own audit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakegate.contracts.store import parse_contract
from lakegate.model.run import RunStep
from lakegate.wap.ingest import ingest
from lakegate.wap.trial import ContractOutcome, outcome_of
from support import fakes
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, TRIPS, WITH_NULLS, ordered

BEGAN = datetime(2024, 5, 1, 12, tzinfo=UTC)


def outcome(house: FakeLakehouse, run_id: str, rest: str) -> ContractOutcome:
    run = house.journal.get(run_id)
    assert run is not None
    return outcome_of(house.context, parse_contract(f"{{version: 1, table: {TRIPS}, {rest}}}"), run)


def at(house: FakeLakehouse, run_id: str, time: datetime) -> None:
    """Have a run begun, and been audited, at another time."""
    run = house.journal.get(run_id)
    assert run is not None
    audited = RunStep(name="audit", started_at=time, finished_at=time, outcome="done")
    house.journal.save(run.model_copy(update={"started_at": time, "finished_at": time, "steps": (audited,)}))


class Moment(str):
    """A time, as SQLite compares it."""

    __slots__ = ()


@pytest.mark.parametrize(("hours", "is_late", "is_early"), [(-30, True, False), (-1, False, False), (1, False, True)])
def test_a_batch_is_compared_with_the_time_of_its_own_audit(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, hours: int, *, is_late: bool, is_early: bool
) -> None:
    monkeypatch.setitem(fakes.TYPES, Moment, ("timestamp[us]", "timestamp"))
    select = house.select
    monkeypatch.setattr(house, "select", lambda rows, sql: select(rows, sql.replace("TIMESTAMP_NTZ ", "")))
    newest = Moment(f"{BEGAN + timedelta(hours=hours):%Y-%m-%d %H:%M:%S}")
    ingest(house.context, ordered(house, [{"at": newest}], checks=()))
    at(house, "r1", BEGAN)
    assert outcome(house, "r1", "checks: [recency: {column: at, within: 1 day}]").rejected is is_late
    assert outcome(house, "r1", "checks: [not_in_future: at]").rejected is is_early


def test_a_batch_is_compared_with_those_before_it_and_not_with_later_ones(house: FakeLakehouse) -> None:
    for number in range(13):
        rows = CLEAN if number != 6 else [*CLEAN, *CLEAN]
        kind = "not_null(id)" if number != 7 else "row_count(max=1)"
        ingest(house.context, ordered(house, rows if number < 7 else MORE * 50, run=f"r{number}", checks=(kind,)))
        at(house, f"r{number}", BEGAN + timedelta(days=number))
    rest = "checks: [volume_anomalies]"
    assert [outcome(house, f"r{number}", rest).rejected for number in (5, 6, 7)] == [False, True, True]
    assert outcome(house, "r4", rest).rejected is False  # too few came before it
    assert [outcome(house, f"r{number}", rest).before for number in (6, 7)] == ["published", "rejected"]


def test_a_batch_is_judged_by_the_contract_s_columns(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    fits = outcome(house, "r1", "columns: [{name: id, type: long}]")
    assert (fits.rejected, fits.rows, fits.reason) == (False, 2, None)
    lacks = outcome(house, "r1", "columns: [{name: tip, required: true, checks: [in_range: {min: 0}]}]")
    assert (lacks.rejected, lacks.reason) == (True, None)
    assert [one.detail for one in lacks.failures] == ["tip is missing."]
    extra = outcome(house, "r1", "extra_columns: refuse, columns: [{name: id, type: long}]")
    assert [one.detail for one in extra.failures] == ["passengers isn't expected."]


def test_more_rows_than_may_be_quarantined_reject_a_batch(house: FakeLakehouse) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "passengers": None},
        {"id": -2, "passengers": None},
        {"id": -3, "passengers": 1},
        *CLEAN,
    ]
    ingest(house.context, ordered(house, rows, checks=()))
    checks = (
        "not_null: {column: passengers, severity: quarantine}, in_range: {column: id, min: 0, severity: quarantine}"
    )
    rest = f"checks: [{checks}]"
    assert outcome(house, "r1", rest).rejected is False
    assert outcome(house, "r1", f"{rest}, quarantine_limit: 3").rejected is False  # one row fails both
    over = outcome(house, "r1", f"{rest}, quarantine_limit: 2")
    assert over.rejected
    assert over.over_limit == (
        "3 of 5 rows would be quarantined, more than quarantine_limit allows (2 rows): the whole batch is rejected."
    )


def test_the_branch_of_a_rejected_batch_must_be_there(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house, WITH_NULLS))
    assert outcome(house, "r1", "checks: [not_null: id]").rejected is False
    house.catalog.delete_ref(house.catalog.get_ref(f"wap/{TRIPS}_r1"))
    gone = outcome(house, "r1", "checks: [not_null: id]")
    assert (gone.rejected, gone.rows) == (None, 0)
    assert gone.reason == f"There is no branch or tag 'wap/{TRIPS}_r1'."
