"""The function, its queue and AWS's pollers in virtual time: outages of days take seconds.

The function's own code decides: what it is called with is read, looked at, put into chunks, noted and answered by
``lakegate.integrations.aws_lambda``; only time, queue, Spark and catalog are played. What SQS and Lambda do is as
AWS documents it ("Using Lambda with Amazon SQS", "Amazon SQS visibility timeout"):

- A fetched message is invisible for the visibility timeout, or as long as ChangeMessageVisibility says since. One
  that was fetched ``max_receives`` times goes to the dead letters instead of being fetched again. Order is by chance,
  now and then a message comes twice, and after 14 days it is gone.
- Each poller gathers up to ``batch`` messages, ten at a time, for ``window_s`` seconds at most, and calls the function;
  there are five of them at first, 300 more each minute, up to ``concurrency``. A call that is throttled is tried again
  until its messages are visible again.
- What the answer doesn't name is deleted. Of a function that fails or is killed, nothing is.

The numbers are by default those of the template. Spark's processors are shared by all runs at work. It starts as with
``--schedule``: it is away until ``--starts`` seconds after the first file, and the function tries meanwhile.

Not modelled: alarms, and that Spark stops again; that the age which SQS tells of leaves out messages received three
times; the bound of 120,000 messages in flight; memory; what Spark kept of a run that was cut off (it starts anew).

``PYTHONPATH=tests python -m support.lambda_simulation --files 10000 --tables 200 --outage 3600 --batch 50``
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import heapq
import itertools
import json
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Literal, cast
from unittest.mock import patch

import boto3
from greenlet import getcurrent, greenlet

from lakegate.config import Settings
from lakegate.errors import (
    CatalogUnavailableError,
    EngineError,
    EngineUnavailableError,
    NotFoundError,
    RetryableError,
    SourceError,
)
from lakegate.integrations.aws.parameters import defaults, template
from lakegate.integrations.aws_lambda import function, work
from lakegate.integrations.aws_lambda.work import Function
from lakegate.loading.file_outcomes import Clock
from lakegate.model.batch import Batch, KnownFile, SourceFile
from lakegate.model.downstream import GivenUpFile
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import IngestRequest, WriteMode
from lakegate.model.run import FileCheckpoint, Run
from lakegate.progress import LogNarrator
from lakegate.sources.discovery import FoundFile
from lakegate.wap import deadline
from lakegate.wap.deadline import DeadlineReachedError

START = datetime(2026, 1, 31, 7, tzinfo=UTC)
QUEUE = "arn:aws:sqs:eu-central-1:123456789012:landed"
DAY_S = 86_400.0
RETENTION_S = 14 * DAY_S
Away = Literal["engine", "catalog", "journal"]
POISON = ("damaged", "rejected", "killer", "engine")
_GIVEN = defaults()
_MAPPED = template()["Mappings"]


@dataclass(frozen=True)
class Numbers:
    """What is played. Times are seconds."""

    files: int = 10_000
    tables: int = 200
    arrive_s: float = 0.0
    """For how long files land; all at once by default."""
    poison: int = 0
    """Files of each bad kind: damaged, rejected by an audit, killing their function, failing Spark."""
    outage_s: float = 0.0
    outage_at_s: float = 300.0
    away: Away = "engine"
    starts_s: float = 0.0
    """How long Spark takes to be there after the first file, as with ``--schedule``."""
    throttled_s: float = 0.0
    """For how long, from the beginning, all calls are throttled."""
    duplicates: float = 0.001

    batch: int = int(_GIVEN["BatchSize"])
    window_s: float = float(_GIVEN["BatchWindow"])
    concurrency: int = int(_GIVEN["MaximumConcurrency"])
    max_receives: int = int(_GIVEN["MaxReceiveCount"])
    timeout_s: float = float(_GIVEN["FunctionTimeout"])
    visibility_s: float = float(_MAPPED["Timeout"][_GIVEN["FunctionTimeout"]]["Visibility"])
    delays: bool = True
    """Whether the function says when each message comes again; else only of those whose file failed, as it once did."""

    run_s: float = 6.0
    file_s: float = 0.3
    slots: int = int(_MAPPED["Spark"][_GIVEN["SparkSize"]]["Cpu"]) // 1024
    """Runs that Spark works on at full speed: its processors."""
    seed: int = 1


OLD = Numbers(batch=200, concurrency=5, max_receives=5, delays=False, slots=4)
"""The settings under which healthy files became dead letters."""


@dataclass
class Result:
    published: int
    healthy_dead: int
    poison_dead: int
    lost: int
    twice: int
    told: int
    """Files of which somebody was told that they were given up."""
    drained_s: float
    """When the last healthy file was published."""
    calls: int
    runs: int
    most_receives: int
    """Of a healthy file's message."""
    mean_receives: float
    took_s: float


