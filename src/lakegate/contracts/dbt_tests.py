"""Translates tests of dbt, dbt_utils and dbt-expectations into checks.

A test named like a check, or its alias, becomes that check. :data:`READERS` has all others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import combinations
from typing import Any, TypeAlias

from lakegate.checks.registry import find_check
from lakegate.contracts.draft import sql_type
from lakegate.errors import CheckError
from lakegate.model.identifiers import quote
from lakegate.model.sqltext import sql_string

Arguments: TypeAlias = dict[str, Any]
CheckParts: TypeAlias = tuple[str, Sequence[str], Arguments]
"""A check: its kind, its columns, its arguments."""


class NoCheckError(Exception):
    """There is no check for a test; the message says why."""


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

    def take_list(self, name: str, *, least: int = 1) -> list[Any]:
        """Take an argument that must be a list with at least this many items."""
        values = self.take(name)
        if not isinstance(values, list) or len(values) < least:
            raise NoCheckError(f"'{name}' isn't a list{f' of {least} or more' if least > 1 else ''}")
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
        raise NoCheckError("lakegate has no check for it")
    try:
        definition = find_check(name)
    except CheckError:
        raise NoCheckError("lakegate has no check of this name") from None
    columns = [test.column] if test.column is not None and definition.columns else []
    return definition.name, columns, test.arguments


def _renamed(kind: str, *, of_column: bool = True, **names: str) -> Reader:
    """Translate a test that only names its arguments differently: ``names`` maps the check's names to the test's."""

    def read(test: DbtTest) -> CheckParts:
        arguments = {ours: test.arguments.get(theirs) for ours, theirs in names.items()}
        for theirs in names.values():
            test.take(theirs)
        if "to" in arguments:
            arguments["to"] = test.table(arguments["to"])
        return kind, [test.required_column] if of_column else (), arguments

    return read


def _fixed(kind: str, **arguments: Any) -> Reader:
    return lambda test: (kind, [test.required_column], dict(arguments))


def _set(kind: str, name: str) -> Reader:
    def read(test: DbtTest) -> CheckParts:
        values = test.take_list(name, least=0)
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
        nullable = [] if ignored in as_ours else [one for one in columns if not test.is_required(str(one))]
        if nullable:
            what = f"rows with NULL in {', '.join(map(str, nullable))}"
            test.remark = what, "lakegate ignores rows with any NULL in the key"
        return "unique", columns, {}

    return read


def _expression(test: DbtTest) -> CheckParts:
    expression = test.take("expression")
    if not isinstance(expression, str):
        raise NoCheckError("it has no expression")
    return _true(expression if test.column is None else f"{quote(test.column)} {expression}")


def _pattern(kind: str, name: str = "regex") -> Reader:
    def read(test: DbtTest) -> CheckParts:
        given, column = test.take(name), test.required_column
        patterns = given if isinstance(given, list) else [given]
        test.take("is_raw")
        flags, match_on = test.take("flags") or "", test.take("match_on", default="any")
        if not patterns or not all(isinstance(one, str) for one in patterns):
            raise NoCheckError(f"{name!r} is neither a pattern nor a list of patterns")
        if match_on not in ("all", "any"):
            raise NoCheckError(f"match_on: {match_on!r} is neither 'all' nor 'any'")
        if set(flags) - {"c", "i"}:
            raise NoCheckError(f"flags {flags!r}: write them into the pattern, (?s)…")
        is_negated, folds = kind == "not_match_regex", "(?i)" if "i" in flags else ""
        if len(patterns) > 1 and match_on != ("all" if is_negated else "any"):
            # A text must match every pattern or, negated, may match some but not all. No single pattern says that.
            all_match = " AND ".join(f"{quote(column)} RLIKE {sql_string(f'{folds}{one}')}" for one in patterns)
            return _true(f"NOT ({all_match})" if is_negated else all_match)
        whole = patterns[0] if len(patterns) == 1 else "|".join(f"(?:{one})" for one in patterns)
        return kind, [column], {"pattern": f"{folds}{whole}"}

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


def _quantile(q: float | None = None) -> Reader:
    def read(test: DbtTest) -> CheckParts:
        test.remark = "a value between two", "lakegate takes the lower one"
        arguments = {"q": test.take("quantile") if q is None else q, **test.take_limits()}
        return "quantile", [test.required_column], arguments

    return read


def _pair(test: DbtTest) -> CheckParts:
    left, right = test.take("column_A"), test.take("column_B")
    or_equal = test.take("or_equal", default=False)
    if not isinstance(left, str) or not isinstance(right, str):
        raise NoCheckError("it needs column_A and column_B")
    if not left.isidentifier() or not right.isidentifier() or left == right:  # they may be SQL
        return _true(f"({left}) {'>=' if or_equal else '>'} ({right})")
    return "column_pair_greater", [left, right], {"or_equal": or_equal or None}


def _equal_pair(test: DbtTest) -> CheckParts:
    return _true(f"({test.take('column_A')}) = ({test.take('column_B')})")


def _not_like(test: DbtTest) -> CheckParts:
    pattern = sql_string(str(test.take("like_pattern")))
    return "sql", (), {"predicate": f"{quote(test.required_column)} LIKE {pattern}"}


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


def _distinct_count(limit: str, step: int) -> Reader:
    def read(test: DbtTest) -> CheckParts:
        value = test.take("value")
        if type(value) is not int:
            raise NoCheckError(f"value: {value!r} isn't a whole number")
        return "distinct_count", [test.required_column], {limit: value + step}

    return read


def _pairs(test: DbtTest) -> CheckParts:
    left, right, pairs = test.take("column_A"), test.take("column_B"), test.take("value_pairs_set")
    if not isinstance(pairs, list) or not pairs or not all(isinstance(one, list) and len(one) == 2 for one in pairs):
        raise NoCheckError("'value_pairs_set' isn't a list of pairs")
    # As in dbt-expectations, text in the pairs has quotes of its own.
    return _true(" OR ".join(f"(({left}) = {a} AND ({right}) = {b})" for a, b in pairs))


def _likes(operator: str) -> Reader:
    def read(test: DbtTest) -> CheckParts:
        patterns, match_on = test.take_list("like_pattern_list"), test.take("match_on", default="any")
        column = quote(test.required_column)
        parts = (f"{column} {operator} {sql_string(str(one))}" for one in patterns)
        return _true((" AND " if match_on == "all" else " OR ").join(parts))

    return read


def _in_order(operator: str) -> Reader:
    """Translate a test of whether values increase or decrease from row to row."""

    def read(test: DbtTest) -> CheckParts:
        name = test.required_column
        column, order = quote(name), _name(test.take("sort_column") or name)
        listed, step = test.take("group_by") or [], test.take("step")
        if not isinstance(listed, list):
            raise NoCheckError("'group_by' isn't a list")
        groups = ", ".join(map(_name, listed))
        sign = operator if test.take("strictly", default=True) else f"{operator}="
        rows = f"PARTITION BY {groups} ORDER BY {order}" if groups else f"ORDER BY {order}"
        moved = f"{column} - previous" if operator == ">" else f"previous - {column}"
        wanted = f"{column} {sign} previous" + (f" AND {moved} = {step}" if step else "")
        previous = f"lag({column}) OVER ({rows})"
        return _query(f"SELECT * FROM (SELECT *, {previous} AS previous FROM batch) WHERE NOT ({wanted})")  # noqa: S608

    return read


def _share_of_distinct(test: DbtTest) -> CheckParts:
    column = quote(test.required_column)
    return _outside(test, f"coalesce(try_divide(count(DISTINCT {column}), count({column})), 1D)", "share")


def _outside(test: DbtTest, aggregate: str, name: str) -> CheckParts:
    """Return a query that fails if an aggregate is outside the test's limits."""
    limits = {"<": test.take("min_value"), ">": test.take("max_value")}
    equal = "=" if test.take("strictly", default=False) else ""
    outside = [f"{name} {sign}{equal} {end}" for sign, end in limits.items() if isinstance(end, (int, float))]
    if not outside or len(outside) < sum(end is not None for end in limits.values()):
        raise NoCheckError("its limits aren't numbers")
    return _query(f"SELECT * FROM (SELECT {aggregate} AS {name} FROM batch) WHERE {' OR '.join(outside)}")  # noqa: S608


