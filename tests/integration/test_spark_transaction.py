"""What a transaction writes with, on real Spark and Nessie: rows, snapshots, and what stays out of reach."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lakegate.components import Components
from lakegate.errors import InputError, LakegateError, QueryError, SchemaError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.tables import CreateTable, Snapshot

pytestmark = pytest.mark.jvm

RUN = "01TRANSACTION"
Rows = list[tuple[Any, ...]]


class OnBranch:
    """A transaction on a branch of its own, and what can be seen of it from outside."""

    def __init__(self, components: Components, namespace: str) -> None:
        self.namespace = namespace
        self.catalog = components.catalog
        self.reader = components.reader
        self.warehouse = components.warehouse
        self.main = components.catalog.get_ref("main")
        self.branch = components.catalog.create_branch(f"wap/{namespace}", self.main).name
        self.tx = components.engine.transaction(self.branch, RUN)

    def name(self, name: str = "t") -> TableIdentifier:
        return TableIdentifier(namespace=(self.namespace,), name=name)

    def add_namespace(self) -> None:
        head = self.catalog.get_ref(self.branch)
        request = CommitRequest(
            branch=self.branch, base=head.hash, message="namespace", namespaces=((self.namespace,),)
        )
        self.catalog.commit(request)

    def create(self, name: str = "t") -> CreateTable:
        return CreateTable(location=f"{self.warehouse}/{self.namespace}/{name}_{RUN}")

    def pointer(self, name: str = "t") -> TablePointer | None:
        return self.catalog.get_table(self.name(name), self.catalog.get_ref(self.branch))

    def snapshots(self, name: str = "t") -> list[Snapshot]:
        pointer = self.pointer(name)
        assert pointer is not None
        return list(self.reader.snapshots(pointer))

    def operations(self, name: str = "t") -> list[str | None]:
        """The kinds of all snapshots, each of which carries the run id."""
        found = self.snapshots(name)
        assert [snapshot.summary.get(RUN_ID_PROPERTY) for snapshot in found] == [RUN] * len(found)
        return [snapshot.operation for snapshot in found]

    def rows(self, name: str = "t") -> Rows:
        """The rows that are in the branch's files; :meth:`seen` asks the transaction."""
        pointer = self.pointer(name)
        assert pointer is not None
        found = self.reader.read_rows(pointer).read_all().to_pylist()
        return sorted(tuple(row.values()) for row in found)

    def seen(self, name: str = "t") -> Rows:
        return sorted(tuple(row) for row in self.tx.table(self.name(name)).collect())


@pytest.fixture
def on(components: Components, namespace: str) -> Iterator[OnBranch]:
    made = OnBranch(components, namespace)
    yield made
    made.tx.close()
    assert components.catalog.get_ref("main") == made.main


@pytest.fixture
def filled(on: OnBranch) -> OnBranch:
    return fill(on)


@pytest.fixture(scope="module")
def untouched(components: Components) -> Iterator[OnBranch]:
    """A transaction for all tests that leave its table ``t`` as it is."""
    made = fill(OnBranch(components, "untouched"))
    yield made
    made.tx.close()
    assert components.catalog.get_ref("main") == made.main


def fill(on: OnBranch) -> OnBranch:
    on.add_namespace()
    on.tx.append(on.name(), [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], on.create())
    return on


@pytest.mark.storage
def test_rows_of_all_kinds_are_appended_by_name(filled: OnBranch) -> None:
    pandas = pytest.importorskip("pandas")
    tx, table = filled.tx, filled.name()
    tx.append(table, pa.table({"V": ["c"], "ID": [3]}), None)
    tx.append(table, pandas.DataFrame({"v": ["d"], "id": [4]}, index=[77]), None)
    tx.append(table, tx.table(table).where("id = 1").selectExpr("v", "id + 4 AS id"), None)
    tx.append(table, [], None)
    assert filled.rows() == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "a")]
    assert filled.operations() == ["append"] * 5
    pointer = filled.pointer()
    assert pointer is not None
    assert filled.reader.metadata(pointer).location == filled.create().location


@pytest.mark.storage
def test_overwrite_replaces_all_rows_and_keeps_the_table(filled: OnBranch) -> None:
    before = filled.pointer()
    filled.tx.overwrite(filled.name(), filled.tx.table(filled.name()).where("id = 2"), None)
    assert filled.rows() == [(2, "b")]
    filled.tx.overwrite(filled.name(), [], None)
    assert filled.rows() == []
    after = filled.pointer()
    assert before is not None
    assert after is not None
    assert after.content_id == before.content_id
    assert filled.operations() == ["append", "overwrite", "delete"]


