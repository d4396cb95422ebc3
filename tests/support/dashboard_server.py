"""The dashboard of a lake made by ``big_lake``, as a process: ``python dashboard_server.py RUNS FOLDER [--actions]``.

It prints its address. For tests in a browser, and to look at it while working on it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lakegate.components import Components
from lakegate.dashboard.ui import server
from lakegate.dashboard.ui.access import Access
from lakegate.dashboard.ui.session import Shared
from lakegate.lake import Lake
from lakegate.progress import SilentNarrator
from support.big_lake import BigLake, big_lake


def open_lake(made: BigLake) -> Lake:
    """Return a lake on what ``big_lake`` made."""
    components = Components(made.home, made.settings, session=None, narrator=SilentNarrator())
    components.__dict__.update(catalog=made.catalog, journal=made.journal)
    return Lake(components)


def main(runs: int, folder: Path, port: int, *, actions: bool) -> None:
    """Serve until a signal comes."""
    folder.mkdir(parents=True, exist_ok=True)
    made = big_lake(folder, runs=runs)
    opened = server.listen("127.0.0.1", port)

    def ready() -> None:
        sys.stdout.write(server.address_of(opened) + "\n")
        sys.stdout.flush()

    server.serve(Shared(open_lake(made), made.model(), Access("none", actions)), opened, when_ready=ready)
    made.close()


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    port = int(words[2]) if len(words) > 2 else 0
    main(int(words[0]), Path(words[1]), port, actions="--actions" in sys.argv)
