"""A lake in which the operations of a history are performed, by processes that die, sleep, and get in each other's way.

Nothing runs at the same time: what others do "meanwhile" is done inside the interrupted one's call. So every history
is the same each time it is played.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from lakegate.context import Context
from lakegate.errors import RetryableError
from lakegate.journal.history import ANY_HEAD
from lakegate.journal.journal import Journal
from lakegate.ledger.event import PastCommit
from lakegate.model.batch import Batch, Claim, SourceColumn, SourceFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import Lease, Run
from lakegate.model.schema import Column, Schema
from lakegate.model.states import RunStatus
from lakegate.model.tables import AddedFiles, StoredFile, WriteTarget
from lakegate.ports import Catalog
from lakegate.progress import SilentNarrator
from lakegate.telemetry.metrics import Sample
from lakegate.wap.stage import ensure_namespace, new_table
from proofs.faulty_catalog import Fault, FaultyCatalog, Line
from proofs.model import Effect, Model, Rows, State, content, uri_of
from proofs.operations import TABLES, At, Break, Crash, Do, File, Interrupt, Stall
from support.fakes import FakeLakehouse
from support.fakes import Row as FakeRow
from support.memory_journal import MemoryDatabase

LEASE_S = 60.0
FOLDER = "mem://warehouse/w/all_20260101T000000-00000000"
_COLUMNS = (("k", "int64", "long"), ("p", "int64", "long"), ("tag", "string", "string"))


class Killed(BaseException):
    """The process is gone, and none of its code runs any more."""


class Lakehouse(FakeLakehouse):
    """The lakehouse in memory, over any catalog, with source files that change and files that can be collected."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__()
        self.catalog = catalog  # type: ignore[assignment]  # the fakes need no more than the protocol
        self.current: dict[str, str] = {}

    def source_schema(self, batch: Batch) -> Schema:
        return Schema(columns=tuple(Column(name=name, type=type_) for name, _, type_ in _COLUMNS))

    def given(self, files: Sequence[File]) -> Batch:
        """Put source files where they are found, and return the batch of them as they are now."""
        found = []
        for file in files:
            uri, rows = uri_of(file[0]), content(file)
            self.sources[uri] = [{"k": k, "p": p, "tag": tag} for k, p, tag in rows]
            self.current[uri] = str(file[1])
            found.append(SourceFile(uri=uri, size_bytes=1, version=str(file[1]), rows=len(rows)))
        columns = tuple(SourceColumn(name=name, type=type_) for name, type_, _ in _COLUMNS)
        return Batch(format="parquet", files=tuple(found), columns=columns)

    def changed(self, batch: Batch) -> list[SourceFile]:
        return [file for file in batch.files if self.current[file.uri] != file.version]

    def rows_at(self, commit: str) -> State:
        """Return the rows of all tables at a commit."""
        tables = [TableIdentifier.parse(name) for name in TABLES]
        found = self.catalog.get_tables(tables, Ref(name=commit, hash=commit, kind="detached"))
        return {str(table): self._rows(pointer) for table, pointer in found.items()}

    def _rows(self, pointer: TablePointer | None) -> Rows:
        if pointer is None:
            return Counter()
        groups = self.versions[pointer.metadata_location].rows.values()
        return Counter((row["k"], row["p"], row["tag"]) for group in groups for row in group)

    def added_files(self, pointer: TablePointer, snapshot_ids: Sequence[int]) -> AddedFiles:
        version = self.versions[pointer.metadata_location]
        live = [number for number in snapshot_ids if number in version.rows]
        removed = [one for one in version.snapshots if one.snapshot_id in snapshot_ids and one.operation != "append"]
        added = super().added_files(pointer, live)
        return AddedFiles(files=added.files, complete=not removed and len(live) == len(snapshot_ids))

    # As the garbage collection sees it: all files in the folder of one table.

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        yield from (f"{FOLDER}/data/{number}" for number in self.versions[pointer.metadata_location].rows)
        yield f"{FOLDER}/metadata/{pointer.metadata_location.rpartition('/')[2]}"


@dataclass(frozen=True)
class Files:
    """The files of a lakehouse, as the garbage collection finds them."""

    house: Lakehouse

    def list(self, prefix: str) -> Iterator[StoredFile]:
        versions, now = self.house.versions, datetime.now(UTC)
        names = [f"metadata/{location.rpartition('/')[2]}" for location in versions]
        names += [f"data/{number}" for number in sorted({n for version in versions.values() for n in version.rows})]
        for name in names:
            yield StoredFile(path=f"{FOLDER}/{name}", size_bytes=1, modified_at=now)

    def delete(self, paths: Sequence[str]) -> None:
        gone = {path.removeprefix(f"{FOLDER}/") for path in paths}
        versions = self.house.versions
        for location in [one for one in versions if f"metadata/{one.rpartition('/')[2]}" in gone]:
            del versions[location]
        for location, version in versions.items():
            left = {number: rows for number, rows in version.rows.items() if f"data/{number}" not in gone}
            versions[location] = replace(version, rows=left)


