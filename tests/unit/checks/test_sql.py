"""What checks ask the engine: literals, predicates, and which of them fit a schema."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakegate.checks import parse_check, parse_checks, validate_checks
from lakegate.checks.predicates import PredicateError, read_predicate
from lakegate.checks.questions import DuplicateRows, FailingRows
from lakegate.checks.registry import find_check
from lakegate.errors import CheckError
from lakegate.model.checks import Check
from lakegate.model.schema import Column, Schema
from lakegate.model.sqltext import sql_string
from lakegate.model.tables import AddedFiles, ColumnStatistics, DataFile

TYPES = {
    "i": "int",
    "l": "long",
    "d": "double",
    "f": "float",
    "m": "decimal(10, 2)",
    "b": "boolean",
    "day": "date",
    "t": "timestamp",
    "tz": "timestamptz",
    "s": "string",
    "u": "uuid",
    "raw": "binary",
    "clock": "time",
    "items": "list<long>",
    "tags": "map<string, string>",
    "trip": "struct<1: km: optional double>",
    "Trip Distance": "double",
    "odd`name": "long",
    "${x}": "long",
}
SCHEMA = Schema(columns=tuple(Column(name=name, type=kind) for name, kind in TYPES.items()))

_STRING_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def as_spark_reads(token: str) -> str:
    """Spark's SparkParserUtils.unescapeSQLString, in short."""
    assert _STRING_TOKEN.fullmatch(token)
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _NAMED.get(m[2], m[2]), token[1:-1])


@given(st.text("\ud800'\\\"$u{}0n%_\n\r\t\0`;-/*"))
def test_a_text_literal_means_the_text_and_nothing_else(text: str) -> None:
    token = sql_string(text)
    assert as_spark_reads(token) == text
    assert "$" not in token
    assert not re.search(r"[\x00-\x1f]", token)


def predicate(text: str) -> str:
    (check,) = validate_checks(parse_checks(text), SCHEMA)
    question = find_check(check.kind).ask(check, SCHEMA)
    assert isinstance(question, FailingRows)
    return str(question.predicate)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not_null(S)", "`s` IS NULL"),
        ("not_null('odd`name')", "`odd``name` IS NULL"),
        ("in_range(l, 0, 5)", "`l` < 0 OR `l` > 5"),
        ("in_range(l, 0, 6.5)", "`l` < 0 OR `l` > 6"),
        ("in_range(l, 0, 6, inclusive=False)", "`l` < 1 OR `l` > 5"),
        ("in_range(i, max=1e300)", "FALSE"),
        ("in_range(l, 9007199254740993)", "`l` < 9007199254740993"),
        ("in_range(d, 0)", "isnan(`d`) OR `d` < 0.0D"),
        (
            "in_range('Trip Distance', 0, 1, inclusive=False)",
            "isnan(`Trip Distance`) OR `Trip Distance` <= 0.0D OR `Trip Distance` >= 1.0D",
        ),
        ("in_range(f, 0.5, 1e300)", "isnan(`f`) OR `f` < 0.5F OR `f` > 1e+300D"),
        ("in_range(f, 0.1)", "isnan(`f`) OR `f` < 0.1D"),
        (
            "in_range(d, 9007199254740993, 9007199254740997)",
            "isnan(`d`) OR `d` < 9007199254740994.0D OR `d` > 9007199254740996.0D",
        ),
        (
            "in_range(d, 9007199254740995, 9007199254740997, inclusive=False)",
            "isnan(`d`) OR `d` <= 9007199254740994.0D OR `d` >= 9007199254740998.0D",
        ),
        ("accepted_values(f, [0.1, 1e300])", "`f` NOT IN (0.10000000149011612F, 1e+300D)"),
        ("in_range(m, 0.005, '9.999')", "`m` < CAST('0.01' AS DECIMAL(10, 2)) OR `m` > CAST('9.99' AS DECIMAL(10, 2))"),
        ("in_range(day, '2024-01-01', '2024-01-31')", "`day` < DATE '2024-01-01' OR `day` > DATE '2024-01-31'"),
        ("in_range(t, '2024-01-01')", "`t` < TIMESTAMP_NTZ '2024-01-01 00:00:00'"),
        ("in_range(tz, '2024-01-01T01:00:00.5+01:00')", "`tz` < TIMESTAMP '2024-01-01 00:00:00.500000+00:00'"),
        ("in_range(s, 'a', 'b')", "`s` < 'a' OR `s` > 'b'"),
        ("accepted_values(s, ['a', 'it\\'s', 'a', None])", "`s` NOT IN ('a', 'it\\'s')"),
        ("accepted_values(i, [1, 2.0])", "`i` NOT IN (1, 2)"),
        ("accepted_values(b, [True])", "`b` NOT IN (TRUE)"),
        ("accepted_values(m, [1.5])", "`m` NOT IN (CAST('1.5' AS DECIMAL(10, 2)))"),
        ("matches(s, r'^\\d$')", "NOT (`s` RLIKE '^\\\\d\\u0024')"),
        ("sql('d < 0 OR s IS NULL')", "(d < 0 OR s IS NULL)"),
    ],
)
def test_what_the_engine_is_asked(text: str, expected: str) -> None:
    assert predicate(text) == expected


