"""Pages of the dashboard and their addresses. Each module in ``pages/`` defines one page."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

_PAGES = Path(__file__).with_name("pages")


@dataclass(frozen=True)
class Page:
    """One page. A module in ``pages/`` becomes one with ``PAGE = Page(...)``.

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


def address(path: str, **parameters: str | int | None) -> str:
    """Return a relative link to a page, which works wherever the dashboard is served. Skips ``None`` parameters.

    Example:
        >>> address("run", run="20260131T070509-1a2b3c4d"), address("runs", table="nyc.trips", status=None)
        ('./run?run=20260131T070509-1a2b3c4d', './runs?table=nyc.trips')
        >>> address("table", table="nyc.größen & co")
        './table?table=nyc.gr%C3%B6%C3%9Fen+%26+co'
    """
    given: Mapping[str, object] = {name: value for name, value in parameters.items() if value is not None}
    return f"./{path}" + (f"?{urlencode(given)}" if given else "")


@cache
def find_pages() -> tuple[Page, ...]:
    """Return all pages in navigation order."""
    names = sorted(module.name for module in pkgutil.iter_modules([str(_PAGES)]))
    found = [importlib.import_module(f"{__package__}.{_PAGES.name}.{name}").PAGE for name in names]
    return tuple(sorted(found, key=lambda page: (page.order, page.title)))
