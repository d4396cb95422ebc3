"""E-mail, Teams, PagerDuty and the other services that Apprise supports, as plain text.

Source: https://github.com/caronc/apprise/wiki
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextvars import copy_context
from copy import copy
from threading import Thread
from typing import Any

import apprise

from lakegate.alerts.message import Message, PartlyDeliveredError, SendDeadline, cell, clip
from lakegate.config import ChannelSettings
from lakegate.credentials.webhook import UndeliveredError
from lakegate.model.words import counted
from lakegate.progress import one_line

_LONGEST_TITLE = 200
_LONGEST = 500
_MAIL = ("mailto", "mailtos")
_MOST_SEPARATE = 5
"""Recipients whose mails are sent separately. More would be too many connections for some mail servers."""
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
        title, body = clip(_text(message.title), _LONGEST_TITLE), "\n".join(_lines(message))
        sent = [False] * len(self._services)

        def send(at: int) -> None:
            sent[at] = bool(
                self._services[at].notify(
                    title=title,
                    body=body,
                    notify_type=_TYPES[message.notice.severity],
                    body_format=apprise.NotifyFormat.TEXT,
                    interpret_escapes=False,
                )
            )

        # At the same time, because a mail server may take seconds to greet. Each in this context: it keeps them quiet.
        others = [Thread(target=copy_context().run, args=(send, at), daemon=True) for at in range(1, len(sent))]
        for one in others:
            one.start()
        send(0)
        for one in others:
            one.join()
        if not any(sent):
            raise UndeliveredError("Apprise couldn't deliver it", again=True)
        if not all(sent):
            raise PartlyDeliveredError(f"Apprise couldn't deliver it to {sent.count(False)} of {len(sent)} recipients")
        return None


def _by_recipient(service: Any) -> Iterator[apprise.Apprise]:
    """Yield a service for each recipient of a mail, because Apprise doesn't say which of several it reached.

    The targets of other services aren't always recipients: DingTalk mentions them in one message to a group.
    """
    separate = []
    if service.schema in _MAIL and len(service.targets) <= _MOST_SEPARATE:
        for target in service.targets:
            separate.append(copy(service))
            separate[-1].targets = [target]
    for one in separate or [service]:
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
