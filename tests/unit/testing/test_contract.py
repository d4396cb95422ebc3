"""The contract as users run it: from their own folder, with one import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_TESTS = """
import pytest
from lakegate.testing import MemoryCatalog
from lakegate.testing.catalog import CatalogContract


class Catalog(MemoryCatalog):
    {method}


class TestCatalog(CatalogContract):
    @pytest.fixture
    def catalog(self):
        return Catalog()


class TestWithoutACatalog(CatalogContract):
    pass
"""


def run(folder: Path, method: str, tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(_TESTS.format(method=method))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_mine.py::{tests}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_your_own_catalog_is_tested_with_one_import(tmp_path: Path) -> None:
    done = run(tmp_path, "pass", "TestCatalog")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_a_catalogs_mistake_is_shown(tmp_path: Path) -> None:
    done = run(tmp_path, "def list_tables(self, ref): return iter([])", "TestCatalog")
    assert done.returncode == 1
    assert "assert [] == ['t0', 't1'" in done.stdout


def test_a_contract_without_a_catalog_says_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path, "pass", "TestWithoutACatalog::test_closing_twice_is_fine")
    assert done.returncode == 1
    assert "Override the fixture 'catalog'" in done.stdout


def test_only_the_contract_needs_pytest() -> None:
    program = "import sys; sys.modules['pytest'] = None; import lakegate.testing; lakegate.testing.MemoryCatalog()"
    subprocess.run([sys.executable, "-c", program], check=True)
    program = "import sys, lakegate; print({'pytest', 'lakegate.testing'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
