"""Spark's Python modules, imported whole before anything uses them."""

from __future__ import annotations

import importlib
import threading

_LOCK = threading.Lock()


def import_spark(*more: str) -> None:
    """Import ``pyspark.sql`` and ``more`` of its modules, by name, one thread at a time.

    They import each other in circles. When two threads begin at different places of such a circle, Python lets one of
    them see a module that is not complete yet rather than wait for ever (``importlib._bootstrap._ModuleLock``).
    """
    with _LOCK:
        for name in ("pyspark.sql", *more):
            importlib.import_module(name)
