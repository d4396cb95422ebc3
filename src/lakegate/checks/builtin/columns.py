"""Checks of the table's columns: their names and types, and how a run changes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Unpack

from lakegate.checks.definition import CheckOptions, ColumnName, OtherColumns, audited
from lakegate.checks.questions import AboutChange, AboutColumns, Finding
from lakegate.checks.registry import check
from lakegate.model.checks import Check
from lakegate.model.schema import Column, Schema
from lakegate.model.types import type_differences
from lakegate.model.words import nearest

_SPARK = {"bigint": "long", "integer": "int", "tinyint": "int", "smallint": "int", "byte": "int", "short": "int",
          "real": "float", "timestamp_ntz": "timestamp", "timestamp_ltz": "timestamptz", "varchar": "string",
          "text": "string", "array": "list", "bool": "boolean", "numeric": "decimal"}  # fmt: skip
_KNOWN = frozenset(
    {"boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "timestamp_ns",
     "timestamptz_ns", "string", "uuid", "binary", "decimal", "fixed", "struct", "list", "map", "variant", "unknown",
     "geometry", "geography"}
)  # fmt: skip
_NOT_NULL = re.compile(r"\s+not\s+null$", re.IGNORECASE)
_NAME = re.compile(r"\w+")
_TOKEN = re.compile(r"(`(?:[^`]|``)*`|\w+)(?:\s*(:)\s*)?|\s*([<>(),])\s*|.", re.DOTALL)
"""A field's name with its colon, a word of a type, a punctuation mark, or anything else."""
_SEPARATOR = re.compile(r"(`(?:[^`]|``)*`)|[:,]")
_SHOWN = 10


@check(example="columns_match(['id: long not null', 'fare: double', 'note'])",
       parameter_aliases={"columns": "expected"}, nulls="–", nans="–",
       evidence="manifest, both ways")  # fmt: skip
def columns_match(
    expected: Sequence[str],
    *,
    mode: Literal["strict", "additive"] = "strict",
    ordered: bool = False,
    ignore_case: bool = False,
    **options: Unpack[CheckOptions],
) -> AboutColumns:
    """The table has the ``expected`` columns, with the types and NOT NULL constraints given there.

    A column is ``'name'``, ``'name: type'`` or ``'name: type not null'``; types are Iceberg's (``long``, ``decimal(9,
    2)``, ``list<string>``) or Spark's. ``mode='strict'`` refuses columns that aren't listed, ``mode='additive'`` allows
    them. With ``ordered=True``, the listed columns must be in this order; others may be in between. Names are compared
    exactly, including case and the names of struct fields, as in ``struct<email: string>``. With ``ignore_case=True``,
    neither case nor the order of struct fields matters.

    Example:
        >>> str(columns_match(["id: long", "fare"], mode="additive"))
        "columns_match(expected=['id: long', 'fare'], mode='additive')"
    """
    wanted = [_ExpectedColumn.parse(text) for text in expected]

    def judge(schema: Schema) -> Finding:
        there = {one: one.find(schema, ignore_case=ignore_case) for one in wanted}
        problems = [problem for one, found in there.items() if (problem := one.problem(found, by_name=ignore_case))]
        names = [column.name for column in there.values() if column is not None]
        extra = [name for name in schema.names if name not in names] if mode == "strict" else []
        problems += [f"{name} isn't expected" for name in extra]
        if ordered and not problems:
            listed = [name for name in schema.names if name in names]
            problems = [f"the order is {', '.join(listed)}"] if listed != names else []
        return _finding_of(problems)

    return AboutColumns(judge)


@columns_match.prepare
def _prepare_columns(check: Check) -> Check:
    wanted = [_ExpectedColumn.parse(text) for text in check.arguments["expected"]]
    if not wanted:
        raise ValueError("the list is empty.")
    names = [one.name for one in wanted]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"column '{twice}' is listed twice.")
    return check


@columns_match.claim
def _claim_columns(check: Check) -> str:
    others = " and no others" if check.arguments.get("mode", "strict") == "strict" else ""
    return f"the table has the columns {', '.join(check.arguments['expected'])}{others}"


@check(example="column_exists(fare_amount)", nulls="–", nans="–", evidence="manifest, both ways")
def column_exists(column_name: OtherColumns, **options: Unpack[CheckOptions]) -> AboutColumns:
    """The table has the column ``column_name``.

    Pass a list to require several columns. ``address.zip`` is a field of a struct. Case matters. (A check on a missing
    column doesn't fail: the command is refused before anything is written.)

    Example:
        >>> str(column_exists("fare_amount"))
        "column_exists(column_name='fare_amount')"
    """
    names = [column_name] if isinstance(column_name, str) else list(column_name)

    def judge(schema: Schema) -> Finding:
        found = {name: schema.resolve(name) for name in names}
        there = {name for name, one in found.items() if one is not None and ".".join(one[0]) == name.replace("`", "")}
        return _finding_of([f"{name} is missing" for name in names if name not in there])

    return AboutColumns(judge)


