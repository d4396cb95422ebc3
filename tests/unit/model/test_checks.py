from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakegate.model.checks import HIDDEN, CheckResult, FailingFile
from lakegate.model.schema import MASK

RESULT = CheckResult(
    name="accepted_values_kind",
    check="accepted_values(kind, values=[1])",
    columns=("kind",),
    severity="error",
    verdict="fail",
    failing_rows=3,
    total_rows=9,
    evidence="scan",
    sentence="3 of 9 rows violate kinds: kind is 1.",
    values=({"value": "secret", "rows": 2}, {"value": None, "rows": 1}),
    examples=({"kind": "secret", "id": 7}, {"kind": None, "id": 8}),
    passed_run_id="r1",
    passed_at=datetime(2026, 1, 31, 7, 5, tzinfo=UTC),
)
HIGHEST = RESULT.model_copy(update={"check": "max(kind, max=1)", "values": (), "value": 77.0, "detail": "It is 77."})


def test_a_result_says_what_was_found_and_since_when() -> None:
    assert RESULT.remarks == (
        "3 of 9 rows violate kinds: kind is 1.",
        "Unexpected values: secret (2), NULL (1).",
        "It last passed in run r1 (2026-01-31 07:05).",
    )
    long = RESULT.model_copy(
        update={"sentence": None, "passed_run_id": None, "values": ({"value": "x" * 99, "rows": 1},)}
    )
    assert long.remarks == (f"Unexpected values: {'x' * 59}… (1).",)


@pytest.mark.parametrize(("rows", "masked"), [(5, ["KIND"]), (0, [])])
def test_values_that_are_not_to_be_shown_are_nowhere_in_it(rows: int, masked: list[str]) -> None:
    shown = RESULT.shown(rows=rows, masked=masked)
    assert "secret" not in shown.model_dump_json()
    assert [row["id"] for row in shown.examples] == ([7, 8] if rows else [])
    assert [row["kind"] for row in shown.examples] == [MASK] * len(shown.examples)
    highest = HIGHEST.shown(rows=rows, masked=masked)
    assert (highest.detail, highest.value) == (HIDDEN, None)


def test_of_what_may_be_shown_nothing_is_lost() -> None:
    assert RESULT.shown(rows=5, masked=["other"]) == RESULT
    assert HIGHEST.shown(rows=1).detail == "It is 77."
    assert len(RESULT.shown(rows=1).examples) == 1


def test_files_of_failing_rows_are_named_as_short_as_they_can_be() -> None:
    files = (
        FailingFile(file="file:///in/a%20b.csv", rows=12, first_rows=(3, 7)),
        FailingFile(file="s3://in/zip=01/x.csv", rows=1, first_rows=(1200,)),
        FailingFile(file="file:///in/x.csv", rows=2),
    )
    found = RESULT.model_copy(update={"files": files, "failing_rows": 20, "more_files": 2})
    assert found.where_from == (
        "a b.csv: 12 of 20 failing rows (rows 3, 7 …); s3://in/zip=01/x.csv: 1 (row 1,200); /in/x.csv: 2; 2 more files."
    )
    assert found.where_from in found.remarks
    assert found.shown(rows=0, masked=["zip"]).files[1].file == f"s3://in/zip={MASK}/x.csv"
    alone = found.model_copy(update={"files": files[1:2], "failing_rows": 1, "more_files": 0})
    assert alone.where_from == "x.csv: 1 of 1 failing row (row 1,200)."
    assert RESULT.where_from is None
