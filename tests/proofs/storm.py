"""The duplicate storm: the same files are delivered again and again, alone and together, to workers that get killed.

A delivery whose worker died is made once more, as a queue does that heard no answer. In the end each row is there
once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lakegate.lake import Lake, connect
from lakegate.ledger.event import event_of
from lakegate.model.refs import MAIN
from lakegate.wap.failpoints import POINTS
from proofs.harness import Worker, WorkerDiedError, Workers, ids, ids_by_spark, journal_problems
from proofs.result import ProofResult
from proofs.worker import Answer, Job
from support.e2e_support import write_trips
from support.lakes import components_of

ROWS = 5
_MOST_AT_ONCE = 3
_KILL_EVERY_S = 3.0


@dataclass(frozen=True)
class Size:
    """How big a storm is.

    Attributes:
        files: Source files.
        times: How often each is delivered.
        workers: Processes at a time.
        faults: How many of a hundred deliveries kill their worker at one of the flow's points.
        kills: How many workers, at most, are killed at any moment.
    """

    files: int
    times: int
    workers: int
    faults: int = 10
    kills: int = 5


LONG = Size(files=50, times=5, workers=8, faults=15, kills=25)
SHORT = Size(files=8, times=3, workers=3, faults=20, kills=2)


def prove(home: Path, size: Size, *, seed: int, namespace: str = "storm") -> ProofResult:
    """Deliver the files, in the project in ``home``."""
    table = f"{namespace}.trips"
    chooser = random.Random(seed)
    paths = [
        str(write_trips(home / "sources" / table / f"{number}.parquet", ROWS, start=number * ROWS))
        for number in range(size.files)
    ]
    with connect(home) as lake:
        branches = {ref.name for ref in lake.branches.list()}
        with Workers(home) as workers:
            storm = _Storm(workers, chooser, table, size, deque(_deliveries(paths, size.times, chooser)))
            storm.rage()
        lake.recover()
        failures = [*storm.failures, *_problems(lake, table, paths)]
        failures += [f"branch {ref.name} is left" for ref in lake.branches.list() if ref.name not in branches]
        return ProofResult("duplicate storm", size.files * size.times, failures, storm.details())


def _deliveries(paths: Sequence[str], times: int, chooser: random.Random) -> Iterator[list[str]]:
    """Yield all deliveries in random order, some of several files."""
    order = [path for _ in range(times) for path in chooser.sample(paths, len(paths))]
    chooser.shuffle(order)
    while order:
        together = [order.pop() for _ in range(min(chooser.randint(1, _MOST_AT_ONCE), len(order)))]
        yield sorted(set(together))


@dataclass
class _Storm:
    workers: Workers
    chooser: random.Random
    table: str
    size: Size
    deliveries: deque[list[str]]
    answers: list[Answer] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    deaths: int = 0

    def __post_init__(self) -> None:
        self._busy: dict[int, Worker] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()

    def rage(self) -> None:
        """Deliver everything, and return when all is answered."""
        killer = threading.Thread(target=self._kill_now_and_then, daemon=True)
        killer.start()
        try:
            with ThreadPoolExecutor(self.size.workers) as threads:
                for one in [threads.submit(self._deliver_all, number) for number in range(self.size.workers)]:
                    one.result()
        finally:
            self._over.set()
            killer.join()

    def _deliver_all(self, number: int) -> None:
        worker = self.workers.take()
        while (delivery := self._next()) is not None:
            job = self._job(delivery)
            with self._lock:
                self._busy[number] = worker
            try:
                answer = worker.do(job)
            except WorkerDiedError:
                with self._lock:
                    self.deaths += 1
                    self.deliveries.append(delivery)
                worker = self.workers.take()
                continue
            finally:
                with self._lock:
                    del self._busy[number]
            if answer["status"] not in ("published", "skipped"):
                self.failures.append(f"delivery of {delivery}: {answer}")
            self.answers.append(answer)

    def _next(self) -> list[str] | None:
        with self._lock:
            return self.deliveries.popleft() if self.deliveries else None

    def _job(self, delivery: list[str]) -> Job:
        with self._lock:
            faulty = self.chooser.randrange(100) < self.size.faults
            return Job(
                table=self.table,
                paths=delivery,
                checks=["not_null(id)"],
                on_busy=self.chooser.choice(("wait", "skip")),
                fault=f"{self.chooser.choice(POINTS)}:kill" if faulty else "",
            )

    def _kill_now_and_then(self) -> None:
        for _ in range(self.size.kills):
            if self._over.wait(_KILL_EVERY_S):
                return
            with self._lock:
                if self._busy:
                    self.chooser.choice(sorted(self._busy.items()))[1].kill()

    def details(self) -> str:
        """Return figures for people."""
        statuses = Counter(answer["status"] for answer in self.answers)
        told = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
        return f"{len(self.answers)} deliveries answered ({told}), {self.deaths} workers killed"


def _problems(lake: Lake, table: str, paths: Sequence[str]) -> Iterator[str]:
    expected = Counter(range(len(paths) * ROWS))
    for reader, found in (("PyIceberg", ids(lake, table)), ("Spark", ids_by_spark(lake, table))):
        if found != expected:
            yield f"{reader} reads {dict(found - expected)} too much and lacks {dict(expected - found)}"
    yield from journal_problems(lake, [table])
    history = components_of(lake).context.catalog.history(MAIN)
    events = [event for event in filter(None, map(event_of, history)) if table in event.tables]
    published = Counter(uri for event in events for uri, _ in event.files)
    if published != Counter(Path(path).as_uri() for path in paths):
        yield f"main's history has the files {dict(published)}"
    for path in paths:
        plan = lake.plan(table, path)
        if not plan.known.published:
            yield f"{path} does not count as published: {plan.known}"
