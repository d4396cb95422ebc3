"""The dashboard's pages without a browser: what they draw, as HTML, for a lake made by ``big_lake``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from lakegate.config import UiSettings
from lakegate.dashboard.ui import session, shell
from lakegate.dashboard.ui.access import Access
from lakegate.dashboard.ui.pages import Page, find_pages
from lakegate.dashboard.ui.session import Shared
from support.big_lake import BigLake
from support.dashboard_server import open_lake

SCRIPT = Path(shell.__file__).parents[1] / "script.py"


def share(lake: BigLake, *, actions: bool = False, **settings: Any) -> None:
    """Let pages show a lake."""
    access = Access("none", actions, UiSettings(**settings))
    session.share(Shared(open_lake(lake), lake.model(), access))


class Visit(AppTest):
    """One visitor on one page. AppTest opens the first page only, so while it draws, that's the one."""

    page: Page

    def _run(self, *args: Any, **options: Any) -> AppTest:
        first = replace(self.page, path="", listed=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shell, "find_pages", lambda: (first,))
            # Each run looks for components in the metadata of all installed packages, most of a second.
            patch.setattr(manifest_scanner, "scan_component_manifests", list)
            return super()._run(*args, **options)


def opened(path: str, **parameters: str) -> Visit:
    """Return a page that was drawn without an exception."""
    tested = Visit(str(SCRIPT), default_timeout=120)
    tested.page = next(page for page in find_pages() if page.path == path)
    for name, value in parameters.items():
        tested.query_params[name] = value
    tested.run()
    assert not tested.exception
    return tested


def html_of(tested: AppTest) -> str:
    """Return the markup on a page."""
    return "\n".join(str(one.proto.body) for one in tested.get("html") if hasattr(one.proto, "body"))


def shown(path: str, **parameters: str) -> str:
    """Return the markup on a page that is drawn for the first time."""
    return html_of(opened(path, **parameters))
