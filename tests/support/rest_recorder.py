"""An Iceberg REST catalog in memory that refuses what a product refuses, as its source or documentation has it.

What it makes of updates is what our own gate makes of them. It keeps each request that came.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS

from lakegate.gate.new_tables import new_table
from lakegate.gate.refusals import RefusedError
from lakegate.gate.updates import apply_updates, check_requirements
from lakegate.iceberg.files import local_path
from lakegate.iceberg.metadata import serialise

Answer = tuple[int, Any]
_TOKEN_S = 3600


@dataclass(frozen=True)
class Product:
    """What a product does differently.

    Attributes:
        configuration: What ``/v1/config`` answers.
        info: What ``/management/v1/info`` answers.
        stages: Whether it begins tables without committing them.
        takes_locations: Whether clients say where a new table is.
        commits_new_tables: Whether ``transactions/commit`` takes tables that aren't there yet.
        calls_conflicts_bad: Whether a conflict is a bad request, as Polaris's was before 1.4.
        drops_files: Whether the files of a dropped table go.
    """

    configuration: Mapping[str, Any] = field(default_factory=lambda: {"defaults": {}, "overrides": {}})
    info: Mapping[str, Any] | None = None
    stages: bool = True
    takes_locations: bool = True
    commits_new_tables: bool = True
    calls_conflicts_bad: bool = False
    drops_files: bool = False


_POLARIS_ENDPOINTS = [*map(str, DEFAULT_ENDPOINTS), "GET /polaris/v1/{prefix}/namespaces/{namespace}/generic-tables"]
POLARIS = Product(
    {"defaults": {}, "overrides": {}, "endpoints": _POLARIS_ENDPOINTS},
    takes_locations=False,
    commits_new_tables=False,
    calls_conflicts_bad=True,
)
LAKEKEEPER = Product(info={"version": "0.9.0", "bootstrapped": True, "server-id": str(uuid4())})
S3_TABLES = Product(stages=False, takes_locations=False, drops_files=True)
GLUE = Product(stages=False)


class RestRecorder:
    """The server.

    Attributes:
        requests: Method and path of each request, without what's asked for.
        next_answers: Answers of its own, given before any other; ``None`` is passed over.
        token: The bearer token that it takes; ``None`` takes any.
    """

    def __init__(self, product: Product, warehouse: Path) -> None:
        self.product = product
        self.warehouse = warehouse.as_uri()
        self.requests: list[tuple[str, str]] = []
        self.headers: list[Mapping[str, str]] = []
        self.next_answers: list[tuple[str, Answer]] = []
        self.token: str | None = None
        self.tokens_given = 0
        self.more: dict[str, Any] = {}
        self._tables: dict[tuple[str, ...], tuple[str, Any]] = {}
        self._namespaces: set[tuple[str, ...]] = set()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, query: Mapping[str, list[str]], body: Any) -> Answer:  # noqa: PLR0911 - a request, an answer
        for at, (asked, own) in enumerate(self.next_answers):
            if asked in {f"{method} {path}", method}:
                del self.next_answers[at]
                return own
        if path.endswith("/management/v1/info"):
            return (404, None) if self.product.info is None else (200, self.product.info)
        match (method, [unquote(part) for part in path.partition("/v1/")[2].split("/")]):
            case "GET", ["config"]:
                return 200, {**self.product.configuration, "defaults": {"warehouse": self.warehouse}}
            case "POST", ["oauth", "tokens"]:
                self.tokens_given += 1
                self.token = f"token-{self.tokens_given}"
                return 200, {"access_token": self.token, "token_type": "bearer", "expires_in": _TOKEN_S}
            case "POST", ["transactions", "commit"]:
                return self._commit_all(body["table-changes"])
            case "POST", ["tables", "rename"]:
                return self._rename(
                    *((*body[end]["namespace"], body[end]["name"]) for end in ("source", "destination"))
                )
            case _, ["namespaces", *rest]:
                return self._in_namespaces(method, rest, query, body)
        return _error(404, "NoSuchEndpoint", path)

    def _in_namespaces(  # noqa: PLR0911 - likewise
        self, method: str, rest: list[str], query: Mapping[str, list[str]], body: Any
    ) -> Answer:
        namespace = tuple(rest[0].split("\x1f")) if rest else ()
        match (method, rest[1:]):
            case "GET", [] if not rest:
                return 200, {"namespaces": [] if "parent" in query else sorted(map(list, self._namespaces))}
            case "POST", [] if not rest:
                self._namespaces.add(tuple(body["namespace"]))
                return 200, {"namespace": body["namespace"]}
            case "GET", []:
                return (200, {"namespace": namespace}) if namespace in self._namespaces else _missing("Namespace")
            case "DELETE", []:
                self._namespaces.discard(namespace)
                return 204, None
            case "GET", ["tables"]:
                names = [{"namespace": namespace, "name": name[-1]} for name in self._tables if name[:-1] == namespace]
                return 200, {"identifiers": names}
            case "POST", ["tables"]:
                return self._create(namespace, body)
            case "GET", ["tables", name]:
                return self._load((*namespace, name))
            case "POST", ["tables", name]:
                return self._commit((*namespace, name), body)
            case "DELETE", ["tables", name]:
                return self._drop((*namespace, name))
        return _error(405, "NotAllowed", method)

    def _load(self, name: tuple[str, ...]) -> Answer:
        if name not in self._tables:
            return _missing("Table")
        location, document = self._tables[name]
        return 200, {"metadata-location": location, "metadata": document, **self.more}

    def _create(self, namespace: tuple[str, ...], body: Any) -> Answer:
        staged, place = body.get("stage-create", False), body.get("location")
        if staged and not self.product.stages:
            return _error(400, "BadRequestException", "CreateTable with staging is not supported.")
        if place is not None and not self.product.takes_locations:
            return _error(403, "ForbiddenException", f"Invalid locations '{place}' for identifier")
        name = (*namespace, body["name"])
        place = place or "/".join((self.warehouse, *name, uuid4().hex))
        document = new_table(body, str(uuid4()), place)
        if staged:
            return 200, {"metadata": document}
        self._write(name, document)
        return self._load(name)

    def _commit(self, name: tuple[str, ...], body: Any) -> Answer:
        try:
            with self._lock:
                self._write(name, self._changed(name, body))
                return self._load(name)
        except RefusedError as error:
            return self._refused(error)

    def _commit_all(self, changes: list[Any]) -> Answer:
        names = [_name(one["identifier"]) for one in changes]
        if not self.product.commits_new_tables and any(name not in self._tables for name in names):
            return _error(400, "BadRequestException", "Unsupported operation: updateForStagedCreate")
        try:
            with self._lock:
                made = [self._changed(name, one) for name, one in zip(names, changes, strict=True)]
                for name, document in zip(names, made, strict=True):
                    self._write(name, document)
        except RefusedError as error:
            return self._refused(error)
        return 204, None

    def _refused(self, error: RefusedError) -> Answer:
        if error.status == 409 and self.product.calls_conflicts_bad:
            return _error(400, "ValidationException", f"Requirement failed: {error.message}")
        return _error(error.status, "CommitFailedException", error.message)

    def _changed(self, name: tuple[str, ...], body: Any) -> Any:
        location, document = self._tables.get(name, (None, None))
        check_requirements(document, body["requirements"])
        return apply_updates(document, location, body["updates"])

    def _write(self, name: tuple[str, ...], document: Any) -> None:
        location = f"{document['location']}/metadata/{uuid4()}.metadata.json"
        path = local_path(location)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(serialise(location, document))
        self._tables[name] = location, document

    def _rename(self, name: tuple[str, ...], to: tuple[str, ...]) -> Answer:
        if name not in self._tables:
            return _missing("Table")
        self._tables[to] = self._tables.pop(name)
        return 204, None

    def _drop(self, name: tuple[str, ...]) -> Answer:
        if name not in self._tables:
            return _missing("Table")
        location, _ = self._tables.pop(name)
        if self.product.drops_files:
            local_path(location).unlink()
        return 204, None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                address = urlsplit(self.path)
                recorder.requests.append((self.command, address.path))
                recorder.headers.append(dict(self.headers))
                is_form = self.headers.get("Content-Type", "").startswith("application/x-www-form")
                body = None if is_form or not content else json.loads(content)
                right = recorder.token is None or self.headers.get("Authorization") == f"Bearer {recorder.token}"
                if right or address.path.endswith("/oauth/tokens"):
                    status, answer = recorder.answer(self.command, address.path, parse_qs(address.query), body)
                else:
                    status, answer = _error(419, "AuthenticationTimeoutException", "The token has expired")
                if status == 0:
                    self.close_connection = True
                    return
                text = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            do_GET = do_HEAD = do_POST = do_DELETE = do

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


def _name(identifier: Any) -> tuple[str, ...]:
    return (*identifier["namespace"], identifier["name"])


def _error(status: int, kind: str, message: str) -> Answer:
    return status, {"error": {"message": message, "type": kind, "code": status}}


def _missing(what: str) -> Answer:
    return _error(404, f"NoSuch{what}Exception", f"{what} does not exist")
