"""The function: what a call brings is taken in, and what is not done by its end comes again."""

from __future__ import annotations

import logging
import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Protocol

from lakegate.config import Settings, find_home, load_settings
from lakegate.errors import ConfigurationError, RetryableError
from lakegate.integrations.aws_lambda.events import Delivery, Message, Notified, read_event
from lakegate.integrations.aws_lambda.work import FileOutcome, delay_s, deliver_again, look_after_canary, take_in
from lakegate.lake import Lake, connect
from lakegate.loading.scan import Clock
from lakegate.progress import LogNarrator, bound
from lakegate.wap.deadline import Deadline

_NEEDED = {
    "catalog.uri": "LAKEGATE_CATALOG_URI",
    "engine.url": "LAKEGATE_ENGINE_URL",
    "journal.url": "LAKEGATE_JOURNAL_URL",
    "watch.routes": "LAKEGATE_WATCH_ROUTES",
}
_NOTIFY_LATE = {"lakegate": "notify late"}
"""What a schedule calls the function with, so that it does what that command does."""
_CANARY = "lakegate canary"
"""What `lakegate aws deploy --smoke` calls the function with: the address of its file."""
_TOLD_FILES = 3
_OFTEN_TIMES = 8
_GOOD = frozenset({"published", "left out"})


class NotDoneError(RetryableError):
    """Some of the files that an event told of are not done: AWS has to call again with that event."""

    code = "not-done"


class Context(Protocol):
    """What AWS hands to a function beside the event."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the function is ended."""
        ...


class Function:
    """A function that was started: its settings, and a lake that stays open from one call to the next.

    Args:
        settings: The settings.
        narrator: Where it tells of its work.
        clock: The time.
    """

    def __init__(
        self,
        settings: Settings,
        narrator: LogNarrator,
        *,
        clock: Clock | None = None,
    ) -> None:
        missing = [name for name in _NEEDED if not _value(settings, name)]
        if missing:
            raise ConfigurationError(
                f"The function has nothing to work with: {', '.join(missing)} is not set.",
                hint=f"Set the variable {_NEEDED[missing[0]]}.",
                setting=missing[0],
            )
        self.settings = settings
        self.narrator = narrator
        self.clock = clock
        self.is_warm = False

    @cached_property
    def lake(self) -> Lake:
        """The lake."""
        return connect(find_home(), settings=self.settings, narrator=self.narrator)

    def prepare(self) -> None:
        """Make sure of the connections; see :meth:`lakegate.integrations.aws_lambda.work.Lakes.prepare`."""
        if self.is_warm:
            # A function sleeps between its calls. A server that was replaced meanwhile says no word of farewell.
            self.lake.reconnect()

    def reopen(self) -> Lake:
        """Return the lake with connections of its own time: the server at their other end may be another one by now."""
        self.close()
        return self.lake

    def close(self) -> None:
        """Give up the connections; the next call opens them anew."""
        lake = self.__dict__.pop("lake", None)
        self.is_warm = False
        if lake is not None:
            with suppress(Exception):
                lake.close()

    def take(self, delivery: Delivery, deadline: Deadline) -> Mapping[str, FileOutcome]:
        """Take in all files that a delivery tells of; return by URI what became of each.

        Raises:
            InputError: When the routes are wrong.
        """
        by_bucket = defaultdict[str, dict[str, datetime | None]](dict)
        for message in delivery.messages:
            for file in message.files:
                files = by_bucket[file.bucket]
                files[file.uri] = _told(message, file, files.get(file.uri))
        often = {file.uri for one in delivery.messages if one.times >= _OFTEN_TIMES for file in one.files}
        fates: dict[str, FileOutcome] = {}
        for bucket, files in by_bucket.items():
            fates |= take_in(self, bucket, files, deadline, often=often, clock=self.clock)
        self.is_warm = "lake" in self.__dict__
        return fates

    def notify_late(self) -> None:
        """Tell of tables that are late and of what was counted, and write which are. Only the journal is asked.

        Raises:
            RetryableError: When the journal is away.
        """
        try:
            late = self.lake.notify_late()
        except RetryableError:
            self.close()
            raise
        self.is_warm = True
        for table in late:
            self.narrator.line(
                logging.WARNING,
                f"{table.table}: late",
                table=table.table,
                expected_every=table.expected_every,
                last=None if table.last is None else table.last.isoformat(),
                told={one.channel: one.reason or one.outcome for one in table.notifications},
            )

    def note(self, delivery: Delivery, fates: Mapping[str, FileOutcome]) -> None:
        """Write what became of each file and each message that could not be read."""
        for message in delivery.messages:
            if message.error is not None:
                facts = message.error.to_dict()
                self.narrator.line(logging.ERROR, message.error.message, message_id=message.id, code=facts["code"])
            for file in message.files:
                _note_file(self.narrator, message, file, fates[file.uri])


