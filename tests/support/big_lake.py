"""A lake with as many runs, tables and branches as one likes, made in seconds: nothing is written by an engine.

Its journal, commits and branches are made by the journal's and the catalog's own functions. Its tables' newest states
are real: metadata files and manifests that PyIceberg wrote once, and that each table and each branch has a copy of.
What lies between exists in the catalog only. Names of columns, files and checks, and values, are as hostile as
real ones.
"""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from lakegate.config import HOME_NAME, NotifySettings, Settings
from lakegate.dashboard.model import ReadModel
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.journal import runs as stored
from lakegate.journal.database import SqliteDatabase
from lakegate.journal.files import CLAIM_COLUMNS, PUBLISHED
from lakegate.journal.journal import Journal
from lakegate.journal.schema import CLAIMS, STANDING
from lakegate.model.batch import Batch, SourceColumn, SourceFile
from lakegate.model.checks import AuditReport, CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.request import IngestRequest
from lakegate.model.run import (
    RUN_ID_PROPERTY,
    Acceptance,
    Notification,
    Publication,
    Run,
    RunError,
    RunStep,
    StagedTable,
    UndoneTable,
    new_run_id,
)
from lakegate.ports import Catalog
from lakegate.testing import MemoryCatalog
from support.ledger_support import properties

HOSTILE = (
    "<script>alert(1)</script> \u202eltr\u202c 🐘 `x` $x^2$ _i_ :material/home: [l](javascript:alert(1)) |a| "
    "![i](http://e.example.com/i.png) http://e.example.com www.example.com a@example.com \x1b[31m"
)
"""What may be in names and values: markup, Markdown, LaTeX, icons, links, a change of direction, terminal colours."""
LONG = "A very long cell. " * 600
_STATES = 12
_ROWS = 40
_COLUMNS = ("id", "pickup", "fare", "region", "note", "🐘 emoji", "<b>bold</b>", *(f"c{n:02}" for n in range(10)))
_CHECKS = (
    *("not_null(id)", "unique(id)", "in_range(fare, min=0, max=500)", "accepted_values(region, values=['north'])"),
    *(f"not_null(c{n:02})" for n in range(6)),
)


@dataclass
class BigLake:
    """The lake.

    Attributes:
        home: Its folder; the journal is in ``.lakegate/``.
        catalog: Its catalog.
        journal: Its journal.
        database: The journal's database.
        settings: Settings with ``notify.late`` for some of its tables.
        tables: Names of its tables.
        runs: Its runs, oldest first.
    """

    home: Path
    catalog: Catalog
    journal: Journal
    database: SqliteDatabase
    settings: Settings
    tables: Sequence[str] = ()
    runs: Sequence[Run] = field(default_factory=list)

    def model(self) -> ReadModel:
        """Return a new read model, which remembers nothing yet."""
        reader = IcebergTableReader()
        return ReadModel(
            catalog=lambda: self.catalog, reader=lambda: reader, journal=lambda: self.journal, settings=self.settings
        )

    def close(self) -> None:
        self.journal.close()
        self.catalog.close()


def big_lake(
    home: Path,
    *,
    runs: int = 5_000,
    tables: int = 200,
    branches: int | None = None,
    commits: int | None = None,
    catalog: Catalog | None = None,
    now: datetime | None = None,
    seed: int = 7,
) -> BigLake:
    """Make a lake.

    Args:
        home: A new folder for it.
        runs: Number of runs; with 0, there's nothing at all.
        tables: Number of tables.
        branches: Number of branches beside ``main``; of those, one of seven is of no run. Default: a fifth of the runs.
        commits: Number of runs, of the newest, that have a commit on ``main``. Default: all that were published.
        catalog: An empty catalog. Default: one in memory.
        now: When the newest run began. Default: now.
        seed: What chance makes of it.
    """
    made = _Maker(home, catalog or MemoryCatalog(), now or datetime.now(UTC), random.Random(seed))
    if runs:
        given = runs // 5 if branches is None else branches
        with _no_collections():
            made.make(runs, min(tables, runs), given, runs if commits is None else commits)
    return made.lake


