"""What runs count, and how Prometheus reads the counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lakegate.errors import ConflictError, EngineUnavailableError
from lakegate.ledger.sync import sync
from lakegate.telemetry.metrics import (
    METRICS,
    OVERFLOW,
    RETRIES,
    STEP_SECONDS,
    Measurements,
    Sample,
    measure,
    measuring,
)
from lakegate.telemetry.prometheus import text
from lakegate.wap.ingest import ingest
from lakegate.wap.recover import recover
from support.cli_support import FakeLake, invoke
from support.downstream_support import System, World, down, row
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, WITH_NULLS, ordered
from support.steps_support import step


def parsed(samples: Any) -> dict[str, dict[tuple[str, ...], float]]:
    """Parse the text as Prometheus does: values by name, then by the metric's label values."""
    labels = {metric.name: (*metric.labels, "le") for metric in METRICS}
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text(samples)):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                names = labels.get(family.name, ("version",))
                key = tuple(sample.labels[name] for name in names if name in sample.labels)
                found.setdefault(sample.name, {})[key] = sample.value
    return found


def counted(house: FakeLakehouse) -> dict[str, dict[tuple[str, ...], float]]:
    return parsed(house.journal.metrics())


def test_runs_count_how_they_ended_and_what_they_did(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house, CLEAN, run="r1"))
    ingest(house.context, ordered(house, WITH_NULLS, run="r2"))
    last = ingest(house.context, ordered(house, MORE, run="r3"))
    ingest(house.context, ordered(house, MORE, run="r4", file="r3"))
    found = counted(house)
    assert found["lakegate_runs_total"] == {
        ("ingest", "published"): 2,
        ("ingest", "rejected"): 1,
        ("ingest", "skipped"): 1,
    }
    assert found["lakegate_table_runs_total"]["nyc.trips", "published"] == 2
    assert found["lakegate_rows_total"] == {("nyc.trips", "published"): 3, ("nyc.trips", "rejected"): 2}
    assert found["lakegate_step_seconds_count"]["write", "done"] == 3
    assert found["lakegate_step_seconds_count"]["publish", "done"] == 2
    assert found["lakegate_run_seconds_count"]["published",] == 2
    assert sum(found["lakegate_checks_total"].values()) == 3
    assert {verdict for _, verdict in found["lakegate_checks_total"]} == {"pass", "fail"}
    assert found["lakegate_audit_seconds_total"]["manifest",] > 0
    assert found["lakegate_audit_seconds_total"]["examples",] > 0
    assert found["lakegate_queue_wait_seconds_count"] == {("publish",): 2}
    assert last.finished_at is not None
    assert found["lakegate_last_publish_timestamp_seconds"] == {("nyc.trips",): last.finished_at.timestamp()}
    assert found["lakegate_active_runs"] == {(): 0}
    assert "lakegate_conflict_retries_total" not in found


def test_steps_of_several_processes_are_counted_once(house: FakeLakehouse) -> None:
    step(house, "write")
    assert counted(house)["lakegate_step_seconds_count"] == {("write", "done"): 1}
    assert counted(house)["lakegate_suspended_runs"] == {(): 1}
    step(house, "audit")
    step(house, "publish")
    step(house, "publish")
    found = counted(house)
    assert found["lakegate_step_seconds_count"] == {("write", "done"): 1, ("audit", "done"): 1, ("publish", "done"): 1}
    assert sum(found["lakegate_checks_total"].values()) == 1
    assert found["lakegate_runs_total"] == {("ingest", "published"): 1}


