"""Batches whose columns aren't the table's, on real Spark and Nessie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.components import Components
from lakegate.errors import AuditFailedError, InputError, NotRevertableError, QueryError, SchemaError, SourceError
from lakegate.lake import Lake
from lakegate.model.batch import CsvOptions
from support.flow_support import when_reached
from support.lakes import session_of
from support.ledger_support import event_in

pytestmark = pytest.mark.jvm


@pytest.fixture
def table(namespace: str) -> str:
    return f"{namespace}.trips"


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def parquet(self, name: str, **columns: Any) -> Path:
        path = self.folder / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)
        return path

    def csv(self, name: str, text: str) -> Path:
        path = self.folder / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def rows(lake: Lake, table: str, *columns: str, where: str | None = None) -> list[dict[str, Any]]:
    return in_order(lake.table(table).to_arrow(columns=columns or None, where=where))


def rows_by_spark(lake: Lake, table: str, columns: str = "*") -> list[dict[str, Any]]:
    return in_order(lake.query(f"SELECT {columns} FROM {table}").to_arrow())


def in_order(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=lambda row: int(row["id"]))


def types(lake: Lake, table: str) -> dict[str, str]:
    return {column.name: column.type for column in lake.table(table).schema.columns}


def test_a_table_takes_what_the_next_months_bring(lake: Lake, table: str, files: Files) -> None:
    first = files.parquet(
        "january", id=pa.array([1, 2], pa.int32()), fare=pa.array([1.5, 2.5], pa.float32()), gone=pa.array(["x", "y"])
    )
    assert lake.ingest(table, first).status == "published"
    second = files.parquet(
        "february",
        ZONE=pa.array(["north", None]),
        ID=pa.array([2**40, 4], pa.int64()),
        fare=pa.array([1.1, 2.2], pa.float64()),
        tags=pa.array([["a"], None], pa.list_(pa.string())),
        at=pa.array([{"a b": 1, "long": "x"}, None]),
        nothing=pa.nulls(2),
    )
    with pytest.raises(SchemaError, match=r"'gone' \(string\) is missing") as refused:
        lake.ingest(table, second)
    assert "widen column id from int to long" in str(refused.value.hint)
    assert "--schema evolve" in str(refused.value.hint)

    # Checks of a batch are about its rows: the old ones have no zone, and there are four rows by now.
    checks = ["row_count(2, 2)", "not_null(ID)", "unique(id, scope='table')", "unique(zone, scope='table')"]
    plan = lake.plan(table, second, schema="evolve", checks=checks)
    assert [str(change) for change in plan.request.schema_changes] == [
        "widen column id from int to long",
        "widen column fare from float to double",
        "add column ZONE (string)",
        "add column tags (list<string>)",
        "add column at (struct<`a b`: long, long: string>)",
    ]
    assert [note.partition(";")[0] for note in plan.notes] == [
        "Column 'gone' (string) is missing in the batch",
        "Column 'nothing' isn't in the table and has no values",
        "Was 'gone' renamed to 'ZONE'? Both are string",
    ]
    run = lake.ingest(table, second, schema="evolve", checks=checks, on_rejected="return")
    assert (run.status, run.staged[0].change, run.staged[0].schema_changes) == (
        "published",
        "evolve",
        plan.request.schema_changes,
    )
    assert "add column ZONE (string)" in event_in(next(iter(lake.log()))).columns
    assert types(lake, table) == {
        "id": "long", "fare": "double", "gone": "string", "ZONE": "string", "tags": "list<string>",
        "at": "struct<`a b`: long, long: string>",
    }  # fmt: skip
    assert rows_by_spark(lake, table, "id, gone, ZONE, tags[0] AS tag, at.`a b` AS n") == [
        {"id": 1, "gone": "x", "ZONE": None, "tag": None, "n": None},
        {"id": 2, "gone": "y", "ZONE": None, "tag": None, "n": None},
        {"id": 4, "gone": None, "ZONE": None, "tag": None, "n": None},
        {"id": 2**40, "gone": None, "ZONE": "north", "tag": "a", "n": 1},
    ]
    # Without Spark, by the widened types.
    assert lake.table(table).to_arrow(columns=["id"], where="id > 2").num_rows == 2

    # An older month still goes in, and changes nothing.
    late = files.parquet("late", fare=pa.array([9.0], pa.float32()), id=pa.array([9], pa.int32()))
    again = lake.ingest(table, late, schema="evolve", checks=["unique(id, scope='table')"], on_rejected="return")
    assert (again.status, again.staged[0].change) == ("published", "append")
    repeated = files.parquet("repeated", id=pa.array([9], pa.int32()), fare=pa.array([1.0]))
    assert (
        lake.ingest(table, repeated, schema="evolve", checks=["unique(id, scope='table')"], on_rejected="return").status
        == "rejected"
    )

    with pytest.raises(NotRevertableError):
        lake.revert(run.run_id)
    lake.revert(again.run_id)
    lake.revert(run.run_id)
    assert types(lake, table) == {"id": "int", "fare": "float", "gone": "string"}
    assert [row["id"] for row in rows(lake, table)] == [1, 2]

    # Fields of structs go by name, too, and a list without values is of any type.
    nested = f"{table}_nested"
    flat = pa.array([{"a b": 1, "long": "x"}])
    lake.ingest(nested, files.parquet("flat", id=pa.array([9]), tags=pa.array([["a"]]), at=flat))
    deep = files.parquet("deep", id=pa.array([10]), at=pa.array([{"LONG": "y", "zone": {"n": [1]}, "a b": 2}]))
    with pytest.raises(
        SchemaError, match=r"field 'at\.zone' \(struct<n: list<long>>\) isn't in the table; accepted by"
    ):
        lake.ingest(nested, deep)
    [staged] = lake.ingest(nested, deep, schema="evolve").staged
    changes = [str(change) for change in staged.schema_changes]
    assert (staged.change, changes) == ("evolve", ["add field at.zone (struct<n: list<long>>)"])
    deepest = pa.array([{"zone": {"n": [1], "key": 1}}, {"zone": {"n": [2], "key": 1}}])
    key = files.parquet("key", id=pa.array([12, 13]), at=deepest)
    checks = ["unique(at.zone.key, scope='table')", "unique(at, scope='table')", "unique(id, scope='table')"]
    keyed = lake.ingest(nested, key, schema="evolve", checks=checks, on_rejected="return")
    assert [one.failing_rows for one in keyed.reports[0].results] == [2, 0, 0]
    (lines := files.folder / "deep.jsonl").write_text('{"id": 11, "tags": [], "at": {"a b": null, "zone": {"n": []}}}')
    lake.ingest(nested, lines, schema="evolve")
    expected = [
        {"id": 9, "tags": ["a"], "at": {"a b": 1, "long": "x", "zone": None}},
        {"id": 10, "tags": None, "at": {"a b": 2, "long": "y", "zone": {"n": [1]}}},
        {"id": 11, "tags": [], "at": {"a b": None, "long": None, "zone": {"n": []}}},
    ]
    assert rows_by_spark(lake, nested) == rows(lake, nested) == expected


def test_files_of_other_columns_are_one_batch(lake: Lake, table: str, files: Files) -> None:
    files.parquet("in/1", id=pa.array([1], pa.int32()), fare=pa.array([1.5]), empty=pa.nulls(1))
    files.parquet("in/2", zone=pa.array(["x"]), fare=pa.array([2.5]), ID=pa.array([2], pa.int64()))
    files.parquet("in/3", empty=pa.array([7], pa.int64()), id=pa.array([3], pa.int32()), fare=pa.array([3]))
    files.parquet("in/4", id=pa.array([4], pa.int32()), fare=pa.array([4.5]), never=pa.nulls(1))
    folder = files.folder / "in"
    with pytest.raises(SchemaError, match="doesn't have the columns of"):
        lake.ingest(table, folder)
    assert lake.ingest(table, folder, schema="evolve", checks=["row_count(4, 4)"]).status == "published"
    assert rows(lake, table) == [
        {"id": 1, "fare": 1.5, "empty": None, "zone": None},
        {"id": 2, "fare": 2.5, "empty": None, "zone": "x"},
        {"id": 3, "fare": 3.0, "empty": 7, "zone": None},
        {"id": 4, "fare": 4.5, "empty": None, "zone": None},
    ]
    rounded = files.parquet("long", id=pa.array([5]), fare=pa.array([2**53 + 1]))
    with pytest.raises(SourceError, match="its column 'fare' while") as caught:
        lake.ingest(table, rounded, schema="evolve")
    assert (
        "Column 'fare' holds 9007199254740993, which a double may round."
        in f"{caught.value.message} {caught.value.detail}"
    )
    exact = files.parquet("exact", id=pa.array([6, 7, 8]), fare=pa.array([1_700_000_000_000_000, -(2**53), None]))
    assert lake.ingest(table, exact, schema="evolve").status == "published"
    assert [row["fare"] for row in rows(lake, table)[4:]] == [1.7e15, -(2.0**53), None]
    files.csv("text/1", "id,fare\n10,1\n")
    files.csv("text/2", "fare,note,id\n2.5,hello,11\n")
    files.csv("text/3", "fare,id\n4,12\n")
    assert lake.ingest(table, files.folder / "text", schema="evolve").status == "published"
    assert rows(lake, table, "id", "fare", "note", "zone", where="id >= 10") == [
        {"id": 10, "fare": 1.0, "note": None, "zone": None},
        {"id": 11, "fare": 2.5, "note": "hello", "zone": None},
        {"id": 12, "fare": 4.0, "note": None, "zone": None},
    ]
    files.parquet("odd/1", id=pa.array([1], pa.int64()))
    files.parquet("odd/2", id=pa.array(["one"]))
    with pytest.raises(SchemaError, match="'id' is long in some files of the batch and string in others"):
        lake.ingest(table, files.folder / "odd", schema="evolve")


def test_extra_columns_can_be_left_out(lake: Lake, table: str, files: Files) -> None:
    lake.ingest(table, files.parquet("a", id=pa.array([1], pa.int64())))
    extra = files.parquet("b", more=pa.array(["x"]), id=pa.array([2], pa.int64()))
    run = lake.ingest(table, extra, schema="ignore_extra")
    assert (run.status, run.staged[0].change) == ("published", "append")
    lake.ingest(table, files.csv("c", "more,id\nx,3\n"), schema="ignore_extra")
    assert rows(lake, table) == [{"id": 1}, {"id": 2}, {"id": 3}]
    with pytest.raises(SchemaError, match=r"'id' .* is missing"):
        lake.ingest(table, files.parquet("d", more=pa.array(["x"])), schema="ignore_extra")


def test_two_runs_that_evolve_the_table_at_once_both_land_right(
    lake: Lake, table: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ingest(table, files.parquet("a", id=pa.array([1], pa.int64())))
    tips = files.parquet("tips", id=pa.array([2], pa.int64()), tip=pa.array([2.0]))
    taxes = files.parquet("taxes", id=pa.array([3], pa.int64()), tax=pa.array([3.0]))
    with when_reached(monkeypatch, "before-publish", lambda: lake.ingest(table, taxes, schema="evolve")):
        run = lake.ingest(table, tips, schema="evolve")
    assert run.status == "published"
    assert rows(lake, table, "id", "tip", "tax") == [
        {"id": 1, "tip": None, "tax": None},
        {"id": 2, "tip": 2.0, "tax": None},
        {"id": 3, "tip": None, "tax": 3.0},
    ]
    # Plain appends are rebased onto the wider table, or redone.
    plain = files.parquet("plain", id=pa.array([4], pa.int64()), tip=pa.array([4.0]), tax=pa.array([4.0]))
    more = files.parquet("more", id=pa.array([5], pa.int64()), toll=pa.array([5.0]))
    with when_reached(monkeypatch, "before-publish", lambda: lake.ingest(table, more, schema="evolve")):
        assert lake.ingest(table, plain).status == "published"
    assert rows(lake, table, "id", "tip", "toll")[3:] == [
        {"id": 4, "tip": 4.0, "toll": None},
        {"id": 5, "tip": None, "toll": 5.0},
    ]


def test_a_change_that_a_killed_process_made_is_not_made_again(
    lake: Lake, components: Components, table: str, files: Files
) -> None:
    lake.ingest(table, files.parquet("a", id=pa.array([1], pa.int32())))
    more = files.parquet("b", id=pa.array([2**40], pa.int64()), tip=pa.array([2.0]))
    namespace, name = table.split(".")

    branch = lake.branches.create(f"wap/{table}_20260131T000000-1").name
    sql = f"ALTER TABLE lakegate.{namespace}.`{name}@{branch}` ADD COLUMNS (tip DOUBLE)"
    session_of(components).sql(sql)
    run = lake.ingest(table, more, schema="evolve", run_id="20260131T000000-1")
    assert (run.status, run.staged[0].change) == ("published", "evolve")
    assert rows(lake, table) == [{"id": 1, "tip": None}, {"id": 2**40, "tip": 2.0}]


def test_names_decide_whatever_the_order_case_and_types_of_each_file(lake: Lake, table: str, files: Files) -> None:
    # A check that sets rows aside reads the files one by one.
    aside = "not_null(a, severity='quarantine')"
    stamp = pa.array([1_767_225_600_000_000_000], pa.timestamp("ns", "UTC"))
    files.parquet("new/1", id=pa.array([1], pa.int32()), a=pa.array(["a1"]), b=pa.array(["b1"]), Ts=stamp)
    files.parquet("new/2", b=pa.array(["b2"]), ts=stamp, a=pa.array(["a2"]), ID=pa.array([2], pa.int32()))
    assert lake.ingest(table, files.folder / "new", checks=[aside]).status == "published"
    files.parquet("new/3", TS=stamp, b=pa.array(["b3"]), a=pa.array(["a3"]), id=pa.array([3], pa.int32()))
    assert lake.ingest(table, files.folder / "new").status == "published"
    assert rows_by_spark(lake, table, "id, a, b, year(Ts) AS year") == [
        {"id": number, "a": f"a{number}", "b": f"b{number}", "year": 2026} for number in (1, 2, 3)
    ]
    # A column without values fits one of lists.
    plain = {"id": pa.array([4]), "a": pa.array(["a4"]), "b": pa.array(["b4"]), "Ts": stamp}
    lists = pa.array([["x"]], pa.list_(pa.string()))
    files.parquet("more/1", **plain, tags=lists)
    files.parquet("more/2", **plain, tags=pa.nulls(1))
    assert lake.ingest(table, files.folder / "more", schema="evolve").status == "published"
    assert [(row["id"], row["tags"]) for row in rows(lake, table) if row["tags"] is not None] == [(4, ["x"])]
    with pytest.raises(SchemaError, match="columns without names"):
        lake.ingest(table, files.csv("bare", "1,2\n"), schema="evolve", csv=CsvOptions(header=False))


def test_columns_change_by_hand_and_files_keep_their_names(lake: Lake, table: str, files: Files) -> None:
    first = lake.ingest(table, files.parquet("january", id=pa.array([1, 2]), fare=pa.array([1.0, 2.0])))
    assert first.publication is not None
    changed = lake.evolve_table(table, "RENAME COLUMN fare TO amount", "ADD COLUMN zone STRING")
    assert [str(change) for change in changed.staged[0].schema_changes] == [
        "rename column fare to amount",
        "add column zone (string)",
    ]
    assert (changed.status, changed.staged[0].change) == ("published", "metadata")
    [difference] = lake.diff(first.publication.commit, "main")
    assert difference.schema_changes == changed.staged[0].schema_changes

    # A file of each name, in one batch.
    both = (
        files.parquet("old", id=pa.array([3]), fare=pa.array([3.0])),
        files.parquet("new", amount=pa.array([4.0]), id=pa.array([4])),
    )
    lake.ingest(table, [str(path) for path in both], columns={"fare": "amount"}, schema="evolve")
    assert rows(lake, table, "id", "amount", "zone") == [
        {"id": id_, "amount": float(id_), "zone": None} for id_ in range(1, 5)
    ]
    with pytest.raises(AuditFailedError):
        lake.evolve_table(table, "ADD COLUMN note STRING", checks=["row_count(max=3)"])
    with pytest.raises(QueryError) as caught:
        lake.evolve_table(table, "DROP COLUMN nope")
    assert "nope" in f"{caught.value.message} {caught.value.detail}"

    before = next(lake.log(limit=1)).hash
    with lake.transaction() as tx:
        tx.upsert(table, [{"id": 1, "amount": 9.0, "zone": None}, {"id": 5, "amount": 5.0, "zone": None}], keys=["id"])
        tx.sql(f"DELETE FROM {table} WHERE id = 2")
    found = lake.diff_rows(table, before[:12], "main", key=["ID"])
    told = {kind: getattr(found, kind).to_arrow().to_pylist() for kind in ("added", "removed", "changed")}
    assert [row["id"] for row in told["added"] + told["removed"]] == [5, 2]
    [pair] = told["changed"]
    assert (pair["before"]["amount"], pair["after"]["amount"]) == (1.0, 9.0)


def test_rows_are_compared_across_changed_columns_and_by_a_key_that_repeats(lake: Lake, table: str) -> None:
    with lake.transaction() as tx:
        tx.sql(f"CREATE TABLE {table} (id BIGINT, tags ARRAY<STRING>, fare FLOAT, a INT, b INT)")
        values = ("(1, array('x'), 1.1, 1, 7)", "(1, array('y'), 1.1, 1, 7)", "(2, array('x'), 1.1, 2, 7)")
        tx.sql(f"INSERT INTO {table} VALUES {', '.join(values)}, (3, NULL, 1.1, 3, 7)")
    before = next(lake.log(limit=1)).hash
    lake.evolve_table(
        table, "ALTER COLUMN fare TYPE DOUBLE", "DROP COLUMN b", "RENAME COLUMN a TO b", "ADD COLUMN zone STRING"
    )
    with lake.transaction() as tx:
        tx.sql(f"DELETE FROM {table} WHERE tags[0] = 'y'")
        tx.sql(f"UPDATE {table} SET zone = 'north' WHERE id = 2")
        tx.sql(f"INSERT INTO {table} VALUES (3, NULL, CAST(CAST(1.1 AS FLOAT) AS DOUBLE), 3, NULL)")
    found = lake.diff_rows(table, before, "main", key=["id"])
    told = {kind: getattr(found, kind).to_arrow().to_pylist() for kind in ("added", "removed", "changed")}
    assert [row["id"] for row in told["added"]] == [3], "the same row once more"
    assert [(row["id"], row["tags"]) for row in told["removed"]] == [(1, '["y"]')]
    [pair] = told["changed"]
    assert pair["after"] == pair["before"] | {"zone": "north"}
    whole = lake.diff_rows(table, before, "main")
    counts = [getattr(whole, kind).to_arrow().num_rows for kind in ("added", "removed")]
    assert counts == [2, 2]
    with pytest.raises(InputError, match="has no column 'nope'"):
        lake.diff_rows(table, before, "main", key=["nope"])


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (("DROP COLUMN tip", "ADD COLUMN tip BIGINT"), "tip, as it was, was dropped."),
        (
            ("RENAME COLUMN fee TO other", "RENAME COLUMN tip TO fee", "RENAME COLUMN other TO tip"),
            "fee, as it was, was dropped; tip, as it was, was dropped.",
        ),
    ],
)
def test_a_column_that_has_another_s_name_is_a_change(
    lake: Lake, table: str, files: Files, statements: tuple[str, ...], found: str | None
) -> None:
    lake.ingest(table, files.parquet("a", id=[1], fee=[1], tip=[5]))
    try:
        with lake.transaction() as tx:
            for statement in statements:
                tx.sql(f"ALTER TABLE {table} {statement}")
            tx.check(table, "schema_changes(allow='added')")
    except AuditFailedError:
        pass
    run = next(iter(lake.runs()))
    assert [result.detail for report in run.reports for result in report.failures] == ([found] if found else [])
