"""The report on many runs, and its page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Never

import pytest

from lakegate.config import Settings
from lakegate.dashboard.model import ReadModel
from lakegate.errors import CatalogUnavailableError, RetryableError
from lakegate.journal.database import SqliteDatabase
from lakegate.journal.journal import Journal
from lakegate.model.checks import Check
from lakegate.model.run import Run, RunError
from lakegate.reports.period import period, period_page
from lakegate.testing import MemoryCatalog
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
    result,
    staged,
)
from support.ledger_support import save_with_commits

NOW = START + timedelta(hours=5)
TWO = make_run(
    "published",
    kind="transaction",
    tables=("nyc.trips", "nyc.zones"),
    publication=PUBLICATION.model_copy(update={"tables": ("nyc.trips", "nyc.zones"), "rows": 200_007}),
    staged=(staged("nyc.trips", rows=200_000), staged("nyc.zones", rows=7)),
)


REBUILT = make_run(
    "published",
    request=None,
    publication=PUBLICATION.model_copy(update={"rows": 0}),
    detail="Known from commit 2e1cfa82b035 only.",
)
UNKNOWN = make_run("failed", error=RunError(code="outcome-unknown", message="The catalog didn't answer."))


def reading(home: Path, runs: Sequence[Run], late: dict[str, str] | None = None, *, is_away: bool = False) -> ReadModel:
    """Return the read model of a journal with these runs and a catalog with their kept branches."""
    home.mkdir(exist_ok=True)
    journal = Journal(SqliteDatabase(home / "journal.db"))
    catalog = MemoryCatalog()
    for at, run in enumerate(runs):
        run_id = f"20260131T07{at // 60:02}{at % 60:02}-{at:08x}"
        branch = f"{run.branch}-{at}"
        save_with_commits(journal, run.model_copy(update={"run_id": run_id, "branch": branch}))
        if run.branch_kept:
            catalog.create_branch(branch, catalog.get_ref("main"))

    def connected() -> MemoryCatalog:
        if is_away:
            raise CatalogUnavailableError("Nessie is away.")
        return catalog

    return ReadModel(
        catalog=connected,
        reader=lambda: pytest.fail("nothing is read of tables"),
        journal=lambda: journal,
        settings=Settings.model_validate({"notify": {"late": late or {}}}),
        clock=lambda: NOW,
    )


@pytest.mark.parametrize("is_away", [False, True])
def test_runs_add_up_by_table(tmp_path: Path, is_away: bool) -> None:
    again = REJECTED.model_copy(update={"branch_kept": False})
    undone = make_run("reverted", publication=PUBLICATION, reverted_by="r9")
    revert = make_run("published", kind="revert", publication=PUBLICATION)
    runs = [TWO, REJECTED, again, PUBLISHED, FAILED_RUN, undone, revert]
    found = period(reading(tmp_path, runs, is_away=is_away), since=START).report
    assert found.runs == {"published": 3, "rejected": 2, "failed": 1, "reverted": 1}
    trips, zones = found.tables
    assert (trips.table, trips.rows) == ("nyc.trips", 300_000)
    assert [one[-8:] for one in trips.waiting] == ["00000001"], "the other one's branch is gone"
    assert (zones.table, zones.rows, zones.waiting) == ("nyc.zones", 7, ())
    assert found.rows == 300_007
    blocking, warning = found.checks
    assert (blocking.name, blocking.runs, blocking.of_runs, blocking.failing_rows) == (
        "not_null(passenger_count)",
        2,
        3,
        2006,
    )
    assert (blocking.last[-8:], warning.severity) == ("00000002", "warn")


def test_a_check_with_too_many_rows_to_quarantine_has_failed(tmp_path: Path) -> None:
    aside = result(Check(kind="not_null", columns=("fare",), severity="quarantine"))
    too_many = aside.model_copy(update={"verdict": "fail", "failing_rows": 90})
    few = make_run("published", publication=PUBLICATION, reports=(report(aside.model_copy(update={"quarantined": 1})),))
    [one] = period(reading(tmp_path / "a", [few]), since=START).report.checks
    assert (one.severity, one.failing_rows) == ("quarantine", 1)
    many = make_run("rejected", branch_kept=True, reports=(report(too_many),))
    [one] = period(reading(tmp_path / "b", [few, many, few]), since=START).report.checks
    assert (one.severity, one.runs, one.failing_rows) == ("error", 3, 92)


def test_a_page_says_what_it_lacks_without_the_catalog(tmp_path: Path) -> None:
    page = period_page(period(reading(tmp_path, [PUBLISHED], is_away=True), since=START))
    assert "Nessie is away. Quarantined rows aren't counted" in page


def test_nothing_is_reported_without_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: object) -> Never:
        raise RetryableError("The journal is locked.")

    model = reading(tmp_path, [REJECTED])
    monkeypatch.setattr(model.journal, "abandoned", locked)
    with pytest.raises(RetryableError, match="locked"):
        period(model, since=START)


def test_only_one_table_can_be_reported_on(tmp_path: Path) -> None:
    found = period(reading(tmp_path, [TWO], {"nyc.trips": "1h"}), since=START, table="nyc.zones").report
    assert [one.table for one in found.tables] == ["nyc.zones"]
    assert found.rows == 7


def test_what_waits_or_was_published_before_the_period_counts(tmp_path: Path) -> None:
    model = reading(tmp_path, [PUBLISHED, REJECTED], {"nyc.trips": "10d"})
    found = period(model, since=NOW)
    [trips] = found.report.tables
    assert (found.report.runs, trips.is_late, len(trips.waiting), len(found.undecided)) == ({}, False, 1, 1)
    assert trips.last_publish is not None
    assert "Needs a decision" in period_page(found)


@pytest.mark.parametrize(("every", "late"), [("1h", True), ("1d", False)])
def test_a_table_is_late_by_its_setting(tmp_path: Path, every: str, late: bool) -> None:
    found = period(reading(tmp_path, [PUBLISHED], {"nyc.trips": every, "a.quiet": every}), since=START).report
    assert {one.table: one.is_late for one in found.tables} == {"nyc.trips": late, "a.quiet": True}


@pytest.mark.parametrize(
    ("runs", "late", "said"),
    [
        ([], {}, ("Quiet", "No runs in this period", "--since 90d")),
        ([PUBLISHED], {}, ("All is well", "1 of 1 run published 100,000 rows", "Nothing is waiting for a decision")),
        ([FAILED_RUN], {}, ("Some runs failed", "1 run couldn&#39;t finish; none was published")),
        ([REBUILT], {}, ("All is well", "published 0 rows", "The rows of 1 run aren't counted")),
        ([UNKNOWN], {}, ("Some runs failed", "1 run couldn&#39;t finish; 1 may still have been published.")),
        ([FAILED_RUN, UNKNOWN], {}, ("2 runs couldn&#39;t finish; 1 may still have been published.",)),
        ([PUBLISHED], {"nyc.trips": "1h"}, ("Late", "1 table later than expected: nyc.trips")),
        (
            [REJECTED],
            {},
            ("Needs a decision", "1 rejected batch for you", "lakegate discard wap/nyc.trips_", "1,003 of"),
        ),
    ],
)
def test_a_page_says_first_whether_anybody_is_needed(
    tmp_path: Path, runs: list[Run], late: dict[str, str], said: tuple[str, ...]
) -> None:
    page = period_page(period(reading(tmp_path, runs, late), since=START))
    for part in said:
        assert part in page


def test_a_page_of_many_runs_stays_small_and_says_what_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"<b>.t{number}" for number in range(40)]
    runs = [
        make_run(
            "rejected",
            tables=(name,),
            branch_kept=True,
            reports=(report(*FAILED.results, table=name),),
            request=None,  # or each would be another attempt at the same file
        )
        for name in names * 3
    ]
    monkeypatch.setattr("lakegate.reports.period._MOST_RUNS", 110)
    page = period_page(period(reading(tmp_path, runs), since=None))
    assert len(page.encode()) < 2_000_000
    assert "<b>.t1" not in page
    assert "newest 110 runs" in page
    assert "… and 10 earlier runs" in page
    assert "… and 100 more: lakegate runs --status rejected" in page


def test_the_command_writes_a_page_or_json(in_a_project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = reading(in_a_project, [make_run("published", reports=(PASSED,), publication=PUBLICATION)])
    monkeypatch.setattr("lakegate.dashboard.model.open_read_model", lambda _: model)
    assert "1 of 1 run published" in invoke("report --table nyc.trips --since 2026-01-31", FakeLake()).stdout
    told = json.loads(invoke("report -o json --since 2026-01-31", FakeLake()).stdout)
    assert told["tables"][0]["runs"] == {"published": 1}
    assert HASH not in json.dumps(told)
    assert invoke("report --output table").exit_code == 2


def test_rows_in_quarantine_come_with_the_command_that_shows_them(tmp_path: Path) -> None:
    found = period(reading(tmp_path, [PUBLISHED], is_away=True), since=START)
    tables = tuple(one.model_copy(update={"quarantined": 7}) for one in found.report.tables)
    page = period_page(found._replace(report=found.report.model_copy(update={"tables": tables})))
    assert "7 rows of nyc.trips" in page
    assert "<code>lakegate quarantine show nyc.trips</code>" in page
