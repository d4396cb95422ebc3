"""Checks against a schema: what is refused before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from lakegate.checks import parse_checks, require_runnable, validate_checks
from lakegate.checks.registry import find_check
from lakegate.errors import CheckError, QueryError
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, Schema
from lakegate.ports import Engine

SCHEMA = Schema(
    columns=(
        Column(name="a.b", type="string"),
        Column(name="a", type="struct<b: long, c d: long>"),
        Column(name="n", type="long"),
        Column(name="at", type="timestamp"),
    )
)


def valid(text: str, **options: Any) -> Check:
    (check,) = validate_checks(parse_checks(text), SCHEMA, **options)
    return check


def test_a_field_is_never_taken_for_a_column_whose_name_holds_the_dot() -> None:
    assert valid("not_null('a.b')").columns == ("a.b",)
    field = valid("not_null('`a`.b')")
    assert field.columns == ("`a`.`b`",)
    assert validate_checks([field], SCHEMA) == (field,)
    question: Any = find_check("not_null").ask(field, SCHEMA)
    assert question.predicate == "`a`.`b` IS NULL"


def test_a_mistyped_field_is_told_the_nearest_one() -> None:
    schema = Schema(columns=(Column(name="home", type="struct<at: struct<zip: string>>"),))
    with pytest.raises(CheckError, match=r"there is no column 'home\.at\.zp'\.") as caught:
        validate_checks(parse_checks("not_null(home.at.zp)"), schema)
    assert (caught.value.hint or "").startswith("Did you mean 'home.at.zip'? ")


def test_a_table_to_count_that_is_not_there_is_found_early() -> None:
    known = {TableIdentifier.parse("nyc.zones"): SCHEMA}
    assert valid("equal_rowcount(to='nyc.zones')", schemas=known.get).arguments == {"to": "nyc.zones"}
    with pytest.raises(CheckError, match=r"there is no table nyc\.zone\."):
        valid("fewer_rows_than(to='nyc.zone')", schemas=known.get)


def test_a_band_of_a_masked_value_is_refused_early() -> None:
    valid("mean(n, max=3)", masked=["n"])
    with pytest.raises(CheckError, match=r"audit\.mask hides the value"):
        valid("mean(n, percent=3)", masked=["n"])


def test_a_time_span_that_no_calendar_holds_is_refused() -> None:
    valid("recency(at, '52000 weeks')")
    with pytest.raises(CheckError, match="longer than 365,000 days"):
        valid("recency(at, '999999 weeks')")


class Planner:
    """Refuses what holds one word."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.asked: list[list[str]] = []

    def analyze(self, _: Schema, predicates: Sequence[str], queries: Sequence[str]) -> None:
        self.asked.append([*predicates, *queries])
        if any(self.word in text for text in self.asked[-1]):
            raise QueryError(f"Spark rejected the query: no {self.word}.")


def runnable(planner: Planner, *written: str) -> None:
    checks = validate_checks([check for text in written for check in parse_checks(text)], SCHEMA)
    require_runnable(checks, SCHEMA, lambda: cast("Engine", planner))


def test_all_checks_that_cannot_be_planned_are_named() -> None:
    with pytest.raises(CheckError) as caught:
        runnable(Planner("nosuch"), "sql('nosuch(n)')", "sql('n < 0')", "unique(n, where='nosuch(n) > 0')")
    assert caught.value.exit_code == 2
    lines = caught.value.message.splitlines()
    assert lines[0] == "The engine can't evaluate 2 checks:"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "- sql(n, predicate='nosuch(n)')",
        "- unique(n, where='nosuch(n) > 0')",
    ]
