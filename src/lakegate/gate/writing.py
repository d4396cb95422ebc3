"""The part of Iceberg's REST API that writes: its handlers. Each writes to the branch of the token's opening."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

from anyio.to_thread import run_sync
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from lakegate.credentials.openings import staged_uuid
from lakegate.errors import IdentifierError
from lakegate.gate.commits import Asked, Committer, Plan, State, TableCommit, Tables
from lakegate.gate.contents import Contents, Namespace
from lakegate.gate.lending import Lender, asks_for_keys
from lakegate.gate.locations import make_folders, namespace_location, new_location, without_shown
from lakegate.gate.new_tables import new_table
from lakegate.gate.openings import shown_properties
from lakegate.gate.refusals import (
    already_exists,
    bad_request,
    json_response,
    no_namespace,
    no_table,
    not_empty,
    not_supported,
    not_writable,
    read_only,
)
from lakegate.gate.requests import namespace_in, namespace_of, opening_of, text_of
from lakegate.gate.signing import Signer
from lakegate.gate.updates import well_formed
from lakegate.iceberg.metadata import Document, properties
from lakegate.model.identifiers import RESERVED_NAMESPACES, TableIdentifier
from lakegate.model.opening import Opening
from lakegate.model.quarantine import is_quarantine
from lakegate.model.refs import Ref

ENDPOINTS: Final = (
    "POST /v1/{prefix}/namespaces",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
)
"""Endpoints that the holder of an opening's token has besides those for reading."""

_MAX_BODY_BYTES = 16 * 2**20
_MAX_CLIENT_LENGTH = 100
_MOST_LEVELS = 19
"""Nessie's names have 20 parts at most, the table's own among them."""

Handler = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class Write:
    """A request that writes: whose it is, its path and its body."""

    asked: Asked
    request: Request
    body: Mapping[str, Any]

    @property
    def opening(self) -> Opening:
        """The opening of the request's token."""
        return self.asked.opening

    @property
    def table(self) -> TableIdentifier:
        """The table in the request's path."""
        return table_named(namespace_in(text_of(self.request, "namespace")), text_of(self.request, "table"))


def writing(
    handler: Callable[[Write], Response], retrying: Callable[[Handler], Handler], *, any_prefix: bool = False
) -> Any:
    """Return the endpoint of a handler: it reads the body, and runs the handler in a thread.

    Args:
        retrying: Wraps what is to be tried again if the catalog has moved.
        any_prefix: Whether the handler isn't about the state that the path names.
    """

    async def endpoint(request: Request) -> Response:
        opening = opening_of(request)
        if opening is None:
            raise read_only()
        prefix = text_of(request, "prefix") if not any_prefix else opening.branch
        if prefix != opening.branch:
            raise not_writable(prefix, opening.branch)
        content = await _body(request)
        write = Write(_asked(request, opening, content), request, _parsed(content))
        return await run_sync(retrying(lambda _: handler(write)), request)

    return endpoint


async def _body(request: Request) -> bytes:
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > _MAX_BODY_BYTES:
            raise bad_request(f"The request's body is larger than {_MAX_BODY_BYTES // 2**20} MB.")
    return bytes(content)


def _parsed(content: bytes) -> Mapping[str, Any]:
    try:
        body = from_json(content, allow_inf_nan=False) if content else {}
    except ValueError as error:
        raise bad_request(f"The request's body isn't JSON that can be read: {error}.") from None
    if not isinstance(body, dict):
        raise bad_request("The request's body isn't a JSON object.")
    return body


def _asked(request: Request, opening: Opening, content: bytes) -> Asked:
    key = request.headers.get("idempotency-key")
    # A key counts for one request of one opening only: the same one with another path or body is another request.
    parts = (opening.opening_id, request.method, request.scope["path"], key or str(uuid4()))
    digest = hashlib.sha256(json.dumps(parts).encode() + b"\0" + content).hexdigest()
    client = request.headers.get("user-agent", "")[:_MAX_CLIENT_LENGTH]
    return Asked(opening, digest[:32], is_marked=key is not None, client=client or "unknown")


