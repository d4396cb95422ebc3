"""SQL statements of users, looked at before the engine sees them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import Token, TokenType
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from lakegate.engine.sessions import CATALOG
from lakegate.errors import IdentifierError, QueryError
from lakegate.model.identifiers import TableIdentifier

_DIALECT = "spark"
_QUERIES = (exp.Query, exp.Describe, exp.Show)
_WRITES = (exp.DML, exp.DDL, exp.Command)
_PASSED_ON = ("show", "describe", "desc", "explain")
_OTHER_CATALOGS = frozenset({"global_temp", "session", "spark_catalog", "system"})
# fmt: off
_METADATA_TABLES = frozenset({
    "all_data_files", "all_delete_files", "all_entries", "all_files", "all_manifests", "data_files",
    "delete_files", "entries", "files", "history", "manifests", "metadata_log_entries", "partitions",
    "position_deletes", "refs", "snapshots",
})
# fmt: on
"""Iceberg's tables about a table: ``nyc.trips.files`` (Iceberg's ``MetadataTableType``)."""
_ALTER_ACTIONS = frozenset({"ADD", "ALTER", "CHANGE", "DROP", "RENAME", "REPLACE", "SET", "UNSET", "WRITE"})
_ALTER_REFUSED = {
    ("SET", "LOCATION"): "files of a table stay in the folder it was created in",
    ("RENAME", "TO"): "a table keeps its name",
    ("ADD", "BRANCH"): "branches are the catalog's here",
    ("ADD", "TAG"): "tags are the catalog's here",
    ("DROP", "BRANCH"): "branches are the catalog's here",
    ("DROP", "TAG"): "tags are the catalog's here",
    ("REPLACE", "BRANCH"): "branches are the catalog's here",
    ("REPLACE", "TAG"): "tags are the catalog's here",
}
_PROPERTIES_REFUSED = frozenset(
    {
        "cherry-pick-snapshot-id",
        "current-snapshot-id",
        "location",
        "path",
        "write.data.path",
        "write.folder-storage.path",
        "write.metadata.path",
        "write.object-storage.path",
    }
)
_RUNS_CODE = frozenset({"java_method", "reflect", "try_reflect"})
"""Functions that call any method of the engine's: ``reflect('java.lang.System', 'getenv', …)`` reads its secrets."""
_NOT_METADATA_ONLY = "(SELECT count(*) FROM range(1)) = 1"


@dataclass(frozen=True)
class Statement:
    """A statement that a transaction may run.

    Attributes:
        sql: What to give to the engine.
        read: Tables whose rows it depends on.
        written: Tables it changes.
        created: Those of ``written`` that it creates.
    """

    sql: str
    read: frozenset[TableIdentifier] = frozenset()
    written: frozenset[TableIdentifier] = frozenset()
    created: frozenset[TableIdentifier] = frozenset()

    @property
    def changes(self) -> bool:
        """Whether it is a change, not a query."""
        return bool(self.written)


