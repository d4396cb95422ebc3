"""Tables of a real database as a source: its types arrive, its secrets stay, and each row is taken once."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lakegate.components import Components
from lakegate.config import SourceSettings, load_settings
from lakegate.errors import InputError, LakegateError, NotFoundError, QueryError
from lakegate.lake import Lake
from lakegate.local.state import StackState
from lakegate.progress import SilentNarrator
from lakegate.wap.history import files_in
from support.postgres import USER, PostgresServer

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("postgres")]

_ORDERS = """CREATE TABLE {}."Order Lines" (id bigint PRIMARY KEY, at timestamptz NOT NULL, local timestamp,
    price numeric(9, 2), note text, tags text[], seen timestamptz)"""


class Shop(NamedTuple):
    """A lake that knows a database as the source ``shop``."""

    lake: Lake
    postgres: PostgresServer
    components: Components


@pytest.fixture(scope="module")
def shop(home: Path, stack: StackState, postgres: PostgresServer) -> Iterator[Shop]:
    """The password is in a variable."""
    url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres"
    made = SourceSettings.model_validate({"url": url, "user": USER, "password": "env:SHOP_PASSWORD"})
    settings = load_settings(home, env={}).model_copy(update={"sources": {"shop": made}})
    components = Components(home, settings, session=None, narrator=SilentNarrator())
    with pytest.MonkeyPatch.context() as patch, Lake(components) as lake:
        patch.setenv("SHOP_PASSWORD", postgres.password)
        yield Shop(lake, postgres, components)


def test_each_row_of_a_table_is_taken_once(shop: Shop, namespace: str, home: Path) -> None:
    lake, postgres, _ = shop
    target = f"{namespace}.orders"
    name = f'shop.{namespace}."Order Lines"'
    postgres.run(
        f"CREATE SCHEMA {namespace}",
        _ORDERS.format(namespace),
        f"""INSERT INTO {namespace}."Order Lines" SELECT n, '2024-03-31 00:59:59.999999Z'::timestamptz
            + n * interval '1 second', '2024-03-31 02:30:00', n / 4.0, 'it''s ' || n, ARRAY['a', NULL] FROM
            generate_series(1, 5) AS n""",
    )
    looked = lake.inspect(lake.source(name), rows=1)
    assert [(one.name, one.type) for one in looked.columns] == [
        ("id", "long"),
        ("at", "timestamptz"),
        ("local", "timestamp"),
        ("price", "decimal(9, 2)"),
        ("note", "string"),
        ("tags", "list<string>"),
        ("seen", "timestamptz"),
    ]

    def take(**options: Any) -> Any:
        return lake.ingest(target, lake.source(name, watermark="AT"), **options)

    first = take(checks=["row_count(min=1)"])
    assert (first.status, first.publication.rows) == ("published", 5)
    assert lake.table(target).to_arrow(where="id = 5").to_pylist() == [
        {
            "id": 5,
            "at": dt.datetime(2024, 3, 31, 1, 0, 4, 999999, tzinfo=dt.UTC),
            "local": dt.datetime(2024, 3, 31, 2, 30),
            "price": Decimal("1.25"),
            "note": "it's 5",
            "tags": ["a", None],
            "seen": None,
        }
    ]
    skipped = take()
    assert (skipped.status, skipped.detail) == (
        "skipped",
        f"source://shop/{namespace}/Order%20Lines has no rows to take; nothing to publish.",
    )
    # A change, a new row, one that is yet to come; and then a batch that is refused.
    postgres.run(
        f"""UPDATE {namespace}."Order Lines" SET price = 9, at = now() WHERE id = 1""",
        f"""INSERT INTO {namespace}."Order Lines" VALUES (6, now(), NULL, -1), (7, '9999-12-31Z', NULL, 1)""",
    )
    rejected = take(checks=["in_range(price, 0, 100)"], on_failure="drop")
    assert rejected.status == "rejected"
    changed = take(mode="upsert", key=["id"])
    assert (changed.status, lake.table(target).rows) == ("published", 6)
    lake.revert(changed.run_id)
    assert lake.table(target).rows == 5
    again = take()
    assert (again.status, again.publication.rows) == ("published", 2)
    # What is yet to come hides none that comes meanwhile.
    postgres.run(f"""INSERT INTO {namespace}."Order Lines" VALUES (8, now(), NULL, 1)""")
    assert take().publication.rows == 1
    (commit,) = [one for one in lake.log(limit=3) if one.hash == again.publication.commit]
    assert [uri for uri, _ in files_in(commit)] == [f"source://shop/{namespace}/Order%20Lines"]
    assert not list((home / ".lakegate" / "sources").iterdir())
    # Nobody who looks sees the password.
    told = "".join(map(str, (commit, again, rejected, lake.run(first.run_id))))
    logs = "".join(log.read_text(errors="replace") for log in (home / ".lakegate" / "logs").iterdir())
    assert postgres.password not in told + logs


def test_two_at_once_take_each_row_once(shop: Shop, namespace: str) -> None:
    lake, postgres, _ = shop
    postgres.run(f"CREATE SCHEMA {namespace}", f"CREATE TABLE {namespace}.t AS SELECT generate_series(1, 9) AS id")
    outcomes: list[str] = []

    def take() -> None:
        with Lake(Components(lake.home, lake.settings, session=None, narrator=SilentNarrator())) as own:
            try:
                source = own.source(f"source://shop/{namespace}/t?watermark=id")
                outcomes.append(own.ingest(f"{namespace}.t", source).status)
            except LakegateError as error:
                outcomes.append(error.code)

    threads = [threading.Thread(target=take) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(outcomes) in (["published", "retryable"], ["published", "skipped"])
    assert lake.table(f"{namespace}.t").rows == 9


def test_a_whole_table_is_as_a_file_and_a_query_reads_no_more_than_its_source(
    shop: Shop, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, postgres, components = shop
    postgres.run(
        f"CREATE SCHEMA {namespace}",
        f"CREATE TABLE {namespace}.t AS SELECT n AS id, NULLIF(n, 3) AS mark FROM generate_series(1, 3) AS n",
    )
    target, source = f"{namespace}.t", lake.source(f"shop.{namespace}.t")
    assert lake.ingest(target, source).status == "published"
    assert lake.ingest(target, source).status == "skipped"
    postgres.run(f"INSERT INTO {namespace}.t VALUES (4)")
    with pytest.raises(InputError, match="with other content"):
        lake.ingest(target, source)
    assert lake.ingest(target, source, on_changed="replace").publication is not None
    assert lake.table(target).rows == 4
    # The database does what it can, and no plan names its address or a secret.
    catalog, engine = components.source_catalog("shop"), components.engine
    frame = engine.read_source(catalog, source).where("id > 1 AND id <= 3").selectExpr("max(id)")
    capsys.readouterr()
    frame.explain(extended=True)
    plan = capsys.readouterr().out
    assert "PushedAggregates: [MAX(id)]" in plan
    assert "PushedFilters: [id IS NOT NULL, id > 1, id <= 3]" in plan
    assert not any(word in plan for word in (postgres.password, str(postgres.port), "jdbc:"))
    assert postgres.password not in repr(catalog)
    query = lake.source("shop", sql=f"SELECT count(*) AS n FROM {namespace}.t WHERE id > 1")
    run = lake.ingest(f"{namespace}.counted", query)
    assert lake.table(run.table or "").to_arrow().to_pylist() == [{"n": 3}]
    for wrong, error in (
        (lake.source(f"shop.{namespace}.nope"), NotFoundError),
        (lake.source("shop", sql=f"DROP TABLE {namespace}.t"), QueryError),
        (lake.source("shop", sql=f"SELECT * FROM lakegate.{target}"), NotFoundError),
        (lake.source("shop", sql='SELECT * FROM `x" y`'), InputError),
        (lake.source("ship.t"), NotFoundError),
        (lake.source(f"shop.{namespace}.t", watermark="mark"), InputError),
        (lake.source(f"shop.{namespace}.t", watermark="nope"), InputError),
    ):
        with pytest.raises(error):
            lake.ingest(f"{namespace}.wrong", wrong)
