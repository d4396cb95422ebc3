"""Staged files on tables that main changed meanwhile, read back by Spark and by PyIceberg."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lakegate.components import Components
from lakegate.errors import NotReplayableError
from lakegate.iceberg.editor import IcebergTableEditor
from lakegate.iceberg.files import local_path
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.refs import CommitRequest, TablePointer
from lakegate.spark.sessions import CATALOG
from support.iceberg_tables import as_pyiceberg_has_it
from support.lakes import session_of
from support.version_1 import leave_out_counts

pytestmark = pytest.mark.jvm

Row = dict[str, Any]
COLUMNS = "id bigint, region string, at timestamp_ntz, n int, fare decimal(9, 2)"
BY_REGION_AND_DAY = "PARTITIONED BY (region, days(at))"


@dataclass(frozen=True)
class Scenario:
    """How the table is made, what main does to it while a run is staged, and how that changes the run's rows."""

    main: Sequence[str] = ()
    clause: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    base: int = 1
    """In how many commits the rows were written that were there before."""
    added: Mapping[str, Any] = field(default_factory=dict)
    hidden: int = 0
    storage: bool = False
    """Whether its files are of other kinds or in other places than the others', and not just other metadata."""
    appends: str = "INSERT INTO {t} VALUES {rows}"

    def seen(self, row: Row) -> Row:
        return row | dict(self.added)


SCENARIOS = {
    "partitioned": Scenario(main=["INSERT INTO {t} VALUES {rows}"], clause=BY_REGION_AND_DAY, storage=True),
    "field_added": Scenario(
        main=["ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)", "INSERT INTO {t} VALUES {rows}"],
        clause="PARTITIONED BY (region)",
    ),
    "column_added": Scenario(
        main=["ALTER TABLE {t} ADD COLUMN extra string", "INSERT INTO {t} SELECT *, 'new' FROM VALUES {rows}"],
        added={"extra": None},
        appends="INSERT INTO {t} SELECT *, NULL FROM VALUES {rows}",
    ),
    "promoted": Scenario(
        main=[
            "ALTER TABLE {t} ALTER COLUMN n TYPE bigint",
            "ALTER TABLE {t} ALTER COLUMN fare TYPE decimal(12, 2)",
            "INSERT INTO {t} VALUES {rows}",
        ],
        clause="PARTITIONED BY (n, fare)",
        properties={"commit.manifest.min-count-to-merge": "2"},
        base=2,
    ),
    "compacted": Scenario(
        main=["CALL {c}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))"],
        clause="PARTITIONED BY (region)",
        base=2,
        storage=True,
    ),
    "overwritten": Scenario(main=["INSERT OVERWRITE {t} VALUES {rows}"], clause=BY_REGION_AND_DAY),
    "deleted_by_delete_files": Scenario(
        main=["DELETE FROM {t} WHERE id IN (1, 2, 101, 102)", "INSERT INTO {t} VALUES {rows}"],
        properties={"write.delete.mode": "merge-on-read"},
        hidden=2,
        storage=True,
    ),
    "merging": Scenario(
        main=["INSERT INTO {t} VALUES {rows}", "DELETE FROM {t} WHERE id = 3"],
        clause="PARTITIONED BY (bucket(3, id), truncate(1, region))",
        properties={"commit.manifest.min-count-to-merge": "2"},
        base=2,
        storage=True,
    ),
    "elsewhere": Scenario(
        main=["INSERT INTO {t} VALUES {rows}"],
        properties={"write.metadata.compression-codec": "gzip", "write.metadata.path": "{folder}"},
        storage=True,
    ),
}


def rows(first: int, count: int) -> list[Row]:
    return [
        {
            "id": first + i,
            "region": f"r{i % 3}",
            "at": datetime(2026, 1, 1 + i % 4, 12),
            "n": i,
            "fare": Decimal(100 + i) / 4,
        }
        for i in range(count)
    ]


