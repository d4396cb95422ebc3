"""The values of each column when quarantined rows are released; the integration tests run the SQL."""

from __future__ import annotations

import pytest

from lakegate.errors import InputError, SchemaError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import COLUMNS
from lakegate.model.schema import Column, Schema
from lakegate.wap.release import columns_to_release

TRIPS = TableIdentifier.parse("nyc.trips")


def schema(**columns: str) -> Schema:
    return Schema(columns=tuple(Column(name=name, type=kind) for name, kind in columns.items()))


HELD = schema(id="int", fare="double", **dict.fromkeys(COLUMNS, "string"))


def test_values_of_a_column_that_the_table_lost_go_where_they_are_told_to() -> None:
    renamed = schema(ID="long", fare_amount="double")
    assert columns_to_release(TRIPS, renamed, HELD, {}) == (["`id` AS `ID`", "NULL AS `fare_amount`"], ["fare"])
    moved = columns_to_release(TRIPS, renamed, HELD, {"fare_amount": "abs(Fare)"})
    assert moved == (["`id` AS `ID`", "(abs(Fare)) AS `fare_amount`"], [])
    assert columns_to_release(TRIPS, renamed, HELD, {"Fare": " null "})[1] == []
    with pytest.raises(SchemaError, match="has no column 'fare'"):
        columns_to_release(TRIPS, renamed, HELD, {"fare": "1"})


def test_a_column_that_cannot_hold_the_values_needs_an_expression() -> None:
    narrow = schema(id="int", fare="float")
    with pytest.raises(SchemaError, match=r"'fare' is double in nyc\.trips__quarantine and float in nyc\.trips"):
        columns_to_release(TRIPS, narrow, HELD, {})
    given = {"fare": "cast(fare AS float)"}
    assert columns_to_release(TRIPS, narrow, HELD, given)[0][1] == "(cast(fare AS float)) AS `fare`"
    with pytest.raises(InputError):
        columns_to_release(TRIPS, narrow, HELD, {"fare": "(SELECT 1)"})


def test_values_go_into_structs_that_have_grown() -> None:
    held, grown = schema(at="struct<a: int, b: string>"), schema(at="struct<B: string, c: list<int>, a: long>")
    assert columns_to_release(TRIPS, grown, held, {}) == (["`at` AS `at`"], [])
    for other in ("struct<a: int>", "struct<a: int, b: int>", "list<int>", "string"):
        with pytest.raises(SchemaError, match="can't hold all of its values"):
            columns_to_release(TRIPS, schema(at=other), held, {})
