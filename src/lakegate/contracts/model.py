"""What a contract may contain: its fields, its entries for checks, and the JSON Schema of both for editors.

Files are parsed into the models, from which the JSON Schema is generated. An entry for a check is a name, a name with
arguments, or a check's text.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, Field, TypeAdapter

from lakegate.checks.definition import CheckDefinition, CheckOptions
from lakegate.checks.parse import parse_checks
from lakegate.checks.registry import find_check, known_checks
from lakegate.config import TableOptions
from lakegate.contracts.document import Mark, Node
from lakegate.errors import CheckError, LakegateError
from lakegate.model.base import Value
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.types import type_words
from lakegate.model.words import nearest, parse_duration

VERSION = 1
"""The format's version. Files of other versions are refused."""
TYPES = (
    "boolean", "int", "long", "float", "double", "decimal(10, 2)", "date", "timestamp", "timestamptz", "string",
    "binary", "uuid", "fixed[16]", "time", "list<string>", "map<string, long>", "struct<a: int>",
)  # fmt: skip
"""Iceberg's types, for hints and completion."""
_WORDS = frozenset(re.findall(r"^[a-z]+", "\n".join(TYPES), re.MULTILINE))
SQL_TYPES = {
    "boolean": "boolean", "bool": "boolean", "int": "int", "integer": "int", "int4": "int", "int32": "int",
    "smallint": "int", "tinyint": "int", "int2": "int", "bigint": "long", "long": "long", "int8": "long",
    "int64": "long", "float": "double", "float8": "double", "float64": "double", "double": "double",
    "double precision": "double", "real": "float", "float4": "float", "date": "date", "timestamp_ntz": "timestamp",
    "timestamp without time zone": "timestamp", "datetime": "timestamp", "timestamp": "timestamp",
    "timestamptz": "timestamptz", "timestamp_ltz": "timestamptz", "timestamp_tz": "timestamptz",
    "timestamp with time zone": "timestamptz", "string": "string", "text": "string", "varchar": "string",
    "char": "string", "character varying": "string", "character": "string", "nvarchar": "string", "uuid": "string",
    "binary": "binary", "varbinary": "binary", "bytes": "binary", "bytea": "binary", "smallserial": "int",
    "serial": "int", "bigserial": "long",
}  # fmt: skip
"""Databases' types and Iceberg's for them."""
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_FIXED = re.compile(r"fixed\[\d+\]")
_NESTED = re.compile(r"(?:list|map|struct)<.+>")
_MAX_PRECISION = 38
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = {"type": "string", "pattern": r"^\s*\w+\s*\(", "description": "A check's text: in_range(fare, 0, 500)."}
_COLUMNS = "columns"


def column_type(text: str) -> str:
    """Return an Iceberg type in its canonical spelling.

    Raises:
        ValueError: If it isn't a type; the message suggests the nearest one.

    Example:
        >>> column_type("decimal(10,2)")
        'decimal(10, 2)'
    """
    text = text.strip()
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2])
        if not (0 < precision <= _MAX_PRECISION and scale <= precision):
            raise ValueError(f"'{text}' isn't valid: a decimal has 1 to {_MAX_PRECISION} digits")
        return f"decimal({precision}, {scale})"
    if text in _WORDS - {"decimal", "fixed", "list", "map", "struct"} or _FIXED.fullmatch(text):
        return text
    spaced = re.sub(r"\s*([,:])\s*", r"\1 ", text)
    if _NESTED.fullmatch(text) and type_words(spaced) <= _WORDS:
        return spaced
    guess = SQL_TYPES.get(text.lower()) or nearest(text, TYPES)
    also = f"; did you mean '{guess}'?" if guess else ""
    raise ValueError(f"'{text}' isn't an Iceberg type{also}")


def _table(text: str) -> str:
    try:
        return str(TableIdentifier.parse(text))
    except LakegateError as error:
        raise ValueError(error.message.removesuffix(".")) from None


def _interval(text: str) -> str:
    try:
        if parse_duration(text):
            return text
    except LakegateError as error:
        raise ValueError(f"{error.message} {error.hint}") from None
    raise ValueError("must be longer than zero")


ColumnTypeText = Annotated[str, AfterValidator(column_type), Field(json_schema_extra={"examples": list(TYPES)})]


class ContractColumn(Value):
    """A column of the table."""

    name: str = Field(min_length=1)
    """Its name."""
    type: ColumnTypeText | None = None
    """Its type, in Iceberg's words: ``long``, ``decimal(10, 2)``, ``timestamp``, ``list<string>``. Default: any."""
    was: tuple[str, ...] = ()
    """Other names that files have for it, such as those from before it was renamed."""
    required: bool = False
    """Whether NULL fails the audit."""
    description: str | None = None
    """What it holds."""
    tags: tuple[str, ...] = ()
    """Words to find it by."""
    checks: tuple[Any, ...] = ()
    """Checks of this column: ``not_null``, ``in_range: {min: 0}``. Checks of several columns go in the table's list."""


