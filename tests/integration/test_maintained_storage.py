"""Maintenance and verification where the files are: on this machine, or with ``LAKEGATE_TEST_WAREHOUSE=s3`` on S3."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.lake import Lake

pytestmark = [pytest.mark.jvm, pytest.mark.storage]


def test_a_table_is_compacted_and_its_damage_found(
    lake: Lake, components: Components, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.trips"
    for number in range(6):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"id": [number]}), path)
        run = lake.ingest(table, path)
    assert lake.maintenance.verify([table], deep=True).passed

    assert lake.maintenance.optimize(table).status == "published"
    (compacted,) = [file.path for file in lake.table(table).files()]
    assert sorted(row["id"] for row in lake.table(table).to_arrow().to_pylist()) == list(range(6))
    report = lake.maintenance.verify([table], deep=True)
    assert report.passed, report.findings
    assert report.size_bytes > 0
    assert lake.maintenance.expire(table, older_than="0s").status == "published"

    files = components.files
    content = files.read(compacted)

    def put(content: bytes) -> None:
        files.delete([compacted])
        files.write(compacted, content)

    files.delete([compacted])
    report = lake.maintenance.verify([table])
    assert [(one.kind, one.files) for one in report.findings] == [("missing-file", (compacted,))]
    try:
        put(content[:-1])
        assert {one.kind for one in lake.maintenance.verify([table]).findings} == {"wrong-size"}
        put(content[:-4] + b"PAR2")
        assert lake.maintenance.verify([table]).passed
        assert {one.kind for one in lake.maintenance.verify([table], deep=True).findings} == {"unreadable-file"}
    finally:
        put(content)
    report = lake.maintenance.verify([table], deep=True)
    assert report.passed, report.findings

    before = next(lake.log(limit=1)).hash
    assert lake.maintenance.optimize(table, sort="id desc").status == "published"
    assert lake.restore_table(table, at=before).status == "published"
    assert [file.path for file in lake.table(table).files()] == [compacted]
    assert run.status == "published"
