"""Translates tests of dbt, dbt_utils and dbt-expectations into checks.

A test with the name of a check (or of an alias) becomes that check. The table at the end has all others.
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

_PAIR = 2
Arguments: TypeAlias = dict[str, Any]
Made: TypeAlias = tuple[str, Sequence[str], Arguments]
"""A check: its kind, its columns, its arguments."""


class NoCheckError(Exception):
    """There is no check for a test; the message says why."""


@dataclass(slots=True)
class Test:
    """A test's column and arguments. Arguments that nobody takes can't be translated."""

    column: str | None
    arguments: Arguments
    table: Callable[[Any], str]
    is_required: Callable[[str], bool]
    remark: tuple[str, str] | None = None
    """What of it the check says in another way, and how."""

    @property
    def on(self) -> str:
        """The column that it's about."""
        if self.column is None:
            raise NoCheckError("it must be below a column")
        return self.column

    def take(self, name: str, default: Any = None) -> Any:
        """Return an argument, and mark it as translated."""
        return self.arguments.pop(name, default)

    def done(self) -> None:
        """Refuse arguments that weren't taken, because their effect would be lost."""
        left = [name for name, value in self.arguments.items() if value not in (None, False)]
        if left:
            raise NoCheckError(f"no lakegate check takes {', '.join(map(repr, left))}")


def same(name: str, test: Test) -> Made:
    """Translate a test into the check of the same name, or report that there is none."""
    try:
        definition = find_check(name)
    except CheckError:
        raise NoCheckError("lakegate has no check of this name") from None
    columns = [test.column] if test.column is not None and definition.columns else []
    return definition.name, columns, test.arguments


def _simple(kind: str) -> Callable[[Test], Made]:
    def read(test: Test) -> Made:
        test.done()
        return kind, [test.on], {}

    return read


def _accepted(name: str) -> Callable[[Test], Made]:
    def read(test: Test) -> Made:
        values, quoted = test.take(name), test.take("quote", default=True)
        quoted = test.take("quote_values", default=quoted)
        test.done()
        if not isinstance(values, list):
            raise NoCheckError(f"'{name}' isn't a list")
        # dbt puts each value in quotes unless it is told not to; databases then compare it as the column's type.
        return "accepted_values", [test.on], {"values": values if quoted else list(map(_number, values))}

    return read


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        raise NoCheckError(f"{value!r} is SQL, not a value") from None


def _refused(name: str) -> Callable[[Test], Made]:
    def read(test: Test) -> Made:
        values = test.take(name)
        test.take("quote")
        test.take("quote_values")
        test.done()
        return "not_accepted_values", [test.on], {"values": values if isinstance(values, list) else [values]}

    return read


def _relationships(test: Test) -> Made:
    to, field = test.take("to"), test.take("field")
    test.done()
    return "relationships", [test.on], {"to": test.table(to), "to_columns": field}


def _relationships_where(test: Test) -> Made:
    to, field = test.take("to"), test.take("field")
    where = {"where": test.take("from_condition"), "to_condition": test.take("to_condition")}
    test.done()
    return "relationships_where", [test.on], {"to": test.table(to), "to_columns": field, **where}


def _beside(kind: str) -> Callable[[Test], Made]:
    """Translate a test that compares a table with another one."""

    def read(test: Test) -> Made:
        other = test.take("compare_model")
        test.done()
        return kind, (), {"to": test.table(other)}

    return read


def _range(low: str, high: str) -> Callable[[Test], Made]:
    def read(test: Test) -> Made:
        ends = {"min": test.take(low), "max": test.take(high)}
        strictly, inclusive = test.take("strictly", default=False), test.take("inclusive", default=True)
        test.done()
        for end in ends.values():
            if isinstance(end, str) and not re.fullmatch(r"[-0-9:.TZ +]+", end):
                raise NoCheckError(f"{end!r} is SQL, not a value")
        return "in_range", [test.on], {**ends, "inclusive": None if inclusive and not strictly else False}

    return read


