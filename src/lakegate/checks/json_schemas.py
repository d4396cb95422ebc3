"""Compiles JSON Schema to Spark SQL, so that no library is needed where Spark runs.

The result is one expression on Spark's ``VARIANT``. Unknown keywords are refused, because ignoring one would let
invalid strings pass. Spark SQL has no LET, so each value and its type are bound once by a lambda over one element
(``forall(array(…), n -> …)``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lakegate.checks.patterns import longest_text
from lakegate.checks.regex import RegexError, java_pattern
from lakegate.model.sqltext import sql_string
from lakegate.model.words import did_you_mean

_ANNOTATIONS = frozenset({"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated",
                         "readOnly", "writeOnly", "$defs", "definitions"})  # fmt: skip
"""Keywords that don't constrain values."""
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_MOST_PARTS = 400
_MOST_DEPTH = 40
FORMATS = {
    "date": r"\A\d{4}-\d\d-\d\d\z",
    "date-time": r"\A\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)\z",
    "uuid": r"\A[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\z",
}
"""Supported formats and their patterns. For dates, the day must also exist."""


def read_schema(text: str) -> Any:
    """Parse a JSON Schema.

    Raises:
        ValueError: If it's invalid; the message says why.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        raise ValueError(f"the schema isn't JSON: {error.msg} (line {error.lineno}, column {error.colno}).") from None
    except RecursionError:
        raise ValueError("the schema is nested too deeply.") from None


def json_predicate(schema: Any, column: str) -> tuple[str, int | None]:
    """Return SQL that is true for invalid strings, and the longest string that it may be tried on.

    Args:
        column: A quoted text column.

    Raises:
        ValueError: If the schema can't be used; the message says where and why.

    Example:
        >>> json_predicate(True, "`doc`")[0].startswith("`doc` IS NOT NULL AND NOT ")
        True
    """
    compiler = _Compiler(schema)
    valid = compiler.condition(schema, "try_element_at(doc.parts, 1)", "#")
    # Spark reads one value and ignores what comes after it. In an array, a second value that no text can hold, its own
    # hash, shows that the text was read to its end.
    text = f"concat('[', {column}, ',\"', md5({column}), '\"]')"
    parts = f"struct(CAST(try_parse_json({text}) AS ARRAY<VARIANT>) AS parts, md5({column}) AS hash)"
    is_whole = "size(doc.parts) = 2 AND CAST(try_element_at(doc.parts, 2) AS STRING) = doc.hash"
    passes = f"coalesce(forall(array({parts}), doc -> {is_whole} AND {valid}), FALSE)"
    return f"{column} IS NOT NULL AND NOT {passes}", compiler.longest_text


class _Compiler:
    """Compiles one schema. Each of its expressions is true or false, never NULL."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._parts = 0
        self._open_references: list[str] = []
        self.longest_text: int | None = None

    def condition(self, schema: Any, value: str, at: str) -> str:
        """Return SQL for whether ``value``, SQL for a variant that isn't NULL, is valid."""
        self._parts += 1
        if self._parts > _MOST_PARTS or at.count("/") > _MOST_DEPTH:
            raise ValueError(f"the schema is too large: it has more than {_MOST_PARTS} parts, or is nested too deeply.")
        if isinstance(schema, bool):
            return str(schema).upper()
        if not isinstance(schema, dict):
            raise ValueError(f"{at} is neither an object nor true or false.")  # noqa: TRY004 - of what a user wrote
        name = f"n{self._parts}"
        terms = list(self._terms(schema, name, at))
        if not terms:
            return "TRUE"
        pair = f"struct({value} AS v, schema_of_variant({value}) AS t)"
        return f"coalesce(forall(array({pair}), {name} -> {' AND '.join(terms)}), FALSE)"

    def _terms(self, schema: Mapping[str, Any], name: str, at: str) -> Iterator[str]:
        for keyword, value in schema.items():
            place = f"{at}/{keyword}"
            if keyword in _ANNOTATIONS or keyword in ("then", "else"):  # handled with "if"
                continue
            if keyword == "$ref":
                yield self._reference(value, name, place)
                continue
            if keyword in _LIMITS:
                kind, measure, sign, read = _LIMITS[keyword]
                yield f"({_if_is(kind, name, f'{measure.format(_as(kind, name))} {sign} {read(value, place)}')})"
                continue
            make = getattr(self, f"_{_snake(keyword)}", None) if keyword in _KEYWORDS else None
            if make is None:
                raise ValueError(f"{place}: this keyword isn't supported. {did_you_mean(keyword, _KEYWORDS)}".strip())
            yield f"({make(value, name, place, schema)})"

    def _reference(self, value: Any, name: str, at: str) -> str:
        if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
            raise ValueError(f"{at}: only references within the schema, '#/…', are supported.")
        if value in self._open_references:
            raise ValueError(f"{at}: {value} refers to itself; recursive schemas aren't supported.")
        found = self._root
        for part in value.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise ValueError(f"{at}: there is no {value}.")
            found = found[key]
        self._open_references.append(value)
        valid = self.condition(found, f"{name}.v", at)
        self._open_references.pop()
        return valid

    # Any type ------------------------------------------------------------------------------------------------------

    def _type(self, value: Any, name: str, at: str, _: Any) -> str:
        kinds = [value] if isinstance(value, str) else value
        if not isinstance(kinds, list) or not kinds or any(kind not in _TYPES for kind in kinds):
            raise ValueError(f"{at}: {value!r} isn't one of {', '.join(_TYPES)}, or a list of these.")
        return " OR ".join(_is(kind, name) for kind in kinds)

    def _enum(self, value: Any, name: str, at: str, _: Any) -> str:
        if not isinstance(value, list) or not value:
            raise ValueError(f"{at}: it isn't a list of values.")
        return " OR ".join(f"({_equals(one, name, at)})" for one in value)

    def _const(self, value: Any, name: str, at: str, _: Any) -> str:
        return _equals(value, name, at)

    def _all_of(self, value: Any, name: str, at: str, _: Any) -> str:
        return " AND ".join(self._each(value, name, at))

    def _any_of(self, value: Any, name: str, at: str, _: Any) -> str:
        return " OR ".join(self._each(value, name, at))

    def _one_of(self, value: Any, name: str, at: str, _: Any) -> str:
        return " + ".join(f"IF({one}, 1, 0)" for one in self._each(value, name, at)) + " = 1"

    def _not(self, value: Any, name: str, at: str, _: Any) -> str:
        return f"NOT {self.condition(value, f'{name}.v', at)}"

    def _if(self, value: Any, name: str, at: str, schema: Mapping[str, Any]) -> str:
        then, other = (
            self.condition(schema.get(word, True), f"{name}.v", at.removesuffix("if") + word)
            for word in ("then", "else")
        )
        return f"IF({self.condition(value, f'{name}.v', at)}, {then}, {other})"

    def _each(self, value: Any, name: str, at: str) -> list[str]:
        if not isinstance(value, list) or not value:
            raise ValueError(f"{at}: it isn't a list of schemas.")
        return [self.condition(one, f"{name}.v", f"{at}/{index}") for index, one in enumerate(value)]

    # Texts ---------------------------------------------------------------------------------------------------------

    def _pattern(self, value: Any, name: str, at: str, _: Any) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError(f"{at}: it isn't a pattern.")
        try:
            java = java_pattern(value, to_the_end=True)
        except RegexError as error:
            raise ValueError(f"{at}: the pattern {value!r} {error}.") from None
        limits = [one for one in (self.longest_text, longest_text(value)) if one is not None]
        self.longest_text = min(limits, default=None)
        return _if_is("string", name, f"{_as('string', name)} RLIKE {sql_string(java)}")

    def _format(self, value: Any, name: str, at: str, _: Any) -> str:
        pattern = FORMATS.get(value) if isinstance(value, str) else None
        if pattern is None:
            raise ValueError(f"{at}: {value!r} isn't one of {', '.join(FORMATS)}.")
        text = _as("string", name)
        day = f" AND try_cast(substring({text}, 1, 10) AS DATE) IS NOT NULL" if value.startswith("date") else ""
        hours = f" AND try_cast(upper({text}) AS TIMESTAMP) IS NOT NULL" if value == "date-time" else ""
        return _if_is("string", name, f"{text} RLIKE {sql_string(pattern)}{day}{hours}")

    # Arrays --------------------------------------------------------------------------------------------------------

    def _items(self, value: Any, name: str, at: str, _: Any) -> str:
        item = f"{name}i"
        return _if_is("array", name, f"forall({_as('array', name)}, {item} -> {self.condition(value, item, at)})")

    # Objects -------------------------------------------------------------------------------------------------------

    def _properties(self, value: Any, name: str, at: str, _: Any) -> str:
        terms = []
        for key, schema in _schemas_in(value, at).items():
            found = f"try_element_at({_as('object', name)}, {sql_string(key)})"
            terms.append(f"({found} IS NULL OR {self.condition(schema, found, f'{at}/{key}')})")
        return _if_is("object", name, " AND ".join(terms) or "TRUE")

    def _required(self, value: Any, name: str, at: str, _: Any) -> str:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ValueError(f"{at}: it isn't a list of names.")
        terms = (f"map_contains_key({_as('object', name)}, {sql_string(one)})" for one in value)
        return _if_is("object", name, " AND ".join(terms) or "TRUE")

    def _additional_properties(self, value: Any, name: str, at: str, schema: Mapping[str, Any]) -> str:
        properties = _schemas_in(schema.get("properties", {}), f"{at.removesuffix('additionalProperties')}properties")
        known = ", ".join(map(sql_string, properties))
        entry = f"{name}e"
        is_known = f"{entry}.key IN ({known}) OR " if known else ""
        valid = self.condition(value, f"{entry}.value", at)
        return _if_is("object", name, f"forall(map_entries({_as('object', name)}), {entry} -> {is_known}{valid})")


