"""Announced files that Prefect lost are found again on its own test server, with a scripted lake."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
from prefect.client.schemas.objects import FlowRun, State
from prefect.events.filters import EventFilter, EventNameFilter, EventResourceFilter
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled, Completed, Crashed, Failed, Pending, Running
from prefect.types.entrypoint import EntrypointType

from lakegate.errors import CatalogUnavailableError, LakegateError, NotFoundError, RetryableError
from lakegate.integrations.prefect import intake
from lakegate.integrations.prefect.flows import REJECTED, wap_flow
from lakegate.integrations.prefect.intake import LANDED, announce
from lakegate.lake import Lake
from support.prefect_server import ENDS_S
from support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("prefect")

NAME = "lakegate-wap/announced"
ENDED: dict[str, State[Any]] = {
    "published": Completed(name="Published"),
    "skipped": Completed(name="Skipped"),
    "rejected": Failed(name=REJECTED),
    "cancelled": Cancelled(),
}
LOST: dict[str, State[Any]] = {"crashed": Crashed(), "failed": Failed()}
OTHERS = ("never begun", "three times", "settled", "silent", "pending", "at work", "young", "no lake")


class KnownRuns:
    """A lake that knows the outcome of some runs, or is unreachable."""

    def __init__(self, statuses: Mapping[str, str] | None = None, *, error: LakegateError | None = None) -> None:
        self._statuses = statuses or {}
        self._error = error

    def run(self, run_id: str) -> Any:
        if self._error is not None:
            raise self._error
        if run_id not in self._statuses:
            raise NotFoundError(f"There is no run '{run_id}'.")
        return SimpleNamespace(status=self._statuses[run_id])


@pytest.fixture(scope="module")
def deployment(prefect_harness: None) -> UUID:
    """The deployment, on a server with an event for a file of each table."""
    made: Any = wap_flow.to_deployment("announced", entrypoint_type=EntrypointType.MODULE_PATH)
    deployment_id: UUID = made.apply()
    events = [event(table_of(case)) for case in (*ENDED, *LOST, *OTHERS)]
    with get_client(sync_client=True) as client:
        client.request("POST", "/events", json=[*events, {**event("nyc.nothing"), "payload": {"table": 5}}])
        kept = EventFilter(event=EventNameFilter(name=[LANDED]))
        wait_until(
            lambda: client.read_events(kept, limit=1).total > len(events),
            within_s=ENDS_S,
            poll_s=0.2,
            what="the events",
        )
    return deployment_id


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "get_run_logger", lambda: logging.getLogger("looking"))
    monkeypatch.setattr(intake, "_GRACE", timedelta(0))


def table_of(case: str) -> str:
    return f"nyc.{case.replace(' ', '_')}"


def event(table: str) -> dict[str, Any]:
    return {
        "event": LANDED,
        "occurred": datetime.now(UTC).isoformat(),
        "resource": {"prefect.resource.id": f"lakegate.table.{table}"},
        "payload": {"table": table, "path": f"{table}.parquet"},
        "id": str(uuid4()),
    }


def looked(case: str, lake: KnownRuns | None = None) -> int:
    return intake.restart_lost_files(cast("Lake", lake or KnownRuns()), NAME, table_of(case))


def flow_runs(deployment: UUID, case: str) -> list[FlowRun]:
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[deployment])))
    return [run for run in found if run.parameters["table"] == table_of(case)]


def begun(deployment: UUID, case: str, state: State[Any]) -> FlowRun:
    """Start the file's flow run, and put it into ``state``."""
    before = {run.id for run in flow_runs(deployment, case)}
    assert looked(case) == 1
    (run,) = (run for run in flow_runs(deployment, case) if run.id not in before)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run.id, state, force=True)
    return run


def test_a_file_that_was_never_ingested_is_restarted_once(deployment: UUID) -> None:
    assert looked("never begun") == 1
    (run,) = flow_runs(deployment, "never begun")
    assert run.parameters == {"table": "nyc.never_begun", "path": "nyc.never_begun.parquet"}
    assert looked("never begun") == 0


@pytest.mark.parametrize("case", ENDED)
def test_files_with_an_outcome_are_left_alone(deployment: UUID, case: str) -> None:
    begun(deployment, case, ENDED[case])
    assert looked(case) == 0


@pytest.mark.parametrize("case", LOST)
def test_files_without_an_outcome_are_restarted(deployment: UUID, case: str) -> None:
    begun(deployment, case, LOST[case])
    assert looked(case) == 1


def test_three_flow_runs_are_enough(deployment: UUID) -> None:
    for _ in range(3):
        begun(deployment, "three times", Crashed())
    assert looked("three times") == 0


def test_a_flow_run_whose_run_was_recovered_is_dead(deployment: UUID) -> None:
    run = begun(deployment, "settled", Running())
    assert looked("settled", KnownRuns({f"prefect-{run.id}": "staged"})) == 0
    assert looked("settled", KnownRuns({f"prefect-{run.id}": "failed"})) == 1


@pytest.mark.parametrize(("case", "state"), [("silent", Running()), ("pending", Pending())])
def test_a_silent_flow_run_is_given_up(
    deployment: UUID, monkeypatch: pytest.MonkeyPatch, case: str, state: State[Any]
) -> None:
    begun(deployment, case, state)
    assert looked(case) == 0
    monkeypatch.setattr(intake, "_SILENCE_TIMEOUT", timedelta(0))
    assert looked(case) == 1


def test_a_recent_event_is_left_to_its_trigger(deployment: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_GRACE", timedelta(hours=1))
    assert looked("young") == 0
    assert flow_runs(deployment, "young") == []


def test_trouble_does_not_stop_the_scan(deployment: UUID, caplog: pytest.LogCaptureFixture) -> None:
    assert intake.restart_lost_files(cast("Lake", KnownRuns()), "lakegate-wap/nobody", None) == 0
    begun(deployment, "no lake", Running())
    assert looked("no lake", KnownRuns(error=CatalogUnavailableError("The catalog is away."))) == 0
    assert [text.partition(":")[0] for text in caplog.messages].count("Couldn't look for announced files") == 2


def test_every_table_is_checked(deployment: UUID) -> None:
    intake.restart_lost_files(cast("Lake", KnownRuns()), NAME, None)
    assert all(flow_runs(deployment, case) for case in (*ENDED, *LOST, *OTHERS))


def test_an_announced_file_becomes_an_event_on_the_server(deployment: UUID) -> None:
    announce("nyc.told", "told.parquet")
    with get_client(sync_client=True) as client:
        kept = EventFilter(resource=EventResourceFilter(id=["lakegate.table.nyc.told"]))
        page = wait_until(lambda: found if (found := client.read_events(kept, limit=2)).total else None)
    (made,) = page.events
    # As programs other than ours post it: a real server is shown only this one.
    assert (made.event, made.payload) == ("lakegate.file.landed", {"table": "nyc.told", "path": "told.parquet"})
    assert made.resource["prefect.resource.id"] == "lakegate.table.nyc.told"


def test_an_undelivered_event_is_an_error() -> None:
    nobody = {PREFECT_API_URL: "http://127.0.0.1:1/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(nobody), pytest.raises(RetryableError, match=r"didn't accept the event that a\.csv"):
        announce("nyc.trips", "a.csv")
