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
    LakegateError,
)
from lakegate.model.downstream import Notice
from lakegate.model.identifiers import TableIdentifier
from lakegate.wap import failpoints
from lakegate.wap.downstream import needed_states, send
from lakegate.wap.recover import recover
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


def test_events_are_ordered_by_commit_not_by_end_of_run(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = System("hook")
    world = World(hook)
    world.add("z", row(0))
    # Its commit is made, its end isn't recorded yet: another run publishes, ends and tells meanwhile.
    with when_reached(monkeypatch, "after-publish", lambda: world.add("second", row(2))):
        world.add("first", row(1))
    assert hook.runs == ["z", "first", "second"]


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


@pytest.mark.parametrize("seed", range(2))
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