_KEYWORDS = (
    "$ref", "additionalProperties", "allOf", "anyOf", "const", "enum", "exclusiveMaximum", "exclusiveMinimum", "format",
    "if", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties",
    "minimum", "not", "oneOf", "pattern", "properties", "required", "type",
)  # fmt: skip


_SPARK_TYPES = {"number": "DOUBLE", "string": "STRING", "array": "ARRAY<VARIANT>", "object": "MAP<STRING, VARIANT>"}


def _schemas_in(value: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{at}: it isn't an object of schemas.")  # noqa: TRY004 - of what a user wrote
    return value


def _snake(keyword: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in keyword)


def _is(kind: str, name: str) -> str:
    match kind:
        case "string" | "boolean":
            return f"{name}.t = '{kind.upper()}'"
        case "null":
            return f"{name}.t = 'VOID'"
        case "object" | "array":
            return f"{name}.t LIKE '{kind.upper()}<%'"
        case "number":
            return f"({name}.t = 'BIGINT' OR {name}.t = 'DOUBLE' OR {name}.t LIKE 'DECIMAL(%')"
    digits = f"NOT CAST({name}.v AS STRING) RLIKE '[.][0-9]*[1-9]'"
    return (
        f"({name}.t = 'BIGINT' OR ({name}.t LIKE 'DECIMAL(%' AND {digits}) OR "
        f"({name}.t = 'DOUBLE' AND {_as('number', name)} % 1D = 0D))"  # floor's result is a BIGINT
    )


def _if_is(kind: str, name: str, then: str, otherwise: str = "TRUE") -> str:
    """Return SQL that applies a condition to values of one type; others pass by default."""
    return f"CASE WHEN {_is(kind, name)} THEN {then} ELSE {otherwise} END"


def _as(kind: str, name: str) -> str:
    return f"CAST({name}.v AS {_SPARK_TYPES[kind]})"


def _equals(value: Any, name: str, at: str) -> str:
    if isinstance(value, bool):
        return _if_is("boolean", name, f"CAST({name}.v AS BOOLEAN) = {str(value).upper()}", otherwise="FALSE")
    if isinstance(value, str):
        return _if_is("string", name, f"{_as('string', name)} = {sql_string(value)}", otherwise="FALSE")
    if isinstance(value, (int, float)):
        return _if_is("number", name, f"{_as('number', name)} = {_number(value, at)}", otherwise="FALSE")
    if value is None:
        return _is("null", name)
    raise ValueError(f"{at}: a value may be text, a number, true, false or null, not a list or an object.")


def _number(value: Any, at: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 10**300:
        raise ValueError(f"{at}: {value!r} isn't a number.")
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def _count(value: Any, at: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**31 or value % 1:
        raise ValueError(f"{at}: {value!r} isn't a whole number, 0 or more.")
    return str(int(value))


def _refuse_constant(text: str) -> None:
    raise ValueError(f"the schema isn't JSON: it has {text}.")


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the schema has {twice!r} twice in one object.")
    return found


_LIMITS: Mapping[str, tuple[str, str, str, Callable[[Any, str], str]]] = {
    "minimum": ("number", "{}", ">=", _number),
    "maximum": ("number", "{}", "<=", _number),
    "exclusiveMinimum": ("number", "{}", ">", _number),
    "exclusiveMaximum": ("number", "{}", "<", _number),
    "minLength": ("string", "char_length({})", ">=", _count),
    "maxLength": ("string", "char_length({})", "<=", _count),
    "minItems": ("array", "size({})", ">=", _count),
    "maxItems": ("array", "size({})", "<=", _count),
    "minProperties": ("object", "size({})", ">=", _count),
    "maxProperties": ("object", "size({})", "<=", _count),
}
"""Keywords that set a limit: the type of value, what is measured, how it's compared, and how to read the limit."""
