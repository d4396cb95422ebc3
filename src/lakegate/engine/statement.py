"""SQL statements of users, looked at before the engine sees them."""

from __future__ import annotations

import logging

import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from lakegate.errors import QueryError

_QUERIES = (exp.Query, exp.Describe, exp.Show)
_WRITES = (exp.DML, exp.DDL, exp.Command)
_PASSED_ON = ("show", "describe", "desc", "explain")


def require_query(sql: str) -> None:
    """Check that ``sql`` is one statement that only reads.

    Spark runs anything it is given; a ``DROP TABLE`` would go past write–audit–publish.

    Raises:
        QueryError: When it is empty, several statements, not SQL, or changes something.

    Example:
        >>> require_query("SELECT count(*) FROM nyc.trips")
        >>> require_query("DROP TABLE nyc.trips")
        Traceback (most recent call last):
        lakegate.errors.QueryError: This statement does not only read: DROP.
    """
    words = sql.strip().rstrip(";").lower().split(maxsplit=1)
    if words and words[0] in _PASSED_ON:
        _require_single(sql)
        return
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        statements = [statement for statement in sqlglot.parse(sql, dialect="spark") if statement is not None]
    except SqlglotError as error:
        raise QueryError(
            f"This is not a query: {str(error).splitlines()[0]}", hint="Spark SQL is spoken here."
        ) from None
    if len(statements) != 1:
        raise QueryError(f"One query is wanted, {len(statements)} were given.", hint="Run them one by one.")
    statement = statements[0]
    changing = next(
        (node for node in statement.walk() if isinstance(node, _WRITES) and not isinstance(node, exp.Query)), None
    )
    if changing is not None or not isinstance(statement, _QUERIES):
        name = (changing or statement).key.upper()
        raise QueryError(
            f"This statement does not only read: {name}.",
            hint="Data is changed by `lakegate ingest`, which audits it first.",
        )


def _require_single(sql: str) -> None:
    if ";" in sql.strip().rstrip(";"):
        raise QueryError("One query is wanted, several were given.", hint="Run them one by one.")
