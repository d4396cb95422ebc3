"""The part of Iceberg's REST API that reads: its handlers.

Anybody who may ask reads what is published; the holder of an opening's token reads its branch, too.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from lakegate.errors import ConfigurationError, InputError, NotFoundError
from lakegate.gate.access import log_failure
from lakegate.gate.contents import Contents, Namespace, Published
from lakegate.gate.lending import Lender, asks_for_keys
from lakegate.gate.locations import make_folders, namespace_location
from lakegate.gate.openings import Doorkeeper, ended, shown_properties
from lakegate.gate.refusals import internal_error, json_response, no_namespace, no_table
from lakegate.gate.requests import namespace_in, opening_of, prefix_of, text_of
from lakegate.gate.signing import ENDPOINTS as SIGN_ENDPOINTS
from lakegate.gate.signing import Signer
from lakegate.gate.writing import ENDPOINTS as WRITE_ENDPOINTS
from lakegate.iceberg.metadata import properties
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, Ref, TablePointer

ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)
"""Endpoints besides the configuration. Clients that read this list don't try others."""

KEY_LIFETIME = "PT30M"
"""How long a client may send a request again with its Idempotency-Key. The gate remembers it longer: in the catalog."""


class ReadApi:
    """The handlers of requests that read. They run in threads, because the catalog's client is synchronous.

    Args:
        warehouse: Root of the tables' files; ``None`` if nobody may write.
        signer: Signs writers' requests to the object store; ``None`` if they have keys of their own.
        doorkeeper: Remembers what writers read.
        lender: Lends keys to writers whose requests can't be signed; ``None`` for none.
    """

    def __init__(
        self,
        published: Published,
        contents: Contents,
        warehouse: str | None,
        signer: Signer | None,
        doorkeeper: Doorkeeper | None,
        *,
        lender: Lender | None = None,
    ) -> None:
        self._signer = signer
        self._lender = lender
        self._published = published
        self._contents = contents
        self._warehouse = warehouse
        self._doorkeeper = doorkeeper

    async def health(self, _request: Request) -> Response:
        """Report that the process is alive, even if all threads wait for the catalog."""
        return json_response({"status": "ok"})

    def ready(self, _request: Request) -> Response:
        """Report whether the catalog answers."""
        self._published.ref(MAIN)
        return json_response({"status": "ok"})

    def config(self, request: Request) -> Response:
        """Return the prefix for the state that the client names as its warehouse, and the endpoints."""
        opening, warehouse = opening_of(request), request.query_params.get("warehouse", "")
        if opening is not None and warehouse in ("", opening.branch):
            overrides = {"prefix": quote(opening.branch, safe="")}
            signing = () if self._signer is None else SIGN_ENDPOINTS
            defaults = {} if self._signer is None else self._signer.client_config
            writes = {"endpoints": (*ENDPOINTS, *WRITE_ENDPOINTS, *signing), "idempotency-key-lifetime": KEY_LIFETIME}
            return json_response({"defaults": defaults, "overrides": overrides, **writes})
        prefix = self._published.prefix(warehouse)
        # Clients put the prefix into their paths without encoding it.
        overrides = {"prefix": quote(prefix, safe=":")}
        return json_response({"defaults": {}, "overrides": overrides, "endpoints": ENDPOINTS})

    def list_namespaces(self, request: Request) -> Response:
        """List the top-level namespaces, or those directly in ``parent``."""
        parent = namespace_in(request.query_params.get("parent", ""))
        ref = self._ref(request)
        listing = self._contents.listing(ref)
        if parent and parent not in listing.namespaces:
            raise no_namespace(".".join(parent))
        return json_response({"namespaces": listing.below(parent)}, headers=_headers(ref))

    def load_namespace(self, request: Request) -> Response:
        """Return a namespace, for writers with the folder of its tables. For HEAD, only report that it exists."""
        ref = self._ref(request)
        namespace = self._namespace(request, ref)
        if request.method == "HEAD":
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=_headers(ref))
        # Trino creates no table without it.
        location = {} if self._warehouse is None else {"location": namespace_location(self._warehouse, namespace)}
        return json_response({"namespace": namespace, "properties": location}, headers=_headers(ref))

    def list_tables(self, request: Request) -> Response:
        """List the tables of a namespace, all at once: the specification lets a server ignore ``pageToken``."""
        ref = self._ref(request)
        namespace = self._namespace(request, ref)
        names = self._contents.listing(ref).tables.get(namespace, ())
        tables = [{"namespace": namespace, "name": name} for name in names]
        return json_response({"identifiers": tables}, headers=_headers(ref))

    def load_table(self, request: Request) -> Response:
        """Return a table's metadata. For HEAD, only report that it exists."""
        ref, pointer = self._table(request)
        headers = _headers(ref)
        if request.method == "HEAD":
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
        opening = opening_of(request)
        if self._doorkeeper is not None and opening is not None:
            self._doorkeeper.note_read(opening, pointer.table)
        etag = self._contents.etag(pointer)
        has_keys = self._lender is not None and opening is not None and asks_for_keys(request)
        headers |= {"ETag": etag, "Cache-Control": "no-store" if has_keys else "private, no-cache"}
        if not has_keys and _matches(request.headers.get("if-none-match", ""), etag):  # keys end, and must be new
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        try:
            content = self._content(request, pointer)
        except InputError as error:
            log_failure(error)
            raise internal_error(f"The metadata file of table {pointer.table} is missing or damaged.") from error
        return Response(content, headers=headers, media_type="application/json")

    def _content(self, request: Request, pointer: TablePointer) -> bytes:
        content, opening = self._contents.table(pointer), opening_of(request)
        if opening is None:
            return content
        loaded = json.loads(content)
        shown = shown_properties(loaded["metadata"], opening)
        if _own_branch(request) is None:  # nobody writes there, but some delete
            shown = {"gc.enabled": shown["gc.enabled"]}
        else:
            make_folders(loaded["metadata"], opening)
        loaded["metadata"]["properties"] = {**properties(loaded["metadata"]), **shown}
        if self._lender is not None and asks_for_keys(request):
            loaded |= self._lender.lent(opening, loaded["metadata"]["location"])
        return json.dumps(loaded, separators=(",", ":")).encode()

    def _ref(self, request: Request) -> Ref:
        own = _own_branch(request)
        if own is None:
            return self._published.ref(prefix_of(request))
        try:
            return self._published.branch(own)
        except NotFoundError as error:
            raise ended(own, "the branch is gone") from error

    def _namespace(self, request: Request, ref: Ref) -> Namespace:
        namespace = namespace_in(text_of(request, "namespace"))
        if not self._contents.has_namespace(ref, namespace):
            raise no_namespace(".".join(namespace))
        return namespace

    def _table(self, request: Request) -> tuple[Ref, TablePointer]:
        namespace, name = namespace_in(text_of(request, "namespace")), text_of(request, "table")
        own = _own_branch(request)
        try:
            table = TableIdentifier(namespace=namespace, name=name)
            ref, pointer = self._published.table(
                prefix_of(request) if own is None else own, table, is_open=own is not None
            )
        except ConfigurationError:
            raise
        except NotFoundError as error:
            if own is None:
                raise no_table(str(table)) from None
            raise ended(own, "the branch is gone") from error
        except InputError:  # not a table name, or the name of a view or namespace
            raise no_table(".".join((*namespace, name))) from None
        if pointer is None:
            raise no_table(str(table))
        return ref, pointer


def _own_branch(request: Request) -> str | None:
    """Return the branch of the token's opening, if that's what the request reads."""
    opening = opening_of(request)
    return opening.branch if opening is not None and text_of(request, "prefix") == opening.branch else None


def _headers(ref: Ref) -> dict[str, str]:
    return {"X-Lakegate-Commit": ref.hash}


def _matches(condition: str, etag: str) -> bool:
    return condition.strip() == "*" or etag in (tag.strip().removeprefix("W/") for tag in condition.split(","))
