from __future__ import annotations

from typing import Unpack

from lakegate.checks.columns import count_nulls
from lakegate.checks.definition import CheckOptions, ColumnName, audited
from lakegate.checks.questions import FailingRows
from lakegate.checks.registry import check


@check(
    example="not_null(passenger_count)",
    each_column=True,
    nulls="fails",
    nans="passes",
    evidence="manifest, both ways",
)
def not_null(column: ColumnName, **options: Unpack[CheckOptions]) -> FailingRows:
    """``column`` is never NULL.

    NaN is a value, not NULL. As text, ``not_null(a, b)`` makes one check for each column. File metrics give the exact
    count.

    Example:
        >>> str(not_null("passenger_count"))
        'not_null(passenger_count)'
    """
    return FailingRows(f"{column} IS NULL", metrics=lambda added: count_nulls(added, audited(column)))
