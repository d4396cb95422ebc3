"""Channels against real HTTP servers: what arrives, what's retried, and how failures are reported."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import tenacity

from lakegate.errors import NotFoundError
from support.cli_support import REJECTED
from support.mail_server import mail_server
from support.notify_support import (
    BOT,
    MAIL,
    WEBHOOK,
    channels,
    dispatcher,
    given_up,
    lost_file,
    outcomes,
    rejection,
    told_server,
)
from support.slack_server import HOOK, TOKEN, SlackServer

# Apprise looks for a module that Python is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlackServer]:
    with told_server(monkeypatch) as running:
        yield running


def test_each_kind_of_channel_gets_the_alert(server: SlackServer) -> None:
    told = dispatcher(channels(server, WEBHOOK, BOT, MAIL)).send(rejection())
    assert outcomes(told) == [(name, "sent", None) for name in ("ops", "bot", "mail")]
    by_path = {one.path.partition("?")[0]: one for one in server.received}
    assert set(by_path) == {HOOK, "/api/chat.postMessage", "/verysecretpath"}
    for one in server.received:
        assert REJECTED.run_id in one.body.decode(), one.path
    assert by_path["/verysecretpath"].json["title"] == "nyc.trips: rejected"


def test_a_mail_shows_data_as_plain_text(server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server() as mails:
        to = "from=lake@example.com&to=team@example.com&mode=insecure"
        monkeypatch.setenv("APPRISE_URL", f"mailto://127.0.0.1:{mails.port}?{to}")
        bad = lost_file("<img src=x>.csv", reason="[Click](https://evil.example) & @everyone\nBcc: me@evil.example")
        assert outcomes(dispatcher(channels(server, MAIL)).send(given_up(bad))) == [("mail", "sent", None)]
    (mail,) = mails.mails
    assert (mail["Subject"], mail["To"], mail["Bcc"]) == ("nyc.trips: file given up", "team@example.com", None)
    parts = {part.get_content_type(): part.get_content() for part in mail.walk() if not part.is_multipart()}
    assert "<img" not in parts["text/html"]
    assert "&lt;\u200bimg" in parts["text/html"]
    for text in parts.values():
        assert "](" not in text
        assert "@everyone" not in text
        assert "evil.example" in text


@pytest.mark.parametrize("channel", [WEBHOOK, BOT], ids=lambda one: str(one["name"]))
@pytest.mark.parametrize("odd", ["429", "500", "cut"])
def test_temporary_failures_are_retried(server: SlackServer, channel: dict[str, Any], odd: Any) -> None:
    server.odd.extend([odd, odd])
    (told,) = dispatcher(channels(server, channel)).send(rejection())
    assert (told.outcome, told.reason) == ("sent", None)
    assert len(server.received) == 1
    assert not server.odd


@pytest.mark.parametrize("channel", [WEBHOOK, BOT], ids=lambda one: str(one["name"]))
def test_retry_after_is_honoured(server: SlackServer, monkeypatch: pytest.MonkeyPatch, channel: dict[str, Any]) -> None:
    waited: list[float] = []
    monkeypatch.setattr(tenacity.nap, "time", SimpleNamespace(sleep=waited.append))
    server.retry_after = "7"
    server.odd.extend(["429", "500", "429"])
    (told,) = dispatcher(channels(server, channel)).send(rejection())
    assert (told.outcome, len(server.received)) == ("sent", 1)
    assert (waited[0], waited[2]) == (7.0, 7.0)
    assert 0 < waited[1] < 7


@pytest.mark.parametrize("channel", [WEBHOOK, BOT], ids=lambda one: str(one["name"]))
def test_permanent_failures_are_not_retried(server: SlackServer, channel: dict[str, Any]) -> None:
    server.odd.extend(["500"] * 9)
    (told,) = dispatcher(channels(server, channel)).send(rejection())
    assert (told.outcome, told.reason) == ("failed", "it answered 500")
    assert len(server.odd) == 5


@pytest.mark.parametrize("channel", [WEBHOOK, BOT], ids=lambda one: str(one["name"]))
def test_sending_never_exceeds_its_timeout(server: SlackServer, channel: dict[str, Any]) -> None:
    server.retry_after = "3600"
    server.odd.append("429")
    (told,) = dispatcher(channels(server, channel)).send(rejection())
    assert told.outcome == "failed"
    assert (told.reason or "").endswith("and asked to wait 3600 s")


@pytest.mark.parametrize(
    ("channel", "odd"),
    [*((one, "hang") for one in (WEBHOOK, BOT, MAIL)), (WEBHOOK, "drip")],
)
def test_a_slow_channel_does_not_delay_others(server: SlackServer, channel: dict[str, Any], odd: Any) -> None:
    server.odd.append(odd)
    (told,) = dispatcher(channels(server, channel, timeout_s=0.5)).send(rejection())
    assert told.outcome == "failed"
    assert told.reason in ("it took longer than 0.5 s", "it didn't answer in time; the message may have arrived")


def test_a_failing_channel_does_not_stop_others(server: SlackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_URL", "http://127.0.0.1:9/services/verysecretpath")
    bad_mail = MAIL | {"name": "bad", "url": "env:BAD_URL"}
    monkeypatch.setenv("BAD_URL", "nonsense://verysecretpath")
    told = dispatcher(channels(server, WEBHOOK, bad_mail, BOT)).send(rejection())
    assert outcomes(told) == [
        ("ops", "failed", "it can't be reached"),
        ("bad", "failed", "Apprise doesn't support this kind of URL"),
        ("bot", "sent", None),
    ]


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("BOT_TOKEN", "xoxb-wrong", "Slack says: invalid_auth"),
        ("HOOK_URL", "{url}/gone", None),
        ("HOOK_URL", "ftp://verysecretpath", "its address doesn't start with https:// or http://"),
    ],
)
def test_errors_about_secrets_do_not_reveal_them(
    server: SlackServer, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reason: str | None
) -> None:
    monkeypatch.setenv(variable, value.format(url=server.url))
    channel = {"BOT_TOKEN": BOT, "HOOK_URL": WEBHOOK}[variable]
    (told,) = dispatcher(channels(server, channel)).send(rejection())
    assert told.reason == ("it answered 204" if reason is None else reason)


@pytest.mark.parametrize("channel", [WEBHOOK, BOT], ids=lambda one: str(one["name"]))
def test_a_redirect_is_not_followed(server: SlackServer, channel: dict[str, Any]) -> None:
    server.odd.append("302")
    (told,) = dispatcher(channels(server, channel)).send(rejection())
    assert (told.outcome, told.reason, server.received) == ("failed", "it answered 302", [])


@pytest.mark.parametrize("odd", [None, "500", "cut", "429", "hang"])
def test_no_secret_is_ever_logged_or_kept(
    server: SlackServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], odd: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = channels(server, WEBHOOK, BOT, MAIL, timeout_s=2)
    server.odd.extend([odd] * 4 if odd else [])
    told = dispatcher(settings).send(rejection())
    written = capfd.readouterr()
    everything = caplog.text + written.out + written.err + "".join(one.model_dump_json() for one in told)
    for secret in ("verysecretpath", TOKEN):
        assert secret not in everything, everything


def test_a_test_message_goes_to_one_channel_or_all(server: SlackServer) -> None:
    teller = dispatcher(channels(server, WEBHOOK, BOT | {"events": ["late"]}))
    assert outcomes(teller.test()) == [("ops", "sent", None), ("bot", "sent", None)]
    assert outcomes(teller.test("ops")) == [("ops", "sent", None)]
    with pytest.raises(NotFoundError, match="Did you mean 'ops'"):
        teller.test("opps")
