from __future__ import annotations

import keyword
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakegate.checks import describe, parse_check, parse_checks
from lakegate.errors import CheckError, ExitCode
from lakegate.model.checks import Check

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NAMES = (
    TEXT.filter(bool)
    | st.sampled_from([*keyword.kwlist, *keyword.softkwlist, "a`b", "a b", "ﬁ", "ª", "Trip Distance", "x.y", "'", '"'])
    | st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = NUMBERS | TEXT


def optional(values: st.SearchStrategy[Any], *keys: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(keys, values)).filter(bool)


def _may_hold_a_value(ends: dict[str, Any]) -> bool:
    numbers = [end for end in (ends.get("min"), ends.get("max")) if isinstance(end, (int, float))]
    return len(numbers) < 2 or numbers[0] <= numbers[1]


CALLS: st.SearchStrategy[tuple[str, tuple[str, ...], dict[str, Any]]] = st.one_of(
    st.tuples(st.just("not_null"), st.tuples(NAMES), st.just({})),
    st.tuples(st.just("unique"), st.lists(NAMES, min_size=1, max_size=3, unique=True).map(tuple), st.just({})),
    st.tuples(
        st.just("relationships"),
        st.lists(NAMES, min_size=2, max_size=2, unique=True).map(tuple),
        st.just({"to": "ns.t"})
        | st.lists(NAMES.map("{}2".format), min_size=2, max_size=2).map(lambda x: {"to": "ns.t", "to_columns": x}),
    ),
    st.tuples(st.just("in_range"), st.tuples(NAMES), optional(SCALARS, "min", "max").filter(_may_hold_a_value)),
    st.tuples(
        st.just("in_range"),
        st.tuples(NAMES),
        st.fixed_dictionaries({"min": NUMBERS, "inclusive": st.just(value=False)}),
    ),
    st.tuples(
        st.just("accepted_values"),
        st.tuples(NAMES),
        st.fixed_dictionaries({"values": st.lists(SCALARS | st.booleans(), min_size=1, max_size=4)}),
    ),
    st.tuples(
        st.just("matches"),
        st.tuples(NAMES),
        st.fixed_dictionaries({"pattern": st.sampled_from([r"\d+", "'", '"', "ü$"])}),
    ),
    st.tuples(st.just("row_count"), st.just(()), optional(st.just(7), "min", "max")),
    st.tuples(
        st.just("sql"),
        st.just(("a", "b c")),
        st.just({"predicate": "a < 0 OR `b c` = 'it\\'s \\\\ \"new\"\nline'"}),
    ),
)


@given(CALLS, st.sampled_from(["error", "warn"]), st.none() | TEXT.filter(str.strip))
def test_the_text_of_a_check_is_read_back(
    call: tuple[str, tuple[str, ...], dict[str, Any]], severity: Any, label: str | None
) -> None:
    kind, columns, arguments = call
    scope: Any = "table" if kind == "relationships" else "batch"
    check = Check(kind=kind, columns=columns, arguments=arguments, severity=severity, scope=scope, label=label)
    read = parse_check(str(check))
    assert read == check
    assert str(read) == str(check)
    assert Check.model_validate_json(read.model_dump_json()) == read


@given(st.text(max_size=40) | st.text("not_null()[]{}'\"\\,=abr-1# \n", max_size=40).map("unique({})".format))
def test_nothing_but_a_check_error_comes_of_any_text(text: str) -> None:
    with suppress(CheckError):
        parse_checks(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("not_null(passenger_count)", ["not_null(passenger_count)"]),
        ("not_null(a, 'Trip Distance')", ["not_null(a)", "not_null('Trip Distance')"]),
        ("not_null(a, b, name='keys')", ["not_null(a, name='keys_a')", "not_null(b, name='keys_b')"]),
        ("unique(a, b, severity='warn')", ["unique(a, b, severity='warn')"]),
        ("in_range(fare, 0, 500)", ["in_range(fare, min=0, max=500)"]),
        ("in_range(fare, -1.5, inclusive=False)", ["in_range(fare, min=-1.5, inclusive=False)"]),
        ("in_range(fare, None, 3)", ["in_range(fare, max=3)"]),
        ("accepted_values(p, ['cash', None, 'card'])", ["accepted_values(p, values=['cash', 'card'])"]),
        ("accepted_values(p, (1, True))", ["accepted_values(p, values=[1, True])"]),
        (r"matches(c, '^\d{3}$')", [r"matches(c, pattern='^\\d{3}$')"]),
        (r"matches(c, r'\bx')", [r"matches(c, pattern='\\bx')"]),
        (r"matches(c, '\\d')", [r"matches(c, pattern='\\d')"]),
        ("sql('fare < 0')", ["sql(fare, predicate='fare < 0')"]),
        ("  unique(\n  a, # the key\n  class,\n)  ", ["unique(a, class)"]),
        ("relationships(a, to='ns.t')", ["relationships(a, to='ns.t', scope='table')"]),
        ("relationships(a, to='ns.t', to_columns=a)", ["relationships(a, to='ns.t', scope='table')"]),
        ("relationships(a, to='ns.t', field='x')", ["relationships(a, to='ns.t', to_columns='x', scope='table')"]),
        (
            "relationships((a, b), to='ns.t', to_columns=(x, 'y z'))",
            ["relationships(a, b, to='ns.t', to_columns=['x', 'y z'], scope='table')"],
        ),
        ("relationships(a, b, to='n.s.t')", ["relationships(a, b, to='n.s.t', scope='table')"]),
    ],
)
def test_what_users_write(text: str, canonical: list[str]) -> None:
    assert [str(check) for check in parse_checks(text)] == canonical


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "empty", "not_null"),
        ("not_null", "isn't of the form", "not_null(column, …)"),
        ("not_null(", "never closed", "not_null(passenger_count)"),
        ("not_null(Trip Distance)", "can't be read", "quoted"),
        ("not_null(a[0])", "'a[0]' isn't a literal value or a plain column name", "quoted"),
        ("not_null(a); not_null(b)", "can't be read", "not_null(column, …)"),
        ("not_nul(a)", "no check called 'not_nul'", "Did you mean 'not_null'?"),
        ("not_null()", "needs a column", "not_null(column, …)"),
        ("not_null(a, a)", "column 'a' is given twice", "not_null(column, …)"),
        ("in_range(a)", "needs min, max or both", "in_range(fare_amount, 0, 500)"),
        ("in_range(a, 1, 2, True, 3)", "at most 4 arguments, 5 are given", "in_range(column, min, max"),
        ("in_range(a, min=1, min=1)", "'min' is given twice", "in_range(column, min, max"),
        ("in_range(a, minimum=1)", "no argument 'minimum'. Did you mean 'min'?", "in_range(column, min, max"),
        ("in_range(a, **b)", "'**' isn't allowed", "in_range(column, min, max"),
        ("in_range(a, True)", "min=True isn't a whole number or a number or quoted text", "in_range(column, min, max"),
        ("in_range(a, 1e999)", "inf isn't a finite number", "in_range(column, min, max"),
        ("in_range(a, 0x" + "f" * 9000 + ")", "more than 400 digits", "in_range(column, min, max"),
        ("(" * 500, "can't be read", "kind(column"),
        ("accepted_values(a, [cash])", "text needs quotes: 'cash'", "['cash', 'card']"),
        ("accepted_values(a, 'cash')", "values='cash' isn't a list", "['cash', 'card']"),
        ("accepted_values(a, [])", "the list is empty.", "['cash', 'card']"),
        ("matches(a)", "needs pattern=…, quoted text", "matches(column, pattern)"),
        (r"matches(a, '\b')", "backspace", "matches(column, pattern)"),
        ("row_count()", "needs min, max, deviations or percent", "row_count(min=1)"),
        ("in_range(a, 5, 1)", "min=5 is more than max=1", "in_range(column, min"),
        ("stddev(a, max=-0.5)", "max=-0.5 is negative, but a standard deviation never is", "stddev(column, min"),
        ("sql(b, predicate='a < 0')", "refers to a, not to b", "sql('fare_amount < 0')"),
        ("not_null(a, severity='warm')", "no severity 'warm'", "Did you mean 'warn'?"),
        ("not_null(a, scope='table')", "scope='table' isn't supported", "Leave scope out"),
        (
            "unique(a, scope='tables')",
            "looks at the rows of the batch or the whole table",
            "scope='batch' or scope='table'",
        ),
        ("relationships(a, to='ns.t', scope='batch')", "scope='batch' isn't supported", "write scope='table'"),
        ("relationships(a)", "needs to=…, quoted text", "relationships(tailnum, to='nyc.planes')"),
        ("relationships(a, to=nyc.planes)", "text needs quotes: 'nyc.planes'", "to='nyc.planes'"),
        ("relationships(a, to='planes')", "'planes' can't name a table", "to='nyc.planes'"),
        (
            "relationships(a, b, to='ns.t', to_columns=x)",
            "2 columns can't be compared with 1 column",
            "to_columns=(x, y)",
        ),
        ("relationships(a, to='ns.t', to_columns=[1])", "1 isn't a column name", "to_columns=(x, y)"),
        (
            "relationships(a, to='ns.t', to_columns=x, field=x)",
            "'field' is another name for 'to_columns'",
            "to_columns=",
        ),
        ("not_null(a, name='')", "isn't text; it names the check", "not_null(column, …)"),
    ],
)
def test_mistakes_are_answered_with_how_to_write_it(text: str, message: str, hint: str) -> None:
    with pytest.raises(CheckError) as caught:
        parse_checks(text)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_number_with_more_digits_than_a_double_keeps_is_refused() -> None:
    nines = f"0.{'9' * 37}8"
    for text, written in (
        (f"in_range(d, max={nines})", nines),
        ("accepted_values(d, [-0.30000000000000001])", "0.3000"),
    ):
        with pytest.raises(CheckError) as caught:
            parse_check(text)
        assert f"{written}" in str(caught.value)
        assert "write it in quotes" in (caught.value.hint or "")
    assert parse_check(f"in_range(d, max='{nines}')").arguments["max"] == nines
    assert parse_check("in_range(d, min=.10, max=1_0.50e0)").arguments == {"min": 0.1, "max": 10.5}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("not_null(passenger_count)", "passenger_count must not be NULL"),
        ("unique(a, b)", "a and b together are unique"),
        ("relationships(dest, to='nyc.airports', field=faa)", "every dest is a faa of nyc.airports"),
        ("in_range(fare, 0, 500)", "fare is at least 0 and at most 500"),
        ("in_range(fare, max=5, inclusive=False)", "fare is less than 5"),
        ("accepted_values(p, ['cash'])", "p is one of 'cash'"),
        (f"accepted_values(p, {list(range(12))})", "p is one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"),
        ("matches(c, '^A')", "c matches /^A/"),
        ("length_between(c, 2, 8)", "c has at least 2 and at most 8 characters"),
        ("length_between(c, max=1000)", "c has at most 1,000 characters"),
        ("row_count(1)", "the batch has at least 1 row"),
        ("row_count(1, 3)", "the batch has 1 to 3 rows"),
        ("sql('fare < 0')", "no row has fare < 0"),
    ],
)
def test_a_check_in_one_sentence(text: str, sentence: str) -> None:
    assert describe(parse_check(text)) == sentence
