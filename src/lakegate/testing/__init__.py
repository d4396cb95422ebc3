"""What you test your own catalog with: a catalog in memory to compare with, and the contract that every catalog keeps.

The contract is a class of pytest tests. Subclass it, and give it your catalog as a fixture::

    from lakegate.testing.catalog import CatalogContract

    class TestMyCatalog(CatalogContract):
        @pytest.fixture
        def catalog(self):
            return MyCatalog(...)

Only :mod:`lakegate.testing.catalog` needs pytest.
"""

from __future__ import annotations

from contextlib import suppress

from lakegate.testing.memory import MemoryCatalog

__all__ = ["MemoryCatalog"]

with suppress(ImportError):
    import pytest

    # A failing assert of the contract shows its values, as in a test of your own.
    pytest.register_assert_rewrite("lakegate.testing.catalog")
