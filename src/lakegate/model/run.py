"""One pass through write–audit–publish, step by step, as values."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from lakegate.model.base import Value
from lakegate.model.batch import Batch, SourceFile
from lakegate.model.checks import AuditReport, Check, CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.order import IngestOrder, OnFailure
from lakegate.model.refs import TablePointer

RunStatus = Literal["running", "staged", "published", "rejected", "discarded", "skipped", "failed", "reverted"]
RunKind = Literal["ingest", "transaction", "branch", "revert", "restore"]
"""What started a run; ``branch`` is one that somebody wrote by hand and that was audited or published."""
ChangeKind = Literal["append", "rewrite"]
"""What a run did to a table: only appended rows, or anything else (overwrite, upsert, delete, change of schema)."""

RUN_ID_PROPERTY = "lakegate.run-id"
"""Key of the run id in commit properties and in snapshot summaries."""


def new_run_id(now: datetime | None = None) -> str:
    """Return a new run id: UTC time to the second and eight random hexadecimal digits; sorts by time.

    Example:
        >>> new_run_id(datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC))[:16]
        '20260131T070509-'
    """
    return f"{(now or datetime.now(UTC)).astimezone(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


class WriteRequest(Value):
    """What a run is asked to do: the only input of the flow.

    Attributes:
        base: Hash of ``target`` that the run starts from; its branch is made there.
        partition_by: Transforms for a table that is created, such as ``days(pickup)``; ignored when it exists.
        replaces: Runs whose rows in the table go when this one is published.
    """

    run_id: str
    table: TableIdentifier
    branch: str
    base: str
    batch: Batch
    checks: tuple[Check, ...] = ()
    partition_by: tuple[str, ...] = ()
    target: str = "main"
    on_failure: OnFailure = "keep"
    replaces: tuple[str, ...] = ()


class StagedTable(Value):
    """What a run did to one table on its branch, not yet audited.

    Attributes:
        base: Hash of ``target`` that the branch was made from.
        head: Hash of the branch after the write.
        before: The table's state at ``base``; ``None`` when the run created it.
        pointer: The table's state at ``head``.
        parent_snapshot_id: Snapshot the write was made on top of; ``None`` for a table without one.
        snapshot_ids: Snapshots that the write added, oldest first.
        change: Whether it only appended; then its data files can be replayed onto a newer state of the table.
        rows: Rows added.
        data_files: Data files added.
    """

    run_id: str
    table: TableIdentifier
    branch: str
    target: str
    base: str
    head: str
    before: TablePointer | None
    pointer: TablePointer
    parent_snapshot_id: int | None
    snapshot_ids: tuple[int, ...]
    change: ChangeKind = "append"
    rows: int
    data_files: int


class Publication(Value):
    """The commit that made a run's tables visible on ``target``.

    Attributes:
        replayed: Tables whose data files were appended to a newer state than the one they were staged on.
        branch_left: Whether the run's branch could not be dropped afterwards.
    """

    run_id: str
    target: str
    commit: str
    tables: tuple[str, ...]
    rows: int
    replayed: tuple[str, ...] = ()
    branch_left: bool = False


class KnownFile(Value):
    """A source file that some run has to do with: the one that published it, or the one that is at it."""

    file: SourceFile
    run_id: str


class RunStep(Value):
    """One step of a run, ``write``, ``audit`` or ``publish``; ``finished_at`` is ``None`` while it goes on."""

    name: str
    started_at: datetime
    finished_at: datetime | None = None
    outcome: Literal["running", "done", "failed"] = "running"


class RunError(Value):
    """Why a run failed: :meth:`lakegate.errors.LakegateError.to_dict` as a value."""

    code: str
    message: str
    hint: str | None = None
    context: dict[str, Any] = Field(default_factory=dict)


class Notification(Value):
    """What came of telling one channel of a run.

    Attributes:
        channel: The channel's name.
        event: What it was told.
        outcome: ``sent``; ``grouped`` when an earlier message stands for it; or ``failed``.
        reason: Why it was not sent, or nothing.
    """

    channel: str
    event: str
    outcome: Literal["sent", "grouped", "failed"]
    reason: str | None = None
    at: datetime


class UndoneTable(Value):
    """What an undoing did to one table.

    Attributes:
        rows: Rows in its data files now, less those before; negative when rows went.
        data_files: Likewise, data files.
        dropped: Whether the table itself went, because what was undone had created it.
    """

    table: str
    rows: int
    data_files: int
    dropped: bool = False


class Run(Value):
    """Everything known of one run. The journal keeps it; the front doors show it.

    Attributes:
        tables: Tables it wrote to, as text.
        name: The user's name for a transaction.
        branch: Its branch; empty when it needed none.
        target: Branch that it publishes to.
        base: Hash of the target that it started from: its commit, if there is one, is after this.
        order: What was asked for, as long as steps of it may be to come.
        reads: Tables whose state the run's outcome rests on, beside those that its checks read.
        skipped_files: Source files it left out, because other runs published them or were at them.
        branch_kept: Whether the branch still stands after the run ended, so that its data can be looked at.
        reverted_by: Run that undid this one.
        reverts: Runs that it undid, newest first.
        undone: What that did to their tables.
        detail: Why a run was skipped, or what recovery did to it, in one sentence.
        notifications: Who was told of its end, and what came of that.
    """

    run_id: str
    kind: RunKind = "ingest"
    name: str | None = None
    tables: tuple[str, ...]
    branch: str
    status: RunStatus
    started_at: datetime
    finished_at: datetime | None = None
    target: str = "main"
    base: str | None = None
    order: IngestOrder | None = None
    request: WriteRequest | None = None
    reads: tuple[str, ...] = ()
    staged: tuple[StagedTable, ...] = ()
    reports: tuple[AuditReport, ...] = ()
    publication: Publication | None = None
    steps: tuple[RunStep, ...] = ()
    skipped_files: tuple[KnownFile, ...] = ()
    branch_kept: bool = False
    reverted_by: str | None = None
    reverts: tuple[str, ...] = ()
    undone: tuple[UndoneTable, ...] = ()
    detail: str | None = None
    error: RunError | None = None
    notifications: tuple[Notification, ...] = ()

    @property
    def table(self) -> str:
        """Its tables in one text, ``a.b, c.d``."""
        return ", ".join(self.tables)

    @property
    def report(self) -> AuditReport | None:
        """The audit report of its first table, which is the only one of an ingest."""
        return self.reports[0] if self.reports else None

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """Results of all its audits that block the publish."""
        return tuple(result for report in self.reports for result in report.failures)

    @property
    def seconds(self) -> float | None:
        """Wall time from start to finish in seconds; ``None`` while running."""
        return None if self.finished_at is None else (self.finished_at - self.started_at).total_seconds()
