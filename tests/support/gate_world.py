"""A lake in memory with real metadata files, and its gate: openings, their tokens, and clients that write."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvicorn
from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.catalog import load_catalog
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from lakegate.config import StorageSettings
from lakegate.credentials.openings import token_of
from lakegate.gate.app import Gate, create_app
from lakegate.gate.lending import lender_for
from lakegate.gate.signing import signer_for
from lakegate.iceberg.files import TableFiles
from lakegate.listening import listen
from lakegate.model.opening import Opening
from lakegate.ports import Catalog
from lakegate.testing.memory import MemoryCatalog

KEY = b"k" * 32


def writer_token(opening: Opening) -> str:
    """Return the token that a writer gets for an opening."""
    return token_of(opening, KEY)


@dataclass
class MemoryOpenings:
    """Openings as a journal would keep them."""

    known: dict[str, Opening] = field(default_factory=dict)
    used: dict[str, set[str]] = field(default_factory=dict)

    def get(self, opening_id: str) -> Opening | None:
        return self.known.get(opening_id)

    def note_use(self, opening_id: str, *, reads: Sequence[str] = (), client: str | None = None) -> None:
        self.used.setdefault(opening_id, set()).update([*reads, *([] if client is None else [client])])


@dataclass
class GateWorld:
    """A lake, its gate and its writers."""

    catalog: Catalog
    root: str
    storage: StorageSettings = field(default_factory=StorageSettings)
    openings: MemoryOpenings = field(default_factory=MemoryOpenings)

    def app(self, catalog: Catalog | None = None) -> ASGIApp:
        signer = signer_for(self.root, self.storage)
        gate = Gate(self.openings, KEY, self.root, signer, lender_for(self.root, self.storage, signer))
        return create_app(catalog or self.catalog, TableFiles(self.storage), gate=gate)

    def open(self, branch: str, opening_id: str | None = None, *, for_s: float = 3600.0) -> Opening:
        """Open a new branch off main, as ``gate open`` will."""
        main = self.catalog.get_ref("main")
        self.catalog.create_branch(branch, main)
        deadline = (datetime.now(UTC) + timedelta(seconds=for_s)).replace(microsecond=0)
        name = opening_id or branch.replace("/", "-")
        opening = Opening(opening_id=name, branch=branch, base=main.hash, deadline=deadline)
        self.openings.known[name] = opening
        return opening

    def seal(self, opening: Opening) -> None:
        self.openings.known[opening.opening_id] = opening.model_copy(update={"is_sealed": True})

    def writer(self, opening: Opening, catalog: Catalog | None = None) -> Writer:
        client = TestClient(self.app(catalog), base_url="http://localhost")
        return Writer(client, {"Authorization": f"Bearer {writer_token(opening)}"}, opening)


@dataclass(frozen=True)
class Writer:
    """A client that sends requests by hand."""

    client: TestClient
    headers: Mapping[str, str]
    opening: Opening

    @property
    def prefix(self) -> str:
        return "/v1/" + self.opening.branch.replace("/", "%2F")

    def with_headers(self, **more: str) -> Writer:
        return replace(self, headers={**self.headers, **more})

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; a path that begins with ``/`` is a whole one."""
        whole = path if path.startswith("/") else f"{self.prefix}/{path}"
        return self.client.request(method, whole, json=body, headers=dict(self.headers))

    def commit(
        self, table: str, updates: Sequence[Any], requirements: Sequence[Any] = (), namespace: str = "nyc"
    ) -> Any:
        body = {"requirements": list(requirements), "updates": list(updates)}
        return self.send("POST", f"namespaces/{namespace}/tables/{table}", body)

    def load(self, table: str, namespace: str = "nyc") -> Any:
        return self.send("GET", f"namespaces/{namespace}/tables/{table}").json()


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Serve an app from a thread, for clients that need a real address; yield its URL."""
    listening = listen("127.0.0.1", 0, command="serve")
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@contextmanager
def pyiceberg_writer(url: str, opening: Opening, **options: str) -> Iterator[PyIcebergCatalog]:
    """Open PyIceberg's catalog as a writer has it: with an address and a token."""
    catalog = load_catalog("gate", type="rest", uri=url, token=writer_token(opening), **options)
    try:
        yield catalog
    finally:
        catalog.close()


def memory_world(folder: Path) -> GateWorld:
    return GateWorld(MemoryCatalog(), f"file://{folder}/warehouse")