def test_a_commit_that_was_tried_again_is_counted(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, refusals = house.catalog.commit, [ConflictError("Moved."), ConflictError("Moved.")]

    def refuse(request: Any) -> Any:
        if refusals and request.branch == "main":
            raise refusals.pop()
        return commit(request)

    monkeypatch.setattr(house.catalog, "commit", refuse)
    assert ingest(house.context, ordered(house)).status == "published"
    assert counted(house)["lakegate_conflict_retries_total"] == {(): 2}


def test_a_run_that_failed_and_one_that_was_recovered_are_counted(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise EngineUnavailableError("Spark went away.")

    with monkeypatch.context() as patch, pytest.raises(EngineUnavailableError):
        patch.setattr(house, "append", away)
        ingest(house.context, ordered(house))
    assert counted(house)["lakegate_runs_total"] == {("ingest", "failed"): 1}
    assert counted(house)["lakegate_step_seconds_count"] == {("write", "failed"): 1}
    house.dies_at(monkeypatch, "after-audit", lambda: ingest(house.context, ordered(house, run="r2")))
    recover(house.context)
    assert counted(house)["lakegate_runs_total"] == {("ingest", "failed"): 2}


def test_a_crashed_run_that_another_process_found_published_is_counted_once(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.dies_at(monkeypatch, "after-publish", lambda: ingest(house.context, ordered(house)))
    sync(house.context, "main")
    recover(house.context)
    recover(house.context)
    found = counted(house)
    assert found["lakegate_runs_total"] == {("ingest", "published"): 1}
    assert found["lakegate_rows_total"] == {("nyc.trips", "published"): 2}


def test_a_histogram_counts_every_value_in_one_bucket() -> None:
    measured = Measurements()
    for seconds in (0.05, 0.1, 2.0, 9999.0):
        measured.add(STEP_SECONDS, seconds, step="write", outcome="done")
    buckets = {one[2]: count for one, count in parsed(measured.take())["lakegate_step_seconds_bucket"].items()}
    assert (buckets["0.1"], buckets["1.0"], buckets["2.5"], buckets["1800.0"], buckets[OVERFLOW]) == (2, 2, 3, 3, 4)
    assert measured.take() == []


def test_what_downstream_systems_miss_is_counted() -> None:
    world = World(System("up"), System("down", fails=down))
    world.add("a", row(1))
    world.add("b", row(2))
    found = parsed(world.journal.metrics())["lakegate_deliveries"]
    assert found == {("down", "pending"): 2}


def test_nothing_is_counted_outside_of_a_run() -> None:
    measure(RETRIES)
    measured = Measurements()
    with measuring(measured):
        measure(RETRIES)
    measure(RETRIES)
    assert measured.take() == [Sample(RETRIES.name, (), 1)]


def test_odd_names_are_read() -> None:
    name = 'a."\\\n\N{ELEPHANT}'
    found = parsed([Sample("lakegate_rows", (("table", name), ("status", "published")), 1.0)])
    assert found["lakegate_rows_total"] == {(name, "published"): 1}


@pytest.mark.usefixtures("in_a_project")
def test_the_command_prints_them_or_replaces_a_file(tmp_path: Path) -> None:
    lake = FakeLake(maintenance_metrics=[Sample(RETRIES.name, (), 3.0)])
    assert "lakegate_conflict_retries_total 3.0" in invoke("admin metrics", lake).stdout
    assert json.loads(invoke("admin metrics -o json", lake).stdout) == [
        {"name": RETRIES.name, "labels": {}, "value": 3.0}
    ]
    file = tmp_path / "lakegate.prom"
    file.write_text("old")
    assert invoke(["admin", "metrics", "--file", str(file)], lake).exit_code == 0
    assert "lakegate_build_info" in file.read_text(encoding="utf-8")
    assert [one.name for one in tmp_path.iterdir() if one.is_file()] == [file.name]
    assert invoke(["admin", "metrics", "--file", str(tmp_path / "no" / "x")], lake).exit_code == 2
    assert invoke(["admin", "metrics", "-o", "json", "--file", str(file)], lake).exit_code == 2


def test_metrics_keep_prometheus_rules_for_names() -> None:
    for metric in METRICS:
        assert metric.name.startswith("lakegate_")
        assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert metric.kind != "histogram" or metric.name.endswith("_seconds")
