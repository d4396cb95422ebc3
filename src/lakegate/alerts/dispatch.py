"""Choose an alert's channels, group repeated messages, and send them within a time limit."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Literal, cast

from lakegate.alerts.message import PartlyDeliveredError, SendDeadline, Sender, compose, deliver
from lakegate.config import ChannelSettings, NotifySettings
from lakegate.credentials.secret import resolve_secret
from lakegate.credentials.webhook import UndeliveredError, quiet
from lakegate.errors import ConfigurationError, LakegateError, NotFoundError
from lakegate.model.downstream import LEVELS, AlertGroup, CountedAlert, Notice
from lakegate.model.run import Notification
from lakegate.model.words import nearest, parse_duration

if TYPE_CHECKING:
    from lakegate.journal.journal import Journal


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
    """Return the key that notices share if they have the same event, tables and reasons."""
    run = notice.run
    reasons: list[str] = []
    if run is not None:
        reasons = sorted({f"{report.table} {result.check}" for report in run.reports for result in report.failures})
        if run.error is not None:
            reasons.append(run.error.code)
    if notice.file is not None:
        reasons.append(notice.file.code)
    if notice.delivery is not None:
        reasons.append(notice.delivery.downstream)
    parts = [notice.event, notice.recovered, sorted(notice.tables), reasons]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def report_once_key(notice: Notice) -> str | None:
    """Return the key of a notice to report only once across all processes; ``None`` for other notices.

    Several processes may give up the same version of a file at the same time, but it's reported once.
    """
    if notice.file is None:
        return None
    parts = json.dumps([notice.file.table, notice.file.uri, notice.file.stamp])
    return f"file {hashlib.sha256(parts.encode()).hexdigest()[:32]}"


def is_sent(group: AlertGroup, *, threads: bool) -> bool:
    """Return whether to send a message: the first of a group and, in its thread, the second, fourth, eighth and so on.

    Example:
        >>> [number for number in range(1, 501) if is_sent(AlertGroup(number=number, thread="1.2"), threads=True)]
        [1, 2, 4, 8, 16, 32, 64, 128, 256]
        >>> is_sent(AlertGroup(number=2), threads=False)
        False
    """
    if group.number == 1:
        return True
    return threads and group.thread is not None and group.number & (group.number - 1) == 0


_REMEMBERED_S = 90 * 86400.0
"""How long to remember what's reported only once."""
_MAX_ENDED_GROUPS = 5
"""Maximum number of ended groups to report along with one message. The rest go with later messages."""


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """A group that a message belongs to, and its place in it.

    Attributes:
        window_s: Seconds for which the message covers the group once sent; ``None`` if an earlier message covers it.
    """

    alert: str
    place: AlertGroup
    window_s: float | None


@dataclass(slots=True)
class ChannelDelivery:
    """One message to one channel.

    Attributes:
        window_s: Seconds for which it covers messages of the same group.
        groups: The groups that count it. The last one is shown in the message.
        outcome: ``None`` until it's sent, grouped or failed.
        reached_some: Whether only some recipients got it. It isn't sent again then, although it failed.
        thread: The thread it was sent to, if the channel has threads.
    """

    channel: ChannelSettings
    notice: Notice
    window_s: float = 0.0
    groups: list[GroupMembership] = field(default_factory=list)
    outcome: Literal["sent", "grouped", "failed"] | None = None
    reason: str | None = None
    reached_some: bool = False
    thread: str | None = None

    @property
    def place(self) -> AlertGroup:
        """Its place in its group."""
        return self.groups[-1].place if self.groups else AlertGroup(number=1)

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


