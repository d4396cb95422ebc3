"""One pass through write–audit–publish, what each of its steps did, and what the journal stores of it, as values."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from lakegate.errors import OutcomeUnknownError
from lakegate.model.base import Value
from lakegate.model.batch import KnownFile
from lakegate.model.checks import AuditReport, Check, CheckResult, Evidence, Severity, Verdict
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import is_quarantine
from lakegate.model.refs import MAIN, TablePointer
from lakegate.model.request import IngestRequest, OnFailure
from lakegate.model.schema import ColumnChange, SchemaChange
from lakegate.model.states import RunStatus
from lakegate.model.tables import ChangeKind
from lakegate.model.words import counted

RunKind = Literal["ingest", "transaction", "gate", "branch", "maintenance", "revert", "restore"]
"""What started a run. ``gate``: another engine wrote through the gate. ``branch``: the audit or publish of another
writer's branch. ``maintenance``: a compaction, an expiry or a rename, which change no row."""

RUN_ID_PROPERTY = "lakegate.run-id"
"""Key of the run id in commit properties and in snapshot summaries."""


def new_run_id(now: datetime | None = None) -> str:
    """Return a new run id: UTC time to the second and eight random hexadecimal digits; sorts by time.

    Example:
        >>> new_run_id(datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC))[:16]
        '20260131T070509-'
    """
    return f"{(now or datetime.now(UTC)).astimezone(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


class StagedTable(Value):
    """What a run did to one table on its branch, before the audit.

    Attributes:
        base: Hash of ``target`` that the branch was made from.
        head: Hash of the branch after the write.
        before: The table's state at ``base``; ``None`` when the run created it.
        pointer: The table's state at ``head``.
        parent_snapshot_id: Snapshot before the run's first one. ``None`` if the table had none, and for a change that
            did more than append: the whole table then counts as the run's.
        snapshot_ids: The run's snapshots, oldest first; empty if they don't lead to the current one.
        change: The kind of change (:class:`~lakegate.model.tables.TableChange`). Appends can be rebased onto a newer
            state of the table.
        rows: Rows added; 0 if unknown.
        rows_removed: Rows removed; ``None`` if unknown. A rewritten row counts as both removed and added.
        data_files: Data files added; 0 if unknown.
        reason: Why it isn't an append, in words that follow "because".
        schema_changes: Changes to the table's columns.
        by_anyone: Whether it was found on a branch that anybody may have written to. What its metadata says about the
            values in its files proves nothing then.
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
    rows_removed: int | None = 0
    data_files: int
    reason: str | None = None
    schema_changes: tuple[SchemaChange | ColumnChange, ...] = ()
    by_anyone: bool = False

    @property
    def only_adds(self) -> bool:
        """Whether it only added rows, so that they can be rebased."""
        return self.change in {"append", "create"}

    @property
    def keeps_rows(self) -> bool:
        """Whether existing rows are unchanged, so that auditing the added ones is enough."""
        return self.only_adds or self.change == "evolve"


def published_tables(staged: Sequence[StagedTable]) -> Sequence[StagedTable]:
    """Return the tables whose rows a run publishes. Quarantine tables count only if it changes nothing else."""
    return [one for one in staged if not is_quarantine(one.table)] or staged


def total_removed(staged: Iterable[StagedTable]) -> int | None:
    """Return the number of rows removed from all tables; ``None`` if it's unknown for one of them."""
    known = [one.rows_removed for one in published_tables(tuple(staged))]
    return None if None in known else sum(filter(None, known))


BRINGS_DATA: tuple[RunKind, ...] = ("ingest", "transaction", "gate", "branch")
"""Kinds of runs that bring data."""


def changed_rows(added: int, removed: int | None, *, short: bool = False) -> str:
    """Return the rows added and removed as text for commit messages and terminals; ``short`` for table columns.

    Example:
        >>> changed_rows(1000, 0), changed_rows(0, 22), changed_rows(103394, 103416), changed_rows(5, None)
        ('1,000 rows', '-22 rows', '+103,394 -103,416 rows, net -22', '+5 -? rows')
    """
    if removed == 0:
        return f"{added:,}" if short else counted(added, "row")
    gone = "-?" if removed is None else f"-{removed:,}"
    numbers = f"+{added:,} {gone}" if added else gone
    if short:
        return numbers
    net = f", net {added - removed:+,}" if added and removed is not None else ""
    return f"{numbers} row{'s' if added or removed != 1 else ''}{net}"


