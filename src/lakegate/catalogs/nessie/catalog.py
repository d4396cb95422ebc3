"""Nessie as a :class:`~lakegate.ports.Catalog`."""

from __future__ import annotations

import getpass
import logging
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from lakegate.catalogs import nothing_committed, require_zone
from lakegate.catalogs.nessie import client
from lakegate.catalogs.nessie.client import NO_SUCH_KEY, NessieClient, Request, key_text, path_of
from lakegate.credentials.tokens import ClientCredentials, Token
from lakegate.errors import IdentifierError, InputError, NotFoundError
from lakegate.model.identifiers import REF_NAME, TableIdentifier, is_commit_hash, validate_ref_name
from lakegate.model.refs import NO_SNAPSHOT, Commit, CommitRequest, Ref, RefKind, TableDifference, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY

if TYPE_CHECKING:
    import httpx

_LOG = logging.getLogger(__name__)
_TABLE = "ICEBERG_TABLE"
_NAMESPACE = "NAMESPACE"
_FIRST_PAGE = 25
_KINDS: Mapping[str, RefKind] = {"BRANCH": "branch", "TAG": "tag", "DETACHED": "detached"}


class NessieCatalog:
    """References, commits and table pointers in a Nessie server, over its REST API v2.

    Args:
        uri: Address of the API, ``https://host/api/v2``.
        warehouse: Root of the tables' files, such as ``file:///…``; passed on to Spark.
        token: Bearer token. Only :meth:`spark_options` reveals it, so that Spark can authenticate.
        page_size: Records to request per page. The first pages of a history are smaller.

    Raises:
        ConfigurationError: If ``uri`` can't be used. No request is sent yet; see :meth:`ping`.
    """

    def __init__(
        self,
        uri: str,
        warehouse: str,
        *,
        token: Token | None = None,
        timeout_s: float = 30.0,
        page_size: int = 1000,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._client = NessieClient(uri, token=token, timeout_s=timeout_s, page_size=page_size, transport=transport)
        self._uri = uri.rstrip("/")
        self._warehouse = warehouse
        self._token = token

    def __repr__(self) -> str:
        return f"NessieCatalog({self._client.server!r}, {self._warehouse!r})"

    def ping(self) -> client.ServerConfiguration:
        """Read the server's configuration, the cheapest proof that it's reachable and accepts the token.

        Raises:
            ConfigurationError: If something other than Nessie's API v2 responds, or the token is refused.
        """
        return self._client.configuration()

    def identity(self) -> str | None:
        """Return the repository's creation time, which stays the same when servers or addresses change.

        It's asked once: who connects to another repository makes another catalog.
        """
        return self._identity

    @cached_property
    def _identity(self) -> str | None:
        created = self.ping().repository_creation_timestamp
        return None if created is None else f"nessie:{created}"

    def get_ref(self, name: str) -> Ref:
        """Return branch or tag ``name``, or the bare commit; see :meth:`lakegate.ports.Catalog.get_ref`."""
        if is_commit_hash(name):
            self._newest_commit(path_of("", name))
            return Ref(name=name, hash=name, kind="detached")
        request = Request(f"find branch or tag '{name}'", ref=name)
        return _ref(self._client.read(f"trees/{path_of(_valid_name(name))}", request, client.ReferenceAnswer).reference)

    def list_refs(self) -> Iterator[Ref]:
        """Yield all branches and tags, page by page."""
        for page in self._client.pages("trees", Request("list branches and tags"), client.ReferencesPage):
            yield from map(_ref, page.references)

    def create_branch(self, name: str, source: Ref) -> Ref:
        """Create a branch at ``source.hash``; see :meth:`lakegate.ports.Catalog.create_branch`."""
        return self._create("BRANCH", validate_ref_name(name), source.hash)

    def create_tag(self, name: str, source: Ref) -> Ref:
        """Create a tag at ``source.hash``. Raises what :meth:`create_branch` does."""
        return self._create("TAG", validate_ref_name(name), source.hash)

    def assign_ref(self, ref: Ref, target: Ref) -> Ref:
        """Point ``ref`` at ``target.hash``; see :meth:`lakegate.ports.Catalog.assign_ref`."""
        return self._move(ref, "PUT", f"move {ref.kind} '{ref.name}' to {target.hash[:12]}", _detached(target.hash))

    def delete_ref(self, ref: Ref) -> None:
        """Delete ``ref`` if it is still at ``ref.hash``; see :meth:`lakegate.ports.Catalog.delete_ref`."""
        self._move(ref, "DELETE", f"delete {ref.kind} '{ref.name}'")

    def history(
        self, ref: str, *, until: str | None = None, run_id: str | None = None, operations: bool = False
    ) -> Iterator[Commit]:
        """Yield commits, newest first; see :meth:`lakegate.ports.Catalog.history`.

        The server stops at ``until``, even with a filter. If ``until`` isn't in the history of ``ref``, nothing stops
        it.
        """
        path = f"trees/{_ref_path(ref)}/history"
        parameters = {
            "limit-hash": until,
            "filter": None if run_id is None else _has_run_id(run_id),
            "fetch": "ALL" if operations else None,
        }
        request_info = Request("read the history", ref=ref)
        # Most callers need only the newest commits. With a filter, the server scans commits until the page is full, so
        # a page of one ends the scan at the first match.
        first = 1 if run_id is not None else _FIRST_PAGE
        pages = self._client.pages(path, request_info, client.HistoryPage, parameters, first=first)
        return (_commit(entry) for page in pages for entry in page.log_entries if entry.commit_meta.hash != until)

    def resolve(self, ref: str, at: str | datetime | None) -> Ref:
        """Return the commit of ``ref`` to read at; see :meth:`lakegate.ports.Catalog.resolve`.

        With an explicit ``at`` the result is pinned: its kind is ``detached`` although its name is ``ref``. A hash may
        name any existing commit, even one that ``ref`` no longer contains.
        """
        if at is None:
            return self.get_ref(ref)
        if isinstance(at, str):
            return self._resolve_hash(ref, at)
        require_zone(ref, at)
        # Commit times have nanoseconds, Python's only microseconds. A time read from a commit must find that commit.
        instant = f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}999Z"
        found = self._newest_commit(f"{_ref_path(ref)}*{instant}")
        if found is None:
            raise nothing_committed(ref, at)
        return Ref(name=ref, hash=found, kind="detached")

    def list_tables(self, ref: Ref) -> Iterator[TablePointer]:
        """Yield every table at ``ref.hash``. Tables whose names lakegate doesn't allow are skipped."""
        for entry in self._entries(ref, _TABLE, content=True):
            pointer = _pointer(entry.name, entry.content)
            if pointer is None:
                _LOG.debug("skipping %s: not a table identifier", key_text(entry.name.elements))
            else:
                yield pointer

    def list_namespaces(self, ref: Ref) -> Iterator[tuple[str, ...]]:
        """Yield every namespace that exists at ``ref.hash``."""
        return (entry.name.elements for entry in self._entries(ref, _NAMESPACE, content=False))

    def get_table(self, table: TableIdentifier, ref: Ref) -> TablePointer | None:
        """Return the state of ``table`` at ``ref.hash``; ``None`` if it doesn't exist there.

        Raises:
            InputError: If the key holds something else, such as a view or a namespace.
        """
        return self.get_tables([table], ref)[table]

    def get_tables(
        self, tables: Collection[TableIdentifier], ref: Ref
    ) -> Mapping[TableIdentifier, TablePointer | None]:
        """Return the state of each of ``tables`` at ``ref.hash`` in one request. Raises what :meth:`get_table` does."""
        return self._tables(_pinned_path(ref), tables, ref)[1] if tables else {}

    def get_ref_with_tables(
        self, name: str, tables: Collection[TableIdentifier]
    ) -> tuple[Ref, Mapping[TableIdentifier, TablePointer | None]]:
        """Return a reference and the state of each of ``tables`` at its head. Raises what :meth:`get_table` does."""
        return self._tables(path_of(_valid_name(name)), tables)

    def commit(self, request: CommitRequest) -> Ref:
        """Apply ``request`` in one atomic commit; see :meth:`lakegate.ports.Catalog.commit`.

        A table in ``unchanged`` that didn't exist at ``base`` counts as changed by *any* commit made to the branch
        after ``base``: Nessie can't express "still doesn't exist".
        """
        if not is_commit_hash(request.base):
            raise InputError(
                f"'{request.base}' isn't a commit hash; can't commit to branch '{request.branch}'.",
                branch=request.branch,
            )
        request_info = Request(
            f"commit to branch '{request.branch}'", ref=request.branch, hash=request.base, commits=True
        )
        path = f"trees/{path_of(_valid_name(request.branch), request.base)}/history/commit"
        meta = {
            "message": request.message,
            "authors": [_author()],
            "allProperties": {key: [value] for key, value in request.properties.items()},
        }
        body = {"commitMeta": meta, "operations": _operations(request)}
        return _ref(self._client.change("POST", path, request_info, client.CommitAnswer, body=body).target_branch)

    def diff(self, left: Ref, right: Ref) -> Iterator[TableDifference]:
        """Yield the keys that differ between two commits."""
        request = Request("compare two commits", ref=left.name)
        for page in self._client.pages(
            f"trees/{_pinned_path(left)}/diff/{_pinned_path(right)}", request, client.DiffPage
        ):
            yield from map(_difference, page.diffs)

    def spark_options(self, ref: Ref | None = None) -> Mapping[str, str]:
        """Return the options of a Spark catalog bound to ``ref``; the key ``""`` is the catalog's class.

        A branch or tag is bound by name, so that it can be written to. A detached ``ref`` is pinned to its commit. The
        options may hold a token or client secret: never log them.
        """
        options = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            "type": "nessie",
            "uri": self._uri,
            "ref": "main" if ref is None or is_commit_hash(ref.name) else ref.name,
            "warehouse": self._warehouse,
            # A cached table would hide a publish for up to 30 s.
            "cache-enabled": "false",
        }
        if ref is not None and ref.kind == "detached":
            options["ref.hash"] = ref.hash
        return {**options, **spark_authentication(self._token)}

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._client.close()

    def _create(self, kind: str, name: str, at: str) -> Ref:
        request = Request(f"create {kind.lower()} '{name}' at {at[:12]}", ref=name, hash=at)
        parameters = {"name": name, "type": kind}
        answer = self._client.change("POST", "trees", request, client.ReferenceAnswer, parameters, _detached(at))
        return _ref(answer.reference)

    def _move(self, ref: Ref, method: str, task: str, body: client.JsonObject | None = None) -> Ref:
        """Assign or delete ``ref`` if it's still at ``ref.hash``."""
        if ref.kind == "detached":
            raise InputError(f"'{ref.name}' at {ref.hash[:12]} is a bare commit, not a branch or tag.", ref=ref.name)
        path = f"trees/{path_of(_valid_name(ref.name), ref.hash)}"
        request = Request(task, ref=ref.name, hash=ref.hash)
        parameters = {"type": ref.kind.upper()}
        return _ref(self._client.change(method, path, request, client.ReferenceAnswer, parameters, body).reference)

    def _resolve_hash(self, ref: str, commit: str) -> Ref:
        if not is_commit_hash(commit):
            raise InputError(
                f"'{commit}' isn't a commit hash.", hint=f"See hashes with 'lakegate log {ref}'.", ref=ref, at=commit
            )
        if ref != commit and not is_commit_hash(ref):
            self.get_ref(ref)
        self._newest_commit(path_of("", commit))
        return Ref(name=ref, hash=commit, kind="detached")

    def _newest_commit(self, at: str) -> str | None:
        """Return the hash of the newest commit of a history; ``None`` if it's empty."""
        request = Request(f"find commit {at}", ref=at)
        page = self._client.read(f"trees/{at}/history", request, client.HistoryPage, {"max-records": "1"})
        return page.log_entries[0].commit_meta.hash if page.log_entries else None

    def _entries(self, ref: Ref, content_type: str, *, content: bool) -> Iterator[client.ContentEntry]:
        """Yield the keys of one content type, with their contents if ``content``."""
        parameters = {"filter": f"entry.contentType == '{content_type}'", "content": str(content).lower()}
        request = Request("list tables and namespaces", ref=ref.name)
        for page in self._client.pages(f"trees/{_pinned_path(ref)}/entries", request, client.EntriesPage, parameters):
            yield from page.entries

    def _tables(
        self, at: str, tables: Collection[TableIdentifier], ref: Ref | None = None
    ) -> tuple[Ref, dict[TableIdentifier, TablePointer | None]]:
        """Return the reference that was read (``ref`` if given) and the state of each of ``tables``."""
        request = Request(f"read {', '.join(map(str, tables))}", ref=at)
        # The keys travel in the body, so no name needs escaping.
        body = {"requestedKeys": [{"elements": list(table.parts)} for table in tables]}
        answer = self._client.read(f"trees/{at}/contents", request, client.ContentsAnswer, body=body)
        ref = ref or _ref(answer.effective_reference)
        found = {item.key.elements: item.content for item in answer.contents}
        return ref, {table: _required_table(table, found.get(table.parts), ref) for table in tables}


