"""Schemas, in the type words of the Iceberg spec ("Schemas and Data Types"), partitioning, and masks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Any, Literal, Self, TypeVar

from lakegate.errors import InputError, SchemaError
from lakegate.model.base import Value
from lakegate.model.types import (
    TypeDifference,
    common_type,
    find_part,
    path_parts,
    struct_fields,
    type_differences,
    wider_type,
)
from lakegate.model.words import did_you_mean, nearest

Key = TypeVar("Key")
RESERVED_COLUMNS = frozenset(
    {"_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id", "_spec_id"}
)
"""Iceberg's metadata columns (``MetadataColumns`` of 1.12). Spark reads no table that has such a column."""

MASK = "•••"
"""Shown in place of a masked value."""

FILE_COLUMN = "_file"
"""Iceberg's metadata column with the data file a row is in; examples carry it."""
FOLDER_VALUES = r"(/[^/=]+=)[^/]*(?=/)"
"""A folder of one partition in a file's path, up to the values that its name holds; for Python and for Spark."""


def reserved_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the top-level column ``names`` that are reserved, in whatever case.

    Example:
        >>> reserved_names(["id", "_File", "file"])
        ('_File',)
    """
    return tuple(name for name in names if name.lower() in RESERVED_COLUMNS)


class Column(Value):
    """A top-level column. ``type`` is an Iceberg type: ``long``, ``decimal(10, 2)``, ``list<string>``."""

    name: str
    type: str
    required: bool = False


class SchemaChange(Value):
    """A column that a run adds to its table, or widens, before it writes.

    Attributes:
        column: The column's name.
        before: Its type before; ``None`` for a new column.
    """

    column: str
    type: str
    before: str | None = None

    def parts(self) -> list[TypeDifference]:
        """Return what is added or widened: the column, or fields in it."""
        if self.before is None:
            return [TypeDifference((self.column,), None, self.type)]
        return list(type_differences(self.before, self.type, (self.column,)))

    def __str__(self) -> str:
        """Return the change as people read it."""
        told = []
        for one in self.parts():
            what, name = ("field", one.name) if len(one.path) > 1 else ("column", self.column)
            told.append(
                f"add {what} {name} ({one.other})"
                if one.one is None
                else f"widen {what} {name} from {one.one} to {one.other}"
            )
        return ", ".join(told)


class ColumnChange(Value):
    """One difference between a table's columns and those before.

    Attributes:
        change: ``added``, ``dropped``, ``renamed``, ``retyped``, ``required`` (no NULLs any more) or ``optional``.
        column: The column, by its newest name.
        before: Its name or type before.
        after: Its name or type after.
    """

    change: Literal["added", "dropped", "renamed", "retyped", "required", "optional"]
    column: str
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        """Return the change as people read it."""
        match self.change:
            case "added":
                return f"add column {self.column} ({self.after})"
            case "dropped":
                return f"drop column {self.column} ({self.before})"
            case "renamed":
                return f"rename column {self.before} to {self.after}"
            case "retyped":
                return f"change column {self.column} from {self.before} to {self.after}"
            case "required":
                return f"refuse NULL in column {self.column}"
            case "optional":
                return f"allow NULL in column {self.column}"


def column_changes(before: Mapping[Key, Column], after: Mapping[Key, Column]) -> Iterator[ColumnChange]:
    """Yield what differs between two schemas, by what a column keeps: its field id, or its name.

    Example:
        >>> price = Column(name="price", type="int")
        >>> renamed, wider = Column(name="fare", type="int"), Column(name="price", type="long")
        >>> [str(change) for change in column_changes({1: price}, {1: renamed, 2: wider})]
        ['rename column price to fare', 'add column price (long)']
    """
    for key, column in after.items():
        known = before.get(key)
        if known is None:
            yield ColumnChange(change="added", column=column.name, after=column.type)
            continue
        if known.name != column.name:
            yield ColumnChange(change="renamed", column=column.name, before=known.name, after=column.name)
        if known.type != column.type:
            yield ColumnChange(change="retyped", column=column.name, before=known.type, after=column.type)
        if known.required != column.required:
            yield ColumnChange(change="required" if column.required else "optional", column=column.name)
    for key, column in before.items():
        if key not in after:
            yield ColumnChange(change="dropped", column=column.name, before=column.type)


class Schema(Value):
    """The columns of a batch or of a table at one snapshot, in order."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        """Return the column called ``name``, ignoring case when no column has exactly this name.

        Example:
            >>> Schema(columns=(Column(name="Airport_fee", type="double"),)).find("airport_fee").name
            'Airport_fee'
        """
        by_case = next((column for column in self.columns if column.name == name), None)
        return by_case or next((column for column in self.columns if column.name.lower() == name.lower()), None)

    def resolve(self, name: str) -> tuple[tuple[str, ...], str] | None:
        """Return the path and the type of a column or of a field in a struct, or ``None`` when there is none.

        A column whose own name holds dots comes before a field; odd names in a path are in backticks.

        Example:
            >>> schema = Schema(columns=(Column(name="address", type="struct<zip: string, geo: struct<lat: double>>"),))
            >>> schema.resolve("Address.geo.lat")
            (('address', 'geo', 'lat'), 'double')
        """
        column = self.find(name)
        if column is not None:
            return (column.name,), column.type
        first, *rest = path_parts(name) or [""]
        column = self.find(first)
        if column is None or not rest:
            return None
        path, kind = [column.name], column.type
        for part in rest:
            found = find_part(struct_fields(kind), part)
            if found is None:
                return None
            path.append(found[0])
            kind = found[1]
        return tuple(path), kind

    def changed(self, changes: Iterable[SchemaChange]) -> Schema:
        """Return the schema after ``changes``; those that were made already change nothing.

        Example:
            >>> ids = Schema(columns=(Column(name="id", type="int"),))
            >>> wider = SchemaChange(column="id", type="long", before="int")
            >>> after = ids.changed([wider, SchemaChange(column="zone", type="string")])
            >>> [f"{column.name} {column.type}" for column in after.columns]
            ['id long', 'zone string']
        """
        columns = list(self.columns)
        for change in changes:
            known = self.find(change.column)
            if known is None:
                columns.append(Column(name=change.column, type=change.type))
            else:
                columns[columns.index(known)] = known.model_copy(update={"type": change.type})
        return Schema(columns=tuple(columns))

    def nearest(self, name: str) -> str | None:
        """Return the column name most like ``name``, or ``None`` when none is close."""
        return nearest(name, self.names)


def merged(schemas: Iterable[Schema]) -> Schema:
    """Return the columns of all ``schemas``, each of a type that loses nothing of any; their order doesn't matter.

    Whole numbers beside doubles are doubles; the engine refuses those beyond 2^53, which a double may round.

    Example:
        >>> a, b = (Schema(columns=(Column(name="id", type=kind),)) for kind in ("int", "long"))
        >>> merged([a, b]).columns[0].type
        'long'
    """
    by_name: dict[str, list[Column]] = {}
    for column in (column for schema in schemas for column in schema.columns):
        by_name.setdefault(column.name.lower(), []).append(column)
    return Schema(columns=tuple(map(_common, by_name.values())))


def _common(columns: Sequence[Column]) -> Column:
    """Return a column of the type that takes all those of ``columns``, in whatever order they come."""
    first, types = columns[0], dict.fromkeys(column.type for column in columns)
    joined = common_type([*types])
    if joined is not None:
        return first.model_copy(update={"type": joined})
    found = next(
        each
        for one, other in combinations(types, 2)
        for each in type_differences(one, other, (first.name,))
        if each.one is not None and each.other is not None and wider_type(each.one, each.other) is None
    )
    what = "Column" if len(found.path) == 1 else "Field"
    name = first.name if len(found.path) == 1 else found.name
    raise SchemaError(
        f"{what} '{name}' is {found.one} in some files of the batch and {found.other} in others; "
        "neither type holds the values of both.",
        hint="Ingest the files of each type on their own, or write them again alike.",
        column=first.name,
    )


TransformName = Literal["identity", "years", "months", "days", "hours", "bucket"]

_CALL = re.compile(r"(?P<name>[a-z]+)\(\s*(?:(?P<width>[0-9]+)\s*,\s*)?(?P<column>[^(),]+?)\s*\)")
_PLAIN_COLUMN = re.compile(r"[A-Za-z0-9_.]+")
_MAX_BUCKETS = 2**31 - 1
_TIME_TYPES = {
    "years": ("date", "timestamp", "timestamptz"),
    "months": ("date", "timestamp", "timestamptz"),
    "days": ("date", "timestamp", "timestamptz"),
    "hours": ("timestamp", "timestamptz"),
}


class PartitionTransform(Value):
    """One partition field (Iceberg spec, "Partition Transforms"). ``width`` is the number of buckets."""

    name: TransformName
    column: str
    width: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a transform.

        Raises:
            InputError: When it isn't one of ``column``, ``years|months|days|hours(column)``, ``bucket(n, column)``.

        Example:
            >>> PartitionTransform.parse("bucket(16, id)")
            PartitionTransform(name='bucket', column='id', width=16)
        """
        call = _CALL.fullmatch(text.strip())
        if call is None:
            if "(" not in text and ")" not in text and text.strip():
                return cls(name="identity", column=text.strip())
        elif call["name"] in _TIME_TYPES and call["width"] is None:
            return cls.model_validate({"name": call["name"], "column": call["column"]})
        elif call["name"] == "bucket" and 0 < int(call["width"] or 0) <= _MAX_BUCKETS:
            return cls(name="bucket", column=call["column"], width=int(call["width"]))
        raise InputError(
            f"'{text}' isn't a way to partition.",
            hint="Use column, years(column), months(column), days(column), hours(column) or bucket(16, column).",
        )

    def validate_for(self, schema: Schema) -> None:
        """Check that the transform can be applied to ``schema``.

        Raises:
            InputError: When the column is missing (naming the nearest one), or can't partition by its name or type.
        """
        column = schema.find(self.column)
        if column is None:
            guess = did_you_mean(self.column, schema.names).strip()
            raise InputError(
                f"Can't partition by '{self.column}': the batch has no such column.",
                hint=guess or f"Columns: {', '.join(schema.names)}.",
                column=self.column,
            )
        if not _PLAIN_COLUMN.fullmatch(column.name):
            raise InputError(
                f"Can't partition by '{column.name}': Spark reads the name of a partition's column as SQL, unquoted.",
                hint="Give the column a name of ASCII letters, digits and '_', or partition by another one.",
                column=column.name,
            )
        allowed = _TIME_TYPES.get(self.name)
        if (allowed and column.type not in allowed) or "<" in column.type:
            raise InputError(
                f"Can't partition by {self.name}({self.column}): the column is of type {column.type}.",
                hint=f"{self.name} takes {' or '.join(allowed)}." if allowed else "Nested columns can't partition.",
                column=self.column,
            )


