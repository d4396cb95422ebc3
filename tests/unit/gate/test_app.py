"""The REST catalog: its answers by Iceberg's schemas, refused writes, who may read, and where it listens."""

from __future__ import annotations

import gzip
import json
import logging
import socket
from copy import copy
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import ConfigResponse, ListNamespaceResponse, ListTablesResponse, TableResponse
from starlette.types import Receive, Scope, Send

from lakegate.errors import CatalogUnavailableError, ConfigurationError
from lakegate.gate.reading import ENDPOINTS
from lakegate.gate.server import ListenAddress, require_safe, run
from lakegate.model.refs import NO_SNAPSHOT
from lakegate.testing.memory import MemoryCatalog
from support.iceberg_tables import append, pointer_to
from support.rest_world import RestWorld, location_of, valid

TRIPS = "/v1/main/namespaces/nyc/tables/trips"


def test_the_configuration_names_the_prefix_and_what_may_be_asked(world: RestWorld) -> None:
    body = valid("CatalogConfig", world.client().get("/v1/config").json())
    assert body["overrides"] == {"prefix": "main"}
    assert body["endpoints"] == list(ENDPOINTS)
    assert {endpoint.http_method.value for endpoint in ConfigResponse.model_validate(body).endpoints or ()} == {
        "GET",
        "HEAD",
    }


def test_namespaces_are_listed_level_by_level(world: RestWorld) -> None:
    world.commit(world.new_state("nyc.trips"), world.new_state("lab.eu.north.runs"))
    client = world.client()

    def names(query: str = "") -> list[list[str]]:
        body = valid("ListNamespacesResponse", client.get(f"/v1/main/namespaces{query}").json())
        ListNamespaceResponse.model_validate(body)
        found: list[list[str]] = body["namespaces"]
        return found

    assert names() == names("?parent=") == [["lab"], ["nyc"]]
    assert names("?parent=lab") == [["lab", "eu"]]
    assert names("?parent=lab%1Feu") == [["lab", "eu", "north"]]
    assert names("?parent=nyc") == []
    missing = client.get("/v1/main/namespaces?parent=nowhere")
    assert missing.status_code == 404
    assert valid("IcebergErrorResponse", missing.json())["error"]["type"] == "NoSuchNamespaceException"


def test_a_namespace_is_loaded_or_asked_for(world: RestWorld) -> None:
    world.commit(world.new_state("lab.eu.runs"))
    client = world.client()
    found = valid("GetNamespaceResponse", client.get("/v1/main/namespaces/lab%1Feu").json())
    assert found == {"namespace": ["lab", "eu"], "properties": {}}
    assert client.head("/v1/main/namespaces/lab%1Feu").status_code == 204
    assert client.head("/v1/main/namespaces/lab%1Fus").status_code == 404
    missing = client.get("/v1/main/namespaces/lab%1Fus")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NoSuchNamespaceException")


def test_tables_are_listed(world: RestWorld) -> None:
    world.commit(world.new_state("nyc.trips"), world.new_state("nyc.fares"), world.new_state("lab.runs"))
    body = valid("ListTablesResponse", world.client().get("/v1/main/namespaces/nyc/tables").json())
    assert [one.name for one in ListTablesResponse.model_validate(body).identifiers] == ["fares", "trips"]
    paged = world.client().get("/v1/main/namespaces/nyc/tables?pageToken=&pageSize=1")
    assert paged.json() == body  # the specification lets a server return everything
    missing = world.client().get("/v1/main/namespaces/none/tables")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NoSuchNamespaceException")


def test_a_table_is_its_metadata_file_byte_for_byte(world: RestWorld) -> None:
    pointer = world.new_state("nyc.trips")
    path = location_of(pointer)
    # A member of a version to come, a number as only another writer spells it, and a file that is compressed.
    text = path.read_text().replace('{"', '{"x-of-the-future":{"π":1.50},"', 1)
    path.write_bytes(gzip.compress(f"\n{text}\n".encode()))
    world.commit(pointer)
    response = world.client().get(TRIPS)
    body = valid("LoadTableResult", response.json())
    assert text in response.text
    assert body["metadata-location"] == pointer.metadata_location
    assert body["config"] == {}
    assert TableResponse.model_validate(body).metadata.current_snapshot_id == pointer.snapshot_id
    assert response.headers["X-Lakegate-Commit"] == world.catalog.get_ref("main").hash


@pytest.mark.parametrize("which", ["an older snapshot", "no snapshot"])
def test_the_state_that_the_catalog_names_counts(world: RestWorld, which: str) -> None:
    table = world.tables.create()
    first = append(table, [1])
    append(table, [2])
    wanted = first if which == "an older snapshot" else NO_SNAPSHOT
    pointer = pointer_to(table, content_id=None).model_copy(update={"snapshot_id": wanted})
    world.commit(pointer)
    metadata = valid("LoadTableResult", world.client().get(TRIPS).json())["metadata"]
    assert metadata["current-snapshot-id"] == wanted
    assert metadata["refs"].get("main", {}).get("snapshot-id", NO_SNAPSHOT) == wanted


