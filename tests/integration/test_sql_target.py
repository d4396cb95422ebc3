"""A lake without Nessie, on the real Spark: a SQL catalog is the target, and others write to it by PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from sqlalchemy import make_url

from lakegate.components import Components
from lakegate.config import CatalogSettings, JournalSettings
from lakegate.lake import Lake
from lakegate.progress import SilentNarrator

if TYPE_CHECKING:
    from support.postgres import PostgresServer

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("postgres")]

CHECKS = ["not_null(day)"]
NAME = "lakegate"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, components: Components
) -> Iterator[tuple[Lake, SqlCatalog]]:
    """A lake on a SQL catalog with its journal beside it, and another client of that catalog."""
    home = tmp_path_factory.mktemp("target")
    warehouse = f"file://{home}/.lakegate/warehouse"
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "sqlite":
            uri = f"sqlite:///{home}/.lakegate/catalog.db"
            settings: dict[str, Any] = {"catalog": CatalogSettings(type="sql")}
        else:
            server: PostgresServer = request.getfixturevalue("postgres")
            url = server.new_database("sql_target")
            uri = make_url(url).set(password=server.password).render_as_string(hide_password=False)
            patch.setenv("TARGET_URI", uri)
            patch.setenv("JOURNAL_PASSWORD", server.password)
            properties = {"type": "sql", "uri": "env:TARGET_URI", "warehouse": warehouse}
            catalog = CatalogSettings(type="iceberg", name=NAME, properties=properties)
            journal = JournalSettings(url=url, password="env:JOURNAL_PASSWORD", tls=False)
            settings = {"catalog": catalog, "journal": journal}
        known = components.settings.model_copy(update=settings)
        parts = Components(home, known, session=None, narrator=SilentNarrator())
        parts.__dict__["stack"] = components.stack
        lake = Lake(parts)
        assert list(lake.tables()) == []
        others = SqlCatalog(NAME, uri=uri, warehouse=warehouse)
        try:
            yield lake, others
        finally:
            others.close()
            parts.__dict__.pop("stack")
            lake.close()


@pytest.fixture
def lake(target: tuple[Lake, SqlCatalog]) -> Lake:
    return target[0]


@pytest.fixture
def others(target: tuple[Lake, SqlCatalog]) -> SqlCatalog:
    return target[1]


def rows(*ids: int, day: str | None = "mon") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids), pa.string())})


def ids(lake: Lake, table: str, **at: Any) -> list[int]:
    found = lake.query(f"SELECT id FROM {table}", **at).to_arrow()
    return sorted(pc.cast(found["id"], pa.int64()).to_numpy().tolist())


def published(others: SqlCatalog, table: str) -> list[int]:
    return sorted(others.load_table(table).scan().to_arrow()["id"].to_numpy().tolist())


def append(others: SqlCatalog, table: str, added: pa.Table) -> None:
    """Append as another writer does: again, if somebody was faster."""
    is_there = False
    while not is_there:
        found = others.load_table(table)
        with suppress(CommitFailedException):
            found.append(added.cast(found.schema().as_arrow()))
            is_there = True


def test_a_batch_reaches_the_target_once_it_is_accepted(lake: Lake, others: SqlCatalog, namespace: str) -> None:
    table = f"{namespace}.trips"
    assert lake.ingest(table, rows(1, 2), checks=CHECKS).status == "published"
    rejected = lake.ingest(table, rows(3, day=None), checks=CHECKS, on_rejected="return")
    assert rejected.status == "rejected"
    assert (published(others, table), ids(lake, table, ref=rejected.branch)) == ([1, 2], [1, 2, 3])

    append(others, table, rows(4))
    assert ids(lake, table) == [1, 2, 4]
    assert lake.publish(rejected.branch, accept="the meters were off").status == "published"
    assert published(others, table) == ids(lake, table) == [1, 2, 3, 4]
    assert [commit.author for commit in lake.log(limit=2)][1] == "another writer"


def test_a_table_of_others_is_audited_and_written_as_it_is(lake: Lake, others: SqlCatalog, namespace: str) -> None:
    others.create_namespace(namespace)
    table = f"{namespace}.old"
    made = others.create_table(table, schema=rows().schema)
    with made.update_spec() as update:
        update.add_field("day", IdentityTransform(), "day")
    others.load_table(table).append(rows(1, 2))
    assert table in [str(one.table) for one in lake.tables()]
    assert lake.audit(table, branch="main", checks=["unique(id)"]).passed
    assert lake.ingest(table, rows(3, day="tue")).status == "published"
    assert published(others, table) == [1, 2, 3]
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"), spec_id=1)
    assert others.load_table(table).spec() == spec


def test_runs_at_once_and_a_writer_from_outside_all_arrive(lake: Lake, others: SqlCatalog, namespace: str) -> None:
    table = f"{namespace}.trips"
    lake.ingest(table, rows(0))
    with ThreadPoolExecutor(3) as pool:
        runs = pool.map(lambda one: lake.ingest(table, rows(one)).status, (1, 2, 3))
        append(others, table, rows(4))
        assert list(runs) == ["published"] * 3
    assert published(others, table) == ids(lake, table) == [0, 1, 2, 3, 4]


def test_what_was_published_is_reverted_restored_and_read_as_it_was(
    lake: Lake, others: SqlCatalog, namespace: str
) -> None:
    table, tag = f"{namespace}.trips", f"{namespace}-first"
    lake.ingest(table, rows(1))
    lake.tags.create(tag)
    second = lake.ingest(table, rows(2))
    lake.ingest(table, rows(3))
    assert lake.revert(second.run_id).status == "published"
    assert published(others, table) == ids(lake, table) == [1, 3]
    assert (ids(lake, table, at=tag), [one.table for one in lake.diff(tag, "main")]) == ([1], [table])
    assert lake.restore_table(table, at=tag).status == "published"
    assert published(others, table) == ids(lake, table) == [1]


def test_other_kinds_of_runs_publish_to_the_target(lake: Lake, others: SqlCatalog, namespace: str) -> None:
    table = f"{namespace}.trips"
    lake.ingest(table, rows(1, 2))
    assert lake.ingest(table, rows(2, 3, day="tue"), mode="upsert", key=["id"]).status == "published"
    wider = rows(4).append_column("fare", pa.array([1.5]))
    assert lake.ingest(table, wider, schema="evolve").status == "published"
    with lake.transaction() as tx:
        tx.sql(f"CREATE TABLE {namespace}.totals AS SELECT count(*) AS id FROM {table}")
        tx.sql(f"DELETE FROM {table} WHERE id = 1")
    assert (published(others, table), published(others, f"{namespace}.totals")) == ([2, 3, 4], [4])


def test_rows_wait_in_quarantine_until_they_are_released(lake: Lake, others: SqlCatalog, namespace: str) -> None:
    table = f"{namespace}.trips"
    batch = pa.concat_tables([rows(1), rows(2, day=None)])
    assert lake.ingest(table, batch, checks=["not_null(day, severity='quarantine')"]).status == "published"
    assert published(others, table) == ids(lake, table) == [1]
    assert lake.quarantine.release(table, changes={"day": "'tue'"}).status == "published"
    assert published(others, table) == ids(lake, table) == [1, 2]


def test_tables_are_looked_after(lake: Lake, others: SqlCatalog, namespace: str) -> None:
    table = f"{namespace}.trips"
    for number in range(5):
        lake.ingest(table, rows(number))
    before = len(others.load_table(table).inspect.data_files())
    assert lake.maintenance.optimize(table).status == "published"
    after = others.load_table(table)
    assert (before, len(after.inspect.data_files())) == (5, 1)
    assert lake.maintenance.expire(table, older_than="0s").status == "published"
    assert published(others, table) == [0, 1, 2, 3, 4]
    assert lake.rename_table(table, f"{namespace}.rides").status == "published"
    assert published(others, f"{namespace}.rides") == [0, 1, 2, 3, 4]
    assert lake.drop_table(f"{namespace}.rides").status == "published"
    assert not others.table_exists(f"{namespace}.rides")
