"""The arguments of a check as written, bound to what a rule expects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

from lakegate.errors import CheckError
from lakegate.model.schema import nearest

_BEYOND = 10**400  # past every float; and far longer numbers cannot even be printed


class BareName(str):
    """Text that was written without quotes: fit for a column, never for a value."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Syntax:
    """How a rule is written; makes its error messages.

    Attributes:
        kind: Name of the rule.
        signature: For hints, ``in_range(column, min, max, inclusive=True)``.
        example: For hints, a complete check.
        parameters: Names of what follows the columns, in the order in which they may be given without a name.
        columns: How many columns come first; ``None`` for one or more.
    """

    kind: str
    signature: str
    example: str
    parameters: tuple[str, ...] = ()
    columns: int | None = 1

    def error(self, problem: str) -> CheckError:
        """Return an error about how the check was written, with the way to write it as hint."""
        return CheckError(
            f"{self.kind}: {problem}", hint=f"Write {self.signature}, for example: {self.example}", check=self.kind
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """Arguments by their meaning."""

    columns: tuple[str, ...]
    values: dict[str, Any] = field(default_factory=dict)


def bind(syntax: Syntax, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Bound:
    """Sort arguments into columns and named values, as JSON values.

    Raises:
        CheckError: When there are too many or too few, or one is unknown, given twice or of an impossible type.
    """
    count = len(positional) if syntax.columns is None else syntax.columns
    columns = tuple(column_name(syntax, value) for value in positional[:count])
    if len(columns) < count or (syntax.columns is None and not columns):
        raise syntax.error("it needs a column.")
    repeated = next((name for name in columns if columns.count(name) > 1), None)
    if repeated is not None:
        raise syntax.error(f"column '{repeated}' is given twice.")
    rest = positional[count:]
    if len(rest) > len(syntax.parameters):
        raise syntax.error(f"it takes {_expected(syntax)}, {len(positional)} are given.")
    values = dict(zip(syntax.parameters, rest, strict=False))
    for name, value in keywords.items():
        if name not in syntax.parameters:
            raise _unknown(syntax, name)
        if name in values:
            raise syntax.error(f"'{name}' is given twice.")
        values[name] = value
    return Bound(columns, {name: plain(syntax, value) for name, value in values.items() if value is not None})


def plain(syntax: Syntax, value: Any) -> Any:
    """Return ``value`` as a JSON value: dates as ISO 8601 text, decimals as the number or text that loses nothing.

    Raises:
        CheckError: When it cannot be one.
    """
    if isinstance(value, BareName):
        raise syntax.error(f"text needs quotes: '{value}'.")
    if isinstance(value, (list, tuple)):
        return [plain(syntax, item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _plain_decimal(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise syntax.error(f"{value} is not a finite number.")
    if isinstance(value, int) and abs(value) >= _BEYOND:
        raise syntax.error("a number has more than 400 digits.")
    if isinstance(value, str):
        return _encodable(syntax, value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise syntax.error(f"{value!r} is neither a number, a text, a date, a truth value nor a list of these.")


def column_name(syntax: Syntax, value: Any) -> str:
    """Return ``value`` as the name of a column.

    Raises:
        CheckError: When it cannot be one.
    """
    # A column may be called None, True or False; only a parser that knows no columns reads a constant there.
    if value is None or isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise syntax.error(f"{value!r} is not a column name.")
    if not value:
        raise syntax.error("a column name is empty.")
    return _encodable(syntax, str(value))


def _plain_decimal(value: Decimal) -> int | float | str:
    if value == value.to_integral_value():
        return int(value) if abs(value) < 10**40 else str(value)
    nearby = float(value)
    return nearby if Decimal(repr(nearby)) == value else str(value)


def _encodable(syntax: Syntax, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise syntax.error(f"{text!r} holds half of a surrogate pair, which no text column can hold.") from None
    return text


def _expected(syntax: Syntax) -> str:
    limit = (syntax.columns or 0) + len(syntax.parameters)
    return f"at most {limit} argument{'' if limit == 1 else 's'}"


def _unknown(syntax: Syntax, name: str) -> CheckError:
    close = nearest(name, (*syntax.parameters, "severity", "name"))
    return syntax.error(f"there is no argument '{name}'." + (f" Did you mean '{close}'?" if close else ""))
