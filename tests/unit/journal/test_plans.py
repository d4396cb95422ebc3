"""The queries of every command use an index, however many runs there are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event, text

from lakegate.journal.journal import Journal
from lakegate.model.batch import SourceFile
from lakegate.model.run import Run, RunStep
from support.memory_journal import MemoryDatabase

FILE = SourceFile(uri="file:///in/a", size_bytes=1, version="v", rows=1)


def run(number: int) -> Run:
    started = datetime(2025, 1, 1, number, tzinfo=UTC)
    return Run(run_id=f"r{number}", tables=("n.t",), branch=f"wap/r{number}", status="planned", started_at=started)


@pytest.mark.parametrize(
    "ask",
    [
        Journal.abandoned,
        Journal.suspended,
        lambda journal: journal.synced("main"),
        lambda journal: journal.synced_and_unread("main"),
        lambda journal: journal.known("n.t", [FILE]),
        lambda journal: journal.pages.by_branch(["wap/r1"]),
        lambda journal: journal.runs(limit=20),
        lambda journal: journal.runs(limit=20, table="n.t"),
        lambda journal: journal.find("r1"),
        lambda journal: journal.expire_detail(datetime.now(UTC), "Deleted."),
        lambda journal: journal.commits.with_prefix("main", "ab", limit=2),
        lambda journal: journal.commits.at("main", datetime.now(UTC)),
    ],
)
def test_nothing_reads_a_table_from_end_to_end(ask: Callable[[Journal], object]) -> None:
    assert not long_reads(MemoryDatabase(), ask)


@pytest.mark.parametrize(
    ("index", "ask"),
    [
        ("runs_started_at", lambda journal: journal.runs(limit=20)),
        ("run_tables_table", lambda journal: journal.runs(limit=20, table="n.t")),
        ("runs_branch", lambda journal: journal.pages.by_branch(["wap/r1"])),
        ("events_time", lambda journal: journal.commits.at("main", datetime.now(UTC))),
    ],
)
def test_without_its_index_a_question_would_read_too_much(index: str, ask: Callable[[Journal], object]) -> None:
    database = MemoryDatabase()
    with database.engine.begin() as connection:
        connection.exec_driver_sql(f"DROP INDEX {index}")
    assert long_reads(database, ask)


def test_runs_of_a_kind_and_a_status_are_found_by_both() -> None:
    """By either alone, rejected ingests would be looked for among all ingests, or published reverts among all runs."""
    database = MemoryDatabase()
    journal = Journal(database)
    with database.engine.connect() as connection:
        trace = asked_of(database)
        journal.runs(limit=20, status="rejected", kind="ingest")
        sql, given = next(one for one in trace if one[0].startswith("SELECT"))
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", given)
        assert any("runs_status_kind (status=? AND kind=?)" in step[3] for step in plan)


def test_a_step_writes_only_the_tables_in_which_its_run_changed() -> None:
    database = MemoryDatabase()
    journal = Journal(database)
    token = journal.begin(run(1))
    trace = asked_of(database)
    step = RunStep(name="write", started_at=run(1).started_at)
    journal.save(run(1).model_copy(update={"status": "staged", "steps": (step,)}), token)
    assert [sql.split()[2] for sql, _ in trace if sql.startswith(("INSERT", "DELETE"))] == ["runs", "steps", "steps"]


def test_a_run_with_a_damaged_record_is_written_to_all_its_tables() -> None:
    database = MemoryDatabase()
    journal = Journal(database)
    token = journal.begin(run(1))
    with database.writing() as tx:
        tx.execute(text("UPDATE runs SET document = 'damaged'"))
        tx.execute(text("DELETE FROM run_tables"))
    journal.save(run(1), token)
    assert [one.run_id for one in journal.runs(table=run(1).tables[0])] == [run(1).run_id]


def asked_of(database: MemoryDatabase) -> list[tuple[str, Any]]:
    """Return a list to which each statement is added, with its parameters."""
    asked: list[tuple[str, Any]] = []
    event.listen(
        database.engine, "before_cursor_execute", lambda _1, _2, sql, given, _3, _4: asked.append((sql, given))
    )
    return asked


def long_reads(database: MemoryDatabase, ask: Callable[[Journal], object]) -> list[tuple[str, list[str]]]:
    """Return the questions that read a table from end to end, or more than their page, and the steps of each."""
    journal = Journal(database)
    for number in range(3):
        journal.begin(run(number))
    asked = asked_of(database)
    ask(journal)
    questions = [(sql, given) for sql, given in asked if sql.startswith("SELECT")]
    assert questions
    found = []
    with database.reading() as tx:
        for sql, given in questions:
            plan = tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", given)
            steps = [str(row[3]) for row in plan]
            is_page = "LIMIT" in sql
            sorts = any(step.startswith("USE TEMP B-TREE") for step in steps)
            if any(_reads_all(step, is_page=is_page) for step in steps) or (is_page and sorts and not _by_id(steps)):
                found.append((sql, steps))
    return found


def _reads_all(step: str, *, is_page: bool) -> bool:
    if not step.startswith("SCAN") or "json_each" in step or step == "SCAN leases":  # of the few runs under way
        return False
    # In the order of an index, a scan ends after a page.
    return not (is_page and " INDEX " in step)


def _by_id(steps: list[str]) -> bool:
    """Return whether it sorts only the few runs whose id begins like one that was given."""
    return any("(run_id>? AND run_id<?)" in step for step in steps)


def test_abandoned_runs_are_found_oldest_first() -> None:
    journal = Journal(MemoryDatabase(), lease_s=0)
    for number in (2, 0, 1):
        journal.begin(run(number))
    assert [one.run_id for one in journal.abandoned()] == ["r0", "r1", "r2"]
