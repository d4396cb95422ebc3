"""Signed HTTP posts to URLs that are secrets themselves.

The signature is Stripe's: an HMAC-SHA256 over the timestamp, a period, and the body. A receiver computes it from the
body's bytes, compares it in constant time (``hmac.compare_digest``), and rejects timestamps that are minutes off.

Source: https://docs.stripe.com/webhooks#verify-manually
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpx

from lakegate.model.secrets import is_loopback

SIGNATURE, TIMESTAMP, DELIVERY, EVENT = (f"Lakegate-{name}" for name in ("Signature", "Timestamp", "Delivery", "Event"))
"""Headers: ``v1=`` and the signature in hexadecimal; seconds since 1970; the message's id; the event."""
_LOGGERS = ("apprise", "httpcore.connection", "httpcore.http11", "httpcore.proxy", "httpx", "urllib3.connectionpool")
"""Loggers that write URLs, which are secrets here."""
_BUSY = (408, 429)
"""Statuses with which a receiver asks to retry, besides those of a server's errors."""
_SENDING: ContextVar[bool] = ContextVar("lakegate_notify_sending", default=False)


class UndeliveredError(Exception):
    """A message couldn't be sent.

    Attributes:
        after_s: Seconds to wait first, if the receiver asked for that.
    """

    def __init__(self, reason: str, *, again: bool = False, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again
        self.after_s = after_s


class SignedPost:
    """Posts to one URL, without following redirects.

    Args:
        secret: Key to sign bodies with; ``None`` to send them unsigned.
    """

    def __init__(self, url: str, secret: str | None) -> None:
        self._url = url
        self._secret = secret
        # Cached, because loading the certificates takes longer than sending a message.
        self._trust = httpx.create_ssl_context()

    def send(self, body: bytes, *, event: str, key: str, timeout_s: float) -> None:
        """Send a JSON body. Any 2xx response counts as success.

        Args:
            key: The message's id, which stays the same for all attempts.

        Raises:
            UndeliveredError: When it couldn't be sent.
        """
        headers = {"Content-Type": "application/json", EVENT: event, DELIVERY: key}
        if self._secret is not None:
            headers |= sign(self._secret, int(time.time()), body)
        with (
            client_for(self._url, self._trust, timeout_s) as client,
            client.stream("POST", self._url, content=body, headers=headers) as answer,
        ):
            if not answer.is_success:
                raise refused(answer.status_code, after=answer.headers.get("Retry-After"))


@contextmanager
def client_for(url: str, trust: ssl.SSLContext, timeout_s: float) -> Iterator[httpx.Client]:
    """Yield a client for a request to a URL. It doesn't follow redirects, which could lead to an unknown receiver.

    Args:
        trust: Whom to trust if the URL or the proxy uses TLS.

    Raises:
        UndeliveredError: When the request fails.
    """
    try:
        by_proxy = not is_loopback(httpx.URL(url).host)
        with (
            quiet(),
            httpx.Client(timeout=max(timeout_s, 0.001), verify=trust, trust_env=by_proxy) as client,
        ):
            yield client
    except (httpx.ReadTimeout, httpx.WriteTimeout):
        raise UndeliveredError("it didn't answer in time; the message may have arrived") from None
    except httpx.TransportError as error:
        raise UndeliveredError(_connection_problem(error), again=True) from None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        raise UndeliveredError("its address, or that of the proxy, is invalid") from None
    except ImportError:
        raise UndeliveredError("the proxy is a SOCKS proxy, which needs httpx[socks]") from None


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
    """Return the seconds of a ``Retry-After`` header; ``None`` if it's missing or a date.

    Example:
        >>> retry_after_s("30"), retry_after_s("Wed, 21 Oct 2026 07:28:00 GMT")
        (30.0, None)
    """
    text = (value or "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None  # 11 days


def refused(status: int, *, said: str = "", after: str | None = None) -> UndeliveredError:
    """Return the error for an unsuccessful HTTP response.

    Args:
        said: The reason in the response.
        after: Its ``Retry-After`` header.
    """
    wait_s = retry_after_s(after)
    reason = f"it answered {status}" + (f" ({said})" if said else "")
    if wait_s is not None and wait_s > 0:
        reason += f" and asked to wait {wait_s:g} s"
    return UndeliveredError(reason, again=status in _BUSY or status >= 500, after_s=wait_s)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep libraries from logging URLs in this thread while the body runs."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_not_ours)  # adding it twice changes nothing
    token = _SENDING.set(True)
    try:
        yield
    finally:
        _SENDING.reset(token)


def _is_not_ours(_record: logging.LogRecord) -> bool:
    return not _SENDING.get()


def _connection_problem(error: httpx.TransportError) -> str:
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
        return "it can't be reached"
    if isinstance(error, httpx.UnsupportedProtocol):
        return "its address doesn't start with https:// or http://"
    return "it closed the connection"
