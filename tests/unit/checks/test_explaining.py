"""Why checks were answered as they were."""

from __future__ import annotations

import pytest

from lakegate.checks import parse_checks
from lakegate.checks.explaining import reason
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
