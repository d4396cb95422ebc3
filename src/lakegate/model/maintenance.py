"""Reports of ``maintain``, ``gc``, ``verify`` and the journal."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from lakegate.errors import ExitCode
from lakegate.model.base import Value
from lakegate.model.refs import Ref
from lakegate.model.run import RunError


class ExpiredBranch(Value):
    """A rejected or failed run's branch whose retention time is over.

    Attributes:
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
        folder: URI of the table's folder.
        sample: Locations of up to five of the files.
    """

    folder: str
    files: int
    size_bytes: int
    sample: tuple[str, ...]


class GcProblem(Value):
    """Something that ``gc`` kept, and why.

    Attributes:
        subject: The branch, table or folder.
        message: Why it was kept.
        hint: How to fix that.
    """

    subject: str
    message: str
    hint: str | None = None


class GcReport(Value):
    """What was collected, or would be.

    Attributes:
        dry_run: Whether nothing was changed.
        folders: Files deleted, by table folder.
        reached_files: Number of files that are old enough, but reachable from a branch or tag.
        young_files: Number of files that are too new to be considered.
        ignored_files: Number of old files outside the ``data`` and ``metadata`` folders of known tables. They stay.
        problems: What was kept because something may still need it.
        expired_runs: Runs whose steps, reports and alerts were deleted from the journal.
    """

    dry_run: bool
    branches: tuple[ExpiredBranch, ...] = ()
    folders: tuple[CollectedFolder, ...] = ()
    reached_files: int = 0
    young_files: int = 0
    ignored_files: int = 0
    problems: tuple[GcProblem, ...] = ()
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
    """A table's file counts, which decide whether maintenance is due.

    Attributes:
        small_files: Number of small data files in partitions with enough of them to compact.
    """

    data_files: int = 0
    size_bytes: int = 0
    small_files: int = 0
    delete_files: int = 0


MaintenanceAction = Literal["compact", "expire", "gc"]


class MaintenanceStep(Value):
    """One thing that ``maintain`` did or would do.

    Attributes:
        table: The table; empty for ``gc``.
        reason: Why it's due.
        status: ``planned`` in a dry run; ``done``; ``skipped`` if there was nothing to do after all; ``failed``; or
            ``left`` for the next round because time ran out.
        error: Why it failed.
        retryable: Whether another attempt may succeed.
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
        gc: What ``gc`` deleted afterwards; ``None`` if it wasn't due or failed.
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
        """Exit code for the command: 3 if another attempt of every failed step may succeed."""
        if not self.failures:
            return ExitCode.OK
        return ExitCode.RETRYABLE if all(step.retryable for step in self.failures) else ExitCode.AUDIT_FAILED


class JournalStatus(Value):
    """Where the journal is, and how far it has read the history.

    Attributes:
        location: Its file, or its database's URL without password.
        synced: Commit of ``main`` up to which the history was read; ``None`` if none was.
        runs: Number of runs by status.
        files: Versions of source files that are published, counted once for each table.
        abandoned: Ids of runs whose process died. ``lakegate admin recover`` finishes or undoes them.
        recovering: Runs that another process is finishing or undoing now, by run id: the process.
        newest: Id of the newest run.
    """

    location: str
    version: str
    synced: str | None
    runs: dict[str, int]
    files: int
    abandoned: tuple[str, ...] = ()
    recovering: Mapping[str, str] = {}
    newest: str | None = None


class RebuiltJournal(Value):
    """What a rebuilt journal contains.

    Attributes:
        head: The branch and its commit up to which the history was read.
        files: Versions of source files that are published, counted once for each table.
        rejected: Number of rejected runs that the journal had lost, restored from their branches.
        lost: What can't be rebuilt, as text for people.
    """

    head: Ref
    commits: int
    runs: int
    files: int
    rejected: int = 0
    lost: str = ""


FlawKind: TypeAlias = Literal["missing-file", "unreadable-file", "wrong-size", "wrong-count", "wrong-rows"]
FindingKind: TypeAlias = (
    FlawKind
    | Literal[
        "orphaned-files",
        "lost-lease",
        "unsettled-publish",
        "torn-publish",
        "foreign-commit",
        "newer-format",
        "unknown-run",
        "differing-run",
        "run-without-commit",
        "journal-ahead",
        "source-files",
    ]
)


class NeededFile(NamedTuple):
    """A file that a table's metadata names, with what the metadata says about it.

    Attributes:
        path: Its location as the metadata spells it.
        what: ``metadata file``, ``manifest list``, ``manifest``, ``data file``, ``delete file`` or ``statistics file``.
        size_bytes: Its size; ``None`` if the metadata doesn't say.
        rows: For Parquet data and delete files: number of rows.
        snapshot_id: For data and delete files: the snapshot that added it.
        is_current: Whether the table's current snapshot needs it.
    """

    path: str
    what: str
    size_bytes: int | None = None
    rows: int | None = None
    snapshot_id: int | None = None
    is_current: bool = True


class Flaw(NamedTuple):
    """A problem with a file that a table's metadata names."""

    kind: FlawKind
    file: NeededFile
    message: str


class VerifyFinding(Value):
    """A problem, and how to fix it.

    Attributes:
        kind: The problem, for programs.
        message: The problem, for people.
        fix: How to fix it, with the command.
        files: The files; for orphaned ones, up to five per folder.
        number: Number of all files.
        size_bytes: Total size of orphaned files.
    """

    kind: FindingKind
    message: str
    fix: str
    table: str | None = None
    run_id: str | None = None
    commit: str | None = None
    files: tuple[str, ...] = ()
    number: int = 1
    size_bytes: int | None = None


class VerifyReport(Value):
    """What was checked, and the problems found.

    Attributes:
        deep: Whether rows were also counted in the footers of Parquet files.
        tables: Tables checked, on all branches and tags.
        states: Table states checked, in the history of all branches and tags.
        files: Files that these states need.
        size_bytes: Total size of these files.
        commits: Commits on ``main``.
        runs: Runs in these commits.
    """

    deep: bool
    tables: int = 0
    states: int = 0
    files: int = 0
    size_bytes: int = 0
    commits: int = 0
    runs: int = 0
    findings: tuple[VerifyFinding, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether there's no problem. Orphaned files don't count: they only take space."""
        return all(one.kind == "orphaned-files" for one in self.findings)
