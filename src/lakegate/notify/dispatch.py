"""Who is told of what, all at once, and no longer than the settings allow."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import cast

from lakegate.credentials.secret import resolve_secret
from lakegate.errors import ConfigurationError, LakegateError, NotFoundError
from lakegate.model.channels import ChannelSettings, NotifySettings
from lakegate.model.durations import parse_duration
from lakegate.model.notices import Notice
from lakegate.model.run import Notification
from lakegate.model.schema import nearest
from lakegate.notify.grouping import Delivery, Grouping
from lakegate.notify.message import compose
from lakegate.notify.rules import concerns
from lakegate.notify.sending import Deadline, Sender, UndeliveredError, deliver, quiet
from lakegate.protocols import Journal

SENDERS: Mapping[str, tuple[str, str]] = {
    "slack": ("slack", "slack_sdk"),
    "webhook": ("webhook", "httpx"),
    "apprise": ("apprise", "apprise"),
}
"""By type of channel: the module of this room that sends, and the package that it needs."""

_SPARE_S = 30.0
"""Seconds beside ``notify.timeout_s`` in which whoever tells writes down what came of it."""


class Dispatcher:
    """Implements :class:`lakegate.protocols.Notifier` for the channels of the settings.

    Args:
        settings: Channels and rules.
        journal: Opens the journal, which counts what is told of many times.
    """

    def __init__(self, settings: NotifySettings, journal: Callable[[], Journal]) -> None:
        self._settings = settings
        self._grouping = Grouping(journal, settings.timeout_s + _SPARE_S)

    def tell(
        self, notice: Notice, *, alert: str | None = None, window_s: float | None = None
    ) -> Sequence[Notification]:
        """Tell every channel that asks for such notices; see :meth:`lakegate.protocols.Notifier.tell`."""
        window = parse_duration(self._settings.group).total_seconds() if window_s is None else window_s
        asking = [channel for channel in self._settings.channels if concerns(channel, notice)]
        deliveries = [Delivery(channel, notice, window) for channel in asking]
        for delivery in deliveries:
            self._grouping.enter(delivery, alert)
        self._send([*deliveries, *self._grouping.counted(self._settings.channels)])
        return tuple(delivery.notification() for delivery in deliveries)

    def tell_counted(self) -> Sequence[Notification]:
        """Tell of groups that are over; see :meth:`lakegate.protocols.Notifier.tell_counted`."""
        deliveries = list(self._grouping.counted(self._settings.channels))
        self._send(deliveries)
        return tuple(delivery.notification() for delivery in deliveries)

    def test(self, channel: str | None = None) -> Sequence[Notification]:
        """Send a test message to one channel, or to all; see :meth:`lakegate.protocols.Notifier.test`.

        Raises:
            NotFoundError: When there is no such channel.
        """
        named = {known.name: known for known in self._settings.channels}
        if channel is not None and channel not in named:
            guess = nearest(channel, list(named))
            raise NotFoundError(
                f"There is no channel '{channel}'." + (f" Did you mean '{guess}'?" if guess else ""),
                hint="lakegate notify list",
                channel=channel,
            )
        chosen = list(named.values()) if channel is None else [named[channel]]
        notice = Notice(event="test", severity="info", tables=(), at=datetime.now(UTC))
        deliveries = [Delivery(one, notice) for one in chosen]
        self._send(deliveries)
        return tuple(delivery.notification() for delivery in deliveries)

    def _send(self, deliveries: Iterable[Delivery]) -> None:
        on_the_way = [delivery for delivery in deliveries if delivery.outcome is None]
        by_channel = defaultdict[str, list[Delivery]](list)
        for delivery in on_the_way:
            by_channel[delivery.channel.name].append(delivery)
        deadline = Deadline(self._settings.timeout_s)
        # Not a pool: its threads would keep the process from ending while a server lets us wait.
        threads = [
            threading.Thread(target=self._deliver, args=(queue, deadline), name=f"tell {name}", daemon=True)
            for name, queue in by_channel.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(deadline.left_s)
        for delivery in on_the_way:
            if delivery.outcome is None:
                delivery.end("failed", f"it took longer than {self._settings.timeout_s:g} s")
            self._grouping.settle(delivery)

    def _deliver(self, queue: Sequence[Delivery], deadline: Deadline) -> None:
        """Send what goes to one channel, until something cannot be sent: the others would meet the same."""
        done = 0
        try:
            sender = _sender(queue[0].channel)
            for delivery in queue:
                message = compose(delivery.notice, self._settings, delivery.place, window_s=delivery.window_s)
                thread = None if delivery.place.number == 1 else delivery.place.thread
                delivery.thread = deliver(sender, message, deadline, thread)
                delivery.end("sent")
                done += 1
        except Exception as error:  # noqa: BLE001 - one channel must not keep the others from being told
            for delivery in queue[done:]:
                delivery.end("failed", _reason(error))


def _sender(channel: ChannelSettings) -> Sender:
    module, package = SENDERS[channel.type]
    secrets = dict(_secrets(channel))
    try:
        found = import_module(f"lakegate.notify.{module}")
    except ModuleNotFoundError:
        raise ConfigurationError(
            f"{package} is not installed, which channels of type '{channel.type}' need.",
            hint="pip install 'lakegate[notify]'",
            package=package,
        ) from None
    with quiet():
        return cast("Sender", found.make(channel, secrets))


def _secrets(channel: ChannelSettings) -> Iterator[tuple[str, str]]:
    for name in ("url", "token", "secret"):
        value = resolve_secret(getattr(channel, name), setting=f"notify.channels.{channel.name}.{name}")
        if value is not None:
            yield name, value


def _reason(error: Exception) -> str:
    if isinstance(error, UndeliveredError):
        return error.reason
    if isinstance(error, LakegateError):
        return error.message
    # What a library says may hold the secrets that it was given.
    return f"it failed: {type(error).__name__}"
