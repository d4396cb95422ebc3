r"""The guard of users' SQL: one statement that can only read, as Spark itself parses it, and what Spark makes of it.

The text that runs is made of the tokens that were checked (:mod:`lakegate.model.sqltext`), and is put in parentheses:
by Spark's grammar (``'(' query ')'``) nothing but a query can be there, so that no statement that changes something
can result, whatever the text holds. ``SHOW`` and ``DESCRIBE`` only read whatever follows, and what ``EXPLAIN``
explains is put in parentheses, too. Two things that a query could do besides reading tables are looked for in the
tokens: running a program or the engine's own code, and reading files past the catalog.

The plan is the second depth, behind this and :mod:`lakegate.spark.statement`: should their reading of a text be wrong,
its analysed plan still says which tables it reads and writes, at which reference, and whether it runs code
(docs/decisions/0041). Spark Connect analyses SQL without running it (``AnalyzePlan``). The plan comes as text, one
node a line, with texts and names in it as they are. So nothing in it is left out as not being part of the plan: what is
added there can only lead to a refusal. And for the analysis, strings and names of the statement are written such that
they don't read like a part of a plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from lakegate.errors import QueryError
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.sqltext import RUNS_CODE, SqlTextError, SqlToken, may_open_file, sql_string, sql_text, sql_tokens
from lakegate.spark.sessions import CATALOG, is_connect

QUERY_BEGINNINGS = frozenset({"(", "FROM", "SELECT", "TABLE", "VALUES", "WITH"})
"""Words that a query begins with."""
_LISTINGS = frozenset({"DESC", "DESCRIBE", "SHOW"})
_EXPLAIN_MODES = frozenset({"CODEGEN", "COST", "EXTENDED", "FORMATTED", "LOGICAL"})
_CHANGES = {"DELETE": ("FROM",), "INSERT": ("INTO", "OVERWRITE"), "MERGE": ("INTO",)}
_FILE_FORMATS = frozenset({"avro", "binaryfile", "csv", "delta", "iceberg", "json", "orc", "parquet", "text", "xml"})
_DATA_HINT = "Change rows with `lakegate ingest`, or in a transaction from Python: `with lake.transaction() as tx:`."
_SCHEMA_HINT = (
    "Create a table with its first rows by `lakegate ingest`, or in a transaction from Python: "
    "`with lake.transaction() as tx: tx.sql('…')`."
)
_SETTING_HINT = "Settings are lakegate's own here. Run it in a Spark session of your own."
_HINTS = {
    **dict.fromkeys(("INSERT", "LOAD", "MERGE", "UPDATE"), _DATA_HINT),
    "DELETE": "To delete rows, as a run that can be reverted: lakegate table delete TABLE --where 'fare < 0'",
    "TRUNCATE": "To delete all rows, as a run that can be reverted: lakegate table truncate TABLE",
    **dict.fromkeys(("COMMENT", "CREATE", "REPLACE"), _SCHEMA_HINT),
    "ALTER": "To change a table's columns: lakegate table evolve TABLE 'ADD COLUMN zone STRING'",
    "DROP": "To drop a table, which older commits still have: lakegate table drop TABLE",
    **dict.fromkeys(("ADD", "CACHE", "DECLARE", "REFRESH", "RESET", "SET", "UNCACHE", "USE"), _SETTING_HINT),
    "CALL": "`lakegate table optimize` compacts a table, `lakegate revert` and `lakegate table restore` undo changes, "
    "`lakegate gc` removes old files.",
}

PLAN_SETTINGS = {"spark.sql.debug.maxToStringFields": "1000000"}
"""Settings of sessions whose plans are checked: nothing may be left out of a plan."""

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
_RUNS = ((_PROGRAM, "a program (TRANSFORM)"), (_CODE, "code inside Spark (reflect)"), (_COMMAND, None))
_NODES = (_RELATION, _RESOLVED_ANY, _FILES, _COMMAND, _PROGRAM)
_ICEBERG = "org.apache.iceberg.spark.SparkCatalog"
_DESCRIPTIONS = frozenset({"DESC", "DESCRIBE"})


def query_text(sql: str) -> str:
    """Return the text to run for a user's query.

    Raises:
        QueryError: When it is empty, several statements, not a query, or would run code or read files.

    Example:
        >>> query_text("SELECT count(*) FROM nyc.trips -- all of them")
        '(SELECT count(*) FROM nyc.trips)'
        >>> query_text("DROP TABLE nyc.trips")
        Traceback (most recent call last):
        lakegate.errors.QueryError: A query only reads, and this is a DROP statement.
    """
    tokens = tokens_of(sql, "query")
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
    """Return a query's text such that Spark's grammar allows nothing but a query there."""
    return f"({sql_text(tokens)})"


def tokens_of(sql: str, wanted: str) -> tuple[SqlToken, ...]:
    """Return the tokens of one statement, without comments.

    Args:
        wanted: What messages call it: ``query``.
    """
    try:
        tokens = sql_tokens(sql)
    except SqlTextError as error:
        raise QueryError(f"Can't run this {wanted}: {error}", hint=_split_hint(str(error))) from None
    if not tokens:
        raise QueryError(f"The {wanted} is empty.", hint="Write Spark SQL, such as SELECT count(*) FROM nyc.trips.")
    _require_no_code(tokens, wanted)
    return tokens


def _require_query(tokens: Sequence[SqlToken]) -> None:
    if not tokens:
        raise QueryError("There is no query to explain.", hint="Write EXPLAIN SELECT …")
    first = tokens[0]
    if first.upper not in QUERY_BEGINNINGS:
        raise _not_a_query(first)
    if len(tokens) == 1:
        raise QueryError(f"The query ends after {first.text!r}.", hint="Write Spark SQL, such as TABLE nyc.trips.")
    # WITH … INSERT, FROM … INSERT: Spark refuses them in parentheses; this says so in plain words.
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
        return QueryError(f"A query only reads, and this is {article} {word} statement.", hint=_HINTS[word])
    return QueryError(
        f"A query can't start with {token.text!r} ({token.place}).",
        hint="A query starts with SELECT, WITH, FROM, VALUES, TABLE, SHOW, DESCRIBE or EXPLAIN.",
    )


def _require_no_code(tokens: Sequence[SqlToken], wanted: str) -> None:
    for index, (token, after) in enumerate(pairwise(tokens)):
        name = token.name.lower()
        if after.text == "(" and name in RUNS_CODE and token.kind in {"word", "quoted"}:
            raise QueryError(
                f"{token.name}() at {token.place} runs code inside Spark, which a {wanted} may not.",
                hint="Run it in a Spark session of your own.",
            )
        if after.text == "(" and token.upper == "IDENTIFIER":
            raise QueryError(
                f"IDENTIFIER() at {token.place} isn't allowed: its name can't be checked before it runs.",
                hint="Write the name itself, in backticks where needed.",
            )
        if after.text == "(" and may_open_file(name, tokens[index + 1 :]):
            raise QueryError(
                f"{token.name}() at {token.place} has options that a {wanted} may not have.",
                hint="Write its options as map('name', 'value'), without rowValidationXSDPath, which opens a file.",
            )
        if token.upper == "USING" and after.kind == "string":
            raise QueryError(
                f"USING {after.text} at {token.place} runs a program, which a {wanted} may not.",
                hint="Work on the rows in Python: `lake.query(…).to_arrow()`.",
            )
        if after.text == "." and name in _FILE_FORMATS and _is_path(tokens[index + 2 : index + 3]):
            raise QueryError(
                f"{token.text}.{tokens[index + 2].text} at {token.place} is a file, and a {wanted} reads tables only.",
                hint="Load it with `lakegate ingest`, then query the table.",
            )


def _is_path(tokens: Sequence[SqlToken]) -> bool:
    return bool(tokens) and tokens[0].kind == "quoted" and ("/" in tokens[0].text or ":" in tokens[0].text)


def _split_hint(message: str) -> str | None:
    return "Run one statement at a time." if "more than one" in message else None


@dataclass(frozen=True)
class Plan:
    """What an explained plan says.

    Attributes:
        problem: What it does that it may not; ``None`` when there is nothing.
        read: Names of the lake's tables that it reads, without their catalog.
    """

    problem: str | None
    read: frozenset[str] = frozenset()


def require_harmless(session: Any, text: str, *, is_query: bool, only: str | None = None) -> frozenset[TableIdentifier]:
    """Have Spark analyse SQL, and refuse it when it does what the session isn't for.

    A classic session is part of the user's own application, and isn't asked.

    Args:
        session: One of ours, with :data:`PLAN_SETTINGS`.
        text: What is to be run: a query in parentheses, or a statement that begins as one that is allowed.
        is_query: Whether it may read more than tables of the lake, as a query in a user's Spark may. A transaction uses
            nothing but tables of its branch.
        only: The one catalog whose tables a query may read; ``None`` for any.

    Returns:
        The names of the lake's tables that a transaction reads.

    Raises:
        QueryError: When it runs code or a command, or uses a table at another reference.
    """
    if not is_connect(session):
        return frozenset()
    plan = read_plan(_explained(session, text), is_query=is_query, only=only)
    if plan.problem is not None:
        raise QueryError(
            f"A {'query' if is_query else 'transaction'} can't {plan.problem}; nothing was run.",
            hint="Plain names mean tables of the reference that is worked on; `lake.query(sql, ref=…)` reads another.",
        )
    return frozenset() if is_query else frozenset(map(TableIdentifier.parse, plan.read))


def _explained(session: Any, text: str) -> str:
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import SQL

    def explain(statement: str) -> str:
        frame: Any = DataFrame(SQL(statement), session)
        if statement.startswith("("):
            frame = frame.limit(0)  # so that Spark has little to optimise
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
    """Return the text to explain: of ``EXPLAIN`` and ``DESCRIBE QUERY``, whose plans show nothing, their query."""
    tokens = sql_tokens(text)
    words = [token.upper for token in tokens[:3]]
    at = 0
    if words[0] == "EXPLAIN":
        at = next((index for index, token in enumerate(tokens) if token.text == "("), 0)
    elif words[0] in _DESCRIPTIONS:
        is_named = words[1:2] == ["QUERY"]
        begins = [
            word for word in words[1 + is_named :][:1] if word in QUERY_BEGINNINGS and (is_named or word != "TABLE")
        ]
        at = 1 + is_named if begins else 0
    found = tokens[at:] if as_written else [_inert(token) for token in tokens[at:]]
    asked = sql_text(found)
    return f"({asked})" if at and not asked.startswith("(") else asked


def _inert(token: SqlToken) -> SqlToken:
    """Return a literal or name rewritten so that it doesn't read like part of a plan."""
    if token.kind not in {"string", "quoted"}:
        return token
    said = token.value if token.kind == "string" else token.name
    inert = _CODE.sub(lambda found: f"{found.group()[:-1]}_", said.replace("\n", "\t").replace("] ", "]\t"))
    if any(pattern.search(inert) for pattern in _NODES):
        inert = f".{inert}"  # a plan begins with a line of columns' names
    if inert == said:
        return token
    return replace(token, text=sql_string(inert) if token.kind == "string" else quote(inert))


