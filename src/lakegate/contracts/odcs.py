"""Reads the Open Data Contract Standard (ODCS 3.0 to 3.2) into contracts, and writes it, by its official model.

https://bitol-io.github.io/open-data-contract-standard
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from open_data_contract_standard.model import (
    DataQuality,
    OpenDataContractStandard,
    Relationship,
    SchemaObject,
    SchemaProperty,
    ServiceLevelAgreementProperty,
    Team,
)
from pydantic import ValidationError

from lakegate.checks.registry import find_check
from lakegate.contracts.document import Document, Node, as_yaml, walk
from lakegate.contracts.draft import Draft, DraftColumn, NoCheckError, entry_of, one_line_of, sql_type
from lakegate.contracts.model import EntryError, read_entry
from lakegate.contracts.store import LoadedContract
from lakegate.model.checks import Check
from lakegate.model.types import struct_text

WRITTEN = "v3.1.0"
"""The version of ODCS that is written."""
_VERSION = re.compile(r"v3\.[0-2]\.\d+")
_LOGICAL = {"string": "string", "date": "date", "boolean": "boolean", "integer": "long"}
_LOGICAL_OF = {
    "boolean": "boolean", "int": "integer", "long": "integer", "float": "number", "double": "number", "date": "date",
    "timestamp": "timestamp", "timestamptz": "timestamp", "time": "time", "list": "array", "map": "object",
    "struct": "object", "decimal": "number",
}  # fmt: skip
_WARNS = frozenset({"warning", "warn", "info", "low", "minor", "medium"})
_UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"), **dict.fromkeys(("m", "min", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hour", "hours"), "h"), **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("w", "week", "weeks"), "w"),
}  # fmt: skip
_FRESHNESS = ("freshness", "frequency")
"""Service-level properties about freshness."""
_OPERATORS = (
    "mustBe", "mustNotBe", "mustBeGreaterThan", "mustBeGreaterOrEqualTo", "mustBeLessThan", "mustBeLessOrEqualTo",
    "mustBeBetween", "mustNotBeBetween",
)  # fmt: skip
_CONTRACT_KEYS = frozenset({"apiVersion", "kind", "schema", "slaProperties", "tags"})
_TABLE_KEYS = frozenset(
    {"name", "physicalName", "physicalType", "description", "tags", "properties", "quality", "relationships"}
)  # fmt: skip
_COLUMN_KEYS = frozenset(
    {"name", "physicalName", "description", "tags", "quality", "relationships", "logicalType", "physicalType",
     "logicalTypeOptions", "required", "unique", "primaryKey", "primaryKeyPosition", "partitioned",
     "partitionKeyPosition", "properties", "items", "map", "enum", "semanticType"}
)  # fmt: skip
_QUALITY_KEYS = frozenset(
    {"id", "name", "description", "type", "metric", "rule", "arguments", "unit", "query", "severity", "tags",
     "dimension", "engine", "implementation", "validValues", *_OPERATORS}
)  # fmt: skip
_INNER_RULES = (
    "quality", "relationships", "logicalTypeOptions", "required", "unique", "primaryKey", "partitioned", "enum",
)  # fmt: skip
_OLD_RULES = {"duplicateCount": "duplicateValues", "validValues": "invalidValues", "nullCheck": "nullValues"}
"""Names of ODCS 3.0 for today's metrics."""


def is_odcs(document: Document) -> bool:
    """Return whether a file is an ODCS contract."""
    return "apiVersion" in document.root.mapping


def read_odcs(document: Document, *, namespace: str | None = None) -> list[Draft]:
    """Return a contract for each table of an ODCS contract.

    Args:
        namespace: The tables' namespace. Default: the schema of the first server that names one, else ``default``.

    Raises:
        ConfigurationError: With the line, if the file isn't a contract of ODCS 3.0 to 3.2.
    """
    root = document.root
    contract = _validated(document)
    tables = contract.schema_ or []
    for table, node in zip(tables, root.items_of("schema"), strict=True):
        if not table.name:
            raise document.error(node.mark, "a schema object needs a 'name'.")
    schemas = (server.schema_ for server in contract.servers or [])
    found = next((schema for schema in schemas if schema and re.fullmatch(r"[A-Za-z_]\w*", schema)), None)
    others = {
        f"{table.name}.{each.name}": (_physical_name(table), _physical_name(each))
        for table in tables
        for each in table.properties or []
    }
    others |= {table.name or "": (_physical_name(table), "") for table in tables}
    drafts = []
    for table, node in zip(tables, root.items_of("schema"), strict=True):
        draft = _OdcsTable(table, node, namespace or found or "default", others).read()
        _read_root(draft, contract, root)
        drafts.append(draft)
    return drafts


