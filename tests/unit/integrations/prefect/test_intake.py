"""The flow that ingests new files, on a scripted lake."""

from __future__ import annotations

from typing import Any

import pytest
from prefect.client.schemas.objects import State

from lakegate.errors import CatalogUnavailableError
from lakegate.integrations.prefect import intake, steps
from support.loader_support import FOLDER, TABLE, FolderLake

pytestmark = [pytest.mark.xdist_group("prefect"), pytest.mark.usefixtures("prefect_harness")]


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> FolderLake:
    made = FolderLake()
    for module in (steps, intake):
        monkeypatch.setattr(module, "open_lake", lambda _home: made)
    return made


def look(**parameters: Any) -> State[Any]:
    state: State[Any] = intake.intake_flow(FOLDER, settle_s=0.0, **parameters, return_state=True)
    return state


def test_each_file_is_published_once_and_a_bad_one_stops_no_other(lake: FolderLake) -> None:
    lake.put("a.csv", "bad.csv")
    lake.becomes = lambda names: "rejected" if "bad.csv" in names else "published"
    assert look(table=TABLE).message == "Chunks: 1 published, 2 rejected."
    assert lake.outcomes() == {"a.csv": ("done", 1), "bad.csv": ("rejected", 1)}
    assert look(table=TABLE).message == "Nothing new."


def test_an_unreachable_lake_fails_the_flow_run_and_blames_no_file(lake: FolderLake) -> None:
    lake.put("a.csv")
    lake.becomes = lambda _: CatalogUnavailableError("Away.")
    state = look(table=TABLE)
    assert (state.name, state.message) == ("Failed", "Away.")
    assert lake.outcomes() == {}


def test_either_a_table_or_routes_are_needed() -> None:
    assert look().message == "Pass either a table for all files, or routes."
