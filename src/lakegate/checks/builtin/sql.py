"""Checks in users' own SQL: predicates and expressions about one row, and queries over all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from lakegate.checks.definition import CheckOptions
from lakegate.checks.questions import CheckProblem, FailingRows, QueryRows, start_of
from lakegate.checks.registry import check
from lakegate.model.checks import Check
from lakegate.model.schema import Schema

if TYPE_CHECKING:
    from lakegate.checks.predicates import Predicate

_LONGEST = 20_000  # characters of a query


@check(example="sql('fare_amount < 0')", finds_columns=True, nulls="as SQL: unknown passes", nans="as Spark SQL",
       evidence="manifest for a pass if it only compares columns with numbers, else scan")  # fmt: skip
def sql(predicate: str, **options: Unpack[CheckOptions]) -> FailingRows:
    """No row has ``predicate``.

    Rows for which the predicate is *true* fail; false and NULL pass. So write what must not happen: ``sql('dropoff <
    pickup')``. The predicate is Spark SQL on one row, without subqueries, aggregates, window functions, generators,
    comments or functions that aren't deterministic (``rand()``). An error in it ends the audit (exit code 2), so use
    ``try_cast`` and ``try_divide`` where needed. The check's canonical text
    names the columns that the predicate refers to: ``sql(fare_amount, predicate='fare_amount < 0')``.

    Example:
        >>> str(sql("fare_amount < 0"))
        "sql(fare_amount, predicate='fare_amount < 0')"
    """
    read = predicate_of(predicate)
    return FailingRows(f"({read.sql})", metrics=read.never(outcome=True), by_user=True)


sql.prepare(lambda check: with_columns(check, "predicate"))
sql.validate(lambda check, schema: require_truth_value(check.arguments["predicate"], schema))


@check(example="expression_is_true('tip <= fare')", parameter_aliases={"predicate": "expression"}, finds_columns=True,
       nulls="passes", nans="as Spark SQL",
       evidence="manifest for a pass if it only compares columns with numbers, else scan")  # fmt: skip
def expression_is_true(expression: str, **options: Unpack[CheckOptions]) -> FailingRows:
    """``expression`` is true for every row.

    As in dbt, rows for which it's *false* fail; true and NULL pass. (``sql`` is the opposite: rows for which its
    predicate is true fail.) The expression is Spark SQL on one row, with the limits of ``sql``.

    Example:
        >>> str(expression_is_true("tip <= fare"))
        "expression_is_true(tip, fare, expression='tip <= fare')"
    """
    read = predicate_of(expression)
    return FailingRows(f"NOT ({read.sql})", metrics=read.never(outcome=False), by_user=True)


expression_is_true.prepare(lambda check: with_columns(check, "expression"))
expression_is_true.validate(lambda check, schema: require_truth_value(check.arguments["expression"], schema))


@check(
    example="custom_sql('SELECT id FROM batch GROUP BY id HAVING count(*) > 1')",
    nulls="as SQL",
    nans="as Spark SQL",
    evidence="scan (a job of its own)",
)
def custom_sql(query: str, **options: Unpack[CheckOptions]) -> QueryRows:
    """``query`` returns no rows.

    A read-only Spark SQL query over ``batch``, the rows that are checked (those that ``where`` leaves). Each row of its
    result is a failure. It may aggregate, join ``batch`` with itself and use WITH; it can't read other tables, because
    its answer must hold whatever is published meanwhile. Use ``relationships`` and ``equal_rowcount`` for these.

    Example:
        >>> str(custom_sql("SELECT 1 FROM batch HAVING count(*) > 5"))
        "custom_sql(query='SELECT 1 FROM batch HAVING count(*) > 5')"
    """
    return QueryRows(_query(query), by_user=True)


@custom_sql.prepare
def _prepare_query(check: Check) -> Check:
    _query(check.arguments["query"])
    return check


def _query(text: str) -> str:
    from lakegate.checks.predicates import PredicateError, read_query

    if len(text) > _LONGEST:
        raise ValueError(f"the query has more than {_LONGEST:,} characters.")
    try:
        return read_query(text, "batch")
    except PredicateError as error:
        raise ValueError(f"the query {error}.") from None
    except RecursionError:
        raise ValueError("the query is nested too deeply.") from None


def with_columns(check: Check, argument: str) -> Check:
    """Return ``check`` with the columns that its predicate refers to.

    Args:
        argument: Name of the argument that is the predicate.

    Raises:
        ValueError: If it can't be used, or the check names other columns; the message says why.
    """
    text = check.arguments[argument].strip()
    if not text:
        raise ValueError("the predicate is empty.")
    found = predicate_of(text).columns
    named = check.columns or found
    if len(named) != len(found) or {name.lower() for name in named} != {name.lower() for name in found}:
        raise ValueError(f"the predicate refers to {', '.join(found) or 'no column'}, not to {', '.join(named)}.")
    return check.model_copy(update={"columns": named, "arguments": {argument: text}})


def require_truth_value(text: str, schema: Schema) -> None:
    """Require that a predicate that is just a column is boolean.

    Raises:
        CheckProblem: If the column has another type.
    """
    alone = predicate_of(text).lone_column
    column = None if alone is None else schema.find(alone)
    if column is not None and column.type != "boolean":
        raise CheckProblem(
            f"column '{column.name}' is of type {column.type}, not a truth value.",
            f"Compare it with something: sql('{column.name} < 0').",
        )


def predicate_of(text: str) -> Predicate:
    """Read a user's predicate.

    Raises:
        ValueError: If it isn't about one row; the message says why.
    """
    # sqlglot takes 0.4 s to import, and this module is loaded just to list the checks.
    from lakegate.checks.predicates import PredicateError, read_predicate

    try:
        return read_predicate(text)
    except PredicateError as error:
        raise ValueError(f"the predicate {start_of(text)!r} {error}.") from None