def test_uniqueness_is_asked_of_the_columns_together() -> None:
    (check,) = validate_checks([parse_check("unique(S, i)")], SCHEMA)
    assert find_check("unique").ask(check, SCHEMA) == DuplicateRows(("s", "i"))


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("not_null(itms)", "no column 'itms'", "Did you mean 'items'?"),
        ("sql('itms IS NULL')", "no column 'itms'", "Did you mean 'items'?"),
        ("not_null('${x}')", "can't be audited", "Rename"),
        ("unique(tags)", "can't be compared", "plain columns"),
        ("unique(s, S)", "names one column twice", "case"),
        ("in_range(b, 0, 1)", "boolean, which has no order", "accepted_values"),
        ("in_range(items, 0, 1)", "has no order", "sql"),
        ("in_range(d, 'abc')", "'abc' isn't a number", "numbers"),
        ("in_range(i, 1.2, 1.8)", "no int is in that range", "smaller one first"),
        ("in_range(i, min=3000000000)", "no int is in that range", "smaller one first"),
        ("in_range(d, 1, 1, inclusive=False)", "no value lies between 1 and 1", "smaller one first"),
        ("in_range(d, 1" + "0" * 350 + ")", "out of range for double", "numbers"),
        ("in_range(day, '2024-13-01')", "isn't a date such as", "dates"),
        ("in_range(t, '2024-01-01T00:00:00Z')", "has a time zone, but the column has none", "dates"),
        ("in_range(tz, '0001-01-01T00:00:00+10:00')", "isn't a time such as", "dates"),
        ("in_range(t, '2024-01-01T00:00:00.1234567')", "at most 6 decimals", "dates"),
        ("in_range(s, 1)", "1 isn't a text", "column's type"),
        ("accepted_values(s, [1])", "1 isn't a text", "column's type"),
        ("accepted_values(i, ['1'])", "'1' isn't a number", "column's type"),
        ("accepted_values(i, [1.5])", "can't occur in a column of type int", "column's type"),
        ("accepted_values(m, ['0.001'])", "can't occur", "column's type"),
        ("accepted_values(trip, [1])", "has no literals", "sql"),
        ("matches(i, 'x')", "only text can match", "in_range(i"),
        ("sql('d')", "of type double, not a truth value", "sql('d < 0')"),
    ],
)
def test_checks_that_do_not_fit_the_schema(text: str, message: str, hint: str) -> None:
    with pytest.raises(CheckError) as caught:
        validate_checks([parse_check(text)], SCHEMA)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_all_bad_checks_are_told_at_once() -> None:
    checks = [parse_check(text) for text in ("not_null(itms)", "not_null(s)", "matches(i, 'x')")]
    with pytest.raises(CheckError, match="2 checks can't be used") as caught:
        validate_checks(checks, SCHEMA)
    assert "no column 'itms'" in caught.value.message
    assert "only text can match" in caught.value.message


def test_a_check_made_by_hand_is_looked_through() -> None:
    by_hand = Check(kind="not_null", columns=("s", "i"))
    assert [str(check) for check in validate_checks([by_hand], SCHEMA)] == ["not_null(s)", "not_null(i)"]
    with pytest.raises(CheckError, match="needs min, max or both"):
        validate_checks([Check(kind="in_range", columns=("i",))], SCHEMA)


