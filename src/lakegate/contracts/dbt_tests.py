"""Translates tests of dbt, dbt_utils and dbt-expectations into checks.

A test named like a check, or its alias, becomes that check. :data:`RENAMED` has those whose arguments only have other
names. Whoever imports the file writes all others by hand, and sees what they ask.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from lakegate.checks.registry import find_check
from lakegate.contracts.draft import NoCheckError
from lakegate.errors import CheckError
from lakegate.model.identifiers import quote

Arguments: TypeAlias = dict[str, Any]
CheckParts: TypeAlias = tuple[str, Sequence[str], Arguments]
"""A check: its kind, its columns, its arguments."""

_LIMITS = {"min": "min_value", "max": "max_value"}
_EXACTLY = {"min": "value", "max": "value"}
_KEYS = {
    "unique_combination_of_columns": "combination_of_columns",
    "expect_compound_columns_to_be_unique": "column_list",
}
_NOT_ROWS = {"unique": "keys", "accepted_values": "values", "not_accepted_values": "values"}
"""Checks whose tests count something else than failing rows."""
_MORE_THAN = re.compile(r"\s*(?:(>=?)\s*(\d+)|(?:!=|<>)\s*0)\s*")
RENAMED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    # dbt's own
    "accepted_values": ("accepted_values", {"values": "values"}),
    "relationships": ("relationships", {"to": "to", "to_columns": "field"}),
    # dbt_utils
    "accepted_range": ("in_range", {**_LIMITS, "inclusive": "inclusive"}),
    "equal_rowcount": ("equal_rowcount", {"to": "compare_model"}),
    "fewer_rows_than": ("fewer_rows_than", {"to": "compare_model"}),
    "not_accepted_values": ("not_accepted_values", {"values": "values"}),
    "relationships_where": (
        "relationships_where",
        {"to": "to", "to_columns": "field", "where": "from_condition", "to_condition": "to_condition"},
    ),
    # dbt-expectations
    "expect_column_max_to_be_between": ("max", _LIMITS),
    "expect_column_mean_to_be_between": ("mean", _LIMITS),
    "expect_column_min_to_be_between": ("min", _LIMITS),
    "expect_column_sum_to_be_between": ("sum", _LIMITS),
    "expect_column_value_lengths_to_be_between": ("length_between", _LIMITS),
    "expect_column_values_to_be_between": ("in_range", _LIMITS),
    "expect_column_values_to_be_in_set": ("accepted_values", {"values": "value_set"}),
    "expect_column_values_to_be_unique": ("unique", {}),
    "expect_column_values_to_match_regex": ("matches", {"pattern": "regex"}),
    "expect_column_values_to_not_be_in_set": ("not_accepted_values", {"values": "value_set"}),
    "expect_column_values_to_not_be_null": ("not_null", {}),
    "expect_column_values_to_not_match_regex": ("not_match_regex", {"pattern": "regex"}),
    "expect_table_row_count_to_be_between": ("row_count", _LIMITS),
    "expect_table_row_count_to_equal": ("row_count", _EXACTLY),
}
"""By the test's name, the check's, and the check's arguments with the test's names for them."""


def translate(
    name: str, column: str | None, given: Mapping[str, Any], *, package: str, table: Callable[[Any], str]
) -> CheckParts:
    """Return the check for a test.

    Args:
        name: The test's name, without its package.
        column: The column that it's listed under; ``None`` for a test of the table.
        table: Returns the table that a ``ref`` or ``source`` refers to.

    Raises:
        NoCheckError: If no check does the same.
    """
    left = dict(given)
    if name in _KEYS:
        check: CheckParts = "unique", _names(left.pop(_KEYS[name], None)), {}
    elif name == "expression_is_true":
        prefix = "" if column is None else f"{quote(column)} "
        check = name, (), {"expression": f"{prefix}{left.pop('expression', '')}"}
    elif name == "recency":
        field, period, number = left.pop("field", column), left.pop("datepart", None), left.pop("interval", None)
        if not isinstance(field, str) or period not in ("minute", "hour", "day", "week"):
            raise NoCheckError("it needs a field, and minute, hour, day or week as datepart")
        check = name, [field], {"within": f"{number} {period}{'' if number == 1 else 's'}"}
    elif name in RENAMED:
        check = _renamed(name, column, left, table)
    elif package in ("dbt_expectations", "great_expectations"):
        raise NoCheckError("lakegate has no check for it; custom_sql may say it")
    else:
        try:
            definition = find_check(name)
        except CheckError:
            raise NoCheckError("lakegate has no check of this name") from None
        return definition.name, [column] if column is not None and definition.columns else [], left
    # The effect of an argument that the check doesn't have would be lost.
    unknown = [argument for argument, value in left.items() if value not in (None, False)]
    if unknown:
        raise NoCheckError(f"no lakegate check takes {', '.join(map(repr, unknown))}")
    return check


def severities(kind: str, options: Mapping[str, Any]) -> list[Arguments]:
    """Return severity and tolerance of each check that a test becomes.

    With severity ``error``, a test fails by ``error_if``, else warns by ``warn_if``: two checks, if both can happen.
    With severity ``warn``, dbt ignores ``error_if``.

    Raises:
        NoCheckError: If a condition isn't a number of failing rows.
    """
    severity = str(options.get("severity", "error")).lower()
    if severity not in ("error", "warn"):
        raise NoCheckError(f"severity {severity!r} is neither error nor warn")
    warning = _most_failing(kind, "warn_if", options)
    found: list[Arguments] = [{"severity": "warn", "tolerance": warning or None}]
    if severity == "warn":
        return found
    failing = _most_failing(kind, "error_if", options)
    return [{"tolerance": failing or None}, *(found if warning < failing else [])]


def _most_failing(kind: str, option: str, options: Mapping[str, Any]) -> int:
    """Return the most failing rows for which a condition isn't true."""
    text = str(options.get(option, "!= 0"))
    match = _MORE_THAN.fullmatch(text)
    most = -1 if match is None else int(match[2] or 0) - (match[1] == ">=")
    if most < 0:
        raise NoCheckError(f"{option} {text!r} isn't a number of failing rows to exceed, such as '>10'")
    if most and kind in _NOT_ROWS:
        raise NoCheckError(f"{option} {text!r} counts {_NOT_ROWS[kind]} in dbt, and lakegate's tolerance counts rows")
    return most


