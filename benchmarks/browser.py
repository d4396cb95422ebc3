"""The dashboard in a real Chromium: from the start of the navigation until the home page's content.

The lake has 5,000 runs, 200 tables and 1,000 branches. The browser itself notes when the content is there, so that what
drives it isn't measured: first the heading, then the table. ``first visit`` begins with an empty cache: Streamlit's own
scripts, some megabytes, are fetched and compiled. ``again`` has them. What the processors spent on it, in the page's
process and in the server, tells a slow page from a busy machine.

Visits alternate with those to a Streamlit app of one line: what nobody who uses Streamlit can be faster than.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
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
_ONE_ROW = "import streamlit as st; st.title('Home'); st.dataframe({'a': [1]})"
_TIMES = """() => [
  window.lgContent, window.lgDrawn,
  (performance.getEntriesByName("first-contentful-paint")[0] || { startTime: 0 }).startTime
]"""
_NOTE_CONTENT = """
const note = (name, found) => {
  if (window[name] !== undefined || !found) return;
  // What is parsed isn't painted yet.
  window[name] = 0;
  requestAnimationFrame(() => setTimeout(() => { window[name] = performance.now(); }));
};
const looking = new MutationObserver(() => {
  note("lgContent", document.querySelector("h1"));
  note("lgDrawn", document.querySelector('[data-testid="stDataFrame"] canvas'));
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
    commands = {"dashboard": [str(_SERVER), str(home), _LAKE], "empty Streamlit app": [__file__, str(home)]}
    with ExitStack() as running:
        servers = {name: running.enter_context(_serving(command)) for name, command in commands.items()}
        visits = _visit(servers, rounds)
    for (name, when), found in visits.items():
        yield _figure(f"{name} in a browser, {when}, seconds", found, 2.0 if name == "dashboard" else None)


class _DashboardServer(NamedTuple):
    url: str
    process: int


@contextmanager
def _serving(command: Sequence[str]) -> Iterator[_DashboardServer]:
    """Run a server that prints its address."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, _SERVER.parents[1:3]))}
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            assert running.stdout is not None
            yield _DashboardServer(running.stdout.readline().strip(), running.pid)
        finally:
            running.send_signal(signal.SIGINT)


class _Visit(NamedTuple):
    content_s: float
    drawn_s: float
    paint_s: float
    page_cpu_s: float
    server_cpu_s: float


def _figure(name: str, visits: Sequence[_Visit], limit: float | None) -> Figure:
    content, drawn, paint, page, server = (median(values) for values in zip(*visits, strict=True))
    detail = f"first table {drawn:.2f} s; first paint {paint:.2f} s; CPU: page {page:.2f} s, server {server:.2f} s"
    return Figure(name, content, limit, detail)


def _visit(servers: Mapping[str, _DashboardServer], rounds: int) -> Mapping[tuple[str, str], Sequence[_Visit]]:
    found: dict[tuple[str, str], list[_Visit]] = {}
    with chromium() as browser:
        for at in range(rounds + 1):
            for name, server in servers.items():
                context = browser.new_context()
                context.add_init_script(_NOTE_CONTENT)
                for when in ("first visit", "again"):
                    visit = _open(context, server)
                    if at:  # the first one finds a server that has read nothing yet
                        found.setdefault((name, when), []).append(visit)
                context.close()
    return found


def _open(context: BrowserContext, server: _DashboardServer) -> _Visit:
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    spent = _cpu_of(server.process)
    page.goto(server.url, wait_until="commit")
    page.wait_for_function("() => window.lgContent && window.lgDrawn", timeout=_CONTENT_MS)
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    content, drawn, paint = page.evaluate(_TIMES)
    page.close()
    found = _Visit(content / 1000, drawn / 1000, paint / 1000, metrics["TaskDuration"], _cpu_of(server.process) - spent)
    progress(str(found))
    return found


def _cpu_of(process: int) -> float:
    """Return the seconds of a processor that a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve_one_row(home: Path) -> None:
    """Serve a Streamlit app that shows one row, as the dashboard is served; print its address."""
    import streamlit
    import uvicorn
    from streamlit.web import bootstrap

    from lakegate.dashboard.ui import server
    from lakegate.dashboard.ui.access import Access
    from lakegate.listening import listen

    script = home / "one_row.py"
    script.write_text(_ONE_ROW, encoding="utf-8")
    opened = listen("127.0.0.1", 0, command="lakegate ui")
    bootstrap.load_config_options(dict(server.options(Access(), opened)))
    sys.stdout.write(server.address_of(opened) + "\n")
    sys.stdout.flush()
    config = uvicorn.Config(streamlit.App(script), lifespan="on", log_config=None, timeout_graceful_shutdown=1)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[opened])


if __name__ == "__main__":
    _serve_one_row(Path(sys.argv[1]))