def _validated(document: Document) -> OpenDataContractStandard:
    root = document.root
    version, kind = root.mapping["apiVersion"], root.mapping.get("kind")
    if not isinstance(version.value, str) or not _VERSION.fullmatch(version.value):
        hint = "lakegate reads versions 3.0 to 3.2."
        raise document.error(version.mark, f"ODCS version {version.plain()!r} isn't supported.", hint=hint)
    if kind is None or kind.value != "DataContract":
        raise document.error(root.mark if kind is None else kind.mark, "'kind' must be DataContract.")
    try:
        return OpenDataContractStandard.model_validate(root.plain())
    except ValidationError as error:
        problem = error.errors()[0]
        key = next((part for part in reversed(problem["loc"]) if isinstance(part, str)), "")
        _, mark = root.find(problem["loc"])
        raise document.error(mark, f"'{key}': {problem['msg']}.", hint="It isn't valid ODCS.") from None


def _physical_name(table: SchemaObject | SchemaProperty) -> str:
    return one_line_of(table.physicalName) or one_line_of(table.name) or ""


def _read_root(draft: Draft, contract: OpenDataContractStandard, root: Node) -> None:
    """Read what a contract says about all of its tables."""
    for level, node in zip(contract.slaProperties or [], root.items_of("slaProperties"), strict=True):
        is_of_all = level.property in _FRESHNESS and not level.element
        if is_of_all and level.unit in _UNITS and type(level.value) is int and not draft.freshness:
            draft.freshness = f"{level.value}{_UNITS[level.unit or '']}"
        else:
            add = draft.lose if level.property in _FRESHNESS else draft.note
            add(node.mark, f"slaProperties {level.property}", "a contract has one freshness limit, of its table")
    draft.tags = draft.tags or tuple(contract.tags or ())
    draft.owner = contract.team.name if isinstance(contract.team, Team) else None
    for key, mark in root.keys.items():
        if key not in _CONTRACT_KEYS:
            draft.note(mark, key, "metadata about the document, which lakegate doesn't keep")


