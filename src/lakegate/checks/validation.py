"""Validates checks against a schema, before anything is written.

Spark plans users' SQL on the columns alone. That reveals unknown functions and types that can't be compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from lakegate.checks.columns import ColumnType, compare_exactly
from lakegate.checks.definition import refuse
from lakegate.checks.questions import (
    CheckProblem,
    DuplicateRows,
    FailingRows,
    KeyQuestion,
    OrphanRows,
    QueryRows,
    TotalBeside,
    listed_columns,
    read_filter,
)
from lakegate.checks.registry import built_in, find_check
from lakegate.errors import CheckError, QueryError
from lakegate.model.checks import SHOW_VALUES, Check
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.schema import Column, Schema, is_masked
from lakegate.model.types import nested_fields, path_parts
from lakegate.model.words import counted, did_you_mean
from lakegate.ports import Engine

Schemas: TypeAlias = Callable[[TableIdentifier], Schema | None]
"""Returns the schema of another table as it would be after publishing; ``None`` if there is no such table."""

_NAMES = re.compile(r"`(?:[^`]|``)+`|[\w.]+")
_STRING_OR_COUNT = re.compile(r"'[^']*'|\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
_SELECT_ALL = re.compile(r"\s*SELECT\s+\*\s+FROM\s+batch\s*(?=$|WHERE\b|ORDER\b|LIMIT\b)", re.IGNORECASE)
_SET_OPERATIONS = frozenset({"UNION", "EXCEPT", "INTERSECT", "MINUS"})
_OWN_NAMES = "__lakegate_"


def validate_checks(
    checks: Sequence[Check], schema: Schema, schemas: Schemas | None = None, *, masked: Sequence[str] = ()
) -> tuple[Check, ...]:
    """Return the checks in order, with columns spelled as in ``schema``.

    Args:
        checks: Parsed, or made in Python.
        schema: The table's schema after the write, or the batch's if the table is created from it.
        schemas: Returns the schemas of other tables that checks compare with, perhaps the table itself. Without it,
            missing columns there are only found when the audit reads them.
        masked: Patterns of columns whose values aren't shown.

    Raises:
        CheckError: Names every check that doesn't fit the schema, not only the first.
    """
    valid: list[Check] = []
    errors: list[CheckError] = []
    for check in checks:
        try:
            valid += [_valid(rebuilt, schema, schemas, masked) for rebuilt in _rebuilt(check)]
        except CheckError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        problems = "".join(f"\n- {error.message}" for error in errors)
        raise CheckError(
            f"{len(errors)} checks can't be used:{problems}",
            hint="\n".join(dict.fromkeys(error.hint for error in errors if error.hint)),
            checks=[error.context.get("check") for error in errors],
        )
    return tuple(valid)


def is_hidden(check: Check, schema: Schema, masked: Sequence[str]) -> bool:
    """Return whether a check's findings may contain values that mustn't be shown."""
    return (check.kind in SHOW_VALUES or check.kind not in built_in()) and (
        check.examples == 0 or is_masked_in(check, schema, masked)
    )


def is_masked_in(check: Check, schema: Schema, masked: Sequence[str]) -> bool:
    """Return whether one of a check's columns matches the patterns ``masked``."""
    found = ((column, schema.resolve(column)) for column in check.columns)
    return any(is_masked(masked, column, nested_fields(one[1]) if one else ()) for column, one in found)


def names_masked(sql: str, schema: Schema, masked: Sequence[str]) -> bool:
    """Return whether a user's query may show a masked value, perhaps under another name.

    Example:
        >>> names_masked("SELECT max(batch.mail) AS m FROM batch", Schema(columns=()), ["m*l"])
        True
    """
    names = _NAMES.findall(sql)
    parts = {part.lower() for name in names for part in (path_parts(name) or [name])}
    columns = {one.name.lower() for one in schema.columns if is_masked(masked, one.name, nested_fields(one.type))}
    if not columns.isdisjoint(parts) or any(is_masked(masked, name) for name in names):
        return True
    return bool(columns) and not _keeps_names(sql)


