"""``lakegate runs``: the list, and one run."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakegate.model.run import RunStep, UndoneTable
from lakegate.model.words import moment
from support.cli_support import (
    BASE,
    FAILED,
    FAILED_RUN,
    HASH,
    OTHER_RUN,
    PASSED,
    PUBLICATION,
    PUBLISHED,
    REJECTED,
    RUN_ID,
    START,
    STEPS,
    FakeLake,
    FakeStack,
    invoke,
    known,
    make_run,
    staged,
)

pytestmark = pytest.mark.usefixtures("in_a_project")

_MARKUP = re.compile(r"\[/?[a-z]*\]")
WRITTEN: dict[str, Any] = {"base": BASE, "staged": (staged("nyc.trips"),), "steps": STEPS}
WHOLE = make_run("published", reports=(PASSED,), publication=PUBLICATION, **WRITTEN)
REPLAYED = WHOLE.model_copy(update={"publication": PUBLICATION.model_copy(update={"replayed": ("nyc.trips",)})})


# the list -------------------------------------------------------------------------------------------------------------


def test_a_pause_between_steps_does_not_count_towards_the_duration() -> None:
    hours = timedelta(hours=5)
    first, *others = STEPS
    later = [
        RunStep(name=step.name, started_at=step.started_at + hours, finished_at=step.finished_at + hours)
        for step in others
        if step.finished_at is not None
    ]
    run = make_run("published", steps=(first, *later), finished_at=START + hours)
    assert run.seconds == 3.25
    assert run.model_copy(update={"steps": ()}).seconds == hours.total_seconds()
    assert run.model_copy(update={"finished_at": None}).seconds is None


def test_runs_lists_filters_and_shows_one() -> None:
    lake = FakeLake(runs=[PUBLISHED, REJECTED, FAILED_RUN], run=REJECTED)
    words = "runs --table nyc.trips --status rejected --kind ingest --orchestrator watch --source trips_01 -n 3"
    text = invoke(words, lake).stdout
    assert lake.asked("runs") == {
        "table": "nyc.trips",
        "status": "rejected",
        "kind": "ingest",
        "orchestrator": "watch",
        "source": "trips_01",
        "since": None,
        "limit": 3,
    }
    assert "not_null(passenger_count)" in text
    assert moment(REJECTED.started_at) in text
    told = json.loads(invoke("runs -o json", FakeLake(runs=[FAILED_RUN])).stdout)
    assert told[0]["error"]["message"] == "Spark went away."
    one = invoke("runs 2026", lake).stdout
    assert "file:///data/trips.parquet" in one
    assert json.loads(invoke("runs 2026 -o json", lake).stdout)["started_at"] == "2026-01-31T07:05:09+00:00"


def test_runs_with_none_prints_no_data() -> None:
    outcome = invoke("runs", FakeLake(runs=[]))
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, "", "No runs.\n")
    assert json.loads(invoke("runs -o json", FakeLake(runs=[])).stdout) == []
    for option in ("--table nyc.trips", "--status failed", "--kind revert", "--since 7d"):
        assert invoke(f"runs 2026 {option}").exit_code == 2


def test_since_takes_a_duration() -> None:
    lake = FakeLake(runs=[])
    before = datetime.now(UTC)
    assert invoke("runs --since 24h", lake).exit_code == 0
    asked = lake.asked("runs")["since"]
    assert before - timedelta(days=1) <= asked <= datetime.now(UTC) - timedelta(days=1)
    for wrong in ("yesterday", "7 parsecs", "999999w", "9999-12-31T23:59:59-05:00"):
        assert "neither a time" in invoke(["runs", "--since", wrong]).stderr


# one run --------------------------------------------------------------------------------------------------------------


def test_one_run_is_shown_in_full() -> None:
    run = REPLAYED.model_copy(
        update={
            "status": "reverted",
            "reverted_by": OTHER_RUN,
            "skipped_files": (known("old.parquet"),),
            "reads": ("nyc.zones",),
            "detail": "Passed its audit; published by recovery.",
        }
    )
    text = invoke(f"runs {RUN_ID}", FakeLake(run=run), stack=FakeStack("stopped")).stdout
    for part in (
        f"reverted by run {OTHER_RUN}",
        f"  base        {BASE}\n",
        f"  commit      {HASH}\n",
        "  rebased     nyc.trips\n",
        "  reads       nyc.zones\n",
        "  detail      Passed its audit; published by recovery.\n",
        "1 of 2 files skipped",
        f"skipped: {OTHER_RUN}",
        "file:///data/trips.parquet",
        "not_null(passenger_count)",
    ):
        assert part in text, part


def test_the_checks_of_several_tables_are_shown_apart() -> None:
    other = FAILED.model_copy(update={"table": "nyc.zones"})
    run = make_run("rejected", tables=("nyc.trips", "nyc.zones"), reports=(PASSED, other), branch_kept=True)
    text = invoke("runs 2026", FakeLake(run=run)).stdout
    assert "Failed checks of nyc.zones" in text
    assert "Checks of nyc.trips" in text
    told = json.loads(invoke("runs 2026 -o json", FakeLake(run=run)).stdout)
    assert [check["table"] for check in told["checks"]] == ["nyc.trips"] * 2 + ["nyc.zones"] * 2
    assert (told["table"], told["tables"]) == ("nyc.trips, nyc.zones", ["nyc.trips", "nyc.zones"])


def test_a_revert_shows_what_it_did_to_each_table() -> None:
    undone = (
        UndoneTable(table="nyc.trips", rows=-100_000, data_files=-2),
        UndoneTable(table="nyc.zones", rows=-260, data_files=-1, dropped=True),
    )
    run = make_run(
        "published",
        kind="revert",
        branch="",
        request=None,
        tables=("nyc.trips", "nyc.zones"),
        reverts=(OTHER_RUN, "20260129T010101-88888888"),
        undone=undone,
        publication=PUBLICATION,
    )
    text = invoke("runs 2026", FakeLake(run=run)).stdout
    assert text.startswith(f"published  nyc.trips, nyc.zones  revert of 1 table in commit {HASH[:12]}")
    assert re.search(r"nyc\.trips +-100,000 +-2 *\n", text)
    assert re.search(r"nyc\.zones +-260 +-1 +dropped\n", text)
    assert f"  reverts     {OTHER_RUN}, 20260129T010101-88888888\n" in text
    assert "SELECT * FROM nyc.zones" not in text
    assert f"undid {OTHER_RUN} and 1 more" in invoke("runs", FakeLake(runs=[run])).stdout
    told = json.loads(invoke("runs 2026 -o json", FakeLake(run=run)).stdout)
    assert (told["reverts"][0], told["undone"][1]["dropped"]) == (OTHER_RUN, True)


def test_a_run_of_a_rebuilt_journal_does_not_claim_to_have_added_no_rows() -> None:
    known_by_commit = PUBLICATION.model_copy(update={"rows": 0})
    run = make_run("published", request=None, publication=known_by_commit, detail="Known from commit 2e1c only.")
    assert "nyc.trips  an unknown number of rows in commit 2e1cfa" in invoke(f"runs {RUN_ID}", FakeLake(run=run)).stdout
    assert " 0 " not in invoke("runs", FakeLake(runs=[run])).stdout
    (told,) = json.loads(invoke("runs -o json", FakeLake(runs=[run])).stdout)
    assert (told["rows"]["published"], told["rows"]["removed"]) == (None, None)
    counted = run.model_copy(update={"staged": (staged("nyc.trips", rows=0),)})
    assert "nyc.trips  0 rows in commit 2e1cfa" in invoke(f"runs {RUN_ID}", FakeLake(run=counted)).stdout


def test_one_run_can_be_written_as_a_report(tmp_path: Path) -> None:
    lake = FakeLake(run=REJECTED)
    page = invoke("runs 2026 -o html", lake).stdout
    assert page.startswith("<!doctype html>")
    assert invoke("runs 2026 -o junit", lake).stdout.startswith("<?xml")
    file = tmp_path / "report.html"
    done = invoke(["runs", "2026", "-o", "html", "--file", str(file)], lake)
    assert (done.exit_code, done.stdout) == (0, "")
    assert file.as_uri() in done.stderr
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    lost = invoke(["runs", "2026", "-o", "html", "--file", str(tmp_path / "no" / "where")], lake)
    assert lost.exit_code == 2
    assert "Choose another --file" in lost.stderr


@pytest.mark.parametrize("words", ["runs -o html", "runs -o junit", "runs 2026 --file x", "runs 2026 -o json -f x"])
def test_only_one_run_can_be_written_as_a_report(words: str) -> None:
    assert invoke(words, FakeLake(run=REJECTED, runs=[])).exit_code == 2


@pytest.mark.parametrize("output", ["html", "junit"])
def test_a_report_shows_no_more_than_the_dashboard(in_a_project: Path, output: str) -> None:
    lake = FakeLake(run=REJECTED)
    assert "trip_id" in invoke(f"runs 2026 -o {output}", lake).stdout
    (in_a_project / "lakegate.toml").write_text("[ui]\nexamples = 0\n", encoding="utf-8")
    assert "trip_id" not in invoke(f"runs 2026 -o {output}", lake).stdout
    (in_a_project / "lakegate.toml").write_text('[ui]\nmasked = ["Trip_*"]\n', encoding="utf-8")
    assert "\N{BULLET}" * 3 in invoke(f"runs 2026 -o {output}", lake).stdout
    assert "301.5" not in invoke(f"runs 2026 -o {output}", lake).stdout