def test_decimals_keep_all_their_digits() -> None:
    schema = Schema(columns=(Column(name="x", type="decimal(38, 10)"),))
    text = "in_range(x, '-1234567890123456789012345678.0123456789', inclusive=False)"
    (check,) = validate_checks([parse_check(text)], schema)
    question = find_check("in_range").ask(check, schema)
    assert isinstance(question, FailingRows)
    assert question.predicate == "`x` < CAST('-1234567890123456789012345678.0123456788' AS DECIMAL(38, 10))"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a < 0 OR B > a", ("a", "B")),
        ("trip.km < 0", ("trip",)),
        ("exists(items, x -> x.y < low)", ("items", "low")),
        ("`odd``name` IS NULL", ("odd`name",)),
        ("s = '-- no comment; /* none */'", ("s",)),
        ("s LIKE ANY ('a%', 'b%')", ("s",)),
        ("CAST(s AS int) > 1", ("s",)),
        ("b", ("b",)),
        ("true", ()),
    ],
)
def test_columns_of_a_predicate(text: str, columns: tuple[str, ...]) -> None:
    assert read_predicate(text).columns == columns


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a < 0 -- why", "comment"),
        ("a < 0 OR -- \\\n b < 0", "comment"),
        ("a < 0 /* /* */ */ -- x", "comment"),
        ("a < 0;", "';'"),
        ("(TABLE b.t) = 1", "subquery"),
        ("EXISTS (TABLE b.t)", "subquery"),
        ("IDENTIFIER('ref' || 'lect')('java.lang.System', 'exit', 1) IS NULL", "identifier"),
        ("system.builtin.`reflect`('java.lang.System', 'getenv', a) = 'x'", "isn't allowed"),
        ("a < 0 /* why", "comment|closed|valid"),
        ("a < 0; DROP TABLE t", "';'"),
        ("DROP TABLE t", "isn't valid SQL"),
        ("a < 0) OR (1 = 1", "closes nothing"),
        ("a <", "isn't valid SQL"),
        ("a = 'x", "never closed"),
        ("a IN (SELECT 1)", "subquery"),
        ("sum(a) > 1", r"sum\(\)"),
        ("row_number() OVER (ORDER BY a) > 1", r"row_number\(\)"),
        ("abs(a) OVER () > 1", "window"),
        ("explode(a) > 1", r"explode\(\)"),
        ("reflect('java.lang.System', 'exit', 1) = 1", "isn't allowed"),
        ("from_xml(a, 'b INT', map('rowValidationXSDPath', '/etc/passwd')).b = 1", "isn't allowed"),
        ("xpath_boolean(a, 'b')", "isn't allowed"),
        ("a.* IS NULL", r"'\*'"),
        ("a > :p", "placeholder"),
        ("a = '${spark.app.name}'", "settings"),
        ("a + 1", "number"),
        ("'text'", "type STRING"),
        ("a AS b", "isn't valid SQL"),
        ("(a, b)", "isn't an expression"),
    ],
)
def test_what_is_no_predicate_of_one_row(text: str, problem: str) -> None:
    with pytest.raises(PredicateError, match=problem):
        read_predicate(text)


_COLUMNS: dict[str, st.SearchStrategy[object]] = {
    "n": st.integers(-3, 3),
    "x": st.floats(-3, 3, width=32),
    "m": st.decimals(-3, 3, places=2),
    "b": st.booleans(),
}
_NUMBERS = ["0", "1", "-1", "2", "0.5", "-0.1", "0.1", "2.99", "3", "-3"]
_COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}
Row = dict[str, Any]
Truth = Callable[[Row], bool | None]


def _comparison(column: str, sign: str, number: str) -> tuple[str, Truth]:
    def truth(row: Row) -> bool | None:
        value = row[column]
        # A float is compared with the double that is nearest to the number as written.
        other = float(number) if isinstance(value, float) else Decimal(number)
        return None if value is None else bool(_COMPARED[sign](value, other))

    return f"{column} {sign} {number}", truth


def _is_null(column: str) -> tuple[str, Truth]:
    return f"{column} IS NULL", lambda row: row[column] is None


def _not(one: tuple[str, Truth]) -> tuple[str, Truth]:
    def truth(row: Row) -> bool | None:
        found = one[1](row)
        return None if found is None else not found

    return f"NOT ({one[0]})", truth


def _both(one: tuple[str, Truth], word: str, other: tuple[str, Truth]) -> tuple[str, Truth]:
    decides = word == "OR"

    def truth(row: Row) -> bool | None:
        found = one[1](row), other[1](row)
        if decides in found:
            return decides
        return None if None in found else not decides

    return f"({one[0]}) {word} ({other[0]})", truth


