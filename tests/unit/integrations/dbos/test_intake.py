"""The workflow that takes in what is new, on SQLite, over a lake that does as it is told."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from dbos import DBOS

from lakegate.config import JournalSettings
from lakegate.errors import CatalogUnavailableError, EngineError
from lakegate.integrations.dbos import program, queues, workflows
from lakegate.integrations.dbos.configuration import load_configuration
from lakegate.integrations.dbos.queues import ScheduledScan
from lakegate.lake import Lake
from lakegate.model.run import Run
from support.intake_support import FOLDER, TABLE, SteppedLake

WATCH = ScheduledScan(paths=[FOLDER], table=TABLE, settle_s=0.0)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("dbos")
    configuration = load_configuration(None, home=folder, journal=JournalSettings(), environ={})
    with program.launched(configuration):
        yield


@pytest.fixture
def lake(app: None, monkeypatch: pytest.MonkeyPatch) -> SteppedLake:
    made = SteppedLake()
    monkeypatch.setattr(workflows, "_opener", lambda _: cast("Lake", made))
    # DBOS waits seconds between the attempts of a step.
    monkeypatch.setattr("dbos._outcome.time", SimpleNamespace(sleep=lambda _: None))
    return made


def take(watch: ScheduledScan = WATCH) -> dict[str, int]:
    return DBOS.start_workflow(queues.ingest_new, TABLE, watch).get_result()


def test_a_run_that_somebody_left_is_gone_on_with(lake: SteppedLake) -> None:
    lake.leave("a.csv", "b.csv", run_id="files-1")
    lake.put("c.csv")
    assert take() == {"published": 2}
    assert [step for step, run_id in lake.steps if run_id == "files-1"] == ["write", "audit", "publish"]
    assert lake.names() == [["a.csv", "b.csv"], ["c.csv"]]
    assert lake.known[TABLE, "file:///landing/a.csv"].run_id == "files-1"
    assert take() == {}


def test_a_run_that_somebody_is_at_is_left_to_him_and_stops_no_other(lake: SteppedLake) -> None:
    lake.leave("a.csv", run_id="files-1")
    lake.at_work.add("files-1")
    lake.put("b.csv")
    assert take() == {"published": 1}
    assert lake.names() == [["b.csv"]]


def test_a_run_whose_process_died_is_settled_and_its_files_begun_anew(lake: SteppedLake) -> None:
    lake.leave("a.csv", run_id="files-1")
    lake.dead.add("files-1")
    assert take() == {}
    assert take() == {"published": 1}
    assert lake.made["files-1"].status == "failed"


def test_a_file_at_which_the_engine_fails_goes_apart_and_stops_no_other(lake: SteppedLake) -> None:
    lake.put("a.csv", "bad.csv", "c.csv")
    lake.becomes = lambda names: EngineError("Out of memory.") if "bad.csv" in names else "published"
    assert take() == {"failed": 2, "published": 2}
    assert lake.outcomes() == {"a.csv": ("done", 1), "bad.csv": ("failed", 1), "c.csv": ("done", 1)}


def test_a_file_that_meets_trouble_stops_no_other(lake: SteppedLake) -> None:
    lake.put("a.csv", "b.csv")
    lake.becomes = lambda names: EngineError("Out of memory.") if "a.csv" in names else "published"
    assert take({**WATCH, "max_files": 1}) == {"failed": 1, "published": 1}
    assert lake.outcomes() == {"b.csv": ("done", 1)}


def test_when_the_lake_is_away_the_other_chunks_wait_for_the_next_look(lake: SteppedLake) -> None:
    lake.put("a.csv", "b.csv")
    lake.becomes = lambda _: CatalogUnavailableError("Away.")
    assert take({**WATCH, "max_files": 1}) == {"failed": 1}
    assert {name for names in lake.names() for name in names} == {"a.csv"}
    assert lake.outcomes() == {}


def test_a_run_that_was_left_once_more_is_gone_on_with_once_more(
    lake: SteppedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> Run:
        raise CatalogUnavailableError("Away.")

    lake.leave("a.csv", run_id="files-1")
    with monkeypatch.context() as patched:
        patched.setattr(lake, "publish_run", away)
        patched.setattr(lake, "cancel_run", away)
        assert take() == {"failed": 1}
    assert take() == {"published": 1}
