"""Runs that are published in one commit, on real Spark, Iceberg and Nessie; Spark and PyIceberg read what it leaves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.lake import Lake
from lakegate.model.run import Run
from lakegate.wap.history import parts_of, run_of
from support.iceberg_tables import as_pyiceberg_has_it
from support.waiting import wait_until

pytestmark = pytest.mark.jvm

RUNS = 8
ROWS = 3


def test_eight_ingests_share_a_commit_and_one_is_reverted_alone(
    lake: Lake, components: Components, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.trips"

    def ids() -> list[int]:
        by_spark = _sorted(lake.query(f"SELECT id FROM {table}").to_arrow())
        found = as_pyiceberg_has_it(lake.table(table).metadata.metadata_location).scan().to_arrow()
        assert _sorted(found) == by_spark
        return by_spark

    lake.ingest(table, _file(tmp_path, 0))
    files = [_file(tmp_path, number) for number in range(1, RUNS + 1)]
    before = components.catalog.get_ref("main")
    runs = _ingest_together(lake, components, table, files)

    assert [run.status for run in runs] == ["published"] * RUNS
    (commit,) = components.catalog.history("main", until=before.hash, operations=True)
    assert sorted(map(str, map(run_of, parts_of(commit)))) == sorted(run.run_id for run in runs)
    assert ids() == list(range((RUNS + 1) * ROWS))
    assert len({file.path for file in lake.table(table).files()}) == RUNS + 1

    reverted = lake.revert(runs[3].run_id)
    gone = set(range(4 * ROWS, 5 * ROWS))
    assert ids() == [number for number in range((RUNS + 1) * ROWS) if number not in gone]
    assert {run.run_id for run in lake.runs(table=table, status="published")} >= {
        run.run_id for run in runs if run is not runs[3]
    }
    assert lake.ingest(table, files[4]).status == "skipped"
    assert lake.ingest(table, files[3]).status == "published"
    assert reverted.undone[0].rows == -ROWS
    assert ids() == list(range((RUNS + 1) * ROWS))
    lake.rebuild_journal()
    assert lake.ingest(table, files[7]).status == "skipped"


def _file(folder: Path, number: int) -> Path:
    ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
    path = folder / f"{number}.parquet"
    pq.write_table(pa.table({"id": ids}), path)
    return path


def _ingest_together(lake: Lake, components: Components, table: str, files: list[Path]) -> list[Run]:
    """Ingest each file in a run of its own, all published in one commit."""
    journal = components.journal
    with ThreadPoolExecutor(len(files)) as pool:
        with journal.lock(f"main/{table}", timeout_s=0) as locked:
            assert locked
            futures = [pool.submit(lake.ingest, table, one, checks=["not_null(id)"]) for one in files]

            def all_wait() -> bool:
                assert not any(one.done() for one in futures)
                return len(journal.publishes.waiting("main", table, limit=len(files))) == len(files)

            wait_until(all_wait, within_s=240, poll_s=0.05)
        return [one.result() for one in futures]


def _sorted(rows: pa.Table) -> list[int]:
    return sorted(int(str(value)) for value in rows.column("id").to_pylist())
