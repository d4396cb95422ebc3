from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from lakegate.checks.definition import CheckOptions
from lakegate.checks.questions import CheckProblem, FailingRows, start_of
from lakegate.checks.registry import check
from lakegate.model.checks import Check
from lakegate.model.schema import Schema

if TYPE_CHECKING:
    from lakegate.checks.predicates import Predicate


@check(example="sql('fare_amount < 0')", finds_columns=True, nulls="as SQL: unknown passes", nans="as Spark SQL",
       evidence="manifest for a pass if it only compares columns with numbers, else scan")  # fmt: skip
def sql(predicate: str, **options: Unpack[CheckOptions]) -> FailingRows:
    """No row has ``predicate``.

    Rows for which the predicate is *true* fail; false and NULL pass. So write what must not happen: ``sql('dropoff <
    pickup')``. The predicate is Spark SQL on one row, without subqueries, aggregates, window functions, generators,
    comments or functions that aren't deterministic (``rand()``). An error in it ends the audit (exit code 2), so use
    ``try_cast`` and ``try_divide`` where needed. Patterns have the limits of ``matches``. The check's canonical text
    names the columns that the predicate refers to: ``sql(fare_amount, predicate='fare_amount < 0')``.

    Example:
        >>> str(sql("fare_amount < 0"))
        "sql(fare_amount, predicate='fare_amount < 0')"
    """
    read = predicate_of(predicate)
    return FailingRows(f"({read.sql})", metrics=read.never(outcome=True), by_user=True, longest_text=read.longest_text)


sql.prepare(lambda check: with_columns(check, "predicate"))
sql.validate(lambda check, schema: require_truth_value(check.arguments["predicate"], schema))


def with_columns(check: Check, argument: str) -> Check:
    """Return ``check`` with the columns that its predicate refers to.

    Args:
        argument: Name of the argument that is the predicate.

    Raises:
        ValueError: With the reason, when it can't be used, or the check names other columns.
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
    """Require that a predicate that is just a column is a boolean one.

    Raises:
        CheckProblem: If its type is another one.
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
        ValueError: With the reason, when it isn't one about a row.
    """
    # sqlglot takes 0.4 s to import, and this module is loaded just to list the checks.
    from lakegate.checks.predicates import PredicateError, read_predicate

    try:
        return read_predicate(text)
    except PredicateError as error:
        raise ValueError(f"the predicate {start_of(text)!r} {error}.") from None