def literal(values: Sequence[Row]) -> str:
    return ", ".join(
        f"({r['id']}, '{r['region']}', timestamp_ntz '{r['at']}', {r['n']}, cast({r['fare']} AS decimal(9, 2)))"
        for r in values
    )


BASE, STAGED, MEANWHILE, LATER = rows(0, 10), rows(100, 12), rows(500, 6), rows(900, 4)


class Place:
    """A table on main, and a branch where a run is staged."""

    def __init__(self, components: Components, namespace: str) -> None:
        self.catalog = components.catalog
        self.reader = components.reader
        self.session: Any = session_of(components)  # Spark's own, behind the seam
        self.editor = IcebergTableEditor()
        self.store = components.files
        self.table = TableIdentifier(namespace=(namespace,), name="t")
        self.branch = f"stage-{uuid.uuid4().hex[:12]}"
        self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{quote(namespace)}")

    def sql(self, statement: str, ref: str = "main", values: Sequence[Row] = ()) -> list[Any]:
        name = f"{CATALOG}.{quote(self.table.namespace[0])}.{quote('t' if ref == 'main' else f't@{ref}')}"
        text = statement.format(t=name, c=CATALOG, n=str(self.table), rows=literal(values))
        return list(self.session.sql(text).collect())

    def create(self, clause: str = "", properties: Mapping[str, str] | None = None, ref: str = "main") -> None:
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in (properties or {}).items())
        options = f" TBLPROPERTIES ({listed})" if listed else ""
        self.sql(f"CREATE TABLE {{t}} ({COLUMNS}) USING iceberg {clause}{options}", ref)

    def fork(self) -> None:
        self.catalog.create_branch(self.branch, self.catalog.get_ref("main"))

    def pointer(self, ref: str = "main") -> TablePointer:
        found = self.catalog.get_table(self.table, self.catalog.get_ref(ref))
        assert found is not None
        return found

    def stage(self) -> tuple[TablePointer, list[int]]:
        """Append twice on the branch, as a run with two writes does."""
        known = {s.snapshot_id for s in self.reader.snapshots(self.pointer(self.branch))}
        for half in (STAGED[:6], STAGED[6:]):
            self.sql("INSERT INTO {t} VALUES {rows}", self.branch, half)
        pointer = self.pointer(self.branch)
        return pointer, [s.snapshot_id for s in self.reader.snapshots(pointer) if s.snapshot_id not in known]

    def publish(self, pointer: TablePointer) -> None:
        base = self.catalog.get_ref("main").hash
        self.catalog.commit(CommitRequest(branch="main", base=base, message="publish", puts=(pointer,)))

    def files(self, ref: str = "main") -> set[str]:
        return {file.path for file in self.reader.files(self.pointer(ref))}

    def metadata_files(self) -> list[str]:
        folder = self.pointer().metadata_location.rpartition("/")[0]
        return sorted(file.path for file in self.store.list(folder))

    def staged_files(self, pointer: TablePointer, snapshots: Sequence[int]) -> set[str]:
        return {file.path for file in self.reader.added_files(pointer, snapshots).files}

    def by_spark(self, *conditions: str) -> list[list[Row]]:
        """The rows that each condition is true for, or all rows; in one query, as each costs a plan."""
        asked = [f"SELECT {at} AS _at, * FROM {{t}} WHERE {one}" for at, one in enumerate(conditions or ["true"])]
        found: list[list[Row]] = [[] for _ in asked]
        for row in self.sql(" UNION ALL ".join(asked)):
            values = row.asDict()
            found[values.pop("_at")].append(values)
        return [in_order(some) for some in found]

    def by_pyiceberg(self, *filters: str) -> list[list[Row]]:
        table = as_pyiceberg_has_it(self.pointer().metadata_location)
        scans = [table.scan(row_filter=one) for one in filters] or [table.scan()]
        return [in_order(scan.to_arrow().to_pylist()) for scan in scans]

    def holds(self, expected: Sequence[Row], hidden: int = 0) -> None:
        """Assert what all the table's readers see, through filters too; ``hidden`` rows are in its files only."""
        expected = in_order(expected)
        noon = datetime(2026, 1, 3, 12)
        filters: list[tuple[str, str, Callable[[Row], bool]]] = [
            ("region = 'r1'", "region = 'r1'", lambda row: row["region"] == "r1"),
            (
                "at < timestamp_ntz '2026-01-03 12:00:00'",
                f"at < '{noon.isoformat()}'",
                lambda row: row["at"] < noon,
            ),
            ("n = 3", "n = 3", lambda row: row["n"] == 3),
        ]
        every, *wanted = [expected, *([row for row in expected if keeps(row)] for _, _, keeps in filters)]
        assert all(0 < len(some) < len(expected) for some in wanted)
        assert self.by_spark("true", *(sql for sql, _, _ in filters)) == [every, *wanted]
        assert self.by_pyiceberg() == [every]
        assert self.by_pyiceberg(*(expression for _, expression, _ in filters)) == wanted
        assert self.sql("SELECT count(*) AS n FROM {t}")[0]["n"] == len(expected)
        metadata = self.reader.metadata(self.pointer())
        at_most = len(expected) + hidden
        assert (metadata.rows, metadata.rows_at_most) == (None if hidden else at_most, at_most)

    def reads(self, expected: Sequence[Row]) -> None:
        """Assert all rows."""
        assert self.by_spark() == [in_order(expected)]
        assert self.by_pyiceberg() == [in_order(expected)]


