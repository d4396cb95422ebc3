"""Check the statements of transactions before the engine sees them.

sqlglot finds the tables that a statement reads and writes. It parses a skeleton of the tokens
(:func:`~lakegate.model.sqltext.sql_skeleton`), and Spark gets the same tokens without comments, so the two can't
disagree about where a string or comment ends. The table to write is also read from the tokens, and must be the same.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from lakegate.errors import IdentifierError, QueryError
from lakegate.model.identifiers import RESERVED_NAMESPACES, TableIdentifier
from lakegate.model.sqltext import SqlToken, sql_skeleton, sql_text
from lakegate.model.tables import FOLDER_PROPERTIES
from lakegate.spark.guard import parenthesized, statement_tokens
from lakegate.spark.sessions import CATALOG

_DIALECT = "spark"
_WRITES = (exp.DML, exp.DDL, exp.Command)
_CHANGES = frozenset({"CREATE", "DELETE", "DROP", "INSERT", "MERGE", "UPDATE"})
_BEFORE_TARGET = frozenset(
    {"EVOLUTION", "EXISTS", "FROM", "IF", "INTO", "NOT", "OR", "OVERWRITE", "REPLACE", "SCHEMA", "TABLE", "WITH"}
)
_BEFORE_NAMES = frozenset({"FROM", "INTO", "JOIN", "OVERWRITE", "TABLE", "UPDATE", "USING"})
_SET_OPERATIONS = frozenset({"EXCEPT", "INTERSECT", "MINUS", "UNION"})
_PIPED = {"SET": "EXTEND", "DROP": "SELECT"}
_QUANTIFIERS = frozenset({"ALL", "DISTINCT"})
_OTHER_CATALOGS = RESERVED_NAMESPACES - {CATALOG}
_ALTER_ACTIONS = frozenset({"ADD", "ALTER", "CHANGE", "DROP", "RENAME", "REPLACE", "SET", "UNSET", "WRITE"})
_ALTER_REFUSED = {
    ("SET", "LOCATION"): "a table's files stay in the folder it was created in",
    ("RENAME", "TO"): "a transaction can't rename tables",
    **{(verb, "BRANCH"): "branches belong to the catalog, not to a table" for verb in ("ADD", "DROP", "REPLACE")},
    **{(verb, "TAG"): "tags belong to the catalog, not to a table" for verb in ("ADD", "DROP", "REPLACE")},
}
_PROPERTIES_REFUSED = frozenset(
    {
        "cherry-pick-snapshot-id",
        "current-snapshot-id",
        "gc.enabled",
        "location",
        "nessie.commit.id",
        "path",
        "write.metadata.delete-after-commit.enabled",
        *FOLDER_PROPERTIES,
    }
)
_PROPERTY_LISTS = frozenset({"OPTIONS", "SERDEPROPERTIES", "TBLPROPERTIES"})
_METADATA_TABLES = frozenset(
    {
        *("all_data_files", "all_delete_files", "all_entries", "all_files", "all_manifests", "data_files"),
        *("delete_files", "entries", "files", "history", "manifests", "metadata_log_entries", "partitions"),
        *("position_deletes", "refs", "snapshots"),
    }
)
_NOT_METADATA_ONLY = "(SELECT count(*) FROM range(1)) = 1"


@dataclass(frozen=True)
class Statement:
    """A statement that a transaction may run.

    Attributes:
        sql: The SQL for the engine to run.
        read: The tables that it reads.
        written: The tables that it changes.
        created: The tables in ``written`` that it creates.
    """

    sql: str
    read: frozenset[TableIdentifier] = frozenset()
    written: frozenset[TableIdentifier] = frozenset()
    created: frozenset[TableIdentifier] = frozenset()


def parse_statement(sql: str, catalogs: Collection[str] = ()) -> Statement:
    """Check a statement of a transaction.

    It may be a query, ``INSERT``, ``MERGE``, ``UPDATE``, ``DELETE``, or ``CREATE``, ``ALTER`` or ``DROP TABLE``, and
    name tables as ``namespace.table``. It can't read or change anything outside the transaction's branch.

    A ``DELETE`` is rewritten so that Spark runs it row by row. When Iceberg 1.12 deletes whole files through the
    metadata (``SparkTable.deleteWhere``), it leaves out the session's snapshot properties, and the run id with them.

    Args:
        catalogs: The session's other Spark catalogs. With a catalog ``nyc``, ``nyc.trips`` would be a table in it.

    Raises:
        QueryError: When it's several statements or of another kind, or names anything but the branch's tables.

    Example:
        >>> found = parse_statement("INSERT INTO nyc.daily SELECT day, count(*) FROM nyc.trips GROUP BY day")
        >>> [str(table) for table in found.read], [str(table) for table in found.written]
        (['nyc.trips'], ['nyc.daily'])
    """
    others = _OTHER_CATALOGS | {name.lower() for name in catalogs} - {CATALOG}
    tokens = statement_tokens(sql, "statement")
    _require_no_evolution(tokens)
    if [token.upper for token in tokens[:2]] == ["ALTER", "TABLE"]:
        return Statement(sql_text(tokens), written=frozenset({_altered_table(tokens, others)}))
    tree = _parse(tokens)
    target = _target(tree)
    _require_names(tokens, others)
    read = frozenset(_table_identifier(table, others) for table in _tables(tree) if table is not target)
    if target is None:
        return Statement(parenthesized(tokens), read)
    _require_same_target(tokens, target)
    written = frozenset({_table_identifier(target, others)})
    if isinstance(tree, exp.Create):
        _require_plain_properties(tokens)
        return Statement(sql_text(tokens), read, written, created=written)
    if isinstance(tree, (exp.Merge, exp.Update, exp.Delete)):
        read |= written
    if isinstance(tree, exp.Delete):
        return Statement(_row_level_delete(tokens, next(iter(written))), read, written)
    return Statement(sql_text(tokens), read, written)


def referenced_tables(sql: str) -> tuple[str, ...] | None:
    """Return the names of the lake's tables that a query reads; ``None`` if its text doesn't say for sure.

    ``nyc.trips.snapshots`` may be a table, or a metadata table of ``nyc.trips``, so both are returned.

    Example:
        >>> referenced_tables("WITH a AS (SELECT * FROM nyc.trips) SELECT * FROM a JOIN nyc.zones USING (id)")
        ('nyc.trips', 'nyc.zones')
    """
    found: set[str] = set()
    try:
        for table in _tables(_parse(statement_tokens(sql, "statement"))):
            parts = [part.name for part in table.parts]
            if len(parts) > 1 and parts[0].lower() in _OTHER_CATALOGS:
                continue
            name = _table_identifier(table, ())
            found.add(str(name))
            if name.name.lower() in _METADATA_TABLES and len(name.namespace) > 1:
                found.add(str(TableIdentifier.parse(".".join(name.namespace))))
    except (QueryError, IdentifierError):  # another reference, a view, or a name that is computed at run time
        return None
    return tuple(sorted(found))


def _parse(tokens: Sequence[SqlToken]) -> exp.Expr:
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        parsed = sqlglot.parse(_skeleton(tokens), dialect=_DIALECT)
    except SqlglotError as error:
        try:
            parsed = sqlglot.parse(_skeleton(tokens, opened="("), dialect=_DIALECT)
        except SqlglotError:
            raise QueryError(f"Can't run this statement: {_error_location(error, tokens)}") from None
    except AssertionError:  # sqlglot raises it for a set operation's query without parentheses
        raise QueryError(
            "Can't run this statement: lakegate can't tell which tables it reads.",
            hint="Put the query after |> UNION, INTERSECT or EXCEPT in parentheses.",
        ) from None
    except RecursionError:
        raise QueryError("Can't run this statement: it's nested too deeply.") from None
    if len(parsed) != 1 or parsed[0] is None:
        raise QueryError("Can't run this statement: it isn't one statement.", hint="Run statements one at a time.")
    return parsed[0]


def _require_no_evolution(tokens: Sequence[SqlToken]) -> None:
    """Refuse Spark's ``WITH SCHEMA EVOLUTION``: it needs a table property that lets any write add any column."""
    words = [token.upper for token in tokens]
    if words[:1] in (["MERGE"], ["INSERT"]) and ("WITH", "SCHEMA", "EVOLUTION") in zip(
        words, words[1:], words[2:], strict=False
    ):
        raise QueryError(
            f"This {words[0]} can't change the table's columns: WITH SCHEMA EVOLUTION isn't supported.",
            hint="Leave it out, and add the columns first: ALTER TABLE … ADD COLUMN name TYPE in the same transaction, "
            "or lakegate table evolve TABLE 'ADD COLUMN name TYPE'",
        )