def _keeps_names(sql: str) -> bool:
    """Return whether a query certainly shows columns that it doesn't name under their own names only, or not at all."""
    plain = _STRING_OR_COUNT.sub("", sql)
    select_all = _SELECT_ALL.match(plain)
    rest = plain if select_all is None else plain[select_all.end() :]
    words = re.findall(r"\w+", rest.upper())
    if "*" in rest or words.count("FROM") > words.count("SELECT"):  # a lone FROM selects everything
        return False
    return select_all is None or _SET_OPERATIONS.isdisjoint(words)  # which match columns by position


def describe(check: Check) -> str:
    """Return what a check requires in one sentence, without a period.

    Raises:
        CheckError: If there is no such check.

    Example:
        >>> describe(Check(kind="not_null", columns=("passenger_count",)))
        'passenger_count must not be NULL'
    """
    return find_check(check.kind).describe(check)


def no_such_table(check: Check, table: TableIdentifier) -> CheckError:
    """Return the error for another table that doesn't exist."""
    return refuse(check, f"there is no table {table}.", "`lakegate table list` shows the tables on main.")


def _rebuilt(check: Check) -> tuple[Check, ...]:
    """Return ``check`` as the parser would have made it."""
    definition = find_check(check.kind)
    options = definition.options_of(check)
    if check.scope == "batch":
        options.pop("scope", None)  # the default of a check made directly, so it may not be deliberate
    return definition.make(check.columns, {**options, **check.arguments})


def _valid(check: Check, schema: Schema, schemas: Schemas | None, masked: Sequence[str]) -> Check:
    definition = find_check(check.kind)
    valid = definition.resolve(check, lambda name: _find(check, name, schema).name)
    question = definition.ask(valid, schema)
    definition.filter(valid, schema)
    if isinstance(question, QueryRows) and not question.by_user:
        _require_free_names(valid, schema)
    if getattr(question, "band", None) is not None and is_hidden(valid, schema, masked):
        raise _without_past(valid)
    if isinstance(question, (DuplicateRows, OrphanRows)):
        _require_key(check, question, schema)
    if isinstance(question, OrphanRows) and schemas is not None:
        _require_reference(valid, question, schema, schemas)
    if isinstance(question, TotalBeside) and schemas is not None and schemas(question.table) is None:
        raise no_such_table(valid, question.table)
    return valid


def _without_past(check: Check) -> CheckError:
    """Return the error for comparing a hidden value with history: hidden values aren't stored."""
    cause = "examples=0" if check.examples == 0 else "the setting audit.mask"
    return refuse(
        check,
        f"{cause} hides the value, so none is stored for later runs to compare with.",
        "Give min and max instead of deviations and percent; or let the value show: without examples=0, and for a "
        "column that audit.mask doesn't cover.",
    )


def _require_free_names(check: Check, schema: Schema) -> None:
    """Refuse to query a table with a column that could be confused with one of lakegate's own names."""
    taken = next((name for name in schema.names if name.lower().startswith(_OWN_NAMES)), None)
    if taken is not None:
        problem = f"in its query, column '{taken}' could be confused with one of lakegate's own names."
        raise refuse(check, problem, f"Rename the column: names that start with '{_OWN_NAMES}' are reserved.")


def _find(check: Check, name: str, schema: Schema) -> Column:
    column = schema.find(name)
    nested = schema.resolve(name) if column is None else None
    if nested is not None:
        path, type_ = nested
        plain = ".".join(part if part.isidentifier() else quote(part) for part in path)
        # A column whose own name contains the dots would take precedence.
        is_taken = schema.find(plain) is not None
        column = Column(name=".".join(map(quote, path)) if is_taken else plain, type=type_)
    if column is None:
        fields = (".".join((one.name, *path)) for one in schema.columns for path in nested_fields(one.type))
        hint = f"{did_you_mean(name, (*schema.names, *fields))}Columns: {listed_columns(schema)}."
        raise refuse(check, f"there is no column '{name}'.", hint)
    if "${" in column.name:
        raise refuse(
            check,
            f"column '{column.name}' can't be audited: Spark SQL replaces '${{…}}' in names by settings.",
            "Rename the column.",
        )
    return column


