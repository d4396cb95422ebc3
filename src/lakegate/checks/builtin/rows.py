"""Checks of single rows: conditions, lists of values, pairs of columns, and times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Unpack

from lakegate.checks.builtin.accepted_values import prepare_values, typed_values
from lakegate.checks.builtin.sql import predicate_of, require_truth_value, with_columns
from lakegate.checks.columns import Family, QuotedColumn, compare_exactly, literal
from lakegate.checks.definition import CheckOptions, ColumnName, Limit, audited
from lakegate.checks.questions import CheckProblem, FailingRows, audit_time
from lakegate.checks.registry import check
from lakegate.model.checks import Check

_TIMES = (Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ)


@check(example="expression_is_true('tip <= fare')", parameter_aliases={"predicate": "expression"}, finds_columns=True,
       nulls="passes", nans="as Spark SQL",
       evidence="manifest for a pass if it only compares columns with numbers, else scan")  # fmt: skip
def expression_is_true(expression: str, **options: Unpack[CheckOptions]) -> FailingRows:
    """``expression`` is true for every row.

    As in dbt, rows for which it's *false* fail; true and NULL pass. (``sql`` is the opposite: rows for which its
    predicate is true fail.) The expression is Spark SQL on one row, with the limits of ``sql``.

    Example:
        >>> str(expression_is_true("tip <= fare"))
        "expression_is_true(tip, fare, expression='tip <= fare')"
    """
    read = predicate_of(expression)
    return FailingRows(
        f"NOT ({read.sql})", metrics=read.never(outcome=False), by_user=True, longest_text=read.longest_text
    )


expression_is_true.prepare(lambda check: with_columns(check, "expression"))
expression_is_true.validate(lambda check, schema: require_truth_value(check.arguments["expression"], schema))


@check(example="not_accepted_values(status, ['test', 'void'])", nans="passes")
def not_accepted_values(
    column: ColumnName, values: Sequence[Limit | bool | None], **options: Unpack[CheckOptions]
) -> FailingRows:
    """``column`` is none of ``values``.

    Write values as for ``accepted_values``. NULL passes, so a ``None`` in the list is ignored.

    Example:
        >>> str(not_accepted_values("status", ["test", "void"]))
        "not_accepted_values(status, values=['test', 'void'])"
    """
    found = audited(column)
    refused = ", ".join(literal(value, found.type) for value in typed_values(found, values))
    return FailingRows(f"{column} IN ({refused})", values_of=column)


not_accepted_values.prepare(prepare_values)


@check(example="column_pair_greater(dropoff, pickup)", nans="NaN is greater than any number, and equals NaN")
def column_pair_greater(
    column: ColumnName, other: ColumnName, *, or_equal: bool = False, **options: Unpack[CheckOptions]
) -> FailingRows:
    """``column`` is greater than ``other`` in every row.

    With ``or_equal=True``, they may be equal. Rows with a NULL in either column pass. The types must be comparable:
    both numbers, text, booleans, dates or times (with or without a time zone, but not mixed).

    Example:
        >>> str(column_pair_greater("dropoff", "pickup"))
        'column_pair_greater(dropoff, pickup)'
    """
    left, right = audited(column), audited(other)
    if left.type.family is Family.OTHER or not compare_exactly(left.type, right.type):
        raise CheckProblem(
            f"column '{left.name}' is of type {left.type.text}, '{right.name}' of type {right.type.text}; they don't "
            "compare exactly.",
            "Use expression_is_true('…') with a cast.",
        )
    return FailingRows(f"{left} {'<' if or_equal else '<='} {right}")


@column_pair_greater.claim
def _claim_pair(check: Check) -> str:
    equal = " or equal to" if check.arguments.get("or_equal") else ""
    return f"{check.columns[0]} is greater than{equal} {check.columns[1]}"


@check(example="not_in_future(pickup)", each_column=True, nans="–")
def not_in_future(column: ColumnName, **options: Unpack[CheckOptions]) -> FailingRows:
    """``column`` is never later than the time of the audit (UTC).

    For dates and times. Times without a time zone are taken as UTC. Today's date passes.

    Example:
        >>> str(not_in_future("pickup"))
        'not_in_future(pickup)'
    """
    found = audited(column)
    return FailingRows(f"{found} > {moment(found, audit_time())}")


def moment(column: QuotedColumn, time: datetime) -> str:
    """Return a time (UTC) as a literal of a column's type.

    Raises:
        CheckProblem: If the column has neither dates nor times.
    """
    kind = column.type.family
    if kind not in _TIMES:
        raise CheckProblem(
            f"column '{column.name}' is of type {column.type.text}, neither a date nor a time.",
            "Use it for columns of dates and times.",
        )
    if kind is Family.DATE:
        return literal(time.date(), column.type)
    return literal(time if kind is Family.TIMESTAMPTZ else time.replace(tzinfo=None), column.type)