class KilledError(BaseException):
    """AWS ends a function, at its time limit or because its process died."""


class World:
    """Virtual time: each function and poller runs until it waits, one at a time."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.random = random.Random(numbers.seed)
        self.now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, greenlet]] = []
        self._hub = getcurrent()
        self.ends: dict[greenlet, float] = {}
        """When the call that runs in a greenlet is killed."""
        self.environments: dict[greenlet, Function] = {}

    def start(self, work: Callable[[], None], after_s: float = 0.0) -> None:
        self._wake(greenlet(work, parent=self._hub), after_s)

    def run(self, until: Callable[[], bool]) -> None:
        while self._due and not until():
            self.now, _, due = heapq.heappop(self._due)
            due.switch()

    def sleep(self, seconds: float) -> None:
        ends = self.ends.get(getcurrent(), float("inf"))
        left = ends - self.now
        self._wake(getcurrent(), max(0.0, min(seconds, left)))
        self._hub.switch()
        if seconds >= left:
            raise KilledError

    def is_away(self, what: Away) -> bool:
        numbers = self.numbers
        if what == "engine" and self.now < numbers.starts_s:
            return True
        return what == numbers.away and 0.0 <= self.now - numbers.outage_at_s < numbers.outage_s

    def until_away(self) -> float:
        numbers = self.numbers
        is_ahead = numbers.outage_s > 0 and numbers.away == "engine" and self.now < numbers.outage_at_s
        return numbers.outage_at_s - self.now if is_ahead else float("inf")

    def _wake(self, who: greenlet, after_s: float) -> None:
        heapq.heappush(self._due, (self.now + after_s, next(self._order), who))


class VirtualClock(Clock):
    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> datetime:
        return START + timedelta(seconds=self._world.now)

    def monotonic(self) -> float:
        return self._world.now

    def sleep(self, seconds: float) -> None:
        self._world.sleep(seconds)


@dataclass(slots=True)
class Sent:
    """A message."""

    name: str
    uri: str
    body: str
    sent_at: float
    receives: int = 0
    visible_at: float = 0.0
    is_deleted: bool = False
    is_dead: bool = False


class SimulatedQueue:
    """SQS: messages, and the calls by which its client changes them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.messages: list[Sent] = []
        self._visible: list[Sent] = []
        self._hidden: list[tuple[float, int, Sent]] = []
        self._order = itertools.count()

    def send(self, uri: str) -> None:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        s3 = {"bucket": {"name": bucket}, "object": {"key": key, "size": 1, "eTag": "e", "sequencer": "0A"}}
        body = json.dumps({"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": s3}]})
        sent = Sent(f"m{len(self.messages)}", uri, body, self._world.now)
        self.messages.append(sent)
        self._visible.append(sent)

    def receive(self, most: int) -> list[Sent]:
        self._show()
        found: list[Sent] = []
        numbers, chance = self._world.numbers, self._world.random
        while self._visible and len(found) < most:
            place = chance.randrange(len(self._visible))
            self._visible[place], self._visible[-1] = self._visible[-1], self._visible[place]
            sent = self._visible.pop()
            if sent.is_deleted or self._world.now - sent.sent_at > RETENTION_S:
                continue
            if sent.receives >= numbers.max_receives:
                sent.is_dead = True
                continue
            sent.receives += 1
            if chance.random() < numbers.duplicates:
                self._visible.append(sent)
                found.append(sent)
                break
            self.hide(sent, numbers.visibility_s)
            found.append(sent)
        return found

    def idle_s(self) -> float:
        """Return for how long nothing can be fetched, unless something is sent; it need not be looked at before."""
        if self._world.now < self._world.numbers.arrive_s or not self._hidden:
            return 1.0
        return max(0.05, self._hidden[0][0] - self._world.now)

    def hide(self, sent: Sent, seconds: float) -> None:
        sent.visible_at = self._world.now + seconds
        heapq.heappush(self._hidden, (sent.visible_at, next(self._order), sent))

    def _show(self) -> None:
        while self._hidden and self._hidden[0][0] <= self._world.now:
            at, _, sent = heapq.heappop(self._hidden)
            if at == sent.visible_at and not sent.is_deleted and not sent.is_dead:  # it was not changed since
                self._visible.append(sent)

    def get_queue_url(self, **_: str) -> dict[str, str]:
        return {"QueueUrl": QUEUE}

    def change_message_visibility_batch(self, QueueUrl: str, Entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
        for entry in Entries:
            sent = self.messages[int(entry["ReceiptHandle"])]
            if not sent.is_deleted:
                self.hide(sent, entry["VisibilityTimeout"])
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}