def _key(name: str, ignored_if: str) -> Callable[[Test], Made]:
    def read(test: Test) -> Made:
        columns = test.take(name)
        ignored = test.take("ignore_row_if", default=ignored_if)
        test.take("quote_columns")
        test.done()
        if not isinstance(columns, list):
            raise NoCheckError(f"'{name}' isn't a list of columns")
        as_ours = ("any_value_is_missing", *["all_values_are_missing"] * (len(columns) == 1))
        nullable = [] if ignored in as_ours else [one for one in columns if not test.is_required(str(one))]
        if nullable:
            what = f"rows with NULL in {', '.join(map(str, nullable))}"
            test.remark = what, "lakegate leaves out rows with any NULL in the key"
        return "unique", columns, {}

    return read


def _expression(test: Test) -> Made:
    expression = test.take("expression")
    test.done()
    if not isinstance(expression, str):
        raise NoCheckError("it has no expression")
    whole = expression if test.column is None else f"{quote(test.column)} {expression}"
    return "expression_is_true", (), {"expression": whole}


def _pattern(kind: str, name: str = "regex") -> Callable[[Test], Made]:
    def read(test: Test) -> Made:
        found = test.take(name)
        patterns = found if isinstance(found, list) else [found]
        test.take("is_raw")
        flags, match_on = test.take("flags") or "", test.take("match_on", default="any")
        test.done()
        if not patterns or not all(isinstance(one, str) for one in patterns):
            raise NoCheckError(f"{name!r} isn't a pattern, nor a list of them")
        if match_on not in ("all", "any"):
            raise NoCheckError(f"match_on: {match_on!r} is neither 'all' nor 'any'")
        if set(flags) - {"c", "i"}:
            raise NoCheckError(f"flags {flags!r}: write them into the pattern, (?s)…")
        is_negated = kind == "not_match_regex"
        if len(patterns) > 1 and match_on != ("all" if is_negated else "any"):
            # One pattern has to be found in a text for each, or is allowed to be found unless all of them are.
            found = (sql_string(f"(?i){one}" if "i" in flags else one) for one in patterns)
            both = " AND ".join(f"{quote(test.on)} RLIKE {one}" for one in found)
            return "expression_is_true", (), {"expression": f"NOT ({both})" if is_negated else both}
        whole = patterns[0] if len(patterns) == 1 else "|".join(f"(?:{one})" for one in patterns)
        return kind, [test.on], {"pattern": f"(?i){whole}" if "i" in flags else whole}

    return read


def _rows(low: str, high: str) -> Callable[[Test], Made]:
    def read(test: Test) -> Made:
        ends = {"min": test.take(low), "max": test.take(high)}
        test.done()
        return "row_count", (), ends

    return read


def _length(low: str, high: str) -> Callable[[Test], Made]:
    def read(test: Test) -> Made:
        ends = {"min": test.take(low), "max": test.take(high)}
        strictly = test.take("strictly", default=False)
        test.done()
        if strictly:
            ends = {
                name: end + (1 if name == "min" else -1) if isinstance(end, int) else end for name, end in ends.items()
            }
        return "length_between", [test.on], ends

    return read


def _measured(kind: str, *, low: str = "min_value", high: str = "max_value", **more: Any) -> Callable[[Test], Made]:
    """Translate a test that a column's measure is between two numbers."""

    def read(test: Test) -> Made:
        ends = {"min": test.take(low), "max": test.take(high)}
        share = {"q": test.take("quantile")} if kind == "quantile" and not more else {}
        test.done()
        if kind == "quantile":
            test.remark = "a value between two", "lakegate takes the lower of the two"
        return kind, [test.on], {**more, **share, **ends}

    return read


def _not_empty(test: Test) -> Made:
    is_trimmed = test.take("trim_whitespace", default=True)
    test.done()
    return "not_empty_string", [test.on], {"trim": None if is_trimmed else False}


