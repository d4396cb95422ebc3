"""Translates tests of dbt, dbt_utils and dbt-expectations into checks.

A test named like a check, or its alias, becomes that check. :data:`READERS` has all others. Tests that would become
queries aren't translated: whoever imports the file writes them as ``custom_sql``, and sees what they ask.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakegate.checks.registry import find_check
from lakegate.contracts.draft import NoCheckError, sql_type
from lakegate.errors import CheckError
from lakegate.model.identifiers import quote

Arguments: TypeAlias = dict[str, Any]
CheckParts: TypeAlias = tuple[str, Sequence[str], Arguments]
"""A check: its kind, its columns, its arguments."""


@dataclass(slots=True)
class DbtTest:
    """A dbt test during translation. Arguments that no reader takes can't be translated.

    Attributes:
        column: The column that it's listed under; ``None`` for a test of the table.
        table: Returns the table that a ``ref`` or ``source`` refers to.
        is_required: Returns whether a column has no NULLs.
        remark: What the check treats differently, and how.
    """

    column: str | None
    arguments: Arguments
    table: Callable[[Any], str]
    is_required: Callable[[str], bool]
    remark: tuple[str, str] | None = None

    @property
    def required_column(self) -> str:
        """The column that it's listed under."""
        if self.column is None:
            raise NoCheckError("it must be listed under a column")
        return self.column

    def take(self, name: str, default: Any = None) -> Any:
        """Return an argument, and mark it as translated."""
        return self.arguments.pop(name, default)

    def take_list(self, name: str) -> list[Any]:
        """Take an argument that must be a list."""
        values = self.take(name)
        if not isinstance(values, list):
            raise NoCheckError(f"'{name}' isn't a list")
        return values

    def take_limits(self) -> Arguments:
        """Take ``min_value`` and ``max_value`` as ``min`` and ``max``."""
        return {"min": self.take("min_value"), "max": self.take("max_value")}

    def refuse_untaken(self) -> None:
        """Refuse arguments that weren't taken, because their effect would be lost."""
        left = [name for name, value in self.arguments.items() if value not in (None, False)]
        if left:
            raise NoCheckError(f"no lakegate check takes {', '.join(map(repr, left))}")


Reader: TypeAlias = Callable[[DbtTest], CheckParts]


def translate(name: str, test: DbtTest, *, package: str) -> CheckParts:
    """Return the check for a test.

    Args:
        name: The test's name, without its package.

    Raises:
        NoCheckError: If no check does the same.
    """
    reader = READERS.get(name)
    if reader is not None:
        check = reader(test)
        test.refuse_untaken()
        return check
    if package in ("dbt_expectations", "great_expectations"):
        raise NoCheckError("lakegate has no check for it; custom_sql may say it")
    try:
        definition = find_check(name)
    except CheckError:
        raise NoCheckError("lakegate has no check of this name") from None
    columns = [test.column] if test.column is not None and definition.columns else []
    return definition.name, columns, test.arguments


def _renamed(kind: str, *, of_column: bool = True, **names: str) -> Reader:
    """Translate a test that only names its arguments differently: ``names`` maps the check's names to the test's."""

    def read(test: DbtTest) -> CheckParts:
        arguments = {ours: test.take(theirs) for ours, theirs in names.items()}
        if names.get("min") == names.get("max") is not None:
            arguments["max"] = arguments["min"]
        if "to" in arguments:
            arguments["to"] = test.table(arguments["to"])
        return kind, [test.required_column] if of_column else (), arguments

    return read


def _fixed(kind: str, **arguments: Any) -> Reader:
    return lambda test: (kind, [test.required_column], dict(arguments))


def _set(kind: str, name: str) -> Reader:
    def read(test: DbtTest) -> CheckParts:
        values = test.take_list(name)
        quoted = test.take("quote_values", default=test.take("quote", default=True))
        # By default, dbt quotes each value, and databases compare it as the column's type.
        return kind, [test.required_column], {"values": values if quoted else list(map(_number, values))}

    return read


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        raise NoCheckError(f"{value!r} is SQL, not a value") from None


def _range(test: DbtTest) -> CheckParts:
    limits = test.take_limits()
    strictly, inclusive = test.take("strictly", default=False), test.take("inclusive", default=True)
    for limit in limits.values():
        if isinstance(limit, str) and not re.fullmatch(r"[-0-9:.TZ +]+", limit):
            raise NoCheckError(f"{limit!r} is SQL, not a value")
    return "in_range", [test.required_column], {**limits, "inclusive": None if inclusive and not strictly else False}