@pytest.mark.storage
def test_upsert_updates_and_inserts(filled: OnBranch) -> None:
    tx, table = filled.tx, filled.name()
    tx.upsert(table, [{"ID": 2, "v": "B"}, {"ID": 3, "v": "c"}], ["id"], None)
    assert filled.rows() == [(1, "a"), (2, "B"), (3, "c")]
    # The rows come from the very table that is written to.
    tx.upsert(table, tx.sql(f"SELECT id, upper(v) AS v FROM {table} WHERE id < 3"), ["id"], None)
    assert filled.seen() == filled.rows() == [(1, "A"), (2, "B"), (3, "c")]
    tx.upsert(table, [{"id": 3, "v": "c"}, {"id": 4, "v": "d"}], ["id", "v"], None)
    assert filled.rows() == [(1, "A"), (2, "B"), (3, "c"), (4, "d")]
    # With nothing to update, Iceberg calls it an append; it is no more an append than the others.
    assert filled.operations() == ["append", "overwrite", "overwrite", "append"]


def test_rows_that_are_computed_anew_each_time_are_upserted_as_they_were_checked(filled: OnBranch) -> None:
    frame = filled.tx.sql("SELECT CAST(id AS BIGINT) AS id, uuid() AS v FROM range(1000) WHERE rand() < 0.5")
    filled.tx.upsert(filled.name(), frame.selectExpr("CAST(rand() * 1e15 AS BIGINT) + 10 AS id", "v"), ["id"], None)
    added = int(filled.snapshots()[-1].summary["added-records"])
    assert len(filled.rows()) == 2 + added
    assert len({row[0] for row in filled.rows()}) == 2 + added


@pytest.mark.parametrize(
    ("rows", "kind", "said"),
    [
        ([{"id": 1}], SchemaError, "lack column 'v'"),
        ([{"id": 1, "v": "x", "vv": 1}], SchemaError, "has no column 'vv'"),
        (pa.table({"id": [1], "v": ["x"], "V": ["x"]}), SchemaError, "duplicate column names: 'v', 'V'"),
        ([{"id": "x", "v": "x"}], SchemaError, "Cannot safely cast `id`"),
        (pa.table({"id": pa.array([2**63], pa.uint64()), "v": ["x"]}), InputError, "uint64"),
        ([{"id": 1, "v": "x"}, {"id": "1", "v": "x"}], InputError, "values of 'id' aren't of one type"),
        ([{"id": 1.5, "v": "x"}], InputError, "Column 'id' holds 1.5, which long would round"),
    ],
)
def test_rows_that_do_not_fit_are_refused(untouched: OnBranch, rows: Any, kind: type[LakegateError], said: str) -> None:
    before = untouched.catalog.get_ref(untouched.branch)
    with pytest.raises(kind) as caught:
        untouched.tx.append(untouched.name(), rows, None)
    assert re.search(said, f"{caught.value.message} {caught.value.detail}")
    assert untouched.catalog.get_ref(untouched.branch) == before


def test_values_that_fail_while_being_written_are_the_inputs_fault(untouched: OnBranch) -> None:
    with pytest.raises(InputError) as caught:
        untouched.tx.append(untouched.name(), untouched.tx.sql("SELECT 1 DIV id AS id, 'x' AS v FROM range(1)"), None)
    assert "Division by zero" in f"{caught.value.message} {caught.value.detail}"
    with pytest.raises(QueryError) as caught:
        untouched.tx.sql(f"INSERT INTO {untouched.name()} SELECT 1 DIV id, 'x' FROM range(1)")
    assert "Division by zero" in f"{caught.value.message} {caught.value.detail}"
    assert untouched.operations() == ["append"]


