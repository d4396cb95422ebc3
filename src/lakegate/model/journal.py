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
        token: Required for each change of the run; ``None`` if the run has ended.
    """

    run: Run
    token: str | None = None


class RunLine(Value):
    """A run in a line: what the journal finds without reading the run itself; see :class:`~lakegate.model.run.Run`."""

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
    """What one check found in one run, as the journal finds it without reading the run itself.

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
    """A version of a source file that a run published, or is ingesting.

    Attributes:
        number: Counts up with the files that the journal learns of.
        version: Identifies the content.
        size_bytes: Length in bytes; 0 if the journal knows the file from a commit alone.
        rows: Number of rows; 0 likewise.
        published: Whether it's published; otherwise a run is ingesting it.
        identity: What a local file keeps when it's renamed or linked; empty if it isn't known.
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
    """What one commit on the target says about runs.

    Attributes:
        files: URI and version of each source file that it published to all of ``tables``.
        identities: The identity of each of ``files``, in order; or nothing.
        reverts: Runs whose rows it removed from ``tables``.
        revives: Table, URI, version and run of each source file that it published again after a revert.
        time: When it was made; used for runs that the journal has lost.
        kind: What made it.
        renames: Old and new name of each table that it renamed.
        formerly: What ``tables`` were called when the runs that it reverts wrote to them, and their names now.
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
    """A commit of the target's history, as far as the journal keeps it.

    Attributes:
        time: When it was made.
        events: What it says about each of its runs, in their order; none if lakegate didn't make it.
    """

    hash: str
    time: datetime
    events: tuple[HistoryEvent, ...] = ()


class QueuedPublish(Value):
    """A run that waits for its table's publish lock, for whoever holds it to take along (docs/decisions/0060).

    Attributes:
        run: What of the run is needed to publish it: an append to one table.
        token: Of its lease.
        audit: What its checks came to, for the commit.
        seen: The commit of its target up to which it has made sure that nobody published its files.
    """

    run: Run
    token: str
    audit: str
    seen: str


CheckpointOutcome = Literal["done", "rejected", "failed", "parked", "trying"]


class FileCheckpoint(Value):
    """The outcome of a file in a watched folder, so that it isn't retried endlessly.

    It saves reading the file. Whether the file is published is decided by claims alone.

    Attributes:
        stamp: Fingerprint of its state without reading it (size and modification time, or an ETag).
        outcome: ``done`` if nothing is left to do; ``rejected`` by an audit; ``failed`` for any other reason;
            ``parked`` while its run is suspended; ``trying`` while a run ingests it, and after that process died.
        tries: How often it was tried in this state.
        run_id: The last run that tried; ``None`` if none began.
        reason: Why it wasn't published, in one sentence.
    """

    uri: str
    stamp: str
    outcome: CheckpointOutcome
    tries: int = 1
    run_id: str | None = None
    reason: str | None = None
    noted_at: datetime
