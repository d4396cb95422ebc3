"""Choose an alert's channels, leave out repeats, and send messages within a time limit."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Literal, cast

from lakegate.alerts.message import Message, Sender, compose
from lakegate.config import ChannelSettings, NotifySettings
from lakegate.credentials.secret import resolve_secret
from lakegate.credentials.webhook import UndeliveredError, quiet
from lakegate.errors import ConfigurationError, LakegateError, NotFoundError
from lakegate.model.downstream import LEVELS, Notice
from lakegate.model.run import Notification
from lakegate.model.words import nearest, parse_duration

if TYPE_CHECKING:
    from lakegate.journal.journal import Journal

SENDERS: Mapping[str, tuple[str, str]] = {"slack": ("slack", "httpx"), "apprise": ("apprise", "apprise")}
"""By channel type: the sender's module, and the package that it needs."""
RETRY_AFTER_S = 60.0
"""Seconds after a failed message in which no other message of its kind is tried: each would wait for a dead server."""
_SAVE_MARGIN_S = 30.0
"""Seconds beyond ``notify.timeout_s`` to save the outcome."""
_TRIES = 4
_FIRST_WAIT_S = 0.3


def concerns(channel: ChannelSettings, notice: Notice) -> bool:
    """Return whether a channel subscribes to a notice."""
    also = {"recovered": notice.recovered, "quarantined": notice.quarantined}
    events = {notice.event, *(event for event, is_so in also.items() if is_so)}
    if notice.run is not None and notice.run.accepted is not None:
        # Channels that subscribe to rejections also learn that someone published one anyway.
        events.add("rejected")
    return (
        not events.isdisjoint(channel.events)
        and LEVELS.index(notice.severity) >= LEVELS.index(channel.severity)
        and channel.concerns(notice.tables)
    )


def alert_key(notice: Notice) -> str:
    """Return the key of the notices that one message covers: those of the same kind about the same tables."""
    about = list(notice.tables)
    if notice.delivery is not None:
        about = [notice.delivery.downstream]  # whatever tables it missed
    if notice.late is not None:
        about.append(notice.late.run_id or "")  # once until the next publish
    key = json.dumps([notice.event, notice.recovered, sorted(about)])
    return hashlib.sha256(key.encode()).hexdigest()[:32]


@dataclass(slots=True)
class ChannelDelivery:
    """One message to one channel.

    Attributes:
        is_claimed: Whether no other process sends this kind of message to the channel meanwhile.
        outcome: ``None`` until it's sent, grouped or failed.
    """

    channel: ChannelSettings
    notice: Notice
    is_claimed: bool = False
    outcome: Literal["sent", "grouped", "failed"] | None = None
    reason: str | None = None

    def end(self, outcome: Literal["sent", "grouped", "failed"], reason: str | None = None) -> None:
        """Set the outcome."""
        self.outcome, self.reason = outcome, reason

    def notification(self) -> Notification:
        """Return the outcome in the form that the journal stores."""
        return Notification(
            channel=self.channel.name,
            event="recovered" if self.notice.recovered else self.notice.event,
            outcome=self.outcome or "failed",
            reason=self.reason,
            at=datetime.now(UTC),
        )


