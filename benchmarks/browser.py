"""The dashboard in a real Chromium: from the start of the navigation until the home page's content.

The lake has 5,000 runs, 200 tables and 1,000 branches. The browser itself notes when the content is there, so that what
drives it isn't measured: first in the page's document, then as Streamlit has drawn it, with what one can click. ``first
visit`` begins with an empty cache: Streamlit's own scripts, some megabytes, are fetched and compiled. ``again`` has
them. What the processors spent on it, in the page's process and in the server, tells a slow page from a busy machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.harness import Figure, progress
from support.browser import CHROMIUM, chromium

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

_LAKE = "5000x200x1000"
_SERVER = Path(__file__).resolve().parents[1] / "tests" / "support" / "dashboard_server.py"
_CONTENT_MS = 60_000
_TIMES = """() => [
  window.lgContent, window.lgDrawn,
  (performance.getEntriesByName("first-contentful-paint")[0] || { startTime: 0 }).startTime
]"""
_NOTE_CONTENT = """
const looking = new MutationObserver(() => {
  if (window.lgContent === undefined && document.querySelector(".lg table tbody tr")) {
    // What is parsed isn't painted yet.
    window.lgContent = 0;
    requestAnimationFrame(() => setTimeout(() => { window.lgContent = performance.now(); }));
  }
  if (!document.querySelector(".lg-first") && document.querySelector("#root .lg table tbody tr")) {
    window.lgDrawn = performance.now();
    looking.disconnect();
  }
});
looking.observe(document, { childList: true, subtree: true });
"""


def measure(home: Path, rounds: int) -> Iterator[Figure]:
    """Yield the seconds until the content of the home page is there, on a first visit and on another one."""
    if CHROMIUM is None:
        progress("no Chromium on this machine")
        return
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    environment = os.environ | {"PYTHONPATH": str(_SERVER.parents[1])}
    command = [sys.executable, str(_SERVER), str(home), _LAKE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            assert running.stdout is not None
            url = running.stdout.readline().strip()
            first, again = _visit(url, running.pid, rounds)
        finally:
            running.send_signal(signal.SIGINT)
    yield _figure("dashboard in a browser, first visit, seconds", first)
    yield _figure("dashboard in a browser, again, seconds", again)


class _Visit(NamedTuple):
    content_s: float
    drawn_s: float
    paint_s: float
    page_cpu_s: float
    server_cpu_s: float


def _figure(name: str, visits: Sequence[_Visit]) -> Figure:
    content, drawn, paint, page, server = (median(values) for values in zip(*visits, strict=True))
    detail = (
        f"drawn by Streamlit {drawn:.2f} s; first paint {paint:.2f} s; CPU: page {page:.2f} s, server {server:.2f} s"
    )
    return Figure(name, content, 1.0, detail)


def _visit(url: str, server: int, rounds: int) -> tuple[list[_Visit], list[_Visit]]:
    first, again = [], []
    with chromium() as browser:
        for at in range(rounds + 1):
            context = browser.new_context()
            context.add_init_script(_NOTE_CONTENT)
            visits = _open(context, url, server), _open(context, url, server)
            context.close()
            if at:  # the first one finds a server that has read nothing yet
                first.append(visits[0])
                again.append(visits[1])
    return first, again


def _open(context: BrowserContext, url: str, server: int) -> _Visit:
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    spent = _cpu_of(server)
    page.goto(url, wait_until="commit")
    page.wait_for_function("() => window.lgContent && window.lgDrawn", timeout=_CONTENT_MS)
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    content, drawn, paint = page.evaluate(_TIMES)
    page.close()
    found = _Visit(content / 1000, drawn / 1000, paint / 1000, metrics["TaskDuration"], _cpu_of(server) - spent)
    progress(str(found))
    return found


def _cpu_of(process: int) -> float:
    """Return the seconds of a processor that a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
