"""``lakegate check``: contracts listed and converted, without a lake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cli_support import invoke

DBT = "models:\n  - name: t\n    columns:\n      - {name: id, tests: [unique, mine]}\n"


@pytest.fixture(autouse=True)
def project(in_a_project: Path) -> Path:
    return in_a_project


def test_an_imported_contract_is_written_listed_and_exported(project: Path) -> None:
    (project / "schema.yml").write_text(DBT, encoding="utf-8")
    imported = invoke(["check", "import", "schema.yml", "--namespace", "shop"])
    assert imported.exit_code == 0
    assert imported.stdout.strip().endswith("contracts/shop.t.yaml")
    assert "line 4: mine: no check of ours is called like it" in imported.stderr

    (listed,) = json.loads(invoke("check list -o json").stdout)
    assert (listed["table"], listed["checks"]) == ("shop.t", ["unique(id)"])
    assert "metric: duplicateValues" in invoke("check export shop.t").stdout


def test_an_import_never_overwrites_a_contract(project: Path) -> None:
    (project / "schema.yml").write_text(DBT, encoding="utf-8")
    invoke("check import schema.yml")
    again = invoke("check import schema.yml")
    assert again.exit_code == 2
    assert "default.t has a contract already" in again.stderr
    assert invoke("check import schema.yml --stdout").stdout.startswith("# Made of schema.yml, line 2.")


def test_an_import_as_json_names_what_is_lost(project: Path) -> None:
    (project / "schema.yml").write_text(DBT, encoding="utf-8")
    (one,) = json.loads(invoke("check import schema.yml --stdout -o json").stdout)
    assert [(lost["line"], lost["what"]) for lost in one["untranslated"]] == [(4, "mine")]


def test_a_broken_contract_is_reported_by_its_place(project: Path) -> None:
    (project / "contracts").mkdir()
    (project / "contracts" / "a.b.yaml").write_text("version: 1\ntable: a.b\nchecks: [nul]\n", encoding="utf-8")
    found = invoke("check list")
    assert found.exit_code == 2
    assert "contracts/a.b.yaml:3:10: There is no check called 'nul'." in found.stderr


def test_the_schema_is_json() -> None:
    assert json.loads(invoke("check schema").stdout)["title"].startswith("Contract")