class SimulatedLake:
    """Catalog, journal and Spark, as far as the function knows of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = VirtualClock(world)
        self._landings: dict[tuple[str, str], FileCheckpoint] = {}
        self.made: dict[str, Run] = {}
        self._at_work: set[str] = set()
        self._dead: set[str] = set()
        self._turns: set[str] = set()
        self._claims: dict[str, str] = {}
        self._published_last: Run | None = None
        self.owners: dict[str, str] = {}
        self.published: Counter[str] = Counter()
        self.ended: set[str] = set()
        """Files of which their run said what became of them."""
        self.told: set[str] = set()
        self.drained_s = 0.0

    # What is asked of a lake ------------------------------------------------------------------------------------------

    def mode_of(self, table: str, **_: object) -> WriteMode:
        return WriteMode()

    def list_files(self, paths: Sequence[str], **_: object) -> Iterator[FoundFile]:
        for path in paths:
            yield FoundFile(path, 1, "1-e", START - timedelta(days=1))

    def file_checkpoints(self, table: str, uris: Sequence[str]) -> Mapping[str, FileCheckpoint]:
        self._ask("journal")
        return {uri: self._landings[table, uri] for uri in uris if (table, uri) in self._landings}

    def save_file_checkpoints(self, table: str, landings: Sequence[FileCheckpoint]) -> None:
        self._ask("journal")
        self._landings |= {(table, landing.uri): landing for landing in landings}

    def notify_given_up(self, file: GivenUpFile) -> None:
        self.told.add(file.uri)

    def run(self, run_id: str) -> Run:
        self._ask("journal")
        if run_id not in self.made:
            raise NotFoundError(run_id)
        return self.made[run_id]

    def runs(self, *, status: str, since: datetime, limit: int) -> Sequence[Run]:
        last = self._published_last
        return () if last is None or last.started_at < since else (last,)

    def suspended_runs(self) -> Mapping[str, datetime]:
        self._ask("journal")
        return {run_id: START for run_id in self.made if self._is_free(run_id)}

    @contextlib.contextmanager
    def lock(self, name: str, *, timeout_s: float) -> Iterator[bool]:
        self._ask("journal")
        if name in self._turns:
            self._world.sleep(timeout_s)
            yield False
            return
        self._turns.add(name)
        try:
            yield True
        finally:
            self._turns.discard(name)

    def recover(self) -> None:
        self._ask("catalog")
        for run_id in tuple(self._dead):
            self._end(run_id, "failed")
        self._dead.clear()

    def cancel_run(self, run_id: str, *, reason: str) -> Run:
        return self._end(run_id, "failed")

    def reconnect(self) -> None:
        pass

    def close(self) -> None:
        pass

    def ingest(self, table: str, uris: Sequence[str], **options: Any) -> Run:
        run_id, ends_at = options["run_id"], self._world.now + options["timeout_s"]
        known = self.made.get(run_id)
        if known is not None and known.finished_at is not None and known.status != "failed":
            return known
        self._ask("journal")
        self._ask("catalog", seconds=0.3)
        if run_id in self._at_work:
            self._world.sleep(min(20.0, max(0.1, ends_at - self._world.now)))
            raise RetryableError(f"Run {run_id} is still at it.")
        self._read(uris)
        self._at_work.add(run_id)
        try:
            return self._work(run_id, table, uris, ends_at)
        except KilledError:
            self._dead.add(run_id)
            raise
        finally:
            self._at_work.discard(run_id)

    # How that goes ----------------------------------------------------------------------------------------------------

    def _ask(self, what: Away, seconds: float = 0.01) -> None:
        if self._world.is_away(what):
            self._world.sleep(10.0)
            kind = CatalogUnavailableError if what == "catalog" else RetryableError
            raise kind(f"The {what} doesn't answer.")
        self._world.sleep(seconds)

    def _read(self, uris: Sequence[str]) -> None:
        for uri in uris:
            if "killer" in uri:
                raise KilledError
            if "damaged" in uri:
                raise SourceError("Damaged.", path=uri)

    def _work(self, run_id: str, table: str, uris: Sequence[str], ends_at: float) -> Run:
        others = {uri: owner for uri in uris if (owner := self._owner(uri)) not in (None, run_id)}
        mine = [uri for uri in uris if uri not in others]
        skipped = tuple(KnownFile(file=_source(uri), run_id=str(owner)) for uri, owner in others.items())
        self._begin(run_id, table, uris)
        if not mine:
            return self._end(run_id, "skipped", skipped_files=skipped)
        self._claims |= dict.fromkeys(mine, run_id)
        self._spark(mine, ends_at)
        if any("rejected" in uri for uri in mine):
            self._end(run_id, "rejected")
            self.ended.update(mine if len(mine) == 1 else ())
            return self.made[run_id]
        self._ask("catalog", seconds=0.5)
        self.published.update(mine)
        self.owners |= dict.fromkeys(mine, run_id)
        self.ended.update(mine)
        self.drained_s = self._world.now
        self._published_last = self._end(run_id, "published", skipped_files=skipped)
        return self._published_last

    def _spark(self, uris: Sequence[str], ends_at: float) -> None:
        world, numbers = self._world, self._world.numbers
        if world.is_away("engine"):
            world.sleep(min(15.0, max(0.0, ends_at - world.now)))
            raise EngineUnavailableError("Spark doesn't answer.")
        needed = numbers.run_s + numbers.file_s * len(uris)
        if any("engine" in uri for uri in uris):
            world.sleep(needed / 2)
            raise EngineError("Out of memory.")
        part, done = max(2.0, needed / 20), 0.0
        while done < needed:
            slow = max(1.0, len(self._at_work) / numbers.slots)
            wanted = min(part, needed - done) * slow
            lasts = min(wanted, ends_at - world.now, world.until_away())
            world.sleep(lasts)
            if lasts < wanted:
                if world.is_away("engine"):
                    raise EngineUnavailableError("Spark went away.")
                raise DeadlineReachedError("The time was over.")
            done += wanted / slow

    def _owner(self, uri: str) -> str | None:
        if uri in self.owners:
            return self.owners[uri]
        claimed_by = self._claims.get(uri)
        run = None if claimed_by is None else self.made.get(claimed_by)
        return claimed_by if run is not None and run.finished_at is None else None

    def _is_free(self, run_id: str) -> bool:
        is_open = self.made[run_id].finished_at is None
        return is_open and run_id not in self._at_work and run_id not in self._dead

    def _begin(self, run_id: str, table: str, uris: Sequence[str]) -> None:
        batch = Batch.model_construct(format="csv", files=tuple(map(_source, uris)), columns=())
        order = IngestRequest.model_construct(
            run_id=run_id, table=_identifier(table), batch=batch, branch=f"wap/{run_id}"
        )
        self.made[run_id] = _run(run_id, table, "running", self._clock.now(), order=order)

    def _end(self, run_id: str, status: str, **changes: object) -> Run:
        ended = {"status": status, "finished_at": self._clock.now(), "order": None, **changes}
        self.made[run_id] = self.made[run_id].model_copy(update=ended)
        return self.made[run_id]


class Pollers:
    """Lambda's event source mapping."""

    def __init__(self, world: World, queue: SimulatedQueue, environment: Callable[[], Function]) -> None:
        self._world = world
        self._queue = queue
        self._environment = environment
        self._idle: list[Function] = []
        self.calls = 0
        for number in range(world.numbers.concurrency):
            # Five at first, then 300 more each minute.
            world.start(self._poll, after_s=max(0, number - 4) * 0.2)

    def _poll(self) -> None:
        while True:
            if batch := self._gather():
                self._invoke(batch)

    def _gather(self) -> list[Sent]:
        world, numbers = self._world, self._world.numbers
        batch: list[Sent] = []
        ends_at = float("inf")
        while len(batch) < numbers.batch and world.now < ends_at:
            found = self._queue.receive(min(10, numbers.batch - len(batch)))
            if found and not batch:
                ends_at = world.now + numbers.window_s
            batch += found
            world.sleep(0.02 if found else max(0.01, min(ends_at - world.now, self._queue.idle_s())))
        return batch

    def _invoke(self, batch: Sequence[Sent]) -> None:
        world = self._world
        pause_s = 1.0
        while world.now < world.numbers.throttled_s:
            if world.now >= min(sent.visible_at for sent in batch):
                return
            world.sleep(pause_s)
            pause_s = min(pause_s * 2, 60.0)
        self.calls += 1
        made = self._idle.pop() if self._idle else self._environment()
        answer = self._call(made, batch)
        if answer is None:
            return
        self._idle.append(made)
        failed = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
        for sent in batch:
            sent.is_deleted = sent.is_deleted or sent.name not in failed

    def _call(self, made: Function, batch: Sequence[Sent]) -> dict[str, Any] | None:
        """Return the function's answer; nothing when it is killed or fails."""
        world, here = self._world, getcurrent()
        ends_at = world.now + world.numbers.timeout_s
        context = SimpleNamespace(
            aws_request_id="simulated", get_remaining_time_in_millis=lambda: int((ends_at - world.now) * 1000)
        )
        world.ends[here], world.environments[here] = ends_at, made
        try:
            return function.handler({"Records": [_record(sent) for sent in batch]}, cast("Any", context))
        except (KilledError, Exception):  # noqa: BLE001 - AWS asks no more of it
            return None
        finally:
            del world.ends[here]


