"""Targets: processes publish to two tables of each catalog that runs here. Many are killed, and somebody else writes.

However they die: each run's rows are there once in all of its tables, or in none, as the log says; who was told that it
was published is in the log; and no row of somebody else's is lost. REST catalogs are reached through a proxy that loses
requests and answers, and sends requests twice. Afterwards, each catalog is asked by itself whether it keeps what it
said was committed.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from pyiceberg.exceptions import CommitFailedException, ValidationException

from lakegate.catalogs.target.publishing import Window
from lakegate.errors import CatalogUnavailableError, ConflictError, NotReplayableError, OutcomeUnknownError
from lakegate.journal.database import SqliteDatabase
from lakegate.model.refs import MAIN, TORN_PROPERTY
from lakegate.testing.target import World
from proofs.result import ProofResult
from support import target_catalogs
from support.postgres import running_postgres
from support.s3_proxy import Proxy, Trouble
from support.target_catalogs import RunningCatalog

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

Starter = Callable[[Path], AbstractContextManager[RunningCatalog]]
TABLES = ("trips", "zones")
_AT_ONCE = 3
_TRIES = 200
_OTHERS = 1_000_000
_WITHIN_S = 2.5
_TROUBLES: Sequence[Trouble] = ("lost", "cut", "busy", "twice")
_RACERS, _EACH = 4, 6
_TORN = 3
"""The exit code of a run of which a part is there, and can't be put back: somebody has changed that table further."""


@dataclass
class Tally:
    """What happened on one catalog.

    Attributes:
        killed: How many processes died, by where: in a window of a publish, or at any moment.
        faults: What the proxy did to requests that change something.
        foreign: Commits of somebody else.
        parts: Runs of which one table was published and the other wasn't: the log says so.
        lost: How many commits the catalog lost by itself, of how many that it said it had made.
        torn: How many refused transactions over two tables it left half-done, of how many.
    """

    catalog: str
    runs: int
    killed: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    foreign: int = 0
    published: int = 0
    parts: int = 0
    took_s: float = 0.0
    lost: tuple[int, int] = (0, 0)
    torn: tuple[int, int] = (0, 0)
    failures: list[str] = field(default_factory=list)

    def row(self) -> str:
        """Return it as a row of a table."""
        cells = (
            *(
                self.catalog,
                self.runs,
                self.published,
                _counts(self.killed),
                _counts(self.faults),
                self.foreign,
                self.parts,
            ),
            *(len(self.failures), _of(*self.lost), _of(*self.torn)),
            f"{self.took_s:.0f} s",
        )
        return f"| {' | '.join(map(str, cells))} |"


_HEADINGS = (
    "| catalog | runs | published | killed | faults on the line | foreign commits | in part, and logged so | failures "
    "| commits that the catalog itself lost | transactions that it tore | took |"
)


def _counts(what: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(what.items()) if count) or "–"


def _of(count: int, every: int) -> str:
    return f"{count} of {every}" if every else "–"


def prove(home: Path, runs: int, seed: int, only: str = "") -> ProofResult:
    """Have so many runs publish to each catalog whose name has ``only`` in it."""
    found, left_out = list[Tally](), list[str]()
    for number, (name, start) in enumerate(starters().items()):
        if only not in name:
            continue
        if name.startswith("Hive") and find_spec("thrift") is None:
            left_out.append("Hive: not run, for want of the package thrift")
            continue
        folder = home / f"target-{number}"
        folder.mkdir()
        with start(folder) as catalog:
            found.append(_prove(folder, replace(catalog, name=name), runs, random.Random(seed)))
        sys.stderr.write(f"{found[-1].row()}\n")
    failures = [f"{one.catalog}: {problem}" for one in found for problem in one.failures]
    return ProofResult(
        "targets", runs * len(found), failures, "\n".join([_HEADINGS, *map(Tally.row, found), *left_out])
    )


def starters() -> dict[str, Starter]:
    """Return what runs each catalog in a folder, by the catalog's name."""
    from support import java_catalogs

    def postgres(folder: Path, *, by_pyiceberg: bool) -> AbstractContextManager[RunningCatalog]:
        return _on_postgres(lambda server: nullcontext(_on(server, folder, by_pyiceberg=by_pyiceberg)))

    _on = target_catalogs.on_postgres
    return {
        "SQLite, swap": lambda folder: nullcontext(target_catalogs.sqlite(folder)),
        "SQLite, by PyIceberg": lambda folder: nullcontext(target_catalogs.sqlite(folder, by_pyiceberg=True)),
        "Postgres, swap": lambda folder: postgres(folder, by_pyiceberg=False),
        "Postgres, by PyIceberg": lambda folder: postgres(folder, by_pyiceberg=True),
        "SeaweedFS 4.48": lambda _: target_catalogs.seaweedfs(),
        "Glue (MiniStack 1.5.33)": lambda _: target_catalogs.glue(),
        "Iceberg's REST server 1.10.0": lambda folder: _on_postgres(
            lambda server: java_catalogs.iceberg_rest(server, folder)
        ),
        "Hive 2.3.10": java_catalogs.hive,
    }


