"""The crash matrix of DBOS workflows, on Postgres: the process is killed in every step and between all of them.

DBOS's tables and lakegate's journal share one database. After each kill another process is started; DBOS recovers the
workflow, and then each file is there once or, if it was rejected or given up, not at all; no branch is left that is
not kept for the user; nobody has a lease or a claim; the workflow has ended as its run has; and the same files given
again (after every fifth case) are published exactly if they had not been.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal, cast, get_args

from lakegate.config import load_settings
from lakegate.integrations.dbos.workflows import Order
from lakegate.lake import Lake, connect
from lakegate.wap import failpoints
from lakegate.wap.failpoints import POINTS
from proofs.harness import Worker, WorkerDiedError, WorkersOf, ids, published_runs
from proofs.result import ProofResult
from support import warm
from support.e2e_support import trips, write
from support.postgres import PostgresServer

Kind = Literal["published", "rejected", "undone"]
"""How the workflow is to end: ``undone`` is one whose publish fails for good."""

KINDS: tuple[Kind, ...] = get_args(Kind)
TIMES = 10
_AGAIN = 5
_ROWS = 7
_PASSWORD = "DBOS_MATRIX_PASSWORD"
_ENDS: Mapping[Kind, tuple[str, str]] = {
    "published": ("SUCCESS", "published"),
    "rejected": ("SUCCESS", "rejected"),
    "undone": ("ERROR", "failed"),
}
_WRITTEN = POINTS[: POINTS.index("after-audit") + 1]
_BEFORE = ("before:start-of-lakegate.write", "before:lakegate.write", "after:lakegate.write", "before:lakegate.audit")
POINTS_OF: Mapping[Kind, Sequence[str]] = {
    "published": (*POINTS, *_BEFORE, "after:lakegate.audit", "before:lakegate.publish", "before:end", "after:end"),
    "rejected": (*_WRITTEN, *_BEFORE, "before:end", "after:end"),
    "undone": (
        "before:lakegate.publish",
        "before:start-of-lakegate.undo",
        "before:lakegate.undo",
        "before:end",
        "after:end",
    ),
}


@dataclass(frozen=True)
class Case:
    """Where the process is killed, in a workflow that ends how."""

    point: str
    kind: Kind

    def __str__(self) -> str:
        return f"killed {self.point} of one to be {self.kind}"


def all_cases() -> list[Case]:
    """Return every point of every kind."""
    return [Case(point, kind) for kind in KINDS for point in POINTS_OF[kind]]


def some_cases() -> list[Case]:
    """Return the points that matter most: a step was done, and DBOS does not know."""
    return [
        Case("before:lakegate.write", "published"),
        Case("before:lakegate.audit", "rejected"),
        Case("before:lakegate.publish", "published"),
        Case("before:lakegate.undo", "undone"),
    ]


def prove(
    home: Path,
    cases: Sequence[Case],
    *,
    times: int = 1,
    namespace: str = "dbos",
    tell: Callable[[str], None] = lambda _: None,
) -> ProofResult:
    """Play each case so many times, in the project in ``home``; ``tell`` of each."""
    failures: list[str] = []
    played: Counter[Case] = Counter()
    with _shared_database() as server, _opened(home) as lake, _Workers(home) as workers:
        matrix = _Matrix(home, lake, workers, server, namespace)
        for case in (case for _ in range(times) for case in cases):
            try:
                problems = matrix.play(case)
            except (WorkerDiedError, TimeoutError) as error:
                problems = [f"{type(error).__name__}: {error}"]
            failures += [f"{case}: {problem}" for problem in problems]
            played[case] += not problems
            tell(f"{case}: {problems or 'as it should be'}")
        failures += matrix.finish()
    details = "\n".join(f"{case.kind:<10} {case.point:<32} {played[case]} of {times}" for case in cases)
    return ProofResult("dbos matrix", len(cases) * times, failures, details)


@contextmanager
def _shared_database() -> Iterator[PostgresServer]:
    """Start a Postgres, and have every process of the project keep its journal there."""
    server = PostgresServer()
    variables = {"LAKEGATE_JOURNAL_URL": server.url, "LAKEGATE_JOURNAL_PASSWORD": f"env:{_PASSWORD}"}
    variables[_PASSWORD] = server.password
    before = {name: os.environ.get(name) for name in variables}
    try:
        server.start()
        os.environ.update(variables)
        yield server
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        server.remove()


@contextmanager
def _opened(home: Path) -> Iterator[Lake]:
    with connect(home, settings=load_settings(home)) as lake:
        yield lake


class _Matrix:
    """Plays cases, and knows what the table must hold."""

    def __init__(self, home: Path, lake: Lake, workers: _Workers, server: PostgresServer, namespace: str) -> None:
        self._home = home
        self._lake = lake
        self._workers = workers
        self._server = server
        self._namespace = namespace
        self._table = f"{namespace}.trips"
        self._numbers = count()
        self._expected: Counter[int] = Counter()
        self._branches = {ref.name for ref in lake.branches.list()}

    def play(self, case: Case) -> list[str]:
        """Play one case; return what is wrong with what became of it."""
        number = next(self._numbers)
        rows = trips(_ROWS, start=number * _ROWS, nulls=3 if case.kind == "rejected" else 0)
        path = write(self._home / "sources" / self._table / f"{number}.parquet", rows)
        checks = ["not_null(passengers)", "unique(id)"]
        order = Order(table=self._table, paths=[str(path)], checks=checks, on_failure="keep" if number % 2 else "drop")
        run_id = f"{self._namespace}-{number:04}"
        victim = self._workers.current()
        died = _die(victim, {"run_id": run_id, "order": order, "fault": case.point, "breaks": case.kind == "undone"})
        answer = self._workers.next().do({"run_id": run_id, "breaks": case.kind == "undone"})
        if case.kind == "published":
            self._expected.update(range(number * _ROWS, (number + 1) * _ROWS))
        problems = [*died, *self._judge(case, run_id, answer), *self._content_problems()]
        if number % _AGAIN == 0:
            problems += self._again(case, run_id, order, number)
        return problems

    def finish(self) -> list[str]:
        """Return what is wrong at the end: what another process would have to recover, and what is in the table."""
        left = [f"still to be recovered: {run.run_id}" for run in self._lake.recover()]
        return [*left, *self._content_problems()]

    def _judge(self, case: Case, run_id: str, answer: Mapping[str, Any]) -> Iterator[str]:
        workflow, status = _ENDS[case.kind]
        run = self._lake.run(run_id)
        outcome = answer["outcome"] or {}
        if (answer["workflow"], run.status) != (workflow, status):
            yield f"the workflow is {answer}, its run {run.status}, not {workflow} and {status}"
        if case.kind != "undone" and outcome.get("status") != status:
            yield f"the workflow's result is {outcome}"
        if case.kind == "rejected" and outcome.get("failures") != ["not_null(passengers): 3 of 7 rows"]:
            yield f"the recorded rejection says {outcome.get('failures')}"
        times = published_runs(self._lake, [self._table])[run_id]
        if times != int(case.kind == "published"):
            yield f"main has {times} commits of it"
        kept = {run.branch} if run.branch_kept else set()
        if kept and case.kind != "rejected":
            yield f"branch {run.branch} is kept"
        left = {ref.name for ref in self._lake.branches.list()} - self._branches
        if left != kept:
            yield f"of the branches {left} only {kept} should stand"
        if kept:
            self._lake.discard(run.branch)
        yield from (f"the lease of {run} is left" for run in self._server.run("SELECT run_id FROM leases"))
        claims = "SELECT run_id, path FROM claims WHERE state = 'claimed'"
        yield from (f"the claim {claim} is left" for claim in self._server.run(claims))

    def _again(self, case: Case, run_id: str, order: Order, number: int) -> Iterator[str]:
        """Start the workflow once more, and give the same files to another one."""
        worker = self._workers.current()
        started = worker.do({"run_id": run_id, "order": order, "breaks": case.kind == "undone"})
        if started["workflow"] != _ENDS[case.kind][0]:
            yield f"started again, it was {started}"
        order["on_failure"] = "drop"
        answer = worker.do({"run_id": f"{run_id}-again", "order": order})
        status = {"published": "skipped", "rejected": "rejected", "undone": "published"}[case.kind]
        if (answer["outcome"] or {}).get("status") != status:
            yield f"again: {answer}, not {status}"
        if case.kind == "undone":
            self._expected.update(range(number * _ROWS, (number + 1) * _ROWS))
        yield from self._content_problems()

    def _content_problems(self) -> list[str]:
        found = ids(self._lake, self._table)
        if found == self._expected:
            return []
        problem = f"too much: {dict(found - self._expected)}, too little: {dict(self._expected - found)}"
        self._expected = found
        return [problem]


def _die(worker: _DbosWorker, job: Mapping[str, Any]) -> list[str]:
    try:
        answer = worker.do(job)
    except WorkerDiedError as error:
        return [] if error.args == (-signal.SIGKILL,) else [f"the process ended with {error}"]
    return [f"the process was not killed: {answer}"]


class _DbosWorker(Worker):
    """A process of :mod:`proofs.dbos_worker`. Unlike other workers', its settings are those of this process."""

    module = "proofs.dbos_worker"
    program = warm.DBOS

    @staticmethod
    def variables() -> dict[str, str]:
        return {key: value for key, value in os.environ.items() if key != failpoints.VARIABLE}

    def do(self, job: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]  # other jobs, other answers
        return cast("dict[str, Any]", super().do(cast("Any", job)))


class _Workers(WorkersOf[_DbosWorker]):
    """The process that works, and one that is ready to take its place."""

    def __init__(self, home: Path) -> None:
        super().__init__(_DbosWorker, home)
        self._current: _DbosWorker | None = None

    def current(self) -> _DbosWorker:
        """Return the process that works; its DBOS is launched."""
        if self._current is None:
            self.next().do({})
        assert self._current is not None
        return self._current

    def next(self) -> _DbosWorker:
        """Return the process that is ready, whose DBOS is launched by its first job."""
        self._current = self.take()
        return self._current
