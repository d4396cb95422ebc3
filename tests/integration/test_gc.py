"""Garbage collection on real Spark, Iceberg and Nessie: what goes, what can still be read, and what Spark refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.iceberg.files import local_path, open_file_store
from lakegate.lake import Lake, connect
from lakegate.local.state import StackState
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import GcReport
from lakegate.upkeep.gc import gc
from support.lakes import components_of, session_of

pytestmark = pytest.mark.jvm

Collect = Callable[..., GcReport]


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def lake(tmp_path: Path, warehouse: Path, stack: StackState) -> Iterator[Lake]:
    """A lake with a journal and a warehouse of its own, so that nobody else's runs and files are in them."""
    with connect(
        tmp_path / "home", engine=stack.spark_url, catalog=stack.nessie_uri, warehouse=warehouse.as_uri()
    ) as opened:
        yield opened


@pytest.fixture
def components(lake: Lake) -> Components:
    return components_of(lake)


@pytest.fixture
def collect(components: Components) -> Collect:
    def run(*, dry_run: bool = False, days_later: float = 0, **options: Any) -> GcReport:
        return gc(
            components.context,
            files=open_file_store(components.warehouse),
            keep_rejected=timedelta(days=7),
            grace=timedelta(0),
            now=datetime.now(UTC) + timedelta(days=days_later),
            dry_run=dry_run,
            **options,
        )

    return run


def batch(path: Path, rows: int, *, null: bool = False) -> Path:
    pq.write_table(pa.table({"id": pa.array([None if null else i for i in range(rows)], pa.int64())}), path)
    return path


def files_in(folder: Path) -> set[str]:
    """Return all files but Hadoop's checksums."""
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {path for path in found if not path.endswith(".crc")}


def count(lake: Lake, table: str, ref: str = "main", at: str | None = None) -> int:
    """Read all rows; return how many there are and how many have an id, in one number."""
    options = {"ref": ref} if at is None else {"at": at}
    ids = lake.table(table, **options).to_arrow(columns=["id"])["id"]
    return 2 * len(ids) - ids.null_count


def ours(report: GcReport, namespace: str) -> list[str]:
    """Return the problems with tables of this test; other tests' may be in the catalog, too."""
    return [problem.message for problem in report.problems if problem.subject.startswith(f"{namespace}.")]


def sql(components: Components, statement: str) -> list[Any]:
    rows: list[Any] = session_of(components).sql(statement).collect()
    return rows


