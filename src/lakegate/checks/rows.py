"""Checks as tests of single rows, which separate failing rows from the others."""

from __future__ import annotations

from collections.abc import Sequence

from lakegate.checks.audit import Others
from lakegate.checks.questions import (
    DuplicateRows,
    FailingRows,
    Filter,
    OrphanRows,
    Question,
    filtered_rows,
    parent_rows,
    with_condition,
    within,
)
from lakegate.checks.registry import find_check
from lakegate.errors import CheckError
from lakegate.model.checks import Check
from lakegate.model.quarantine import KeyTest, RowTest
from lakegate.model.schema import Schema, is_masked
from lakegate.model.tables import AddedRows
from lakegate.model.types import nested_fields


def row_tests(
    checks: Sequence[tuple[str, Check]],
    schema: Schema,
    rows: AddedRows,
    others: Others,
    masked: Sequence[str] = (),
) -> tuple[RowTest, ...]:
    """Return checks as tests that find exactly the rows that an audit counts as failing.

    Args:
        checks: Each check, validated against ``schema``, after its name in the report.
        schema: The table's columns on the branch.
        rows: All audited rows; keys are compared with all of them.
        others: As in :func:`~lakegate.checks.audit.run_audit`.
        masked: Patterns of columns whose values aren't written into a row's reasons.

    Raises:
        CheckError: If a check isn't about single rows.
    """
    return tuple(
        _row_test(name, check, schema, rows, others, _shown_columns(check, schema, masked)) for name, check in checks
    )


def _shown_columns(check: Check, schema: Schema, masked: Sequence[str]) -> frozenset[str]:
    """Return the check's columns whose values may be written into a row's reasons."""
    if check.examples == 0:
        return frozenset()
    found = {column: schema.resolve(column) for column in check.columns}
    return frozenset(
        column for column, one in found.items() if not is_masked(masked, column, nested_fields(one[1]) if one else ())
    )


def _row_test(
    name: str, check: Check, schema: Schema, rows: AddedRows, others: Others, shown: frozenset[str]
) -> RowTest:
    definition = find_check(check.kind)
    question, where = definition.ask(check, schema), definition.filter(check, schema)
    if isinstance(question, FailingRows):
        predicate = question.predicate if where is None else within(question.predicate, where)
        return RowTest(name, check.columns, shown, predicate=predicate)
    return RowTest(name, check.columns, shown, keys=_key_test(check, question, where, rows, others))


def _key_test(check: Check, question: Question, where: Filter | None, rows: AddedRows, others: Others) -> KeyTest:
    judged = filtered_rows(rows, where)
    if isinstance(question, OrphanRows):
        parents = parent_rows(question, rows, others(question.table))
        return KeyTest(judged, question.columns, parents, question.other_columns, orphans=True)
    if not isinstance(question, DuplicateRows):
        raise CheckError(f"{check}: it isn't about single rows, so none can be set aside.", check=check.kind)
    if question.scope == "batch":
        return KeyTest(judged, question.columns)
    rest = with_condition(others(rows.table), None if where is None else where.sql)
    return KeyTest(judged, question.columns, rest, question.columns)