def require_query(sql: str) -> None:
    """Check that ``sql`` is one statement that only reads.

    Spark runs anything it is given; a ``DROP TABLE`` would go past write–audit–publish.

    Raises:
        QueryError: When it is empty, several statements, not SQL, changes something, or runs the engine's own code.

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
    statement = _parse_one(sql, "query")
    changing = next(
        (node for node in statement.walk() if isinstance(node, _WRITES) and not isinstance(node, exp.Query)), None
    )
    if changing is not None or not isinstance(statement, _QUERIES):
        name = (changing or statement).key.upper()
        raise QueryError(
            f"This statement does not only read: {name}.",
            hint="Data is changed by `lakegate ingest`, which audits it first.",
        )


def parse_statement(sql: str, catalogs: Collection[str] = ()) -> Statement:
    """Look at a statement of a transaction.

    Allowed are queries, ``INSERT``, ``MERGE``, ``UPDATE``, ``DELETE``, ``CREATE``, ``ALTER`` and ``DROP TABLE``, on
    tables named ``namespace.table``: nothing that could read or change what is not on the transaction's branch.

    A ``DELETE`` comes back in words that Spark carries out row by row: when it drops whole files from the metadata
    (``SparkTable.deleteWhere``), Iceberg 1.12 leaves the session's snapshot properties out, and with them the run id.

    Args:
        sql: One statement.
        catalogs: The session's other Spark catalogs: ``nyc.trips`` would be a table in catalog ``nyc``.

    Raises:
        QueryError: When it is several statements, of another kind, or names anything but the branch's tables.

    Example:
        >>> found = parse_statement("INSERT INTO nyc.daily SELECT day, count(*) FROM nyc.trips GROUP BY day")
        >>> [str(table) for table in found.read], [str(table) for table in found.written]
        (['nyc.trips'], ['nyc.daily'])
    """
    others = _OTHER_CATALOGS | {name.lower() for name in catalogs} - {CATALOG}
    tokens = _tokens(sql)
    if [token.text.upper() for token in tokens[:2]] == ["ALTER", "TABLE"]:
        return Statement(sql, written=frozenset({_altered(tokens, others)}))
    tree = _parse_one(sql, "statement")
    target = _target(tree)
    written = frozenset() if target is None else frozenset(_names(target, others))
    read = frozenset(name for table in _tables(tree) if table is not target for name in _names(table, others))
    if isinstance(tree, exp.Create):
        _require_plain_properties(tokens)
        return Statement(sql, read, written, created=written)
    if isinstance(tree, (exp.Merge, exp.Update, exp.Delete)):
        read |= written
    if isinstance(tree, exp.Delete):
        return Statement(_row_by_row(sql, tokens, next(iter(written))), read, written)
    return Statement(sql, read, written)


def tables_read(sql: str) -> frozenset[TableIdentifier]:
    """Return the tables whose rows a statement depends on: its result changes when they change.

    The target of ``MERGE``, ``UPDATE`` and ``DELETE`` is one of them. Of ``nyc.trips.files`` both readings are
    returned, the metadata of ``nyc.trips`` and a table called ``files``; one of them does not exist.

    Raises:
        QueryError: As :func:`parse_statement`.

    Example:
        >>> [str(table) for table in tables_read("WITH a AS (SELECT * FROM nyc.trips) SELECT * FROM a")]
        ['nyc.trips']
    """
    return parse_statement(sql).read


def tables_written(sql: str) -> frozenset[TableIdentifier]:
    """Return the tables that a statement changes, creates or drops.

    Raises:
        QueryError: As :func:`parse_statement`.

    Example:
        >>> [str(table) for table in tables_written("DROP TABLE nyc.trips")]
        ['nyc.trips']
    """
    return parse_statement(sql).written


def _parse_one(sql: str, wanted: str) -> exp.Expr:
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        parsed = sqlglot.parse(sql, dialect=_DIALECT)
    except SqlglotError as error:
        raise QueryError(
            f"This is not a {wanted}: {str(error).splitlines()[0]}", hint="Spark SQL is spoken here."
        ) from None
    statements = [
        statement for statement in parsed if statement is not None and not isinstance(statement, exp.Semicolon)
    ]
    if len(statements) != 1:
        raise QueryError(f"One {wanted} is wanted, {len(statements)} were given.", hint="Run them one by one.")
    for function in statements[0].find_all(exp.Anonymous):
        if function.name.lower() in _RUNS_CODE:
            raise QueryError(
                f"This {wanted} runs code of the engine by {function.name}(), which SQL here may not.",
                hint="Run it in a Spark session of your own.",
            )
    return statements[0]


def _require_single(sql: str) -> None:
    if ";" in sql.strip().rstrip(";"):
        raise QueryError("One query is wanted, several were given.", hint="Run them one by one.")


def _tokens(sql: str) -> Sequence[Token]:
    try:
        tokens = sqlglot.tokenize(sql, read=_DIALECT)
    except SqlglotError as error:
        raise QueryError(f"This is not a statement: {str(error).splitlines()[0]}") from None
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    return tokens


def _target(tree: exp.Expr) -> exp.Table | None:
    """Return the table that a statement changes, ``None`` for a query."""
    if isinstance(tree, (exp.Query, exp.Values)):
        if any(isinstance(node, _WRITES) and not isinstance(node, exp.Query) for node in tree.walk()):
            raise _refused(tree, "it changes something inside a query")
        return None
    if not isinstance(tree, (exp.Insert, exp.Merge, exp.Update, exp.Delete, exp.Create, exp.Drop)):
        raise _refused(tree)
    if isinstance(tree, (exp.Create, exp.Drop)):
        _require_table(tree)
    found = tree.args["tables"][0] if isinstance(tree, exp.Drop) and tree.args.get("tables") else tree.this
    found = found.this if isinstance(found, exp.Schema) else found
    if not isinstance(found, exp.Table):
        raise _refused(tree, "it does not write to a table")
    return found


def _require_table(tree: exp.Create | exp.Drop) -> None:
    if str(tree.args.get("kind")).upper() != "TABLE" or tree.find(exp.TemporaryProperty):
        raise _refused(tree, "only tables are created and dropped; a namespace comes with its first table")
    if tree.args.get("purge") or len(tree.args.get("tables") or ()) > 1:
        raise _refused(tree, "one table is dropped at a time, and its files stay for the other branches")
    if tree.find(exp.LocationProperty):
        raise _refused(tree, "every table gets a folder of its own; leave LOCATION out")


def _refused(tree: exp.Expr, why: str | None = None) -> QueryError:
    name = str(tree.this).upper() if isinstance(tree, exp.Command) else tree.key.upper()
    return QueryError(
        f"A transaction does not run this {name} statement{f': {why}' if why else ''}.",
        hint="It runs queries, INSERT, MERGE, UPDATE, DELETE, and CREATE, ALTER and DROP TABLE.",
    )


def _tables(tree: exp.Expr) -> Iterator[exp.Table]:
    for table in tree.find_all(exp.Table):
        if table.find_ancestor(exp.Hint) is None and not _is_function(table) and not _is_cte(table):
            yield table


def _is_function(table: exp.Table) -> bool:
    if not isinstance(table.this, exp.Func):
        return False
    name = table.this.name if isinstance(table.this, exp.Anonymous) else table.this.key
    if name.upper() in {"IDENTIFIER", "STREAM"}:
        raise QueryError(f"A transaction does not read through {name.upper()}().", hint="Write the table's name.")
    return True


def _is_cte(table: exp.Table) -> bool:
    if len(table.parts) > 1:
        return False
    node: exp.Expr | None = table
    while node is not None:
        ctes = (cte for part in node.args.values() if isinstance(part, exp.With) for cte in part.expressions)
        if any(cte.alias.lower() == table.name.lower() for cte in ctes):
            return True
        node = node.parent
    return False


def _names(table: exp.Table, others: Collection[str]) -> Iterator[TableIdentifier]:
    parts = tuple(part.name for part in table.parts)
    yield _identifier(parts, others)
    metadata = len(parts) > 2 and parts[-1].lower() in _METADATA_TABLES  # noqa: PLR2004 - namespace, table, its files
    if metadata and parts[:-2] != (CATALOG,):
        yield _identifier(parts[:-1], others)


def _identifier(parts: Sequence[str], others: Collection[str]) -> TableIdentifier:
    text = ".".join(parts)
    if len(parts) == 1:
        raise QueryError(f"The table name '{text}' lacks a namespace.", hint=f"Write it as namespace.{text}.")
    if parts[0].lower() in others:
        raise QueryError(
            f"'{text}' is not on the transaction's branch: '{parts[0]}' is another catalog.",
            hint="Read it with your own Spark session, and hand the rows over as Arrow: frame.toArrow().",
        )
    if any("@" in part or "#" in part for part in parts):
        raise QueryError(
            f"'{text}' names a reference: in a transaction, names mean the tables of its branch.",
            hint="Leave '@' and '#' out; `lake.query(sql, ref=…)` reads at another reference.",
        )
    try:
        return TableIdentifier.parse(".".join(parts[1:] if parts[0] == CATALOG and len(parts) > 2 else parts))  # noqa: PLR2004
    except IdentifierError as error:
        raise QueryError(error.message, hint=error.hint) from None


def _altered(tokens: Sequence[Token], others: Collection[str]) -> TableIdentifier:
    at = 2
    parts = [tokens[at].text] if len(tokens) > at else [""]
    while at + 2 < len(tokens) and tokens[at + 1].token_type is TokenType.DOT:
        at += 2
        parts.append(tokens[at].text)
    words = [token.text.upper() for token in tokens[at + 1 : at + 3]]
    if any(token.token_type is TokenType.SEMICOLON for token in tokens):
        raise QueryError("One statement is wanted, several were given.", hint="Run them one by one.")
    if not words or words[0] not in _ALTER_ACTIONS:
        raise QueryError(f"A transaction does not run ALTER TABLE … {' '.join(words)}.")
    reason = _ALTER_REFUSED.get((words[0], words[-1]))
    if reason is not None:
        raise QueryError(f"A transaction does not run ALTER TABLE … {' '.join(words)}: {reason}.")
    _require_plain_properties(tokens)
    return _identifier(parts, others)


def _require_plain_properties(tokens: Sequence[Token]) -> None:
    """Refuse properties that would put a table's files elsewhere, or move it to another snapshot."""
    for key in _property_keys(tokens):
        if key in _PROPERTIES_REFUSED:
            raise QueryError(
                f"A transaction does not set the table property '{key}'.",
                hint="Tables keep to a folder of their own, and change by statements only.",
            )


def _property_keys(tokens: Sequence[Token]) -> Iterator[str]:
    inside = starting = False
    key = ""
    for before, token in pairwise(tokens):
        if token.token_type is TokenType.L_PAREN and before.text.upper() in {"TBLPROPERTIES", "OPTIONS"}:
            inside = starting = True
        elif inside and token.token_type in {TokenType.COMMA, TokenType.R_PAREN}:
            yield key
            inside, starting, key = token.token_type is TokenType.COMMA, True, ""
        elif inside and starting:
            starting = token.token_type is not TokenType.EQ and not (key and token.token_type is TokenType.STRING)
            key += token.text.lower() if starting else ""


def _row_by_row(sql: str, tokens: Sequence[Token], table: TableIdentifier) -> str:
    depth = 0
    for token in tokens:
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
        if depth == 0 and token.token_type is TokenType.WHERE:
            head, condition = sql[: token.end + 1], sql[token.end + 1 : tokens[-1].end + 1]
            return f"{head} ({condition}\n) AND {_NOT_METADATA_ONLY}"
    name = table.sql(CATALOG)
    return f"INSERT OVERWRITE {name} SELECT * FROM {name} WHERE false"  # noqa: S608 - a quoted identifier
