"""Everything that changes tables, at once, while processes are killed and the catalog is away: is there a serial order?

Workers ingest, update rows, run transactions over several tables, have PyIceberg write to a branch through the gate,
revert, restore and compact; somebody who has never
heard of lakegate appends on ``main``. Some are killed, at a point on the way or at any moment, and to some the catalog
is on a bad line. Two readers look at all tables at ``main``'s head again and again, one by lakegate and one by
PyIceberg. What all of them asked for, when, and what came of it, is a history (:mod:`proofs.history`). Only that is
looked at to find an order (:mod:`proofs.serializability`): not the journal, and not the catalog's log.

``BAGS`` take batches and transactions; what they hold can be reverted and restored. Rows of ``registers`` are
overwritten; to those of ``lists`` a transaction adds what it has read there, and a word.

``HOT`` is all that at one table: many ingest into it, delete batches, and upsert its rows below zero, which are
registers; others compact it without a pause. Nobody may starve.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

from lakegate.errors import LeaseLostError, OutcomeUnknownError
from lakegate.iceberg.files import local_path
from lakegate.lake import Lake, connect
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, TablePointer
from lakegate.spark.engine import SparkEngine
from lakegate.spark.sessions import CATALOG
from lakegate.table import Table
from lakegate.wap.failpoints import POINTS
from proofs.compaction import unfair
from proofs.harness import Worker, WorkerDiedError, Workers, journal_problems
from proofs.history import Operation, Pending, Recorder, Step, to_json_lines
from proofs.result import ProofResult
from proofs.serializability import check
from proofs.worker import Answer, Job
from support.e2e_support import trips, write, write_trips
from support.lakes import components_of

BAGS = ("bag_a", "bag_b")
KEYS = range(3)
_ROWS = 2
_UNKNOWN = ("", OutcomeUnknownError.code, LeaseLostError.code)
_LONGEST_TOLD = 1_500
_MOST_TOLD = 10
_KINDS: Mapping[str, int] = {
    "ingest": 40,
    "transaction": 12,
    "gate": 12,
    "update": 8,
    "extend": 12,
    "revert": 12,
    "restore": 5,
    "compact": 5,
    "foreign commit": 6,
}
_HOT_KINDS: Mapping[str, int] = {"ingest": 75, "upsert": 10, "delete": 7, "revert": 8}
_FIRST_COMPACTOR = 200
_WITHIN_S, _UPSERT_WITHIN_S = 240.0, 900.0
"""What changes rows is done three times if it must, each time after all that others do."""


@dataclass(frozen=True)
class Size:
    """How long a history is.

    Attributes:
        seconds: After so long, nobody begins anything new.
        operations: Nor after so many operations.
        workers: Processes at a time.
        kills: Of a hundred operations, how many kill their worker at a point on the way.
        kill_every_s: How often a worker is killed at any moment.
        faults: Of a hundred calls to the catalog, how many go wrong for every other worker.
        pause_s: Pause of a reader after each look.
        compactors: Processes that do nothing but compact the first of ``BAGS``; all else is done to that one, too.
        kinds: How often what is done.
    """

    seconds: float
    operations: int = 1_000_000
    workers: int = 6
    kills: int = 8
    kill_every_s: float = 15.0
    faults: int = 3
    pause_s: float = 0.5
    compactors: int = 0
    kinds: Mapping[str, int] = field(default_factory=lambda: _KINDS)


LONG = Size(seconds=600)
HOT = Size(seconds=1800, workers=16, faults=0, pause_s=2, compactors=1, kinds=_HOT_KINDS)
SHORT = Size(seconds=30, operations=14, workers=3, kills=15, kill_every_s=3600)


def prove(
    home: Path, size: Size = LONG, *, seed: int, namespace: str = "histories", keep: Path | None = None
) -> ProofResult:
    """Make a history in the project in ``home``, and check it.

    Args:
        home: The project.
        size: How long it is.
        seed: What is done in which order, as far as that can be told beforehand.
        namespace: Of the tables.
        keep: Folder to write the history to.
    """
    with connect(home) as lake, Workers(home) as workers:
        branches = {ref.name for ref in lake.branches.list()}
        history = _History(lake, workers, namespace, size, random.Random(seed))
        history.make()
        failures = list(journal_problems(lake, history.tables))
        failures += [f"branch {ref.name} is left" for ref in lake.branches.list() if ref.name not in branches]
    operations = history.recorder.operations
    if keep is not None:
        _write(operations, keep / f"history-{seed}")
    began = time.monotonic()
    verdict = check([one for one in operations if one.steps])
    seconds = time.monotonic() - began
    failures += [
        *history.problems,
        *history.unfair(),
        *(str(anomaly)[:_LONGEST_TOLD] for anomaly in verdict.anomalies[:_MOST_TOLD]),
    ]
    return ProofResult("histories", len(operations), failures, f"{history.details()}; checked in {seconds:.1f} s")


def _write(operations: Sequence[Operation], folder: Path) -> None:
    """Write a history as it is, and the parts that checkers of Jepsen's histories know."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = {one: None if one.end == inf else one.end for one in operations}
    lines = [json.dumps({**asdict(one), "end": ends[one]}) for one in sorted(operations, key=lambda one: one.start)]
    for name, written in (
        ("operations", lines),
        ("list-append", to_json_lines(operations)),
        ("rw-register", to_json_lines(operations, ("w", "get"))),
    ):
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in written), encoding="utf-8")


