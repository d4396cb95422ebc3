"""Why checks were answered as they were."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from lakegate.checks import parse_checks
from lakegate.checks.bitmaps import within_bounds
from lakegate.checks.explaining import read_bytes, reason
from lakegate.checks.registry import find_check
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedFiles, ColumnStatistics, DataFile

SCHEMA = Schema(
    columns=tuple(
        Column(name=name, type=kind)
        for name, kind in (
            ("id", "long"),
            ("far", "long"),
            ("few", "int"),
            ("word", "string"),
            ("ratio", "double"),
            ("bare", "long"),
            ("parts", "list<int>"),
            ("raw", "fixed[16]"),
        )
    )
)
ROWS = 1_000_000


def _metrics(low: object = None, high: object = None, *, nans: int | None = None) -> ColumnStatistics:
    return ColumnStatistics(value_count=ROWS, null_count=0, nan_count=nans, lower=low, upper=high, size_bytes=100)


FILE = DataFile(
    path="f",
    rows=ROWS,
    size_bytes=1_000,
    columns={
        "id": _metrics(1, ROWS),
        "far": _metrics(1, 1_000 * ROWS),
        "few": _metrics(1, 7),
        "word": _metrics("a", "z"),
        "ratio": _metrics(0.0, 1.0, nans=3),
    },
)
ADDED = AddedFiles((FILE,), complete=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("in_range(few, 3)", "bounds don't rule out"),
        ("not_null(bare)", "1 of 1 files have no metrics for 'bare'"),
        ("in_range(ratio, 0, 1)", "may contain NaN"),
        ("accepted_values(word, ['a'])", "may be cut short"),
        ("not_null(parts)", "nested"),
        ("matches(word, '^a')", "say nothing about what it checks"),
        ("not_null(id, where='few > 1')", "where="),
        ("unique(word)", "can't be mapped to integers"),
        ("unique(far)", "1,000,000 rows among 1,000,000,000 possible keys"),
        ("unique(few)", "only 7 possible values"),
        ("unique(bare)", "bounds of 'bare' are missing"),
        ("unique(id)", "can't tell rows apart"),
        ("unique(id, scope='table')", "the rest of the table"),
        ("relationships(id, to='nyc.zones')", "nyc.zones"),
    ],
)
def test_the_reason_says_what_stood_in_the_way(text: str, words: str) -> None:
    (check,) = parse_checks(text)
    definition = find_check(check.kind)
    question, where = definition.ask(check, SCHEMA), definition.filter(check, SCHEMA)
    assert words in reason(check, question, where, SCHEMA, ADDED)


def test_bytes_are_those_of_the_columns() -> None:
    assert read_bytes(["id", "word", "id"], ADDED) == 200
    assert read_bytes(["id", "bare"], ADDED) is None


def test_the_bounds_of_keys_are_those_of_all_files_in_any_order() -> None:
    """Rows of the table beyond them aren't looked at, so a key there would be taken for a new one."""
    ends = ((4, 9), (1, 3), (2, 5))
    files = [replace(FILE, columns={"id": _metrics(*pair)}) for pair in ends]
    nulls = replace(FILE, columns={"id": replace(_metrics(), null_count=ROWS)})
    known = [*files, nulls, replace(FILE, rows=0, columns={})]
    assert within_bounds(["id"], SCHEMA, AddedFiles(tuple(known), complete=True)) == "`id` BETWEEN 1L AND 9L"
    for low, high in ((None, None), (None, 3), (3, None)):
        unknown = replace(FILE, columns={"id": _metrics(low, high)})
        assert within_bounds(["id"], SCHEMA, AddedFiles((*known, unknown), complete=True)) == "TRUE"


def test_other_rows_are_looked_up_within_the_keys_bounds() -> None:
    kinds = {"n": "int", "day": "date", "old": "date", "fare": "decimal(9, 2)", "flag": "boolean"}
    ends = {
        "n": (-5, 7),
        "day": (date(2024, 1, 1), date(2024, 1, 31)),
        "old": (date(1500, 1, 1), date(2024, 1, 1)),
        "fare": (Decimal("-1.5"), Decimal("20.25")),
        "flag": (False, True),
    }
    file = replace(FILE, columns={name: _metrics(*pair) for name, pair in ends.items()})
    schema = Schema(columns=tuple(Column(name=name, type=kind) for name, kind in kinds.items()))
    assert within_bounds([*kinds], schema, AddedFiles((file,), complete=True)) == (
        "`n` BETWEEN -5L AND 7L AND `day` BETWEEN DATE '2024-01-01' AND DATE '2024-01-31' AND TRUE AND "
        "`fare` BETWEEN CAST('-1.50' AS DECIMAL(9, 2)) AND CAST('20.25' AS DECIMAL(9, 2)) AND TRUE"
    )
