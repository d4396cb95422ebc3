"""``lakegate serve`` and the engines that read from it: the same rows as our own query, and no write gets through."""

from __future__ import annotations

import json
import socket
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import duckdb
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError, UnauthorizedError

from e2e import docs_pages
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.spark.sessions import end_session, remote_sessions
from support import warm
from support.e2e_support import write_trips
from support.served_lake import ServedLake, duckdb_with_iceberg, serving

if TYPE_CHECKING:
    import polars as pl

pytestmark = pytest.mark.jvm

_PAGE_URL = "http://127.0.0.1:8181"
READER_TOKEN = "reader-s3cret"
FACTS = (
    "SELECT count(*) AS n, count(passenger_count) AS known, sum(PULocationID) AS places, "
    "round(sum(fare_amount), 2) AS fares, count(pickup_note) AS notes FROM {table}"
)
"""Counts, NULLs, sums, and a column that got its name when the rows were there."""


@dataclass(frozen=True)
class Published:
    """What there is to read.

    Attributes:
        table: Real trips, whose last column was added and renamed after the rows were written.
        facts: What our own query says of them.
        tag: Names an earlier state, in which the table has a third of its rows.
        earlier: That state's number of rows.
        unaudited: A branch that holds rejected rows.
    """

    table: str
    facts: dict[str, Any]
    tag: str
    earlier: int
    unaudited: str


