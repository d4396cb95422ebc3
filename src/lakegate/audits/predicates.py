"""Predicates written by the user in Spark SQL, looked through before the engine sees them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

_DIALECT = "spark"
_MANY_ROWS = frozenset(
    [
        "any",
        "any_value",
        "approx_count_distinct",
        "approx_percentile",
        "approx_top_k",
        "approx_top_k_accumulate",
        "approx_top_k_combine",
        "array_agg",
        "avg",
        "bit_and",
        "bit_or",
        "bit_xor",
        "bitmap_and_agg",
        "bitmap_construct_agg",
        "bitmap_or_agg",
        "bool_and",
        "bool_or",
        "collect_list",
        "collect_set",
        "corr",
        "count",
        "count_if",
        "count_min_sketch",
        "covar_pop",
        "covar_samp",
        "cume_dist",
        "dense_rank",
        "every",
        "first",
        "first_value",
        "grouping",
        "grouping_id",
        "histogram_numeric",
        "hll_sketch_agg",
        "hll_union_agg",
        "kll_merge_agg_bigint",
        "kll_merge_agg_double",
        "kll_merge_agg_float",
        "kll_sketch_agg_bigint",
        "kll_sketch_agg_double",
        "kll_sketch_agg_float",
        "kurtosis",
        "lag",
        "last",
        "last_value",
        "lead",
        "listagg",
        "max",
        "max_by",
        "mean",
        "measure",
        "median",
        "min",
        "min_by",
        "mode",
        "nth_value",
        "ntile",
        "percent_rank",
        "percentile",
        "percentile_approx",
        "percentile_cont",
        "percentile_disc",
        "rank",
        "regr_avgx",
        "regr_avgy",
        "regr_count",
        "regr_intercept",
        "regr_r2",
        "regr_slope",
        "regr_sxx",
        "regr_sxy",
        "regr_syy",
        "row_number",
        "session_window",
        "skewness",
        "some",
        "std",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "theta_intersection_agg",
        "theta_sketch_agg",
        "theta_union_agg",
        "try_avg",
        "try_sum",
        "var_pop",
        "var_samp",
        "variance",
        "window",
        "window_time",
        "explode",
        "explode_outer",
        "inline",
        "inline_outer",
        "json_tuple",
        "posexplode",
        "posexplode_outer",
        "stack",
        "variant_explode",
        "variant_explode_outer",
    ]
)
"""Spark 4.1's aggregate, window and generator functions (``SHOW SYSTEM FUNCTIONS``)."""
_RUNS_CODE = frozenset(("java_method", "reflect", "try_reflect"))
_QUANTIFIED = (TokenType.LIKE, TokenType.ILIKE, TokenType.RLIKE)
_NOT_OF_ONE_ROW: dict[type[Any], str] = {
    exp.Query: "holds a subquery",
    exp.Window: "holds a window function",
    exp.AggFunc: "holds an aggregate",
    exp.Star: "holds '*'",
    exp.Placeholder: "holds a placeholder",
    exp.Parameter: "holds a parameter",
}
_NUMERIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg)


class PredicateError(ValueError):
    """A predicate that cannot be used; the message continues a sentence that names it."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """What was found out about a predicate.

    Attributes:
        columns: Columns it refers to, in order of appearance. Of a struct's field, the struct.
        lone_column: The column, when the predicate is nothing but one.
    """

    columns: tuple[str, ...]
    lone_column: str | None


@lru_cache(maxsize=256)
def read_predicate(text: str) -> Predicate:
    """Look through a predicate about one row.

    Comments are refused: at the end of a predicate one would swallow whatever comes after it. So is ``${``, which
    Spark replaces by settings even inside literals.

    Raises:
        PredicateError: When it is not one expression about one row, or surely not a truth value.

    Example:
        >>> read_predicate("fare < 0 OR trip.distance IS NULL").columns
        ('fare', 'trip')
    """
    if "${" in text:
        raise PredicateError("holds '${', which Spark SQL replaces by settings; in a text write '\\u0024{'")
    tokens = _tokens(text)
    _refuse_functions(tokens)
    tree = _parse(text)
    for kind, problem in _NOT_OF_ONE_ROW.items():
        if tree.find(kind):
            raise PredicateError(f"{problem}, but it must be about one row")
    _refuse_other_types(tree)
    columns: dict[str, str] = {}
    for name in _column_names(tree):
        columns.setdefault(name.lower(), name)
    root = tree.unnest()
    lone = root.name if isinstance(root, exp.Column) and len(root.parts) == 1 else None
    return Predicate(tuple(columns.values()), lone)


def _tokens(text: str) -> list[Token]:
    try:
        tokens = sqlglot.tokenize(text, dialect=_DIALECT)
    except SqlglotError:
        raise PredicateError("has a quote or a comment that is never closed") from None
    if any(token.comments for token in tokens):
        raise PredicateError("holds a comment; leave it out")
    if any(token.token_type is TokenType.SEMICOLON for token in tokens):
        raise PredicateError("holds ';', but it must be one expression")
    if not tokens:
        raise PredicateError("is empty")
    return tokens


def _refuse_functions(tokens: list[Token]) -> None:
    for index, (token, after) in enumerate(pairwise(tokens)):
        name = token.text.lower()
        if after.token_type is not TokenType.L_PAREN or token.token_type is TokenType.STRING:
            continue
        quantifier = name in ("any", "some") and index > 0 and tokens[index - 1].token_type in _QUANTIFIED
        if name in _MANY_ROWS and not quantifier:
            raise PredicateError(f"calls {name}(), which is about many rows, but it must be about one")
        if name in _RUNS_CODE:
            raise PredicateError(f"calls {name}(), which is not allowed")


def _parse(text: str) -> exp.Condition:
    try:
        tree = sqlglot.parse_one(text, into=exp.Condition, dialect=_DIALECT)
    except ParseError as error:
        raise PredicateError(_where(error)) from None
    except (SqlglotError, RecursionError) as error:
        raise PredicateError(f"cannot be read ({type(error).__name__})") from None
    if not isinstance(tree, exp.Condition):
        raise PredicateError("is not an expression that is true or false")
    return tree


def _where(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    near = str(first.get("highlight") or "").strip()
    return f"is not valid SQL near '{near}' (character {first.get('col')})" if near else "is not valid SQL"


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
