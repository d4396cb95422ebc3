"""Downstream systems are notified of every publish, in order, whatever fails on either side."""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from typing import Any

import pytest

from lakegate.errors import (
    CatalogUnavailableError,
    DownstreamError,
    DownstreamUnavailableError,
    LakegateError,
    NotFoundError,
)
from lakegate.journal.outbox import queue
from lakegate.model.downstream import DownstreamEvent, Notice
from lakegate.model.identifiers import TableIdentifier
from lakegate.wap import failpoints
from lakegate.wap.deadline import Deadline
from lakegate.wap.downstream import needed_states, send
from lakegate.wap.history import sync
from lakegate.wap.recover import rebuild, recover
from lakegate.wap.revert import reset_branch, restore_table
from lakegate.wap.transaction import Transaction
from support.downstream_support import System, World, down, row, up
from support.fakes import Died
from support.flow_support import WITH_NULLS, when_reached
from support.memory_journal import MemoryDatabase

FARES = TableIdentifier.parse("nyc.fares")


def both(tx: Transaction) -> None:
    tx.append("nyc.trips", row(2))
    tx.append("nyc.fares", row(3))


def test_a_publish_event_says_what_changed() -> None:
    hook = System("hook")
    world = World(hook)
    world.add("a", row(1))
    world.add("b", row(2))
    created, appended = hook.told
    assert (created.kind, created.run_id, created.ref, created.commit) == ("published", "a", "main", appended.parent)
    assert appended.commit == world.head().hash
    (table,) = created.tables
    assert (table.table, table.before, table.created, table.dropped, table.change) == (
        "nyc.trips", None, True, False, "create",
    )  # fmt: skip
    assert table.table_schema is not None
    assert table.table_schema.names == ("id", "passengers")
    (table,) = appended.tables
    assert (table.before, table.created, table.rows_added, table.rows_removed, table.rows) == (
        created.tables[0].after, False, 1, 0, 2,
    )  # fmt: skip
    assert not table.schema_changed
    assert len({created.event_id, appended.event_id}) == 2
    assert world.states() == [("a", "sent"), ("b", "sent")]


def test_a_system_that_is_down_changes_no_run_and_gets_all_events_later() -> None:
    hook = System("hook", fails=down)
    world = World(hook)
    assert [world.add(run, row(number)).status for number, run in enumerate("abc")] == ["published"] * 3
    assert hook.tries == 1  # the others have to wait for the first, which isn't tried again at once
    assert world.states() == [("a", "pending"), ("b", "pending"), ("c", "pending")]
    hook.fails = up
    world.later(seconds=1)
    assert hook.runs == []
    world.later(seconds=60)
    assert hook.runs == ["a", "b", "c"]
    (status,) = world.journal.outbox.status()
    assert (status.pending, status.sent, status.reason) == (0, 3, None)


def test_a_table_waits_for_its_own_events_only() -> None:
    hook = System("hook", fails=lambda event: down(event) if event.run_id == "a" else None)
    world = World(hook)
    world.add("a", row(1))
    world.add("b", row(2), table=FARES)
    world.add("c", row(3))
    assert hook.runs == ["b"]
    hook.fails = up
    world.later(minutes=2)
    assert hook.runs == ["b", "a", "c"]


def test_a_transaction_waits_for_all_of_its_tables() -> None:
    hook = System("hook", fails=lambda event: down(event) if event.run_id == "a" else None)
    world = World(hook)
    world.add("a", row(1))
    world.work("both", both)
    world.add("c", row(4), table=FARES)
    assert hook.runs == []
    hook.fails = up
    world.later(minutes=2)
    assert hook.runs == ["a", "both", "c"]
    assert [table.table for table in hook.told[1].tables] == ["nyc.fares", "nyc.trips"]


def test_a_table_that_a_mirror_refuses_holds_up_no_other_of_its_transaction() -> None:
    glue = System("glue", mirrors=True, fails=_refused_fares)
    world = World(glue)
    world.work("both", both)
    world.add("c", row(4))
    world.add("d", row(5), table=FARES)
    assert [(event.run_id, [one.table for one in event.tables]) for event in glue.told] == [
        ("both", ["nyc.trips"]),
        ("c", ["nyc.trips"]),
    ]
    assert sorted(world.states("glue")) == [
        ("both", "sent"),
        ("both", "superseded"),
        ("c", "sent"),
        ("d", "failed"),
    ]


