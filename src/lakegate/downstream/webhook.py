"""A webhook: each event as one JSON object, signed like alerts (:mod:`lakegate.credentials.webhook`)."""

from __future__ import annotations

import json

from lakegate.config import WebhookDownstream
from lakegate.credentials.secret import resolve_secret
from lakegate.credentials.webhook import SignedPost, UndeliveredError
from lakegate.downstream import Around
from lakegate.errors import DownstreamError, DownstreamUnavailableError
from lakegate.model.downstream import EVENT_VERSION, DownstreamEvent
from lakegate.model.run import Run, new_run_id


class WebhookTarget:
    """Implements :class:`lakegate.ports.Downstream` by an HTTP POST.

    Args:
        secret: What events are signed with; ``None`` to send them unsigned.
    """

    def __init__(self, url: str, secret: str | None, timeout_s: float) -> None:
        self._post = SignedPost(url, secret)
        self._timeout_s = timeout_s

    def deliver(self, event: DownstreamEvent, run: Run | None) -> None:
        """Send the event; any answer of 2xx will do.

        Raises:
            DownstreamUnavailableError: When there was no answer, or one that says to try again: 408, 429, 5xx.
        """
        del run
        self._send(event.model_dump_json().encode(), event.kind, event.event_id)

    def test(self) -> str:
        """Send an event of kind ``test``, which is about no table."""
        key = f"test-{new_run_id()}"
        body = {"version": EVENT_VERSION, "event_id": key, "kind": "test", "tables": []}
        self._send(json.dumps(body).encode(), "test", key)
        return "It accepted a test event."

    def _send(self, body: bytes, event: str, key: str) -> None:
        try:
            self._post.send(body, event=event, key=key, timeout_s=self._timeout_s)
        except UndeliveredError as error:
            message = f"{error.reason[:1].upper()}{error.reason[1:]}."
            # Of an answer that didn't come in time, nobody knows: it's sent again, with the same id.
            if error.again or "in time" in error.reason:
                raise DownstreamUnavailableError(message, after_s=error.after_s) from None
            raise DownstreamError(message) from None


def make(name: str, settings: WebhookDownstream, around: Around) -> WebhookTarget:
    """Return the webhook that a section of the settings describes, with its secrets resolved."""
    del around
    setting = f"downstream.{name}"
    url = resolve_secret(settings.url, setting=f"{setting}.url") or ""
    return WebhookTarget(url, resolve_secret(settings.secret, setting=f"{setting}.secret"), settings.timeout_s)
