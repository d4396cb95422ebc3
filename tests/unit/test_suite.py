"""What the test suite relies on in its own tools."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest

from proofs.harness import Worker, WorkersOf


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="groups are for processes side by side")
@pytest.mark.xdist_group("suite")
def test_tests_of_a_group_stay_in_one_process(request: pytest.FixtureRequest) -> None:
    # xdist's scheduler reads the group from here. With an incompatible version of pytest, it's silently missing.
    if request.config.getoption("loadgroup", default=False):
        assert request.node.nodeid.endswith("@suite")


class _SlowWorker(Worker):
    """A fake worker that takes a while to start."""

    def __init__(self, _home: Path, _log: IO[str]) -> None:
        time.sleep(0.02)

    def kill(self) -> None:
        """Do nothing."""

    def end(self) -> int:
        """Return exit code 0."""
        return 0


def test_threads_that_take_a_worker_at_the_same_time_share_none(tmp_path: Path) -> None:
    with WorkersOf(_SlowWorker, tmp_path) as workers, ThreadPoolExecutor(8) as threads:
        workers.take()  # from now on, one worker is ready in advance
        taken = list(threads.map(lambda _: workers.take(), range(8)))
    assert len({id(worker) for worker in taken}) == len(taken)
