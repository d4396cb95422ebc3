"""lakegate's own Spark at the gate: it reads all that there is, and writes branches. PyIceberg speaks for it here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError, RESTError, UnauthorizedError
from starlette.testclient import TestClient

from lakegate.credentials.openings import engine_token
from lakegate.gate.app import Engine, create_app
from lakegate.iceberg.files import TableFiles
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest
from support.gate_world import KEY, GateWorld, memory_world, served, writer_token

ROWS = pa.table({"id": [1, 2, 3]})
TABLE = TableIdentifier.parse("nyc.trips")


@pytest.fixture
def world(tmp_path: Path) -> GateWorld:
    made = memory_world(tmp_path)
    made.catalog.create_branch("wap/day", made.catalog.get_ref("main"))
    return made


@pytest.fixture
def url(world: GateWorld) -> Iterator[str]:
    engine = Engine(engine_token(KEY), lambda namespace: "/".join((world.root, *namespace)))
    with served(create_app(world.catalog, TableFiles(), token=lambda: "readers'", engine=engine)) as address:
        yield f"{address}/engine"


def spark(url: str, prefix: str, token: str = engine_token(KEY)) -> PyIcebergCatalog:
    return load_catalog("engine", type="rest", uri=url, token=token, prefix=prefix)


@pytest.fixture
def on_main(url: str) -> PyIcebergCatalog:
    return spark(url, "main")


def create(url: str) -> PyIcebergCatalog:
    """Create the table on the branch, with rows; return the client that is bound to the branch."""
    on_branch = spark(url, "wap%2Fday")
    on_branch.create_namespace("nyc")
    on_branch.create_table("nyc.trips", schema=ROWS.schema).append(ROWS)
    return on_branch


def publish(world: GateWorld) -> None:
    """Put what the branch has on main."""
    main, branch = world.catalog.get_ref("main"), world.catalog.get_ref("wap/day")
    pointer = world.catalog.get_table(TABLE, branch)
    assert pointer is not None
    put = pointer.model_copy(update={"content_id": None})
    request = CommitRequest(branch="main", base=main.hash, message="", puts=(put,), namespaces=(("nyc",),))
    world.catalog.commit(request)


def test_a_table_is_named_with_its_branch_and_its_commit(world: GateWorld, url: str, on_main: PyIcebergCatalog) -> None:
    on_branch = create(url)
    first = world.catalog.get_ref("wap/day").hash
    on_main.load_table(("nyc", "trips@wap/day")).append(ROWS)
    assert on_branch.load_table("nyc.trips").scan().count() == 6
    assert on_main.load_table(("nyc", f"trips@wap/day#{first}")).scan().count() == 3
    assert spark(url, f"wap%2Fday%23{first}").load_table("nyc.trips").scan().count() == 3
    assert on_branch.list_tables("nyc") == [("nyc", "trips")]
    for name in ("trips", "trips@wap/other", "trips@", "trips.files"):
        with pytest.raises(NoSuchTableError):
            on_main.load_table(("nyc", name))


def test_only_branches_are_written(world: GateWorld, url: str, on_main: PyIcebergCatalog) -> None:
    on_branch = create(url)
    publish(world)
    before, commit = world.catalog.get_ref("main"), world.catalog.get_ref("wap/day").hash
    with pytest.raises(ForbiddenError, match="main can't be written"):
        on_main.load_table("nyc.trips").append(ROWS)
    with pytest.raises(ForbiddenError):
        on_main.load_table(("nyc", f"trips@wap/day#{commit}")).append(ROWS)
    with pytest.raises(ForbiddenError):
        on_main.drop_table("nyc.trips")
    with pytest.raises(ForbiddenError):
        on_main.create_table("nyc.zones", schema=ROWS.schema)
    with pytest.raises(RESTError):
        on_main.create_namespace("other")
    assert world.catalog.get_ref("main") == before
    on_branch.drop_table("nyc.trips")
    assert not on_branch.table_exists("nyc.trips")


def test_a_namespace_is_a_list_of_names(url: str) -> None:
    headers = {"Authorization": f"Bearer {engine_token(KEY)}"}
    answer = requests.post(f"{url}/v1/wap%2Fday/namespaces", json={"namespace": "nyc"}, headers=headers, timeout=30)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "A namespace is a list of names.")


def test_nobody_else_may_ask(world: GateWorld, url: str) -> None:
    create(url)
    writer = writer_token(world.open("wap/other"))
    for token in ("readers'", writer, engine_token(b"another journal's")):
        with pytest.raises((UnauthorizedError, RESTError), match="isn't that of lakegate's own Spark"):
            spark(url, "wap%2Fday", token).load_table("nyc.trips")
    without = TestClient(world.app(), base_url="http://localhost")
    answer: Any = without.get("/engine/v1/config", headers={"Authorization": f"Bearer {engine_token(KEY)}"})
    assert answer.status_code in (403, 404)
