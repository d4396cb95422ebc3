"""Logs of JSON lines, read back."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lakegate.progress import FIELDS, LogNarrator

Line = dict[str, Any]


def parsed(text: str) -> list[Line]:
    """Return the lines of a log; each must be an object with all the fields that every line has, in their order."""
    told: list[Line] = [json.loads(line) for line in text.splitlines()]
    assert all(tuple(line)[: len(FIELDS)] == FIELDS for line in told)
    return told


def ends(told: list[Line]) -> list[Line]:
    """Return the lines that tell how a run ended."""
    return [line for line in told if line.get("status")]


class Log(io.StringIO):
    """A stream that a log is written to."""

    @property
    def lines(self) -> list[Line]:
        return parsed(self.getvalue())

    @property
    def ends(self) -> list[Line]:
        return ends(self.lines)


@contextmanager
def logged() -> Iterator[Log]:
    """Yield a log of a program's own, with lakegate's records in it."""
    told = Log()
    logger = logging.getLogger("lakegate")
    handler = LogNarrator(told).handler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield told
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
