"""Slack, through an incoming webhook or a bot, with ``slack_sdk`` and Block Kit.

:func:`lakegate.alerts.message.deliver` retries; the handlers of ``slack_sdk`` would wait as long as Slack demands. All
text is ``verbatim``, so that Slack doesn't turn text that merely looks like a link or mention into one; explicit links
and mentions are escaped.

Sources: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks,
https://docs.slack.dev/reference/methods/chat.postMessage, https://docs.slack.dev/reference/block-kit/blocks and
https://docs.slack.dev/reference/block-kit/composition-objects/text-object
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, InvalidURL
from math import ceil
from ssl import create_default_context
from typing import Any
from urllib.error import URLError

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError

from lakegate.alerts.message import Failure, Message, SendDeadline, cell, clip, cut
from lakegate.config import ChannelSettings
from lakegate.credentials.webhook import UndeliveredError, client_for, refused
from lakegate.model.words import counted
from lakegate.progress import one_line

_SAID = 80
_TRANSIENT = {"fatal_error", "internal_error", "ratelimited", "request_timeout", "service_unavailable"}
# The SDK logs webhook URLs, which are secrets, at every level.
_MUTE = logging.getLogger(__name__)
_MUTE.setLevel(logging.CRITICAL + 1)


class WebhookSlackSender:
    """Implements :class:`lakegate.alerts.message.Sender` with an incoming webhook, which has no threads.

    It doesn't use the SDK, which follows redirects with a GET: any page may answer that with 200.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._trust = create_default_context()

    def send(self, message: Message, deadline: SendDeadline, thread: str | None) -> str | None:
        """Send the message."""
        del thread
        body = {
            "text": fallback(message),
            "blocks": blocks(message),
            "unfurl_links": False,
            "unfurl_media": False,
        }
        content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        with client_for(self._url, self._trust, deadline.left_s) as client:
            answer = client.post(self._url, content=content, headers=headers)
        if answer.status_code != 200:
            raise refused(answer.status_code, said=_words(answer.text), after=answer.headers.get("Retry-After"))
        return None


class BotSlackSender:
    """Implements :class:`lakegate.alerts.message.Sender` with a bot, which puts each group into one thread.

    Args:
        channel: A channel's id, or ``#name``.
        api_url: A server other than Slack's.
    """

    def __init__(self, token: str, channel: str, api_url: str | None) -> None:
        self._channel = channel
        self._client = WebClient(token, base_url=api_url or WebClient.BASE_URL, logger=_MUTE, retry_handlers=[])
        self._client.proxy = None

    def send(self, message: Message, deadline: SendDeadline, thread: str | None) -> str | None:
        """Send the message and return its timestamp, which identifies the thread."""
        # The SDK takes whole seconds only. The dispatcher enforces the exact deadline.
        self._client.timeout = max(ceil(deadline.left_s), 1)
        body = {
            "channel": self._channel,
            "text": fallback(message),
            "blocks": blocks(message),
            "parse": "none",
            "link_names": False,
            "unfurl_links": False,
            "unfurl_media": False,
        }
        with _translated_errors():
            answer = self._client.api_call("chat.postMessage", json=body | ({"thread_ts": thread} if thread else {}))
        stamp = answer.get("ts")
        return str(stamp) if stamp else None


def make(channel: ChannelSettings, secrets: Mapping[str, str]) -> WebhookSlackSender | BotSlackSender:
    """Return the sender for a configured channel, with its secret references resolved."""
    if "url" in secrets:
        return WebhookSlackSender(secrets["url"])
    return BotSlackSender(secrets["token"], channel.channel or "", channel.api_url)


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Turn the SDK's errors into :class:`UndeliveredError` with a reason that has no secrets."""
    try:
        yield
    except SlackApiError as error:
        raise _refused(error) from None
    except TimeoutError:
        raise _no_answer() from None
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _no_answer() from None
        raise UndeliveredError("it can't be reached", again=True) from None
    except (InvalidURL, SlackClientError, ValueError):
        raise UndeliveredError("its address is invalid") from None
    except (HTTPException, OSError):
        raise UndeliveredError("it closed the connection", again=True) from None


def _refused(error: SlackApiError) -> UndeliveredError:
    answer = error.response
    if answer.status_code != 200:
        return refused(answer.status_code, said=_words(answer.data), after=_retry_after(answer.headers))
    said = _words(answer.data)
    return UndeliveredError(f"Slack says: {said or 'not ok'}", again=said in _TRANSIENT)


def _no_answer() -> UndeliveredError:
    return UndeliveredError("it didn't answer in time; the message may have arrived")


