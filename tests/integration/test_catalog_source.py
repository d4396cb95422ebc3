"""Tables of another catalog of Spark as a source: here Iceberg's own, in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lakegate.components import Components
from lakegate.config import SourceSettings, load_settings
from lakegate.errors import InputError, NotFoundError, QueryError
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.progress import SilentNarrator
from lakegate.spark.sessions import end_session, remote_sessions, session_settings

pytestmark = pytest.mark.jvm

_CATALOG = "org.apache.iceberg.spark.SparkCatalog"


class Partner(NamedTuple):
    """A lake that knows another catalog as the source ``partner``, and what runs SQL there."""

    lake: Lake
    run: Callable[[str], Any]


@pytest.fixture(scope="module")
def partner(home: Path, stack: StackState, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Partner]:
    options = {"type": "hadoop", "warehouse": tmp_path_factory.mktemp("partner").as_uri()}
    made = SourceSettings.model_validate({"catalog": _CATALOG, "options": options})
    settings = load_settings(home, env={}).model_copy(update={"sources": {"partner": made}})
    prefix = "spark.sql.catalog.partner"
    theirs = {prefix: _CATALOG, **{f"{prefix}.{key}": value for key, value in options.items()}}
    session = remote_sessions(stack.spark_url)({**session_settings({}), **theirs})
    try:
        with Lake(Components(home, settings, session=None, narrator=SilentNarrator())) as lake:
            yield Partner(lake, session.sql)
    finally:
        end_session(session)


def test_each_row_of_another_catalog_s_table_is_taken_once(partner: Partner, namespace: str) -> None:
    lake, run = partner
    run("CREATE TABLE partner.shop.orders (id BIGINT, at TIMESTAMP, local TIMESTAMP_NTZ, price DECIMAL(9, 2))")
    run("INSERT INTO partner.shop.orders SELECT id, TIMESTAMP '2024-03-31 00:59:59.5Z' + make_interval(0,0,0,0,0,0,id),"
        " TIMESTAMP_NTZ '2024-03-31 02:30:00', id / 4 FROM range(5)")  # fmt: skip
    orders, target = lake.source("partner.shop.orders", watermark="at"), f"{namespace}.orders"
    assert [(one.name, one.type) for one in lake.inspect(orders, rows=1).columns] == [
        ("id", "long"),
        ("at", "timestamptz"),
        ("local", "timestamp"),
        ("price", "decimal(9, 2)"),
    ]
    assert lake.inspect("source://partner/shop/orders", rows=0) == lake.inspect(orders, rows=0)
    first = lake.ingest(target, orders, checks=["unique(id)"])
    assert (first.status, lake.table(target).rows) == ("published", 5)
    assert lake.ingest(target, orders).status == "skipped"
    later = "TIMESTAMP '2024-04-01 00:00:00Z'"
    run(f"INSERT INTO partner.shop.orders VALUES (5, {later}, NULL, 1), (1, {later} + INTERVAL 1 DAY, NULL, 9)")
    assert lake.ingest(target, orders, mode="upsert", key=["id"]).status == "published"
    rows = lake.table(target).to_arrow(columns=["id", "price"]).to_pylist()
    assert sorted((row["id"], str(row["price"])) for row in rows) == [
        *((0, "0.00"), (1, "9.00"), (2, "0.50"), (3, "0.75"), (4, "1.00"), (5, "1.00"))
    ]
    lake.revert(first.run_id, cascade=True)
    assert lake.ingest(target, orders).publication is not None
    assert lake.table(target).rows == 7


def test_a_query_reads_no_more_than_its_source(partner: Partner, namespace: str) -> None:
    lake, run = partner
    run("CREATE TABLE partner.stock.orders AS SELECT id, id % 2 AS kind FROM range(4)")
    query = lake.source("partner", sql="SELECT kind, count(*) AS n FROM stock.orders GROUP BY 1 ORDER BY 1")
    assert lake.ingest(f"{namespace}.counted", query).status == "published"
    assert lake.table(f"{namespace}.counted").to_arrow().to_pylist() == [{"kind": 0, "n": 2}, {"kind": 1, "n": 2}]
    whole = lake.source("partner.stock.orders")
    assert lake.ingest(f"{namespace}.t", whole).publication is not None
    assert lake.ingest(f"{namespace}.t", whole).status == "skipped"
    for wrong, error in (
        (lake.source("partner.stock.nope"), NotFoundError),
        (lake.source("partner", sql="DROP TABLE stock.orders"), QueryError),
        (lake.source("partner", sql=f"SELECT * FROM lakegate.{namespace}.t"), NotFoundError),
        (lake.source("partner.stock.orders", watermark="nope"), InputError),
    ):
        with pytest.raises(error):
            lake.ingest(f"{namespace}.wrong", wrong)


def test_a_contract_is_proposed_for_a_source_and_tried_on_it(partner: Partner, tmp_path: Path) -> None:
    lake, run = partner
    run("CREATE TABLE partner.club.orders AS SELECT id, concat('n', id) AS name FROM range(20)")
    uri = "source://partner/club/orders"
    proposed = tmp_path / "proposed.yaml"
    proposed.write_text(lake.propose_contract("sales.orders", uri), encoding="utf-8")
    assert uri in proposed.read_text(encoding="utf-8")
    assert lake.test_contract(proposed, lake.source("partner.club.orders")).passed
    run("INSERT INTO partner.club.orders VALUES (3, NULL)")  # at once: no catalog may show what it has kept
    failed = {one.check: one.failing_rows for one in lake.test_contract(proposed, uri).report.failures}
    assert failed == {"not_null(name)": 1}