def _pair(test: Test) -> Made:
    left, right = test.take("column_A"), test.take("column_B")
    or_equal = test.take("or_equal", default=False)
    test.done()
    if not isinstance(left, str) or not isinstance(right, str):
        raise NoCheckError("it needs column_A and column_B")
    if not left.isidentifier() or not right.isidentifier():  # they may be SQL
        return "expression_is_true", (), {"expression": f"({left}) {'>=' if or_equal else '>'} ({right})"}
    return "column_pair_greater", [left, right], {"or_equal": or_equal or None}


def _equal_pair(test: Test) -> Made:
    left, right = test.take("column_A"), test.take("column_B")
    test.done()
    return "expression_is_true", (), {"expression": f"({left}) = ({right})"}


def _not_like(test: Test) -> Made:
    pattern = test.take("like_pattern")
    test.done()
    return "sql", (), {"predicate": f"{quote(test.on)} LIKE {sql_string(str(pattern))}"}


def _recency(test: Test) -> Made:
    field, period, number = test.take("field", test.column), test.take("datepart"), test.take("interval")
    test.done()
    if not isinstance(field, str) or period not in ("minute", "hour", "day", "week"):
        raise NoCheckError("it needs a field, and minute, hour, day or week as datepart")
    return "recency", [field], {"within": f"{number} {period}{'' if number == 1 else 's'}"}


def _exclusive(test: Test) -> Made:
    lower, upper = test.take("lower_bound_column"), test.take("upper_bound_column")
    gaps, by = test.take("gaps", default="allowed"), test.take("partition_by")
    is_zero = test.take("zero_length_range_allowed", default=False)
    test.done()
    if gaps not in ("allowed", "not_allowed"):
        raise NoCheckError(f"gaps: {gaps!r} is neither 'allowed' nor 'not_allowed'")
    if not is_zero:
        raise NoCheckError("lakegate allows empty ranges; with zero_length_range_allowed: true, both mean the same")
    arguments = {"partition_by": by, "gaps": False if gaps == "not_allowed" else None}
    return "mutually_exclusive_ranges", [lower, upper], arguments


def _sequence(test: Test) -> Made:
    by, step, period = test.take("group_by_columns"), test.take("interval"), test.take("datepart")
    test.done()
    if period not in (None, "day"):
        raise NoCheckError(f"datepart: {period!r}: times have no steps, dates have days")
    return "sequential_values", [test.on], {"interval": step, "partition_by": by}


def _distinct(name: str, step: int) -> Callable[[Test], Made]:
    """Translate a test that limits the number of distinct values."""

    def read(test: Test) -> Made:
        value = test.take("value")
        test.done()
        if type(value) is not int:
            raise NoCheckError(f"value: {value!r} isn't a whole number")
        return "distinct_count", [test.on], {name: value + step}

    return read


def _pairs(test: Test) -> Made:
    left, right, pairs = test.take("column_A"), test.take("column_B"), test.take("value_pairs_set")
    test.done()
    known = isinstance(pairs, list) and all(isinstance(one, list) and len(one) == _PAIR for one in pairs)
    if not known or not pairs:
        raise NoCheckError("'value_pairs_set' isn't a list of pairs")
    # As dbt-expectations writes them: texts bring their quotes along.
    return (
        "expression_is_true",
        (),
        {"expression": " OR ".join(f"(({left}) = {a} AND ({right}) = {b})" for a, b in pairs)},
    )


def _likes(*, negated: bool) -> Callable[[Test], Made]:
    def read(test: Test) -> Made:
        patterns, match_on = test.take("like_pattern_list"), test.take("match_on", default="any")
        test.done()
        if not isinstance(patterns, list) or not patterns:
            raise NoCheckError("'like_pattern_list' isn't a list")
        operator, word = "NOT LIKE" if negated else "LIKE", "AND" if match_on == "all" else "OR"
        parts = (f"{quote(test.on)} {operator} {sql_string(str(one))}" for one in patterns)
        return "expression_is_true", (), {"expression": f" {word} ".join(parts)}

    return read


