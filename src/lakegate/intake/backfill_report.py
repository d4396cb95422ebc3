"""What a backfill did, and who is told how it goes."""

from __future__ import annotations

from typing import Literal, Protocol

from lakegate.intake.backfill_plan import BackfillChunk
from lakegate.model.base import Value
from lakegate.model.run import RunError

Outcome = Literal["published", "already", "empty", "rejected", "failed", "later", "waiting"]
"""``already``: published before. ``empty``: no rows in it. ``later``: trying again may help. ``waiting``: not begun."""


class ChunkResult(Value):
    """What became of a chunk.

    Attributes:
        chunk: Its name.
        run_id: Its run, if it came to one.
        given: Files that it was to ingest.
        files: Those of them that it published.
        rows: Rows that were published.
        size_bytes: Length in bytes of the files given.
        left: Files that were left to other runs which have not published them yet.
        branch: The branch on which a rejected chunk can be looked at.
        failed_checks: Checks that failed, as text.
    """

    chunk: str
    outcome: Outcome
    run_id: str | None = None
    given: int = 0
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    left: int = 0
    seconds: float = 0.0
    branch: str | None = None
    failed_checks: tuple[str, ...] = ()
    error: RunError | None = None


class BackfillReport(Value):
    """What a backfill did.

    Attributes:
        results: One for each chunk of the plan, in its order.
        seconds: Wall time.
        interrupted: Whether somebody stopped it.
        given_up: Whether chunks were under way, and not waited for, when it was stopped.
    """

    table: str
    results: tuple[ChunkResult, ...]
    seconds: float
    interrupted: bool = False
    given_up: bool = False

    @property
    def again(self) -> bool:
        """Whether doing it again may get further."""
        return any(one.outcome in ("later", "waiting") or one.left for one in self.results)

    def having(self, *outcomes: Outcome) -> tuple[ChunkResult, ...]:
        """Return the results with one of these outcomes."""
        return tuple(one for one in self.results if one.outcome in outcomes)


class Watcher(Protocol):
    """Who is told how a backfill goes. Called by one thread at a time."""

    def began(self, chunk: BackfillChunk) -> None:
        """Tell that this very thread begins with a chunk."""
        ...

    def ended(self, result: ChunkResult) -> None:
        """Tell that this very thread is done with a chunk."""
        ...

    def stopping(self, under_way: int) -> None:
        """Tell that it was interrupted, and finishes the chunks that are under way."""
        ...
