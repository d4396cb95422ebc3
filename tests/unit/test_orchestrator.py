"""The orchestrator that started a run is recorded with it, whichever way it was started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import lakegate
from lakegate.errors import IdentifierError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import IngestRequest
from lakegate.wap.ingest import ingest
from support.cli_support import FakeLake, invoke
from support.fakes import FakeLakehouse
from support.lakes import components_of


def request(house: FakeLakehouse) -> IngestRequest:
    batch = house.batch("a", [{"id": 1}])
    return IngestRequest(run_id="r1", table=TableIdentifier.parse("nyc.trips"), branch="wap/a", batch=batch)


def test_a_run_names_its_orchestrator(house: FakeLakehouse) -> None:
    run = ingest(replace(house.context, orchestrator="prefect"), request(house))
    assert run.orchestrator == "prefect"
    assert house.journal.pages.lines(["r1"])["r1"].orchestrator == "prefect"


@pytest.mark.parametrize("name", ["", "Prefect", "a" * 41, "a\n", "<b>", "-a", "é"])
def test_other_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(IdentifierError, match="Invalid orchestrator name"):
        lakegate.connect(tmp_path, orchestrator=name)


def test_a_task_of_airflow_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "nightly")
    with lakegate.connect(tmp_path) as lake:
        assert components_of(lake).orchestrator == "airflow"
    with lakegate.connect(tmp_path, orchestrator="dagster") as lake:
        assert components_of(lake).orchestrator == "dagster"


@pytest.mark.usefixtures("in_a_project")
@pytest.mark.parametrize(("words", "began"), [("runs", "cli"), ("watch --table lab.t --once --wait", "watch")])
def test_a_command_opens_the_lake_by_its_name(words: str, began: str, tmp_path: Path) -> None:
    fake = FakeLake(runs=[])
    invoke([*words.split(), *([str(tmp_path)] if began == "watch" else [])], fake)
    assert fake.opened_with["orchestrator"] == began
