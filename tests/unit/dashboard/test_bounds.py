"""The cost of a page depends on what it shows: every query of the journal uses an index."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from lakegate.dashboard import branches, history, overview, runs, tables
from lakegate.dashboard.model import ReadModel
from lakegate.journal.pages import RunFilter
from support.big_lake import BigLake

_PAGES: dict[str, Callable[[ReadModel, BigLake], Any]] = {
    "home": lambda model, _: overview.overview(model),
    "branches": lambda model, _: branches.list_branches(model),
    "runs": lambda model, _: runs.list_runs(model),
    "runs of a table": lambda model, lake: runs.list_runs(model, RunFilter(table=lake.tables[0], status="rejected")),
    "runs by status": lambda model, _: runs.list_runs(model, RunFilter(status="rejected")),
    "runs by kind": lambda model, _: runs.list_runs(model, RunFilter(kind="revert")),
    "runs by orchestrator": lambda model, _: runs.list_runs(model, RunFilter(orchestrator="dbos")),
    "runs by id": lambda model, _: runs.list_runs(model, RunFilter(run_id="2026")),
    "runs by file": lambda model, _: runs.list_runs(model, RunFilter(file="trips")),
    "a run": lambda model, lake: runs.get_run(model, lake.runs[-1].run_id),
    "checks": lambda model, lake: tables.check_history(model, lake.tables[0]),
    "history": lambda model, _: history.list_commits(model),
}


@contextmanager
def statements(lake: BigLake) -> Iterator[list[tuple[str, Any]]]:
    found: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        found.append((statement, parameters))

    engine = lake.database.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", note)


@pytest.mark.parametrize("page", _PAGES)
def test_no_query_reads_a_whole_table(big: BigLake, page: str) -> None:
    with statements(big) as found:
        _PAGES[page](big.model(), big)
    asked = {statement: parameters for statement, parameters in found if statement.startswith(("SELECT", "WITH"))}
    assert asked
    engine = big.database.engine
    with engine.connect() as connection:
        for statement, parameters in asked.items():
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            steps = [str(row[3]) for row in plan]
            # An index scan in order stops once the page is full. Leases belong to running runs, downstreams are few,
            # and table names are read one by one.
            whole = [step for step in steps if re.fullmatch(r"SCAN (?!json_each|leases|downstreams|names)\w+", step)]
            bounded = "LIMIT" in statement and "ORDER BY runs.started_at" in statement
            assert not whole or bounded, (statement, steps)


def test_the_read_model_imports_no_streamlit_and_no_engine() -> None:
    import subprocess

    code = (
        "import sys, lakegate.dashboard.overview, lakegate.dashboard.branches, lakegate.dashboard.runs, "
        "lakegate.dashboard.tables, lakegate.dashboard.history, lakegate.dashboard.runs\n"
        "print(sorted({'streamlit', 'pyspark', 'pandas', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
