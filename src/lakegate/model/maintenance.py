"""What ``maintain``, ``gc`` and ``verify`` found and did, and what the journal knows of itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from lakegate.errors import ExitCode
from lakegate.model.base import Value
from lakegate.model.refs import Ref
from lakegate.model.run import RunError


class ExpiredBranch(Value):
    """A branch of a rejected or failed run that was kept long enough.

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
        folder: The table's folder, as URI.
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
        folders: Files deleted, by table folder.
        reached_files: Old enough to go, but some branch or tag needs them.
        young_files: Written too lately to be looked at.
        ignored_files: Old, but not in the ``data`` or ``metadata`` folder of a table of ours; never touched.
        problems: What was kept because it may still be needed.
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
        small_files: Number of small ones in partitions where there are enough of them to compact.
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
        reason: Why it's due.
        status: ``planned`` in a dry run; ``done``; ``skipped`` if there turned out to be nothing to do; ``failed``; or
            ``left`` for the next round, because time was over.
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
        files: Versions of source files that are published, counted once for each table.
        rejected: Rejected runs that the journal had lost, and that their branches describe.
    """

    head: Ref
    commits: int
    runs: int
    files: int
    rejected: int = 0


FlawKind: TypeAlias = Literal["missing-file", "unreadable-file", "wrong-size", "wrong-count", "wrong-rows"]
FindingKind: TypeAlias = (
    FlawKind
    | Literal[
        "unloadable-table",
        "orphaned-files",
        "lost-lease",
        "foreign-commit",
        "newer-format",
        "unknown-run",
        "differing-run",
        "run-without-commit",
        "journal-ahead",
        "source-files",
        "journal-rows",
    ]
)


class DeletionVector(NamedTuple):
    """The rows of a data file that are deleted (format version 3), by an entry of a manifest.

    Attributes:
        path: The Puffin file, which may hold the vectors of other data files, too.
        target: The data file.
        offset: Where it begins in its file.
        length: Its length there.
        rows: Number of rows that it deletes.
    """

    path: str
    target: str
    offset: int
    length: int
    rows: int


class NeededFile(NamedTuple):
    """A file that a table's metadata names, with what it says of it.

    Attributes:
        path: Where it is, as the metadata spells it.
        what: ``metadata file``, ``manifest list``, ``manifest``, ``data file``, ``delete file`` or ``statistics file``.
        size_bytes: Its length; ``None`` if the metadata doesn't say.
        rows: Rows in it, of a parquet file with rows or deletes.
        snapshot_id: The snapshot that added it, of a data or delete file.
        is_current: Whether the table's current snapshot needs it.
        bounds: Lowest and highest value of its columns by field id, as Iceberg encodes them, of a data file.
        vector: The deletion vector in it, of a Puffin file, which is yielded once for each of them.
        target_rows: Rows in the data file that the vector is about, if it's known.
        keys: Field ids of the columns by which a file of equality deletes deletes rows.
    """

    path: str
    what: str
    size_bytes: int | None = None
    rows: int | None = None
    snapshot_id: int | None = None
    is_current: bool = True
    bounds: Mapping[int, tuple[bytes, bytes]] = MappingProxyType({})
    vector: DeletionVector | None = None
    target_rows: int | None = None
    keys: tuple[int, ...] = ()


class Flaw(NamedTuple):
    """Something wrong with a file that a table's metadata names."""

    kind: FlawKind
    file: NeededFile
    message: str


class Finding(Value):
    """A problem, and how to fix it.

    Attributes:
        kind: What it is, for programs.
        message: What it is, for people.
        fix: What to do about it, with the command.
        table: The table it is about.
        files: The files; of orphaned ones, up to five of each folder.
        number: How many files there are.
        size_bytes: Bytes in orphaned files.
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
    """What was looked at, and what is off.

    Attributes:
        deep: Whether rows were counted in the footers of data files, too.
        tables: Tables looked at, on all branches and tags.
        states: States of tables looked at, in the history of all branches and tags.
        files: Files that these need.
        commits: Commits of ``main``.
        runs: Runs in these commits.
        findings: What is off.
    """

    deep: bool
    tables: int = 0
    states: int = 0
    files: int = 0
    size_bytes: int = 0
    commits: int = 0
    runs: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing is off; files that nothing needs only take room."""
        return all(one.kind == "orphaned-files" for one in self.findings)
