"""Any webhook: one JSON object per message, signed (:mod:`lakegate.credentials.webhook`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lakegate.alerts.message import Failure, Message, SendDeadline, cell, clip
from lakegate.config import ChannelSettings
from lakegate.credentials.webhook import SignedPost
from lakegate.model.downstream import Delivery, GivenUpFile
from lakegate.model.run import Run
from lakegate.progress import one_line, redact, without_secrets

_LONGEST = 2000


class WebhookSender:
    """Implements :class:`lakegate.alerts.message.Sender` with an HTTP POST."""

    def __init__(self, url: str, secret: str | None) -> None:
        self._post = SignedPost(url, secret)

    def send(self, message: Message, deadline: SendDeadline, thread: str | None) -> str | None:
        """Send the message; any 2xx response is a success. Redirects aren't followed: they may lead to a stranger."""
        del thread
        body = json.dumps(payload(message), ensure_ascii=True).encode()
        self._post.send(body, event=message.notice.event, key=message.key, timeout_s=deadline.left_s)
        return None


def make(channel: ChannelSettings, secrets: Mapping[str, str]) -> WebhookSender:
    """Return the sender for a configured channel, with its secret references resolved."""
    del channel
    return WebhookSender(secrets["url"], secrets.get("secret"))


def payload(message: Message) -> dict[str, Any]:
    """Return the object to send, as documented in ``docs/how-to/get-alerts.md``."""
    notice, run = message.notice, message.notice.run
    return {
        "version": 1,
        "id": message.key,
        "event": notice.event,
        "recovered": notice.recovered,
        "severity": notice.severity,
        "at": notice.at.isoformat(),
        "title": _text(message.title),
        "summary": _text(message.summary),
        "tables": [_text(table) for table in notice.tables],
        "run": None if run is None else _run(run),
        "file": None if notice.file is None else _file(notice.file),
        "late": None if notice.late is None else notice.late.model_dump(mode="json", exclude={"notifications"}),
        "delivery": None if notice.delivery is None else _delivery(notice.delivery),
        "checks": [_check(failure) for failure in message.failures],
        "more_checks": message.more_failures,
        "commands": [_text(command) for _, command in message.commands],
        "report_url": message.link,
        "counted": notice.counted,
        "group": {"number": message.group.number, "missed": message.group.missed},
    }


def _file(file: GivenUpFile) -> dict[str, Any]:
    return {
        "table": _text(file.table),
        "uri": _text(redact(file.uri)),
        "tries": file.tries,
        "error": file.code,
        "reason": _text(without_secrets(file.reason)),
        "run_id": _text(file.run_id),
    }


def _delivery(delivery: Delivery) -> dict[str, Any]:
    return {
        "downstream": delivery.downstream,
        "kind": delivery.kind,
        "tries": delivery.tries,
        "reason": None if delivery.reason is None else _text(without_secrets(delivery.reason)),
        "run_id": _text(delivery.run_id),
        "commit": delivery.commit,
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "run_id": _text(run.run_id),
        "kind": run.kind,
        "status": run.status,
        "branch": _text(run.branch) if run.branch_kept else None,
        "commit": run.publication.commit if run.publication else None,
        "error": None if run.error is None else run.error.code,
    }


def _check(failure: Failure) -> dict[str, Any]:
    found = failure.result
    return {
        "table": _text(failure.table),
        "name": _text(found.name),
        "check": _text(found.check),
        "columns": [_text(column) for column in found.columns],
        "severity": found.severity,
        "failing_rows": found.failing_rows,
        "total_rows": found.total_rows,
        "detail": _text(found.detail),
        "description": _text(found.description),
        "owner": _text(found.owner),
        "tags": [_text(tag) for tag in found.tags],
        "examples": [{_text(name): cell(value, 200) for name, value in row.items()} for row in found.examples],
    }


def _text(text: str | None) -> str | None:
    return None if text is None else clip(one_line(text), _LONGEST)