class Publication(Value):
    """The commit that made a run's tables visible on ``target``.

    Attributes:
        rows: Rows added, not counting quarantined ones.
        rows_removed: Rows removed; ``None`` if unknown.
        quarantined: Rows that were set aside.
        replayed: Tables that were rebased onto a newer state of ``target``.
        branch_left: Whether the run's branch still exists because it couldn't be dropped.
    """

    run_id: str
    target: str
    commit: str
    tables: tuple[str, ...]
    rows: int
    rows_removed: int | None = 0
    quarantined: int = 0
    replayed: tuple[str, ...] = ()
    branch_left: bool = False


class RunStep(Value):
    """One step of a run: ``write``, ``audit`` or ``publish``. ``finished_at`` is ``None`` while it runs."""

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
    """The outcome of one alert to one channel.

    Attributes:
        channel: The channel's name.
        event: What the alert was about.
        outcome: ``sent``; ``grouped`` if an earlier message covers it; or ``failed``.
        reason: Why it wasn't sent.
    """

    channel: str
    event: str
    outcome: Literal["sent", "grouped", "failed"]
    reason: str | None = None
    at: datetime


class UndoneTable(Value):
    """What a revert or restore did to one table.

    Attributes:
        rows: Change in the number of rows, negative if there are fewer. ``None`` if delete files make it unknown.
        data_files: Change in the number of data files.
        dropped: Whether the table was dropped because the undone run had created it.
    """

    table: str
    rows: int | None
    data_files: int
    dropped: bool = False


class Acceptance(Value):
    """A person's decision to publish what failed its audit."""

    reason: str
    actor: str
    at: datetime


class OpenTime(Value):
    """The time in which other engines may write to a run's branch through the gate.

    Attributes:
        deadline: Until when they may, unless it's sealed before.
        writers: What the engines that wrote call themselves, in the order in which they first wrote.
        is_stream: Whether what's written is published slice by slice while the branch is open, so that it's never
            sealed.
    """

    deadline: datetime
    writers: tuple[str, ...] = ()
    is_stream: bool = False


class Slice(Value):
    """What was written to a stream's branch between two of its commits.

    Attributes:
        stream: Id of the run that is the branch's opening.
        branch: The stream's branch.
        since: Hash of the branch's commit after which it begins.
        until: Hash of its last commit: the stream's mark, once the slice is published.
    """

    stream: str
    branch: str
    since: str
    until: str


class Action(Value):
    """What somebody did to a run manually, and who."""

    action: Literal["publish", "discard", "revert", "release", "drop"]
    actor: str
    at: datetime