class Dispatcher:
    """Implements :class:`lakegate.ports.Notifier` for the channels of the settings.

    Args:
        journal: Opens the journal, which knows what was sent lately. While it's unavailable, repeats are sent, too.
        masked: Patterns of columns whose values are hidden.
    """

    def __init__(self, settings: NotifySettings, journal: Callable[[], Journal], *, masked: Sequence[str] = ()) -> None:
        self._settings = settings
        self._journal = journal
        self._masked = masked

    def send(self, notice: Notice) -> Sequence[Notification]:
        """Send a notice to every channel that subscribes to it; see :meth:`lakegate.ports.Notifier.send`."""
        every = self._settings.group if notice.late is None else notice.late.expected_every
        window_s = parse_duration(every).total_seconds()
        deliveries = [
            ChannelDelivery(channel, notice) for channel in self._settings.channels if concerns(channel, notice)
        ]
        for delivery in deliveries if window_s > 0 else ():
            self._claim(delivery)
        notifications = self._deliver_all(deliveries)
        for delivery in deliveries:
            if delivery.is_claimed:
                covered_s = RETRY_AFTER_S if delivery.outcome == "failed" else window_s
                with suppress(LakegateError):
                    self._journal().cover_alert(delivery.channel.name, alert_key(notice), for_s=covered_s)
        return notifications

    def test(self, channel: str | None = None) -> Sequence[Notification]:
        """Send a test message to one channel, or to all; see :meth:`lakegate.ports.Notifier.test`."""
        named = {known.name: known for known in self._settings.channels}
        if channel is not None and channel not in named:
            guess = nearest(channel, list(named))
            raise NotFoundError(
                f"Channel '{channel}' doesn't exist." + (f" Did you mean '{guess}'?" if guess else ""),
                hint="lakegate admin notify list",
                channel=channel,
            )
        chosen = list(named.values()) if channel is None else [named[channel]]
        notice = Notice(event="test", severity="info", tables=(), at=datetime.now(UTC))
        return self._deliver_all([ChannelDelivery(each, notice) for each in chosen])

    def _claim(self, delivery: ChannelDelivery) -> None:
        """Claim this kind of message for this process. If an earlier one covers it, it becomes ``grouped``."""
        lead_s = self._settings.timeout_s + _SAVE_MARGIN_S
        with suppress(LakegateError):
            kind = alert_key(delivery.notice)
            delivery.is_claimed = self._journal().claim_alert(delivery.channel.name, kind, lead_s=lead_s)
            if not delivery.is_claimed:
                delivery.end("grouped", "an earlier message covers it")

    def _deliver_all(self, deliveries: Sequence[ChannelDelivery]) -> Sequence[Notification]:
        """Send the messages that have no outcome yet; return the outcome of each."""
        pending = [delivery for delivery in deliveries if delivery.outcome is None]
        deadline = monotonic() + self._settings.timeout_s
        # Daemon threads, not a pool: a pool's threads would keep the process alive while a server is slow.
        threads = [
            threading.Thread(target=self._deliver, args=(one, deadline), name=f"alert {one.channel.name}", daemon=True)
            for one in pending
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_left_s(deadline))
        for delivery in pending:
            if delivery.outcome is None:
                delivery.end("failed", f"it took longer than {self._settings.timeout_s:g} s")
        return tuple(delivery.notification() for delivery in deliveries)

    def _deliver(self, delivery: ChannelDelivery, deadline: float) -> None:
        try:
            sender = _sender(delivery.channel)
            message = compose(delivery.notice, self._settings, masked=self._masked)
            with quiet():
                _send(sender, message, deadline)
            delivery.end("sent")
        except Exception as error:  # noqa: BLE001 - one channel must not stop the others
            delivery.end("failed", _reason(error))


def _left_s(deadline: float) -> float:
    return max(deadline - monotonic(), 0.0)


def _send(sender: Sender, message: Message, deadline: float) -> None:
    """Send a message, with retries where they may help, but no later than ``deadline``, by the monotonic clock."""
    from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, stop_before_delay

    def wait_s(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked_s = error.after_s if isinstance(error, UndeliveredError) else None
        return _FIRST_WAIT_S * 2 ** (state.attempt_number - 1) if asked_s is None else asked_s

    trying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, UndeliveredError) and error.again),
        wait=wait_s,
        stop=stop_after_attempt(_TRIES) | stop_before_delay(_left_s(deadline)),
        reraise=True,
    )
    trying(lambda: sender.send(message, _left_s(deadline)))


def _sender(channel: ChannelSettings) -> Sender:
    module, package = SENDERS[channel.type]
    secrets = dict(_secrets(channel))
    try:
        found = import_module(f"lakegate.alerts.{module}")
    except ModuleNotFoundError:
        raise ConfigurationError(
            f"Channels of type '{channel.type}' need {package}, which isn't installed.",
            hint="pip install 'lakegate[notify]'",
            package=package,
        ) from None
    with quiet():
        return cast("Sender", found.make(channel, secrets))


def _secrets(channel: ChannelSettings) -> Iterator[tuple[str, str]]:
    for name in ("url", "token"):
        value = resolve_secret(getattr(channel, name), setting=f"notify.channels.{channel.name}.{name}")
        if value is not None:
            yield name, value


def _reason(error: Exception) -> str:
    if isinstance(error, UndeliveredError):
        return error.reason
    if isinstance(error, LakegateError):
        return error.message
    # Not the library's message, which may contain secrets.
    return f"it failed: {type(error).__name__}"
