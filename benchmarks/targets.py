"""Publishing to users' own catalogs, beside Nessie: one append, and those of four processes to one table.

Measured are the commits alone: what they publish is staged before.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from unittest.mock import patch

from sqlalchemy import make_url

from benchmarks.harness import Figure, Prepare, prepared
from benchmarks.staging import Staging
from lakegate.catalogs.target import TargetCatalog
from lakegate.components import Components
from lakegate.config import load_settings
from lakegate.context import Context
from lakegate.errors import ConflictError
from lakegate.iceberg.editor import IcebergTableEditor
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.journal.database import Database, SqliteDatabase
from lakegate.journal.postgres import PostgresDatabase
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, CommitRequest, TablePointer
from lakegate.ports import Catalog
from lakegate.progress import SilentNarrator
from support import target_catalogs
from support.postgres import PostgresServer, running_postgres
from support.rest_recorder import LAKEKEEPER, RestRecorder
from support.target_catalogs import RunningCatalog

_TABLE = TableIdentifier.parse("bench.published")
_SHARED = TableIdentifier.parse("bench.shared")
_WRITERS, _RUNS = 4, 5
_BESIDE = 2_000
_MOST_REQUESTS = 12
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class _Place:
    """A catalog, as any process can open it.

    Attributes:
        lake: The home of the lake on Nessie.
        own: A catalog of users' own; ``None`` for Nessie.
        journal: The address of its journal's database.
    """

    lake: Path
    own: RunningCatalog | None = None
    journal: str = ""

    def open(self, opened: ExitStack) -> Catalog:
        if self.own is None:
            settings = load_settings(self.lake, env={})
            return Components(self.lake, settings, session=None, narrator=SilentNarrator()).context.catalog
        url = make_url(self.journal)
        is_file = url.drivername == "sqlite"
        database: Database = SqliteDatabase(Path(str(url.database))) if is_file else PostgresDatabase(url, tls=False)
        opened.callback(database.close)
        return TargetCatalog(database, self.own.target())

    def files(self) -> TableFiles:
        return TableFiles() if self.own is None else self.own.files()


def measure(context: Context, staging: Staging, home: Path, rounds: int) -> Iterator[Figure]:
    """Yield the median publish of each catalog against Nessie's, its rate, and what one asks of a REST catalog."""
    with ExitStack() as opened:
        recorder = opened.enter_context(RestRecorder(LAKEKEEPER, home / "rest"))
        opened.enter_context(patch.dict(os.environ))  # what opens a catalog on S3 puts its credentials there
        weed = opened.enter_context(target_catalogs.seaweedfs())
        weed.others().create_namespace(_TABLE.namespace)  # it refuses to where files are already
        servers = [opened.enter_context(running_postgres()) for _ in range(2)]
        places = _places(home, servers, recorder, weed)
        catalogs = {name: place.open(opened) for name, place in places.items()}
        catalogs["Nessie"] = context.catalog
        stagings = dict.fromkeys(places, staging)
        stagings[weed.name] = opened.enter_context(Staging(context, weed.properties))
        for name, catalog in catalogs.items():
            _create(catalog, stagings[name], _TABLE)
            _create(catalog, stagings[name], _SHARED)
        yield from _medians(catalogs, stagings, rounds * 4)
        yield _requests(catalogs["REST, in memory"], recorder, staging)
        del places["REST, in memory"]  # its server is a part of this process
        yield from _rates(places, catalogs, stagings, rounds)


def _places(
    home: Path, servers: Sequence[PostgresServer], recorder: RestRecorder, weed: RunningCatalog
) -> dict[str, _Place]:
    address = {"type": "rest", "uri": f"{recorder.uri}/catalog", "warehouse": recorder.warehouse, "token": "any"}
    own: list[tuple[RunningCatalog, PostgresServer | None]] = [
        (target_catalogs.sqlite(_folder(home, "swap")), None),
        (target_catalogs.sqlite(_folder(home, "pyiceberg"), by_pyiceberg=True), None),
        (target_catalogs.on_postgres(servers[0], _folder(home, "postgres")), servers[0]),
        (target_catalogs.on_postgres(servers[1], _folder(home, "postgres-2"), by_pyiceberg=True), servers[1]),
        (weed, None),
        (RunningCatalog("REST, in memory", address, {}), None),
    ]
    found = {"Nessie": _Place(home.parent)}
    for number, (one, server) in enumerate(own):
        file = f"sqlite:///{home / f'{number}.db'}"
        journal = file if server is None else make_url(server.url).set(password=server.password)
        address_of = journal if isinstance(journal, str) else journal.render_as_string(hide_password=False)
        found[one.name] = _Place(home.parent, one, address_of)
    return found


def _medians(catalogs: Mapping[str, Catalog], stagings: Mapping[str, Staging], rounds: int) -> Iterator[Figure]:
    contestants: dict[str, Prepare] = {name: partial(_publish, one, stagings[name]) for name, one in catalogs.items()}
    medians = prepared(rounds, contestants)
    for name, seconds in medians.items():
        if name != "Nessie":
            detail = f"{seconds * 1000:.1f} / {medians['Nessie'] * 1000:.1f} ms"
            limit = 1.2 if "swap" in name else None
            yield Figure(f"publish, {name} / Nessie", seconds / medians["Nessie"], limit, detail)


