"""Checks of other tools, written as ours. What they find is held on Spark: ``tests/proofs/neighbours.py``."""

from __future__ import annotations

import pytest

from lakegate.checks.parse import parse_check
from lakegate.checks.validation import validate_checks
from support.neighbours import EXAMPLES, Example, schema_of


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: f"{one.of}: {one.theirs}")
def test_ours_can_be_asked_of_their_rows(example: Example) -> None:
    check = parse_check(example.ours)
    assert parse_check(str(check)) == check
    validate_checks([check], schema_of(example.rows))
