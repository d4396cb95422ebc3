"""Tables maintained on real Spark, Iceberg and Nessie: compacted, expired, dropped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.errors import InputError, QueryError, SchemaError
from lakegate.iceberg.files import local_path
from lakegate.lake import Lake, connect
from lakegate.local.state import StackState
from lakegate.model.run import Run
from lakegate.wap.transaction import Transaction

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, stack: StackState) -> Iterator[Lake]:
    """A lake with a journal and a warehouse of its own."""
    folder = tmp_path_factory.mktemp("maintenance")
    warehouse = (folder / "warehouse").as_uri()
    with connect(folder / "home", engine=stack.spark_url, catalog=stack.nessie_uri, warehouse=warehouse) as opened:
        yield opened


def rows(lake: Lake, table: str) -> list[tuple[int, str | None]]:
    found = lake.table(table).to_arrow(columns=["id", "zone"]).to_pylist()
    return sorted((row["id"], row["zone"]) for row in found)


def files(lake: Lake, table: str) -> int:
    return sum(1 for _ in lake.table(table).files())


def row_ids(lake: Lake, table: str) -> dict[int, tuple[int, int]]:
    """Return the row id and the last change of each row, by its id, after checking that they can be."""
    found = lake.query(f"SELECT id, _row_id, _last_updated_sequence_number AS at FROM {table}").to_arrow().to_pylist()
    known = {row["id"]: (row["_row_id"], row["at"]) for row in found}
    document = json.loads(local_path(lake.table(table).metadata.metadata_location).read_text())
    assert len({row_id for row_id, _ in known.values()}) == len(found)
    assert all(0 <= row_id < document["next-row-id"] for row_id, _ in known.values())
    assert all(0 < at <= document["last-sequence-number"] for _, at in known.values())
    return known


def test_rows_of_version_3_keep_their_ids_through_everything(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table = f"{namespace}.rows"
    name = f"`{namespace}`.`rows`"
    modes = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge"))
    properties = f"TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '2', {modes})"
    lake.transact(lambda tx: tx.sql(f"CREATE TABLE {name} (id bigint, n bigint) {properties}"))
    lake.transact(lambda tx: tx.sql(f"INSERT INTO {name} SELECT id, 0 FROM range(5)"))
    lake.transact(lambda tx: tx.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '3')"))
    assert lake.table(table).metadata.format_version == 3

    def batch(number: int) -> Run:
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"id": [number * 10, number * 10 + 1], "n": [number, number]}), path)
        return lake.ingest(table, path)

    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(batch, (1, 2, 3, 4, 5, 8, 9, 10)))
    assert [run.status for run in runs] == ["published"] * 8
    first = row_ids(lake, table)
    assert len(first) == 21

    assert lake.maintenance.optimize(table, sort="id").status == "published"
    assert row_ids(lake, table) == first
    report = lake.maintenance.verify([table], deep=True)
    assert report.passed, report.findings


def quoted(table: str) -> str:
    return ".".join(f"`{part}`" for part in table.split("."))


def change_as_a_whole(lake: Lake, table: str, after: list[tuple[int, str | None]]) -> None:
    """Rename a table, empty it, and undo both."""
    lake.transact(lambda tx: tx.sql(f"INSERT INTO {quoted(table)} VALUES (100, 'b', NULL)"))
    after = [*after, (100, "b")]
    rides = f"{table}_rides"
    lake.rename_table(table, rides)
    assert rows(lake, rides) == after
    lake.transact(lambda tx: tx.sql(f"DELETE FROM {quoted(rides)} WHERE id = 100"))
    after.pop()
    lake.rename_table(rides, table)
    emptied = lake.truncate_table(table)
    assert (emptied.status, rows(lake, table)) == ("published", [])
    lake.revert(emptied.run_id)
    assert rows(lake, table) == after


def test_a_table_is_compacted_beside_appends_expired_dropped_and_restored(
    lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{namespace}.trips"
    name = f"`{namespace}`.`trips`"

    def appends(tx: Transaction) -> None:
        tx.sql(f"CREATE TABLE {name} (id bigint, zone string, tags map<string, int>) PARTITIONED BY (zone)")
        for number in range(6):
            tx.sql(f"INSERT INTO {name} VALUES ({number}, 'a', map('k', {number})), ({number + 10}, NULL, NULL)")

    lake.transact(appends)
    before = rows(lake, table)
    assert (len(before), files(lake, table)) == (12, 12)

    def one_more() -> None:
        lake.transact(lambda tx: tx.sql(f"INSERT INTO {name} VALUES (99, 'a', NULL)"))

    state = next(lake.log(limit=1)).hash
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(one_more)
        run = lake.maintenance.optimize(table, sort="id desc")
        adding.result()
    after = [*before, (99, "a")]
    assert (run.status, run.kind, run.name) == ("published", "maintenance", f"optimize {table}")
    # A file for each partition, and the one that was appended meanwhile.
    assert files(lake, table) <= 3
    assert rows(lake, table) == after
    report = lake.maintenance.verify([table], deep=True)
    assert report.passed, report.findings
    assert lake.maintenance.optimize(table, where="zone = 'b'").status == "skipped"
    with pytest.raises(InputError, match="compacted"):
        lake.revert(run.run_id)

    lake.restore_table(table, at=state)
    assert (rows(lake, table), files(lake, table)) == (before, 12)
    one_more()
    with pytest.raises(SchemaError, match="no column 'zne'"):
        lake.maintenance.optimize(table, sort="zorder(id, zne)")
    with pytest.raises(InputError, match="where"):
        lake.maintenance.optimize(table, where="1); DROP TABLE x")

    state = next(lake.log(limit=1)).hash
    expired = lake.maintenance.expire(table, older_than="0s")
    assert expired.status == "published"
    assert len(lake.table(table).snapshots()) == 1
    assert (rows(lake, table), files(lake, table)) == (after, 13)

    change_as_a_whole(lake, table, after)

    state = next(lake.log(limit=1)).hash
    dropped = lake.drop_table(table)
    assert dropped.undone[0].dropped
    assert table not in {str(one.table) for one in lake.tables()}
    assert lake.restore_table(table, at=state).status == "published"
    assert rows(lake, table) == after
    assert lake.maintenance.verify([table], deep=True).passed


def test_neither_a_property_nor_a_compaction_takes_away_what_main_has(
    lake: Lake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, name = f"{namespace}.trips", f"`{namespace}`.`trips`"
    modes = "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
    lake.transact(lambda tx: tx.sql(f"CREATE TABLE {name} (id bigint, zone string) {modes}"))
    lake.transact(lambda tx: tx.sql(f"INSERT INTO {name} SELECT id, 'a' FROM range(0, 9, 1, 1)"))
    before = rows(lake, table)

    deleted = lake.delete_rows(table, "id < 3")
    assert len(rows(lake, table)) == len(before) - 3
    lake.revert(deleted.run_id)
    lake.maintenance.optimize(table, sort="id")
    assert rows(lake, table) == before

    # Spark reads a property without '=', too. The commit that turns this one on would delete main's own metadata files.
    deleting = "'write.metadata.delete-after-commit.enabled' true"
    for first in (
        f"'write.metadata.previous-versions-max' 1, {deleting}",
        "'write.metadata.previous-versions-max' = 1",
    ):
        with pytest.raises(QueryError, match="Can't read the table property"):
            lake.evolve_table(table, f"SET TBLPROPERTIES ({first})", f"SET TBLPROPERTIES ({deleting})")
    location = lake.table(table).metadata.metadata_location
    logged = [entry["metadata-file"] for entry in json.loads(local_path(location).read_text())["metadata-log"]]
    assert logged
    assert all(local_path(one).exists() for one in (location, *logged))


def test_what_was_added_is_audited_past_compactions(lake: Lake, namespace: str) -> None:
    table = f"{namespace}.trips"
    name = f"`{namespace}`.`trips`"

    def add(*numbers: int) -> None:
        rows = ", ".join(f"({number}, {number % 2})" for number in numbers)
        lake.transact(lambda tx: tx.sql(f"INSERT INTO {name} VALUES {rows}"))

    def head() -> str:
        return next(iter(lake.log(limit=1))).hash

    def added(since: str, *checks: str) -> tuple[int, list[int]]:
        report = lake.audit(table, branch="main", since=since, checks=checks or ["expression_is_true('id >= 10')"])
        return report.rows, [result.failing_rows for result in report.results]

    columns = "(id bigint, zone int) PARTITIONED BY (zone) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
    lake.transact(lambda tx: tx.sql(f"CREATE TABLE {name} {columns}"))
    for number in range(4):
        add(2 * number, 2 * number + 1)
    lake.transact(lambda tx: tx.sql(f"DELETE FROM {name} WHERE id < 2"))
    start = head()
    assert lake.maintenance.optimize(table, sort="id").status == "published"
    compacted = head()
    assert added(start) == (0, [0])
    add(10, 11)
    lake.transact(lambda tx: tx.sql(f"ALTER TABLE {name} ADD COLUMN note string"))
    lake.transact(lambda tx: tx.sql(f"INSERT INTO {name} VALUES (9, 1, 'x'), (3, 1, NULL)"))
    assert lake.maintenance.optimize(table, sort="id").status == "published"
    assert added(start) == added(compacted) == (4, [2])
    keys = "unique(id, scope='table')", "unique(id)", "not_null(note)", "row_count(min=5)"
    assert added(start, *keys) == (4, [1, 0, 3, 1])
    assert added(head()) == (0, [0])

    lake.transact(lambda tx: tx.sql(f"DELETE FROM {name} WHERE id = 9"))
    with pytest.raises(InputError, match=r"can't be told apart.*operation is 'delete'") as refused:
        added(start)
    assert "name a later commit" in (refused.value.hint or "")