class _Silent(LogNarrator):
    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def line(self, *_: object, **__: object) -> None:
        pass


SETTINGS = Settings.model_validate(
    {
        "catalog": {"uri": "https://nessie.example.com/api/v2", "warehouse": "s3://lake/warehouse"},
        "engine": {"url": "sc://spark.example.com:15002"},
        "journal": {"url": "postgresql://lake@db.example.com/lake"},
        "watch": {"routes": ["landing/{namespace}/{table}/*"]},
    }
)


def simulate(numbers: Numbers) -> Result:
    """Play it until every file is published or among the dead letters, or gone with its message."""
    began = time.perf_counter()
    world = World(numbers)
    queue, lake = SimulatedQueue(world), SimulatedLake(world)
    clock = VirtualClock(world)

    def environment() -> Function:
        return Function(SETTINGS, _Silent(), clock=clock)

    def arrive() -> None:
        for uri in _landed(world):
            queue.send(uri)
            if numbers.arrive_s:
                world.sleep(numbers.arrive_s / numbers.files)

    with _virtual(world, queue, lake, clock):
        world.start(arrive)
        pollers = Pollers(world, queue, environment)
        expected = numbers.files + len(POISON) * numbers.poison
        checks = itertools.count(1)

        def is_over() -> bool:
            if next(checks) % 500 or len(queue.messages) < expected:
                return False
            return all(sent.is_deleted or sent.is_dead for sent in queue.messages) or world.now > 2 * RETENTION_S

        world.run(is_over)
    return _judged(world, queue, lake, pollers, time.perf_counter() - began)


