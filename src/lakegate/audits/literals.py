r"""Values as Spark SQL literals: the one place where values enter SQL.

Text follows Spark's rules for string literals with ``spark.sql.parser.escapedStringLiterals=false``, its default: a
backslash escapes. ``$`` is written as ``\u0024``, because Spark replaces ``${…}`` by settings even inside literals.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

from lakegate.audits.column_types import ColumnType, TypedValue, rounded_to_single

_ESCAPES = {
    **{code: f"\\u{code:04x}" for code in (*range(32), 127, ord("$"))},
    ord("\\"): "\\\\",
    ord("'"): "\\'",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


def text_literal(text: str) -> str:
    r"""Return ``text`` as a string literal.

    Example:
        >>> print(text_literal("it's 5 $ \\ or more"))
        'it\'s 5 \u0024 \\ or more'
    """
    return f"'{text.translate(_ESCAPES)}'"


def literal(value: TypedValue, column: ColumnType) -> str:
    """Return a value made by :func:`~lakegate.audits.column_types.typed` as a literal of ``column``'s type.

    Example:
        >>> literal(0.5, ColumnType.parse("float")), literal(Decimal("1.50"), ColumnType.parse("decimal(5, 2)"))
        ('0.5F', '1.50BD')
    """
    if isinstance(value, (bool, int)):
        return str(value).upper()
    if isinstance(value, float):
        # A bound beyond 32 bits stays a double: as a float it would be infinite.
        return f"{value!r}F" if column.single and rounded_to_single(value) == value else f"{value!r}D"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    return text_literal(value) if isinstance(value, str) else _moment_literal(value)


def _moment_literal(value: date) -> str:
    if not isinstance(value, datetime):
        return f"DATE '{value.isoformat()}'"
    word = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
    return f"{word} '{value.isoformat(' ')}'"
