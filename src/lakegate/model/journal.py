"""What the journal stores of runs and source files, as values."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from lakegate.model.base import Value
from lakegate.model.checks import Evidence, Severity, Verdict
from lakegate.model.run import Run, RunKind, RunStatus


class Lease(Value):
    """A run, and the token that proves that this process holds it.

    Attributes:
        run: The run as it was when the lease was acquired.
        token: Needed to change the run; ``None`` if the run has ended.
    """

    run: Run
    token: str | None = None


class RunLine(Value):
    """A run's summary, which the journal has without reading the whole :class:`~lakegate.model.run.Run`."""

    run_id: str
    kind: RunKind
    name: str | None = None
    orchestrator: str | None = None
    branch: str
    status: RunStatus
    started_at: datetime
    finished_at: datetime | None = None
    reverted_by: str | None = None


class CheckRecord(Value):
    """One check's result in one run, which the journal has without reading the whole run.

    Attributes:
        check: The check in its canonical text.
    """

    run_id: str
    table: str
    name: str
    check: str
    severity: Severity
    verdict: Verdict
    evidence: Evidence
    failing_rows: int
    total_rows: int


class FileRecord(Value):
    """A version of a source file that a run published or is ingesting.

    Attributes:
        number: Increases with each file that the journal records.
        version: Identifies the content.
        size_bytes: Size; 0 if the journal knows the file from a commit only.
        rows: Number of rows; 0 likewise.
        published: Whether it's published. If not, a run is ingesting it.
        identity: What a local file keeps if it's renamed or linked; empty if unknown.
    """

    number: int
    table: str
    uri: str
    version: str
    size_bytes: int
    rows: int
    published: bool
    run_id: str
    identity: str = ""


class HistoryEvent(Value):
    """What one commit on the target says about a run.

    Attributes:
        files: URI and version of each source file that it published to all of ``tables``.
        identities: The identity of each of ``files``, in order; or empty.
        reverts: Runs whose rows it removed from ``tables``.
        revives: Table, URI, version and run of each source file that it published again after a revert.
        time: The commit's time, used for runs that the journal has lost.
        kind: What the commit did.
        renames: Old and new name of each table that it renamed.
        formerly: For reverts: former and present name of each table that was renamed since.
    """

    commit: str
    run_id: str
    tables: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()
    identities: tuple[str, ...] = ()
    reverts: tuple[str, ...] = ()
    revives: tuple[tuple[str, str, str, str], ...] = ()
    time: datetime | None = None
    kind: Literal["published", "reverted", "restored"] = "published"
    renames: tuple[tuple[str, str], ...] = ()
    formerly: tuple[tuple[str, str], ...] = ()


class PastCommit(Value):
    """What the journal keeps about a commit of the target.

    Attributes:
        time: When it was made.
        events: What it says about each of its runs, in order; empty if lakegate didn't make it.
    """

    hash: str
    time: datetime
    events: tuple[HistoryEvent, ...] = ()


class QueuedPublish(Value):
    """A run that waits for its table's publish lock. The lock's holder may publish it, too (docs/decisions/0060).

    Attributes:
        run: The fields of the run needed to publish it: an append to one table.
        token: Its lease's token.
        audit: Summary of its checks, for the commit.
        seen: Commit of its target up to which nobody else published its files.
    """

    run: Run
    token: str
    audit: str
    seen: str


CheckpointOutcome = Literal["done", "rejected", "failed", "parked", "trying"]


class FileCheckpoint(Value):
    """The outcome of a file in a watched folder, so that it isn't retried forever.

    It saves reading the file again. Only claims decide whether a file is published.

    Attributes:
        stamp: Fingerprint of its state without reading it (size and modification time, or an ETag).
        outcome: ``done`` if nothing is left to do; ``rejected`` by an audit; ``failed`` for any other reason;
            ``parked`` while its run is suspended; ``trying`` while a run ingests it, or after its process died.
        tries: Number of attempts in this state.
        run_id: The last run that tried; ``None`` if none started.
        reason: Why it wasn't published, in one sentence.
    """

    uri: str
    stamp: str
    outcome: CheckpointOutcome
    tries: int = 1
    run_id: str | None = None
    reason: str | None = None
    noted_at: datetime
