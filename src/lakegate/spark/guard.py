r"""The guard for users' SQL: allow one statement that only reads, and check the plan that Spark makes of it.

The SQL that runs is built from the checked tokens (:mod:`lakegate.model.sqltext`) and wrapped in parentheses. Spark's
grammar (``'(' query ')'``) allows only a query there, so no text can become a statement that changes something.
``SHOW`` and ``DESCRIBE`` only read, whatever follows, and the statement after ``EXPLAIN`` is wrapped, too. A query
could still do two other things, which are searched for in the tokens: run a program or engine code, and read files that
aren't tables.

The plan is the second line of defense, behind this and :mod:`lakegate.spark.statement`. If they misread a statement,
its analyzed plan still shows which tables it reads and writes, at which reference, and whether it runs code
(docs/decisions/0041). Spark Connect analyzes SQL without running it (``AnalyzePlan``). The plan is text, one node per
line, which may contain any string or name of the statement verbatim. So no part of the text is ever ignored: injected
text can only cause a refusal. In addition, the statement's strings and names are rewritten for the analysis so that
they don't look like part of a plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from lakegate.errors import QueryError
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.sqltext import (
    PARSES_XML,
    RUNS_CODE,
    SqlTextError,
    SqlToken,
    may_open_file,
    sql_string,
    sql_text,
    sql_tokens,
)
from lakegate.spark.sessions import CATALOG, is_connect

QUERY_BEGINNINGS = frozenset({"(", "FROM", "SELECT", "TABLE", "VALUES", "WITH"})
"""First words of queries."""
_LISTINGS = frozenset({"DESC", "DESCRIBE", "SHOW"})
_EXPLAIN_MODES = frozenset({"CODEGEN", "COST", "EXTENDED", "FORMATTED", "LOGICAL"})
_CHANGES = {"DELETE": ("FROM",), "INSERT": ("INTO", "OVERWRITE"), "MERGE": ("INTO",)}
_FILE_FORMATS = frozenset({"avro", "binaryfile", "csv", "delta", "iceberg", "json", "orc", "parquet", "text", "xml"})
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
    **dict.fromkeys(("ADD", "CACHE", "DECLARE", "REFRESH", "RESET", "SET", "UNCACHE", "USE"), _SETTING_HINT),
    "CALL": "`lakegate table optimize` compacts a table, `lakegate revert` and `lakegate table restore` undo changes, "
    "`lakegate gc` removes old files.",
}

PLAN_SETTINGS = {"spark.sql.debug.maxToStringFields": "1000000", "spark.sql.maxPlanStringLength": "2147483632"}
"""Settings of sessions whose plans are checked. Spark must not abbreviate a plan."""

_NODE = r"^[\s:|+-]*'?"
_PART = r"(?:`(?:[^`]|``)+`|[\w-]+)"
_NAME = rf"{_PART}(?:\.{_PART})+"
_RELATION = re.compile(rf"{_NODE}(?P<written>\w+ )?RelationV2\[", re.MULTILINE)
_RELATION_NAME = re.compile(rf"\] ({_NAME})(?=,|$| (?:VERSION|TIMESTAMP) AS OF )", re.MULTILINE)
_RESOLVED = re.compile(rf"{_NODE}Resolved(?:Table|Identifier) (\S+?)(?:@[0-9a-f]+)?, ({_NAME})", re.MULTILINE)
_RESOLVED_ANY = re.compile(rf"{_NODE}Resolved(?:Table|Identifier) ", re.MULTILINE)
_FILES = re.compile(rf"{_NODE}(Relation|HiveTableRelation|LogicalRDD|StreamingRelation\w*) ?[\[(`]", re.MULTILINE)
_COMMAND = re.compile(
    rf"{_NODE}((?!Describe|Explain|Noop|Show)\w+Command|Call|CreateTempViewUsing)\b(?!:)", re.MULTILINE
)
_PROGRAM = re.compile(rf"{_NODE}ScriptTransformation\b", re.MULTILINE)
_CODE = re.compile(rf"\b(?:{'|'.join(sorted(RUNS_CODE))})\(")
_XML = re.compile(rf"\b(?:{'|'.join(sorted(PARSES_XML))})\(")
_RUNS = (
    (_PROGRAM, "a program (TRANSFORM)"),
    (_CODE, "code inside Spark (reflect)"),
    (_XML, "functions that open files which XML names (xpath)"),
    (_COMMAND, None),
)
_NODES = (_RELATION, _RESOLVED_ANY, _FILES, _COMMAND, _PROGRAM)
_ICEBERG = "org.apache.iceberg.spark.SparkCatalog"


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


def _require_query(tokens: Sequence[SqlToken]) -> None:
    if not tokens:
        raise QueryError("EXPLAIN needs a query.", hint="Write EXPLAIN SELECT …")
    first = tokens[0]
    if first.upper not in QUERY_BEGINNINGS:
        raise _not_a_query(first)
    if len(tokens) == 1:
        raise QueryError(f"The query ends after {first.text!r}.", hint="Write Spark SQL, such as TABLE nyc.trips.")
    # Spark refuses WITH … INSERT and FROM … INSERT in parentheses. This gives a clearer message.
    depth = 0
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        depth += {"(": 1, ")": -1}.get(before.upper, 0)
        changes = after.upper in _CHANGES.get(token.upper, ()) and (after.upper != "FROM" or before.upper == ")")
        if depth == 0 and changes:
            raise _not_a_query(token)


def _not_a_query(token: SqlToken) -> QueryError:
    word = token.upper
    if token.kind == "word" and word in _HINTS:
        article = "an" if word[0] in "AEIOU" else "a"
        return QueryError(f"A query can only read, but this is {article} {word} statement.", hint=_HINTS[word])
    return QueryError(
        f"A query can't start with {token.text!r} ({token.position}).",
        hint="A query starts with SELECT, WITH, FROM, VALUES, TABLE, SHOW, DESCRIBE or EXPLAIN.",
    )


def _require_no_code(tokens: Sequence[SqlToken], wanted: str) -> None:
    for index, (token, after) in enumerate(pairwise(tokens)):
        name = token.name.lower()
        if after.text == "(" and name in RUNS_CODE and token.kind in {"word", "quoted"}:
            raise QueryError(
                f"A {wanted} can't call {token.name}() ({token.position}), which runs code inside Spark.",
                hint="Run it in your own Spark session.",
            )
        if after.text == "(" and name in PARSES_XML and token.kind in {"word", "quoted"}:
            raise QueryError(
                f"A {wanted} can't call {token.name}() ({token.position}), which opens files and addresses that its "
                "XML names.",
                hint="Use from_xml(), or parse it in Python: `lake.query(…).to_arrow()`.",
            )
        if after.text == "(" and token.upper == "IDENTIFIER":
            raise QueryError(
                f"IDENTIFIER() at {token.position} isn't allowed, because its name can't be checked before it runs.",
                hint="Write the name itself, in backticks if needed.",
            )
        if after.text == "(" and may_open_file(name, tokens[index + 1 :]):
            raise QueryError(
                f"{token.name}() at {token.position} has options that aren't allowed in a {wanted}.",
                hint="Write the options as map('name', 'value'), without rowValidationXSDPath, which opens a file.",
            )
        if token.upper == "USING" and after.kind == "string":
            raise QueryError(
                f"A {wanted} can't run a program (USING {after.text} at {token.position}).",
                hint="Process the rows in Python: `lake.query(…).to_arrow()`.",
            )
        if after.text == "." and name in _FILE_FORMATS and _is_path(tokens[index + 2 : index + 3]):
            raise QueryError(
                f"{token.text}.{tokens[index + 2].text} at {token.position} is a file, but a {wanted} "
                "only reads tables.",
                hint="Ingest it with `lakegate ingest`, then query the table.",
            )


def _is_path(tokens: Sequence[SqlToken]) -> bool:
    return bool(tokens) and tokens[0].kind == "quoted" and ("/" in tokens[0].text or ":" in tokens[0].text)


@dataclass(frozen=True)
class PlanReview:
    """What an explained plan does.

    Attributes:
        problem: What it does that isn't allowed, to follow "can't"; ``None`` if it's harmless.
        read: Names of the lake's tables that it reads, without the catalog.
    """

    problem: str | None
    read: frozenset[str] = frozenset()


def require_harmless(session: Any, text: str, *, is_query: bool) -> frozenset[TableIdentifier]:
    """Let Spark analyze SQL, and refuse it if its plan does something that isn't allowed.

    Classic sessions aren't checked, because they are part of the user's own application.

    Args:
        session: One of our sessions, with :data:`PLAN_SETTINGS`.
        text: The SQL to run: a query in parentheses, or an allowed statement.
        is_query: Whether it may also read what isn't in the lake, as queries may. A transaction may only use the tables
            of its branch.

    Returns:
        The names of the lake's tables that a transaction reads.

    Raises:
        QueryError: When it runs code or a command, or uses a table at another reference.
    """
    if not is_connect(session):
        return frozenset()
    plan = review_plan(_explained(session, text), is_query=is_query)
    if plan.problem is not None:
        raise QueryError(
            f"A {'query' if is_query else 'transaction'} can't {plan.problem}; nothing was run.",
            hint="Use plain table names. They mean the tables of the current reference; to read another one: "
            "`lake.query(sql, ref=…)`.",
        )
    return frozenset() if is_query else frozenset(map(TableIdentifier.parse, plan.read))


def _explained(session: Any, text: str) -> str:
    """Return Spark's plans of ``text`` as text, without running it."""
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import SQL

    def explain(statement: str) -> str:
        frame: Any = DataFrame(SQL(statement), session)
        if statement.startswith("("):
            frame = frame.limit(0)  # leaves Spark little to optimize
        explained: str = frame._explain_string(extended=True)  # noqa: SLF001 - explain() prints it
        return explained

    asked, plain = _explainable(text), _explainable(text, as_written=True)
    try:
        return explain(asked)
    except PySparkException:
        # A column's name may be one of the strings that were rewritten.
        if asked == plain:
            raise
        return explain(plain)


