"""Checks of scope ``table``: what they are asked of, what they find, and when they are asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from lakegate.checks import Others, parse_checks, recheck, run_audit, validate_checks
from lakegate.errors import CheckError, EngineError
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, TableAt
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedFiles, AddedRows, CreateTable, Rows, ScanResult, WriteTarget
from lakegate.ports import Engine
from support.fakes import FakeLakehouse

FLIGHTS = TableIdentifier.parse("nyc.flights")
PLANES = TableIdentifier.parse("nyc.planes")
SCHEMA = Schema(
    columns=(Column(name="id", type="long"), Column(name="tailnum", type="string"), Column(name="boss", type="long"))
)


def flight(number: int | None, tailnum: str | None = None, boss: int | None = None) -> dict[str, Any]:
    return {"id": number, "tailnum": tailnum, "boss": boss}


class Lake:
    """Flights on main, more of them on a branch, and planes."""

    def __init__(self, published: Sequence[Mapping[str, Any]], batch: Sequence[Mapping[str, Any]]) -> None:
        self.memory = FakeLakehouse()
        self.asked: list[TableIdentifier] = []
        base = self.memory.catalog.get_ref("main").hash
        self.memory.catalog.commit(CommitRequest(branch="main", base=base, message="namespace", namespaces=(("nyc",),)))
        if published:
            self.append(FLIGHTS, published)
        self.append(PLANES, [{"tailnum": "N1", "seats": 2}])
        self.memory.catalog.create_branch("wap/x", self.memory.catalog.get_ref("main"))
        before = self._newest("wap/x", FLIGHTS) if published else None
        self.append(FLIGHTS, batch, "wap/x")
        newest = self._newest("wap/x", FLIGHTS)
        assert newest is not None
        self.rows = AddedRows(table=FLIGHTS, ref="wap/x", after_snapshot_id=before, snapshot_id=newest)

    def append(self, table: TableIdentifier, rows: Sequence[Mapping[str, Any]], ref: str = "main") -> None:
        create = None if self._newest(ref, table) else CreateTable(location=f"mem://{table}")
        target = WriteTarget(table=table, ref=ref, table_schema=None, create=create)
        self.memory.append(self.memory.batch(f"{table}-{ref}-{len(self.memory.sources)}", rows), target)

    def _newest(self, ref: str, table: TableIdentifier) -> int | None:
        pointer = self.memory.catalog.get_table(table, self.memory.catalog.get_ref(ref))
        return None if pointer is None else pointer.snapshot_id

    @property
    def head(self) -> str:
        return self.memory.catalog.get_ref("main").hash

    @property
    def added(self) -> AddedFiles:
        pointer = self.memory.catalog.get_table(FLIGHTS, self.memory.catalog.get_ref("wap/x"))
        assert pointer is not None
        return self.memory.added_files(pointer, [self.rows.snapshot_id])

    def others(self) -> Others:
        head = self.head

        def find(table: TableIdentifier) -> tuple[Rows, ...]:
            self.asked.append(table)
            return (TableAt(table=table, ref="main", hash=head),) if self._newest("main", table) else ()

        return find

    def audit(self, *texts: str, engine: Any = None, **more: Any) -> AuditReport:
        given: dict[str, Any] = {"added": self.added, "others": self.others(), "at": self.head, **more}
        return run_audit(
            run_id="r1",
            rows=self.rows,
            schema=SCHEMA,
            checks=checks(*texts),
            engine=lambda: cast("Engine", engine or self.memory),
            metadata_location="mem://m",
            **given,
        )

    def recheck(self, report: AuditReport, moved: Sequence[str], *texts: str) -> AuditReport:
        return recheck(
            report,
            checks(*texts),
            moved,
            rows=self.rows,
            schema=SCHEMA,
            added=self.added,
            engine=lambda: cast("Engine", self.memory),
            others=self.others(),
            at=self.head,
        )


def checks(*texts: str) -> list[Check]:
    return [check for text in texts for check in parse_checks(text)]


def test_unique_in_the_table_counts_each_row_of_the_batch_once() -> None:
    lake = Lake([flight(1), flight(2), flight(None)], [flight(n) for n in (2, 2, 3, 4, 4, None, None)])
    report = lake.audit("unique(id)", "unique(id, scope='table')", "unique(tailnum, id, scope='table')")
    assert [(r.verdict, r.failing_rows, r.total_rows, r.evidence) for r in report.results] == [
        ("fail", 4, 7, "scan"),
        ("fail", 4, 7, "scan"),
        ("pass", 0, 7, "scan"),
    ]
    assert report.results[1].detail == "The table already holds the keys of 2 of them."
    assert [row["id"] for row in report.results[1].examples] == [2, 2, 4, 4]
    assert [r.reads for r in report.results] == [(), ("nyc.flights",), ("nyc.flights",)]
    assert (report.at, report.reads) == (lake.head, ("nyc.flights",))


@pytest.mark.parametrize(
    ("batch", "detail"),
    [
        ((1, 2, 3), "The table already holds the keys of all of them."),
        ((3, 3, 4), "The table holds none of these keys; they repeat within the batch."),
        ((3, 4), None),
    ],
)
def test_it_is_told_where_the_other_row_is(batch: Sequence[int], detail: str | None) -> None:
    lake = Lake([flight(1), flight(2)], [flight(number) for number in batch])
    assert lake.audit("unique(id, scope='table')").results[0].detail == detail


def test_a_table_that_is_created_has_no_other_rows_but_may_get_some() -> None:
    lake = Lake([], [flight(1), flight(1), flight(2)])
    report = lake.audit("unique(id, scope='table')")
    assert (report.results[0].failing_rows, report.reads) == (2, ("nyc.flights",))


def test_rows_without_a_parent_fail() -> None:
    lake = Lake([flight(1)], [flight(2, "N1"), flight(3, "N2"), flight(4, "N2"), flight(5, None)])
    report = lake.audit("relationships(tailnum, to='nyc.planes')", "not_null(id)")
    assert [(r.verdict, r.failing_rows, r.reads) for r in report.results] == [
        ("fail", 2, ("nyc.planes",)),
        ("pass", 0, ()),
    ]
    assert [row["id"] for row in report.results[0].examples] == [3, 4]


def test_a_table_that_refers_to_itself_has_the_batchs_rows_too() -> None:
    lake = Lake([flight(1)], [flight(2, boss=1), flight(3, boss=2), flight(4, boss=9), flight(5)])
    assert [row["id"] for row in lake.audit("relationships(boss, to='nyc.flights', field=id)").results[0].examples] == [
        4
    ]
    created = Lake([], [flight(2, boss=2), flight(3, boss=2)])
    assert created.audit("relationships(boss, to='nyc.flights', field=id)").passed


def test_no_rows_break_no_rule_whatever_else_there_is() -> None:
    lake = Lake([flight(1)], [flight(2)])
    report = run_audit(
        run_id="r1",
        rows=lake.rows,
        schema=SCHEMA,
        added=AddedFiles((), complete=True),
        checks=checks("unique(id, scope='table')", "relationships(tailnum, to='nyc.planes')"),
        engine=lambda: pytest.fail("the engine was asked for"),
        metadata_location="mem://m",
        others=lake.others(),
        at=lake.head,
    )
    assert [(r.verdict, r.evidence) for r in report.results] == [("pass", "manifest")] * 2
    assert (report.reads, report.at) == ((), None)


def test_a_table_that_is_not_there_stops_the_audit_before_anything_is_read() -> None:
    lake = Lake([flight(1)], [flight(2)])
    with pytest.raises(CheckError, match=r"there is no table nyc\.plane\.$"):
        lake.audit("sql('id < 0')", "relationships(tailnum, to='nyc.plane')")
    assert lake.memory.scans == 0


def test_an_audit_of_the_batch_alone_refuses_to_answer_for_the_table() -> None:
    lake = Lake([flight(1)], [flight(2), flight(3)])
    with pytest.raises(CheckError, match="only sees the rows of the batch"):
        lake.audit("unique(id, scope='table')", others=None)


def test_an_answer_about_other_rows_is_no_audit() -> None:
    lake = Lake([flight(1)], [flight(2), flight(3)])

    class Blind(FakeLakehouse):
        def count_orphans(self, *_: Any) -> ScanResult:
            return ScanResult(total=1, failing=(0,))

        def count_known(self, *_: Any) -> ScanResult:
            return ScanResult(total=2, failing=(0,))

        def aggregate(self, *_: Any) -> tuple[int, tuple[Any, ...]]:
            return 1, (2,)

    for text in ("relationships(tailnum, to='nyc.planes')", "unique(id, scope='table')", "mean(id, 0, 9)"):
        with pytest.raises(EngineError, match="couldn't run"):
            lake.audit(text, engine=cast("Engine", Blind()))


def test_only_what_depends_on_moved_tables_is_asked_again() -> None:
    uniques = ("unique(id)", "unique(id, scope='table')", "unique(id, scope='table', severity='warn')")
    texts = (*uniques, "relationships(tailnum, to='nyc.planes', name='planes')")
    lake = Lake([flight(1)], [flight(2, "N2"), flight(3, "N1")])
    first = lake.audit(*texts)
    assert [r.failing_rows for r in first.results] == [0, 0, 0, 1]

    lake.append(PLANES, [{"tailnum": "N2", "seats": 4}])
    lake.append(FLIGHTS, [flight(3)])
    assert lake.recheck(first, [], *texts).results == first.results

    planes = lake.recheck(first, ["nyc.planes"], *texts)
    assert [r.failing_rows for r in planes.results] == [0, 0, 0, 0]
    assert [r.name for r in planes.results] == [r.name for r in first.results]
    assert (planes.at, planes.metadata_location, planes.rows) == (lake.head, "mem://m", 2)
    assert (len(first.results[3].examples), planes.results[3].examples) == (1, ())

    both = lake.recheck(planes, ["nyc.flights", "nyc.elsewhere"], *texts)
    assert [(r.verdict, r.failing_rows) for r in both.results] == [("pass", 0), ("fail", 1), ("fail", 1), ("pass", 0)]
    assert [r.name for r in both.results] == [
        "unique(id)",
        "unique(id, scope='table')",
        "unique(id, scope='table') #2",
        "planes",
    ]
    assert both.reads == ("nyc.flights", "nyc.planes")


def test_what_was_set_aside_is_shown_unless_other_rows_fail_now() -> None:
    text = "relationships(tailnum, to='nyc.planes')"
    lake = Lake([flight(1)], [flight(2, "N2"), flight(3, "N1")])
    first = lake.audit(text)
    aside = {"quarantined": 1, "examples": ({"tailnum": "N9"},), "detail": "1 row was set aside."}
    report = first.model_copy(update={"results": (first.results[0].model_copy(update=aside),)})

    (failing,) = lake.recheck(report, ["nyc.planes"], text).results
    assert (failing.verdict, failing.quarantined, failing.examples) == ("fail", 0, first.results[0].examples)
    lake.append(PLANES, [{"tailnum": "N2", "seats": 4}])
    (passing,) = lake.recheck(report, ["nyc.planes"], text).results
    assert (passing.verdict, passing.quarantined, passing.detail) == ("pass", 1, "1 row was set aside.")


def planes(**columns: str) -> Schema:
    return Schema(columns=tuple(Column(name=name, type=kind) for name, kind in columns.items()))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("string", "string"), ("string", "uuid"), ("int", "long"), ("long", "decimal(20, 0)"), ("int", "double"),
        ("decimal(9, 2)", "decimal(12, 4)"), ("float", "double"), ("date", "date"), ("binary", "binary"),
    ],
)  # fmt: skip
def test_types_that_compare(ours: str, theirs: str) -> None:
    (check,) = checks("relationships(A, to='ns.t', to_columns=x)")
    (valid,) = validate_checks([check], planes(a=ours), lambda _: planes(X=theirs))
    assert (valid.columns, valid.arguments) == (("a",), {"to": "ns.t", "to_columns": "x"})


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("string", "long"), ("long", "double"), ("date", "timestamp"), ("timestamp", "timestamptz"),
        ("decimal(38, 20)", "long"), ("decimal(9, 2)", "double"), ("int", "float"), ("binary", "fixed[4]"),
    ],
)  # fmt: skip
def test_types_that_do_not(ours: str, theirs: str) -> None:
    with pytest.raises(CheckError) as caught:
        validate_checks(checks("relationships(a, to='ns.t', to_columns=x)"), planes(a=ours), lambda _: planes(x=theirs))
    assert f"column 'a' is of type {ours}, but 'x' of ns.t is of type {theirs}" in caught.value.message


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("relationships(tailnum, to='nyc.plane')", "there is no table nyc.plane", "lakegate table list"),
        ("relationships(tailnum, to='nyc.planes', field=tail)", "no column 'tail'", "Did you mean 'tailnum'?"),
        ("relationships(tail, to='nyc.planes')", "there is no column 'tail'", "Did you mean 'tailnum'?"),
        ("relationships(tailnum, TAILNUM, to='nyc.planes')", "names one column twice", "once"),
        ("relationships_where(tailnum, to='nyc.planes', to_condition='seat = 1')",
         "to_condition='seat = 1' refers to column 'seat', which nyc.planes doesn't have", "Did you mean 'seats'?"),
        ("relationships_where(tailnum, to='nyc.planes', to_condition='seats')",
         "to_condition='seats' is column 'seats' of type int", "one row of nyc.planes"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_other_table_is_found_early(text: str, message: str, hint: str) -> None:
    known = {"nyc.planes": planes(tailnum="string", seats="int")}
    with pytest.raises(CheckError) as caught:
        validate_checks(checks(text), SCHEMA, lambda table: known.get(str(table)))
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_the_audit_looks_at_the_other_tables_columns_too() -> None:
    lake = Lake([flight(1)], [flight(2, "N1", 3)])
    with pytest.raises(CheckError, match=r"'tailnum' of nyc\.planes is of type string"):
        lake.audit("relationships(boss, to='nyc.planes', field=tailnum)", schemas=lambda _: planes(tailnum="string"))
    assert lake.audit("relationships(boss, to='nyc.flights', field=boss)", schemas=lambda _: None).passed


def test_a_check_made_by_hand_gets_the_scope_of_its_rule() -> None:
    check = Check(kind="relationships", columns=("tailnum",), arguments={"to": "nyc.planes"})
    assert [made.scope for made in validate_checks([check], SCHEMA)] == ["table"]
    table = Check(kind="not_null", columns=("id",), scope="table")
    with pytest.raises(CheckError, match="scope='table' isn't supported"):
        validate_checks([table], SCHEMA)


def test_a_tables_rows_are_those_there_and_the_batchs() -> None:
    texts = ("equal_rowcount(to='nyc.planes')", "fewer_rows_than(to='nyc.planes')")
    lake = Lake([flight(1)], [flight(2), flight(3)])
    lake.append(PLANES, [{"tailnum": f"N{number}"} for number in (2, 3)])
    assert [result.verdict for result in lake.audit(*texts).results] == ["pass", "fail"]
    lake.append(PLANES, [{"tailnum": "N4"}])
    report = lake.audit(*texts)
    assert [result.verdict for result in report.results] == ["fail", "pass"]
    assert {result.detail for result in report.results} == {"The table has 3 rows, nyc.planes 4 rows."}
    assert report.reads == ("nyc.flights", "nyc.planes")