@contextmanager
def _on_postgres(start: Callable[..., AbstractContextManager[RunningCatalog]]) -> Iterator[RunningCatalog]:
    with running_postgres() as server, start(server) as catalog:
        yield catalog


class BadLine(Proxy):
    """Does to some requests that change something what can happen on the way."""

    def __init__(self, target: str, chooser: random.Random) -> None:
        super().__init__(target)
        self.faults = Counter[str]()
        self._chooser = chooser

    def take(self, method: str, path: str) -> Trouble:
        """Return what happens to a request."""
        changes = method == "DELETE" or (method == "POST" and not path.endswith("/tokens"))
        if not changes or self._chooser.random() > 0.1:
            return super().take(method, path)
        trouble = self._chooser.choice(_TROUBLES)
        self.faults[trouble] += 1
        return trouble


def _prove(folder: Path, catalog: RunningCatalog, runs: int, chooser: random.Random) -> Tally:
    tally = Tally(catalog.name, runs)
    world = _world(folder, catalog)
    world.others.create_namespace_if_not_exists(world.namespace)
    world.publish(world.staged("first", {name: [0] for name in TABLES}))
    started = time.monotonic()
    with ExitStack() as opened:
        reached = catalog
        if catalog.properties["type"] == "rest":
            line = opened.enter_context(BadLine(catalog.properties["uri"], random.Random(chooser.random())))
            tally.faults = line.faults
            reached = replace(catalog, properties={**catalog.properties, "uri": line.endpoint})
        ended = _compete(world, folder, reached, tally, chooser)
    tally.took_s = time.monotonic() - started
    killed = {number for number, code in ended.items() if code == -signal.SIGKILL}
    wrong = {one: code for one, code in ended.items() if code not in {0, _TORN} and one not in killed}
    tally.failures += [f"r{one} ended with {code}" for one, code in wrong.items()]
    tally.failures += _problems(world, tally, killed)
    world.publish(world.staged("last", {name: [runs + 1] for name in TABLES}))
    world.database.close()
    tally.lost = _lost(catalog, world.namespace)
    if catalog.properties["type"] == "rest":
        tally.torn = _torn(catalog, world.namespace, chooser)
    return tally


def _world(folder: Path, catalog: RunningCatalog) -> World:
    # Asked directly, so that it's not the line that decides what others see.
    others = catalog.others()
    return World(SqliteDatabase(folder / "journal.db"), catalog.target(), others, catalog.files(), "proof")


def _tables_of(number: int) -> tuple[str, ...]:
    return TABLES if number % 2 else TABLES[:1]


def _publish(folder: Path, catalog: RunningCatalog, number: int, dies_in: Window | None) -> None:
    """Publish one run; the process ends with 0 once it was told that it's published."""
    world, run = _world(folder, catalog), f"r{number}"

    def reach(window: Window) -> None:
        if window == dies_in:
            os.kill(os.getpid(), signal.SIGKILL)

    lake = world.open(reach)
    staged = world.staged(run, {name: [number] for name in _tables_of(number)})
    for _ in range(_TRIES):
        try:
            world.publish(staged, lake)
        except (ConflictError, OutcomeUnknownError, CatalogUnavailableError) as error:
            if _is_published(world, run):  # the answer was lost, or a proxy asked twice
                return
            if isinstance(error, ConflictError):
                try:
                    staged = world.rebased(staged)
                except NotReplayableError:
                    sys.exit(_TORN)
        else:
            return
    raise AssertionError(f"{run} didn't get through {_TRIES} times")


def _is_published(world: World, run: str) -> bool:
    while True:
        try:
            world.at_main(*TABLES)
            return bool(world.commits_of(run))
        except CatalogUnavailableError:
            continue