def _in_order(operator: str) -> Callable[[Test], Made]:
    """Translate a test that values increase or decrease from row to row."""

    def read(test: Test) -> Made:
        column, order = quote(test.on), _name(test.take("sort_column") or test.on)
        groups, step = ", ".join(map(_name, test.take("group_by") or [])), test.take("step")
        sign = operator if test.take("strictly", default=True) else f"{operator}="
        test.done()
        rows = f"PARTITION BY {groups} ORDER BY {order}" if groups else f"ORDER BY {order}"
        moved = f"{column} - previous" if operator == ">" else f"previous - {column}"
        wanted = f"{column} {sign} previous" + (f" AND {moved} = {step}" if step else "")
        previous = f"lag({column}) OVER ({rows})"
        return _query(f"SELECT * FROM (SELECT *, {previous} AS previous FROM batch) WHERE NOT ({wanted})")  # noqa: S608

    return read


def _share_of_distinct(test: Test) -> Made:
    ends = {"<": test.take("min_value"), ">": test.take("max_value")}
    test.done()
    limits = [f"share {sign} {end}" for sign, end in ends.items() if isinstance(end, (int, float))]
    if not limits or len(limits) < sum(end is not None for end in ends.values()):
        raise NoCheckError("its limits aren't numbers")
    column = quote(test.on)
    share = f"coalesce(try_divide(count(DISTINCT {column}), count({column})), 1D)"
    return _query(f"SELECT * FROM (SELECT {share} AS share FROM batch) WHERE {' OR '.join(limits)}")  # noqa: S608


def _containing(*, equals: bool) -> Callable[[Test], Made]:
    """Translate a test of values that a column must have; with ``equals``, it may have no others."""

    def read(test: Test) -> Made:
        values, column = test.take("value_set"), quote(test.on)
        quoted = test.take("quote_values", default=True)
        test.done()
        if not isinstance(values, list) or not values:
            raise NoCheckError("'value_set' isn't a list")
        listed = ", ".join(_literal(one, quoted=quoted) for one in values)
        wanted = f"(SELECT explode(array({listed})) AS wanted_value)"
        if not equals:
            return _query(f"SELECT wanted_value FROM {wanted} LEFT ANTI JOIN batch ON {column} = wanted_value")  # noqa: S608
        rest = f"FULL JOIN batch ON {column} = wanted_value WHERE {column} IS NULL OR wanted_value IS NULL"
        return _query(f"SELECT DISTINCT wanted_value, {column} FROM {wanted} {rest}")  # noqa: S608

    return read


def _most_common(test: Test) -> Made:
    values, column = test.take("value_set"), quote(test.on)
    number, quoted = test.take("top_n"), test.take("quote_values", default=True)
    test.take("data_type")
    test.done()
    if not isinstance(values, list) or not values or type(number) is not int:
        raise NoCheckError("it needs 'value_set', a list, and 'top_n', a number")
    listed = ", ".join(_literal(one, quoted=quoted) for one in values)
    counted = f"SELECT {column}, rank() OVER (ORDER BY count(*) DESC) AS place FROM batch GROUP BY {column}"  # noqa: S608
    return _query(f"SELECT {column} FROM ({counted}) WHERE place = {number} AND {column} NOT IN ({listed})")  # noqa: S608


def _literal(value: Any, *, quoted: bool) -> str:
    if isinstance(value, date):  # YAML's own, where dbt has the text
        value = str(value)
    if not isinstance(value, (str, int, float)):
        raise NoCheckError(f"{value!r} isn't a text or a number")
    if isinstance(value, str) and not quoted:
        return str(_number(value))
    return sql_string(value) if isinstance(value, str) else str(value)


