"""A published table, read without Spark and by other engines: Spark's own answer is the measure.

Other engines run the snippets of ``lakegate table connect``, as printed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lakegate.errors import InputError
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.snippets import ENGINES, FILES
from lakegate.spark.sessions import CATALOG, end_session, remote_sessions, session_settings
from support.changed_table import publish_changed
from support.lakes import components_of
from support.served_lake import serving
from support.snippet_runner import facts

pytestmark = pytest.mark.jvm

TABLE = "anyengine.green-trips"
TAG = "any-engine/first"
READER_TOKEN = "reader-s3cret"
QUOTED = "anyengine.`green-trips`"


@pytest.fixture(scope="module")
def published(lake: Lake, shared_data: Path) -> str:
    """A table of real trips with a history: partitions, renamed, added, dropped and widened columns, deleted rows."""
    publish_changed(lake, TABLE, shared_data / "green_tripdata_2024-01.parquet", TAG)
    return TABLE


@pytest.fixture(scope="module")
def spark_says(lake: Lake, published: str) -> dict[str, dict[str, Any]]:
    """Figures of each state, as Spark reads it."""
    return {ref: facts(lake.query(f"SELECT * FROM {QUOTED}", ref=ref).to_arrow()) for ref in ("main", TAG)}


@pytest.mark.parametrize("ref", ["main", TAG])
def test_the_rows_read_without_spark_are_sparks(lake: Lake, ref: str, spark_says: dict[str, dict[str, Any]]) -> None:
    table = lake.table(TABLE, ref=ref)
    rows = table.to_arrow()
    assert facts(rows) == spark_says[ref]
    assert rows.schema.equals(lake.query(f"SELECT * FROM {QUOTED} LIMIT 1", ref=ref).to_arrow().schema)
    assert facts(pa.Table.from_batches(table.to_batches())) == spark_says[ref]
    assert facts(table.to_polars().to_arrow()) == spark_says[ref]


@pytest.mark.parametrize(
    "where",
    [
        "pickup >= '2024-01-15T00:00:00' AND pickup < '2024-01-16T00:00:00'",
        "note IS NOT NULL OR tip_amount > 50",
        "NOT (amount > 10) AND store_and_fwd_flag != 'Y'",
        "PULocationID IN (74, 75, 263) AND note IS NULL",
    ],
)
def test_a_filter_means_what_it_means_in_spark(lake: Lake, published: str, where: str) -> None:
    asked = lake.query(f"SELECT pickup, amount FROM {QUOTED} WHERE {where}")
    found = lake.table(TABLE).to_arrow(columns=["pickup", "amount"], where=where)
    assert facts(found) == facts(asked.to_arrow())
    assert found.num_rows > 0


def test_a_query_comes_in_batches_and_as_other_libraries_tables(lake: Lake, published: str) -> None:
    query = lake.query(f"SELECT note, count(*) AS n FROM {QUOTED} GROUP BY note")
    rows = {row["note"]: row["n"] for row in query.to_arrow().to_pylist()}
    assert dict(query.to_polars().iter_rows()) == rows
    assert dict(query.to_duckdb().fetchall()) == rows
    batches = list(lake.query(f"SELECT * FROM {QUOTED}").to_batches())
    assert sum(batch.num_rows for batch in batches) == sum(rows.values())
    assert {batch.schema for batch in batches} == {lake.query(f"SELECT * FROM {QUOTED}").to_arrow().schema}


def test_frames_of_other_libraries_are_written_as_arrow_is(lake: Lake, published: str) -> None:
    rows = lake.table(TABLE).to_polars(where="note = 'refund'", columns=["VendorID", "pickup", "note"])
    frames = {
        "polars": rows,
        "lazy": rows.lazy(),
        "pandas": rows.to_pandas(),
        "duckdb": duckdb.from_arrow(rows.to_arrow()),
    }
    with lake.transaction() as tx:
        for name, frame in frames.items():
            tx.append(f"anyengine.{name}", frame)
    for name in frames:
        assert facts(lake.table(f"anyengine.{name}").to_arrow()) == facts(rows.to_arrow())


def test_snippets_work_as_printed(
    lake: Lake,
    home: Path,
    stack: StackState,
    tmp_path: Path,
    spark_says: dict[str, dict[str, Any]],
) -> None:
    commit = next(iter(lake.log(TAG, limit=1))).hash
    snippets: dict[str, dict[str, str]] = {}
    states: dict[str, dict[str, Any]] = {"main": {"ref": "main"}, "tag": {"ref": TAG}, "commit": {"at": commit}}
    with serving(home) as server, serving(home, "--token", "env:READER_TOKEN", READER_TOKEN=READER_TOKEN) as guarded:
        servers: dict[str, dict[str, Any]] = {
            "files": {},
            "served": {"rest": server.url},
            "guarded": {"rest": guarded.url, "rest_token": True},
        }
        for engine in sorted(set(ENGINES) - {"trino"}):  # which make prove runs
            for by, state in product(servers, states):
                if (by == "served" and state != "main") or (by == "guarded" and state == "main"):
                    continue  # the other one shows that
                if by == "files" and engine not in FILES:
                    continue
                way, options = f"{engine} {by} {state}", {**servers[by], **states[state]}
                # DuckDB has no way to name a variable there, and says so in a comment.
                text = lake.snippet(TABLE, engine, **options).text.replace("TOKEN '…'", f"TOKEN '{READER_TOKEN}'")
                served = 'lake."anyengine"."green-trips"'
                name = "green_trips" if engine != "duckdb" else served if "rest" in options else '"green-trips"'
                snippets[way] = {"engine": engine, "text": text, "name": name}
        answers = _run(snippets, tmp_path, stack)
    expected = {way: spark_says["main" if way.endswith("main") else TAG] for way in snippets}
    assert answers == expected


@pytest.fixture
def spark_alone(lake: Lake, stack: StackState, published: str) -> Iterator[tuple[str, Any]]:
    """A branch, and a session on it of a writer other than lakegate, which refuses to write version 3."""
    branch = lake.branches.create("any-engine-v3").name
    components: Any = components_of(lake)
    options = components.spark_options(components.catalog.get_ref(branch))
    spark: Any = remote_sessions(stack.spark_url)(session_settings(options))
    try:
        yield branch, spark
    finally:
        end_session(spark)
        lake.branches.delete(branch)


def test_version_3_is_read_with_deletion_vectors_and_without_row_lineage(
    lake: Lake, spark_alone: tuple[str, Any]
) -> None:
    branch, spark = spark_alone
    third = f"{CATALOG}.anyengine.third"
    modes = ("'write.delete.mode' = 'merge-on-read'", "'write.update.mode' = 'merge-on-read'")
    properties = f"TBLPROPERTIES ('format-version' = '3', {', '.join(modes)})"
    for statement in (
        f"CREATE TABLE {third} (id bigint, kind string, at timestamp) PARTITIONED BY (kind) {properties}",
        f"INSERT INTO {third} SELECT id, if(id % 2 = 0, 'even', 'odd'), timestamp_seconds(id) FROM range(2000)",
        f"DELETE FROM {third} WHERE id % 10 = 3",
        f"UPDATE {third} SET at = NULL WHERE id % 100 = 7",  # a second vector for files that have one
        f"DELETE FROM {third} WHERE id < 5",
        f"ALTER TABLE {third} RENAME COLUMN kind TO sort",
        f"ALTER TABLE {third} ADD COLUMN note string",
    ):
        spark.sql(statement)
    table = lake.table("anyengine.third", ref=branch)
    assert (table.metadata.format_version, table.rows) == (3, None)
    rows = table.to_arrow()
    assert rows.column_names == ["id", "sort", "at", "note"]
    expected = lake.query("SELECT * FROM anyengine.third", ref=branch).to_arrow()
    assert facts(rows) == facts(expected)
    assert Counter(rows["id"].to_pylist()) == Counter(expected["id"].to_pylist())
    where = "sort = 'odd' AND (at IS NULL OR id BETWEEN 10 AND 30)"
    found = table.to_arrow(columns=["id"], where=where)["id"].to_pylist()
    asked = lake.query(f"SELECT id FROM anyengine.third WHERE {where}", ref=branch).to_arrow()["id"].to_pylist()
    assert Counter(found) == Counter(asked)
    assert len(found) > len(table.to_arrow(where=where, limit=3)) == 3


def test_what_only_spark_reads_of_version_3_and_views_are_refused(lake: Lake, spark_alone: tuple[str, Any]) -> None:
    branch, spark = spark_alone
    spark.sql(f"CREATE TABLE {CATALOG}.anyengine.varied (id bigint, v variant) TBLPROPERTIES ('format-version' = '3')")
    spark.sql(f"INSERT INTO {CATALOG}.anyengine.varied SELECT 1, parse_json('{{\"a\": 1}}')")
    spark.sql(f"CREATE VIEW {CATALOG}.anyengine.seen AS SELECT 1 AS x")
    with pytest.raises(InputError, match="such as a variant column, that only Spark can read") as refused:
        lake.table("anyengine.varied", ref=branch).to_arrow()
    assert "lake.query()" in (refused.value.hint or "")
    with pytest.raises(InputError, match="isn't a table but"):
        lake.table("anyengine.seen", ref=branch)


def _run(snippets: dict[str, dict[str, str]], folder: Path, stack: StackState) -> dict[str, Any]:
    """Run them in a process of their own, where DuckDB finds its extensions as if it had installed them."""
    platform = duckdb.sql("PRAGMA platform").fetchall()[0][0]
    place = folder / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / platform
    place.mkdir(parents=True)
    for name in ("avro", "httpfs", "iceberg"):
        extension = files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
        shutil.copyfile(str(extension / f"{name}.duckdb_extension"), place / f"{name}.duckdb_extension")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    done = subprocess.run(
        [sys.executable, "-m", "support.snippet_runner"],
        input=json.dumps(snippets),
        env={
            **kept,
            "HOME": str(folder),
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "SPARK_REMOTE": stack.spark_url,
            "DO_NOT_TRACK": "1",
            "LAKE_READER_TOKEN": READER_TOKEN,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found
