"""Checks: what they ask, how they are answered where it is cheapest, and the report of it all.

How to add a check: write one file in ``lakegate/audits/rules`` whose ``RULE`` satisfies
:class:`~lakegate.audits.rule.Rule`, and one line in :data:`lakegate.audits.registry.BUILT_IN`. A third party does the
same in a package of its own, with an entry point of the group ``lakegate.checks`` that points at its ``RULE``::

    [project.entry-points."lakegate.checks"]
    is_iban = "my_package.checks:RULE"

A rule says three things of a check: what it asks (a :data:`~lakegate.audits.rule.Question`), whether it can be asked of
a table (``validate``), and whether file metrics answer it already (``from_manifest``). It never reads rows itself.

Where to look: :mod:`~lakegate.audits.parse` (text to checks), :mod:`~lakegate.audits.validation` (checks against a
schema), :mod:`~lakegate.audits.audit` (the planner), :mod:`~lakegate.audits.lookups` (questions about keys),
:mod:`~lakegate.audits.again` (part of an audit again), :mod:`~lakegate.audits.builders` (the same checks from Python).
"""

from __future__ import annotations

from lakegate.audits.again import rerun
from lakegate.audits.audit import run_audit
from lakegate.audits.lookups import Others
from lakegate.audits.parse import parse_check, parse_checks
from lakegate.audits.references import Schemas
from lakegate.audits.validation import describe, validate_checks

__all__ = [
    "Others",
    "Schemas",
    "describe",
    "parse_check",
    "parse_checks",
    "rerun",
    "run_audit",
    "validate_checks",
]
