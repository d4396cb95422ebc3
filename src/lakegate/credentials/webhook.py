"""Signed HTTP posts to addresses that are secrets themselves.

The signature is Stripe's: HMAC-SHA256 over the time, a dot, and the body as sent. A receiver computes it again from the
body's bytes, compares in constant time (``hmac.compare_digest``), and refuses timestamps that are minutes off.

Source: https://docs.stripe.com/webhooks#verify-manually
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpx

from lakegate.model.secrets import is_loopback

SIGNATURE, TIMESTAMP, DELIVERY, EVENT = (f"Lakegate-{name}" for name in ("Signature", "Timestamp", "Delivery", "Event"))
"""Headers: ``v1=`` and the signature in hexadecimal digits; seconds since 1970; a name of the message; the event."""
_LOUD = ("apprise", "httpcore.connection", "httpcore.http11", "httpcore.proxy", "httpx", "urllib3.connectionpool")
"""Loggers that write addresses, which are secrets here."""
_SENDING: ContextVar[bool] = ContextVar("lakegate_notify_sending", default=False)


class UndeliveredError(Exception):
    """A message that couldn't be sent.

    Attributes:
        again: Whether trying again may help.
        after_s: Seconds that the other side asks us to wait for before.
    """

    def __init__(self, reason: str, *, again: bool = False, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again
        self.after_s = after_s


class SignedPost:
    """Posts to one address. Redirects lead away from whom we know, and aren't followed.

    Args:
        secret: What bodies are signed with; ``None`` to send them unsigned.
    """

    def __init__(self, url: str, secret: str | None) -> None:
        self._url = url
        self._secret = secret
        # Reading all certificates takes longer than sending a message.
        self._trust = httpx.create_ssl_context()

    def send(self, body: bytes, *, event: str, key: str, timeout_s: float) -> None:
        """Send a JSON body; any answer of 2xx will do.

        Args:
            key: Names the message over all tries.
        """
        headers = {"Content-Type": "application/json", EVENT: event, DELIVERY: key}
        if self._secret is not None:
            headers |= sign(self._secret, int(time.time()), body)
        try:
            by_proxy = not is_loopback(httpx.URL(self._url).host)
            with (
                quiet(),
                httpx.Client(timeout=max(timeout_s, 0.001), verify=self._trust, trust_env=by_proxy) as client,
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


def sign(secret: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign ``body``.

    Args:
        timestamp: Now, in seconds since 1970.

    Example:
        >>> sign("whsec", 1_790_000_000, b"{}")["Lakegate-Signature"][:18]
        'v1=7782ea78090bcce'
    """
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {TIMESTAMP: str(timestamp), SIGNATURE: f"v1={digest}"}


def retry_after_s(value: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header; ``None`` when there is none, or a date.

    Example:
        >>> retry_after_s("30"), retry_after_s("Wed, 21 Oct 2026 07:28:00 GMT")
        (30.0, None)
    """
    text = (value or "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None  # 11 days


def refused(status: int, *, said: str = "", after: str | None = None) -> UndeliveredError:
    """Return the error for an unsuccessful HTTP response.

    Args:
        after: Its ``Retry-After`` header.
    """
    waits = retry_after_s(after)
    words = f"it answered {status}" + (f" ({said})" if said else "")
    if waits is not None and waits > 0:
        words += f" and asked to wait {waits:g} s"
    return UndeliveredError(words, again=status == 429 or status >= 500, after_s=waits)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep libraries from logging addresses while the body runs, in this thread."""
    for name in _LOUD:
        logging.getLogger(name).addFilter(_is_not_ours)  # adding it twice changes nothing
    token = _SENDING.set(True)
    try:
        yield
    finally:
        _SENDING.reset(token)


def _is_not_ours(_record: logging.LogRecord) -> bool:
    return not _SENDING.get()


def _away(error: httpx.TransportError) -> str:
    if isinstance(error, httpx.ConnectError):
        return "it can't be reached"
    if isinstance(error, httpx.UnsupportedProtocol):
        return "its address doesn't start with https:// or http://"
    return "it closed the connection"