def _judged(world: World, queue: SimulatedQueue, lake: SimulatedLake, pollers: Pollers, took_s: float) -> Result:
    healthy = [sent for sent in queue.messages if not _is_poison(sent.uri)]
    dead = [sent for sent in queue.messages if sent.is_dead]
    lost = [
        sent for sent in queue.messages if not sent.is_dead and sent.uri not in lake.ended and sent.uri not in lake.told
    ]
    return Result(
        published=sum(sent.uri in lake.published for sent in healthy),
        healthy_dead=sum(not _is_poison(sent.uri) for sent in dead),
        poison_dead=sum(_is_poison(sent.uri) for sent in dead),
        lost=len(lost),
        twice=sum(times > 1 for times in lake.published.values()),
        told=len(lake.told),
        drained_s=lake.drained_s,
        calls=pollers.calls,
        runs=len(lake.made),
        most_receives=max(sent.receives for sent in healthy),
        mean_receives=sum(sent.receives for sent in healthy) / len(healthy),
        took_s=took_s,
    )


@contextlib.contextmanager
def _virtual(world: World, queue: SimulatedQueue, lake: SimulatedLake, clock: VirtualClock) -> Iterator[None]:
    """Have the function's own code live in the simulated world."""
    log = logging.getLogger("lakegate")
    level, log_level = log.level, logging.CRITICAL
    by_delay = work.deliver_again

    def only_failed(delays: Any) -> None:
        by_delay((message, seconds) for message, seconds in delays if seconds == redelivery_of_old)

    redelivery_of_old = 60
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        enter(patch.object(deadline, "time", SimpleNamespace(monotonic=clock.monotonic)))
        enter(patch.object(work, "secrets", SimpleNamespace(randbelow=world.random.randrange)))
        enter(patch.object(boto3, "client", lambda *_, **__: queue))
        enter(patch.object(work, "connect", lambda *_, **__: lake))
        enter(patch.object(function, "_function", lambda: world.environments[getcurrent()]))
        if not world.numbers.delays:
            enter(patch.object(function, "delay_s", _old_delay_s))
            enter(patch.object(function, "deliver_again", only_failed))
        log.setLevel(log_level)
        try:
            yield
        finally:
            log.setLevel(level)


