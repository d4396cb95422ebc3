"""An Iceberg REST catalog as a target, by raw JSON: PyIceberg's models lose what they don't know, such as version 3.

PyIceberg connects, signs in and renews tokens; of its requests, those that read or list are used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
)
from requests import Response
from requests.adapters import BaseAdapter
from requests.exceptions import RequestException

from lakegate.catalogs.target.capabilities import Capabilities, by_rest
from lakegate.catalogs.target.pyiceberg_target import PyIcebergTarget, reason_of
from lakegate.catalogs.target.targets import Step
from lakegate.catalogs.target.updates import Asked
from lakegate.errors import CatalogUnavailableError, InputError, OutcomeUnknownError
from lakegate.iceberg import metadata
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.metadata import Document
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer

_TIMEOUT_S = (10.0, 60.0)
"""For the connection and for each part of an answer. PyIceberg itself would wait for ever."""
_DOCUMENTS_KEPT = 64
_EXPIRED = (401, 419)
_REFUSED = (400, 405, 406, 422, 501)
_ERRORS: Mapping[int, type[Exception]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NoSuchTableError,
    409: CommitFailedException,
    419: UnauthorizedError,
    429: TooManyRequestsError,
    **dict.fromkeys(_REFUSED, BadRequestError),
}
"""The kinds of errors. Any other status leaves open whether the request was carried out."""


class RestTarget(PyIcebergTarget):
    """A REST catalog; implements :class:`~lakegate.catalogs.target.targets.Target`."""

    def __init__(self, catalog: RestCatalog, files: TableFiles, identity: str) -> None:
        self._rest = catalog
        self._session = catalog._session  # noqa: SLF001 - signed in and, for AWS, signing
        self._session.mount(catalog.uri, _Patient(self._session.get_adapter(catalog.uri)))
        self._documents: dict[str, Document] = {}
        super().__init__(catalog, files, identity, self._found_capabilities())

    def check(self, steps: Sequence[Step]) -> None:
        """Refuse steps that the product can't make; see :meth:`lakegate.catalogs.target.targets.Target.check`."""
        if self.capabilities.drop_keeps_files is None and any(step.staged is None for step in steps):
            known = {"drop_keeps_files": self._keeps_files_of_dropped_tables()}
            self.capabilities = self.capabilities.model_copy(update=known)
        super().check(steps)

    def document(self, pointer: TablePointer) -> Document:
        """Return the metadata at ``pointer``: as the catalog answered, or the file."""
        return self._documents.get(pointer.metadata_location) or super().document(pointer)

    def access(self, pointer: TablePointer) -> Document:
        """Return what the catalog gives readers of a table's files; asked anew, since it expires."""
        with self._answers(f"load table {pointer.table}"):
            try:
                answer = self._request("GET", self._url(pointer.table))
            except NoSuchTableError:
                return {}
        if answer["metadata"]["table-uuid"] != pointer.content_id:
            return {}
        return {key: answer[key] for key in ("config", "storage-credentials") if answer.get(key)}

    def apply(self, steps: Sequence[Step]) -> Sequence[TablePointer | None]:
        """Make steps; see :meth:`lakegate.catalogs.target.targets.Target.apply`."""
        return super().apply(steps) if len(steps) == 1 else self._commit_all(steps)

    def _found_capabilities(self) -> Capabilities:
        warehouse = self._rest.properties.get("warehouse")
        params = {"warehouse": warehouse} if warehouse else {}
        try:
            answer = self._session.get(self._rest.url("config", prefixed=False), params=params)
            endpoints = answer.json().get("endpoints") or ()
        except (RequestException, ValueError) as error:
            raise CatalogUnavailableError(f"The catalog didn't send its configuration: {reason_of(error)}.") from error
        return by_rest(self._rest.uri, endpoints=endpoints, is_lakekeeper=self._is_lakekeeper)

    def _is_lakekeeper(self) -> bool:
        base = self._rest.uri.rstrip("/").removesuffix("/catalog")
        try:
            answer = self._session.get(f"{base}/management/v1/info", timeout=_TIMEOUT_S)
            return answer.ok and {"server-id", "bootstrapped"} <= set(answer.json())
        except (RequestException, ValueError, TypeError):
            return False

    def _table(self, name: TableIdentifier) -> TablePointer | None:
        with self._answers(f"load table {name}"):
            try:
                answer = self._request("GET", self._url(name))
            except NoSuchTableError:
                return None
        return self._kept(name, answer)

    def _kept(self, name: TableIdentifier, answer: Document) -> TablePointer:
        """Return the state of a table that an answer describes."""
        location = str(answer["metadata-location"])
        while len(self._documents) >= _DOCUMENTS_KEPT:
            self._documents.pop(next(iter(self._documents), ""), None)
        self._documents[location] = answer["metadata"]
        return self._pointer(name, location)

    def _drop(self, table: TableIdentifier) -> None:
        with self._commits(table):
            self._request("DELETE", f"{self._url(table)}?purgeRequested=false")

    def _rename(self, table: TableIdentifier, name: TableIdentifier) -> None:
        body = {"source": _identifier(table), "destination": _identifier(name)}
        with self._commits(table):
            self._request("POST", self._rest.url("tables/rename"), body)

    def _commit(self, name: TableIdentifier, staged: TablePointer, asked: Asked, *, creates: bool) -> TablePointer:
        if creates:
            self._announce(name, self.document(staged))
        with self._commits(name):
            return self._kept(name, self._request("POST", self._url(name), _change(name, asked)))

    def _commit_all(self, steps: Sequence[Step]) -> Sequence[TablePointer]:
        """Change several tables by one request."""
        staged = [(step, step.staged) for step in steps if step.staged is not None]
        changes = [_change(step.table, self._asked(step, pointer)) for step, pointer in staged]
        for step, pointer in staged:
            if step.base is None:
                self.create_namespace(step.table.namespace)
                self._announce(step.table, self.document(pointer))
        with self._commits(steps[0].table):
            self._request("POST", self._rest.url("transactions/commit"), {"table-changes": changes})
        found = self.tables([step.table for step in steps])
        return [self._as_published(pointer, found[step.table]) for step, pointer in staged]

    def _as_published(self, staged: TablePointer, now: TablePointer | None) -> TablePointer:
        """Return a table that one request with others changed, whose answer is empty: as it is now."""
        if now is None or now.snapshot_id != staged.snapshot_id:
            raise OutcomeUnknownError(
                f"{self._identity} published table {staged.table}, and somebody changed it before lakegate looked.",
                hint="The next command that reads the lake logs both.",
                table=str(staged.table),
            )
        return now

    def _announce(self, name: TableIdentifier, document: Document) -> None:
        """Have the catalog begin a new table: some would begin it with an empty schema otherwise, or somewhere else."""
        body = {
            "name": name.name,
            "stage-create": True,
            "location": document["location"],
            "schema": metadata.schemas(document)[0],
            "partition-spec": next(iter(metadata.specs(document).values())),
            "write-order": next(iter(document.get("sort-orders") or [{"order-id": 0, "fields": []}])),
            "properties": {**metadata.properties(document), "format-version": str(document["format-version"])},
        }
        namespace = _path(name.namespace)
        with self._commits(name):
            begun = self._request("POST", self._rest.url(f"namespaces/{namespace}/tables"), body)
        place = str(begun["metadata"]["location"]).rstrip("/")
        if place != str(document["location"]).rstrip("/"):
            raise InputError(
                f"{self._identity} wants the new table {name} at {place}, and its files are at {document['location']}.",
                hint=f"Nothing was published. Create {name} in the catalog, empty, and run the write again.",
                table=str(name),
            )

    def _keeps_files_of_dropped_tables(self) -> bool:
        """Drop a table of our own, and look whether its metadata file is still there."""
        name = f"lakegate_probe_{uuid4().hex}"
        schema = {"type": "struct", "schema-id": 0, "fields": []}
        table = TableIdentifier(namespace=(name,), name=name)
        self.create_namespace(table.namespace)
        try:
            with self._commits(table):
                url = self._rest.url(f"namespaces/{_path(table.namespace)}/tables")
                pointer = self._kept(table, self._request("POST", url, {"name": name, "schema": schema}))
            self._drop(table)
            return self._files.exists(pointer.metadata_location)
        finally:
            with self._answers(f"drop namespace {name}"):
                self._rest.drop_namespace(table.namespace)

    def _url(self, table: TableIdentifier) -> str:
        return self._rest.url(f"namespaces/{_path(table.namespace)}/tables/{quote(table.name, safe='')}")

    def _request(self, method: str, url: str, body: Document | None = None) -> Any:
        """Send a request; once more if the token has expired.

        Raises:
            Exception: PyIceberg's, by the kind of failure: :data:`_ERRORS`.
        """
        answer = self._send(method, url, body)
        if answer.status_code in _EXPIRED:
            self._rest.namespace_exists("lakegate")  # PyIceberg renews its token when it's refused
            answer = self._send(method, url, body)
        if not answer.ok:
            raise _error(answer)
        return answer.json() if answer.content else None

    def _send(self, method: str, url: str, body: Document | None) -> Response:
        try:
            return self._session.request(method, url, json=body)
        except RequestException:
            if method != "GET":
                raise
            return self._session.request(method, url)  # a connection that was kept too long


