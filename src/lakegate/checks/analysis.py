"""What users wrote in the engine's own language, tried before anything is written.

The engine plans it on the columns alone: a function that doesn't exist, a column that a query lacks or types that don't
compare are found before the batch is written, not after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakegate.checks.questions import FailingRows, Filter, QueryRows, Question
from lakegate.checks.registry import find_check
from lakegate.errors import CheckError, QueryError
from lakegate.model.checks import Check
from lakegate.model.schema import Schema
from lakegate.ports import Engine


def require_runnable(checks: Sequence[Check], schema: Schema, engine: Engine) -> None:
    """Refuse checks with SQL, patterns or a ``Column`` that the engine can't run on these columns.

    Args:
        checks: As they apply to ``schema``.
        schema: The columns that the table will have.
        engine: Asked only when one of the checks holds something of the kind.

    Raises:
        CheckError: Naming all such checks.
        EngineUnavailableError: When the engine is away.
    """
    written = [(check, *_written(check, schema)) for check in checks]
    written = [one for one in written if one[1] or one[2]]
    predicates = [predicate for _, found, _ in written for predicate in found]
    queries = [query for _, _, found in written for query in found]
    if not written or _refusal(engine, schema, predicates, queries) is None:
        return
    refused = [
        f"\n- {check}: {error.message}"
        for check, found, asked in written
        if (error := _refusal(engine, schema, found, asked)) is not None
    ]
    if refused:
        raise CheckError(
            f"The engine cannot evaluate {len(refused)} check{'' if len(refused) == 1 else 's'}:{''.join(refused)}",
            hint="Correct the expression; nothing was written.",
        )


def _written(check: Check, schema: Schema) -> tuple[list[Any], list[str]]:
    """Return the predicates and queries in a check that its user wrote."""
    definition = find_check(check.kind)
    question: Question = definition.ask(check, schema)
    where: Filter | None = definition.filter(check, schema)
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
