"""Reads the Open Data Contract Standard (ODCS 3.0, 3.1) into contracts.

https://bitol-io.github.io/open-data-contract-standard
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from lakegate.checks.patterns import LONG_TEXTS, longest_text
from lakegate.checks.regex import RegexError, java_pattern
from lakegate.checks.registry import find_check
from lakegate.contracts.document import Document, Mark, Node, walk
from lakegate.contracts.draft import Draft, DraftColumn, sql_type, text_of, words_of
from lakegate.model.identifiers import quote
from lakegate.model.sqltext import sql_string
from lakegate.model.types import struct_text

_VERSION = re.compile(r"v3\.[01]\.\d+")
_LOGICAL = {"string": "string", "date": "date", "boolean": "boolean", "integer": "long"}
_INTEGERS = {"i8": "int", "i16": "int", "i32": "int", "i64": "long", "u8": "int", "u16": "int", "u32": "long"}
_NUMBERS = {"f32": "float", "f64": "double"}
_SIZES = {**_INTEGERS, **_NUMBERS}
_EXACT = ("int", "long", "decimal")
_NUMERIC = (*_EXACT, "float", "double")
_WARNS = frozenset({"warning", "warn", "info", "low", "minor", "medium"})
_BLOCKS = frozenset({"error", "critical", "high", "blocker", "major"})
_UNITS = {"s": "s", "sec": "s", "second": "s", "seconds": "s",
          "d": "d", "day": "d", "days": "d", "h": "h", "hr": "h", "hour": "h", "hours": "h", "m": "m", "min": "m",
          "minute": "m", "minutes": "m", "w": "w", "week": "w", "weeks": "w"}  # fmt: skip
_FRESHNESS = ("freshness", "frequency", "latency")
"""Service-level properties about freshness, in order of preference."""
_LESS = Decimal("1e-12")
"""Turns 'less than' a percentage into 'at most': it's less than the percentage of one row in a trillion rows."""
_TABLE_PLACEHOLDERS = ("${object}", "{object}", "${table}", "{table}", "${model}", "{model}")
_COLUMN_PLACEHOLDERS = ("${property}", "{property}", "${column}", "{column}")
_CONDITIONS = {
    "mustBe": "= {}", "mustNotBe": "<> {}", "mustBeGreaterThan": "> {}", "mustBeGreaterOrEqualTo": ">= {}",
    "mustBeLessThan": "< {}", "mustBeLessOrEqualTo": "<= {}", "mustBeBetween": "BETWEEN {} AND {}",
    "mustNotBeBetween": "NOT BETWEEN {} AND {}",
}  # fmt: skip
_COUNT = re.compile(
    r"select\s+count\s*\(\s*(?:\*|1)\s*\)(?:\s+as\s+\w+)?\s+from\s+(?P<table>[^\s;]+)"
    r"(?:\s+where\s+(?P<where>.+?))?\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
_TABLE_KEYS = frozenset(
    {"name", "physicalName", "physicalType", "description", "tags", "properties", "quality", "relationships",
     "customProperties"}
)  # fmt: skip
_COLUMN_KEYS = frozenset(
    {"name", "physicalName", "description", "tags", "quality", "relationships", "logicalType", "physicalType",
     "logicalTypeOptions", "required", "unique", "primaryKey", "primaryKeyPosition", "partitioned",
     "partitionKeyPosition", "properties", "items", "customProperties"}
)  # fmt: skip
_QUALITY_KEYS = frozenset(
    {"id", "name", "description", "type", "metric", "rule", "arguments", "unit", "query", "severity", "tags",
     "dimension", "engine", "implementation", "missingValues", "validValues", "pattern", "properties", *_CONDITIONS}
)  # fmt: skip
_SIZE_OPTIONS = {
    "minLength": ("length", "<"), "maxLength": ("length", ">"), "minItems": ("array_size", "<"),
    "maxItems": ("array_size", ">"),
}  # fmt: skip
_CHECKED_FORMATS = {"email": "valid_email", "uuid": "valid_uuid"}
OWN = "lakegate."
"""Prefix of lakegate's own custom properties."""
OWN_OPTIONS = frozenset(
    {"extra_columns", "format_version", "schema", "write_mode", "key", "delete_when", "csv", "maintenance",
     "quarantine_limit"}
)  # fmt: skip
"""Keys of contracts that ODCS has no words for."""
_CONTRACT_KEYS = frozenset({"apiVersion", "kind", "schema", "slaProperties", "tags"})


def is_odcs(document: Document) -> bool:
    """Return whether a file is an ODCS contract."""
    return "apiVersion" in document.root.mapping


def read_odcs(document: Document, *, namespace: str | None = None) -> list[Draft]:
    """Return a contract for each table of an ODCS contract.

    Args:
        namespace: The tables' namespace. Default: the schema of the first server that names one, else ``default``.
    """
    root = document.root
    version, kind = root.mapping["apiVersion"], root.mapping.get("kind")
    if not isinstance(version.value, str) or not _VERSION.fullmatch(version.value):
        hint = "lakegate reads versions 3.0 and 3.1."
        raise document.error(version.mark, f"ODCS version {version.plain()!r} isn't supported.", hint=hint)
    if kind is None or kind.value != "DataContract":
        mark = root.mark if kind is None else kind.mark
        raise document.error(mark, "'kind' must be DataContract.")
    objects = root.items_of("schema")
    namespace = namespace or _namespace(root) or "default"
    for one in objects:
        if text_of(one.get("name")) is None:
            raise document.error(one.mark, "a schema object needs a 'name'.")
    others = {text_of(one.get("name")) or "": _physical_name(one) for one in objects}
    references = dict(found for one in objects for found in _references_to(one))
    drafts = [_OdcsTable(one, namespace, others, references).read() for one in objects]
    for draft, one in zip(drafts, objects, strict=True):
        _read_root(draft, root, {_physical_name(one), text_of(one.get("name")) or ""}, {*others, *others.values()})
    return drafts


def _references_to(table: Node) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each reference, by names or by ids, that a relationship may make to a column: with its table and name."""
    name = _physical_name(table)

    def walk_properties(node: Node, names: str, ids: str | None, path: str) -> Iterator[tuple[str, tuple[str, str]]]:
        for one in node.items_of("properties"):
            column = _physical_name(one)
            if not column:
                continue
            own, own_id = f"{path}{_path_part(column) if path else column}", text_of(one.get("id"))
            by_name = f"{names}.{_logical_name(one)}"
            by_id = f"{ids}/properties/{own_id}" if ids and own_id else None
            yield by_name, (name, own)
            if by_id is not None:
                yield by_id, (name, own)
            yield from walk_properties(one, by_name, by_id, f"{own}.")

    table_id = text_of(table.get("id"))
    yield from walk_properties(table, _logical_name(table), f"schema/{table_id}" if table_id else None, "")


def _path_part(name: str) -> str:
    """Return a field's name for use in a path."""
    return name if name.isidentifier() else quote(name)


def _rank(sla: Node) -> int:
    name = text_of(sla.get("property"))
    return _FRESHNESS.index(name) if name in _FRESHNESS else len(_FRESHNESS)


def _physical_name(node: Node) -> str:
    return text_of(node.get("physicalName")) or text_of(node.get("name")) or ""


def _logical_name(node: Node) -> str:
    return text_of(node.get("name")) or _physical_name(node)


def _namespace(root: Node) -> str | None:
    schemas = (text_of(one.get("schema")) for one in root.items_of("servers"))
    return next((name for name in schemas if name and re.fullmatch(r"[A-Za-z_]\w*", name)), None)


def _read_root(draft: Draft, root: Node, names: set[str], all_names: set[str]) -> None:
    """Read what a contract says about all of its tables, or about the one with these ``names``."""
    for sla in sorted(root.items_of("slaProperties"), key=_rank):
        tables = {one.strip().partition(".")[0] for one in (text_of(sla.get("element")) or "").split(",")}
        if tables <= all_names - names:
            continue
        name, unit, value = map(sla.value_of, ("property", "unit", "value"))
        if name in _FRESHNESS and unit in _UNITS and _is_whole(value) and not draft.freshness:
            draft.freshness = f"{value}{_UNITS[unit]}"
            if name != "freshness":
                draft.lose(sla.mark, f"slaProperties {name}", f"it became 'freshness: {draft.freshness}'")
        else:
            draft.lose(sla.mark, f"slaProperties {name}", "lakegate doesn't check it")
    draft.tags = draft.tags or words_of(root.get("tags"))
    team = root.get("team")
    draft.owner = None if team is None else text_of(team.get("name"))
    for key, mark in root.keys.items():
        if key not in _CONTRACT_KEYS:
            draft.lose(mark, key, "metadata about the document, which lakegate doesn't keep")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class _OdcsTable:
    """A schema object while it's being read."""

    def __init__(
        self, node: Node, namespace: str, others: Mapping[str, str], references: Mapping[str, tuple[str, str]]
    ) -> None:
        self._node = node
        self._namespace = namespace
        self._others = others
        self._references = references
        name = _physical_name(node)
        self._names = {name, text_of(node.get("name"))}
        self._draft = Draft(self._qualified(name), node.mark.line)
        self._columns: dict[str, str] = {}

    def _qualified(self, name: str) -> str:
        plain = re.sub(r"[^\w.-]", "_", name)
        return plain if "." in plain else f"{self._namespace}.{plain}"

    def read(self) -> Draft:
        draft, node = self._draft, self._node
        draft.description, draft.tags = text_of(node.get("description")), words_of(node.get("tags"))
        properties = draft.listed(node, "properties")
        columns: list[tuple[Node, DraftColumn]] = []
        for one in properties:
            name = _physical_name(one)
            if not name:
                draft.lose(one.mark, "a property", "it has no name")
                continue
            self._columns[_logical_name(one)] = name
            column = draft.column(one.mark, name)
            column.description = column.description or text_of(one.get("description"))
            columns.append((one, column))
        for one, column in columns:
            self._column(one, column)
        self._keys(properties)
        self._quality(node, None)
        for one in draft.listed(node, "relationships"):
            self._relationship(one)
        for one in draft.listed(node, "customProperties"):
            name, value = text_of(one.get("property")) or "", text_of(one.get("value"))
            if name == "partition_by" and value is not None:
                draft.partition_by = (*(one for one in draft.partition_by if one != value), value)
            elif name.startswith(OWN) and name.removeprefix(OWN) in OWN_OPTIONS and "value" in one.mapping:
                draft.options[name.removeprefix(OWN)] = one.mapping["value"].plain()
            else:
                draft.lose(one.mark, "customProperties", "lakegate has no such key")
        draft.lose_unknown_keys(node, _TABLE_KEYS)
        return draft

    def _column(self, node: Node, column: DraftColumn) -> None:
        column.tags = column.tags or words_of(node.get("tags"))
        column.required = column.required or node.value_of("required") is True
        column.type = column.type or self._type(node)
        if node.value_of("unique") is True:
            self._draft.add(node.keys["unique"], "unique", "unique", [column.name], {})
        for one in self._draft.listed(node, "customProperties"):
            if text_of(one.get("property")) == f"{OWN}was":
                column.was = words_of(one.get("value"))
            else:
                self._draft.lose(one.mark, "customProperties", "lakegate has no such key")
        self._options(node, column)
        self._quality(node, column)
        self._fields(node, column)
        for one in self._draft.listed(node, "relationships"):
            self._relationship(one, column.name)
        self._draft.lose_unknown_keys(node, _COLUMN_KEYS)

    def _fields(self, node: Node, column: DraftColumn) -> None:
        """Read the rules for a struct's fields. Rules for list items are noted as lost: no check looks into lists."""
        for field in self._draft.listed(node, "properties"):
            name = _physical_name(field)
            if not name:
                self._draft.lose(field.mark, "a property", "it has no name")
                continue
            inner = DraftColumn(f"{column.name}.{_path_part(name)}")
            inner.sql = f"{column.sql or quote(column.name)}.{quote(name)}"
            self._column(field, inner)
            if inner.required:  # in rows where the struct isn't NULL
                where = f"{column.sql or quote(column.name)} IS NOT NULL"
                self._draft.add(field.keys["required"], "required", "not_null", [inner.name], {"where": where})
            for key in ("primaryKey", "partitioned"):
                if field.value_of(key) is True:
                    self._draft.lose(field.keys[key], key, "it's a field of a struct")
        items = node.get("items")
        for one in () if items is None else walk(items):
            for key in ("quality", "relationships", "logicalTypeOptions", "required", "unique"):
                rule = one.get(key) or Node(None, one.mark)
                options = [name for name in rule.mapping if not _only_states_type(name, rule)]
                if rule.items or rule.value is True or options:
                    self._draft.lose(one.keys[key], f"items {key}", "lakegate can't check inside lists")

    def _keys(self, properties: list[Node]) -> None:
        def marked(key: str, position: str) -> list[Node]:
            nodes = [one for one in properties if one.value_of(key) is True and _logical_name(one) in self._columns]
            positions = [one.value_of(position) for one in nodes]
            ranks = [place if isinstance(place, int) else 0 for place in positions]
            return [node for _, node in sorted(zip(ranks, nodes, strict=True), key=lambda pair: pair[0])]

        keys = marked("primaryKey", "primaryKeyPosition")
        names = [self._columns[_logical_name(one)] for one in keys]
        for column in self._draft.columns:
            column.required = column.required or column.name in names
        if names:
            self._draft.add(keys[0].keys["primaryKey"], "primaryKey", "unique", names, {})
        partitions = marked("partitioned", "partitionKeyPosition")
        self._draft.partition_by = tuple(self._columns[_logical_name(one)] for one in partitions)

    def _type(self, node: Node) -> str | None:
        logical, physical = text_of(node.get("logicalType")), text_of(node.get("physicalType"))
        options = node.get("logicalTypeOptions") or Node({}, node.mark)
        form = text_of(options.get("format"))
        found = None if physical is None else sql_type(physical)
        if physical is not None:
            self._draft.lose_length(node.keys["physicalType"], physical, found)
        if logical == "timestamp":
            return "timestamptz" if options.value_of("timezone") is True else found or "timestamp"
        if logical in ("object", "array"):
            found = self._nested(node, logical) or found
        elif found is None and logical is not None:
            found = (
                _SIZES.get(form or "")
                or _LOGICAL.get(logical)
                or ("double" if logical == "number" and not physical else None)
            )
        if found is None and (logical or physical):
            mark = node.keys["physicalType" if physical else "logicalType"]
            self._draft.lose(mark, f"type {physical or logical}", "not an Iceberg type; the column may have any")
        return found

    def _nested(self, node: Node, logical: str) -> str | None:
        if logical == "array":
            item = node.get("items")
            inner = None if item is None else self._type(item)
            return None if inner is None else f"list<{inner}>"
        listed = (node.get("properties") or node).items
        fields = [
            (name, kind) for one in listed if (name := _physical_name(one)) and (kind := self._type(one)) is not None
        ]
        return struct_text(fields) if fields and len(fields) == len(listed) else None

    def _options(self, node: Node, column: DraftColumn) -> None:
        options = node.get("logicalTypeOptions")
        if options is None:
            return
        name, draft = column.name, self._draft
        left: dict[str, Node] = dict(options.mapping)
        limits = {
            key: left.pop(key)
            for key in list(left)
            if key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        }
        self._apply_exclusive_flags(limits, options)
        for pair, inclusive in ((("minimum", "maximum"), None), (("exclusiveMinimum", "exclusiveMaximum"), False)):
            ends = {end: limits[key].value for end, key in zip(("min", "max"), pair, strict=True) if key in limits}
            if ends:
                keys = [key for key in pair if key in limits]
                arguments = {**ends, "inclusive": inclusive}
                draft.add(options.keys[keys[0]], "/".join(keys), "in_range", [name], arguments)
        if "pattern" in left:
            # As in JSON Schema, a pattern may match anywhere in the text.
            draft.add(options.keys["pattern"], "pattern", "matches", [name], {"pattern": left.pop("pattern").value})
        for key, predicate in _predicates({key: one.value for key, one in left.items()}, column).items():
            del left[key]
            draft.add(options.keys[key], key, "sql", (), {"predicate": predicate, "name": f"{name}_{key}"})
        if "format" in left and not _only_states_type("format", options, column.type):
            self._format(str(left["format"].value), options.keys["format"], column)
        if "defaultTimezone" in left:
            draft.lose(options.keys["defaultTimezone"], "defaultTimezone", "a timestamp here has its own zone, or none")
        for key in left.keys() - {"format", "timezone", "defaultTimezone"}:
            draft.lose(options.keys[key], f"logicalTypeOptions {key}", "lakegate has no check for it")

    def _format(self, text: str, mark: Mark, column: DraftColumn) -> None:
        subject = f"logicalTypeOptions format {text}"
        if column.type == "string" and text in _CHECKED_FORMATS:
            self._draft.add(mark, subject, _CHECKED_FORMATS[text], [column.name], {})
        elif column.type == "string":
            self._draft.lose(mark, subject, "lakegate has no check for it")
        else:
            why = f"the column is of type {column.type}" if column.type else "it has no type here"
            self._draft.lose(mark, subject, why)

    def _apply_exclusive_flags(self, limits: dict[str, Node], options: Node) -> None:
        """Turn flags such as ``exclusiveMinimum: true``, which modify the other limit, into limits."""
        for exclusive, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            flag = limits[exclusive].value if exclusive in limits else None
            if flag is True and plain in limits:
                limits[exclusive] = limits.pop(plain)
            elif isinstance(flag, bool):
                del limits[exclusive]
                if flag:
                    why = f"there's no '{plain}'"
                    self._draft.lose(options.keys[exclusive], f"logicalTypeOptions {exclusive}", why)

    def _relationship(self, node: Node, column: str | None = None) -> None:
        """Read a foreign key: of a column, or of those that it names."""
        texts, own = words_of(node.get("to")), words_of(node.get("from"))
        unknown = [text for text in (*texts, *own) if "/" in text and text.lstrip("/") not in self._references]
        targets = [self._target(text) for text in texts]
        if unknown:
            self._draft.lose(node.mark, "relationships", f"this file has no {unknown[0]!r}")
            return
        if len({table for table, _ in targets}) != 1 or not targets[0][0]:
            self._draft.lose(node.mark, "relationships", "it isn't in the form table.column")
            return
        columns = [column] if column is not None else [self._own_column(text) for text in own]
        arguments = {"to": self._qualified(targets[0][0]), "to_columns": [name for _, name in targets]}
        self._draft.add(node.mark, "relationships", "relationships", columns, arguments)

    def _target(self, text: str) -> tuple[str, str]:
        """Return the table and the column that a relationship refers to."""
        table, _, column = text.rpartition(".")
        return self._references.get(text.lstrip("/"), (self._others.get(table, table), column))

    def _own_column(self, text: str) -> str:
        """Return the column of this table that a relationship refers to."""
        name = text.rpartition(".")[2]
        return self._references.get(text.lstrip("/"), ("", self._columns.get(name, name)))[1]

    def _quality(self, node: Node, column: DraftColumn | None) -> None:
        for one in self._draft.listed(node, "quality"):
            if isinstance(one.value, dict):
                _Quality(self._draft, one, column, self._columns, self._names).read()
            else:
                self._draft.lose(one.mark, "quality", "it isn't a mapping")


@dataclass
class _Quality:
    """A rule under ``quality`` while it's being read."""

    draft: Draft
    node: Node
    column: DraftColumn | None
    columns: Mapping[str, str]
    tables: set[str | None]

    def read(self) -> None:
        node = self.node
        self._operators = [name for name in _CONDITIONS if name in node.mapping]
        metric = text_of(node.get("metric")) or text_of(node.get("rule"))
        kind = text_of(node.get("type")) or ("library" if metric else "text")
        for key, mark in node.keys.items():
            if key not in _QUALITY_KEYS:
                self.draft.lose(mark, f"quality {key}", "lakegate has no such key")
        if kind == "library" and metric is not None:
            self._subject = metric
            if self._unit in ("rows", "percent"):
                self._library(metric)
            else:
                self._lose(f"the unit {self._unit!r} is neither rows nor percent")
        elif kind == "sql":
            self._subject = "quality of type sql"
            self._sql()
        elif kind == "custom" and text_of(node.get("engine")) == "lakegate":
            self._subject = "quality of type custom"
            self._lakegate_check()
        else:
            engine = text_of(node.get("engine"))
            why = "it's documentation, not a check" if kind == "text" else f"it's for {engine or 'another engine'}"
            self.draft.lose(node.mark, f"quality of type {kind}", why)

    def _library(self, metric: str) -> None:
        readers = {
            "rowCount": self._row_count, "nullValues": self._nulls, "missingValues": self._missing,
            "invalidValues": self._invalid, "duplicateValues": self._duplicates,
        }  # fmt: skip
        reader = readers.get(metric)
        if reader is None:
            self._lose("ODCS 3.1 has no such metric")
        elif metric not in ("rowCount", "duplicateValues") and self.column is None:
            self._lose("it must be listed under a property")
        else:
            reader()

    def _row_count(self) -> None:
        operator, value = self._operator()
        if self._unit == "percent":
            self._lose("a row count can't be a percentage")
            return
        whole = _ints(value)
        low, high = (whole[0], whole[-1]) if whole else (0, 0)
        ends = {
            "mustBe": (low, low), "mustBeGreaterThan": (low + 1, None), "mustBeGreaterOrEqualTo": (low, None),
            "mustBeLessThan": (None, low - 1), "mustBeLessOrEqualTo": (None, low), "mustBeBetween": (low, high),
        }.get(operator or "")  # fmt: skip
        if ends is None or whole is None:
            self._compare("count(*)")
        else:
            self._add("row_count", (), {"min": ends[0], "max": ends[1]})

    def _nulls(self) -> None:
        self._counted("not_null", [self._name], {}, f"count_if({self._sql_name} IS NULL)")

    def _missing(self) -> None:
        found = self._argument("missingValues")
        values = [one.value for one in found.items] if found is not None else [None]
        texts = [one for one in values if one is not None]
        if not texts:
            self._nulls()
            return
        if not all(isinstance(one, (str, int, float)) and not isinstance(one, bool) for one in texts):
            self._lose("a missing value is neither text nor a number")
            return
        listed = self._literals(texts)
        parts = [f"{self._sql_name} IS NULL"] * (None in values)
        parts += [f"{self._sql_name} IN ({', '.join(listed)})"] if listed else []
        if not parts:
            self._lose(f"a column of type {self._type} never has such values")
            return
        predicate = " OR ".join(parts)
        self._counted("sql", (), {"predicate": predicate}, f"count_if({predicate})")

    def _literals(self, values: list[Any]) -> list[str]:
        """Return SQL values that the column's type can hold: Spark can't compare a number with ``'n/a'``."""
        kind = self._type
        if kind == "string":
            return [sql_string(str(one)) for one in values]
        if kind.startswith(_NUMERIC):
            values = [one for one in values if not isinstance(one, str)]
        return [sql_string(one) if isinstance(one, str) else str(one) for one in values]

    def _invalid(self) -> None:
        values, pattern = self._argument("validValues"), self._argument("pattern")
        if values is not None and pattern is not None:
            self._lose("a list and a pattern would be two checks with separate counts")
        elif values is not None:
            listed = [one.plain() for one in values.items]
            plain = [one for one in listed if isinstance(one, (str, int, float)) and not isinstance(one, bool)]
            valid = self._literals(plain)
            count = f"count_if({self._sql_name} NOT IN ({', '.join(valid)}))" if len(plain) == len(listed) else None
            self._counted("accepted_values", [self._name], {"values": listed}, count if valid else None)
        elif pattern is not None:
            try:
                java = java_pattern(str(pattern.value))
            except RegexError as error:
                self._lose(f"the pattern {str(pattern.value)!r} {error}")
                return
            is_slow = (longest_text(java) or LONG_TEXTS) < LONG_TEXTS
            count = f"count_if({self._sql_name} NOT RLIKE {sql_string(java)})"
            self._counted("matches", [self._name], {"pattern": pattern.value}, None if is_slow else count)
        else:
            self._lose("it has neither validValues nor pattern")

    def _duplicates(self) -> None:
        listed = self._argument("properties")
        names = [self.columns.get(name, name) for name in words_of(listed)] if listed is not None else []
        columns = names or ([self._name] if self.column is not None else [])
        quoted = [quote(one) for one in names] or [self._sql_name]
        if not columns:
            self._lose("it lists no properties")
            return
        present = " AND ".join(f"{one} IS NOT NULL" for one in quoted)
        count = f"count_if({present}) - count(DISTINCT {', '.join(quoted)})"
        kind, tolerance = self._counted("unique", columns, {}, count)
        if kind == "unique" and tolerance:
            self.draft.lose(
                self.node.mark, self._subject, "'unique' counts all rows that share a key, including the first"
            )
        elif kind == "custom_sql":
            self.draft.lose(self.node.mark, self._subject, "of the rows that share a key, all but one count")

    def _sql(self) -> None:
        query = self.node.value_of("query")
        if not isinstance(query, str):
            self._lose("it has no query")
            return
        if '"' in query:
            self._lose("\"…\" is a name in some databases and text in Spark; write names in backticks, text in '…'")
            return
        for placeholder in _COLUMN_PLACEHOLDERS if self.column is not None else ():
            query = query.replace(placeholder, self._sql_name)
        count = _COUNT.fullmatch(query.strip())
        is_ours = count is not None and count["table"].strip("`") in {*_TABLE_PLACEHOLDERS, *self.tables}
        # A percentage is compared as the query returns it: only the query knows what it's a percentage of.
        if count is not None and is_ours and self._unit != "percent":
            where = count["where"]
            if where is None:
                self._row_count()
                return
            if not re.search(r"\bselect\b", where, re.IGNORECASE):
                self._counted("sql", (), {"predicate": where}, f"count_if({where})")
                return
        condition = self._condition("value", may_be_boolean=True)
        if condition is None:
            self._lose("it needs an operator and a number")
            return
        found = f"({self._over_batch(query)}) AS found(value)"
        self._add("custom_sql", (), {
            "query": f"SELECT * FROM {found} WHERE value IS NULL OR NOT ({condition})"  # noqa: S608 - validated later
        })  # fmt: skip

    def _over_batch(self, query: str) -> str:
        """Return a query that reads the batch instead of the contract's table."""
        for placeholder in _TABLE_PLACEHOLDERS:
            query = query.replace(placeholder, "batch")
        for name in filter(None, self.tables):
            query = re.sub(rf"(?i)(\b(?:from|join)\s+)`?{re.escape(name)}`?(?![\w.`])", r"\1batch", query)
        return query.strip().removesuffix(";").strip()

    def _lakegate_check(self) -> None:
        from lakegate.contracts.model import EntryError, read_entry

        implementation = self.node.mapping.get("implementation")
        try:
            checks = () if implementation is None else read_entry(implementation)
        except EntryError as error:
            self._lose(error.problem)
            return
        for check in checks:
            arguments = {**check.arguments, "scope": check.scope, **find_check(check.kind).options_of(check)}
            self.draft.add(self.node.mark, self._subject, check.kind, check.columns, arguments)

    def _counted(
        self, kind: str, columns: Any, arguments: Mapping[str, Any], count: str | None
    ) -> tuple[str | None, int | str | None]:
        """Add a check whose failing rows the metric counts; return its kind and tolerance.

        If the operator isn't an upper limit, a query compares ``count``, which is SQL.
        """
        tolerance = self._tolerance()
        if tolerance is not None:
            self._add(kind, columns, {**arguments, "tolerance": tolerance or None})
            return kind, tolerance
        if count is None:
            self._lose("its operator isn't an upper limit of failing rows")
            return None, None
        return self._compare(count), None

    def _compare(self, count: str) -> str | None:
        """Add a check that compares a row count or share by the operators; return its kind."""
        is_percent = self._unit == "percent"
        condition = self._condition("100 * value", "rows") if is_percent else self._condition("value")
        if condition is None:
            self._lose("it needs an operator and a number")
            return None
        query = f"SELECT {count} AS value, count(*) AS rows FROM batch"  # noqa: S608 - names are quoted
        there = "rows > 0 AND " if is_percent else ""
        self._add("custom_sql", (), {"query": f"SELECT * FROM ({query}) WHERE {there}NOT ({condition})"})  # noqa: S608
        return "custom_sql"

    def _condition(self, compared: str, unit: str | None = None, *, may_be_boolean: bool = False) -> str | None:
        """Return SQL that applies the operators to ``compared``; ``None`` if it can't be built."""
        parts = []
        for operator in self._operators:
            value = self.node.mapping[operator].plain()
            ends = value if isinstance(value, list) else [value]
            form = _CONDITIONS[operator]
            if may_be_boolean and isinstance(value, bool) and len(ends) == form.count("{}"):
                parts.append(f"{compared} {form.format(str(value).upper())}")
                continue
            if len(ends) != form.count("{}") or not all(map(_is_number, ends)):
                return None
            texts = (f"{Decimal(str(end)):f}" + (f" * {unit}" if unit else "") for end in ends)
            parts.append(f"{compared} {form.format(*texts)}")
        return " AND ".join(parts) or None

    def _tolerance(self) -> int | str | None:
        """Return the tolerance that the operator expresses; ``None`` if it isn't 'at most'."""
        operator, value = self._operator()
        is_percent = self._unit == "percent"
        number = value[-1] if isinstance(value, list) and value else value
        if operator is None or not _is_number(number):
            return None
        most: float | Decimal | None = None
        from_none = operator == "mustBeBetween" and isinstance(value, list) and value[:-1] == [0]
        if operator == "mustBeLessOrEqualTo" or (operator == "mustBe" and number == 0) or from_none:
            most = number
        elif operator == "mustBeLessThan" and number > 0:
            most = Decimal(str(number)) - _LESS if is_percent else math.ceil(number) - 1
        if most is None or most < 0 or (is_percent and most > 100):
            return None
        return f"{Decimal(str(most)):f}%" if is_percent and most else math.floor(most)

    def _operator(self) -> tuple[str | None, Any]:
        if len(self._operators) != 1:
            return None, None
        return self._operators[0], self.node.mapping[self._operators[0]].plain()

    def _argument(self, name: str) -> Node | None:
        arguments = self.node.get("arguments")
        found = None if arguments is None else arguments.get(name)
        return found if found is not None else self.node.get(name)

    @property
    def _name(self) -> str:
        return self.column.name if self.column is not None else ""

    @property
    def _unit(self) -> str:
        return (text_of(self.node.get("unit")) or "rows").lower()

    @property
    def _type(self) -> str:
        return (self.column.type if self.column is not None else None) or ""

    @property
    def _sql_name(self) -> str:
        return (self.column.sql if self.column is not None else None) or quote(self._name)

    def _add(self, kind: str, columns: Any, arguments: Mapping[str, Any]) -> None:
        node = self.node
        severity = (text_of(node.get("severity")) or "error").lower()
        if severity not in _WARNS | _BLOCKS:
            self.draft.lose(node.keys["severity"], f"severity {severity}", "it became 'error'")
        options = {
            "severity": "warn" if severity in _WARNS else None,
            "name": text_of(node.get("name")),
            "description": text_of(node.get("description")),
            "tags": [*words_of(node.get("tags")), *words_of(node.get("dimension"))] or None,
        }
        for operator in self._operators:
            if operator.endswith("Between"):
                self.draft.lose(node.keys[operator], f"{self._subject} {operator}", "both limits are inclusive")
        self.draft.add(node.mark, self._subject, kind, columns, {**arguments, **options})

    def _lose(self, why: str) -> None:
        self.draft.lose(self.node.mark, self._subject, why)


def _predicates(options: Mapping[str, Any], column: DraftColumn) -> dict[str, str]:
    """Return SQL that is true for values that break one of their type's options, by the option."""
    name = column.sql or quote(column.name)
    predicates = {
        key: f"{function}({name}) {sign} {options[key]}"
        for key, (function, sign) in _SIZE_OPTIONS.items()
        if _is_whole(options.get(key))
    }
    if options.get("uniqueItems") is True:
        predicates["uniqueItems"] = f"array_size(array_distinct({name})) < array_size({name})"
    step: Any = options.get("multipleOf")
    if (column.type or "").startswith(_EXACT) and _is_number(step) and step > 0:
        predicates["multipleOf"] = f"{name} % {Decimal(str(step)):f} <> 0"
    return predicates


def _only_states_type(key: str, options: Node, kind: str | None = None) -> bool:
    """Return whether a type's option only repeats the type: ``kind``, or any."""
    stated = _SIZES.get(str(options.mapping[key].value)) if key == "format" else None
    return key == "timezone" or (stated is not None and kind in (None, stated))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _ints(value: Any) -> list[int] | None:
    values = value if isinstance(value, list) else [value]
    is_whole = values and all(_is_number(one) and one == int(one) for one in values)
    return [int(one) for one in values] if is_whole else None