class Contract(TableOptions):
    """What one table must look like, and how it's loaded."""

    version: Literal[1]
    """The format's version: 1."""
    table: Annotated[str, AfterValidator(_table)]
    """The table: ``namespace.table``. The file has its name."""
    description: str | None = None
    """What a row is, and where the data comes from."""
    owner: str | None = None
    """Who looks after the table. Checks without an owner of their own have this one."""
    tags: tuple[str, ...] = ()
    """Words to find the contract by."""
    freshness: Annotated[str, AfterValidator(_interval)] | None = None
    """How often something should be published, such as ``1d``; ``lakegate admin notify late`` reports late tables."""
    extra_columns: Literal["allow", "refuse"] = "allow"
    """Whether the table may have columns that aren't listed."""
    columns: tuple[ContractColumn, ...] = ()
    """The columns that the table must have, in any order."""
    checks: tuple[Any, ...] = ()
    """Checks of several columns or of the batch: ``row_count: {min: 1}``, ``unique: {columns: [a, b]}``."""


class EntryError(Exception):
    """An entry isn't a valid check: where, why, and how to fix it."""

    def __init__(self, mark: Mark, problem: str, hint: str | None = None) -> None:
        super().__init__(problem)
        self.mark, self.problem, self.hint = mark, problem, hint


def read_entry(entry: Node, column: str | None = None, *, owner: str | None = None) -> tuple[Check, ...]:
    """Return the checks for one entry.

    Args:
        entry: The entry. ``not_null``; ``in_range: {min: 0}``; ``accepted_values: [1, 2]`` (the first argument);
            ``unique: [a, b]`` (columns, among the table's checks); ``in_range(fare, 0, 500)``.
        column: The column that it's listed under; ``None`` for the table's own checks.
        owner: Owner of checks that name none.

    Raises:
        EntryError: If it isn't a check.
    """
    try:
        checks = _read(entry, column)
    except CheckError as error:
        raise EntryError(entry.mark, error.message, error.hint) from None
    return tuple(one if one.owner is not None else one.model_copy(update={"owner": owner}) for one in checks)


def _read(entry: Node, column: str | None) -> tuple[Check, ...]:
    if isinstance(entry.value, str):
        if "(" in entry.value:
            return parse_checks(entry.value)
        return _make_checks(entry, find_check(entry.value.strip()), Node(None, entry.mark), column)
    if not entry.mapping:
        raise EntryError(
            entry.mark,
            f"{_shown(entry.value)} isn't a check.",
            "Write a check's name, or its name, a colon and its arguments: in_range: {min: 0}",
        )
    (name, arguments), *more = entry.mapping.items()
    if more:
        second = more[0][0]
        raise EntryError(
            entry.keys[second],
            f"'{second}' is beside the check '{name}'.",
            f"Indent it further if it's an argument of {name}; start it with '- ' if it's another check.",
        )
    return _make_checks(entry, find_check(name), arguments, column)


def _make_checks(
    entry: Node, definition: CheckDefinition[Any], arguments: Node, column: str | None
) -> tuple[Check, ...]:
    if column is not None and not definition.columns:
        raise EntryError(
            entry.mark,
            f"{definition.name} isn't about one column.",
            "Move it to the list 'checks' of the table, at the outermost level.",
        )
    positional: list[Any] = [] if column is None else [column]
    keywords: dict[str, Any] = {}
    value = arguments.plain()
    values = value if isinstance(value, list) else [value]
    if isinstance(value, dict):
        keywords = value
        _require_yaml_values(definition, arguments)
        key = _key_of_columns(definition, arguments, column)
        if key is not None:
            given = keywords.pop(key)
            positional += given if isinstance(given, list) else [given]
    elif value is not None and column is None and definition.columns:
        _require_names(arguments)
        positional += values
    elif value is not None:
        first = next(_own_parameters(definition), None)
        if first is None or (isinstance(value, list) and not _takes_list(first.annotation)):
            positional += values
        else:
            keywords = {first.name: value}
    return definition.make(positional, keywords)


def _key_of_columns(definition: CheckDefinition[Any], arguments: Node, column: str | None) -> str | None:
    """Return the argument that names the check's columns, if any."""
    keys = [key for key in (_COLUMNS, *definition.columns[:1]) if definition.columns and key in arguments.mapping]
    if not keys:
        return None
    if column is not None:
        raise EntryError(
            arguments.keys[keys[0]],
            f"{definition.name} is listed under column '{column}', but names columns itself.",
            "Move it to the list 'checks' of the table, at the outermost level.",
        )
    if len(keys) > 1:
        problem = f"{definition.name}: '{keys[0]}' and '{keys[1]}' both name its columns."
        raise EntryError(arguments.keys[keys[1]], problem, "Give one of them.")
    return keys[0]