def _error_location(error: SqlglotError, tokens: Sequence[SqlToken]) -> str:
    errors: list[dict[str, object]] = getattr(error, "errors", [])
    first = errors[0] if errors else {}
    near = str(first.get("highlight") or "").strip()
    place = f"line {first['line']}" if first.get("line") else f"line {tokens[0].line}"
    return f"it isn't valid Spark SQL near {near!r} ({place})." if near else "it isn't valid Spark SQL."


def _skeleton(tokens: Sequence[SqlToken], opened: str | None = None) -> str:
    """Return the skeleton with syntax that sqlglot doesn't know replaced.

    ``TABLE t`` becomes ``SELECT * FROM t``. ``|> SET`` and ``|> DROP``, which only name columns, become similar
    clauses.

    Args:
        opened: ``"("`` to also replace ``TABLE`` after a parenthesis, where it's more often a column's name.
    """
    found = []
    for index, token in enumerate(tokens):
        before = [earlier.upper for earlier in tokens[max(0, index - 2) : index]]
        starts = (
            not before
            or before[-1] == opened
            or before[-1] in _SET_OPERATIONS
            or (before[-1] in _QUANTIFIERS and before[0] in _SET_OPERATIONS)
            or (before[-1] == "AS" and tokens[0].upper == "CREATE")
        )
        is_query = token.upper == "TABLE" and starts
        piped = _PIPED.get(token.upper) if before == ["|", ">"] else None
        known = "SELECT * FROM" if is_query else piped
        found.append(token if known is None else replace(token, text=known))
    return sql_skeleton(found)


