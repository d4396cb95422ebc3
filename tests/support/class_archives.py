"""The archives of classes with which servers start: written before the first test."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import filelock

from lakegate.components import local_stack
from lakegate.config import LocalSettings, Settings, load_settings
from lakegate.lake import connect
from lakegate.local.archives import archive_path
from lakegate.local.artifacts import cache_folder
from lakegate.local.servers import SERVERS
from lakegate.progress import SilentNarrator
from support.e2e_support import write_trips

_WAIT_S = 450.0  # less than a test may take, this included


def make_class_archives(folder: Path) -> None:
    """Make them unless they are there, by one start in ``folder`` and some work.

    One process of all runs at this time does, and the others wait: that takes as much as three stacks save, of the
    dozens in a run of the suite.
    """
    with suppress(filelock.Timeout), filelock.FileLock(cache_folder() / "tests.lock", timeout=_WAIT_S):
        if all(archive_path(server).is_file() for server in SERVERS) or (folder / "tried").exists():
            return
        (folder / "tried").touch()
        home = folder / "archived"
        home.mkdir()
        local = LocalSettings(spark_memory="1g", nessie_memory="384m", idle_stop="0s", start_timeout_s=300)
        settings = load_settings(home, env={}).model_copy(update={"local": local})
        stack = local_stack(home, settings, SilentNarrator())
        try:
            stack.up()
            _work(home, settings)
        finally:
            stack.down()


def _work(home: Path, settings: Settings) -> None:
    """Do what most tests do first: a third of what that costs a server is to load classes for it."""
    with connect(home, settings=settings) as lake:
        for number in range(2):
            file = write_trips(home / f"{number}.parquet", 50, start=50 * number, nulls=number)
            lake.ingest(
                "a.trips", file, checks=["unique(id)", "in_range(passengers, 0, 9)"], partition_by=["days(pickup)"]
            )
        with lake.transaction() as tx:
            tx.sql("UPDATE a.trips SET note = 'x' WHERE id = 3")
            tx.sql("DELETE FROM a.trips WHERE id = 1")
        lake.query("SELECT passengers, count(*) AS n FROM a.trips GROUP BY passengers ORDER BY n LIMIT 5").to_arrow()