def _ref(reference: client.Reference) -> Ref:
    return Ref(name=reference.name or reference.hash, hash=reference.hash, kind=_KINDS[reference.type])


def _valid_name(name: str) -> str:
    if REF_NAME.fullmatch(name):  # other strings are expressions: "-" is the default branch, "a~1" a parent
        return name
    raise NotFoundError(
        f"There is no branch or tag '{name}': the catalog doesn't allow this name.",
        hint="'lakegate branch list' shows what exists.",
        ref=name,
    )


def _detached(commit: str) -> client.JsonObject:
    return {"type": "DETACHED", "hash": commit}


def _ref_path(ref: str) -> str:
    return path_of("", ref) if is_commit_hash(ref) else path_of(_valid_name(ref))


def _pinned_path(ref: Ref) -> str:
    return path_of("" if ref.kind == "detached" else _valid_name(ref.name), ref.hash)


def _has_run_id(run_id: str) -> str:
    # In CEL, reading a missing key is an error, and Nessie responds to it with status 500.
    one, value = _cel_string(RUN_ID_PROPERTY), _cel_string(run_id)
    return f"{one} in commit.properties && commit.properties[{one}] == {value}"


def _cel_string(text: str) -> str:
    # Only long escapes: Nessie's CEL misreads literals that mix short ones with characters beyond 16 bits.
    return "'" + "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08x}" for c in text) + "'"


