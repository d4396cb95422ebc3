"""Several gates on one lake, and gates and a Nessie that end in the middle: nothing is half done, or done twice."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog as PyIceberg
from pyiceberg.catalog import load_catalog

from lakegate.api.gate import OpenBranch
from lakegate.lake import Lake, connect
from lakegate.model.identifiers import TableIdentifier
from support.journals import PASSWORD_VARIABLE
from support.lakes import components_of
from support.loopback import loopback_client
from support.ports import free_port
from support.postgres import PostgresServer
from support.s3_proxy import Proxy
from support.secured_nessie import nessie
from support.served_lake import ServedLake, serving
from support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("postgres")]

NAMES = ("a", "b")
NO_RETRIES = {"commit.retry.num-retries": "0"}


@dataclass
class Servers:
    """A Nessie that can be restarted where it was, and a project that uses it, with its journal in Postgres."""

    home: Path
    port: int
    password: str
    running: ExitStack

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_nessie(self) -> None:
        store = self.home.parent / "nessie"
        store.mkdir(exist_ok=True)
        kept = {
            "nessie.version.store.type": "ROCKSDB",
            "nessie.version.store.persist.rocks.database-path": str(store / "rocks"),
        }
        self.running.enter_context(nessie(store, kept, port=self.port))

    def restart_nessie(self) -> None:
        self.running.close()
        self.start_nessie()

    @contextmanager
    def gate(self, *, cold: bool = False, **variables: str) -> Iterator[ServedLake]:
        """Run a gate; ``cold`` for one that can be killed."""
        with serving(self.home, cold=cold, **{PASSWORD_VARIABLE: self.password}, **variables) as served:
            yield served


@pytest.fixture(scope="module")
def servers(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    home = tmp_path_factory.mktemp("gates") / "home"
    home.mkdir()
    postgres.run("DROP DATABASE IF EXISTS gates WITH (FORCE)", "CREATE DATABASE gates")
    with ExitStack() as running:
        servers = Servers(home, free_port(), postgres.password, running)
        (home / "lakegate.toml").write_text(
            f'[catalog]\nuri = "{servers.address}/api/v2"\nwarehouse = "file://{home}/warehouse"\n\n'
            f'[journal]\nurl = "{postgres.url.removesuffix("/postgres")}/gates"\n'
            f'password = "env:{PASSWORD_VARIABLE}"\ntls = false\n'
        )
        servers.start_nessie()
        yield servers


@pytest.fixture(scope="module")
def lake(servers: Servers) -> Iterator[Lake]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PASSWORD_VARIABLE, servers.password)
        with connect(servers.home) as opened:
            yield opened


@dataclass(frozen=True)
class Client:
    """A writer of an open branch, by hand."""

    opened: OpenBranch

    def send(self, url: str, method: str, path: str, body: Any = None, key: str | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.opened.token}"} | ({} if key is None else {"Idempotency-Key": key})
        with loopback_client() as client:
            whole = f"{url}/v1/{quote(self.opened.branch, safe='')}/{path}"
            return client.request(method, whole, json=body, headers=headers)

    @contextmanager
    def pyiceberg(self, url: str) -> Iterator[PyIceberg]:
        catalog = load_catalog("gate", type="rest", uri=url, token=self.opened.token)
        try:
            yield catalog
        finally:
            catalog.close()


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(catalog: PyIceberg, table: str) -> list[int]:
    found: list[Any] = catalog.load_table(table).scan().to_arrow()["id"].to_pylist()
    return sorted(found)


def messages(lake: Lake, branch: str) -> Counter[str]:
    """Return the messages of a branch's commits, each with how many there are."""
    catalog = components_of(lake).catalog
    base = catalog.get_ref("main").hash
    return Counter(commit.message for commit in catalog.history(branch, until=base))


def test_several_gates_take_the_writes_of_one_branch(servers: Servers, lake: Lake) -> None:
    client = Client(lake.gate.open("many"))
    with servers.gate() as first, servers.gate() as second:
        urls = (first.url, second.url)
        assert client.send(urls[0], "POST", "namespaces", {"namespace": ["many"]}).status_code == 200
        # Begun at one and finished at the other: none of them remembers anything.
        schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
        body = {"name": "rows", "schema": schema, "stage-create": True, "properties": NO_RETRIES}
        staged = client.send(urls[0], "POST", "namespaces/many/tables", body).json()["metadata"]
        change = {"requirements": [{"type": "assert-create"}], "updates": created(staged)}
        made = [client.send(url, "POST", "namespaces/many/tables/rows", change, "k1") for url in reversed(urls)]
        assert [one.status_code for one in made] == [200, 200], made[-1].text
        assert made[0].json() == made[1].json()

        def append(number: int) -> None:
            with client.pyiceberg(urls[number % 2]) as catalog:
                catalog.load_table("many.rows").append(rows(number))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(append, range(8)))
        for url in urls:
            with client.pyiceberg(url) as catalog:
                assert ids(catalog, "many.rows") == list(range(8))
        assert messages(lake, client.opened.branch)["append many.rows"] == 8
        lake.gate.renew(client.opened.run_id, open_for="1s")
        time.sleep(1)
        for url in urls:
            refused = client.send(url, "POST", "namespaces", {"namespace": ["late"]})
            assert (refused.status_code, "its time is over" in refused.text) == (403, True)


