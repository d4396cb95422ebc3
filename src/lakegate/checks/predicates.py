"""Users' predicates in Spark SQL, validated before the engine sees them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from lakegate.checks.columns import metrics_of
from lakegate.model.sqltext import (
    PARSES_XML,
    RUNS_CODE,
    SqlTextError,
    SqlToken,
    refused_call,
    sql_text,
    sql_tokens,
)
from lakegate.model.tables import AddedFiles, ColumnStatistics, DataFile

_DIALECT = "spark"
_MANY_ROWS = frozenset([
    "any", "any_value", "approx_count_distinct", "approx_percentile", "approx_top_k", "approx_top_k_accumulate",
    "approx_top_k_combine", "array_agg", "avg", "bit_and", "bit_or", "bit_xor", "bitmap_and_agg",
    "bitmap_construct_agg", "bitmap_or_agg", "bool_and", "bool_or", "collect_list", "collect_set", "corr", "count",
    "count_if", "count_min_sketch", "covar_pop", "covar_samp", "cume_dist", "dense_rank", "every", "first",
    "first_value", "grouping", "grouping_id", "histogram_numeric", "hll_sketch_agg", "hll_union_agg",
    "kll_merge_agg_bigint", "kll_merge_agg_double", "kll_merge_agg_float", "kll_sketch_agg_bigint",
    "kll_sketch_agg_double", "kll_sketch_agg_float", "kurtosis", "lag", "last", "last_value", "lead", "listagg",
    "max", "max_by", "mean", "measure", "median", "min", "min_by", "mode", "nth_value", "ntile", "percent_rank",
    "percentile", "percentile_approx", "percentile_cont", "percentile_disc", "product", "rank", "regr_avgx",
    "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy",
    "row_number", "schema_of_variant_agg", "session_window", "skewness", "some", "std", "stddev", "stddev_pop",
    "stddev_samp", "string_agg", "sum",
    "theta_intersection_agg", "theta_sketch_agg", "theta_union_agg", "try_avg", "try_sum", "var_pop", "var_samp",
    "variance", "window", "window_time", "explode", "explode_outer", "inline", "inline_outer", "json_tuple",
    "posexplode", "posexplode_outer", "stack", "variant_explode", "variant_explode_outer",
])  # fmt: skip
"""Spark 4.1's aggregate, window and generator functions (``SHOW SYSTEM FUNCTIONS``)."""
_UNREPEATABLE = frozenset({
    "aes_encrypt", "input_file_block_length", "input_file_block_start", "input_file_name",
    "monotonically_increasing_id", "rand", "randn", "random", "randstr", "shuffle", "spark_partition_id", "uniform",
    "uuid",
})  # fmt: skip
"""Functions that may give different results for the same rows. Those that return the current time are allowed."""
_BY_CHANCE = "so it could give different results for the same rows"
_QUANTIFIED = frozenset({"ILIKE", "LIKE", "REGEXP", "RLIKE"})
_OPERATORS = frozenset({"AND", "BETWEEN", "DIV", "ILIKE", "IN", "IS", "LIKE", "NOT", "OR", "REGEXP", "RLIKE"})
_QUERIES = frozenset({"FROM", "MAP", "REDUCE", "SELECT", "TABLE", "VALUES", "WITH"})
_NOT_OF_ONE_ROW: dict[type[Any], str] = {
    exp.Query: "contains a subquery",
    exp.Window: "contains a window function",
    exp.AggFunc: "contains an aggregate",
    exp.Star: "contains '*'",
    exp.Placeholder: "contains a placeholder",
    exp.Parameter: "contains a parameter",
}
_PLAIN = re.compile(r"(?:[\w\s`().,<>=-]|!=)*", re.ASCII)
"""Text that sqlglot and Spark parse to the same comparisons, unless it has words that only sqlglot knows."""
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_WORDS = frozenset({"AND", "BETWEEN", "IN", "IS", "NOT", "NULL", "OR"})
_NUMBER = re.compile(r"\d{0,18}(?:\.\d{0,18})?")
_MOST_DIGITS = 38
_DIGITS_OF_BIGINT = 20
_EXACT_IN_FLOAT = 2**24
"""32-bit floats hold integers exactly up to this number. Spark may cast a number to float to compare it."""
_COMPARISONS: dict[type[Any], Callable[[Any, Any, Any], tuple[bool, bool]]] = {
    exp.LT: lambda low, high, number: (low < number, high >= number),
    exp.LTE: lambda low, high, number: (low <= number, high > number),
    exp.GT: lambda low, high, number: (high > number, low <= number),
    exp.GTE: lambda low, high, number: (high >= number, low < number),
    exp.EQ: lambda low, high, number: (low <= number <= high, not low == number == high),
    exp.NEQ: lambda low, high, number: (not low == number == high, low <= number <= high),
}
"""From a column's bounds and a number: whether the comparison may be true, and whether it may be false."""
_SWAPPED: dict[type[Any], type[Any]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
}
"""The same comparisons with their sides swapped."""
_NUMERIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg)


