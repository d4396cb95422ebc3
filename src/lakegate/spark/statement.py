"""Check the statements of transactions before the engine sees them.

sqlglot finds the tables that a statement reads and writes. Spark gets the tokens that sqlglot parsed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from lakegate.errors import IdentifierError, QueryError
from lakegate.model.identifiers import RESERVED_NAMESPACES, TableIdentifier
from lakegate.model.sqltext import SqlToken, sql_text
from lakegate.model.tables import FOLDER_PROPERTIES
from lakegate.spark.guard import parenthesized, parse, statement_tokens
from lakegate.spark.sessions import CATALOG

_WRITES = (exp.DML, exp.DDL, exp.Command)
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
    if [token.upper for token in tokens[:2]] == ["ALTER", "TABLE"]:
        return Statement(sql_text(tokens), written=frozenset({_altered_table(tokens, others)}))
    tree = parse(tokens, "statement")
    target = _target(tree)
    read = frozenset(_identifier(_parts(table), others) for table in _tables(tree) if table is not target)
    if target is None:
        return Statement(parenthesized(tokens), read)
    written = frozenset({_identifier(_parts(target), others)})
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
        for table in _tables(parse(statement_tokens(sql, "statement"), "statement")):
            parts = _parts(table)
            if len(parts) > 1 and parts[0].lower() in _OTHER_CATALOGS:
                continue
            name = _identifier(parts, ())
            found.add(str(name))
            if name.name.lower() in _METADATA_TABLES and len(name.namespace) > 1:
                found.add(str(TableIdentifier.parse(".".join(name.namespace))))
    except (QueryError, IdentifierError):  # another reference, a view, or a name that is computed at run time
        return None
    return tuple(sorted(found))


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
        if table.find_ancestor(exp.Hint) is None and not isinstance(table.this, exp.Func) and not _is_cte(table):
            yield table


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


def _parts(table: exp.Table) -> list[str]:
    return [part.name for part in table.parts]


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
            is_unset = [following.upper for following in tokens[index + 1 : index + 3]] == ["IF", "EXISTS"]
            rest = tokens[index + (3 if is_unset else 1) :]
            if rest and rest[0].text == "(":
                yield from _keys_in_list(rest)


def _keys_in_list(tokens: Sequence[SqlToken]) -> Iterator[str]:
    depth, begins = 0, False
    for at, token in enumerate(tokens):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token.text, 0)
        if depth == 0:
            return
        if begins:
            parts = [token.text[1:-1]] if token.kind == "string" else _dotted_name(tokens, at)
            after = tokens[at + max(2 * len(parts) - 1, 1)]
            # Spark joins adjacent literals and resolves escapes. Without '=', a value looks like the key's next part.
            if not parts or set(parts[0]) & set("\\'\"") or after.text not in {"=", ",", ")"}:
                raise QueryError(
                    f"Can't read the table property at {token.position}.", hint="Write properties as 'key' = 'value'."
                )
            yield ".".join(parts).lower()
        begins = depth == 1 and token.text in {"(", ","}


def _row_level_delete(tokens: Sequence[SqlToken], table: TableIdentifier) -> str:
    depth = 0
    for index, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.upper, 0)
        if depth == 0 and token.upper == "WHERE":
            head, condition = sql_text(tokens[: index + 1]), sql_text(tokens[index + 1 :])
            return f"{head} ({condition}) AND {_NOT_METADATA_ONLY}"
    name = table.sql(CATALOG)
    return f"INSERT OVERWRITE {name} SELECT * FROM {name} WHERE false"  # noqa: S608 - a quoted identifier
