"""The planner: who is asked what, how often, and what becomes of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from lakegate.checks import ColumnName, FailingRows, Finding, check, parse_checks, registry, run_audit
from lakegate.checks.audit import answer_from_manifest
from lakegate.checks.questions import Aggregates
from lakegate.errors import CheckError, EngineError, EngineUnavailableError, QueryError
from lakegate.model.checks import AuditReport
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedFiles, AddedRows, ColumnStatistics, DataFile, IntegerKey, Rows, ScanResult
from lakegate.ports import Engine, Step

ROWS = AddedRows(table=TableIdentifier.parse("nyc.trips"), ref="wap/x", after_snapshot_id=1, snapshot_id=2)
SCHEMA = Schema(
    columns=(Column(name="id", type="long"), Column(name="s", type="string"), Column(name="n", type="long"))
)
COLUMNS = {
    "id": ColumnStatistics(value_count=10, null_count=0, lower=0, upper=9),
    "n": ColumnStatistics(value_count=10, null_count=3, lower=0, upper=9),
}
COMPLETE = AddedFiles((DataFile(path="f", rows=10, size_bytes=1, columns=COLUMNS),), complete=True)
INCOMPLETE = AddedFiles(COMPLETE.files, complete=False)


class RecordingEngine:
    """Remembers what it was asked; answers by predicate, 0 when it knows no other."""

    def __init__(self, answers: dict[str, int] | None = None, *, total: int = 10, refuses: str | None = None) -> None:
        self.answers = answers or {}
        self.total = total
        self.refuses = refuses
        self.asked: list[tuple[Any, ...]] = []

    def count_failing(
        self,
        rows: AddedRows,
        predicates: Sequence[str],
        *,
        key: IntegerKey | None = None,
    ) -> ScanResult:
        assert rows.model_copy(update={"masked": (), "is_measured": False}) == ROWS
        self.asked.append(("scan", *predicates, *(() if key is None else (key,))))
        if self.refuses is not None and any(self.refuses in predicate for predicate in predicates):
            raise EngineError("Spark failed: Division by zero.")
        is_unique = key is not None and not self.answers.get(",".join(key.columns))
        failing = tuple(self.answers.get(text, 0) for text in predicates)
        return ScanResult(total=self.total, failing=failing, is_unique=is_unique or None)

    def count_duplicates(self, rows: AddedRows, columns: Sequence[str]) -> ScanResult:
        self.asked.append(("duplicates", *columns))
        return ScanResult(total=self.total, failing=(self.answers.get(",".join(columns), 0),))

    def examples(self, rows: AddedRows, predicate: str, limit: int) -> tuple[dict[str, Any], ...]:
        self.asked.append(("examples", predicate, limit))
        return ({"predicate": predicate},)

    def known_examples(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], limit: int
    ) -> tuple[dict[str, Any], ...]:
        del rows, others
        self.asked.append(("known_examples", *columns, limit))
        return ({"id": 2},)


class Notes:
    def __init__(self) -> None:
        self.told: list[str] = []

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        self.told.append(text)
        yield cast("Step", None)

    def note(self, text: str) -> None:
        self.told.append(text)


def no_engine() -> Engine:
    pytest.fail("the engine was asked for")


def audit(
    engine: RecordingEngine | Callable[[], Engine],
    *texts: str,
    added: AddedFiles = COMPLETE,
    notes: Notes | None = None,
    explain: bool = False,
    masked: tuple[str, ...] = (),
    schema: Schema = SCHEMA,
) -> AuditReport:
    connect = (lambda: cast("Engine", engine)) if isinstance(engine, RecordingEngine) else engine
    return run_audit(
        run_id="r1",
        rows=ROWS.model_copy(update={"masked": masked}),
        schema=schema,
        added=added,
        checks=[check for text in texts for check in parse_checks(text)],
        engine=connect,
        metadata_location="file:///m.json",
        narrator=notes,
        explain=explain,
    )


def test_a_filter_may_only_skip_files_by_metrics_that_are_evidence() -> None:
    seen: list[bool] = []

    class Engine(RecordingEngine):
        def count_query(self, rows: AddedRows, sql: str, *, computed: bool = False) -> ScanResult:
            del sql, computed
            seen.append(rows.is_measured)
            return ScanResult(total=10, failing=(0,))

    # Spark compares UUIDs as text, Iceberg for Java their bounds as signed numbers.
    with_uuids = Schema(columns=(*SCHEMA.columns, Column(name="u", type="list<uuid>")))
    for added, schema in ((COMPLETE, SCHEMA), (INCOMPLETE, SCHEMA), (COMPLETE, with_uuids)):
        assert audit(Engine(), "custom_sql('SELECT * FROM batch WHERE id < 0')", added=added, schema=schema).passed
    assert seen == [True, False, False]


def test_an_audit_that_manifests_answer_never_asks_for_an_engine() -> None:
    report = audit(no_engine, "not_null(id)", "in_range(id, 0, 9)", "row_count(min=1)")
    assert report.passed
    assert [(r.verdict, r.evidence, r.total_rows) for r in report.results] == [("pass", "manifest", 10)] * 3
    assert (report.run_id, report.table, report.branch, report.rows) == ("r1", "nyc.trips", "wap/x", 10)
    assert report.metadata_location == "file:///m.json"


ID = IntegerKey(columns=("id",), sql="CAST(`id` AS BIGINT)", is_ordered=True, is_dense=True)
N = IntegerKey(columns=("n",), sql="CAST(`n` AS BIGINT)", is_ordered=True, is_dense=True)


def test_what_bitmaps_do_not_prove_is_counted() -> None:
    engine = RecordingEngine({"id": 2, "n": 3})
    report = audit(engine, "not_null(s)", "unique(id)", "unique(n)", "unique(n, severity='warn')")
    assert engine.asked[:4] == [("scan", "`s` IS NULL", ID), ("duplicates", "id"), ("scan", N), ("duplicates", "n")]
    assert [result.failing_rows for result in report.results] == [0, 2, 3, 3]


def test_only_failing_checks_fetch_examples() -> None:
    engine = RecordingEngine({"`s` IS NULL": 2, "id": 4})
    report = audit(engine, "not_null(s, id)", "unique(id)", "unique(s)")
    assert engine.asked[-2:] == [("examples", "`s` IS NULL", 10), ("known_examples", "id", 10)]
    assert [(r.verdict, r.failing_rows, len(r.examples)) for r in report.results] == [
        ("fail", 2, 1), ("pass", 0, 0), ("fail", 4, 1), ("pass", 0, 0),
    ]  # fmt: skip
    assert not report.passed


def test_a_failure_that_the_manifest_proves_still_shows_rows() -> None:
    engine = RecordingEngine()
    (result,) = audit(engine, "not_null(n)").results
    assert (result.verdict, result.failing_rows, result.evidence) == ("fail", 3, "manifest")
    assert result.examples == ({"predicate": "`n` IS NULL"},)
    assert engine.asked == [("examples", "`n` IS NULL", 10)]


def test_a_verdict_is_not_lost_for_want_of_examples() -> None:
    def away() -> Engine:
        raise EngineUnavailableError("Spark went away.")

    notes = Notes()
    (result,) = audit(away, "not_null(n)", notes=notes).results
    assert (result.verdict, result.failing_rows, result.examples) == ("fail", 3, ())
    assert "No examples for not_null(n): Spark went away." in notes.told
    assert result.detail == "No examples can be shown: Spark went away."


def test_examples_that_cannot_be_shown_lose_no_others() -> None:
    class Choking(RecordingEngine):
        def examples(self, rows: AddedRows, predicate: str, limit: int) -> tuple[dict[str, Any], ...]:
            if "`s`" in predicate:
                raise OverflowError("'alice@example.com' is out of range")
            return super().examples(rows, predicate, limit)

    first, second, third = audit(
        Choking({"`s` IS NULL": 2, "id": 4}), "not_null(s)", "not_null(n)", "unique(id)"
    ).results
    assert [result.verdict for result in (first, second, third)] == ["fail"] * 3
    # Not what the library says, which quotes a value.
    assert (first.examples, first.detail) == ((), "No examples can be shown: fetching them failed (OverflowError).")
    assert second.examples == ({"predicate": "`n` IS NULL"},)
    assert third.examples == ({"id": 2},)


def test_incomplete_manifests_are_not_believed() -> None:
    engine = RecordingEngine(total=7)
    report = audit(engine, "not_null(id)", "row_count(min=8)", added=INCOMPLETE)
    assert engine.asked == [("scan", "`id` IS NULL")]
    assert [(r.verdict, r.evidence, r.total_rows) for r in report.results] == [("pass", "scan", 7), ("fail", "scan", 7)]
    assert report.rows == 7


@pytest.mark.parametrize("text", ["not_null(s)", "unique(id)"])
def test_a_scan_of_other_rows_is_no_audit(text: str) -> None:
    with pytest.raises(EngineError, match="read 9 rows, but 10 were added"):
        audit(RecordingEngine(total=9), text)


def test_the_same_check_twice_is_asked_once_and_named_apart() -> None:
    engine = RecordingEngine()
    report = audit(engine, "not_null(s)", "not_null(s, severity='warn')", "unique(id)", "unique(id)")
    assert engine.asked == [("scan", "`s` IS NULL", ID)]
    assert [r.name for r in report.results] == ["not_null(s)", "not_null(s) #2", "unique(id)", "unique(id) #2"]


def test_an_expression_that_the_engine_refuses_is_the_users_to_correct() -> None:
    engine = RecordingEngine(refuses="1/n")
    with pytest.raises(CheckError, match="can't evaluate 1 check on") as caught:
        audit(engine, "not_null(s)", "sql('1/n > 2')", "sql('n < 0')")
    assert "sql(n, predicate='1/n > 2'): Spark failed: Division by zero." in caught.value.message
    assert isinstance(caught.value.__cause__, EngineError)


def test_a_filter_that_the_engine_refuses_names_its_check() -> None:
    with pytest.raises(CheckError, match="can't evaluate 1 check on") as caught:
        audit(RecordingEngine(refuses="1/n"), "not_null(s)", "unique(s, where='1/n > 2')")
    assert "unique(s, where='1/n > 2'): Spark failed: Division by zero." in caught.value.message


def test_an_engine_that_fails_on_our_own_predicates_is_not_blamed_on_the_user() -> None:
    with pytest.raises(EngineError, match="Division"):
        audit(RecordingEngine(refuses="IS NULL"), "not_null(s)", "sql('abs(n) < 0')")
    with pytest.raises(EngineError, match="Division"):
        audit(RecordingEngine(refuses=""), "sql('abs(n) < 0')")


def test_metrics_of_users_prove_nothing_but_a_number_of_the_rows() -> None:
    def broken(_: AddedFiles) -> int:
        raise KeyError("id")

    def proven(metrics: Any) -> Finding | None:
        return answer_from_manifest(FailingRows("n < 0", metrics), COMPLETE)

    nonsense: list[object] = [True, False, -1, 11, 0.0, "0", Finding(0), None]
    assert [proven(lambda _, made=made: made) for made in nonsense] == [None] * len(nonsense)
    assert proven(broken) is None
    assert [proven(lambda _, made=made: made) for made in (0, 10)] == [Finding(0), Finding(10)]


def test_metrics_of_aggregates_are_judged_with_the_rows_or_the_scan_is() -> None:
    def broken(_: AddedFiles) -> list[int]:
        raise KeyError("id")

    def found(metrics: Any) -> Finding | None:
        return answer_from_manifest(
            Aggregates(("sum(n)",), lambda values, rows: Finding(rows, str(values)), metrics), COMPLETE
        )

    assert found(lambda added: [added.rows, 7]) == Finding(10, "[10, 7]")
    assert [found(metrics) for metrics in (None, lambda _: None, broken)] == [None] * 3


def test_a_filter_that_selects_no_row_ends_no_other_question_about_columns() -> None:
    class Aggregating(RecordingEngine):
        def aggregate(self, _rows: AddedRows, expressions: Sequence[str]) -> tuple[int, Sequence[Any]]:
            return self.total, [7.0] * len(expressions)

    engine = Aggregating({"(id > 99)": 0})
    none, every = audit(engine, "mean(n, max=0.5, where='id > 99')", "mean(n, max=0.5)").results
    assert (none.verdict, every.verdict) == ("skipped", "fail")


def test_checks_that_do_not_fit_stop_before_anything_is_asked() -> None:
    with pytest.raises(CheckError, match="no column 'x'"):
        audit(no_engine, "not_null(x)", "not_null(s)")


@pytest.mark.parametrize(("options", "masked"), [("", ("s",)), (", examples=0", ())])
def test_a_user_s_check_quotes_no_hidden_value(
    monkeypatch: pytest.MonkeyPatch, options: str, masked: tuple[str, ...]
) -> None:
    monkeypatch.setattr(registry, "USERS", {})
    canary = "canary@example.com"

    @check
    def longest(column: ColumnName) -> Aggregates:
        return Aggregates((f"max_by({column}, 1)",), lambda values, _: Finding(0, f"It is {values[0]}.", failed=True))

    @check
    def parsed(column: ColumnName) -> Aggregates:
        return Aggregates((f"max({column})",), lambda values, _: Finding(0, value=float(values[0])))

    @check
    def looked_up(column: ColumnName) -> Aggregates:
        return Aggregates((f"max({column})",), lambda values, _: {"known": Finding(0)}[values[0]])

    class Aggregating(RecordingEngine):
        def aggregate(self, _rows: AddedRows, expressions: Sequence[str]) -> tuple[int, Sequence[Any]]:
            return self.total, [canary] * len(expressions)

    assert canary in audit(Aggregating(), "longest(s)").model_dump_json()
    report = audit(Aggregating(), f"longest(s{options})", masked=masked)
    assert (report.passed, canary in report.model_dump_json()) == (False, False)
    for name in ("parsed", "looked_up"):
        with pytest.raises(CheckError) as caught:
            audit(Aggregating(), f"{name}(s{options})", masked=masked)
        assert canary not in str(caught.value.to_dict())


def test_sql_that_the_engine_refuses_is_an_error_also_without_rows() -> None:
    class Planner(RecordingEngine):
        def analyze(self, _: Schema, predicates: Sequence[str], queries: Sequence[str]) -> None:
            if any("nosuch" in text for text in (*predicates, *queries)):
                raise QueryError("Spark rejected the query: no nosuch.")

    nothing = AddedFiles((), complete=True)
    for text in ("sql('nosuch(n)')", "not_null(n, where='nosuch(n) > 0')"):
        with pytest.raises(CheckError, match="nosuch"):
            audit(Planner(), text, added=nothing)
    assert audit(Planner(), "sql('n < 0')", added=nothing).passed
    assert audit(no_engine, "not_null(n)", added=nothing).passed


def test_nan_that_passes_not_null_is_told() -> None:
    schema = Schema(columns=(Column(name="d", type="double"),))

    def found(nans: int | None, *, complete: bool = True) -> AuditReport:
        metrics = {"d": ColumnStatistics(value_count=10, null_count=0, nan_count=nans)}
        added = AddedFiles((DataFile(path="f", rows=10, size_bytes=1, columns=metrics),), complete=complete)
        return audit(RecordingEngine({"isnan(`d`)": 2}), "not_null(d)", added=added, schema=schema)

    said = "2 rows have NaN in d. NaN isn't NULL, so not_null(d) passes them."
    for report, evidence in ((found(2), "manifest"), (found(None), "scan"), (found(2, complete=False), "scan")):
        (result,) = report.results
        assert (result.verdict, result.failing_rows, result.evidence, result.sentence) == ("pass", 0, evidence, said)
    assert found(0).results[0].sentence is None


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("not_null(n)", "n IS NULL"),
        ("unique(id)", "id IN (SELECT id FROM nyc.trips GROUP BY id HAVING count(*) > 1)"),
        (
            "unique(id, s, where='n > 1')",
            "(n > 1) AND (id, s) IN (SELECT id, s FROM nyc.trips WHERE (n > 1) GROUP BY id, s HAVING count(*) > 1)",
        ),
        ("row_count(max=1)", None),
    ],
)
def test_a_failing_check_has_the_condition_of_its_rows(text: str, condition: str | None) -> None:
    engine = RecordingEngine({"`n` IS NULL": 2, "id": 2, "(n > 1)": 10, "id,s": 2})
    (result,) = audit(engine, text, added=INCOMPLETE).results
    assert (result.verdict, result.condition) == ("fail", condition)
