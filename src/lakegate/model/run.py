"""One pass through write–audit–publish, step by step, as values."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from lakegate.model.base import Value
from lakegate.model.batch import Batch
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer

RunStatus = Literal["running", "staged", "published", "rejected", "discarded", "skipped", "failed"]
OnFailure = Literal["keep", "drop"]

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


class StagedBatch(Value):
    """The batch on its branch, not yet audited.

    Attributes:
        base: Hash of ``target`` that the branch was made from.
        head: Hash of the branch after the write.
        pointer: The table's state at ``head``.
        parent_snapshot_id: Snapshot the write was made on top of; ``None`` for a table without one.
        snapshot_ids: Snapshots that the write added, oldest first.
        created: Whether the write created the table.
        rows: Rows added.
        data_files: Data files added.
    """

    run_id: str
    table: TableIdentifier
    branch: str
    target: str
    base: str
    head: str
    pointer: TablePointer
    parent_snapshot_id: int | None
    snapshot_ids: tuple[int, ...]
    created: bool
    rows: int
    data_files: int


class Publication(Value):
    """The commit that made a run's tables visible on ``target``."""

    run_id: str
    target: str
    commit: str
    tables: tuple[str, ...]
    rows: int


class RunError(Value):
    """Why a run failed: :meth:`lakegate.errors.LakegateError.to_dict` as a value."""

    code: str
    message: str
    hint: str | None = None
    context: dict[str, Any] = Field(default_factory=dict)


class Run(Value):
    """Everything known of one run. The journal keeps it; the front doors show it."""

    run_id: str
    table: str
    branch: str
    status: RunStatus
    started_at: datetime
    finished_at: datetime | None = None
    request: WriteRequest | None = None
    staged: StagedBatch | None = None
    report: AuditReport | None = None
    publication: Publication | None = None
    branch_kept: bool = False
    """Whether the branch still stands after the run ended, so that its data can be looked at."""
    detail: str | None = None
    """Why a run was skipped, in one sentence."""
    error: RunError | None = None

    @property
    def seconds(self) -> float | None:
        """Wall time from start to finish in seconds; ``None`` while running."""
        return None if self.finished_at is None else (self.finished_at - self.started_at).total_seconds()
