"""REST catalogs as targets: what products refuse, what errors mean, and what's asked of which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from pyiceberg.catalog import load_catalog
from starlette.testclient import TestClient

from lakegate.catalogs.target.opening import open_target
from lakegate.errors import (
    CatalogUnavailableError,
    ConfigurationError,
    ConflictError,
    InputError,
    LakegateError,
    OutcomeUnknownError,
)
from lakegate.gate.app import Engine, create_app
from lakegate.iceberg.files import TableFiles, local_path
from lakegate.iceberg.metadata import parse, serialise
from lakegate.journal.database import SqliteDatabase
from lakegate.testing.target import Staged, TargetContract, World
from support import rest_recorder
from support.rest_recorder import Product, RestRecorder
from support.s3_proxy import Proxy, Trouble

Lake = tuple[World, RestRecorder]
Start = Callable[..., Lake]
SECRET = "s3cr3t-value"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as opened:

        def start(product: Product = Product(), path: str = "", **properties: str) -> Lake:  # noqa: B008 - frozen
            server = opened.enter_context(RestRecorder(product, tmp_path / "lake"))
            uri = properties.pop("uri", f"{server.uri}{path}")
            given = {"type": "rest", "uri": uri, "warehouse": server.warehouse, "token": SECRET, **properties}
            given["oauth2-server-uri"] = f"{server.uri}/v1/oauth/tokens"
            database = SqliteDatabase(tmp_path / f"{uuid4().hex}.db")
            opened.callback(database.close)
            target = open_target("lake", given, TableFiles())
            return World(database, target, load_catalog("lake", **given), TableFiles()), server

        yield start


class TestContract(TargetContract):
    @pytest.fixture
    def world(self, start: Start) -> World:
        world, _ = start()
        world.publish(world.staged("first", {"trips": [1]}))
        return world


def created(world: World, *names: str) -> None:
    """Create tables as somebody else, each with a row 1."""
    world.others.create_namespace_if_not_exists(world.namespace)
    for name in names:
        TestContract().others_create(world, (world.namespace, name))
        world.append_as_others(name, 1)


def asked(server: RestRecorder, method: str = "POST") -> list[str]:
    return [path.rpartition("/v1/")[2] for one, path in server.requests if one == method]


def test_polaris_changes_known_tables_at_one_moment_and_creates_none_where_we_say(start: Start) -> None:
    world, server = start(rest_recorder.POLARIS)
    assert world.target.capabilities.product == "Apache Polaris"
    created(world, "trips", "zones")
    world.publish(world.staged("r", {"trips": [2], "zones": [3]}))
    assert (world.ids("trips"), world.ids("zones")) == ([1, 2], [1, 3])
    assert asked(server)[-1] == "transactions/commit"
    with pytest.raises(ConfigurationError, match="Invalid locations"):
        world.publish(world.staged("s", {"new": [1], "trips": [4]}))
    assert (world.ids("new"), world.ids("trips")) == (None, [1, 2])


def test_polaris_conflicts_that_are_bad_requests_are_conflicts(start: Start) -> None:
    world, _ = start(rest_recorder.POLARIS)
    created(world, "trips", "zones")
    for names in (("trips",), ("trips", "zones")):
        staged = world.staged(f"r{len(names)}", {name: [5] for name in names})
        late = world.open(lambda window: world.append_as_others("trips", 9) if window == "announced" else None)
        with pytest.raises(ConflictError, match="trips"):
            world.publish(staged, late)
        world.publish(world.rebased(staged))
    assert world.ids("trips") == [1, 5, 5, 9, 9]


def test_lakekeeper_creates_and_changes_several_tables_at_one_moment(start: Start) -> None:
    world, server = start(rest_recorder.LAKEKEEPER, "/catalog")
    assert world.target.capabilities.product == "Lakekeeper"
    world.publish(world.staged("first", {"trips": [1], "zones": [2]}))
    assert asked(server)[-1] == "transactions/commit"
    assert (world.ids("trips"), world.ids("zones")) == ([1], [2])


@pytest.mark.parametrize(
    ("product", "host"), [(rest_recorder.S3_TABLES, "s3tables"), (rest_recorder.GLUE, "glue")], ids=["s3tables", "glue"]
)
def test_aws_creates_no_table_with_rows_and_its_requests_are_signed(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, product: Product, host: str
) -> None:
    with RestRecorder(product, tmp_path / "aws") as server:
        monkeypatch.setenv("HTTP_PROXY", server.uri)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        signing = {"rest.sigv4-enabled": "true", "rest.signing-name": host, "rest.signing-region": "us-east-1"}
        keys = {"client.access-key-id": "key", "client.secret-access-key": SECRET}
        uri = f"http://{host}.us-east-1.amazonaws.com/iceberg"
        world, _ = start(product, uri=uri, warehouse=server.warehouse, **signing, **keys)
        with pytest.raises(InputError, match="can't create a table together with its rows"):
            world.publish(world.staged("r", {"trips": [1]}))
        assert not any("tables" in path for path in asked(server))
        created(world, "trips")
        world.publish(world.staged("s", {"trips": [2]}))
        assert world.ids("trips") == [1, 2]
        assert all(one["Authorization"].startswith("AWS4-HMAC-SHA256 ") for one in server.headers)


@pytest.mark.parametrize("drops_files", [True, False])
def test_a_scratch_table_shows_whether_an_unknown_product_keeps_files(start: Start, drops_files: bool) -> None:
    world, server = start(Product(drops_files=drops_files))
    created(world, "trips")
    base, _ = world.at_main("trips")
    drop = (Staged("r", base, [], ()), None)
    if drops_files:
        with pytest.raises(InputError, match="can't drop a table and keep its files"):
            world.publish(*drop, deletes=(world.table("trips"),))
        assert world.ids("trips") == [1]
    else:
        world.publish(*drop, deletes=(world.table("trips"),))
        assert world.ids("trips") is None
    assert "DELETE" in [method for method, _ in server.requests]
    assert [name for (name,) in world.target.list_namespaces()] == [world.namespace]


COMMIT = "POST /v1/namespaces/{0}/tables/trips"


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "Cannot add snapshot with sequence number 2 older than last sequence number 4", ConflictError),
        (400, "Cannot add a snapshot, first-row-id is behind table next-row-id: 2 < 3", ConflictError),
        (409, "Requirement failed: branch main has changed", ConflictError),
        (404, "Table does not exist", ConflictError),
        (400, "Cannot parse field", InputError),
        (403, "Principal 'reader' is not authorized for op UPDATE_TABLE", ConfigurationError),
        (401, "Not authorized", ConfigurationError),
        (429, "Too many requests", CatalogUnavailableError),
        (500, "Internal error", OutcomeUnknownError),
        (503, "Not ready", OutcomeUnknownError),
        (504, "Gateway timeout", OutcomeUnknownError),
        (0, "", OutcomeUnknownError),
    ],
)
def test_what_a_refusal_means(start: Start, status: int, text: str, kind: type[LakegateError]) -> None:
    world, server = start()
    created(world, "trips")
    staged = world.staged("r", {"trips": [2]})
    own = (status, {"error": {"message": f"{text} token={SECRET}", "type": "SomeException", "code": status}})
    server.next_answers += [(COMMIT.format(world.namespace), own)] * 2
    with pytest.raises(kind) as raised:
        world.publish(staged)
    told = str(raised.value.to_dict())
    assert "trips" in told
    assert SECRET not in told
    server.next_answers.clear()
    assert world.ids("trips") == [1]
    world.publish(staged)
    assert world.ids("trips") == [1, 2]


def test_a_wrong_credential_is_told_from_a_catalog_that_is_away(tmp_path: Path) -> None:
    with RestRecorder(Product(), tmp_path) as server:
        server.next_answers.append(("POST /v1/oauth/tokens", (401, {"error": "invalid_client"})))
        given = {"type": "rest", "uri": server.uri, "oauth2-server-uri": f"{server.uri}/v1/oauth/tokens"}
        with pytest.raises(ConfigurationError, match="doesn't let this user sign in: invalid_client"):
            open_target("lake", {**given, "credential": f"ada:{SECRET}"}, TableFiles())


def test_a_page_that_is_not_the_catalogs_is_not_a_table_that_is_gone(start: Start) -> None:
    world, server = start()
    created(world, "trips")
    world.publish(world.staged("r", {"trips": [2]}))
    server.next_answers.append((f"GET /v1/namespaces/{world.namespace}/tables/trips", (404, "<html>")))
    with pytest.raises(CatalogUnavailableError, match="404"):
        world.at_main("trips")
    assert world.at_main("trips")[1] != [None]


def test_a_commit_that_a_proxy_sends_twice_is_published_once(start: Start) -> None:
    _, server = start(rest_recorder.LAKEKEEPER, "/catalog")

    class Twice(Proxy):
        def take(self, method: str, path: str) -> Trouble:
            is_commit = method == "POST" and path.endswith(("/tables/trips", "/transactions/commit"))
            return "twice" if is_commit else super().take(method, path)

    with Twice(server.uri) as proxy:
        world, _ = start(uri=f"{proxy.endpoint}/catalog", warehouse=server.warehouse)
        for run, ids in (("a", {"trips": [1]}), ("b", {"trips": [2]}), ("c", {"trips": [3], "zones": [3]})):
            world.publish(world.staged(run, ids))
        assert (world.ids("trips"), world.ids("zones")) == ([1, 2, 3], [3])
        assert [one.message for run in "abc" for one in world.commits_of(run)] == [f"publish {run}" for run in "abc"]


def test_a_token_that_expires_is_renewed_in_the_middle(start: Start) -> None:
    world, server = start(token="", credential=f"me:{SECRET}")
    created(world, "trips")
    staged = world.staged("r", {"trips": [2]})
    server.token = "another"
    world.publish(staged)
    assert world.ids("trips") == [1, 2]
    assert world.commits_of("r")


def test_format_version_3_is_published_with_its_row_ids(start: Start) -> None:
    world, _ = start()
    created(world, "trips")
    staged = world.staged("r", {"trips": [2]})
    (put,) = staged.puts
    document = parse(local_path(put.metadata_location).read_bytes())
    *kept, added = document["snapshots"]
    rows = {"first-row-id": 0, "added-rows": 1}
    newer = {**document, "format-version": 3, "next-row-id": 1, "snapshots": [*kept, {**added, **rows}]}
    place = f"{put.metadata_location.rpartition('/')[0]}/{uuid4()}.metadata.json"
    local_path(place).write_bytes(serialise(place, newer))
    world.publish(Staged("r", staged.base, [put.model_copy(update={"metadata_location": place})], ()))
    (now,) = world.at_main("trips")[1]
    assert now is not None
    published = world.target.document(now)
    assert (published["format-version"], published["next-row-id"]) == (3, 1)
    assert published["snapshots"][-1]["first-row-id"] == 0


def test_spark_gets_what_the_catalog_lends_for_a_tables_files(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    world, server = start()
    created(world, "trips")
    staged = world.staged("r", {"trips": [2], "new": [1]})
    engine = Engine("spark's", lambda _: "", {"s3.endpoint": "http://ours"})
    app = create_app(world.lake, TableFiles(), token=lambda: "", engine=engine)
    spark = TestClient(app, base_url="http://localhost", headers={"Authorization": "Bearer spark's"})

    def lent(name: str) -> Any:
        loaded = spark.get(f"/engine/v1/main/namespaces/{world.namespace}/tables/{quote(name, safe='')}").json()
        assert loaded["metadata"]["snapshots"]
        return loaded["config"], loaded.get("storage-credentials")

    branch = f"wap/{world.namespace}/{staged.run}"
    assert lent("trips") == lent(f"trips@{branch}") == ({}, None)
    for key in (SECRET, "asked-again"):
        keys = {"s3.secret-access-key": key, "s3.session-token": "t"}
        theirs = {"token": "their-own", "s3.signer.uri": "https://theirs", "client.refresh-credentials-endpoint": "/c"}
        place = {"prefix": "s3://lake/trips"}
        server.more = {
            "config": {"client.region": "eu-west-1", "s3.endpoint": "http://theirs", **theirs},
            "storage-credentials": [{**place, "config": {**keys, **theirs}}],
        }
        wanted = {"client.region": "eu-west-1"}, [{**place, "config": keys}]
        assert lent("trips") == lent(f"trips@{branch}") == wanted
    assert lent(f"new@{branch}") == ({}, None)
    assert SECRET not in caplog.text


def test_nothing_is_lent_for_another_table_of_that_name(start: Start) -> None:
    world, server = start()
    created(world, "trips")
    _, (before,) = world.at_main("trips")
    assert before is not None
    world.others.drop_table((world.namespace, "trips"))
    created(world, "trips")
    server.more = {"config": {"s3.access-key-id": "lent"}}
    _, (now,) = world.at_main("trips")
    assert now is not None
    assert (world.lake.access(before), world.lake.access(now)) == ({}, server.more)
