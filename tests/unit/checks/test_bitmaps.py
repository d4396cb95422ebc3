"""Keys as integers: which keys bitmaps can prove unique, by which SQL, and where a table may repeat them."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from lakegate.checks.bitmaps import integer_key, why_not, within_bounds
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedFiles, ColumnStatistics, DataFile

TYPES = {
    "i": "long",
    "j": "int",
    "b": "boolean",
    "d": "date",
    "m": "decimal(9, 2)",
    "w": "decimal(18, 0)",
    "w19": "decimal(19, 0)",
    "e": "decimal(15, 3)",
    "e16": "decimal(16, 3)",
    "s": "string",
    "f": "double",
    "raw": "binary",
    "l": "list<int>",
}
SCHEMA = Schema(columns=tuple(Column(name=name, type=kind) for name, kind in TYPES.items()))
LOWEST = -(2**63)
D = Decimal


def added(*files: tuple[int, dict[str, Any]], complete: bool = True) -> AddedFiles:
    """Files by their number of rows and, by column, its bounds and its number of NULLs if there are any."""

    def statistics(rows: int, low: object, high: object, nulls: int | None = 0) -> ColumnStatistics:
        return ColumnStatistics(value_count=rows, null_count=nulls, lower=low, upper=high)

    return AddedFiles(
        tuple(
            DataFile(
                path=f"f{number}",
                rows=rows,
                size_bytes=1,
                columns={name: statistics(rows, *one) for name, one in columns.items()},
            )
            for number, (rows, columns) in enumerate(files)
        ),
        complete=complete,
    )


@pytest.mark.parametrize(
    ("column", "bounds", "sql"),
    [
        ("i", (3, 9), "`i` BETWEEN 3L AND 9L"),
        ("i", (3, 3), "`i` BETWEEN 3L AND 3L"),
        ("i", (LOWEST + 1, LOWEST + 1), "`i` BETWEEN -9223372036854775807L AND -9223372036854775807L"),
        ("i", (LOWEST, 0), "`i` BETWEEN CAST('-9223372036854775808' AS BIGINT) AND 0L"),
        ("m", (D("1.50"), D("20.25")), "`m` BETWEEN CAST('1.50' AS DECIMAL(9, 2)) AND CAST('20.25' AS DECIMAL(9, 2))"),
        ("d", (date(1583, 1, 1), date(2024, 2, 29)), "`d` BETWEEN DATE '1583-01-01' AND DATE '2024-02-29'"),
        ("d", (date(1582, 12, 31), date(2024, 2, 29)), "TRUE"),
        ("b", (False, True), "TRUE"),
        ("i", (None, 9), "TRUE"),
        ("i", (3, None), "TRUE"),
        ("i", (9, 3), "TRUE"),
    ],
)
def test_where_a_table_may_repeat_the_keys_of_one_column(column: str, bounds: tuple[Any, Any], sql: str) -> None:
    assert within_bounds([column], SCHEMA, added((10, {column: bounds}))) == sql


def test_where_a_table_may_repeat_keys_is_as_wide_as_all_files() -> None:
    """A key outside would be taken for a new one."""
    empty, null = (0, {"i": (100, 200)}), (4, {"i": (None, None, 4), "j": (0, 50)})
    files = (
        empty,
        null,
        (10, {"i": (5, 9), "j": (1, 1)}),
        (10, {"i": (3, 6), "j": (1, 1)}),
        (2, {"i": (4, 12), "j": (1, 1)}),
    )
    assert within_bounds(["i", "j"], SCHEMA, added(*files)) == "`i` BETWEEN 3L AND 12L AND `j` BETWEEN 0L AND 50L"
    assert within_bounds(["i"], SCHEMA, added((10, {"i": (5, 9)}), (1, {}))) == "TRUE"
    assert within_bounds(["i"], SCHEMA, added((4, {"i": (None, None, 3)}), (10, {"i": (5, 9)}))) == "TRUE"
    assert within_bounds(["i"], SCHEMA, added(empty)) == "TRUE"


def test_a_key_needs_all_its_columns_among_those_of_rows_that_were_only_added() -> None:
    files = added((10, {"i": (1, 10)}))
    every = added((10, dict.fromkeys(TYPES, (1, 10))))
    assert integer_key(["i"], SCHEMA, files) is not None
    assert integer_key(["i", "x"], SCHEMA, files) is None
    assert (why_not(["i", "x"], SCHEMA, files) or "").endswith(": one is a field of a struct.")
    assert integer_key(["i", "j"], SCHEMA, files) is None
    assert integer_key(["i"], SCHEMA, AddedFiles(files.files, complete=False)) is None
    assert integer_key(["i"], Schema(columns=SCHEMA.columns[:1]), every) is not None


@pytest.mark.parametrize(
    ("rows", "bounds", "is_suitable"),
    [
        (10, (1, 10), True),
        (11, (1, 10), False),
        (11, (1, 10, 1), True),
        (12, (1, 10, 1), False),
        (12, (1, 10, None), True),
        (1, (1, 1 << 22), True),
        (1, (0, 1 << 22), False),
        (20_000, (1, 20_000 * 256), True),
        (20_000, (0, 20_000 * 256), False),
    ],
)
def test_keys_may_neither_share_integers_nor_be_too_far_apart(rows: int, bounds: Any, is_suitable: bool) -> None:
    assert (integer_key(["i"], SCHEMA, added((rows, {"i": bounds}))) is not None) is is_suitable
