"""What ``lakegate verify`` looked at, and what it found, as values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from lakegate.model.base import Value

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
    ]
)


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
    """

    path: str
    what: str
    size_bytes: int | None = None
    rows: int | None = None
    snapshot_id: int | None = None
    is_current: bool = True
    bounds: Mapping[int, tuple[bytes, bytes]] = MappingProxyType({})


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
        run_id: The run.
        commit: The commit.
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
        size_bytes: Bytes in them.
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