class _UnprovenError(Exception):
    """File metrics don't say enough, or can't be compared with the predicate."""


class PredicateError(ValueError):
    """A predicate can't be used. The message continues a sentence that names it."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """What is known about a predicate.

    Attributes:
        columns: Columns that it refers to, in order of appearance; for a field, the struct.
        lone_column: The column, if the predicate is just a column.
        sql: SQL for Spark, made from the tokens that were checked.
    """

    columns: tuple[str, ...]
    lone_column: str | None
    sql: str

    def never(self, *, outcome: bool) -> Callable[[AddedFiles], int | None] | None:
        """Return a function that proves from file metrics that the predicate is ``outcome`` for no row.

        Returns:
            A function that returns 0 if that's proven, else ``None``. ``None`` instead of a function if the predicate
                does more than compare columns with numbers or NULL: what Spark may refuse is left to Spark.
        """
        if not _PLAIN.fullmatch(self.sql):
            return None
        try:
            tree = _parse(self.sql)
        except (PredicateError, RecursionError):
            return None
        words = sum(word.upper() not in _WORDS for word in _WORD.findall(self.sql))
        if not all(map(_is_provable, tree.walk())) or words != sum(1 for _ in tree.find_all(exp.Column)):
            return None

        def proven(added: AddedFiles) -> int | None:
            try:
                found = [_outcomes(tree, file) for file in added.files if file.rows]
            except _UnprovenError:
                return None
            return None if any(true if outcome else false for true, false in found) else 0

        return proven


@contextmanager
def _refusing_depth() -> Iterator[None]:
    """Report nesting deeper than Python's stack as a :class:`PredicateError`."""
    try:
        yield
    except RecursionError:
        raise PredicateError("is nested too deeply") from None


@lru_cache(maxsize=256)
@_refusing_depth()
def read_predicate(text: str) -> Predicate:
    """Validate a predicate on one row.

    Comments are refused: at the end of a predicate, one would swallow whatever follows. So is ``${``, which Spark
    replaces with settings even inside literals.

    Raises:
        PredicateError: If it isn't a single expression on one row, or can't be boolean.

    Example:
        >>> read_predicate("fare < 0 OR trip.distance IS NULL").columns
        ('fare', 'trip')
    """
    tokens = _tokens(text)
    _refuse_functions(tokens)
    _refuse_chance(tokens)
    tree = _parse_row_expression(tokens)
    _refuse_other_types(tree)
    columns: dict[str, str] = {}
    for name in _column_names(tree):
        columns.setdefault(name.lower(), name)
    root = tree.unnest()
    lone = root.name if isinstance(root, exp.Column) and len(root.parts) == 1 else None
    return Predicate(tuple(columns.values()), lone, sql_text(tokens))


@_refusing_depth()
def read_expression(text: str) -> str:
    """Validate an expression of any type on one row like :func:`read_predicate`, and return its SQL.

    Raises:
        PredicateError: If it isn't a single expression on one row.

    Example:
        >>> read_expression("abs( fare )")
        'abs( fare )'
    """
    tokens = _tokens(text)
    _refuse_functions(tokens)
    _parse_row_expression(tokens)
    return sql_text(tokens)