def _target(tree: exp.Expr) -> exp.Table | None:
    """Return the table that a statement changes; ``None`` for a query."""
    if isinstance(tree, (exp.Query, exp.Values)):
        if any(isinstance(node, _WRITES) and not isinstance(node, exp.Query) for node in tree.walk()):
            raise _refusal(tree, "it changes something inside a query")
        return None
    if not isinstance(tree, (exp.Insert, exp.Merge, exp.Update, exp.Delete, exp.Create, exp.Drop)):
        raise _refusal(tree)
    if isinstance(tree, (exp.Create, exp.Drop)):
        _require_table(tree)
    found = tree.args["tables"][0] if isinstance(tree, exp.Drop) and tree.args.get("tables") else tree.this
    found = found.this if isinstance(found, exp.Schema) else found
    if not isinstance(found, exp.Table):
        raise _refusal(tree, "it doesn't write to a table")
    return found


def _require_table(tree: exp.Create | exp.Drop) -> None:
    if str(tree.args.get("kind")).upper() != "TABLE" or tree.find(exp.TemporaryProperty):
        raise _refusal(tree, "it can only create and drop tables; a namespace is created with its first table")
    if tree.args.get("purge") or len(tree.args.get("tables") or ()) > 1:
        raise _refusal(tree, "drop one table at a time, without PURGE, because other branches need its files")
    if tree.find(exp.LocationProperty):
        raise _refusal(tree, "lakegate chooses a table's folder; leave LOCATION out")


def _refusal(tree: exp.Expr, why: str | None = None) -> QueryError:
    name = str(tree.this).upper() if isinstance(tree, exp.Command) else tree.key.upper()
    return QueryError(
        f"A transaction can't run this {name} statement{f': {why}' if why else ''}.",
        hint="It can run queries, INSERT, MERGE, UPDATE, DELETE, and CREATE, ALTER and DROP TABLE.",
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
        raise QueryError(f"A transaction can't read through {name.upper()}().", hint="Write the table's name.")
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


def _table_identifier(table: exp.Table, others: Collection[str]) -> TableIdentifier:
    return _identifier(tuple(part.name for part in table.parts), others)


def _identifier(parts: Sequence[str], others: Collection[str]) -> TableIdentifier:
    text = ".".join(parts)
    if len(parts) == 1:
        raise QueryError(f"The table name '{text}' lacks a namespace.", hint=f"Write it as namespace.{text}.")
    if parts[0].lower() in others:
        raise QueryError(
            f"'{text}' isn't on the transaction's branch: '{parts[0]}' is another catalog.",
            hint="Read it in your own Spark session, and pass the rows as Arrow: frame.toArrow().",
        )
    if any("@" in part or "#" in part for part in parts):
        raise QueryError(
            f"'{text}' names a reference, but a transaction can only use the tables of its branch.",
            hint="Leave '@' and '#' out. To read at another reference: `lake.query(sql, ref=…)`",
        )
    if any("." in part for part in parts):
        raise QueryError(f"'{text}' isn't a valid table name: one of its parts contains a '.'.")
    try:
        return TableIdentifier.parse(".".join(parts[1:] if parts[0] == CATALOG and len(parts) > 2 else parts))
    except IdentifierError as error:
        raise QueryError(error.message, hint=error.hint) from None


def _require_names(tokens: Sequence[SqlToken], others: Collection[str]) -> None:
    """Refuse other references and catalogs anywhere a table can be named, however sqlglot parses them."""
    for index, token in enumerate(tokens):
        if token.upper in _BEFORE_NAMES:
            parts = _dotted_name(tokens, index + 1)
            if len(parts) > 1 and (parts[0].lower() in others or any("@" in part or "#" in part for part in parts)):
                _identifier(parts, others)


def _require_same_target(tokens: Sequence[SqlToken], target: exp.Table) -> None:
    depth = 0
    for index, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.upper, 0)
        if depth == 0 and token.upper in _CHANGES:
            at = index + 1
            while at < len(tokens) and tokens[at].upper in _BEFORE_TARGET:
                at += 1
            if [part.lower() for part in _dotted_name(tokens, at)] == [part.name.lower() for part in target.parts]:
                return
            break
    raise QueryError(
        "Can't tell which table this statement changes.",
        hint="Nothing was run. Write the table's name in backticks: `namespace`.`table`.",
    )


