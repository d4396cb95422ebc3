"""One call of the function: ingest a bucket's files chunk by chunk while there's time."""

from __future__ import annotations

import logging
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

from lakegate.config import Settings, find_home
from lakegate.errors import (
    ConfigurationError,
    EngineError,
    IdentifierError,
    LakegateError,
    NewerFormatError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.integrations.aws_lambda.events import EventMessage
from lakegate.lake import Lake, connect
from lakegate.loading.routes import Routes
from lakegate.loading.scan import Chunk, Clock, FileLoader, Scan
from lakegate.model.run import FileCheckpoint
from lakegate.progress import LogNarrator
from lakegate.wap.deadline import Deadline, DeadlineReachedError

if TYPE_CHECKING:
    from lakegate.config import FunctionSettings


Outcome = Literal["published", "rejected", "failed", "left out", "not done", "put off"]
"""``left out``: no route matches the file, its name is one to skip, or it no longer exists. ``not done``: the time was
up, or another run is ingesting the file. ``put off``: the catalog, engine or journal is unavailable, or the engine
failed.
"""


_LOG = logging.getLogger(__name__)
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_MAX_FAILURES = 2
"""After this many failures in a row, the files aren't the cause, and the rest would fail too."""
_NO_TIME = "No time was left for it."
_TURN_LOCK = "lambda/alone"
_BLOCKED = "Another run must finish first."
_TURN_TIMEOUT_S = 1.0


_REQUIRED_SETTINGS = {
    "catalog.uri": "LAKEGATE_CATALOG_URI",
    "engine.url": "LAKEGATE_ENGINE_URL",
    "journal.url": "LAKEGATE_JOURNAL_URL",
    "watch.routes": "LAKEGATE_WATCH_ROUTES",
}


class Function:
    """The function in this process: its settings, and a lake that stays open between calls.

    Attributes:
        is_warm: Whether the lake's connections are from an earlier call.
    """

    def __init__(self, settings: Settings, narrator: LogNarrator, *, clock: Clock | None = None) -> None:
        for name, variable in _REQUIRED_SETTINGS.items():
            section, _, key = name.partition(".")
            is_needless = name == "catalog.uri" and settings.catalog.is_target
            if not is_needless and not getattr(getattr(settings, section), key):
                raise ConfigurationError(
                    f"The function needs {name}, which isn't set.", hint=f"Set the variable {variable}.", setting=name
                )
        self.settings = settings
        self.narrator = narrator
        self.clock = clock
        self.is_warm = False

    @cached_property
    def lake(self) -> Lake:
        """The lake, opened on first use."""
        return connect(find_home(), settings=self.settings, narrator=self.narrator, orchestrator="aws-lambda")

    def prepare(self) -> None:
        """Reconnect if the connections are from an earlier call."""
        if self.is_warm:
            # The process is frozen between calls. If a server was replaced meanwhile, its connections look alive.
            self.lake.reconnect()

    def reopen(self) -> Lake:
        """Return a lake with new connections."""
        self.close()
        return self.lake

    def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        lake = self.__dict__.pop("lake", None)
        self.is_warm = False
        if lake is not None:
            with suppress(Exception):
                lake.close()


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """The outcome of a file in this call.

    Attributes:
        is_given_up: Whether it failed too often to be retried.
    """

    outcome: Outcome
    reason: str | None = None
    table: str | None = None
    run_id: str | None = None
    is_given_up: bool = False

    @property
    def is_done(self) -> bool:
        """Whether it's finished. Otherwise its message must be delivered again."""
        return self.outcome in ("published", "rejected", "left out")


def ingest_files(
    function: Function,
    bucket: str,
    files: Mapping[str, datetime | None],
    deadline: Deadline,
    *,
    often: AbstractSet[str] = frozenset(),
) -> Mapping[str, FileOutcome]:
    """Ingest files of one bucket; return each one's outcome by URI.

    Args:
        files: When each object was announced, by URI; ``None`` if unknown.
        often: Files that were delivered many times. Their suspended runs are resumed one at a time across all calls,
            since concurrent ones may slow each other down so much that none ever finishes.
    """
    watch = function.settings.watch
    patterns = [_absolute_route(pattern, bucket) for pattern in watch.routes or ()]
    routes = Routes(patterns)
    tables, outcomes = _route_files(routes, files)
    if not tables:
        return outcomes
    loader = FileLoader(
        function.lake,
        [_PLACEHOLDER.sub("*", pattern.partition("=>")[0].strip()) for pattern in patterns],
        routes,
        settle_s=0.0,
        max_files=watch.max_files,
        max_bytes=watch.max_bytes,
        max_tries=watch.max_tries,
        announced={uri: at for uri, at in files.items() if at is not None},
        clock=function.clock,
    )
    call = _Call(function, loader, deadline, often)
    call.run(list(tables))
    return outcomes | call.outcomes(tables)


def _absolute_route(pattern: str, bucket: str) -> str:
    """Return a route as an absolute one. A route without a bucket applies to every bucket that sends events."""
    route, arrow, target = pattern.partition("=>")
    place = route if "://" in route else f"s3://{bucket}/{route.strip().lstrip('/')}"
    return f"{place} {arrow} {target}".strip()


def _route_files(routes: Routes, files: Mapping[str, object]) -> tuple[dict[str, str], dict[str, FileOutcome]]:
    tables: dict[str, str] = {}
    outcomes: dict[str, FileOutcome] = {}
    for uri in files:
        try:
            table = routes.table(uri)
        except IdentifierError as error:
            outcomes[uri] = FileOutcome("left out", reason=error.message)
            continue
        if table is None:
            outcomes[uri] = FileOutcome("left out", reason="No route matches it.")
        else:
            tables[uri] = table
    return tables, outcomes


class _Call:
    def __init__(self, function: Function, loader: FileLoader, deadline: Deadline, often: AbstractSet[str]) -> None:
        self._function = function
        self._loader = loader
        self._deadline = deadline
        self._often = often
        self._failures_in_a_row = 0
        self._unreadable: dict[str, str] = {}
        self._stopped_by: LakegateError | None = None
        self._errors: dict[str, LakegateError] = {}
        self._is_late = False
        self._blocked: set[str] = set()
        self._saved: set[str] = set()

    def run(self, uris: Sequence[str]) -> None:
        """Ingest files until all are done or the time is up."""
        try:
            self._function.prepare()
            self._loader.lake = self._function.lake
            self._run(uris)
        except LakegateError as error:
            self._stopped_by = error
            _LOG.warning("Stopped: %s", error.message, extra={"facts": {"code": error.code, "hint": error.hint}})
        if self._failures_in_a_row:
            self._function.close()

    def outcomes(self, tables: Mapping[str, str]) -> dict[str, FileOutcome]:
        """Return the outcome of each file that has a table."""
        by_table = defaultdict[str, list[str]](list)
        for uri, table in tables.items():
            by_table[table].append(uri)
        outcomes: dict[str, FileOutcome] = {}
        for table, uris in by_table.items():
            try:
                known = self._loader.lake.files.checkpoints(table, uris)
            except RetryableError as error:
                outcomes |= {uri: _put_off(error, table) for uri in uris}
            else:
                outcomes |= {uri: self._outcome(table, uri, known.get(uri)) for uri in uris}
        return outcomes

    def _run(self, uris: Sequence[str]) -> None:
        to_scan = uris
        while not self._deadline.is_over:
            found = self._scan(to_scan)
            chunks = [chunk for chunk in found.chunks if self._blocked.isdisjoint(chunk.uris)]
            if not chunks:
                return
            for chunk in chunks:
                if not self._deadline.is_over:
                    self._ingest_in_turn(chunk)
            to_scan = uris if found.more else ()
        self._is_late = True

    def _scan(self, uris: Sequence[str]) -> Scan:
        try:
            return self._loader.scan(uris)
        except (RetryableError, ConfigurationError):
            raise
        except LakegateError:
            # A file that can't even be listed must not block the others.
            return self._loader.scan([uri for uri in uris if self._is_readable(uri)])

    def _is_readable(self, uri: str) -> bool:
        try:
            list(self._loader.lake.files.list([uri]))
        except (RetryableError, ConfigurationError):
            raise
        except LakegateError as error:
            self._unreadable[uri] = error.message
            return False
        return True

    def _ingest_in_turn(self, chunk: Chunk) -> None:
        if chunk.run_id is None or self._often.isdisjoint(chunk.uris):
            self._ingest(chunk)
            return
        with self._loader.lake.files.lock(_TURN_LOCK, timeout_s=_TURN_TIMEOUT_S) as is_ours:
            if is_ours:
                self._ingest(chunk)
            else:
                self._blocked.update(chunk.uris)

    def _ingest(self, chunk: Chunk) -> None:
        try:
            if not self._loader.is_free(chunk):
                return
            self._loader.ingest(chunk, timeout_s=self._deadline.left_s)
            self._failures_in_a_row = 0
        except DeadlineReachedError:
            return
        except (RetryableError, OutcomeUnknownError) as error:
            if not self._function.is_warm:
                self._record_trouble(chunk, error)
                return
            # The connections are from an earlier call, and the server may have been replaced since.
            self._loader.lake = self._function.reopen()
            self._ingest(self._resumed(chunk))
        except (ConfigurationError, NewerFormatError) as error:
            # It may be about these files alone, such as a format whose package the function lacks.
            self._blocked.update(chunk.uris)
            self._record_trouble(chunk, error)
        finally:
            self._saved.update(checkpoint.uri for checkpoint in self._loader.saved if checkpoint.outcome != "parked")

    def _resumed(self, chunk: Chunk) -> Chunk:
        """Return the chunk with the run that the failed attempt left suspended, if any."""
        runs = [checkpoint.run_id for checkpoint in self._loader.saved if checkpoint.outcome == "parked"]
        return replace(chunk, run_id=runs[0]) if runs else chunk

    def _record_trouble(self, chunk: Chunk, error: LakegateError) -> None:
        """Continue with other files after a failure, unless they would fail too."""
        self._errors |= dict.fromkeys(chunk.uris, error)
        _LOG.warning(error.message, extra={"facts": {"code": error.code, "hint": error.hint}})
        if isinstance(error, (EngineError, ConfigurationError)):
            return
        self._failures_in_a_row += 1
        if self._failures_in_a_row == _MAX_FAILURES:
            raise error

    def _outcome(self, table: str, uri: str, checkpoint: FileCheckpoint | None) -> FileOutcome:
        if uri in self._unreadable:
            return FileOutcome("failed", reason=self._unreadable[uri], table=table)
        if self._is_waiting(uri):
            return self._outcome_of_pending(table, uri, checkpoint)
        if checkpoint is None:
            reason = "It no longer exists, or its name starts with '_' or '.'."
            return FileOutcome("left out", reason=reason, table=table)
        outcome = partial(FileOutcome, reason=checkpoint.reason, table=table, run_id=checkpoint.run_id)
        if checkpoint.outcome == "done":
            return outcome("published")
        if checkpoint.outcome == "rejected":
            return outcome("rejected")
        return outcome("failed", is_given_up=True)

    def _outcome_of_pending(self, table: str, uri: str, checkpoint: FileCheckpoint | None) -> FileOutcome:
        run_id = None if checkpoint is None else checkpoint.run_id
        trouble = self._errors.get(uri) or (None if uri in self._saved else self._stopped_by)
        if trouble is not None:
            return _put_off(trouble, table, run_id)
        if checkpoint is not None and checkpoint.outcome == "failed" and uri in self._saved:
            return FileOutcome("failed", reason=checkpoint.reason, table=table, run_id=run_id)
        reason = _BLOCKED if uri in self._blocked else _NO_TIME if self._is_late else "Another run is ingesting it."
        return FileOutcome("not done", reason=reason, table=table, run_id=run_id)

    def _is_waiting(self, uri: str) -> bool:
        """Return whether the file must be retried or wasn't reached, so that its checkpoint may be outdated."""
        was_stopped = self._is_late or self._stopped_by is not None
        return uri in self._loader.pending or (was_stopped and uri not in self._saved)


def _put_off(error: LakegateError, table: str, run_id: str | None = None) -> FileOutcome:
    return FileOutcome("put off", reason=error.message, table=table, run_id=run_id)


_MAX_ENTRIES = 10
"""SQS's limit: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibilityBatch.html."""
_TIMEOUT_S = 3
_FIRST_DELAY_S = 30.0
_GROWTH = 1.5
_MAX_DELAY_S = 300.0
"""Limit while other files come first: they won't take long, since there's no outage."""
_MAX_OUTAGE_DELAY_S = 3600.0
_SLOW_AFTER = 30
"""After this many deliveries, an outage may last for days. Delays grow from then on, or deliveries would run out."""
_SLOW_GROWTH = 1.1
_GIVEN_UP_S = 20.0
"""Delay for a file that isn't retried: its message is only received until it becomes a dead letter, with an alarm."""


def delay_s(message: EventMessage, outcomes: Mapping[str, FileOutcome], settings: FunctionSettings) -> int:
    """Return the seconds until a message should be delivered again.

    If its files failed, the delay is fixed. Otherwise it grows with each delivery: fast up to minutes, or during an
    outage up to an hour, and slowly after that, so that some deliveries are left after an outage of a week and calls
    compete less. Jitter spreads out messages that were postponed together.
    """
    left = [outcomes[file.uri] for file in message.files if not outcomes[file.uri].is_done]
    if all(one.outcome == "failed" for one in left):
        given_up = all(one.is_given_up for one in left)
        return _with_jitter(min(_GIVEN_UP_S, settings.retry_s) if given_up else settings.retry_s)
    is_trouble = any(one.outcome == "put off" for one in left)
    max_at_first_s = _MAX_OUTAGE_DELAY_S if is_trouble else _MAX_DELAY_S
    at_first_s = min(_FIRST_DELAY_S * _GROWTH ** min(message.times - 1, 50), max_at_first_s)
    patience = _SLOW_GROWTH ** min(max(0, message.times - _SLOW_AFTER), 100)
    return _with_jitter(min(at_first_s * patience, settings.longest_retry_s))


def deliver_again(delays: Iterable[tuple[EventMessage, int]]) -> None:
    """Ask SQS to redeliver messages after some seconds instead of after the queue's visibility timeout.

    If that fails, SQS redelivers them after that timeout, so failures are only logged.
    """
    by_queue = defaultdict[str, list[tuple[str, int]]](list)
    for message, after_s in delays:
        if message.queue is not None and message.receipt is not None:
            by_queue[message.queue].append((message.receipt, after_s))
    for queue, receipts in by_queue.items():
        try:
            _change(queue, receipts)
        except Exception as error:  # noqa: BLE001 - as the docstring says
            _LOG.warning("Couldn't ask queue %s to deliver messages again: %s", queue, type(error).__name__)


def _with_jitter(seconds: float) -> int:
    return round(seconds * (0.5 + secrets.randbelow(1001) / 2000))


def _change(queue: str, receipts: Sequence[tuple[str, int]]) -> None:
    import boto3
    from botocore.config import Config

    _arn, _partition, _service, region, account, name = queue.split(":")
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S)
    client = boto3.client("sqs", region_name=region, config=config)
    url = client.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
    for start in range(0, len(receipts), _MAX_ENTRIES):
        answer = client.change_message_visibility_batch(
            QueueUrl=url,
            Entries=[
                {"Id": str(number), "ReceiptHandle": receipt, "VisibilityTimeout": after_s}
                for number, (receipt, after_s) in enumerate(receipts[start : start + _MAX_ENTRIES])
            ],
        )
        for refused in answer.get("Failed", ()):
            _LOG.warning("Couldn't ask queue %s to deliver a message again: %s", queue, refused["Code"])
