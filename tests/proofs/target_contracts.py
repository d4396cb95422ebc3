"""Target contracts: what every target is held to, on catalogs that ``make test`` leaves out; pytest's, by this path."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from pyiceberg.catalog import Catalog

from lakegate.catalogs.target.targets import Target
from lakegate.iceberg.files import TableFiles
from lakegate.journal.database import Database, SqliteDatabase
from lakegate.testing.target import TargetContract
from proofs.result import ProofResult
from proofs.targets import starters
from support.target_catalogs import RunningCatalog


def prove(home: Path) -> ProofResult:
    """Run the contract on each catalog below."""
    report = home / "contracts.xml"
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", __file__]
    said = subprocess.run(
        [sys.executable, *command], cwd=Path(__file__).parents[2], check=False, capture_output=True, text=True
    )
    if not report.exists():
        return ProofResult("target-contracts", 0, [said.stdout + said.stderr])
    cases = list(ET.parse(report).iter("testcase"))
    outcomes = [(case, next((part.tag for part in case if part.tag != "system-out"), "passed")) for case in cases]
    counts = Counter((str(case.get("classname")).rpartition(".")[2], outcome) for case, outcome in outcomes)
    failures = [f"{case.get('classname')}: {case.get('name')}" for case, how in outcomes if how in {"failure", "error"}]
    if said.returncode and not failures:
        failures = [said.stdout + said.stderr]
    details = [f"{name.removeprefix('Test')}: {count} {outcome}" for (name, outcome), count in sorted(counts.items())]
    return ProofResult("target-contracts", len(cases), failures, "\n".join(details))


@pytest.fixture(scope="class")
def catalog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCatalog]:
    with starters()[request.cls.name](tmp_path_factory.mktemp("catalog")) as running:
        yield running


class OnCatalog(TargetContract):
    name: str

    @pytest.fixture
    def others(self, catalog: RunningCatalog) -> Iterator[Catalog]:
        made = catalog.others()
        yield made
        made.close()

    @pytest.fixture
    def target(self, catalog: RunningCatalog) -> Iterator[Target]:
        made = catalog.target()
        yield made
        made.close()

    @pytest.fixture
    def files(self, catalog: RunningCatalog) -> TableFiles:
        return catalog.files()

    @pytest.fixture
    def database(self, tmp_path: Path) -> Iterator[Database]:
        made = SqliteDatabase(tmp_path / "journal.db")
        yield made
        made.close()


class TestPostgresByPyIceberg(OnCatalog):
    name = "Postgres, by PyIceberg"


class TestIcebergRestOnPostgres(OnCatalog):
    name = "Iceberg's REST server 1.10.0"


class TestHive(OnCatalog):
    name = "Hive 2.3.10"
