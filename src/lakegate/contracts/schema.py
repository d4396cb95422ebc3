"""The JSON Schema of contracts, generated from models and checks, with which editors complete and validate them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter

from lakegate.checks.definition import CheckDefinition, CheckOptions
from lakegate.checks.registry import find_check, known_checks
from lakegate.config import MaintenancePolicy, TableOptions
from lakegate.contracts.entries import own_parameters
from lakegate.contracts.model import Contract, ContractColumn
from lakegate.model.batch import CsvOptions

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DOCUMENTED: tuple[type[BaseModel], ...] = (Contract, TableOptions, ContractColumn, CsvOptions, MaintenancePolicy)
_TEXT = {"type": "string", "pattern": r"^\s*\w+\s*\(", "description": "A check's text: in_range(fare, 0, 500)."}


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
