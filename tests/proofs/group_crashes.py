"""Who leads a group commit is killed, or stopped, and whoever waits for it: every run is published once all the same.

Four processes wait for one table's publish lock. The first one gets it, takes the others along, and is killed at each
point on the way; or it is stopped for longer than anybody waits for it, and goes on when the others are done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from lakegate.errors import LakegateError
from lakegate.lake import Lake, connect
from lakegate.model.refs import MAIN
from lakegate.wap.failpoints import FaultPoint, GroupPoint
from lakegate.wap.history import events_of
from proofs.harness import Worker, WorkerDiedError, Workers, ids, journal_problems
from proofs.result import ProofResult
from proofs.worker import Job
from support.e2e_support import trips, write_trips
from support.lakes import components_of
from support.waiting import wait_until

Case = tuple[FaultPoint | GroupPoint, Literal["kill", "pause"]]

LONG: Sequence[Case] = (
    ("queued", "kill"),
    ("taken", "kill"),
    ("before-commit", "kill"),
    ("confirmed", "kill"),
    ("after-publish", "kill"),
    ("after-branch-delete", "kill"),
    ("taken", "pause"),
    ("before-commit", "pause"),
    ("confirmed", "pause"),
)
SHORT: Sequence[Case] = (*LONG[1:3], LONG[4])
RUNS = 4
ROWS = 5


def prove(
    home: Path,
    cases: Sequence[Case] = LONG,
    *,
    namespace: str = "group",
    tell: Callable[[str], None] = lambda _: None,
) -> ProofResult:
    """Play the cases one by one, in the project in ``home``; ``tell`` of each."""
    failures: list[str] = []
    told = []
    with Workers(home) as workers:
        proof = _Groups(home, workers, f"{namespace}.trips")
        for point, action in cases:
            try:
                shape, problems = proof.play(point, action)
            except (LakegateError, WorkerDiedError, TimeoutError) as error:
                shape, problems = "failed", [f"{type(error).__name__}: {error}"]
            failures += [f"{action} at {point}: {problem}" for problem in problems]
            told.append(f"{action} at {point}: commits of {shape} runs{' (!)' if problems else ''}")
            tell(told[-1])
    return ProofResult("group crashes", len(cases), failures, "\n".join(told))


class _Groups:
    def __init__(self, home: Path, workers: Workers, table: str) -> None:
        self._home = home
        self._workers = workers
        self._table = table
        self._expected = Counter([-1])
        self._files = 0
        self._begun = False

    def play(self, point: str, action: str) -> tuple[str, list[str]]:
        """Play one case; return how many runs each commit published, and what is wrong."""
        with connect(self._home) as lake:
            if not self._begun:
                with lake.transaction("begin") as tx:
                    tx.append(self._table, trips(1, start=-1))
                self._begun = True
            catalog = components_of(lake).catalog
            before = catalog.get_ref(MAIN)
            branches = {ref.name for ref in lake.branches()}
            first, others = self._workers.start(), [self._workers.start() for _ in range(RUNS - 1)]
            problems = list(self._contend(lake, first, others, f"{point}:{action}", dies_waiting=point == "queued"))
            lake.recover()
            found = ids(lake, self._table)
            if found != self._expected:
                added, lacking = found - self._expected, self._expected - found
                problems.append(f"the table has {dict(added)} too much and lacks {dict(lacking)}")
                self._expected = found
            commits = [events_of(commit) for commit in catalog.history(MAIN, until=before.hash)]
            runs = Counter(event.run_id for events in commits for event in events)
            problems += [f"{run_id} was published {times} times" for run_id, times in runs.items() if times > 1]
            problems += [f"{len(runs)} runs are on main"] if len(runs) != RUNS else []
            problems += [f"branch {ref.name} is left" for ref in lake.branches() if ref.name not in branches]
            problems += journal_problems(lake, [self._table])
            problems += [f"{run_id} is left in the queue" for run_id in self._queued(lake)]
        for worker in (first, *others):
            worker.end()
        return ", ".join(str(len(events)) for events in reversed(commits)), problems

    def _contend(
        self, lake: Lake, first: Worker, others: Sequence[Worker], fault: str, *, dies_waiting: bool
    ) -> Iterator[str]:
        for worker in (first, *others):
            worker.wait_ready()
        with components_of(lake).journal.lock(f"{MAIN}/{self._table}", timeout_s=30) as locked:
            assert locked
            self._queue_up(lake, first, others, fault, is_last=dies_waiting)
        if fault.endswith(":pause") and not first.wait_stopped():
            yield "the leader did not stop"
        for worker in others:
            answer = worker.answer()
            if answer["status"] != "published":
                yield f"one that waited answered {answer}"
        if fault.endswith(":pause"):
            first.resume()
            while first.wait_stopped():  # it stops at that point each time it gets there
                first.resume()
            answer = first.answer()
            if answer["status"] != "published":
                yield f"the leader answered {answer}"
            return
        try:
            yield f"the {'one' if dies_waiting else 'leader'} was not killed: {first.answer()}"
        except WorkerDiedError:
            return

    def _queue_up(self, lake: Lake, first: Worker, others: Sequence[Worker], fault: str, *, is_last: bool) -> None:
        # One that dies in the queue comes last: those that begin after it would recover it, and wait for the lock.
        order = (*others, first) if is_last else (first, *others)
        for begun, worker in enumerate(order, start=1):
            worker.begin({**self._job(), "fault": fault} if worker is first else self._job())
            if worker is first or begun == RUNS:
                wait_until(partial(self._has_queued, lake, begun))
        # A run joins the queue a moment before it waits for the lock. If the lock were released between the two, the
        # last one would find it free before the first one, whose turn it is, has woken up.
        wait_until(lambda: all(worker.waits_for_lock() for worker in (others if is_last else order)))

    def _has_queued(self, lake: Lake, runs: int) -> bool:
        return len(self._queued(lake)) == runs

    def _job(self) -> Job:
        number = self._files
        self._files += 1
        folder = self._home / "sources" / self._table
        source = write_trips(folder / f"{number}.parquet", ROWS, start=number * ROWS)
        self._expected.update(range(number * ROWS, (number + 1) * ROWS))
        return Job(table=self._table, paths=[str(source)], checks=["not_null(id)"])

    def _queued(self, lake: Lake) -> list[str]:
        found = components_of(lake).journal.publishes.waiting(MAIN, self._table, limit=99)
        return [one.run.run_id for one in found]