class WriteApi:
    """The handlers of requests that write.

    Args:
        warehouse: Root of the tables' files.
        key: The key that UUIDs of staged tables are made with.
        signer: Signs writers' requests to the object store; ``None`` if they have keys of their own.
        lender: Lends keys to writers whose requests can't be signed; ``None`` for none.
    """

    def __init__(
        self,
        committer: Committer,
        contents: Contents,
        warehouse: str,
        key: bytes,
        signer: Signer | None,
        *,
        lender: Lender | None = None,
    ) -> None:
        self._committer = committer
        self._signer = signer
        self._lender = lender
        self._contents = contents
        self._warehouse = warehouse
        self._key = key

    def create_namespace(self, write: Write) -> Response:
        """Create a namespace, and those above it."""
        with well_formed():
            namespace = namespace_of(write.body["namespace"])
            asked = (write.body.get("properties") or {}).get("location")
        table_named(namespace, "t")
        location = namespace_location(self._warehouse, namespace)
        if asked not in (None, location):
            raise bad_request(f"Leave out the namespace's location: it's {location}.")

        def plan(ref: Ref, _: Tables) -> Plan:
            there = self._contents.listing(ref).namespaces
            if namespace in there:
                raise already_exists("Namespace", ".".join(namespace))
            levels = [namespace[: level + 1] for level in range(len(namespace))]
            missing = [one for one in levels if one not in there]
            return Plan(f"create namespace {'.'.join(namespace)}", namespaces=missing)

        self._committer.commit(write.asked, (), plan)
        return json_response({"namespace": namespace, "properties": {"location": location}})

    def drop_namespace(self, write: Write) -> Response:
        """Drop an empty namespace."""
        namespace = namespace_in(text_of(write.request, "namespace"))

        def plan(ref: Ref, _: Tables) -> Plan:
            listing = self._contents.listing(ref)
            if namespace not in listing.namespaces:
                raise no_namespace(".".join(namespace))
            if listing.tables.get(namespace) or listing.below(namespace):
                raise not_empty(".".join(namespace))
            return Plan(f"drop namespace {'.'.join(namespace)}", drops=[namespace])

        self._committer.commit(write.asked, (), plan)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    def create_table(self, write: Write) -> Response:
        """Create a table, or only stage it: it's then created by a commit."""
        with well_formed():
            table = table_named(namespace_in(text_of(write.request, "namespace")), write.body["name"])
            location = new_location(self._warehouse, table, write.body.get("location"))
            is_staged = bool(write.body.get("stage-create"))
        uuid = staged_uuid(write.opening, str(table), location, self._key)
        document = without_shown(new_table(write.body, uuid, location), None, write.opening)

        def plan(ref: Ref, now: Tables) -> Plan:
            if not self._contents.has_namespace(ref, table.namespace):
                raise no_namespace(".".join(table.namespace))
            if now[table] is not None:
                raise already_exists("Table", str(table))
            state = None if is_staged else self._committer.written(write.opening, table, None, document)
            return Plan(f"create {table}", () if state is None else (state,))

        made, now = self._committer.commit(write.asked, [table], plan)
        if made is None:  # by the same request, sent before
            return self._loaded(write, self._committer.found(table, now[table]))
        make_folders(document, write.opening)
        if is_staged:
            return self._answer(write, document)
        return self._loaded(write, made.puts[0])

    def commit_table(self, write: Write) -> Response:
        """Change a table, or create one that was staged."""
        [state] = self._committer.commit_tables(write.asked, [_table_commit(write.table, write.body)])
        return json_response(
            {
                "metadata-location": state.pointer.metadata_location,
                "metadata": shown(state.document, write.opening),
            }
        )

    def commit_transaction(self, write: Write) -> Response:
        """Change several tables in one commit."""
        with well_formed():
            changes = [
                _table_commit(table_named(namespace_of(one["identifier"]["namespace"]), one["identifier"]["name"]), one)
                for one in write.body["table-changes"]
            ]
        if not changes:
            raise bad_request("The transaction changes no table.")
        self._committer.commit_tables(write.asked, changes)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    def drop_table(self, write: Write) -> Response:
        """Drop a table. Its files stay, even if they're asked to be purged: main and other branches may need them."""
        table = write.table

        def plan(_: Ref, now: Tables) -> Plan:
            if now[table] is None:
                raise no_table(str(table))
            return Plan(f"drop {table}", deletes=[table])

        self._committer.commit(write.asked, [table], plan)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    def rename_table(self, write: Write) -> Response:
        """Rename a table that the opening has created."""
        with well_formed():
            source, target = (
                table_named(namespace_of(write.body[one]["namespace"]), write.body[one]["name"])
                for one in ("source", "destination")
            )

        def plan(ref: Ref, now: Tables) -> Plan:
            before = now[source]
            if before is None:
                raise no_table(str(source))
            if now[target] is not None:
                raise already_exists("Table", str(target))
            if not self._contents.has_namespace(ref, target.namespace):
                raise no_namespace(".".join(target.namespace))
            if self._committer.is_published(write.opening, before):
                raise not_supported(
                    f"{source} is a published table, and can't be renamed on a branch. Create {target}, and drop "
                    f"{source} when nobody reads it any more: lakegate table drop {source}"
                )
            moved = State(before.model_copy(update={"table": target}), {})
            return Plan(f"rename {source} to {target}", [moved], deletes=[source])

        self._committer.commit(write.asked, [source, target], plan)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    def report_metrics(self, _: Write) -> Response:
        """Take note of nothing: the audit counts rows itself."""
        return Response(status_code=HTTPStatus.NO_CONTENT)

    def sign(self, write: Write) -> Response:
        """Sign a request to the object store."""
        if self._signer is None:
            raise not_supported("Requests to this warehouse aren't signed: use credentials of your own.")
        return json_response(self._signer.signed(write.opening, write.body), headers={"Cache-Control": "no-cache"})

    def _loaded(self, write: Write, state: State) -> Response:
        return self._answer(write, state.document, {"metadata-location": state.pointer.metadata_location})

    def _answer(self, write: Write, document: Document, found: Mapping[str, str] | None = None) -> Response:
        """Return a table as its writer loads it, with keys for its files if it asks for them."""
        lent: Mapping[str, Any] = {}
        if self._lender is not None and asks_for_keys(write.request):
            lent = self._lender.lent(write.opening, document["location"])
        metadata = shown(document, write.opening)
        return json_response({**(found or {}), "metadata": metadata, "config": {}, **lent})


