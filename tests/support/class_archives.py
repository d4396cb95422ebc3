"""The archives of classes with which servers start: made before the first test, not minutes later in the background."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import filelock
import pytest

from lakegate.config import LocalSettings
from lakegate.local import LocalStack, archives, prepare
from lakegate.local.archives import Job
from lakegate.local.artifacts import cache_folder
from lakegate.local.servers import SERVERS
from lakegate.progress import SilentNarrator

_WAIT_S = 300.0


def make_class_archives(folder: Path) -> None:
    """Make them unless they are there, by one start in ``folder``.

    One process of all runs at this time does, and the others wait: that takes as much as three stacks save, of the
    dozens in a run of the suite.
    """
    cache = cache_folder() / "archives"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(filelock.Timeout), filelock.FileLock(cache / "tests.lock", timeout=_WAIT_S):
        if _are_made() or (folder / "tried").exists():
            return
        (folder / "tried").touch()
        jobs: list[Job] = []
        settings = LocalSettings(spark_memory="1g", nessie_memory="384m")
        stack = LocalStack(folder / "archived", settings, SilentNarrator())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(archives, "make_later", jobs.extend)
            try:
                stack.up()
            finally:
                stack.down()
        with ThreadPoolExecutor() as pool:
            list(pool.map(archives.make, jobs))


def _are_made() -> bool:
    jars = prepare(SilentNarrator())
    found = (archives.find(name, server.classes(jars)) for name, server in SERVERS.items())
    return all(archive is None or archive.path.is_file() for archive in found)
