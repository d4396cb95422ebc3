"""Slack, through an incoming webhook or a bot, with Block Kit.

All text is ``verbatim``, so that Slack doesn't turn text that merely looks like a link or mention into one; explicit
links and mentions are escaped.

Sources: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks,
https://docs.slack.dev/reference/methods/chat.postMessage, https://docs.slack.dev/reference/block-kit/blocks and
https://docs.slack.dev/reference/block-kit/composition-objects/text-object
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from ssl import create_default_context
from typing import Any

from lakegate.alerts.message import ROW, SENTENCE, VALUE, Markup, Message, clip, cut, paragraphs
from lakegate.config import ChannelSettings
from lakegate.credentials.webhook import UndeliveredError, client_for, refused
from lakegate.progress import one_line

_API = "https://slack.com/api/"
_LONGEST_REASON = 80
_TRANSIENT = {"fatal_error", "internal_error", "ratelimited", "request_timeout", "service_unavailable"}


class SlackSender:
    """Implements :class:`lakegate.alerts.message.Sender` with an incoming webhook, or a bot that posts to a channel.

    Args:
        url: The webhook, or the bot's method ``chat.postMessage``. Redirects aren't followed.
        token: The bot's token; ``None`` for a webhook.
        channel: The channel that the bot posts to: its id, or ``#name``.
    """

    def __init__(self, url: str, token: str | None = None, channel: str | None = None) -> None:
        self._url = url
        self._headers = {"Content-Type": "application/json; charset=utf-8"}
        self._body: dict[str, Any] = {"unfurl_links": False, "unfurl_media": False}
        self._is_bot = token is not None
        if self._is_bot:
            self._headers["Authorization"] = f"Bearer {token}"
            self._body |= {"channel": channel, "parse": "none", "link_names": False}
        self._trust = create_default_context()

    def send(self, message: Message, timeout_s: float) -> None:
        """Send the message."""
        body = self._body | {"text": fallback(message), "blocks": list(blocks(message))}
        with client_for(self._url, self._trust, timeout_s) as client:
            answer = client.post(self._url, content=json.dumps(body).encode(), headers=self._headers)
        if answer.status_code != 200:
            raise refused(answer.status_code, said=_error_code(answer.text), after=answer.headers.get("Retry-After"))
        if self._is_bot and _parsed(answer.text).get("ok") is not True:
            code = _error_code(answer.text)
            raise UndeliveredError(f"Slack says: {code or 'not ok'}", again=code in _TRANSIENT)


def make(channel: ChannelSettings, secrets: Mapping[str, str]) -> SlackSender:
    """Return the sender for a configured channel, with its secret references resolved."""
    if "url" in secrets:
        return SlackSender(secrets["url"])
    return SlackSender(f"{channel.api_url or _API}chat.postMessage", secrets["token"], channel.channel)


def _parsed(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _error_code(text: str) -> str:
    """Return Slack's error code, such as ``invalid_blocks``; empty for any other text."""
    code = clip(one_line(str(_parsed(text).get("error", text))), _LONGEST_REASON)
    return code if code.replace("_", "").isalnum() and code.islower() else ""


MAX_HEADER = 150
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_SIGNS = {"error": "\N{LARGE RED CIRCLE}", "warn": "\N{LARGE YELLOW CIRCLE}", "info": "\N{LARGE GREEN CIRCLE}"}

Block = dict[str, Any]


def fallback(message: Message) -> str:
    """Return the text that Slack shows instead of blocks, such as in notifications and to screen readers."""
    return f"{_escape(message.title, VALUE)}: {_escape(message.said[0], SENTENCE)}"


def blocks(message: Message) -> Iterator[Block]:
    """Yield the message's blocks."""
    # Plain text has neither escapes nor mentions. Without these two signs, nothing can look like a mention.
    title = one_line(message.title).replace("<", "(").replace(">", ")")
    header = clip(f"{_SIGNS[message.notice.severity]} {title}", MAX_HEADER)
    yield {"type": "header", "text": {"type": "plain_text", "text": header, "emoji": False}}
    for text in paragraphs(message, _MRKDWN):
        yield {"type": "section", "text": _mrkdwn(text)}
    if message.footnote:
        yield {"type": "context", "elements": [_mrkdwn(message.footnote)]}


def _mrkdwn(text: str) -> Block:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _escape(text: str, limit: int) -> str:
    """Escape ``text`` for Slack's mrkdwn, in at most ``limit`` characters, so that nothing in it is a mention or link.

    Source: https://docs.slack.dev/messaging/formatting-message-text#escaping

    Example:
        >>> _escape("<!here> & co", 100), _escape("<<<", 9)
        ('&lt;!here&gt; &amp; co', '&lt;&lt;…')
    """
    return cut([_ENTITIES.get(c, c) for c in one_line(text[: limit + 1])[: limit + 1]], limit)


def _code(text: str, limit: int) -> str:
    r"""Return ``text`` as code in Slack's mrkdwn, in at most ``limit`` characters. Nothing in it can end the code.

    Example:
        >>> _code("a`b", 10) == "`a\N{MODIFIER LETTER GRAVE ACCENT}b`"
        True
    """
    return f"`{_escape(_without_ticks(text), limit - 2) or ' '}`"


def _rows(rows: Sequence[str]) -> str:
    lines = "\n".join(_escape(_without_ticks(row), ROW) for row in rows)
    return f"```{lines}```"


def _without_ticks(text: str) -> str:
    """Replace each backtick, which would end code in Slack's mrkdwn, with a lookalike.

    The lookalike isn't an apostrophe, which would end a quoted word in a command and let the rest run as commands.
    """
    return text.replace("`", "\N{MODIFIER LETTER GRAVE ACCENT}")


_MRKDWN = Markup(text=_escape, code=_code, rows=_rows, link=lambda url, label: f"<{clip(url, 2 * SENTENCE)}|{label}>")