def _requests(catalog: Catalog, recorder: RestRecorder, staging: Staging) -> Figure:
    """Count what a catalog is asked from the look at ``main`` to the publish, alone and beside thousands of tables."""
    alone = _asked(catalog, recorder, staging)
    schema = {"type": "struct", "schema-id": 0, "fields": []}
    recorder.answer("POST", "/catalog/v1/namespaces", {}, {"namespace": ["others"]})
    for number in range(_BESIDE):
        body = {"name": f"t{number}", "schema": schema}
        status, _ = recorder.answer("POST", "/catalog/v1/namespaces/others/tables", {}, body)
        assert status == 200
    beside = _asked(catalog, recorder, staging)
    detail = f"{alone} with two tables, {beside} with {_BESIDE:,} more"
    return Figure(f"requests of a publish / {_MOST_REQUESTS}", beside / _MOST_REQUESTS, 1.0, detail)


def _asked(catalog: Catalog, recorder: RestRecorder, staging: Staging) -> int:
    before = len(recorder.requests)
    base, now = _state(catalog, _TABLE)
    branch = catalog.create_branch(f"wap/b{before}", catalog.get_ref(MAIN))
    put = staging.grown(now, [1])
    catalog.commit(CommitRequest(branch=branch.name, base=branch.hash, message="stage", puts=(put,)))
    catalog.commit(CommitRequest(branch=MAIN, base=base, message="append", puts=(put,)))
    return len(recorder.requests) - before


def _rates(
    places: Mapping[str, _Place], catalogs: Mapping[str, Catalog], stagings: Mapping[str, Staging], rounds: int
) -> Iterator[Figure]:
    with _writers(places) as writers:
        medians = prepared(rounds, {name: _contest(name, catalogs[name], stagings[name], writers) for name in places})
    for name, place in places.items():
        _, now = _state(catalogs[name], _SHARED)
        files = {file.path for file in IcebergTableReader(place.files()).files(now)}
        assert len(files) == (rounds + 1) * _WRITERS * _RUNS, len(files)
    rates = {name: _WRITERS * _RUNS / seconds for name, seconds in medians.items()}
    for name, rate in rates.items():
        if name != "Nessie":
            detail = f"{rate:.1f} / {rates['Nessie']:.1f} publishes a second, {_WRITERS} processes x {_RUNS}, one table"
            yield Figure(f"publishes, {name} / Nessie", rate / rates["Nessie"], None, detail, bound="least")


class _Writers:
    def __init__(self, pipes: Sequence[Connection], start: Barrier) -> None:
        self._pipes = pipes
        self._start = start

    def publish(self, name: str, shares: Sequence[Sequence[str]]) -> float:
        """Let each writer publish its share to a catalog; return the seconds from the start to the last one's end."""
        for pipe, share in zip(self._pipes, shares, strict=True):
            pipe.send((name, share))
        self._start.wait(_PATIENCE_S)
        started = time.monotonic()
        return max(_answer(pipe) for pipe in self._pipes) - started


def _answer(pipe: Connection) -> float:
    assert pipe.poll(_PATIENCE_S), "a writer does not answer"
    ended: float = pipe.recv()
    return ended


@contextmanager
def _writers(places: Mapping[str, _Place]) -> Iterator[_Writers]:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(_WRITERS + 1)
    pairs = [context.Pipe() for _ in range(_WRITERS)]
    processes = [context.Process(target=_write, args=(places, theirs, start), daemon=True) for _, theirs in pairs]
    try:
        for process in processes:
            process.start()
        for ours, _ in pairs:
            _answer(ours)
        yield _Writers([ours for ours, _ in pairs], start)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _write(places: Mapping[str, _Place], pipe: Connection, start: Barrier) -> None:
    """Be a writer: publish what comes through ``pipe``, until the end of it all."""
    opened = ExitStack()
    editors = {name: IcebergTableEditor(one.files()) for name, one in places.items()}
    catalogs = {name: place.open(opened) for name, place in places.items()}
    for catalog in catalogs.values():
        catalog.get_ref(MAIN)
    pipe.send(time.monotonic())
    while True:
        name, share = pipe.recv()
        staged = [TablePointer.model_validate_json(text) for text in share]
        start.wait(_PATIENCE_S)
        for one in staged:
            _append(catalogs[name], editors[name], one)
        pipe.send(time.monotonic())


def _append(catalog: Catalog, editor: IcebergTableEditor, staged: TablePointer) -> None:
    """Publish a staged append, on top of what others have published meanwhile."""
    while True:
        base, now = _state(catalog, _SHARED)
        put = editor.rebase(staged, [staged.snapshot_id], now)
        try:
            catalog.commit(CommitRequest(branch=MAIN, base=base, message="append", puts=(put,)))
        except ConflictError:
            continue
        return


def _contest(name: str, catalog: Catalog, staging: Staging, writers: _Writers) -> Prepare:
    def prepare() -> Callable[[], object]:
        _, now = _state(catalog, _SHARED)
        shares = [[staging.grown(now, [1]).model_dump_json() for _ in range(_RUNS)] for _ in range(_WRITERS)]
        return lambda: writers.publish(name, shares)

    return prepare


def _state(catalog: Catalog, table: TableIdentifier) -> tuple[str, TablePointer]:
    head, tables = catalog.get_ref_with_tables(MAIN, [table])
    now = tables[table]
    assert now is not None
    return head.hash, now


def _folder(home: Path, name: str) -> Path:
    (home / name).mkdir(parents=True)
    return home / name


def _create(catalog: Catalog, staging: Staging, table: TableIdentifier) -> None:
    put = staging.empty(table)
    head = catalog.get_ref(MAIN)
    new = () if table.namespace in set(catalog.list_namespaces(head)) else (table.namespace,)
    catalog.commit(CommitRequest(branch=MAIN, base=head.hash, message="create", puts=(put,), namespaces=new))


def _publish(catalog: Catalog, staging: Staging) -> Callable[[], object]:
    base, now = _state(catalog, _TABLE)
    request = CommitRequest(branch=MAIN, base=base, message="append", puts=(staging.grown(now, [1]),))
    return lambda: catalog.commit(request)