_FUNCTIONS: list[Function] = []


def handler(event: Any, context: Context) -> dict[str, Any]:
    """Take in the files that an event tells of: the entry point of AWS Lambda.

    Args:
        event: A notification of S3, or a batch of them from SQS, SNS or EventBridge. Or, from a schedule,
            ``{"lakegate": "notify late"}``, to do what that command does. Or from `lakegate aws deploy --smoke`,
            ``{"lakegate canary": URI}``, to hear what became of its file.
        context: What AWS hands over with it.

    Returns:
        For SQS the messages that are not done, as ``ReportBatchItemFailures`` has them; else nothing.

    Raises:
        NotDoneError: When something is not done that came by another way than SQS, so that AWS calls again.
        RetryableError: When the journal is away, of a call by schedule.
        InputError: When settings or routes are wrong.
        MalformedEventError: When the event cannot be read at all.
    """
    with bound(aws_request_id=getattr(context, "aws_request_id", None)):
        function = _started()
        if event == _NOTIFY_LATE:
            function.notify_late()
            return {}
        if isinstance(event, dict) and isinstance(event.get(_CANARY), str):
            return look_after_canary(function, event[_CANARY])
        left_s = context.get_remaining_time_in_millis() / 1000 - function.settings.function.margin_s
        deadline = Deadline.after(max(0.0, left_s))
        delivery = read_event(event)
        fates = function.take(delivery, deadline)
        function.note(delivery, fates)
        if delivery.by_queue:
            left = [message for message in delivery.messages if not _is_done(message, fates)]
            deliver_again((message, delay_s(message, fates, function.settings.function)) for message in left)
            names = dict.fromkeys(message.id for message in left)
            return {"batchItemFailures": [{"itemIdentifier": name} for name in names]}
        _require_done(fates)
        return {}


def _started() -> Function:
    """Return this process's function: started by its first call, found by the others."""
    if not _FUNCTIONS:
        _FUNCTIONS.append(Function(load_settings(find_home()), open_log()))
    return _FUNCTIONS[0]


def _value(settings: Settings, name: str) -> object:
    section, _, key = name.partition(".")
    return getattr(getattr(settings, section), key)


def _told(message: Message, file: Notified, known: datetime | None) -> datetime | None:
    """Return when there was word of a file, by the latest message."""
    at = message.sent_at or file.at
    return at if known is None or (at is not None and at > known) else known


def _is_done(message: Message, fates: Mapping[str, FileOutcome]) -> bool:
    return message.error is None and all(fates[file.uri].is_done for file in message.files)


def _require_done(fates: Mapping[str, FileOutcome]) -> None:
    left = {uri: fate for uri, fate in fates.items() if not fate.is_done}
    if not left:
        return
    told = "; ".join(f"{uri}: {fate.reason}" for uri, fate in list(left.items())[:_TOLD_FILES])
    more = f"; and {len(left) - _TOLD_FILES:,} more" if len(left) > _TOLD_FILES else ""
    raise NotDoneError(f"{len(left):,} of {len(fates):,} file(s) are not done: {told}{more}", files=list(left))


def _note_file(narrator: LogNarrator, message: Message, file: Notified, fate: FileOutcome) -> None:
    level = logging.INFO if fate.outcome in _GOOD else logging.WARNING
    narrator.line(
        level,
        f"{file.uri}: {fate.outcome}",
        table=fate.table,
        run_id=fate.run_id,
        file=file.uri,
        outcome=fate.outcome,
        reason=fate.reason,
        etag=file.etag,
        version_id=file.version_id,
        sequencer=file.sequencer,
        message_id=message.id,
        times=message.times,
        event_age_s=_age_s(message.sent_at or file.at),
    )


def _age_s(at: datetime | None) -> float | None:
    return None if at is None else round((datetime.now(UTC) - at).total_seconds(), 3)


_SECRETS_OF_AWS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_SHORTEST_SECRET = 16
"""Characters: AWS's own have more; a stand-in's may be an ordinary word."""


def open_log() -> LogNarrator:
    """Return the narrator of a function, and let lakegate's own log go the same way.

    Secrets of the settings are hidden from when they are read out (:func:`lakegate.progress.hide`).
    """
    secrets = [os.environ.get(name, "") for name in _SECRETS_OF_AWS]
    hidden = tuple(text for text in secrets if len(text) >= _SHORTEST_SECRET)
    narrator = LogNarrator(sys.stdout, hidden=hidden, command="aws_lambda")
    log = logging.getLogger("lakegate")
    log.addHandler(narrator.handler())
    log.setLevel(logging.INFO)
    # Lambda's own handler would write each line a second time.
    log.propagate = False
    return narrator
