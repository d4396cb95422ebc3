"""Orders for a lakehouse in memory, for tests of the flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from lakegate.checks import parse_checks
from lakegate.context import Context
from lakegate.model.checks import AuditReport
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import IngestPlan, IngestRequest
from lakegate.model.run import Run, StagedTable
from lakegate.wap import failpoints
from lakegate.wap.plan import plan
from lakegate.wap.transaction import Transaction, transaction
from support.fakes import FakeLakehouse

TRIPS = TableIdentifier.parse("nyc.trips")
Rows = list[dict[str, Any]]
CLEAN: Rows = [{"id": 1, "passengers": 2}, {"id": 2, "passengers": 1}]
WITH_NULLS: Rows = [{"id": 3, "passengers": None}, {"id": 4, "passengers": 1}]


MORE: Rows = [{"id": 5, "passengers": 3}]
MOST: Rows = [{"id": 6, "passengers": 4}]


@contextmanager
def when_reached(monkeypatch: pytest.MonkeyPatch, point: str, do: Callable[[], object]) -> Iterator[None]:
    """Do something, once, when the flow comes to ``point``."""
    pending = [do]

    def reach(reached: str) -> None:
        if reached == point and pending:
            pending.pop()()

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        yield
    assert not pending, f"{point} was never reached"


def ordered(
    house: FakeLakehouse,
    rows: Sequence[dict[str, Any]] = CLEAN,
    *,
    run: str = "r1",
    table: TableIdentifier = TRIPS,
    **options: Any,
) -> IngestRequest:
    checks = options.pop("checks", ("not_null(passengers)",))
    return IngestRequest(
        run_id=run,
        table=table,
        batch=house.batch(options.pop("file", run), rows, version=options.pop("version", "1")),
        checks=tuple(check for text in checks for check in parse_checks(text)),
        branch=options.pop("branch", f"wap/{table}_{run}"),
        **options,
    )


def begun(context: Context, run: str = "t1", **options: Any) -> AbstractContextManager[Transaction]:
    """Begin a transaction on main, by default without checks that are configured."""
    usual: dict[str, Any] = {"name": "daily", "branch": f"wap/{run}", "target": "main", "on_failure": "keep"}
    return transaction(context, run_id=run, **{**usual, "configured": lambda _: (), **options})


def planned(house: FakeLakehouse, rows: Sequence[dict[str, Any]] = CLEAN, **options: Any) -> IngestPlan:
    return plan(house.context, ordered(house, rows, **options))


def audited(request: IngestRequest, staged: StagedTable, report: AuditReport) -> Run:
    return Run(
        run_id=request.run_id,
        tables=(str(request.table),),
        branch=request.branch,
        status="staged",
        started_at=datetime.now(UTC),
        base=request.base,
        request=request,
        staged=(staged,),
        reports=(report,),
    )


def branches(house: FakeLakehouse) -> list[str]:
    return [ref.name for ref in house.catalog.list_refs()]
