"""Which message stands for which others. The journal counts them, so that it holds across processes and machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from lakegate.errors import LakegateError
from lakegate.model.channels import ChannelSettings
from lakegate.model.notices import AlertGroup, CountedAlert, Notice
from lakegate.model.run import Notification
from lakegate.notify.rules import alert_of, is_sent, once_of
from lakegate.protocols import Journal

_FOR_GOOD_S = 90 * 86400.0
"""Seconds for which it is remembered that a thing was told of that is told of once."""
_MOST_COUNTED = 5
"""Groups that are over, told of beside one message; the others have their turn with the next ones."""


@dataclass(frozen=True, slots=True)
class Membership:
    """A group, and a message's place in it.

    Attributes:
        alert: The group's key.
        stands_s: Seconds for which the message stands for the others of the group once it was sent; ``None`` when
            an earlier one does.
    """

    alert: str
    place: AlertGroup
    stands_s: float | None


@dataclass(slots=True)
class Delivery:
    """One message on its way to one channel.

    Attributes:
        window_s: Seconds for which it stands for those that say the same.
        groups: The groups that count it; the last one says what stands with the message.
        outcome: What came of it; ``None`` while it is on its way.
        reason: Why it was not sent.
        thread: Where it was sent, if the channel has threads.
    """

    channel: ChannelSettings
    notice: Notice
    window_s: float = 0.0
    groups: list[Membership] = field(default_factory=list)
    outcome: Literal["sent", "grouped", "failed"] | None = None
    reason: str | None = None
    thread: str | None = None

    @property
    def place(self) -> AlertGroup:
        """Its place among those that say the same."""
        return self.groups[-1].place if self.groups else AlertGroup(number=1)

    def end(self, outcome: Literal["sent", "grouped", "failed"], reason: str | None = None) -> None:
        """Say what came of it."""
        self.outcome, self.reason = outcome, reason

    def notification(self) -> Notification:
        """Return what came of it, to be written down."""
        return Notification(
            channel=self.channel.name,
            event="recovered" if self.notice.recovered else self.notice.event,
            outcome=self.outcome or "failed",
            reason=self.reason,
            at=datetime.now(UTC),
        )


class Grouping:
    """Counts messages that say the same. A journal that is away groups nothing: better told twice than not at all.

    Args:
        journal: Opens the journal.
        lead_s: Seconds within which a message that stands for others is sent or given up. If nothing is heard of it
            until then, its process has died, and the next one is sent.
    """

    def __init__(self, journal: Callable[[], Journal], lead_s: float) -> None:
        self._journal = journal
        self._lead_s = lead_s

    def enter(self, delivery: Delivery, alert: str | None = None) -> None:
        """Count a message; it has ended as ``grouped`` when an earlier one stands for it.

        Args:
            delivery: The message.
            alert: Key of its group; by default, those that say the same of the same tables.
        """
        notice, channel = delivery.notice, delivery.channel
        once = once_of(notice)
        if once is not None and (known := self._join(delivery, once, _FOR_GOOD_S)).number > 1:
            delivery.end("grouped", _told_before(known) if _is_untold(known) else "it was told of before")
            return
        # A table that is late is late once, however often somebody looks.
        is_counted = delivery.window_s > 0 and notice.late is None
        about = _outline(notice) if is_counted else None
        place = self._join(delivery, alert or alert_of(notice), delivery.window_s, about)
        if not is_sent(place, threads=channel.has_threads):
            delivery.end("grouped", _told_before(place))
            self._settle(delivery, delivery.groups[:-1], sent=True)

    def counted(self, channels: Sequence[ChannelSettings]) -> Iterator[Delivery]:
        """Yield a message for each group that is over and holds some that nobody was told of; each to one caller.

        When that is one only, it is that one itself: as a rule, its channel was away.
        """
        known = {channel.name: channel for channel in channels}
        with suppress(LakegateError):
            for one in self._journal().take_counted_alerts([*known], lead_s=self._lead_s, limit=_MOST_COUNTED):
                notice = self._filled_in(one.about) if one.place.missed == 0 else None
                group = Membership(one.alert, one.place, 0.0)
                yield Delivery(known[one.channel], notice or _together(one), groups=[group])

    def settle(self, delivery: Delivery) -> None:
        """Write down what came of a message that was not ``grouped``."""
        self._settle(delivery, delivery.groups, sent=delivery.outcome == "sent")

    def _filled_in(self, outline: Notice) -> Notice | None:
        """Return the notice of an outline; ``None`` when its run is not known any more."""
        if outline.run is None:
            return outline
        run = self._journal().get(outline.run.run_id)
        return None if run is None else outline.model_copy(update={"run": run})

    def _join(self, delivery: Delivery, alert: str, stands_s: float, about: Notice | None = None) -> AlertGroup:
        place = AlertGroup(number=1)
        with suppress(LakegateError):
            lead_s = self._lead_s if stands_s > 0 else 0.0
            place = self._journal().join_alert(delivery.channel.name, alert, lead_s=lead_s, about=about)
            delivery.groups.append(Membership(alert, place, stands_s if place.number == 1 else None))
        return place

    def _settle(self, delivery: Delivery, groups: Sequence[Membership], *, sent: bool) -> None:
        for group in groups:
            with suppress(LakegateError):
                self._journal().settle_alert(
                    delivery.channel.name,
                    group.alert,
                    group.place,
                    sent=sent,
                    thread=delivery.thread if group.place.number == 1 else None,
                    stands_s=group.stands_s,
                )


def _outline(notice: Notice) -> Notice:
    """Return what is remembered of a notice: of its run, only which it is."""
    if notice.run is None:
        return notice
    left_out = {"order": None, "request": None, "staged": (), "reports": (), "steps": (), "skipped_files": ()}
    return notice.model_copy(update={"run": notice.run.model_copy(update={**left_out, "error": None, "undone": ()})})


def _together(counted: CountedAlert) -> Notice:
    number = counted.place.missed + 1
    return counted.about.model_copy(update={"run": None, "file": None, "counted": number, "at": datetime.now(UTC)})


def _is_untold(place: AlertGroup) -> bool:
    return place.missed >= place.number - 1


def _told_before(place: AlertGroup) -> str:
    if _is_untold(place):
        return f"number {place.number:,} of the same, and the first has not been sent yet"
    return f"number {place.number:,} of the same, for which an earlier message stands"
