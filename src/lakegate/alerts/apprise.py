"""E-mail, Teams, PagerDuty and the other services that Apprise supports, as plain text.

Source: https://github.com/caronc/apprise/wiki
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import apprise

from lakegate.alerts.message import Message, PartlyDeliveredError, SendDeadline, cell, clip
from lakegate.config import ChannelSettings
from lakegate.credentials.webhook import UndeliveredError
from lakegate.model.words import counted
from lakegate.progress import one_line

_LONGEST_TITLE = 200
_LONGEST = 500
_MOST_SEPARATE = 5
"""Recipients of a service that get a message each. More would take too long."""
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
        found = apprise.Apprise()
        if not found.add(url):
            raise UndeliveredError("Apprise doesn't support this kind of URL")
        self._services = [one for service in found for one in _by_recipient(service)]

    def send(self, message: Message, deadline: SendDeadline, thread: str | None) -> str | None:
        """Send the message. Apprise returns no reason for a failure; ``apprise -vv URL`` shows one."""
        del deadline, thread
        sent = [
            service.notify(
                title=clip(_text(message.title), _LONGEST_TITLE),
                body="\n".join(_lines(message)),
                notify_type=_TYPES[message.notice.severity],
                body_format=apprise.NotifyFormat.TEXT,
                interpret_escapes=False,
            )
            for service in self._services
        ]
        if not any(sent):
            raise UndeliveredError("Apprise couldn't deliver it", again=True)
        if not all(sent):
            raise PartlyDeliveredError(f"Apprise couldn't deliver it to {sent.count(False)} of {len(sent)} recipients")
        return None


def _by_recipient(service: Any) -> Iterator[apprise.Apprise]:
    """Yield a service for each of its recipients, because Apprise doesn't say which of several a message reached."""
    targets = getattr(service, "targets", None)
    if not isinstance(targets, list) or not 1 < len(targets) <= _MOST_SEPARATE:
        targets = [targets]
    for target in targets:
        one = copy(service)
        if len(targets) > 1:
            one.targets = [target]
        alone = apprise.Apprise()
        alone.add(one)
        yield alone


def make(channel: ChannelSettings, secrets: Mapping[str, str]) -> AppriseSender:
    """Return the sender for a configured channel, with its secret references resolved."""
    del channel
    return AppriseSender(secrets["url"])


def _lines(message: Message) -> Iterator[str]:
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
