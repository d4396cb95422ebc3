"""The dashboard in a real browser: every page with no, one and thousands of runs, and what people do to a branch.

The pictures in the docs are made by the same steps: ``LAKEGATE_PICTURES=docs/images`` says where they go.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from support.browser import CHROMIUM, chromium
from support.header_proxy import header_proxy
from support.login_server import CLIENT, METADATA, WHO, login_server
from support.loopback import loopback_client

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SERVER = Path(__file__).parents[1] / "support" / "dashboard_server.py"
DESK, PHONE = (1280, 900), (390, 844)
_SHOWN_MS = 60_000
_POLL_MS = 100
"""Playwright's own way is to look at each frame, which keeps the browser drawing for as long as a page waits."""
_SOME, _MANY = "300", "2500"

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]

_IS_DRAWN = """() => document.querySelector("#root .lg h1") && !document.querySelector(".lg-first")
  && document.querySelector('[data-testid="stApp"]').dataset.testScriptState === "notRunning"
  && !document.querySelector('[data-testid="stSkeleton"]')"""
_OVERFLOW = """() => {
  const main = document.querySelector('[data-testid="stMain"]');  // for a moment there's none, between two pages
  return [document.documentElement.scrollWidth - innerWidth, main ? main.scrollWidth - main.clientWidth : -1];
}"""


@dataclass
class Window:
    """A page in a browser, and what it complained about."""

    page: Page
    url: str
    said: list[str] = field(default_factory=list)

    def open(self, path: str) -> float:
        """Open a page of the dashboard; return how many seconds it took to be drawn."""
        began = time.monotonic()
        self.page.goto(self.url + path)
        self.drawn()
        return time.monotonic() - began

    def drawn(self) -> None:
        self.wait_until(_IS_DRAWN)

    def wait_until(self, script: str, **options: Any) -> None:
        self.page.wait_for_function(script, polling=_POLL_MS, **options)

    def is_sound(self) -> None:
        """Check that nothing went wrong, nothing was asked of anyone else, and nothing sticks out."""
        from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

        assert self.said == []
        with suppress(PlaywrightTimeoutError):  # charts follow a window's new size a moment later
            self.wait_until(f"() => ({_OVERFLOW})().every((pixels) => pixels === 0)", timeout=20_000)
        assert self.page.evaluate(_OVERFLOW) == [0, 0]
        assert self.page.get_by_text("This is a bug in lakegate").count() == 0

    def is_sound_on_any_screen(self) -> None:
        """Check it as it is, and as a phone at night shows it: the same page, drawn anew."""
        self.is_sound()
        self.page.emulate_media(color_scheme="dark")
        self.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        self.wait_until("() => getComputedStyle(document.body).colorScheme !== 'light'")
        self.is_sound()
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size({"width": DESK[0], "height": DESK[1]})


