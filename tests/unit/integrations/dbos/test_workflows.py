"""The DBOS workflow on SQLite with a scripted lake: what each step gets, retries, undoes and stores."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest
from dbos import DBOS, SetWorkflowID
from filelock import FileLock

from lakegate.config import JournalSettings
from lakegate.errors import (
    CatalogUnavailableError,
    InputError,
    LakegateError,
    NotFoundError,
    OutcomeUnknownError,
)
from lakegate.integrations.dbos import program, queues, workflows
from lakegate.integrations.dbos.configuration import DbosConfiguration, load_configuration, recover_dead
from lakegate.integrations.dbos.workflows import Order
from lakegate.lake import Lake
from lakegate.model.checks import AuditReport, CheckResult
from lakegate.model.request import IngestOptions
from lakegate.model.run import Run
from lakegate.model.states import RunStatus
from support.waiting import wait_until

ORDER = Order(table="nyc.trips", paths=["trips.parquet"], checks=["not_null(id)"])
AWAY = CatalogUnavailableError("The catalog is away.")


class FakeLake:
    """Runs by id, and the errors that each call raises before it succeeds."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.given: tuple[Any, ...] = ()
        self.raises: dict[str, list[Exception]] = {}
        self.verdict: RunStatus = "published"
        self.runs: dict[str, Run] = {}
        self.reason = ""
        self.gate = threading.Event()
        self.gate.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def intake(self) -> Self:
        return self

    @property
    def maintenance(self) -> Self:
        return self

    def write(self, table: str, paths: list[str], options: IngestOptions) -> Run:
        self.given = (table, paths, options)
        return self._do("write", str(options.run_id), "staged")

    def audit_run(self, run_id: str) -> Run:
        return self._do("audit", run_id, "rejected" if self.verdict == "rejected" else "staged")

    def publish_run(self, run_id: str) -> Run:
        return self._do("publish", run_id, "published")

    def suspended_runs(self) -> dict[str, datetime]:
        return {run_id: one.started_at for run_id, one in self.runs.items() if one.status == "staged"}

    def cancel_run(self, run_id: str, *, reason: str) -> Run:
        self.reason = reason
        if run_id not in self.runs:
            self.calls.append(("undo", run_id))
            raise NotFoundError("There is no such run.")
        published = self.runs[run_id].status == "published"
        return self._do("undo", run_id, "published" if published else "failed")

    def _do(self, what: str, run_id: str, status: RunStatus) -> Run:
        self.calls.append((what, run_id))
        assert self.gate.wait(120)
        if self.raises.get(what):
            raise self.raises[what].pop(0)
        self.runs[run_id] = run(run_id, status)
        return self.runs[run_id]

    def steps(self, run_id: str) -> list[str]:
        return [what for what, of in self.calls if of == run_id]


def run(run_id: str, status: RunStatus) -> Run:
    reports = (report(run_id),) if status == "rejected" else ()
    return Run(
        run_id=run_id,
        tables=("nyc.trips",),
        branch=f"wap/{run_id}",
        status=status,
        started_at=datetime.now(UTC),
        reports=reports,
    )


def report(run_id: str) -> AuditReport:
    result = CheckResult(
        name="not_null(id)",
        check="not_null(id)",
        columns=("id",),
        severity="error",
        verdict="fail",
        failing_rows=3,
        total_rows=1000,
        evidence="scan",
        examples=({"name": "a customer's name"},),
    )
    return AuditReport(
        run_id=run_id, table="nyc.trips", branch="b", metadata_location="m", rows=1000, results=(result,), seconds=0.1
    )


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dbos") / "dbos.db"


@pytest.fixture(scope="module")
def configuration(database: Path) -> DbosConfiguration:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DBOS_SYSTEM_DATABASE_URL", f"sqlite:///{database}")
        return load_configuration(None, home=database.parent, journal=JournalSettings())


@pytest.fixture(scope="module")
def app(configuration: DbosConfiguration) -> Iterator[None]:
    with program.launched(configuration, listens=queues.QUEUES):
        queues.register()
        yield


@pytest.fixture
def lake(app: None, monkeypatch: pytest.MonkeyPatch) -> FakeLake:
    made = FakeLake()
    monkeypatch.setattr(workflows, "_opener", lambda _: cast("Lake", made))
    # DBOS waits seconds between the attempts of a step.
    monkeypatch.setattr("dbos._outcome.time", SimpleNamespace(sleep=lambda _: None))
    return made


