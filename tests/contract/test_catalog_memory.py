"""The catalog in memory keeps the contract of every catalog."""

from __future__ import annotations

import pytest

from lakegate.testing import MemoryCatalog
from lakegate.testing.catalog import CatalogContract


class TestMemoryCatalog(CatalogContract):
    @pytest.fixture
    def catalog(self) -> MemoryCatalog:
        return MemoryCatalog()
