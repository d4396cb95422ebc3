"""Steps of a history in SQL: each draws its statement from what the table's columns are when its turn comes."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "insert",
    "insert_select",
    "add_column",
    "drop_column",
    "rename",
    "swap",
    "widen",
    "property",
    "order",
    "partition",
    "replace",
    "recreate",
    "drop",
    "overwrite",
    "delete",
    "update",
    "merge",
    "truncate",
    "rollback",
    "compact",
    "manifests",
    "expire",
]
WEIGHTS: Mapping[Kind, int] = {
    "insert": 12,
    "insert_select": 2,
    "add_column": 4,
    "drop_column": 2,
    "rename": 3,
    "swap": 3,
    "widen": 2,
    "property": 2,
    "order": 1,
    "partition": 2,
    "replace": 3,
    "recreate": 1,
    "drop": 1,
    "overwrite": 3,
    "delete": 4,
    "update": 3,
    "merge": 3,
    "truncate": 1,
    "rollback": 4,
    "compact": 2,
    "manifests": 2,
    "expire": 2,
}
BY_HAND: frozenset[Kind] = frozenset({"truncate", "rollback", "compact", "manifests", "expire"})
"""What a transaction does not run; a session of one's own does."""
BY_TRANSACTION: frozenset[Kind] = frozenset({"insert_select"})
"""What depends on rows that it reads: only a transaction can know that."""
APPENDS: frozenset[Kind] = frozenset({"insert", "insert_select"})
CHANGES_NO_ROWS: frozenset[Kind] = frozenset({"compact", "manifests"})
"""What a serial replay leaves out: it is about files, not about rows."""

Columns = Mapping[str, str]
"""Names and Iceberg types."""
_SQL_TYPES = {"long": "bigint", "int": "int", "string": "string", "double": "double", "float": "float"}
_ADDED = ("x1", "x2", "x3")
_NAMES = ("id", "a", "b", "c", "d", *_ADDED)


@dataclass(frozen=True)
class Step:
    """One thing that an actor does; ``number`` is what it is drawn by."""

    kind: Kind
    number: int


def statements(step: Step, table: str, columns: Columns, catalog: str) -> Sequence[str]:
    """Return the SQL of a step on a table with these columns; nothing when there is nothing to do it to.

    Rollbacks and expiries are not in here: their statements name a snapshot.
    """
    draw = random.Random(step.number)
    return _WAYS[step.kind](draw, table, columns, catalog) if columns or step.kind == "recreate" else ()


def creation(table: str, *, merge_on_read: bool, partitioned: bool) -> str:
    """Return the statement that makes the table of a history."""
    mode = "merge-on-read" if merge_on_read else "copy-on-write"
    modes = ", ".join(f"'write.{what}.mode'='{mode}'" for what in ("delete", "update", "merge"))
    by = " PARTITIONED BY (bucket(2, id))" if partitioned else ""
    return f"CREATE TABLE {table} (id bigint, a int, b string, c float) USING iceberg{by} TBLPROPERTIES ({modes})"


def insertion(number: int, table: str, columns: Columns, *, clean: bool = False) -> str:
    """Return an INSERT of some rows drawn by ``number``; ``clean`` ones have ids, and all of them different."""
    draw = random.Random(number)
    rows = [
        ", ".join(_value(draw, name, kind, number * 10 + at, clean=clean) for name, kind in columns.items())
        for at in range(draw.randint(1, 3))
    ]
    values = ", ".join(f"({row})" for row in rows)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {values}"


def insertion_of(merge: str) -> str:
    """Return the INSERT that a MERGE of these histories comes to when no row of the table matches."""
    found = re.fullmatch(r"MERGE INTO (\S+) t USING \(SELECT (.*)\) s ON .*", merge)
    assert found is not None, merge
    names = re.findall(r" AS (\w+)(?:, |$)", found[2])
    return f"INSERT INTO {found[1]} ({', '.join(names)}) SELECT {found[2]}"


def _value(draw: random.Random, name: str, kind: str, unique: int, *, clean: bool) -> str:
    chance = draw.random()
    if name == "id" and kind == "long" and (clean or chance < 0.85):
        return str(unique)
    if chance > 0.93 or (chance > 0.8 and not clean):
        return f"CAST(NULL AS {_SQL_TYPES[kind]})"
    text = f"'{draw.choice('12345')}'" if kind == "string" else str(draw.randint(-3, 6))
    return f"CAST({text} AS {_SQL_TYPES[kind]})"