@pytest.fixture(scope="module")
def published(lake: Lake, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Published:
    table = "served.eu.green"
    source = shared_data / "green_tripdata_2024-01.parquet"
    earlier = lake.ingest(table, source, partition_by=["days(lpep_pickup_datetime)"]).publication
    assert earlier is not None
    lake.tags.create("served/first")
    with lake.transaction("more") as tx:
        tx.sql(f"ALTER TABLE {table} ADD COLUMN remark string")
        tx.sql(f"INSERT INTO {table} SELECT * EXCEPT (remark), 'again' FROM {table} WHERE trip_distance > 1")
        tx.sql(f"ALTER TABLE {table} RENAME COLUMN remark TO pickup_note")
    lake.ingest("served.few", write_trips(tmp_path_factory.mktemp("few") / "few.parquet", 5))
    bad = write_trips(tmp_path_factory.mktemp("bad") / "bad.parquet", 9, nulls=2)
    rejected = lake.ingest("served.rejected", bad, checks=["not_null(passengers)"], on_rejected="return")
    assert (rejected.status, rejected.branch is not None) == ("rejected", True)
    (facts,) = lake.query(FACTS.format(table=table)).to_arrow().to_pylist()
    assert facts["n"] > earlier.rows
    assert 0 < facts["notes"] < facts["n"]
    return Published(table, facts, "served/first", earlier.rows, rejected.branch or "")


@pytest.fixture(scope="module")
def served(published: Published, home: Path) -> Iterator[ServedLake]:
    with serving(home) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(published: Published, home: Path) -> Iterator[ServedLake]:
    """A second one, which asks for a token, and starts cold, as a user's does."""
    with serving(home, "--token", "env:READER_TOKEN", cold=True, READER_TOKEN=READER_TOKEN) as server:
        yield server


@contextmanager
def pyiceberg(server: ServedLake, warehouse: str = "main", **options: str) -> Iterator[Catalog]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyIceberg's own, of its way to send a token
        catalog = load_catalog("lake", type="rest", uri=server.url, warehouse=warehouse, **options)
        try:
            yield catalog
        finally:
            catalog.close()


def facts_of(rows: pl.DataFrame) -> dict[str, Any]:
    import polars as pl

    (facts,) = rows.select(
        n=pl.len(),
        known=pl.col("passenger_count").count(),
        places=pl.col("PULocationID").sum(),
        fares=pl.col("fare_amount").sum().round(2),
        notes=pl.col("pickup_note").count(),
    ).to_dicts()
    return facts


def test_pyiceberg_reads_the_same_rows_and_writes_none(served: ServedLake, published: Published) -> None:
    import polars as pl

    with pyiceberg(served) as catalog:
        assert ("served",) in catalog.list_namespaces()
        assert catalog.list_namespaces("served") == [("served", "eu")]
        assert catalog.list_tables("served") == [("served", "few")]
        assert catalog.table_exists(published.table)
        assert not catalog.table_exists("served.rejected")
        table = catalog.load_table(published.table)
        rows = table.scan().to_arrow()
        assert facts_of(pl.DataFrame(rows)) == published.facts
        few = catalog.load_table("served.few")
        writes: list[Callable[[], object]] = [
            lambda: few.append(few.scan().to_arrow()),
            lambda: few.delete("id = 1"),
            lambda: catalog.create_table("served.mine", pa.schema([("id", pa.int64())])),
            lambda: catalog.drop_table("served.few"),
            lambda: catalog.rename_table("served.few", "served.mine"),
            lambda: catalog.create_namespace("mine"),
            lambda: catalog.drop_namespace("served"),
        ]
        for write in writes:
            with pytest.raises((ForbiddenError, NotImplementedError)):
                write()
        with pytest.raises(NoSuchTableError):
            catalog.load_table("served.rejected")


def test_a_tag_a_commit_and_a_pinned_client_see_their_state(
    served: ServedLake, published: Published, lake: Lake, tmp_path: Path
) -> None:
    head = next(lake.log(limit=1)).hash
    tagged = next(tag.hash for tag in lake.tags.list() if tag.name == published.tag)
    with pyiceberg(served, "pinned") as pinned, pyiceberg(served) as live:
        lake.ingest("served.few", write_trips(tmp_path / "more.parquet", 2, start=100))
        assert [len(one.load_table("served.few").scan().to_arrow()) for one in (pinned, live)] == [5, 7]
    for warehouse, rows in (
        (f"tag:{published.tag}", published.earlier),
        (f"commit:{tagged}", published.earlier),
        (f"commit:{head}", published.facts["n"]),
    ):
        with pyiceberg(served, warehouse) as catalog:
            assert len(catalog.load_table(published.table).scan(selected_fields=("VendorID",)).to_arrow()) == rows


def test_no_spelling_leads_to_a_branch(served: ServedLake, published: Published, lake: Lake) -> None:
    branch = next(one for one in lake.branches.list() if one.name == published.unaudited)
    lake.tags.create("served-unaudited", source=branch.name)
    place = urlsplit(served.url)
    name, commit = branch.name, branch.hash
    encoded = name.replace("/", "%2F")
    prefixes = (
        *(name, encoded, f"main/../{name}", f"main%2f..%2f{encoded}", f"%2e%2e/{name}", f"tag:{encoded}"),
        *(f"tag:{name}", f"main@{commit}", f"main%40{commit}", f"@{commit}", f"commit:{commit}", f"commit%3A{commit}"),
        *(f"commit:{commit[:20]}", f"tag:main@{commit}", f"tag:served%2Ffirst@{commit}", f"tag:{encoded}@{commit}"),
        *(
            f"main*{commit}",
            "main%00",
            f"main%0d%0aX: {name}".replace(" ", "%20"),
            "tag:served-unaudited",
            "-",
            "main~1",
        ),
    )
    for prefix in prefixes:
        # Byte for byte: every client library would tidy up the path.
        path = f"/v1/{prefix}/namespaces/served/tables/rejected"
        with socket.create_connection((place.hostname or "", place.port or 0), timeout=20) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
        assert answer.split()[1] in ("403", "404"), (prefix, answer)
        assert "metadata-location" not in answer


def test_duckdb_reads_the_same_rows_and_writes_none(served: ServedLake, published: Published) -> None:
    with duckdb_with_iceberg() as connection:
        for name, warehouse in (("lk", "main"), ("old", f"tag:{published.tag}")):
            connection.execute(
                f"ATTACH '{warehouse}' AS {name} (TYPE iceberg, ENDPOINT '{served.url}', AUTHORIZATION_TYPE 'none')"
            )
        table = 'lk."served.eu".green'
        assert connection.sql(FACTS.format(table=table)).pl().to_dicts() == [published.facts]
        assert connection.sql('SELECT count(*) FROM old."served.eu".green').fetchone() == (published.earlier,)
        for write in (
            "INSERT INTO lk.served.few SELECT * FROM lk.served.few",
            "DELETE FROM lk.served.few WHERE id = 1",
            "CREATE TABLE lk.served.mine AS SELECT 1 AS id",
            "CREATE SCHEMA lk.mine",
            "DROP TABLE lk.served.few",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(write)
        with pytest.raises(duckdb.CatalogException):
            connection.execute("FROM lk.served.rejected")


def test_spark_reads_the_same_rows_and_writes_none(served: ServedLake, published: Published, stack: StackState) -> None:
    catalog = "spark.sql.catalog.served"
    options = {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        f"{catalog}.uri": served.url,
        f"{catalog}.warehouse": "main",
        f"{catalog}.cache-enabled": "false",
    }
    spark: Any = remote_sessions(stack.spark_url)(options)
    try:
        (facts,) = spark.sql(FACTS.format(table=f"served.{published.table}")).collect()
        assert facts.asDict() == published.facts
        assert [row.tableName for row in spark.sql("SHOW TABLES IN served.served").collect()] == ["few"]
        for write in (
            "INSERT INTO served.served.few SELECT * FROM served.served.few",
            "DELETE FROM served.served.few WHERE id = 1",
            "CREATE TABLE served.served.mine (id int)",
            "ALTER TABLE served.served.few ADD COLUMN x int",
            "DROP TABLE served.served.few",
            "CREATE NAMESPACE served.mine",
        ):
            with pytest.raises(Exception, match=r"(?i)read-only|forbidden|not support"):
                spark.sql(write).collect()
    finally:
        end_session(spark)


def test_what_the_page_says_to_paste_works(served: ServedLake, guarded: ServedLake, published: Published) -> None:
    rows = len(lake_rows(served))

    def fitted(text: str, server: ServedLake) -> str:
        assert _PAGE_URL in text
        return (
            text.replace(_PAGE_URL, server.url).replace("nyc.trips", "served.few").replace("'…'", f"'{READER_TOKEN}'")
        )

    blocks = list(docs_pages.blocks("docs/how-to/serve-the-lake-to-other-engines.md"))
    sql, with_token = (fitted(one.text, server) for one, server in zip(_sql(blocks), (served, guarded), strict=True))
    query = f"SELECT count(*) FROM {sql.rpartition('FROM ')[2]}"
    for statements in (sql.replace("INSTALL iceberg; LOAD iceberg;", ""), f"{with_token}{query}"):
        with duckdb_with_iceberg() as connection:
            assert connection.execute(statements).fetchall() == [(rows,)]
    scripts = [fitted(one.text, served) for one in blocks if one.language == "python"]
    assert len(scripts) == 2
    for script in scripts:
        done = subprocess.run([*warm.python(), "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def _sql(blocks: list[docs_pages.Block]) -> list[docs_pages.Block]:
    return [block for block in blocks if block.language == "text" and "ATTACH" in block.text]


def lake_rows(server: ServedLake) -> pa.Table:
    with pyiceberg(server) as catalog:
        return catalog.load_table("served.few").scan().to_arrow()


def test_a_token_is_asked_for_and_sent(guarded: ServedLake, published: Published) -> None:
    assert httpx.get(f"{guarded.url}/v1/config").status_code == 401
    with pytest.raises(UnauthorizedError), pyiceberg(guarded, token=f"{READER_TOKEN}x"):
        pass
    with pyiceberg(guarded, token=READER_TOKEN) as catalog:
        assert catalog.table_exists(published.table)
    with duckdb_with_iceberg() as connection:
        connection.execute(f"CREATE SECRET reader (TYPE iceberg, TOKEN '{READER_TOKEN}')")
        connection.execute(f"ATTACH 'main' AS lk (TYPE iceberg, ENDPOINT '{guarded.url}', SECRET reader)")
        assert connection.sql("SELECT count(*) FROM lk.served.few").fetchone() is not None
    code, log = guarded.stop()
    assert code == 0
    assert READER_TOKEN not in log
    lines = [json.loads(line) for line in log.splitlines()]
    assert {401, 200} <= {line.get("status") for line in lines}
    assert any(line.get("path") == "/v1/config" for line in lines)
