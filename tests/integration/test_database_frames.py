"""The rows of a real database, as a frame of a Spark session that a program starts itself: a retry adds none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakegate.lake import Lake
from lakegate.local.state import StackState
from support.java import system_java
from support.postgres import USER, PostgresServer

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("postgres")]

_PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession
import lakegate

home, url, user, orders, table = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars.packages", "org.postgresql:postgresql:42.7.11")
    .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
login = {"driver": "org.postgresql.Driver", "user": user, "password": os.environ["SHOP_PASSWORD"]}
frame = spark.read.option("preferTimestampNTZ", True).jdbc(url, orders, properties=login)
with lakegate.connect(home) as lake:
    # The second call is a retry.
    runs = [lake.ingest(table, frame, run_id="orders-2024-03-31", checks=["unique(id)"]) for _ in range(2)]
print(json.dumps([[run.status, run.publication.commit] for run in runs]))
spark.stop()
"""


def test_a_retried_frame_of_a_database_is_published_once(
    lake: Lake, stack: StackState, postgres: PostgresServer, namespace: str, tmp_path: Path
) -> None:
    postgres.run(
        f"CREATE SCHEMA {namespace}",
        f"CREATE TABLE {namespace}.orders (id bigint, at timestamptz, local timestamp, price numeric(9, 2))",
        f"""INSERT INTO {namespace}.orders
            SELECT n, '2024-03-31 00:59:59.999999Z'::timestamptz + n * interval '1 s', '2024-03-31 02:30:00', n / 4.0
            FROM generate_series(1, 5) AS n""",
    )
    url, table = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres", f"{namespace}.orders"
    query = f"(SELECT * FROM {namespace}.orders WHERE id > 0) AS orders"
    kept = {k: v for k, v in os.environ.items() if k not in {"SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"}}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(lake.home), url, USER, query, table],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "JAVA_HOME": system_java(), "SPARK_LOCAL_IP": "127.0.0.1", "SHOP_PASSWORD": postgres.password},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, retried = json.loads(done.stdout.splitlines()[-1])
    assert first[0] == "published"
    assert retried == first
    rows = lake.query(f"SELECT id, price, CAST(at AS STRING) AS at, CAST(local AS STRING) AS local FROM {table}")
    found = sorted(rows.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in found] == [1, 2, 3, 4, 5]
    assert str(found[4]["price"]) == "1.25"
    assert (found[4]["at"], found[4]["local"]) == ("2024-03-31 01:00:04.999999", "2024-03-31 02:30:00")
