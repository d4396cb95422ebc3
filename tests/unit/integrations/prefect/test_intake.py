"""The flow that ingests new files, on a scripted lake: other runs, and files that always fail."""

from __future__ import annotations

from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import State
from prefect.flow_engine import run_flow
from prefect.states import Pending, Running

from lakegate.errors import CatalogUnavailableError, EngineError
from lakegate.integrations.prefect import flows, intake, steps
from lakegate.integrations.prefect.__main__ import _run_now
from support.loader_support import FOLDER, TABLE, SteppedLake

pytestmark = [pytest.mark.xdist_group("prefect"), pytest.mark.usefixtures("prefect_harness")]


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> SteppedLake:
    made = SteppedLake()
    for module in (steps, flows, intake):
        monkeypatch.setattr(module, "open_lake", lambda _home: made)
    monkeypatch.setattr(steps.write, "retry_delay_seconds", 0)
    monkeypatch.setattr(steps.write, "retries", 1)
    return made


def look() -> State[Any]:
    state: State[Any] = intake.intake_flow(FOLDER, TABLE, settle_s=0.0, return_state=True)
    return state


def test_a_suspended_run_is_resumed(lake: SteppedLake) -> None:
    lake.leave("a.csv", "b.csv", run_id="files-1")
    lake.put("c.csv")
    assert look().message == "Chunks: 2 published."
    assert [step for step, run_id in lake.steps if run_id == "files-1"] == ["write", "audit", "publish"]
    assert lake.names() == [["a.csv", "b.csv"], ["c.csv"]]
    assert lake.known[TABLE, "file:///landing/a.csv"].run_id == "files-1"
    assert look().message == "Nothing new."


def test_a_run_held_elsewhere_is_left_alone_and_does_not_stop_others(lake: SteppedLake) -> None:
    lake.leave("a.csv", run_id="files-1")
    lake.at_work.add("files-1")
    lake.put("b.csv")
    assert look().message == "Chunks: 1 published."
    assert lake.names() == [["b.csv"]]


def test_a_dead_run_is_recovered_and_its_files_are_ingested_again(lake: SteppedLake) -> None:
    lake.leave("a.csv", run_id="files-1")
    lake.dead.add("files-1")
    look()
    assert look().message == "Chunks: 1 published."
    assert lake.made["files-1"].status == "failed"
    assert lake.names() == [["a.csv"]]


@pytest.fixture
def busy_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefect's server sends the states of ``wap_flow`` without their results."""
    wap_flow = flows.wap_flow

    def from_server(*given: Any, **parameters: Any) -> State[Any]:
        ended: State[Any] = wap_flow(*given, **parameters)
        return ended.model_copy(update={"data": None})

    for module in (flows, intake):
        monkeypatch.setattr(module, "wap_flow", from_server)


@pytest.mark.usefixtures("busy_server")
def test_a_published_state_that_the_server_sends_without_its_result_counts_as_published(lake: SteppedLake) -> None:
    lake.put("a.csv")
    assert look().message == "Chunks: 1 published."
    assert look().message == "Nothing new."


def test_a_flow_run_that_prefect_does_again_after_a_crash_settles_only_its_own_files(lake: SteppedLake) -> None:
    """It continues the flow run that was in progress, with the run that it had then."""
    lake.put("a.csv")
    given = {"paths": FOLDER, "table": TABLE, "settle_s": 0.0}
    with get_client(sync_client=True) as client:
        parent = client.create_flow_run(intake.intake_flow, parameters=given)
        run_flow(intake.intake_flow, flow_run=parent, parameters=given, return_type="state")
        # Killed right after it had published a.csv.
        lake.known.clear()
        children = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[parent.id]))
        (child,) = client.read_flow_runs(flow_run_filter=children)
        assert child.parent_task_run_id is not None
        client.set_flow_run_state(child.id, Running(), force=True)
        client.set_task_run_state(child.parent_task_run_id, Running(), force=True)
        client.set_flow_run_state(parent.id, Pending(), force=True)
        lake.put("b.csv")
        again = client.read_flow_run(parent.id)
        state: Any = run_flow(intake.intake_flow, flow_run=again, parameters=given, return_type="state")
        assert len(client.read_flow_runs(flow_run_filter=children)) == 2
    assert state.message == "Chunks: 2 published."
    published = [run_id for step, run_id in lake.steps if step == "publish"]
    assert len(published) == len(set(published)) == 2
    assert lake.known[TABLE, "file:///landing/b.csv"].run_id == published[1]


def test_a_file_that_the_engine_fails_at_is_isolated_and_does_not_stop_others(lake: SteppedLake) -> None:
    lake.put("a.csv", "bad.csv", "c.csv")
    lake.becomes = lambda names: EngineError("Out of memory.") if "bad.csv" in names else "published"
    assert look().message == "Chunks: 2 failed, 2 published."
    assert lake.outcomes() == {"a.csv": ("done", 1), "bad.csv": ("failed", 1), "c.csv": ("done", 1)}


def test_an_unreachable_lake_leaves_other_chunks_to_the_next_scan(lake: SteppedLake) -> None:
    lake.put("a.csv", "b.csv")
    lake.becomes = lambda _: CatalogUnavailableError("Away.")
    state = intake.intake_flow(FOLDER, TABLE, settle_s=0.0, max_files=1, return_state=True)
    assert (state.name, state.message) == ("Failed", "Away.")
    assert set(lake.names()[0]) == {"a.csv"} == {name for names in lake.names() for name in names}
    assert lake.outcomes() == {}


@pytest.mark.usefixtures("busy_server")
def test_a_failed_state_that_the_server_sends_without_its_error_stops_the_scan(lake: SteppedLake) -> None:
    test_an_unreachable_lake_leaves_other_chunks_to_the_next_scan(lake)


@pytest.mark.usefixtures("busy_server")
def test_a_failed_state_that_the_server_sends_without_its_error_has_the_errors_exit_code(lake: SteppedLake) -> None:
    lake.put("a.csv")
    lake.becomes = lambda _: CatalogUnavailableError("Away.")
    with pytest.raises(CatalogUnavailableError, match="Away"):
        _run_now({"table": TABLE, "path": f"file://{FOLDER}/a.csv"}, "table")


@pytest.mark.parametrize("status", ["staged", "published"])
def test_a_run_of_another_table_is_not_touched(lake: SteppedLake, status: str) -> None:
    lake.leave("a.csv", run_id="files-1")
    lake.made["files-1"] = lake.made["files-1"].model_copy(update={"status": status})
    state = flows.wap_flow("nyc.zones", "a.csv", run_id="files-1", return_state=True)
    assert (state.name, lake.made["files-1"].status, lake.steps) == ("Failed", status, [])
    assert "Run files-1 belongs to nyc.trips, not to nyc.zones" in str(state.message)
