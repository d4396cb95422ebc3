"""Staged files that something else has deleted, such as a clean-up of the store: publishing them is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakegate
from lakegate.errors import ConflictError
from lakegate.iceberg.files import local_path
from support.lakes import components_of

pytestmark = pytest.mark.jvm


def staged_files(lake: lakegate.Lake, run_id: str) -> list[str]:
    run = lake.run(run_id)
    reader = components_of(lake).reader
    return [path for one in run.staged for path in reader.new_files(one.before, one.pointer)]


@pytest.mark.parametrize("kind", ["data file", "manifest"])
@pytest.mark.parametrize("moved", [False, True])
def test_a_run_of_which_a_staged_file_is_gone_is_not_published(
    lake: lakegate.Lake, namespace: str, tmp_path: Path, kind: str, moved: bool
) -> None:
    table = f"{namespace}.trips"
    is_kind: Callable[[Path], bool] = {
        "data file": lambda path: path.suffix == ".parquet",
        "manifest": lambda path: path.suffix == ".avro" and not path.name.startswith("snap-"),
    }[kind]

    def file(name: str, *ids: int) -> Path:
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
        return path

    lake.ingest(table, file("first", 1), checks=["not_null(id)"])
    run = lake.write(table, file("second", 2, 3), checks=["not_null(id)"], run_id=f"lost-{namespace}")
    lake.audit_run(run.run_id)
    if moved:
        lake.ingest(table, file("other", 4))
    head = list(lake.log(limit=1))
    lost = next(path for one in staged_files(lake, run.run_id) if is_kind(path := local_path(one)))
    content = lost.read_bytes()
    lost.unlink()

    with pytest.raises(ConflictError, match=f"{run.branch} isn't published: {table} ") as caught:
        lake.publish_run(run.run_id)
    assert lost.name in caught.value.message
    assert f"lakegate discard {run.branch}" in str(caught.value.hint)
    assert list(lake.log(limit=1)) == head
    assert run.branch in {ref.name for ref in lake.branches.list()}

    lost.write_bytes(content)
    assert lake.publish_run(run.run_id).status == "published"
    ids = lake.table(table).to_arrow(columns=["id"])["id"].to_pylist()
    assert set(ids) == ({1, 2, 3, 4} if moved else {1, 2, 3})
    assert len(ids) == len(set(ids))