def _dotted_name(tokens: Sequence[SqlToken], at: int) -> list[str]:
    """Return the parts of the dotted name that starts at a token; empty if there's no name."""
    parts: list[str] = []
    while at < len(tokens) and tokens[at].kind in {"word", "quoted"}:
        parts.append(tokens[at].name)
        if at + 1 >= len(tokens) or tokens[at + 1].text != ".":
            break
        at += 2
    return parts


def _altered_table(tokens: Sequence[SqlToken], others: Collection[str]) -> TableIdentifier:
    parts = _dotted_name(tokens, 2) or [""]
    at = 2 * len(parts)
    words = [token.text.upper() for token in tokens[at + 1 : at + 3]]
    if not words or words[0] not in _ALTER_ACTIONS:
        raise QueryError(
            f"A transaction can't run ALTER TABLE … {' '.join(words)}.",
            hint="Allowed: ADD COLUMN name TYPE, DROP COLUMN name, RENAME COLUMN a TO b, ALTER COLUMN name TYPE type.",
        )
    reason = _ALTER_REFUSED.get((words[0], words[-1]))
    if reason is not None:
        raise QueryError(f"A transaction can't run ALTER TABLE … {' '.join(words)}: {reason}.")
    _require_plain_properties(tokens)
    return _identifier(parts, others)


def _require_plain_properties(tokens: Sequence[SqlToken]) -> None:
    """Refuse properties that move or delete a table's files, or change its current snapshot."""
    for key in _property_keys(tokens):
        if key in _PROPERTIES_REFUSED:
            raise QueryError(
                f"A transaction can't set the table property '{key}'.",
                hint="It could move or delete files that other branches need, or change rows without an audit.",
            )


def _property_keys(tokens: Sequence[SqlToken]) -> Iterator[str]:
    """Yield the keys of all property lists, in lower case.

    Raises:
        QueryError: When a list can't be parsed as ``key [= value]``.
    """
    for index, token in enumerate(tokens):
        if token.upper in _PROPERTY_LISTS:
            words = [following.upper for following in tokens[index + 1 : index + 3]]
            at = index + (3 if words == ["IF", "EXISTS"] else 1)
            if at < len(tokens) and tokens[at].text == "(":
                yield from _keys_in_list(tokens, at + 1)


def _keys_in_list(tokens: Sequence[SqlToken], at: int) -> Iterator[str]:
    while True:
        first = tokens[at]
        key, at = _property_key(tokens, at)
        # Without '=', a value looks like the key's next part.
        if not key or tokens[at].text not in {"=", ",", ")"}:
            raise QueryError(
                f"Can't read the table property at {first.position}.", hint="Write properties as 'key' = 'value'."
            )
        yield key
        depth = 0
        while depth or tokens[at].text not in {",", ")"}:  # values of OPTIONS are expressions
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(tokens[at].text, 0)
            at += 1
        if tokens[at].text == ")":
            return
        at += 1


def _property_key(tokens: Sequence[SqlToken], at: int) -> tuple[str, int]:
    """Return the key at a token, and where it ends; an empty key if Spark may read it differently."""
    if tokens[at].kind == "string":
        # Spark joins adjacent literals and resolves escapes, so only plain literals are accepted.
        text = tokens[at].text
        is_plain = text[0] in "'\"" and not set(text[1:-1]) & set("\\'\"")
        return (text[1:-1].lower() if is_plain else ""), at + 1
    parts = _dotted_name(tokens, at)
    return ".".join(parts).lower(), at + max(2 * len(parts) - 1, 0)


def _row_level_delete(tokens: Sequence[SqlToken], table: TableIdentifier) -> str:
    depth = 0
    for index, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.upper, 0)
        if depth == 0 and token.upper == "WHERE":
            head, condition = sql_text(tokens[: index + 1]), sql_text(tokens[index + 1 :])
            return f"{head} ({condition}) AND {_NOT_METADATA_ONLY}"
    name = table.sql(CATALOG)
    return f"INSERT OVERWRITE {name} SELECT * FROM {name} WHERE false"  # noqa: S608 - a quoted identifier
