"""The way of lakegate's own Spark to tables on branches, for catalogs that have none: an Iceberg REST catalog.

A table is named as in Nessie's Spark catalog: ``trips``, ``trips@branch`` or ``trips@branch#commit``. All that is in
the lake can be read, and every branch be written; ``main`` only by compactions, which put its rows into other files.
What is written is checked by nothing here: a run audits it. So only the holder of the engine's token may ask, and no
writer through the gate has that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from uuid import uuid4

from anyio.to_thread import run_sync
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lakegate.errors import (
    ConfigurationError,
    ConflictError,
    InputError,
    LakegateError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.gate.access import log_failure
from lakegate.gate.commits import unknown_outcome
from lakegate.gate.contents import Contents, catalog_overrides
from lakegate.gate.environment import ENGINE_PATH as PATH
from lakegate.gate.new_tables import new_table
from lakegate.gate.refusals import (
    RefusedError,
    already_exists,
    bad_request,
    commit_failed,
    json_response,
    no_namespace,
    no_table,
    unavailable,
)
from lakegate.gate.requests import namespace_in, namespace_of, prefix_of, text_of
from lakegate.gate.updates import apply_updates, check_requirements, well_formed
from lakegate.iceberg import metadata
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.metadata import Document
from lakegate.iceberg.validation import MAIN_BRANCH
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN, NO_SNAPSHOT, CommitRequest, Ref, TablePointer
from lakegate.model.tables import REPLACE
from lakegate.ports import Catalog, Overlay

_ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)
_FOR_FILES = re.compile(r"(?!.*(?:signer|signing|refresh))(?:(?:s3|gcs|adls)\.|client\.region$)")
"""What Spark needs of its catalog's options for files. The rest would have it talk to that catalog by our token: sign
requests or renew credentials there, or sign in here by the catalog's own."""
_NAMESPACES = f"{PATH}/v1/{{prefix}}/namespaces"
_NAMESPACE = f"{_NAMESPACES}/{{namespace}}"
_TABLES = f"{_NAMESPACE}/tables"
_TABLE = f"{_TABLES}/{{table}}"


class _Named(NamedTuple):
    """What a request names: a table, and the branch, tag or commit where it's looked for."""

    table: TableIdentifier
    ref: str
    commit: str

    def at(self, catalog: Catalog) -> tuple[Ref, TablePointer | None]:
        """Return the state where it's looked for, and the table there."""
        try:
            if self.commit:
                ref = Ref(name=self.ref, hash=self.commit, kind="detached")
                return ref, catalog.get_table(self.table, ref)
            ref, tables = catalog.get_ref_with_tables(self.ref, [self.table])
        except ConfigurationError:
            raise
        except InputError:  # no such branch, or a namespace
            raise no_table(f"{self.table} on {self.ref}") from None
        return ref, tables[self.table]

    def writable(self, catalog: Catalog, *, compacts: bool = False) -> tuple[Ref, TablePointer | None]:
        """Return the branch to write to, and the table there."""
        ref, pointer = self.at(catalog)
        if ref.kind != "branch" or (ref.name == MAIN and not compacts):
            raise RefusedError(
                HTTPStatus.FORBIDDEN,
                "ForbiddenException",
                f"{self.ref} can't be written: Spark writes to the branches of runs, which an audit publishes.",
            )
        return ref, pointer