class ProcessJournal(Journal):
    """The journal as one process sees it, in a database that all share."""

    def __init__(self, database: MemoryDatabase, process: Process) -> None:
        super().__init__(database, holder=process, lease_s=LEASE_S)
        self._process = process

    def begin(self, run: Run, *, anew: bool = False) -> str:
        with self._process.call("journal:begin"):
            return super().begin(run, anew=anew)

    def save(self, run: Run, token: str | None = None, *, was: RunStatus | None = None) -> Run:
        with self._process.call("journal:save"):
            return super().save(run, token, was=was)

    def amend(self, run: Run, **changes: object) -> Run | None:
        with self._process.call("journal:save"):
            return super().amend(run, **changes)

    def end(self, run: Run, token: str, *, counted: Sequence[Sample] = ()) -> Run:
        with self._process.call("journal:end"):
            return super().end(run, token, counted=counted)

    def take_over(self, run_id: str) -> Lease | None:
        with self._process.call("journal:take_over"):
            return super().take_over(run_id)

    def claim(
        self,
        run_id: str,
        table: str,
        batch: Sequence[SourceFile],
        *,
        token: str,
        take_changed: bool = False,
        take_free: bool = True,
    ) -> Claim:
        choices = {"take_changed": take_changed, "take_free": take_free}
        with self._process.call("journal:claim"):
            return super().claim(run_id, table, batch, token=token, **choices)

    def record(
        self,
        target: str,
        commits: Sequence[PastCommit],
        head: str,
        *,
        rebuild: bool = False,
        known: str | None = ANY_HEAD,
        gone: Collection[str] = (),
        unread: Collection[str] = (),
    ) -> bool:
        with self._process.call("journal:record"):
            return super().record(target, commits, head, rebuild=rebuild, known=known, gone=gone, unread=unread)

    def lock(
        self, name: str, *, timeout_s: float, waiting: Callable[[], object] | None = None
    ) -> AbstractContextManager[bool]:
        # Who waits here waits for a process that goes on only when this one is done. Nothing depends on a lock: so
        # everybody has it, and everybody is on offer first, to be taken along by whoever comes in between.
        if waiting is not None and timeout_s > 0:  # else it only asks
            waiting()
        return nullcontext(enter_result=True)