def _insert(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    return [insertion(draw.randrange(10**6), table, columns)]


def _insert_select(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    names = ", ".join(columns)
    return [f"INSERT INTO {table} ({names}) SELECT {names} FROM {table} WHERE {_where(draw, columns)}"]


def _add_column(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    where = draw.choice(["", " FIRST", f" AFTER {draw.choice(list(columns))}"])
    return [f"ALTER TABLE {table} ADD COLUMN {draw.choice(_ADDED)} {draw.choice(['int', 'string', 'float'])}{where}"]


def _drop_column(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    return [f"ALTER TABLE {table} DROP COLUMN {draw.choice(list(columns))}"] if len(columns) > 1 else []


def _rename(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    free = [name for name in _NAMES if name not in columns]
    return [f"ALTER TABLE {table} RENAME COLUMN {draw.choice(list(columns))} TO {draw.choice(free)}"] if free else []


def _swap(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    if len(columns) < 2:
        return []
    one, other = draw.sample(list(columns), 2)
    ways = ((one, "zz"), (other, one), ("zz", other))
    return [f"ALTER TABLE {table} RENAME COLUMN {before} TO {after}" for before, after in ways]


def _widen(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    wider = {"int": "bigint", "float": "double"}
    fitting = [name for name, kind in columns.items() if kind in wider]
    if not fitting:
        return []
    name = draw.choice(fitting)
    return [f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {wider[columns[name]]}"]


def _property(draw: random.Random, table: str, _columns: Columns, _: str) -> Sequence[str]:
    return [f"ALTER TABLE {table} SET TBLPROPERTIES ('note'='{draw.randint(1, 99)}')"]


def _order(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    return [f"ALTER TABLE {table} WRITE ORDERED BY {draw.choice(list(columns))}"]


def _partition(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    fitting = [name for name, kind in columns.items() if kind in ("long", "int", "string")]
    if not fitting:
        return []
    return [f"ALTER TABLE {table} ADD PARTITION FIELD truncate({draw.choice((2, 4))}, {draw.choice(fitting)})"]


def _replace(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    kept = [name for name in columns if draw.random() < 0.8] or list(columns)
    query = f"SELECT {', '.join(kept)} FROM {table} WHERE {_where(draw, columns)}"
    return [f"CREATE OR REPLACE TABLE {table} USING iceberg AS {query}"]


def _recreate(draw: random.Random, table: str, columns: Columns, catalog: str) -> Sequence[str]:
    new = {"id": "long", "a": "int", "b": "string"}
    made = f"CREATE TABLE {table} (id bigint, a int, b string) USING iceberg"
    return [*(_drop(draw, table, columns, catalog) if columns else ()), made, *_insert(draw, table, new, catalog)]


def _drop(_draw: random.Random, table: str, _columns: Columns, _: str) -> Sequence[str]:
    return [f"DROP TABLE {table}"]


def _overwrite(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    values = insertion(draw.randrange(10**6), table, columns)
    return [values.replace("INSERT INTO", "INSERT OVERWRITE", 1)]


def _delete(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    return [f"DELETE FROM {table} WHERE {_where(draw, columns)}"]


def _update(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    name = draw.choice(list(columns))
    value = _value(draw, name, columns[name], draw.randrange(10**6), clean=False)
    return [f"UPDATE {table} SET {name} = {value} WHERE {_where(draw, columns)}"]


def _merge(draw: random.Random, table: str, columns: Columns, _: str) -> Sequence[str]:
    key = draw.choice(list(columns))
    row = {name: _value(draw, name, kind, draw.randrange(10**6), clean=False) for name, kind in columns.items()}
    given = ", ".join(f"{value} AS {name}" for name, value in row.items())
    matched = draw.choice(["DELETE", "UPDATE SET *"])
    using = f"MERGE INTO {table} t USING (SELECT {given}) s ON t.{key} = s.{key}"
    return [f"{using} WHEN MATCHED THEN {matched} WHEN NOT MATCHED THEN INSERT *"]


def _truncate(_draw: random.Random, table: str, _columns: Columns, _: str) -> Sequence[str]:
    return [f"TRUNCATE TABLE {table}"]


def _nothing(_draw: random.Random, _table: str, _columns: Columns, _: str) -> Sequence[str]:
    return []


def _compact(_draw: random.Random, table: str, _columns: Columns, catalog: str) -> Sequence[str]:
    return [f"CALL {catalog}.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"]


def _manifests(_draw: random.Random, table: str, _columns: Columns, catalog: str) -> Sequence[str]:
    return [f"CALL {catalog}.system.rewrite_manifests(table => '{table}')"]


def _where(draw: random.Random, columns: Columns) -> str:
    name = draw.choice(list(columns))
    if draw.random() < 0.3:
        return f"{name} IS {draw.choice(['', 'NOT '])}NULL"
    text = f"'{draw.choice('12345')}'" if columns[name] == "string" else str(draw.randint(-3, 6))
    # Iceberg 1.12 deletes whole files by their metrics, and takes NULL for unequal then; Spark, row by row, does not.
    return f"({name} IS NOT NULL AND {name} {draw.choice(['=', '<>', '<', '>='])} {text})"


_WAYS: Mapping[Kind, Callable[[random.Random, str, Columns, str], Sequence[str]]] = {
    "insert": _insert,
    "insert_select": _insert_select,
    "add_column": _add_column,
    "drop_column": _drop_column,
    "rename": _rename,
    "swap": _swap,
    "widen": _widen,
    "property": _property,
    "order": _order,
    "partition": _partition,
    "replace": _replace,
    "recreate": _recreate,
    "drop": _drop,
    "overwrite": _overwrite,
    "delete": _delete,
    "update": _update,
    "merge": _merge,
    "truncate": _truncate,
    "rollback": _nothing,
    "compact": _compact,
    "manifests": _manifests,
    "expire": _nothing,
}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """A check, as lakegate is asked and as a reference reads it.

    Attributes:
        text: What lakegate is asked.
        column: The column, if it is about one.
        whole: Whether it is about the whole table whatever was done to it.
        holds: Tells from all rows that it is about whether it is true.
    """

    text: str
    column: str | None
    holds: Callable[[Sequence[Row]], bool]
    whole: bool = False


def _unique(rows: Sequence[Row]) -> bool:
    return all(number == 1 for key, number in Counter(row["id"] for row in rows).items() if key is not None)


def _in_range(rows: Sequence[Row]) -> bool:
    return all(row["a"] is None or -2 <= row["a"] <= 6 for row in rows)


RULES: Sequence[Rule] = (
    Rule("not_null(id)", "id", lambda rows: all(row["id"] is not None for row in rows)),
    Rule("not_null(b)", "b", lambda rows: all(row["b"] is not None for row in rows)),
    Rule("unique(id)", "id", _unique),
    Rule("unique(id, scope='table')", "id", _unique, whole=True),
    Rule("row_count(min=1, max=9)", None, lambda rows: 1 <= len(rows) <= 9),
    Rule("in_range(a, -2, 6)", "a", _in_range),
)