@pytest.mark.storage
def test_statements_change_the_branch_once_and_all_snapshots_carry_the_run(filled: OnBranch) -> None:
    tx, table = filled.tx, filled.name()
    tx.sql(f"INSERT INTO {table} SELECT id + 2, v FROM {table}")
    assert filled.rows() == [(1, "a"), (2, "b"), (3, "a"), (4, "b")]
    tx.sql(f"UPDATE {table} SET v = 'z' WHERE id = 1;")
    tx.sql(
        f"MERGE INTO {table} t USING (SELECT 2L AS id, 'q' AS v UNION ALL SELECT 9L, 'n') s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert filled.rows() == [(1, "z"), (2, "q"), (3, "a"), (4, "b"), (9, "n")]
    tx.sql(f"DELETE FROM {table} AS x WHERE x.id IN (3, 4) OR v = 'n' -- whole files")
    assert filled.seen() == filled.rows() == [(1, "z"), (2, "q")]
    tx.sql(f"INSERT OVERWRITE {table} SELECT 7, 'o'")
    assert filled.rows() == [(7, "o")]
    tx.sql(f"DELETE FROM {table}")
    assert filled.seen() == filled.rows() == []
    assert len(filled.operations()) == 7


@pytest.mark.storage
def test_a_delete_of_whole_files_carries_the_run_and_leaves_rows_that_are_not_true(on: OnBranch) -> None:
    name = on.name()
    on.tx.sql(f"CREATE TABLE {name} (p int, x int) USING iceberg PARTITIONED BY (p)")
    on.tx.sql(f"INSERT INTO {name} VALUES (1, 1), (1, 2), (2, 1), (3, NULL)")
    on.tx.sql(f"DELETE FROM {name} WHERE p = 1")
    on.tx.sql(f"DELETE FROM {name} WHERE x > 0")
    assert on.rows() == [(3, None)]
    assert on.operations() == ["append", "delete", "delete"]


@pytest.mark.storage
def test_tables_are_created_altered_and_dropped_by_statement(on: OnBranch) -> None:
    name, other = on.name(), on.name("other")
    on.tx.sql(f"CREATE TABLE {name} USING iceberg AS SELECT 1 AS id")
    on.tx.sql(f"ALTER TABLE {name} ADD COLUMN w string")
    on.tx.sql(f"ALTER TABLE {name} ADD PARTITION FIELD id")
    on.tx.sql(f"CREATE TABLE {other} (id int)")
    on.tx.append(name, [{"id": 2, "w": "x"}], None)
    assert on.rows() == [(1, None), (2, "x")]
    assert on.operations() == ["append", "append"]
    assert on.operations("other") == []
    on.tx.sql(f"DROP TABLE {other}")
    assert on.pointer("other") is None


@pytest.mark.storage
def test_tables_of_one_name_on_two_branches_have_folders_of_their_own(on: OnBranch, components: Components) -> None:
    on.tx.sql(f"CREATE TABLE {on.name()} (id int)")
    second = components.catalog.create_branch(f"{on.branch}-2", on.main)
    other = components.engine.transaction(second.name, RUN)
    other.sql(f"CREATE TABLE {on.name()} (id int)")
    other.close()
    pointers = [on.pointer(), components.catalog.get_table(on.name(), components.catalog.get_ref(second.name))]
    locations = {on.reader.metadata(pointer).location for pointer in pointers if pointer is not None}
    assert len(locations) == 2
    assert all(location.startswith(f"{on.warehouse}/{on.namespace}/t_") for location in locations)


@pytest.mark.parametrize(
    ("own", "there", "message"),
    [
        ("named_struct('a', 1.5D, 'n', NULL)", "struct<a: int, n: int>", "'v.a' holds 1.5, which int would round"),
        ("map(1, 1.5D)", "map<bigint, int>", "Column 'v.value' holds 1.5, which int would round"),
    ],
)
def test_no_value_is_changed_beside_one_that_spark_converts(
    untouched: OnBranch, namespace: str, own: str, there: str, message: str
) -> None:
    tx, table = untouched.tx, untouched.name(namespace)
    tx.sql(f"CREATE TABLE {table} (v {there})")
    with pytest.raises(InputError) as caught:
        tx.append(table, tx.sql(f"SELECT {own} AS v"), None)
    assert message in f"{caught.value.message} {caught.value.detail}"
    exact = own.replace("1.5D", "2D")
    tx.append(table, tx.sql(f"SELECT {exact} AS v"), None)
    assert len(untouched.rows(namespace)) == 1


def test_other_references_and_what_is_not_there_are_out_of_reach(untouched: OnBranch) -> None:
    before = untouched.catalog.get_ref(untouched.branch)
    for statement in (
        f"SELECT * FROM {untouched.namespace}.`t@main`",
        f"SELECT * FROM {untouched.namespace}.t@main",
        f"SELECT * FROM {untouched.namespace}.none",
        "SELECT * FROM parquet.`/tmp`",
        "SELECT * FROM csv.x",
        "USE other",
        f"INSERT INTO {untouched.name()} SELECT 1, '${{spark.app.name}}', 3",
    ):
        with pytest.raises(QueryError):
            untouched.tx.sql(statement)
    with pytest.raises(QueryError) as caught:
        untouched.tx.table(untouched.name("none"))
    assert "cannot be found" in f"{caught.value.message} {caught.value.detail}"
    assert untouched.tx.sql("SELECT '${spark.app.name}'").collect()[0][0] == "${spark.app.name}"
    assert untouched.catalog.get_ref(untouched.branch) == before
