"""``lakegate quarantine``: its calls of the lake, and its output."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakegate.model.quarantine import QuarantineSummary
from lakegate.model.run import Publication, Run
from support.cli_support import FakeLake, invoke

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
    assert "a.csv:7" in shown.stdout
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
