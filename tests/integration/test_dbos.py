"""The DBOS program as users run it, on real Spark and Nessie, its tables in SQLite or in the journal's Postgres."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pg8000.native
import psutil
import pytest

from lakegate.local.state import StackState
from support import warm
from support.e2e_support import Cli, write_trips
from support.postgres import PostgresServer, running_postgres
from support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("postgres")]

CHECK = "not_null(passengers)"
_PASSWORD = "DBOS_TEST_PASSWORD"
_PATIENCE_S = 240


@dataclass(frozen=True)
class Program:
    """``python -m lakegate.integrations.dbos`` for one project and one database."""

    home: Path
    variables: Mapping[str, str]

    def start(self, *words: object, fault: str = "", **more: str) -> subprocess.Popen[str]:
        """Start it: cold if it serves, warm otherwise."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LAKEGATE_")}
        python = (sys.executable, "-m", warm.DBOS) if "serve" in words else warm.words(warm.DBOS)
        return subprocess.Popen(
            [*python, *map(str, words), "--home", str(self.home)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, **self.variables, "LAKEGATE_FAULT": fault, **more},
        )

    def run(self, *words: object, code: int = 0, fault: str = "") -> str:
        """Run it to an end that must be ``code``; return what it printed."""
        return finished(self.start(*words, fault=fault), code)

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self.run(*words, "--output", "json", code=code))

    @property
    def cli(self) -> Cli:
        return Cli(self.home, self.variables)


def finished(process: subprocess.Popen[str], code: int = 0) -> str:
    try:
        stdout, stderr = process.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"it did not end: {process.communicate()[1]}")
    assert process.returncode == code, stderr
    assert not [value for name, value in os.environ.items() if name == _PASSWORD and value in stderr]
    return stdout


def ended(process: subprocess.Popen[str]) -> None:
    """End a process whose test may have failed, and show what it said."""
    if process.poll() is None:
        process.kill()
        sys.stderr.write(process.communicate()[1])


def has_ended(process: subprocess.Popen[str]) -> bool:
    """Tell whether it has, and wake it if it has stopped itself again."""
    process.send_signal(signal.SIGCONT)
    return process.poll() is not None


until = partial(wait_until, within_s=_PATIENCE_S, poll_s=0.5)


