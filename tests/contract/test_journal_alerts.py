"""What every journal remembers of who was told of what."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from sqlalchemy import select, update

from lakegate.journal.alerts import RETRY_AFTER_S, Tally, joined, settled
from lakegate.journal.schema import ALERT_GROUPS
from lakegate.model.downstream import AlertGroup, CountedAlert, Notice
from lakegate.model.run import Notification
from support.journals import START, Actor, Shelf, run

REJECTED = Notice(event="rejected", severity="error", tables=("nyc.trips",), at=START)


def told(channel: str, **values: str) -> Notification:
    return Notification.model_validate(
        {"channel": channel, "event": "rejected", "outcome": "sent", "at": START, **values}
    )


def test_notifications_are_added_to_the_run_as_it_is_now(shelf: Shelf) -> None:
    journal = shelf.open()
    journal.begin(run(1))
    journal.end(run(1, status="published", finished_at=START))
    # Somebody changed it since those who tell of it had a look at it.
    shelf.open().save(run(1, status="reverted", finished_at=START, reverted_by="r02"))
    journal.note_notifications("r01", [told("ops"), told("mail", outcome="failed", reason="it answered 500")])
    journal.note_notifications("r01", [told("late")])

    found = shelf.open().get("r01")
    assert found is not None
    assert (found.status, found.reverted_by) == ("reverted", "r02")
    assert [(one.channel, one.outcome) for one in found.notifications] == [
        ("ops", "sent"),
        ("mail", "failed"),
        ("late", "sent"),
    ]
    assert journal.runs(status="reverted") == [found]


def test_a_run_that_is_not_known_is_not_made(journal: Actor) -> None:
    journal.note_notifications("r01", [told("ops")])
    assert journal.get("r01") is None


def test_messages_of_a_group_are_counted_across_processes(shelf: Shelf) -> None:
    first = shelf.open().join_alert("ops", "k")
    assert first == AlertGroup(number=1)
    shelf.open().settle_alert("ops", "k", first, sent=True, thread="17.1", window_s=3600)
    assert shelf.open().join_alert("ops", "k") == AlertGroup(number=2, thread="17.1")
    third = shelf.open().join_alert("ops", "k")
    assert third == AlertGroup(number=3, missed=1, thread="17.1")
    shelf.open().settle_alert("ops", "k", third, sent=True)
    assert shelf.open().join_alert("ops", "k") == AlertGroup(number=4, thread="17.1")


def test_channels_and_keys_have_groups_of_their_own(journal: Actor) -> None:
    for channel, key in (("ops", "k"), ("ops", "l"), ("mail", "k")):
        assert journal.join_alert(channel, key).number == 1


def test_a_group_that_is_over_begins_anew_and_tells_what_was_missed(journal: Actor) -> None:
    first = journal.join_alert("ops", "k")
    journal.settle_alert("ops", "k", first, sent=True, thread="17.1", window_s=0)
    again = journal.join_alert("ops", "k", lead_s=0)
    assert again == AlertGroup(number=1)
    journal.settle_alert("ops", "k", again, sent=False)
    assert journal.join_alert("ops", "k") == AlertGroup(number=1, missed=1)
    journal.settle_alert("ops", "unknown", again, sent=True)
    assert journal.join_alert("ops", "unknown").number == 1


def test_the_next_message_is_the_first_when_whoever_was_to_send_it_died(journal: Actor) -> None:
    assert journal.join_alert("ops", "k", lead_s=3600).number == 1
    assert journal.join_alert("ops", "k", lead_s=3600) == AlertGroup(number=2, missed=1)
    assert journal.join_alert("ops", "dead", lead_s=0).number == 1
    assert journal.join_alert("ops", "dead", lead_s=3600) == AlertGroup(number=1, missed=1)


def test_a_message_that_could_not_be_sent_is_tried_again_in_a_minute() -> None:
    tally = joined(None, START, 3600)
    tally = settled(tally, START, tally.place, sent=False, thread=None, window_s=3600)
    soon = joined(tally, START + timedelta(seconds=RETRY_AFTER_S - 1), 3600)
    assert soon.place == AlertGroup(number=2, missed=1)
    later = joined(soon, START + timedelta(seconds=RETRY_AFTER_S), 40)
    assert later.place == AlertGroup(number=1, missed=2)
    assert later.ends_at == START + timedelta(seconds=RETRY_AFTER_S + 40)
    told_now = settled(later, START, later.place, sent=True, thread="17.1", window_s=3600)
    assert told_now == Tally(START + timedelta(seconds=3600), number=1, untold=0, thread="17.1")


def test_of_many_at_once_one_is_the_first(shelf: Shelf) -> None:
    journals = [shelf.open() for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda n: journals[n % 4].join_alert("ops", "k"), range(40)))
    assert sorted(place.number for place in places) == list(range(1, 41))


# what was counted -----------------------------------------------------------------------------------------------------


def over(journal: Actor, key: str, others: int, *, channel: str = "ops", about: Notice | None = REJECTED) -> None:
    """Make a group of one message that was sent and ``others`` that were not, which is over."""
    places = [journal.join_alert(channel, key, about=about) for _ in range(others + 1)]
    journal.settle_alert(channel, key, places[0], sent=True, thread="17.1", window_s=0)


def test_what_was_counted_is_taken_when_its_group_is_over(shelf: Shelf) -> None:
    over(shelf.open(), "k", 499)
    place = AlertGroup(number=500, missed=498, thread="17.1")
    taken = CountedAlert(channel="ops", alert="k", about=REJECTED, place=place)
    assert list(shelf.open().take_counted_alerts(["ops", "mail"])) == [taken]
    assert list(shelf.open().take_counted_alerts(["ops"])) == []
    shelf.open().settle_alert("ops", "k", place, sent=True, window_s=0)
    assert list(shelf.open().take_counted_alerts(["ops"])) == []
    assert shelf.open().join_alert("ops", "k") == AlertGroup(number=1)


def test_what_was_taken_and_not_told_of_is_taken_again(journal: Actor) -> None:
    over(journal, "k", 2)
    assert [one.alert for one in journal.take_counted_alerts(["ops"], lead_s=0)] == ["k"]
    assert [one.alert for one in journal.take_counted_alerts(["ops"])] == ["k"]


def test_nothing_is_taken_that_needs_no_telling(journal: Actor) -> None:
    over(journal, "told", 0)
    over(journal, "said nothing of", 2, about=None)
    over(journal, "elsewhere", 2, channel="mail")
    journal.join_alert("ops", "under way", about=REJECTED)
    assert list(journal.take_counted_alerts(["ops"])) == []


def test_the_oldest_are_taken_first(journal: Actor) -> None:
    for key in ("a", "b", "c"):
        over(journal, key, 1)
    assert [one.alert for one in journal.take_counted_alerts(["ops"], limit=2)] == ["a", "b"]
    assert [one.alert for one in journal.take_counted_alerts(["ops"], limit=2)] == ["c"]


def test_what_a_newer_lakegate_says_in_a_group_stops_no_message(shelf: Shelf) -> None:
    journal = shelf.open()
    for key in ("newer", "ours"):
        over(journal, key, 1)
    newer = {"about": '{"event": "invented"}'}
    with shelf.databases[0].writing() as tx:
        tx.execute(update(ALERT_GROUPS).where(ALERT_GROUPS.c.alert == "newer").values(newer))
    assert [one.alert for one in journal.take_counted_alerts(["ops"], limit=1)] == ["ours"]
    with shelf.databases[0].reading() as tx:
        assert tx.scalar(select(ALERT_GROUPS.c.about).where(ALERT_GROUPS.c.alert == "newer")) == newer["about"]
    assert journal.join_alert("ops", "newer", about=REJECTED).number == 1


def test_of_many_takers_each_group_has_one(shelf: Shelf) -> None:
    journals = [shelf.open() for _ in range(4)]
    for number in range(20):
        over(journals[0], f"k{number:02}", 1)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: journals[n % 4].take_counted_alerts(["ops"], limit=5), range(8)))
    assert sorted(one.alert for taken in found for one in taken) == [f"k{number:02}" for number in range(20)]
