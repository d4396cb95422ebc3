"""What a garbage collection found and did."""

from __future__ import annotations

from datetime import datetime

from lakegate.model.base import Value


class ExpiredBranch(Value):
    """A branch whose run was rejected or failed, and whose time is over.

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
    """The files of one table folder that no reference reaches.

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
    """Something that was left as it was, and why.

    Attributes:
        subject: The branch, table or folder.
        message: What stood in the way.
        hint: What to do about it.
    """

    subject: str
    message: str
    hint: str | None = None


class GcReport(Value):
    """What was collected, or would be.

    Attributes:
        dry_run: Whether this only tells what would go.
        branches: Branches dropped.
        folders: Files deleted, by table folder.
        reached_files: Old enough to go, but some reference reaches them.
        young_files: Not looked at: written too lately.
        ignored_files: Old, but not in the ``data`` or ``metadata`` folder of a table of ours; never touched.
        problems: What was kept for want of certainty.
    """

    dry_run: bool
    branches: tuple[ExpiredBranch, ...] = ()
    folders: tuple[CollectedFolder, ...] = ()
    reached_files: int = 0
    young_files: int = 0
    ignored_files: int = 0
    problems: tuple[GcProblem, ...] = ()

    @property
    def files(self) -> int:
        """Number of files deleted."""
        return sum(folder.files for folder in self.folders)

    @property
    def size_bytes(self) -> int:
        """Bytes in the files deleted."""
        return sum(folder.size_bytes for folder in self.folders)