@dataclass(frozen=True)
class Dashboard:
    """The server, and a browser to look at it."""

    url: str
    browser: Browser

    def tell(self, what: str) -> None:
        with loopback_client(timeout_s=300) as client:  # thousands of runs take 10 s of processor time to make
            client.get(f"{self.url}-/{what}").raise_for_status()

    @contextmanager
    def shut_gate(self) -> Iterator[None]:
        """Hold up all publishes; a test that fails must not hold up those of the tests after it."""
        self.tell("gate/shut")
        try:
            yield
        finally:
            self.tell("gate/open")

    @contextmanager
    def window(self, theme: Literal["light", "dark"] = "light", size: tuple[int, int] = DESK) -> Iterator[Window]:
        context = self.browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
        context.set_default_timeout(_SHOWN_MS)
        page = context.new_page()
        window = Window(page, self.url)
        own = (self.url, "data:", "blob:", self.url.replace("http:", "ws:"))
        page.on("console", lambda said: window.said.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: window.said.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(own) else window.said.append(asked.url))
        yield window
        context.close()


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    environment = os.environ | {"PYTHONPATH": str(SERVER.parents[1]), "LAKEGATE_ACTOR": "ann@example.com"}
    command = [sys.executable, str(SERVER), str(tmp_path_factory.mktemp("dashboard")), "house"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            assert running.stdout is not None
            url = running.stdout.readline().strip()
            with chromium() as browser:
                yield Dashboard(url, browser)
        finally:
            running.send_signal(signal.SIGINT)
            assert running.wait(timeout=120) == 0, "it ends well when asked to"


@pytest.mark.parametrize("runs", ["0", "1", _MANY])
def test_every_page_is_sound(dashboard: Dashboard, runs: str) -> None:
    from lakegate.dashboard.ui.pages import find_pages  # with Streamlit, which workers without this file don't need

    listed = [page.title for page in find_pages() if page.listed]
    dashboard.tell(f"lake/{runs}")
    # What is drawn of one run is as wide as what is drawn of thousands.
    look = Window.is_sound if runs == "1" else Window.is_sound_on_any_screen
    with dashboard.window() as window:
        window.open("")
        # The first table's and run's own pages, which the navigation doesn't name.
        links = window.page.locator(".lg td a[href^='./table?'], .lg td a[href^='./run?']").evaluate_all(
            "(found) => found.map((one) => one.getAttribute('href').slice(2))"
        )
        own = [next((one for one in links if one.startswith(kind)), kind) for kind in ("table", "run")]
        for title in listed:
            window.page.get_by_role("link", name=title, exact=True).first.click()
            window.page.locator(".lg-title", has_text=title).wait_for()
            window.drawn()
            look(window)
        for path in own:
            window.open(path)
            look(window)


def test_quarantined_rows_are_shown_on_any_screen(dashboard: Dashboard) -> None:
    dashboard.tell("lake/quarantine")
    # Opened on a phone, whose sidebar is closed, and then seen on a desk.
    with dashboard.window("dark", PHONE) as window:
        for path in ("run?run=q1", "table?table=nyc.trips&view=Quarantine"):
            window.open(path)
            assert window.page.locator("td.mark").count() >= 8
            assert window.page.get_by_text("lakegate quarantine release nyc.trips").count() == 1
            window.is_sound()
            window.page.set_viewport_size({"width": DESK[0], "height": DESK[1]})
            window.is_sound()
            window.page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
        window.page.get_by_role("radio", name="Columns").click()
        window.wait_until("() => new URL(location.href).searchParams.get('view') === 'Columns'")
        window.drawn()
        window.is_sound()


def test_quarantined_rows_are_released_and_deleted(dashboard: Dashboard) -> None:
    dashboard.tell("lake/quarantine")
    with dashboard.window() as window:
        page = window.page
        window.open("table?table=nyc.trips&view=Quarantine")
        page.get_by_role("button", name="Release …").click()
        page.get_by_text("Recorded as ann@example.com.").wait_for()
        page.get_by_role("button", name="Release", exact=True).click()
        page.get_by_role("alert").get_by_text("not_null(id)").wait_for()
        window.open("run?run=q1")
        page.get_by_role("button", name="Delete …").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        page.get_by_text("quarantined rows of").wait_for()
        window.is_sound()


def test_a_run_is_found_read_and_shared(dashboard: Dashboard) -> None:
    dashboard.tell("lake/trips" if "LAKEGATE_PICTURES" in os.environ else f"lake/{_SOME}")
    with dashboard.window() as window:
        page = window.page
        window.open("")
        _picture(window, "dashboard-home.png")
        page.get_by_role("link", name="Runs").click()
        page.locator(".lg-title", has_text="Runs").wait_for()
        window.open("runs?status=rejected")
        window.drawn()
        _picture(window, "dashboard-runs.png")
        opened = page.url
        page.locator("table a[href^='./run?']").first.click()
        page.get_by_text("Source files").wait_for()
        window.drawn()
        assert "/run?run=" in page.url
        assert page.locator("td.mark").count() > 0
        assert page.locator("script:has-text('alert(1)')").count() == 0
        window.is_sound()
        _picture(window, "dashboard-run.png")
        shared = page.url
        page.go_back()
        page.wait_for_url(opened)
        with dashboard.window("dark") as other:
            other.open(shared.removeprefix(dashboard.url))
            other.page.get_by_text("Source files").wait_for()
        page.get_by_role("link", name="Branches").click()
        page.get_by_text("Would change").wait_for()
        page.wait_for_url("**/branches")  # with no filter of the page before
        window.drawn()
        _picture(window, "dashboard-branches.png")
        window.is_sound()


def test_the_keyboard_is_enough(dashboard: Dashboard) -> None:
    dashboard.tell("lake/1")
    with dashboard.window() as window:
        window.open("runs")
        link = window.page.locator("table a[href^='./run?']").first
        link.focus()
        window.page.keyboard.press("Enter")
        window.page.get_by_text("Steps").wait_for()


def test_two_windows_publish_one_branch_once_and_one_may_close(dashboard: Dashboard) -> None:
    dashboard.tell("lake/house")
    with dashboard.window() as one, dashboard.window() as other, dashboard.shut_gate():
        for window in (one, other):
            window.open("branches?branch=wap%2Fnyc.trips_r2")
            window.page.get_by_role("button", name="Accept and publish …").click()
            window.page.get_by_text("Recorded as ann@example.com.").wait_for()
        one.page.get_by_role("button", name="Accept and publish", exact=True).click()
        one.page.get_by_text("Write a reason").wait_for()
        for window in (one, other):
            window.page.get_by_label("Reason").fill("The vendor confirmed it.")
        one.page.get_by_role("button", name="Accept and publish", exact=True).click()
        one.page.get_by_text("it continues if you close this window").wait_for()
        other.page.get_by_role("button", name="Accept and publish", exact=True).click()
        other.page.get_by_role("alert").get_by_text("r2").first.wait_for()
        other.page.get_by_role("dialog").wait_for(state="hidden")
        one.page.close()
    with dashboard.window() as window:
        window.open("run?run=r2")
        window.page.get_by_text("ann@example.com (publish)").wait_for()
        # Its own window is gone: all others of the same visitor say how it ended.
        window.page.locator(".todo.live").get_by_text("wap/nyc.trips_r2").wait_for()
        window.page.get_by_text("The vendor confirmed it.").first.wait_for()
        assert window.page.get_by_text("(publish)").count() == 1
        window.is_sound()


def test_every_view_of_a_table_is_sound(dashboard: Dashboard) -> None:
    dashboard.tell(f"lake/{_SOME}")
    with dashboard.window() as window:
        page = window.page
        window.open("")
        page.locator("table a[href^='./table?']").first.click()
        for name in ("Columns", "Checks", "Schema", "Files", "Preview", "Properties", "Publishes"):
            page.get_by_role("radio", name=name).click()
            window.wait_until("at => (new URL(location.href).searchParams.get('view') ?? 'Publishes') === at", arg=name)
            window.drawn()
            window.is_sound_on_any_screen()
        assert page.locator("script:has-text('alert(1)')").count() == 0
        page.locator("canvas, svg.marks").first.wait_for()


def test_a_run_is_reverted_after_a_look_at_what_changes(dashboard: Dashboard) -> None:
    dashboard.tell("lake/house")
    with dashboard.window() as window:
        page = window.page
        window.open("history")
        page.get_by_role("link", name="Revert…").first.click()
        page.get_by_text("recorded as ann@example.com").wait_for()
        window.is_sound()
        page.get_by_role("button", name="Revert", exact=True).click()
        page.get_by_text("done").wait_for()
        page.get_by_role("button", name="Close").click()
        page.get_by_text("reverted by").first.wait_for()
        window.is_sound()


def test_people_log_in_wherever_they_come_in(dashboard: Dashboard, tmp_path: Path) -> None:
    port = _free_port()
    url = f"http://127.0.0.1:{port}/"
    with login_server() as provider:
        settings = f"""
url = "{url}"
oidc_metadata_url = "{provider}{METADATA}"
oidc_client_id = "{CLIENT}"
oidc_client_secret = "env:UI_CLIENT_SECRET"
cookie_secret = "env:UI_COOKIE_SECRET"
users = ["{WHO}"]
"""
        with _own_server(tmp_path, settings, port), dashboard.window() as window:
            page = window.page
            page.goto(f"{url}runs?status=failed")
            page.get_by_role("button", name="Log in").click()
            page.get_by_text(WHO).wait_for()
            page.get_by_text("read-only").wait_for()


def test_a_proxy_in_front_says_who_is_there(dashboard: Dashboard, tmp_path: Path) -> None:
    port = _free_port()
    settings = """
user_header = "X-Forwarded-Email"
trusted_proxies = ["127.0.0.1"]
users = ["*@example.com", "eve@*"]
"""
    stranger = "bob@example.org"
    with (
        _own_server(tmp_path, settings, port),
        header_proxy(port, header="X-Forwarded-Email", user=WHO) as known,
        header_proxy(port, header="X-Forwarded-Email", user=stranger) as unknown,
        dashboard.window() as window,
    ):
        page = window.page
        direct = page.goto(f"http://127.0.0.1:{port}/")
        assert direct is not None
        assert direct.status == 403
        assert "Log in at the proxy" in page.content()
        page.set_extra_http_headers({"X-Forwarded-Email": "eve@example.org"})
        for url, who, said in ((known, WHO, "read-only"), (unknown, stranger, "You don't have access to this")):
            page.goto(url)
            page.get_by_text(who).wait_for()
            page.get_by_text(said).first.wait_for()
            assert page.get_by_text("eve@example.org").count() == 0


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def _own_server(folder: Path, settings: str, port: int) -> Iterator[None]:
    """Run `lakegate ui` as people do, with a section [ui] of its own."""
    (folder / "lakegate.toml").write_text(f"[ui]\n{settings}")
    environment = os.environ | {"UI_CLIENT_SECRET": "client's", "UI_COOKIE_SECRET": "c" * 32}
    command = [sys.executable, "-m", "lakegate", "ui", "--port", str(port), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder) as running:
        try:
            assert running.stdout is not None
            assert str(port) in running.stdout.readline()
            yield
        finally:
            running.send_signal(signal.SIGINT)
    assert running.returncode == 0


def _picture(window: Window, name: str) -> None:
    folder = os.environ.get("LAKEGATE_PICTURES")
    if folder:
        window.page.wait_for_load_state("networkidle")
        window.page.screenshot(path=Path(folder) / name)
