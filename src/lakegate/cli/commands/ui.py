"""Open the dashboard in a browser."""

from __future__ import annotations

import sys
import threading
import webbrowser
from contextlib import closing, suppress
from pathlib import PurePath

import click

from lakegate.cli.app import App, command
from lakegate.cli.output import echo_json, safe, say
from lakegate.errors import missing_package
from lakegate.listening import listen

_ON_TERMINALS = frozenset({"www-browser", "links", "elinks", "lynx", "w3m"})
"""Browsers that Python opens where there's no display. They'd take over the terminal, and can't show the dashboard."""


@command("ui", examples=("lakegate ui", "lakegate ui --port 9000 --no-browser", "lakegate ui --allow-actions"))
@click.option("--host", metavar="ADDRESS", help="Address to listen on. Default: ui.host, which is 127.0.0.1.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Port to listen on; 0 for any free one. Default: ui.port, which is 8484.",
)
@click.option("--no-browser", is_flag=True, help="Don't open a browser.")
@click.option(
    "--allow-actions",
    is_flag=True,
    help="Let visitors publish, accept and discard branches. Each action is recorded with who did it.",
)
def ui(app: App, /, *, host: str | None, port: int | None, no_browser: bool, allow_actions: bool) -> None:
    """Serve the dashboard, and open it in a browser. Ctrl-C stops it.

    It shows every table with its rows, freshness and failing checks, branches and what they would change, runs with
    their audits, and the history of main. It's read-only unless you pass --allow-actions, and needs no Spark. It sends
    no data anywhere.

    Only this machine can reach it. To let others in, set up a login with OpenID Connect in [ui] of lakegate.toml.
    Without one, it refuses to listen on other addresses.
    """
    try:
        from lakegate.dashboard.ui import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("streamlit", "uvicorn"):
            raise
        raise missing_package("The dashboard needs", "streamlit", "ui") from error
    from lakegate.dashboard.model import open_read_model
    from lakegate.dashboard.ui.access import decide_access
    from lakegate.dashboard.ui.session import Shared

    settings = app.settings().ui
    host = host or settings.host
    access = decide_access(settings, host, allow_actions=allow_actions)
    opened = listen(host, settings.port if port is None else port, command="lakegate ui")
    address = server.address_of(opened) if settings.url is None else settings.url
    with closing(opened), app.lake() as lake:

        def ready() -> None:
            if app.json:
                echo_json({"url": address, "home": str(lake.home), "allow_actions": allow_actions})
            else:
                mode = "actions allowed" if allow_actions else "read-only"
                say(f"Dashboard of {safe(lake.home)}: [bold]{safe(address)}[/]  ({mode}; Ctrl-C stops it)")
            sys.stdout.flush()
            if not no_browser and sys.stderr.isatty():
                # In a thread: some browsers return only when they're closed, and the server must answer them meanwhile.
                threading.Thread(target=open_browser, args=(address,), daemon=True).start()

        server.serve(Shared(lake, open_read_model(lake), access), opened, when_ready=ready)


def open_browser(address: str) -> None:
    """Open the dashboard in the user's browser, if there's one with windows."""
    with suppress(webbrowser.Error):
        if PurePath(webbrowser.get().name).name not in _ON_TERMINALS:
            webbrowser.open(address)
