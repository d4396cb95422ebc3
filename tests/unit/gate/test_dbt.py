"""What dbt gets for its project to write through the gate, and what is read from its artifacts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakegate.errors import InputError
from lakegate.gate.dbt import DbtProject, find_project

URI, BRANCH, TOKEN = "http://127.0.0.1:8181", "wap/shop", "s3cret"
DUCK = {
    "type": "duckdb",
    "path": "shop.duckdb",
    "schema": "{{ env_var('SCHEMA') }}",
    "threads": 4,
    "extensions": ["spatial", {"name": "httpfs", "repo": "core_nightly"}],
    "attach": [{"path": "raw.duckdb"}],
}
SPARK = {"type": "spark", "method": "thrift", "host": "spark.example.com", "token": "x", "schema": "shop", "threads": 8}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project, in which the user is."""
    write(tmp_path / "dbt_project.yml", {"name": "shop", "profile": "shop", "models": {"shop": {"+tags": "a"}}})
    outputs = {"duck": DUCK, "spark": SPARK, "other": {"type": "postgres"}}
    write(tmp_path / "profiles.yml", {"shop": {"target": "duck", "outputs": outputs}, "empty": {"outputs": {}}})
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "one.sql").write_text("select 1 as id")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(content)), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def found(**variables: str) -> DbtProject:
    return find_project(variables, ["dbt", "build"])


def test_outputs_of_spark_and_duckdb_write_through_the_gate_as_their_owner_set_them_up(root: Path) -> None:
    with found().writing({"KEPT": "1"}, URI, BRANCH, TOKEN) as variables:
        folder = Path(variables["DBT_PROFILES_DIR"])
        assert folder.stat().st_mode & 0o077 == 0
        profiles = read(folder / "profiles.yml")
        assert TOKEN not in (folder / "profiles.yml").read_text()
        assert (variables["KEPT"], variables["DBT_ENV_SECRET_LAKEGATE_GATE_TOKEN"]) == ("1", TOKEN)
    assert not folder.exists()
    assert list(profiles) == ["shop"]
    assert profiles["shop"]["target"] == "duck"
    duck, spark = profiles["shop"]["outputs"]["duck"], profiles["shop"]["outputs"]["spark"]
    assert list(profiles["shop"]["outputs"]) == ["duck", "spark"]
    token = "{{ env_var('DBT_ENV_SECRET_LAKEGATE_GATE_TOKEN') }}"
    gate = {"path": BRANCH, "alias": "gate", "type": "iceberg", "options": {"endpoint": URI, "token": token}}
    assert duck == {
        **DUCK,
        "database": "gate",
        "extensions": ["spatial", {"name": "httpfs", "repo": "core_nightly"}, "avro", "iceberg"],
        "attach": [{"path": "raw.duckdb"}, gate],
    }
    assert (spark["method"], spark["schema"], spark["threads"]) == ("session", "shop", 8)
    assert "token" not in spark


def test_the_project_is_linked_with_what_the_engines_need(root: Path) -> None:
    (root / "snapshots").mkdir()
    (root / "snapshots" / "customers.yml").write_text("snapshots: []")
    (root / "seeds").mkdir()
    (root / "seeds" / ".gitkeep").touch()
    with found().writing({}, URI, BRANCH, TOKEN) as variables:
        copy = Path(variables["DBT_PROJECT_DIR"])
        settings = read(copy / "dbt_project.yml")
        assert (copy / "models" / "one.sql").read_text() == "select 1 as id"
        macros = [copy / folder for folder in settings["macro-paths"]]
        assert 'materialization table, adapter="duckdb"' in (macros[-1] / "gate.sql").read_text()
        assert settings["models"] == {"+file_format": "iceberg", "shop": {"+tags": "a"}}
        assert (settings["snapshots"], "seeds" in settings) == ({"+file_format": "iceberg"}, False)
        assert Path(variables["DBT_TARGET_PATH"]) == root / "target"
    assert sorted(path.name for path in root.iterdir()) == [
        *("dbt_project.yml", "models", "profiles.yml", "seeds", "snapshots"),
    ]

    macro = '{%- materialization table, adapter = "duckdb" -%} select 1 {% endmaterialization %}'
    (root / "macros").mkdir()
    (root / "macros" / "mine.sql").write_text(macro)
    with found().writing({}, URI, BRANCH, TOKEN) as variables:
        assert "materialization" not in (Path(variables["DBT_PROJECT_DIR"]) / macros[-1].name / "gate.sql").read_text()