def _parse_row_expression(tokens: tuple[SqlToken, ...]) -> exp.Condition:
    tree = _parse(sql_text(tokens))
    for kind, why in _NOT_OF_ONE_ROW.items():
        if tree.find(kind):
            raise PredicateError(f"{why}, but it must be about one row")
    return tree


def expression_columns(text: str) -> tuple[str, ...]:
    """Return the columns that a valid expression refers to, in order of appearance.

    Raises:
        PredicateError: If it isn't an expression.

    Example:
        >>> expression_columns("abs(fare) + trip.tip")
        ('fare', 'trip')
    """
    return tuple(dict.fromkeys(_column_names(_parse(sql_text(_tokens(text))))))


def read_query(text: str, view: str) -> str:
    """Validate a query that may only read ``view``, and return SQL for Spark.

    Raises:
        PredicateError: If it isn't a query, reads anything else, or runs code.

    Example:
        >>> read_query("SELECT id FROM batch WHERE id < 0", "batch")
        'SELECT id FROM batch WHERE id < 0'
    """
    tokens = _query_tokens(text)
    with _sqlglot_errors():
        tree = sqlglot.parse_one(sql_text(tokens), dialect=_DIALECT)
    if not isinstance(tree, exp.Query):
        raise PredicateError("isn't a SELECT")
    known = {view}
    for cte in tree.ctes:
        _require_known(cte.this, known)
        known.add(cte.alias.lower())
    if len(list(tree.find_all(exp.CTE))) > len(tree.ctes):  # whose names are only valid in a part of the query
        raise PredicateError("contains a WITH inside; write it at the beginning")
    for table in tree.find_all(exp.Table):
        if table.find_ancestor(exp.CTE) is None:
            _require_known(table, known)
    return sql_text(tokens)


def _require_known(part: exp.Expr, known: Collection[str]) -> None:
    """Refuse a part of a query that reads tables other than ``known``."""
    for table in part.find_all(exp.Table):
        is_plain = isinstance(table.this, exp.Identifier) and not table.args.get("db")
        if not is_plain or table.name.lower() not in known:
            raise PredicateError(f"reads {table.sql(_DIALECT)}; it can only read batch")


def _query_tokens(text: str) -> tuple[SqlToken, ...]:
    """Return the tokens of a query that runs no code and opens no files."""
    tokens = _tokens(text)
    for index, name in _calls(tokens):
        if refused_call(tokens, index) is not None or tokens[index].upper in {"TRANSFORM", "MAP", "REDUCE"}:
            raise PredicateError(f"calls {name}(), which isn't allowed")
    _refuse_chance(tokens)
    words = {token.upper for token in tokens if token.kind == "word"}
    if "TABLESAMPLE" in words:
        raise PredicateError(f"takes a sample, {_BY_CHANCE}")
    if "TRANSFORM" in words:
        raise PredicateError("runs a program (TRANSFORM), which isn't allowed")
    if "TABLE" in words:
        # `TABLE name` reads a table, but sqlglot parses it as a column.
        raise PredicateError("contains TABLE, which reads another table; write a column of that name in backticks")
    return tokens


def _tokens(text: str) -> tuple[SqlToken, ...]:
    if "${" in text:
        raise PredicateError("has '${', which Spark SQL replaces with settings; in a string, write '\\u0024{'")
    try:
        tokens = sql_tokens(text)
    except SqlTextError as error:
        raise PredicateError(f"can't be read: {str(error).rstrip('.')}") from None
    if not tokens:
        raise PredicateError("is empty")
    # Between tokens, there are only blanks and comments, and perhaps a final ';'.
    gaps = zip(tokens, [*(token.start for token in tokens[1:]), len(text)], strict=True)
    between = [text[: tokens[0].start], *(text[token.start + len(token.text) : end] for token, end in gaps)]
    if any(gap.strip().startswith(("--", "/*")) for gap in between):
        raise PredicateError("contains a comment; leave it out")
    if any(gap.strip() for gap in between):
        raise PredicateError("contains ';', but it must be one expression")
    return tokens


