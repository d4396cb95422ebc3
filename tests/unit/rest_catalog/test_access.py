"""Who may read: with a token, whoever has it; without one, requests to this machine's own names."""

from __future__ import annotations

import pytest

from lakegate.errors import ConfigurationError
from support.rest_world import RestWorld, valid


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic s3cret", "s3cret", "Bearer s3crét"]
)
def test_who_has_no_token_or_another_is_refused(world: RestWorld, header: str | None) -> None:
    client = world.client(lambda: "s3cret")
    headers = {} if header is None else {"Authorization": header.encode()}
    for path in ("/v1/config", "/v1/main/namespaces", "/v1/main/namespaces/x/views", "/", "/health/"):
        refused = client.get(path, headers=headers)  # type: ignore[arg-type]  # bytes are headers, too
        assert refused.status_code == 401
        assert valid("IcebergErrorResponse", refused.json())["error"]["type"] == "NotAuthorizedException"
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert client.post("/v1/main/namespaces", headers=headers).status_code == 401  # type: ignore[arg-type]  # likewise


def test_who_has_the_token_may_ask_and_probes_need_none(world: RestWorld) -> None:
    tokens = iter(["first", "first", "second"])
    client = world.client(lambda: next(tokens), base_url="http://lake.example.com")
    assert client.get("/v1/config", headers={"Authorization": "Bearer first"}).status_code == 200
    assert client.get("/health").status_code == client.get("/ready").status_code == 200
    assert client.get("/v1/config", headers={"Authorization": "bearer  first"}).status_code == 200
    # The token is read anew each time: a replaced one is no longer valid.
    assert client.get("/v1/config", headers={"Authorization": "Bearer first"}).status_code == 401


def test_a_token_that_cannot_be_read_lets_nobody_in(world: RestWorld) -> None:
    def missing() -> str:
        raise ConfigurationError("Setting serve.token refers to a file that isn't there.")

    response = world.client(missing).get("/v1/config", headers={"Authorization": "Bearer x"})
    assert (response.status_code, response.json()["error"]["type"]) == (503, "ServiceUnavailableException")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8181", 200),
        ("127.0.0.1:8181", 200),
        ("[::1]:8181", 200),
        ("evil.example.com", 403),
        ("evil.example.com:8181", 403),
        ("127.0.0.1.evil.example.com", 403),
        ("localhost@evil.example.com", 403),
        ("127.0.0.1:8181@evil.example.com", 403),
        ("LOCALHOST:8181", 200),
        ("", 403),
    ],
)
def test_without_a_token_only_this_machines_names_are_answered(world: RestWorld, host: str, status: int) -> None:
    assert world.client().get("/v1/config", headers={"Host": host}).status_code == status
