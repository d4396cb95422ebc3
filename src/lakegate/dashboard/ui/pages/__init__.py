"""The pages. Each module here defines one, as its ``PAGE``, and a function that draws it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Page:
    """One page. A module here becomes one with ``PAGE = Page(...)``.

    Attributes:
        path: Its path below the dashboard's URL, such as ``runs``; empty for the first page.
        icon: Name of a Material symbol, such as ``table_rows``.
        order: Its position in the navigation; pages with equal numbers are sorted by title.
        show: Draws it. It reads its state from the query parameters, so that its links can be shared.
        listed: Whether the navigation lists it; other pages are reached by links.
    """

    title: str
    path: str
    icon: str
    order: int
    show: Callable[[], None]
    listed: bool = True


@cache
def find_pages() -> tuple[Page, ...]:
    """Return all pages in navigation order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    found = [importlib.import_module(f"{__name__}.{name}").PAGE for name in names]
    return tuple(sorted(found, key=lambda page: (page.order, page.title)))
