"""``lakegate quarantine``: its calls of the lake, and its output."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import QuarantineSummary, RowSelection
from lakegate.model.run import Publication, Run
from lakegate.sources import to_uri
from lakegate.wap.release import still_failing
from support.cli_support import NOT_NULL, FakeLake, invoke, printed, report, result

AT = datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC)
ROW: dict[str, Any] = {
    "id": 3,
    "note": "[red]x\x1b[31m",
    "_quarantine_id": "a" * 32,
    "_reasons": [{"check": "low", "column": "fare", "value": "-1.0"}, {"check": "odd", "column": "id", "value": "3"}],
    "_run_id": "r1",
    "_source_file": "file:///data/a.csv",
    "_position": 7,
    "_quarantined_at": AT,
    "_released_by": None,
}
RUN = Run(
    run_id="r2",
    kind="transaction",
    name="release nyc.trips",
    tables=("nyc.trips", "nyc.trips__quarantine"),
    branch="",
    status="published",
    started_at=AT,
    finished_at=AT,
    publication=Publication(run_id="r2", target="main", commit="c" * 64, tables=("nyc.trips",), rows=2, rows_removed=0),
)


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lakegate.toml").touch()
    monkeypatch.chdir(tmp_path)


def test_list_shows_what_waits_by_run() -> None:
    one = QuarantineSummary(
        table="nyc.trips", run_id="r1", quarantined_at=AT, rows=5, waiting=3, checks={"odd": 1, "low": 3}
    )
    lake = FakeLake(quarantine_list=[one])
    shown = invoke("quarantine", lake)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[-1].split() == ["nyc.trips", "r1", "3", "2", "low", "3,", "odd", "1"]
    assert json.loads(invoke("quarantine list nyc.trips -o json", lake).stdout)[0]["waiting"] == 3
    assert invoke("quarantine list", FakeLake(quarantine_list=[])).stderr.strip() == "No rows are quarantined."


def test_show_explains_why_a_row_is_quarantined_and_escapes_values() -> None:
    lake = FakeLake(quarantine_show=[ROW])
    shown = invoke("quarantine show nyc.trips --run r1 --check low -n 5", lake)
    assert lake.asked("quarantine_show") == {"limit": 5, "run_id": "r1", "check": "low"}
    assert "low, odd" in shown.stdout
    assert "a.csv, row 8" in shown.stdout
    assert "[red]x" in shown.stdout
    assert "\x1b" not in shown.stdout
    (row,) = json.loads(invoke("quarantine show nyc.trips -o json", FakeLake(quarantine_show=[ROW])).stdout)
    assert row["_reasons"][0] == {"check": "low", "column": "fare", "value": "-1.0"}


def test_release_and_drop_pass_the_chosen_rows_on() -> None:
    lake = FakeLake(quarantine_release=RUN)
    assert invoke(["quarantine", "release", "nyc.trips", "--where", "id = 3", "--accept", "right"], lake).exit_code == 0
    asked: dict[str, Any] = {"run_id": None, "check": None, "where": "id = 3", "changes": {}, "accept": "right"}
    assert lake.asked("quarantine_release") == asked
    lake = FakeLake(quarantine_release=RUN)
    assert invoke(["quarantine", "release", "nyc.trips", "--set", "fare = a=b", "--check", "low"], lake).exit_code == 0
    assert lake.asked("quarantine_release")["changes"] == {"fare": " a=b"}
    lake = FakeLake(quarantine_drop=RUN)
    assert invoke("quarantine drop nyc.trips", lake).exit_code == 2
    assert invoke("quarantine drop nyc.trips --yes", lake).exit_code == 0


def test_a_refused_release_shows_the_failing_rows_and_the_ways_on() -> None:
    failed = result(
        Check(kind="in_range", columns=("fare",), arguments={"min": 0}, severity="quarantine"),
        1,
        [{"id": 3, "fare": -1.0, "_file": "file:/lake/00000-1.parquet"}],
    )
    run = RUN.model_copy(update={"status": "rejected", "publication": None, "reports": (report(failed),)})
    error = still_failing(TableIdentifier.parse("nyc.trips"), run, RowSelection(check=failed.name))
    shown = invoke(
        ["quarantine", "release", "nyc.trips", "--check", failed.name], FakeLake(quarantine_release=error, run=run)
    )
    assert shown.exit_code == 1
    assert "Rows that fail in_range(fare, min=0)" in shown.stdout
    assert "00000-1" not in shown.stdout, "Iceberg's own files say nothing"
    said = " ".join(shown.stderr.split())
    assert "No row of nyc.trips was released: 1 of 100,000 chosen rows fails in_range(fare, min=0)" in said
    assert "--set 'fare=EXPRESSION'" in said
    assert "--accept 'REASON'" in said
    assert "lakegate quarantine show nyc.trips --check 'in_range(fare, min=0)'" in said


def test_the_file_of_failing_rows_is_a_path_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for path, told in (
        (tmp_path / "in" / "a b%.csv", "in/a b%.csv"),
        (Path("/data/é.csv"), "/data/é.csv"),
        (Path("/data") / ("x" * 60) / ("y" * 60 + ".csv"), f"/data/…/{'y' * 60}.csv"),
    ):
        failed = result(NOT_NULL, 1, [{"_row": 7, "passenger_count": None, "_file": to_uri(path)}])
        run = RUN.model_copy(update={"status": "rejected", "publication": None, "reports": (report(failed),)})
        error = still_failing(TableIdentifier.parse("nyc.trips"), run, RowSelection())
        shown, _ = printed(
            ["quarantine", "release", "nyc.trips"], FakeLake(quarantine_release=error, run=run), monkeypatch, columns=80
        )
        assert f"  File: {told}\n" in shown
