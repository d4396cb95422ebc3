"""The values of each column when quarantined rows are released; the integration tests run the SQL."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from lakegate.checks import parse_checks
from lakegate.errors import EngineError, InputError, SchemaError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import COLUMNS, RowSelection
from lakegate.model.run import Run
from lakegate.model.schema import Column, Schema
from lakegate.wap.release import columns_to_release, drop, hides_quarantined
from support.cli_support import make_run

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


def test_errors_quote_no_values_where_they_are_hidden() -> None:
    context: Any = SimpleNamespace(masked=())
    tx = Mock(run=SimpleNamespace(run_id="r"))
    tx.engine.fetch.side_effect = EngineError("The value '+49' …", condition="CAST_INVALID_INPUT")
    with pytest.raises(EngineError, match="CAST_INVALID_INPUT") as caught:
        drop(context, tx, TRIPS, RowSelection(), hides=True)
    assert "+49" not in caught.value.message


@pytest.mark.parametrize(
    ("checks", "hides"), [((), False), (("not_null(id)",), False), (("not_null(id)", "not_null(id, examples=0)"), True)]
)
def test_rows_stay_hidden_that_were_hidden_when_they_were_set_aside(checks: tuple[str, ...], *, hides: bool) -> None:
    made = {"request": None, "checks": {"nyc.trips": tuple(one for text in checks for one in parse_checks(text))}}
    known: dict[str, Run | None] = {"r1": make_run("published", request=None), "r2": make_run("published", **made)}
    held = pa.table({"_run_id": ["r1", "r2", "r2"]}).to_batches()
    reader = SimpleNamespace(read_rows=lambda _pointer, **_options: iter(held))
    context: Any = SimpleNamespace(reader=reader, journal=SimpleNamespace(get=known.get))
    pointer: Any = None
    assert hides_quarantined(context, pointer) is hides
    known["r1"] = None  # as a rebuilt journal says
    assert hides_quarantined(context, pointer)
