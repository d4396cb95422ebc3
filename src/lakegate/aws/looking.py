"""How the parts of a deployment are: its queues, its function, its logs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from lakegate.aws.clients import Clients
from lakegate.aws.errors import error_code, translated
from lakegate.aws.values import FunctionStatus, LoggedError

_SINCE = timedelta(days=1)
_ERRORS = '?"\\"level\\": \\"error\\"" ?"[ERROR]" ?"Task timed out" ?"Runtime exited"'
_LONGEST = 1000
_GONE = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "ResourceNotFoundException"})
_T = TypeVar("_T")


def queue_depth(clients: Clients, url: str | None) -> tuple[int | None, int | None]:
    """Return how many messages wait in a queue and how many are being worked on; ``None`` without a queue."""
    if url is None:
        return None, None
    with translated("looking at the queue"):
        answer = _unless_gone(
            lambda: clients.sqs.get_queue_attributes(
                QueueUrl=url,
                AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
            )
        )
    if answer is None:
        return None, None
    found = answer["Attributes"]
    return int(found["ApproximateNumberOfMessages"]), int(found["ApproximateNumberOfMessagesNotVisible"])


def function_status(clients: Clients, name: str | None) -> FunctionStatus | None:
    """Return the function as it is; ``None`` without one."""
    if name is None:
        return None
    with translated(f"looking at function {name}"):
        found = _unless_gone(lambda: clients.functions.get_function_configuration(FunctionName=name))
    if found is None:
        return None
    return FunctionStatus(
        name=name,
        runtime=found.get("Runtime", ""),
        state=found.get("StateReason") or found.get("State", "Active"),
        code_sha256=found["CodeSha256"],
        modified_at=found["LastModified"],
    )


def last_errors(clients: Clients, group: str | None, limit: int) -> tuple[LoggedError, ...]:
    """Return the last errors that the logs of one day tell of, the oldest first."""
    if group is None or limit < 1:
        return ()
    since = datetime.now(UTC) - _SINCE
    with translated(f"reading the logs {group}"):
        pages = clients.logs.get_paginator("filter_log_events").paginate(
            logGroupName=group, startTime=int(since.timestamp() * 1000), filterPattern=_ERRORS
        )
        events = _unless_gone(lambda: [event for page in pages for event in page["events"]]) or []
    events.sort(key=lambda event: event.get("timestamp", 0))
    return tuple(
        LoggedError(
            time=datetime.fromtimestamp(event["timestamp"] / 1000, UTC), text=event["message"].strip()[:_LONGEST]
        )
        for event in events[-limit:]
    )


def _unless_gone(ask: Callable[[], _T]) -> _T | None:
    """Return what AWS answers; ``None`` when what it is asked of is not there any more."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - an extra, and slow to import

    try:
        return ask()
    except ClientError as error:
        if error_code(error) in _GONE:
            return None
        raise
