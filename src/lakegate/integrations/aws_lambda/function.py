"""The function's entry point: ingests the files that a call announces. Unfinished messages are delivered again."""

from __future__ import annotations

import logging
import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from lakegate.config import find_home, load_settings
from lakegate.errors import RetryableError
from lakegate.integrations.aws_lambda.events import AnnouncedObject, EventMessage, MessageBatch, read_event
from lakegate.integrations.aws_lambda.work import (
    FileOutcome,
    Function,
    delay_s,
    deliver_again,
    ingest_files,
)
from lakegate.progress import LogNarrator, bound, without_secrets
from lakegate.telemetry import tracing
from lakegate.wap.deadline import Deadline

_NOTIFY_LATE = {"lakegate": "admin notify late"}
"""The schedule's event, on which the function does the same as that command."""
_MAX_FILES_SHOWN = 3
_OFTEN_TIMES = 8
_GOOD = frozenset({"published", "left out"})


class NotDoneError(RetryableError):
    """Some files of an event aren't done, so AWS must call again with that event."""

    code = "not-done"


class LambdaContext(Protocol):
    """The context object that AWS passes to a function with the event."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until AWS ends the call."""
        ...


_FUNCTIONS: list[Function] = []


def handler(event: Any, context: LambdaContext) -> dict[str, Any]:
    """Ingest the files that an event announces: the entry point for AWS Lambda.

    Args:
        event: A notification from S3, or a batch of them from SQS, SNS or EventBridge. A schedule sends
            ``{"lakegate": "admin notify late"}`` to run that command.

    Returns:
        For SQS, the messages that aren't done, in the form of ``ReportBatchItemFailures``; otherwise nothing.

    Raises:
        NotDoneError: If a file isn't done and SQS didn't announce it, so that AWS must call again.
        RetryableError: If the journal is unavailable in a scheduled call.
        InputError: If the settings or routes are wrong.
        MalformedEventError: If the event can't be read at all.
    """
    with bound(aws_request_id=getattr(context, "aws_request_id", None)):
        function = _function()
        if event == _NOTIFY_LATE:
            _notify_late(function)
            return {}
        left_s = context.get_remaining_time_in_millis() / 1000 - function.settings.function.margin_s
        deadline = Deadline.after(max(0.0, left_s))
        delivery = read_event(event)
        outcomes = _ingest(function, delivery, deadline)
        tracing.flush()  # AWS may never resume this process
        for message in delivery.messages:
            _log_message(function.narrator, message, outcomes)
        if delivery.by_queue:
            left = [message for message in delivery.messages if not _is_done(message, outcomes)]
            deliver_again((message, delay_s(message, outcomes, function.settings.function)) for message in left)
            names = dict.fromkeys(message.id for message in left)
            return {"batchItemFailures": [{"itemIdentifier": name} for name in names]}
        _require_done(outcomes)
        return {}


def _function() -> Function:
    """Return this process's function, created by the first call."""
    if not _FUNCTIONS:
        _FUNCTIONS.append(Function(load_settings(find_home()), open_log()))
    return _FUNCTIONS[0]


def _ingest(function: Function, delivery: MessageBatch, deadline: Deadline) -> Mapping[str, FileOutcome]:
    """Ingest all files that a delivery announces; return the outcome of each by URI."""
    by_bucket = defaultdict[str, dict[str, datetime | None]](dict)
    for message in delivery.messages:
        for file in message.files:
            files = by_bucket[file.bucket]
            files[file.uri] = _announced_at(message, file, files.get(file.uri))
    often = {file.uri for one in delivery.messages if one.times >= _OFTEN_TIMES for file in one.files}
    outcomes: dict[str, FileOutcome] = {}
    for bucket, files in by_bucket.items():
        outcomes |= ingest_files(function, bucket, files, deadline, often=often)
    function.is_warm = "lake" in function.__dict__
    return outcomes


def _notify_late(function: Function) -> None:
    """Send alerts about late tables, and due events to downstream systems."""
    try:
        late = function.lake.alerts.late()
        function.lake.downstream.send_due()
    except RetryableError:
        function.close()
        raise
    function.is_warm = True
    for table in late:
        function.narrator.line(
            logging.WARNING,
            f"{table.table}: late",
            table=table.table,
            expected_every=table.expected_every,
            last=None if table.last is None else table.last.isoformat(),
            told={one.channel: one.reason or one.outcome for one in table.notifications},
        )


def _announced_at(message: EventMessage, file: AnnouncedObject, known: datetime | None) -> datetime | None:
    """Return when a file was last announced."""
    at = message.sent_at or file.at
    return at if known is None or (at is not None and at > known) else known


def _is_done(message: EventMessage, outcomes: Mapping[str, FileOutcome]) -> bool:
    return message.error is None and all(outcomes[file.uri].is_done for file in message.files)


def _require_done(outcomes: Mapping[str, FileOutcome]) -> None:
    left = {uri: outcome for uri, outcome in outcomes.items() if not outcome.is_done}
    if not left:
        return
    reasons = "; ".join(f"{uri}: {outcome.reason}" for uri, outcome in list(left.items())[:_MAX_FILES_SHOWN])
    shown = without_secrets(reasons)  # AWS logs this error, and passes it on
    more = f"; and {len(left) - _MAX_FILES_SHOWN:,} more" if len(left) > _MAX_FILES_SHOWN else ""
    raise NotDoneError(f"{len(left):,} of {len(outcomes):,} file(s) aren't done: {shown}{more}", files=list(left))


def _log_message(narrator: LogNarrator, message: EventMessage, outcomes: Mapping[str, FileOutcome]) -> None:
    """Log that a message can't be read, or the outcome of each of its files."""
    if message.error is not None:
        narrator.line(logging.ERROR, message.error.message, message_id=message.id, code=message.error.code)
    for file in message.files:
        outcome, at = outcomes[file.uri], message.sent_at or file.at
        narrator.line(
            logging.INFO if outcome.outcome in _GOOD else logging.WARNING,
            f"{file.uri}: {outcome.outcome}",
            table=outcome.table,
            run_id=outcome.run_id,
            file=file.uri,
            outcome=outcome.outcome,
            reason=outcome.reason,
            etag=file.etag,
            version_id=file.version_id,
            sequencer=file.sequencer,
            message_id=message.id,
            times=message.times,
            event_age_s=None if at is None else round((datetime.now(UTC) - at).total_seconds(), 3),
        )


_SECRETS_OF_AWS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_SHORTEST_SECRET = 16
"""AWS's secrets are longer. Shorter values come from emulators and may be ordinary words, which mustn't be hidden."""


def open_log() -> LogNarrator:
    """Return the function's narrator, and route lakegate's own log through it.

    Secrets in the settings are hidden from the moment they're read (:func:`lakegate.progress.hide`).
    """
    secrets = [os.environ.get(name, "") for name in _SECRETS_OF_AWS]
    hidden = tuple(text for text in secrets if len(text) >= _SHORTEST_SECRET)
    narrator = LogNarrator(sys.stdout, hidden=hidden, command="aws_lambda")
    log = logging.getLogger("lakegate")
    log.addHandler(narrator.handler())
    log.setLevel(logging.INFO)
    # Otherwise Lambda's own handler would write each line again.
    log.propagate = False
    return narrator
