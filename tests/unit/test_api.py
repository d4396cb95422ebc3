"""The Python API as a whole: every argument and error is documented, and unknown keywords are refused."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import lakegate
from e2e import docs_api
from lakegate.config import Settings
from lakegate.errors import InputError

FUNCTIONS = docs_api.functions()
ALL = FUNCTIONS | docs_api.check_functions()


@pytest.mark.parametrize("name", ALL)
def test_every_argument_is_documented(name: str) -> None:
    function = ALL[name]
    docs = docs_api.parse(function)
    assert docs.text, "what it does"
    names = [parameter.name for parameter in docs_api.parameters(function)]
    if len(names) > 1:
        assert list(docs.entries("Args")) == names
        owner = docs_api.CLASSES.get(name.rpartition(".")[0])
        assert "Raises" in {**docs.sections, **docs_api.parse(owner).sections}


@pytest.mark.parametrize(
    ("name", "typo", "meant"),
    [
        ("lakegate.connect", "cataloq", "catalog"),
        ("Lake.ingest", "chekcs", "checks"),
        ("Lake.plan", "on_change", "on_changed"),
        ("Lake.write", "partiton_by", "partition_by"),
        ("Lake.publish", "branhc", "branch"),
        ("lake.maintenance.gc", "dry_rum", "dry_run"),
    ],
)
def test_the_error_suggests_the_keyword_that_was_meant(name: str, typo: str, meant: str) -> None:
    function = FUNCTIONS[name]
    needed = [one for one in inspect.signature(function).parameters.values() if _is_required(one)]
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\) .*'{typo}'\. Did you mean '{meant}'\?"):
        function(*("x" for _ in needed), **{typo: "x"})


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "upser"}, r"Invalid value: mode='upser'\."),
        ({"schema": "evolv"}, r"Invalid value: schema='evolv'\."),
        ({"format": "csvv"}, r"Invalid value: format='csvv'\."),
        ({"on_failure": 1}, r"Invalid value: on_failure=1\."),
        ({"checks": "not_null(id)"}, r"checks='not_null\(id\)' isn't a list\."),
        ({"partition_by": "day"}, r"partition_by='day' isn't a list\."),
        ({"columns": {"a": 1}}, r"columns=\{'a': 1\} doesn't map column names to"),
        ({"columns": {"a": ""}}, r"columns=\{'a': ''\} doesn't map column names to"),
        ({"columns": ["a=b"]}, r"columns=\['a=b'\] doesn't map column names to"),
    ],
)
@pytest.mark.parametrize("method", ["ingest", "plan", "write"])
def test_invalid_values_are_refused_before_anything_starts(
    method: str, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with lakegate.connect(tmp_path) as lake, pytest.raises(InputError, match=said) as caught:
        getattr(lake, method)("nyc.trips", "trips.parquet", **options)
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


def test_arguments_override_the_settings_that_are_passed(tmp_path: Path) -> None:
    given = Settings.model_validate({"catalog": {"uri": "http://a:19120/api/v2", "timeout_s": 3}})
    with lakegate.connect(tmp_path, settings=given, catalog="http://b:19120/api/v2", engine="sc://spark:15002") as lake:
        assert (lake.settings.catalog.uri, lake.settings.catalog.timeout_s) == ("http://b:19120/api/v2", 3)
        assert lake.settings.engine.url == "sc://spark:15002"
    assert given.engine.url is None
    with lakegate.connect(tmp_path, settings=given) as lake:
        assert lake.settings is given


@pytest.mark.parametrize("arguments", [("audit", "nyc.trips"), ("evolve_table", "nyc.trips", "ADD COLUMN a INT")])
def test_one_check_is_no_list_of_its_letters(arguments: tuple[str, ...], tmp_path: Path) -> None:
    method, *others = arguments
    with (
        lakegate.connect(tmp_path) as lake,
        pytest.raises(InputError, match=r"checks='not_null\(id\)' isn't a list\."),
    ):
        getattr(lake, method)(*others, checks="not_null(id)")
    assert not list(tmp_path.iterdir())


def test_anything_but_paths_and_rows_is_refused_by_its_type(tmp_path: Path) -> None:
    with lakegate.connect(tmp_path) as lake, pytest.raises(InputError, match=r"a list of list\."):
        lake.ingest("nyc.trips", [[1]])
