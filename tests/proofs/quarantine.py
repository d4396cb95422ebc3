"""Quarantine: random batches, checks, releases, fixes, drops and reverts, with kills between, against a count.

The count knows neither files nor snapshots: what each run adds to the table and to its quarantine table, and takes from
them, is worked out here in Python. After each operation, both tables must hold the sum of what the runs did that main
has, and no more.

Processes are killed at named points, or at any moment (``ANYTIME``); the same command is then given again, until one
has answered. It may find that it's done already, and must have been done exactly once.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyiceberg.table import StaticTable

from lakegate.errors import LakegateError
from lakegate.iceberg.files import local_path
from lakegate.lake import Lake, connect
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN
from lakegate.model.run import Run
from proofs.crash_matrix import CLIENT_KILLED
from proofs.harness import Worker, WorkerDiedError, Workers, journal_problems, kill_server
from proofs.result import ProofResult
from proofs.worker import Answer, Job
from support.e2e_support import write
from support.lakes import components_of

Kind = Literal["ingest", "release", "fix", "drop", "revert", "race", "clash"]
"""``fix``: rows are released with new values. ``race``: two processes release the same rows at once.
``clash``: one releases them, the other takes some, or the batch that they came with."""
Row = tuple[int, int | None, float | None]
Aside = tuple[Row, str, str | None]
"""A quarantined row, the run that set it aside, and the one that released it."""

_OF_A_SPLIT = ("after-quarantine", "after-leaving-out", "after-split")
_OF_A_TRANSACTION = tuple(point for point in CLIENT_KILLED if point not in ("after-claim", "before-stage"))
POINTS: Mapping[Kind, Sequence[str]] = {
    "ingest": (*CLIENT_KILLED, *_OF_A_SPLIT),
    "release": _OF_A_TRANSACTION,
    "fix": _OF_A_TRANSACTION,
    "drop": _OF_A_TRANSACTION,
    "revert": ("before-publish", "after-publish"),
}
_OUTCOMES: Mapping[str, str] = dict(CLIENT_KILLED) | dict.fromkeys(_OF_A_SPLIT, "undone")
_COLUMNS = ("id", "n", "fare")
_FIXES = {"fare": "abs(fare)", "n": "coalesce(n, 0)"}
ALL = 1_000_000
ANYTIME = "anytime"
_MOST_KILLS = 3
_SPARK_IS_KILLED = 0.02
_FIRST_GUESS_S = 5.0
_VERIFIED_EVERY = 10
_MOST_COMMITS = 20


@dataclass(frozen=True)
class Case:
    """An operation, and where the process that performs it is killed."""

    kind: Kind
    killed: str | None = None

    def __str__(self) -> str:
        return self.kind if self.killed is None else f"{self.kind} killed {self.killed}"


SHORT: Sequence[Case] = (
    Case("ingest"),
    Case("ingest", "after-leaving-out"),
    Case("race"),
    Case("fix", "before-commit"),
    Case("drop", "after-publish"),
    Case("revert"),
)


def every_kill() -> list[Case]:
    """Return each operation, killed at each point that it comes by, with a batch before it whose rows it can take."""
    killed = [Case(kind, point) for kind, points in POINTS.items() for point in points]
    return [case for one in killed for case in ((Case("ingest"), one) if one.kind != "ingest" else (one,))]


def some(number: int, seed: int) -> list[Case]:
    """Return random operations, of which some are killed."""
    chooser = random.Random(seed)
    often: Sequence[Kind] = ("ingest", "ingest", "ingest", "revert", "revert")
    kinds: Sequence[Kind] = (*often, "release", "fix", "drop", "race", "clash")
    found = []
    for _ in range(number):
        kind = chooser.choice(kinds)
        dies = kind in POINTS and chooser.random() < 0.3
        found.append(Case(kind, chooser.choice(POINTS[kind]) if dies else None))
    return found


def killed_anytime(number: int, seed: int) -> list[Case]:
    """Return random operations that are killed at random moments, and given again, but for those that clash."""
    chooser = random.Random(seed)
    often: Sequence[Kind] = ("ingest", "ingest", "ingest", "ingest", "release", "revert")
    kinds: Sequence[Kind] = (*often, "release", "fix", "drop", "revert", "clash")
    return [Case(chooser.choice(kinds), ANYTIME if chooser.random() < 0.8 else None) for _ in range(number)]


def prove(
    home: Path,
    cases: Sequence[Case],
    seed: int,
    *,
    namespace: str = "aside",
    within_s: float = inf,
    tell: Callable[[str], None] = lambda _: None,
) -> ProofResult:
    """Perform operations one by one, in the project in ``home``; ``tell`` of each.

    Args:
        within_s: Seconds after which none is begun.
    """
    failures: list[str] = []
    told: Counter[str] = Counter()
    until = time.monotonic() + within_s
    with Workers(home) as workers:
        proof = _Quarantine(home, workers, f"{namespace}.trips", random.Random(seed))
        for number, case in enumerate(cases):
            if time.monotonic() > until:
                cases = cases[:number]
                break
            try:
                outcome, problems = proof.play(case)
            except (LakegateError, WorkerDiedError, TimeoutError) as error:
                outcome, problems = "failed", [f"{type(error).__name__}: {error}"]
            failures += [f"{number} {case}: {problem}" for problem in problems]
            told[f"{case}: {outcome}"] += 1
            tell(f"{number} {case}: {outcome}{' (!)' if problems else ''}")
    told["(processes killed at random moments)"] = proof.kills
    return ProofResult("quarantine", len(cases), failures, "\n".join(f"{n:>4}  {what}" for what, n in told.items()))


@dataclass
class _Change:
    """What a run does to both tables: rows added, and rows taken away (negative)."""

    published: Counter[Row] = field(default_factory=Counter)
    aside: Counter[Aside] = field(default_factory=Counter)


_Planned = tuple[Job, Callable[[Run], _Change]]
"""What a process is asked to do, and what its run did, when all before it are noted."""


@dataclass(frozen=True)
class _Check:
    text: str
    fails: Callable[[Row, Counter[int], set[int]], bool]


_CHECKS = (
    _Check("not_null(n, name='absent', severity='quarantine')", lambda row, ids, known: row[1] is None),
    _Check(
        "in_range(fare, min=0, name='low', severity='quarantine')",
        lambda row, ids, known: row[2] is not None and row[2] < 0,
    ),
    _Check(
        "in_range(fare, max=2, where='n = 1', name='high', severity='quarantine')",
        lambda row, ids, known: row[1] == 1 and row[2] is not None and row[2] > 2,
    ),
    _Check("sql('id % 5 = 4', name='odd', severity='quarantine')", lambda row, ids, known: row[0] % 5 == 4),
    _Check("unique(id, name='twice', severity='quarantine')", lambda row, ids, known: ids[row[0]] > 1),
    _Check(
        "unique(id, scope='table', name='known', severity='quarantine')",
        lambda row, ids, known: ids[row[0]] > 1 or row[0] in known,
    ),
)
_PICKS: Mapping[str, Callable[[Row], bool]] = {
    "id % 2 = 0": lambda row: row[0] % 2 == 0,
    "fare < 0": lambda row: row[2] is not None and row[2] < 0,
    "n IS NULL": lambda row: row[1] is None,
    "TRUE": lambda _: True,
}


class _Quarantine:
    """Performs operations, and knows what both tables must hold."""

    def __init__(self, home: Path, workers: Workers, table: str, chooser: random.Random) -> None:
        self._home = home
        self._workers = workers
        self._table = table
        self._chooser = chooser
        self._changes: dict[str, _Change] = {}
        self._in_force: set[str] = set()
        self._reverts: set[str] = set()
        self._ingested: dict[str, tuple[list[str], list[Row]]] = {}
        self._files = 0
        self._played = 0
        self._seconds: dict[Kind, float] = {}
        self._worker: Worker | None = None
        self._died = False
        self._rival: _Planned | None = None
        self._answers: list[tuple[Job, Answer]] = []
        self.kills = 0

    def play(self, case: Case) -> tuple[str, list[str]]:
        """Perform one operation; return what became of it, and what is wrong with that."""
        with connect(self._home) as lake:
            known = {run.run_id for run in lake.runs(limit=ALL)}
            branches = {ref.name for ref in lake.branches.list()}
            self._rival = self._plan_rival(lake) if case.kind == "clash" else None
            planned = self._plan(lake, case)
            if planned is None:
                return "nothing to do", []
            job, change_of = planned
        self._refused, self._answers = "", []
        if case.kind == "race":
            problems = list(self._race(job))
        elif case.kind == "clash":
            problems = list(self._clash(job, dies=case.killed == ANYTIME))
        else:
            problems = list(self._at_random(case, job) if case.killed == ANYTIME else self._perform(case, job))
        with connect(self._home) as lake:
            lake.recover()
            new = [run for run in lake.runs(limit=ALL) if run.run_id not in known]
            outcome = self._note(lake, new, change_of)
            problems += self._unjustified()
            at_random = case.killed == ANYTIME and case.kind != "clash"
            if at_random and outcome != ("undone" if self._refused else "published"):
                problems.append(f"it was {outcome}, and answered {self._refused or 'that it is done'}")
            if (
                case.killed not in (None, ANYTIME)
                and self._died
                and not problems
                and outcome != _outcome_of(case.kind, case.killed)
            ):
                problems.append(f"it was {outcome}, not {_outcome_of(case.kind, case.killed)}")
            problems += [f"branch {ref.name} is left" for ref in lake.branches.list() if ref.name not in branches]
            # The commits of reverted runs stay in the history.
            found = journal_problems(lake, [self._table])
            problems += [one for one in found if not one.endswith("the journal says reverted")]
            problems += self._compare(lake)
            self._played += 1
            if self._played % _VERIFIED_EVERY == 0:
                problems += (f"verify: {finding.message}" for finding in lake.maintenance.verify(deep=True).findings)
        return (f"refused, {self._refused}" if self._refused else outcome), problems

    def _plan(self, lake: Lake, case: Case) -> _Planned | None:
        match case.kind:
            case "ingest":
                return self._ingest()
            case "revert":
                return self._revert(lake)
            case "race" | "clash":
                return self._take("release")
        return self._take(case.kind)

    def _plan_rival(self, lake: Lake) -> _Planned | None:
        """Plan what another process does to quarantined rows while some are released, or to the batch of some."""
        waiting = self._waiting("TRUE")
        if not waiting:
            return None
        match self._chooser.choice(("drop", "fix", "revert")):
            case "revert":
                return Job(revert=self._chooser.choice(waiting)[1]), lambda _: _Change()
            case kind:
                return self._take(kind)

    def _revert(self, lake: Lake) -> _Planned | None:
        published = [run.run_id for run in lake.runs(limit=ALL) if run.run_id in self._in_force]
        if not published:
            return None
        newest = self._chooser.random() < 0.7  # others are often refused
        return Job(revert=published[0] if newest else self._chooser.choice(published)), lambda _: _Change()

    def _take(self, kind: Kind) -> _Planned | None:
        """Plan to release, fix or drop some of the rows that wait."""
        possible = [where for where in _PICKS if self._waiting(where)]
        if not possible:
            return None
        where = self._chooser.choice(possible)
        job = Job(table=self._table, quarantine=kind, where=where)
        if kind == "fix":
            job["changes"] = dict(_FIXES)
        # Another process may have taken some of them: by then, what it did is noted.
        return job, lambda run: _taken(kind, self._waiting(where), run.run_id)

    def _waiting(self, where: str) -> list[Aside]:
        return [one for one in _present(self._sum().aside) if one[2] is None and _PICKS[where](one[0])]

    def _ingest(self) -> _Planned:
        pick, folder = self._chooser.choice, self._home / "sources" / self._table
        checks = self._chooser.sample(_CHECKS, self._chooser.randint(1, len(_CHECKS)))
        # Now and then all rows fail, or none.
        fares = pick(((-2.0, -1.0, 0.5, 3.0, None), (-2.0, -1.0), (0.5,)))
        rows: list[Row]
        rows = [(self._chooser.randrange(200), pick((None, 1, 2)), pick(fares)) for _ in range(pick((1, 8, 25)))]
        paths: list[str] = []
        size = pick((5, len(rows)))
        held = {path for run_id in self._ingested.keys() & self._in_force for path in self._ingested[run_id][0]}
        gone = [run_id for run_id, (given, _) in self._ingested.items() if held.isdisjoint(given)]
        if gone and self._chooser.random() < 0.3:  # files of a reverted run, once more
            paths, rows = self._ingested[pick(gone)]
        for start in range(0, 0 if paths else len(rows), size):
            columns = dict(zip(_COLUMNS, zip(*rows[start : start + size], strict=True), strict=True))
            kinds = (pa.int64(), pa.int64(), pa.float64())
            arrays = [pa.array(columns[name], kind) for name, kind in zip(_COLUMNS, kinds, strict=True)]
            path = write(folder / f"{self._files}.parquet", pa.table(arrays, list(_COLUMNS)))
            paths.append(str(path))
            self._files += 1
        ids, known = Counter(row[0] for row in rows), {row[0] for row in _present(self._sum().published)}
        failing = [any(check.fails(row, ids, known) for check in checks) for row in rows]

        def change(run: Run) -> _Change:
            self._ingested[run.run_id] = paths, rows
            return _Change(
                Counter(row for row, fails in zip(rows, failing, strict=True) if not fails),
                Counter((row, run.run_id, None) for row, fails in zip(rows, failing, strict=True) if fails),
            )

        return Job(table=self._table, paths=paths, checks=[check.text for check in checks]), change

    def _perform(self, case: Case, job: Job) -> Iterator[str]:
        """Do the job, and yield what is wrong with how that went."""
        self._died = False
        if case.killed is None:
            self._worker = self._worker or self._workers.start()
            answer = self._worker.do(job)
            if answer["code"] == "not-revertable" and "has since" in answer["message"]:
                self._refused = answer["message"]  # a later run has taken rows that it would remove
            elif answer["status"] != "published":
                yield f"it answered {answer}"
            return
        try:
            answer = self._workers.take().do({**job, "fault": f"{case.killed}:kill"})
        except WorkerDiedError as error:
            self._died = True
            if error.args != (-signal.SIGKILL,):
                yield f"the process ended with {error}"
        else:
            # A batch whose rows all pass comes by no point of a split.
            if case.killed not in _OF_A_SPLIT or answer["status"] != "published":
                yield f"it was not killed: {answer}"

    def _at_random(self, case: Case, job: Job) -> Iterator[str]:
        """Do the job, kill who does it, or Spark, and give it again, until a last process is let finish."""
        for _ in range(self._chooser.randint(1, _MOST_KILLS)):
            worker = self._workers.take()
            worker.wait_ready()
            kills_spark = self._chooser.random() < _SPARK_IS_KILLED
            kill = partial(kill_server, self._home, "spark") if kills_spark else worker.kill
            longest = 1.2 * self._seconds.get(case.kind, _FIRST_GUESS_S)
            killer = threading.Timer(self._chooser.uniform(0, longest), self._kill, [kill])
            killer.start()
            try:
                answer = worker.do(job)
            except WorkerDiedError:
                pass
            else:
                if answer["status"] == "published":
                    self._seconds[case.kind] = answer["seconds"]
                if answer["code"] == "internal" or "Internal error" in answer["message"]:
                    yield f"it answered {answer}"
            killer.cancel()
            killer.join()
            if kills_spark:
                self._worker = None  # its session ended, too
        self._worker = self._worker or self._workers.start()
        answer = self._worker.do(job)
        if answer["status"] == "error" and answer["code"] not in ("input", "not-revertable"):
            yield f"it answered {answer}"
        # What another process has done is an error, too, but not one that leaves it undone.
        if answer["code"] == "not-revertable":
            self._refused = answer["message"]

    def _kill(self, kill: Callable[[], None]) -> None:
        self.kills += 1
        kill()

    def _two(self) -> Sequence[Worker]:
        workers = [self._workers.start(), self._workers.start()]
        for worker in workers:
            worker.wait_ready()
        return workers

    def _race(self, job: Job) -> Iterator[str]:
        workers = self._two()
        for worker in workers:
            worker.begin(job)
        answers: list[Answer] = sorted((worker.answer() for worker in workers), key=lambda one: one["status"])
        if [one["status"] for one in answers] != ["error", "published"] or "waits in quarantine" not in answers[0][
            "message"
        ]:
            yield f"they answered {answers}"
        for worker in workers:
            worker.end()

    def _clash(self, job: Job, *, dies: bool) -> Iterator[str]:
        """Have two processes at the same rows at once, and yield answers but "done" and "nothing to do"."""
        workers = self._two()
        killers = [
            threading.Timer(self._chooser.uniform(0, 1.5 * _FIRST_GUESS_S), self._kill, [worker.kill])
            for worker in workers
            if dies and self._chooser.random() < 0.7
        ]
        for killer in killers:
            killer.start()
        jobs = [job, job if self._rival is None else self._rival[0]]
        for worker, given in zip(workers, jobs, strict=True):
            with suppress(WorkerDiedError):
                worker.begin(given)
        for worker, given in zip(workers, jobs, strict=True):
            with suppress(WorkerDiedError):
                self._answers.append((given, worker.answer()))
        for killer in killers:
            killer.cancel()
            killer.join()
        for worker in workers:
            worker.end()
        for _, answer in self._answers:
            if answer["status"] == "error" and answer["code"] not in ("input", "not-revertable"):
                yield f"one answered {answer}"
        if not dies and all(answer["status"] == "error" for _, answer in self._answers):
            yield f"both answered {self._answers}"

    def _unjustified(self) -> Iterator[str]:
        """Yield answers of processes that were at the same rows which do not fit what came of it."""
        for job, answer in self._answers:
            done = answer["run_id"] in self._changes or answer["run_id"] in self._reverts
            if answer["status"] == "published" and not done:
                yield f"it answered {answer}"
            if answer["status"] == "error" and "where" in job and (left := self._waiting(job["where"])):
                yield f"it answered {answer}, though {left} wait"

    def _note(self, lake: Lake, new: Sequence[Run], change_of: Callable[[Run], _Change]) -> str:
        # Of two at once, one may have been reverted by the other.
        published = {run.publication.commit: run for run in new if run.publication is not None}
        commits = [commit.hash for commit in lake.log(limit=_MOST_COMMITS, operations=False)]
        for run in (published[commit] for commit in reversed(commits) if commit in published):
            if run.kind == "revert":
                self._reverts.add(run.run_id)
                self._in_force.difference_update(run.reverts)
                continue
            is_release = (run.name or "").startswith("release")
            did = self._rival[1] if self._rival is not None and not is_release else change_of
            self._changes[run.run_id] = did(run)
            self._in_force.add(run.run_id)
        return "published" if published else "undone"

    def _compare(self, lake: Lake) -> Iterator[str]:
        wanted, aside = self._sum(), f"{self._table}__quarantine"
        found = Counter((row["id"], row["n"], row["fare"]) for row in _rows(lake, self._table))
        yield from _differences(self._table, wanted.published, found)
        rows = _rows(lake, aside)
        held = Counter(((row["id"], row["n"], row["fare"]), row["_run_id"], row["_released_by"]) for row in rows)
        yield from _differences(aside, wanted.aside, held)
        ids = Counter(row["_quarantine_id"] for row in rows)
        yield from (f"{aside} has {number} rows of one id" for number in ids.values() if number > 1)
        waiting = sum(1 for one in _present(wanted.aside) if one[2] is None)
        listed = sum(one.waiting for one in lake.quarantine.list() if one.table == self._table)
        if listed != waiting:
            yield f"quarantine list counts {listed} that wait, not {waiting}"

    def _sum(self) -> _Change:
        total = _Change()
        for change in (self._changes[run_id] for run_id in self._in_force):
            total.published.update(change.published)
            total.aside.update(change.aside)
        return total


def _outcome_of(kind: Kind, killed: str) -> str:
    # A revert prepares nothing that could be published for it: before its commit, it's undone.
    return "undone" if (kind, killed) == ("revert", "before-publish") else _OUTCOMES[killed]


def _taken(kind: Kind, chosen: Sequence[Aside], run_id: str) -> _Change:
    gone = Counter({one: -number for one, number in Counter(chosen).items()})
    if kind == "drop":
        return _Change(aside=gone)
    for row, by, _ in chosen:
        gone[row, by, run_id] += 1
    rows = [(id_, n or 0, None if fare is None else abs(fare)) for (id_, n, fare), *_ in chosen]
    return _Change(Counter(rows if kind == "fix" else (one[0] for one in chosen)), gone)


def _present(counts: Counter[Any]) -> Iterable[Any]:
    return [one for one, number in counts.items() for _ in range(number)]


def _rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    """Return a table's rows on main, as PyIceberg reads them; none when there is no table."""
    context = components_of(lake).context
    pointer = context.catalog.get_table(TableIdentifier.parse(table), context.catalog.get_ref(MAIN))
    if pointer is None:
        return []
    found: list[dict[str, Any]] = (
        StaticTable.from_metadata(str(local_path(pointer.metadata_location))).scan().to_arrow().to_pylist()
    )
    return found


def _differences(table: str, wanted: Counter[Any], found: Counter[Any]) -> Iterator[str]:
    wanted = Counter(_present(wanted))
    if wanted != found:
        yield f"{table} has {dict(found - wanted)} too much and lacks {dict(wanted - found)}"
