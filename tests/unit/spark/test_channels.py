"""The way to Spark Connect: TLS that is proven, and tokens that never travel in the clear."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakegate.errors import ConfigurationError, EngineUnavailableError, LakegateError
from lakegate.spark.sessions import remote_sessions
from support.oidc_server import oidc_server
from support.tls_proxy import Authority, tls_proxy

TOKEN = "planted-t0ken"
AWAY = "sc://spark.example.com:15002"


class GivenToken:
    def value(self) -> str:
        return TOKEN

    def renew(self) -> None:
        pass


def refused(url: str, **settings: Any) -> LakegateError:
    with pytest.raises(LakegateError) as caught:
        remote_sessions(url, **settings)({})
    assert TOKEN not in f"{caught.value.to_dict()} {caught.value.__cause__}"
    return caught.value


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture(autouse=True)
def _no_authorities_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", raising=False)


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        (AWAY, {"token": GivenToken(), "tls": False}),
        (f"{AWAY}/;use_ssl=false", {"token": GivenToken()}),
        (f"{AWAY}/;use_ssl=false;token={TOKEN}", {}),
        (f"{AWAY}/;token={TOKEN}", {"tls": False}),
    ],
)
def test_a_token_is_not_sent_without_tls(url: str, settings: dict[str, Any]) -> None:
    error = refused(url, **settings)
    assert isinstance(error, ConfigurationError)
    assert error.message == f"lakegate doesn't send the token for {AWAY} without TLS."
    assert "engine.tls = true" in str(error.hint)


def test_the_token_of_sparks_own_variable_is_not_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", TOKEN)
    assert "doesn't send the token" in refused(AWAY, tls=False).message


@pytest.mark.parametrize(
    ("offered", "reason"),
    [
        (lambda ours: ours.server(expired=True), "certificate has expired"),
        (lambda ours: ours.server(host="other.example.com"), "Hostname mismatch"),
        (lambda ours: ours.server(protocol="http/1.1"), "speaks TLS, but not HTTP/2"),
    ],
    ids=["expired", "another host", "no HTTP/2"],
)
@pytest.mark.parametrize("settings", [{"token": GivenToken()}, {"tls": True}], ids=["token", "none"])
def test_a_server_that_proves_nothing_is_told_nothing(
    authority: Authority, offered: Callable[[Authority], ssl.SSLContext], reason: str, settings: dict[str, Any]
) -> None:
    with tls_proxy(None, offered(authority)) as proxy:
        error = refused(f"sc://localhost:{proxy.port}", ca_file=authority.file, **{"tls": True, **settings})
    assert isinstance(error, ConfigurationError)
    assert reason in error.message
    assert proxy.heard == []


@pytest.mark.parametrize("named", [True, False])
def test_only_named_authorities_are_trusted(authority: Authority, tmp_path: Path, named: bool) -> None:
    ca_file = Authority(tmp_path, "theirs").file if named else None
    with tls_proxy(None, authority.server()) as proxy:
        error = refused(f"sc://localhost:{proxy.port}", tls=True, ca_file=ca_file, token=GivenToken())
    assert "unable to get local issuer certificate" in error.message
    assert "engine.ca_file" in str(error.hint)
    assert proxy.heard == []


def test_a_server_without_tls_is_told_and_gets_no_token(authority: Authority) -> None:
    with oidc_server() as server, tls_proxy(int(server.url.rpartition(":")[2]), None) as proxy:
        error = refused(f"sc://localhost:{proxy.port}", tls=True, token=GivenToken())
    assert isinstance(error, ConfigurationError)
    assert "doesn't speak TLS (WRONG_VERSION_NUMBER)" in error.message
    # The first bytes of a handshake, RFC 8446 §5.1, and no others.
    assert [heard[:2] for heard in proxy.heard] == [b"\x16\x03"]


def test_a_server_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.spark.channels._PROBE_TIMEOUT_S", 0.2)
    with tls_proxy(None, None) as proxy:
        error = refused(f"sc://localhost:{proxy.port}", tls=True)
    assert isinstance(error, EngineUnavailableError)
    assert "doesn't answer" in error.message


def test_a_server_that_speaks_tls_only_is_told(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.spark.sessions._MAX_RETRIES", 0)
    with tls_proxy(None, authority.server()) as proxy:
        error = refused(f"sc://localhost:{proxy.port}")
    assert isinstance(error, ConfigurationError)
    assert "requires TLS" in error.message
    assert "engine.tls = true" in str(error.hint)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "can't be read: No such file"), (b"-----BEGIN -----", "has no certificates")]
)
def test_a_file_without_authorities_is_told(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    error = refused(AWAY, tls=True, ca_file=path)
    assert isinstance(error, ConfigurationError)
    assert reason in error.message
    assert str(path) in error.message


def test_authorities_without_tls_are_a_mistake(authority: Authority) -> None:
    assert "isn't reached over TLS" in refused("sc://localhost:1", tls=False, ca_file=authority.file).message


@pytest.mark.parametrize("url", ["http://x", "sc://", "sc://h:1/;token", f"sc://h:1/p;token={TOKEN}", "sc://h:port"])
def test_what_is_no_address_is_refused_unseen(url: str) -> None:
    error = refused(url)
    assert isinstance(error, ConfigurationError)
    assert "isn't a Spark Connect address" in error.message
