"""Finds the pages: each module in ``pages/`` has one."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from lakegate.dashboard.ui import pages
from lakegate.dashboard.ui.page import Page


@cache
def find_pages() -> tuple[Page, ...]:
    """Return all pages, in the order of the navigation."""
    names = sorted(module.name for module in pkgutil.iter_modules(pages.__path__))
    found = [importlib.import_module(f"{pages.__name__}.{name}").PAGE for name in names]
    return tuple(sorted(found, key=lambda page: (page.order, page.title)))