def _explainable(text: str, *, as_written: bool = False) -> str:
    """Return the SQL to explain: for ``EXPLAIN`` and ``DESCRIBE QUERY``, whose own plans show nothing, their query."""
    tokens = sql_tokens(text)
    words = [token.upper for token in tokens[:3]]
    at = 0
    if words[0] == "EXPLAIN":
        at = next((index for index, token in enumerate(tokens) if token.text == "("), 0)
    elif words[0] in {"DESC", "DESCRIBE"}:
        is_named = words[1:2] == ["QUERY"]
        begins = [
            word for word in words[1 + is_named :][:1] if word in QUERY_BEGINNINGS and (is_named or word != "TABLE")
        ]
        at = 1 + is_named if begins else 0
    found = tokens[at:] if as_written else [_inert(token) for token in tokens[at:]]
    asked = sql_text(found)
    return f"({asked})" if at and not asked.startswith("(") else asked


def _inert(token: SqlToken) -> SqlToken:
    """Return a string or quoted name rewritten so that it doesn't look like part of a plan."""
    if token.kind not in {"string", "quoted"}:
        return token
    text = token.value if token.kind == "string" else token.name
    inert = text.replace("\n", "\t").replace("] ", "]\t")
    for pattern in (_CODE, _XML):
        inert = pattern.sub(lambda found: f"{found.group()[:-1]}_", inert)
    if any(pattern.search(inert) for pattern in _NODES):
        inert = f".{inert}"  # a plan's first line has the names of columns
    if inert == text:
        return token
    return replace(token, text=sql_string(inert) if token.kind == "string" else quote(inert))


