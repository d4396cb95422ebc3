"""What ``maintain`` and ``gc`` found and did, and what the journal knows of itself."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from lakegate.errors import ExitCode
from lakegate.model.base import Value
from lakegate.model.refs import Ref
from lakegate.model.run import RunError


class ExpiredBranch(Value):
    """A branch of a rejected or failed run that was kept long enough.

    Attributes:
        branch: Its name.
        run_id: The run that wrote to it.
        finished_at: When the run ended.
        age_s: Seconds since then.
    """

    branch: str
    run_id: str
    finished_at: datetime
    age_s: float


class CollectedFolder(Value):
    """The unreachable files of one table folder.

    Attributes:
        folder: The table's folder, as URI.
        files: Number of files.
        size_bytes: Bytes in them.
        sample: Locations of up to five of them.
    """

    folder: str
    files: int
    size_bytes: int
    sample: tuple[str, ...]


class GcProblem(Value):
    """Something that was kept, and why.

    Attributes:
        subject: The branch, table or folder.
        message: Why it was kept.
        hint: What to do about it.
    """

    subject: str
    message: str
    hint: str | None = None


class GcReport(Value):
    """What was collected, or would be.

    Attributes:
        dry_run: Whether nothing was changed.
        branches: Branches dropped.
        folders: Files deleted, by table folder.
        reached_files: Old enough to go, but some branch or tag needs them.
        young_files: Written too lately to be looked at.
        ignored_files: Old, but not in the ``data`` or ``metadata`` folder of a table of ours; never touched.
        problems: What was kept for want of certainty.
        checkpoint: Commit up to which a checkpoint of the history was made, if one was due.
        expired_runs: Runs whose steps, reports and alerts were deleted from the journal.
    """

    dry_run: bool
    branches: tuple[ExpiredBranch, ...] = ()
    folders: tuple[CollectedFolder, ...] = ()
    reached_files: int = 0
    young_files: int = 0
    ignored_files: int = 0
    problems: tuple[GcProblem, ...] = ()
    checkpoint: str | None = None
    expired_runs: int = 0

    @property
    def files(self) -> int:
        """Number of files deleted."""
        return sum(folder.files for folder in self.folders)

    @property
    def size_bytes(self) -> int:
        """Bytes in the files deleted."""
        return sum(folder.size_bytes for folder in self.folders)


class TableLayout(Value):
    """How a table's files lie, which decides whether maintenance is due.

    Attributes:
        data_files: Number of data files.
        size_bytes: Bytes in them.
        small_files: Number of small ones in partitions where there are enough of them to compact.
        delete_files: Number of delete files.
        manifests: Number of manifests with data files.
    """

    data_files: int = 0
    size_bytes: int = 0
    small_files: int = 0
    delete_files: int = 0
    manifests: int = 0


MaintenanceAction = Literal["compact", "rewrite-manifests", "expire", "gc"]


class MaintenanceStep(Value):
    """One thing that ``maintain`` did to a table, or would do.

    Attributes:
        table: The table; empty for ``gc``.
        action: What.
        reason: Why it's due.
        status: ``planned`` in a dry run; ``done``; ``skipped`` if there turned out to be nothing to do; ``failed``; or
            ``left`` for the next round, because time was over.
        run_id: The run that did it.
        error: Why it failed.
        retryable: Whether it failed for a reason that may pass.
    """

    table: str
    action: MaintenanceAction
    reason: str
    status: Literal["planned", "done", "skipped", "failed", "left"] = "planned"
    run_id: str | None = None
    error: RunError | None = None
    retryable: bool = False


class MaintenanceReport(Value):
    """What ``maintain`` did, or would do.

    Attributes:
        dry_run: Whether nothing was changed.
        tables: Number of tables looked at.
        steps: What was due.
        gc: What was deleted afterwards; ``None`` if nothing was to be, or it failed.
    """

    dry_run: bool
    tables: int
    steps: tuple[MaintenanceStep, ...] = ()
    gc: GcReport | None = None

    @property
    def failures(self) -> tuple[MaintenanceStep, ...]:
        """The steps that failed."""
        return tuple(step for step in self.steps if step.status == "failed")

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of a program that did just this: 3 if all that failed may succeed when it's tried again."""
        if not self.failures:
            return ExitCode.OK
        return ExitCode.RETRYABLE if all(step.retryable for step in self.failures) else ExitCode.AUDIT_FAILED


class JournalStatus(Value):
    """Where the journal is, and how far it has read the history.

    Attributes:
        location: Its file, or its database's URL without password.
        version: Version of its tables.
        synced: Commit of ``main`` up to which its history is known; ``None`` when nothing is.
        runs: Number of runs it knows by their status.
        files: Versions of source files that are published, counted once for each table.
        abandoned: Ids of runs whose process died: they wait for ``lakegate recover``.
        newest: Id of the newest run.
    """

    location: str
    version: str
    synced: str | None
    runs: dict[str, int]
    files: int
    abandoned: tuple[str, ...] = ()
    newest: str | None = None


class RebuiltJournal(Value):
    """What a journal knows after it was rebuilt.

    Attributes:
        head: The branch at the commit up to which its history was read.
        commits: Commits read.
        runs: Runs found in them.
        files: Versions of source files that are published, counted once for each table.
        rejected: Rejected runs that the journal had lost, and that their branches describe.
    """

    head: Ref
    commits: int
    runs: int
    files: int
    rejected: int = 0