def _containing(test: DbtTest) -> CheckParts:
    wanted, column = _wanted_values(test), quote(test.required_column)
    return _query(f"SELECT wanted_value FROM {wanted} LEFT ANTI JOIN batch ON {column} = wanted_value")  # noqa: S608


def _equal_set(test: DbtTest) -> CheckParts:
    wanted, column = _wanted_values(test), quote(test.required_column)
    rest = f"FULL JOIN batch ON {column} = wanted_value WHERE {column} IS NULL OR wanted_value IS NULL"
    return _query(f"SELECT DISTINCT wanted_value, {column} FROM {wanted} {rest}")  # noqa: S608


def _wanted_values(test: DbtTest) -> str:
    return f"(SELECT explode(array({_literals(test)})) AS wanted_value)"


def _most_common(test: DbtTest) -> CheckParts:
    listed, column, number = _literals(test), quote(test.required_column), test.take("top_n")
    test.take("data_type")
    if type(number) is not int:
        raise NoCheckError("it needs 'top_n', a number")
    counted = f"SELECT {column}, rank() OVER (ORDER BY count(*) DESC) AS place FROM batch GROUP BY {column}"  # noqa: S608
    return _query(f"SELECT {column} FROM ({counted}) WHERE place = {number} AND {column} NOT IN ({listed})")  # noqa: S608