def _renamed(name: str, column: str | None, left: Arguments, table: Callable[[Any], str]) -> CheckParts:
    kind, names = RENAMED[name]
    arguments = {ours: left[theirs] for ours, theirs in names.items() if theirs in left}
    for theirs in names.values():
        left.pop(theirs, None)
    if "to" in names:
        arguments["to"] = table(arguments.get("to"))
    for end in (arguments.get("min"), arguments.get("max")):
        if isinstance(end, str) and not re.fullmatch(r"[-0-9:.TZ +]+", end):
            raise NoCheckError(f"{end!r} is SQL, not a value")
    if "values" in names:
        values = arguments.get("values")
        if not isinstance(values, list):
            raise NoCheckError(f"'{names['values']}' isn't a list")
        is_quoted = left.pop("quote_values", left.pop("quote", True))
        if not is_quoted and any(isinstance(value, str) for value in values):
            raise NoCheckError("its values are SQL, because dbt doesn't quote them")
    is_of_column = bool(find_check(kind).columns)
    if is_of_column and column is None:
        raise NoCheckError("it must be listed under a column")
    return kind, [column] if is_of_column and column is not None else [], arguments


def _names(columns: Any) -> list[str]:
    if not isinstance(columns, list):
        raise NoCheckError("it has no list of columns")
    return list(map(str, columns))
