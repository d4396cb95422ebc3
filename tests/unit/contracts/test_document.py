"""YAML by line and column, and what of it isn't allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lakegate.contracts.document import Mark, parse_document, read_document
from lakegate.errors import ConfigurationError

_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(value=_VALUES, indent=st.none() | st.just(1))
def test_json_is_read_as_what_it_says(value: Any, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    assert parse_document(text, name="x").root.plain() == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NO", "NO"),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("2024-01-31", "2024-01-31"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("'1'", "1"),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("true", True),
        ("~", None),
    ],
)
def test_values_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    read = parse_document(text, name="x").root.plain()
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", "x:3:1: key 'a' already appears on line 1."),
        ("a: &x 1", "x:1:4: anchor '&x' isn't allowed here."),
        ("a: *x", "x:1:4: alias '*x' isn't allowed here."),
        ("a: {<<: {b: 1}}", "x:1:5: merge key '<<' isn't allowed here."),
        ("a: !!python/object/apply:os.system [ls]", "x:1:4: tag "),
        ("a: !x 1", "x:1:4: tag '!x' isn't allowed."),
        (
            "a: -0.99999999999999999998",
            "x:1:4: -0.99999999999999999998 has more digits than a ",
        ),
        ("a: 007", "x:1:4: 007 may be a number or a code."),
        ("? [a]\n: 1", "x:1:3: a key must be text."),
        ("a: 1\n---\nb: 1", "x:2:1: a second document begins here."),
        ("a: [1, 2", "invalid YAML"),
        ("a: \x07", "x:1:4: invalid YAML: control characters are not allowed."),
        ("[" * 61, "x:1:61: more than 60 levels of nesting."),
    ],
)
def test_what_is_not_allowed_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_document(text, name="x")
    assert said in caught.value.message
    assert caught.value.context["file"] == "x"


def test_without_libyaml_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.contracts.document._LOADER", yaml.SafeLoader)
    assert parse_document("a: [NO, 1.5, 'x: y', {b: ~}]", name="x").root.plain() == {
        "a": ["NO", 1.5, "x: y", {"b": None}]
    }
    for text in ("a: 1\na: 2", "a: &x 1", "a: !x 1", "a: [1", "a: \x07", "[" * 61):
        with pytest.raises(ConfigurationError, match=r"^x:\d+:\d+: "):
            parse_document(text, name="x")


def test_a_node_is_found_by_its_path() -> None:
    root = parse_document("columns:\n  - name: a\n    type: long\n", name="x").root
    assert root.find(("columns", 0, "type"))[1] == Mark(3, 5)
    assert root.find(("columns", 0, "type"))[0].value == "long"
    assert root.find(("columns", 0, "typo"))[1] == Mark(2, 5)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"contracts/a\.yaml"):
        read_document(path, name="contracts/a.yaml")
