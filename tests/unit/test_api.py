"""The Python API as a whole: every argument and error is documented, and unknown keywords are refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from e2e import docs_api

FUNCTIONS = docs_api.functions()
ALL = FUNCTIONS | docs_api.check_functions()


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [one for one in inspect.signature(function).parameters.values() if one.name != "self"]


def test_the_page_has_every_public_name() -> None:
    assert {"lakegate.connect", "Lake.ingest", "Transaction.upsert", "Table.files", "Query.to_arrow"} <= set(FUNCTIONS)
    assert "checks.parse_checks" in ALL


@pytest.mark.parametrize("name", ALL)
def test_every_argument_is_documented(name: str) -> None:
    function = ALL[name]
    docs = docs_api.parse(function)
    assert docs.text, "what it does"
    names = [parameter.name for parameter in _parameters(function)]
    if len(names) > 1:
        assert list(docs.entries("Args")) == names
        assert "Raises" in docs.sections


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_unknown_keyword_is_refused_by_name(name: str) -> None:
    function = FUNCTIONS[name]
    needed = [one for one in inspect.signature(function).parameters.values() if _is_required(one)]
    with pytest.raises(TypeError, match=r"\(\) got an unexpected keyword argument 'chekcs'"):
        function(*("x" for _ in needed), chekcs=["not_null(id)"])


@pytest.mark.parametrize(
    ("name", "typo", "meant"),
    [
        ("lakegate.connect", "cataloq", "catalog"),
        ("Lake.ingest", "chekcs", "checks"),
        ("Lake.plan", "on_change", "on_changed"),
        ("Lake.write", "partiton_by", "partition_by"),
        ("Lake.publish", "branhc", "branch"),
        ("Lake.gc", "dry_rum", "dry_run"),
    ],
)
def test_the_error_suggests_the_keyword_that_was_meant(name: str, typo: str, meant: str) -> None:
    function = FUNCTIONS[name]
    needed = [one for one in inspect.signature(function).parameters.values() if _is_required(one)]
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\) .*'{typo}'\. Did you mean '{meant}'\?"):
        function(*("x" for _ in needed), **{typo: "x"})


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
