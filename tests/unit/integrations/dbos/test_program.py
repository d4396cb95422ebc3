"""``python -m lakegate.integrations.dbos``: its input, and its errors."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import ANY, MagicMock

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError

from lakegate.config import JournalSettings
from lakegate.errors import ConfigurationError, OutcomeUnknownError
from lakegate.integrations.command_line import run_command
from lakegate.integrations.dbos import __main__ as front
from lakegate.integrations.dbos import program, workflows
from lakegate.integrations.dbos.configuration import DbosConfiguration, held_executor_id, load_configuration

SECRET = "correct-horse"
VARIABLES = ("TABLE_NAME", "NAMESPACE", "S3_PATH", "BRANCH_NAME", "RUN_ID", "DBOS_SYSTEM_DATABASE_URL")


@pytest.fixture(autouse=True)
def project(in_a_project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield in_a_project
    workflows.use_lake(workflows.connect_lake)  # the program puts its own there


def load(home: Path, text: str | None = None, **variables: str) -> DbosConfiguration:
    if text is not None:
        (home / "dbos-config.yaml").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        return load_configuration(None, home=home, journal=JournalSettings())


def test_without_a_file_everything_is_beside_the_journal(project: Path) -> None:
    config = load(project).dbos
    assert config["name"] == "lakegate"
    assert config["system_database_url"] == f"sqlite:///{project / '.lakegate' / 'dbos.db'}"
    assert (config["application_version"], config["executor_id"]) == ("lakegate-2", "local")


def test_a_variable_that_is_not_set_is_empty(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSET", raising=False)
    text = "name: ${UNSET}\nsystem_database_url: ${UNSET}\nenv:\n  A: ${UNSET}\n  B: x${UNSET}y\n"
    found = load(project, text)
    assert (found.dbos["name"], found.variables["A"], found.variables["B"]) == ("lakegate", "", "xy")


def test_dbos_shares_the_journals_postgres(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_PASSWORD", "p@ss:word")
    journal = JournalSettings(url="postgresql+pg8000://me@db.example.com/lake", password="env:JOURNAL_PASSWORD")
    config = load_configuration(None, home=project, journal=journal).dbos
    assert config["system_database_url"] == "postgresql://me:p%40ss%3Aword@db.example.com/lake"


@pytest.mark.parametrize(
    ("given", "query"),
    [
        ({"tls": True, "ca_file": "/etc/rds.pem"}, {"sslmode": "verify-full", "sslrootcert": "/etc/rds.pem"}),
        ({"ca_file": "/etc/rds.pem"}, {"sslmode": "verify-full", "sslrootcert": "/etc/rds.pem"}),
        ({"tls": True}, {"sslmode": "verify-full", "sslrootcert": ANY}),
        ({"tls": False}, {"sslmode": "disable"}),
    ],
)
def test_dbos_checks_the_certificate_of_the_journals_postgres_like_the_journal(
    project: Path, given: dict[str, Any], query: dict[str, Any]
) -> None:
    journal = JournalSettings(url="postgresql://me@db.example.com/lake", **given)
    url = make_url(load_configuration(None, home=project, journal=journal).dbos["system_database_url"] or "")
    assert url.query == query
    assert Path(str(url.query.get("sslrootcert", "/"))).is_absolute()


def test_the_file_configures_dbos(project: Path) -> None:
    text = """
name: my-app
language: python
system_database_url: postgresql://me:${DB_PASSWORD}@db.example.com/dbos
dbos_system_schema: workflows
runtimeConfig:
  start: ["python -m lakegate.integrations.dbos serve"]
  max_executor_threads: 8
database:
  sys_db_pool_size: 5
telemetry:
  logs: {logLevel: DEBUG}
