"""A run's progress, told to the logs of its flow run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from prefect.logging import get_run_logger

from lakegate.protocols import Step


class _LoggedStep:
    def progress(self, done: int, total: int, unit: str) -> None:
        """Say nothing: a line for every move would bury the others."""


class RunLogNarrator:
    """Implements :class:`lakegate.protocols.Narrator` with the logger of the task or flow that runs here."""

    def __init__(self) -> None:
        self._logger: logging.Logger | logging.LoggerAdapter[logging.Logger] = get_run_logger()

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Log ``text`` now, and how long it took at the end."""
        started = monotonic()
        self._logger.info("%s …", text)
        yield _LoggedStep()
        self._logger.info("%s: done in %.1f s", text, monotonic() - started)

    def note(self, text: str) -> None:
        """Log ``text``."""
        self._logger.info("%s", text)
