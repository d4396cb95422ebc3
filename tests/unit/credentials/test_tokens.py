"""Bearer tokens and OAuth 2's client credentials: got in time, renewed when refused, never sent in the clear."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from lakegate.catalogs.nessie.catalog import spark_authentication
from lakegate.config import CatalogSettings
from lakegate.credentials.secret import Secret
from lakegate.credentials.tokens import ClientCredentials, catalog_token
from lakegate.errors import CatalogUnavailableError, ConfigurationError, LakegateError

ENDPOINT = "https://id.test/realms/lake/token"
SECRET = "s3cret+/=% of the client"
OAUTH2 = {
    "oauth2_token_endpoint": ENDPOINT,
    "oauth2_client_id": "lake gate",
    "oauth2_client_secret": "env:CLIENT_SECRET",
}


class Endpoint:
    """Gives tokens ``t1``, ``t2``…, or the answers it was told to give first."""

    def __init__(self, *answers: httpx.Response | Exception, expires_in: float | None = 300) -> None:
        self.answers = list(answers)
        self.expires_in = expires_in
        self.asked: list[httpx.Request] = []
        self.now = 1000.0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if not self.answers:
            document: dict[str, Any] = {"access_token": f"t{len(self.asked)}", "token_type": "Bearer"}
            return httpx.Response(
                200, json=document | ({} if self.expires_in is None else {"expires_in": self.expires_in})
            )
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_SECRET", SECRET)


def client(endpoint: Endpoint, *, scope: str | None = None) -> ClientCredentials:
    secret = Secret("env:CLIENT_SECRET", setting="catalog.oauth2_client_secret")
    transport = httpx.MockTransport(endpoint)
    return ClientCredentials(
        ENDPOINT, "lake gate", secret, scope=scope, transport=transport, clock=lambda: endpoint.now
    )


def refused(call: Callable[[], object]) -> LakegateError:
    with pytest.raises(LakegateError) as caught:
        call()
    assert "s3cret" not in f"{caught.value.to_dict()} {caught.value.__cause__}"
    return caught.value


def test_the_request_is_that_of_the_standard() -> None:
    endpoint = Endpoint()
    assert client(endpoint, scope="catalog sign").value() == "t1"
    [request] = endpoint.asked
    assert (request.method, str(request.url)) == ("POST", ENDPOINT)
    assert parse_qs(request.content.decode()) == {"grant_type": ["client_credentials"], "scope": ["catalog sign"]}
    kind, _, encoded = request.headers["authorization"].partition(" ")
    assert (kind, base64.b64decode(encoded)) == ("Basic", b"lake+gate:s3cret%2B%2F%3D%25+of+the+client")


@pytest.mark.parametrize(
    ("expires_in", "good_until"), [(300, 240), (90, 45), (10, 5), (None, 30)], ids=["long", "short", "tiny", "unsaid"]
)
def test_a_token_is_got_anew_before_it_expires(expires_in: float | None, good_until: float) -> None:
    endpoint = Endpoint(expires_in=expires_in)
    token = client(endpoint)
    start = endpoint.now
    assert token.value() == "t1"
    endpoint.now = start + good_until - 0.5
    assert token.value() == "t1"
    endpoint.now = start + good_until
    assert token.value() == "t2"
    assert token.value() == "t2"


def test_a_refused_token_is_got_anew() -> None:
    token = client(Endpoint())
    assert token.value() == "t1"
    token.renew()
    assert token.value() == "t2"


def test_a_rotated_secret_counts_for_the_next_token(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint()
    token = client(endpoint)
    token.value()
    monkeypatch.setenv("CLIENT_SECRET", "rotated")
    token.renew()
    token.value()
    sent = [base64.b64decode(request.headers["authorization"].split()[1]) for request in endpoint.asked]
    assert sent[1] == b"lake+gate:rotated"


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (httpx.ConnectError("s3cret"), CatalogUnavailableError, "ConnectError"),
        (httpx.ReadTimeout("s3cret"), CatalogUnavailableError, "ReadTimeout"),
        (httpx.Response(503, text="s3cret"), CatalogUnavailableError, "HTTP 503"),
        (httpx.Response(429), CatalogUnavailableError, "HTTP 429"),
        (
            httpx.Response(401, json={"error": "invalid_client", "error_description": "s3cret is wrong"}),
            ConfigurationError,
            "rejected the client 'lake gate' (invalid_client)",
        ),
        (httpx.Response(400, json={"error": "invalid_scope"}), ConfigurationError, "invalid_scope"),
        (httpx.Response(400, json={"error": "it was s3cret"}), ConfigurationError, "(HTTP 400)"),
        (httpx.Response(404, text="s3cret"), ConfigurationError, "isn't an OAuth 2 token endpoint (HTTP 404)"),
        (httpx.Response(302, headers={"location": "/s3cret"}), ConfigurationError, "HTTP 302"),
        (httpx.Response(200, text="<html>s3cret"), ConfigurationError, "didn't return an access token"),
        (httpx.Response(200, json={"token": "s3cret"}), ConfigurationError, "didn't return an access token"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_token_is_told_and_no_secret_is(
    answer: httpx.Response | Exception, kind: type[LakegateError], words: str
) -> None:
    error = refused(client(Endpoint(answer)).value)
    assert isinstance(error, kind)
    assert words in error.message
    assert ENDPOINT in error.message
    assert "oauth2_token_endpoint" in str(error.hint)


def test_the_next_token_is_asked_for_after_a_refusal() -> None:
    token = client(Endpoint(httpx.Response(503)))
    refused(token.value)
    assert token.value() == "t2"


def test_settings_name_one_way_or_none() -> None:
    assert catalog_token(CatalogSettings(uri="http://nessie.test/api/v2")) is None
    local = CatalogSettings(uri="http://127.0.0.1:1/api/v2", token="env:CLIENT_SECRET")
    assert isinstance(catalog_token(local), Secret)
    token = catalog_token(CatalogSettings(uri="https://nessie.test/api/v2", oauth2_scope="all", **OAUTH2))
    assert isinstance(token, ClientCredentials)
    assert (token.endpoint, token.client_id, token.scope) == (ENDPOINT, "lake gate", "all")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token": "env:CLIENT_SECRET"}, "catalog.token and catalog.oauth2_token_endpoint are both set"),
        ({"oauth2_client_id": None}, "catalog.oauth2_client_id isn't"),
        ({"oauth2_client_secret": None}, "catalog.oauth2_client_secret isn't"),
        ({"oauth2_client_secret": SECRET}, "isn't a reference"),
        ({"uri": "http://nessie.test/api/v2"}, "catalog.uri is 'http://nessie.test/api/v2', but lakegate doesn't send"),
        ({"oauth2_token_endpoint": "http://id.test/token"}, "catalog.oauth2_token_endpoint is 'http://id.test/token'"),
        ({"oauth2_token_endpoint": "https://me:s3cret@id.test/"}, "without user and password"),
        ({"oauth2_token_endpoint": "id.test/token"}, "isn't an http or https address"),
        ({"oauth2_token_endpoint": "https://id.test:port/token"}, "catalog.oauth2_token_endpoint isn't a valid URL"),
        ({"uri": "https://[::1/api/v2"}, "catalog.uri isn't a valid URL"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_half_a_way_two_ways_and_ways_in_the_clear_are_refused(changes: dict[str, str | None], words: str) -> None:
    settings = CatalogSettings.model_validate({"uri": "https://nessie.test/api/v2", **OAUTH2, **changes})
    error = refused(lambda: catalog_token(settings))
    assert isinstance(error, ConfigurationError)
    assert words in error.message


def test_spark_gets_its_own_tokens() -> None:
    assert spark_authentication(None) == {}
    assert spark_authentication(client(Endpoint(), scope="all")) == {
        "authentication.type": "OAUTH2",
        "authentication.oauth2.token-endpoint": ENDPOINT,
        "authentication.oauth2.client-id": "lake gate",
        "authentication.oauth2.client-secret": SECRET,
        "authentication.oauth2.client-scopes": "all",
    }
