"""Another project on the same catalog, warehouse and engine: it has a journal and settings of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakegate.components import Components
from lakegate.lake import Lake
from lakegate.progress import SilentNarrator

_SHARED = ("catalog", "engine", "warehouse", "stack")


@contextmanager
def other_project(components: Components, home: Path, **settings: Any) -> Iterator[Lake]:
    """Open a lake beside ``components``'s; ``settings`` replaces sections of its settings."""
    home.mkdir(parents=True, exist_ok=True)
    beside = Components(home, components.settings.model_copy(update=settings), session=None, narrator=SilentNarrator())
    beside.__dict__.update({room: getattr(components, room) for room in _SHARED})
    try:
        yield Lake(beside)
    finally:
        beside.journal.close()
