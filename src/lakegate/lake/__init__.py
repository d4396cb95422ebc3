"""The facade: everything lakegate does, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakegate.config import Settings, find_home, load_settings
from lakegate.lake.backfilling import Backfilling
from lakegate.lake.base import MAIN, Checks, Paths
from lakegate.lake.changing import Changing
from lakegate.lake.keeping import Keeping
from lakegate.lake.landing import Arriving
from lakegate.lake.looking import Looking
from lakegate.lake.stepping import Stepping
from lakegate.lake.telling import Telling
from lakegate.narration import SilentNarrator
from lakegate.protocols import Narrator
from lakegate.wiring import Wiring

__all__ = ["MAIN", "Checks", "Lake", "Paths", "connect"]


def connect(
    home: str | Path | None = None,
    *,
    engine: Any = None,
    catalog: str | None = None,
    warehouse: str | None = None,
    settings: Settings | None = None,
    narrator: Narrator | None = None,
) -> Lake:
    """Open the lake of a project. Servers are found or started when something first needs them.

    Args:
        home: The project's folder; by default the nearest one upwards with a ``lakegate.toml`` or ``.lakegate/``.
        engine: Spark Connect address (``sc://host:15002``) or a ``SparkSession`` (Connect or classic). By default
            what the settings say, else the local stack's.
        catalog: Nessie's API v2 address; by default what the settings say, else the local stack's.
        warehouse: Root of the tables' files as a URI; goes with ``catalog``.
        settings: Settings to use instead of reading ``lakegate.toml`` and variables.
        narrator: Where progress is told of; silent by default.

    Raises:
        ConfigurationError: When the settings are wrong.
    """
    folder = find_home() if home is None else Path(home).absolute()
    flags = {
        "engine.url": engine if isinstance(engine, str) else None,
        "catalog.uri": catalog,
        "catalog.warehouse": warehouse,
    }
    known = settings or load_settings(folder, flags=flags)
    session = None if isinstance(engine, str) else engine
    return Lake(Wiring(folder, known, session=session, narrator=narrator or SilentNarrator()))


class Lake(Stepping, Arriving, Backfilling, Looking, Changing, Keeping, Telling):
    """A lakehouse in which changes are audited before anyone reads them. Made by :func:`connect`.

    A context manager: leaving it ends sessions and connections, not servers.
    """