def _literals(test: DbtTest) -> str:
    """Take the values of ``value_set`` as SQL."""
    quoted = test.take("quote_values", default=True)
    return ", ".join(_literal(one, quoted=quoted) for one in test.take_list("value_set"))


def _literal(value: Any, *, quoted: bool) -> str:
    if isinstance(value, date):  # YAML's own, where dbt has the text
        value = str(value)
    if not isinstance(value, (str, int, float)):
        raise NoCheckError(f"{value!r} is neither text nor a number")
    if isinstance(value, str) and not quoted:
        return str(_number(value))
    return sql_string(value) if isinstance(value, str) else str(value)


def _within_record(test: DbtTest) -> CheckParts:
    columns = test.take_list("column_list", least=2)
    ignored = test.take("ignore_row_if", default="all_values_are_missing")
    test.take("quote_columns")
    if ignored != "any_value_is_missing" and not all(test.is_required(str(one)) for one in columns):
        test.remark = "NULLs", "lakegate never treats two NULLs as equal"
    return _true(" AND ".join(f"{_name(one)} <> {_name(other)}" for one, other in combinations(columns, 2)))


def _one_case(test: DbtTest) -> CheckParts:
    test.take("display_inconsistent_columns")
    column = quote(test.required_column)
    distinct = f"count(DISTINCT {column}) > 1"
    return _query(f"SELECT lower({column}) AS value FROM batch GROUP BY 1 HAVING {distinct}")  # noqa: S608


def _sum_of_columns(test: DbtTest) -> CheckParts:
    total, sums = test.take("sum_total"), (f"sum({_name(one)})" for one in test.take_list("column_list"))
    wanted = total if isinstance(total, (int, float)) else f"sum({_name(total)})"
    found = " + ".join(sums)
    return _query(f"SELECT * FROM (SELECT {found} AS found, {wanted} AS wanted FROM batch) WHERE found <> wanted")  # noqa: S608


def _query(sql: str) -> CheckParts:
    """Return a ``custom_sql`` check. Its SQL is validated when the contract is read."""
    return "custom_sql", (), {"query": sql}


def _true(expression: str) -> CheckParts:
    return "expression_is_true", (), {"expression": expression}


def _name(text: Any) -> str:
    """Return a column's name or an expression as SQL."""
    return quote(text) if isinstance(text, str) and text.isidentifier() else str(text)


def _columns(mode: str, *, ordered: bool = False) -> Reader:
    def read(test: DbtTest) -> CheckParts:
        arguments = {
            "expected": test.take("column_list"),
            "mode": mode if mode != "strict" else None,
            "ordered": ordered or None,
            "ignore_case": test.take("transform", default="upper") in ("upper", "lower") or None,
        }
        return "columns_match", (), arguments

    return read


def _of_type(test: DbtTest) -> CheckParts:
    written = test.take("column_type")
    type_ = sql_type(str(written))
    if type_ is None:
        raise NoCheckError(f"{written!r} isn't an Iceberg type")
    return "type", [test.required_column], {"type": type_}


