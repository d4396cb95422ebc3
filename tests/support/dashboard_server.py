"""The dashboard on a lake made for it, without Spark or Nessie, for tests in a browser and benchmarks.

``dashboard_server.py FOLDER LAKE [PORT]`` prints its address once it answers, and serves until a signal comes. LAKE is
a number of runs (``5000x200x1000``: with so many tables and branches), or ``house``: a lake in memory with a rejected
batch that can be published. To look at a page while you work on it:
``PYTHONPATH=tests python tests/support/dashboard_server.py /tmp/lake 300``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lakegate.components import Components
from lakegate.config import Settings
from lakegate.dashboard.model import ReadModel
from lakegate.dashboard.ui import server
from lakegate.dashboard.ui.access import Access
from lakegate.dashboard.ui.session import Shared
from lakegate.lake import Lake
from lakegate.listening import listen
from lakegate.progress import SilentNarrator
from lakegate.wap.ingest import ingest
from support.big_lake import BigLake, big_lake
from support.fakes import FakeLakehouse
from support.flow_support import WITH_NULLS, ordered


def open_lake(made: BigLake) -> Lake:
    """Return a lake on what ``big_lake`` made."""
    components = Components(made.home, made.settings, session=None, narrator=SilentNarrator())
    components.__dict__.update(catalog=made.catalog, journal=made.journal, journal_for_pages=made.journal)
    return Lake(components)


def share_big(folder: Path, runs: int, tables: int = 60, branches: int = 100) -> Shared:
    """Return what the pages show of a lake with so many runs."""
    folder.mkdir(parents=True, exist_ok=True)
    made = big_lake(folder, runs=runs, tables=tables, branches=min(runs // 2, branches))
    return Shared(open_lake(made), made.model(), Access(allow_actions=True))


def share_house(house: FakeLakehouse, folder: Path, *, actions: bool = True) -> Shared:
    """Return what the pages show of a lake in memory: a published batch, and a rejected one."""
    ingest(house.context, ordered(house))
    ingest(house.context, ordered(house, WITH_NULLS, run="r2"))
    parts: dict[str, Any] = {"catalog": house.catalog, "reader": house, "journal": house.journal}
    components: Any = SimpleNamespace(**parts, context=house.context, settings=Settings(), home=folder, close=bool)
    model = ReadModel(
        catalog=lambda: house.catalog, reader=lambda: house, journal=lambda: house.journal, settings=Settings()
    )
    return Shared(Lake(components), model, Access(allow_actions=actions))


def main(folder: Path, lake: str, port: int) -> None:
    """Serve until a signal comes."""
    shared = share_house(FakeLakehouse(), folder) if lake == "house" else share_big(folder, *map(int, lake.split("x")))
    opened = listen("127.0.0.1", port, command="lakegate ui")

    def ready() -> None:
        sys.stdout.write(server.address_of(opened) + "\n")
        sys.stdout.flush()

    server.serve(shared, opened, when_ready=ready)


if __name__ == "__main__":
    words = sys.argv[1:]
    main(Path(words[0]), words[1], int(words[2]) if len(words) > 2 else 0)