def _calls(tokens: Sequence[SqlToken]) -> Iterator[tuple[int, str]]:
    """Yield each function call: the index of its name, and the name in lower case."""
    for index, (token, after) in enumerate(pairwise(tokens)):
        if after.text == "(" and token.kind in {"word", "quoted"}:
            yield index, token.name.lower()


def _refuse_functions(tokens: tuple[SqlToken, ...]) -> None:
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        # sqlglot parses (TABLE t) and the like as a column with an alias.
        is_name = after.kind == "quoted" or (after.kind == "word" and after.upper not in _OPERATORS)
        if before.text == "(" and token.upper in _QUERIES and is_name:
            raise PredicateError(f"contains a subquery ({token.upper}), but it must be about one row")
    for index, name in _calls(tokens):
        quantifier = name in ("any", "some") and index > 0 and tokens[index - 1].upper in _QUANTIFIED
        if not quantifier:
            _refuse_function(name)
        if refused_call(tokens, index) is not None:
            raise PredicateError(f"calls {name}() in a way that isn't allowed")


def _refuse_function(name: str) -> None:
    if name in _MANY_ROWS:
        raise PredicateError(f"calls {name}(), which takes many rows; a predicate is about one row")
    if name in RUNS_CODE | PARSES_XML:
        raise PredicateError(f"calls {name}(), which isn't allowed")


def _refuse_chance(tokens: tuple[SqlToken, ...]) -> None:
    for _, name in _calls(tokens):
        if name in _UNREPEATABLE:
            raise PredicateError(f"calls {name}(), {_BY_CHANCE}")


def _is_provable(node: exp.Expr) -> bool:
    """Return whether file metrics may prove something about this part of a predicate."""
    match node:
        case exp.Column():
            return len(node.parts) == 1
        case exp.Is():
            return isinstance(node.this, exp.Column) and isinstance(node.expression, exp.Null)
        case exp.Between() | exp.In():
            numbers = node.expressions or (node.args.get("low"), node.args.get("high"))
            return isinstance(node.this, exp.Column) and all(map(_is_number, numbers))
        case exp.Binary() if type(node) in _COMPARISONS:
            sides = sorted((node.this, node.expression), key=_is_number)
            return isinstance(sides[0], exp.Column) and _is_number(sides[1])
    return isinstance(node, (exp.Identifier, exp.Literal, exp.Null, exp.Neg, exp.Paren, exp.Not, exp.And, exp.Or))


def _is_number(node: exp.Expr | None) -> bool:
    plain = node.this if isinstance(node, exp.Neg) else node
    return isinstance(plain, exp.Literal) and not plain.is_string


def _outcomes(tree: exp.Expr, file: DataFile) -> tuple[bool, bool]:
    """Return whether a predicate may be true, and whether it may be false, in a row of a file; NULL is neither.

    Raises:
        _UnprovenError: If that isn't certain for a part of it.
    """
    if isinstance(tree, exp.Paren):
        return _outcomes(tree.this, file)
    if isinstance(tree, exp.Not):
        true, false = _outcomes(tree.this, file)
        return false, true
    if isinstance(tree, (exp.And, exp.Or)):
        left, right = (_outcomes(side, file) for side in (tree.this, tree.expression))
        if isinstance(tree, exp.And):
            return left[0] and right[0], left[1] or right[1]
        return left[0] or right[0], left[1] and right[1]
    return _column_outcomes(tree, file)


def _column_outcomes(tree: exp.Expr, file: DataFile) -> tuple[bool, bool]:
    match tree:
        case exp.Is(this=exp.Column() as column, expression=exp.Null()):
            nulls = _statistics(column, file).null_count
            return nulls != 0, nulls != file.rows
        case exp.Between(this=exp.Column() as column, args={"low": lowest, "high": highest}):
            above, below = _compared(exp.GTE, column, lowest, file), _compared(exp.LTE, column, highest, file)
            return above[0] and below[0], above[1] or below[1]
        case exp.In(this=exp.Column() as column, expressions=numbers) if numbers:
            found = [_compared(exp.EQ, column, number, file) for number in numbers]
            return any(true for true, _ in found), all(false for _, false in found)
        case exp.Column():
            low, high = _bounds(tree, file)
            if type(low) is bool and type(high) is bool:
                return high, not low
        case exp.Binary(this=exp.Column() as column, expression=number) if type(tree) in _COMPARISONS:
            return _compared(type(tree), column, number, file)
        case exp.Binary(this=number, expression=exp.Column() as column) if type(tree) in _SWAPPED:
            return _compared(_SWAPPED[type(tree)], column, number, file)
    raise _UnprovenError