def in_order(some: Iterable[Row]) -> list[Row]:
    return sorted(some, key=lambda row: int(row["id"]))


@pytest.fixture
def place(components: Components, namespace: str) -> Iterator[Place]:
    made = Place(components, namespace)
    yield made
    refs = {ref.name: ref for ref in made.catalog.list_refs()}
    if made.branch in refs:
        made.catalog.delete_ref(refs[made.branch])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.storage] * one.storage) for name, one in SCENARIOS.items()]
)
def test_staged_rows_join_what_main_became_and_leave_it_again(name: str, place: Place, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    folder = (tmp_path / "metadata of t").as_uri().replace("%20", " ")
    properties = {key: value.format(folder=folder) for key, value in scenario.properties.items()}
    place.create(scenario.clause, properties)
    for part in range(scenario.base):
        size = len(BASE) // scenario.base
        place.sql("INSERT INTO {t} VALUES {rows}", values=BASE[part * size : (part + 1) * size])
    place.fork()
    source, staged = place.stage()
    for statement in scenario.main:
        place.sql(statement, values=MEANWHILE)
    (before,), files = place.by_spark(), place.files()
    mine = [scenario.seen(row) for row in STAGED]
    own_files = place.staged_files(source, staged)
    onto = place.pointer()

    moved = place.editor.rebase(source, staged, onto)
    assert place.pointer() == onto
    place.publish(moved)
    place.holds([*before, *mine], scenario.hidden)
    assert place.files() == files | own_files
    assert place.staged_files(place.pointer(), staged) == own_files
    assert [s.snapshot_id for s in place.reader.snapshots(place.pointer())][-2:] == staged
    assert (moved.content_id, moved.schema_id, moved.spec_id) == (onto.content_id, onto.schema_id, onto.spec_id)
    assert moved.sort_order_id == onto.sort_order_id
    if name == "elsewhere":
        assert local_path(moved.metadata_location).parent == tmp_path / "metadata of t"
        assert moved.metadata_location.endswith(".gz.metadata.json")

    place.sql(scenario.appends, values=LATER)
    later = [scenario.seen(row) for row in LATER]
    assert place.by_pyiceberg() == [in_order([*before, *mine, *later])]  # Spark reads them below, without mine

    place.publish(place.editor.drop_files(place.pointer(), own_files, {"lakegate.reverts": "r1"}))
    place.holds([*before, *later], scenario.hidden)
    last = list(place.reader.snapshots(place.pointer()))[-1]
    assert (last.operation, last.summary["lakegate.reverts"]) == ("delete", "r1")
    place.sql(scenario.appends, values=rows(950, 1))
    place.reads([*before, *later, *(scenario.seen(row) for row in rows(950, 1))])


@pytest.mark.parametrize(
    "counts", [pytest.param(True, id="counted", marks=pytest.mark.storage), pytest.param(False, id="counts_left_out")]
)
def test_a_table_that_spark_wrote_as_version_1(place: Place, *, counts: bool) -> None:
    place.create("PARTITIONED BY (region)", {"format-version": "1", "commit.manifest.min-count-to-merge": "2"})
    place.sql("INSERT INTO {t} VALUES {rows}", values=BASE[:5])
    place.sql("INSERT INTO {t} VALUES {rows}", values=BASE[5:])
    place.sql("DELETE FROM {t} WHERE id = 3")
    place.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '2')")
    place.fork()
    source, staged = place.stage()
    if counts:
        place.sql("INSERT INTO {t} VALUES {rows}", values=MEANWHILE)
    else:
        place.sql("ALTER TABLE {t} SET TBLPROPERTIES ('note' = 'mine')")
        manifests = place.sql("SELECT manifest_list FROM {t}.snapshots ORDER BY committed_at")[-1][0]
        if not manifests.startswith("file:"):
            pytest.skip("a list is written again by hand on this machine only")
        leave_out_counts(local_path(manifests))
    (before,) = place.by_spark()

    place.publish(place.editor.rebase(source, staged, place.pointer()))

    place.holds([*before, *STAGED])
    place.sql("INSERT INTO {t} VALUES {rows}", values=LATER)
    place.reads([*before, *STAGED, *LATER])


