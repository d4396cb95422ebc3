"""Schemas with types as the Iceberg spec writes them ("Schemas and Data Types"), partitioning, and masking."""

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
    type_words,
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
POSITION_COLUMN = "_pos"
"""Iceberg's metadata column with a row's position in its data file, from 0."""
ROW_COLUMN = "_row"
"""In an example: the number of the row in its source file, from 1, without a header."""
FOLDER_VALUES = r"(/[^/=]+=)[^/]*(?=/)"
"""A folder of one partition in a file's path, up to the values that its name holds; for Python and for Spark."""


def reserved_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the top-level column ``names`` that are reserved, in any case.

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
    """A column that a run adds to its table, or whose type it widens, before it writes.

    Attributes:
        column: The column's name.
        before: Its type before; ``None`` for a new column.
    """

    column: str
    type: str
    before: str | None = None

    def parts(self) -> list[TypeDifference]:
        """Return what is added or widened: the column, or fields of it."""
        if self.before is None:
            return [TypeDifference((self.column,), None, self.type)]
        return list(type_differences(self.before, self.type, (self.column,)))

    def __str__(self) -> str:
        """Describe the change in words."""
        changes = []
        for part in self.parts():
            noun, name = ("field", part.name) if len(part.path) > 1 else ("column", self.column)
            added, widened = f"add {noun} {name} ({part.other})", f"widen {noun} {name} from {part.one} to {part.other}"
            changes.append(added if part.one is None else widened)
        return ", ".join(changes)


class ColumnChange(Value):
    """One change of a table's columns.

    Attributes:
        change: ``added``, ``dropped``, ``renamed``, ``retyped``, ``required`` (no longer takes NULL) or ``optional``.
        column: The column's newest name.
        before: Its former name or type.
        after: Its new name or type.
    """

    change: Literal["added", "dropped", "renamed", "retyped", "required", "optional"]
    column: str
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        """Describe the change in words."""
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
    """Yield the changes between two schemas; columns with the same key (field id or name) are the same column.

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

    @property
    def uuids(self) -> tuple[str, ...]:
        """Columns of UUIDs, or with some inside.

        Iceberg for Java orders UUIDs as signed numbers (apache/iceberg#14216), so a filter on them skips files with
        rows that match it.
        """
        return tuple(column.name for column in self.columns if "uuid" in type_words(column.type))

    def find(self, name: str) -> Column | None:
        """Return the column called ``name``; case is ignored if no column has exactly this name.

        Example:
            >>> Schema(columns=(Column(name="Airport_fee", type="double"),)).find("airport_fee").name
            'Airport_fee'
        """
        by_case = next((column for column in self.columns if column.name == name), None)
        return by_case or next((column for column in self.columns if column.name.lower() == name.lower()), None)

    def resolve(self, name: str) -> tuple[tuple[str, ...], str] | None:
        """Return the path and type of a column or a struct's field; ``None`` if there is none.

        A column whose own name contains dots takes precedence over a field. Quote other names in backticks.

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
        """Return the schema after ``changes``; ones already made have no effect.

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

    def pending(self, changes: Iterable[SchemaChange]) -> tuple[SchemaChange, ...]:
        """Return the ``changes`` that aren't made yet, each with the column's type of now."""
        left = ((one, self.find(one.column)) for one in changes if self.changed([one]) != self)
        return tuple(one.model_copy(update={"before": column and column.type}) for one, column in left)

    def nearest(self, name: str) -> str | None:
        """Return the column name most similar to ``name``; ``None`` if none is close."""
        return nearest(name, self.names)


def merged(schemas: Iterable[Schema]) -> Schema:
    """Return the columns of all ``schemas``, each with a type that loses no value, whatever the order of ``schemas``.

    Integers mixed with doubles become doubles. The engine refuses integers beyond 2^53, which a double may round.

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
    """Return a column whose type holds the values of all ``columns``, whatever their order."""
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
        hint="Ingest the files of each type separately, or rewrite them with one type.",
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
            InputError: If it isn't ``column``, ``years|months|days|hours(column)``, ``bucket(n, column)``.

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
            f"Invalid partitioning '{text}'.",
            hint="Use column, years(column), months(column), days(column), hours(column) or bucket(16, column).",
        )

    def validate_for(self, schema: Schema) -> None:
        """Check that the transform can be applied to ``schema``.

        Raises:
            InputError: If the column is missing (the hint names a similar one), or its name or type isn't supported.
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
                f"Can't partition by '{column.name}': Spark doesn't quote the names of partition columns.",
                hint="Rename the column to ASCII letters, digits and '_', or partition by another one.",
                column=column.name,
            )
        allowed = _TIME_TYPES.get(self.name)
        if (allowed and column.type not in allowed) or "<" in column.type:
            raise InputError(
                f"Can't partition by {self.name}({self.column}): the column is of type {column.type}.",
                hint=f"{self.name} takes {' or '.join(allowed)}."
                if allowed
                else "Partition by a column that isn't nested.",
                column=self.column,
            )


def is_masked(patterns: Sequence[str], column: str, fields: Iterable[Sequence[str]] = ()) -> bool:
    """Return whether a column's values are masked.

    A pattern may match the column, a struct that contains it, or a field in it. If a part of a value is masked, the
    whole value is.

    Args:
        patterns: Patterns of names or paths, in any case.
        column: A column's name, or a field's path, with special names in backticks.
        fields: Paths of the fields in its type, relative to it.

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
    """Return a row with its masked values replaced; mappings count as structs.

    With any pattern, the partition values in paths of data files are replaced, too: a path doesn't show which column a
    value belongs to, because the column may have been renamed.

    Example:
        >>> masked_row(["zip"], {"id": 1, "home": {"zip": "0123"}, "home.zip": "0123"})
        {'id': 1, 'home': '•••', 'home.zip': '•••'}
        >>> masked_row(["zip"], {"_file": "file:/data/zip_trunc=01/day=2026-01-31/1.parquet"})
        {'_file': 'file:/data/zip_trunc=•••/day=•••/1.parquet'}
    """
    shown = {name: MASK if is_masked(patterns, name, _fields(value)) else value for name, value in row.items()}
    if isinstance(path := shown.get(FILE_COLUMN), str):
        shown[FILE_COLUMN] = masked_path(patterns, path)
    return shown


def masked_path(patterns: Sequence[str], path: str) -> str:
    """Return the path of a file without values in the names of its folders, if there's any pattern."""
    return re.sub(FOLDER_VALUES, rf"\g<1>{MASK}", path) if patterns else path


def _fields(value: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield (str(name),)
            yield from ((str(name), *below) for below in _fields(inner))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _fields(one)
