"""Access to Nessie: its URL, tokens, proxies and versions."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from unittest.mock import Mock

import httpx
import pytest

from lakegate.catalogs.nessie.catalog import NessieCatalog
from lakegate.catalogs.nessie.client import NessieClient
from lakegate.errors import (
    ConfigurationError,
    LakegateError,
)
from lakegate.model.refs import Ref
from support.nessie_answers import (
    CHANGE,
    FOUND,
    HASH,
    MAIN,
    TOKEN,
    URI,
    GivenToken,
    Server,
    answer,
    catalog,
)


def test_the_token_is_sent_only_in_the_header(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = Server(answer(FOUND), answer({}, 401), httpx.ReadError("reset"), httpx.Response(200, text="<html>"))
    lake = catalog(server, token=GivenToken(TOKEN))
    lake.get_ref("main")
    assert server.asked[0].headers["authorization"] == f"Bearer {TOKEN}"
    shown = [repr(lake), str(lake), *map(repr, vars(lake).values())]
    for _ in range(3):
        with pytest.raises(LakegateError) as caught:
            lake.commit(CHANGE)
        shown += [str(caught.value), repr(caught.value), json.dumps(caught.value.to_dict())]
        shown += traceback.format_exception(caught.value)
    assert not any(TOKEN in text for text in [*shown, caplog.text])
    assert any("nessie.test" in text for text in shown)


def test_whoever_runs_nessie_elsewhere_is_not_sent_to_the_local_stack() -> None:
    lake = catalog(Server(*(httpx.ConnectError("refused") for _ in range(20))))
    with pytest.raises(LakegateError, match="doesn't answer") as caught:
        lake.get_ref("main")
    assert caught.value.hint == "Check that it's running and that catalog.uri is right, then try again."


def test_a_refused_token_is_renewed_and_sent_once_more() -> None:
    server = Server(answer({}, 401), answer(FOUND), answer({}, 401), answer({}, 401))
    sent = []

    def recorded(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["authorization"].removeprefix("Bearer "))
        return server(request)

    lake = catalog(recorded, token=GivenToken("expired", "renewed", "again"))
    assert lake.get_ref("main") == MAIN
    with pytest.raises(ConfigurationError, match="doesn't accept the token"):
        lake.commit(CHANGE)
    assert sent == ["expired", "renewed", "renewed", "again"]


def test_a_catalog_that_requires_a_token_says_so() -> None:
    with pytest.raises(ConfigurationError, match="requires a token") as caught:
        catalog(Server(answer({}, 401))).get_ref("main")
    assert "catalog.token" in str(caught.value.hint)


def test_spark_is_given_the_token_it_needs() -> None:
    options = catalog(Server(answer(FOUND)), token=GivenToken(TOKEN)).spark_options(MAIN)
    assert options == {
        "": "org.apache.iceberg.spark.SparkCatalog",
        "type": "nessie",
        "uri": URI,
        "ref": "main",
        "warehouse": "file:///lake",
        "cache-enabled": "false",
        "authentication.type": "BEARER",
        "authentication.token": TOKEN,
    }


def test_spark_is_pinned_to_a_bare_commit() -> None:
    options = catalog(Server(answer(FOUND))).spark_options(Ref(name=HASH, hash=HASH, kind="detached"))
    assert (options["ref"], options["ref.hash"]) == ("main", HASH)
    assert not any("authentication" in key for key in options)


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "tökén"])
def test_a_token_that_is_invalid_in_a_header_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        catalog(Server(answer(FOUND)), token=GivenToken(token)).get_ref("main")
    assert not token or token not in f"{caught.value} {caught.value.hint} {caught.value.context}"


def test_credentials_in_the_url_are_refused_without_showing_them() -> None:
    with pytest.raises(ConfigurationError, match=r"catalog\.uri contains") as caught:
        NessieCatalog("http://user:hunter2@nessie.test/api/v2", "file:///lake")
    assert "hunter2" not in json.dumps(caught.value.to_dict())


@pytest.mark.parametrize("uri", ["", "nessie", "ftp://host/api/v2", "http://", "http://host:port/", "http://[::1/"])
def test_an_invalid_url_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"catalog\.uri"):
        NessieCatalog(uri, "file:///lake")


def test_ping_accepts_version_2_only() -> None:
    two = {"defaultBranch": "main", "maxSupportedApiVersion": 2, "actualApiVersion": 2, "specVersion": "2.2.0"}
    assert catalog(Server(answer(two))).ping().spec_version == "2.2.0"
    v1_address = answer({"defaultBranch": "main", "maxSupportedApiVersion": 2})
    with pytest.raises(ConfigurationError, match="version 1"):
        catalog(Server(v1_address), uri="http://nessie.test/api/v1").ping()
    with pytest.raises(ConfigurationError, match="version 1"):
        catalog(Server(answer({**two, "actualApiVersion": 1}))).ping()
    with pytest.raises(ConfigurationError, match="401"):
        catalog(Server(answer({}, 401))).ping()


def test_this_machine_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:3128")
    for host, asks_proxy in [
        ("127.0.0.1", False),
        ("[::1]", False),
        ("localhost", False),
        ("nessie.localhost", False),
        ("nessie.test", True),
    ]:
        client = Mock(wraps=httpx.Client)
        with monkeypatch.context() as patch:
            patch.setattr(httpx, "Client", client)
            NessieClient(f"http://{host}:19120/api/v2")
        assert client.call_args.kwargs["trust_env"] is asks_proxy


@pytest.mark.parametrize(
    ("scheme", "says"), [("socks5", "needs the package socksio"), ("ftp", "isn't a valid address")]
)
def test_a_proxy_that_cannot_be_used_is_named_by_its_variables(
    monkeypatch: pytest.MonkeyPatch, scheme: str, says: str
) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ALL_PROXY", f"{scheme}://user:s3cret@proxy.test:1080")
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(ConfigurationError, match=f"ALL_PROXY .*{says}") as refused:
        NessieClient("https://nessie.test/api/v2")
    assert "s3cret" not in f"{refused.value} {refused.value.hint} {refused.value.__cause__}"
    NessieClient("http://127.0.0.1:19120/api/v2")
