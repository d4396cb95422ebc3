"""The Prefect integration's input and output, without a server."""

from __future__ import annotations

import subprocess
import sys
import traceback
from importlib import metadata
from pathlib import Path

import click
import pytest

from lakegate.errors import ConfigurationError, EngineUnavailableError, IdentifierError
from lakegate.integrations import prefect as adapter
from lakegate.integrations import require_extra
from lakegate.integrations.command_line import run_command
from lakegate.integrations.prefect.__main__ import cli
from lakegate.integrations.prefect.steps import error_line, returning_retryable
from lakegate.model.run import Run

PROGRAM = (sys.executable, "-m", "lakegate.integrations.prefect")


@pytest.mark.parametrize("found", ["3.8.8", "3.8.12", "3.8.9rc1", "3.8.8.post1", "3.8.10+local.1"])
def test_a_version_in_the_range_is_accepted(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr("lakegate.integrations.version", lambda _package: found)
    require_extra("prefect", "prefect", "3.8.8", "3.9")


@pytest.mark.parametrize("found", ["3.8.7", "2.20.0", "3.9", "3.9.0", "3.10.1", "4.0.0a1", "unknown"])
def test_a_version_out_of_range_names_the_extra(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr("lakegate.integrations.version", lambda _package: found)
    with pytest.raises(ConfigurationError, match=r"needs prefect>=3\.8\.8,<3\.9\.") as caught:
        require_extra("prefect", "prefect", "3.8.8", "3.9")
    assert found in caught.value.message
    assert caught.value.hint == "pip install 'lakegate[prefect]'"


def test_without_prefect_the_first_use_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr("lakegate.integrations.version", missing)
    with pytest.raises(ConfigurationError, match="prefect isn't installed") as caught:
        _ = adapter.wap_flow
    assert caught.value.hint == "pip install 'lakegate[prefect]'"


def test_every_exported_name_exists() -> None:
    assert all(getattr(adapter, name) is not None for name in dir(adapter))
    with pytest.raises(AttributeError, match="no_such_flow"):
        _ = adapter.no_such_flow


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--table_name", "nyc.trips"], "Pass --table_name and --s3_path, or a command."),
        (["--table_name", "nyc.trips", "--namespace", "x", "--s3_path", "x"], "'nyc.trips' isn't in --namespace 'x'."),
        (["--table-name", "trips", "--s3-path", "x"], "'trips' can't name a table"),
        (["--table_name", "nyc.trips", "--s3_path", "x", "--home", "/no/such"], "/no/such"),
        (["--no-such-option"], "--no-such-option"),
        (["serve", ".", "--table", "nyc.trips", "--every", "often"], "Invalid duration 'often'."),
        (["serve", ".", "--table", "nyc.trips", "--every", "0s"], "--every must be greater than zero."),
        (["serve", "."], "Pass either --table, which all files go to, or --route."),
        (["serve", ".", "--table", "nyc.trips", "--route", "{namespace}/{table}/*"], "Pass either --table"),
        (["serve", ".", "--route", "{other}/*"], "doesn't define {namespace}."),
        (["serve", "/no/such", "--table", "nyc.trips"], "'/no/such' doesn't exist."),
        (["serve", ".", "--table", "nyc.trips", "-c", "not_nul(id)"], "There is no check called 'not_nul'."),
        (["serve", ".", "--table", "nyc.trips", "--name", "a/b"], "--name 'a/b'"),
        (["announce", "nyc.trips"], "Missing argument"),
    ],
)
def test_wrong_values_are_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(cli, "lakegate", words) == 2
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert told.out == ""
    assert lines[0].startswith("error: ")
    assert said in lines[0]
    assert len(lines) <= 2


def test_an_internal_error_is_not_taken_for_a_failed_audit(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command
    def fail() -> None:
        raise RuntimeError("out of luck")

    assert run_command(fail, "lakegate", []) == 70
    assert "RuntimeError: out of luck" in capsys.readouterr().err


def test_the_program_exits_with_the_documented_codes() -> None:
    done = subprocess.run(PROGRAM, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: Pass --table_name and --s3_path, or a command.")


def test_what_prefect_stores_of_an_error_has_no_secrets() -> None:
    def step() -> Run:
        cause = ValueError("fs.azure.account.key=c2VjcmV0")
        raise EngineUnavailableError("GET https://h/a?X-Amz-Signature=c2VjcmV0", hint="password=c2VjcmV0") from cause

    with pytest.raises(EngineUnavailableError, match="Signature=…") as caught:
        returning_retryable(step)
    stored = "".join(traceback.format_exception(caught.value))
    assert "c2VjcmV0" not in stored.partition("EngineUnavailableError: ")[2]
    assert "ValueError:" not in stored
    assert error_line(caught.value) == "GET https://h/a?X-Amz-Signature=… password=…"


def test_the_trigger_is_for_one_table_or_all() -> None:
    assert "lakegate.table.*" in adapter.landed_trigger().model_dump_json()
    only = adapter.landed_trigger("nyc.trips", checks=["not_null(id)"])
    assert "lakegate.table.nyc.trips" in only.model_dump_json()
    assert only.parameters is not None
    assert only.parameters["checks"] == ["not_null(id)"]
    assert "event.payload.path" in only.parameters["path"]["template"]
    with pytest.raises(IdentifierError):
        adapter.landed_trigger("trips")


def test_deployments_have_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    intake, wap = adapter.deployments(
        ["in", "s3://b/in"],
        table=None,
        routes=["in/{namespace}/{table}/*", "s3://b/in/{table}-* => nyc.{table}"],
        name="x",
        interval_s=300,
        checks=[],
        on_failure=None,
        home=None,
    )
    assert intake.parameters["paths"] == [str(tmp_path / "in"), "s3://b/in"]
    assert intake.parameters["routes"] == [
        str(tmp_path / "in/{namespace}/{table}/*"),
        "s3://b/in/{table}-* => nyc.{table}",
    ]
    assert intake.parameters["home"] == wap.parameters["home"] == str(tmp_path)
    assert intake.concurrency_limit == 1
    assert intake.entrypoint == "lakegate.integrations.prefect.intake.intake_flow"
