"""One message of a kind within a window, across processes and crashes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from lakegate.alerts.dispatch import RETRY_AFTER_S, Dispatcher
from lakegate.errors import RetryableError
from lakegate.journal.journal import Journal
from support.cli_support import REJECTED
from support.memory_journal import MemoryDatabase
from support.notify_support import (
    BOT,
    NOW,
    WEBHOOK,
    channels,
    dispatcher,
    given_up,
    lost_file,
    outcomes,
    rejected_run,
    rejection,
    told_server,
)
from support.slack_server import SlackServer

HOUR_S = 3600.0


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def __call__(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlackServer]:
    with told_server(monkeypatch) as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(clock: Clock) -> Journal:
    return Journal(MemoryDatabase(clock=clock))


def test_three_hundred_repeats_are_one_message_an_hour(server: SlackServer, journal: Journal, clock: Clock) -> None:
    settings = channels(server, WEBHOOK, BOT)
    told = [dispatcher(settings, journal).send(rejection(rejected_run(number))) for number in range(300)]
    assert [one.outcome for sent in told for one in sent] == ["sent"] * 2 + ["grouped"] * 598
    assert outcomes(told[-1])[0] == ("ops", "grouped", "an earlier message covers it")
    clock.sleep(HOUR_S + 1)
    assert [one.outcome for one in dispatcher(settings, journal).send(rejection())] == ["sent", "sent"]
    assert len(server.messages) == 4


def test_other_kinds_and_tables_get_their_own_message(server: SlackServer, journal: Journal) -> None:
    teller = dispatcher(channels(server, WEBHOOK), journal)
    other = REJECTED.model_copy(update={"tables": ("nyc.other",)})
    assert [teller.send(rejection(run))[0].outcome for run in (REJECTED, other)] == ["sent", "sent"]
    told = [teller.send(given_up(lost_file(f"{at}.csv")))[0] for at in range(3)]
    assert [one.outcome for one in told] == ["sent", "grouped", "grouped"]


def test_without_grouping_every_message_is_sent(server: SlackServer) -> None:
    teller = dispatcher(channels(server, WEBHOOK, group="0s"))
    assert [teller.send(rejection())[0].outcome for _ in range(3)] == ["sent"] * 3


def test_alerts_are_sent_without_a_journal(server: SlackServer) -> None:
    def away() -> Journal:
        raise RetryableError("The journal is away.")

    (told,) = Dispatcher(channels(server, WEBHOOK), away).send(rejection())
    assert told.outcome == "sent"


def test_a_channel_that_fails_is_left_alone_for_a_minute(server: SlackServer, journal: Journal, clock: Clock) -> None:
    teller = dispatcher(channels(server, WEBHOOK), journal)
    server.odd.append("302")
    assert outcomes(teller.send(rejection())) == [("ops", "failed", "it answered 302")]
    assert teller.send(rejection())[0].outcome == "grouped"
    clock.sleep(RETRY_AFTER_S + 1)
    assert teller.send(rejection())[0].outcome == "sent"


def test_another_process_sends_when_the_first_died_while_sending(
    server: SlackServer, journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = channels(server, WEBHOOK)
    dying = dispatcher(settings, journal)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("threading.Thread.start", _die)
        dying.send(rejection())
    assert dispatcher(settings, journal).send(rejection())[0].outcome == "grouped"
    clock.sleep(settings.timeout_s + 31)
    assert dispatcher(settings, journal).send(rejection())[0].outcome == "sent"


def _die(_: object) -> None:
    raise KeyboardInterrupt
