"""Tools to test your own catalog, check or feed.

- For a catalog: :class:`~lakegate.testing.catalog.CatalogContract`, and :class:`MemoryCatalog` as an example.
- For a feed of ``lakegate watch``: :class:`~lakegate.testing.feed.FeedContract`.
- For a check: :func:`~lakegate.testing.checks.failing_rows`.

A contract is a class of pytest tests. Subclass it, and override the fixture that returns what to test::

    from lakegate.testing.catalog import CatalogContract

    class TestMyCatalog(CatalogContract):
        @pytest.fixture
        def catalog(self):
            return MyCatalog(...)

Only the contracts need pytest.
"""

from __future__ import annotations

from contextlib import suppress

from lakegate.testing.memory import MemoryCatalog

__all__ = ["MemoryCatalog"]

with suppress(ImportError):
    import pytest

    # So that a contract's failing assert shows its values, as in your own tests.
    pytest.register_assert_rewrite("lakegate.testing.catalog", "lakegate.testing.feed", "lakegate.testing.target")
