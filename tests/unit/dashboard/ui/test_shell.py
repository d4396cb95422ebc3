"""The frame around each page: access, links, and errors that don't affect the rest of a page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from lakegate.config import Settings
from lakegate.dashboard.ui import session, shell
from lakegate.dashboard.ui.access import Access
from lakegate.dashboard.ui.pages import Page, find_pages
from lakegate.dashboard.ui.session import Shared
from lakegate.errors import CatalogUnavailableError

SCRIPT = Path(shell.__file__).parents[1] / "script.py"


@pytest.fixture(autouse=True)
def _share() -> Iterator[None]:
    share(Access())
    yield
    session.share(None)


def share(access: Access) -> None:
    lake: Any = SimpleNamespace(settings=Settings(), home=Path("/data/<b>lake</b>"))
    pages = SimpleNamespace(with_prefix=lambda prefix, limit: ())
    model: Any = SimpleNamespace(journal=SimpleNamespace(count=lambda: ({}, 0), pages=pages))
    session.share(Shared(lake, model, access))


def opened(monkeypatch: pytest.MonkeyPatch, show: Any) -> str:
    monkeypatch.setattr(shell, "find_pages", lambda: (Page("Home", path="", icon="home", order=0, show=show),))
    tested = AppTest.from_file(str(SCRIPT), default_timeout=120).run()
    assert not tested.exception
    return "\n".join(str(one.proto.body) for one in tested.get("html") if hasattr(one.proto, "body"))


def test_pages_have_paths_and_titles_of_their_own() -> None:
    pages = find_pages()
    assert pages[0].path == ""
    assert len({page.path for page in pages}) == len({page.title for page in pages}) == len(pages)


def test_an_error_takes_its_part_of_the_page_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from lakegate.dashboard.ui import parts

    def show() -> None:
        with parts.boundary("the tables"):
            raise CatalogUnavailableError("Nessie <b>is away</b>.", hint="lakegate up")
        with parts.boundary("the runs"):
            raise ZeroDivisionError("a secret")
        parts.html("the rest")

    shown = opened(monkeypatch, show)
    assert "Nessie &lt;b&gt;is away&lt;/b&gt;." in shown
    assert "lakegate up" in shown
    assert "Couldn&#39;t show the runs: ZeroDivisionError." in shown
    assert "a secret" not in shown
    assert "the rest" in shown


def test_the_lake_is_named_and_its_name_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = opened(monkeypatch, lambda: None)
    assert "<b>lake" not in shown
    assert "read-only" in shown


def test_who_has_not_logged_in_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from lakegate.dashboard.ui import parts

    share(Access("oidc", allow_actions=True))
    shown = opened(monkeypatch, lambda: parts.html("rows of data"))
    assert "rows of data" not in shown
    assert "lake</" not in shown
    assert "Log in to see it." in shown