def _words(said: object) -> str:
    """Return Slack's error code, such as ``invalid_blocks``; empty for any other text."""
    if isinstance(said, str) and said.startswith("{"):
        try:
            said = json.loads(said)
        except ValueError:
            return ""
    word = said.get("error") if isinstance(said, Mapping) else said
    text = clip(one_line(word), _SAID) if isinstance(word, str) else ""
    return text if text.replace("_", "").isalnum() and text.islower() else ""


def _retry_after(headers: Mapping[str, str]) -> str | None:
    return next((value for key, value in headers.items() if key.lower() == "retry-after"), None)


MAX_HEADER = 150
MAX_FIELDS = 10
_VALUE = 300
_SENTENCE = 600
_ROW = 500
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_SIGNS = {"error": "\N{LARGE RED CIRCLE}", "warn": "\N{LARGE YELLOW CIRCLE}", "info": "\N{LARGE GREEN CIRCLE}"}

Block = dict[str, Any]


def blocks(message: Message) -> list[Block]:
    """Return the message's blocks."""
    return list(_blocks(message))


def fallback(message: Message) -> str:
    """Return the text that Slack shows instead of blocks, such as in notifications and to screen readers."""
    return f"{_escape(message.title, _VALUE)}: {_escape(message.summary, _SENTENCE)}"


def _blocks(message: Message) -> Iterator[Block]:
    yield {"type": "header", "text": {"type": "plain_text", "text": _header(message), "emoji": False}}
    if message.summary:
        yield _section(_escape(message.summary, _SENTENCE))
    if message.facts:
        fields = [_mrkdwn(f"*{name}*\n{_code(value, _VALUE)}") for name, value in message.facts[:MAX_FIELDS]]
        yield {"type": "section", "fields": fields}
    for failure in message.failures:
        yield _section(_failure(failure, with_table=len(message.notice.tables) > 1))
        if failure.result.examples:
            yield _section(_examples(failure))
    if message.more_failures:
        yield _section(f"… and {counted(message.more_failures, 'more check')} failed.")
    if message.commands:
        yield _section("\n".join(f"{purpose}: {_code(command, _VALUE)}" for purpose, command in message.commands))
    if message.link is not None:
        yield _section(f"<{clip(message.link, 2 * _SENTENCE)}|Report of the run>")
    if message.footnote:
        yield {"type": "context", "elements": [_mrkdwn(_escape(message.footnote, _SENTENCE))]}


def _header(message: Message) -> str:
    # Plain text has neither escapes nor mentions. Without these two signs, nothing can look like a mention.
    title = one_line(message.title).replace("<", "(").replace(">", ")")
    return clip(f"{_SIGNS[message.notice.severity]} {title}", MAX_HEADER)


def _failure(failure: Failure, *, with_table: bool) -> str:
    result = failure.result
    of = f" of {_code(failure.table, _VALUE)}" if with_table else ""
    columns = ", ".join(_code(column, _VALUE) for column in result.columns[:5])
    about = f", column{'s' if len(result.columns) > 1 else ''} {columns}" if columns else ""
    level = "Failed" if result.blocks else "Warning"
    return f"*{level}*{of}: {_code(result.check, _VALUE)}{about}\n{_escape(failure.text, _SENTENCE)}"


def _examples(failure: Failure) -> str:
    rows = (", ".join(f"{one_line(k)}={cell(v)}" for k, v in row.items()) for row in failure.result.examples)
    lines = "\n".join(_escape(_without_ticks(row), _ROW) for row in rows)
    return f"```{lines}```"


def _escape(text: str, limit: int) -> str:
    """Escape ``text`` for Slack's mrkdwn, in at most ``limit`` characters, so that nothing in it is a mention or link.

    Source: https://docs.slack.dev/messaging/formatting-message-text#escaping

    Example:
        >>> _escape("<!here> & co", 100), _escape("<<<", 9)
        ('&lt;!here&gt; &amp; co', '&lt;&lt;…')
    """
    pieces = [_ENTITIES.get(c, c) for c in one_line(text[: limit + 1])[: limit + 1]]
    return cut(pieces, limit)


def _code(text: str, limit: int) -> str:
    r"""Return ``text`` as code in Slack's mrkdwn, in at most ``limit`` characters. Nothing in it can end the code.

    Example:
        >>> _code("a`b", 10) == "`a\N{MODIFIER LETTER GRAVE ACCENT}b`"
        True
    """
    return f"`{_escape(_without_ticks(text), limit - 2) or ' '}`"


def _without_ticks(text: str) -> str:
    """Replace each backtick, which would end code in Slack's mrkdwn, with a lookalike.

    The lookalike isn't an apostrophe, which would end a quoted word in a command and let the rest run as commands.
    """
    return text.replace("`", "\N{MODIFIER LETTER GRAVE ACCENT}")


def _section(text: str) -> Block:
    return {"type": "section", "text": _mrkdwn(text)}


def _mrkdwn(text: str) -> Block:
    return {"type": "mrkdwn", "text": text, "verbatim": True}