def _commit(entry: client.LogEntry) -> Commit:
    meta = entry.commit_meta
    operations = entry.operations or ()
    put = [(operation.content, _pointer(operation.key, operation.content)) for operation in operations]
    return Commit(
        hash=meta.hash,
        parent=meta.parent_commit_hashes[0] if meta.parent_commit_hashes else None,
        message=meta.message,
        author=", ".join(meta.authors),
        time=meta.commit_time,
        properties={key: ", ".join(values) for key, values in meta.all_properties.items()},
        tables=tuple(key_text(operation.key.elements) for operation in operations),
        puts=tuple(pointer for _, pointer in put if pointer is not None),
        foreign=tuple(
            content.metadata_location
            for content, pointer in put
            if pointer is None and content is not None and content.metadata_location is not None
        ),
    )


def _pointer(key: client.ContentKey, content: client.Content | None) -> TablePointer | None:
    if content is None or content.type != _TABLE or content.metadata_location is None:
        return None
    *namespace, name = key.elements
    try:
        table = TableIdentifier(namespace=tuple(namespace), name=name)
    except IdentifierError:
        return None
    return TablePointer(
        table=table,
        content_id=content.id,
        metadata_location=content.metadata_location,
        snapshot_id=NO_SNAPSHOT if content.snapshot_id is None else content.snapshot_id,
        schema_id=content.schema_id or 0,
        spec_id=content.spec_id or 0,
        sort_order_id=content.sort_order_id or 0,
    )


