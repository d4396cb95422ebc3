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
from lakegate.model.quarantine import COLUMNS, REASONS, RowSelection, quarantine_of
from lakegate.model.run import Run
from lakegate.model.schema import Column, Schema
from lakegate.wap.release import columns_to_release, drop, hides_quarantined, quarantined_rows, release_corrected
from lakegate.wap.transaction import Transaction
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


class Engine:
    """Notes what it's asked, and knows which rows wait."""

    def __init__(self, *waiting: str) -> None:
        self.asked: list[str] = []
        self.appended: list[Any] = []
        self._waiting = waiting

    def table(self, table: TableIdentifier) -> None:
        pass

    def sql(self, statement: str) -> None:
        self.asked.append(statement)

    def fetch(self, statement: str) -> list[tuple[str]]:
        self.asked.append(statement)
        return [(one,) for one in self._waiting if f"'{one}'" in statement]

    def append(self, table: TableIdentifier, rows: Any, create: object) -> None:
        self.appended += rows.to_pylist()


def correct(engine: Engine, rows: list[dict[str, Any]]) -> None:
    tx: Any = SimpleNamespace(engine=engine, run=SimpleNamespace(run_id="r1"))
    context: Any = SimpleNamespace(masked=())
    release_corrected(context, tx, TRIPS, pa.Table.from_pylist(rows))


def test_corrected_rows_are_marked_by_their_ids_and_appended_without_what_only_the_quarantine_has() -> None:
    engine = Engine("a", "b")
    correct(engine, [{"_quarantine_id": "b", "id": 2, "_run_id": "x"}])
    assert engine.asked[1].endswith("SET _released_by = 'r1' WHERE _released_by IS NULL AND _quarantine_id IN ('b')")
    assert engine.appended == [{"id": 2}]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"id": 1}], "no column '_quarantine_id'"),
        ([{"_quarantine_id": "a"}, {"_quarantine_id": None}], "1 of the corrected rows have no"),
        ([{"_quarantine_id": "a"}, {"_quarantine_id": "a"}], "Two corrected rows"),
        ([{"_quarantine_id": "a"}, {"_quarantine_id": "o'c"}], "1 of the 2 corrected rows match no row"),
        ([{"_quarantine_id": str(number)} for number in range(10_001)], "too many for one run"),
    ],
)
def test_corrected_rows_that_name_no_row_that_waits_change_nothing(rows: list[dict[str, Any]], words: str) -> None:
    engine = Engine("a")
    with pytest.raises(InputError, match=words):
        correct(engine, rows)
    assert engine.appended == []
    assert not [one for one in engine.asked if one.startswith("UPDATE")]


def test_errors_quote_no_values_where_they_are_hidden() -> None:
    context: Any = SimpleNamespace(masked=())
    tx = Mock(run=SimpleNamespace(run_id="r"))
    tx.engine.fetch.side_effect = EngineError("The value '+49' …", condition="CAST_INVALID_INPUT")
    with pytest.raises(EngineError, match="CAST_INVALID_INPUT") as caught:
        release_corrected(context, tx, TRIPS, pa.table({"_quarantine_id": ["a"]}), hides=True)
    assert "+49" not in caught.value.message


def test_an_upsert_in_a_transaction_knows_what_is_masked() -> None:
    context: Any = SimpleNamespace(masked=("id",), catalog=Mock())
    progress: Any = SimpleNamespace(run=SimpleNamespace(branch="b"))
    engine = Mock()
    Transaction(context, progress, engine).upsert("nyc.trips", [], keys=["id"])
    assert engine.upsert.call_args.kwargs == {"masked": ("id",)}


@pytest.mark.parametrize(
    ("waiting", "confirmed"), [({"r1": 2}, {"r1": 2}), ({"r1": 2, "r2": 9}, {"r1": 2}), ({"r2": 2}, {"r1": 2})]
)
def test_only_rows_that_were_confirmed_are_dropped(waiting: dict[str, int], confirmed: dict[str, int]) -> None:
    asked: list[str] = []

    def fetch(statement: str) -> list[tuple[Any, ...]]:
        return [*waiting.items()] if "GROUP BY" in statement else [(sum(waiting.values()),)]

    tx: Any = SimpleNamespace(engine=SimpleNamespace(table=str, sql=asked.append, fetch=fetch))
    context: Any = SimpleNamespace(masked=())
    if waiting == confirmed:
        drop(context, tx, TRIPS, RowSelection(confirmed=confirmed))
    else:
        with pytest.raises(InputError, match=rf"since they were confirmed \({sum(waiting.values())} now, 2 then\)"):
            drop(context, tx, TRIPS, RowSelection(confirmed=confirmed))
    assert any(one.startswith("DELETE") for one in asked) == (waiting == confirmed)


@pytest.mark.parametrize(
    ("change", "goes_on"), [(None, True), ("append", True), ("metadata", True), ("rewrite", False), ("gone", False)]
)
def test_as_many_other_rows_are_not_the_confirmed_ones(change: str | None, goes_on: bool) -> None:
    asked: list[str] = []
    aside = quarantine_of(TRIPS)

    def fetch(statement: str) -> list[tuple[Any, ...]]:
        return [("r1", 2)] if "GROUP BY" in statement else [(2,)]

    before = None if change == "gone" else "before"
    catalog = Mock(**{"get_table.return_value": before})
    catalog.get_ref_with_tables.return_value = (None, {aside: before if change is None else "now"})
    reader = Mock(**{"change.return_value": SimpleNamespace(kind=change)})
    context: Any = SimpleNamespace(masked=(), catalog=catalog, reader=reader)
    tx: Any = SimpleNamespace(engine=SimpleNamespace(table=str, sql=asked.append, fetch=fetch), branch="wap/drop")
    chosen = RowSelection(confirmed={"r1": 2}, confirmed_at="c" * 64)
    if goes_on:
        drop(context, tx, TRIPS, chosen)
    else:
        with pytest.raises(InputError, match="have changed since they were confirmed"):
            drop(context, tx, TRIPS, chosen)
    assert catalog.get_table.call_args.args[1].hash == "c" * 64
    assert any(one.startswith("DELETE") for one in asked) == goes_on


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


def test_quarantined_rows_have_values_that_python_cannot_represent() -> None:
    columns: Any = {
        "id": [1],
        "day": pa.array([10**7], pa.date32()),
        **{name: [None] for name in COLUMNS},
        REASONS: [[]],
    }
    reader: Any = SimpleNamespace(read_rows=lambda *_, **__: [pa.record_batch(columns)])
    (row,) = quarantined_rows(reader, Mock(), RowSelection(), 10)
    assert (row["id"], row["day"]) == (1, "+29349-01-26")