@contextmanager
def _no_collections() -> Iterator[None]:
    """Look for no garbage while all that is made stays: a third of the time that making takes."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True)
class _State:
    """A metadata file as text, and what differs from table to table, or is needed to name it."""

    text: str
    uuid: str
    snapshot_id: int


class _Maker:
    def __init__(self, home: Path, catalog: Catalog, now: datetime, chance: random.Random) -> None:
        database = SqliteDatabase(home / HOME_NAME / "journal.db")
        self.lake = BigLake(home, catalog, Journal(database), database, Settings())
        self._warehouse = home / HOME_NAME / "warehouse"
        self._now = now
        self._chance = chance
        self._states: Sequence[_State] = ()
        self._pointers: dict[str, TablePointer] = {}
        self._level: dict[str, int] = {}

    def make(self, runs: int, tables: int, branches: int, commits: int) -> None:
        self._states = _states(self._warehouse)
        names = [f"{('nyc', 'sales', 'lab')[n % 3]}.table_{n:03}" for n in range(tables)]
        self.lake.tables = names
        every = dict.fromkeys(names[:: max(tables // 20, 1)], "1d")
        self.lake.settings = Settings(notify=NotifySettings(late=every))
        self._create(names)
        made = list(self._runs(runs, branches, commits))
        with self.lake.database.writing() as tx:
            stored.store(tx, *made)
            tx.insert(CLAIMS, list(_claims(made)), CLAIM_COLUMNS, key="table_name, path, version")
            oldest_first = sorted((run for run in made if run.status == "published"), key=lambda run: run.started_at)
            standing = [(table, run.run_id, table) for run in oldest_first for table in run.tables]
            tx.insert(STANDING, standing, ("table_name", "run_id", "called"))
        self.lake.runs = made
        self._others(branches)

    def _create(self, names: Sequence[str]) -> None:
        catalog = self.lake.catalog
        main = catalog.get_ref("main")
        namespaces = tuple(sorted({(name.partition(".")[0],) for name in names}))
        main = catalog.commit(CommitRequest(branch="main", base=main.hash, message="Namespaces", namespaces=namespaces))
        puts = []
        for number, name in enumerate(names):
            self._level[name] = self._chance.randrange(3, _STATES - 1)
            puts.append(self._written(name, self._level[name], f"main-{number}"))
        for start in range(0, len(puts), 100):
            request = CommitRequest(
                branch="main", base=main.hash, message="Tables", puts=tuple(puts[start : start + 100])
            )
            main = catalog.commit(request)
        self._pointers = {str(pointer.table): pointer for pointer in catalog.list_tables(main)}

    def _written(self, name: str, level: int, label: str, content_id: str | None = None) -> TablePointer:
        """Write a metadata file of a table's state and return its pointer."""
        state = self._states[level]
        folder = self._warehouse / name.replace(".", "/")
        text = state.text.replace(state.uuid, str(UUID(bytes=sha256(name.encode()).digest()[:16])))
        path = folder / "metadata" / f"{level:05}-{label}.metadata.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return TablePointer(
            table=TableIdentifier.parse(name),
            content_id=content_id,
            metadata_location=path.as_uri(),
            snapshot_id=state.snapshot_id,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )

    def _runs(self, number: int, branches: int, commits: int) -> Iterator[Run]:
        waiting = min(branches * 6 // 7, number // 5)
        gap = timedelta(days=90) / number
        held = set(self._chance.sample(range(number), waiting))
        published: list[Run] = []
        for at in range(number):
            started = self._now - gap * (number - 1 - at)
            # Each table is written to at least once, and some much more often than others.
            names = self.lake.tables
            name = names[at] if at < len(names) else names[int(len(names) * self._chance.random() ** 2)]
            others = [names[at % len(names)]] if at % 23 == 0 and names[at % len(names)] != name else []
            draft = self._begun(at, (name, *others), started)
            if at in held:
                yield self._held(draft)
            elif at % 97 == 0 and published:
                yield self._reverting(draft, published.pop(), commit=at >= number - commits)
            elif at % 31 == 7:
                yield _failed(draft)
            elif at % 41 == 9:
                yield _skipped(draft)
            elif at >= number - 3 and number > 10:
                yield draft.model_copy(update={"staged": (), "reports": (), "finished_at": None})
            else:
                run = self._published(draft, commit=at >= number - commits)
                published = [*published[-20:], run]
                yield run

    def _begun(self, at: int, tables: tuple[str, ...], started: datetime) -> Run:
        run_id = f"{new_run_id(started)[:16]}{at:08x}"
        branch = f"wap/{tables[0]}_{run_id}"
        files = tuple(self._files(at, run_id))
        batch = Batch(
            format="parquet", files=files, columns=tuple(SourceColumn(name=c, type="int64") for c in _COLUMNS)
        )
        base = sha256(f"base {at}".encode()).hexdigest()
        request = IngestRequest(
            run_id=run_id, table=TableIdentifier.parse(tables[0]), branch=branch, base=base, batch=batch
        )
        staged = tuple(self._staged(run_id, name, branch, base) for name in tables)
        return Run(
            run_id=run_id,
            kind="transaction" if len(tables) > 1 else "ingest",
            name="nightly <b>totals</b>" if len(tables) > 1 else None,
            orchestrator=("cli", "watch", "prefect", "python", "dbos")[at % 5],
            tables=tables,
            branch=branch,
            status="planned",
            started_at=started,
            finished_at=started + timedelta(seconds=4 + at % 60),
            base=base,
            request=request if len(tables) == 1 else None,
            staged=staged,
            reports=tuple(self._report(at, run_id, one, fails=False) for one in staged),
            steps=tuple(_steps(started)),
        )

    def _files(self, at: int, run_id: str) -> Iterator[SourceFile]:
        for number in range(1 + at % 3):
            odd = "%3Cscript%3E%20%F0%9F%90%98%20" if at % 50 == 3 else ""
            yield SourceFile(
                uri=f"file:///landing/2026/{at % 12 + 1:02}/{odd}trips_{at:05}_{number}.parquet",
                size_bytes=1_000_000 + at,
                version=f"sha256:{sha256(f'{run_id} {number}'.encode()).hexdigest()}",
                rows=_ROWS,
            )

    def _staged(self, run_id: str, name: str, branch: str, base: str) -> StagedTable:
        before = self._pointers[name]
        return StagedTable(
            run_id=run_id,
            table=before.table,
            branch=branch,
            target="main",
            base=base,
            head=sha256(run_id.encode()).hexdigest(),
            before=before,
            pointer=before.model_copy(update={"metadata_location": f"{before.metadata_location}-{run_id}"}),
            parent_snapshot_id=before.snapshot_id,
            snapshot_ids=(1,),
            rows=_ROWS,
            data_files=2,
        )

    def _report(self, at: int, run_id: str, staged: StagedTable, *, fails: bool) -> AuditReport:
        wrong = {at % len(_CHECKS), (at * 3) % len(_CHECKS)} if fails else set()
        warns = at % 17 == 0
        results = []
        for number, text in enumerate(_CHECKS):
            column = text.partition("(")[2].partition(")")[0].partition(",")[0]
            is_wrong = number in wrong or (warns and number == len(_CHECKS) - 1)
            results.append(
                CheckResult(
                    name=text if number else HOSTILE,
                    check=text,
                    columns=(column,),
                    severity="warn" if number == len(_CHECKS) - 1 else "error",
                    verdict="fail" if is_wrong else "pass",
                    failing_rows=at % _ROWS + 1 if is_wrong else 0,
                    total_rows=_ROWS,
                    evidence="scan" if is_wrong else "manifest",
                    examples=tuple(_example(at + row) for row in range(5)) if is_wrong else (),
                )
            )
        return AuditReport(
            run_id=run_id,
            table=str(staged.table),
            branch=staged.branch,
            metadata_location=staged.pointer.metadata_location,
            rows=_ROWS,
            results=tuple(results),
            seconds=0.4,
        )

    def _held(self, draft: Run) -> Run:
        """Return a run that left its branch, rejected in most cases, and make the branch."""
        catalog = self.lake.catalog
        main = catalog.get_ref("main")
        branch = catalog.create_branch(draft.branch, main)
        pointers = {}
        for one in draft.staged:
            before = self._pointers[str(one.table)]
            level = self._level[str(one.table)] + 1
            pointers[one.table] = self._written(str(one.table), level, draft.run_id, before.content_id)
        branch = catalog.commit(
            CommitRequest(
                branch=branch.name,
                base=branch.hash,
                message=f"Run {draft.run_id}: its audit failed",
                puts=tuple(pointers.values()),
                properties={RUN_ID_PROPERTY: draft.run_id},
            )
        )
        staged = tuple(
            one.model_copy(
                update={
                    "pointer": pointers[one.table],
                    "before": self._pointers[str(one.table)],
                    "base": main.hash,
                    "head": branch.hash,
                    "snapshot_ids": (pointers[one.table].snapshot_id,),
                }
            )
            for one in draft.staged
        )
        number = int(draft.run_id[-8:], 16)
        kept = {"staged": staged, "base": main.hash, "branch_kept": True}
        if number % 19 == 5:
            return draft.model_copy(update={**kept, "status": "staged", "finished_at": None})
        reports = tuple(self._report(number, draft.run_id, one, fails=True) for one in staged)
        sent = Notification(channel="ops", event="rejected", outcome="sent", at=draft.started_at)
        return draft.model_copy(update={**kept, "status": "rejected", "reports": reports, "notifications": (sent,)})

    def _published(self, draft: Run, *, commit: bool) -> Run:
        head = self._commit(draft) if commit else sha256(f"commit {draft.run_id}".encode()).hexdigest()
        publication = Publication(run_id=draft.run_id, target="main", commit=head, tables=draft.tables, rows=_ROWS)
        number = int(draft.run_id[-8:], 16)
        accepted = (
            Acceptance(reason=HOSTILE, actor="ana@example.com", at=draft.started_at) if number % 61 == 0 else None
        )
        return draft.model_copy(update={"status": "published", "publication": publication, "accepted": accepted})

    def _reverting(self, draft: Run, reverted: Run, *, commit: bool) -> Run:
        run = draft.model_copy(
            update={"kind": "revert", "tables": reverted.tables, "request": None, "staged": (), "reports": ()}
        )
        head = self._commit(run, [reverted.run_id]) if commit else sha256(f"commit {draft.run_id}".encode()).hexdigest()
        publication = Publication(run_id=run.run_id, target="main", commit=head, tables=run.tables, rows=0)
        undone = tuple(UndoneTable(table=table, rows=-_ROWS, data_files=-2) for table in run.tables)
        done = {"status": "published", "publication": publication, "reverts": (reverted.run_id,), "undone": undone}
        return run.model_copy(update=done)

    def _commit(self, run: Run, removes: Sequence[str] = ()) -> str:
        """Commit a run to ``main``. Its tables' states between the first and the last exist in the catalog only."""
        catalog = self.lake.catalog
        puts = tuple(self._pointers[table] for table in run.tables)
        files = run.request.batch.files if run.request is not None else ()
        request = CommitRequest(
            branch="main",
            base=catalog.get_ref("main").hash,
            message=f"Publish {run.table} ({_ROWS} rows)",
            puts=puts,
            properties=properties(run.run_id, *run.tables, files=files, removes=removes, kind=run.kind),
        )
        return catalog.commit(request).hash

    def _others(self, branches: int) -> None:
        """Make branches of other writers, and one foreign commit on ``main``."""
        catalog = self.lake.catalog
        name = self.lake.tables[-1]
        before = self._pointers[name]
        state = self._written(name, self._level[name] + 1, "other", before.content_id)
        main = catalog.get_ref("main")
        catalog.commit(CommitRequest(branch="main", base=main.hash, message=HOSTILE, puts=(before,)))
        there = sum(1 for ref in catalog.list_refs() if ref.kind == "branch" and ref.name != "main")
        for number in range(max(branches - there, 0)):
            branch: Ref = catalog.create_branch(f"dbt/pr-{number:04}", main)
            request = CommitRequest(branch=branch.name, base=branch.hash, message=f"dbt run {HOSTILE}", puts=(state,))
            catalog.commit(request)


def _states(warehouse: Path) -> Sequence[_State]:
    """Write a table, and return its metadata after each append."""
    catalog = SqlCatalog("made", uri="sqlite:///:memory:", warehouse=warehouse.as_uri())
    catalog.create_namespace("made")
    values: dict[str, list[Any]] = {name: list(range(_ROWS)) for name in _COLUMNS}
    values["pickup"] = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=row) for row in range(_ROWS)]
    values["fare"] = [row * 1.5 for row in range(_ROWS)]
    values["region"] = ["north", "south"] * (_ROWS // 2)
    values["note"] = [HOSTILE] * _ROWS
    rows = pa.table(values)
    table = catalog.create_table("made.table", rows.schema)
    found = []
    for number in range(_STATES):
        nulls = pa.array([None] * number + values["c00"][number:], pa.int64())
        table.append(rows.set_column(rows.schema.get_field_index("c00"), "c00", nulls))
        document = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
        text = json.dumps(document, separators=(",", ":"))
        found.append(_State(text, document["table-uuid"], document["current-snapshot-id"]))
    catalog.close()
    return found


def _steps(started: datetime) -> Iterator[RunStep]:
    at = started
    for name, seconds in (("write", 2.1), ("audit", 0.6), ("publish", 0.2)):
        ended = at + timedelta(seconds=seconds)
        yield RunStep(name=name, started_at=at, finished_at=ended, outcome="done")
        at = ended


def _example(number: int) -> dict[str, Any]:
    odd = {"note": HOSTILE if number % 2 else LONG, "🐘 emoji": None, "<b>bold</b>": number}
    return {**dict.fromkeys(_COLUMNS, number), **odd, "_file": "file:///lake/data/a.parquet"}


def _failed(draft: Run) -> Run:
    error = RunError(code="engine", message=f"Spark ran out of disk. {HOSTILE}", hint="Free some space.")
    return draft.model_copy(update={"status": "failed", "error": error, "staged": (), "reports": ()})


def _skipped(draft: Run) -> Run:
    detail = "All its files are published already."
    return draft.model_copy(update={"status": "skipped", "detail": detail, "staged": (), "reports": (), "branch": ""})


def _claims(runs: Sequence[Run]) -> Iterator[tuple[Any, ...]]:
    for run in runs:
        if run.status == "published" and run.request is not None:
            for file in run.request.batch.files:
                size = (file.size_bytes, file.rows)
                yield run.tables[0], file.uri, file.version, *size, PUBLISHED, run.run_id