class _OdcsTable:
    """A schema object while it's being read. Nodes are beside the model's values, because they know their lines."""

    def __init__(self, table: SchemaObject, node: Node, namespace: str, others: Mapping[str, tuple[str, str]]) -> None:
        self._table = table
        self._node = node
        self._namespace = namespace
        self._others = others
        self._draft = Draft(self._qualified(_physical_name(table)), node.mark.line)
        self._columns: dict[str, str] = {}

    def _qualified(self, name: str) -> str:
        plain = re.sub(r"[^\w.-]", "_", name)
        return plain if "." in plain else f"{self._namespace}.{plain}"

    def read(self) -> Draft:
        draft, table, node = self._draft, self._table, self._node
        draft.description, draft.tags = one_line_of(table.description), tuple(table.tags or ())
        listed: list[tuple[SchemaProperty, Node, DraftColumn]] = []
        for each, inner in zip(table.properties or [], node.items_of("properties"), strict=True):
            name = _physical_name(each)
            if not name:
                draft.lose(inner.mark, "a property", "it has no name")
                continue
            if each.semanticType == "measure":
                draft.note(inner.mark, f"property {name}", "a measure is computed from rows; it isn't a column")
                continue
            self._columns[each.name or name] = name
            listed.append((each, inner, draft.column(inner.mark, name)))
        for each, inner, column in listed:
            self._column(each, inner, column)
        self._keys(listed)
        self._rules(table, node, None)
        draft.note_unknown_keys(node, _TABLE_KEYS)
        return draft

    def _column(self, each: SchemaProperty, node: Node, column: DraftColumn) -> None:
        draft = self._draft
        column.description = column.description or one_line_of(each.description)
        column.tags = column.tags or tuple(each.tags or ())
        column.required = column.required or bool(each.required)
        column.type = column.type or self._type(each, node)
        if each.unique:
            draft.add(node.keys["unique"], "unique", "unique", [column.name], {})
        if each.enum:
            values = [one.value for one in each.enum]
            draft.add(node.keys["enum"], "enum", "accepted_values", [column.name], {"values": values})
        self._options(each.logicalTypeOptions or {}, node, column)
        self._rules(each, node, column)
        inner_nodes = (found for key in ("properties", "items", "map") if (found := node.get(key)) is not None)
        for inner in (one for found in inner_nodes for one in walk(found)):
            for key in _INNER_RULES:
                if inner.mapping and inner.plain().get(key):
                    draft.lose(inner.keys[key], f"inner {key}", "lakegate translates rules of whole columns only")
        draft.note_unknown_keys(node, _COLUMN_KEYS)

    def _keys(self, listed: Sequence[tuple[SchemaProperty, Node, DraftColumn]]) -> None:
        keys = sorted((one for one in listed if one[0].primaryKey), key=lambda one: one[0].primaryKeyPosition or 0)
        for _, _, column in keys:
            column.required = True
        if keys:
            names = [column.name for _, _, column in keys]
            self._draft.add(keys[0][1].keys["primaryKey"], "primaryKey", "unique", names, {})
        parts = sorted((one for one in listed if one[0].partitioned), key=lambda one: one[0].partitionKeyPosition or 0)
        self._draft.partition_by = tuple(column.name for _, _, column in parts)

    def _type(self, each: SchemaProperty, node: Node) -> str | None:
        logical, physical = each.logicalType, each.physicalType
        options = each.logicalTypeOptions or {}
        found = None if physical is None else sql_type(physical)
        if logical == "timestamp":
            return "timestamptz" if options.get("timezone") is True else found or "timestamp"
        if logical == "array" and each.items is not None:
            inner = self._type(each.items, node.mapping["items"])
            found = found if inner is None else f"list<{inner}>"
        elif logical == "map" and each.map is not None:
            at = node.mapping["map"].mapping
            ends = [(each.map.key, at.get("key")), (each.map.value, at.get("value"))]
            inner_types = [self._type(one, end) for one, end in ends if one is not None and end is not None]
            found = (
                f"map<{', '.join(map(str, inner_types))}>"
                if len(inner_types) == len(ends) and all(inner_types)
                else found
            )
        elif logical == "object":
            inner_nodes = node.items_of("properties")
            kinds = [(_physical_name(one), self._type(one, at)) for one, at in zip(each.properties or [], inner_nodes)]  # noqa: B905 - validated
            fields = [(name, kind) for name, kind in kinds if name and kind is not None]
            found = struct_text(fields) if fields and len(fields) == len(kinds) else found
        elif found is None and logical is not None:
            found = _LOGICAL.get(logical) or ("double" if logical == "number" and not physical else None)
        if found is None and (logical or physical):
            mark = node.keys["physicalType" if physical else "logicalType"]
            self._draft.lose(mark, f"type {physical or logical}", "not an Iceberg type; the column may have any")
        return found

    def _options(self, options: Mapping[str, Any], node: Node, column: DraftColumn) -> None:
        """Read a type's options. Those that lakegate has no check for are listed."""
        keys = {} if not options else node.mapping["logicalTypeOptions"].keys
        left = dict(options)

        def add(kind: str, names: Mapping[str, str], **fixed: Any) -> None:
            # In ODCS 3.0, exclusiveMinimum is a flag.
            found = {ours: name for ours, name in names.items() if name in left and not isinstance(left[name], bool)}
            given = {ours: left.pop(name) for ours, name in found.items()}
            if given:
                subject = "/".join(names[argument] for argument in given)
                mark = keys[subject.partition("/")[0]]
                self._draft.add(mark, subject, kind, [column.name], {**given, **fixed})

        add("in_range", {"min": "minimum", "max": "maximum"})
        add("in_range", {"min": "exclusiveMinimum", "max": "exclusiveMaximum"}, inclusive=False)
        add("length_between", {"min": "minLength", "max": "maxLength"})
        # As in JSON Schema, a pattern may match anywhere in the text.
        add("matches", {"pattern": "pattern"})
        for key in left.keys() - {"timezone"}:
            self._draft.lose(keys[key], f"logicalTypeOptions {key}", "lakegate translates no such option")

    def _rules(self, each: SchemaObject | SchemaProperty, node: Node, column: DraftColumn | None) -> None:
        for rule, at in zip(each.quality or [], node.items_of("quality"), strict=True):
            self._draft.note_unknown_keys(at, _QUALITY_KEYS, prefix="quality ")
            kind = rule.type or ("library" if rule.metric or rule.rule else "text")
            kind = "library" if kind == "default" else kind  # its name in ODCS 3.0
            if kind == "text":
                self._draft.note(at.mark, "quality of type text", "it's documentation, not a check")
                continue
            subject = (rule.metric or rule.rule or kind) if kind == "library" else f"quality of type {kind}"
            try:
                for check in self._checks(rule, at, kind, column):
                    self._draft.add(at.mark, subject, check.kind, check.columns, check.arguments)
            except NoCheckError as error:
                self._draft.lose(at.mark, subject, str(error))
        for relationship, at in zip(each.relationships or [], node.items_of("relationships"), strict=True):
            self._relationship(relationship, at, column)

    def _relationship(self, given: Relationship, node: Node, column: DraftColumn | None) -> None:
        """Read a foreign key: of a column, or of those that it names."""
        texts, own = _listed(given.to), [text.rpartition(".")[2] for text in _listed(given.from_)]
        targets = []
        for text in texts:
            table, _, name = text.rpartition(".")
            targets.append(self._others.get(text, (self._others.get(table, (table, ""))[0], name)))
        tables = {table for table, _ in targets}
        if len(tables) != 1 or "" in tables or any("/" in text for text in (*texts, *own)):
            self._draft.lose(node.mark, "relationships", "it isn't in the form table.column")
            return
        columns = [column.name] if column is not None else [self._columns.get(name, name) for name in own]
        arguments = {"to": self._qualified(tables.pop()), "to_columns": [name for _, name in targets]}
        self._draft.add(node.mark, "relationships", "relationships", columns, arguments)

    def _checks(self, rule: DataQuality, node: Node, kind: str, column: DraftColumn | None) -> Iterator[_Rule]:
        """Yield the checks of a rule under ``quality``.

        Raises:
            NoCheckError: If no check does the same.
        """
        if kind == "custom" and rule.engine == "lakegate" and "implementation" in node.mapping:
            try:
                read = read_entry(node.mapping["implementation"])
            except EntryError as error:
                raise NoCheckError(error.problem) from None
            for check in read:
                options = find_check(check.kind).options_of(check)
                yield _Rule(check.kind, check.columns, {**check.arguments, "scope": check.scope, **options})
            return
        if kind == "sql":
            raise NoCheckError("a query of a database; lakegate's own are custom_sql and expression_is_true")
        if kind != "library":
            raise NoCheckError(f"it's for {rule.engine or 'another engine'}")
        if (rule.unit or "rows").lower() not in ("rows", "percent"):
            raise NoCheckError(f"the unit {rule.unit!r} is neither rows nor percent")
        name, columns, arguments = self._metric(rule, node, column)
        severity = (rule.severity or "error").lower()
        if name == "unique" and arguments.get("tolerance"):
            self._draft.lose(node.mark, "duplicateValues", "'unique' counts all rows that share a key")
        tags = [*(rule.tags or ()), *([rule.dimension] if rule.dimension else ())]
        options = {"name": rule.name, "description": one_line_of(rule.description), "tags": tags or None}
        yield _Rule(name, columns, {**arguments, **options, "severity": "warn" if severity in _WARNS else None})

    def _metric(self, rule: DataQuality, node: Node, column: DraftColumn | None) -> _Rule:
        metric, given = rule.metric or _OLD_RULES.get(rule.rule or "", rule.rule), dict(rule.arguments or {})
        if (listed := node.get("validValues")) is not None:  # in ODCS 3.0
            given["validValues"] = listed.plain()
        if metric == "rowCount":
            return _Rule("row_count", (), _row_limits(rule))
        if metric == "duplicateValues":
            names = [self._columns.get(name, name) for name in _listed(given.get("properties"))]
            if not names and column is None:
                raise NoCheckError("it lists no properties")
            return _Rule("unique", names or [column.name if column else ""], {"tolerance": _tolerance(rule)})
        if metric not in ("nullValues", "invalidValues"):
            raise NoCheckError("lakegate has no check like this metric")
        if column is None:
            raise NoCheckError("it must be listed under a property")
        is_plain = rule.rule in ("validValues", "nullCheck") and not any(key in node.mapping for key in _OPERATORS)
        tolerance = {"tolerance": None if is_plain else _tolerance(rule)}
        if metric == "nullValues":
            return _Rule("not_null", [column.name], tolerance)
        values, pattern = given.get("validValues"), given.get("pattern")
        if (values is None) == (pattern is None):
            raise NoCheckError("it has neither validValues nor pattern, or both")
        if values is not None:
            return _Rule("accepted_values", [column.name], {"values": values, **tolerance})
        return _Rule("matches", [column.name], {"pattern": pattern, **tolerance})