def _key(name: str, ignored_if: str) -> Reader:
    def read(test: DbtTest) -> CheckParts:
        columns = test.take_list(name)
        ignored = test.take("ignore_row_if", default=ignored_if)
        test.take("quote_columns")
        as_ours = ("any_value_is_missing", *["all_values_are_missing"] * (len(columns) == 1))
        nullable = [] if ignored in as_ours else [column for column in columns if not test.is_required(str(column))]
        if nullable:
            what = f"rows with NULL in {', '.join(map(str, nullable))}"
            test.remark = what, "lakegate ignores rows with any NULL in the key"
        return "unique", columns, {}

    return read


def _expression(test: DbtTest) -> CheckParts:
    expression = test.take("expression")
    if not isinstance(expression, str):
        raise NoCheckError("it has no expression")
    prefix = "" if test.column is None else f"{quote(test.column)} "
    return "expression_is_true", (), {"expression": f"{prefix}{expression}"}


def _pattern(kind: str, name: str = "regex") -> Reader:
    def read(test: DbtTest) -> CheckParts:
        pattern, flags = test.take(name), test.take("flags") or ""
        test.take("is_raw")
        if not isinstance(pattern, str):
            raise NoCheckError(f"{name!r} isn't a pattern")
        if set(flags) - {"c", "i"}:
            raise NoCheckError(f"flags {flags!r}: write them into the pattern, (?s)…")
        return kind, [test.required_column], {"pattern": f"{'(?i)' if 'i' in flags else ''}{pattern}"}

    return read


def _counted(kind: str, *, of_column: bool = True) -> Reader:
    """Translate a test of whether a whole number is in a range."""

    def read(test: DbtTest) -> CheckParts:
        limits = test.take_limits()
        if test.take("strictly", default=False):
            steps = {"min": 1, "max": -1}
            limits = {name: end + steps[name] if isinstance(end, int) else end for name, end in limits.items()}
        return kind, [test.required_column] if of_column else (), limits

    return read


def _measured(kind: str) -> Reader:
    return lambda test: (kind, [test.required_column], test.take_limits())


def _quantile(q: float | None = None) -> Reader:
    def read(test: DbtTest) -> CheckParts:
        test.remark = "a value between two", "lakegate takes the lower one"
        arguments = {"q": test.take("quantile") if q is None else q, **test.take_limits()}
        return "quantile", [test.required_column], arguments

    return read


def _pair(test: DbtTest) -> CheckParts:
    pair = [test.take("column_A"), test.take("column_B")]
    if not all(isinstance(name, str) and name.isidentifier() for name in pair):
        raise NoCheckError("column_A and column_B aren't names of columns")
    return "column_pair_greater", pair, {"or_equal": test.take("or_equal")}


def _recency(test: DbtTest) -> CheckParts:
    field, period, number = test.take("field", test.column), test.take("datepart"), test.take("interval")
    if not isinstance(field, str) or period not in ("minute", "hour", "day", "week"):
        raise NoCheckError("it needs a field, and minute, hour, day or week as datepart")
    return "recency", [field], {"within": f"{number} {period}{'' if number == 1 else 's'}"}


def _recent(test: DbtTest) -> CheckParts:
    test.remark = "values in the future", "lakegate counts them, too; not_in_future refuses them"
    return _recency(test)


def _exclusive(test: DbtTest) -> CheckParts:
    lower, upper = test.take("lower_bound_column"), test.take("upper_bound_column")
    gaps, by = test.take("gaps", default="allowed"), test.take("partition_by")
    if gaps not in ("allowed", "not_allowed"):
        raise NoCheckError(f"gaps: {gaps!r} is neither 'allowed' nor 'not_allowed'")
    if not test.take("zero_length_range_allowed", default=False):
        raise NoCheckError("lakegate allows empty ranges; with zero_length_range_allowed: true, both mean the same")
    arguments = {"partition_by": by, "gaps": False if gaps == "not_allowed" else None}
    return "mutually_exclusive_ranges", [lower, upper], arguments


def _sequence(test: DbtTest) -> CheckParts:
    period = test.take("datepart")
    if period not in (None, "day"):
        raise NoCheckError(f"datepart: {period!r}: times have no natural step; dates have days")
    return _renamed("sequential_values", interval="interval", partition_by="group_by_columns")(test)