def created(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the updates with which a client makes a table of what was staged."""
    return [
        {"action": "assign-uuid", "uuid": document["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": document["format-version"]},
        {"action": "add-schema", "schema": document["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": document["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": document["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": document["location"]},
        {"action": "set-properties", "updates": document["properties"]},
    ]


@pytest.mark.parametrize("is_made", [False, True], ids=["before", "after"])
def test_a_gate_that_is_killed_in_a_commit_leaves_all_of_it_or_nothing(
    servers: Servers, lake: Lake, is_made: bool
) -> None:
    """And whoever asks again with the same key gets it, once."""
    namespace, key = f"killed_{is_made}".lower(), str(uuid4())
    client = Client(lake.gate.open(namespace))
    tables = [f"{namespace}.{name}" for name in NAMES]
    with servers.gate() as gate, Proxy(servers.address) as between:
        body = {"table-changes": prepared_appends(client, gate.url, tables)}
        with servers.gate(cold=True, LAKEGATE_CATALOG_URI=f"{between.endpoint}/api/v2") as doomed:
            between.instead = at_commit(lambda: doomed.process.send_signal(signal.SIGKILL), servers, passed_on=is_made)
            with pytest.raises(httpx.HTTPError):
                pytest.fail(client.send(doomed.url, "POST", "transactions/commit", body, key).text)
            assert doomed.process.wait(10) == -signal.SIGKILL
        with client.pyiceberg(gate.url) as catalog:
            assert [ids(catalog, table) for table in tables] == [[1, 2] if is_made else [1]] * 2
            for _ in range(2):
                again = client.send(gate.url, "POST", "transactions/commit", body, key)
                assert again.status_code == 204, again.text
                assert [ids(catalog, table) for table in tables] == [[1, 2]] * 2
    assert messages(lake, client.opened.branch)[f"append {', '.join(tables)}"] == 1


def prepared_appends(client: Client, url: str, tables: Sequence[str]) -> list[Any]:
    """Create tables with a row each, and return a request that appends another to each, which wasn't sent."""
    taken: list[Any] = []

    def take(method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        if method != "POST" or not path.rpartition("/tables/")[2]:
            return None
        taken.append(json.loads(body))
        return 400, b"{}"

    with client.pyiceberg(url) as catalog:
        catalog.create_namespace(TableIdentifier.parse(tables[0]).namespace)
        for table in tables:
            catalog.create_table(table, rows().schema, properties=NO_RETRIES).append(rows(1))
    with Proxy(url) as proxy, client.pyiceberg(proxy.endpoint) as catalog:
        for table in tables:
            loaded = catalog.load_table(table)
            proxy.instead = take
            with suppress(Exception):  # whatever PyIceberg makes of the answer
                loaded.append(rows(2))
            proxy.instead = lambda *_: None
    assert len(taken) == len(tables)
    for table, change in zip(tables, taken, strict=True):
        name = TableIdentifier.parse(table)
        change["identifier"] = {"namespace": list(name.namespace), "name": name.name}
    return taken


def at_commit(
    do: Callable[[], object], servers: Servers, *, passed_on: bool
) -> Callable[[str, str, bytes], tuple[int, bytes] | None]:
    """Return what does something at a commit to Nessie: after it was made, or instead of it."""

    def instead(method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        if method != "POST" or not path.partition("?")[0].endswith("/history/commit"):
            return None
        if passed_on:
            with loopback_client() as nessie_client:
                made = nessie_client.post(
                    f"{servers.address}{path}", content=body, headers={"Content-Type": "application/json"}
                )
            assert made.status_code == 200, made.text
        do()
        return 500, b""

    return instead


def test_writers_outlast_a_nessie_that_restarts(servers: Servers, lake: Lake) -> None:
    """Each asks until it's told that its table was created, and each table was created once."""
    client, stopped = Client(lake.gate.open("restart")), threading.Event()
    answers: Counter[int] = Counter()
    names: list[str] = []
    schema = {"type": "struct", "fields": []}

    def write(url: str, writer: int) -> None:
        number = 0
        while not stopped.is_set():
            name, key = f"t{writer}_{number}", str(uuid4())
            status = 0
            while status != 200:
                body = {"name": name, "schema": schema}
                status = client.send(url, "POST", "namespaces/restart/tables", body, key).status_code
                answers[status] += 1
                time.sleep(0 if status == 200 else 0.2)
            names.append(name)
            number += 1

    with servers.gate() as first, servers.gate() as second, ThreadPoolExecutor(4) as pool:
        assert client.send(first.url, "POST", "namespaces", {"namespace": ["restart"]}).status_code == 200
        writers = [pool.submit(write, url, number) for number, url in enumerate((first.url, second.url) * 2)]
        try:
            wait_until(lambda: len(names) > 4, what="tables before")
            servers.restart_nessie()
            there = len(names)
            wait_until(lambda: len(names) > there + 4, what="tables after")
        finally:
            stopped.set()
        for one in writers:
            one.result()
        listed = client.send(second.url, "GET", "namespaces/restart/tables").json()["identifiers"]
    assert {one["name"] for one in listed} == set(names)
    assert set(answers) <= {200, 503, 504}
    made = messages(lake, client.opened.branch)
    assert {name: made[f"create restart.{name}"] for name in names} == dict.fromkeys(names, 1)
