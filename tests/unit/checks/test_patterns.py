"""Patterns that take exponential time are found, and ordinary ones are not taken for such."""

from __future__ import annotations

import random
import re
from functools import cache

import pytest

from lakegate.checks.parse import parse_check
from lakegate.checks.patterns import EXPLODES, linear_like, longest_text, problem
from lakegate.checks.predicates import PredicateError, read_expression, read_predicate, read_query
from lakegate.errors import CheckError

_EXPLODE = [
    r"(a+)+$",
    r"(a*)*b",
    r"(a|a)*$",
    r"(a|aa)+$",
    r"^(\w+\s?)*$",
    r"(.*,)*$",
    r"(.*)*x",
    r"([a-zA-Z]+)*$",
    r"(x+x+)+y",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"(a|a?)+$",
    r"(\d+\.?)+$",
    r"(a{1,30}){1,30}$",
    r"(?i)(a|A)*$",
    r"(?:[^,]*,?)*$",
    r"((ab)+|(ab)+)+c",
    r"(?=(a+)+$)",
    r"^(\s*\w+\s*)+$",
    r"(\p{L}+\d*)+!",
    r"(a+)+",
    r"a*a*a*a*a*b",
    r"(a+)+\1$",
    r"^(?:\Qa\E+)+$",
    r"(?:[\Qab\E]+)+c",
]
_FINE = [
    r"^[A-Z]{3}$",
    r"^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-z]{2,}$",
    r"^(\d{1,3}\.){3}\d{1,3}$",
    r"^\w+(\s\w+)*$",
    r"(?:a++)+$",
    r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
    r"^(\d+)(,\d+)*$",
    r"^([a-z0-9]+(-[a-z0-9]+)*)$",
    r"^(?>a+)+$",
    r"([0-9a-f]{12}:?){20}",
    r"^([A-Z]{2}\d?){2}$",
    r"^(https?://)?([\w-]+\.)+[\w-]+(/[\w./?%&=-]*)?$",
    r".*x.*",
    r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$",
    r"^(foo|bar|baz)+$",
    r"\Qa+)+\E",
    r"[a&&[^b]]+",
    r"^[]a]+$",
    r"^\p{Lu}\p{L}*$",
    r"(a)\1",
    r"^(\w+ )*\w+$",
    r"^\s*$",
    r"x{1000}",
    r"(ab?){1,100}",
    r"^(?:[A-Z][a-z]+ ?)+$",
    "^(?:" + "|".join(f"code{number}" for number in range(120)) + ")$",
]


@pytest.mark.parametrize("pattern", _EXPLODE)
def test_what_explodes(pattern: str) -> None:
    assert problem(pattern) == EXPLODES


@pytest.mark.parametrize("pattern", _FINE)
def test_what_does_not(pattern: str) -> None:
    assert problem(pattern) is None


@pytest.mark.parametrize(
    ("longest", "patterns"),
    [
        (
            None,
            (
                *(r"^[A-Z]{3}$", r"[A-Z]+", r"foo.*", r"^(ab)*$", r"\bfoo\b", r"^(\d+)(\.\d+)?$", r"^a++$"),
                *(r"^([a-z]+,){3}$", r"^(?:a|b){1,9}$"),
                r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,255}\.[A-Za-z]{2,10}$",
                r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
            ),
        ),
        (
            800,
            (
                r"^(.)*$",
                r"^\w+(\s\w+)*$",
                r"^(a|b)*$",
                r"^(?:\bab,)*$",
                r"^(ab|c)*(x)\2$",
                r"^(?<x>a|b)*\k<x>$",
                r"^\X*$",
                r"^(\R)*$",
                r"^.{2,}$",
                r"^(https?://)?([\w-]+\.)+[\w-]+(/[\w./?%&=-]*)?$",
            ),
        ),
        (400, (r"^((a|b)c)*$", r"^(?:(?:ab?)c)+$")),
        (10_000, (r"\s+$", r".*foo.*", r"^.*foo.*$", r"a++x", r"^[^@\s]+@[^@\s]+\.[^@\s]+$", r"(a)\1+", r"^a|a+$")),
        (400, (r".*.*x", r"\s+\s+$", r"^\d*.*\d*x")),
        (120, (r".*.*.*x", r"^.*,.*,.*,.*$")),
    ],
)
def test_how_long_a_text_may_be(longest: int | None, patterns: tuple[str, ...]) -> None:
    assert {pattern: longest_text(pattern) for pattern in patterns} == dict.fromkeys(patterns, longest)


@pytest.mark.parametrize(
    "check",
    ["matches(code, '(a+)+$')", "sql(r\"s RLIKE '(a+)+$'\")", "sql(r\"regexp_like(s, '(\\u0061+)+$')\")"],
)
def test_checks_with_such_a_pattern_are_refused(check: str) -> None:
    with pytest.raises(CheckError, match="can take forever"):
        parse_check(check)
    for harmless in ("matches(code, '^(?:a++)+$')", "sql(r\"s = '(a+)+$'\")"):
        parse_check(harmless)


@pytest.mark.parametrize("predicate", ["s LIKE '%a%b%c%d%e%f'", "s LIKE CASE WHEN b THEN '%a%b%c%d%e%f' ELSE t END"])
def test_a_slow_pattern_of_like_is_refused_with_the_check_that_takes_it(predicate: str) -> None:
    with pytest.raises(PredicateError, match=r"can take forever on some texts\. The check match_like\(") as refused:
        read_predicate(predicate)
    assert "a++" not in str(refused.value)


