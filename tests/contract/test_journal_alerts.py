"""What every journal remembers of who was told of what."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from journals import START, Shelf, run
from lakegate.journal.alerts import RETRY_AFTER_S, Tally, joined, settled
from lakegate.model.notices import AlertGroup
from lakegate.model.run import Notification
from lakegate.protocols import Journal


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


def test_a_run_that_is_not_known_is_not_made(journal: Journal) -> None:
    journal.note_notifications("r01", [told("ops")])
    assert journal.get("r01") is None


def test_messages_of_a_group_are_counted_across_processes(shelf: Shelf) -> None:
    first = shelf.open().join_alert("ops", "k", window_s=3600)
    assert first == AlertGroup(number=1)
    shelf.open().settle_alert("ops", "k", first, sent=True, thread="17.1")
    assert shelf.open().join_alert("ops", "k", window_s=3600) == AlertGroup(number=2, thread="17.1")
    third = shelf.open().join_alert("ops", "k", window_s=3600)
    assert third == AlertGroup(number=3, missed=1, thread="17.1")
    shelf.open().settle_alert("ops", "k", third, sent=True)
    assert shelf.open().join_alert("ops", "k", window_s=3600) == AlertGroup(number=4, thread="17.1")


def test_channels_and_keys_have_groups_of_their_own(journal: Journal) -> None:
    for channel, key in (("ops", "k"), ("ops", "l"), ("mail", "k")):
        assert journal.join_alert(channel, key, window_s=3600).number == 1


def test_a_group_that_is_over_begins_anew_and_tells_what_was_missed(journal: Journal) -> None:
    first = journal.join_alert("ops", "k", window_s=0)
    journal.settle_alert("ops", "k", first, sent=True, thread="17.1")
    again = journal.join_alert("ops", "k", window_s=0)
    assert again == AlertGroup(number=1)
    journal.settle_alert("ops", "k", again, sent=False)
    assert journal.join_alert("ops", "k", window_s=0) == AlertGroup(number=1, missed=1)
    journal.settle_alert("ops", "unknown", again, sent=True)
    assert journal.join_alert("ops", "unknown", window_s=0).number == 1


def test_a_message_that_could_not_be_sent_is_tried_again_in_a_minute() -> None:
    tally = joined(None, START, 3600)
    tally = settled(tally, START, tally.place, sent=False, thread=None)
    soon = joined(tally, START + timedelta(seconds=RETRY_AFTER_S - 1), 3600)
    assert soon.place == AlertGroup(number=2, missed=1)
    later = joined(soon, START + timedelta(seconds=RETRY_AFTER_S), 3600)
    assert later.place == AlertGroup(number=1, missed=2)
    assert later.ends_at == START + timedelta(seconds=RETRY_AFTER_S + 3600)
    told_now = settled(later, START, later.place, sent=True, thread="17.1")
    assert told_now == Tally(later.ends_at, number=1, untold=0, thread="17.1")


def test_of_many_at_once_one_is_the_first(shelf: Shelf) -> None:
    journals = [shelf.open() for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda n: journals[n % 4].join_alert("ops", "k", window_s=3600), range(40)))
    assert sorted(place.number for place in places) == list(range(1, 41))
