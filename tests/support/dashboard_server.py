"""The dashboard as a process, for tests in a browser: ``python dashboard_server.py FOLDER [RUNS]``.

It prints its address. ``GET /-/lake/NAME`` chooses what it shows: a number, or ``RUNSxTABLESxBRANCHES``, is a lake of
so many (``big_lake``), ``house`` one in memory, with a rejected batch that can be published, ``quarantine`` one with
rows that wait there, and ``trips`` one for pictures.
``GET /-/gate/shut`` holds up whoever publishes, until ``/-/gate/open``. To look at a page while you work on it:
``PYTHONPATH=tests python tests/support/dashboard_server.py /tmp/lake 300``.
"""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import streamlit as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lakegate.components import Components
from lakegate.config import Settings
from lakegate.dashboard.model import ReadModel
from lakegate.dashboard.ui import server, session
from lakegate.dashboard.ui.access import Access
from lakegate.dashboard.ui.session import Shared
from lakegate.errors import InputError
from lakegate.lake import Lake
from lakegate.model.run import Run
from lakegate.progress import SilentNarrator
from lakegate.wap import failpoints
from lakegate.wap.ingest import ingest
from support import big_lake as big_lake_module
from support.big_lake import BigLake, big_lake
from support.fakes import FakeLakehouse
from support.flow_support import WITH_NULLS, ordered

_GATE = threading.Event()
_GATE.set()


def open_lake(made: BigLake) -> Lake:
    """Return a lake on what ``big_lake`` made."""
    components = Components(made.home, made.settings, session=None, narrator=SilentNarrator())
    components.__dict__.update(catalog=made.catalog, journal=made.journal, journal_for_pages=made.journal)
    return Lake(components)


def share_big(folder: Path, runs: int, tables: int = 60, branches: int = 100) -> Shared:
    """Return what the pages show of a lake with so many runs."""
    folder.mkdir(parents=True, exist_ok=True)
    made = big_lake(folder, runs=runs, tables=tables, branches=min(runs // 2, branches))
    return Shared(open_lake(made), made.model(), Access("none", allow_actions=True))


def share_house(folder: Path) -> Shared:
    """Return what the pages show of a lake in memory: a published batch, and a rejected one."""
    house = FakeLakehouse()
    ingest(house.context, ordered(house))
    ingest(house.context, ordered(house, WITH_NULLS, run="r2"))
    return _shared(house, folder)


def _shared(house: FakeLakehouse, folder: Path) -> Shared:
    parts: dict[str, Any] = {"catalog": house.catalog, "reader": house, "journal": house.journal}
    components: Any = SimpleNamespace(**parts, context=house.context, settings=Settings(), home=folder, close=bool)
    model = ReadModel(
        catalog=lambda: house.catalog, reader=lambda: house, journal=lambda: house.journal, settings=Settings()
    )
    return Shared(Lake(components), model, Access("none", allow_actions=True))


def share_quarantine(folder: Path) -> Shared:
    """Return what the pages show of a lake with quarantined rows, of odd names and values."""
    house = FakeLakehouse()
    rows = [{"id": n or None, "fare": n - 2, "<i>\N{RIGHT-TO-LEFT OVERRIDE}note": "<script>" * n} for n in range(40)]
    checks = ("not_null(id, severity='quarantine')", "in_range(fare, max=30, severity='quarantine')")
    run = ingest(house.context, ordered(house, rows, run="q1", checks=checks))
    shared = _shared(house, folder)

    def refuse(table: str, **_: Any) -> Run:
        raise InputError("38 of 40 rows fail not_null(id).", table=table)

    # Both need Spark's SQL, which a lake in memory doesn't have.
    vars(shared.lake).update(quarantine_release=refuse, quarantine_drop=lambda *_, **__: run)
    return shared


def share_trips(folder: Path) -> Shared:
    """Return what the pages show of a lake that looks like anyone's, for pictures in the docs."""
    given = vars(big_lake_module)
    checks = ("not_null(passenger_count)", "in_range(trip_distance, min=0, max=200)", "not_null(vendor)")
    kept = {name: given[name] for name in ("HOSTILE", "_CHECKS", "_example")}
    trip = {"fare": 12.5, "tip": 2.0, "payment": "card", "vendor": None, "trip_distance": -1.2, "passenger_count": None}
    given |= {
        "HOSTILE": "unique_trip_id",
        "_CHECKS": ("unique(trip_id)", *checks, "accepted_values(payment, values=['card', 'cash'])"),
        "_example": lambda number: {"trip_id": 40_000 + number, "pickup": f"2026-11-21 07:{number % 60:02}", **trip},
    }
    try:
        return share_big(folder, 240, 9)
    finally:
        given |= kept


class _Control:
    """Chooses what is shown, and holds up who publishes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Shared] = {}

    def routes(self) -> list[Route]:
        return [Route("/-/lake/{name}", self.choose), Route("/-/gate/{state}", self.gate)]

    def choose(self, request: Request) -> PlainTextResponse:
        name = request.path_params["name"]
        self.show(name)
        return PlainTextResponse(name)

    def gate(self, request: Request) -> PlainTextResponse:
        state = request.path_params["state"]
        (_GATE.clear if state == "shut" else _GATE.set)()
        return PlainTextResponse(state)

    def show(self, name: str) -> Shared:
        if name not in self._made:
            folder = self._folder / name
            known = {"house": share_house, "quarantine": share_quarantine, "trips": share_trips}.get(name)
            self._made[name] = share_big(folder, *map(int, name.split("x"))) if known is None else known(folder)
            gc.collect()
            gc.freeze()  # as the server does when it starts: Streamlit looks through all objects after each script run
        session.share(self._made[name])
        return self._made[name]


def main(folder: Path, first: str, port: int) -> None:
    """Serve until a signal comes."""
    control = _Control(folder)
    shared = control.show(first)
    reach = failpoints.reach

    def hold_up(point: Any) -> None:
        if point == "before-commit" and threading.current_thread().name.startswith("lakegate-"):
            _GATE.wait()
        reach(point)

    failpoints.reach = hold_up
    made = st.App

    def with_control(*given: Any, routes: Any, **options: Any) -> Any:
        return made(*given, routes=[*control.routes(), *routes], **options)

    vars(st).update(App=with_control)
    opened = server.listen("127.0.0.1", port)

    def ready() -> None:
        sys.stdout.write(server.address_of(opened) + "\n")
        sys.stdout.flush()

    server.serve(shared, opened, when_ready=ready)


if __name__ == "__main__":
    words = sys.argv[1:]
    main(Path(words[0]), words[1] if len(words) > 1 else "0", int(words[2]) if len(words) > 2 else 0)