class Run(Value):
    """Everything lakegate knows of one run.

    Attributes:
        run_id: Its id.
        kind: What started it.
        name: The user's name for a transaction.
        orchestrator: What started it: ``cli``, ``python``, ``watch``, ``backfill``, ``prefect``, ``dbos``,
            ``aws-lambda``, ``airflow``, or the name given to :func:`lakegate.connect`; ``None`` for runs of earlier
            releases.
        tables: Tables it wrote to.
        branch: Its branch; empty if it needed none.
        status: Its state (:mod:`lakegate.model.states`).
        started_at: When it began.
        finished_at: When it ended; ``None`` while it runs or is suspended.
        target: Branch that it publishes to.
        base: Hash of the target that it started from.
        order: The request as the user made it, kept while steps of it may still follow.
        request: The request as planned, with the files that this run claimed.
        checks: Checks added in a transaction, by table. An ingest's checks are in its request.
        reads: Tables that its outcome depends on, in addition to those that its checks read.
        staged: What it wrote, by table.
        reports: Its audit reports, by table.
        publication: Its commit, once published.
        accepted: Who published it although its audit failed, and why.
        opening: Until when other engines may write to its branch through the gate, and who has.
        slice: What it publishes of a stream.
        actions: What people did to it by hand, if they gave their names.
        steps: Its steps, with times.
        skipped_files: Source files it left out, because other runs published them or were ingesting them.
        on_failure: What becomes of its branch if it's rejected.
        branch_kept: Whether its branch still exists, so that you can inspect its data.
        branch_until: When ``gc`` drops the branch; ``None`` if the catalog's own clean-up doesn't endanger its files.
        adopted: Whether somebody is publishing its branch by name. If that fails, the branch stays.
        reverted_by: Run that reverted this one.
        reverts: Runs that it reverted, newest first.
        undone: How the revert or restore changed their tables.
        detail: Why it was skipped, what recovery did with it, or what dbt said of it, in one sentence.
        error: Why it failed.
        notifications: The alerts about it, with their outcomes.
    """

    run_id: str
    kind: RunKind = "ingest"
    name: str | None = None
    orchestrator: str | None = None
    tables: tuple[str, ...]
    branch: str
    status: RunStatus
    started_at: datetime
    finished_at: datetime | None = None
    target: str = MAIN
    base: str | None = None
    order: IngestRequest | None = None
    request: IngestRequest | None = None
    checks: dict[str, tuple[Check, ...]] = Field(default_factory=dict)
    reads: tuple[str, ...] = ()
    staged: tuple[StagedTable, ...] = ()
    reports: tuple[AuditReport, ...] = ()
    publication: Publication | None = None
    accepted: Acceptance | None = None
    opening: OpenTime | None = None
    slice: Slice | None = None
    actions: tuple[Action, ...] = ()
    steps: tuple[RunStep, ...] = ()
    skipped_files: tuple[KnownFile, ...] = ()
    on_failure: OnFailure = "keep"
    branch_kept: bool = False
    branch_until: datetime | None = None
    adopted: bool = False
    reverted_by: str | None = None
    reverts: tuple[str, ...] = ()
    undone: tuple[UndoneTable, ...] = ()
    detail: str | None = None
    error: RunError | None = None
    notifications: tuple[Notification, ...] = ()

    @classmethod
    def begun(cls, request: IngestRequest, order: IngestRequest | None = None) -> Run:
        """Return a new run for ``request`` that starts now."""
        return cls(
            run_id=request.run_id,
            tables=(str(request.table),),
            branch=request.branch,
            status="planned",
            started_at=datetime.now(UTC),
            target=request.target,
            base=request.base,
            reads=request.reads,
            order=order,
            request=request,
            on_failure=request.on_failure,
        )

    @property
    def table(self) -> str:
        """Its tables as text, ``a.b, c.d``, without quarantine tables."""
        return ", ".join([name for name in self.tables if not is_quarantine(name)] or self.tables)

    @property
    def is_stepwise(self) -> bool:
        """Whether its steps are taken one by one, and some may still follow."""
        return self.order is not None

    @property
    def is_users_branch(self) -> bool:
        """Whether a user made its branch or wrote to it. Only publishing it may drop the branch."""
        return self.adopted or self.kind == "branch" or (self.kind == "gate" and self.slice is None)

    @property
    def may_be_published(self) -> bool:
        """Whether it failed because no answer to its commit came: the commit may have reached the target."""
        return self.status == "failed" and self.error is not None and self.error.code == OutcomeUnknownError.code

    @property
    def rows_published(self) -> int | None:
        """Rows that it added to its target; ``None`` if it published nothing, or if the journal has only its commit."""
        if self.publication is None:
            return None
        is_counted = bool(self.staged or self.publication.rows or self.kind not in BRINGS_DATA)
        return self.publication.rows if is_counted else None

    @property
    def report(self) -> AuditReport | None:
        """The audit report of its first table, which is an ingest's only one."""
        return self.reports[0] if self.reports else None

    @property
    def quarantined(self) -> int:
        """Rows of its batch that it set aside."""
        return sum(one.rows for one in self.staged if is_quarantine(one.table)) if self.kind == "ingest" else 0

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """Results of all its audits that block the publish."""
        return tuple(result for report in self.reports for result in report.failures)

    @property
    def seconds(self) -> float | None:
        """Total duration of its steps in seconds, without pauses between them; ``None`` while it runs."""
        if self.finished_at is None:
            return None
        took = [step.finished_at - step.started_at for step in self.steps if step.finished_at is not None]
        return sum(one.total_seconds() for one in took or [self.finished_at - self.started_at])


class Lease(Value):
    """A run, and the token that proves that this process holds it.

    Attributes:
        run: The run as it was when the lease was acquired.
        token: Needed to change the run; ``None`` if the run has ended.
    """

    run: Run
    token: str | None = None


class RunLine(Value):
    """A run's summary, which the journal has without reading the whole :class:`~lakegate.model.run.Run`.

    Attributes:
        branch_until: As in :class:`Run`, in :meth:`lakegate.api.branches.Branches.runs` only.
    """

    run_id: str
    kind: RunKind
    name: str | None = None
    orchestrator: str | None = None
    branch: str
    status: RunStatus
    started_at: datetime
    finished_at: datetime | None = None
    reverted_by: str | None = None
    branch_until: datetime | None = None


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
        size_bytes: Size; like ``rows``, 0 if the journal knows the file from a commit only.
        published: Whether it's published. If not, a run is ingesting it.
    """

    number: int
    table: str
    uri: str
    version: str
    size_bytes: int
    rows: int
    published: bool
    run_id: str


CheckpointOutcome = Literal["done", "rejected", "failed", "parked", "trying"]


class FileCheckpoint(Value):
    """The last outcome for a file in a watched folder, so that the file isn't read again or retried forever.

    It doesn't decide whether a file is published: only claims do.

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
