"""Contracts are packaged with the function's settings."""

from __future__ import annotations

import zipfile
from pathlib import Path

from lakegate.integrations.aws.package import FunctionPackage, contracts_in, is_needed


def test_the_contracts_beside_the_settings_are_those_that_a_project_reads(tmp_path: Path) -> None:
    for name in ("nyc.trips.yaml", "nyc.zones.yml", "contract.schema.json", ".nyc.trips.yaml.swp", ".x.yaml"):
        (tmp_path / name).write_text("", encoding="utf-8")
    found = FunctionPackage(contracts=tmp_path).contract_files
    assert [path.name for path in found] == ["nyc.trips.yaml", "nyc.zones.yml"]
    assert FunctionPackage(contracts=tmp_path / "none").contract_files == FunctionPackage().contract_files == ()


def test_contracts_are_found_again_in_a_package(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "f.zip", "w") as archive:
        archive.writestr("contracts/nyc.trips.yaml", "version: 1")
        archive.writestr("lakegate/contracts/store.py", "")
    assert contracts_in(tmp_path / "f.zip") == {"nyc.trips.yaml": "version: 1"}


def test_the_function_keeps_what_reads_them() -> None:
    assert is_needed("yaml/__init__.py")
    assert is_needed("yaml/parser.py")