def _refused_fares(event: DownstreamEvent) -> DownstreamError | None:
    return DownstreamError("No.") if str(FARES) in [one.table for one in event.tables] else None


def test_each_system_has_a_queue_of_its_own() -> None:
    good, bad = System("good"), System("bad", fails=lambda _: RuntimeError("pa55word"))
    world = World(bad, good)
    world.add("a", row(1))
    assert (good.runs, bad.runs) == (["a"], [])
    (waiting,) = world.journal.outbox.waiting("bad")
    assert waiting.reason == "It failed: RuntimeError."
    assert waiting.tries == 1


class Alerts:
    """A notifier that keeps what it is told."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def send(self, notice: Notice, **_: Any) -> tuple[()]:
        self.notices.append(notice)
        return ()

    def test(self, channel: str | None = None) -> tuple[()]:
        del channel
        return ()


def test_a_refused_event_is_given_up_with_an_alert_and_blocks_until_retried() -> None:
    hook = System("hook", fails=lambda _: DownstreamError("It answered 403."))
    world = World(hook)
    world.notifier = alerts = Alerts()
    world.add("a", row(1))
    world.add("b", row(2))
    assert world.states() == [("a", "failed"), ("b", "pending")]
    (undelivered,) = [notice for notice in alerts.notices if notice.event == "undelivered"]
    assert undelivered.delivery is not None
    assert (undelivered.tables, undelivered.delivery.reason) == (("nyc.trips",), "It answered 403.")
    hook.fails = up
    world.later(days=3)
    assert hook.runs == []
    world.journal.outbox.again("hook")
    world.later()
    assert hook.runs == ["a", "b"]


def test_a_delivery_that_fails_for_too_long_is_given_up() -> None:
    hook = System("hook", fails=down)
    world = World(hook)
    world.notifier = alerts = Alerts()
    world.add("a", row(1))
    world.later(hours=20)
    assert world.states() == [("a", "pending")]
    world.later(hours=5)
    assert world.states() == [("a", "failed")]
    assert [notice.event for notice in alerts.notices].count("undelivered") == 1
    world.journal.outbox.again()
    world.later()
    assert world.states() == [("a", "pending")]  # the time counts anew


def test_skipping_a_delivery_unblocks_the_next() -> None:
    hook = System("hook", fails=lambda event: DownstreamError("No.") if event.run_id == "a" else None)
    world = World(hook)
    world.add("a", row(1))
    world.add("b", row(2))
    world.journal.outbox.ended(world.journal.outbox.waiting("hook")[:1], "skipped", "Skipped by me.")
    world.later()
    assert world.states() == [("a", "skipped"), ("b", "sent")]


def test_reverts_restores_and_drops_are_events_too() -> None:
    hook = System("hook")
    world = World(hook)
    world.add("a", row(1))
    head = world.head()
    world.add("b", row(2))
    world.undo("b")
    world.add("c", row(3))
    restore_table(world.context, TableIdentifier.parse("nyc.trips"), head, new_run_id="again")
    world.add("f", row(9), table=FARES)
    world.undo("f")
    kinds = ["published", "published", "reverted", "published", "restored", "published", "reverted"]
    assert [event.kind for event in hook.told] == kinds
    dropped = hook.told[-1]
    assert (dropped.kind, dropped.run_id) == ("reverted", "x-f")
    (table,) = dropped.tables
    assert (table.table, table.dropped, table.after, table.change) == ("nyc.fares", True, None, "drop")
    assert table.before is not None


def test_rejected_runs_are_sent_to_systems_that_subscribe_to_them() -> None:
    hook, lineage = System("hook"), System("lineage", events=("rejected", "failed"))
    world = World(hook, lineage)
    assert world.add("a", WITH_NULLS).status == "rejected"
    assert (hook.told, lineage.runs) == ([], ["a"])
    (event,) = lineage.told
    assert (event.kind, event.commit, [table.table for table in event.tables]) == ("rejected", None, ["nyc.trips"])


def test_patterns_select_the_tables_of_a_system() -> None:
    hook = System("hook", tables=("nyc.f*",))
    world = World(hook)
    world.add("a", row(1))
    world.work("both", both)
    (event,) = hook.told
    assert (event.run_id, [table.table for table in event.tables]) == ("both", ["nyc.fares"])


@pytest.mark.parametrize("point", ["after-publish", "after-branch-delete", "after-end", "before-send", "after-send"])
def test_no_publish_is_missed_when_the_process_is_killed(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    hook = System("hook")
    world = World(hook)
    world.add("a", row(1))
    world.dies_at(monkeypatch, point, lambda: world.add("b", row(2)))
    recover(world.context)
    world.later()
    twice = ["b"] if point == "after-send" else []
    assert hook.runs == ["a", *twice, "b"]
    assert len({event.event_id for event in hook.told}) == 2
    assert world.states() == [("a", "sent"), ("b", "sent")]


def test_recovering_a_killed_run_sends_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = System("hook")
    world = World(hook)
    world.dies_at(monkeypatch, "after-publish", lambda: world.add("a", row(1)))
    assert hook.told == []
    recover(world.context)
    assert hook.runs == ["a"]


def test_events_are_ordered_by_commit_not_by_end_of_run(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = System("hook")
    world = World(hook)
    world.add("z", row(0))
    # Its commit is made, its end isn't recorded yet: another run publishes, ends and tells meanwhile.
    with when_reached(monkeypatch, "after-publish", lambda: world.add("second", row(2))):
        world.add("first", row(1))
    assert hook.runs == ["z", "first", "second"]


def test_a_process_without_the_system_in_its_settings_queues_its_events() -> None:
    hook = System("hook")
    world = World(hook)
    world.add("a", row(1))
    world.systems = ()
    world.add("b", row(2))
    assert hook.runs == ["a"]
    world.systems = (hook,)
    world.later()
    assert hook.runs == ["a", "b"]


def test_recovery_leaves_deliveries_that_may_take_longer_than_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = System("hook")
    world = World(hook)
    world.dies_at(monkeypatch, "after-publish", lambda: world.add("a", row(1)))
    (run,) = recover(world.context, Deadline.after(9))  # it may take 10 s
    assert (run.status, hook.told, world.states()) == ("published", [], [("a", "pending")])
    world.later()
    assert hook.runs == ["a"]


def test_a_new_system_gets_events_from_then_on() -> None:
    world = World()
    world.add("a", row(1))
    hook = System("hook")
    world.systems = (hook,)
    world.add("b", row(2))
    assert hook.runs == ["b"]


def test_a_system_is_sent_the_current_state_on_request() -> None:
    world = World()
    world.add("a", row(1))
    world.add("b", row(2))
    glue = System("glue", mirrors=True)
    world.systems = (glue,)
    sync(world.context, "main")
    world.journal.outbox.register([glue.subscriber().subscription])
    head = world.head().hash
    assert world.journal.outbox.send_current("glue", ["nyc.trips"], ref="main", commit=head) == 1
    world.later()
    (event,) = glue.told
    assert (event.kind, event.run_id, event.tables[0].rows, event.tables[0].before) == ("current", None, 2, None)
    assert not event.tables[0].created


def test_only_the_newest_state_matters_to_a_mirror() -> None:
    glue = System("glue", mirrors=True, fails=down)
    world = World(glue)
    for number in range(5):
        world.add(f"r{number}", row(number))
    world.add("f", row(9), table=FARES)
    glue.fails = up
    world.later(hours=2)
    assert glue.runs == ["r4", "f"]
    assert [state for _, state in world.states("glue")] == [*["superseded"] * 4, "sent", "sent"]


def test_events_of_quarantine_tables_queued_by_older_releases_are_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    glue, hook = System("glue", mirrors=True), System("hook")
    world = World(glue, hook)
    world.add("a", row(1))
    needed = list(needed_states(world.context))
    monkeypatch.setattr("lakegate.model.downstream.is_quarantine", lambda _: False)
    with world.database.writing() as tx:
        queue(tx, "published", ["nyc.trips__quarantine"], ref="main", commit=world.head().hash, run_id="a")
    world.later()
    assert (glue.tries, world.states("glue")) == (1, [("a", "sent"), ("a", "skipped")])
    assert hook.told[-1].tables[0].table == "nyc.trips__quarantine"
    assert list(needed_states(world.context)) == needed


def test_the_next_publish_brings_a_mirror_up_to_date() -> None:
    glue = System("glue", mirrors=True, fails=lambda _: DownstreamError("No rights."))
    world = World(glue)
    world.add("a", row(1))
    glue.fails = up
    world.add("b", row(2))
    assert world.states("glue") == [("a", "superseded"), ("b", "sent")]


def test_after_the_journal_was_lost_recent_events_are_sent_again() -> None:
    hook, glue = System("hook"), System("glue", mirrors=True)
    world = World(hook, glue)
    for number in range(3):
        world.add(f"r{number}", row(number))
    world.add("f", row(9), table=FARES)
    for lost_after, times in ((timedelta(hours=1), 1), (timedelta(days=2), 0)):
        hook.told.clear()
        glue.told.clear()
        world.lose_journal()
        world.database = MemoryDatabase(clock=lambda: world.now)
        world.kill()
        world.later(seconds=lost_after.total_seconds())
        assert [[table.table for table in event.tables] for event in hook.told] == [["nyc.trips", "nyc.fares"]] * times
        assert [event.tables[0].table for event in glue.told] == ["nyc.trips", "nyc.fares"] * times
        assert {(event.kind, event.commit) for event in hook.told} <= {("current", world.head().hash)}


def test_rebuilding_a_journal_repeats_and_misses_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = System("hook")
    world = World(hook)
    world.add("a", row(1))
    world.dies_at(monkeypatch, "after-publish", lambda: world.add("b", row(2)))
    rebuild(world.context, "main")
    rebuild(world.context, "main")
    world.later()
    assert hook.runs == ["a", "b"]


def test_a_reset_of_main_sends_the_current_state_of_its_tables() -> None:
    hook = System("hook")
    world = World(hook)
    world.add("a", row(1))
    head = world.head()
    world.add("b", row(2))
    world.add("f", row(3), table=FARES)
    hook.told.clear()
    reset_branch(world.context, "main", head, force=True)
    world.later()
    (told,) = hook.told
    fares, trips = told.tables
    assert (told.kind, trips.rows, fares.dropped) == ("current", 1, True)


def test_an_event_whose_commit_was_lost_in_a_reset_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = System("hook", fails=down)
    world = World(hook)
    world.add("a", row(1))
    hook.fails = up

    def lost(*_: object, **__: object) -> Any:
        raise NotFoundError("No such commit.")

    monkeypatch.setattr(world.catalog, "history", lost)
    world.now += timedelta(minutes=5)
    send(world.context)
    assert world.states() == [("a", "skipped")]


def test_an_unavailable_catalog_does_not_count_as_a_failure_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = System("hook", fails=down)
    world = World(hook)
    world.add("a", row(1))

    def away(*_: object, **__: object) -> Any:
        raise CatalogUnavailableError("The catalog doesn't answer.")

    with monkeypatch.context() as patch:
        patch.setattr(world.catalog, "get_tables", away)
        world.later(hours=30)
    hook.fails = up
    world.later()
    assert hook.runs == ["a"]


def test_a_system_that_asks_to_wait_is_left_alone_that_long() -> None:
    hook = System("hook", fails=lambda _: DownstreamUnavailableError("It answered 429.", after_s=900))
    world = World(hook)
    world.add("a", row(1))
    hook.fails = up
    world.later(minutes=10)
    assert hook.tries == 1
    world.later(minutes=6)
    assert hook.runs == ["a"]


def test_a_system_that_cannot_be_opened_here_keeps_its_queue() -> None:
    def missing() -> None:
        raise LakegateError("Variable HOOK_URL isn't set.")

    hook = System("hook", opens=missing)
    world = World(hook)
    assert world.add("a", row(1)).status == "published"
    assert world.states() == [("a", "pending")]
    hook.opens = lambda: None
    world.later(minutes=1)
    assert hook.runs == ["a"]


def test_no_delivery_starts_after_the_deadline() -> None:
    hook = System("hook", fails=down)
    world = World(hook)
    world.add("a", row(1))
    hook.fails = up
    world.journal.outbox.again()
    assert send(world.context, within_s=0) == ()
    assert send(world.context, left_s=9) == ()  # it may take 10 s
    assert hook.tries == 1
    assert [one.state for one in send(world.context, left_s=60)] == ["sent"]


def test_two_processes_send_one_at_a_time_and_nothing_twice() -> None:
    entered, go_on = threading.Event(), threading.Event()
    hook = System("hook", fails=down)
    world = World(hook)
    world.add("a", row(1))
    world.add("b", row(2))
    world.journal.outbox.again()

    def slowly(_: object) -> None:
        entered.set()
        assert go_on.wait(120)

    hook.fails = slowly
    first = threading.Thread(target=lambda: send(world.context))
    first.start()
    assert entered.wait(120)
    second = threading.Thread(target=lambda: send(world.context))
    second.start()
    go_on.set()
    first.join(120)
    second.join(120)
    assert hook.runs == ["a", "b"]


def test_gc_keeps_states_that_a_mirror_has_or_will_be_sent() -> None:
    glue = System("glue", mirrors=True)
    world = World(glue, System("hook", fails=down))
    world.add("a", row(1))
    glue.fails = down
    world.add("b", row(2))
    needed = {pointer.metadata_location for pointer in needed_states(world.context)}
    trips = TableIdentifier.parse("nyc.trips")
    now = world.catalog.get_table(trips, world.head())
    assert now is not None
    assert needed == {glue.told[0].tables[0].after, now.metadata_location}
    world.undo("b")
    world.undo("a")
    glue.fails = up
    world.later(hours=2)
    assert list(needed_states(world.context)) == []


def test_gc_keeps_a_state_that_is_delivered_while_it_looks() -> None:
    glue = System("glue", mirrors=True)
    world = World(glue)
    world.add("a", row(1))
    glue.fails = down
    world.add("b", row(2))
    states = needed_states(world.context)
    needed = [next(states).metadata_location]
    glue.fails = up
    world.later(hours=2)
    needed += [pointer.metadata_location for pointer in states]
    assert needed == [glue.told[0].tables[0].after, glue.told[1].tables[0].after]


def test_gc_keeps_a_skipped_state_until_a_later_one_is_delivered() -> None:
    glue = System("glue", mirrors=True)
    world = World(glue)
    world.add("a", row(1))
    glue.fails = lambda _: DownstreamError("No.")
    world.add("b", row(2))  # somebody registers it by hand
    world.journal.outbox.ended(world.journal.outbox.waiting("glue"), "skipped", "Done by hand.")
    skipped = world.catalog.get_table(TableIdentifier.parse("nyc.trips"), world.head())
    assert skipped is not None
    needed = {pointer.metadata_location for pointer in needed_states(world.context)}
    assert needed == {glue.told[0].tables[0].after, skipped.metadata_location}
    glue.fails = up
    world.add("c", row(3))
    assert [pointer.metadata_location for pointer in needed_states(world.context)] == [glue.told[1].tables[0].after]


def test_a_forgotten_system_gets_no_more_events() -> None:
    hook = System("hook", fails=down)
    world = World(hook)
    world.add("a", row(1))
    assert world.journal.outbox.forget("hook") == 1
    world.systems = ()
    world.add("b", row(2))
    assert world.states() == [("a", "skipped")]
    with pytest.raises(LakegateError, match="isn't known"):
        world.journal.outbox.forget("hook")


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_missed_and_order_holds_however_often_something_dies(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chooser = random.Random(seed)
    points = ["after-stage", "before-commit", "after-publish", "after-end", "before-send", "after-send"]
    hook = System("hook", fails=lambda event: chooser.choice([None, None, down(event), Died()]))
    world = World(hook)
    tables = [TableIdentifier.parse(name) for name in ("nyc.trips", "nyc.fares")]

    def reach(point: str) -> None:
        if point in points and chooser.random() < 0.1:
            raise Died

    monkeypatch.setattr(failpoints, "reach", reach)
    for number in range(16):
        try:
            match chooser.random():
                case chance if chance < 0.7:
                    world.add(f"r{number:02}", row(number), table=chooser.choice(tables))
                case chance if chance < 0.8:
                    published = world.journal.runs(status="published", kind="ingest")
                    if published:
                        world.undo(published[0].run_id, new=f"x{number:02}")
                case _:
                    recover(world.context)
            world.later(seconds=chooser.choice([0, 20, 2000]))
        except Died:
            world.kill()
        except LakegateError:
            pass
    monkeypatch.setattr(failpoints, "reach", lambda _: None)
    hook.fails = up
    world.kill()
    recover(world.context)
    world.later(days=0.5)
    world.later(days=0.1)
    commits = [commit.hash for commit in world.catalog.history("main", operations=True)][::-1]
    first_told = list(dict.fromkeys(event.commit for event in hook.told))
    assert set(first_told) == set(commits)
    for table in map(str, tables):
        of_table = [commits.index(event.commit or "") for event in hook.told if event.tables[0].table == table]
        assert of_table == sorted(of_table)  # not even one that is told twice comes late