def _compete(
    world: World, folder: Path, catalog: RunningCatalog, tally: Tally, chooser: random.Random
) -> dict[int, int]:
    """Start the runs, a few at once, and kill some; return their exit codes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    running: dict[int, tuple[BaseProcess, float | None, str]] = {}
    ended, number = dict[int, int](), 0
    while number < tally.runs or running:
        while len(running) < _AT_ONCE and number < tally.runs:
            number += 1
            how = chooser.choice(["never", "never", "at any moment", *get_args(Window)])
            window = how if how in get_args(Window) else None
            started = context.Process(target=_publish, args=(folder, catalog, number, window))
            started.start()
            dies = time.monotonic() + chooser.random() * _WITHIN_S if how == "at any moment" else None
            running[number] = started, dies, how
        for one, (process, dies, how) in list(running.items()):
            if dies is not None and time.monotonic() > dies:
                process.kill()
            process.join(timeout=0.01)
            if process.exitcode is not None:
                ended[one] = process.exitcode
                tally.killed[how] += process.exitcode == -signal.SIGKILL
                del running[one]
        if chooser.random() < 0.02:
            tally.foreign += _append_as_others(world, chooser.choice(TABLES), tally.foreign)
    return ended


def _append_as_others(world: World, name: str, number: int) -> int:
    try:
        world.append_as_others(name, _OTHERS + number)
    except (CommitFailedException, ValidationException):  # the second: what it began from was put back
        return 0
    return 1


def _problems(world: World, tally: Tally, killed: set[int]) -> Iterator[str]:
    world.at_main(*TABLES)
    rows = {name: Counter(world.ids(name)) for name in TABLES}
    history = list(world.lake.history(MAIN, operations=True))
    parts = {one.properties[TORN_PROPERTY]: one for one in history if TORN_PROPERTY in one.properties}
    for number in range(1, tally.runs + 1):
        commits = len(world.commits_of(f"r{number}"))
        part = parts.get(f"{world.namespace}-r{number}")
        tally.published += commits == 1
        tally.parts += part is not None
        if commits > 1 or (commits == 0 and part is None and number not in killed):
            yield f"r{number} is in the log {commits} times"
        for name in _tables_of(number):
            logged = commits if part is None else int(str(world.table(name)) in part.tables)
            if rows[name][number] != logged:
                yield f"r{number} is {rows[name][number]} times in {name}, and {logged} times in the log"
    theirs = sum(count for found in rows.values() for one, count in found.items() if one >= _OTHERS)
    if theirs != tally.foreign:
        yield f"somebody else appended {tally.foreign} rows, and {theirs} are there"


def _lost(catalog: RunningCatalog, namespace: str) -> tuple[int, int]:
    """Commit to one table from several threads, without lakegate; return how many commits are gone, of how many."""

    def commit(racer: int) -> list[str]:
        table, made = catalog.others().load_table((namespace, TABLES[0])), []
        for number in range(_EACH):
            try:
                with table.transaction() as transaction:
                    transaction.set_properties({f"racer.{racer}.{number}": "here"})
            except Exception:  # noqa: BLE001 - each catalog has errors of its own; it said that it didn't commit
                table.refresh()
            else:
                made.append(f"racer.{racer}.{number}")
        return made

    with ThreadPoolExecutor(_RACERS) as pool:
        made = [name for names in pool.map(commit, range(_RACERS)) for name in names]
    there = catalog.others().load_table((namespace, TABLES[0])).properties
    return sum(name not in there for name in made), len(made)


def _torn(catalog: RunningCatalog, namespace: str, chooser: random.Random) -> tuple[int, int]:
    """Race ``transactions/commit`` over two tables against commits to the second one, without lakegate.

    Returns:
        How many refused transactions changed the first table all the same, of how many refused ones.
    """
    rest = cast("RestCatalog", catalog.others())
    session = rest._session  # noqa: SLF001 - signed in
    torn = refused = 0

    def load(name: str) -> dict[str, Any]:
        found: dict[str, Any] = session.get(rest.url(f"namespaces/{namespace}/tables/{name}")).json()["metadata"]
        return found

    def change(name: str, update: dict[str, Any], **required: Any) -> dict[str, Any]:
        requirements = [{"type": "assert-ref-snapshot-id", **required}] if required else []
        identifier = {"namespace": [namespace], "name": name}
        return {"identifier": identifier, "requirements": requirements, "updates": [update]}

    for number in range(_RACERS * _EACH):
        mark, branch = f"transaction.{number}", f"rival.{number}"
        marked = {"action": "set-properties", "updates": {mark: "here"}}
        at = {"snapshot-id": load(TABLES[1])["current-snapshot-id"]}
        moved = {"action": "set-snapshot-ref", "ref-name": branch, "type": "branch", **at}
        both = [change(TABLES[0], marked), change(TABLES[1], marked, ref=branch, **{"snapshot-id": None})]
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(session.post, rest.url("transactions/commit"), json={"table-changes": both})
            time.sleep(chooser.random() * 0.02)
            session.post(rest.url(f"namespaces/{namespace}/tables/{TABLES[1]}"), json=change(TABLES[1], moved))
        if not answer.result().ok:
            refused += 1
            torn += mark in load(TABLES[0])["properties"]
    return torn, refused
