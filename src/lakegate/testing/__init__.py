"""What you test your own catalog, check or feed with.

- A catalog: :class:`MemoryCatalog` to compare with, and :class:`~lakegate.testing.catalog.CatalogContract`.
- A feed of ``lakegate watch``: :class:`~lakegate.testing.feed.FeedContract`.
- A check: :func:`~lakegate.testing.checks.failing_rows`.

A contract is a class of pytest tests. Subclass it, and give it what to test as a fixture::

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

    # Makes a contract's failing assert show its values, as in your own tests.
    pytest.register_assert_rewrite("lakegate.testing.catalog", "lakegate.testing.feed")
