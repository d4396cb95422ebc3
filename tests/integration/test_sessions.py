"""Spark that is not ours: by address, or as a session handed in. Both work, and nobody's session changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakegate.checks import parse_checks, unique
from lakegate.errors import ConfigurationError
from lakegate.lake import Lake, connect
from lakegate.local.artifacts import cache_folder
from lakegate.local.state import StackState
from lakegate.model.artifacts import ICEBERG
from lakegate.spark.sessions import end_session
from support.e2e_support import standing, write, write_trips
from support.java import system_java

pytestmark = pytest.mark.jvm

# Settings that give SQL text and files another meaning.
OTHER_MEANINGS = {
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.maxPlanStringLength": "100",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}
# A user's own program with a classic session, which has a catalog and settings of its own.
CLASSIC = """
import json, sys
from pyspark.sql import SparkSession
import lakegate

home, catalog, warehouse, jar, table, clean, dirty, scratch = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", jar)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "1g")
    .config("spark.sql.warehouse.dir", scratch)
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.ansi.enabled", "false")
    .config("spark.sql.session.timeZone", "Asia/Tokyo")
    .getOrCreate()
)
spark.range(3).createOrReplaceTempView("mine")
def state():
    settings = {key: spark.conf.get(key) for key in ("spark.sql.ansi.enabled", "spark.sql.session.timeZone")}
    added = [row.key for row in spark.sql("SET").collect() if "catalog.lakegate" in row.key]
    tables = [table.name for table in spark.catalog.listTables()]
    return [settings, added, tables, spark.catalog.currentCatalog(), spark.catalog.currentDatabase()]
before = state()
with lakegate.connect(home, engine=spark, catalog=catalog, warehouse=warehouse) as lake:
    published = lake.ingest(table, clean, checks=["unique(id)", "not_null(passengers)"], partition_by=["days(pickup)"])
    rejected = lake.ingest(table, dirty, checks=["not_null(passengers)"], on_failure="drop", on_rejected="return")
    rows = lake.query(f"SELECT count(*) AS n FROM {table}").to_arrow()["n"][0].as_py()
assert state() == before, (before, state())
assert spark.range(5).count() == 5  # closing the lake does not stop the user's session
print(json.dumps([published.status, rejected.status, rejected.report.failures[0].failing_rows, rows]))
spark.stop()
"""


@pytest.fixture
def user_session(stack: StackState) -> Iterator[Any]:
    """A Spark Connect session of a user, with settings and a temporary view of its own."""
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.Builder().remote(stack.spark_url).create()
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    with warnings.catch_warnings(action="ignore"):
        for key, value in OTHER_MEANINGS.items():
            session.conf.set(key, value)
    session.range(3).createOrReplaceTempView("mine")
    yield session
    end_session(session)


def state(session: Any) -> list[Any]:
    keys = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.shuffle.partitions")
    return [
        {key: session.conf.get(key) for key in keys},
        [row.key for row in session.sql("SET").collect() if "catalog.lakegate" in row.key],
        session.catalog.currentCatalog(),
        session.catalog.currentDatabase(),
        [table.name for table in session.catalog.listTables()],
    ]


def require_both_outcomes(lake: Lake, table: str, folder: Path) -> None:
    """A clean batch is published, one with NULLs isn't."""
    checks = ["unique(id)", "not_null(passengers)"]
    published = lake.ingest(
        table, write_trips(folder / "clean.parquet", 20), checks=checks, partition_by=["days(pickup)"]
    )
    head = standing(lake)
    rejected = lake.ingest(
        table, write_trips(folder / "dirty.parquet", 30, nulls=3), checks=checks, on_rejected="return"
    )
    assert (published.status, rejected.status) == ("published", "rejected")
    assert rejected.report is not None
    assert [failure.failing_rows for failure in rejected.report.failures] == [3]
    assert standing(lake) == {**head, rejected.branch: standing(lake)[rejected.branch]}
    assert lake.query(f"SELECT count(*) AS n FROM {table}").to_arrow()["n"].to_pylist() == [20]
    assert lake.query(f"SELECT count(*) AS n FROM {table}", ref=rejected.branch).to_arrow()["n"].to_pylist() == [50]
    lake.discard(rejected.branch)


