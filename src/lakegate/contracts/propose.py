"""Proposes a contract from data, such that the profiled rows and others like them pass."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from lakegate.contracts.document import parse_document
from lakegate.contracts.model import VERSION
from lakegate.contracts.profile import PATTERNS, ColumnProfile, shown
from lakegate.errors import ConfigurationError
from lakegate.model.figures import counted
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import is_masked
from lakegate.model.types import nested_fields

_ACCEPTED = 12
"""A column with up to this many distinct texts may get ``accepted_values``."""
_TIMES_EACH = 20
"""With this many rows for each distinct text, the list of texts is probably complete."""
_KEY_ROWS = 50
"""With this many rows, it's no coincidence that all values differ."""
_KEY_WORDS = ("id", "key", "uuid", "guid", "code", "number", "no", "nr")
_KEY_TYPES = ("int", "long", "string", "uuid")
_FEW_NULLS = 0.05
_LONGEST_VALUE = 60
_NUMBERS = ("int", "long", "float", "double")
_MOST = 2**53


def propose(
    table: TableIdentifier,
    columns: Sequence[ColumnProfile],
    *,
    source: str,
    partition_by: Sequence[str] = (),
    schema: str | None = None,
    masked: Sequence[str] = (),
) -> str:
    """Return a contract's text.

    Args:
        source: Where the rows came from, for the comment at the top.
        schema: Path of the JSON Schema for editors, relative to the contract.
        masked: Patterns of columns whose values mustn't show. They get no checks that contain values.
    """
    rows = columns[0].rows if columns else 0
    lines = [f"# yaml-language-server: $schema={schema}"] if schema else []
    lines += [
        f"# Proposed from {counted(rows, 'row')} of {comment(source)}, all of which pass. Review and correct it.",
        f"version: {VERSION}",
        f"table: {scalar(str(table))}",
        "# owner: who looks after the table",
        "# freshness: 1d",
    ]
    if partition_by:
        lines.append(f"partition_by: [{', '.join(map(scalar, partition_by))}]")
    if columns:
        lines.append("columns:")
    for column in columns:
        hides = is_masked(masked, column.name, nested_fields(column.type))
        lines += [f"  {line}" for line in _column(column.without_values() if hides else column)]
    if rows:
        lines += ["checks:", "  - row_count: {min: 1}"]
    return "\n".join(lines) + "\n"


def scalar(value: object) -> str:
    """Return a value as YAML that YAML 1.1 parsers also read as the same value.

    Example:
        >>> scalar("cash"), scalar("no"), scalar("1: x"), scalar(2.5), scalar(None)
        ('cash', '"no"', '"1: x"', '2.5', 'null')
    """
    if not isinstance(value, str):
        return json.dumps(value)
    if value.lower() in _WORDS_OF_YAML or not value.replace("_", "").replace(" ", "").replace(".", "").isalnum():
        return _quoted(value)
    try:
        is_same = value.isascii() and value[0].isalpha() and parse_document(value, name="").root.value == value
    except ConfigurationError:
        is_same = False
    return value if is_same and value == value.strip() else _quoted(value)


def _quoted(text: str) -> str:
    """Return text in double quotes. YAML has JSON's escapes, but no surrogate pairs."""
    written = "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in text.replace("\\", "\\\\"))
    return '"' + written.replace('"', '\\"') + '"'


_WORDS_OF_YAML = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})


def _column(column: ColumnProfile) -> Iterator[str]:
    yield f"- name: {scalar(column.name)}"
    if column.type != "unknown":
        yield f"  type: {scalar(column.type)}"
    yield from (f"  # {comment(fact)}" for fact in _facts(column))
    if "${" in column.name:  # no check can name it, because Spark replaces ${…}
        return
    if column.rows and not column.nulls:
        yield "  required: true"
    checks = list(_checks(column))
    if checks:
        yield "  checks:"
        for text, why in checks:
            yield f"    - {text}  # {comment(why)}"


def _facts(column: ColumnProfile) -> Iterator[str]:
    if not column.rows:
        return
    yield f"{_share(column.nulls, column.rows)} NULL" if column.nulls else "never NULL"
    if column.low is not None:
        yield f"from {shown(column.low)} to {shown(column.high)}" + (f", {column.nans:,} NaN" if column.nans else "")
    if column.is_unique and column.present > 1:
        yield "all values differ"
    elif column.values is not None:
        common = sorted(column.values.items(), key=lambda one: -one[1])
        listed = ", ".join(f"{shown(value)} ({count:,})" for value, count in common[:5])
        more = f" and {len(common) - 5} more" if len(common) > 5 else ""
        yield f"{len(common)} different: {listed}{more}"


