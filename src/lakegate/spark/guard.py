"""The guard for users' SQL: one statement that only reads, in a session that can't write.

The session is the boundary: a query's catalog is bound to a commit, where Iceberg refuses every change, and no session
of lakegate's reads files by path or writes other files than tables'. Before that, the text is checked: sqlglot must
read it as a query, and Spark gets it in parentheses, where its grammar (``'(' query ')'``) allows nothing else.
``SHOW`` and ``DESCRIBE`` only read, whatever follows, and the statement after ``EXPLAIN`` is a query, too. What a query
could still do is refused by name: run a program or engine code, and open files.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from lakegate.errors import QueryError
from lakegate.model.sqltext import SqlTextError, SqlToken, refused_call, sql_text, sql_tokens

_DIALECT = "spark"
_LISTINGS = frozenset({"DESC", "DESCRIBE", "SHOW"})
_EXPLAIN_MODES = frozenset({"CODEGEN", "COST", "EXTENDED", "FORMATTED", "LOGICAL"})
_BEFORE_TABLE = frozenset({"ALTER", "CREATE", "DROP", "EXTERNAL", "INTO", "OVERWRITE", "REPLACE", "TEMPORARY"})
_DATA_HINT = "Change rows with `lakegate ingest`, or in a transaction in Python: `with lake.transaction() as tx:`."
_SCHEMA_HINT = (
    "Create a table with its first rows with `lakegate ingest`, or in a transaction in Python: "
    "`with lake.transaction() as tx: tx.sql('…')`."
)
_SETTING_HINT = "lakegate controls this session's settings. Run it in your own Spark session."
_HINTS = {
    **dict.fromkeys(("INSERT", "LOAD", "MERGE", "UPDATE"), _DATA_HINT),
    "DELETE": "To delete rows in a run that can be reverted: lakegate table delete TABLE --where 'fare < 0'",
    "TRUNCATE": "To delete all rows in a run that can be reverted: lakegate table truncate TABLE",
    **dict.fromkeys(("COMMENT", "CREATE", "REPLACE"), _SCHEMA_HINT),
    "ALTER": "To change a table's columns: lakegate table evolve TABLE 'ADD COLUMN zone STRING'",
    "DROP": "To drop a table, which older commits still have: lakegate table drop TABLE",
    **dict.fromkeys(("CACHE", "DECLARE", "REFRESH", "RESET", "SET", "UNCACHE", "USE"), _SETTING_HINT),
    "CALL": "`lakegate table optimize` compacts a table, `lakegate revert` and `lakegate table restore` undo changes, "
    "`lakegate admin gc` removes old files.",
}


def query_text(sql: str) -> str:
    """Return the SQL to run for a user's query.

    Raises:
        QueryError: When it's empty, isn't a single query, or would run code or read files.

    Example:
        >>> query_text("SELECT count(*) FROM nyc.trips -- all of them")
        '(SELECT count(*) FROM nyc.trips)'
        >>> query_text("DROP TABLE nyc.trips")
        Traceback (most recent call last):
        lakegate.errors.QueryError: A query can only read, but this is a DROP statement.
    """
    tokens = statement_tokens(sql, "query")
    first = tokens[0].upper
    if first in _LISTINGS:
        return sql_text(tokens)
    if first == "EXPLAIN":
        has_mode = len(tokens) > 1 and tokens[1].upper in _EXPLAIN_MODES
        head, tokens = tokens[: 1 + has_mode], tokens[1 + has_mode :]
        _require_query(tokens)
        return f"{sql_text(head)} {parenthesized(tokens)}"
    _require_query(tokens)
    return parenthesized(tokens)


def parenthesized(tokens: Sequence[SqlToken]) -> str:
    """Return the tokens' SQL in parentheses, where Spark's grammar allows only a query."""
    return f"({sql_text(tokens)})"


def statement_tokens(sql: str, wanted: str) -> tuple[SqlToken, ...]:
    """Return the tokens of a single statement, without comments.

    Args:
        wanted: What error messages call it, such as ``query``.

    Raises:
        QueryError: When it's empty, has several statements, or would run code or read files.
    """
    try:
        tokens = sql_tokens(sql)
    except SqlTextError as error:
        hint = "Run one statement at a time." if "more than one" in str(error) else None
        raise QueryError(f"Can't run this {wanted}: {error}", hint=hint) from None
    if not tokens:
        raise QueryError(f"The {wanted} is empty.", hint="Write Spark SQL, such as SELECT count(*) FROM nyc.trips.")
    _require_no_code(tokens, wanted)
    return tokens


def parse(tokens: Sequence[SqlToken], wanted: str) -> exp.Expr:
    """Parse a statement.

    Raises:
        QueryError: When sqlglot can't.
    """
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_query = token.upper == "TABLE" and after.kind in {"word", "quoted"} and before.upper not in _BEFORE_TABLE
        if is_query and tokens[0].upper not in {"INSERT", *_LISTINGS}:
            raise QueryError(
                f"Can't run this {wanted}: TABLE at {token.position} isn't supported there.",
                hint="Write SELECT * FROM instead of TABLE; put a column of that name in backticks.",
            )
    # sqlglot doesn't know TABLE t.
    head = replace(tokens[0], text="SELECT * FROM") if tokens[0].upper == "TABLE" else tokens[0]
    try:
        (found,) = sqlglot.parse(sql_text((head, *tokens[1:])), dialect=_DIALECT)
    except SqlglotError as error:
        raise QueryError(
            f"Can't run this {wanted}: {_location(error)}.",
            hint="lakegate reads SQL with sqlglot's dialect 'spark', which doesn't know all that Spark does. Write it "
            "in another way, or run it in your own Spark session.",
        ) from None
    except (AssertionError, RecursionError):  # sqlglot asserts that set operations after |> are in parentheses
        raise QueryError(
            f"Can't run this {wanted}: lakegate can't tell which tables it reads.",
            hint="Put the query after |> UNION, INTERSECT or EXCEPT in parentheses, and nest queries less deeply.",
        ) from None
    if found is None:
        raise QueryError(f"Can't run this {wanted}: it isn't one statement.", hint="Run statements one at a time.")
    return found


def _require_query(tokens: Sequence[SqlToken]) -> None:
    if not tokens:
        raise QueryError("EXPLAIN needs a query.", hint="Write EXPLAIN SELECT …")
    first = tokens[0]
    if first.upper in _HINTS:
        raise _changes(first.upper)
    if first.upper not in {"(", "FROM", "SELECT", "TABLE", "VALUES", "WITH"}:
        raise QueryError(
            f"A query can't start with {first.text!r} ({first.position}).",
            hint="A query starts with SELECT, WITH, FROM, VALUES, TABLE, SHOW, DESCRIBE or EXPLAIN.",
        )
    tree = parse(tokens, "query")
    if not isinstance(tree, (exp.Query, exp.Values)) or tree.find(exp.DML, exp.DDL) not in {None, tree}:
        changing = tree if not isinstance(tree, exp.Query) else tree.find(exp.Insert)
        raise _changes("INSERT" if changing is None else changing.key.upper())
    for table in tree.find_all(exp.Table):
        if any("@" in part.name or "#" in part.name for part in table.parts):
            raise QueryError(
                f"A query can't use {table.sql(_DIALECT)}, which names a reference.",
                hint="Use plain table names. To read another reference: `lake.query(sql, ref=…)`.",
            )


def _changes(word: str) -> QueryError:
    article = "an" if word[0] in "AEIOU" else "a"
    return QueryError(f"A query can only read, but this is {article} {word} statement.", hint=_HINTS.get(word))


def _location(error: SqlglotError) -> str:
    errors: list[dict[str, object]] = getattr(error, "errors", [])
    first = errors[0] if errors else {}
    near = str(first.get("highlight") or "").strip()
    return f"lakegate can't read it near {near!r} (line {first.get('line')})" if near else "lakegate can't read it"


def _require_no_code(tokens: Sequence[SqlToken], wanted: str) -> None:
    for index, (token, after) in enumerate(pairwise(tokens)):
        if (why := refused_call(tokens, index)) is not None:
            raise QueryError(
                f"A {wanted} can't call {token.name}() ({token.position}), {why}.",
                hint="Run it in your own Spark session.",
            )
        if token.upper == "USING" and after.kind == "string":
            raise QueryError(
                f"A {wanted} can't run a program (USING {after.text} at {token.position}).",
                hint="Process the rows in Python: `lake.query(…).to_arrow()`.",
            )
