"""The flow that ingests new files, on a scripted lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from prefect.client.schemas.objects import State

from lakegate.errors import CatalogUnavailableError, NotFoundError
from lakegate.integrations.prefect import flows, intake, steps
from lakegate.model.request import IngestOptions
from lakegate.model.run import Run
from support.loader_support import FOLDER, TABLE, FolderLake

pytestmark = [pytest.mark.xdist_group("prefect"), pytest.mark.usefixtures("prefect_harness")]


class SteppedLake(FolderLake):
    """A lake whose runs are written, audited and published one step after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[str, Run] = {}

    def write(self, table: str, uris: Sequence[str], options: IngestOptions) -> Run:
        run, run_id = self.ingest(table, uris, options), str(options.run_id)
        self.runs[run_id] = run.model_copy(update={"run_id": run_id})
        return self.runs[run_id].model_copy(update={"status": "staged"})

    def audit_run(self, run_id: str) -> Run:
        return self.runs[run_id]

    def publish_run(self, run_id: str) -> Run:
        return self.runs[run_id]

    def run(self, run_id: str) -> Run:
        if run_id not in self.runs:
            raise NotFoundError(run_id)
        return self.runs[run_id]

    def cancel_run(self, run_id: str, *, reason: str) -> Run:
        del reason
        return self.run(run_id)


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> SteppedLake:
    made = SteppedLake()
    for module in (steps, flows, intake):
        monkeypatch.setattr(module, "open_lake", lambda _home: made)
    monkeypatch.setattr(steps.write, "retry_delay_seconds", 0)
    return made


def look(**parameters: Any) -> State[Any]:
    state: State[Any] = intake.intake_flow(FOLDER, settle_s=0.0, **parameters, return_state=True)
    return state


def test_each_file_is_published_once_and_a_bad_one_stops_no_other(lake: SteppedLake) -> None:
    lake.put("a.csv", "bad.csv")
    lake.becomes = lambda names: "rejected" if "bad.csv" in names else "published"
    assert look(table=TABLE).message == "Chunks: 1 published, 2 rejected."
    assert lake.outcomes() == {"a.csv": ("done", 1), "bad.csv": ("rejected", 1)}
    assert len(lake.runs) == 3  # each a flow run with its tasks
    assert look(table=TABLE).message == "Nothing new."


def test_an_unreachable_lake_fails_the_flow_run_and_blames_no_file(lake: SteppedLake) -> None:
    lake.put("a.csv")
    lake.becomes = lambda _: CatalogUnavailableError("Away.")
    state = look(table=TABLE)
    assert (state.name, state.message) == ("Failed", "Away.")
    assert lake.outcomes() == {}


def test_either_a_table_or_routes_are_needed() -> None:
    assert look().message == "Pass either a table for all files, or routes."
