"""A Spark that is gone without a word: nothing waits for it for ever, and a new one is found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakegate.config import load_settings
from lakegate.errors import EngineUnavailableError, RetryableError
from lakegate.lake import Lake, connect
from lakegate.local.state import StackState
from lakegate.wap.deadline import DeadlineReachedError
from support.black_hole import Way, way_to
from support.e2e_support import write_trips

pytestmark = pytest.mark.jvm

# Less than the two minutes after which gRPC finds out by itself; far more than a loaded machine needs.
_SOON_S = 100.0


@pytest.fixture
def way(stack: StackState) -> Iterator[Way]:
    with way_to(stack.spark.port) as running:
        yield running


def opened(home: Path, stack: StackState, way: Way) -> Lake:
    token = home / "token"
    token.write_text(f"{stack.spark.token}\n", encoding="utf-8")
    token.chmod(0o600)
    variables = {
        "LAKEGATE_ENGINE_URL": f"sc://127.0.0.1:{way.port}",
        "LAKEGATE_ENGINE_TOKEN": f"file:{token}",
        "LAKEGATE_CATALOG_URI": stack.nessie_uri,
        "LAKEGATE_CATALOG_WAREHOUSE": stack.warehouse,
    }
    return connect(home, settings=load_settings(home, env=variables))


def seconds_since(began: float) -> float:
    return time.monotonic() - began


def test_a_warm_lake_finds_the_spark_that_took_the_place_of_the_one_it_knew(
    stack: StackState, way: Way, namespace: str, tmp_path: Path
) -> None:
    with opened(tmp_path, stack, way) as lake:
        table = f"{namespace}.t"
        assert lake.ingest(table, write_trips(tmp_path / "a.parquet", 5)).status == "published"
        lake.reconnect()
        way.fall_silent(for_good=False)
        began = time.monotonic()
        lake.reconnect()
        assert lake.ingest(table, write_trips(tmp_path / "b.parquet", 5, start=5)).status == "published"
        assert seconds_since(began) < _SOON_S
        assert lake.query(f"SELECT count(*) AS n FROM {table}").to_arrow()["n"].to_pylist() == [10]


def test_the_deadline_of_a_run_holds_though_spark_cannot_be_told(
    stack: StackState, way: Way, namespace: str, tmp_path: Path
) -> None:
    """The function would else hang until AWS kills it, and leave its messages to the queue's visibility timeout."""
    with opened(tmp_path, stack, way) as lake:
        table = f"{namespace}.t"
        assert lake.ingest(table, write_trips(tmp_path / "a.parquet", 5)).status == "published"
        way.fall_silent(for_good=True)
        began = time.monotonic()
        with pytest.raises(RetryableError) as caught:
            lake.ingest(table, write_trips(tmp_path / "b.parquet", 5, start=5), run_id="lost", timeout_s=8.0)
        assert isinstance(caught.value, (DeadlineReachedError, EngineUnavailableError)), caught.value
        assert seconds_since(began) < 8.0 + _SOON_S
        assert set(lake.maintenance.suspended_runs()) <= {"lost"}
        way.swallows_new = False
        assert lake.ingest(table, tmp_path / "b.parquet", run_id="lost", timeout_s=120.0).status == "published"