def _require_key(check: Check, question: KeyQuestion, schema: Schema) -> None:
    """Validate a question's key: a user's function may choose columns that the check doesn't name."""
    sides: list[Any] = [question.columns, *([question.other_columns] if isinstance(question, OrphanRows) else [])]
    if not all(isinstance(side, tuple) and all(isinstance(name, str) for name in side) for side in sides):
        raise refuse(check, "its key isn't a tuple of column names.", "Use audited(column).name to name a column.")
    if not all(sides):
        raise refuse(check, "its key has no columns.", "Name at least one column.")
    if len({len(side) for side in sides}) > 1:
        counts = " and ".join(str(len(side)) for side in sides)
        hint = "Name the same number of columns for each."
        raise refuse(check, f"its key and the other table's have {counts} columns.", hint)
    columns = [_find(check, name, schema) for name in question.columns]
    if len({column.name for column in columns}) < len(columns):
        raise refuse(check, "it names one column twice.", "Column names ignore case; name each column once.")
    for column in columns:
        if not ColumnType.parse(column.type).groupable:
            raise refuse(
                check,
                f"column '{column.name}' is of type {column.type}, whose values can't be compared.",
                "Use plain columns as a key.",
            )


def _require_reference(check: Check, question: OrphanRows, schema: Schema, schemas: Schemas) -> None:
    """Require that the columns of the other table exist and compare exactly with the key's."""
    other = schemas(question.table)
    if other is None:
        raise no_such_table(check, question.table)
    if question.condition is not None:
        _require_condition(check, question, question.condition, other)
    for name, other_name in zip(question.columns, question.other_columns, strict=True):
        theirs = other.find(other_name)
        if theirs is None:
            raise refuse(
                check,
                f"table {question.table} has no column '{other_name}'.",
                did_you_mean(other_name, other.names) + "Name its columns in to_columns=…, in order.",
            )
        ours = _find(check, name, schema)
        if not compare_exactly(ColumnType.parse(ours.type), ColumnType.parse(theirs.type)):
            raise refuse(
                check,
                f"column '{name}' is of type {ours.type}, but '{theirs.name}' of {question.table} is of type "
                f"{theirs.type}; their values don't compare exactly.",
                "Give both columns the same type.",
            )


def _require_condition(check: Check, question: OrphanRows, condition: str, other: Schema) -> None:
    """Require that a condition on another table is about one row and fits its schema."""
    written = check.arguments.get("to_condition", condition)
    try:
        read_filter(written, other, called="to_condition", table=str(question.table))
    except CheckProblem as error:
        hint = error.hint or f"Write a condition about one row of {question.table}."
        raise refuse(check, str(error), hint) from None


def require_runnable(checks: Sequence[Check], schema: Schema, engine: Callable[[], Engine]) -> None:
    """Refuse checks with SQL, patterns or a ``Column`` that the engine can't run on these columns.

    Args:
        checks: Validated against ``schema``.
        schema: The columns that the table will have.
        engine: Only called if one of the checks has such a part.

    Raises:
        CheckError: Names all such checks.
    """
    written = [(check, *_written(check, schema)) for check in checks]
    written = [one for one in written if one[1] or one[2]]
    predicates = [predicate for _, found, _ in written for predicate in found]
    queries = [query for _, _, found in written for query in found]
    if not written or _refusal(planner := engine(), schema, predicates, queries) is None:
        return
    refused = [
        (check, error)
        for check, found, asked in written
        if (error := _refusal(planner, schema, found, asked)) is not None
    ]
    if refused:
        raise CheckError(
            f"The engine can't evaluate {counted(len(refused), 'check')}:"
            + "".join(f"\n- {check}: {error.message}" for check, error in refused),
            hint="Correct the expression; nothing was written.",
            detail="\n".join(error.detail for _, error in refused if error.detail) or None,
        )


def _written(check: Check, schema: Schema) -> tuple[list[Any], list[str]]:
    """Return a check's user-written predicates and queries."""
    definition = find_check(check.kind)
    question, where = definition.ask(check, schema), definition.filter(check, schema)
    predicates: list[Any] = [] if where is None else [where.sql]
    if isinstance(question, FailingRows) and question.by_user:
        predicates.append(question.predicate)
    queries = [question.sql] if isinstance(question, QueryRows) and question.by_user else []
    return predicates, queries


def _refusal(engine: Engine, schema: Schema, predicates: Sequence[Any], queries: Sequence[str]) -> QueryError | None:
    try:
        engine.analyze(schema, predicates, queries)
    except QueryError as error:
        return error
    return None
