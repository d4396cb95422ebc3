"""Finished runs are reported, and a failing alert never changes a run's outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakegate.alerts.dispatch import Dispatcher
from lakegate.config import NotifySettings
from lakegate.context import Context
from lakegate.errors import AuditFailedError, EngineError, RetryableError
from lakegate.journal.journal import Journal
from lakegate.model.downstream import Notice
from lakegate.model.run import Notification, Run
from lakegate.wap import review
from lakegate.wap.alerting import alert_late, find_late
from lakegate.wap.ingest import ingest, resume
from lakegate.wap.recover import recover
from lakegate.wap.review import accepted
from lakegate.wap.transaction import transaction
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, WITH_NULLS, ordered, when_reached
from support.ledger_support import save_with_commits
from support.memory_journal import MemoryDatabase
from support.slack_server import SlackServer, slack_server

NOW = datetime(2026, 1, 31, 7, 5, 9, tzinfo=UTC)


@dataclass
class RecordingNotifier:
    """Records the alerts."""

    notices: list[Notice] = field(default_factory=list)
    do: Callable[[], object] = lambda: None

    def send(self, notice: Notice) -> Sequence[Notification]:
        self.notices.append(notice)
        self.do()
        return [Notification(channel="ops", event=notice.event, outcome="sent", at=NOW)]

    def test(self, channel: str | None = None) -> Sequence[Notification]:
        return []

    @property
    def told(self) -> list[tuple[str, bool, str]]:
        return [(notice.event, notice.recovered, notice.severity) for notice in self.notices]


@pytest.fixture
def notifier() -> RecordingNotifier:
    return RecordingNotifier()


def context(house: FakeLakehouse, notifier: Any) -> Context:
    return replace(house.context, notifier=notifier)


def stored(house: FakeLakehouse, run_id: str = "r1") -> Run:
    run = house.journal.get(run_id)
    assert run is not None
    return run


@pytest.mark.parametrize(
    ("rows", "checks", "told"),
    [
        (CLEAN, "not_null(passengers)", ("published", False, "info")),
        (WITH_NULLS, "not_null(passengers, severity='warn')", ("published", False, "warn")),
        (WITH_NULLS, "not_null(passengers)", ("rejected", False, "error")),
    ],
)
def test_a_finished_ingest_is_reported_once(
    house: FakeLakehouse, notifier: RecordingNotifier, rows: Any, checks: str, told: tuple[str, bool, str]
) -> None:
    run = ingest(context(house, notifier), ordered(house, rows, checks=(checks,)))
    assert notifier.told == [told]
    assert [one.channel for one in run.notifications] == ["ops"]
    assert stored(house) == run
    assert notifier.notices[0].run == run.model_copy(update={"notifications": ()})


def test_a_skipped_run_is_not_reported(house: FakeLakehouse, notifier: RecordingNotifier) -> None:
    ingest(house.context, ordered(house))
    assert ingest(context(house, notifier), ordered(house, file="r1", run="r2")).status == "skipped"
    assert notifier.told == []


def test_a_failed_run_is_reported_and_raises(
    house: FakeLakehouse, notifier: RecordingNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise EngineError("Out of disk.")

    with when_reached(monkeypatch, "after-claim", fail), pytest.raises(EngineError, match="Out of disk"):
        ingest(context(house, notifier), ordered(house))
    assert notifier.told == [("failed", False, "error")]
    assert [one.outcome for one in stored(house).notifications] == ["sent"]


def test_a_suspended_run_is_reported_when_it_ends(house: FakeLakehouse, notifier: RecordingNotifier) -> None:
    telling = context(house, notifier)
    ingest(telling, ordered(house, WITH_NULLS), until="write", suspends=True)
    assert notifier.told == []
    ended = resume(telling, "r1", until="audit")
    assert (ended.status, [one.outcome for one in ended.notifications]) == ("rejected", ["sent"])
    assert resume(telling, "r1", until="publish") == ended
    assert notifier.told == [("rejected", False, "error")]


@pytest.mark.parametrize(
    ("point", "told"),
    [("after-claim", ("failed", True, "error")), ("after-publish", ("published", True, "warn"))],
)
def test_a_recovered_run_is_reported_as_recovered(
    house: FakeLakehouse,
    notifier: RecordingNotifier,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    told: tuple[str, bool, str],
) -> None:
    house.dies_at(monkeypatch, point, lambda: ingest(context(house, notifier), ordered(house)))
    assert notifier.told == []
    house.kill()
    (run,) = recover(context(house, notifier))
    assert notifier.told == [told]
    assert stored(house) == run
    assert len(run.notifications) == 1


def test_recovery_does_not_report_a_finished_run_again(house: FakeLakehouse, notifier: RecordingNotifier) -> None:
    ingest(context(house, notifier), ordered(house, WITH_NULLS))
    assert house.journal.resume("r1", ended=True) is not None  # by somebody who is to publish its branch
    house.kill()
    (run,) = recover(context(house, notifier))
    assert run.status == "rejected"
    assert notifier.told == [("rejected", False, "error")]


def test_a_rejected_transaction_is_reported(house: FakeLakehouse, notifier: RecordingNotifier) -> None:
    with (
        pytest.raises(AuditFailedError),
        transaction(
            context(house, notifier),
            run_id="t1",
            name=None,
            branch="wap/t1",
            target="main",
            configured=lambda _: (),
            on_failure="keep",
        ) as tx,
    ):
        tx.append("nyc.trips", WITH_NULLS)
        tx.check("nyc.trips", "not_null(passengers)")
    assert notifier.told == [("rejected", False, "error")]
    assert notifier.notices[0].tables == ("nyc.trips",)
    assert len(stored(house, "t1").notifications) == 1


@pytest.mark.parametrize("error", [RuntimeError("secret"), RetryableError("away")])
def test_a_notifier_that_breaks_changes_nothing(
    house: FakeLakehouse, notifier: RecordingNotifier, error: Exception
) -> None:
    def breaks() -> None:
        raise error

    notifier.do = breaks
    run = ingest(context(house, notifier), ordered(house))
    assert (run.status, run.notifications) == ("published", ())
    assert stored(house) == run


def test_an_interrupt_while_alerting_keeps_the_work(house: FakeLakehouse, notifier: RecordingNotifier) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    notifier.do = interrupt
    with pytest.raises(KeyboardInterrupt, match="Run r1 had ended: published"):
        ingest(context(house, notifier), ordered(house))
    assert stored(house).status == "published"
    assert house.rows_on("main", "nyc.trips") == CLEAN


def test_changes_made_while_alerting_are_not_lost(house: FakeLakehouse, notifier: RecordingNotifier) -> None:
    def change() -> None:
        house.journal.save(stored(house).model_copy(update={"status": "reverted"}))

    notifier.do = change
    ingest(context(house, notifier), ordered(house))
    assert (stored(house).status, len(stored(house).notifications)) == ("reverted", 1)


# with real channels ---------------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlackServer]:
    with slack_server() as running:
        monkeypatch.setenv("HOOK_URL", running.hook)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield running


def dispatcher(house: FakeLakehouse) -> Dispatcher:
    channel = {"name": "ops", "type": "slack", "url": "env:HOOK_URL"}
    return Dispatcher(NotifySettings.model_validate({"channels": [channel]}), lambda: house.journal)


def test_a_rejected_run_is_a_message(house: FakeLakehouse, server: SlackServer) -> None:
    run = ingest(context(house, dispatcher(house)), ordered(house, WITH_NULLS))
    assert run.status == "rejected"
    assert [(one.channel, one.event, one.outcome) for one in run.notifications] == [("ops", "rejected", "sent")]
    (message,) = server.messages
    assert "nyc.trips: rejected" in message["text"]
    assert f"lakegate publish {run.branch} --accept REASON" in str(message["blocks"])


def test_an_accepted_run_shows_who_accepted_it_and_why(
    house: FakeLakehouse, server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEGATE_ACTOR", "ada")
    rejected = ingest(house.context, ordered(house, WITH_NULLS))
    told, acceptance = context(house, dispatcher(house)), accepted("the meters were off")
    review.publish_branch(told, rejected.branch, configured=lambda _: (), acceptance=acceptance)
    (message,) = server.messages
    assert "1 of 1 check failed; ada published it anyway: the meters were off" in str(message)


# tables that are late -------------------------------------------------------------------------------------------------


@dataclass
class Clock:
    """A clock that stands until it's set."""

    time: datetime

    def __call__(self) -> datetime:
        return self.time


