"""Checks of a table's columns: how types are written and compared."""

from __future__ import annotations

import pytest

from lakegate.checks import column_type, columns_match, validate_checks
from lakegate.checks.questions import AboutColumns
from lakegate.checks.registry import find_check
from lakegate.errors import CheckError
from lakegate.model.checks import Check
from lakegate.model.schema import Column, Schema

CONTACT = "struct<email: string, `a: b`: list<decimal(9, 2)>, Geo: map<string, struct<lat: double>>>"
SCHEMA = Schema(columns=(Column(name="c", type=CONTACT), Column(name="id", type="long", required=True)))


def detail(check: Check) -> str | None:
    (valid,) = validate_checks([check], SCHEMA)
    question = find_check(valid.kind).ask(valid, SCHEMA)
    assert isinstance(question, AboutColumns)
    return question.judge(SCHEMA).detail


@pytest.mark.parametrize(
    "type_",
    [
        CONTACT,
        "STRUCT<email:varchar,`a: b`:array<numeric(9,2)>,Geo : map<text, struct<`lat`: DOUBLE>>>",
        "struct< email: string , `a: b`: list < decimal( 9 , 2 ) >, Geo: map<string,struct<lat: double> > >",
    ],
)
def test_types_are_the_same_however_they_are_written(type_: str) -> None:
    assert detail(columns_match([f"c: {type_}", "id: BIGINT NOT NULL"])) is None
    assert detail(column_type("c", type_)) is None


@pytest.mark.parametrize(
    "type_",
    [
        CONTACT.replace("email", "EMAIL"),
        CONTACT.replace("Geo", "geo"),
        CONTACT.replace("a: b", "a:b"),
        CONTACT.replace("email: string", "email: binary"),
    ],
)
def test_names_of_fields_compare_exactly_and_types_differ_inside(type_: str) -> None:
    assert detail(columns_match([f"c: {type_}", "id"])) == f"c is of type {CONTACT}."


@pytest.mark.parametrize("type_", ["strng", "struct<a: strng>", "list<`string`>", "<>"])
def test_what_is_no_type_is_refused_when_the_check_is_read(type_: str) -> None:
    with pytest.raises(CheckError, match="there is no type") as refused:
        columns_match([f"c: {type_}"])
    assert ("'strng'; did you mean 'string'?" in refused.value.message) == ("strng" in type_)


def test_names_compare_without_case_where_asked() -> None:
    assert detail(columns_match(["ID", "C"])) == "ID is missing; C is missing; c isn't expected; id isn't expected."
    assert detail(columns_match(["C", "ID: long not null"], ordered=True, ignore_case=True)) is None
    assert detail(columns_match(["ID", "C"], ordered=True, ignore_case=True)) == "the order is c, id."


def test_fields_compare_without_order_where_case_does_not_count() -> None:
    other = "struct<`a: b`:array<numeric(9,2)>, geo: map<string, struct<LAT: double>>, email: string>"
    assert detail(columns_match([f"c: {other}", "id"])) == f"c is of type {CONTACT}."
    assert detail(columns_match([f"c: {other}", "id"], ignore_case=True)) is None
    wrong = other.replace("9,2", "10,2")
    assert detail(columns_match([f"c: {wrong}", "id"], ignore_case=True)) == f"c is of type {CONTACT}."
