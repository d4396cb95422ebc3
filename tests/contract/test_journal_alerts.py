"""What every journal remembers of who was told of what."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from lakegate.model.run import Notification
from support.journals import START, Actor, Shelf, run


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


def test_one_message_of_a_kind_covers_the_others_for_a_while(shelf: Shelf) -> None:
    first, second = shelf.open(), shelf.open()
    assert first.claim_alert("ops", "k", lead_s=60)
    assert not second.claim_alert("ops", "k", lead_s=60)
    assert second.claim_alert("mail", "k", lead_s=60)
    assert second.claim_alert("ops", "other", lead_s=60)
    first.cover_alert("ops", "k", for_s=3600)
    assert not second.claim_alert("ops", "k", lead_s=60)
    first.cover_alert("ops", "k", for_s=0)
    assert second.claim_alert("ops", "k", lead_s=60)


def test_whoever_comes_next_sends_when_the_first_died(journal: Actor) -> None:
    assert journal.claim_alert("ops", "k", lead_s=0)
    assert journal.claim_alert("ops", "k", lead_s=60)
    assert not journal.claim_alert("ops", "k", lead_s=60)


def test_of_many_at_once_one_sends(shelf: Shelf) -> None:
    journals = [shelf.open() for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(lambda n: journals[n % 4].claim_alert("ops", "k", lead_s=60), range(40)))
    assert claimed.count(True) == 1
