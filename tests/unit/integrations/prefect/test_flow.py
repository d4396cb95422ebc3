"""The flow on a scripted lake, under Prefect's own test server: what's retried, undone and shown."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal

from lakegate.config import Settings
from lakegate.errors import EngineUnavailableError, InputError, NotFoundError, OutcomeUnknownError
from lakegate.integrations.prefect import flows, steps
from lakegate.model.checks import AuditReport, CheckResult
from lakegate.model.request import IngestOptions
from lakegate.model.run import Publication, Run

pytestmark = [pytest.mark.xdist_group("prefect"), pytest.mark.usefixtures("prefect_harness")]

FAILED = CheckResult(
    name="not_null(id)",
    check="not_null(id)",
    columns=("id",),
    severity="error",
    verdict="fail",
    failing_rows=2,
    total_rows=10,
    evidence="scan",
    examples=({"note": "a|b <b>*", "id": None},),
)
PASSED = FAILED.model_copy(update={"verdict": "pass", "failing_rows": 0, "examples": ()})


class ScriptedLake:
    """A lake with one run. ``does`` lists what happens at a step, once each, before it succeeds."""

    def __init__(
        self, *, passes: bool = True, does: dict[str, list[BaseException | Callable[[], object]]] | None = None
    ) -> None:
        self.calls: list[str] = []
        self.settings = Settings()
        self.known: Run | None = None
        self._passes = passes
        self.does = does or {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def intake(self) -> Self:
        return self

    def write(self, table: str, paths: list[str], options: IngestOptions) -> Run:
        self._begin("write")
        self.known = Run(
            run_id=str(options.run_id), tables=(table,), branch="wap/x", status="staged", started_at=datetime.now(UTC)
        )
        return self.known

    def audit_run(self, run_id: str) -> Run:
        self._begin("audit")
        audited = AuditReport(
            run_id=run_id,
            table="nyc.trips",
            branch="wap/x",
            metadata_location="mem://1",
            rows=10,
            results=(PASSED if self._passes else FAILED,),
            seconds=0.5,
        )
        return self.change(
            reports=(audited,), status="staged" if self._passes else "rejected", branch_kept=not self._passes
        )

    def publish_run(self, run_id: str) -> Run:
        self._begin("publish")
        return self.publish()

    def publish(self) -> Run:
        assert self.known is not None
        commit = Publication(run_id=self.known.run_id, target="main", commit="a1", tables=("nyc.trips",), rows=10)
        return self.change(status="published", publication=commit)

    def cancel_run(self, run_id: str, *, reason: str) -> Run:
        self._begin("undo")
        known = self.run(run_id)
        return self.change(status="failed") if known.status in ("running", "staged") else known

    def run(self, run_id: str) -> Run:
        if self.known is None:
            raise NotFoundError(f"There is no run '{run_id}'.")
        return self.known

    def _begin(self, step: str) -> None:
        self.calls.append(step)
        if self.does.get(step):
            happens = self.does[step].pop(0)
            if isinstance(happens, BaseException):
                raise happens
            happens()

    def change(self, **changes: Any) -> Run:
        assert self.known is not None
        self.known = self.known.model_copy(update=changes)
        return self.known


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (steps.write, steps.audit, steps.publish):
        monkeypatch.setattr(step, "retry_delay_seconds", 0)


def ran(monkeypatch: pytest.MonkeyPatch, lake: ScriptedLake, **parameters: Any) -> State[Any]:
    for module in (steps, flows):
        monkeypatch.setattr(module, "open_lake", lambda _home: lake)
    state: State[Any] = flows.wap_flow(table="nyc.trips", path="a.csv", **parameters, return_state=True)
    return state


def artifacts() -> list[Any]:
    with get_client(sync_client=True) as client:
        return list(client.read_artifacts())


def test_a_clean_batch_is_published_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ScriptedLake()
    state = ran(monkeypatch, lake)
    assert (state.name, state.is_completed()) == ("Published", True)
    assert state.message == "Published 10 rows to nyc.trips."
    assert lake.calls == ["write", "audit", "publish"]
    assert lake.run("").run_id == f"prefect-{state.state_details.flow_run_id}"
    shown = {one.key for one in artifacts() if one.flow_run_id == state.state_details.flow_run_id}
    assert shown == {"lakegate-nyc-trips-audit"}


def test_a_failed_audit_rejects_and_rolls_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = ScriptedLake(passes=False)
    state = ran(monkeypatch, lake)
    assert (state.name, state.is_failed()) == ("Rejected", True)
    assert state.message is not None
    assert "not_null(id): 2 of 10 rows. The batch stays on branch wap/x." in state.message
    assert lake.calls == ["write", "audit", "undo"]
    assert "Traceback" not in caplog.text


def test_a_flow_run_that_is_retried_after_its_rejection_stays_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ScriptedLake(passes=False)
    ran(monkeypatch, lake)
    monkeypatch.setattr(lake, "write", lambda *_, **__: lake.known)
    state = ran(monkeypatch, lake)
    assert (state.name, state.is_failed()) == ("Rejected", True)


def test_a_run_discarded_between_two_steps_is_not_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = ScriptedLake()
    monkeypatch.setattr(lake, "publish", lambda: lake.change(status="discarded"))  # somebody else does
    state = ran(monkeypatch, lake)
    assert state.is_failed()
    assert str(state.message).startswith("Run ")
    assert "is discarded. lakegate runs" in str(state.message)


def test_a_step_is_retried_without_undoing_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    away = EngineUnavailableError("The engine went away.")
    unknown = OutcomeUnknownError("No answer came.")
    lake = ScriptedLake(does={"audit": [away, away], "publish": [unknown]})
    state = ran(monkeypatch, lake)
    assert state.name == "Published"
    assert lake.calls == ["write", "audit", "audit", "audit", "publish", "publish"]


@pytest.mark.parametrize("step", ["write", "audit", "publish"])
def test_a_step_that_never_succeeds_is_undone_at_the_end(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    tries = 1 + len(steps.RETRY_DELAYS_S)
    lake = ScriptedLake(does={step: [EngineUnavailableError("Away.", hint="Look.") for _ in range(tries)]})
    state = ran(monkeypatch, lake)
    assert (state.name, state.message) == ("Failed", "Away. Look.")
    assert lake.calls.count(step) == tries
    assert lake.calls[-1] == "undo"


@pytest.mark.parametrize("step", ["write", "audit", "publish"])
def test_permanent_errors_are_not_retried(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    lake = ScriptedLake(does={step: [InputError("No such file.")]})
    state = ran(monkeypatch, lake)
    assert (state.name, state.message) == ("Failed", "No such file.")
    assert lake.calls.count(step) == 1
    assert lake.calls[-1] == "undo"


@pytest.mark.parametrize("step", ["write", "audit", "publish"])
def test_a_terminated_process_undoes_its_run(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    # Prefect passes the signal on to whoever handled it before: that must not be the end of the tests.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    lake = ScriptedLake(does={step: [TerminationSignal(signal=15)]})
    try:
        with pytest.raises(TerminationSignal):
            ran(monkeypatch, lake)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert lake.calls[-2:] == [step, "undo"]


def test_a_publish_that_succeeded_after_all_is_reported_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 1 + len(steps.RETRY_DELAYS_S)
    lake = ScriptedLake(does={"publish": [OutcomeUnknownError("No answer came.") for _ in range(tries)]})
    lake.does["undo"] = [lake.publish]
    state = ran(monkeypatch, lake)
    assert state.name == "Published"


def test_a_failed_undo_names_the_command_that_will_do_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = ScriptedLake(does={"audit": [InputError("Bad.")], "undo": [EngineUnavailableError("Away.")]})
    state = ran(monkeypatch, lake)
    assert (state.name, state.message) == ("Failed", "Bad.")
    assert f"lakegate admin recover prefect-{state.state_details.flow_run_id}" in caplog.text


def test_a_report_that_cannot_be_shown_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(**_: Any) -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(steps, "create_table_artifact", refuse)
    assert ran(monkeypatch, ScriptedLake()).name == "Published"
    assert "Couldn't create the report's artifact: nobody there" in caplog.text
