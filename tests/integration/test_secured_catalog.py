"""A real Nessie that wants tokens of OAuth 2: for lakegate and for Spark, got in time, and readable for nobody else."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql.connect.session import SparkSession

from lakegate.config import load_settings
from lakegate.errors import ConfigurationError
from lakegate.lake import Lake, connect
from lakegate.local.state import StackState
from support.e2e_support import Cli, write_trips
from support.lakes import components_of, session_of
from support.oidc_server import CLIENT, Oidc, oidc_server
from support.secured_nessie import secured_nessie
from support.waiting import wait_until

pytestmark = pytest.mark.jvm

CHECKS = ["unique(id)", "not_null(passengers)"]
_TIMEOUT_S = 30


@pytest.fixture(scope="module")
def oidc() -> Iterator[Oidc]:
    with oidc_server() as provider:
        yield provider


@pytest.fixture(scope="module")
def secured_uri(oidc: Oidc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with secured_nessie(tmp_path_factory.mktemp("nessie"), oidc.url) as uri:
        yield uri


@pytest.fixture
def variables(
    stack: StackState, oidc: Oidc, secured_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Mapping[str, str]:
    """Settings of a project whose catalog is the secured one, and whose Spark is the session's."""
    url, _, token = stack.spark_url.partition("/;token=")
    secrets = {"SPARK_TOKEN": token, "CLIENT_SECRET": oidc.secret}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    oidc.lifetime_s = 300.0
    return {
        "LAKEGATE_ENGINE_URL": url,
        "LAKEGATE_ENGINE_TOKEN": "env:SPARK_TOKEN",
        "LAKEGATE_CATALOG_URI": secured_uri,
        "LAKEGATE_CATALOG_WAREHOUSE": (tmp_path / "warehouse").as_uri(),
        "LAKEGATE_CATALOG_OAUTH2_TOKEN_ENDPOINT": oidc.token_endpoint,
        "LAKEGATE_CATALOG_OAUTH2_CLIENT_ID": CLIENT,
        "LAKEGATE_CATALOG_OAUTH2_CLIENT_SECRET": "env:CLIENT_SECRET",
        "LAKEGATE_CATALOG_OAUTH2_SCOPE": "catalog",
        **secrets,
    }


def opened(home: Path, variables: Mapping[str, str], **changes: str | None) -> Lake:
    given = {**variables, **{f"LAKEGATE_CATALOG_{name.upper()}": value for name, value in changes.items()}}
    env = {name: value for name, value in given.items() if value is not None}
    return connect(home, settings=load_settings(home, env=env))


def refused(lake: Lake) -> ConfigurationError:
    with lake, pytest.raises(ConfigurationError) as caught:
        next(iter(lake.branches.list()))
    return caught.value


def without_oauth2(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if "OAUTH2" not in name}