@pytest.mark.parametrize("pattern", ["(?x)(a|b)*", "(", "a)", "*", "(" * 200 + ")" * 200, "a?" * 3_000, r"a\b{g}"])
def test_what_cannot_be_judged_has_a_problem(pattern: str) -> None:
    assert problem(pattern) not in {None, EXPLODES}


@pytest.mark.parametrize(
    ("predicate", "longest"),
    [
        *((f"s {operator} '^(ab|c)*$'", 800) for operator in ("RLIKE", "REGEXP", "NOT RLIKE", "! rlike")),
        *((f"{function}(s, '^(ab|c)*$') = 1", 800) for function in ("regexp", "RLIKE", "`rlike`", "regexp_count")),
        *((f"{function}(s, '^(ab|c)*$')[0] = 1", 800) for function in ("split", "regexp_extract_all")),
        ("NOT rlike(s, '^(ab|c)*$')", 800),
        ("s NOT RLIKE ('^(ab|c)*$')", 800),
        ("s RLIKE '^(ab|' 'c)*$' AND t = 'x'", 800),
        ("s RLIKE ('^(ab|c)*$') OR t RLIKE '.*.*.*x'", 120),
        ("exists(a, x -> x RLIKE '^(ab|c)*$')", 800),
        ("str_to_map(s, ',', '^(ab|c)*$')['a'] = 'b'", 800),
        ("parse_url(s, 'QUERY', '(ab|c)*') = 'b'", 800),
        ("s RLIKE t", 120),
        ("s RLIKE concat('(', t, ')*')", 120),
        ("s RLIKE CASE WHEN b THEN 'x' ELSE 'y' END", 120),
        ("CASE WHEN rlike(s, '^(ab|c)*$') THEN s LIKE 'a%' ELSE like(s, 'b%') END", 800),
        ("`regexp` = 'x' OR t.`like` = '(a+)+'", None),
        ("s LIKE 'a%' AND s LIKE '%a%' AND s LIKE '_%b'", None),
        ("s LIKE '%a%b%'", 10_000),
        ("s NOT ILIKE ANY ('a', '%a%b%c%')", 400),
        ("s LIKE '%a/%b%' ESCAPE '/'", None),
        ("like(s, '%a/%b%', '/')", None),
        ("regexp_replace(s, 'a', '(a+)+$') = '(a+)+$'", None),
    ],
)
def test_patterns_of_predicates_are_found(predicate: str, longest: int | None) -> None:
    assert read_predicate(predicate).longest_text == longest


@pytest.mark.parametrize(
    ("predicate", "why"),
    [
        ("s RLIKE '^(ab|' || 'c)*$'", "builds a pattern from parts"),
        ("s RLIKE concat('(a+', ')+$')", "builds a pattern from parts"),
        ("regexp_like(s, reverse('$+)+a('))", "builds a pattern from parts"),
        ("s RLIKE '(a+)' '+$'", "can take forever"),
        ("s LIKE ALL ('a', '%a%b%c%d%e%f')", "can take forever"),
        ("s RLIKE '(?x) ( a | b )*'", "has the flag x"),
        ("system.builtin.rlike(s, '(a+)+$')", "can take forever"),
        ("CASE WHEN b THEN s END RLIKE '(a+)+$'", "can take forever"),
        *((f"{column} RLIKE '(a+)+$'", "can take forever") for column in ("t.end", "`a` OR limit", "window")),
        ("b OR is LIKE ANY ('a', '%a%b%c%d%e%f')", "can take forever"),
        ("s RLIKE CASE WHEN b THEN '(a+)+$' ELSE 'x' END", "can take forever"),
        ("s RLIKE IF(b, '(a+)+$', 'x')", "can take forever"),
        ("s LIKE concat('%a%b%c%d%e%f', t)", "can take forever"),
    ],
)
def test_patterns_of_predicates_are_refused(predicate: str, why: str) -> None:
    with pytest.raises(PredicateError, match=re.escape(why)):
        read_predicate(predicate)


def test_what_reads_texts_of_any_length_takes_no_pattern_for_short_ones() -> None:
    with pytest.raises(PredicateError, match="over 800 characters"):
        read_query("SELECT * FROM batch WHERE s RLIKE '^(ab|c)*$'", "batch")
    with pytest.raises(PredicateError, match="over 400 characters"):
        read_expression("regexp_replace(s, '.*.*x', '')")
    assert read_query("SELECT s RLIKE '^a' found FROM batch JOIN batch b ON s LIKE 'a%' LEFT JOIN batch c", "batch")
    assert read_query(r"SELECT * FROM batch WHERE s RLIKE '\\s+$'", "batch")


def test_like_in_linear_time_finds_the_same() -> None:
    chooser = random.Random(7)
    for _ in range(3_000):
        pattern = "".join(chooser.choice(["%", "_", "a", "b", ".", "\\%", "\\\\"]) for _ in range(chooser.randrange(8)))
        text = "".join(chooser.choice("ab.%\\\n") for _ in range(chooser.randrange(9)))
        found = re.search(linear_like(pattern).replace(r"\z", r"\Z"), text) is not None
        assert found is _is_like(text, pattern), (text, pattern)


def _is_like(text: str, pattern: str) -> bool:
    @cache
    def matches(at: int, begin: int) -> bool:
        if begin == len(pattern):
            return at == len(text)
        if pattern[begin] == "%":
            return any(matches(later, begin + 1) for later in range(at, len(text) + 1))
        sign, length = (pattern[begin + 1], 2) if pattern[begin] == "\\" else (pattern[begin], 1)
        is_same = at < len(text) and (sign == text[at] or (length == 1 and sign == "_"))
        return is_same and matches(at + 1, begin + length)

    return matches(0, 0)
