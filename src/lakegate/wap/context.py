"""What write–audit–publish works with: one object per interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakegate.model.batch import Batch, SourceFile
from lakegate.ports import Catalog, Engine, Narrator, Notifier, TableEditor, TableReader

if TYPE_CHECKING:
    from lakegate.journal.journal import Journal


@dataclass(frozen=True, slots=True)
class Context:
    """The implementations a lake was opened with.

    Attributes:
        engine: A call, not an object: connecting takes seconds, and much can be done without.
        changed_files: Returns the files of a batch that are no longer as they were looked at.
        lease_s: Seconds after which a run's lease runs out when its process stopped renewing it.
        suspend_s: Seconds for which a suspended run, which waits for its next step, is left alone.
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
    suspend_s: float = 3600.0
    notifier: Notifier | None = None
    require_writable: Callable[[], None] = lambda: None
