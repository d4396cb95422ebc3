"""A table that many processes write to is compacted all the time, and neither waits for the other for long.

Sixteen writers ingest one small file after the other into one table, one process compacts it without a pause, and one
reverts a run now and then, which is refused if its files were compacted since. In the end every row is there that
wasn't reverted, once, and none of those that were.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles

from lakegate.lake import Lake, connect
from proofs.harness import Worker, Workers, ids, ids_by_spark, journal_problems
from proofs.result import ProofResult
from proofs.worker import Answer, Job
from support.e2e_support import trips, write_trips

ROWS = 5
_UNFAIR = 4
"""So many times fewer publishes than the median are too few, and so many times as long as nine of ten is too long."""
_COMPACTION = 20
"""A compaction may take so many times as long as a publish, since it reads the whole table, three times if it must."""
_REVERT_EVERY_S = 30.0
_LONGEST_WITHOUT_S = 120.0


@dataclass(frozen=True)
class Size:
    """For how long how many processes write."""

    seconds: float
    writers: int = 16


LONG = Size(600)
SHORT = Size(60, writers=6)


def prove(home: Path, size: Size = LONG, *, seed: int, namespace: str = "compaction") -> ProofResult:
    """Write and compact, in the project in ``home``."""
    table = f"{namespace}.trips"
    with connect(home) as lake, Workers(home) as workers:
        branches = {ref.name for ref in lake.branches.list()}
        with lake.transaction("create") as tx:
            tx.append(table, trips(1, start=-1))
        contest = _Contest(lake, table, size, random.Random(seed))
        contest.compete(workers)
        failures = [*contest.failures, *contest.unfair(), *_problems(lake, table, contest.expected)]
        failures += [f"branch {ref.name} is left" for ref in lake.branches.list() if ref.name not in branches]
        return ProofResult("compaction", sum(map(len, contest.waits.values())), failures, contest.details())


@dataclass
class _Contest:
    lake: Lake
    table: str
    size: Size
    chooser: random.Random
    failures: list[str] = field(default_factory=list)
    expected: Counter[int] = field(default_factory=lambda: Counter([-1]))
    waits: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    compacted: list[tuple[float, Answer]] = field(default_factory=list)
    reverted: list[Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._batches = 0
        self._published: list[tuple[str, int]] = []
        self._began = 0.0

    def compete(self, workers: Workers) -> None:
        """Let all of them work until the time is over."""
        everybody = [workers.start() for _ in range(self.size.writers + 2)]
        for worker in everybody:
            worker.wait_ready()
        compactor, reverter, *writers = everybody
        self._began = time.monotonic()
        with ThreadPoolExecutor(len(everybody)) as threads:
            works = [threads.submit(self._write, number, worker) for number, worker in enumerate(writers)]
            works.append(threads.submit(self._compact, compactor))
            reverts = threads.submit(self._revert, reverter)
            try:
                for work in works:
                    work.result()
            finally:
                self._over.set()
            reverts.result()

    def _is_over(self) -> bool:
        return time.monotonic() - self._began > self.size.seconds

    def _write(self, number: int, worker: Worker) -> None:
        while not self._is_over():
            with self._lock:
                batch = self._batches
                self._batches += 1
            source = self.lake.home / "sources" / self.table / f"{batch}.parquet"
            write_trips(source, ROWS, start=batch * ROWS)
            answer = worker.do(Job(table=self.table, paths=[str(source)], checks=["not_null(id)"]))
            with self._lock:
                self.waits[number].append(answer["seconds"])
                if answer["status"] != "published" or answer["run_id"] is None:
                    self.failures.append(f"batch {batch}: {answer}")
                    continue
                self.expected.update(_rows_of(batch))
                self._published.append((answer["run_id"], batch))

    def _compact(self, worker: Worker) -> None:
        while not self._is_over():
            answer = worker.do(Job(optimize=self.table))
            self.compacted.append((time.monotonic() - self._began, answer))
            if answer["status"] not in ("published", "skipped") and answer["code"] != "not-replayable":
                self.failures.append(f"compaction: {answer}")

    def _revert(self, worker: Worker) -> None:
        """Revert any run of those so far, every so often."""
        while not self._over.wait(min(_REVERT_EVERY_S, self.size.seconds / 4)) and not self._is_over():
            with self._lock:
                if not self._published:
                    continue
                run_id, batch = self._published.pop(self.chooser.randrange(len(self._published)))
            answer = worker.do(Job(revert=run_id))
            self.reverted.append(answer)
            if answer["status"] == "published":
                with self._lock:
                    self.expected.subtract(_rows_of(batch))
            elif answer["code"] != "not-revertable":
                self.failures.append(f"revert of batch {batch}: {answer}")

    def unfair(self) -> Iterator[str]:
        """Yield who starved."""
        compacted = [when for when, answer in self.compacted if answer["status"] == "published"]
        return unfair([self.waits[number] for number in range(self.size.writers)], compacted, self.size.seconds)

    def details(self) -> str:
        """Return figures for people."""
        waits = sorted(wait for each in self.waits.values() for wait in each)
        counts = sorted(len(each) for each in self.waits.values())
        told = Counter(answer["code"] or answer["status"] for _, answer in self.compacted)
        compactions = ", ".join(f"{count} {status}" for status, count in sorted(told.items()))
        longest = max(answer["seconds"] for _, answer in self.compacted)
        return (
            f"{len(waits)} publishes in {self.size.seconds:.0f} s, {counts[0]} to {counts[-1]} a writer, each in "
            f"{median(waits):.1f} s, at most {waits[-1]:.1f} s; compactions: {compactions}, "
            f"at most {longest:.1f} s each; {len(self.reverted)} reverts"
        )


def unfair(waits: Sequence[Sequence[float]], compacted: Sequence[float], seconds: float) -> Iterator[str]:
    """Yield who starved: by how long each writer waited for each publish, and when compactions were published."""
    counts = [len(each) for each in waits]
    if min(counts) * _UNFAIR < median(counts):
        yield f"a writer published {min(counts)} times, half of them {median(counts)} times or more"
    all_waits = sorted(wait for each in waits for wait in each)
    slow = quantiles(all_waits, n=10)[-1]
    if all_waits[-1] > _UNFAIR * slow:
        yield f"a writer waited for {all_waits[-1]:.1f} s, nine of ten for {slow:.1f} s or less"
    ends = [0.0, *compacted, seconds]
    longest = max(after - before for before, after in pairwise(ends))
    if len(ends) == 2 or longest > max(_LONGEST_WITHOUT_S, seconds / 3, _COMPACTION * median(all_waits)):
        yield f"for {longest:.0f} s, no compaction was published"


def _rows_of(batch: int) -> range:
    return range(batch * ROWS, (batch + 1) * ROWS)


def _problems(lake: Lake, table: str, expected: Counter[int]) -> Iterator[str]:
    expected = +expected
    for reader, found in (("PyIceberg", ids(lake, table)), ("Spark", ids_by_spark(lake, table))):
        if found != expected:
            yield f"{reader} reads {dict(found - expected)} too much and lacks {dict(expected - found)}"
    yield from journal_problems(lake, [table])
