"""The dashboard's pages over 5,000 runs, 200 tables and 1,000 branches: a real journal, a real Nessie, real metadata.

Each round opens a read model of its own, which remembers nothing: what it measures is what the first visitor waits for
before anything is drawn. Commits and branches are in Nessie, each with its own metadata file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, Prepare, prepared, progress
from lakegate.dashboard import branches, history, overview, runs, tables
from lakegate.dashboard.model import ReadModel
from lakegate.journal.pages import RunFilter
from lakegate.ports import Catalog
from support.big_lake import BigLake, big_lake

_RUNS, _TABLES, _BRANCHES = 5_000, 200, 1_000
_Read = Callable[[ReadModel], Any]


def measure(home: Path, catalog: Catalog, rounds: int) -> Iterator[Figure]:
    """Yield the seconds until the home page's data is there, and those of the slowest page."""
    progress(f"{_RUNS:,} runs, {_TABLES} tables, {_BRANCHES:,} branches")
    lake = big_lake(home, runs=_RUNS, tables=_TABLES, branches=_BRANCHES, catalog=catalog)
    try:
        medians = prepared(rounds, {name: _fresh(lake, read) for name, read in _pages(lake).items()})
    finally:
        lake.journal.close()
    first = medians.pop("home")
    slowest = sorted(medians, key=lambda name: -medians[name])
    yield Figure("dashboard, first paint, seconds", first, 1.0, f"{_TABLES} tables, 50 of them shown")
    detail = ", ".join(f"{name} {medians[name] * 1000:.0f} ms" for name in slowest[:5])
    yield Figure("dashboard, slowest of all pages, seconds", medians[slowest[0]], 2.0, detail)


def _fresh(lake: BigLake, read: _Read) -> Prepare:
    def prepare() -> Callable[[], object]:
        model = lake.model()
        return lambda: read(model)

    return prepare


def _pages(lake: BigLake) -> Mapping[str, _Read]:
    # What a page shows when it's opened; the table with the most runs, and a run with examples.
    table, rejected = lake.tables[0], next(run for run in reversed(lake.runs) if run.status == "rejected")

    def whole_table(model: ReadModel) -> None:
        tables.get_table(model, table)
        tables.list_snapshots(model, table)
        tables.check_history(model, table)
        runs.list_runs(model, RunFilter(table=table))

    return {
        "home": overview.overview,
        "home, 200 tables": lambda model: overview.overview(model, limit=_TABLES),
        "branches": branches.list_branches,
        "branches, last page": lambda model: branches.list_branches(model, cursor=str(_BRANCHES - 20)),
        "branches of a table": lambda model: branches.list_branches(model, table=table),
        "branch": lambda model: branches.get_branch(model, rejected.branch),
        "runs": runs.list_runs,
        "runs, rejected": lambda model: runs.list_runs(model, RunFilter(status="rejected")),
        "runs, a file that isn't there": lambda model: runs.list_runs(model, RunFilter(file="nowhere.parquet")),
        "run": lambda model: runs.get_run(model, rejected.run_id),
        "table": whole_table,
        "history": history.list_commits,
    }
