"""E-mail, Teams, PagerDuty, any webhook and the other services that Apprise supports, as plain text.

Source: https://github.com/caronc/apprise/wiki
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import apprise

from lakegate.alerts.message import Message, SendDeadline, cell, clip
from lakegate.config import ChannelSettings
from lakegate.credentials.webhook import UndeliveredError
from lakegate.model.words import counted
from lakegate.progress import one_line

_LONGEST_TITLE = 200
_LONGEST = 500
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

    def send(self, message: Message, deadline: SendDeadline) -> None:
        """Send the message. Apprise returns no reason for a failure; ``apprise -vv URL`` shows one."""
        del deadline
        was_sent = self._service.notify(
            title=clip(_text(message.title), _LONGEST_TITLE),
            body="\n".join(lines(message)),
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


def lines(message: Message) -> Iterator[str]:
    """Yield the message's text, line by line."""
    yield _text(message.summary)
    yield ""
    for name, value in message.facts:
        yield f"{name}: {_text(value)}"
    for failure in message.failures:
        about = f" of {_text(failure.table)}" if len(message.notice.tables) > 1 else ""
        level = "failed" if failure.result.blocks else "warns"
        yield f"Check {_text(failure.result.check)}{about} {level}: {_text(failure.text)}"
        for row in failure.result.examples:
            yield "    " + _text(", ".join(f"{one_line(name)}={cell(value)}" for name, value in row.items()))
    if message.more_failures:
        yield f"{counted(message.more_failures, 'more check')} failed."
    for purpose, command in message.commands:
        yield f"{purpose}: {_text(command)}"
    if message.link is not None:
        yield f"Report: {message.link}"
    if message.footnote:
        yield message.footnote


def _text(text: str) -> str:
    return clip(_MARKUP.sub("\\1\u200b", one_line(text)), _LONGEST)
