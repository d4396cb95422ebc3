"""What the flow works with: one object per seam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakegate.model.batch import Batch, SourceFile
from lakegate.protocols import Catalog, Engine, Journal, Narrator, Notifier, TableEditor, TableReader


@dataclass(frozen=True, slots=True)
class Rooms:
    """The implementations a lake was opened with.

    Attributes:
        engine: A call, not an object: connecting takes seconds, and much can be done without.
        changed_files: Returns the files of a batch that are no longer as they were looked at.
        lease_s: Seconds after which a run's lease runs out when its process stopped renewing it.
        park_s: Seconds for which a run that waits for its next step is left alone.
        notifier: Who tells others of runs that ended; ``None`` when nobody wants to know.
        require_writable: Raises what would stop a write to the warehouse.
    """

    catalog: Catalog
    reader: TableReader
    editor: TableEditor
    engine: Callable[[], Engine]
    journal: Journal
    narrator: Narrator
    warehouse: str
    changed_files: Callable[[Batch], Sequence[SourceFile]]
    lease_s: float = 60.0
    park_s: float = 3600.0
    notifier: Notifier | None = None
    require_writable: Callable[[], None] = lambda: None
