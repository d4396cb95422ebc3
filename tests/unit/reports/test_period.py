"""What many runs add up to, and the page about it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lakegate.config import FILE_NAME
from lakegate.model.run import Run
from lakegate.reports.period import period_report
from lakegate.reports.period_page import period_page
from support.cli_support import (
    FAILED,
    FAILED_RUN,
    HASH,
    PASSED,
    PUBLICATION,
    PUBLISHED,
    REJECTED,
    START,
    FakeLake,
    invoke,
    make_run,
    report,
    staged,
)

NOW = START + timedelta(hours=5)
TWO = make_run(
    "published",
    kind="transaction",
    tables=("nyc.trips", "nyc.zones"),
    publication=PUBLICATION.model_copy(update={"tables": ("nyc.trips", "nyc.zones"), "rows": 200_007}),
    staged=(staged("nyc.trips", rows=200_000), staged("nyc.zones", rows=7)),
)


def test_runs_add_up_by_table() -> None:
    again = REJECTED.model_copy(update={"run_id": "r1", "branch_kept": False})
    undone = make_run("reverted", publication=PUBLICATION, reverted_by="r9")
    revert = make_run("published", kind="revert", publication=PUBLICATION)
    found = period_report([TWO, REJECTED, again, PUBLISHED, FAILED_RUN, undone, revert], since=START, now=NOW)
    assert found.runs == {"published": 3, "rejected": 2, "failed": 1, "reverted": 1}
    trips, zones = found.tables
    assert (trips.table, trips.rows, trips.waiting) == ("nyc.trips", 300_000, (REJECTED.run_id,))
    assert (zones.table, zones.rows, zones.waiting) == ("nyc.zones", 7, ())
    assert found.rows == 300_007
    blocking, warning = found.checks
    assert (blocking.name, blocking.runs, blocking.of_runs, blocking.failing_rows) == (
        "not_null_passenger_count",
        2,
        3,
        2006,
    )
    assert (blocking.last, warning.severity) == (REJECTED.run_id, "warn")


def test_only_one_table_can_be_reported_on() -> None:
    found = period_report([TWO], since=START, table="nyc.zones", expected={"nyc.trips": "1h"}, now=NOW)
    assert [one.table for one in found.tables] == ["nyc.zones"]
    assert found.rows == 7


@pytest.mark.parametrize(("every", "late"), [("1h", True), ("1d", False)])
def test_a_table_is_late_by_its_setting(every: str, late: bool) -> None:
    found = period_report([PUBLISHED], since=START, expected={"nyc.trips": every, "a.quiet": every}, now=NOW)
    assert {one.table: one.is_late for one in found.tables} == {"nyc.trips": late, "a.quiet": True}


@pytest.mark.parametrize(
    ("runs", "expected", "said"),
    [
        ([], {}, ("Quiet", "No run in this time", "--since 90d")),
        ([PUBLISHED], {}, ("All is well", "1 of 1 run published 100,000 rows", "Nothing waits for a decision")),
        ([FAILED_RUN], {}, ("Some runs failed", "1 run couldn&#x27;t finish; nothing of it was published")),
        ([PUBLISHED], {"nyc.trips": "1h"}, ("Late", "1 table later than expected: nyc.trips")),
        (
            [REJECTED],
            {},
            ("Needs a decision", "1 rejected batch for you", "lakegate discard wap/nyc.trips_", "1,003 of"),
        ),
    ],
)
def test_a_page_says_first_whether_anybody_is_needed(runs: list[Run], expected: Any, said: tuple[str, ...]) -> None:
    page = period_page(period_report(runs, since=START, expected=expected, now=NOW), runs)
    for part in said:
        assert part in page


def test_a_page_of_many_runs_stays_small_and_says_what_it_left_out() -> None:
    names = [f"<b>.t{number}" for number in range(400)]
    runs = [
        make_run(
            "rejected",
            run_id=f"r{at}",
            tables=(name,),
            branch_kept=True,
            reports=(report(*FAILED.results, table=name),),
        )
        for at, name in enumerate(names * 3)
    ]
    page = period_page(period_report(runs, since=None, is_complete=False, now=NOW), runs)
    assert len(page.encode()) < 2_000_000
    assert "<b>.t1" not in page
    assert "newest 1,200 runs" in page
    assert "… and 1,100 earlier runs" in page
    assert "… and 1,180 more: lakegate runs --status rejected" in page


def test_the_command_writes_a_page_or_json(in_a_project: Path) -> None:
    (in_a_project / FILE_NAME).write_text('[notify.late]\n"nyc.trips" = "1h"\n', encoding="utf-8")
    lake = FakeLake(runs=[PUBLISHED, make_run("published", reports=(PASSED,), publication=PUBLICATION)])
    assert "Late" in invoke("report --table nyc.trips --since 2026-01-31", lake).stdout
    asked = lake.asked("runs")
    assert (asked["table"], asked["since"].day, asked["limit"]) == ("nyc.trips", 31, 2001)
    told = json.loads(invoke("report -o json", lake).stdout)
    assert told["tables"][0]["is_late"] is True
    assert HASH not in json.dumps(told)
    assert invoke("report --output table").exit_code == 2