class _Rule(NamedTuple):
    """A check: its kind, its columns, its arguments and options."""

    kind: str
    columns: Sequence[str]
    arguments: Mapping[str, Any]


def _limits(rule: DataQuality) -> tuple[float | None, float | None]:
    """Return the least and the most that a rule's one operator allows; both must be numbers."""
    given = {name: value for name in _OPERATORS if (value := getattr(rule, name)) is not None}
    name, value = next(iter(given.items()), ("", None))
    ends = value if isinstance(value, list) and name == "mustBeBetween" else [value, value]
    if len(given) != 1 or not all(map(_is_number, ends)):
        raise NoCheckError("it needs one operator and a number")
    first: Any = ends[0]
    if name in ("mustBeLessThan", "mustBeGreaterThan") and (rule.unit or "rows").lower() == "rows":
        return (None, math.ceil(first) - 1) if name == "mustBeLessThan" else (math.floor(first) + 1, None)
    limits = {"mustBe": ends, "mustBeBetween": ends, "mustBeGreaterOrEqualTo": (first, None),
              "mustBeLessOrEqualTo": (None, first)}.get(name)  # fmt: skip
    if limits is None:
        raise NoCheckError(f"lakegate translates no limit like {name}; write mustBeLessOrEqualTo or mustBeBetween")
    return limits[0], limits[1]