def _required_table(table: TableIdentifier, content: client.Content | None, ref: Ref) -> TablePointer | None:
    if content is not None and content.type != _TABLE:
        raise InputError(
            f"'{table}' on '{ref.name}' isn't a table but a {content.type.lower().replace('_', ' ')}.",
            hint=f"List the tables with 'lakegate table list --ref {ref.name}'.",
            table=str(table),
            ref=ref.name,
        )
    return _pointer(client.ContentKey(elements=table.parts), content)


def _difference(entry: client.DiffEntry) -> TableDifference:
    left, right = _pointer(entry.key, entry.from_), _pointer(entry.key, entry.to)
    types = {content.type for content in (entry.from_, entry.to) if content is not None}
    kind: Literal["table", "namespace", "other"] = "other"
    if types == {_NAMESPACE}:
        kind = "namespace"
    elif types == {_TABLE} and (left or right):
        kind = "table"
    return TableDifference(table=key_text(entry.key.elements), kind=kind, left=left, right=right)


def _author() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "lakegate"


def _operations(request: CommitRequest) -> list[client.JsonObject]:
    # Nessie allows one operation per key. A put or delete implies UNCHANGED: it conflicts if the key has changed.
    changed = {pointer.table for pointer in request.puts} | set(request.deletes)
    unchanged = [table.parts for table in dict.fromkeys(request.unchanged) if table not in changed]
    found: list[tuple[str, tuple[str, ...], client.JsonObject | None]] = [
        *(("PUT", name, {"type": _NAMESPACE, "elements": list(name)}) for name in request.namespaces),
        *(("PUT", pointer.table.parts, _content(pointer)) for pointer in request.puts),
        *(("DELETE", table.parts, None) for table in request.deletes),
        *(("DELETE", name, None) for name in request.drops),
        *(("UNCHANGED", parts, None) for parts in unchanged),
        *([("UNCHANGED", (NO_SUCH_KEY,), None)] if request.at_head else []),
    ]
    return [
        {"type": kind, "key": {"elements": list(key)}, **({} if content is None else {"content": content})}
        for kind, key, content in found
    ]