def _within_record(test: Test) -> Made:
    columns, ignored = test.take("column_list"), test.take("ignore_row_if", default="all_values_are_missing")
    test.take("quote_columns")
    test.done()
    if not isinstance(columns, list) or len(columns) < _PAIR:
        raise NoCheckError("'column_list' isn't a list of columns")
    if ignored != "any_value_is_missing" and not all(test.is_required(str(one)) for one in columns):
        test.remark = "NULLs", "lakegate takes no two NULLs for equal"
    pairs = (f"{_name(one)} <> {_name(other)}" for one, other in combinations(columns, 2))
    return "expression_is_true", (), {"expression": " AND ".join(pairs)}


def _one_case(test: Test) -> Made:
    test.take("display_inconsistent_columns")
    test.done()
    column = quote(test.on)
    distinct = f"count(DISTINCT {column}) > 1"
    return _query(f"SELECT lower({column}) AS value FROM batch GROUP BY 1 HAVING {distinct}")  # noqa: S608


def _sum_of_columns(test: Test) -> Made:
    columns, total = test.take("column_list"), test.take("sum_total")
    test.done()
    if not isinstance(columns, list) or not columns:
        raise NoCheckError("'column_list' isn't a list")
    found = " + ".join(f"sum({_name(one)})" for one in columns)
    wanted = total if isinstance(total, (int, float)) else f"sum({_name(total)})"
    return _query(f"SELECT * FROM (SELECT {found} AS found, {wanted} AS wanted FROM batch) WHERE found <> wanted")  # noqa: S608


def _query(sql: str) -> Made:
    return "custom_sql", (), {"query": sql}


def _name(text: Any) -> str:
    """Return a column's name or an expression as SQL."""
    return quote(text) if isinstance(text, str) and text.isidentifier() else str(text)


def _columns(mode: str, *, ordered: bool = False) -> Callable[[Test], Made]:
    def read(test: Test) -> Made:
        listed = test.take("column_list")
        transform = test.take("transform", default="upper")
        test.done()
        options = {
            "mode": mode if mode != "strict" else None,
            "ordered": ordered or None,
            "ignore_case": transform in ("upper", "lower") or None,
        }
        return "columns_match", (), {"expected": listed, **options}

    return read


def _of_type(test: Test) -> Made:
    kind = test.take("column_type")
    test.done()
    found = sql_type(str(kind))
    if found is None:
        raise NoCheckError(f"{kind!r} isn't an Iceberg type")
    return "type", [test.on], {"type": found}


def _exists(test: Test) -> Made:
    test.done()
    return "column_exists", (), {"column_name": test.on}


def _always(kind: str, **arguments: Any) -> Callable[[Test], Made]:
    def read(test: Test) -> Made:
        test.done()
        return kind, [test.on], dict(arguments)

    return read


