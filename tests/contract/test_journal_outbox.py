"""What every journal keeps of the outbox."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from lakegate.errors import NotFoundError
from lakegate.ledger.event import PastCommit
from lakegate.model.downstream import Subscription
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer
from support.journals import START, Shelf, run
from support.ledger_support import past, said

HOOK = Subscription(name="hook", events=("published", "reverted", "current"))
GLUE = Subscription(name="glue", events=("published", "current"), tables=("nyc.*",), mirrors=True)
LINEAGE = Subscription(name="lineage", events=("published", "rejected", "failed"))
POINTER = TablePointer(
    table=TableIdentifier.parse("nyc.trips"),
    content_id="c",
    metadata_location="s3://lake/m.json",
    snapshot_id=1,
    schema_id=0,
    spec_id=0,
    sort_order_id=0,
)


def published(number: int, *tables: str) -> PastCommit:
    return past(f"c{number}", said(f"r{number}", *(tables or ("nyc.trips",))), time=START)


def test_commits_are_queued_once_in_their_order_whoever_records_them(shelf: Shelf) -> None:
    journal = shelf.open().journal
    journal.outbox.register([HOOK, GLUE, LINEAGE])
    journal.record("main", [], "c0", rebuild=True)
    journal.record("main", [published(1), published(2, "lab.runs")], "c2")
    shelf.open().journal.record("main", [published(1), published(2, "lab.runs"), published(3)], "c3")
    assert [one.commit for one in journal.outbox.waiting("hook")] == ["c1", "c2", "c3"]
    assert [one.commit for one in journal.outbox.waiting("glue")] == ["c1", "c3"]
    (first, *later) = journal.outbox.waiting("hook")
    assert list(journal.outbox.waiting("hook", after=first.delivery_id)) == later


def test_systems_that_mirror_tables_get_no_quarantine_tables(shelf: Shelf) -> None:
    journal = shelf.open().journal
    journal.outbox.register([HOOK, GLUE])
    journal.record("main", [], "c0", rebuild=True)
    journal.record("main", [published(1, "nyc.trips", "nyc.trips__quarantine")], "c1")
    assert [one.tables for one in journal.outbox.waiting("glue")] == [("nyc.trips",)]
    assert [one.tables for one in journal.outbox.waiting("hook")] == [("nyc.trips", "nyc.trips__quarantine")]


def test_of_several_that_record_the_same_each_commit_is_queued_once(shelf: Shelf) -> None:
    shelf.open().journal.outbox.register([HOOK])
    shelf.open().journal.record("main", [], "c0", rebuild=True)
    events = [published(number) for number in range(1, 9)]
    journals = [shelf.open().journal for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for done in [
            pool.submit(journal.record, "main", events[: 2 * at + 2], f"c{2 * at + 2}")
            for at, journal in enumerate(journals)
        ]:
            done.result()
    assert [one.commit for one in journals[0].outbox.waiting("hook")] == [one.hash for one in events]


def test_the_end_of_a_run_that_published_nothing_is_queued_with_it(shelf: Shelf) -> None:
    actor = shelf.open()
    actor.journal.outbox.register([HOOK, LINEAGE])
    for number, status in enumerate(("rejected", "failed", "published", "skipped"), 1):
        actor.begin(run(number))
        actor.end(run(number, status=status, finished_at=START))
    found = actor.journal.outbox.list(name="lineage")
    assert [(one.run_id, one.kind, one.commit) for one in reversed(found)] == [
        ("r01", "rejected", None),
        ("r02", "failed", None),
    ]
    assert actor.journal.outbox.list(name="hook") == ()
    # Somebody took its lease again and left it as it was.
    actor.resume("r01", ended=True)
    actor.end(run(1, status="rejected", finished_at=START))
    assert len(actor.journal.outbox.list(name="lineage")) == 2


def test_a_delivery_is_tried_by_one_at_a_time(shelf: Shelf) -> None:
    outbox = shelf.open().journal.outbox
    outbox.register([HOOK])
    outbox.send_current("hook", ["nyc.trips"], ref="main", commit="c1")
    (one,) = outbox.waiting("hook")
    others = [shelf.open().journal.outbox for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda other: other.begin(one), others)) == [False, False, False, True]


def test_a_delivery_lives_until_it_is_sent_skipped_or_given_up(shelf: Shelf) -> None:
    outbox = shelf.open().journal.outbox
    outbox.register([HOOK, GLUE])
    outbox.send_current("glue", ["nyc.trips", "nyc.fares", "lab.runs"], ref="main", commit="c1")
    trips, fares = outbox.waiting("glue")
    assert (trips.tables, fares.tables) == (("nyc.trips",), ("nyc.fares",))
    assert outbox.begin(trips)
    outbox.postponed(trips, "It can't be reached.", next_at=outbox.now() + timedelta(hours=1))
    (status, _) = outbox.status()
    assert (status.name, status.pending, status.reason) == ("glue", 2, "It can't be reached.")
    (again, _) = outbox.waiting("glue")
    assert again.failing_since is not None
    outbox.ended([again], "failed", "Enough.")
    assert outbox.again("glue") == 2
    (again, _) = outbox.waiting("glue")
    assert (again.state, again.failing_since, again.tries) == ("pending", None, 1)
    outbox.sent(again, {"nyc.trips": POINTER})
    outbox.sent(again, {"nyc.trips": POINTER})
    assert outbox.mirrored() == (POINTER,)
    assert [one.tables for one in outbox.unsent_states()] == [("nyc.fares",)]
    outbox.sent(fares, {"nyc.trips": None})
    assert outbox.mirrored() == ()
    outbox.ended([again, fares], "skipped", "Too late: both were sent.")
    assert {one.state for one in outbox.list(name="glue")} == {"sent"}


def test_the_current_state_is_never_older_than_the_events_before_it(shelf: Shelf) -> None:
    journal = shelf.open().journal
    journal.outbox.register([GLUE])
    journal.record("main", [], "c0", rebuild=True)
    journal.record("main", [published(1)], "c1")
    # Another process records a commit between our look at main and our sending it.
    shelf.open().journal.record("main", [published(2)], "c2")
    assert journal.outbox.send_current("glue", ["nyc.trips"], ref="main", commit="c1") == 1
    assert [(one.kind, one.commit) for one in journal.outbox.waiting("glue")][-2:] == [
        ("published", "c2"),
        ("current", "c2"),
    ]


def test_what_a_system_wants_may_change_and_a_forgotten_one_is_unknown(shelf: Shelf) -> None:
    outbox = shelf.open().journal.outbox
    outbox.register([HOOK])
    since = outbox.status()[0].since
    outbox.register([HOOK.model_copy(update={"tables": ("lab.*",)})])
    assert outbox.status()[0].since == since
    assert outbox.send_current("hook", ["nyc.trips", "lab.runs"], ref="main", commit="c1") == 1
    assert outbox.forget("hook") == 1
    assert outbox.status() == ()
    with pytest.raises(NotFoundError):
        outbox.forget("hook")
