"""Slack, by an incoming webhook or as a bot, through ``slack_sdk``.

Trying again is :func:`lakegate.notify.sending.deliver`'s: ``slack_sdk``'s own handlers wait for as long as Slack asks.

Source: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks and
https://docs.slack.dev/reference/methods/chat.postMessage
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, InvalidURL
from math import ceil
from urllib.error import URLError

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.webhook import WebhookClient

from lakegate.model.channels import ChannelSettings
from lakegate.notify.blocks import blocks, fallback
from lakegate.notify.message import Message
from lakegate.notify.sending import Deadline, UndeliveredError, refused
from lakegate.notify.text import clip, one_line

_SAID = 80
_TRANSIENT = {"fatal_error", "internal_error", "ratelimited", "request_timeout", "service_unavailable"}
# The SDK writes addresses, which are secrets, at every level.
_MUTE = logging.getLogger(__name__)
_MUTE.setLevel(logging.CRITICAL + 1)


class WebhookSlackSender:
    """Implements :class:`lakegate.notify.sending.Sender` by an incoming webhook, which has no threads.

    Args:
        url: The webhook's address.
    """

    def __init__(self, url: str) -> None:
        self._client = WebhookClient(url, logger=_MUTE, retry_handlers=[])
        self._client.proxy = None  # the SDK's choice knows no NO_PROXY; urllib's does

    def send(self, message: Message, deadline: Deadline, thread: str | None) -> str | None:
        """Send the message.

        Raises:
            UndeliveredError: When Slack did not take it.
        """
        del thread
        self._client.timeout = _seconds(deadline)
        with _explained():
            answer = self._client.send_dict(
                {
                    "text": fallback(message),
                    "blocks": blocks(message),
                    "unfurl_links": False,
                    "unfurl_media": False,
                }
            )
        if answer.status_code != 200:  # noqa: PLR2004 - HTTP's own
            raise refused(answer.status_code, said=_words(answer.body), after=_header(answer.headers, "Retry-After"))
        return None


class BotSlackSender:
    """Implements :class:`lakegate.notify.sending.Sender` as a bot, which puts what is the same into one thread.

    Args:
        token: The bot's token.
        channel: Id of a channel, or ``#name``.
        api_url: Another server than Slack's.
    """

    def __init__(self, token: str, channel: str, api_url: str | None) -> None:
        self._channel = channel
        self._client = WebClient(token, base_url=api_url or WebClient.BASE_URL, logger=_MUTE, retry_handlers=[])
        self._client.proxy = None

    def send(self, message: Message, deadline: Deadline, thread: str | None) -> str | None:
        """Send the message and return its time stamp, which names a thread.

        Raises:
            UndeliveredError: When Slack did not take it.
        """
        self._client.timeout = _seconds(deadline)
        body = {
            "channel": self._channel,
            "text": fallback(message),
            "blocks": blocks(message),
            "parse": "none",
            "link_names": False,
            "unfurl_links": False,
            "unfurl_media": False,
        }
        with _explained():
            answer = self._client.api_call("chat.postMessage", json=body | ({"thread_ts": thread} if thread else {}))
        stamp = answer.get("ts")
        return str(stamp) if stamp else None


def make(channel: ChannelSettings, secrets: Mapping[str, str]) -> WebhookSlackSender | BotSlackSender:
    """Return the sender for a channel of the settings, with what its references stand for."""
    if "url" in secrets:
        return WebhookSlackSender(secrets["url"])
    return BotSlackSender(secrets["token"], channel.channel or "", channel.api_url)


@contextmanager
def _explained() -> Iterator[None]:
    """Say in words without secrets what went wrong."""
    try:
        yield
    except SlackApiError as error:
        raise _refused(error) from None
    except TimeoutError:
        raise _no_answer() from None
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _no_answer() from None
        raise UndeliveredError("it cannot be connected to", again=True) from None
    except (InvalidURL, SlackClientError, ValueError):
        raise UndeliveredError("its address cannot be used") from None
    except (HTTPException, OSError):
        raise UndeliveredError("it cut the connection", again=True) from None


def _refused(error: SlackApiError) -> UndeliveredError:
    answer = error.response
    if answer.status_code != 200:  # noqa: PLR2004 - HTTP's own
        return refused(answer.status_code, said=_words(answer.data), after=_header(answer.headers, "Retry-After"))
    said = _words(answer.data)
    return UndeliveredError(f"Slack says: {said or 'not ok'}", again=said in _TRANSIENT)


def _no_answer() -> UndeliveredError:
    return UndeliveredError("it gave no answer in time; the message may have arrived")


def _words(said: object) -> str:
    """Return Slack's own word for what is wrong, such as ``invalid_blocks``; nothing of any other text."""
    if isinstance(said, str) and said.startswith("{"):
        try:
            said = json.loads(said)
        except ValueError:
            return ""
    word = said.get("error") if isinstance(said, Mapping) else said
    text = clip(one_line(word), _SAID) if isinstance(word, str) else ""
    return text if text.replace("_", "").isalnum() and text.islower() else ""


def _header(headers: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in headers.items() if key.lower() == name.lower()), None)


def _seconds(deadline: Deadline) -> int:
    # The SDK wants whole seconds; who waits for us keeps the time.
    return max(ceil(deadline.left_s), 1)
