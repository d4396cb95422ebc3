"""Patterns that take exponential time are found, and ordinary ones are not taken for such."""

from __future__ import annotations

import pytest

from lakegate.checks.parse import parse_check
from lakegate.checks.patterns import explodes, longest_text
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
]


@pytest.mark.parametrize("pattern", _EXPLODE)
def test_what_explodes(pattern: str) -> None:
    assert explodes(pattern)


@pytest.mark.parametrize("pattern", _FINE)
def test_what_does_not(pattern: str) -> None:
    assert not explodes(pattern)


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