def is_masked(patterns: Sequence[str], column: str, fields: Iterable[Sequence[str]] = ()) -> bool:
    """Return whether a column's values are masked.

    A pattern may mean a column, a struct that it's in, or a field in it: what holds a masked value is masked whole.

    Args:
        patterns: Patterns of names or of paths, in any case.
        column: Name of a column, or path of a field; odd names may be in backticks.
        fields: Paths, below it, of the fields in its type.

    Example:
        >>> is_masked(["e-mail"], "contact.`E-Mail`"), is_masked(["contact.*"], "contact", [("zip",)])
        (True, True)
        >>> is_masked(["e-mail"], "contact", [("zip",)])
        False
    """
    if not patterns:
        return False
    above = path_parts(column) or [column]
    names = {column.lower()}
    for below in ((), *fields):
        path = [part.lower() for part in (*above, *below)]
        ends = range(1, len(path) + 1)
        names.update(".".join(path[start:end]) for end in ends for start in range(end))
    return any(fnmatchcase(name, pattern.lower()) for name in names for pattern in patterns)


def masked_row(patterns: Sequence[str], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose masked values are replaced; a value with fields counts as the struct that it is.

    With any pattern, so is each partition's value in the path of its data file: a folder doesn't say what column its
    value is of, which may have another name by now.

    Example:
        >>> masked_row(["zip"], {"id": 1, "home": {"zip": "0123"}, "home.zip": "0123"})
        {'id': 1, 'home': '•••', 'home.zip': '•••'}
        >>> masked_row(["zip"], {"_file": "file:/data/zip_trunc=01/day=2026-01-31/1.parquet"})
        {'_file': 'file:/data/zip_trunc=•••/day=•••/1.parquet'}
    """
    shown = {name: MASK if is_masked(patterns, name, _fields(value)) else value for name, value in row.items()}
    if patterns and isinstance(path := shown.get(FILE_COLUMN), str):
        shown[FILE_COLUMN] = re.sub(FOLDER_VALUES, rf"\g<1>{MASK}", path)
    return shown


def _fields(value: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield (str(name),)
            yield from ((str(name), *below) for below in _fields(inner))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _fields(one)