def status_of(workflow_id: str) -> str:
    found = DBOS.get_workflow_status(workflow_id)
    assert found is not None
    return found.status


def test_a_batch_goes_through_three_steps_under_the_workflows_id(lake: FakeLake) -> None:
    outcome = program.run_one(ORDER, "good")
    assert (outcome["run_id"], outcome["status"], outcome["table"]) == ("good", "published", "nyc.trips")
    assert lake.steps("good") == ["write", "audit", "publish"]
    assert lake.given == ("nyc.trips", ["trips.parquet"], IngestOptions(run_id="good", checks=["not_null(id)"]))
    assert [step["function_name"] for step in DBOS.list_workflow_steps("good")] == [
        "lakegate.write",
        "lakegate.audit",
        "lakegate.publish",
    ]


def test_a_rejection_is_the_result_of_a_workflow_that_succeeds(lake: FakeLake) -> None:
    lake.verdict = "rejected"
    outcome = program.run_one(ORDER, "bad")
    assert outcome["status"] == "rejected"
    assert outcome["failures"] == ["not_null(id): 3 of 1,000 rows"]
    assert status_of("bad") == "SUCCESS"
    assert lake.steps("bad") == ["write", "audit"]


def test_starting_twice_runs_once(lake: FakeLake) -> None:
    first = program.run_one(ORDER, "twice")
    assert program.run_one(ORDER, "twice") == first
    with SetWorkflowID("twice"):
        assert DBOS.start_workflow(workflows.wap, ORDER).get_result() == first
    assert lake.steps("twice") == ["write", "audit", "publish"]


@pytest.mark.parametrize("other", [{"paths": ["other.parquet"]}, {"table": "nyc.zones"}])
def test_other_files_under_a_known_id_are_refused(
    lake: FakeLake, configuration: DbosConfiguration, other: dict[str, Any]
) -> None:
    run_id = f"known-{next(iter(other))}"
    program.run_one(ORDER, run_id)
    said = f"Run {run_id} was already started, with trips.parquet for nyc.trips."
    order = cast("Order", {**ORDER, **other})
    with pytest.raises(InputError, match=said):
        program.run_one(order, run_id)
    with pytest.raises(InputError, match=said):
        program.enqueue(configuration, order, run_id)
    assert lake.steps(run_id) == ["write", "audit", "publish"]


@pytest.mark.parametrize("step", ["write", "audit", "publish"])
@pytest.mark.parametrize("error", [AWAY, OutcomeUnknownError("No answer came.")], ids=["away", "unknown"])
def test_a_step_is_retried_when_that_may_help(lake: FakeLake, step: str, error: LakegateError) -> None:
    run_id = f"again-{step}-{error.code}"
    lake.raises[step] = [error, error]
    assert program.run_one(ORDER, run_id)["status"] == "published"
    assert lake.steps(run_id).count(step) == 3
    assert "undo" not in lake.steps(run_id)


def test_a_final_error_is_not_retried_and_the_run_is_undone(lake: FakeLake) -> None:
    lake.raises["publish"] = [InputError("No.", hint="Do this.")]
    with pytest.raises(InputError, match="No") as caught:
        program.run_one(ORDER, "final")
    assert caught.value.hint == "Do this."
    assert lake.steps("final") == ["write", "audit", "publish", "undo"]
    assert lake.runs["final"].status == "failed"
    assert status_of("final") == "ERROR"


def test_a_given_up_run_is_undone_and_raises_the_last_error(lake: FakeLake) -> None:
    lake.raises["audit"] = [AWAY] * 100
    with pytest.raises(CatalogUnavailableError):
        program.run_one(ORDER, "away")
    assert lake.steps("away").count("audit") == 8
    assert lake.steps("away")[-1] == "undo"
    assert lake.reason == "Its DBOS workflow failed (CatalogUnavailableError)."