def published(number: int, hours: int, **values: Any) -> Run:
    fields = {"run_id": f"r{number}", "tables": ("nyc.trips",), "branch": "", "status": "published"}
    at = NOW - timedelta(hours=hours)
    return Run.model_validate({**fields, "started_at": at, "finished_at": at, **values})


def late(*runs: Run, every: str = "1d") -> list[tuple[str, str | None]]:
    journal = Journal(MemoryDatabase())
    save_with_commits(journal, *runs)
    return [(found.table, found.run_id) for found in find_late(journal, {"nyc.trips": every}, NOW)]


def test_a_table_is_late_when_nothing_was_published_for_too_long() -> None:
    assert late(published(1, 23)) == []
    assert late(published(1, 25)) == [("nyc.trips", "r1")]
    assert late(published(1, 25), published(2, 2)) == []
    assert late(published(1, 25), every="2d") == []
    took_long = published(1, 60, finished_at=NOW - timedelta(hours=2))
    assert late(took_long, published(2, 30)) == []
    assert late() == [("nyc.trips", None)]


def test_rejected_and_reverted_runs_do_not_count_as_published() -> None:
    assert late(published(1, 2, status="rejected"), published(2, 30)) == [("nyc.trips", "r2")]
    assert late(published(1, 2, status="reverted"), published(2, 1, kind="revert")) == [("nyc.trips", None)]


def test_a_late_table_is_reported_once_per_expected_interval_until_its_next_publish(server: SlackServer) -> None:
    clock = Clock(NOW)
    journal = Journal(MemoryDatabase(clock=clock))
    channel = {"name": "ops", "type": "slack", "url": "env:HOOK_URL"}
    teller = Dispatcher(NotifySettings.model_validate({"channels": [channel], "group": "0s"}), lambda: journal)

    def outcome() -> str:
        (told,) = alert_late(teller, find_late(journal, {"nyc.trips": "1d"}, clock.time), clock.time)
        return told.notifications[0].outcome

    save_with_commits(journal, published(1, 30))
    assert [outcome(), outcome()] == ["sent", "grouped"]
    clock.time += timedelta(days=1, seconds=1)
    assert [outcome(), outcome()] == ["sent", "grouped"]
    save_with_commits(journal, published(2, 1, run_id="r2"))
    clock.time += timedelta(hours=1)
    assert outcome() == "sent"
    assert len(server.messages) == 3