def _old_delay_s(message: Any, fates: Mapping[str, Any], settings: Any) -> int:
    """Say of files that failed when they come again, and leave all others to the queue's own time."""
    failed = all(fates[file.uri].is_done or fates[file.uri].outcome == "failed" for file in message.files)
    return 60 if failed else 0


def _landed(world: World) -> list[str]:
    numbers = world.numbers
    names = [f"f{number}.csv" for number in range(numbers.files)]
    names += [f"{kind}-{number}.csv" for kind in POISON for number in range(numbers.poison)]
    world.random.shuffle(names)
    return [f"s3://landing/landing/n/t{world.random.randrange(numbers.tables)}/{name}" for name in names]


def _is_poison(uri: str) -> bool:
    return uri.rpartition("/")[2].partition("-")[0] in POISON


def _record(sent: Sent) -> dict[str, Any]:
    sent_ms = int((START.timestamp() + sent.sent_at) * 1000)
    return {
        "messageId": sent.name,
        "receiptHandle": sent.name.removeprefix("m"),
        "body": sent.body,
        "attributes": {"ApproximateReceiveCount": str(sent.receives), "SentTimestamp": str(sent_ms)},
        "eventSource": "aws:sqs",
        "eventSourceARN": QUEUE,
    }


@functools.cache
def _identifier(table: str) -> TableIdentifier:
    return TableIdentifier.parse(table)


@functools.cache
def _source(uri: str) -> SourceFile:
    return SourceFile(uri=uri, size_bytes=1, version="1", stamp="1-e", rows=1)


def _run(run_id: str, table: str, status: Any, at: datetime, **changes: object) -> Run:
    known: dict[str, Any] = {"run_id": run_id, "tables": (table,), "branch": "b", "status": status, "started_at": at}
    return Run(**known).model_copy(update=changes)


def main() -> None:
    """Play it with the numbers of the command line, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", action="store_true", help="begin with the settings of before")
    for one in dataclasses.fields(Numbers):
        kind = type(one.default)
        options: dict[str, Any] = {"action": argparse.BooleanOptionalAction} if kind is bool else {"type": kind}
        parser.add_argument(f"--{one.name.removesuffix('_s').replace('_', '-')}", dest=one.name, **options)
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None and name != "old"}
    numbers = dataclasses.replace(OLD if "--old" in sys.argv else Numbers(), **given)
    for name, value in dataclasses.asdict(simulate(numbers)).items():
        sys.stdout.write(f"{name:>15}  {value:,.1f}\n" if isinstance(value, float) else f"{name:>15}  {value:,}\n")


if __name__ == "__main__":
    main()