def _content(pointer: TablePointer) -> client.JsonObject:
    content: client.JsonObject = {
        "type": _TABLE,
        "metadataLocation": pointer.metadata_location,
        "snapshotId": pointer.snapshot_id,
        "schemaId": pointer.schema_id,
        "specId": pointer.spec_id,
        "sortOrderId": pointer.sort_order_id,
    }
    return content if pointer.content_id is None else {**content, "id": pointer.content_id}


def spark_authentication(token: Token | None) -> Mapping[str, str]:
    """Return the options that authenticate a Spark catalog. They hold the secret: never log them.

    With OAuth 2 client credentials, Spark gets its own access tokens for as long as the session lives. Any other token
    is passed with its current value. Spark redacts options with these names wherever it shows its settings
    (``spark.redaction.regex``).
    """
    if token is None:
        return {}
    if not isinstance(token, ClientCredentials):
        return {"authentication.type": "BEARER", "authentication.token": token.value()}
    options = {
        "authentication.type": "OAUTH2",
        "authentication.oauth2.token-endpoint": token.endpoint,
        "authentication.oauth2.client-id": token.client_id,
        "authentication.oauth2.client-secret": token.secret.value(),
    }
    return options if token.scope is None else {**options, "authentication.oauth2.client-scopes": token.scope}
