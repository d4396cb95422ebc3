"""The crash matrix: the client, Nessie or Spark is killed at every point of every kind of run.

Then the servers are started again, and another process recovers: each row of the batch is there once or not at all,
all tables of a transaction alike, no branch is left that nobody answers for, the journal says what main says, and the
same files given again are ingested exactly if they had not been.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from pathlib import Path
from typing import Literal, get_args

from lakegate.errors import (
    AlreadyPublishedError,
    ConflictError,
    LakegateError,
    NotReplayableError,
    OutcomeUnknownError,
)
from lakegate.lake import Lake, connect
from lakegate.model.run import Run
from lakegate.wap.failpoints import POINTS, FaultPoint
from proofs.harness import (
    Worker,
    WorkerDiedError,
    Workers,
    ids,
    journal_problems,
    kill_server,
    published_runs,
)
from proofs.result import ProofResult
from proofs.worker import Job
from support.e2e_support import trips, write_trips

Kind = Literal["append", "create", "multi-table"]
Victim = Literal["client", "nessie", "spark"]
Outcome = Literal["published", "undone", "kept", "not on the way"]
"""``kept``: not published, and the branch stands for the user, who was told so and may publish or discard it."""

KINDS: tuple[Kind, ...] = get_args(Kind)
VICTIMS: tuple[Victim, ...] = get_args(Victim)
ROWS = 7
ALL = 1_000_000
NOT_ON_THE_WAY: frozenset[tuple[FaultPoint, Kind]] = frozenset(
    {("after-claim", "multi-table"), ("before-stage", "multi-table")}
)
_USERS_CHOICE = {
    error.code for error in (ConflictError, AlreadyPublishedError, NotReplayableError, OutcomeUnknownError)
}
# What is to become of a run whose client was killed there: what was audited is published, what was not is undone.
CLIENT_KILLED: Mapping[FaultPoint, Outcome] = {
    "after-claim": "undone",
    "before-stage": "undone",
    "after-branch": "undone",
    "after-stage": "undone",
    "after-audit": "undone",
    "before-publish": "published",
    "before-commit": "published",
    "after-publish": "published",
    "after-branch-delete": "published",
}


@dataclass(frozen=True)
class Case:
    """Who is killed where, in which kind of run."""

    victim: Victim
    point: FaultPoint
    kind: Kind

    def __str__(self) -> str:
        return f"{self.victim} killed {self.point} of {self.kind}"


def all_cases() -> list[Case]:
    """Return the whole matrix."""
    return [Case(victim, point, kind) for victim, point, kind in product(VICTIMS, POINTS, KINDS)]


def some_client_cases(seed: int) -> list[Case]:
    """Return each point once, with one of the kinds that come by there, and each kind."""
    chooser = random.Random(seed)
    kinds = [*KINDS, *KINDS, *KINDS]
    while any((point, kind) in NOT_ON_THE_WAY for point, kind in zip(POINTS, kinds, strict=True)):
        chooser.shuffle(kinds)
    return [Case("client", point, kind) for point, kind in zip(POINTS, kinds, strict=True)]


def some_server_cases(seed: int) -> list[Case]:
    """Return one case for each server."""
    chooser = random.Random(seed)
    cases = [case for case in all_cases() if (case.point, case.kind) not in NOT_ON_THE_WAY]
    return [chooser.choice([case for case in cases if case.victim == victim]) for victim in ("nessie", "spark")]


def prove(
    home: Path, cases: Sequence[Case], *, namespace: str = "crash", tell: Callable[[str], None] = lambda _: None
) -> ProofResult:
    """Play the cases one by one, in the project in ``home``, whose servers may be killed; ``tell`` of each."""
    outcomes: dict[Case, str] = {}
    failures: list[str] = []
    with Workers(home) as workers:
        matrix = _Matrix(home, workers, namespace)
        for case in cases:
            try:
                outcomes[case], problems = matrix.play(case)
            except (LakegateError, WorkerDiedError, TimeoutError) as error:
                outcomes[case], problems = "failed", [f"{type(error).__name__}: {error}"]
            failures += [f"{case}: {problem}" for problem in problems]
            if problems:
                outcomes[case] += " (!)"
            tell(f"{case}: {outcomes[case]}")
        failures += matrix.finish()
    return ProofResult("crash matrix", len(cases), failures, report(outcomes))


def report(outcomes: Mapping[Case, str]) -> str:
    """Return points x outcomes as text, a column for each victim and kind that was tried."""
    columns = [pair for pair in product(VICTIMS, KINDS) if any((case.victim, case.kind) == pair for case in outcomes)]
    head = ["point", *(f"{victim}: {kind}" for victim, kind in columns)]
    rows = [[point, *(outcomes.get(Case(victim, point, kind), "") for victim, kind in columns)] for point in POINTS]
    table = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)


class _Matrix:
    """Plays cases, and knows what each table must hold."""

    def __init__(self, home: Path, workers: Workers, namespace: str) -> None:
        self._home = home
        self._workers = workers
        self._namespace = namespace
        self._numbers = count()
        self._expected: dict[str, Counter[int]] = {}
        self._begun = False
        self._other: Worker | None = None

    def play(self, case: Case) -> tuple[Outcome, list[str]]:
        """Play one case; return what became of the batch, and what is wrong with that."""
        number = next(self._numbers)
        job = self._job(case, number)
        tables = _tables(job)
        with connect(self._home) as lake:
            self._begin(lake)
            known = {run.run_id for run in lake.runs(limit=ALL)}
            branches = {ref.name for ref in lake.branches.list()}
        died = self._perform(case, job)
        problems = [] if died is None else [died]
        with connect(self._home) as lake:
            lake.recover()
            runs = [run for run in lake.runs(limit=ALL) if run.run_id not in known]
            left = {ref.name for ref in lake.branches.list()} - branches
            kept = [run for run in runs if run.branch in left]
            outcome, found = self._judge(lake, case, runs, number, tables, kept=bool(kept))
            problems += found
            problems += _leaked(left, kept)
            problems += [f"still to be recovered: {run.run_id}" for run in lake.recover()]
            problems += journal_problems(lake, tables)
        problems += self._again(case, job, number, outcome)
        with connect(self._home) as lake:
            problems += self._settle_kept(lake, kept)
            problems += journal_problems(lake, tables)
            problems += self._content_problems(lake, tables)
        return outcome, problems

    def finish(self) -> list[str]:
        """Return what is wrong with any of the tables at the end."""
        with connect(self._home) as lake:
            return list(self._content_problems(lake, list(self._expected)))

    def _begin(self, lake: Lake) -> None:
        if self._begun:
            return
        self._begun = True
        with lake.transaction("begin") as tx:
            for name in ("a", "b"):
                tx.append(f"{self._namespace}.{name}", trips(1, start=-1))
        self._expected = {f"{self._namespace}.{name}": Counter([-1]) for name in ("a", "b")}

    def _job(self, case: Case, number: int) -> Job:
        start, kind = number * ROWS, case.kind
        # Nobody is killed in the middle of an audit: that it asks Spark matters when Spark is gone, and takes a query.
        checks = ["not_null(id)" if case.victim == "client" else "unique(id)"]
        created = f"{self._namespace}.created_{number}"
        if kind == "multi-table":
            tables = (f"{self._namespace}.a", f"{self._namespace}.b", created)
            return Job(appends=dict.fromkeys(tables, (start, ROWS)), checks=checks)
        source = write_trips(self._home / "sources" / self._namespace / f"{number}.parquet", ROWS, start=start)
        table = f"{self._namespace}.a" if kind == "append" else created
        return Job(table=table, paths=[str(source)], checks=checks, on_busy="skip")

    def _perform(self, case: Case, job: Job) -> str | None:
        """Do the job with its fault; return what is wrong with how that went."""
        worker = self._workers.take()
        on_the_way = (case.point, case.kind) not in NOT_ON_THE_WAY
        if case.victim == "client":
            try:
                answer = worker.do({**job, "fault": f"{case.point}:kill"})
            except WorkerDiedError as error:
                return None if on_the_way and error.args == (-signal.SIGKILL,) else f"the client ended with {error}"
            return f"the client was not killed: {answer}" if on_the_way else None
        worker.begin({**job, "fault": f"{case.point}:pause"})
        if worker.wait_stopped() != on_the_way:
            return "the client did not stop" if on_the_way else "the client stopped where it should not come by"
        if on_the_way:
            kill_server(self._home, case.victim)
            worker.resume()
        answer = worker.answer()
        worker.end()
        internal = answer["code"] == "internal" or "Internal error" in answer["message"]
        return f"the client answered {answer}" if internal else None

    def _judge(
        self, lake: Lake, case: Case, runs: Sequence[Run], number: int, tables: Sequence[str], *, kept: bool
    ) -> tuple[Outcome, list[str]]:
        there = [_rows(number) <= ids(lake, table) for table in tables]
        published = all(there)
        problems = [] if len(set(there)) == 1 else [f"of {', '.join(tables)} only some have the rows: {there}"]
        if published:
            for table in tables:
                self._expected.setdefault(table, Counter()).update(_rows(number))
        problems += self._content_problems(lake, tables)
        commits = published_runs(lake, tables)
        statuses = [run.status for run in runs]
        if statuses not in (["published"], ["failed"]) or (statuses == ["published"]) != published:
            problems.append(f"the journal says {statuses} of it; its rows are {'there' if published else 'not there'}")
        if sum(commits[run.run_id] for run in runs) != int(published):
            problems.append(f"main has {commits} commits of it")
        outcome: Outcome = "published" if published else "kept" if kept else "undone"
        if (case.point, case.kind) in NOT_ON_THE_WAY:
            problems += [] if published else [f"it was {outcome} though nobody was killed"]
            return "not on the way", problems
        if case.victim == "client" and outcome != CLIENT_KILLED[case.point]:
            problems.append(f"it was {outcome}, not {CLIENT_KILLED[case.point]}")
        return outcome, problems

    def _again(self, case: Case, job: Job, number: int, outcome: Outcome) -> list[str]:
        """Give the same files once more; a transaction, which cannot know its rows again, only if it was lost."""
        published = outcome in ("published", "not on the way")
        if published and case.kind == "multi-table":
            return []
        if case.victim != "client":
            self._other = None  # its sessions ended with the server
        self._other = self._other or self._workers.start()
        answer = self._other.do(job)
        if not published:
            for table in _tables(job):
                self._expected.setdefault(table, Counter()).update(_rows(number))
        expected = "skipped" if published else "published"
        return [] if answer["status"] == expected else [f"again: {answer}, not {expected}"]

    def _settle_kept(self, lake: Lake, kept: Sequence[Run]) -> Iterator[str]:
        """Try to publish branches that were kept, whose files are published by now, and drop them."""
        for run in kept:
            if run.kind == "ingest":
                try:
                    lake.publish(run.branch)
                except LakegateError:
                    pass
                else:
                    yield f"branch {run.branch} was published though its files had been"
            if any(ref.name == run.branch for ref in lake.branches.list()):
                lake.discard(run.branch)

    def _content_problems(self, lake: Lake, tables: Sequence[str]) -> Iterator[str]:
        for table in tables:
            expected, found = self._expected.get(table, Counter()), ids(lake, table)
            if found != expected:
                yield f"{table} has {dict(found - expected)} too much and lacks {dict(expected - found)}"
                self._expected[table] = found


def _leaked(left: Collection[str], kept: Sequence[Run]) -> Iterator[str]:
    """Yield which branches are left that nobody answers for: a run has ended, and its branch was to stand no longer."""
    for_the_user = {run.branch for run in kept if run.error is not None and run.error.code in _USERS_CHOICE}
    yield from (f"branch {branch} is left" for branch in left if branch not in for_the_user)


def _tables(job: Job) -> list[str]:
    return [job["table"]] if "table" in job else list(job["appends"])


def _rows(number: int) -> Counter[int]:
    return Counter(range(number * ROWS, (number + 1) * ROWS))
