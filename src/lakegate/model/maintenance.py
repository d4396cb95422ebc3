"""What ``gc`` found and did, and what the journal knows of itself."""

from __future__ import annotations

from datetime import datetime

from lakegate.model.base import Value
from lakegate.model.refs import Ref


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
