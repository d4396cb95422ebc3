"""The dashboard in a real browser: how soon each page of a large lake is there, on any screen, and what people do.

The picture in the docs is made by the same steps: ``LAKEGATE_PICTURES=docs/images`` says where it goes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from support.big_lake import HOSTILE
from support.browser import CHROMIUM, chromium
from support.login_server import CLIENT, METADATA, WHO, login_server
from support.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, ViewportSize

SERVER = Path(__file__).parents[1] / "support" / "dashboard_server.py"
DESK: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
_LAKE = "5000x200x1000"
_SHOWN_MS = 60_000
_TICKS = 3
_IS_DRAWN = """() => document.querySelector("h1")
  && document.querySelector('[data-testid="stApp"]').dataset.testScriptState === "notRunning"
  && !document.querySelector('[data-testid="stSkeleton"]')"""
_OVERFLOW = """() => {
  const main = document.querySelector('[data-testid="stMain"]');
  return [document.documentElement.scrollWidth - innerWidth, main.scrollWidth - main.clientWidth];
}"""

_MADE_OF_TEXT = """() => [...document.querySelectorAll(
  '[data-testid="stMain"] :is(a:not([data-testid]), em, script, img, .katex, [data-testid="stIconMaterial"])'
)].map((element) => element.outerHTML)"""
"""What Markdown and HTML would make of hostile text."""

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@contextmanager
def _serving(folder: Path, lake: str) -> Iterator[str]:
    """Serve a made lake, and check that the server ends well when it's asked to."""
    environment = os.environ | {"PYTHONPATH": str(SERVER.parents[1]), "LAKEGATE_ACTOR": "ann@example.com"}
    command = [sys.executable, str(SERVER), str(folder), lake]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            assert running.stdout is not None
            yield running.stdout.readline().strip()
        finally:
            running.send_signal(signal.SIGINT)
            assert running.wait(timeout=120) == 0


@contextmanager
def _window(browser: Browser, url: str) -> Iterator[Page]:
    """Open a window, and check that nothing went wrong in it and nothing was asked of anyone else."""
    context = browser.new_context(viewport=DESK)
    context.set_default_timeout(_SHOWN_MS)
    page = context.new_page()
    said: list[str] = []
    own = (url, "data:", "blob:", url.replace("http:", "ws:"))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(own) else said.append(asked.url))
    yield page
    assert said == []
    assert page.get_by_text("This is a bug in lakegate").count() == 0
    context.close()


def _open(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_function(_IS_DRAWN)


def _fits_any_screen(page: Page) -> None:
    for size in (PHONE, DESK):
        page.set_viewport_size(size)
        page.wait_for_function(f"() => ({_OVERFLOW})().every((pixels) => pixels <= 0)")


def _tick_first_row(page: Page, grid: Locator) -> None:
    """Tick it, once more if the grid wasn't ready: it's a picture, in which nothing can be waited for."""
    opened = page.get_by_role("heading", name="Run 2")
    for _ in range(_TICKS):
        box = grid.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 16, box["y"] + 52)
        with suppress(Exception):  # Playwright's own error, whose class a machine without it doesn't have
            opened.wait_for(timeout=_SHOWN_MS / _TICKS)
            return
    raise AssertionError("no tick opens the page of a run")