def _require_yaml_values(definition: CheckDefinition[Any], arguments: Node) -> None:
    """Refuse likely mistakes: ``true`` as a column name, an empty value, a single tag."""
    for key, node in arguments.mapping.items():
        if definition.names_columns(key) or (key == _COLUMNS and definition.columns):
            _require_names(node)
        elif node.value is None and not definition.may_be_none(key):
            raise EntryError(
                arguments.keys[key], f"{definition.name}: '{key}' has no value.", "Write one, or leave it out."
            )
        elif key == "tags" and key not in definition.parameters and not isinstance(node.value, list):
            raise EntryError(node.mark, f"{definition.name}: 'tags' must be a list, not {_shown(node.value)}.")


def _require_names(node: Node) -> None:
    for one in node.items or [node]:
        if not isinstance(one.value, str):
            hint = f'Put the name in quotes: "{one.text}".' if one.text else "Write the column's name."
            raise EntryError(one.mark, f"{_shown(one.value)} isn't a column name.", hint)


def _own_parameters(definition: CheckDefinition[Any]) -> Iterator[inspect.Parameter]:
    """Yield a check's parameters in order, without columns of the table and options of every check."""
    for one in definition.parameters.values():
        if one.name not in definition.columns and one.name != "scope" and one.kind is not one.VAR_POSITIONAL:
            yield one


def _takes_list(annotation: Any) -> bool:
    is_list = get_origin(annotation) in (list, Sequence) or annotation in (list, Sequence)
    return is_list or any(map(_takes_list, get_args(annotation)))


def _shown(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return "an empty entry" if value in (None, {}) else repr(value)


def contract_schema(names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the JSON Schema of contracts.

    Args:
        names: The checks to include. Default: all, including those of installed packages.

    Example:
        >>> schema = contract_schema(["not_null"])
        >>> schema["required"], "not_null" in str(schema["$defs"])
        (['version', 'table'], True)
    """
    checks = [find_check(name) for name in (known_checks() if names is None else names)]
    schema = Contract.model_json_schema()
    definitions = schema.setdefault("$defs", {})
    options = {name: _of(kind) for name, kind in sorted(get_type_hints(CheckOptions, include_extras=True).items())}
    definitions["CheckOptions"] = {"properties": options}
    for one in checks:
        definitions[f"check.{one.name}"] = _arguments(one, options)
    definitions["ColumnCheck"] = _entry([one for one in checks if one.columns])
    definitions["TableCheck"] = _entry(checks)
    del definitions["CheckOptions"]
    definitions["ContractColumn"]["properties"]["checks"]["items"] = {"$ref": "#/$defs/ColumnCheck"}
    schema["properties"]["checks"]["items"] = {"$ref": "#/$defs/TableCheck"}
    return {"$schema": _DIALECT, **schema, "title": "Contract of a table (lakegate)"}


def _entry(checks: Sequence[CheckDefinition[Any]]) -> dict[str, Any]:
    names = [name for one in checks for name in (one.name, *one.aliases)]
    arguments = {name: {"$ref": f"#/$defs/check.{one.name}"} for one in checks for name in (one.name, *one.aliases)}
    return {
        "anyOf": [
            {"enum": sorted(names)},
            {
                "type": "object",
                "properties": dict(sorted(arguments.items())),
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": False,
            },
            _TEXT,
        ]
    }


def _arguments(one: CheckDefinition[Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a check's arguments: all by name, or only the first one."""
    own = list(_own_parameters(one))
    properties = {parameter.name: _of(parameter.annotation) for parameter in own}
    columns: dict[str, Any] = {}
    if one.columns:
        text = "Columns, for a check in the table's list."
        several = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}], "description": text}
        columns = dict.fromkeys(("columns", *one.columns), several)
    scope = {"scope": {"enum": list(one.scopes), "description": "What it looks at."}}
    known = {**columns, **options, **scope, **properties}
    known |= {other: known[name] for other, name in sorted(one.parameter_aliases.items()) if name in known}
    by_name = {"type": "object", "properties": known, "additionalProperties": False}
    alone = {"type": ["array", "string", "number", "boolean", "null"]}
    return {"description": one.summary.replace("``", ""), "anyOf": [by_name, alone]}


def _of(annotation: Any) -> dict[str, Any]:
    return {} if annotation in (Any, None) else TypeAdapter(annotation).json_schema()