class AlertGrouping:
    """Counts repeated messages. While the journal is unavailable nothing is grouped: better sent twice than never.

    Args:
        lead_s: Seconds that the process with a group's first message has to send it. After that the process counts as
            dead, and the next message is sent.
    """

    def __init__(self, journal: Callable[[], Journal], lead_s: float) -> None:
        self._journal = journal
        self._lead_s = lead_s

    def count(self, delivery: ChannelDelivery, alert: str | None = None) -> None:
        """Count a message. If an earlier one covers it, its outcome becomes ``grouped``.

        Args:
            alert: Key of its group; by default :func:`alert_key`.
        """
        notice, channel = delivery.notice, delivery.channel
        once = report_once_key(notice)
        if once is not None and (known := self._join(delivery, once, _REMEMBERED_S)).number > 1:
            delivery.end("grouped", _grouping_reason(known) if _is_unsent(known) else "it was reported before")
            return
        # Repeated checks of a late table aren't counted: it's late once.
        is_counted = delivery.window_s > 0 and notice.late is None
        about = _outline(notice) if is_counted else None
        place = self._join(delivery, alert or alert_key(notice), delivery.window_s, about)
        if not is_sent(place, threads=channel.has_threads):
            delivery.end("grouped", _grouping_reason(place))
            self._settle(delivery, delivery.groups[:-1], sent=True)

    def ended_groups(self, channels: Sequence[ChannelSettings]) -> Iterator[ChannelDelivery]:
        """Yield a message for each ended group that has unsent messages. Each group goes to one caller only.

        A single unsent message is yielded as it was: usually its channel was unreachable.
        """
        known = {channel.name: channel for channel in channels}
        with suppress(LakegateError):
            for one in self._journal().take_counted_alerts([*known], lead_s=self._lead_s, limit=_MAX_ENDED_GROUPS):
                notice = self._restored(one.about) if one.place.missed == 0 else None
                group = GroupMembership(one.alert, one.place, 0.0)
                yield ChannelDelivery(known[one.channel], notice or _summary_notice(one), groups=[group])

    def settle(self, delivery: ChannelDelivery) -> None:
        """Save the outcome of a message that was sent or failed."""
        self._settle(delivery, delivery.groups, sent=delivery.outcome == "sent" or delivery.reached_some)

    def _restored(self, outline: Notice) -> Notice | None:
        """Return a stored notice with its full run; ``None`` if the journal no longer has the run."""
        if outline.run is None:
            return outline
        run = self._journal().get(outline.run.run_id)
        return None if run is None else outline.model_copy(update={"run": run})

    def _join(self, delivery: ChannelDelivery, alert: str, window_s: float, about: Notice | None = None) -> AlertGroup:
        place = AlertGroup(number=1)
        with suppress(LakegateError):
            lead_s = self._lead_s if window_s > 0 else 0.0
            place = self._journal().join_alert(delivery.channel.name, alert, lead_s=lead_s, about=about)
            delivery.groups.append(GroupMembership(alert, place, window_s if place.number == 1 else None))
        return place

    def _settle(self, delivery: ChannelDelivery, groups: Sequence[GroupMembership], *, sent: bool) -> None:
        for group in groups:
            with suppress(LakegateError):
                self._journal().settle_alert(
                    delivery.channel.name,
                    group.alert,
                    group.place,
                    sent=sent,
                    thread=delivery.thread if group.place.number == 1 else None,
                    window_s=group.window_s,
                )


def _outline(notice: Notice) -> Notice:
    """Return the notice as it's stored: its run without request, reports, steps and errors."""
    if notice.run is None:
        return notice
    left_out = {"order": None, "request": None, "staged": (), "reports": (), "steps": (), "skipped_files": ()}
    return notice.model_copy(update={"run": notice.run.model_copy(update={**left_out, "error": None, "undone": ()})})


def _summary_notice(counted: CountedAlert) -> Notice:
    number = counted.place.missed + 1
    return counted.about.model_copy(update={"run": None, "file": None, "counted": number, "at": datetime.now(UTC)})


def _is_unsent(place: AlertGroup) -> bool:
    return place.missed >= place.number - 1


def _grouping_reason(place: AlertGroup) -> str:
    if _is_unsent(place):
        return f"repeat number {place.number:,}; the first hasn't been sent yet"
    return f"repeat number {place.number:,}, covered by an earlier message"


SENDERS: Mapping[str, tuple[str, str]] = {
    "slack": ("slack", "slack_sdk"),
    "webhook": ("webhook", "httpx"),
    "apprise": ("apprise", "apprise"),
}
"""By channel type: the sender's module, and the package that it needs."""

_SAVE_MARGIN_S = 30.0
"""Seconds beyond ``notify.timeout_s`` to save the outcome."""


