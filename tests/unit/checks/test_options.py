"""What every check takes: where, tolerance, severity, examples, and what people say about a check."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from lakegate.checks import (
    Check,
    custom_sql,
    not_null,
    parse_check,
    parse_checks,
    run_audit,
    validate_checks,
)
from lakegate.checks.history import BatchHistory, PastBatch
from lakegate.errors import CheckError, EngineError
from lakegate.model.checks import AuditReport, is_tolerated, parse_tolerance
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedFiles, AddedRows, ColumnStatistics, DataFile, IntegerKey, ScanResult
from lakegate.ports import Engine

ROWS = AddedRows(table=TableIdentifier.parse("nyc.trips"), ref="wap/x", after_snapshot_id=1, snapshot_id=2)
SCHEMA = Schema(columns=(Column(name="id", type="long"), Column(name="s", type="string")))
COLUMNS = {"id": ColumnStatistics(value_count=10, null_count=3, lower=0, upper=9)}
ADDED = AddedFiles((DataFile(path="f", rows=10, size_bytes=1, columns=COLUMNS),), complete=True)


class CountingEngine:
    """Answers by predicate or key columns, 0 when it knows no other."""

    def __init__(self, **answers: int) -> None:
        self.answers = {key.replace("_", " "): number for key, number in answers.items()}
        self.asked: list[tuple[Any, ...]] = []

    def count_failing(self, rows: AddedRows, predicates: Sequence[str], *, key: IntegerKey | None = None) -> ScanResult:
        if key is not None:  # its bitmaps prove nothing
            return ScanResult(total=self.answers.get(rows.where or "", 10), failing=())
        assert rows.where is None
        self.asked.append(tuple(predicates))
        return ScanResult(total=10, failing=tuple(self.answers.get(text, 0) for text in predicates))

    def count_duplicates(self, rows: AddedRows, columns: Sequence[str]) -> ScanResult:
        self.asked.append((rows.where, *columns))
        return ScanResult(total=self.answers.get(rows.where or "", 10), failing=(4,))

    def examples(self, rows: AddedRows, predicate: str, limit: int) -> tuple[dict[str, Any], ...]:
        self.asked.append(("examples", predicate, limit))
        return ({"id": None},) * limit

    def known_examples(self, rows: AddedRows, _: object, others: object, limit: int) -> tuple[dict[str, Any], ...]:
        del others
        self.asked.append(("examples", rows.where, limit))
        return ()


def audit(engine: CountingEngine, *texts: str, added: AddedFiles = ADDED) -> AuditReport:
    return run_audit(
        run_id="r1",
        rows=ROWS,
        schema=SCHEMA,
        added=added,
        checks=[check for text in texts for check in parse_checks(text)],
        engine=lambda: cast("Engine", engine),
        metadata_location="file:///m.json",
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (0, 0),
        (5, 5),
        ("5", 5),
        ("1 row", 1),
        ("5 rows", 5),
        ("0.1%", "0.1%"),
        ("0.10 %", "0.1%"),
        ("100%", "100%"),
        ("007.50%", "7.5%"),
        ("0.0%", "0%"),
        ("99.99999999999999999999999999999%", "99.99999999999999999999999999999%"),
    ],
)
def test_a_tolerance_is_a_number_of_rows_or_a_percentage(given: object, kept: object) -> None:
    assert parse_tolerance(given) == kept
    assert parse_tolerance(kept) == kept


@pytest.mark.parametrize(
    "given", [-1, True, 0.1, "", "%", "-1%", "100.1%", "1e3%", "0.5", "0.5 rows", "a", "5 cows", "9" * 5_000 + "%"]
)
def test_other_tolerances_are_refused(given: object) -> None:
    with pytest.raises(ValueError, match="tolerance="):
        parse_tolerance(given)


def test_a_percentage_is_compared_exactly() -> None:
    assert is_tolerated("33.3%", 333, 1000)
    assert not is_tolerated("33.3%", 334, 1000)
    assert is_tolerated("0.1%", 10**15, 10**18)
    assert not is_tolerated("0.1%", 10**15 + 1, 10**18)
    assert is_tolerated("0%", 0, 0)


def test_all_options_survive_text_json_and_the_second_validation() -> None:
    check = not_null(
        "id", where="s = 'a'", tolerance="0.50%", examples=3, severity="quarantine", name="keys",
        description=" Billing needs it. ", owner="billing", tags=["money", "money", "key"],
    )  # fmt: skip
    assert str(check) == (
        "not_null(id, where=\"s = 'a'\", tolerance='0.5%', examples=3, severity='quarantine', name='keys')"
    )
    assert (check.description, check.owner, check.tags) == ("Billing needs it.", "billing", ("money", "key"))
    assert Check.model_validate_json(check.model_dump_json()) == check
    assert validate_checks([check], SCHEMA) == (check,)
    said = {"description": None, "owner": None, "tags": ()}
    assert parse_check(str(check)) == check.model_copy(update=said)
    written = "not_null(id, description='Billing needs it.', owner='billing', tags=['money', 'key'])"
    assert parse_check(written).tags == ("money", "key")


def test_a_tolerance_decides_what_fails() -> None:
    engine = CountingEngine()
    results = audit(
        engine, "not_null(id, tolerance=3)", "not_null(id, tolerance=2)", "not_null(id, tolerance='30%')",
        "not_null(id, tolerance='29.9%', severity='warn')",
    ).results  # fmt: skip
    assert [(one.verdict, one.failing_rows, one.evidence) for one in results] == [
        ("pass", 3, "manifest"), ("fail", 3, "manifest"), ("pass", 3, "manifest"), ("fail", 3, "manifest"),
    ]  # fmt: skip
    assert results[0].detail == "3 failing rows tolerated (at most 3)."
    assert results[0].examples == ()
    assert results[1].tolerance == 2


def test_a_filter_is_counted_in_the_one_scan_and_proves_nothing_by_manifests() -> None:
    engine = CountingEngine(**{"(s = 'a')": 4, "CASE WHEN (s = 'a') THEN `id` IS NULL END": 2})
    (first, second) = audit(engine, "not_null(id, where=\"s = 'a'\")", "not_null(id)").results
    assert engine.asked[0] == ("CASE WHEN (s = 'a') THEN `id` IS NULL END", "(s = 'a')")
    assert (first.verdict, first.failing_rows, first.total_rows, first.evidence) == ("fail", 2, 4, "scan")
    assert (second.failing_rows, second.total_rows, second.evidence) == (3, 10, "manifest")


def test_a_filter_that_no_row_matches_skips_the_check_and_its_job() -> None:
    engine = CountingEngine()
    report = audit(engine, "not_null(id, where=\"s = 'z'\")", "unique(id, where=\"s = 'z'\")")
    assert engine.asked == [("CASE WHEN (s = 'z') THEN `id` IS NULL END", "(s = 'z')")]
    found = [(one.verdict, one.total_rows, one.failing_rows) for one in report.results]
    assert found == [("skipped", 0, 0)] * 2
    assert report.passed
    assert report.skipped == report.results
    assert report.results[0].detail == "No row of the batch matches s = 'z', so there was nothing to check."


def test_a_key_is_looked_for_among_the_rows_that_the_filter_leaves() -> None:
    engine = CountingEngine(**{"(s = 'a')": 6})
    (result,) = audit(engine, "unique(id, where=\"s = 'a'\")").results
    assert engine.asked[:2] == [("(s = 'a')",), ("(s = 'a')", "id")]
    assert (result.failing_rows, result.total_rows) == (4, 6)


def test_a_number_of_filtered_rows_is_judged_even_if_it_is_none() -> None:
    (result,) = audit(CountingEngine(), "row_count(min=1, where=\"s = 'z'\")").results
    assert (result.verdict, result.failing_rows, result.total_rows) == ("fail", 1, 0)


def test_masked_values_are_not_told() -> None:
    class Measuring(CountingEngine):
        def aggregate(self, rows: AddedRows, expressions: Sequence[str]) -> tuple[int, tuple[Any, ...]]:
            assert len(expressions) == 2
            return 10, (True, b"9")

    def asked(*texts: str, masked: tuple[str, ...]) -> list[str | None]:
        report = run_audit(
            run_id="r", rows=ROWS.model_copy(update={"masked": masked}), schema=SCHEMA, added=ADDED,
            checks=[check for text in texts for check in parse_checks(text)],
            engine=lambda: cast("Engine", Measuring()), metadata_location="m",
        )  # fmt: skip
        assert all(one.verdict == "fail" for one in report.results)
        return [one.detail for one in report.results]

    shown, hidden = "The greatest value of id is '9'.", "The value isn't shown."
    assert asked("max(id, max=5)", "max(id, max=5, examples=0)", masked=()) == [shown, hidden]
    assert asked("max(id, max=5)", masked=("I*",)) == [hidden]


def test_a_query_that_names_a_masked_column_or_may_rename_it_shows_no_values() -> None:
    masked: list[tuple[str, ...]] = []

    class Querying(CountingEngine):
        def count_query(self, rows: AddedRows, sql: str, *, computed: bool = False) -> ScanResult:
            return ScanResult(total=10, failing=(1,))

        def query_examples(self, rows: AddedRows, sql: str, limit: int) -> tuple[dict[str, Any], ...]:
            masked.append(rows.masked)
            return ()

    hidden = (
        "SELECT upper(`S`) AS id FROM batch",
        "SELECT to_json(struct(*)) AS j FROM batch",
        "SELECT array(b.*) AS a FROM batch AS b",
        "SELECT named_struct('a', id, *) AS a FROM batch",
        "SELECT v FROM batch LATERAL VIEW stack(1, *) AS u, v",
        "SELECT b FROM (SELECT * FROM batch) AS t(a, b)",
        "SELECT t.b FROM batch, LATERAL (SELECT batch.*) AS t(a, b)",
        "WITH t(a, b) AS (SELECT * FROM batch) SELECT b FROM t",
        "SELECT 1 AS a, 'x' AS b UNION ALL SELECT * FROM batch",
        "SELECT (SELECT * EXCEPT (id) FROM batch LIMIT 1) AS one FROM batch",
        "WITH t AS (SELECT * EXCEPT (id) FROM batch) SELECT coalesce((SELECT t.* FROM t)) AS one FROM batch",
        "SELECT max(*) AS one FROM (FROM batch)",
        "SELECT b FROM (FROM batch) AS t(a, b)",
        "SELECT * FROM batch AS t(a, b)",
        "SELECT * FROM batch WHERE id = 1 UNION SELECT 'x', 1 FROM batch",
    )
    shown = (
        "SELECT id AS s1 FROM batch",
        "SELECT * FROM batch",
        "select * from batch where id > (SELECT count(*) FROM batch)",
        "SELECT one FROM batch LATERAL VIEW explode(array(id, id)) AS one",
        "SELECT id FROM batch UNION SELECT -id FROM batch",
    )
    run_audit(
        run_id="r", rows=ROWS.model_copy(update={"masked": ("s",)}), schema=SCHEMA, added=ADDED,
        checks=[custom_sql(query) for query in (*hidden, *shown)],
        engine=lambda: cast("Engine", Querying()), metadata_location="m",
    )  # fmt: skip
    assert masked == [("*",)] * len(hidden) + [("s",)] * len(shown)


@pytest.mark.parametrize("is_theirs", [True, False])
def test_what_spark_says_is_only_in_the_detail(*, is_theirs: bool) -> None:
    class Refusing(CountingEngine):
        def count_failing(self, rows: AddedRows, predicates: Sequence[str], **_: object) -> ScanResult:
            if not is_theirs or any("CAST" in text for text in predicates):
                raise EngineError("Spark failed: CAST_INVALID_INPUT.", detail="The value 'jo@x.org' …")
            return ScanResult(total=10, failing=(0,) * len(predicates))

    with pytest.raises(CheckError if is_theirs else EngineError, match="CAST_INVALID_INPUT") as caught:
        run_audit(
            run_id="r", rows=ROWS, schema=SCHEMA, added=ADDED, metadata_location="m",
            checks=parse_checks("expression_is_true('CAST(s AS INT) > 0')"),
            engine=lambda: cast("Engine", Refusing()),
        )  # fmt: skip
    assert "jo@x.org" in str(caught.value.detail)
    assert "jo@x.org" not in str(caught.value.to_dict())


def test_a_failing_check_says_so_in_a_sentence_and_when_it_last_passed() -> None:
    engine = CountingEngine()
    at = datetime(2026, 1, 2, tzinfo=UTC)
    batches = (
        PastBatch("r3", at, 10, passed=frozenset()),
        PastBatch("r2", at, 10, passed=frozenset({"not_null(id)"})),
        PastBatch("r1", at, 10, passed=frozenset({"not_null(id)"})),
    )
    report = run_audit(
        run_id="r", rows=ROWS, schema=SCHEMA, added=ADDED, checks=[not_null("id")], metadata_location="m",
        engine=lambda: cast("Engine", engine), past=BatchHistory(lambda: batches),
    )  # fmt: skip
    (result,) = report.results
    assert result.sentence == "3 of 10 rows violate not_null(id): id must not be NULL."
    assert (result.passed_run_id, result.passed_at) == ("r2", at)


def test_quarantine_blocks_and_warn_does_not() -> None:
    report = audit(CountingEngine(), "not_null(id, severity='quarantine')", "not_null(id, severity='warn')")
    assert [one.severity for one in report.failures] == ["quarantine"]
    assert [one.severity for one in report.warnings] == ["warn"]
    assert not report.passed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not_null(id, where='')", "isn't a condition about one row"),
        ("not_null(id, where='s = 1; DROP TABLE t')", "more than one statement"),
        ("not_null(id, where='id IN (SELECT 1)')", "subquery"),
        ("not_null(id, where='max(id) > 1')", "takes many rows"),
        ("not_null(id, where='Rand(7) > 0.5')", "give different results"),
        ("custom_sql('SELECT uuid() FROM batch')", "give different results"),
        ("custom_sql('SELECT 1 FROM batch TABLESAMPLE (5 ROWS)')", "give different results"),
        ("not_null(id, where='id > 1 -- x')", "comment"),
        ("not_null(id, where='id + 1')", "not a truth value"),
        ("not_null(id, tolerance='101%')", "more than 100%"),
        ("not_null(id, tolerance=0.1)", "neither a number of rows"),
        ("not_null(id, examples=101)", "from 0 to 100"),
        ("not_null(id, tags=[1])", "list of words"),
        ("not_null(id, owner='')", "who looks after"),
        ("not_null(id, severity='quarantin')", "no severity"),
        ("row_count(min=1, severity='quarantine')", "none can be set aside"),
        ("row_count(min=1, tolerance=5)", "none can be tolerated"),
        ("not_null(id, wehre='id > 1')", "Did you mean 'where'"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_it_is_written(text: str, said: str) -> None:
    with pytest.raises(CheckError) as caught:
        parse_checks(text)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("where", "said"), [("ids > 1", "refers to column 'ids'"), ("s", "is column 's' of type string")]
)
def test_a_filter_must_fit_the_table(where: str, said: str) -> None:
    with pytest.raises(CheckError, match=said):
        validate_checks([not_null("id", where=where)], SCHEMA)