def test_a_publish_whose_response_was_lost_is_a_success(lake: FakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    real = lake.publish_run

    def publish_run(run_id: str) -> Run:
        real(run_id)
        raise OutcomeUnknownError("No answer came.")

    monkeypatch.setattr(lake, "publish_run", publish_run)
    assert program.run_one(ORDER, "unheard")["status"] == "published"
    assert status_of("unheard") == "SUCCESS"


def test_a_cancelled_workflow_leaves_no_run_behind(lake: FakeLake) -> None:
    lake.gate.clear()
    with SetWorkflowID("cancelled"):
        DBOS.start_workflow(workflows.wap, ORDER)
    wait_until(lambda: lake.steps("cancelled") == ["write"])
    DBOS.cancel_workflow("cancelled")
    lake.gate.set()
    wait_until(lambda: lake.runs.get("cancelled", run("cancelled", "staged")).status == "failed")
    assert lake.steps("cancelled") == ["write", "undo"]
    with pytest.raises(LakegateError, match="was cancelled"):
        program.run_one(ORDER, "cancelled")


def test_a_run_whose_workflow_was_cancelled_while_nothing_ran_it_is_undone_at_the_next_start(
    lake: FakeLake, database: Path
) -> None:
    for name in ("left", "kept"):
        program.run_one(ORDER, name)
        lake.runs[name] = run(name, "staged")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE workflow_status SET status = 'CANCELLED' WHERE workflow_uuid = 'left'")
    workflows.undo_cancelled_runs()
    assert {name: one.status for name, one in lake.runs.items()} == {"left": "failed", "kept": "staged"}


def test_a_fork_continues_the_original_run(lake: FakeLake) -> None:
    program.run_one(ORDER, "original")
    forked = DBOS.fork_workflow("original", 2)
    assert forked.get_result()["run_id"] == "original"
    assert lake.steps("original") == ["write", "audit", "publish", "audit", "publish"]


def test_the_same_order_is_queued_once_and_another_one_too(lake: FakeLake) -> None:
    lake.gate.clear()
    first, same = queues.enqueue(ORDER), queues.enqueue(ORDER)
    other = queues.enqueue({**ORDER, "paths": ["other.parquet"]})
    assert first.get_workflow_id() == same.get_workflow_id() != other.get_workflow_id()
    lake.gate.set()
    assert {one.get_result()["status"] for one in (first, other)} == {"published"}
    after = queues.enqueue(ORDER)
    assert after.get_workflow_id() != first.get_workflow_id()
    after.get_result()


def test_workflows_enqueued_from_outside_run_here(lake: FakeLake, configuration: DbosConfiguration) -> None:
    lake.gate.clear()
    assert program.enqueue(configuration, ORDER, "outside") == ("outside", False)
    lake.gate.set()
    assert program.result_of(DBOS.retrieve_workflow("outside"))["status"] == "published"
    # An id runs only once.
    assert program.enqueue(configuration, ORDER, "outside") == ("outside", True)
    assert lake.steps("outside") == ["write", "audit", "publish"]


def test_only_dead_processes_workflows_are_recovered(
    lake: FakeLake, configuration: DbosConfiguration, database: Path
) -> None:
    for name in ("dead", "living", "stranger"):
        program.run_one(ORDER, name)
    executors = {"dead": "local.3", "living": "local.4", "stranger": "local-2"}
    with closing(sqlite3.connect(database)) as connection, connection:
        for name, executor in executors.items():
            connection.execute(
                "UPDATE workflow_status SET status = 'PENDING', executor_id = ? WHERE workflow_uuid = ?",
                (executor, name),
            )
    with FileLock(configuration.locks / "dbos-local.4.lock"):
        assert recover_dead(configuration.locks, "local") == ["dead"]
    assert program.result_of(DBOS.retrieve_workflow("dead"))["status"] == "published"
    assert (status_of("living"), status_of("stranger")) == ("PENDING", "PENDING")
    DBOS.cancel_workflows(["living", "stranger"])


def test_nobody_waits_for_a_workflow_of_another_version(lake: FakeLake, database: Path) -> None:
    """No process of this version runs it."""
    for name in ("older", "same"):
        program.run_one(ORDER, name)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE workflow_status SET status = 'PENDING' WHERE workflow_uuid IN ('older', 'same')")
        connection.execute("UPDATE workflow_status SET application_version = '0' WHERE workflow_uuid = 'older'")
    try:
        assert program.pending() == ["same"]
    finally:
        DBOS.cancel_workflows(["older", "same"])


def test_the_database_holds_names_and_numbers_but_no_row_and_no_secret(lake: FakeLake, database: Path) -> None:
    lake.verdict = "rejected"
    program.run_one(ORDER, "stored")
    lake.raises["write"] = [InputError("GET https://h/a?X-Amz-Signature=c2VjcmV0 failed.")]
    with pytest.raises(InputError, match="Signature=…"):
        program.run_one(ORDER, "stored-too")
    with closing(sqlite3.connect(database)) as connection:
        dump = "\n".join(line for line in connection.iterdump() if "stored" in line)
    assert '"status":"rejected"' in dump
    assert "customer" not in dump
    assert "Signature=" in dump
    assert "c2VjcmV0" not in dump
