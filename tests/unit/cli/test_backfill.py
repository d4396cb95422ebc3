"""``lakegate backfill``: its output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from lakegate.errors import EngineError, SourceError
from lakegate.loading.backfill import Backfill
from lakegate.loading.backfill_plan import BackfillReport, ChunkResult
from lakegate.model.request import IngestOptions
from support.backfill_support import Archive, day_files
from support.cli_support import invoke

DAY_1, DAY_2, DAY_3 = (f"green_2024-01-0{day}.parquet" for day in (1, 2, 3))
BACKFILL = ["backfill", "nyc.trips", "trips/green_%Y-%m-%d.parquet", "--from", "2024-01-01", "--to", "2024-01-31"]


@pytest.fixture
def archive(in_a_project: Path) -> Archive:
    day_files(in_a_project / "trips", 1, 2, 3)
    return Archive(published={DAY_1: "r0"})


def run(archive: Archive, *words: str, **given: Any) -> Result:
    return invoke([*BACKFILL, *words], archive.lake(), **given)


def test_a_dry_run_shows_the_chunks_and_the_command(archive: Archive) -> None:
    outcome = run(archive, "--dry-run", "--parallel", "2")
    assert outcome.exit_code == 0
    assert archive.ingested == []
    for text in ("3 files in 3 chunks", "2024-01-02", "2 chunks to ingest: 2 files, 48 B."):
        assert text in outcome.stdout
    assert f"lakegate {' '.join(BACKFILL)} --parallel 2\n" in outcome.stdout
    archive.published |= {DAY_2: "r1", DAY_3: "r2"}
    assert "Everything is already published." in run(archive, "--dry-run").stdout


def test_a_dry_run_finds_what_the_run_would_refuse(archive: Archive) -> None:
    archive.troubles[DAY_2] = SourceError("The file is damaged.", hint="Copy it again.")
    outcome = run(archive, "--dry-run")
    assert outcome.exit_code == 2
    assert "2024-01-02 would be refused: The file is damaged." in outcome.stdout
    chunks = json.loads(run(archive, "--dry-run", "-o", "json").stdout)["chunks"]
    assert [chunk["error"] and chunk["error"]["message"] for chunk in chunks] == [None, "The file is damaged.", None]


def test_a_problem_of_many_chunks_is_shown_once(archive: Archive) -> None:
    archive.troubles = {DAY_2: SourceError("One:\n- a\n- b"), DAY_3: SourceError("One:\n- a\n- b")}
    assert "2024-01-02 and 1 more would be refused: One:\n- a\n- b\n" in run(archive, "--dry-run").stdout


def test_the_plan_as_json(archive: Archive) -> None:
    plan = json.loads(run(archive, "--dry-run", "--chunk", "month", "-o", "json").stdout)
    assert (plan["table"], plan["files"], plan["files_to_do"], plan["creates"]) == ("nyc.trips", 3, 2, False)
    (chunk,) = plan["chunks"]
    assert (chunk["name"], chunk["files_to_do"]) == ("2024-01", 2)
    assert [file["state"] for file in chunk["files"]] == ["published", "new", "new"]
    assert chunk["files"][0]["run_id"] == "r0"


@pytest.mark.parametrize(
    ("troubles", "code", "told"),
    [
        ({}, 0, "20 rows of 2 files published"),
        ({DAY_2: "rejected"}, 1, "not_null(passenger_count)"),
        ({DAY_2: SourceError("It is damaged.")}, 2, "It is damaged."),
        ({DAY_2: EngineError("Out of disk.")}, 3, "Out of disk."),
        ({DAY_2: "left"}, 3, "1 file left to other runs"),
        ({DAY_2: "rejected", DAY_3: EngineError("Out of disk.")}, 3, "Out of disk."),
        ({DAY_2: "rejected", DAY_3: SourceError("It is damaged.")}, 2, "rejected"),
    ],
)
def test_how_it_ends(archive: Archive, troubles: dict[str, Any], code: int, told: str) -> None:
    archive.troubles = troubles
    outcome = run(archive)
    assert outcome.exit_code == code
    assert told in outcome.stdout
    assert "published before" in outcome.stdout
    assert sorted(line.split("  ")[0] for line in outcome.stderr.splitlines()) == ["2024-01-02", "2024-01-03"]
    assert ("Next" in outcome.stdout) == bool(troubles)
    assert (f"lakegate {' '.join(BACKFILL)}\n" in outcome.stdout) == bool(troubles)


def test_json_is_one_object(archive: Archive) -> None:
    archive.troubles = {DAY_2: "rejected"}
    outcome = run(archive, "-o", "json", "-q")
    assert outcome.exit_code == 1
    assert outcome.stderr == ""
    report = json.loads(outcome.stdout)
    assert {name: number for name, number in report["chunks"].items() if number} == {
        "published": 1,
        "already": 1,
        "rejected": 1,
    }
    assert (report["rows"], report["files"], report["interrupted"]) == (10, 1, False)
    rejected = report["results"][1]
    assert (rejected["chunk"], rejected["outcome"]) == ("2024-01-02", "rejected")
    assert rejected["failed_checks"] == ["not_null(passenger_count)"]
    assert rejected["branch"]


def test_options_reach_the_ingest_and_nothing_starts_after_a_failure(archive: Archive) -> None:
    archive.troubles = {DAY_2: "rejected"}
    outcome = run(
        archive,
        *("--stop-on-failure", "--parallel", "1", "-c", "unique(id)", "--on-changed", "append"),
        *("--on-failure", "drop", "--partition-by", "days(pickup)", "--format", "parquet"),
    )
    assert outcome.exit_code == 3
    assert "not started" in outcome.stdout
    (options,) = archive.options
    assert options == IngestOptions(
        checks=("unique(id)",),
        on_failure="drop",
        on_changed="append",
        on_busy="skip",
        partition_by=("days(pickup)",),
        format="parquet",
    )


@pytest.mark.parametrize(("given_up", "left"), [(False, 0), (True, 1)])
def test_an_interrupted_backfill_says_how_to_continue(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, given_up: bool, left: int
) -> None:
    results = (ChunkResult(chunk="2024-01-02", outcome="waiting", given=1),)
    report = BackfillReport(table="nyc.trips", results=results, seconds=1, interrupted=True, given_up=given_up)
    monkeypatch.setattr(Backfill, "run_all", lambda *_, **__: report)
    outcome = run(archive)
    assert outcome.exit_code == 130
    assert f"lakegate {' '.join(BACKFILL)}\n" in outcome.stdout
    assert outcome.stdout.count("The next command that writes") == left
    assert json.loads(run(archive, "-o", "json").stdout)["interrupted"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--from", "soon"], "'soon' isn't a date"),
        (["--from", "2024-02"], "before it starts"),
        (["--chunk", "week"], "Invalid chunk size 'week'"),
        (["--parallel", "0"], "0 is not in the range"),
        (["nowhere/", "--by", "modified"], "No files found at 'nowhere/'"),
        (["trips/"], "'trips/' doesn't say where the date of its files is."),
        (["trips/%Y-%d.parquet"], "has no month"),
    ],
)
def test_invalid_options_and_paths_are_refused(archive: Archive, words: list[str], told: str) -> None:
    outcome = run(archive, *words)
    assert outcome.exit_code == 2
    assert told in outcome.stderr
    assert archive.ingested == []