@dataclass(frozen=True)
class _Look:
    """What the tables held at a commit."""

    commit: str
    rows: Mapping[str, tuple[int, ...]]


@dataclass
class _History:
    lake: Lake
    workers: Workers
    namespace: str
    size: Size
    chooser: random.Random
    recorder: Recorder = field(default_factory=Recorder)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = [f"{self.namespace}.{name}" for name in (*BAGS, "registers", "lists")]
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._numbers = 0
        self._asked = 0
        self._published: list[tuple[str, tuple[Step, ...]]] = []
        self._again: list[tuple[Job, tuple[Step, ...]]] = []
        self._looks: list[_Look] = []
        self._busy: dict[int, Worker] = {}
        self._kills = 0
        self._answers: Counter[str] = Counter()
        self._waits: dict[int, list[float]] = defaultdict(list)
        self._compacted: list[float] = []

    def make(self) -> None:
        """Let everybody work until the time is over, settle what is left, and look a last time."""
        self._create()
        self._began = time.monotonic()
        others = [
            threading.Thread(target=self._look_again_and_again, args=args) for args in ((1, _own), (2, _pyiceberg))
        ]
        others.append(threading.Thread(target=self._kill_now_and_then))
        for thread in others:
            thread.start()
        try:
            numbers = [*range(100, 100 + self.size.workers)]
            numbers += range(_FIRST_COMPACTOR, _FIRST_COMPACTOR + self.size.compactors)
            with ThreadPoolExecutor(len(numbers)) as threads:
                for one in [threads.submit(self._work, number) for number in numbers]:
                    one.result()
        finally:
            self._over.set()
            for thread in others:
                thread.join()
        self.lake.recover()
        for run in self.lake.runs(status="failed", limit=10_000):
            if run.branch_kept:  # an opening that was never sealed, or a conflict: for people to look at
                self.lake.discard(run.branch)
        self.lake.maintenance.gc()  # drops what killed reverts announced
        for process, read in ((1, _own), (2, _pyiceberg)):
            self._look(process, read)

    def _create(self) -> None:
        rows = [{"k": key, "v": ""} for key in KEYS]
        with self.recorder.operation("create", 0) as one, self.lake.transaction("create") as tx:
            for bag in BAGS:
                steps, source = self._batch(bag)
                tx.append(f"{self.namespace}.{bag}", pq.read_table(source))
                tx.append(f"{self.namespace}.{bag}", _rows([-1 - key for key in KEYS], 0))
                one.steps.append(steps)
            for table in ("registers", "lists"):
                tx.append(f"{self.namespace}.{table}", rows)
            one.result = "ok"
        one.result = "ok"

    # Readers

    def _look_again_and_again(self, process: int, read: _Read) -> None:
        while not self._over.wait(self.size.pause_s):
            self._look(process, read)

    def _look(self, process: int, read: _Read) -> None:
        context = components_of(self.lake).context
        with self.recorder.operation("read", process) as one:
            head, found = context.catalog.get_ref_with_tables(
                MAIN, [TableIdentifier.parse(name) for name in self.tables]
            )
            one.end, one.result = self.recorder.now(), "ok"  # what a commit holds doesn't change any more
            rows = {}
            for pointer in found.values():
                assert pointer is not None
                name = pointer.table.name
                there = read(self.lake, pointer).to_pylist()
                if name in BAGS:
                    rows[name] = tuple(row["id"] for row in there if row["id"] >= 0)
                    one.steps.append(Step("rows", name, rows[name]))
                    below = [row for row in there if row["id"] < 0]
                    one.steps.extend(Step("get", f"{name} {row['id']}", row["passengers"] or None) for row in below)
                    if sorted(row["id"] for row in below) != [-1 - key for key in reversed(KEYS)]:
                        self.problems.append(f"{name} at {head.hash} has the rows {below}")
                else:
                    one.steps.extend(_read_row(name, row["k"], row["v"]) for row in there)
        with self._lock:
            self._looks.append(_Look(head.hash, rows))

    # Workers

    def _work(self, number: int) -> None:
        worker = self._start(number)
        while (chosen := self._choose(number)) is not None:
            name, job, steps = chosen
            with self.recorder.operation(name, number, *steps) as one:
                if name == "foreign commit":
                    self._insert(job, one)
                    continue
                with self._lock:
                    self._busy[number] = worker
                try:
                    answer = worker.do(job, within_s=_UPSERT_WITHIN_S if "key" in job else _WITHIN_S)
                except (WorkerDiedError, TimeoutError) as error:
                    answer = None
                    if error.args != (-signal.SIGKILL,):
                        self.problems.append(f"{name}: a worker ended by itself, or was silent: {error!r}")
                finally:
                    with self._lock:
                        del self._busy[number]
                self._note(one, name, number, job, answer)
            if answer is None:
                with self.recorder.operation("crash", number) as crash:
                    crash.result = "ok"
                worker = self._start(number)

    def _start(self, number: int) -> Worker:
        worker = self.workers.take()
        if number % 2:
            with suppress(WorkerDiedError):
                worker.do(Job(table="", paths=[], faults=self.size.faults, seed=self.chooser.randrange(2**32)))
        return worker

    def _choose(self, number: int) -> tuple[str, Job, tuple[Step, ...]] | None:
        """Return what to do next: its name, the job, and what that does if it works; ``None`` at the end."""
        with self._lock:
            self._asked += 1
            if self._asked > self.size.operations or time.monotonic() - self._began > self.size.seconds:
                return None
            if self._again and number < _FIRST_COMPACTOR and self.chooser.random() < 0.5:
                job, steps = self._again.pop()
                return "ingest again", job, steps
            kinds = self.size.kinds if number < _FIRST_COMPACTOR else {"compact": 1}
            ((name),) = self.chooser.choices(list(kinds), list(kinds.values()))
            job, steps = self._job(name)
            if self.chooser.randrange(100) < self.size.kills:
                job["fault"] = f"{self.chooser.choice(POINTS)}:kill"
            return name, job, steps

    def _job(self, name: str) -> tuple[Job, tuple[Step, ...]]:  # noqa: PLR0911 - one for each kind of job
        bag = BAGS[0] if self.size.compactors else self.chooser.choice(BAGS)
        table = f"{self.namespace}.{bag}"
        match name:
            case "revert" if self._published:
                # What was compacted since can't be reverted: beside a compactor, the newest one has to do.
                last = len(self._published) - 1
                run_id, steps = self._published.pop(last if self.size.compactors else self.chooser.randint(0, last))
                return Job(revert=run_id), tuple(Step("remove", key, value) for _, key, value in steps)
            case "restore" if self._looks:
                look = self.chooser.choice(self._looks[-10:])
                return Job(table=table, restore=look.commit), (Step("reset", bag, look.rows[bag]),)
            case "delete" if self._published:
                _, (added,) = self._published.pop(self.chooser.randrange(len(self._published)))
                return self._upsert(table, added.value, None), (Step("remove", bag, added.value),)
            case "upsert":
                keys, number = self.chooser.sample([-1 - key for key in KEYS], 2), self._number()
                return self._upsert(table, keys, number), tuple(Step("w", f"{bag} {key}", number) for key in keys)
            case "compact":
                return Job(optimize=table), ()
            case "update" | "extend":
                return self._row_job(name)
            case "transaction" | "gate":
                batches = {each: self._ids() for each in BAGS}
                appends = {f"{self.namespace}.{each}": (ids[0], _ROWS) for each, ids in batches.items()}
                steps = tuple(Step("add", each, ids) for each, ids in batches.items())
                return Job(appends=appends, gate=name == "gate"), steps
        step, source = self._batch(bag)
        return Job(table=table, paths=[str(source)], checks=["not_null(id)"], on_busy="wait"), (step,)

    def _upsert(self, table: str, ids: Sequence[int], passengers: int | None) -> Job:
        """Write rows over those with these ids, or delete them if they have no passengers."""
        source = self.lake.home / "sources" / self.namespace / f"upsert-{self._number()}.parquet"
        return Job(table=table, paths=[str(write(source, _rows(ids, passengers)))], key="id")

    def _row_job(self, name: str) -> tuple[Job, tuple[Step, ...]]:
        chosen, number = self.chooser.sample(KEYS, 2), self._number()
        if name == "extend":
            extend = [(f"{self.namespace}.lists", key) for key in chosen]
            return Job(extend=extend, word=str(number)), tuple(Step("append", f"lists {key}", number) for key in chosen)
        rows = [{"k": key, "v": str(number)} for key in chosen]
        return Job(table=f"{self.namespace}.registers", rows=rows), tuple(
            Step("w", f"registers {key}", number) for key in chosen
        )

    def _batch(self, bag: str) -> tuple[Step, Path]:
        ids = self._ids()
        folder = self.lake.home / "sources" / self.namespace
        return Step("add", bag, ids), write_trips(folder / f"{ids[0]}.parquet", _ROWS, start=ids[0])

    def _ids(self) -> tuple[int, ...]:
        first = self._number() * _ROWS
        return tuple(range(first, first + _ROWS))

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _note(self, one: Pending, name: str, number: int, job: Job, answer: Answer | None) -> None:
        """Note how an operation ended: what failed is held to having changed nothing."""
        steps = tuple(one.steps)
        code = "" if answer is None else answer["code"] or answer["status"]
        with self._lock:
            self._answers[f"{name} {code or 'killed'}"] += 1
        if answer is None or code in _UNKNOWN:
            if "paths" in job and "key" not in job:
                with self._lock:
                    self._again.append((Job(**{**job, "fault": ""}), steps))
            return
        one.result = "ok" if answer["status"] in ("published", "skipped") else "failed"
        if answer["status"] == "published":
            with self._lock:
                if name == "compact":
                    self._compacted.append(time.monotonic() - self._began)
                elif "key" not in job:
                    self._waits[number].append(answer["seconds"])
        if answer["status"] == "skipped" and name != "restore":
            one.steps.clear()
        if name == "extend" and one.result == "ok":
            read = [
                _read_row("lists", key, text) for (_, key), text in zip(job["extend"], answer["found"], strict=True)
            ]
            one.steps[:0] = read
        if answer["status"] == "published" and name in ("ingest", "transaction", "gate"):
            assert answer["run_id"] is not None
            with self._lock:
                self._published.append((answer["run_id"], steps))

    def _insert(self, job: Job, one: Pending) -> None:
        """Append on main with Spark alone, as those do who don't know lakegate."""
        engine = components_of(self.lake).engine
        assert isinstance(engine, SparkEngine)
        table = TableIdentifier.parse(job["table"]).sql(CATALOG)
        values = ", ".join(f"({number}, 0, NULL, 'foreign')" for number in one.steps[0].value)
        # Its answer may be an error although the commit is made: Spark has many names for that.
        with suppress(Exception):
            engine.session.sql(f"INSERT INTO {table} VALUES {values}").collect()
            one.result = "ok"
        with self._lock:
            self._answers[f"foreign commit {one.result}"] += 1

    def _kill_now_and_then(self) -> None:
        while not self._over.wait(self.size.kill_every_s):
            with self._lock:
                if self._busy:
                    self._kills += 1
                    self.chooser.choice(sorted(self._busy.items()))[1].kill()

    def unfair(self) -> Iterator[str]:
        """Yield who starved, where all wait for one table."""
        if self.size.compactors:
            yield from unfair(list(self._waits.values()), self._compacted, self.size.seconds)

    def details(self) -> str:
        """Return figures for people."""
        reads = sum(one.name == "read" for one in self.recorder.operations)
        answers = ", ".join(f"{count} {name}" for name, count in sorted(self._answers.items()))
        seconds = max(one.start for one in self.recorder.operations)
        waits = sorted(wait for each in self._waits.values() for wait in each)
        counts = sorted(len(each) for each in self._waits.values())
        longest = max(after - before for before, after in pairwise([0.0, *self._compacted, seconds]))
        return (
            f"{seconds:.0f} s, {reads} reads of all tables, {self._kills} kills at any moment; {answers}; {len(waits)} "
            f"publishes, {counts[0]} to {counts[-1]} a process, each in {median(waits):.1f} s, 99 of 100 in "
            f"{waits[len(waits) * 99 // 100]:.1f} s, all in {waits[-1]:.1f} s; at most {longest:.0f} s without a "
            "compaction"
        )


def _rows(ids: Sequence[int], passengers: int | None) -> pa.Table:
    rows = trips(len(ids)).set_column(0, "id", pa.array(ids, pa.int64()))
    return rows.set_column(1, "passengers", pa.array([passengers] * len(ids), pa.int32()))


_Read = Callable[[Lake, TablePointer], pa.Table]


def _own(lake: Lake, pointer: TablePointer) -> pa.Table:
    columns = ("id", "passengers") if pointer.table.name in BAGS else ("k", "v")
    return Table(pointer, components_of(lake).reader).to_arrow(columns=columns)


def _pyiceberg(lake: Lake, pointer: TablePointer) -> pa.Table:
    columns: Any = ("id", "passengers") if pointer.table.name in BAGS else ("k", "v")
    return (
        StaticTable.from_metadata(str(local_path(pointer.metadata_location))).scan(selected_fields=columns).to_arrow()
    )


def _read_row(table: str, key: int, text: str) -> Step:
    words = tuple(int(word) for word in text.split())
    if table == "lists":
        return Step("r", f"lists {key}", words)
    return Step("get", f"registers {key}", words[0] if words else None)
