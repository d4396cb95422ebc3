"""Questions that every command asks read what they need by an index, however many runs there are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event

from lakegate.journal.journal import Journal
from lakegate.model.batch import SourceFile
from lakegate.model.run import Run
from support.memory_journal import MemoryDatabase

FILE = SourceFile(uri="file:///in/a", size_bytes=1, version="v", rows=1)


def run(number: int) -> Run:
    started = datetime(2025, 1, 1, number, tzinfo=UTC)
    return Run(run_id=f"r{number}", tables=("n.t",), branch=f"wap/r{number}", status="running", started_at=started)


@pytest.mark.parametrize(
    "ask",
    [
        Journal.abandoned,
        Journal.suspended,
        lambda journal: journal.synced("main"),
        lambda journal: journal.known("n.t", [FILE]),
        lambda journal: journal.pages.by_branch(["wap/r1"]),
        lambda journal: journal.runs(limit=20),
        lambda journal: journal.runs(limit=20, table="n.t"),
        lambda journal: journal.find("r1"),
        lambda journal: journal.commits.beginning("main", "ab", limit=2),
        lambda journal: journal.commits.at("main", datetime.now(UTC)),
    ],
)
def test_nothing_reads_a_table_from_end_to_end(ask: Callable[[Journal], object]) -> None:
    database = MemoryDatabase()
    journal = Journal(database)
    for number in range(3):
        journal.begin(run(number))
    asked: list[tuple[str, Any]] = []
    event.listen(
        database.engine, "before_cursor_execute", lambda _1, _2, sql, given, _3, _4: asked.append((sql, given))
    )
    ask(journal)
    questions = [(sql, given) for sql, given in asked if sql.startswith("SELECT")]
    assert questions
    with database.reading() as tx:
        for sql, given in questions:
            plan = tx.connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", given)
            steps = [str(row[3]) for row in plan]
            scans = [step for step in steps if step.startswith("SCAN") and "json_each" not in step]
            # In an order that ends after a page, or of the few runs under way.
            assert all("LIMIT" in sql or step == "SCAN leases" for step in scans), (sql, steps)


def test_abandoned_runs_are_found_oldest_first() -> None:
    journal = Journal(MemoryDatabase(), lease_s=0)
    for number in (2, 0, 1):
        journal.begin(run(number))
    assert [one.run_id for one in journal.abandoned()] == ["r0", "r1", "r2"]
