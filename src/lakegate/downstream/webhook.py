"""A webhook that gets each event as one JSON object, signed like alerts (:mod:`lakegate.credentials.webhook`)."""

from __future__ import annotations

import json

from lakegate.config import WebhookDownstream
from lakegate.credentials.secret import resolve_secret
from lakegate.credentials.webhook import SignedPost, UndeliveredError
from lakegate.downstream import DownstreamContext
from lakegate.errors import DownstreamError, DownstreamUnavailableError
from lakegate.model.downstream import EVENT_VERSION, DownstreamEvent
from lakegate.model.run import Run, new_run_id


class WebhookTarget:
    """Implements :class:`lakegate.ports.Downstream` with an HTTP POST."""

    def __init__(self, url: str, secret: str | None, timeout_s: float) -> None:
        self._post = SignedPost(url, secret)
        self._timeout_s = timeout_s

    def deliver(self, event: DownstreamEvent, run: Run | None) -> None:
        """Send the event. Any 2xx answer counts as delivered.

        Raises:
            DownstreamUnavailableError: There was no answer, or one that asks to retry: 408, 429, 5xx.
            DownstreamError: Any other answer.
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
            # After a timeout, the event may have arrived or not: resend it with the same id.
            if error.again or "in time" in error.reason:
                raise DownstreamUnavailableError(message, after_s=error.after_s) from None
            raise DownstreamError(message) from None


def make(name: str, settings: WebhookDownstream, context: DownstreamContext) -> WebhookTarget:
    """Return the webhook that a section of the settings describes, with its secrets resolved."""
    del context
    setting = f"downstream.{name}"
    url = resolve_secret(settings.url, setting=f"{setting}.url") or ""
    return WebhookTarget(url, resolve_secret(settings.secret, setting=f"{setting}.secret"), settings.timeout_s)
