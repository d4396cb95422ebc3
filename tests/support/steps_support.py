"""An ingest taken in steps, in a lakehouse in memory."""

from __future__ import annotations

from typing import Any, get_args

from lakegate.model.run import Run
from lakegate.wap.ingest import Stage, resume
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, TRIPS, Rows, ordered

STAGES: tuple[Stage, ...] = get_args(Stage)


def step(house: FakeLakehouse, until: Stage, rows: Rows = CLEAN, *, run: str = "r1", **options: Any) -> Run:
    """Take a step, as a process of its own that ends with it."""
    house.kill()
    return resume(
        house.context, run, until=until, table=TRIPS, request=lambda: ordered(house, rows, run=run, **options)
    )


def all_steps(house: FakeLakehouse, rows: Rows = CLEAN, **options: Any) -> Run:
    return [step(house, until, rows, **options) for until in STAGES][-1]


def ids(house: FakeLakehouse, ref: str = "main") -> list[int]:
    return sorted(row["id"] for row in house.rows_on(ref, "nyc.trips"))


def commits(house: FakeLakehouse, run: str = "r1") -> int:
    return len(list(house.catalog.history("main", run_id=run)))


def known(house: FakeLakehouse, run: str = "r1") -> Run:
    found = house.journal.get(run)
    assert found is not None
    return found