def test_what_did_not_change_is_not_sent_again(world: RestWorld) -> None:
    world.commit(world.new_state("nyc.trips"))
    client = world.client()
    etag = client.get(TRIPS).headers["ETag"]
    for condition in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = client.get(TRIPS, headers={"If-None-Match": condition})
        assert (again.status_code, again.content) == (304, b"")
    # Another table's commit changes nothing here; its own does.
    world.commit(world.new_state("nyc.fares"))
    assert client.get(TRIPS, headers={"If-None-Match": etag}).status_code == 304
    world.commit(world.new_state("nyc.trips"))
    assert client.get(TRIPS, headers={"If-None-Match": etag}).status_code == 200


def test_a_metadata_file_is_read_once(world: RestWorld) -> None:
    world.commit(world.new_state("nyc.trips"))
    client = world.client()
    assert client.get(TRIPS).content == client.get(TRIPS).content
    assert client.head(TRIPS).status_code == 204
    assert len(world.files.read_locations) == 1


@pytest.mark.parametrize("name", ["none", "nyc.trips", "odd%20name", "%2e%2e", "trips%40main", "x" * 3000])
def test_a_table_that_is_not_there_is_an_error_by_name(world: RestWorld, name: str) -> None:
    world.commit(world.new_state("nyc.trips"))
    missing = world.client().get(f"/v1/main/namespaces/nyc/tables/{name}")
    assert missing.status_code == 404
    assert valid("IcebergErrorResponse", missing.json())["error"]["type"] == "NoSuchTableException"
    assert world.client().head(f"/v1/main/namespaces/nyc/tables/{name}").status_code == 404


def test_a_namespace_is_no_table(world: RestWorld) -> None:
    world.commit(world.new_state("lab.eu.runs"))
    missing = world.client().get("/v1/main/namespaces/lab/tables/eu")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NoSuchTableException")


WRITES = (
    "/v1/config",
    "/v1/oauth/tokens",
    "/v1/main/namespaces",
    "/v1/main/namespaces/nyc",
    "/v1/main/namespaces/nyc/properties",
    "/v1/main/namespaces/nyc/tables",
    "/v1/main/namespaces/nyc/register",
    TRIPS,
    f"{TRIPS}/metrics",
    f"{TRIPS}/plan",
    "/v1/main/tables/rename",
    "/v1/main/transactions/commit",
    "/v1/main/namespaces/nyc/views",
)


def test_nothing_can_be_written(world: RestWorld) -> None:
    world.commit(world.new_state("nyc.trips"))
    before, client = world.catalog.get_ref("main"), world.client()
    for method, path in product(("POST", "PUT", "PATCH", "DELETE"), WRITES):
        refused = client.request(method, path, json={"namespace": ["x"]})
        assert refused.status_code == 403, (method, path)
        error = valid("IcebergErrorResponse", refused.json())["error"]
        assert (error["type"], error["code"]) == ("ForbiddenException", 403)
    assert world.catalog.get_ref("main") == before


