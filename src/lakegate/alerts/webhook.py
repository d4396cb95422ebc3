"""A webhook of any kind: one JSON object, signed so that its receiver knows who sent it and when.

The signature is Stripe's: HMAC-SHA256 over the time, a dot, and the body as sent. A receiver computes it again from the
body's bytes, compares in constant time (``hmac.compare_digest``), and refuses timestamps that are minutes off.

Source: https://docs.stripe.com/webhooks#verify-manually
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

import httpx

from lakegate.alerts.message import Failure, Message, cell, clip
from lakegate.alerts.sending import Deadline, UndeliveredError, refused
from lakegate.config import ChannelSettings
from lakegate.model.notices import GivenUpFile
from lakegate.model.run import Run
from lakegate.model.secrets import is_loopback
from lakegate.progress import one_line, redact, without_secrets

SIGNATURE, TIMESTAMP, DELIVERY, EVENT = (f"Lakegate-{name}" for name in ("Signature", "Timestamp", "Delivery", "Event"))
"""Headers: ``v1=`` and the signature in hexadecimal digits; seconds since 1970; a name of the message; the event."""
_LONGEST = 2000


class WebhookSender:
    """Implements :class:`lakegate.alerts.sending.Sender` by an HTTP POST.

    Args:
        url: Where to.
        secret: What messages are signed with; ``None`` to send them unsigned.
    """

    def __init__(self, url: str, secret: str | None) -> None:
        self._url = url
        self._secret = secret
        # Reading all certificates takes longer than sending a message.
        self._trust = httpx.create_ssl_context()

    def send(self, message: Message, deadline: Deadline, thread: str | None) -> str | None:
        """Send the message; any answer of 2xx will do. Redirects lead away from whom we know, and are not followed.

        Raises:
            UndeliveredError: When there was no such answer.
        """
        del thread
        body = json.dumps(payload(message), ensure_ascii=True).encode()
        headers = {"Content-Type": "application/json", EVENT: message.notice.event, DELIVERY: message.key}
        if self._secret is not None:
            headers |= sign(self._secret, int(time.time()), body)
        try:
            by_proxy = not is_loopback(httpx.URL(self._url).host)
            with (
                httpx.Client(timeout=max(deadline.left_s, 0.001), verify=self._trust, trust_env=by_proxy) as client,
                client.stream("POST", self._url, content=body, headers=headers) as answer,
            ):
                if not answer.is_success:
                    raise refused(answer.status_code, after=answer.headers.get("Retry-After"))
        except httpx.TimeoutException:
            raise UndeliveredError("it didn't answer in time; the message may have arrived") from None
        except httpx.TransportError as error:
            raise UndeliveredError(_away(error), again=True) from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError):
            raise UndeliveredError("its address is invalid") from None
        return None


def make(channel: ChannelSettings, secrets: Mapping[str, str]) -> WebhookSender:
    """Return the sender for a configured channel, with its secret references resolved."""
    del channel
    return WebhookSender(secrets["url"], secrets.get("secret"))


def sign(secret: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign ``body``.

    Args:
        secret: What both sides know.
        timestamp: Now, in seconds since 1970.
        body: The bytes that are sent.

    Example:
        >>> sign("whsec", 1_790_000_000, b"{}")["Lakegate-Signature"][:18]
        'v1=7782ea78090bcce'
    """
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {TIMESTAMP: str(timestamp), SIGNATURE: f"v1={digest}"}


def payload(message: Message) -> dict[str, Any]:
    """Return the object that is sent, as ``docs/how-to/be-told-of-failures.md`` describes it."""
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
        "run_id": None if file.run_id is None else _text(file.run_id),
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
        "detail": None if found.detail is None else _text(found.detail),
        "examples": [{_text(name): cell(value, 200) for name, value in row.items()} for row in found.examples],
    }


def _text(text: str) -> str:
    return clip(one_line(text), _LONGEST)


def _away(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.ConnectError):
        return "it can't be reached"
    if isinstance(error, httpx.UnsupportedProtocol):
        return "its address doesn't start with https:// or http://"
    return "it closed the connection"
