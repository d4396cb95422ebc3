from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from lakegate.checks.columns import Family, QuotedColumn, TypedValue, literal, none_outside, typed
from lakegate.checks.definition import CheckOptions, ColumnName, Limit, audited
from lakegate.checks.questions import CheckProblem, FailingRows
from lakegate.checks.registry import check
from lakegate.model.checks import Check


@check(
    example="accepted_values(payment_type, ['cash', 'card'])", nans="fails", evidence="manifest for a pass, else scan"
)
def accepted_values(
    column: ColumnName, values: Sequence[Limit | bool | None], **options: Unpack[CheckOptions]
) -> FailingRows:
    """``column`` is one of ``values``.

    NULL passes, so a ``None`` in the list is ignored. Text is compared exactly, including case. Write dates and times
    as ISO 8601 text, as for `in_range`.

    Example:
        >>> str(accepted_values("payment_type", ["cash", "card"]))
        "accepted_values(payment_type, values=['cash', 'card'])"
    """
    found = audited(column)
    kind, accepted = found.type, typed_values(found, values)

    def only_accepted(low: object, high: object) -> bool:
        known = kind.holds(low) and kind.holds(high)
        return known and ((low == high and low in accepted) or _all_between(low, high, accepted))

    return FailingRows(
        values_of=column,
        text=found if kind.family is Family.TEXT else None,
        passing=tuple(value for value in accepted if isinstance(value, str)),
        predicate=f"{column} NOT IN ({', '.join(literal(value, kind) for value in accepted)})",
        metrics=lambda added: none_outside(added, found, one=lambda value: value in accepted, bounds=only_accepted),
    )


def typed_values(column: QuotedColumn, values: Sequence[object]) -> dict[TypedValue, None]:
    """Return a user's values as ones that can occur in a column, each once.

    Raises:
        CheckProblem: If one can't.
    """
    if column.type.family is Family.OTHER:
        raise CheckProblem(
            f"column '{column.name}' is of type {column.type.text}, which has no literals.", "Use sql('…')."
        )
    try:
        return dict.fromkeys(typed(value, column.type) for value in values)
    except ValueError as error:
        raise CheckProblem(
            f"column '{column.name}' is of type {column.type.text}, and {error}.", "Give values of the column's type."
        ) from None


@accepted_values.prepare
def prepare_values(check: Check) -> Check:
    """Return the check without NULL among its values. At least one must remain."""
    values = [value for value in check.arguments["values"] if value is not None]
    if any(isinstance(value, list) for value in values):
        raise ValueError("a value can't be a list.")
    if not values:
        only_null = " but for None, and NULL passes in any case" if check.arguments["values"] else ""
        raise ValueError(f"the list is empty{only_null}.")
    return check.model_copy(update={"arguments": {"values": values}})


def _all_between(low: Any, high: Any, accepted: dict[TypedValue, None]) -> bool:
    """Return whether every value from ``low`` to ``high`` is accepted; ``False`` for types with too many values."""
    if type(low) in (bool, int):
        return 0 <= high - low < len(accepted) and all(value in accepted for value in range(low, high + 1))
    return False