def _checks(column: ColumnProfile) -> Iterator[tuple[str, str]]:
    if column.nulls and column.nulls <= column.rows * _FEW_NULLS:
        most = math.ceil(column.nulls * 200 / column.rows)
        yield (
            f'not_null: {{tolerance: "{most}%", severity: warn}}',
            f"{_share(column.nulls, column.rows)} NULL; twice that, rounded up",
        )
    if _is_key(column):
        yield "unique", f"all {column.present:,} values differ"
        return
    listed = _listed(column)
    if listed is not None:
        yield f"accepted_values: [{', '.join(map(scalar, listed))}]", f"all that occur in {column.present:,} rows"
        return
    pattern = next((name for name in PATTERNS if name in column.patterns), None)
    if pattern is not None and column.lengths is not None:
        text = PATTERNS[pattern]
        low, high = column.lengths
        if pattern in ("digits", "capital letters"):
            if low != high:
                return
            text = f"{text[:-1]}{{{low}}}"
        yield f"matches: {json.dumps(f'^{text}$')}", f"each is {pattern}" + (f", {low} long" if low == high else "")
    ends = _ends(column)
    if ends:
        written = ", ".join(f"{name}: {scalar(value)}" for name, value in ends.items())
        yield (
            f"in_range: {{{written}, severity: warn}}",
            f"{shown(column.low)} to {shown(column.high)}, with some margin",
        )


def _is_key(column: ColumnProfile) -> bool:
    words = column.name.lower().replace("-", "_").split("_")
    named = words[-1] in _KEY_WORDS or column.name.endswith(("Id", "ID")) or "uuid" in words
    return bool(
        column.is_unique and not column.nulls and column.present >= _KEY_ROWS and named and column.type in _KEY_TYPES
    )


def _listed(column: ColumnProfile) -> list[str] | None:
    values = column.values
    if column.type != "string" or values is None or len(values) > _ACCEPTED:
        return None
    if column.present < _TIMES_EACH * len(values) or max(map(len, values)) > _LONGEST_VALUE:
        return None
    return sorted(values) if all(value.isprintable() and value for value in values) else None


def _ends(column: ColumnProfile) -> dict[str, Any]:
    """Return the ends of a range that contains all values, with some margin."""
    low, high = column.low, column.high
    if low is None or high is None or column.nans:
        return {}
    if isinstance(low, (date, datetime)):
        # New values are usually later, so there's no upper end. Errors are often dates long ago.
        zoned = low.astimezone(UTC) if isinstance(low, datetime) and low.tzinfo is not None else low
        return {"min": f"{zoned.year:04}-01-01"}
    is_number = column.type in _NUMBERS or column.type.startswith("decimal")
    if not is_number or not all(math.isfinite(one) for one in (low, high)):
        return {}
    ends: dict[str, Any] = {}
    smallest, greatest = Decimal(str(low)), Decimal(str(high))
    if smallest >= 0:
        ends["min"] = 0
    elif (rounded := -_round_up_doubled(-smallest)) > -_MOST:
        ends["min"] = rounded
    if greatest > 0 and (rounded := _round_up_doubled(greatest)) < min(_MOST, _limit(column.type)):
        ends["max"] = rounded
    return ends


def _limit(kind: str) -> float:
    if kind == "int":
        return 2**31 - 1
    if kind.startswith("decimal"):
        precision, scale = map(int, kind[8:-1].split(","))
        return 10.0 ** (precision - scale) - 1
    return math.inf


def _round_up_doubled(number: Decimal) -> int:
    """Return a round number that is at least twice ``number``.

    Example:
        >>> [_round_up_doubled(Decimal(number)) for number in ("0.3", "7", "41", "260")]
        [1, 20, 100, 1000]
    """
    wanted = max(int((number * 2).to_integral_value(ROUND_CEILING)), 1)
    size: int = 10 ** (len(str(wanted)) - 1)
    return next(step * size for step in (1, 2, 5, 10) if step * size >= wanted)


def _share(part: int, whole: int) -> str:
    share = Decimal(part) * 100 / whole
    rounded = share.quantize(Decimal("0.1"), ROUND_FLOOR)
    return f"{rounded} %" if rounded else "less than 0.1 %"


def comment(text: str) -> str:
    """Return text for a comment, which data can't break out of."""
    return "".join(one if one.isprintable() else "�" for one in text)
