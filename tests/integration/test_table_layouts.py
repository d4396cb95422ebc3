"""Tables as other writers leave them, published from their branch and maintained, on real Spark, Iceberg and Nessie."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from lakegate.iceberg.files import local_path
from lakegate.lake import Lake, connect
from lakegate.local.state import StackState
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import NO_SNAPSHOT, CommitRequest, TablePointer
from lakegate.spark.sessions import CATALOG, end_session, remote_sessions, session_settings
from support.equality_deletes import delete_equal
from support.lakes import components_of, session_of

pytestmark = pytest.mark.jvm

NAMESPACE = "layouts"
OTHERS = "others"
MORE = 900
IN_PLACE = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge"))
COLUMNS = "id bigint, zone string, n int"
LONG = pa.int64()


class Writer:
    """Another writer: Spark without lakegate, on a branch."""

    def __init__(self, lake: Lake, stack: StackState, branch: str) -> None:
        self.components: Any = components_of(lake)
        self.catalog = self.components.catalog
        self.branch = branch
        self.warehouse = self.components.warehouse
        lake.branches.create(branch)
        options = self.components.spark_options(self.catalog.get_ref(branch))
        self.session: Any = remote_sessions(stack.spark_url)(session_settings(options))
        self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{NAMESPACE}").collect()

    def sql(self, statement: str) -> list[Any]:
        found: list[Any] = self.session.sql(statement).collect()
        return found

    def pointer(self, table: TableIdentifier) -> TablePointer:
        found: TablePointer | None = self.catalog.get_table(table, self.catalog.get_ref(self.branch))
        return found or TablePointer(
            table=table,
            content_id=None,
            metadata_location="",
            snapshot_id=NO_SNAPSHOT,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )

    def put(self, pointer: TablePointer) -> None:
        head = self.catalog.get_ref(self.branch)
        self.catalog.commit(CommitRequest(branch=self.branch, base=head.hash, message="by hand", puts=(pointer,)))


@dataclass
class Layout:
    """A table that another writer makes.

    Attributes:
        ids: The ids of its rows, in the end.
        read_by_all: Whether PyIceberg can read it.
    """

    writer: Writer
    name: str
    ids: set[int] = field(default_factory=set)
    version: int = 2
    read_by_all: bool = True

    @property
    def table(self) -> str:
        return f"{NAMESPACE}.{self.name}"

    @property
    def sql_name(self) -> str:
        return f"{CATALOG}.{self.table}"

    def create(self, *, by: str = "", properties: str = IN_PLACE, columns: str = COLUMNS, version: int = 2) -> None:
        self.version = version
        self.sql(
            f"CREATE TABLE {{}} ({columns}) {f'PARTITIONED BY ({by})' if by else ''} "
            f"TBLPROPERTIES ('format-version' = '{version}', {properties})"
        )

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.writer.sql(statement.format(self.sql_name))

    def insert(self, first: int, rows: int, files: int, then: str = "") -> None:
        """Add rows of zones a and b, in at least ``files`` files."""
        self.sql(
            f"INSERT INTO {{}} SELECT id, if(id % 2 = 0, 'a', 'b'), id {then} "
            f"FROM range({first}, {first + rows}, 1, {files})"
        )
        self.ids |= set(range(first, first + rows))

    def delete(self, *ids: int) -> None:
        self.sql(f"DELETE FROM {{}} WHERE id IN ({', '.join(map(str, ids))})")
        self.ids -= set(ids)

    def delete_equal(self, spec_id: int = 0, partition: tuple[object, ...] = (), **values: pa.Array[Any]) -> None:
        pointer = self.writer.pointer(TableIdentifier.parse(self.table))
        self.writer.put(delete_equal(pointer, pa.table(values), spec_id=spec_id, partition=partition))


LAYOUTS: dict[str, Callable[[Layout], None]] = {}


def layout(make: Callable[[Layout], None]) -> Callable[[Layout], None]:
    LAYOUTS[make.__name__] = make
    return make


@layout
def equality_deletes(one: Layout) -> None:
    one.create()
    one.insert(0, 12, 4)
    one.delete_equal(id=pa.array([1, 5, 9]))
    one.insert(5, 1, 1)  # comes after the delete, so it stays
    one.delete_equal(n=pa.array([2, 3], pa.int32()), zone=pa.array(["a", "a"]))
    one.delete(4)
    one.sql("ALTER TABLE {} DROP COLUMN n")  # which tells what is deleted
    one.ids -= {1, 9, 2}
    one.read_by_all = False


@layout
def equality_deletes_of_all_partitions(one: Layout) -> None:
    one.create()
    one.insert(0, 6, 2)
    one.sql("ALTER TABLE {} ADD PARTITION FIELD zone")
    one.insert(6, 6, 3)
    one.delete_equal(id=pa.array([0, 7]))
    one.delete_equal(1, ("a",), id=pa.array([8, 9]))  # 9 is in zone b
    one.delete_equal(1, ("b",), zone=pa.array(["a", None], pa.string()))
    one.sql("ALTER TABLE {} RENAME COLUMN id TO key", "ALTER TABLE {} RENAME COLUMN key TO id")
    one.ids -= {0, 7, 8}
    one.read_by_all = False


@layout
def equality_deletes_of_version_3(one: Layout) -> None:
    one.create(version=3)
    one.insert(0, 12, 3)
    one.delete_equal(id=pa.array([1, 5, 9]))
    one.insert(5, 1, 1)
    one.delete(3)
    one.sql("UPDATE {} SET n = -1 WHERE id = 5")
    one.ids -= {1, 9}
    one.read_by_all = False


def pyiceberg_table(one: Layout, schema: pa.Schema) -> tuple[SqlCatalog, Table]:
    catalog = SqlCatalog("others", uri="sqlite:///:memory:", warehouse=f"{one.writer.warehouse}/of others")
    catalog.create_namespace("others")
    return catalog, catalog.create_table("others.it", schema)


@layout
def written_by_pyiceberg(one: Layout) -> None:
    inner: Any = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    schema = pa.schema([("id", LONG), ("zone", pa.string()), ("s", inner)])
    catalog, table = pyiceberg_table(one, schema)

    def append(first: int, zone: str = "zone") -> None:
        rows: list[dict[str, Any]] = [
            {"id": first + at, zone: "ab"[at % 2], "s": {"a": at, "b": [{"c": None}, {"c": "x"}]} if at else None}
            for at in range(4)
        ]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
        one.ids |= {row["id"] for row in rows}

    append(0)
    append(10)
    append(40)
    with table.update_spec() as spec:
        spec.add_field("zone", IdentityTransform(), "zone")
    append(20)
    table.delete("id = 1")
    with table.update_schema() as change:
        change.rename_column("zone", "area")
        change.rename_column("s.a", "first")
    with table.update_schema() as change:
        change.add_column(("s", "a"), table.schema().find_type("id"))
    with table.update_spec() as spec:
        spec.add_field("id", IdentityTransform(), "by_id")
    catalog.drop_table("others.it")
    rows: list[dict[str, Any]] = [
        {"id": 30, "area": None, "s": {"first": 1, "a": 2}},
        {"id": 31, "area": "a/b %2F=", "s": None},
    ]
    table = catalog.register_table("others.it", table.metadata_location)
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    table.delete("id = 21")
    table.refresh()
    snapshot, known = table.current_snapshot(), table.metadata
    assert snapshot is not None
    pointer = one.writer.pointer(TableIdentifier.parse(one.table))
    numbers = {"schema_id": known.current_schema_id, "spec_id": known.default_spec_id}
    changed = {"metadata_location": table.metadata_location, "snapshot_id": snapshot.snapshot_id, **numbers}
    one.writer.put(pointer.model_copy(update=changed))
    catalog.close()
    one.ids = (one.ids | {30, 31}) - {1, 21}


@layout
def evolved_partitioning(one: Layout) -> None:
    one.create(properties=f"{IN_PLACE}, 'write.delete.granularity' = 'partition'", columns=f"{COLUMNS}, at date")
    one.insert(0, 4, 2, ", date '2026-01-01'")
    one.sql("ALTER TABLE {} ADD PARTITION FIELD zone")
    one.insert(4, 8, 4, ", date '2026-02-01'")
    one.delete(1, 5, 6)
    one.sql("ALTER TABLE {} REPLACE PARTITION FIELD zone WITH bucket(2, id)")
    one.sql("ALTER TABLE {} ADD PARTITION FIELD months(at)")
    one.insert(12, 4, 2, ", date '2026-03-01'")
    one.delete(2, 7, 12)
    one.sql("UPDATE {} SET n = -1 WHERE id IN (3, 8, 13)")


@layout
def version_1_to_3(one: Layout) -> None:
    one.create(by="zone", properties="'x' = 'y'", version=1)
    one.insert(0, 6, 2)
    one.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ('format-version' = '2', {IN_PLACE})")
    one.insert(6, 4, 2)
    one.delete(1, 6)
    one.sql("ALTER TABLE {} SET TBLPROPERTIES ('format-version' = '3')")
    one.insert(10, 4, 1)
    one.delete(2, 7, 10)
    one.version = 3


@layout
def other_formats(one: Layout) -> None:
    one.create(by="zone")
    for first, name in enumerate(("orc", "avro", "parquet")):
        one.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ('write.format.default' = '{name}')")
        one.insert(first * 10, 4, 2)
        one.delete(first * 10 + 1)
    one.read_by_all = False


@layout
def renamed_and_nested(one: Layout) -> None:
    columns = "id bigint, k string, s struct<a: int, b: struct<c: string, d: double>>, m map<string, struct<p: int>>"
    one.create(by="truncate(1, k)", columns=columns)
    numbers = enumerate(("double('NaN')", "double('-0.0')", "0.0D", "NULL", "1.5D"))
    rows = [
        f"({at}, 'k{at}', named_struct('a', {at}, 'b', named_struct('c', 'c', 'd', {number})), "
        f"map('k', named_struct('p', {at})))"
        for at, number in numbers
    ]
    one.sql(f"INSERT INTO {{}} VALUES {', '.join(rows)}")
    one.sql(
        "ALTER TABLE {} RENAME COLUMN s.a TO z",
        "ALTER TABLE {} DROP COLUMN s.b.c",
        "ALTER TABLE {} ADD COLUMN s.b.c int",
        "ALTER TABLE {} ADD COLUMN m.value.q string FIRST",
        "ALTER TABLE {} RENAME COLUMN k TO l",
        "ALTER TABLE {} ADD COLUMN k int FIRST",
        "INSERT INTO {} VALUES (1, 10, 'k', named_struct('z', 1, 'b', named_struct('d', 2.0D, 'c', 3)), NULL)",
        "INSERT INTO {} VALUES (1, 11, NULL, NULL, NULL)",
    )
    one.delete(1)
    one.ids = {0, 2, 3, 4, 10, 11}


class Published:
    """A layout on ``main``."""

    def __init__(self, lake: Lake, made: Layout) -> None:
        self.lake, self.made, self.table = lake, made, made.table
        self.states: list[tuple[str, str]] = []
        """Commit and metadata file of each state to read."""

    def note(self) -> None:
        """Have :meth:`rows` read what the table holds now."""
        commit = components_of(self.lake).catalog.get_ref("main").hash
        self.states.append((commit, self.lake.table(self.table).metadata.metadata_location))

    def rows(self) -> list[dict[int, str]]:
        """Return each state's rows as Spark reads them, by ``id``; in one query, as each costs a plan.

        Those of version 3 come with their row ids, which are checked.
        """
        ids = ", _row_id, _last_updated_sequence_number" if self.made.version == 3 else ""
        name = TableIdentifier.parse(self.table)
        names = (name.sql(CATALOG, ref=f"main#{commit}") for commit, _ in self.states)
        asked = (f"SELECT {number} AS _state, *{ids} FROM {one}" for number, one in enumerate(names))
        table = session_of(components_of(self.lake)).sql(" UNION ALL ".join(asked)).toArrow()
        states: list[list[dict[str, Any]]] = [[] for _ in self.states]
        for row in table.to_pylist():
            states[row.pop("_state")].append(row)
        return [self._by_id(found, location) for found, (_, location) in zip(states, self.states, strict=True)]

    def _by_id(self, found: list[dict[str, Any]], location: str) -> dict[int, str]:
        if self.made.version == 3:
            document = json.loads(local_path(location).read_text())
            assert len({row["_row_id"] for row in found}) == len(found)
            assert all(0 <= row["_row_id"] < document["next-row-id"] for row in found)
        rows = {row["id"]: repr(sorted(row.items())) for row in found}
        assert len(rows) == len(found)
        return rows

    def files(self) -> set[str]:
        return {file.path for file in self.lake.table(self.table).files()}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, stack: StackState) -> Iterator[Lake]:
    """A lake with a journal and a warehouse of its own."""
    folder = tmp_path_factory.mktemp("layouts")
    warehouse = (folder / "warehouse").as_uri()
    with connect(folder / "home", engine=stack.spark_url, catalog=stack.nessie_uri, warehouse=warehouse) as opened:
        yield opened


@pytest.fixture(scope="module")
def made(lake: Lake, stack: StackState) -> dict[str, Layout]:
    """Every layout, made on one branch and published from there; and a branch that adds a row to each."""
    writer = Writer(lake, stack, OTHERS)
    made = {name: Layout(writer, name) for name in LAYOUTS}
    for name, make in LAYOUTS.items():
        make(made[name])
    assert lake.publish(OTHERS).status == "published"
    end_session(writer.session)
    return made


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_maintained(name: str, lake: Lake, made: dict[str, Layout]) -> None:
    one = made[name]
    found = Published(lake, one)
    found.note()
    files = found.files()
    branch = lake.branches.create(f"more-{name}").name
    more = f"{CATALOG}.{NAMESPACE}.`{name}@{branch}`"
    session_of(components_of(lake)).sql(f"INSERT INTO {more} (id) VALUES ({MORE})").collect()
    before_compaction = lake.publish(branch).publication
    assert before_compaction is not None
    assert lake.maintenance.optimize(one.table).status == "published"
    found.note()
    assert files - found.files()
    assert lake.maintenance.optimize(one.table).status == "skipped"

    lake.restore_table(one.table, at=before_compaction.commit)
    found.note()
    assert files < found.files()
    assert lake.maintenance.expire(one.table, older_than="0s").status == "published"
    found.note()

    before, compacted, uncompacted, expired = found.rows()
    assert before.keys() == one.ids
    assert before.items() < compacted.items()
    assert compacted.keys() == {*before, MORE}
    assert uncompacted == compacted
    assert expired == compacted
    if one.read_by_all:
        assert set(lake.table(one.table).to_arrow(columns=["id"])["id"].to_pylist()) == {*one.ids, MORE}


def test_the_lake_is_sound(lake: Lake, made: dict[str, Layout]) -> None:
    report = lake.maintenance.verify([one.table for one in made.values()], deep=True)
    assert report.tables == len(made)
    assert report.passed, report.findings
