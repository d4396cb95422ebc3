"""The contract as users run it: from their own folder, with one import."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

_TESTS = """
import pytest
from lakegate.testing import MemoryCatalog
from lakegate.testing.catalog import CatalogContract


class Forgetful(MemoryCatalog):
    def list_tables(self, ref): return iter([])


class TestCatalog(CatalogContract):
    @pytest.fixture
    def catalog(self):
        return MemoryCatalog()


class TestForgetful(CatalogContract):
    @pytest.fixture
    def catalog(self):
        return Forgetful()


class TestWithoutACatalog(CatalogContract):
    pass
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Counter[tuple[str, str]], str]:
    """How often each class had each outcome, and all that is shown."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "test_mine.py").write_text(_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    return Counter(re.findall(r"^([A-Z]+) test_mine\.py::(\w+)::", done.stdout, re.MULTILINE)), done.stdout


def test_your_own_catalog_is_tested_with_one_import(told: tuple[Counter[tuple[str, str]], str]) -> None:
    outcomes, shown = told
    assert {outcome for outcome, name in outcomes if name == "TestCatalog"} == {"PASSED"}, shown
    assert outcomes["PASSED", "TestCatalog"] > 50


def test_a_catalogs_mistake_is_shown(told: tuple[Counter[tuple[str, str]], str]) -> None:
    outcomes, shown = told
    assert outcomes["FAILED", "TestForgetful"]
    assert "assert [] == ['t0', 't1'" in shown


def test_a_contract_without_a_catalog_says_what_to_do(told: tuple[Counter[tuple[str, str]], str]) -> None:
    outcomes, shown = told
    assert {outcome for outcome, name in outcomes if name == "TestWithoutACatalog"} == {"ERROR"}
    assert "Override the fixture 'catalog'" in shown


def test_only_the_contract_needs_pytest() -> None:
    program = "import sys; sys.modules['pytest'] = None; import lakegate.testing; lakegate.testing.MemoryCatalog()"
    subprocess.run([sys.executable, "-c", program], check=True)
    program = "import sys, lakegate; print({'pytest', 'lakegate.testing'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