@pytest.mark.parametrize("path", ["views", "views/x", "tables/trips/credentials", "functions"])
def test_what_is_not_offered_is_refused(world: RestWorld, path: str) -> None:
    world.commit(world.new_state("nyc.trips"))
    refused = world.client().get(f"/v1/main/namespaces/nyc/{path}", headers={"X-Iceberg-Access-Delegation": "x"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "ForbiddenException")


def test_paths_beside_the_api_are_not_found(world: RestWorld) -> None:
    assert world.client().get("/").status_code == 404
    assert valid("IcebergErrorResponse", world.client().get("/v2/config").json())["error"]["code"] == 404
    assert world.client().request("OPTIONS", "/health").status_code == 405


def test_a_catalog_that_is_away_is_asked_later(world: RestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise CatalogUnavailableError("The catalog at http://inside:19120 doesn't answer.")

    world.commit(world.new_state("nyc.trips"))
    client = world.client()
    assert client.get("/ready").status_code == 200
    for method in ("get_ref", "get_ref_with_tables"):
        monkeypatch.setattr(world.catalog, method, away)
    response = client.get(TRIPS)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
    error = valid("IcebergErrorResponse", response.json())["error"]
    assert error["type"] == "ServiceUnavailableException"
    assert "inside" not in error["message"]
    assert client.get("/ready").status_code == 503
    assert client.get("/health").status_code == 200


def test_a_catalog_that_was_started_anew_is_found(world: RestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise CatalogUnavailableError("Connection refused.")

    found: list[MemoryCatalog] = []

    def find_again() -> MemoryCatalog:
        if not found:
            raise CatalogUnavailableError("The local Nessie is stopped.")
        return found[0]

    world.commit(world.new_state("nyc.trips"))
    before = world.catalog
    client = world.client(find_again=find_again)
    rows = client.get(TRIPS).json()
    elsewhere = copy(before)
    for method in ("get_ref", "get_ref_with_tables"):
        monkeypatch.setattr(before, method, away)
    assert client.get(TRIPS).status_code == client.get("/ready").status_code == 503
    found.append(elsewhere)
    assert client.get(TRIPS).json() == rows
    assert client.get("/v1/main/namespaces").status_code == 200
    found.clear()  # it isn't looked for while it answers
    assert client.get("/ready").status_code == 200


def test_a_refused_token_of_ours_is_no_missing_table(world: RestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConfigurationError("The catalog at http://inside:19120 doesn't accept the token.")

    world.commit(world.new_state("nyc.trips"))
    monkeypatch.setattr(world.catalog, "get_ref_with_tables", refuse)
    response = world.client().get(TRIPS)
    assert response.status_code == 500
    assert "inside" not in response.text


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff", b'{"table-uuid": 1}'])
def test_damaged_metadata_is_our_fault(world: RestWorld, content: bytes | None) -> None:
    pointer = world.new_state("nyc.trips")
    path = location_of(pointer)
    path.unlink() if content is None else path.write_bytes(content)
    world.commit(pointer)
    response = world.client().get(TRIPS)
    error = valid("IcebergErrorResponse", response.json())["error"]
    assert (response.status_code, error["type"]) == (500, "InternalServerError")
    assert "nyc.trips" in error["message"]


def test_an_unexpected_failure_is_logged_and_says_nothing(
    world: RestWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(world.catalog, "get_ref_with_tables", fail)
    response = world.client(raise_server_exceptions=False).get(TRIPS)
    assert (response.status_code, response.json()["error"]["type"]) == (500, "InternalServerError")
    assert "secret" not in response.text
    assert caplog.records[-1].exc_info is not None


def test_requests_are_logged_without_tokens(world: RestWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="lakegate.gate")
    world.commit(world.new_state("nyc.trips"))
    world.client(lambda: "s3cret").get(f"{TRIPS}?token=s3cret", headers={"Authorization": "Bearer s3cret"})
    (record,) = caplog.records
    facts = record.__dict__["facts"]
    assert (facts["method"], facts["path"], facts["status"]) == ("GET", TRIPS, 200)
    assert facts["commit"] == world.catalog.get_ref("main").hash
    assert "s3cret" not in json.dumps(facts) + record.getMessage()


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic s3cret", "s3cret", "Bearer s3crét"]
)
def test_who_has_no_token_or_another_is_refused(world: RestWorld, header: str | None) -> None:
    client = world.client(lambda: "s3cret")
    headers: Any = {} if header is None else {"Authorization": header.encode()}
    for path in ("/v1/config", "/v1/main/namespaces", "/v1/main/namespaces/x/views", "/", "/health/"):
        refused = client.get(path, headers=headers)
        assert refused.status_code == 401
        assert valid("IcebergErrorResponse", refused.json())["error"]["type"] == "NotAuthorizedException"
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert client.post("/v1/main/namespaces", headers=headers).status_code == 401


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


@pytest.mark.parametrize(("host", "status"), [("localhost:8181", 200), ("[::1].evil.example.com", 403), ("", 403)])
def test_without_a_token_only_this_machines_names_are_answered(world: RestWorld, host: str, status: int) -> None:
    assert world.client().get("/v1/config", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (ListenAddress("127.0.0.1", 8181), "http://127.0.0.1:8181"),
        (ListenAddress("::1", 8181), "http://[::1]:8181"),
        (ListenAddress("lake.example.com", 443, Path("c"), Path("k")), "https://lake.example.com:443"),
    ],
)
def test_the_address_as_clients_spell_it(address: ListenAddress, url: str) -> None:
    assert address.url == url


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "lake.example.com"])
def test_other_machines_need_a_token(host: str) -> None:
    with pytest.raises(ConfigurationError, match="without a token"):
        require_safe(ListenAddress(host, 8181), has_token=False)
    require_safe(ListenAddress(host, 8181), has_token=True)
    require_safe(ListenAddress("localhost", 8181), has_token=False)


def test_a_certificate_that_is_none_is_said_so(tmp_path: Path) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    (tmp_path / "c.pem").write_text("no certificate")
    address = ListenAddress("127.0.0.1", 0, tmp_path / "c.pem", tmp_path / "c.pem")
    with socket.socket() as unused, pytest.raises(ConfigurationError, match="Can't use the certificate"):
        run(app, unused, address)