def shown(document: Document, opening: Opening) -> Document:
    """Return a table's metadata as the writer of an opening sees it."""
    return {**document, "properties": {**properties(document), **shown_properties(document, opening)}}


def table_named(namespace: Namespace, name: str) -> TableIdentifier:
    """Return the table of this name.

    Raises:
        RefusedError: It's none that a writer can write.
    """
    if len(namespace) > _MOST_LEVELS:
        raise bad_request(f"A namespace has at most {_MOST_LEVELS} levels.")
    with well_formed():
        try:
            table = TableIdentifier(namespace=namespace, name=name)
        except IdentifierError as error:
            raise bad_request(f"{error.message} {error.hint or ''}".strip()) from None
    if namespace[0].lower() in RESERVED_NAMESPACES:
        raise bad_request(f"In Spark SQL, '{namespace[0]}' isn't a namespace of the lake. Use another one.")
    if is_quarantine(table):
        raise bad_request(f"{table} is the name of a quarantine table, which only lakegate writes. Use another one.")
    return table


def _table_commit(table: TableIdentifier, body: Mapping[str, Any]) -> TableCommit:
    requirements, updates = (body.get(key) or [] for key in ("requirements", "updates"))
    if not all(
        isinstance(one, list) and all(isinstance(part, dict) for part in one) for one in (requirements, updates)
    ):
        raise bad_request("requirements and updates are lists of JSON objects.")
    return TableCommit(table, requirements, updates)
