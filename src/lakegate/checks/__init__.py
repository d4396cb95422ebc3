"""Checks: what they ask, how they're answered where it is cheapest, and the report of it all.

To check a batch from Python, import them by name; each returns a :class:`~lakegate.model.checks.Check`, a plain value,
and :func:`parse_checks` reads the same checks from text. NULL passes every check but ``not_null``::

    from lakegate.checks import in_range, not_null

A check is one function (:func:`~lakegate.checks.registry.check`). The built-in ones are in
``lakegate/checks/builtin``; your own package registers its checks as entry points of the group ``lakegate.checks``::

    [project.entry-points."lakegate.checks"]
    is_iban = "my_package.checks:is_iban"

Where to look: :mod:`~lakegate.checks.definition` (what a check is), :mod:`~lakegate.checks.registry` (where it is
found), :mod:`~lakegate.checks.parse` (text to checks), :mod:`~lakegate.checks.validation` (checks against a schema),
:mod:`~lakegate.checks.audit` (the planner).
"""

from __future__ import annotations

from lakegate.checks import builtin
from lakegate.checks.audit import Others, recheck, run_audit
from lakegate.checks.builtin import *  # noqa: F403 - all checks, whichever there are
from lakegate.checks.definition import CheckOptions, ColumnName, Limit, audited
from lakegate.checks.parse import parse_check, parse_checks
from lakegate.checks.questions import DuplicateRows, FailingRows, Finding, OrphanRows, RowTotal
from lakegate.checks.registry import check
from lakegate.checks.rows import row_tests
from lakegate.checks.validation import Schemas, describe, require_runnable, validate_checks
from lakegate.model.checks import Check

__all__ = [
    "Check",
    "CheckOptions",
    "ColumnName",
    "DuplicateRows",
    "FailingRows",
    "Finding",
    "Limit",
    "OrphanRows",
    "Others",
    "RowTotal",
    "Schemas",
    "audited",
    "check",
    "describe",
    "parse_check",
    "parse_checks",
    "recheck",
    "require_runnable",
    "row_tests",
    "run_audit",
    "validate_checks",
]
__all__ += builtin.__all__
