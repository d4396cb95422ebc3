"""Journals of earlier releases become ones of today, with all their runs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, MetaData, insert, inspect, make_url, select, text

from lakegate.config import JournalSettings
from lakegate.errors import RetryableError
from lakegate.journal import schema
from lakegate.journal.database import Database, SqliteDatabase
from lakegate.journal.factory import open_sqlite
from lakegate.journal.journal import Journal
from lakegate.journal.migrations import MIGRATIONS
from lakegate.journal.postgres import PostgresDatabase
from lakegate.journal.schema import CLAIMS, METADATA, RUNS
from lakegate.model.run import FileCheckpoint
from support.journals import START, Actor, Place, file, run
from support.postgres import PostgresServer

# As sqlite_master has it in a journal that lakegate 0.1 made.
FIRST_RELEASE = """
CREATE TABLE runs (
    run_id VARCHAR(64) NOT NULL, table_name VARCHAR(512) NOT NULL, branch VARCHAR(255) NOT NULL,
    status VARCHAR(32) NOT NULL, started_at VARCHAR(40) NOT NULL, document TEXT NOT NULL, PRIMARY KEY (run_id)
);
CREATE INDEX runs_started_at ON runs (started_at);
CREATE INDEX runs_branch ON runs (branch, started_at);
"""
POINTER = {
    "table": "nyc.trips", "content_id": "c", "metadata_location": "m", "snapshot_id": 1, "schema_id": 0, "spec_id": 0,
    "sort_order_id": 0,
}  # fmt: skip
STAGED = {
    "run_id": "r1", "table": "nyc.trips", "branch": "b1", "target": "main", "base": "0", "head": "1",
    "pointer": POINTER, "parent_snapshot_id": None, "snapshot_ids": [1], "created": True, "rows": 3, "data_files": 1,
}  # fmt: skip
RESULT = {
    "name": "not_null_x", "check": "not_null(x)", "columns": ["x"], "severity": "error", "verdict": "pass",
    "failing_rows": 0, "total_rows": 3, "evidence": "manifest", "examples": [], "detail": None,
}  # fmt: skip
REPORT = {
    "run_id": "r1", "table": "nyc.trips", "branch": "b1", "metadata_location": "m", "rows": 3, "results": [RESULT],
    "seconds": 0.1,
}  # fmt: skip
REQUEST = {
    "run_id": "r1", "table": "nyc.trips", "branch": "b1", "base": "0", "checks": [], "partition_by": [],
    "target": "main", "on_failure": "keep",
    "batch": {
        "format": "parquet", "columns": [], "csv": None, "multiline": False,
        "files": [{"uri": "file:///a", "size_bytes": 1, "version": "1-2", "rows": 3}],
    },
}  # fmt: skip


def document(run_id: str = "r1", **values: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("finished_at", "request", "staged", "report", "publication", "detail", "error"))
    times = {"started_at": "2026-01-01T00:00:01Z", "branch_kept": False}
    return {"run_id": run_id, "table": "nyc.trips", "branch": "b1", "status": "published", **empty, **times, **values}


def first_release(path: Path, *documents: dict[str, Any] | str) -> None:
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(FIRST_RELEASE)
        for number, one in enumerate(documents, 1):
            text = one if isinstance(one, str) else json.dumps(one)
            row = (f"r{number}", "nyc.trips", f"b{number}", "published", f"2026-01-01T00:00:0{number}+00:00", text)
            connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", row)


def test_a_run_of_the_first_release_is_converted(tmp_path: Path) -> None:
    publication = {"run_id": "r1", "target": "main", "commit": "2", "tables": ["nyc.trips"], "rows": 3}
    first_release(
        tmp_path / "journal.db", document(request=REQUEST, staged=STAGED, report=REPORT, publication=publication)
    )
    with closing(open_sqlite(tmp_path / "journal.db")) as journal:
        (run,) = journal.runs(table="nyc.trips", kind="ingest", status="published")
    assert run.detail is None
    assert run.tables == ("nyc.trips",)
    assert [(one.rows, one.before, one.change) for one in run.staged] == [(3, None, "append")]
    assert [one.results[0].check for one in run.reports] == ["not_null(x)"]
    assert run.publication is not None
    assert run.publication.commit == "2"
    assert run.request is not None
    assert run.request.batch.files[0].version == "1-2"
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
        assert connection.execute("SELECT run_id, check_text, verdict FROM check_results").fetchall() == [
            ("r1", "not_null(x)", "pass")
        ]


def test_what_runs_of_the_first_release_left_is_found(tmp_path: Path) -> None:
    first_release(tmp_path / "journal.db", document(), document("r2", branch_kept=True))
    with closing(open_sqlite(tmp_path / "journal.db")) as journal:
        assert [run.run_id for run in journal.with_branch(["published"])] == ["r2"]


def test_no_run_is_lost_whatever_its_document_holds(tmp_path: Path) -> None:
    documents: list[Any] = [
        "not json",
        "[]",
        "{}",
        document("r4", staged={"rows": "?"}),
        document("r5"),
        document("r6", report=7),
    ]
    first_release(tmp_path / "journal.db", *documents)
    with closing(open_sqlite(tmp_path / "journal.db")) as journal:
        found = {run.run_id: run for run in journal.runs(table="nyc.trips")}
        assert journal.find_by_branch("b1") is not None
    assert sorted(found) == ["r1", "r2", "r3", "r4", "r5", "r6"]
    assert [run_id for run_id, run in found.items() if run.detail is None] == ["r5"]
    assert {run.status for run in found.values()} == {"published"}


def test_many_runs_are_converted(tmp_path: Path) -> None:
    first_release(tmp_path / "journal.db")
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection, connection:
        rows = [
            (
                f"r{number}",
                "nyc.trips",
                "b",
                "published",
                "2026-01-01T00:00:00+00:00",
                json.dumps(document(f"r{number}")),
            )
            for number in range(1001)
        ]
        connection.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?)", rows)
    with closing(open_sqlite(tmp_path / "journal.db")) as journal:
        assert len(journal.runs(limit=2000)) == 1001


def test_eight_processes_may_upgrade_at_once(tmp_path: Path) -> None:
    first_release(tmp_path / ".lakegate" / "journal.db", document())
    with Place(JournalSettings(), tmp_path).workers(8, "open") as workers:
        for worker in workers:
            worker.go()
        assert [worker.answer() for worker in workers] == [1] * 8


def test_an_upgrade_that_fails_leaves_the_old_journal_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    first_release(path, document())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE claims (in_the_way int)")
    with pytest.raises(RetryableError, match="claims already exists"):
        open_sqlite(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("SELECT count(*), max(table_name) FROM runs").fetchone() == (1, "nyc.trips")
        connection.execute("DROP TABLE claims")
    with closing(open_sqlite(path)) as journal:
        assert len(journal.runs()) == 1


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    made: Database
    if request.param == "sqlite":
        made = SqliteDatabase(tmp_path / "journal.db")
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        server.run("DROP SCHEMA IF EXISTS lakegate CASCADE")
        made = PostgresDatabase(make_url(server.url).set(password=server.password))
    yield made
    made.close()


def test_the_migrations_make_what_the_code_expects(database: Database) -> None:
    with database.upgrading() as tx:
        schema.upgrade(tx.connection, None)
    with database.reading() as tx:
        assert compare_metadata(MigrationContext.configure(tx.connection), METADATA) == []


def test_a_new_journal_has_the_tables_that_the_migrations_make(database: Database) -> None:
    with database.upgrading() as tx:
        schema.upgrade(tx.connection, None)
        migrated = described(tx.connection)
        everything = MetaData()
        everything.reflect(tx.connection)
        everything.drop_all(tx.connection)
    Journal(database)
    with database.reading() as tx:
        assert described(tx.connection) == migrated


def described(connection: Connection) -> Any:
    """Return all that can be found out about the tables but the order of their columns, and the version."""
    found = inspect(connection)
    tables = {
        table: (
            sorted(map(repr, found.get_columns(table))),
            found.get_pk_constraint(table),
            sorted(map(repr, found.get_indexes(table))),
            sorted(map(repr, found.get_unique_constraints(table))),
        )
        for table in found.get_table_names()
    }
    return tables, connection.scalars(select(schema.VERSIONS.c.version_num)).all()


def test_a_journal_without_landings_and_tokens_gets_them_and_keeps_the_rest(database: Database) -> None:
    with database.upgrading() as tx:
        schema.upgrade(tx.connection, None, "0002")
    with database.writing() as tx:
        assert not inspect(tx.connection).has_table("landings")
        for one in (run(1), run(2).model_copy(update={"branch_kept": True})):
            old = one.model_dump_json(exclude={"orchestrator"})
            row = {"run_id": one.run_id, "kind": one.kind, "branch": one.branch, "status": one.status, "document": old}
            tx.execute(insert(RUNS).values(**row, started_at=schema.as_text(one.started_at)))
        for run_id, expires_at in (
            ("r01", "2999-01-01T00:00:00.000000+00:00"),
            ("r02", "2025-01-01T00:00:00.000000+00:00"),
        ):
            values = f"('{run_id}', 'far:1:1', '2025-01-01', '{expires_at}')"
            leases = "INSERT INTO leases (run_id, holder, renewed_at, expires_at) VALUES "
            tx.execute(text(leases + values))
        claimed = {"table_name": "nyc.trips", "path": file("a").uri, "version": "1", "size_bytes": 10, "rows": 3}
        tx.execute(insert(CLAIMS).values(**claimed, state="claimed", run_id="r01"))

    journal = Actor(Journal(database))
    landed = FileCheckpoint(uri="file:///data/a", stamp="1", outcome="done", noted_at=START)
    journal.save_file_checkpoints("nyc.trips", [landed])
    assert journal.file_checkpoints("nyc.trips", [landed.uri]) == {landed.uri: landed}
    assert journal.get("r01") == run(1)
    assert [one.run_id for one in journal.journal.with_branch(("staged", run(2).status))] == ["r02"]
    assert journal.claim("r03", "nyc.trips", [file("a")]).busy
    assert not journal.journal.renew("r01", ""), "no token is nobody's"
    with pytest.raises(RetryableError, match="Another process is working on run r01"):
        journal.resume("r01")
    assert [one.run_id for one in journal.abandoned()] == ["r02"]
    assert journal.take_over("r02")


def test_every_migration_is_known_to_the_code() -> None:
    assert tuple(MIGRATIONS) == schema.REVISIONS