def read_plan(explained: str, *, is_query: bool, only: str | None = None) -> Plan:
    r"""Read an explained plan.

    Example:
        >>> read_plan("== Analyzed Logical Plan ==\nRelationV2[id#1L] lakegate.nyc.trips\n", is_query=False).read
        frozenset({'nyc.trips'})
        >>> read_plan("== Analyzed Logical Plan ==\nRelationV2[id#1L] lakegate.nyc.`trips@x`\n", is_query=True).problem
        'use lakegate.nyc.`trips@x`'
    """
    if "== Analyzed Logical Plan ==" not in explained:
        return Plan("run what can't be looked at")
    for pattern, what in _RUNS:
        if found := pattern.search(explained):
            return Plan(f"run {what or found[1]}")
    relations, resolved = _relations(explained), _RESOLVED.findall(explained)
    if relations is None or len(resolved) != len(_RESOLVED_ANY.findall(explained)):
        return Plan("use tables whose names can't be read")
    # What is resolved, and no relation, is named without its catalog.
    names = [*relations, *(f"{CATALOG}.{name}" for _, name in resolved)]
    strange = [name for name in names if name.startswith(f"{CATALOG}.") and ("@" in name or "#" in name)]
    if only is not None:
        strange += [f"{name}, which isn't of source {only}" for name in relations if _parts(name)[0] != only]
    if not is_query:
        strange += [name for name in relations if not name.startswith(f"{CATALOG}.")]
        strange += [name for name in relations if any("." in part for part in _parts(name))]
        strange += [f"{name} of another catalog" for catalog, name in resolved if catalog != _ICEBERG]
        strange += [f"what isn't a table ({found})" for found in _FILES.findall(explained)]
    if strange:
        return Plan(f"use {strange[0]}")
    read = (_parts(name) for name, is_read in relations.items() if is_read and name.startswith(f"{CATALOG}."))
    return Plan(None, frozenset(".".join(parts[1:]) for parts in read))


def _relations(explained: str) -> dict[str, bool] | None:
    """Return the names of the tables that a plan uses, and whether it reads them; ``None`` when one can't be read.

    Each text that could be the name of a relation is taken for one: a column's name can hold a whole node.
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