@check(name="type", example="type(fare_amount, 'double')", nulls="–", nans="–", evidence="manifest, both ways")
def column_type(column: ColumnName, type: str, **options: Unpack[CheckOptions]) -> AboutColumns:
    """``column`` is of type ``type``.

    Use Iceberg's or Spark's type names; ``timestamp`` is Iceberg's, without a time zone. In Python: ``column_type``.

    Example:
        >>> str(column_type("fare_amount", "double"))
        "type(fare_amount, type='double')"
    """
    found = audited(column)
    problem = None if _canonical(found.type.text) == _read_type(type) else f"{found.name} is of type {found.type.text}"
    return AboutColumns(lambda _: _finding_of([problem] if problem else []))


@column_type.prepare
def _prepare_type(check: Check) -> Check:
    _read_type(check.arguments["type"])
    return check


@check(example="schema_changes()", nulls="–", nans="–", evidence="manifest, both ways")
def schema_changes(allow: Literal["none", "added"] = "none", **options: Unpack[CheckOptions]) -> AboutChange:
    """The run doesn't add, drop, reorder or retype any of the table's columns.

    ``allow='added'`` permits new columns. Skipped for the run that creates the table, and in audits of published data.

    Example:
        >>> str(schema_changes(allow="added"))
        "schema_changes(allow='added')"
    """

    def judge(before: Schema | None, after: Schema) -> Finding:
        if before is None:
            return Finding(0, "The run creates the table.", skipped=True)
        types = {column.name: column for column in after.columns}
        problems = [f"{one.name} was dropped" for one in before.columns if one.name not in types]
        for one in before.columns:
            now = types.get(one.name)
            if now is not None and now.type != one.type:
                problems.append(f"{one.name} was of type {one.type} and is {now.type}")
            elif now is not None and now.required != one.required:
                problems.append(f"{one.name} {'became' if now.required else 'is no longer'} NOT NULL")
        added = [column.name for column in after.columns if before.find(column.name) is None]
        if allow == "none":
            problems += [f"{name} is new" for name in added]
        kept = [name for name in after.names if name in before.names]
        if not problems and kept != [name for name in before.names if name in types]:
            problems.append(f"the order is {', '.join(after.names)}")
        return _finding_of(problems)

    return AboutChange(judge)


@dataclass(frozen=True, slots=True)
class _ExpectedColumn:
    name: str
    type: str | None
    required: bool

    @classmethod
    def parse(cls, text: object) -> _ExpectedColumn:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{text!r} isn't a column.")
        name, _, type_ = text.partition(": ")
        required = bool(_NOT_NULL.search(type_))
        type_ = _NOT_NULL.sub("", type_).strip()
        return cls(name.strip(), _read_type(type_) if type_ else None, required)

    def find(self, schema: Schema, *, ignore_case: bool) -> Column | None:
        found = schema.find(self.name)
        return found if found is None or ignore_case or found.name == self.name else None

    def problem(self, found: Column | None, *, by_name: bool) -> str | None:
        if found is None:
            return f"{self.name} is missing"
        if self.type is not None and _differ(self.type, _canonical(found.type), by_name=by_name):
            return f"{self.name} is of type {found.type}"
        if self.required and not found.required:
            return f"{self.name} may be NULL"
        return None


def _differ(one: str, other: str, *, by_name: bool) -> bool:
    if not by_name:
        return one != other
    one, other = (_SEPARATOR.sub(lambda match: match[1] or f"{match[0]} ", kind) for kind in (one, other))
    return any(type_differences(one, other))


def _read_type(text: str) -> str:
    """Return a type that a user wrote by its canonical name.

    Raises:
        ValueError: If there is no such type.
    """
    plain = _canonical(text.strip())
    words = {match[1] for match in _TOKEN.finditer(plain) if match[1] and not match[2] and not match[1].isdigit()}
    unknown = sorted(words - _KNOWN)
    if unknown or not words:
        wrong = unknown[0] if unknown else text
        guess = nearest(wrong, sorted(_KNOWN))
        raise ValueError(f"there is no type '{wrong}'{f'; did you mean {guess!r}?' if guess else '.'}")
    return plain


def _canonical(text: str) -> str:
    """Return a type by its Iceberg name, without spaces. Names of struct fields are unchanged.

    Example:
        >>> _canonical("STRUCT<Email : varchar, `map`: numeric(9, 2)>")
        'struct<Email:string,map:decimal(9,2)>'
    """

    def plain(match: re.Match[str]) -> str:
        name, colon, mark = match.groups()
        if colon:
            bare = name.strip("`")
            return f"{bare if _NAME.fullmatch(bare) else name}:"
        return _SPARK.get(name.lower(), name.lower()) if name else mark or match[0]

    return _TOKEN.sub(plain, text)


def _finding_of(problems: Sequence[str]) -> Finding:
    if not problems:
        return Finding(0)
    more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return Finding(0, f"{'; '.join(problems[:_SHOWN])}{more}.", failed=True)