def test_a_batch_goes_all_the_way_by_python_and_spark(
    variables: Mapping[str, str], oidc: Oidc, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.t"
    before = len(oidc.scopes)
    with opened(tmp_path, variables) as lake:
        run = lake.ingest(table, write_trips(tmp_path / "a.parquet", 20), checks=CHECKS, on_rejected="return")
        assert run.status == "published"
        rejected = lake.ingest(
            table, write_trips(tmp_path / "b.parquet", 5, nulls=2, start=20), checks=CHECKS, on_rejected="return"
        )
        assert rejected.status == "rejected"
        assert lake.query(f"SELECT count(*) AS n FROM {table}").to_arrow()["n"].to_pylist() == [20]
    # Python's one, and Spark's own: a session each for writing and for the query.
    assert oidc.scopes[before:] == ["catalog"] * len(oidc.scopes[before:])
    assert len(oidc.scopes) - before >= 2


def test_both_get_new_tokens_when_theirs_expire(
    variables: Mapping[str, str], oidc: Oidc, secured_uri: str, namespace: str, tmp_path: Path
) -> None:
    oidc.lifetime_s = 8.0  # Spark gets a new one each second; a busy machine may be late by several
    before = len(oidc.issued)
    with opened(tmp_path, variables) as lake:
        first = lake.ingest(f"{namespace}.t", write_trips(tmp_path / "a.parquet", 20), checks=CHECKS)
        assert first.status == "published"
        used = tuple(oidc.issued[before:])

        def are_expired() -> bool:
            return not any(is_accepted(secured_uri, token) for token in used)

        wait_until(are_expired, within_s=_TIMEOUT_S, poll_s=0.2, what="the end of the tokens")
        second = lake.ingest(f"{namespace}.t", write_trips(tmp_path / "b.parquet", 5, start=20), checks=CHECKS)
        assert second.status == "published"


def is_accepted(uri: str, token: str) -> bool:
    return httpx.get(f"{uri}/config", headers={"Authorization": f"Bearer {token}"}).is_success


def test_a_token_that_expired_unnoticed_is_renewed_when_it_is_refused(
    variables: Mapping[str, str], oidc: Oidc, tmp_path: Path
) -> None:
    # Of its own: Spark's sessions of other tests still get tokens.
    oidc.late.add("late")
    with opened(tmp_path, variables, oauth2_scope="late") as lake:
        assert [ref.name for ref in lake.branches.list()][:1] == ["main"]
    assert oidc.scopes.count("late") == 2


def test_a_wrong_secret_is_told_and_not_shown(
    variables: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_SECRET", "hunter22")
    error = refused(opened(tmp_path, variables))
    assert "rejected the client 'lakegate' (invalid_client)" in error.message
    assert "hunter22" not in str(error.to_dict())


def test_a_token_by_file_reaches_spark_and_is_rotated_without_restart(
    variables: Mapping[str, str], oidc: Oidc, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(oidc.issue(lifetime_s=300) + "\n")
    file.chmod(0o600)
    with opened(tmp_path, without_oauth2(variables), token=f"file:{file}") as lake:
        run = lake.ingest(f"{namespace}.t", write_trips(tmp_path / "a.parquet", 20), checks=CHECKS)
        assert run.status == "published"
        file.write_text(oidc.issue(lifetime_s=-10))
        with pytest.raises(ConfigurationError, match="doesn't accept"):
            list(lake.branches.list())
        file.write_text(oidc.issue(lifetime_s=300))
        assert [ref.name for ref in lake.branches.list()][:1] == ["main"]


def test_secrets_are_in_no_journal_log_report_or_other_session(
    variables: Mapping[str, str], oidc: Oidc, stack: StackState, home: Path, namespace: str, tmp_path: Path
) -> None:
    here = tmp_path / "project"
    here.mkdir()
    cli = Cli(here, {**variables, "LAKEGATE_LOG_FORMAT": "json"})
    good, bad = write_trips(tmp_path / "a.parquet", 20), write_trips(tmp_path / "b.parquet", 5, nulls=2, start=20)
    check = [word for text in CHECKS for word in ("--check", text)]
    said = [
        cli.run("ingest", f"{namespace}.t", good, *check, "--output", "json"),
        cli.run("ingest", f"{namespace}.t", bad, *check, "--debug"),
        cli.run("runs", "--output", "json"),
        cli.run("admin", "config", "show", "--output", "json"),
        cli.run("query", f"SELECT nothing FROM {namespace}.t", "--debug"),
        cli.run("branch", "list", "--debug", "--output", "json"),
    ]
    assert [done.returncode for done in said] == [0, 1, 0, 0, 2, 0], said[0].stderr
    token = stack.spark_url.partition("/;token=")[2]
    with opened(here, variables) as lake:
        lake.query(f"SELECT count(*) FROM {namespace}.t").to_arrow()
        listed = {row[0]: row[1] for row in session_of(components_of(lake)).sql("SET").collect()}
        other = settings_of_another_session(stack.spark_url)
        planted = {oidc.secret, token, *oidc.issued}
        assert oidc.secret in str(components_of(lake).catalog.spark_options(None)), (
            "the secret is where it is looked for"
        )
    # Spark redacts the secret in the session that has it.
    assert "redacted" in listed["spark.sql.catalog.lakegate.authentication.oauth2.client-secret"]
    assert oidc.secret not in str(listed)
    texts = {f"command {number}": done.stdout + done.stderr for number, done in enumerate(said)}
    texts |= {"another session": other}
    folders = (here, home / ".lakegate" / "logs")
    texts |= {
        # By another process: to open and close the journal here would drop the locks of SQLite.
        str(path): subprocess.run(["/bin/cat", path], capture_output=True, check=True).stdout.decode("latin-1")
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert any(name.endswith("journal.db") for name in texts)
    assert any(name.endswith("spark.log") for name in texts)
    assert {name for name, text in texts.items() for secret in planted if secret in text} == set()
    assert f"spark.sql.catalog.{CLIENT}" not in other


def settings_of_another_session(url: str) -> str:
    """Return all that a session of another user sees of Spark's settings."""
    session: Any = SparkSession.Builder().remote(f"{url};user_id=another").create()
    try:
        return "\n".join(f"{key}={value}" for key, value in session.conf.getAll.items()) + "\n".join(
            str(row) for statement in ("SET", "SET -v") for row in session.sql(statement).collect()
        )
    finally:
        session.stop()
