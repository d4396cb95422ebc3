"""The context of write–audit–publish: one object per interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lakegate.model.batch import Batch, SourceFile
from lakegate.model.downstream import Subscription
from lakegate.model.identifiers import TableIdentifier
from lakegate.ports import Catalog, Downstream, Engine, Narrator, Notifier, TableEditor, TableReader

if TYPE_CHECKING:
    from lakegate.journal.journal import Journal


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A downstream system from the settings.

    Attributes:
        subscription: Which events it gets.
        give_up: How long to retry a delivery before giving up.
        timeout_s: Longest time that one delivery may take.
        open: Connects to the system: loads its libraries and resolves its secrets.
    """

    subscription: Subscription
    give_up: timedelta
    timeout_s: float
    open: Callable[[], Downstream]


@dataclass(frozen=True, slots=True)
class Context:
    """The implementations a lake was opened with.

    Attributes:
        engine: Returns the engine. A function, because connecting takes seconds and much works without an engine.
        changed_files: Returns the files of a batch that have changed since they were inspected.
        lease_s: Seconds until a run's lease expires if its process doesn't renew it.
        suspend_s: Seconds that a suspended run waits for its next step before recovery may end it.
        notifier: Sends alerts; ``None`` if no channel is configured.
        require_writable: Raises if the warehouse can't be written to.
        orchestrator: What starts the runs; see :attr:`lakegate.model.run.Run.orchestrator`.
        publish_attempts: How often to try a commit when concurrent commits get in first.
        publish_within_s: Seconds after which a commit isn't retried.
        masked: Patterns of columns whose values audits never read out of the engine.
        audit_timeout_s: Seconds after which an audit is stopped; ``None`` for no limit.
        keep: How long ``gc`` keeps files after the last commit that needed them, and how far back reverts go.
        branches_last: How long the branch of a rejected or failed run is kept, if the catalog has no branches: its own
            clean-up may delete files that it doesn't know.
        format_version: Returns the Iceberg format version for a new table.
        own_folder: Returns the folder that the catalog has for a namespace's tables; ``None`` if it has none.
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
    downstreams: tuple[Subscriber, ...] = ()
    require_writable: Callable[[], None] = lambda: None
    orchestrator: str | None = None
    publish_attempts: int = 40
    publish_within_s: float = 120.0
    masked: tuple[str, ...] = ()
    audit_timeout_s: float | None = None
    keep: timedelta = timedelta(days=3)
    branches_last: timedelta | None = None
    format_version: Callable[[TableIdentifier], int] = lambda _: 2
    own_folder: Callable[[tuple[str, ...]], str | None] = lambda _: None

    def folder(self, namespace: tuple[str, ...]) -> str:
        """Return the folder for new tables of a namespace."""
        return self.own_folder(namespace) or "/".join((self.warehouse.rstrip("/"), *namespace))