def review_plan(explained: str, *, is_query: bool) -> PlanReview:
    r"""Read an explained plan.

    Example:
        >>> review_plan("== Analyzed Logical Plan ==\nRelationV2[id#1L] lakegate.nyc.trips\n", is_query=False).read
        frozenset({'nyc.trips'})
        >>> review_plan("== Analyzed Logical Plan ==\nRelationV2[id#1L] lakegate.nyc.`t@x`\n", is_query=True).problem
        'use lakegate.nyc.`t@x`'
    """
    if "== Analyzed Logical Plan ==" not in explained:
        return PlanReview("run SQL whose plan Spark doesn't show")
    for pattern, what in _RUNS:
        if found := pattern.search(explained):
            return PlanReview(f"run {what or found[1]}")
    relations, resolved = _relations(explained), _RESOLVED.findall(explained)
    if relations is None or len(resolved) != len(_RESOLVED_ANY.findall(explained)):
        return PlanReview("use tables whose names can't be read")
    # Resolved tables and identifiers, unlike relations, are named without their catalog.
    names = [*relations, *(f"{CATALOG}.{name}" for _, name in resolved)]
    strange = [name for name in names if name.startswith(f"{CATALOG}.") and ("@" in name or "#" in name)]
    if not is_query:
        strange += [name for name in relations if not name.startswith(f"{CATALOG}.")]
        strange += [name for name in relations if any("." in part for part in _parts(name))]
        strange += [f"{name} of another catalog" for catalog, name in resolved if catalog != _ICEBERG]
        strange += [f"what isn't a table ({found})" for found in _FILES.findall(explained)]
    if strange:
        return PlanReview(f"use {strange[0]}")
    read = (_parts(name) for name, is_read in relations.items() if is_read and name.startswith(f"{CATALOG}."))
    return PlanReview(None, frozenset(".".join(parts[1:]) for parts in read))


def _relations(explained: str) -> dict[str, bool] | None:
    """Return the names of the tables that a plan uses, and whether it reads each; ``None`` if a name can't be parsed.

    Any text that could be a relation's name counts as one, because a column's name may contain a whole plan node.
    """
    begins = list(_RELATION.finditer(explained))
    names: dict[str, bool] = {}
    for index, begin in enumerate(begins):
        end = begins[index + 1].start() if index + 1 < len(begins) else len(explained)
        found = _RELATION_NAME.findall(explained, begin.end(), end)
        if not found:
            return None
        for name in found:
            names[name] = names.get(name, False) or begin["written"] is None
    return names


def _parts(name: str) -> list[str]:
    return [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in re.findall(_PART, name)]
