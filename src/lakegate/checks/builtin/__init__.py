"""The checks that come with lakegate, one file each. Made by ``tests/e2e/docs_checks.py``: don't edit it."""

from lakegate.checks.builtin.accepted_values import accepted_values
from lakegate.checks.builtin.in_range import in_range
from lakegate.checks.builtin.matches import matches
from lakegate.checks.builtin.not_null import not_null
from lakegate.checks.builtin.relationships import relationships
from lakegate.checks.builtin.row_count import row_count
from lakegate.checks.builtin.sql import sql
from lakegate.checks.builtin.unique import unique

__all__ = [
    "accepted_values",
    "in_range",
    "matches",
    "not_null",
    "relationships",
    "row_count",
    "sql",
    "unique",
]