def stopped(process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None, process.communicate()
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


def on_postgres(home: Path, server: PostgresServer, name: str) -> Program:
    """Return the program with the journal, and so DBOS's tables, in a database of its own."""
    server.run(f'CREATE DATABASE "{name}"')
    url = server.url.replace("/postgres", f"/{name}")
    secret = {"LAKEGATE_JOURNAL_PASSWORD": f"env:{_PASSWORD}", _PASSWORD: server.password}
    return Program(home, {"LAKEGATE_JOURNAL_URL": url, **secret})


@pytest.fixture
def on_sqlite(home: Path, stack: StackState, tmp_path: Path) -> Program:
    return Program(home, {"DBOS_SYSTEM_DATABASE_URL": f"sqlite:///{tmp_path / 'dbos.db'}"})


@pytest.fixture
def beside_the_journal(home: Path, stack: StackState, postgres: PostgresServer, namespace: str) -> Program:
    return on_postgres(home, postgres, namespace)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with running_postgres() as server:
        yield server


def test_one_database_holds_the_journal_and_dbos(
    beside_the_journal: Program, postgres: PostgresServer, namespace: str, tmp_path: Path
) -> None:
    good_and_bad(beside_the_journal, namespace, tmp_path)
    tables = postgres_rows(postgres, namespace, "SELECT schemaname, tablename FROM pg_tables")
    assert {("dbos", "workflow_status"), ("lakegate", "runs"), ("lakegate", "leases")} <= set(tables)
    stored = postgres_rows(postgres, namespace, "SELECT output FROM dbos.operation_outputs")
    assert len(stored) == 5
    assert max(len(str(output)) for (output,) in stored) < 500


def good_and_bad(program: Program, namespace: str, tmp_path: Path) -> None:
    good, bad = write_trips(tmp_path / "good.parquet", 10), write_trips(tmp_path / "bad.parquet", 10, nulls=3, start=10)
    table = f"{namespace}.trips"
    words = ["--table_name", "trips", "--namespace", namespace, "-c", CHECK]
    first = program.json(*words, "--s3_path", good, "--run_id", f"{namespace}-1")
    assert (first["status"], first["rows"]) == ("published", 10)
    assert program.json(*words, "--s3_path", good, "--run_id", f"{namespace}-1") == first
    rejected = program.json(*words, "--s3_path", bad, "--branch_name", f"look/{namespace}", code=1)
    assert (rejected["status"], rejected["branch"]) == ("rejected", f"look/{namespace}")
    assert rejected["failures"] == [f"{CHECK}: 3 of 10 rows"]
    assert program.cli.count(table) == 10
    assert f"look/{namespace}" in program.cli.branches()


def test_serving_works_off_the_queue_and_looks_when_the_schedule_says(
    beside_the_journal: Program, namespace: str, tmp_path: Path
) -> None:
    program = beside_the_journal
    landing = tmp_path / "landing"
    queued = ["enqueue", "--table_name", f"{namespace}.queued", "--s3_path", write_trips(tmp_path / "q.parquet", 4)]
    ids = {program.json(*queued)["run_id"] for _ in range(2)}
    assert len(ids) == 1
    write_trips(landing / "a.parquet", 3)
    words = ["serve", "--table_name", f"{namespace}.landed", "--s3_path", landing, "--schedule", "*/5 * * * * *"]
    serving = program.start(*words, "-c", CHECK)
    try:
        until(lambda: program.cli.count(f"{namespace}.queued") == 4)
        until(lambda: program.cli.count(f"{namespace}.landed") == 3)
        write_trips(landing / "bad.parquet", 3, nulls=1, start=3)
        write_trips(landing / "b.parquet", 2, start=6)
        until(lambda: program.cli.count(f"{namespace}.landed") == 5)
        serving.send_signal(signal.SIGTERM)
        finished(serving)
    finally:
        ended(serving)
    runs = program.cli.json("runs", "--table", f"{namespace}.queued")
    assert [run["run_id"] for run in runs] == list(ids)


def postgres_rows(server: PostgresServer, database: str, statement: str) -> list[tuple[object, ...]]:
    connection = pg8000.native.Connection(
        "lakegate", host="127.0.0.1", port=server.port, database=database, password=server.password
    )
    try:
        return [tuple(row) for row in connection.run(statement)]
    finally:
        connection.close()


def test_nothing_is_lost_when_the_database_goes_away_in_a_step(
    home: Path, stack: StackState, own_postgres: PostgresServer, namespace: str, tmp_path: Path
) -> None:
    program = on_postgres(home, own_postgres, namespace)
    words = ["--table_name", f"{namespace}.trips", "--s3_path", write_trips(tmp_path / "a.parquet", 3)]
    # A step that fails while the database is away can't give up its lease either: it runs out, the sooner the better.
    running = program.start(*words, "--output", "json", fault="after-publish:pause", LAKEGATE_JOURNAL_LEASE_S="5")
    try:
        until(lambda: stopped(running))
        own_postgres.stop()
        running.send_signal(signal.SIGCONT)
        assert "doesn't answer" in program.start(*words).communicate(timeout=_PATIENCE_S)[1]
        own_postgres.start()
        # A step that is called again comes by the same point.
        until(lambda: has_ended(running))
        assert json.loads(finished(running))["status"] == "published"
    finally:
        ended(running)
    assert program.cli.count(f"{namespace}.trips") == 3
    assert program.cli.json("runs", "--table", f"{namespace}.trips")[0]["status"] == "published"


def test_two_processes_that_take_each_other_for_dead_publish_once(
    home: Path, stack: StackState, postgres: PostgresServer, namespace: str, tmp_path: Path
) -> None:
    program = on_postgres(home, postgres, namespace)
    words = ["--table_name", f"{namespace}.trips", "--s3_path", write_trips(tmp_path / "a.parquet", 3)]
    words += ["--run_id", f"{namespace}-1", "--output", "json"]
    more = {"LAKEGATE_JOURNAL_LEASE_S": "2", "DBOS__VMID": namespace}
    owner = "SELECT owner_xid FROM dbos.workflow_status WHERE owner_xid IS NOT NULL"
    first = program.start(*words, fault="after-stage:pause", **more)
    try:
        until(lambda: stopped(first))
        before = postgres_rows(postgres, namespace, owner)
        # On another machine nobody knows of this one's locks.
        (home / ".lakegate" / "locks" / f"dbos-{namespace}.lock").unlink()
        second = program.start(*words, **more)
        until(lambda: postgres_rows(postgres, namespace, owner) not in ([], before))
        until(lambda: has_ended(first))
        outcomes = [json.loads(finished(process)) for process in (first, second)]
    finally:
        ended(first)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0]["status"] == "published"
    assert program.cli.count(f"{namespace}.trips") == 3


def test_crash_matrix_of_dbos(home: Path, stack: StackState, namespace: str) -> None:
    """The points at which DBOS and the lake disagree most on what was done; ``make prove`` plays all of them."""
    from proofs import dbos_matrix  # with DBOS

    proof = dbos_matrix.prove(home, dbos_matrix.some_cases(), namespace=namespace)
    assert not proof.failures, proof.details
