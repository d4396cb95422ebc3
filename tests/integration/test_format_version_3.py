"""Tables of Iceberg's format version 3 through all that lakegate does to one, on real Spark, Iceberg and Nessie."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.errors import AuditFailedError
from lakegate.iceberg.files import local_path
from lakegate.lake import Lake, connect
from lakegate.local.state import StackState
from lakegate.model.run import Run
from lakegate.wap.transaction import Transaction

pytestmark = pytest.mark.jvm

NONE: frozenset[int] = frozenset()
GOOD = "in_range(n, min=0, severity='quarantine')"
IN_PLACE = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge"))


@pytest.fixture
def lake(tmp_path: Path, stack: StackState) -> Iterator[Lake]:
    """A lake with a journal and a warehouse of its own."""
    warehouse = (tmp_path / "warehouse").as_uri()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "lakegate.toml").write_text("[ingest]\nformat_version = 3\n", encoding="utf-8")
    with connect(tmp_path / "home", engine=stack.spark_url, catalog=stack.nessie_uri, warehouse=warehouse) as opened:
        yield opened


class Rows:
    """The rows of a table, each with its id and its last change, as Spark reads them after every step."""

    def __init__(self, lake: Lake, table: str) -> None:
        self.lake = lake
        self.table = table
        self.at: dict[int, tuple[int, int]] = {}
        self.given: dict[int, int] = {}
        """Whose each id is that some row of `main` has had."""

    def look(self) -> dict[int, tuple[int, int]]:
        query = f"SELECT id, _row_id, _last_updated_sequence_number AS at FROM {self.table}"
        found = self.lake.query(query).to_arrow().to_pylist()
        document = json.loads(local_path(self.lake.table(self.table).metadata.metadata_location).read_text())
        assert document["format-version"] == 3
        known = {row["id"]: (row["_row_id"], row["at"]) for row in found}
        assert len(known) == len({row_id for row_id, _ in known.values()}) == len(found)
        assert all(0 <= row_id < document["next-row-id"] for row_id, _ in known.values())
        assert all(0 < at <= document["last-sequence-number"] for _, at in known.values())
        assert self.given.keys().isdisjoint(range(document["next-row-id"], document["next-row-id"] + 1_000))
        read = self.lake.table(self.table).to_arrow(columns=["id"]).to_pylist()
        assert sorted(row["id"] for row in read) == sorted(known)
        return known

    def step(
        self, *, new: Collection[int] = NONE, changed: Collection[int] = NONE, gone: Collection[int] = NONE
    ) -> None:
        """Check that just these rows came, were changed and went since the last step."""
        before, now = self.at, self.look()
        newest = json.loads(local_path(self.lake.table(self.table).metadata.metadata_location).read_text())
        assert now.keys() - before.keys() == set(new)
        assert before.keys() - now.keys() == set(gone)
        both = before.keys() & now.keys()
        assert {key for key in both if before[key] != now[key]} == set(changed)
        assert all(before[key][0] == now[key][0] for key in both)
        assert {now[key][1] for key in (*new, *changed)} <= {newest["last-sequence-number"]}
        for key in new:
            assert now[key][0] not in self.given
            self.given[now[key][0]] = key
        self.at = now


@pytest.mark.parametrize("in_place", [False, True])
def test_rows_keep_their_ids_whatever_is_done_to_a_table(  # noqa: PLR0915 - one table through all of it
    lake: Lake, namespace: str, *, in_place: bool
) -> None:
    table = f"{namespace}.rows"
    rows = Rows(lake, table)

    def ingest(*given: tuple[int, int], **options: Any) -> Run:
        checks = ["not_null(id)"] if options else [GOOD]  # no mode but append sets rows aside
        run = lake.ingest(table, [{"id": key, "n": number} for key, number in given], checks=checks, **options)
        assert run.status == "published"
        return run

    ingest((1, 1), (2, 2), (3, 3), (4, 4), (9, -9))
    rows.step(new={1, 2, 3, 4})
    assert lake.table(f"{table}__quarantine").metadata.format_version == 3
    if in_place:
        lake.transact(lambda tx: tx.sql(f"ALTER TABLE `{namespace}`.`rows` SET TBLPROPERTIES ({IN_PLACE})"))
        rows.step()

    ingest((2, 20), (5, 5), mode="upsert", key=["id"])
    rows.step(new={5}, changed={2})
    merge = f"MERGE INTO {table} t USING batch b ON t.id = b.id WHEN MATCHED AND b.n = 0 THEN DELETE "
    merge += "WHEN MATCHED THEN UPDATE SET n = b.n WHEN NOT MATCHED THEN INSERT *"
    ingest((4, 0), (1, 10), (6, 6), merge_sql=merge)
    rows.step(new={6}, changed={1}, gone={4})
    state = next(lake.log(limit=1)).hash
    known = dict(rows.at)

    deleted = lake.delete_rows(table, "id = 3")
    rows.step(gone={3})
    appended = ingest((7, 7))
    rows.step(new={7})
    lake.revert(deleted.run_id)
    assert rows.look() == {**rows.at, 3: known[3]}
    rows.at = rows.look()
    lake.delete_rows(table, "id = 3")
    rows.step(gone={3})

    assert lake.quarantine_release(table, changes={"n": "9"}).status == "published"
    rows.step(new={9})
    wider = lake.ingest(table, [{"id": 8, "n": 8, "zone": "a"}], schema="evolve")
    assert wider.status == "published"
    rows.step(new={8})
    lake.evolve_table(table, "RENAME COLUMN zone TO area", "ADD COLUMN other INT")
    rows.step()

    compaction = lake.optimize_table(table, sort="id desc")
    assert compaction.status == "published"
    rows.step()
    assert lake.optimize_table(table, rewrite_manifests=True).status in ("published", "skipped")
    rows.step()
    lake.transact(lambda tx: tx.sql(f"UPDATE `{namespace}`.`rows` SET n = 70 WHERE id = 7"))
    rows.step(changed={7})
    again = ingest((10, 10), schema="evolve")
    rows.step(new={10})
    lake.revert(again.run_id)
    rows.step(gone={10})
    lake.revert(appended.run_id, cascade=True)
    assert 7 not in rows.look()
    report = lake.verify([table, f"{table}__quarantine"], deep=True)
    assert report.passed, report.findings

    assert lake.restore_table(table, at=state).status == "published"
    assert rows.look() == known
    rows.at = known
    ingest((11, 11), (12, 12))
    rows.step(new={11, 12})
    ingest((11, 110), mode="upsert", key=["id"])
    rows.step(changed={11})
    report = lake.verify([table], deep=True)
    assert report.passed, report.findings


def test_a_table_with_variants_is_changed_like_any_other(lake: Lake, namespace: str, tmp_path: Path) -> None:
    table, name = f"{namespace}.events", f"`{namespace}`.`events`"

    def values() -> dict[int, str | None]:
        found = lake.query(f"SELECT id, to_json(v) AS v FROM {table}").to_arrow().to_pylist()
        return {row["id"]: row["v"] for row in found}

    lake.transact(
        lambda tx: tx.sql(f"CREATE TABLE {name} (id bigint, v variant) TBLPROPERTIES ('format-version' = '3')")
    )

    def insert(tx: Transaction) -> None:
        for number in range(6):
            tx.sql(f"INSERT INTO {name} SELECT {number}, parse_json('{{\"a\": [{number}]}}')")

    lake.transact(insert)
    assert [column.type for column in lake.table(table).metadata.table_schema.columns] == ["long", "variant"]
    all_of_them: dict[int, str | None] = {number: f'{{"a":[{number}]}}' for number in range(6)}
    assert values() == all_of_them

    with lake.transaction(name="checked") as tx:
        tx.sql(f"UPDATE {name} SET v = parse_json('7') WHERE id = 0")
        tx.check(table, "not_null(v)", "unique(id, scope='table')", "expression_is_true('id < 9')")
    assert tx.run.status == "published"
    changed = {**all_of_them, 0: "7"}
    assert values() == changed
    path = tmp_path / "more.parquet"
    pq.write_table(pa.table({"id": pa.array([8], pa.int64())}), path)
    assert lake.ingest(table, path, schema="evolve").status == "published"
    assert lake.optimize_table(table, sort="id").status == "published"
    assert values() == {**changed, 8: None}
    deleted = lake.delete_rows(table, "variant_get(v, '$.a[0]', 'int') = 3")
    assert sorted(values()) == [0, 1, 2, 4, 5, 8]
    lake.revert(deleted.run_id)
    assert values() == {**changed, 8: None}
    with pytest.raises(AuditFailedError), lake.transaction(name="wrong") as tx:
        tx.sql(f"INSERT INTO {name} VALUES (9, NULL)")
        tx.check(table, "not_null(v)")
    report = lake.verify([table], deep=True)
    assert report.passed, report.findings
