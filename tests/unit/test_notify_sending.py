"""Channels against real HTTP servers: what arrives, what is tried again, what is said of failures."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cli_support import REJECTED, make_run
from lakegate.errors import NotFoundError, RetryableError
from lakegate.journal.memory import MemoryJournal
from lakegate.model.channels import NotifySettings
from lakegate.model.notices import Notice
from lakegate.model.run import Notification, Run
from lakegate.notify.dispatch import Dispatcher
from slack_server import HOOK, TOKEN, SlackServer, slack_server

SECRET = "whsec-hunter22"  # noqa: S105 - nobody's
# Apprise looks for a module that Python is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")
WEBHOOK = {"name": "ops", "type": "slack", "url": "env:HOOK_URL"}
BOT = {"name": "bot", "type": "slack", "token": "env:BOT_TOKEN", "channel": "C42"}
SIGNED = {"name": "signed", "type": "webhook", "url": "env:OTHER_URL", "secret": "env:HOOK_SECRET"}
MAIL = {"name": "mail", "type": "apprise", "url": "env:APPRISE_URL"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlackServer]:
    with slack_server() as running:
        monkeypatch.setenv("HOOK_URL", running.hook)
        monkeypatch.setenv("BOT_TOKEN", TOKEN)
        monkeypatch.setenv("OTHER_URL", f"{running.url}/hooks/verysecretpath?key=alsosecret")
        monkeypatch.setenv("HOOK_SECRET", SECRET)
        monkeypatch.setenv("APPRISE_URL", running.url.replace("http", "json") + "/verysecretpath")
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield running


def channels(server: SlackServer, *given: dict[str, Any], **rules: Any) -> NotifySettings:
    with_address = [one | ({"api_url": f"{server.url}/api/"} if "token" in one else {}) for one in given]
    return NotifySettings.model_validate({"channels": with_address, "timeout_s": 20, **rules})


def dispatcher(settings: NotifySettings, journal: MemoryJournal | None = None) -> Dispatcher:
    shared = journal or MemoryJournal()
    return Dispatcher(settings, lambda: shared)


def rejection(run: Run = REJECTED) -> Notice:
    assert run.finished_at is not None
    return Notice(event="rejected", severity="error", tables=run.tables, run=run, at=run.finished_at)


def outcomes(told: Sequence[Notification]) -> list[tuple[str, str, str | None]]:
    return [(one.channel, one.outcome, one.reason) for one in told]


def test_each_kind_of_channel_is_told(server: SlackServer) -> None:
    told = dispatcher(channels(server, WEBHOOK, BOT, SIGNED, MAIL)).tell(rejection())
    assert outcomes(told) == [(name, "sent", None) for name in ("ops", "bot", "signed", "mail")]
    by_path = {one.path.partition("?")[0]: one for one in server.received}
    assert set(by_path) == {HOOK, "/api/chat.postMessage", "/hooks/verysecretpath", "/verysecretpath"}
    for one in server.received:
        assert REJECTED.run_id in one.body.decode(), one.path
    assert by_path["/verysecretpath"].json["title"] == "nyc.trips: rejected"


def test_a_webhook_is_signed_over_time_and_body(server: SlackServer) -> None:
    dispatcher(channels(server, SIGNED)).tell(rejection())
    (received,) = server.received
    headers, body = received.headers, received.body
    signed = f"{headers['Lakegate-Timestamp']}.".encode() + body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["Lakegate-Signature"] == f"v1={expected}"
    assert (headers["Lakegate-Event"], headers["Lakegate-Delivery"]) == ("rejected", received.json["id"])
    told = received.json
    assert (told["version"], told["run"]["run_id"], told["severity"]) == (1, REJECTED.run_id, "error")
    assert [check["failing_rows"] for check in told["checks"]] == [1003, 2]


def test_one_without_a_secret_is_not_signed(server: SlackServer) -> None:
    dispatcher(channels(server, {key: value for key, value in SIGNED.items() if key != "secret"})).tell(rejection())
    assert "Lakegate-Signature" not in server.received[0].headers


@pytest.mark.parametrize("channel", [WEBHOOK, BOT, SIGNED], ids=lambda one: str(one["name"]))
@pytest.mark.parametrize("odd", ["429", "500", "cut"])
def test_what_passes_is_tried_again(server: SlackServer, channel: dict[str, Any], odd: Any) -> None:
    server.odd.extend([odd, odd])
    (told,) = dispatcher(channels(server, channel)).tell(rejection())
    assert (told.outcome, told.reason) == ("sent", None)
    assert len(server.received) == 1
    assert not server.odd


@pytest.mark.parametrize("channel", [WEBHOOK, BOT, SIGNED], ids=lambda one: str(one["name"]))
def test_what_does_not_pass_is_given_up(server: SlackServer, channel: dict[str, Any]) -> None:
    server.odd.extend(["500"] * 9)
    (told,) = dispatcher(channels(server, channel)).tell(rejection())
    assert (told.outcome, told.reason) == ("failed", "it answered 500")
    assert len(server.odd) == 5


@pytest.mark.parametrize("channel", [WEBHOOK, BOT, SIGNED], ids=lambda one: str(one["name"]))
def test_nobody_waits_for_longer_than_is_allowed(server: SlackServer, channel: dict[str, Any]) -> None:
    server.retry_after = "3600"
    server.odd.append("429")
    (told,) = dispatcher(channels(server, channel)).tell(rejection())
    assert told.outcome == "failed"
    assert (told.reason or "").endswith("and asks to wait for 3600 s")


@pytest.mark.parametrize(
    ("channel", "odd"),
    [*((one, "hang") for one in (WEBHOOK, BOT, SIGNED, MAIL)), *((one, "drip") for one in (WEBHOOK, BOT, MAIL))],
)
def test_one_that_is_slow_holds_up_nobody(server: SlackServer, channel: dict[str, Any], odd: Any) -> None:
    server.odd.append(odd)
    (told,) = dispatcher(channels(server, channel, timeout_s=0.5)).tell(rejection())
    assert told.outcome == "failed"
    assert told.reason in ("it took longer than 0.5 s", "it gave no answer in time; the message may have arrived")


def test_what_a_webhook_answers_after_its_status_is_not_waited_for(server: SlackServer) -> None:
    server.odd.append("drip")
    assert outcomes(dispatcher(channels(server, SIGNED)).tell(rejection())) == [("signed", "sent", None)]


def test_one_that_fails_does_not_keep_others_from_being_told(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_URL", "http://127.0.0.1:9/services/verysecretpath")
    monkeypatch.delenv("HOOK_SECRET")
    bad_mail = MAIL | {"name": "bad", "url": "env:BAD_URL"}
    monkeypatch.setenv("BAD_URL", "nonsense://verysecretpath")
    told = dispatcher(channels(server, WEBHOOK, SIGNED, bad_mail, BOT)).tell(rejection())
    assert outcomes(told) == [
        ("ops", "failed", "it cannot be connected to"),
        (
            "signed",
            "failed",
            "Setting notify.channels.signed.secret refers to the variable HOOK_SECRET, which is not set.",
        ),
        ("bad", "failed", "its address is none that Apprise knows"),
        ("bot", "sent", None),
    ]


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("BOT_TOKEN", "xoxb-wrong", "Slack says: invalid_auth"),
        ("HOOK_URL", "{url}/gone", None),
        ("HOOK_URL", "ftp://verysecretpath", "its address cannot be used"),
        ("OTHER_URL", "verysecretpath", "its address does not begin with https:// or http://"),
    ],
)
def test_wrong_secrets_are_told_without_them(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reason: str | None
) -> None:
    monkeypatch.setenv(variable, value.format(url=server.url))
    channel = {"BOT_TOKEN": BOT, "HOOK_URL": WEBHOOK, "OTHER_URL": SIGNED}[variable]
    (told,) = dispatcher(channels(server, channel)).tell(rejection())
    assert told.reason == ("it answered 204" if reason is None else reason)


def test_a_redirect_is_not_followed(server: SlackServer) -> None:
    server.odd.append("302")
    (told,) = dispatcher(channels(server, SIGNED)).tell(rejection())
    assert (told.outcome, told.reason, server.received) == ("failed", "it answered 302", [])


@pytest.mark.parametrize("odd", [None, "500", "cut", "429", "hang"])
def test_no_secret_is_ever_logged_or_kept(
    server: SlackServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], odd: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = channels(server, WEBHOOK, BOT, SIGNED, MAIL, timeout_s=2)
    server.odd.extend([odd] * 4 if odd else [])
    told = dispatcher(settings).tell(rejection())
    written = capfd.readouterr()
    everything = caplog.text + written.out + written.err + "".join(one.model_dump_json() for one in told)
    for secret in ("verysecretpath", TOKEN, SECRET, "alsosecret"):
        assert secret not in everything, everything


def test_five_hundred_of_the_same_are_one_message(server: SlackServer) -> None:
    journal = MemoryJournal()
    settings = channels(server, WEBHOOK)
    told = [dispatcher(settings, journal).tell(rejection(make_run_number(number)))[0] for number in range(500)]
    assert [one.outcome for one in told] == ["sent", *["grouped"] * 499]
    assert told[-1].reason == "number 500 of the same, for which an earlier message stands"
    assert len(server.received) == 1


def test_a_bot_puts_the_same_into_one_thread(server: SlackServer) -> None:
    journal = MemoryJournal()
    settings = channels(server, BOT)
    for number in range(500):
        dispatcher(settings, journal).tell(rejection(make_run_number(number)))
    first, *replies = server.messages
    assert "thread_ts" not in first
    assert {reply["thread_ts"] for reply in replies} == {"17000000.000001"}
    assert len(replies) == 8
    assert "256 of the same so far" in json.dumps(replies[-1])


def test_other_tables_and_reasons_are_told_of_by_themselves(server: SlackServer) -> None:
    teller = dispatcher(channels(server, WEBHOOK))
    other = REJECTED.model_copy(update={"tables": ("nyc.other",)})
    assert [teller.tell(rejection(run))[0].outcome for run in (REJECTED, other)] == ["sent", "sent"]


def test_without_grouping_everything_is_told(server: SlackServer) -> None:
    teller = dispatcher(channels(server, WEBHOOK, group="0s"))
    assert [teller.tell(rejection())[0].outcome for _ in range(3)] == ["sent"] * 3


def test_a_journal_that_is_away_keeps_nobody_from_being_told(server: SlackServer) -> None:
    def away() -> MemoryJournal:
        raise RetryableError("The journal is away.")

    (told,) = Dispatcher(channels(server, WEBHOOK), away).tell(rejection())
    assert told.outcome == "sent"


def test_a_test_message_goes_to_one_or_all(server: SlackServer) -> None:
    teller = dispatcher(channels(server, WEBHOOK, SIGNED | {"events": ["late"]}))
    assert outcomes(teller.test()) == [("ops", "sent", None), ("signed", "sent", None)]
    assert outcomes(teller.test("ops")) == [("ops", "sent", None)]
    with pytest.raises(NotFoundError, match="Did you mean 'ops'"):
        teller.test("opps")


def make_run_number(number: int) -> Run:
    return make_run("rejected", run_id=f"r{number:03}", reports=REJECTED.reports, branch_kept=True)
