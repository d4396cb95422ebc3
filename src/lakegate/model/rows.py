"""Column values as JSON, CSV and text, including ones that Python can't represent."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from pydantic import BaseModel

if TYPE_CHECKING:
    import pyarrow as pa

_EMPTY = '""'
_SPECIAL = re.compile(r'[",\r\n]')


def json_safe(value: Any) -> Any:  # noqa: PLR0911 - a line for each type
    """Return ``value`` with JSON types. Models become objects.

    Times become ISO 8601, decimals text (to keep all digits), bytes base64, and NaN and infinities null.

    Example:
        >>> json_safe({"fare": Decimal("2.50"), "ratio": float("nan"), "day": date(2026, 1, 31)})
        {'fare': '2.50', 'ratio': None, 'day': '2026-01-31'}
        >>> json_safe(Decimal("0.00000000"))
        '0.00000000'
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return f"{value:f}"  # not 0E-8
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_safe(item) for item in value]
    if isinstance(value, BaseModel):
        return json_safe(value.model_dump(mode="json"))
    return str(value)


def far_date(number: int, unit: str | None) -> str:
    """Return a date or time outside the years 1 to 9999 in ISO 8601, by the proleptic Gregorian calendar.

    Args:
        number: Time since 1970 in ``unit``.
        unit: ``s``, ``ms``, ``us`` or ``ns``; ``None`` for days.

    Example:
        >>> far_date(4_000_000, None), far_date(-800_000, None), far_date(316_516_000_000_000_000, "us")
        ('+12921-08-18', '-0221-09-04', '+11999-12-29T15:06:40')
    """
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    days, rest = (number, 0) if unit is None else divmod(number, 86_400 * per_second[unit])
    # The calendar repeats every 400 years, which are 146,097 days.
    eras, within = divmod(days, 146_097)
    day = date(2000, 1, 1) + timedelta(days=within - 10_957)
    year = day.year + 400 * eras
    text = f"{'+' if year > 9999 else '-' if year < 0 else ''}{abs(year):04}-{day:%m-%d}"  # ISO 8601
    if unit is None:
        return text
    seconds, fraction = divmod(rest, per_second[unit])
    clock = (datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime("%H:%M:%S")
    return f"{text}T{clock}" + (f".{fraction:0{len(str(per_second[unit])) - 1}}" if fraction else "")


def csv_field(value: Any) -> Any:
    """Return ``value`` as a CSV field; ``None`` becomes an empty one.

    Example:
        >>> csv_field(None), csv_field(True), csv_field({"a": 1})
        ('', 'true', '{"a": 1}')
    """
    if value is None:
        return ""
    safe = json_safe(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(safe, bool):
        return str(safe).lower()
    return json.dumps(safe, ensure_ascii=False) if isinstance(safe, (list, dict)) else safe


def write_csv_row(values: Iterable[Any], file: TextIO) -> None:
    """Write one row of CSV (RFC 4180, LF). NULL is an empty field, empty text a quoted one."""
    line = ",".join(_quoted(csv_field(value)) if value is not None else "" for value in values)
    file.write(f"{line or _EMPTY}\n")  # readers would skip an empty line


def _quoted(field: Any) -> str:
    text = str(field)
    return text if text and not _SPECIAL.search(text) else '"' + text.replace('"', '""') + '"'


def rows_of(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of an Arrow table or batch, with text for values that Python can't represent."""
    columns = [values_of(column) for column in table.columns]
    return [dict(zip(table.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def values_of(column: Any) -> list[Any]:
    """Return a column's values, as text if Python can't represent them."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):  # UnicodeDecodeError among them
        return [_value_of(scalar) for scalar in column]


def _value_of(scalar: Any) -> Any:
    """Return one value. Invalid UTF-8 becomes escapes; dates outside Python's range become ISO 8601 text."""
    import pyarrow as pa

    kind = scalar.type
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        if pa.types.is_struct(kind):
            return {name: _value_of(inner) for name, inner in scalar.items()}
        if pa.types.is_map(kind):
            return [{"key": _value_of(pair["key"]), "value": _value_of(pair["value"])} for pair in scalar.values]
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return [_value_of(inner) for inner in scalar.values]
        if pa.types.is_temporal(kind):
            return far_date(scalar.value, getattr(kind, "unit", None))
        return scalar.as_buffer().to_pybytes().decode(errors="backslashreplace")