env: {TABLE_NAME: trips, NAMESPACE: nyc}
"""
    configuration = load(project, text, DB_PASSWORD=SECRET, NAMESPACE="other")
    config = configuration.dbos
    assert config["system_database_url"] == f"postgresql://me:{SECRET}@db.example.com/dbos"
    assert (config["name"], config["dbos_system_schema"]) == ("my-app", "workflows")
    assert (config["max_executor_threads"], config["sys_db_pool_size"], config["log_level"]) == (8, 5, "DEBUG")
    assert (configuration.variables["TABLE_NAME"], configuration.variables["NAMESPACE"]) == ("trips", "other")
    assert configuration.logs_all


def test_variables_override_the_file(project: Path) -> None:
    given = {"DBOS_SYSTEM_DATABASE_URL": "sqlite:///x.db", "DBOS__APPVERSION": "7", "DBOS__VMID": "pod-1"}
    config = load(project, "system_database_url: sqlite:///y.db", **given).dbos
    assert config["system_database_url"] == "sqlite:///x.db"
    assert (config["application_version"], config["executor_id"]) == ("7", "pod-1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("runtimeConfig: many", "runtimeConfig must have keys"),
        ("- a", "must contain a dictionary"),
        ("name: [", "isn't valid YAML"),
        ("system_database_url: mysql://me:correct-horse@db/x", "system_database_url isn't the URL"),
        ("system_database_url: correct-horse", "system_database_url isn't the URL"),
        (
            "database: {hostname: db, password: correct-horse}",
            "database.hostname is of an older DBOS",
        ),
    ],
)
def test_errors_in_the_file_name_the_key(project: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(project, text)
    assert said in caught.value.message
    assert SECRET not in f"{caught.value.message} {caught.value.hint} {caught.value.context}"


WRONG = [
    ([], {}, "TABLE_NAME (--table_name)"),
    (["--table_name", "nyc.trips"], {}, "S3_PATH (--s3_path)"),
    (["--table_name", "trips", "--s3_path", "x"], {}, "'trips' can't name a table"),
    (["--table_name", "nyc.trips", "--s3_path", "x"], {"NAMESPACE": "other"}, "isn't in --namespace 'other'"),
    (["--table_name", "nyc.trips", "--s3_path", "x"], {"RUN_ID": "a b"}, "'a b'"),
    (["serve", "--table_name", "nyc.trips", "--schedule", "*/5 * * * *"], {}, "S3_PATH (--s3_path)"),
    (["serve", "--table_name", "a.b", "--s3_path", ".", "--schedule", "often"], {}, "--schedule 'often'"),
    (["serve", "--table_name", "a.b", "--s3_path", "/no/such", "--schedule", "* * * * *"], {}, "'/no/such' doesn't"),
    (["enqueue", "--table_name", "a.b", "--s3_path", "x", "-c", "not_nul(id)"], {}, "no check called 'not_nul'"),
    (["sevre"], {}, "'sevre' is not one of"),
    (["--concurrency", "0", "serve"], {}, "--concurrency"),
]


@pytest.mark.parametrize(("words", "variables", "said"), WRONG)
def test_a_wrong_or_missing_value_is_one_line_that_names_it(
    words: list[str],
    variables: dict[str, str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run_command(front.main, front.PROGRAM, words) == 2
    error, *hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ")
    assert said in error
    assert len(hint) <= 1


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (["--table_name", "nyc.trips"], {}),
        (["--table-name", "trips", "--namespace", "nyc"], {}),
        ([], {"TABLE_NAME": "trips", "NAMESPACE": "nyc"}),
        ([], {"TABLE_NAME": "nyc.trips"}),
        ([], {"TABLE_NAME": "nyc.trips", "NAMESPACE": "nyc"}),
        (["--table_name", "nyc.trips"], {"TABLE_NAME": "other.one"}),
    ],
)
def test_a_table_may_be_given_in_one_or_in_two(
    words: list[str], variables: dict[str, str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = []

    def told(_configuration: DbosConfiguration, given: Mapping[str, Any]) -> int:
        orders.append(front.order_of(given))
        return 0

    monkeypatch.setitem(front.MODES, "run", told)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run_command(front.main, front.PROGRAM, [*words, "--s3_path", "x", "--branch_name", "b"]) == 0
    # Another process, which stands in another folder, may be the one to read it.
    assert orders == [{"table": "nyc.trips", "paths": [str(project / "x")], "checks": [], "branch": "b"}]


def test_an_unreachable_dbos_database_is_reported_without_the_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DBOS_SYSTEM_DATABASE_URL", f"postgresql://me:{SECRET}@127.0.0.1:1/lake?connect_timeout=2")
    for mode in ("run", "enqueue"):
        assert run_command(front.main, front.PROGRAM, [mode, "--table_name", "nyc.trips", "--s3_path", "x"]) == 3
        said = capsys.readouterr().err
        assert "DBOS's database at postgresql://me:***@127.0.0.1:1/lake doesn't answer" in said
        assert SECRET not in said
        assert "Traceback" not in said


def test_a_database_that_fails_while_runs_are_in_progress_leaves_their_outcome_unknown(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "DBOS", MagicMock())
    monkeypatch.setattr(program, "recover_dead", lambda *_: [])
    with pytest.raises(OutcomeUnknownError, match="disk I/O error") as caught, program.launched(load(project)):
        raise OperationalError("INSERT", {}, sqlite3.OperationalError("disk I/O error"))
    assert "continue at the next start" in str(caught.value.hint)


def test_help_shows_examples_and_needs_no_dbos() -> None:
    code = "import sys; sys.modules['dbos'] = None; from lakegate.integrations.dbos.__main__ import main; main(['-h'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "python -m lakegate.integrations.dbos serve --table_name nyc.trips" in done.stdout


def test_an_executor_id_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    with held_executor_id(tmp_path, "local") as first, held_executor_id(tmp_path, "local") as second:
        assert (first, second) == ("local", "local.2")
    with held_executor_id(tmp_path, "local") as again:
        assert again == "local"


def test_a_rejection_names_the_branch_and_the_next_command() -> None:
    outcome = workflows.Outcome(
        run_id="20260131T070000-1", status="rejected", table="nyc.trips", branch="wap/x", rows=9,
        failures=["not_null(id): 3 of 9 rows"], detail=None, skipped=0,
    )  # fmt: skip
    said = front.sentence(outcome)
    assert said.splitlines()[1:] == [
        "  not_null(id): 3 of 9 rows",
        "Branch: wap/x",
        "Next: lakegate runs 20260131T070000-1",
    ]
