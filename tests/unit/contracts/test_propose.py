"""Contracts that are proposed from rows: the rows pass them, whatever they hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakegate.contracts.document import one_line, parse_document
from lakegate.contracts.propose import profile, propose
from lakegate.contracts.store import LoadedContract, parse_contract
from lakegate.model.checks import Check, is_tolerated
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, Schema

TABLE = TableIdentifier.parse("nyc.trips")
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    "double": (pa.float64(), st.floats() | st.integers(0, 9).map(float)),
    "decimal(5, 2)": (pa.decimal128(5, 2), st.decimals("-999.99", "999.99", places=2)),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "timestamptz": (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(UTC))),
    "string": (
        pa.string(),
        st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(["no", "1", "2024-01-31", "a'b", "x: y"]),
    ),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "list<int>": (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=2)),
}
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6) | st.sampled_from(
    ["id", "no", "a.b", "vendor_id"]
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, Schema]:
    rows = draw(st.integers(0, 5) | st.sampled_from([60, 300]))
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique_by=str.lower))
    columns, listed = [], []
    for name in names:
        kind = draw(st.sampled_from(sorted(TYPES)))
        arrow, values = TYPES[kind]
        some = draw(st.lists(st.none() | values, min_size=1, max_size=8))
        counted = range(rows) if kind in ("int", "long") and draw(st.booleans()) else None
        made = [some[index % len(some)] for index in range(rows)] if counted is None else list(counted)
        columns.append(pa.array(made, arrow))
        listed.append(Column(name=name, type=kind))
    return pa.table(columns, names=names), Schema(columns=tuple(listed))


def proposed(table: pa.Table, schema: Schema) -> LoadedContract:
    return parse_contract(propose(TABLE, profile(table.to_batches(max_chunksize=50), schema), source="rows\n- x: 1"))


def failing(check: Check, table: pa.Table) -> int:
    """Count the rows that fail a check, slowly: each row by itself, in Python."""
    if check.kind == "row_count":
        return 0 if table.num_rows >= check.arguments["min"] else 1
    values = table.column(check.columns[0]).to_pylist()
    present = [value for value in values if value is not None]
    tests: dict[str, Callable[[Any], bool]] = {
        "not_null": lambda value: value is not None,
        "accepted_values": lambda value: value in check.arguments["values"],
        "unique": lambda value: present.count(value) == 1,
        "in_range": lambda value: _is_between(value, check.arguments.get("min"), check.arguments.get("max")),
    }
    return sum(not tests[check.kind](value) for value in (values if check.kind == "not_null" else present))


def _is_between(value: Any, low: Any, high: Any) -> bool:
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
        low = low and datetime.fromisoformat(low)
    elif isinstance(value, date):
        low = low and date.fromisoformat(low)
    elif isinstance(value, float):
        value = Decimal(value)
    return (low is None or value >= low) and (high is None or value <= high)


@given(made=tables())
def test_the_rows_that_were_looked_at_pass(made: tuple[pa.Table, Schema]) -> None:
    table, schema = made
    loaded = proposed(table, schema)
    assert [column.name for column in loaded.terms.columns] == list(schema.names)
    assert [column.type for column in loaded.terms.columns] == [column.type for column in schema.columns]
    for check in loaded.checks:
        assert is_tolerated(check.tolerance, failing(check, table), table.num_rows), str(check)


@given(text=st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_text_is_written_so_that_it_is_read_back(text: str) -> None:
    assert parse_document(f"[{one_line(text)}]", name="x").root.plain() == [text]


def texts(**columns: list[Any]) -> list[str]:
    table = pa.table(columns)
    kinds = {pa.string(): "string", pa.int64(): "long", pa.float64(): "double"}
    schema = Schema(columns=tuple(Column(name=field.name, type=kinds[field.type]) for field in table.schema))
    return [str(check) for check in proposed(table, schema).checks if check.kind != "row_count"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["card", "cash", "card", None] * 30, ["accepted_values(x, values=['card', 'cash'])"]),
        ([1.5, 41.0] * 50, ["not_null(x)", "in_range(x, min=0, severity='warn')"]),
        ([1.0, float("nan")], ["not_null(x)"]),
        ([1.0, float("inf")], ["not_null(x)"]),
        ([None] + [1] * 99, ["not_null(x, tolerance='2%', severity='warn')", "in_range(x, min=0,"]),
        (["any", "text", "here"], ["not_null(x)"]),
    ],
)
def test_what_is_proposed(values: list[Any], said: list[str]) -> None:
    found = texts(x=values)
    assert len(found) == len(said)
    assert all(one.startswith(start) for one, start in zip(found, said, strict=True)), found


def test_no_range_is_proposed_where_some_values_are_beyond_python_s_dates() -> None:
    days = [pa.array(some, pa.int32()).cast(pa.date32()) for some in ([19_000], [-800_000], [19_001])]  # one B. C.
    batches = [pa.record_batch([some], names=["day"]) for some in days]
    schema = Schema(columns=(Column(name="day", type="date"),))
    (column,) = profile(batches, schema)
    assert (column.low, column.high) == (None, None)
    assert "in_range" not in propose(TABLE, [column], source="rows")


def test_a_key_is_proposed_by_its_values_and_its_name() -> None:
    found = texts(trip_id=list(range(100)), distance=list(range(100)))
    assert "unique(trip_id)" in found
    assert "unique(distance)" not in found


def test_taxi_data_passes_what_is_proposed_for_it(shared_data: Any) -> None:
    table = pq.read_table(shared_data / "green_tripdata_2024-01.parquet")
    kinds = {"int32": "int", "int64": "long", "double": "double", "timestamp[us]": "timestamp"}
    schema = Schema(
        columns=tuple(Column(name=one.name, type=kinds.get(str(one.type), "string")) for one in table.schema)
    )
    loaded = proposed(table, schema)
    assert {check.kind for check in loaded.checks} == {"not_null", "in_range", "accepted_values", "row_count"}
    assert all(not failing(check, table.slice(0, 2_000)) for check in loaded.checks)


def test_values_of_masked_columns_are_not_shown() -> None:
    rows = pa.table({"id": list(range(60)), "mail": ["x@example.com", "y@example.com"] * 30, "fare": [987.5] * 60})
    schema = Schema(
        columns=tuple(Column(name=n, type=t) for n, t in (("id", "long"), ("mail", "string"), ("fare", "double")))
    )
    text = propose(TABLE, profile(rows.to_batches(), schema), source="rows", masked=("MAIL", "fare"))
    assert "unique  #" in text
    assert text.count("# never NULL") == 3
    assert not re.search("example|987|1000|2 different", text)


def test_no_check_is_proposed_for_a_column_that_none_can_name() -> None:
    columns = profile(pa.table({"${": [1, 2]}).to_batches(), Schema(columns=(Column(name="${", type="long"),)))
    assert not [one for one in parse_contract(propose(TABLE, columns, source="x"), name="x").checks if one.columns]