def _measured(kind: str, function: str = "") -> Reader:
    def read(test: DbtTest) -> CheckParts:
        if test.arguments.get("strictly"):
            return _outside(test, f"{function or kind}({quote(test.required_column)})", "value")
        test.take("strictly")
        return kind, [test.required_column], test.take_limits()

    return read


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
    "expect_column_distinct_count_to_be_greater_than": _distinct_count("min", 1),
    "expect_column_distinct_count_to_be_less_than": _distinct_count("max", -1),
    "expect_column_distinct_count_to_equal": _renamed("distinct_count", min="value", max="value"),
    "expect_column_distinct_values_to_be_in_set": _set("accepted_values", "value_set"),
    "expect_column_distinct_values_to_contain_set": _containing,
    "expect_column_distinct_values_to_equal_set": _equal_set,
    "expect_column_max_to_be_between": _measured("max"),
    "expect_column_mean_to_be_between": _measured("mean", "avg"),
    "expect_column_median_to_be_between": _quantile(0.5),
    "expect_column_min_to_be_between": _measured("min"),
    "expect_column_most_common_value_to_be_in_set": _most_common,
    "expect_column_pair_values_A_to_be_greater_than_B": _pair,
    "expect_column_pair_values_to_be_equal": _equal_pair,
    "expect_column_pair_values_to_be_in_set": _pairs,
    "expect_column_proportion_of_unique_values_to_be_between": _share_of_distinct,
    "expect_column_quantile_values_to_be_between": _quantile(),
    "expect_column_stdev_to_be_between": _measured("stddev", "stddev_samp"),
    "expect_column_sum_to_be_between": _measured("sum"),
    "expect_column_to_exist": lambda test: ("column_exists", (), {"column_name": test.required_column}),
    "expect_column_unique_value_count_to_be_between": _counted("distinct_count"),
    "expect_column_value_lengths_to_be_between": _counted("length_between"),
    "expect_column_value_lengths_to_equal": _renamed("length_between", min="value", max="value"),
    "expect_column_values_to_be_between": _range,
    "expect_column_values_to_be_decreasing": _in_order("<"),
    "expect_column_values_to_be_in_set": _set("accepted_values", "value_set"),
    "expect_column_values_to_be_increasing": _in_order(">"),
    "expect_column_values_to_be_null": _fixed("null_rate", min=1),
    "expect_column_values_to_be_of_type": _of_type,
    "expect_column_values_to_be_unique": _renamed("unique"),
    "expect_column_values_to_have_consistent_casing": _one_case,
    "expect_column_values_to_match_like_pattern": _pattern("match_like", "like_pattern"),
    "expect_column_values_to_match_like_pattern_list": _likes("LIKE"),
    "expect_column_values_to_match_regex": _pattern("matches"),
    "expect_column_values_to_match_regex_list": _pattern("matches", "regex_list"),
    "expect_column_values_to_not_be_in_set": _set("not_accepted_values", "value_set"),
    "expect_column_values_to_not_be_null": _renamed("not_null"),
    "expect_column_values_to_not_match_like_pattern": _not_like,
    "expect_column_values_to_not_match_like_pattern_list": _likes("NOT LIKE"),
    "expect_column_values_to_not_match_regex": _pattern("not_match_regex"),
    "expect_column_values_to_not_match_regex_list": _pattern("not_match_regex", "regex_list"),
    "expect_multicolumn_sum_to_equal": _sum_of_columns,
    "expect_select_column_values_to_be_unique_within_record": _within_record,
    "expect_compound_columns_to_be_unique": _key("column_list", "all_values_are_missing"),
    "expect_row_values_to_have_recent_data": _recent,
    "expect_table_columns_to_contain_set": _columns("additive"),
    "expect_table_columns_to_match_ordered_list": _columns("strict", ordered=True),
    "expect_table_columns_to_match_set": _columns("strict"),
    "expect_table_row_count_to_be_between": _counted("row_count", of_column=False),
    "expect_table_row_count_to_equal": _renamed("row_count", of_column=False, min="value", max="value"),
    "expect_table_row_count_to_equal_other_table": _EQUAL_ROWCOUNT,
}
