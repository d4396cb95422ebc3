"""A real Chromium, for tests that open pages in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_QUIET = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run one, for a file of tests: Playwright keeps an event loop running, which other files' tests can't have."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, args=list(_QUIET))
        try:
            yield browser
        finally:
            browser.close()
