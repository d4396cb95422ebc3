"""A webhook as a downstream system: what arrives, how it's signed, and what is retried."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from lakegate.config import WebhookDownstream, load_settings
from lakegate.credentials.webhook import SignedPost, UndeliveredError
from lakegate.downstream import TYPES, DownstreamContext, open_downstream
from lakegate.downstream.webhook import WebhookTarget
from lakegate.errors import ConfigurationError, DownstreamError, DownstreamUnavailableError
from lakegate.model.downstream import DownstreamEvent
from support.downstream_contract import changed, event
from support.slack_server import Odd, SlackServer, slack_server


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with slack_server() as running:
        yield running


def target(server: SlackServer, timeout_s: float = 10) -> WebhookTarget:
    return WebhookTarget(f"{server.url}/hooks/verysecretpath", "whsec", timeout_s)


def test_the_event_arrives_as_it_is_with_a_signature(server: SlackServer) -> None:
    sent = event(changed(), changed("nyc.fares"))
    target(server).deliver(sent, None)
    (got,) = server.received
    assert DownstreamEvent.model_validate_json(got.body) == sent
    assert (got.headers["Lakegate-Event"], got.headers["Lakegate-Delivery"]) == ("published", sent.event_id)
    signed = f"{got.headers['Lakegate-Timestamp']}.".encode() + got.body
    expected = hmac.new(b"whsec", signed, hashlib.sha256).hexdigest()
    assert got.headers["Lakegate-Signature"] == f"v1={expected}"


@pytest.mark.parametrize(
    ("odd", "error", "text"),
    [
        ("500", DownstreamUnavailableError, "answered 500"),
        ("429", DownstreamUnavailableError, "answered 429"),
        ("408", DownstreamUnavailableError, "answered 408"),
        ("cut", DownstreamUnavailableError, "closed the connection"),
        ("hang", DownstreamUnavailableError, "in time"),
        ("302", DownstreamError, "answered 302"),
    ],
)
def test_only_what_may_help_is_tried_again(
    server: SlackServer, odd: Odd, error: type, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.odd.append(odd)
    with caplog.at_level(logging.DEBUG), pytest.raises(error, match=text):
        target(server, timeout_s=0.5 if odd == "hang" else 10).deliver(event(), None)
    assert "verysecretpath" not in caplog.text


def test_what_was_not_sent_cannot_have_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **_options: object) -> None:
        raise httpx.ConnectTimeout("timed out")

    monkeypatch.setattr(httpx.Client, "stream", connect)
    with pytest.raises(UndeliveredError) as caught:
        SignedPost("https://hooks.example.com/secret", None).send(b"{}", event="test", key="k", timeout_s=1)
    assert (caught.value.reason, caught.value.again) == ("it can't be reached", True)


def test_testing_sends_an_event_about_nothing(server: SlackServer) -> None:
    assert target(server).test() == "It accepted a test event."
    assert server.received[0].json["kind"] == "test"


def test_a_section_of_the_settings_is_opened_with_its_secrets(
    server: SlackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = '[downstream.hook]\ntype = "webhook"\nurl = "env:HOOK_URL"\nsecret = "env:HOOK_SECRET"\n'
    (tmp_path / "lakegate.toml").write_text(section, encoding="utf-8")
    settings = load_settings(tmp_path, env={})
    context = DownstreamContext(tmp_path, "file:///lake", settings)
    with pytest.raises(ConfigurationError, match=r"downstream\.hook\.url refers to the variable HOOK_URL"):
        open_downstream("hook", settings.downstream["hook"], context)
    monkeypatch.setenv("HOOK_URL", f"{server.url}/x")
    monkeypatch.setenv("HOOK_SECRET", "whsec")
    open_downstream("hook", settings.downstream["hook"], context).deliver(event(), None)
    assert "Lakegate-Signature" in server.received[0].headers


def test_a_secret_is_no_setting() -> None:
    with pytest.raises(ValueError, match="is a secret"):
        WebhookDownstream(type="webhook", url="https://example.com/secret")


def test_every_type_of_the_settings_can_be_loaded() -> None:
    from typing import get_args

    from lakegate.config import AnyDownstream

    (union, *_) = get_args(AnyDownstream)
    names = {get_args(one.model_fields["type"].annotation)[0] for one in get_args(union)}
    assert names == TYPES.keys()