class EngineApi:
    """The handlers. They run in threads, because catalogs are synchronous.

    Args:
        catalog: Returns the catalog, at its current address.
        folder: Returns the folder for new tables of a namespace.
        fixed: Names of the options for files that Spark has from the settings.
    """

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        files: TableFiles,
        folder: Callable[[tuple[str, ...]], str],
        fixed: Collection[str] = (),
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._contents = Contents(catalog, files)
        self._folder = folder
        self._fixed = fixed

    def routes(self) -> list[Route]:
        """Return the routes below :data:`PATH`."""
        return [
            Route(f"{PATH}/v1/config", self._config),
            Route(_NAMESPACES, _answering(self._list_namespaces)),
            Route(_NAMESPACES, _with_body(self._create_namespace), methods=["POST"]),
            Route(_NAMESPACE, _answering(self._load_namespace)),
            Route(_TABLES, _answering(self._list_tables)),
            Route(_TABLES, _with_body(self._create_table), methods=["POST"]),
            Route(_TABLE, _answering(self._load_table)),
            Route(_TABLE, _with_body(self._commit_table), methods=["POST"]),
            Route(_TABLE, _answering(self._drop_table), methods=["DELETE"]),
        ]

    def _config(self, _: Request) -> Response:
        return json_response({"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS})

    def _list_namespaces(self, request: Request) -> Response:
        parent = namespace_in(request.query_params.get("parent", ""))
        names = {(*name, "")[: len(parent) + 1] for name in self._namespaces(request) if name[: len(parent)] == parent}
        return json_response({"namespaces": sorted(name for name in names if name[-1])})

    def _create_namespace(self, request: Request, body: Mapping[str, Any]) -> Response:
        namespace = namespace_of(body["namespace"])
        there = self._namespaces(request)
        if namespace in there:
            raise already_exists("Namespace", ".".join(namespace))
        levels = [namespace[: depth + 1] for depth in range(len(namespace))]
        branch, _ = _at(request, TableIdentifier(namespace=namespace, name="t")).writable(self._catalog())
        missing = tuple(level for level in levels if level not in there)
        self._commit(branch, f"create namespace {'.'.join(namespace)}", namespaces=missing)
        return json_response({"namespace": namespace, "properties": {}})

    def _load_namespace(self, request: Request) -> Response:
        namespace = namespace_in(text_of(request, "namespace"))
        if namespace not in self._namespaces(request):
            raise no_namespace(".".join(namespace))
        if request.method == "HEAD":
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return json_response({"namespace": namespace, "properties": {}})

    def _list_tables(self, request: Request) -> Response:
        namespace = namespace_in(text_of(request, "namespace"))
        names = self._contents.listing(self._ref(request)).tables.get(namespace, ())
        tables = [{"namespace": namespace, "name": name} for name in names]
        return json_response({"identifiers": tables})

    def _create_table(self, request: Request, body: Mapping[str, Any]) -> Response:
        named = _named(request, body["name"])
        branch, there = named.writable(self._catalog())
        if there is not None:
            raise already_exists("Table", str(named.table))
        location = body.get("location") or f"{self._folder(named.table.namespace)}/{named.table.name}_{uuid4()}"
        document = new_table(body, str(uuid4()), location)
        if body.get("stage-create"):
            return json_response({"metadata": document, "config": {}})
        pointer = self._write(named.table, None, document)
        self._commit(branch, f"create {named.table}", puts=(pointer,))
        return _answer(pointer, document)

    def _load_table(self, request: Request) -> Response:
        _, pointer = _named(request, text_of(request, "table")).at(self._catalog())
        if pointer is None:
            raise no_table(text_of(request, "table"))
        if request.method == "HEAD":
            return Response(status_code=HTTPStatus.NO_CONTENT)
        content, access = self._contents.table(pointer), self._access(pointer)
        if not access:
            return Response(content, media_type="application/json")
        return json_response({**from_json(content), **access})

    def _commit_table(self, request: Request, body: Mapping[str, Any]) -> Response:
        named = _named(request, text_of(request, "table"))
        branch, pointer = named.writable(self._catalog(), compacts=_only_compacts(body["updates"]))
        before = None if pointer is None else self._document(pointer)
        creates = any(one["type"] == "assert-create" for one in body["requirements"])
        if pointer is None and not creates:
            raise no_table(str(named.table))
        check_requirements(before, body["requirements"])
        after = apply_updates(before, None if pointer is None else pointer.metadata_location, body["updates"])
        written = self._write(named.table, pointer, after)
        self._commit(branch, f"change {named.table}", puts=(written,))
        return _answer(written, after)

    def _drop_table(self, request: Request) -> Response:
        named = _named(request, text_of(request, "table"))
        branch, pointer = named.writable(self._catalog())
        if pointer is None:
            raise no_table(str(named.table))
        self._commit(branch, f"drop {named.table}", deletes=(named.table,))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    def _access(self, pointer: TablePointer) -> Document:
        """Return what the table's own catalog gives Spark to reach its files, for this answer only."""
        catalog = self._catalog()
        given = catalog.access(pointer) if isinstance(catalog, Overlay) else {}
        found: dict[str, Any] = {}
        if "config" in given:
            found["config"] = self._for_files(given["config"])
        if "storage-credentials" in given:
            lent = given["storage-credentials"]
            found["storage-credentials"] = [{**one, "config": self._for_files(one["config"])} for one in lent]
        return found

    def _for_files(self, config: Mapping[str, str]) -> Mapping[str, str]:
        return {key: value for key, value in config.items() if _FOR_FILES.match(key) and key not in self._fixed}

    def _ref(self, request: Request) -> Ref:
        name, _, commit = prefix_of(request).partition("#")
        return Ref(name=name, hash=commit, kind="detached") if commit else self._catalog().get_ref(name)

    def _namespaces(self, request: Request) -> frozenset[tuple[str, ...]]:
        return frozenset(self._catalog().list_namespaces(self._ref(request)))

    def _document(self, pointer: TablePointer) -> Document:
        document = self._files.metadata(pointer).document
        return {**document, **catalog_overrides(document, pointer)}

    def _write(self, table: TableIdentifier, before: TablePointer | None, after: Document) -> TablePointer:
        """Write new metadata to a file that nothing names yet."""
        name = metadata.next_name(after, "" if before is None else before.metadata_location)
        location = f"{metadata.folder(after)}/{name}"
        current = after.get("current-snapshot-id")
        pointer = TablePointer(
            table=table,
            content_id=None if before is None else before.content_id,
            metadata_location=location,
            snapshot_id=NO_SNAPSHOT if current is None else current,
            schema_id=after["current-schema-id"],
            spec_id=after["default-spec-id"],
            sort_order_id=after["default-sort-order-id"],
        )
        self._files.create(location, metadata.serialise(location, after), pointer)
        return pointer

    def _commit(self, branch: Ref, message: str, **change: Any) -> None:
        try:
            self._catalog().commit(CommitRequest(branch=branch.name, base=branch.hash, message=message, **change))
        except ConflictError as error:
            raise commit_failed(error.message) from error
        except OutcomeUnknownError as error:
            raise unknown_outcome() from error


def _answering(handler: Callable[..., Response]) -> Callable[..., Response]:
    """Wrap a handler to tell Spark what is wrong: unlike others, it's ours."""

    def answered(*given: Any) -> Response:
        try:
            return handler(*given)
        except LakegateError as error:
            log_failure(error)
            is_away = isinstance(error, RetryableError)
            raise (unavailable(error.message) if is_away else bad_request(error.message)) from error

    return answered


def _with_body(handler: Callable[[Request, Mapping[str, Any]], Response]) -> Any:
    """Return the endpoint of a handler that gets the request's body, and runs in a thread."""

    def handled(request: Request, content: bytes) -> Response:
        with well_formed():
            return handler(request, from_json(content))

    async def endpoint(request: Request) -> Response:
        return await run_sync(_answering(handled), request, await request.body())

    return endpoint


def _named(request: Request, text: str) -> _Named:
    """Return what a table's name means: ``trips``, ``trips@branch`` or ``trips@branch#commit``."""
    name, _, ref = text.partition("@")
    namespace = namespace_in(text_of(request, "namespace"))
    try:
        table = TableIdentifier(namespace=namespace, name=name)
    except InputError:  # Spark also asks for what may be a table of a table
        raise no_table(".".join((*namespace, name))) from None
    return _at(request, table, ref)


def _at(request: Request, table: TableIdentifier, ref: str = "") -> _Named:
    name, _, commit = (ref or prefix_of(request)).partition("#")
    return _Named(table, name, commit)


def _only_compacts(updates: Sequence[Document]) -> bool:
    """Return whether updates only make the main branch a snapshot with the same rows in other files."""
    added = [one["snapshot"]["summary"]["operation"] for one in updates if one["action"] == "add-snapshot"]
    rest = [(one["action"], one.get("ref-name")) for one in updates if one["action"] != "add-snapshot"]
    return set(added) == {REPLACE} and set(rest) == {("set-snapshot-ref", MAIN_BRANCH)}


def _answer(pointer: TablePointer, document: Document) -> Response:
    return json_response({"metadata-location": pointer.metadata_location, "metadata": document, "config": {}})
