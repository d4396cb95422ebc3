"""Checks for :meth:`Lake.ingest` and transactions: ``from lakegate.checks import in_range, not_null``.

Each function returns a :class:`~lakegate.model.checks.Check`, a plain value; :func:`parse_checks` reads the same
checks from text. NULL passes every check but ``not_null``.
"""

from __future__ import annotations

from lakegate.audits.builders import (
    accepted_values,
    in_range,
    matches,
    not_null,
    relationships,
    row_count,
    sql,
    unique,
)
from lakegate.audits.parse import parse_check, parse_checks
from lakegate.model.checks import Check

__all__ = [
    "Check",
    "accepted_values",
    "in_range",
    "matches",
    "not_null",
    "parse_check",
    "parse_checks",
    "relationships",
    "row_count",
    "sql",
    "unique",
]