_PREDICATES = st.recursive(
    st.builds(_comparison, st.sampled_from(["n", "x", "m"]), st.sampled_from([*_COMPARED]), st.sampled_from(_NUMBERS))
    | st.builds(_is_null, st.sampled_from([*_COLUMNS]))
    | st.just(("b", lambda row: row["b"])),
    lambda inner: st.builds(_not, inner) | st.builds(_both, inner, st.sampled_from(["AND", "OR"]), inner),
    max_leaves=5,
)
_ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in _COLUMNS.items()}), min_size=1)


def _file(rows: Sequence[Row]) -> DataFile:
    columns = {}
    for name in _COLUMNS:
        values = [row[name] for row in rows if row[name] is not None]
        columns[name] = ColumnStatistics(
            value_count=len(rows),
            null_count=len(rows) - len(values),
            nan_count=0,
            lower=min(values, default=None),
            upper=max(values, default=None),
        )
    return DataFile(path="a", rows=len(rows), size_bytes=1, columns=columns)


@given(_PREDICATES, st.lists(_ROWS, min_size=1, max_size=3), st.booleans())
def test_metrics_rule_out_only_what_no_row_is(
    predicate: tuple[str, Truth], files: list[list[Row]], outcome: bool
) -> None:
    text, truth = predicate
    proven = read_predicate(text).never(outcome=outcome)
    assert proven is not None
    if proven(AddedFiles(files=tuple(map(_file, files)), complete=True)) == 0:
        assert not any(truth(row) is outcome for rows in files for row in rows)


@pytest.mark.parametrize(
    ("text", "is_proven"),
    [
        ("n < 0", True),
        ("0 > n", True),
        ("n < 0 AND n > 99", True),
        ("n < 0 OR n > 5", True),
        ("n BETWEEN 6 AND 9", True),
        ("n NOT BETWEEN 0 AND 5", True),
        ("n IN (7, 8)", True),
        ("n IS NULL", True),
        ("n = 5", False),
        ("n IN (5, 9)", False),
        ("m < 0.00", True),
        ("m < -0.001", False),  # Spark may compare at another scale
        ("tiny < 0", False),
        ("x < -16777217", False),  # no float of 32 bits
        ("odd < 0", False),  # bounds of unsigned numbers
        ("nan < 0", False),
        ("s < 0", False),
        ("unmeasured < 0", False),
        ("N < 0", False),  # left to Spark, which resolves names
        ("b AND n < 0", True),
        ("s AND n < 0", False),  # what Spark may refuse is left to Spark
        ("b = 1 AND n < 0", False),
        ("n > 12345678901234567.999999999999", True),
        ("big > 12345678901234567.999999999999", False),
        ("wide = 3000000000", False),
        ("wide IN (3000000000)", False),  # compared as a bigint's decimal, which leaves too few digits behind the point
    ],
)
def test_predicates_that_metrics_answer(text: str, is_proven: bool) -> None:
    bounds: dict[str, tuple[Any, Any]] = {
        "n": (0, 5),
        "m": (Decimal("0.00"), Decimal("5.00")),
        "tiny": (Decimal("1E-38"), Decimal("2E-38")),
        "x": (0.0, 1.0),
        "odd": (7, -1),
        "big": (0, 12345678901234568),
        "wide": (Decimal("0.00000000000000000000"), Decimal("2999999999.99999999999999999999")),
        "nan": (0.0, 1.0),
        "s": ("a", "b"),
        "b": (False, True),
    }
    columns = {
        name: ColumnStatistics(value_count=9, null_count=0, nan_count=name == "nan", lower=low, upper=high)
        for name, (low, high) in bounds.items()
    }
    added = AddedFiles(files=(DataFile(path="a", rows=9, size_bytes=1, columns=columns),), complete=True)
    proven = read_predicate(text).never(outcome=True)
    assert proven is not None
    assert proven(added) == (0 if is_proven else None)


@pytest.mark.parametrize(
    "text",
    [
        *("n + 1 < 0", "-n > 0", "abs(n) < 0", "n < '0'", "n <=> 0", "n < 1L", "n < 1e9", "n < m", "1 < 0"),
        *("t.n < 0 OR n < 0", "n < 0 OR true", "!b", "n IN (m)", "n BETWEEN m AND 9", "n < NULL"),
        # which sqlglot takes, and Spark doesn't
        *("n BETWEEN SYMMETRIC 9 AND 6", "n ISNULL", "n NOTNULL", "n IS UNKNOWN"),
    ],
)
def test_other_predicates_are_left_to_spark(text: str) -> None:
    assert read_predicate(text).never(outcome=True) is None
