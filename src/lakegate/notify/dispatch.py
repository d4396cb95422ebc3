"""Who is told of what, all at once, and no longer than the settings allow."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import cast

from lakegate.config import resolve_secret
from lakegate.errors import ConfigurationError, LakegateError, NotFoundError
from lakegate.model.channels import ChannelSettings, NotifySettings
from lakegate.model.durations import parse_duration
from lakegate.model.notices import AlertGroup, Notice
from lakegate.model.run import Notification
from lakegate.model.schema import nearest
from lakegate.notify.message import compose
from lakegate.notify.rules import alert_of, concerns, is_sent
from lakegate.notify.sending import Deadline, Sender, UndeliveredError, deliver, quiet
from lakegate.protocols import Journal

SENDERS: Mapping[str, tuple[str, str]] = {
    "slack": ("slack", "slack_sdk"),
    "webhook": ("webhook", "httpx"),
    "apprise": ("apprise", "apprise"),
}
"""By type of channel: the module of this room that sends, and the package that it needs."""


@dataclass(slots=True)
class _Job:
    """One message on its way to one channel.

    Attributes:
        alert: Key of the group that it is counted in; ``None`` when it is not.
        reason: Why it was not sent; ``None`` while nothing is known, empty when it was.
    """

    channel: ChannelSettings
    sender: Sender
    notice: Notice
    alert: str | None
    place: AlertGroup
    window_s: float
    thread: str | None = None
    reason: str | None = None


class Dispatcher:
    """Implements :class:`lakegate.protocols.Notifier` for the channels of the settings.

    Args:
        settings: Channels and rules.
        journal: Opens the journal, which counts what is told of many times.
    """

    def __init__(self, settings: NotifySettings, journal: Callable[[], Journal]) -> None:
        self._settings = settings
        self._journal = journal

    def tell(
        self, notice: Notice, *, alert: str | None = None, window_s: float | None = None
    ) -> Sequence[Notification]:
        """Tell every channel that asks for such notices; see :meth:`lakegate.protocols.Notifier.tell`."""
        window = parse_duration(self._settings.group).total_seconds() if window_s is None else window_s
        concerned = [channel for channel in self._settings.channels if concerns(channel, notice)]
        return self._send(notice, concerned, alert or alert_of(notice), window)

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
        return self._send(notice, chosen, None, 0.0)

    def _send(
        self, notice: Notice, channels: Sequence[ChannelSettings], alert: str | None, window_s: float
    ) -> Sequence[Notification]:
        ended: dict[str, Notification] = {}
        jobs = []
        for channel in channels:
            try:
                sender = _sender(channel)
            except Exception as error:  # noqa: BLE001 - one channel must not keep the others from being told
                ended[channel.name] = _came_of(notice, channel, "failed", _reason(error))
                continue
            place = self._join(channel, alert, window_s)
            if is_sent(place, threads=sender.threads):
                jobs.append(_Job(channel, sender, notice, alert, place, window_s))
            else:
                ended[channel.name] = _came_of(notice, channel, "grouped", _told_before(place))
        self._run(jobs)
        for job in jobs:
            ended[job.channel.name] = self._ended(job)
        return tuple(ended[channel.name] for channel in channels)

    def _run(self, jobs: Sequence[_Job]) -> None:
        # Not a pool: its threads would keep the process from ending while a server lets us wait.
        deadline = Deadline(self._settings.timeout_s)
        threads = [
            threading.Thread(target=self._deliver, args=(job, deadline), name=f"tell {job.channel.name}", daemon=True)
            for job in jobs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(deadline.left_s)

    def _deliver(self, job: _Job, deadline: Deadline) -> None:
        try:
            message = compose(job.notice, self._settings, job.place, window_s=job.window_s)
            thread = None if job.place.number == 1 else job.place.thread
            job.thread = deliver(job.sender, message, deadline, thread)
            job.reason = ""
        except Exception as error:  # noqa: BLE001 - likewise, whatever a library raises
            job.reason = _reason(error)

    def _ended(self, job: _Job) -> Notification:
        reason = f"it took longer than {self._settings.timeout_s:g} s" if job.reason is None else job.reason
        sent = reason == ""
        if job.alert is not None:
            thread = job.thread if job.place.number == 1 else None
            with suppress(LakegateError):
                self._journal().settle_alert(job.channel.name, job.alert, job.place, sent=sent, thread=thread)
        return _came_of(job.notice, job.channel, "sent" if sent else "failed", reason or None)

    def _join(self, channel: ChannelSettings, alert: str | None, window_s: float) -> AlertGroup:
        if alert is not None:
            # Better told twice than not at all.
            with suppress(LakegateError):
                return self._journal().join_alert(channel.name, alert, window_s=window_s)
        return AlertGroup(number=1)


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


def _told_before(place: AlertGroup) -> str:
    if place.missed >= place.number - 1:
        return f"number {place.number:,} of the same, and the first has not been sent yet"
    return f"number {place.number:,} of the same, for which an earlier message stands"


def _came_of(notice: Notice, channel: ChannelSettings, outcome: str, reason: str | None) -> Notification:
    return Notification.model_validate(
        {
            "channel": channel.name,
            "event": "recovered" if notice.recovered else notice.event,
            "outcome": outcome,
            "reason": reason,
            "at": datetime.now(UTC),
        }
    )
