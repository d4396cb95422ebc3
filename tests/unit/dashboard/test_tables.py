"""One table, its commits and its files, from metadata and manifests written by PyIceberg."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from lakegate.config import Settings
from lakegate.dashboard.history import list_commits
from lakegate.dashboard.model import ReadModel
from lakegate.dashboard.runs import list_files
from lakegate.dashboard.tables import (
    ColumnHistory,
    TableDetail,
    check_history,
    column_history,
    get_table,
    list_data_files,
    list_partitions,
    list_snapshots,
    schema_changes,
)
from lakegate.errors import IdentifierError, InputError, NotFoundError
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.journal.journal import Journal
from lakegate.model.refs import CommitRequest, TablePointer
from lakegate.model.run import Run
from lakegate.model.tables import DataFile
from lakegate.testing import MemoryCatalog
from support.big_lake import HOSTILE, BigLake, big_lake
from support.fakes import FakeLakehouse
from support.iceberg_tables import append, iceberg_tables, pointer_to
from support.memory_journal import MemoryDatabase
from unit.dashboard.conftest import model_of

Load = Callable[..., Run]


def test_a_table(big: BigLake) -> None:
    detail = get_table(big.model(), big.tables[0])
    assert detail.overview is not None
    assert detail.facts.rows == detail.overview.rows
    assert {"id", "🐘 emoji", "<b>bold</b>"} <= {column.name for column in detail.columns}
    assert TableDetail.model_validate_json(detail.model_dump_json()) == detail


def test_a_table_at_a_branch_and_at_an_earlier_commit(big: BigLake) -> None:
    model, run = big.model(), next(run for run in big.runs if run.status == "rejected")
    table = run.tables[0]
    there, now = get_table(model, table, ref=run.branch), get_table(model, table)
    assert there.facts.rows == (now.facts.rows or 0) + 40
    assert there.overview is None
    earlier = list_commits(model, limit=1000).items[-3]
    assert get_table(model, big.tables[0], at=earlier.hash).commit == earlier.hash
    with pytest.raises(NotFoundError):
        get_table(model, table, at="2001-01-01")
    with pytest.raises(InputError, match="neither a time, nor a tag, nor a commit"):
        get_table(model, table, at="<script>")


@pytest.mark.parametrize("name", ["", "x", "<b>.x", "nyc.'; DROP TABLE runs", "nyc." + "x" * 999])
def test_names_that_name_no_table(big: BigLake, name: str) -> None:
    with pytest.raises((IdentifierError, NotFoundError)):
        get_table(big.model(), name)


def test_snapshots_say_what_each_added(big: BigLake) -> None:
    page = list_snapshots(big.model(), big.tables[0], limit=2)
    newest, second = page.items
    assert (newest.is_current, second.is_current) == (True, False)
    assert newest.rows == (second.rows or 0) + 40
    assert (newest.rows_added, newest.rows_removed) == (40, 0)
    assert page.total == (newest.rows or 0) // 40


def test_null_rates_and_bounds_by_snapshot(big: BigLake) -> None:
    found = {one.column: one for one in column_history(big.model(), big.tables[0], limit=3)}
    points = found["c00"].points
    total = list_snapshots(big.model(), big.tables[0]).total
    assert total is not None
    assert [point.nulls for point in points] == [total - 3, total - 2, total - 1]
    assert points[-1].null_share == (total - 1) / 40
    assert (points[-1].lower, points[-1].upper) == (total - 1, 39)
    assert found["pickup"].points[0].lower == "2026-01-01T00:00:00+00:00"
    assert found["region"].points[0].upper == "south"
    assert ColumnHistory.model_validate_json(found["fare"].model_dump_json()) == found["fare"]


def test_masked_columns_have_no_bounds(big: BigLake) -> None:
    model = big.model()
    model.settings = Settings.model_validate({"ui": {"masked": ["reg*"]}})
    (one,) = column_history(model, big.tables[0], columns=["region"])
    assert one.masked
    assert {(point.lower, point.upper) for point in one.points} == {(None, None)}
    assert one.points[0].nulls == 0


def test_files_and_partitions(big: BigLake) -> None:
    model, table = big.model(), big.tables[0]
    detail = get_table(model, table)
    files, partitions = list_data_files(model, table), list_partitions(model, table)
    assert files.total == detail.facts.data_files
    assert sum(one.size_bytes for one in files.items) == detail.facts.size_bytes
    assert [(one.partition, one.rows) for one in partitions.items] == [("", detail.facts.rows)]
    assert files.complete
    assert partitions.complete


def test_the_files_of_only_a_few_states_are_kept(
    house: FakeLakehouse, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, read, files = model_of(house), list[TablePointer](), house.files

    def listed(pointer: TablePointer) -> Iterator[DataFile]:
        read.append(pointer)
        return iter(files(pointer))

    monkeypatch.setattr(house, "files", listed)
    runs = [load({"id": number}) for number in range(9)]
    commits = [run.publication.commit for run in runs if run.publication is not None]
    for commit in [*commits, commits[-1], commits[0]]:
        list_data_files(model, "nyc.trips", at=commit)
    assert len(read) == 10
    assert read[0] == read[-1]


@pytest.mark.parametrize(
    "settings",
    [
        {"ui": {"masked": ["*mail"]}},
        {"audit": {"mask": ["E MAIL"]}},
        {"ui": {"masked": ["contact"]}},  # its current name
        {"ui": {"examples": 0}},
    ],
)
def test_partitions_of_masked_columns_show_no_value(tmp_path: Path, settings: dict[str, Any]) -> None:
    name = "e mail"  # Iceberg's writers encode it in paths
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, name, StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), name))
    with iceberg_tables(tmp_path) as tables:
        table = tables.create(schema=schema, spec=spec)
        table.append(pa.table({"id": [1], name: ["ann@example.com"]}))
        with table.update_schema() as change:
            change.rename_column(name, "contact")
        pointer = pointer_to(table, None)
    catalog = MemoryCatalog()
    base = catalog.get_ref("main").hash
    catalog.commit(CommitRequest(branch="main", base=base, message="m", puts=(pointer,), namespaces=(("nyc",),)))
    reader, journal = IcebergTableReader(), Journal(MemoryDatabase())

    def model(**settings: Any) -> ReadModel:
        given = Settings.model_validate(settings)
        return ReadModel(catalog=lambda: catalog, reader=lambda: reader, journal=lambda: journal, settings=given)

    (shown,) = list_data_files(model(), "nyc.trips").items
    assert shown.partition == "e mail=ann@example.com"
    assert "/e+mail=ann%40example.com/" in shown.path
    (masked,) = list_data_files(model(**settings), "nyc.trips").items
    assert masked.partition == "e mail=•••"
    assert masked.path == shown.path.replace("ann%40example.com", "•••")


def test_the_columns_of_a_table_over_time(tmp_path: Path) -> None:
    with iceberg_tables(tmp_path) as tables:
        table = tables.create()
        append(table, [1])
        with table.update_schema() as update:
            update.add_column("fare", LongType())
            update.rename_column("region", "zone")
        table.append(table.scan().to_arrow())
        with table.update_schema() as update:
            update.delete_column("fare")
            update.add_column("note", StringType())
        pointer = pointer_to(table, None)
    catalog = MemoryCatalog()
    request = CommitRequest(
        branch="main", base=catalog.get_ref("main").hash, message="m", puts=(pointer,), namespaces=(("nyc",),)
    )
    catalog.commit(request)
    reader, journal = IcebergTableReader(), Journal(MemoryDatabase())
    model = ReadModel(catalog=lambda: catalog, reader=lambda: reader, journal=lambda: journal, settings=Settings())
    first, *later = schema_changes(model, "nyc.trips")
    assert [(one.change, one.column) for one in first.changes] == [("added", "id"), ("added", "region")]
    assert first.since is not None
    changes = [(one.change, one.column, one.before) for schema in later for one in schema.changes]
    assert changes == [
        ("renamed", "zone", "region"),
        ("added", "fare", None),
        ("added", "note", None),
        ("dropped", "fare", "long"),
    ]
    assert later[-1].since is None, "nothing was written with it"


def test_since_when_a_check_fails(model: ReadModel, load: Load) -> None:
    load({"id": None}, {"id": 1})
    passed = load({"id": 1})
    first = load({"id": None}, {"id": 1})
    load({"id": None}, {"id": 1})
    (check,) = check_history(model, "nyc.trips", limit=2)
    assert [point.verdict for point in check.points] == ["fail", "fail"]
    assert check.failing_since is not None
    assert check.last_pass is not None
    assert (check.failing_since.run_id, check.last_pass.run_id) == (first.run_id, passed.run_id)
    assert (check.failing_runs, check.earlier) == (2, False)
    assert check_history(model, "nyc.nowhere") == ()


def test_commits_of_lakegate_and_of_others(big: BigLake) -> None:
    found = list_commits(big.model(), limit=1000).items
    assert found[0].kind == "other"
    assert found[0].message == HOSTILE
    revert = next(one for one in found if one.kind == "revert")
    assert revert.reverts
    assert all(one.reverted_by is None for one in found if one.kind == "publish")
    page = list_commits(big.model(), limit=2)
    assert list_commits(big.model(), limit=3, cursor=page.next).items == found[2:5]
    with pytest.raises(InputError, match="isn't the start of a page"):
        list_commits(big.model(), cursor="<script>")
    branch = next(ref for ref in big.model().branches() if ref.name.startswith("wap/"))
    assert list_commits(big.model(), branch.name, cursor=branch.hash).items[0].hash == branch.hash
    with pytest.raises(InputError, match="isn't in the history of 'main'"):
        list_commits(big.model(), cursor=branch.hash)


def test_files_and_where_they_went(big: BigLake) -> None:
    model = big.model()
    run = next(run for run in reversed(big.runs) if run.status == "published" and run.request is not None)
    assert run.request is not None
    name = run.request.batch.files[0].uri.rpartition("/")[2]
    (one,) = list_files(model, search=name.upper()).items
    assert (one.name, one.run_id, one.rows) == (name, run.run_id, 40)
    assert (one.published, one.status, one.at) == (True, "published", run.finished_at)
    odd = list_files(model, search="<script> 🐘").items
    assert odd
    assert all(one.name.startswith("<script> 🐘 trips_") for one in odd)
    first = list_files(model, table=big.tables[0], limit=5)
    rest = list_files(model, table=big.tables[0], limit=1000, cursor=first.next)
    whole = list_files(model, table=big.tables[0], limit=1000)
    assert first.items + rest.items == whole.items
    assert whole.next is None
    with pytest.raises(InputError, match="isn't the start of a page"):
        list_files(model, cursor="<script>")


def test_a_metadata_file_that_is_gone_is_named(tmp_path: Path) -> None:
    lake = big_lake(tmp_path, runs=4, tables=1, branches=0)
    model, table = lake.model(), lake.tables[0]
    shutil.rmtree(tmp_path / ".lakegate/warehouse" / table.replace(".", "/"))
    for read in (get_table, list_snapshots, column_history, list_data_files, list_partitions, schema_changes):
        with pytest.raises(NotFoundError, match="doesn't exist"):
            read(model, table)
    assert list_commits(model).items
    assert check_history(model, table)
    lake.close()


def test_more_files_than_are_looked_at(house: FakeLakehouse, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        load({"id": number})
    monkeypatch.setattr("lakegate.dashboard.tables._MOST_FILES", 2)
    page = list_data_files(model_of(house), "nyc.trips")
    assert (len(page.items), page.complete, page.total) == (2, False, None)