class _Patient(BaseAdapter):
    """Gives each request a time limit, and leaves the rest to the adapter that was there."""

    def __init__(self, adapter: BaseAdapter) -> None:
        super().__init__()
        self._adapter = adapter

    def send(self, *given: Any, **options: Any) -> Response:
        return self._adapter.send(*given, **{**options, "timeout": options.get("timeout") or _TIMEOUT_S})

    def close(self) -> None:
        self._adapter.close()


def _change(name: TableIdentifier, asked: Asked) -> Document:
    return {"identifier": _identifier(name), "requirements": asked.requirements, "updates": asked.updates}


def _identifier(name: TableIdentifier) -> Document:
    return {"namespace": list(name.namespace), "name": name.name}


def _path(namespace: Sequence[str]) -> str:
    return "%1F".join(quote(part, safe="") for part in namespace)


def _error(answer: Response) -> Exception:
    """Return the error that an answer means. A page that isn't the catalog's says nothing about a table."""
    try:
        details = json.loads(answer.content)["error"]
        text = f"{details.get('type')}: {details.get('message')}"
    except (ValueError, KeyError, TypeError, AttributeError):
        details, text = None, f"HTTP {answer.status_code} {answer.reason}"
    kind = _ERRORS.get(answer.status_code, ServerError)
    if details is None and answer.status_code in (404, 409):
        kind = ServerError
    return kind(text)