def test_a_wrong_token_is_told_and_never_shown(stack: StackState, namespace: str, tmp_path: Path) -> None:
    wrong = stack.spark_url.partition("token=")[0] + "token=not-the-token"
    source = write_trips(tmp_path / "a.parquet", 5)
    with connect(tmp_path, engine=wrong, catalog=stack.nessie_uri, warehouse=stack.warehouse) as lake:
        before = standing(lake)
        with pytest.raises(ConfigurationError) as caught:
            lake.ingest(f"{namespace}.t", source)
        assert standing(lake) == before
    assert "token" in caught.value.message
    assert "not-the-token" not in f"{caught.value.message} {caught.value.hint}"


def test_a_connect_session_handed_in_stays_as_it_was(
    user_session: Any, stack: StackState, namespace: str, tmp_path: Path
) -> None:
    before = state(user_session)
    with connect(tmp_path, engine=user_session, catalog=stack.nessie_uri, warehouse=stack.warehouse) as lake:
        require_both_outcomes(lake, f"{namespace}.t", tmp_path)
        assert state(user_session) == before
    assert state(user_session) == before
    assert user_session.sql("SELECT count(*) FROM mine").collect()[0][0] == 3


def test_settings_of_a_session_handed_in_change_no_verdict_and_no_value(
    user_session: Any, stack: StackState, namespace: str, tmp_path: Path
) -> None:
    rows = pa.table(
        {
            "day": [date(1500, 1, 1), date(2024, 1, 1)],
            "raw": [b"\xff\x00", b"a"],
            "text": ["a\\n'", "x"],
            "x": ["x", "y"],
            "a.b": [1, 2],
            "user": pa.array([None, "me"]),
        }
    )
    asked = [
        "sql('user IS NULL')",  # the column, not the function of that name
        "sql('text = \"x\"')",  # a text, not the column of that name
        r"accepted_values(text, ['a\\n\'', 'x'])",
        r"matches(text, r'^(x|a\\n.)$')",
        "in_range(day, '1500-01-01', '2024-01-01')",
        "in_range(day, max='1500-01-01')",
    ]
    source = write(tmp_path / "a.parquet", rows)
    csv = tmp_path / "b.csv"
    csv.write_text("id,at\n1,2024-01-01T00:00:00Z\n")
    with connect(tmp_path, engine=user_session, catalog=stack.nessie_uri, warehouse=stack.warehouse) as lake:
        checks = [check for text in asked for check in parse_checks(text)]
        checks += [unique("a.b"), unique("a.b", scope="table")]
        lenient = [check.model_copy(update={"severity": "warn"}) for check in checks]
        run = lake.ingest(f"{namespace}.t", source, checks=lenient)
        assert run.report is not None
        assert [result.failing_rows for result in run.report.results] == [1, 1, 0, 0, 0, 1, 0, 0]
        assert lake.query(f"SELECT * FROM {namespace}.t").to_arrow().to_pylist() == rows.to_pylist()
        lake.ingest(f"{namespace}.c", csv)
        assert [column.type for column in lake.table(f"{namespace}.c").metadata.table_schema.columns] == [
            "long",
            "timestamptz",
        ]


def test_a_classic_session_handed_in_stays_as_it_was(stack: StackState, namespace: str, tmp_path: Path) -> None:
    jar = cache_folder() / "jars" / ICEBERG.file_name
    words = (
        *(tmp_path, stack.nessie_uri, stack.warehouse, jar, f"{namespace}.t"),
        *(write_trips(tmp_path / "clean.parquet", 20), write_trips(tmp_path / "dirty.parquet", 30, nulls=3)),
        tmp_path / "scratch",
    )
    kept = {k: v for k, v in os.environ.items() if k not in {"SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"}}
    done = subprocess.run(
        [sys.executable, "-c", CLASSIC, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "JAVA_HOME": system_java(), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == ["published", "rejected", 3, 20]