class Dispatcher:
    """Implements :class:`lakegate.ports.Notifier` for the channels of the settings.

    Args:
        journal: Opens the journal, which counts repeated messages.
        masked: Patterns of columns whose values are hidden.
    """

    def __init__(self, settings: NotifySettings, journal: Callable[[], Journal], *, masked: Sequence[str] = ()) -> None:
        self._settings = settings
        self._masked = masked
        self._grouping = AlertGrouping(journal, settings.timeout_s + _SAVE_MARGIN_S)

    def send(
        self, notice: Notice, *, alert: str | None = None, window_s: float | None = None
    ) -> Sequence[Notification]:
        """Send a notice to every channel that subscribes to it; see :meth:`lakegate.ports.Notifier.send`."""
        window = parse_duration(self._settings.group).total_seconds() if window_s is None else window_s
        subscribed = [channel for channel in self._settings.channels if concerns(channel, notice)]
        deliveries = [ChannelDelivery(channel, notice, window) for channel in subscribed]
        for delivery in deliveries:
            self._grouping.count(delivery, alert)
        sent = self._deliver_all([*deliveries, *self._grouping.ended_groups(self._settings.channels)])
        return sent[: len(deliveries)]

    def send_counted(self) -> Sequence[Notification]:
        """Report ended groups; see :meth:`lakegate.ports.Notifier.send_counted`."""
        return self._deliver_all(list(self._grouping.ended_groups(self._settings.channels)))

    def test(self, channel: str | None = None) -> Sequence[Notification]:
        """Send a test message to one channel, or to all; see :meth:`lakegate.ports.Notifier.test`."""
        named = {known.name: known for known in self._settings.channels}
        if channel is not None and channel not in named:
            guess = nearest(channel, list(named))
            raise NotFoundError(
                f"Channel '{channel}' doesn't exist." + (f" Did you mean '{guess}'?" if guess else ""),
                hint="lakegate notify list",
                channel=channel,
            )
        chosen = list(named.values()) if channel is None else [named[channel]]
        notice = Notice(event="test", severity="info", tables=(), at=datetime.now(UTC))
        return self._deliver_all([ChannelDelivery(one, notice) for one in chosen])

    def _deliver_all(self, deliveries: Sequence[ChannelDelivery]) -> Sequence[Notification]:
        """Send the messages that have no outcome yet; return the outcome of each."""
        pending = [delivery for delivery in deliveries if delivery.outcome is None]
        by_channel = defaultdict[str, list[ChannelDelivery]](list)
        for delivery in pending:
            by_channel[delivery.channel.name].append(delivery)
        deadline = SendDeadline(self._settings.timeout_s)
        # Daemon threads, not a pool: a pool's threads would keep the process alive while a server is slow.
        threads = [
            threading.Thread(target=self._deliver, args=(queue, deadline), name=f"alert {name}", daemon=True)
            for name, queue in by_channel.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(deadline.left_s)
        for delivery in pending:
            if delivery.outcome is None:
                delivery.end("failed", f"it took longer than {self._settings.timeout_s:g} s")
            self._grouping.settle(delivery)
        return tuple(delivery.notification() for delivery in deliveries)

    def _deliver(self, queue: Sequence[ChannelDelivery], deadline: SendDeadline) -> None:
        """Send one channel's messages until one fails: the rest would fail too."""
        done = 0
        try:
            sender = _sender(queue[0].channel)
            for delivery in queue:
                message = compose(
                    delivery.notice,
                    self._settings,
                    delivery.place,
                    window_s=delivery.window_s,
                    masked=self._masked,
                )
                thread = None if delivery.place.number == 1 else delivery.place.thread
                try:
                    delivery.thread = deliver(sender, message, deadline, thread)
                    delivery.end("sent")
                except PartlyDeliveredError as error:
                    delivery.reached_some = True
                    delivery.end("failed", error.reason)
                done += 1
        except Exception as error:  # noqa: BLE001 - one channel must not stop the others
            for delivery in queue[done:]:
                delivery.end("failed", _reason(error))


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
    for name in ("url", "token", "secret"):
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
