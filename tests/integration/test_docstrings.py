"""The examples in the docstrings of ``Lake``, its parts, ``Table`` and ``Query``, on real Spark and Nessie."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakegate
from e2e.docs_api import PARTS
from lakegate.lake import Lake, connect
from lakegate.table import Query, Table
from support.e2e_support import write

pytestmark = pytest.mark.jvm


def rows(count: int, start: int = 0, *, fare: float | None = 12.5) -> pa.Table:
    fares = pa.array([fare] * count, pa.float64())
    return pa.table({"trip_id": pa.array(range(start, start + count), pa.int64()), "fare": fares})


def examples(namespace: str) -> list[doctest.DocTest]:
    """Return the examples, with the tables of a namespace that is this test's alone."""
    classes = (Lake, *PARTS.values(), Table, Query)
    members = [(name, member) for one in classes for name, member in vars(one).items()]
    methods = [member for name, member in members if inspect.isfunction(member) and not name.startswith("_")]
    found = []
    functions: list[Callable[..., Any]] = [connect, *methods]
    for function in functions:
        text = (inspect.getdoc(function) or "").replace("nyc.", f"{namespace}.")
        found.append(doctest.DocTestParser().get_doctest(text, {}, function.__qualname__, None, 0))
    return [one for one in found if one.examples]


def test_the_examples_do_what_they_say(
    lake: Lake, home: Path, namespace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = home / namespace
    monkeypatch.chdir(write(folder / "trips" / "a.parquet", rows(100)).parent.parent)
    write(folder / "more" / "trips.parquet", rows(10, 100))
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    tests = examples(namespace)
    assert len(tests) > 15
    for test in tests:
        if test.name == "Lake.audit":
            bad = write(folder / "bad.parquet", rows(5, 200, fare=None))
            lake.ingest(f"{namespace}.fares", bad, checks=["not_null(fare)"], branch="fix", on_rejected="return")
        test.globs = {"lakegate": lakegate, "lake": lake, "datetime": datetime, "UTC": UTC}
        assert runner.run(test).failed == 0, capsys.readouterr().out
    lake.branches.delete("experiment")
    lake.tags.delete("release-1")