def test_the_project_and_the_profiles_are_found_as_dbt_finds_them(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "models")
    assert found().root == root
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(elsewhere / "profiles.yml", {"shop": {"outputs": {"mine": SPARK}}})
    monkeypatch.chdir(elsewhere)
    project = found(DBT_PROJECT_DIR=str(root), DBT_PROFILES_DIR=str(elsewhere), DBT_TARGET_PATH="built")
    assert (project.root, list(project.profiles["shop"]["outputs"])) == (root, ["mine"])
    assert project.artifacts == root / "built"
    with pytest.raises(InputError, match=r"There's no dbt_project\.yml in"):
        found()


def test_what_would_lead_dbt_past_the_gate_is_refused(root: Path) -> None:
    for option in ("--profiles-dir", "--project-dir=/x", "--target-path=/x"):
        with pytest.raises(InputError, match="is lakegate's to set"):
            find_project({}, ["dbt", "build", option])
    write(root / "profiles.yml", {"shop": {"outputs": {"dev": {"type": "postgres"}}}})
    with pytest.raises(InputError, match="of type spark or duckdb"):
        found()
    (root / "profiles.yml").write_text("shop: [")
    with pytest.raises(InputError, match=r"Can't read .*profiles.yml"):
        found()
    (root / "profiles.yml").unlink()
    with pytest.raises(InputError, match=r"There's no profiles\.yml in"):
        found(DBT_PROFILES_DIR=str(root))


def test_results_are_those_of_this_run(root: Path) -> None:
    project = found()
    artifacts(root, {"model.shop.old": ("error", None, "x")}, {})
    parsed = root / "target" / "partial_parse.msgpack"
    parsed.write_text("files of the user's project")
    with project.writing({}, URI, BRANCH, TOKEN):
        assert not parsed.exists()
        parsed.write_text("files of the copy, which nobody else has")
    assert not parsed.exists()
    assert (project.outcome().summary, project.outcome().failures) == ("", [])

    artifacts(
        root,
        {
            "model.shop.trips": ("success", None, "OK"),
            "model.shop.shown": ("error", None, "Runtime Error in model shown\n  Not implemented Error: Create View"),
            "test.shop.not_null_trips_id.5fb22c2710": ("fail", 4, "Got 4 results"),
            "test.shop.unique_trips_id.11aa": ("pass", 0, None),
            "test.shop.few_trips.22bb": ("warn", 1, None),
            "unit_test.shop.trips.sums": ("pass", 0, None),
            "model.shop.later": ("skipped", None, None),
        },
        {"model.shop.shown": "view", "model.shop.trips": "table"},
    )
    outcome = project.outcome()
    assert outcome.summary == "1 model, 1 test, 1 unit test; 1 warn; 1 skipped"
    assert outcome.failures == [
        "model shown: Runtime Error in model shown Not implemented Error: Create View",
        "test not_null_trips_id: 4 rows failed",
    ]
    assert outcome.views == ["shown"]


def artifacts(root: Path, results: Mapping[str, tuple[str, int | None, str | None]], kinds: Mapping[str, str]) -> None:
    listed = [
        {"unique_id": key, "status": status, "failures": failures, "message": message}
        for key, (status, failures, message) in results.items()
    ]
    nodes = {key: {"config": {"materialized": kind}} for key, kind in kinds.items()}
    (root / "target").mkdir(exist_ok=True)
    (root / "target" / "run_results.json").write_text(json.dumps({"results": listed}))
    (root / "target" / "manifest.json").write_text(json.dumps({"nodes": nodes}))
