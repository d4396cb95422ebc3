"""What is read out of the text of a type."""

from __future__ import annotations

import pytest

from lakegate.checks.columns import ColumnType
from lakegate.errors import SchemaError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, Schema, struct_text
from lakegate.wap.plan import require_fit


@pytest.mark.parametrize(
    ("text", "groupable"),
    [
        ("long", True),
        ("struct<unknown_reason: long, map: int, variant: list<string>>", True),
        (struct_text([("map<a: b", "long"), ("tick`s", "string")]), True),
        (struct_text([("ok", struct_text([("unknown", "unknown")]))]), False),
        ("list<map<string, int>>", False),
        ("map<string, int>", False),
        ("struct<a: variant>", False),
        ("unknown", False),
    ],
)
def test_a_key_is_refused_for_its_type_and_not_for_a_field_s_name(text: str, *, groupable: bool) -> None:
    assert ColumnType.parse(text).groupable is groupable


def test_numbers_of_a_csv_file_do_not_fit_a_struct_that_mentions_a_decimal() -> None:
    def schema(kind: str) -> Schema:
        return Schema(columns=(Column(name="a", type=kind),))

    name = TableIdentifier.parse("nyc.trips")
    require_fit(schema("long"), schema("decimal(10, 2)"), name=name, file_format="csv")
    with pytest.raises(SchemaError, match="doesn't fit"):
        require_fit(schema("long"), schema("struct<decimal: long>"), name=name, file_format="csv")
