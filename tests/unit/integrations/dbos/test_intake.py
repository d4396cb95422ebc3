"""The workflow that ingests new files, on SQLite, with a scripted lake."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import cast

import pytest
from dbos import DBOS

from lakegate.config import JournalSettings
from lakegate.errors import CatalogUnavailableError, ConfigurationError
from lakegate.integrations.dbos import program, queues, workflows
from lakegate.integrations.dbos.configuration import load_configuration
from lakegate.integrations.dbos.queues import ScheduledScan
from lakegate.lake import Lake
from support.loader_support import FOLDER, TABLE, FolderLake
from support.waiting import wait_until

WATCH = ScheduledScan(paths=[FOLDER], table=TABLE, settle_s=0.0)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("dbos")
    configuration = load_configuration(None, home=folder, journal=JournalSettings())
    with program.launched(configuration, listens=queues.QUEUES):
        queues.register()
        yield


@pytest.fixture
def lake(app: None, monkeypatch: pytest.MonkeyPatch) -> FolderLake:
    made = FolderLake()
    monkeypatch.setattr(workflows, "_opener", lambda _: cast("Lake", made))
    return made


def take() -> dict[str, int]:
    return DBOS.start_workflow(queues.ingest_new, WATCH).get_result()


def test_each_file_is_published_once_and_a_bad_one_stops_no_other(lake: FolderLake) -> None:
    lake.put("a.csv", "bad.csv")
    lake.becomes = lambda names: "rejected" if "bad.csv" in names else "published"
    assert take() == {"rejected": 2, "published": 1}
    assert lake.outcomes() == {"a.csv": ("done", 1), "bad.csv": ("rejected", 1)}
    assert take() == {}


@pytest.mark.parametrize("error", [CatalogUnavailableError("Away."), ConfigurationError("No token.")])
def test_trouble_with_the_lake_is_blamed_on_no_file(
    lake: FolderLake, error: CatalogUnavailableError | ConfigurationError
) -> None:
    lake.put("a.csv")
    lake.becomes = lambda _: error
    with pytest.raises(type(error), match=error.message):
        take()
    assert lake.outcomes() == {}


def test_a_schedules_scans_do_not_pile_up(lake: FolderLake) -> None:
    lake.put("a.csv")
    for _ in range(2):
        DBOS.start_workflow(queues.find_new_files, datetime.now(UTC), WATCH).get_result()
    wait_until(lambda: lake.outcomes() == {"a.csv": ("done", 1)})
    assert lake.names() == [["a.csv"]]
