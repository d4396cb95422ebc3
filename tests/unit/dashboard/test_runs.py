"""Runs: filters, pages, searches by file, one run; and what the settings hide."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from lakegate.dashboard.model import ReadModel, ResultPage
from lakegate.dashboard.runs import RunDetail, get_run, list_runs
from lakegate.dashboard.tables import check_history
from lakegate.errors import InputError, NotFoundError
from lakegate.journal import pages
from lakegate.journal.pages import RunFilter
from lakegate.model.run import Run
from support.big_lake import HOSTILE, BigLake
from support.fakes import FakeLakehouse
from unit.dashboard.conftest import model_of

Load = Callable[..., Run]


def test_no_run_and_one(model: ReadModel, load: Load) -> None:
    assert list_runs(model) == ResultPage[Run]()
    run = load({"id": 1})
    (one,) = list_runs(model).items
    assert (one.run_id, one.status, one.rows_published, len(one.reports)) == (run.run_id, "published", 1, 1)


def test_pages_are_newest_first_and_complete(big: BigLake) -> None:
    model, found, cursor = big.model(), [], None
    for _ in range(20):
        page = list_runs(model, limit=20, cursor=cursor)
        found += [one.run_id for one in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert found == [run.run_id for run in reversed(big.runs)]
    assert ResultPage[Run].model_validate_json(page.model_dump_json()) == page


def whole(run: Run) -> str:
    return "" if run.request is None else run.request.model_dump_json()


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({"status": "rejected"}, lambda run: run.status == "rejected"),
        ({"kind": "revert", "status": "published"}, lambda run: run.kind == "revert"),
        ({"orchestrator": "prefect"}, lambda run: run.orchestrator == "prefect"),
        ({"table": "nyc.table_000"}, lambda run: "nyc.table_000" in run.tables),
        ({"table": "nyc.table_000", "orchestrator": "cli"}, lambda run: run.tables[0] == "nyc.table_000"),
        ({"table": "nyc.<script>"}, lambda run: False),
        ({"file": "TRIPS_00042_1"}, lambda run: "trips_00042_1" in whole(run)),
        ({"file": "<script> 🐘 trips"}, lambda run: "%3Cscript%3E%20%F0%9F%90%98%20trips" in whole(run)),
        ({"file": "not_null"}, lambda run: False),
        ({"file": "100%_sure"}, lambda run: False),
    ],
)
def test_filters(big: BigLake, wanted: dict[str, Any], fits: Callable[[Run], bool]) -> None:
    found = [one.run_id for one in list_runs(big.model(), RunFilter(**wanted), limit=1000).items]
    expected = [run.run_id for run in reversed(big.runs) if fits(run)]
    if "orchestrator" in wanted:
        expected = [
            run.run_id
            for run in reversed(big.runs)
            if run.run_id in expected and run.orchestrator == wanted["orchestrator"]
        ]
    assert found == expected


def test_times_bound_the_page(big: BigLake) -> None:
    middle = big.runs[75].started_at
    wanted = RunFilter(since=middle, until=middle + timedelta(days=5))
    found = list_runs(big.model(), wanted, limit=1000).items
    assert found
    assert all(middle <= one.started_at < middle + timedelta(days=5) for one in found)


def test_a_search_stops_and_goes_on(big: BigLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_MOST_RUNS_SEARCHED", 40)
    model, wanted, found, cursor = big.model(), RunFilter(file="trips_00005_1"), [], None
    for _ in range(10):
        page = list_runs(model, wanted, cursor=cursor)
        found += [one.run_id for one in page.items]
        cursor = page.next
        if cursor is None:
            break
        assert len(found) == 0, "it's among the oldest"
    assert found == [big.runs[5].run_id]


def test_a_file_of_a_rejected_run_is_found(model: ReadModel, load: Load) -> None:
    load({"id": 1}, name="monday")
    rejected = load({"id": None}, {"id": 9}, name="tuesday")
    (one,) = list_runs(model, RunFilter(file="tuesday")).items
    assert one.run_id == rejected.run_id


def test_one_run(big: BigLake) -> None:
    model = big.model()
    run = next(run for run in big.runs if run.status == "rejected")
    detail = get_run(model, run.run_id)
    assert detail.branch_exists
    assert detail.run == run
    verdicts = [one.verdict for one in detail.checks]
    assert verdicts == sorted(verdicts)
    assert any("🐘 emoji" in row for row in detail.checks[0].examples)
    assert [command.split()[1] for command in detail.commands] == ["runs", "query", "diff", "discard", "publish"]
    assert RunDetail.model_validate_json(detail.model_dump_json()) == detail
    assert get_run(model, run.run_id[:-3] + run.run_id[-3:]) == detail


def test_hostile_text_comes_back_as_it_is(big: BigLake) -> None:
    detail = get_run(big.model(), big.runs[0].run_id)
    assert detail.run.accepted is not None
    assert detail.run.accepted.reason == HOSTILE
    assert any(one.name == HOSTILE for one in detail.checks)


@pytest.mark.parametrize("run_id", ["", "<script>", "2026", "nowhere", "%", "a" * 500])
def test_a_run_that_is_none_or_many(big: BigLake, run_id: str) -> None:
    with pytest.raises(NotFoundError):
        get_run(big.model(), run_id)


def test_cursors_that_are_none(model: ReadModel) -> None:
    for cursor in ("", "x", "<script>", "2026", "-1"):
        with pytest.raises(InputError, match="isn't the start of a page"):
            list_runs(model, cursor=cursor)
    assert list_runs(model, cursor="2026-01-01T00:00:00 '; DROP TABLE runs").items == ()


def test_examples_follow_the_settings(house: FakeLakehouse, load: Load) -> None:
    run = load({"id": None, "email": "a@b"}, {"id": 9, "email": "c@d"})
    (check,) = get_run(model_of(house), run.run_id).checks
    assert [row["email"] for row in check.examples] == ["a@b"]
    (none,) = get_run(model_of(house, ui={"examples": 0}), run.run_id).checks
    assert (none.examples, none.hidden_examples) == ((), 1)
    # A run from before the setting has the values in the journal.
    for settings in ({"ui": {"masked": ["E*"]}}, {"audit": {"mask": ["E*"]}}):
        (masked,) = get_run(model_of(house, **settings), run.run_id).checks
        assert [row["email"] for row in masked.examples] == ["•••"]
        assert masked.examples[0]["id"] is None


ODD = (
    "\udcff",
    "\0",
    "%",
    "_",
    "'; DROP TABLE runs; --",
    "a" * 10_000,
    "\u202e🐘",
    "-1",
    "٣",
    "9999-12-31T23:59:59+14:00 x",
)


@pytest.mark.parametrize("text", ODD)
def test_whatever_somebody_types_is_answered(big: BigLake, text: str) -> None:
    model = big.model()
    wanted = RunFilter(table=text, status=text, kind=text, orchestrator=text, run_id=text, file=text)
    assert list_runs(model, wanted).items == ()
    assert check_history(model, text) == ()
    with pytest.raises(NotFoundError) as raised:
        get_run(model, text)
    assert len(raised.value.message) < 200
    with contextlib.suppress(InputError):
        list_runs(model, cursor=text)
    assert len(list_runs(model, limit=-5).items) == 1


def test_a_list_leaves_examples_in_the_journal(big: BigLake) -> None:
    rejected = next(run for run in big.runs if run.status == "rejected")
    found, _ = big.journal.pages.runs(RunFilter(run_id=rejected.run_id), limit=1, whole=False)
    assert not any(one.examples for one in found[0].reports[0].results)
    (whole,), _ = big.journal.pages.runs(RunFilter(run_id=rejected.run_id), limit=1)
    assert whole == rejected
