"""The workflow that ingests new files, on SQLite, with a scripted lake."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from dbos import DBOS
from sqlalchemy.exc import OperationalError

from lakegate.config import JournalSettings
from lakegate.errors import CatalogUnavailableError, ConfigurationError, EngineError
from lakegate.integrations.dbos import program, queues, workflows
from lakegate.integrations.dbos.configuration import load_configuration
from lakegate.integrations.dbos.queues import ScheduledScan
from lakegate.lake import Lake
from lakegate.model.run import Run
from support.loader_support import FOLDER, TABLE, SteppedLake

WATCH = ScheduledScan(paths=[FOLDER], table=TABLE, settle_s=0.0)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("dbos")
    configuration = load_configuration(None, home=folder, journal=JournalSettings())
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


def test_a_suspended_run_is_resumed(lake: SteppedLake) -> None:
    lake.leave("a.csv", "b.csv", run_id="files-1")
    lake.put("c.csv")
    assert take() == {"published": 2}
    assert [step for step, run_id in lake.steps if run_id == "files-1"] == ["write", "audit", "publish"]
    assert lake.names() == [["a.csv", "b.csv"], ["c.csv"]]
    assert lake.known[TABLE, "file:///landing/a.csv"].run_id == "files-1"
    assert take() == {}


def test_a_run_held_elsewhere_is_left_alone_and_does_not_stop_others(lake: SteppedLake) -> None:
    lake.leave("a.csv", run_id="files-1")
    lake.at_work.add("files-1")
    lake.put("b.csv")
    assert take() == {"published": 1}
    assert lake.names() == [["b.csv"]]


def test_a_dead_run_is_recovered_and_its_files_are_ingested_again(lake: SteppedLake) -> None:
    lake.leave("a.csv", run_id="files-1")
    lake.dead.add("files-1")
    assert take() == {}
    assert take() == {"published": 1}
    assert lake.made["files-1"].status == "failed"


def test_a_file_that_the_engine_fails_at_is_isolated_and_does_not_stop_others(lake: SteppedLake) -> None:
    lake.put("a.csv", "bad.csv", "c.csv")
    lake.becomes = lambda names: EngineError("Out of memory.") if "bad.csv" in names else "published"
    assert take() == {"failed": 2, "published": 2}
    assert lake.outcomes() == {"a.csv": ("done", 1), "bad.csv": ("failed", 1), "c.csv": ("done", 1)}


def test_trouble_with_a_file_does_not_stop_others(lake: SteppedLake) -> None:
    lake.put("a.csv", "b.csv")
    lake.becomes = lambda names: EngineError("Out of memory.") if "a.csv" in names else "published"
    assert take({**WATCH, "max_files": 1}) == {"failed": 1, "published": 1}
    assert lake.outcomes() == {"a.csv": ("failed", 1), "b.csv": ("done", 1)}


def test_an_unreachable_lake_leaves_other_chunks_to_the_next_scan(lake: SteppedLake) -> None:
    lake.put("a.csv", "b.csv")
    lake.becomes = lambda _: CatalogUnavailableError("Away.")
    assert take({**WATCH, "max_files": 1}) == {"failed": 1}
    assert {name for names in lake.names() for name in names} == {"a.csv"}
    assert lake.outcomes() == {}


def test_wrong_settings_do_not_count_as_a_try(lake: SteppedLake) -> None:
    lake.put("a.csv")
    lake.becomes = lambda _: ConfigurationError("No token.")
    with pytest.raises(ConfigurationError, match="No token"):
        take()
    assert lake.outcomes() == {}
    lake.becomes = lambda _: "published"
    assert take() == {"published": 1}


def test_a_file_is_not_blamed_for_trouble_with_the_database_of_dbos(
    lake: SteppedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full"))

    lake.put("a.csv")
    with monkeypatch.context() as patched:
        patched.setattr(queues, "wap", full)
        for _ in range(3):
            with pytest.raises(OperationalError, match="disk is full"):
                take()
    assert lake.outcomes() == {}
    assert take() == {"published": 1}


def test_a_run_can_be_suspended_and_resumed_twice(lake: SteppedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> Run:
        raise CatalogUnavailableError("Away.")

    lake.leave("a.csv", run_id="files-1")
    with monkeypatch.context() as patched:
        patched.setattr(lake, "publish_run", away)
        patched.setattr(lake, "cancel_run", away)
        assert take() == {"failed": 1}
    assert take() == {"published": 1}