def _row_limits(rule: DataQuality) -> dict[str, int | None]:
    low, high = (None if end is None else int(end) if end == int(end) else end for end in _limits(rule))
    if (rule.unit or "").lower() == "percent" or isinstance(low, float) or isinstance(high, float):
        raise NoCheckError("a row count must be a whole number of rows")
    return {"min": low, "max": high}


def _tolerance(rule: DataQuality) -> int | str | None:
    """Return the most failing rows that a rule allows; ``None`` for none."""
    low, high = _limits(rule)
    is_percent = (rule.unit or "").lower() == "percent"
    if low not in (None, 0) or high is None or high < 0 or (is_percent and high > 100):
        raise NoCheckError("its limit isn't an upper one: a number of failing rows, or a percentage")
    return (f"{Decimal(str(high)):f}%" if is_percent else math.floor(high)) if high else None


def _listed(value: Any) -> list[Any]:
    """Return a value as a list; a single value becomes one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def write_odcs(contract: LoadedContract) -> str:
    """Return a contract as ODCS YAML. Its checks are rules of type ``custom`` in lakegate's own syntax.

    :func:`read_odcs` reads it back as a contract with the same columns and checks. How the table is loaded and
    maintained isn't in it, nor are partition transforms: ODCS has no words for them.
    """
    terms, table = contract.contract, contract.table
    listed = {column.name for column in terms.columns}
    rest = [check for check in contract.checks if len(check.columns) != 1 or check.columns[0] not in listed]
    freshness = (terms.freshness or "").strip()  # validated: a number and the letter of a unit
    level = ServiceLevelAgreementProperty(property="frequency", value=int(freshness[:-1] or 0), unit=freshness[-1:])
    document = OpenDataContractStandard(
        apiVersion=WRITTEN,
        kind="DataContract",
        id=str(uuid.uuid5(uuid.NAMESPACE_URL, f"lakegate:{table}")),
        version="1.0.0",
        status="active",
        name=str(table),
        team=None if terms.owner is None else Team(name=terms.owner),
        schema=[
            SchemaObject(
                name=table.name,
                physicalName=str(table),
                physicalType="table",
                description=terms.description,
                tags=list(terms.tags) or None,
                properties=list(_properties(contract)) or None,
                quality=_qualities(rest, terms.owner),
            )
        ],
        slaProperties=[level] if freshness else None,
    )
    return as_yaml(document.model_dump(exclude_none=True, by_alias=True), flow=False)


def _properties(contract: LoadedContract) -> Iterator[SchemaProperty]:
    terms = contract.contract
    partitions = [part for part in terms.partition_by if "(" not in part]
    for column in terms.columns:
        word = re.match(r"[a-z]+", column.type or "")
        is_part = column.name in partitions
        implied = Check(kind="not_null", columns=(column.name,), owner=terms.owner) if column.required else None
        own = [check for check in contract.checks if check.columns == (column.name,) and check != implied]
        yield SchemaProperty(
            name=column.name,
            description=column.description,
            tags=list(column.tags) or None,
            logicalType=_LOGICAL_OF.get(word[0], "string") if word else None,
            # In SQL, a float may be a double.
            physicalType="real" if column.type == "float" else column.type,
            logicalTypeOptions={"timezone": True} if column.type == "timestamptz" else None,
            required=column.required or None,
            partitioned=is_part or None,
            partitionKeyPosition=partitions.index(column.name) + 1 if is_part else None,
            quality=_qualities(own, terms.owner),
        )


def _qualities(checks: list[Check], owner: str | None) -> list[DataQuality] | None:
    rules = []
    for check in checks:
        own = check.model_copy(update={"owner": None}) if check.owner == owner else check
        implementation = entry_of(own, in_column=False)
        rules.append(DataQuality(type="custom", engine="lakegate", implementation=implementation))
    return rules or None
