"""Postgres answers what everyday commands ask by indexes, however many runs there are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, make_url

from lakegate.journal.journal import Journal
from lakegate.journal.pages import RunFilter
from lakegate.journal.postgres import PostgresDatabase
from lakegate.model.run import HistoryEvent, PastCommit, Publication
from support.journals import START, Actor, empty, file, run
from support.postgres import PostgresServer

pytestmark = pytest.mark.xdist_group("postgres")
RUNS = 20_000
_MOST_READ = 1_000
NEWEST = START + timedelta(seconds=RUNS)


def text_of(number: int) -> str:
    return f"r{number:06}"


def filled() -> Iterator[str]:
    document = run(1, status="published", finished_at=START).model_dump_json()
    at = "to_char(timestamp '2026-01-01' + n * interval '1 second', 'YYYY-MM-DD\"T\"HH24:MI:SS.US') || '+00:00'"
    status = "CASE mod(n, 20) WHEN 0 THEN 'rejected' WHEN 1 THEN 'failed' ELSE 'published' END"
    kind, commit = "CASE mod(n, 50) WHEN 0 THEN 'revert' ELSE 'ingest' END", "encode(sha256(n::text::bytea), 'hex')"
    run_id, table, uri = "'r' || lpad(n::text, 6, '0')", "'n.t' || mod(n, 200)", "'file:///in/' || n"
    columns = {
        "runs (run_id, kind, branch, status, started_at, finished_at, document, branch_kept)": (
            f"{run_id}, {kind}, 'wap/' || n, {status}, {at}, {at}, '{document}', 0"
        ),
        "run_tables": f"{run_id}, {table}, {at}",
        "steps": f"{run_id}, 0, 'write', {at}, {at}, 'done'",
        "check_results": f"{run_id}, 0, {table}, 'c', 'c', 'error', 'pass', 'scan', 0, 1",
        "claims (table_name, path, version, size_bytes, rows, state, run_id)": (
            f"{table}, {uri}, '1', 1, 1, 'published', {run_id}"
        ),
        "events": f"'main', {commit}, {run_id}, {at}",
        "landings": f"{table}, {uri}, '1', 'done', 1, {run_id}, NULL, {at}",
        "deliveries (downstream, kind, ref, run_id, tables, state, tries, queued_at)": (
            f"'d' || mod(n, 3), 'published', 'main', {run_id}, '[]', 'sent', 1, {at}"
        ),
    }
    for into, values in columns.items():
        yield f"INSERT INTO {into} SELECT {values} FROM generate_series(1, {RUNS}) n"
    yield "INSERT INTO history VALUES ('main', encode(sha256('1'), 'hex'))"


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> Iterator[PostgresDatabase]:
    """A journal of many runs, of which Postgres has its statistics."""
    empty(postgres)
    made = PostgresDatabase(make_url(postgres.url).set(password=postgres.password), tls=False)
    Journal(made)
    with made.writing() as tx:
        for sql in filled():
            tx.connection.exec_driver_sql(sql)
        tx.connection.exec_driver_sql("ANALYZE")
    yield made
    made.close()
    empty(postgres)


def a_run(journal: Journal) -> None:
    """What an ingest and its publish ask."""
    actor, number = Actor(journal), RUNS + 1
    ours = run(number, run_id=text_of(number))
    actor.begin(ours)
    actor.claim(ours.run_id, "nyc.trips", [file("new")])
    actor.renew(ours.run_id)
    journal.save(ours, actor.tokens[ours.run_id])
    commit = "c" * 64
    publication = Publication(run_id=ours.run_id, target="main", commit=commit, tables=ours.tables, rows=1)
    made = HistoryEvent(
        commit=commit, run_id=ours.run_id, tables=ours.tables, files=(("file:///data/new", "1"),), time=NEWEST
    )
    journal.record("main", [made], commit, commits=[PastCommit(hash=commit, time=NEWEST, event=made)])
    actor.end(ours.model_copy(update={"status": "published", "publication": publication, "finished_at": NEWEST}))


ASKED: dict[str, Callable[[Journal], object]] = {
    "a run": a_run,
    "abandoned": Journal.abandoned,
    "suspended": Journal.suspended,
    "synced": lambda journal: journal.synced("main"),
    "synced and unread": lambda journal: journal.synced_and_unread("main"),
    "known files": lambda journal: journal.known("n.t1", [file("a")]),
    "earlier files": lambda journal: journal.earlier("n.t1", [file("a")]),
    "checkpoints of files": lambda journal: journal.file_checkpoints("n.t1", ["file:///in/1", "file:///in/201"]),
    "orphaned branches": lambda journal: journal.with_branch(("failed", "published")),
    "a run's branch": lambda journal: journal.find_by_branch("wap/100"),
    "by branches": lambda journal: journal.pages.by_branch(["wap/1", "wap/20000"]),
    "runs": lambda journal: journal.runs(limit=20),
    "runs of a table": lambda journal: journal.runs(limit=20, table="n.t7"),
    "runs of a status": lambda journal: journal.runs(limit=20, status="rejected"),
    "rejected reverts": lambda journal: journal.runs(limit=20, status="rejected", kind="revert"),
    "runs since": lambda journal: journal.runs(limit=20, since=NEWEST - timedelta(hours=1)),
    "next page": lambda journal: journal.pages.runs(RunFilter(), limit=20, after=(NEWEST - timedelta(hours=1), "r")),
    "one run": lambda journal: journal.get(text_of(100)),
    "a run's beginning": lambda journal: journal.find("r0001"),
    "lines": lambda journal: journal.pages.lines([text_of(1), text_of(2)]),
    "runs by id": lambda journal: journal.pages.runs_of([text_of(1), text_of(2)]),
    "newest of tables": lambda journal: journal.pages.newest_of(["n.t1", "n.t2"], limit=20),
    "last publishes": lambda journal: journal.pages.last_publishes(["n.t1", "n.t2"]),
    "tables of runs": lambda journal: journal.pages.tables_of([text_of(1), text_of(2)]),
    "checks": lambda journal: journal.pages.checks("n.t1", [text_of(1)]),
    "tables": lambda journal: journal.pages.tables(limit=1_000),
    "metrics": Journal.metrics,
    "a commit's digits": lambda journal: journal.commits.with_prefix("main", "abcd", limit=10),
    "a commit at a time": lambda journal: journal.commits.at("main", NEWEST - timedelta(hours=1)),
    "a commit": lambda journal: journal.commits.has("main", "c" * 64),
    "deliveries": lambda journal: journal.outbox.list(limit=20),
    "waiting deliveries": lambda journal: journal.outbox.waiting("d1"),
    "unsent states": lambda journal: journal.outbox.unsent_states(),
}


@pytest.mark.parametrize("what", ASKED)
def test_nothing_reads_more_of_a_table_than_it_needs(database: PostgresDatabase, what: str) -> None:
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, sql: str, given: Any, _context: Any, _many: Any) -> None:
        asked.append((sql, given))

    journal = Journal(database)
    event.listen(database.engine, "before_cursor_execute", note)
    try:
        ASKED[what](journal)
    finally:
        event.remove(database.engine, "before_cursor_execute", note)
    found = []
    for sql, given in asked:
        if sql.split()[0] not in ("SELECT", "UPDATE", "DELETE", "WITH") or "pg_advisory" in sql:
            continue
        with database.engine.connect() as connection:  # which is rolled back
            answer = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", given).scalar_one()
            connection.rollback()
        plan = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
        found += [f"{sql}: {describe(node)}" for node in nodes(plan) if rows_read(node) > _MOST_READ]
    assert asked
    assert not found


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for one in plan.get("Plans", ()):
        yield from nodes(one)


def describe(node: dict[str, Any]) -> str:
    return f"{node['Node Type']} of {node['Relation Name']} reads {rows_read(node):,} rows"


def rows_read(node: dict[str, Any]) -> int:
    """Return how many rows of a table a step looked at."""
    if "Scan" not in node["Node Type"] or "Relation Name" not in node:
        return 0
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])
