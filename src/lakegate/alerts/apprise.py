"""E-mail, Teams, PagerDuty, any webhook and the other services that Apprise supports, as plain text.

Source: https://github.com/caronc/apprise/wiki
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import apprise

from lakegate.alerts.message import ROW, Markup, Message, clip, paragraphs
from lakegate.config import ChannelSettings
from lakegate.credentials.webhook import UndeliveredError
from lakegate.progress import one_line

_LONGEST_TITLE = 200
_MARKUP = re.compile(r"([@<!#](?=[\w!@#&])|\](?=[(\[:]))")
"""Text that a service may read as a mention (``@everyone``), or Markdown as a link or picture (``[x](y)``).

A zero-width space after the first sign prevents that. Apprise itself escapes the HTML of mails.
"""
_TYPES = {
    "error": apprise.NotifyType.FAILURE,
    "warn": apprise.NotifyType.WARNING,
    "info": apprise.NotifyType.INFO,
}


class AppriseSender:
    """Implements :class:`lakegate.alerts.message.Sender` with Apprise.

    Args:
        url: The service's Apprise URL, including secrets.
    """

    def __init__(self, url: str) -> None:
        self._service = apprise.Apprise()
        if not self._service.add(url):
            raise UndeliveredError("Apprise doesn't support this kind of URL")

    def send(self, message: Message, timeout_s: float) -> None:
        """Send the message. Apprise returns no reason for a failure; ``apprise -vv URL`` shows one."""
        del timeout_s
        was_sent = self._service.notify(
            title=_text(message.title, _LONGEST_TITLE),
            body=body(message),
            notify_type=_TYPES[message.notice.severity],
            body_format=apprise.NotifyFormat.TEXT,
            interpret_escapes=False,
        )
        if not was_sent:
            # Not again: Apprise doesn't say which of several recipients it reached.
            raise UndeliveredError("Apprise couldn't deliver it to every recipient")


def make(channel: ChannelSettings, secrets: Mapping[str, str]) -> AppriseSender:
    """Return the sender for a configured channel, with its secret references resolved."""
    del channel
    return AppriseSender(secrets["url"])


def body(message: Message) -> str:
    """Return the message's text."""
    return "\n\n".join(filter(None, (*paragraphs(message, _PLAIN), message.footnote)))


def _text(text: str, limit: int) -> str:
    return clip(_MARKUP.sub("\\1\u200b", one_line(text)), limit)


_PLAIN = Markup(
    text=_text,
    code=_text,
    rows=lambda rows: "\n".join(f"    {_text(row, ROW)}" for row in rows),
    link=lambda url, label: f"{label}: {url}",
)
