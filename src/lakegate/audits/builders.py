"""The same checks from Python: every function returns the value that the text of the same name stands for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any, TypeAlias

from lakegate.audits.make import make_checks
from lakegate.model.checks import Check, Scope, Severity

Limit: TypeAlias = int | float | Decimal | date | str
"""A number, a date or time (also as ISO 8601 text), or a text."""


def not_null(column: str, *, severity: Severity = "error", name: str | None = None) -> Check:
    """No value of ``column`` is NULL. NaN is a value.

    Raises:
        CheckError: When an argument is unusable; so do all functions here.

    Example:
        >>> str(not_null("passenger_count"))
        'not_null(passenger_count)'
    """
    return _one("not_null", (column,), {"severity": severity, "name": name})


def unique(
    column: str, *more: str, scope: Scope = "batch", severity: Severity = "error", name: str | None = None
) -> Check:
    """No two rows share their values in these columns, taken together. A NULL among them passes.

    With ``scope="table"`` no row of the batch shares them with a row that the table will have; else only the batch is
    looked at.

    Example:
        >>> str(unique("vendor_id", "trip_id", severity="warn"))
        "unique(vendor_id, trip_id, severity='warn')"
    """
    return _one("unique", (column, *more), {"scope": scope, "severity": severity, "name": name})


def relationships(
    column: str,
    *more: str,
    to: str,
    to_columns: str | Sequence[str] | None = None,
    severity: Severity = "error",
    name: str | None = None,
) -> Check:
    """Every key of the batch exists in ``to_columns`` of another table (by default, columns of the same names).

    A NULL in a key passes. ``to`` is read as it would be after publishing.

    Example:
        >>> str(relationships("dest", to="nyc.airports", to_columns="faa"))
        "relationships(dest, to='nyc.airports', to_columns='faa', scope='table')"
    """
    arguments = {"to": to, "to_columns": to_columns}
    return _one("relationships", (column, *more), {**arguments, "severity": severity, "name": name})


def in_range(
    column: str,
    min: Limit | None = None,  # noqa: A002  the words of the check's text
    max: Limit | None = None,  # noqa: A002
    *,
    inclusive: bool = True,
    severity: Severity = "error",
    name: str | None = None,
) -> Check:
    """Every value lies between ``min`` and ``max``, either of which may be left out. NULL passes, NaN fails.

    Example:
        >>> str(in_range("pickup", min=date(2024, 1, 1)))
        "in_range(pickup, min='2024-01-01')"
    """
    return _one("in_range", (column, min, max), {"inclusive": inclusive, "severity": severity, "name": name})


def accepted_values(
    column: str, values: Sequence[Limit | bool | None], *, severity: Severity = "error", name: str | None = None
) -> Check:
    """Every value is one of ``values``. NULL passes.

    Example:
        >>> str(accepted_values("payment_type", ["cash", "card"]))
        "accepted_values(payment_type, values=['cash', 'card'])"
    """
    return _one("accepted_values", (column, values), {"severity": severity, "name": name})


def matches(column: str, pattern: str, *, severity: Severity = "error", name: str | None = None) -> Check:
    """Every text has a match of ``pattern``, a Java regular expression, somewhere in it. NULL passes.

    Example:
        >>> str(matches("code", r"^[A-Z]{3}$"))
        "matches(code, pattern='^[A-Z]{3}$')"
    """
    return _one("matches", (column, pattern), {"severity": severity, "name": name})


def row_count(
    min: int | None = None,  # noqa: A002  the words of the check's text
    max: int | None = None,  # noqa: A002
    *,
    severity: Severity = "error",
    name: str | None = None,
) -> Check:
    """The batch has at least ``min`` and at most ``max`` rows; either may be left out.

    Example:
        >>> str(row_count(min=1))
        'row_count(min=1)'
    """
    return _one("row_count", (min, max), {"severity": severity, "name": name})


def sql(predicate: str, *, severity: Severity = "error", name: str | None = None) -> Check:
    """No row satisfies ``predicate``, Spark SQL about one row. A row for which it is NULL passes.

    Example:
        >>> str(sql("fare_amount < 0"))
        "sql(fare_amount, predicate='fare_amount < 0')"
    """
    return _one("sql", (predicate,), {"severity": severity, "name": name})


def _one(kind: str, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Check:
    (check,) = make_checks(kind, positional, keywords)
    return check