@pytest.mark.storage
def test_two_runs_that_created_one_table(place: Place) -> None:
    place.fork()
    place.create(BY_REGION_AND_DAY, ref=place.branch)
    source, staged = place.stage()
    place.create(BY_REGION_AND_DAY)
    place.sql("INSERT INTO {t} VALUES {rows}", values=BASE)
    files = place.files()

    place.publish(place.editor.rebase(source, staged, place.pointer()))

    place.holds([*BASE, *STAGED])
    assert place.files() == files | place.staged_files(source, staged)
    place.sql("INSERT INTO {t} VALUES {rows}", values=LATER)
    place.reads([*BASE, *STAGED, *LATER])


def test_what_does_more_than_append_is_refused(place: Place) -> None:
    place.create()
    place.sql("INSERT INTO {t} VALUES {rows}", values=BASE)
    place.fork()
    place.sql("DELETE FROM {t} WHERE id < 3", place.branch)
    source = place.pointer(place.branch)
    staged = [s.snapshot_id for s in place.reader.snapshots(source)][1:]
    before = place.metadata_files()

    with pytest.raises(NotReplayableError, match=r"snapshot \d+ did more than append") as caught:
        place.editor.rebase(source, staged, place.pointer())

    assert str(place.table) in caught.value.message
    assert before
    assert place.metadata_files() == before


@pytest.mark.storage
def test_files_with_deleted_rows_stay(place: Place) -> None:
    place.create(properties={"write.delete.mode": "merge-on-read"})
    place.sql("INSERT INTO {t} VALUES {rows}", values=BASE)
    place.fork()
    source, staged = place.stage()
    place.publish(place.editor.rebase(source, staged, place.pointer()))
    place.sql("DELETE FROM {t} WHERE id = 101")
    with pytest.raises(NotReplayableError, match="delete files deleted rows of"):
        place.editor.drop_files(place.pointer(), place.staged_files(source, staged), {})
    assert [len(some) for some in place.by_spark()] == [len(BASE) + len(STAGED) - 1]
