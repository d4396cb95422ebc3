"""The fields of a contract, as models that files are parsed into, and their JSON Schema for editors."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter

from lakegate.checks.definition import CheckDefinition, CheckOptions
from lakegate.checks.registry import find_check, known_checks
from lakegate.config import MaintenancePolicy, TableOptions
from lakegate.contracts.entries import own_parameters
from lakegate.errors import LakegateError
from lakegate.model.base import Value
from lakegate.model.batch import CsvOptions
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.types import type_words
from lakegate.model.words import nearest, parse_duration

VERSION = 1
"""Of the format; a file of another version is refused."""
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
_SYNONYMS = {
    **SQL_TYPES, "str": "string", "float32": "float", "number": "decimal(38, 0)", "numeric": "decimal(38, 0)",
    "array": "list<string>", "object": "struct<a: int>",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_FIXED = re.compile(r"fixed\[\d+\]")
_NESTED = re.compile(r"(?:list|map|struct)<.+>")
_MAX_PRECISION = 38
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TEXT = {"type": "string", "pattern": r"^\s*\w+\s*\(", "description": "A check's text: in_range(fare, 0, 500)."}


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
            raise ValueError(f"'{text}' isn't possible: a decimal has 1 to {_MAX_PRECISION} digits")
        return f"decimal({precision}, {scale})"
    if text in _WORDS - {"decimal", "fixed", "list", "map", "struct"} or _FIXED.fullmatch(text):
        return text
    spaced = re.sub(r"\s*([,:])\s*", r"\1 ", text)
    if _NESTED.fullmatch(text) and type_words(spaced) <= _WORDS:
        return spaced
    guess = _SYNONYMS.get(text.lower()) or nearest(text, TYPES)
    also = f"; did you mean '{guess}'?" if guess else ""
    raise ValueError(f"'{text}' isn't a type of Iceberg{also}")


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
    """Names that the files have for it, if others, such as those from before it was renamed."""
    required: bool = False
    """Whether NULL fails the audit."""
    description: str | None = None
    """What it holds."""
    tags: tuple[str, ...] = ()
    """Words to find it by."""
    checks: tuple[Any, ...] = ()
    """Checks of this column: ``not_null``, ``in_range: {min: 0}``; those of several columns go to the table's."""


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
    """How often something should be published to the table, such as ``1d``; ``lakegate notify late`` reports it."""
    extra_columns: Literal["allow", "refuse"] = "allow"
    """Whether the table may have columns that aren't listed."""
    columns: tuple[ContractColumn, ...] = ()
    """The columns that the table must have, in any order."""
    checks: tuple[Any, ...] = ()
    """Checks of several columns or of the batch: ``row_count: {min: 1}``, ``unique: {columns: [a, b]}``."""


_DOCUMENTED: tuple[type[BaseModel], ...] = (Contract, TableOptions, ContractColumn, CsvOptions, MaintenancePolicy)


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
    for model in _DOCUMENTED:
        _document(definitions.get(model.__name__, schema if model in Contract.__mro__ else {}), model)
    options = {name: _of(kind) for name, kind in sorted(get_type_hints(CheckOptions, include_extras=True).items())}
    definitions["CheckOptions"] = {"properties": options}
    for one in checks:
        definitions[f"check.{one.name}"] = _arguments(one, options)
    definitions["ColumnCheck"] = _entry([one for one in checks if one.columns])
    definitions["TableCheck"] = _entry(checks)
    del definitions["CheckOptions"]
    definitions["ContractColumn"]["properties"]["checks"]["items"] = {"$ref": "#/$defs/ColumnCheck"}
    schema["properties"]["checks"]["items"] = {"$ref": "#/$defs/TableCheck"}
    return {"$schema": _DIALECT, "title": "Contract of a table (lakegate)", **schema, "description": _summary(Contract)}


def _document(schema: dict[str, Any], model: type[BaseModel]) -> None:
    properties = schema.get("properties", {})
    for name, text in _docstrings(model):
        if name in properties:
            properties[name]["description"] = " ".join(text.replace("``", "").split())
            properties[name].pop("title", None)


def _docstrings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Yield the text below each field of a class."""
    (cls,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    body: list[ast.stmt] = getattr(cls, "body", [])
    for field, text in pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=docstring)):
                yield name, str(docstring)


def _summary(model: type[BaseModel]) -> str:
    return inspect.cleandoc(model.__doc__ or "").partition("\n")[0]


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
    """Return the schema of a check's arguments: by name, or only the first one."""
    own = list(own_parameters(one))
    properties = {parameter.name: _of(parameter.annotation) for parameter in own}
    columns: dict[str, Any] = {}
    if one.columns:
        text = "Columns, for a check in the table's list."
        several = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}], "description": text}
        columns = dict.fromkeys(("columns", *one.columns), several)
    scope = {"scope": {"enum": list(one.scopes), "description": "What it looks at."}}
    known = {**columns, **options, **scope, **properties}
    known |= {other: known[name] for other, name in sorted(one.parameter_aliases.items()) if name in known}
    by_name = {
        "type": "object",
        "properties": known,
        "additionalProperties": False,
    }
    alone = [{"type": ["array", "string", "number", "boolean", "null"]}]
    return {"description": one.summary.replace("``", ""), "anyOf": [by_name, *alone]}


def _of(annotation: Any) -> dict[str, Any]:
    return {} if annotation in (Any, None) else TypeAdapter(annotation).json_schema()
