from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakegate.model.checks import HIDDEN, CheckResult
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
