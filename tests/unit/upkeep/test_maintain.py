"""Due maintenance, and one round of it, on a lakehouse in memory with any layout of files."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakegate.config import MaintenancePolicy
from lakegate.errors import (
    CatalogUnavailableError,
    ConfigurationError,
    EngineUnavailableError,
    ExitCode,
    LakegateError,
    NotFoundError,
    RetryableError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import GcReport, MaintenanceStep, TableLayout
from lakegate.model.refs import TablePointer
from lakegate.model.run import Run
from lakegate.upkeep.maintain import Maintenance, due
from lakegate.wap.table_changes import expire_snapshots
from support.revert_support import A, B, C, House

LAYOUTS = {
    "nyc.calm": TableLayout(data_files=4, size_bytes=10**9, small_files=0),
    "nyc.trips": TableLayout(data_files=30, size_bytes=10**8, small_files=25),
    "nyc.zones": TableLayout(data_files=90, size_bytes=10**8, small_files=90),
}


class World:
    """Some tables, and what was done to them."""

    def __init__(self) -> None:
        self.house = House()
        for name in LAYOUTS:
            self.house.add(name, A, table=TableIdentifier.parse(name))
        self.house.layouts.update(LAYOUTS)
        self.done: list[tuple[str, str]] = []
        self.seen: list[MaintenanceStep] = []
        self.raises: dict[str, LakegateError] = {}

    def act(self, action: str) -> Callable[[str], Run]:
        def run(table: str) -> Run:
            self.done.append((table, action))
            if f"{action} {table}" in self.raises:
                raise self.raises[f"{action} {table}"]
            return expire_snapshots(
                self.house.context,
                TableIdentifier.parse(table),
                before=datetime.now(UTC) - timedelta(days=1),
                keep=1,
                new_run_id=f"{action}-{table}",
            )

        return run

    def maintenance(self, within: timedelta | None = None, gc: Any = None, **policy: Any) -> Maintenance:
        return Maintenance(
            self.house.context,
            policy_of=lambda table: MaintenancePolicy(enabled=table.name != "off", **policy),
            within=within,
            actions={
                "compact": self.act("compact"),
                "expire": self.act("exp"),
            },
            gc=gc,
            on_step=self.seen.append,
        )


@pytest.fixture
def world() -> World:
    return World()


def test_due_actions_follow_from_the_files_and_the_policy(world: World) -> None:
    def found(name: str, **policy: Any) -> Any:
        pointer = world.house.catalog.get_table(TableIdentifier.parse(name), world.house.head())
        assert pointer is not None
        later = datetime.now(UTC) + timedelta(days=31)
        return due(world.house.context, pointer, MaintenancePolicy(**policy), later)[0]

    assert found("nyc.calm") == {}
    assert found("nyc.trips") == {"compact": "25 files below 64m"}
    assert found("nyc.trips", enabled=False) == {}
    assert found("nyc.trips", small_files=26) == {}
    average = found("nyc.trips", small_files=26, average_file="4m")
    assert average == {"compact": "30 files of 3.3 MB on average"}
    assert found("nyc.zones", small_files=91, average_file="1m") == {}
    for run, rows in (("b", B), ("c", C)):
        world.house.add(run, rows, table=TableIdentifier.parse("nyc.calm"))
    assert found("nyc.calm", keep=1) == {"expire": "2 snapshots older than 30d"}
    assert found("nyc.calm", keep=1, expire="999999d") == {}
    assert found("nyc.calm", keep=3) == found("nyc.calm", keep=1, expire="0s") == {}


def test_a_round_does_what_is_due_and_one_failing_table_does_not_stop_the_others(world: World) -> None:
    world.raises = {"compact nyc.zones": RetryableError("busy")}
    planned = world.maintenance(gc=lambda: GcReport(dry_run=True)).plan()
    assert [(step.table, step.action, step.status) for step in planned.steps] == [
        ("nyc.zones", "compact", "planned"),
        ("nyc.trips", "compact", "planned"),
    ]
    assert (planned.tables, planned.dry_run, world.done, planned.gc is not None) == (3, True, [], True)

    report = world.maintenance(gc=lambda: GcReport(dry_run=False)).run()
    assert world.done == [("nyc.zones", "compact"), ("nyc.trips", "compact")]
    assert [step.status for step in report.steps] == ["failed", "skipped"]
    assert report.steps[1].run_id == "compact-nyc.trips"
    assert list(report.steps) == world.seen
    assert (report.exit_code, report.gc) == (ExitCode.RETRYABLE, GcReport(dry_run=False))

    def no_gc() -> GcReport:
        raise ConfigurationError("The warehouse isn't ours.")

    report = world.maintenance(gc=no_gc).run(["nyc.c*", "nyc.calm"])
    assert (report.tables, [step.action for step in report.failures], report.exit_code) == (1, ["gc"], 1)


def test_a_round_ends_in_time_and_without_the_engine_or_the_catalog(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = world.maintenance(within=timedelta(0)).run()
    assert ({step.status for step in report.steps}, world.done, report.exit_code) == ({"left"}, [], ExitCode.OK)

    def unreadable(pointer: TablePointer, **_: object) -> Any:
        raise NotFoundError(f"A file of {pointer.table} is missing.")

    with monkeypatch.context() as patched:
        patched.setattr(world.house, "layout", unreadable)
        report = world.maintenance(within=timedelta(0)).run()
    assert ({step.status for step in report.steps}, report.exit_code) == ({"failed"}, ExitCode.AUDIT_FAILED)

    world.raises = {"compact nyc.zones": EngineUnavailableError("Spark is away")}
    report = world.maintenance().run()
    assert [step.status for step in report.steps] == ["failed", "left"]

    world.raises = {"compact nyc.zones": CatalogUnavailableError("Nessie is away")}
    with pytest.raises(CatalogUnavailableError):
        world.maintenance().run()

    with (
        world.house.context.journal.lock("maintenance", timeout_s=0),
        pytest.raises(RetryableError, match="Another process"),
    ):
        world.maintenance().run()
    with pytest.raises(NotFoundError, match=r"No table on main is called 'nyc\.trip'"):
        world.maintenance().plan(["nyc.trip"])
