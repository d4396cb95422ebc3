"""Waiting for what another thread, process or server does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_Found = TypeVar("_Found")


def wait_until(
    find: Callable[[], _Found | None],
    *,
    within_s: float = 120.0,
    poll_s: float = 0.02,
    what: str = "what was waited for",
    process: subprocess.Popen[Any] | None = None,
) -> _Found:
    """Return the first true value that ``find`` returns.

    Args:
        find: Called again and again until its value is true.
        within_s: Seconds until the wait is given up.
        poll_s: Seconds between two calls.
        what: What comes, for the error.
        process: What does it; an error as soon as it has ended without doing so.

    Raises:
        AssertionError: When the process ended.
        TimeoutError: When the time is up.
    """
    deadline = time.monotonic() + within_s
    while not (found := find()):
        if process is not None and process.poll() is not None:
            raise AssertionError(f"the process ended before {what}: {process.communicate()}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} didn't come within {within_s:g} s")
        time.sleep(poll_s)
    return found


def wait_ready(
    process: subprocess.Popen[Any], is_ready: Callable[[], bool], *, within_s: float, log: Path | None = None
) -> None:
    """Wait until a server answers.

    Args:
        process: The server's process.
        is_ready: Whether it answers.
        within_s: Seconds until the wait is given up.
        log: The server's log, whose end is in the error.

    Raises:
        RuntimeError: When the process ended, or the time is up.
    """
    try:
        wait_until(lambda: process.poll() is not None or is_ready(), within_s=within_s)
    except TimeoutError:
        pass
    else:
        if process.poll() is None:
            return
    said = "" if log is None else log.read_text(encoding="utf-8", errors="replace")[-3000:]
    raise RuntimeError(f"{process.args!r} doesn't start: {said}")