def test_every_page_of_a_large_lake_is_sound_and_can_be_shared(browser: Browser, tmp_path: Path) -> None:
    with _serving(tmp_path, _LAKE) as url, _window(browser, url) as page:
        _open(page, url)
        page.get_by_text("Need attention", exact=True).wait_for()
        if folder := os.environ.get("LAKEGATE_PICTURES"):
            page.wait_for_timeout(1_000)
            page.screenshot(path=Path(folder, "dashboard-home.png"))
        _fits_any_screen(page)
        for title in ("Branches", "Runs", "History"):
            page.get_by_role("link", name=title, exact=True).click()
            page.get_by_role("heading", name=title, exact=True).wait_for()
            page.wait_for_function(_IS_DRAWN)
            page.locator('[data-testid="stDataFrame"] canvas').first.wait_for()
            _fits_any_screen(page)
        for page_of in ("branches?branch=", "run?run=", "table?table="):
            _open(page, f"{url}{page_of}{quote(HOSTILE)}")
            page.get_by_text("www.example.com").first.wait_for()
            page.get_by_text(r"\u202eltr").first.wait_for()
            assert page.evaluate(_MADE_OF_TEXT) == []
        # Ticking a row opens its page, and going back shows the list again.
        _open(page, f"{url}runs?status=rejected")
        grid = page.locator('[data-testid="stDataFrame"] canvas').first
        grid.wait_for()
        page.wait_for_timeout(500)
        _tick_first_row(page, grid)
        page.wait_for_function(_IS_DRAWN)
        page.get_by_text("alert(1)").first.wait_for(state="attached")  # the cells of a grid are for screen readers
        assert page.evaluate(_MADE_OF_TEXT) == []
        assert "/run?run=" in page.url
        _fits_any_screen(page)
        shared = page.url
        page.get_by_role("link", name="Branch wap/").first.click()
        page.get_by_role("heading", name="Branch wap/").wait_for()
        assert "/branches?branch=" in page.url
        page.go_back()
        page.get_by_role("heading", name="Run 2").wait_for()
        page.go_back()
        page.get_by_role("heading", name="Runs").wait_for()
        page.wait_for_function(_IS_DRAWN)
        page.go_back()  # Streamlit's switch of pages adds an entry of its own
        page.wait_for_url("**/runs?status=rejected")
        with _window(browser, url) as other:
            _open(other, shared)
            other.get_by_role("heading", name="Run 2").wait_for()
            other.get_by_role("link", name="Table ").first.click()
            for view in ("Columns", "Checks", "Publishes"):
                other.get_by_role("radio", name=view).click()
                other.wait_for_function(_IS_DRAWN)
                _fits_any_screen(other)


def test_a_branch_is_accepted_with_a_reason(browser: Browser, tmp_path: Path) -> None:
    with _serving(tmp_path, "house") as url, _window(browser, url) as page:
        _open(page, f"{url}branches?branch=wap%2Fnyc.trips_r2")
        page.get_by_role("button", name="Accept and publish …").click()
        page.get_by_label("Reason").fill("The vendor confirmed it.")
        page.get_by_role("button", name="Accept and publish", exact=True).click()
        page.get_by_role("heading", name="Run r2").wait_for()
        page.get_by_text("The vendor confirmed it. (by ann@example.com").wait_for()


def test_a_branch_is_discarded_after_what_is_lost_was_said(browser: Browser, tmp_path: Path) -> None:
    with _serving(tmp_path, "house") as url, _window(browser, url) as page:
        _open(page, f"{url}branches?branch=wap%2Fnyc.trips_r2")
        page.get_by_role("button", name="Discard …").click()
        page.get_by_text("Its source file can be ingested again.").wait_for()
        page.get_by_role("button", name="Cancel").click()
        page.get_by_role("dialog").wait_for(state="detached")
        page.get_by_role("button", name="Discard …").click()
        page.get_by_role("button", name="Discard", exact=True).click()
        page.get_by_role("heading", name="Run r2").wait_for()
        page.get_by_text("was discarded; none of it was published").wait_for()
        _open(page, f"{url}branches?branch=wap%2Fnyc.trips_r2")
        page.get_by_role("link", name="Run r2").click()
        page.get_by_role("heading", name="Run r2").wait_for()


def test_people_log_in_with_their_provider(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with login_server() as provider:
        (tmp_path / ".lakegate").mkdir()
        (tmp_path / "lakegate.toml").write_text(
            f"""
[ui]
url = "{url}"
oidc_metadata_url = "{provider}{METADATA}"
oidc_client_id = "{CLIENT}"
oidc_client_secret = "env:UI_CLIENT_SECRET"
cookie_secret = "env:UI_COOKIE_SECRET"
users = ["{WHO}"]
"""
        )
        with _own_server(tmp_path, port):
            context = browser.new_context(viewport=DESK)
            context.set_default_timeout(_SHOWN_MS)
            page = context.new_page()
            page.goto(f"{url}runs?status=failed")
            page.get_by_role("button", name="Log in").click()
            page.get_by_text(WHO).wait_for()
            page.get_by_text("read-only").wait_for()
            context.close()


@contextmanager
def _own_server(project: Path, port: int) -> Iterator[None]:
    environment = os.environ | {"UI_CLIENT_SECRET": "hidden", "UI_COOKIE_SECRET": "c" * 64}
    command = [sys.executable, "-m", "lakegate", "--home", str(project), "ui", "--port", str(port), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            assert running.stdout is not None
            assert str(port) in running.stdout.readline()
            yield
        finally:
            running.send_signal(signal.SIGINT)
            assert running.wait(timeout=120) == 0