COUNTED_BY_VALUE = frozenset({"accepted_values", "not_accepted_values", "unique"})
"""Checks for which dbt counts values or keys, where lakegate counts rows."""
READERS: Mapping[str, Callable[[Test], Made]] = {
    # dbt's own
    "not_null": _simple("not_null"),
    "unique": _simple("unique"),
    "accepted_values": _accepted("values"),
    "relationships": _relationships,
    # dbt_utils
    "accepted_range": _range("min_value", "max_value"),
    "at_least_one": _always("distinct_count", min=1),
    "equal_rowcount": _beside("equal_rowcount"),
    "expression_is_true": _expression,
    "fewer_rows_than": _beside("fewer_rows_than"),
    "mutually_exclusive_ranges": _exclusive,
    "not_accepted_values": _refused("values"),
    "not_empty_string": _not_empty,
    "not_null_proportion": _measured("not_null_proportion", low="at_least", high="at_most"),
    "recency": _recency,
    "relationships_where": _relationships_where,
    "sequential_values": _sequence,
    "unique_combination_of_columns": _key("combination_of_columns", "never"),
    # dbt-expectations
    "expect_column_distinct_count_to_be_greater_than": _distinct("min", 1),
    "expect_column_distinct_count_to_be_less_than": _distinct("max", -1),
    "expect_column_distinct_count_to_equal": lambda test: _measured("distinct_count")(
        _doubled(test, "min_value", "max_value")
    ),
    "expect_column_distinct_values_to_be_in_set": _accepted("value_set"),
    "expect_column_distinct_values_to_contain_set": _containing(equals=False),
    "expect_column_distinct_values_to_equal_set": _containing(equals=True),
    "expect_column_max_to_be_between": _measured("max"),
    "expect_column_mean_to_be_between": _measured("mean"),
    "expect_column_median_to_be_between": _measured("quantile", q=0.5),
    "expect_column_min_to_be_between": _measured("min"),
    "expect_column_most_common_value_to_be_in_set": _most_common,
    "expect_column_pair_values_A_to_be_greater_than_B": _pair,
    "expect_column_pair_values_to_be_equal": _equal_pair,
    "expect_column_pair_values_to_be_in_set": _pairs,
    "expect_column_proportion_of_unique_values_to_be_between": _share_of_distinct,
    "expect_column_quantile_values_to_be_between": _measured("quantile"),
    "expect_column_stdev_to_be_between": _measured("stddev"),
    "expect_column_sum_to_be_between": _measured("sum"),
    "expect_column_to_exist": _exists,
    "expect_column_unique_value_count_to_be_between": _measured("distinct_count"),
    "expect_column_value_lengths_to_be_between": _length("min_value", "max_value"),
    "expect_column_value_lengths_to_equal": lambda test: _length("value", "value_")(_doubled(test)),
    "expect_column_values_to_be_between": _range("min_value", "max_value"),
    "expect_column_values_to_be_decreasing": _in_order("<"),
    "expect_column_values_to_be_in_set": _accepted("value_set"),
    "expect_column_values_to_be_increasing": _in_order(">"),
    "expect_column_values_to_be_null": _always("null_rate", min=1),
    "expect_column_values_to_be_of_type": _of_type,
    "expect_column_values_to_be_unique": _simple("unique"),
    "expect_column_values_to_have_consistent_casing": _one_case,
    "expect_column_values_to_match_like_pattern": _pattern("match_like", "like_pattern"),
    "expect_column_values_to_match_like_pattern_list": _likes(negated=False),
    "expect_column_values_to_match_regex": _pattern("matches"),
    "expect_column_values_to_match_regex_list": _pattern("matches", "regex_list"),
    "expect_column_values_to_not_be_in_set": _refused("value_set"),
    "expect_column_values_to_not_be_null": _simple("not_null"),
    "expect_column_values_to_not_match_like_pattern": _not_like,
    "expect_column_values_to_not_match_like_pattern_list": _likes(negated=True),
    "expect_column_values_to_not_match_regex": _pattern("not_match_regex"),
    "expect_column_values_to_not_match_regex_list": _pattern("not_match_regex", "regex_list"),
    "expect_multicolumn_sum_to_equal": _sum_of_columns,
    "expect_select_column_values_to_be_unique_within_record": _within_record,
    "expect_compound_columns_to_be_unique": _key("column_list", "all_values_are_missing"),
    "expect_row_values_to_have_recent_data": _recency,
    "expect_table_columns_to_contain_set": _columns("additive"),
    "expect_table_columns_to_match_ordered_list": _columns("strict", ordered=True),
    "expect_table_columns_to_match_set": _columns("strict"),
    "expect_table_row_count_to_be_between": _rows("min_value", "max_value"),
    "expect_table_row_count_to_equal": lambda test: _rows("value", "value_")(_doubled(test)),
    "expect_table_row_count_to_equal_other_table": _beside("equal_rowcount"),
}


def _doubled(test: Test, low: str = "value", high: str = "value_") -> Test:
    value = test.take("value")
    return Test(test.column, {**test.arguments, low: value, high: value}, test.table, test.is_required)