def _compared(kind: type[Any], column: exp.Column, number: exp.Expr, file: DataFile) -> tuple[bool, bool]:
    low, high = _bounds(column, file)
    value = _comparable(_number(number), low)
    if type(low) is not type(high):
        raise _UnprovenError
    return _COMPARISONS[kind](low, high, value)


def _statistics(column: exp.Column, file: DataFile) -> ColumnStatistics:
    found = metrics_of(file, column.name) if len(column.parts) == 1 else None
    if found is None:
        raise _UnprovenError
    return found


def _bounds(column: exp.Column, file: DataFile) -> tuple[Any, Any]:
    found = _statistics(column, file)
    low, high = found.lower, found.upper
    # Bounds ignore NaN. If another writer added a file with unsigned numbers, its bounds don't describe what is read.
    if low is None or high is None or (isinstance(low, float) and found.nan_count != 0) or not low <= high:
        raise _UnprovenError
    return low, high


def _number(node: exp.Expr) -> Decimal:
    sign, plain = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(plain, exp.Literal) or plain.is_string or not _NUMBER.fullmatch(plain.name):
        raise _UnprovenError
    number = Decimal(plain.name)
    return number.copy_negate() if sign < 0 else number  # a product is rounded to 28 digits


def _comparable(number: Decimal, bound: object) -> Decimal | float:
    """Return a number as Spark compares it with a column that has this bound, if the comparison is exact."""
    scale = -int(number.as_tuple().exponent)
    if type(bound) is int:
        return number
    if type(bound) is float and (scale > 0 or abs(number) <= _EXACT_IN_FLOAT):
        return float(number)
    if isinstance(bound, Decimal):
        # Spark compares decimals in a type that holds both, and rounds if that has too many digits. For IN, a whole
        # number is a decimal with as many digits as a bigint.
        columns = -int(bound.as_tuple().exponent)
        digits = max(len(number.as_tuple().digits), 0 if scale else _DIGITS_OF_BIGINT)
        if scale <= columns and digits + columns <= _MOST_DIGITS:
            return number
    raise _UnprovenError


def _parse(text: str) -> exp.Condition:
    with _sqlglot_errors():
        tree = sqlglot.parse_one(text, into=exp.Condition, dialect=_DIALECT)
    if not isinstance(tree, exp.Condition):
        raise PredicateError("isn't an expression that is true or false")
    return tree


@contextmanager
def _sqlglot_errors() -> Iterator[None]:
    try:
        yield
    except ParseError as error:
        raise PredicateError(_describe(error)) from None
    except SqlglotError as error:
        raise PredicateError(f"can't be read ({type(error).__name__})") from None


def _describe(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    near = str(first.get("highlight") or "").strip()
    return f"isn't valid SQL near '{near}' (character {first.get('col')})" if near else "isn't valid SQL"


def _column_names(tree: exp.Condition) -> list[str]:
    roots = [column.parts[0] for column in tree.find_all(exp.Column)]
    return [root.name for root in sorted(roots, key=lambda root: root.meta.get("start", 0))]


def _refuse_other_types(tree: exp.Condition) -> None:
    if isinstance(tree.unnest(), _NUMERIC):
        raise PredicateError("is a number, not a truth value")
    found = annotate_types(tree.copy(), dialect=_DIALECT).type
    unsure = (exp.DataType.Type.UNKNOWN, exp.DataType.Type.BOOLEAN, exp.DataType.Type.NULL)
    if found is not None and found.this not in unsure:
        raise PredicateError(f"is of type {found.sql(_DIALECT)}, not a truth value")
