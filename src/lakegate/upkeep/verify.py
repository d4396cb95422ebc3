"""Verify a lake: compare journal with catalog, catalog with metadata, and metadata with files. Changes nothing.

Like ``gc``, it reads each state in the history of every branch and tag once, starting with the newest of ``main``, so
that a problem with a file is reported for the newest state that needs the file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NoReturn

from lakegate.context import Context
from lakegate.errors import InputError, LakegateError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.locations import canonical
from lakegate.model.maintenance import Flaw, FlawKind, NeededFile, VerifyFinding, VerifyReport
from lakegate.model.refs import MAIN, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.tables import StoredFile
from lakegate.model.words import counted, size
from lakegate.points import unknown_table
from lakegate.ports import FileStore, Overlay
from lakegate.upkeep.gc import Garbage, collectable_before
from lakegate.upkeep.verify_journal import MainCommits, journal_findings

_TRIES = 3
_STATES_TRIED = 50
_SHOWN = 12
_BACKUP = "Restore missing or damaged files from a backup"


def verify(
    context: Context,
    *,
    files: FileStore,
    grace: timedelta,
    now: datetime,
    tables: Sequence[TableIdentifier] = (),
    deep: bool = False,
    since: Ref | None = None,
    history: timedelta | None = None,
) -> VerifyReport:
    """Look for problems in a lake. Changes nothing, and needs no engine.

    Args:
        grace: Files younger than this don't count as orphaned: they may be about to be committed.
        tables: Tables to verify; by default all, and orphaned files as well.
        deep: Whether to count rows in the footers of Parquet files, too.
        since: A commit of ``main``. Commits up to it that no run made aren't reported.
        history: How far back states must be readable; ``None`` for the whole history.

    Raises:
        NotFoundError: When one of ``tables`` is on no branch or tag.
        ConfigurationError: When a store refuses the credentials, or permission to read a file is missing.
        SourceError: When a store refuses a request for another reason.
        RetryableError: When the catalog, the journal or the file system fails.
    """
    names = frozenset(map(str, tables))
    with context.narrator.step("Comparing the journal with main's commits") as step:
        for _ in range(_TRIES):
            commits = MainCommits(context, names, since)
            found = list(journal_findings(context, commits, step))
            # A publish in the meantime may look like a difference.
            if not found or context.catalog.get_ref(MAIN).hash == commits.head:
                break
    oldest = None if history is None else now - history
    for _ in range(_TRIES):
        refs = set(context.catalog.list_refs())
        listing = _Listing(files)
        inspection = _Inspection(context, listing.sizes, frozenset(tables), deep=deep)
        garbage = Garbage(context, listing, oldest=oldest, reach=inspection.reach)
        garbage.list_files(collectable_before(context, now, grace))
        garbage.drop_reachable()
        if inspection.failure is not None:
            raise inspection.failure
        for table in tables:
            if table not in inspection.tables:
                raise unknown_table(context.catalog, str(table), context.catalog.get_ref(MAIN))
        inspection.find_missing()
        # gc may have deleted files of a branch that has been dropped.
        if not inspection.has_broken_files or set(context.catalog.list_refs()) == refs:
            break
    if deep:
        inspection.read_footers()
    found += [*inspection.findings(), *_unsettled(context)]
    if not tables:
        found += _orphaned(context, garbage)
        found += [
            VerifyFinding(
                kind="unreadable-file", message=problem.message, fix=problem.hint or _BACKUP, table=problem.subject
            )
            for problem in garbage.problems
            if problem.subject not in inspection.unreadable
        ]
    return VerifyReport(
        deep=deep,
        tables=len(inspection.tables),
        states=inspection.states,
        files=inspection.files,
        size_bytes=inspection.size_bytes,
        commits=commits.commits,
        runs=len(commits.runs),
        findings=tuple(found),
    )


class _Listing:
    """Lists the warehouse's files and keeps their sizes. Never deletes any."""

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self.sizes: dict[str, int] = {}

    def list(self, prefix: str) -> Iterator[StoredFile]:
        for file in self._files.list(prefix):
            self.sizes[canonical(file.path)] = file.size_bytes
            yield file

    def delete(self, paths: Sequence[str]) -> NoReturn:
        raise AssertionError(paths)


