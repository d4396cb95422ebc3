"""JSON Schema as SQL: what is refused. What it means is compared with a library of its own on real Spark."""

from __future__ import annotations

import json

import pytest

from lakegate.checks import json_schema, validate_checks
from lakegate.checks.json_schemas import json_predicate, read_schema
from lakegate.errors import CheckError
from lakegate.model.schema import Column, Schema
from lakegate.model.sqltext import sql_string


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "isn't JSON"),
        ("[]", "# is neither an object nor true or false"),
        ('{"a": NaN}', "it has NaN"),
        ('{"type": "object", "type": "array"}', "'type' twice"),
        ('{"typ": "object"}', "#/typ: this keyword isn't supported. Did you mean 'type'?"),
        ('{"items": {"uniqueItems": true}}', "#/items/uniqueItems: this keyword"),
        ('{"type": "objekt"}', "#/type: 'objekt' isn't one of"),
        ('{"enum": [[1]]}', "#/enum: a value may be text"),
        ('{"minLength": 1.5}', "isn't a whole number, 0 or more"),
        ('{"minimum": "1"}', "isn't a number"),
        ('{"format": "hostname"}', "'hostname' isn't one of date, date-time, uuid"),
        ('{"pattern": "(a+)+$"}', "can take forever"),
        ('{"additionalProperties": false, "properties": 3}', "#/properties: it isn't an object of schemas"),
        ('{"required": "a"}', "isn't a list of names"),
        ('{"$ref": "https://example.org/x"}', "only references within the schema"),
        ('{"$ref": "#/$defs/x"}', "there is no #/$defs/x"),
        ('{"properties": {"a": {"$ref": "#"}}}', "refers to itself"),
        (json.dumps({"allOf": [{"type": "null"}] * 500}), "too large"),
        ("[" * 100_000, "isn't JSON|nested too deeply"),
    ],
)
def test_a_schema_that_cannot_be_kept_to_is_refused(schema: str, problem: str) -> None:
    with pytest.raises(CheckError) as caught:
        json_schema("doc", schema)
    assert any(one in caught.value.message for one in problem.split("|"))


def test_patterns_limit_the_texts_that_they_are_tried_on() -> None:
    _, longest = json_predicate(read_schema('{"items": {"pattern": "\\\\s+$"}, "pattern": "^a"}'), "`doc`")
    assert longest == 10_000


def test_a_pattern_ends_where_the_text_does() -> None:
    sql, _ = json_predicate({"pattern": r"^[$]\$[0-9]$"}, "`doc`")
    assert sql_string(r"^[$]\$[0-9]\z") in sql


def test_it_is_for_text() -> None:
    with pytest.raises(CheckError, match="not text"):
        validate_checks([json_schema("n", "true")], Schema(columns=(Column(name="n", type="long"),)))