class Process:
    """One process: what it meets on its way, and the context it works in. It is also who holds its leases."""

    def __init__(self, world: World, at: Sequence[At]) -> None:
        self._world = world
        self._at = list(at)
        self._counts: Counter[str] = Counter()
        self._broken: Fault | None = None
        self._inside = False
        self.name = f"process-{len(world.alive)}"
        world.alive[self.name] = True
        self.journal = ProcessJournal(world.database, self)

    @property
    def context(self) -> Context:
        house = self._world.house
        return Context(
            catalog=FaultyCatalog(self._world.catalog, self, self._world.line, self._world.target),
            reader=house,
            editor=house,
            engine=self._engine,
            journal=self.journal,
            narrator=SilentNarrator(),
            warehouse="mem://warehouse",
            changed_files=house.changed,
            lease_s=LEASE_S,
        )

    def _engine(self) -> Lakehouse:
        if self.before("engine") is not None:
            raise RetryableError("The engine is away.")
        self.after("engine")
        return self._world.house

    def identity(self) -> str:
        return self.name

    def is_alive(self, identity: str) -> bool | None:
        return self._world.alive.get(identity, False)

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Let happen what happens around a call to the journal, but for the calls that the journal makes of itself."""
        if self._inside:
            yield
            return
        if self.before(name) is not None:
            raise RetryableError("The journal is locked.")
        self._inside = True
        try:
            yield
        finally:
            self._inside = False
        self.after(name)

    def before(self, call: str) -> Fault | None:
        """Be about to do something."""
        self._counts[call] += 1
        self._world.line.tick()
        fault = self._happens(call, after=False)
        return fault or (self._broken if not call.startswith("journal") else None)

    def after(self, call: str) -> None:
        """Have done it."""
        self._happens(call, after=True)

    def _happens(self, spot: str, *, after: bool) -> Fault | None:
        here = [at for at in self._at if (at.spot, at.nth, at.after) == (spot, self._counts[spot], after)]
        fault: Fault | None = None
        for at in here:
            self._at.remove(at)
            match at.action:
                case Crash():
                    raise Killed
                case Interrupt():
                    raise KeyboardInterrupt
                case Break(kind, for_good):
                    fault = kind
                    self._broken = "away" if for_good else self._broken
                case Do(operations):
                    self._world.meanwhile(operations)
                case Stall(operations):
                    self._world.asleep(self, operations)
        return fault


@dataclass
class World:
    """The lake, everybody in it, and the model that watches.

    Attributes:
        target: Branch that all publish to.
        meanwhile: Performs operations inside another one.
    """

    catalog: Catalog
    target: str
    name: str
    house: Lakehouse = field(init=False)
    line: Line = field(init=False)
    model: Model = field(init=False)
    database: MemoryDatabase = field(init=False)
    alive: dict[str, bool | None] = field(default_factory=dict)
    clock: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    stack: list[Process] = field(default_factory=list)
    seen: str | None = None
    runs: int = 0
    runs_lost: int = 0
    lost: frozenset[str] = frozenset()
    stream: Run | None = None

    def __post_init__(self) -> None:
        self.database = MemoryDatabase(clock=lambda: self.clock)
        self.house = Lakehouse(self.catalog)
        self.line = Line(self.catalog)
        self.model = Model(self.house.rows_at)
        self.seen = self.catalog.get_ref(self.target).hash

    def meanwhile(self, operations: Sequence[Any]) -> None:
        raise NotImplementedError

    def asleep(self, process: Process, operations: Sequence[Any]) -> None:
        """Let a process sleep for longer than its leases last; whether it lives cannot be told from elsewhere."""
        self.line.arrive()
        self.alive[process.name] = None
        self.clock += timedelta(seconds=2 * LEASE_S)
        self.meanwhile(operations)
        self.alive[process.name] = True

    def new_run(self) -> str:
        self.runs += 1
        return f"20260101T000000-{self.runs:08x}"

    def lose_journal(self) -> None:
        self.runs_lost = self.runs
        self.lost = frozenset(self.branches())
        self.stream = None
        self.database = MemoryDatabase(clock=lambda: self.clock)

    def is_lost(self, branch: str) -> bool:
        """Tell whether the journal that knew of a branch is lost."""
        return branch in self.lost or int(branch.rpartition("-")[2], 16) <= self.runs_lost

    def branches(self) -> list[str]:
        """Return this history's branches."""
        return [ref.name for ref in self.catalog.list_refs() if ref.name.startswith(f"wap/{self.name}/")]

    def watch(self) -> None:
        """Have the model follow what was committed since it last looked."""
        commits = list(self.catalog.history(self.target, until=self.seen, operations=True))
        if commits:
            self.seen = commits[0].hash
            self.model.follow(commits[::-1])

    def write(self, branch: str, table: str, rows: Sequence[Any], run_id: str) -> None:
        """Append to a table on a branch, as an engine does that writes through the gate."""
        identifier = TableIdentifier.parse(table)
        context = self.stack[-1].context
        house = self.house
        uri = f"file:///by-others/{len(house.sources)}.parquet"
        house.sources[uri] = [{"k": k, "p": p, "tag": tag} for k, p, tag in rows]
        batch = house.given(()).model_copy(
            update={"files": (SourceFile(uri=uri, size_bytes=1, version="1", rows=len(rows)),)}
        )
        ensure_namespace(replace(context, catalog=self.catalog), identifier, branch, run_id)
        create = new_table(context, identifier, run_id)
        target = WriteTarget(table=identifier, ref=branch, table_schema=None, create=create, snapshot_properties={})
        house.append(batch, target)

    def outsider_appends(self, table: str) -> None:
        """Commit to a table of the target without lakegate, if it is there."""
        identifier = TableIdentifier.parse(table)
        head = self.catalog.get_ref(self.target)
        if self.catalog.get_table(identifier, head) is None:
            return
        self.runs += 1
        row: FakeRow = {"k": 1000 + self.runs, "p": None, "tag": f"outsider.{self.runs}"}
        engine = self.house.transaction(self.target, "outsider")
        engine.append(identifier, [row], None)
        self._note(table, ((row["k"], row["p"], row["tag"]),), clears=False)

    def outsider_drops(self, table: str) -> None:
        """Drop a table of the target without lakegate, if it is there."""
        identifier = TableIdentifier.parse(table)
        head = self.catalog.get_ref(self.target)
        if self.catalog.get_table(identifier, head) is None:
            return
        request = CommitRequest(branch=self.target, base=head.hash, message="drop", deletes=(identifier,))
        self.catalog.commit(request)
        self._note(table, (), clears=True)

    def _note(self, table: str, rows: tuple[Any, ...], *, clears: bool) -> None:
        head = self.catalog.get_ref(self.target).hash
        self.model.by_outsiders[head] = Effect(table, rows, clears=clears)