def _columns(mode: str | None = None, *, ordered: bool | None = None) -> Reader:
    def read(test: DbtTest) -> CheckParts:
        ignores_case = test.take("transform", default="upper") in ("upper", "lower")
        arguments = {"expected": test.take("column_list"), "mode": mode, "ordered": ordered}
        return "columns_match", (), {**arguments, "ignore_case": ignores_case or None}

    return read


def _of_type(test: DbtTest) -> CheckParts:
    written = test.take("column_type")
    type_ = sql_type(str(written))
    if type_ is None:
        raise NoCheckError(f"{written!r} isn't an Iceberg type")
    return "type", [test.required_column], {"type": type_}


COUNTED_BY_VALUE = frozenset({"accepted_values", "not_accepted_values", "unique"})
"""Checks whose failures dbt counts as values or keys, and lakegate as rows."""
_EQUAL_ROWCOUNT = _renamed("equal_rowcount", of_column=False, to="compare_model")
READERS: Mapping[str, Reader] = {
    # dbt's own
    "not_null": _renamed("not_null"),
    "unique": _renamed("unique"),
    "accepted_values": _set("accepted_values", "values"),
    "relationships": _renamed("relationships", to="to", to_columns="field"),
    # dbt_utils
    "accepted_range": _range,
    "at_least_one": _fixed("distinct_count", min=1),
    "equal_rowcount": _EQUAL_ROWCOUNT,
    "expression_is_true": _expression,
    "fewer_rows_than": _renamed("fewer_rows_than", of_column=False, to="compare_model"),
    "mutually_exclusive_ranges": _exclusive,
    "not_accepted_values": _set("not_accepted_values", "values"),
    "recency": _recency,
    "relationships_where": _renamed(
        "relationships_where", to="to", to_columns="field", where="from_condition", to_condition="to_condition"
    ),
    "sequential_values": _sequence,
    "unique_combination_of_columns": _key("combination_of_columns", "never"),
    # dbt-expectations
    "expect_column_distinct_count_to_equal": _renamed("distinct_count", min="value", max="value"),
    "expect_column_distinct_values_to_be_in_set": _set("accepted_values", "value_set"),
    "expect_column_max_to_be_between": _measured("max"),
    "expect_column_mean_to_be_between": _measured("mean"),
    "expect_column_median_to_be_between": _quantile(0.5),
    "expect_column_min_to_be_between": _measured("min"),
    "expect_column_pair_values_A_to_be_greater_than_B": _pair,
    "expect_column_quantile_values_to_be_between": _quantile(),
    "expect_column_stdev_to_be_between": _measured("stddev"),
    "expect_column_sum_to_be_between": _measured("sum"),
    "expect_column_to_exist": lambda test: ("column_exists", (), {"column_name": test.required_column}),
    "expect_column_unique_value_count_to_be_between": _counted("distinct_count"),
    "expect_column_value_lengths_to_be_between": _counted("length_between"),
    "expect_column_value_lengths_to_equal": _renamed("length_between", min="value", max="value"),
    "expect_column_values_to_be_between": _range,
    "expect_column_values_to_be_in_set": _set("accepted_values", "value_set"),
    "expect_column_values_to_be_null": _fixed("null_rate", min=1),
    "expect_column_values_to_be_of_type": _of_type,
    "expect_column_values_to_be_unique": _renamed("unique"),
    "expect_column_values_to_match_like_pattern": _pattern("match_like", "like_pattern"),
    "expect_column_values_to_match_regex": _pattern("matches"),
    "expect_column_values_to_not_be_in_set": _set("not_accepted_values", "value_set"),
    "expect_column_values_to_not_be_null": _renamed("not_null"),
    "expect_column_values_to_not_match_regex": _pattern("not_match_regex"),
    "expect_compound_columns_to_be_unique": _key("column_list", "all_values_are_missing"),
    "expect_row_values_to_have_recent_data": _recent,
    "expect_table_columns_to_contain_set": _columns("additive"),
    "expect_table_columns_to_match_ordered_list": _columns(ordered=True),
    "expect_table_columns_to_match_set": _columns(),
    "expect_table_row_count_to_be_between": _counted("row_count", of_column=False),
    "expect_table_row_count_to_equal": _renamed("row_count", of_column=False, min="value", max="value"),
    "expect_table_row_count_to_equal_other_table": _EQUAL_ROWCOUNT,
}