def test_only_what_no_reference_reaches_goes(
    lake: Lake, components: Components, collect: Collect, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.trips"
    check = ["not_null(id)"]
    lake.ingest(table, batch(tmp_path / "a.parquet", 10), checks=check)
    components.catalog.create_tag(f"{namespace}-v1", components.catalog.get_ref("main"))
    lake.ingest(table, batch(tmp_path / "b.parquet", 20), checks=check)
    kept = lake.ingest(table, batch(tmp_path / "c.parquet", 5, null=True), checks=check, on_rejected="return")
    name = TableIdentifier.parse(table).sql("lakegate")
    sql(
        components,
        f"CALL lakegate.system.rewrite_data_files(table => '{table}', options => map('min-input-files', '2'))",
    )
    sql(components, f"CALL lakegate.system.compute_table_stats('{table}')")
    sql(components, f"DELETE FROM {name} WHERE id = 19")
    commits = list(lake.log(limit=5))
    before = files_in(warehouse)

    doomed = lake.ingest(table, batch(tmp_path / "d.parquet", 7, null=True), checks=check, on_rejected="return")
    lake.discard(doomed.branch)
    created = lake.ingest(
        f"{namespace}.other", batch(tmp_path / "e.parquet", 7, null=True), checks=check, on_rejected="return"
    )
    lake.discard(created.branch)
    after = files_in(warehouse)
    garbage = after - before
    assert len(garbage) == 8  # of each: data file, manifest, manifest list, metadata file

    told = collect(dry_run=True)
    assert files_in(warehouse) == after
    assert sum(folder.files for folder in told.folders) == 8

    report = collect()
    assert files_in(warehouse) == before
    assert not list(warehouse.rglob(f"*{doomed.run_id}*/*")), "nothing of the discarded table is left, no folder either"
    assert {folder.folder.rpartition("/")[2].rpartition("_")[0] for folder in report.folders} == {"trips", "other"}
    assert told.model_copy(update={"dry_run": False}) == report
    assert ours(report, namespace) == []
    assert report.branches == ()

    assert count(lake, table) == 58
    assert lake.query(f"SELECT id FROM {table}").to_arrow().num_rows == 29, "Spark has all that it needs"
    assert count(lake, table, ref=f"{namespace}-v1") == 20
    assert count(lake, table, ref=kept.branch) == 65
    for commit in commits:
        assert count(lake, table, at=commit.hash) > 0
    assert collect().files == 0
    known = {file.path for file in lake.table(table).files()}
    last = lake.ingest(table, batch(tmp_path / "f.parquet", 1))
    assert count(lake, table) == 60

    # All that is sound, but for what others wrote on main; then it is damaged.
    sound = lake.maintenance.verify([table], deep=True)
    assert [one.kind for one in sound.findings] == ["foreign-commit"] * 3, sound.findings
    (new,) = (local_path(file.path) for file in lake.table(table).files() if file.path not in known)
    new.unlink()
    found = next(one for one in lake.maintenance.verify([table]).findings if one.kind != "foreign-commit")
    assert (found.kind, found.run_id, found.number) == ("missing-file", last.run_id, 1)
    assert f"lakegate revert {last.run_id}" in found.fix
    lake.revert(last.run_id)
    assert count(lake, table) == 58


def test_a_rejected_branch_goes_after_its_time_with_its_files(
    lake: Lake, collect: Collect, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.trips"
    lake.ingest(table, batch(tmp_path / "a.parquet", 10))
    before = files_in(warehouse)
    rejected = lake.ingest(
        table, batch(tmp_path / "b.parquet", 5, null=True), checks=["not_null(id)"], on_rejected="return"
    )
    assert collect(days_later=6).branches == ()
    assert count(lake, table, ref=rejected.branch) == 25

    report = collect(days_later=8)
    assert [branch.run_id for branch in report.branches] == [rejected.run_id]
    assert rejected.branch not in {ref.name for ref in lake.branches.list()}
    assert not lake.run(rejected.run_id).branch_kept
    assert files_in(warehouse) == before
    assert count(lake, table) == 20


def test_what_others_made_in_the_same_catalog_stays(
    lake: Lake, components: Components, collect: Collect, warehouse: Path, namespace: str
) -> None:
    sql(components, f"CREATE NAMESPACE lakegate.{namespace}")
    sql(components, f"CREATE TABLE lakegate.{namespace}.plain (id bigint) USING iceberg")
    sql(components, f"CREATE TABLE lakegate.{namespace}.`odd name` (id bigint) USING iceberg")
    sql(components, f"INSERT INTO lakegate.{namespace}.plain VALUES (1)")
    sql(components, f"INSERT INTO lakegate.{namespace}.`odd name` VALUES (1), (2)")
    sql(components, f"CREATE VIEW lakegate.{namespace}.v AS SELECT * FROM lakegate.{namespace}.plain")
    (warehouse / "notes.txt").write_text("keep me")
    before = files_in(warehouse)
    assert collect().files == 0
    assert files_in(warehouse) == before
    assert sql(components, f"SELECT count(*) AS n FROM lakegate.{namespace}.v")[0].n == 1
    assert sql(components, f"SELECT count(*) AS n FROM lakegate.{namespace}.`odd name`")[0].n == 2


def test_dropped_tables_and_compacted_files_go_beyond_the_history_that_is_kept(
    lake: Lake, components: Components, collect: Collect, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    dropped, stays = f"{namespace}.dropped", f"{namespace}.stays"
    lake.ingest(dropped, batch(tmp_path / "a.parquet", 10))
    sql(components, f"DROP TABLE lakegate.{dropped}")
    lake.ingest(stays, batch(tmp_path / "b.parquet", 10))
    everything = files_in(warehouse)
    assert collect().files == 0
    assert collect(days_later=2, history=timedelta(days=3)).files == 0
    assert files_in(warehouse) == everything

    assert collect(days_later=2, history=timedelta(days=1)).files == 4
    assert everything - files_in(warehouse) == {p for p in everything if "/dropped_" in p}
    assert count(lake, stays) == 20


def test_spark_refuses_what_would_delete_files_of_other_branches(
    lake: Lake, components: Components, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.trips"
    lake.ingest(table, batch(tmp_path / "a.parquet", 10))
    before = files_in(warehouse)
    for statement in (
        f"CALL lakegate.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '2100-01-01 00:00:00')",
        f"CALL lakegate.system.remove_orphan_files(table => '{table}')",
        f"DROP TABLE lakegate.{table} PURGE",
    ):
        with pytest.raises(Exception, match="GC is disabled"):
            sql(components, statement)
        assert files_in(warehouse) == before, statement
        assert count(lake, table) == 20, statement


def test_a_table_that_lost_files_to_somebody_else_keeps_the_rest(
    lake: Lake, components: Components, collect: Collect, warehouse: Path, namespace: str, tmp_path: Path
) -> None:
    table = f"{namespace}.trips"
    lake.ingest(table, batch(tmp_path / "a.parquet", 10))
    lake.ingest(table, batch(tmp_path / "b.parquet", 10))
    sql(
        components,
        f"CALL lakegate.system.rewrite_data_files(table => '{table}', options => map('min-input-files', '2'))",
    )
    sql(components, f"ALTER TABLE lakegate.{table} SET TBLPROPERTIES ('gc.enabled' = 'true')")
    sql(components, f"CALL lakegate.system.expire_snapshots('{table}', TIMESTAMP '2100-01-01 00:00:00')")
    doomed = lake.ingest(
        table, batch(tmp_path / "c.parquet", 7, null=True), checks=["not_null(id)"], on_rejected="return"
    )
    lake.discard(doomed.branch)
    before = files_in(warehouse)
    report = collect()
    assert files_in(warehouse) == before
    assert len(ours(report, namespace)) == 1
    # Beyond the history that is kept, nobody asks for what is gone.
    assert collect(days_later=1, history=timedelta(hours=1)).files >= 4
    assert count(lake, table) == 40
