"""``lakegate check``: list and convert contracts, without a lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import pytest

from lakegate.checks import not_null
from lakegate.wap.trial import ContractTrial
from support.cli_support import FakeLake, invoke, report, result

DBT = "models:\n  - name: t\n    columns:\n      - {name: id, tests: [unique, mine]}\n"


@pytest.fixture(autouse=True)
def project(in_a_project: Path) -> Path:
    return in_a_project


def test_an_imported_contract_is_written_listed_and_exported(project: Path) -> None:
    (project / "schema.yml").write_text(DBT, encoding="utf-8")
    refused = invoke("check import schema.yml --namespace shop")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "line 4: mine: lakegate has no check of this name" in refused.stderr
    assert "lakegate check import schema.yml --namespace shop --allow-lost" in refused.stderr
    assert not (project / "contracts").exists()
    (told,) = json.loads(invoke("check import schema.yml -o json").stdout)
    assert told["file"] is None
    assert [(one["line"], one["what"], one["is_check"]) for one in told["untranslated"]] == [(4, "mine", True)]
    imported = invoke("check import schema.yml --namespace shop --allow-lost")
    assert imported.exit_code == 0
    assert imported.stdout.strip().endswith("contracts/shop.t.yaml")

    (listed,) = json.loads(invoke("check list -o json").stdout)
    assert (listed["table"], listed["checks"]) == ("shop.t", ["unique(id, scope='table')"])
    assert "engine: lakegate" in invoke("check export shop.t").stdout


def test_a_table_has_no_proposal_where_there_is_no_project(project: Path) -> None:
    (project / ".lakegate").rmdir()
    lake = FakeLake()
    found = invoke("check init nyc.trips", lake)
    assert (found.exit_code, lake.calls) == (2, [])
    assert "lakegate check init FILES --table nyc.trips" in found.stderr


def test_an_import_never_overwrites_a_contract(project: Path) -> None:
    (project / "schema.yml").write_text(DBT, encoding="utf-8")
    invoke("check import schema.yml --allow-lost")
    again = invoke("check import schema.yml")
    assert again.exit_code == 2
    assert "default.t already has a contract" in again.stderr
    assert invoke("check import schema.yml --stdout").stdout.startswith("# Translated from schema.yml, line 2.")


def test_a_proposal_overwrites_no_contract_that_was_written_meanwhile(project: Path) -> None:
    class Slow(FakeLake):
        @property
        def contracts(self) -> Self:
            return self

        def propose(self, *_: Any, **__: Any) -> str:
            (project / "contracts").mkdir()
            (project / "contracts" / "nyc.trips.yaml").write_text("mine", encoding="utf-8")
            return "proposed"

    late = invoke("check init nyc.trips", Slow())
    assert (late.exit_code, "File exists" in late.stderr) == (2, True)
    assert (project / "contracts" / "nyc.trips.yaml").read_text(encoding="utf-8") == "mine"


def test_an_import_refuses_two_tables_of_one_name(project: Path) -> None:
    text = f"{DBT}sources:\n  - name: shop\n    tables:\n      - name: t\n"
    (project / "schema.yml").write_text(text, encoding="utf-8")
    assert invoke("check import schema.yml --stdout").stdout.count("\ntable: ") == 2
    both = invoke("check import schema.yml --namespace shop")
    assert both.exit_code == 2
    assert "schema.yml:8: shop.t is already described on line 2" in both.stderr
    assert not (project / "contracts").exists()


def test_a_broken_contract_is_reported_by_file_line_and_column(project: Path) -> None:
    (project / "contracts").mkdir()
    (project / "contracts" / "a.b.yaml").write_text("version: 1\ntable: a.b\nchecks: [nul]\n", encoding="utf-8")
    found = invoke("check list")
    assert found.exit_code == 2
    assert "contracts/a.b.yaml:3:10: There is no check called 'nul'." in found.stderr


def test_files_that_pass_because_rows_are_quarantined_pass() -> None:
    aside = result(not_null("fare", severity="quarantine")).model_copy(update={"quarantined": 2})
    trial = ContractTrial(contract="c.yaml", report=report(aside))
    shown = invoke("check test c.yaml rows.csv", FakeLake(contracts_test=trial))
    assert (shown.exit_code, "Quarantined" in shown.stdout + shown.stderr) == (0, True)
    failed = result(not_null("fare", severity="quarantine"), failing=2)
    trial = ContractTrial(contract="c.yaml", report=report(failed), over_limit="2 of 5 rows would be quarantined.")
    shown = invoke("check test c.yaml rows.csv", FakeLake(contracts_test=trial))
    assert (shown.exit_code, "2 of 5 rows would" in shown.stdout + shown.stderr) == (1, True)
    told = json.loads(invoke("check test c.yaml rows.csv -o json", FakeLake(contracts_test=trial)).stdout)
    assert (told["passed"], told["over_limit"]) == (False, "2 of 5 rows would be quarantined.")


def test_a_contract_that_init_wrote_outside_a_project_is_tested(project: Path) -> None:
    (project / ".lakegate").rmdir()
    written = project / "contracts" / "a.b.yaml"
    written.parent.mkdir()
    written.write_text("version: 1\ntable: a.b\nchecks: [not_null: id]\n", encoding="utf-8")
    lake = FakeLake(contracts_test=ContractTrial(contract="c.yaml", report=report()))
    assert invoke("check test a.b rows.csv", lake).exit_code == 0
    ((_, (contract, _files), _options),) = lake.calls
    assert Path(contract).resolve() == written
    missing = invoke("check test a.c rows.csv", lake)
    assert (missing.exit_code, f"a.c has no contract in {project / 'contracts'}" in missing.stderr) == (2, True)
    assert "Did you mean 'a.b'?" in missing.stderr
