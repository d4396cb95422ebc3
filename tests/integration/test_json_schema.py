"""JSON Schema as Spark's SQL means what a validator of JSON Schema says."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from lakegate.checks.json_schemas import json_predicate
from lakegate.components import Components

pytestmark = pytest.mark.jvm

SCALARS = (0, 1, -1, 1.0, 1.5, 2, 100.0, 12345678901234567890, 0.1, "", "a", "ab", "é", "2024-02-30", "2024-02-29",
           "9d3e0f6a-0000-4000-8000-0123456789ab", True, False, None, "null", "true", "1")  # fmt: skip
KEYS = ("a", "b", "a b", "c.d", "é", "it's", 'q"', "$x", "")
TEXTS = ("", "  ", "{", "{}x", "{} {}", "nul", "NaN", "[1,]", "{'a':1}", "01", "1 2", '"a', '{"a":1,"a":2}', "-", "-0",
         "Infinity", "1e5", "1E-2", "-0.0", "  {} ", "[1e0]", "1.00", '"\\u0061"', "\t1\n", "[[[[[[]]]]]]", "/*c*/1",
         "+1", ".5", "5.", "1e20", "-1E300", "1" + 40 * "0")  # fmt: skip
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string", ["string", "null"], ["integer", "object"])


def some_value(r: random.Random, depth: int = 0) -> Any:
    kind = r.random()
    if depth < 3 and kind < 0.35:
        return {r.choice(KEYS): some_value(r, depth + 1) for _ in range(r.randint(0, 3))}
    if depth < 3 and kind < 0.55:
        return [some_value(r, depth + 1) for _ in range(r.randint(0, 3))]
    return r.choice(SCALARS)


def some_schema(r: random.Random, depth: int = 0) -> Any:
    if depth > 3:
        return r.random() < 0.5

    def several(least: int) -> list[Any]:
        return [some_schema(r, depth + 1) for _ in range(r.randint(least, 3))]

    make: dict[str, Callable[[], Any]] = {
        **dict.fromkeys(("additionalProperties", "items", "not"), lambda: some_schema(r, depth + 1)),
        **dict.fromkeys(("allOf", "anyOf", "oneOf"), lambda: several(1)),
        **dict.fromkeys(("exclusiveMaximum", "maximum", "minimum"), lambda: r.choice((0, 1, 1.5, 2, 100, -1))),
        **dict.fromkeys(("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"),
                        lambda: r.randint(0, 3)),
        "const": lambda: r.choice(SCALARS),
        "enum": lambda: r.sample(SCALARS, 3),
        "format": lambda: r.choice(("date", "uuid")),
        "if": lambda: some_schema(r, depth + 2),
        "else": lambda: some_schema(r, depth + 2),
        "then": lambda: some_schema(r, depth + 2),
        "pattern": lambda: r.choice(("^a", "b$", "^$", "é", "[0-9]")),
        "properties": lambda: dict(zip(r.sample(KEYS, 3), several(0), strict=False)),
        "required": lambda: r.sample(KEYS, r.randint(0, 2)),
        "type": lambda: r.choice(TYPES),
    }  # fmt: skip
    made = {keyword: make[keyword]() for keyword in r.choices((*make, "type", "properties"), k=r.randint(0, 3))}
    return {**made, "then": False, "else": make["else"]()} if "if" in made else made


def is_valid(text: str, validator: Any) -> bool:
    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError(pairs)
        return dict(pairs)

    def refuse(text: str) -> None:
        raise ValueError(text)

    try:
        value = json.loads(text, object_pairs_hook=distinct, parse_constant=refuse)
    except ValueError:
        return False
    return bool(validator.is_valid(value))


def test_texts_are_valid_as_a_validator_says(components: Components) -> None:
    r = random.Random(15)
    texts = [*TEXTS, *(json.dumps(some_value(r), ensure_ascii=r.random() < 0.5) for _ in range(80))]
    schemas = [some_schema(r) for _ in range(30)]
    engine: Any = components.engine
    frame = engine.session.createDataFrame([(text,) for text in texts], "doc string")
    wanted = (f"({json_predicate(schema, '`doc`')[0]}) AS c{index}" for index, schema in enumerate(schemas))
    found = frame.selectExpr("doc", *wanted).collect()
    formats = FormatChecker(formats=("date", "uuid"))
    wrong = [
        (text, schema, fails)
        for text, *answers in found
        for schema, fails in zip(schemas, answers, strict=True)
        if fails is is_valid(text, Draft202012Validator(schema, format_checker=formats))
    ]
    assert not wrong, wrong[:5]
    assert len(found) == len(texts)
