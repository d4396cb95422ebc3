"""Tables of Iceberg's format version 3 through all that lakegate does to one, on real Spark, Iceberg and Nessie."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.errors import AuditFailedError
from lakegate.iceberg.files import local_path
from lakegate.lake import Lake, connect
from lakegate.local.state import StackState
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.run import Run
from lakegate.spark.sessions import CATALOG
from lakegate.wap.transaction import Transaction
from support.lakes import components_of, session_of

pytestmark = pytest.mark.jvm

NONE: frozenset[int] = frozenset()
GOOD = "in_range(n, min=0, severity='quarantine')"
IN_PLACE = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge"))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, stack: StackState) -> Iterator[Lake]:
    """A lake with a journal and a warehouse of its own."""
    folder = tmp_path_factory.mktemp("version-3")
    warehouse = (folder / "warehouse").as_uri()
    (folder / "home").mkdir()
    (folder / "home" / "lakegate.toml").write_text("[ingest]\nformat_version = 3\n", encoding="utf-8")
    with connect(folder / "home", engine=stack.spark_url, catalog=stack.nessie_uri, warehouse=warehouse) as opened:
        yield opened


@dataclass(frozen=True)
class Step:
    """A state of a table on ``main``, and which rows came, were changed, went and came back since the one before.

    Attributes:
        ids: What is read of it without Spark.
        like: The number of the step whose rows these are, whatever the one before had.
        lost: Rows that aren't there, whatever else happened.
    """

    commit: str
    document: dict[str, Any]
    ids: list[int]
    new: Collection[int] = NONE
    changed: Collection[int] = NONE
    gone: Collection[int] = NONE
    back: Collection[int] = NONE
    like: int | None = None
    lost: Collection[int] = NONE


class Rows:
    """The rows of a table after every step, each with its id and its last change, as Spark reads them in the end."""

    def __init__(self, lake: Lake, table: str) -> None:
        self.lake = lake
        self.table = table
        self.steps: list[Step] = []

    def step(self, **expected: Any) -> None:
        """Have :meth:`check` compare what the table holds now with the last step, as :class:`Step` says."""
        table = self.lake.table(self.table)
        document = json.loads(local_path(table.metadata.metadata_location).read_text())
        ids = sorted(row["id"] for row in table.to_arrow(columns=["id"]).to_pylist())
        commit = components_of(self.lake).catalog.get_ref("main").hash
        self.steps.append(Step(commit, document, ids, **expected))

    def check(self) -> None:
        """Ask Spark for the rows of all steps, in one query, as each costs a plan."""
        names = (TableIdentifier.parse(self.table).sql(CATALOG, ref=f"main#{one.commit}") for one in self.steps)
        wanted = "id, _row_id, _last_updated_sequence_number"
        asked = (f"SELECT {number} AS step, {wanted} FROM {name}" for number, name in enumerate(names))
        found: list[list[tuple[int, tuple[int, int]]]] = [[] for _ in self.steps]
        for number, id_, row_id, at in session_of(components_of(self.lake)).sql(" UNION ALL ".join(asked)).collect():
            found[number].append((id_, (row_id, at)))
        states = [dict(rows) for rows in found]
        before: dict[int, tuple[int, int]] = {}
        seen: dict[int, tuple[int, int]] = {}
        given: dict[int, int] = {}  # whose each row id is that some row of `main` has had
        for number, (step, rows, now) in enumerate(zip(self.steps, found, states, strict=True)):
            document, told = step.document, f"step {number}: {step}"
            assert document["format-version"] == 3, told
            assert len(now) == len({row_id for row_id, _ in now.values()}) == len(rows), told
            assert all(0 <= row_id < document["next-row-id"] for row_id, _ in now.values()), told
            assert all(0 < at <= document["last-sequence-number"] for _, at in now.values()), told
            assert given.keys().isdisjoint(range(document["next-row-id"], document["next-row-id"] + 1_000)), told
            assert step.ids == sorted(now), told
            if step.lost or step.like is not None:
                assert now.keys().isdisjoint(step.lost), told
                assert step.like is None or now == states[step.like], told
                before = now
                continue
            assert now.keys() - before.keys() == {*step.new, *step.back}, told
            assert before.keys() - now.keys() == set(step.gone), told
            both = before.keys() & now.keys()
            assert {key for key in both if before[key] != now[key]} == set(step.changed), told
            assert all(before[key][0] == now[key][0] for key in both), told
            assert all(now[key] == seen[key] for key in step.back), told
            assert {now[key][1] for key in (*step.new, *step.changed)} <= {document["last-sequence-number"]}, told
            for key in step.new:
                assert now[key][0] not in given, told
                given[now[key][0]] = key
            before, seen = now, seen | now


def test_rows_keep_their_ids_whatever_is_done_to_a_table(  # noqa: PLR0915 - one table through all of it
    lake: Lake, namespace: str
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
    lake.transact(lambda tx: tx.sql(f"ALTER TABLE `{namespace}`.`rows` SET TBLPROPERTIES ({IN_PLACE})"))
    rows.step()

    ingest((2, 20), (5, 5), mode="upsert", key=["id"])
    rows.step(new={5}, changed={2})
    changes = "(SELECT 4L AS id, 0L AS n UNION ALL SELECT 1L, 10L UNION ALL SELECT 6L, 6L)"
    merge = f"MERGE INTO {table} t USING {changes} b ON t.id = b.id WHEN MATCHED AND b.n = 0 THEN DELETE "
    merge += "WHEN MATCHED THEN UPDATE SET n = b.n WHEN NOT MATCHED THEN INSERT *"
    lake.transact(lambda tx: tx.sql(merge))
    rows.step(new={6}, changed={1}, gone={4})
    state, known = next(lake.log(limit=1)).hash, len(rows.steps) - 1

    deleted = lake.delete_rows(table, "id = 3")
    rows.step(gone={3})
    ingest((7, 7))
    rows.step(new={7})
    lake.revert(deleted.run_id)
    rows.step(back={3})
    lake.delete_rows(table, "id = 3")
    rows.step(gone={3})

    assert lake.quarantine.release(table, changes={"n": "9"}).status == "published"
    rows.step(new={9})
    wider = lake.ingest(table, [{"id": 8, "n": 8, "zone": "a"}], schema="evolve")
    assert wider.status == "published"
    rows.step(new={8})
    lake.evolve_table(table, "RENAME COLUMN zone TO area", "ADD COLUMN other INT")
    rows.step()

    compaction = lake.maintenance.optimize(table, sort="id desc")
    assert compaction.status == "published"
    rows.step()
    lake.transact(lambda tx: tx.sql(f"UPDATE `{namespace}`.`rows` SET n = 70 WHERE id = 7"))
    rows.step(changed={7})
    again = ingest((10, 10), schema="evolve")
    rows.step(new={10})
    lake.revert(again.run_id)
    rows.step(gone={10})
    report = lake.maintenance.verify([table, f"{table}__quarantine"], deep=True)
    assert report.passed, report.findings

    assert lake.restore_table(table, at=state).status == "published"
    rows.step(like=known)
    ingest((11, 11), (12, 12))
    rows.step(new={11, 12})
    ingest((11, 110), mode="upsert", key=["id"])
    rows.step(changed={11})
    report = lake.maintenance.verify([table], deep=True)
    assert report.passed, report.findings
    rows.check()


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
    assert lake.maintenance.optimize(table, sort="id").status == "published"
    assert values() == {**changed, 8: None}
    deleted = lake.delete_rows(table, "variant_get(v, '$.a[0]', 'int') = 3")
    assert sorted(values()) == [0, 1, 2, 4, 5, 8]
    lake.revert(deleted.run_id)
    assert values() == {**changed, 8: None}
    with pytest.raises(AuditFailedError), lake.transaction(name="wrong") as tx:
        tx.sql(f"INSERT INTO {name} VALUES (9, NULL)")
        tx.check(table, "not_null(v)")
    report = lake.maintenance.verify([table], deep=True)
    assert report.passed, report.findings
