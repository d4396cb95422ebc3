"""Targets: processes publish to two tables of a SQL catalog. Some are killed at any moment, and somebody else writes.

However they die: each run's rows are there once in all of its tables, or in none, as the log says; who was told that it
was published is in the log; and no row of somebody else's is lost.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException

from lakegate.catalogs.target.pyiceberg_target import PyIcebergTarget
from lakegate.catalogs.target.sql_swap import SqlSwapTarget
from lakegate.errors import ConflictError
from lakegate.iceberg.files import TableFiles
from lakegate.journal.database import SqliteDatabase
from lakegate.testing.target import World
from proofs.result import ProofResult

KINDS = {"swap": SqlSwapTarget, "pyiceberg": PyIcebergTarget}
TABLES = ("trips", "zones")
_AT_ONCE = 3
_TRIES = 100
_OTHERS = 1_000_000
_WITHIN_S = 1.5


def prove(home: Path, runs: int, seed: int) -> ProofResult:
    """Have so many runs publish to each kind of target."""
    failures, details = list[str](), list[str]()
    for kind in KINDS:
        folder = home / f"target-{kind}"
        folder.mkdir()
        world = _world(folder, kind)
        world.publish(world.staged("first", {name: [0] for name in TABLES}))
        ended, foreign = _compete(world, folder, kind, runs, random.Random(seed))
        killed = {number for number, code in ended.items() if code == -signal.SIGKILL}
        found = [f"r{number} ended with {code}" for number, code in ended.items() if code and number not in killed]
        found += _problems(world, runs, killed, foreign)
        failures += [f"{kind}: {one}" for one in found]
        details.append(f"{kind}: {runs} runs, {len(killed)} killed, {foreign} commits of somebody else")
        world.publish(world.staged("last", {name: [runs + 1] for name in TABLES}))
        world.database.close()
    return ProofResult("targets", runs * len(KINDS), failures, "\n".join(details))


def _world(folder: Path, kind: str, namespace: str = "proof") -> World:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=(folder / "lake").as_uri())
    database = SqliteDatabase(folder / "journal.db")
    return World(database, KINDS[kind](catalog, TableFiles(), kind), catalog, TableFiles(), namespace)


def _tables_of(number: int) -> tuple[str, ...]:
    return TABLES if number % 2 else TABLES[:1]


def _publish(folder: Path, kind: str, number: int) -> None:
    """Publish one run; the process ends with 0 once it was told that it's published."""
    world = _world(folder, kind)
    staged = world.staged(f"r{number}", {name: [number] for name in _tables_of(number)})
    for _ in range(_TRIES):
        try:
            world.publish(staged)
        except ConflictError:
            staged = world.rebased(staged)
        else:
            return
    raise AssertionError(f"r{number} conflicted {_TRIES} times")


def _compete(world: World, folder: Path, kind: str, runs: int, chooser: random.Random) -> tuple[dict[int, int], int]:
    """Start the runs, a few at once, and kill some; return their exit codes, and how often others committed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    running: dict[int, tuple[BaseProcess, float | None]] = {}
    ended, number, foreign = dict[int, int](), 0, 0
    while number < runs or running:
        while len(running) < _AT_ONCE and number < runs:
            number += 1
            started = context.Process(target=_publish, args=(folder, kind, number))
            started.start()
            dies = time.monotonic() + chooser.random() * _WITHIN_S if chooser.random() < 0.6 else None
            running[number] = started, dies
        for one, (process, dies) in list(running.items()):
            if dies is not None and time.monotonic() > dies:
                process.kill()
            process.join(timeout=0.01)
            if process.exitcode is not None:
                ended[one] = process.exitcode
                del running[one]
        if chooser.random() < 0.05:
            foreign += _append_as_others(world, chooser.choice(TABLES), foreign)
    return ended, foreign


def _append_as_others(world: World, name: str, number: int) -> int:
    try:
        world.append_as_others(name, _OTHERS + number)
    except (CommitFailedException, ValidationException):  # the second: what it began from was put back
        return 0
    return 1


def _problems(world: World, runs: int, killed: set[int], foreign: int) -> Iterator[str]:
    world.at_main(*TABLES)
    rows = {name: Counter(world.ids(name)) for name in TABLES}
    for number in range(1, runs + 1):
        commits = len(world.commits_of(f"r{number}"))
        if commits > 1 or (commits == 0 and number not in killed):
            yield f"r{number} is in the log {commits} times"
        for name in _tables_of(number):
            if rows[name][number] != commits:
                yield f"r{number} is {rows[name][number]} times in {name}, and {commits} times in the log"
    theirs = sum(count for found in rows.values() for one, count in found.items() if one >= _OTHERS)
    if theirs != foreign:
        yield f"somebody else appended {foreign} rows, and {theirs} are there"
