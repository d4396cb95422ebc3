"""A lake of file names over the catalog in memory, for tests of what is garbage in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from lakegate.context import Context
from lakegate.errors import InputError
from lakegate.journal.journal import Journal
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import GcReport
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY, Run, StagedTable
from lakegate.model.states import RunStatus
from lakegate.model.tables import Snapshot, StoredFile
from lakegate.ports import Engine, FileStore, TableEditor, TableReader
from lakegate.progress import SilentNarrator
from lakegate.testing import MemoryCatalog
from lakegate.upkeep.gc import gc
from support.memory_journal import MemoryDatabase

ROOT = "file:///lake"
NAMES = ("a", "b")
NOW = datetime.now(UTC) + timedelta(days=30)
OLD, YOUNG = NOW - timedelta(days=3), NOW - timedelta(hours=1)
GRACE = timedelta(days=1)


def key(path: str) -> str:
    return path.replace("file:///", "file:/")


@dataclass
class World:
    """A lake whose files are names: as store and as reader, and the truth about who needs what."""

    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    journal: Journal = field(default_factory=lambda: Journal(MemoryDatabase()))
    files: dict[str, StoredFile] = field(default_factory=dict)
    needs: dict[str, frozenset[str]] = field(default_factory=dict)
    runs_of: dict[str, str] = field(default_factory=dict)
    states: dict[str, frozenset[str]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    looked: list[str] = field(default_factory=list)
    counter: int = 0

    def __post_init__(self) -> None:
        main = self.catalog.get_ref("main")
        ns = CommitRequest(branch="main", base=main.hash, message="ns", namespaces=(("ns",),))
        self._remember(self.catalog.commit(ns))

    @property
    def context(self) -> Context:
        return Context(
            catalog=self.catalog,
            reader=cast("TableReader", self),
            editor=cast("TableEditor", None),
            engine=lambda: cast("Engine", None),
            journal=self.journal,
            narrator=SilentNarrator(),
            warehouse=ROOT,
            changed_files=lambda _: (),
        )

    def gc(self, *, dry_run: bool = False, **changed: Any) -> GcReport:
        given: dict[str, Any] = {"keep_rejected": timedelta(days=7), "grace": GRACE, "now": NOW, **changed}
        return gc(self.context, files=cast("FileStore", self), dry_run=dry_run, **given)

    # The store

    def list(self, prefix: str) -> Iterator[StoredFile]:
        assert prefix == ROOT
        yield from tuple(self.files.values())

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.files.pop(path)

    # The reader. Paths in metadata are spelled as Hadoop spells them, not as the store does.

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        location = pointer.metadata_location
        if walked is not None and location in walked:
            return
        self.looked.append(location)
        for path in sorted(self.needs[location]):
            if path in self.broken:
                raise InputError(f"{path} is damaged.")
            yield key(path)
        if walked is not None:
            walked.add(location)

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        return [path for path in paths if path not in {key(there) for there in self.files}]

    def snapshots(self, pointer: TablePointer) -> Sequence[Snapshot]:
        run = self.runs_of.get(pointer.metadata_location)
        if run is None:
            raise InputError("not table metadata")
        summary = {RUN_ID_PROPERTY: run}
        return [Snapshot(snapshot_id=1, parent_id=None, time=NOW, operation="append", summary=summary)]

    # What happens in the lake

    def file(self, path: str, *, old: bool = True) -> str:
        path = f"{ROOT}/{path}"
        self.files[path] = StoredFile(path=path, size_bytes=10, modified_at=OLD if old else YOUNG)
        return path

    def folder(self, name: str) -> str:
        self.counter += 1
        return f"ns/{name}_20260101T000000-{self.counter:08x}"

    def write(
        self, branch: str, name: str, *, more: frozenset[str] = frozenset(), keep: bool = True, old: bool = True
    ) -> Ref:
        """Put a new state of a table, with one new data file and what ``more`` names, on top of what it had."""
        head = self.catalog.get_ref(branch)
        before = self.catalog.get_table(TableIdentifier.parse(f"ns.{name}"), head)
        had = frozenset() if before is None else self.needs[before.metadata_location]
        folder = (
            self.folder(name) if before is None else before.metadata_location.split("/metadata/")[0][len(ROOT) + 1 :]
        )
        self.counter += 1
        data = self.file(f"{folder}/data/{self.counter}.parquet", old=old)
        metadata = self.file(f"{folder}/metadata/{self.counter}.metadata.json", old=old)
        # The metadata files before it are not needed to read this one.
        kept = {path for path in had | more if "/metadata/" not in path} if keep else set()
        self.needs[metadata] = frozenset({*kept, data, metadata})
        return self.put(branch, name, metadata)

    def put(self, branch: str, name: str, metadata: str) -> Ref:
        table = TableIdentifier.parse(f"ns.{name}")
        head = self.catalog.get_ref(branch)
        before = self.catalog.get_table(table, head)
        pointer = TablePointer(
            table=table,
            content_id=None if before is None else before.content_id,
            metadata_location=metadata,
            snapshot_id=1,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )
        request = CommitRequest(branch=branch, base=head.hash, message="put", puts=(pointer,))
        return self._remember(self.catalog.commit(request))

    def drop(self, branch: str, name: str) -> None:
        table = TableIdentifier.parse(f"ns.{name}")
        head = self.catalog.get_ref(branch)
        if self.catalog.get_table(table, head) is not None:
            request = CommitRequest(branch=branch, base=head.hash, message="drop", deletes=(table,))
            self._remember(self.catalog.commit(request))

    def branch(self, name: str, at: str | None = None) -> Ref:
        source = self.catalog.get_ref("main") if at is None else Ref(name=at, hash=at, kind="detached")
        return self.catalog.create_branch(name, source)

    def discard(self, name: str) -> None:
        self.catalog.delete_ref(self.catalog.get_ref(name))

    def needed(self, since: datetime | None = None) -> set[str]:
        """Return what is needed to read any ref at any commit of its history, by the states the commits left."""
        found: set[str] = set()
        for ref in self.catalog.list_refs():
            for commit in self.catalog.history(ref.name):
                found |= self.states.get(commit.hash, frozenset())
                if since is not None and commit.time <= since:
                    break
        return found

    def _remember(self, head: Ref) -> Ref:
        tables = self.catalog.list_tables(head)
        self.states[head.hash] = frozenset().union(*(self.needs[t.metadata_location] for t in tables))
        return head


def run_on(world: World, branch: str, *, days_ago: float, status: RunStatus = "rejected", **changes: Any) -> Run:
    """Record a run that wrote what stands on ``branch``."""
    head = world.catalog.get_ref(branch)
    pointer = next(iter(world.catalog.list_tables(head)))
    run_id = f"20260101T000000-{len(world.journal.runs()):08x}"
    staged = StagedTable(
        run_id=run_id,
        table=pointer.table,
        branch=branch,
        target="main",
        base="0" * 16,
        head=head.hash,
        before=None,
        pointer=pointer,
        parent_snapshot_id=None,
        snapshot_ids=(1,),
        rows=1,
        data_files=1,
    )
    finished = NOW - timedelta(days=days_ago)
    run = Run(
        run_id=run_id,
        tables=(str(pointer.table),),
        branch=branch,
        status=status,
        started_at=finished - timedelta(minutes=1),
        finished_at=None if status == "planned" else finished,
        staged=(staged,),
        branch_kept=True,
    )
    world.journal.save(run.model_copy(update=changes))
    return run.model_copy(update=changes)


@dataclass(frozen=True)
class Play:
    """Random steps: each method is one. ``choice`` picks the branch, commit or ref that it changes."""

    world: World

    def step(self, what: str, choice: int, name: str, old: bool) -> None:
        getattr(self, what)(choice, name, old)

    def write(self, choice: int, name: str, old: bool) -> None:
        self.world.write(self._branch(choice), name, old=old)

    def rewrite(self, choice: int, name: str, old: bool) -> None:
        self.world.write(self._branch(choice), name, keep=False, old=old)

    def replay(self, choice: int, name: str, old: bool) -> None:
        head = self.world.catalog.get_ref(self._branch(choice))
        staged = self.world.catalog.get_table(TableIdentifier.parse(f"ns.{name}"), head)
        if staged is not None:
            self.world.write("main", name, more=self.world.needs[staged.metadata_location], old=old)

    def revert(self, choice: int, name: str, _: bool) -> None:
        """Point a table back to one of its earlier states that are still needed."""
        needed = self.world.needed()
        known = sorted(path for path in self.world.needs if f"/{name}_" in path and path in needed)
        if known:
            self.world.put(self._branch(choice), name, known[choice % len(known)])

    def drop(self, choice: int, name: str, _: bool) -> None:
        self.world.drop(self._branch(choice), name)

    def branch(self, *_: object) -> None:
        self.world.branch(self._new_name())

    def past(self, choice: int, *_: object) -> None:
        commits = list(self.world.states)
        self.world.branch(self._new_name(), commits[choice % len(commits)])

    def tag(self, choice: int, *_: object) -> None:
        refs = list(self.world.catalog.list_refs())
        self.world.catalog.create_tag(self._new_name(), refs[choice % len(refs)])

    def discard(self, choice: int, *_: object) -> None:
        loose = [ref for ref in self.world.catalog.list_refs() if ref.name != "main"]
        if loose:
            self.world.catalog.delete_ref(loose[choice % len(loose)])

    def stray(self, _: int, name: str, old: bool) -> None:
        self.world.file(f"{self.world.folder(name)}/data/stray.parquet", old=old)
        self.world.file(f"exports/{self.world.counter}.csv", old=old)

    def _branch(self, choice: int) -> str:
        branches = [ref.name for ref in self.world.catalog.list_refs() if ref.kind == "branch"]
        return branches[choice % len(branches)]

    def _new_name(self) -> str:
        self.world.counter += 1
        return f"ref/{self.world.counter}"
