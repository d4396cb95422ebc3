"""Repeated alerts are sent once, with a count, across processes and crashes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from lakegate.alerts.dispatch import AlertGrouping, ChannelDelivery, Dispatcher
from lakegate.errors import RetryableError
from lakegate.journal.alerts import RETRY_AFTER_S
from lakegate.journal.journal import Journal
from lakegate.model.downstream import LateTable, Notice
from support.cli_support import PUBLISHED, REJECTED
from support.mail_server import mail_server
from support.memory_journal import MemoryDatabase
from support.notify_support import (
    BOT,
    MAIL,
    NOW,
    SIGNED,
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
QUIET = Notice(event="published", severity="info", tables=("nyc.trips",), run=PUBLISHED, at=NOW)
"""What none of the channels asks for."""


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


def test_three_hundred_repeats_are_one_message(server: SlackServer) -> None:
    journal = Journal(MemoryDatabase())
    settings = channels(server, WEBHOOK)
    told = [dispatcher(settings, journal).send(rejection(rejected_run(number)))[0] for number in range(300)]
    assert [one.outcome for one in told] == ["sent", *["grouped"] * 299]
    assert told[-1].reason == "repeat number 300, covered by an earlier message"
    assert len(server.received) == 1


def test_a_bot_puts_repeats_into_one_thread(server: SlackServer) -> None:
    journal = Journal(MemoryDatabase())
    settings = channels(server, BOT)
    for number in range(300):
        dispatcher(settings, journal).send(rejection(rejected_run(number)))
    first, *replies = server.messages
    assert "thread_ts" not in first
    assert {reply["thread_ts"] for reply in replies} == {"17000000.000001"}
    assert len(replies) == 8
    assert "256 of these so far" in json.dumps(replies[-1])


def test_other_tables_and_reasons_get_their_own_message(server: SlackServer) -> None:
    teller = dispatcher(channels(server, WEBHOOK))
    other = REJECTED.model_copy(update={"tables": ("nyc.other",)})
    assert [teller.send(rejection(run))[0].outcome for run in (REJECTED, other)] == ["sent", "sent"]


def test_without_grouping_every_message_is_sent(server: SlackServer) -> None:
    teller = dispatcher(channels(server, WEBHOOK, group="0s"))
    assert [teller.send(rejection())[0].outcome for _ in range(3)] == ["sent"] * 3


def test_alerts_are_sent_without_a_journal(server: SlackServer) -> None:
    def away() -> Journal:
        raise RetryableError("The journal is away.")

    (told,) = Dispatcher(channels(server, WEBHOOK), away).send(rejection())
    assert told.outcome == "sent"


# groups that are over -------------------------------------------------------------------------------------------------


def test_the_count_is_sent_when_the_hour_is_over(server: SlackServer, journal: Journal, clock: Clock) -> None:
    settings = channels(server, WEBHOOK)
    for number in range(300):
        dispatcher(settings, journal).send(rejection(rejected_run(number)))
    dispatcher(settings, journal).send(QUIET)
    assert len(server.messages) == 1
    clock.sleep(HOUR_S + 1)
    assert dispatcher(settings, journal).send(QUIET) == ()
    _, counted = server.messages
    assert counted["text"].startswith("nyc.trips: 299 more rejected")
    told = json.dumps(counted)
    assert "300 of these in total" in told
    assert "lakegate runs --table nyc.trips --status rejected" in told
    clock.sleep(HOUR_S + 1)
    dispatcher(settings, journal).send(QUIET)
    assert len(server.messages) == 2


def test_a_thread_ends_with_the_count(server: SlackServer, journal: Journal, clock: Clock) -> None:
    settings = channels(server, BOT)
    for number in range(7):
        dispatcher(settings, journal).send(rejection(rejected_run(number)))
    clock.sleep(HOUR_S + 1)
    assert outcomes(dispatcher(settings, journal).send_counted()) == [("bot", "sent", None)]
    first, *replies = server.messages
    assert "thread_ts" not in first
    assert {reply["thread_ts"] for reply in replies} == {"17000000.000001"}
    assert replies[-1]["text"].startswith("nyc.trips: 3 more rejected")


def test_the_next_alert_includes_the_count_instead_of_a_separate_message(
    server: SlackServer, journal: Journal, clock: Clock
) -> None:
    settings = channels(server, WEBHOOK)
    for _ in range(3):
        dispatcher(settings, journal).send(rejection())
    clock.sleep(HOUR_S + 1)
    dispatcher(settings, journal).send(rejection())
    _, anew = server.messages
    assert "2 more like this came before" in json.dumps(anew)
    assert dispatcher(settings, journal).send_counted() == ()


def test_a_count_that_cannot_be_sent_is_sent_later(server: SlackServer, journal: Journal, clock: Clock) -> None:
    settings = channels(server, SIGNED)
    for _ in range(3):
        dispatcher(settings, journal).send(rejection())
    clock.sleep(HOUR_S + 1)
    server.odd.extend(["302"])
    assert outcomes(dispatcher(settings, journal).send_counted()) == [("signed", "failed", "it answered 302")]
    assert dispatcher(settings, journal).send_counted() == ()
    clock.sleep(RETRY_AFTER_S + 1)
    assert outcomes(dispatcher(settings, journal).send_counted()) == [("signed", "sent", None)]
    assert (server.messages[-1]["counted"], server.messages[-1]["group"]) == (2, {"number": 3, "missed": 1})


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")  # Apprise looks for it, and Python is to drop it
def test_an_unknown_recipient_does_not_make_others_get_a_mail_again(
    server: SlackServer, journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = channels(server, MAIL)
    with mail_server() as mails:
        to = f"from=lake@example.com&to=team@example.com,{mails.unknown}&mode=insecure"
        monkeypatch.setenv("APPRISE_URL", f"mailto://127.0.0.1:{mails.port}?{to}")
        told = dispatcher(settings, journal).send(rejection())
        clock.sleep(RETRY_AFTER_S + 1)
        assert dispatcher(settings, journal).send_counted() == ()
    assert outcomes(told) == [("mail", "failed", "Apprise couldn't deliver it to 1 of 2 recipients")]
    assert [mail["To"] for mail in mails.mails] == ["team@example.com"]


@pytest.mark.parametrize("channel", [WEBHOOK, BOT, SIGNED], ids=lambda one: str(one["name"]))
def test_an_undelivered_alert_is_sent_in_full_when_the_channel_is_back(
    server: SlackServer, journal: Journal, clock: Clock, channel: dict[str, Any]
) -> None:
    settings = channels(server, channel)
    journal.save(REJECTED)
    for notice in (rejection(), given_up(lost_file())):
        server.odd.extend(["500"] * 4)
        assert dispatcher(settings, journal).send(notice)[0].outcome == "failed"
        server.odd.clear()
    clock.sleep(RETRY_AFTER_S + 1)
    dispatcher(settings, journal).send(QUIET)
    told = [json.dumps(message) for message in server.messages]
    assert len(told) == 2
    for part in (REJECTED.run_id, "not_null(passenger_count)", f"lakegate discard {REJECTED.branch}"):
        assert any(part in one for one in told), part
    assert any("s3://landing/bad.parquet" in one for one in told)
    clock.sleep(HOUR_S)
    assert dispatcher(settings, journal).send_counted() == ()


def test_a_run_that_the_journal_has_lost_is_counted(server: SlackServer, journal: Journal, clock: Clock) -> None:
    settings = channels(server, SIGNED)
    server.odd.append("302")
    dispatcher(settings, journal).send(rejection())
    clock.sleep(RETRY_AFTER_S + 1)
    dispatcher(settings, journal).send_counted()
    assert (server.messages[0]["counted"], server.messages[0]["run"]) == (1, None)


def test_a_failing_channel_is_not_retried_for_counts(server: SlackServer, journal: Journal, clock: Clock) -> None:
    settings = channels(server, SIGNED)
    for table in ("nyc.a", "nyc.b", "nyc.c"):
        for _ in range(2):
            dispatcher(settings, journal).send(rejection(REJECTED.model_copy(update={"tables": (table,)})))
    clock.sleep(HOUR_S + 1)
    server.odd.extend(["302"] * 4)
    (told,) = dispatcher(settings, journal).send(rejection())
    assert (told.outcome, len(server.odd)) == ("failed", 3)


def test_a_table_that_is_late_is_not_counted(server: SlackServer, journal: Journal, clock: Clock) -> None:
    late = LateTable(table="nyc.trips", expected_every="1d")
    notice = Notice(event="late", severity="error", tables=("nyc.trips",), late=late, at=NOW)
    settings = channels(server, WEBHOOK)
    for _ in range(3):
        dispatcher(settings, journal).send(notice, alert="late nyc.trips", window_s=86400)
    clock.sleep(86401)
    assert dispatcher(settings, journal).send_counted() == ()
    dispatcher(settings, journal).send(notice, alert="late nyc.trips", window_s=86400)
    assert "of these" not in json.dumps(server.messages)


def test_another_process_sends_when_the_first_died_while_sending(
    server: SlackServer, journal: Journal, clock: Clock
) -> None:
    settings = channels(server, BOT)
    dying = ChannelDelivery(settings.channels[0], rejection(), HOUR_S)
    AlertGrouping(lambda: journal, settings.timeout_s + 30).count(dying)
    assert dying.outcome is None
    teller = dispatcher(settings, journal)
    (waiting,) = teller.send(rejection())
    assert waiting.reason == "repeat number 2; the first hasn't been sent yet"
    clock.sleep(settings.timeout_s + 31)
    assert teller.send(rejection())[0].outcome == "sent"
    assert "2 more like this came before" in json.dumps(server.messages[0])


# files that were given up ---------------------------------------------------------------------------------------------


def test_a_file_is_reported_once_per_version(server: SlackServer, journal: Journal, clock: Clock) -> None:
    settings = channels(server, WEBHOOK, SIGNED, group="0s")
    tellers = [dispatcher(settings, journal) for _ in range(3)]
    told = [outcomes(teller.send(given_up(lost_file()))) for teller in tellers]
    assert told[0] == [("ops", "sent", None), ("signed", "sent", None)]
    assert told[1:] == [[(name, "grouped", "it was reported before") for name in ("ops", "signed")]] * 2
    clock.sleep(86400 * 7)
    assert tellers[0].send(given_up(lost_file()))[0].outcome == "grouped"
    assert tellers[0].send(given_up(lost_file(stamp="2")))[0].outcome == "sent"


def test_an_undelivered_file_alert_is_sent_later(server: SlackServer, journal: Journal, clock: Clock) -> None:
    teller = dispatcher(channels(server, SIGNED), journal)
    server.odd.append("302")
    assert teller.send(given_up(lost_file()))[0].outcome == "failed"
    clock.sleep(RETRY_AFTER_S + 1)
    assert teller.send(given_up(lost_file()))[0].outcome == "sent"


@pytest.mark.parametrize(("channel", "messages"), [(WEBHOOK, 1), (BOT, 9)], ids=["webhook", "bot"])
def test_three_hundred_files_are_one_message_or_one_thread(
    server: SlackServer, journal: Journal, clock: Clock, channel: dict[str, Any], messages: int
) -> None:
    settings = channels(server, channel)
    told = [dispatcher(settings, journal).send(given_up(lost_file(f"{n}.csv")))[0] for n in range(300)]
    assert [one.outcome for one in told].count("sent") == len(server.messages) == messages
    assert len({message.get("thread_ts") for message in server.messages}) <= 2
    clock.sleep(HOUR_S + 1)
    dispatcher(settings, journal).send_counted()
    last = server.messages[-1]
    assert last["text"].startswith(f"nyc.trips: {299 if channel is WEBHOOK else 44} more files given up")
    assert "300 of these in total" in json.dumps(last)


def test_files_with_other_kinds_of_trouble_are_told_of_by_themselves(server: SlackServer) -> None:
    teller = dispatcher(channels(server, WEBHOOK))
    told = [teller.send(given_up(lost_file(f"{code}.csv", code=code)))[0] for code in ("source", "schema", "source")]
    assert [one.outcome for one in told] == ["sent", "sent", "grouped"]