@dataclass
class _Inspection:
    """What is known about the files that table states need.

    Attributes:
        sizes: Sizes of the files in the warehouse, by canonical path.
        wanted: The tables to verify; all if it's empty.
        deep: Whether to read the footers of Parquet files.
        tables: The tables that were found.
        unreadable: Names of tables with metadata that can't be read.
        failure: The error after which nothing more can be verified.
        states: Number of table states that were read.
        files: Number of files that they need.
        _flaws: What's wrong with a file, and a state that needs it, by the file's path.
        _absent: Files that the warehouse doesn't list, each with a state that needs it.
        _countable: Files whose rows can be counted, each with a state that needs it.
        _heads: The tables' states on ``main``.
        _known: The files that a state needs.
    """

    context: Context
    sizes: Mapping[str, int]
    wanted: Collection[TableIdentifier]
    deep: bool
    tables: set[TableIdentifier] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    failure: LakegateError | None = None
    states: int = 0
    files: int = 0
    size_bytes: int = 0
    _flaws: dict[str, tuple[Flaw, TablePointer]] = field(default_factory=dict)
    _absent: dict[str, tuple[NeededFile, TablePointer]] = field(default_factory=dict)
    _countable: list[tuple[NeededFile, TablePointer]] = field(default_factory=list)
    _heads: dict[TableIdentifier, TablePointer] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)
    _fixes: dict[TableIdentifier, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        head = self.context.catalog.get_ref(MAIN)
        self._heads = {pointer.table: pointer for pointer in self.context.catalog.list_tables(head)}

    def reach(self, pointer: TablePointer, walked: set[str]) -> Iterator[str]:
        """Yield the files that a state needs, as for ``gc``, and note what's wrong with them."""
        if self.wanted and pointer.table not in self.wanted:
            return
        if self.failure is not None:
            raise self.failure
        self.tables.add(pointer.table)
        self.states += 1
        unread: Flaw | None = None
        try:
            for one in self.context.reader.inspect(pointer, walked):
                if isinstance(one, NeededFile):
                    self._need(one, pointer)
                    yield one.path
                elif one.kind == "wrong-count":
                    self._flaws.setdefault(one.file.path, (one, pointer))
                else:
                    self._flaws[one.file.path] = one, pointer  # says more than a wrong size
                    unread = unread or one
        except LakegateError as error:
            # The caller would skip this table, but then the result would say nothing about the lake.
            self.failure = error
            raise
        if unread is not None:
            # Unreadable metadata may refer to any file: none of the table's files count as orphaned.
            self.unreadable.add(str(pointer.table))
            raise InputError(unread.message)

    def _need(self, file: NeededFile, pointer: TablePointer) -> None:
        if file.path in self._known:
            return  # rewritten manifests name the same files
        self._known.add(file.path)
        there = self.sizes.get(canonical(file.path))
        self.files += 1
        self.size_bytes += there or 0
        if there is None:
            self._absent.setdefault(file.path, (file, pointer))
        elif file.size_bytes not in (None, there):
            problem = f"it has {there:,} bytes, not {file.size_bytes:,}"
            self._flaws.setdefault(file.path, (Flaw("wrong-size", file, problem), pointer))
        if self.deep and file.rows is not None:
            self._countable.append((file, pointer))

    @property
    def has_broken_files(self) -> bool:
        """Whether a file is missing or can't be read."""
        return any(flaw.kind in ("missing-file", "unreadable-file") for flaw, _ in self._flaws.values())

    def find_missing(self) -> None:
        """Check whether files that the warehouse didn't list exist: they may be new, or elsewhere."""
        for path in self.context.reader.missing(list(self._absent)):
            file, pointer = self._absent[path]
            self._flaws.setdefault(path, (Flaw("missing-file", file, "it doesn't exist"), pointer))

    def read_footers(self) -> None:
        """Compare the rows in the footers of Parquet files with the metadata."""
        files = [one for one in self._countable if one[0].path not in self._flaws]
        with self.context.narrator.step("Reading the footers of Parquet files") as step:
            flaws = self.context.reader.footer_flaws([file for file, _ in files])
            for done, ((file, pointer), flaw) in enumerate(zip(files, flaws, strict=True), 1):
                if flaw is not None:
                    self._flaws.setdefault(file.path, (flaw, pointer))
                step.progress(done, len(files), "files")

    def findings(self) -> Iterator[VerifyFinding]:
        """Yield problems with files, grouped by table and run."""
        groups: defaultdict[_Group, list[Flaw]] = defaultdict(list)
        for flaw, pointer in self._flaws.values():
            run_id, on_main = self._run_of(flaw.file, pointer), self._on_main(flaw, pointer)
            groups[_Group(flaw.kind, pointer.table, run_id, on_main)].append(flaw)
        for group, flaws in groups.items():
            yield _finding(group, flaws, self._fix(group, flaws))

    def _on_main(self, flaw: Flaw, pointer: TablePointer) -> bool:
        head = self._heads.get(pointer.table)
        return flaw.file.is_current and head is not None and head.metadata_location == pointer.metadata_location

    def _run_of(self, file: NeededFile, pointer: TablePointer) -> str | None:
        """Return the run that added a file, if the table's metadata still says so."""
        if file.snapshot_id is None:
            return None
        with suppress(LakegateError):
            for snapshot in self.context.reader.snapshots(pointer):
                if snapshot.snapshot_id == file.snapshot_id:
                    return snapshot.summary.get(RUN_ID_PROPERTY)
        return None

    def _fix(self, group: _Group, flaws: Sequence[Flaw]) -> str:
        if not group.on_main:
            return (
                f"{_BACKUP}. Without one, those states can't be read. States older than gc.keep are ignored. If a "
                "branch that nobody needs has them: lakegate branch delete BRANCH"
            )
        if group.run_id is not None and all(flaw.file.what == "data file" for flaw in flaws):
            return f"{_BACKUP}. Or revert the run, then ingest its files again: lakegate revert {group.run_id}"
        if group.table not in self._fixes:  # slow to find
            self._fixes[group.table] = self._restore_hint(group.table)
        return self._fixes[group.table]

    def _restore_hint(self, table: TableIdentifier) -> str:
        """Return how to go back to the newest state of a table on ``main`` that needs no damaged file."""
        bad = set(map(canonical, self._flaws))
        states = (
            (commit.hash, pointer)
            for commit in self.context.catalog.history(MAIN, operations=True)
            for pointer in commit.puts
            if pointer.table == table
        )
        for _, (commit, pointer) in zip(range(_STATES_TRIED), states, strict=False):
            try:
                whole = not any(canonical(path) in bad for path in self.context.reader.reach(pointer))
            except LakegateError:
                continue
            if whole:
                return (
                    f"{_BACKUP}. Or go back to the newest intact state: "
                    f"lakegate table restore {table} --at {commit[:_SHOWN]}"
                )
        return f"{_BACKUP}: {table} has no intact state to go back to."


@dataclass(frozen=True)
class _Group:
    kind: FlawKind
    table: TableIdentifier
    run_id: str | None
    on_main: bool


def _finding(group: _Group, flaws: Sequence[Flaw], fix: str) -> VerifyFinding:
    whats = {flaw.file.what for flaw in flaws}
    named = counted(len(flaws), whats.pop() if len(whats) == 1 else "file")
    needing = f"{group.table} on main" if group.on_main else f"an older state or another branch of {group.table}"
    by = f", added by run {group.run_id}" if group.run_id is not None else ""
    first = flaws[0]
    text = {
        "missing-file": f"{'is' if len(flaws) == 1 else 'are'} missing",
        "unreadable-file": f"can't be read: {first.message}",
        "wrong-size": f"can't be complete: {first.message}",
        "wrong-count": f"can't be right: {first.message}",
        "wrong-rows": f"can't be right: {first.message}",
    }[group.kind]
    return VerifyFinding(
        kind=group.kind,
        message=f"{named} that {needing} needs{by}, {text.rstrip('.')}.",
        fix=fix,
        table=str(group.table),
        run_id=group.run_id,
        files=tuple(flaw.file.path for flaw in flaws),
        number=len(flaws),
    )


def _unsettled(context: Context) -> Iterator[VerifyFinding]:
    for run_id, tables in context.catalog.unsettled() if isinstance(context.catalog, Overlay) else ():
        yield VerifyFinding(
            kind="unsettled-publish",
            message=f"A publish of run {run_id} to {tables} died half-way, and can't be finished or undone.",
            fix="Whoever has the rights to change these tables finishes it, once the catalog can be reached: "
            f"lakegate admin recover {run_id}",
            run_id=run_id,
        )


def _orphaned(context: Context, garbage: Garbage) -> Iterator[VerifyFinding]:
    if isinstance(context.catalog, Overlay):
        return  # other files beside a target aren't ours to judge
    folders = garbage.collect(dry_run=True)
    if folders:
        number, size_bytes = sum(one.files for one in folders), sum(one.size_bytes for one in folders)
        yield VerifyFinding(
            kind="orphaned-files",
            message=f"{counted(number, 'file')} ({size(size_bytes)}) in {counted(len(folders), 'table folder')} "
            f"{'is' if number == 1 else 'are'} not needed by any branch or tag.",
            fix="Delete them: lakegate admin gc",
            files=tuple(path for one in folders for path in one.sample),
            number=number,
            size_bytes=size_bytes,
        )
