"""What the flow works with: one object per seam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakegate.protocols import Catalog, Engine, Journal, Narrator, TableReader


@dataclass(frozen=True, slots=True)
class Rooms:
    """The implementations a lake was opened with.

    ``engine`` is a call, not an object: connecting takes seconds, and much can be done without.
    """

    catalog: Catalog
    reader: TableReader
    engine: Callable[[], Engine]
    journal: Journal
    narrator: Narrator
    warehouse: str
