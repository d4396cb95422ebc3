"""Contention: many processes ingest into one table, which does not exist when they start, and none rewrites a file.

Meanwhile somebody who has never heard of lakegate works on the table with Spark, directly on main: compacts it, widens
a column, adds a column and drops it again. Batches that are looked at in the moment in between lack that column; they
are refused, and delivered again.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lakegate.context import Context
from lakegate.errors import SchemaError
from lakegate.lake import Lake, connect
from lakegate.ledger.publication import before_commit, published_files
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, TablePointer
from lakegate.model.run import Run
from lakegate.spark.engine import SparkEngine
from lakegate.spark.sessions import CATALOG
from proofs.harness import Workers, ids, ids_by_spark, journal_problems, known_runs
from proofs.result import ProofResult
from proofs.worker import Answer, Job
from support.e2e_support import write_trips
from support.lakes import components_of
from support.waiting import wait_until

ROWS = 5
_TRIES = 50
_REFUSED_FOR_S = 120.0
_OUTSIDE = (
    ("ALTER TABLE {table} ALTER COLUMN passengers TYPE bigint",),
    ("ALTER TABLE {table} ADD COLUMN extra string", "ALTER TABLE {table} DROP COLUMN extra"),
    ("CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",),
    ("ALTER TABLE {table} SET TBLPROPERTIES ('note' = 'mine')",),
    ("CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",),
)


def prove(home: Path, processes: int, batches: int, *, seed: int, namespace: str = "contention") -> ProofResult:
    """Have so many processes ingest so many batches each, in the project in ``home``."""
    table = TableIdentifier.parse(f"{namespace}.trips")
    with connect(home) as lake:
        branches = {ref.name for ref in lake.branches.list()}
        contest = _Contest(lake, table, random.Random(seed))
        with Workers(home) as workers, contest.outsider(processes * batches):
            contest.compete(workers, processes, batches)
        failures = [*contest.failures, *_problems(lake, table, processes * batches)]
        failures += [f"branch {ref.name} is left" for ref in lake.branches.list() if ref.name not in branches]
        return ProofResult("contention", processes * batches, failures, contest.details())


@dataclass
class _Contest:
    lake: Lake
    table: TableIdentifier
    chooser: random.Random
    answers: list[Answer] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    refused: int = 0
    seconds: float = 0.0

    def compete(self, workers: Workers, processes: int, batches: int) -> None:
        """Let the processes start together, and wait for all."""
        together = threading.Barrier(processes)
        started: list[float] = []

        def work(number: int) -> None:
            worker = workers.start()
            worker.wait_ready()
            together.wait(240)
            started.append(time.monotonic())
            for batch in range(batches):
                self._deliver(worker.do, number * batches + batch)

        with ThreadPoolExecutor(processes) as threads:
            for one in [threads.submit(work, number) for number in range(processes)]:
                one.result()
        self.seconds = time.monotonic() - min(started)

    def _deliver(self, do: Callable[[Job], Answer], number: int) -> None:
        folder = self.lake.home / "sources" / str(self.table)
        source = write_trips(folder / f"{number}.parquet", ROWS, start=number * ROWS)
        job = Job(table=str(self.table), paths=[str(source)], checks=["not_null(id)"])
        deadline = time.monotonic() + _REFUSED_FOR_S
        while (answer := do(job))["code"] == SchemaError.code and time.monotonic() < deadline:
            self.refused += 1
        if answer["status"] != "published":
            self.failures.append(f"batch {number}: {answer}")
        self.answers.append(answer)

    def outsider(self, total: int) -> _Outsider:
        """Return the one who works on main while ``total`` batches are published."""
        return _Outsider(self, total)

    def details(self) -> str:
        """Return figures for people."""
        replays = sum(answer["replayed"] for answer in self.answers)
        return (
            f"{len(self.answers)} publishes, {replays} of them replays, in {self.seconds:.1f} s: "
            f"{len(self.answers) / self.seconds:.1f} publishes per second; {self.refused} deliveries refused for a "
            f"column that was there for a moment"
        )


class _Outsider:
    """Works on main in a thread of its own, spread over the time of the contest."""

    def __init__(self, contest: _Contest, total: int) -> None:
        self._contest = contest
        self._total = total
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(240)

    def _work(self) -> None:
        rounds = self._contest.chooser.sample(_OUTSIDE, len(_OUTSIDE))
        for number, statements in enumerate(rounds, start=1):
            due = number * self._total // (len(rounds) + 1)
            with suppress(TimeoutError):
                wait_until(partial(self._is_due, due), within_s=3600)
            for statement in statements:
                self._run(statement)

    def _is_due(self, answers: int) -> bool:
        return self._over.is_set() or len(self._contest.answers) >= answers

    def _run(self, statement: str) -> None:
        """Run a statement as often as it takes: Iceberg's own retries are too few among so many writers."""
        engine, table = components_of(self._contest.lake).engine, self._contest.table
        assert isinstance(engine, SparkEngine)
        text = statement.format(table=table.sql(CATALOG), catalog=CATALOG, name=str(table))
        problem: Exception | None = None
        for _ in range(_TRIES):
            try:
                engine.session.sql(text).collect()
            except Exception as error:  # noqa: BLE001 - Spark has many names for a commit that was too late
                problem = error
            else:
                return
        self._contest.failures.append(f"the outsider could not {text}: {problem}")


def _problems(lake: Lake, table: TableIdentifier, batches: int) -> Iterator[str]:
    expected = Counter(range(batches * ROWS))
    for reader, found in (("PyIceberg", ids(lake, str(table))), ("Spark", ids_by_spark(lake, str(table)))):
        if found != expected:
            yield f"{reader} reads {dict(found - expected)} too much and lacks {dict(expected - found)}"
    yield from journal_problems(lake, [str(table)])
    yield from _file_problems(lake, table)


def _file_problems(lake: Lake, table: TableIdentifier) -> Iterator[str]:
    context = components_of(lake).context
    main = context.catalog.get_ref(MAIN)
    files: set[str] = set()
    for run_id, run in known_runs(lake, [str(table)]).items():
        if run.status != "published":
            continue
        staged, published = _staged_files(context, run), published_files(context, run_id, main)[table]
        if staged != published:
            yield f"run {run_id} published {sorted(published)}, but had staged {sorted(staged)}"
        if files & staged:
            yield f"run {run_id} published {sorted(files & staged)} a second time"
        files |= staged
    added, removed = _outside_files(context, table)
    now = _files(context, context.catalog.get_table(table, main))
    expected = (files | added) - removed
    if now != expected:
        yield f"main has the files {sorted(now - expected)} too much and lacks {sorted(expected - now)}"


def _staged_files(context: Context, run: Run) -> set[str]:
    (staged,) = run.staged
    return {file.path for file in context.reader.added_files(staged.pointer, staged.snapshot_ids).files}


def _outside_files(context: Context, table: TableIdentifier) -> tuple[set[str], set[str]]:
    """Return the files that commits which are not lakegate's added to the table, and those that they removed."""
    added: set[str] = set()
    removed: set[str] = set()
    for commit in context.catalog.history(MAIN, operations=True):
        after = next((pointer for pointer in commit.puts if pointer.table == table), None)
        if after is None or "lakegate.run-id" in commit.properties:
            continue
        then, now = _files(context, before_commit(context, commit)[table]), _files(context, after)
        added |= now - then
        removed |= then - now
    return added, removed


def _files(context: Context, pointer: TablePointer | None) -> set[str]:
    return set() if pointer is None else {file.path for file in context.reader.files(pointer)}
