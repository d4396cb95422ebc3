"""The :class:`~lakegate.protocols.Catalog` on Nessie."""

from __future__ import annotations

import getpass
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from lakegate.catalogs.nessie import models
from lakegate.catalogs.nessie.answers import key_text
from lakegate.catalogs.nessie.authentication import spark_authentication
from lakegate.catalogs.nessie.client import NessieClient, path_of
from lakegate.credentials.tokens import Token
from lakegate.errors import IdentifierError, InputError, NotFoundError
from lakegate.model.identifiers import TableIdentifier, is_commit_hash, validate_ref_name
from lakegate.model.refs import Commit, CommitRequest, Ref, RefKind, TableDifference, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY

if TYPE_CHECKING:
    import httpx

_LOG = logging.getLogger(__name__)
_TABLE = "ICEBERG_TABLE"
_NAMESPACE = "NAMESPACE"
_KINDS: Mapping[str, RefKind] = {"BRANCH": "branch", "TAG": "tag", "DETACHED": "detached"}
# Nessie's Validation.REF_NAME_PATTERN. Other texts are expressions to it: "-" is the default branch, "a~1" a parent.
_LOOKS_LIKE_NAME = re.compile(r"[A-Za-z](?:(?:(?!\.\.)[A-Za-z0-9./_-])*[A-Za-z0-9_-])?")


class NessieCatalog:
    """References, commits and table pointers in a Nessie server, over its REST API v2.

    Args:
        uri: Address of the API, ``https://host/api/v2``.
        warehouse: Root of the tables' files, ``file:///…``; passed on to Spark.
        token: Bearer token; shown nowhere but in :meth:`spark_options`, which Spark needs to authenticate itself.
        timeout_s: Seconds to wait for one answer.
        page_size: Records to ask for in one page.
        transport: Replaces the network, for tests.

    Raises:
        ConfigurationError: When ``uri`` cannot be used. Nothing is sent yet; see :meth:`ping`.
    """

    def __init__(
        self,
        uri: str,
        warehouse: str,
        *,
        token: Token | None = None,
        timeout_s: float = 30.0,
        page_size: int = 250,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._client = NessieClient(uri, token=token, timeout_s=timeout_s, page_size=page_size, transport=transport)
        self._uri = uri.rstrip("/")
        self._warehouse = warehouse
        self._token = token

    def __repr__(self) -> str:
        return f"NessieCatalog({self._client.server!r}, {self._warehouse!r})"

    def ping(self) -> models.Configuration:
        """Ask the server for its configuration, the cheapest proof that it is there and that the token is accepted.

        Raises:
            CatalogUnavailableError: When it does not answer.
            ConfigurationError: When something else than Nessie's API v2 answers, or the token is refused.
        """
        return self._client.configuration()

    def get_ref(self, name: str) -> Ref:
        """Return branch or tag ``name``, or the bare commit; see :meth:`lakegate.protocols.Catalog.get_ref`."""
        if is_commit_hash(name):
            self._client.newest_commit(path_of("", name))
            return Ref(name=name, hash=name, kind="detached")
        return _ref(self._client.get_reference(_looked_up(name)))

    def list_refs(self) -> Iterator[Ref]:
        """Yield all branches and tags, fetching page by page."""
        return (_ref(reference) for reference in self._client.list_references())

    def create_branch(self, name: str, source: Ref) -> Ref:
        """Create a branch at ``source.hash``; see :meth:`lakegate.protocols.Catalog.create_branch`.

        Raises:
            IdentifierError: When ``name`` cannot name a branch.
        """
        return _ref(self._client.create_reference(validate_ref_name(name), "BRANCH", source.hash))

    def create_tag(self, name: str, source: Ref) -> Ref:
        """Create a tag at ``source.hash``; raises as :meth:`create_branch`."""
        return _ref(self._client.create_reference(validate_ref_name(name), "TAG", source.hash))

    def assign_ref(self, ref: Ref, target: Ref) -> Ref:
        """Point ``ref`` at ``target.hash``; see :meth:`lakegate.protocols.Catalog.assign_ref`."""
        return _ref(self._client.assign_reference(_looked_up(ref.name), _movable(ref), ref.hash, target.hash))

    def delete_ref(self, ref: Ref) -> None:
        """Delete ``ref`` if it still stands at ``ref.hash``; see :meth:`lakegate.protocols.Catalog.delete_ref`."""
        self._client.delete_reference(_looked_up(ref.name), _movable(ref), ref.hash)

    def history(
        self, ref: str, *, until: str | None = None, run_id: str | None = None, operations: bool = False
    ) -> Iterator[Commit]:
        """Yield commits, newest first; see :meth:`lakegate.protocols.Catalog.history`.

        The server looks no further than ``until``, with a filter too. An ``until`` that is not in the history of
        ``ref`` stops nothing.
        """
        cel = None if run_id is None else _has_run_id(run_id)
        entries = self._client.history(_spot(ref), limit_hash=until, cel=cel, operations=operations)
        return (_commit(entry) for entry in entries if entry.commit_meta.hash != until)

    def resolve(self, ref: str, at: str | datetime | None) -> Ref:
        """Return the commit of ``ref`` to read at; see :meth:`lakegate.protocols.Catalog.resolve`.

        With an explicit ``at`` the answer is pinned: its kind is ``detached`` though its name is ``ref``. A commit
        hash may be of any commit that exists, also of one that ``ref`` has left behind.

        Raises:
            InputError: When ``at`` is a time without zone, or a text that is not a commit hash.
        """
        if at is None:
            return self.get_ref(ref)
        if isinstance(at, str):
            return self._resolve_hash(ref, at)
        if at.tzinfo is None:
            raise InputError(f"The time {at} has no zone.", hint="Write it as 2026-01-31T07:00:00Z.", ref=ref)
        # Commit times have nanoseconds, ours microseconds: a time taken from a commit must find that commit.
        instant = f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}999Z"
        found = self._client.newest_commit(f"{_spot(ref)}*{instant}")
        if found is None:
            raise NotFoundError(
                f"Nothing was committed to '{ref}' by {at.isoformat()}.",
                hint=f"See when its commits were made with 'lakegate log {ref}'.",
                ref=ref,
                at=at.isoformat(),
            )
        return Ref(name=ref, hash=found, kind="detached")

    def list_tables(self, ref: Ref) -> Iterator[TablePointer]:
        """Yield every table as it stands at ``ref.hash``. Tables whose names lakegate does not allow are skipped."""
        for entry in self._client.list_entries(_at(ref), _TABLE, content=True):
            pointer = _pointer(entry.name, entry.content)
            if pointer is None:
                _LOG.debug("skipping %s: not a table identifier", key_text(entry.name.elements))
            else:
                yield pointer

    def list_namespaces(self, ref: Ref) -> Iterator[tuple[str, ...]]:
        """Yield every namespace that exists at ``ref.hash``."""
        return (entry.name.elements for entry in self._client.list_entries(_at(ref), _NAMESPACE, content=False))

    def get_table(self, table: TableIdentifier, ref: Ref) -> TablePointer | None:
        """Return where ``table`` stands at ``ref.hash``; ``None`` when it does not exist there.

        Raises:
            InputError: When the key holds something else, such as a view or a namespace.
        """
        return self.get_tables([table], ref)[table]

    def get_tables(
        self, tables: Collection[TableIdentifier], ref: Ref
    ) -> Mapping[TableIdentifier, TablePointer | None]:
        """Return where each of ``tables`` stands at ``ref.hash``, in one request; raises as :meth:`get_table`."""
        if not tables:
            return {}
        _, contents = self._client.get_contents(_at(ref), [table.parts for table in tables])
        return {table: _required_table(table, contents.get(table.parts), ref) for table in tables}

    def get_ref_with_tables(
        self, name: str, tables: Collection[TableIdentifier]
    ) -> tuple[Ref, Mapping[TableIdentifier, TablePointer | None]]:
        """Return a reference and where each of ``tables`` stands at its head; raises also as :meth:`get_table`."""
        found, contents = self._client.get_contents(path_of(_looked_up(name)), [table.parts for table in tables])
        ref = _ref(found)
        return ref, {table: _required_table(table, contents.get(table.parts), ref) for table in tables}

    def commit(self, request: CommitRequest) -> Ref:
        """Apply ``request`` in one atomic commit; see :meth:`lakegate.protocols.Catalog.commit`.

        A table in ``unchanged`` that did not exist at ``base`` is held to be changed by *any* commit made to the branch
        after ``base``: Nessie cannot express "still does not exist".

        Raises:
            InputError: When the request has no operation, or two for one key.
        """
        if not is_commit_hash(request.base):
            raise InputError(
                f"'{request.base}' is not a commit hash; cannot commit to branch '{request.branch}'.",
                branch=request.branch,
            )
        body = {"commitMeta": _meta(request), "operations": _operations(request)}
        return _ref(self._client.commit(_looked_up(request.branch), request.base, body))

    def diff(self, left: Ref, right: Ref) -> Iterator[TableDifference]:
        """Yield the keys that stand differently at two commits."""
        return (_difference(entry) for entry in self._client.diff(_at(left), _at(right)))

    def spark_options(self, ref: Ref | None = None) -> Mapping[str, str]:
        """Return the options of a Spark catalog bound to ``ref``; the key ``""`` is the catalog's own class.

        A branch or tag is bound by name, so that it can be written to; a detached ``ref`` is pinned to its commit.
        Holds the token or the client's secret when there is one: never log it.
        """
        options = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            "type": "nessie",
            "uri": self._uri,
            "ref": "main" if ref is None or is_commit_hash(ref.name) else ref.name,
            "warehouse": self._warehouse,
            # Cached tables would hide a publish for 30 s.
            "cache-enabled": "false",
        }
        if ref is not None and ref.kind == "detached":
            options["ref.hash"] = ref.hash
        return {**options, **spark_authentication(self._token)}

    def close(self) -> None:
        """Release connections. Idempotent."""
        self._client.close()

    def _resolve_hash(self, ref: str, commit: str) -> Ref:
        if not is_commit_hash(commit):
            raise InputError(
                f"'{commit}' is not a commit hash.", hint=f"See hashes with 'lakegate log {ref}'.", ref=ref, at=commit
            )
        if ref != commit and not is_commit_hash(ref):
            self._client.get_reference(_looked_up(ref))
        self._client.newest_commit(path_of("", commit))
        return Ref(name=ref, hash=commit, kind="detached")


def _ref(reference: models.Reference) -> Ref:
    return Ref(name=reference.name or reference.hash, hash=reference.hash, kind=_KINDS[reference.type])


def _looked_up(name: str) -> str:
    if _LOOKS_LIKE_NAME.fullmatch(name):
        return name
    raise NotFoundError(
        f"There is no branch or tag '{name}': it is not a name the catalog allows.",
        hint="'lakegate branch list' shows what exists.",
        ref=name,
    )


def _movable(ref: Ref) -> Literal["BRANCH", "TAG"]:
    if ref.kind == "detached":
        raise InputError(f"'{ref.name}' at {ref.hash[:12]} is a bare commit, not a branch or tag.", ref=ref.name)
    return "BRANCH" if ref.kind == "branch" else "TAG"


def _spot(ref: str) -> str:
    return path_of("", ref) if is_commit_hash(ref) else path_of(_looked_up(ref))


def _at(ref: Ref) -> str:
    return path_of("" if ref.kind == "detached" else _looked_up(ref.name), ref.hash)


def _has_run_id(run_id: str) -> str:
    # A key that is missing from the map is an error in CEL, which Nessie answers with 500.
    key, value = _cel_string(RUN_ID_PROPERTY), _cel_string(run_id)
    return f"{key} in commit.properties && commit.properties[{key}] == {value}"


def _cel_string(text: str) -> str:
    # Long escapes only: Nessie's CEL misreads literals that mix short ones with characters beyond 16 bits.
    return "'" + "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08x}" for c in text) + "'"


def _commit(entry: models.LogEntry) -> Commit:
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


def _pointer(key: models.ContentKey, content: models.Content | None) -> TablePointer | None:
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
        snapshot_id=-1 if content.snapshot_id is None else content.snapshot_id,
        schema_id=content.schema_id or 0,
        spec_id=content.spec_id or 0,
        sort_order_id=content.sort_order_id or 0,
    )


def _required_table(table: TableIdentifier, content: models.Content | None, ref: Ref) -> TablePointer | None:
    if content is not None and content.type != _TABLE:
        raise InputError(
            f"'{table}' on '{ref.name}' is not a table but {content.type.lower().replace('_', ' ')}.",
            hint=f"See the tables there are with 'lakegate table list --ref {ref.name}'.",
            table=str(table),
            ref=ref.name,
        )
    return _pointer(models.ContentKey(elements=table.parts), content)


def _difference(entry: models.DiffEntry) -> TableDifference:
    left, right = _pointer(entry.key, entry.from_), _pointer(entry.key, entry.to)
    types = {content.type for content in (entry.from_, entry.to) if content is not None}
    kind: Literal["table", "namespace", "other"] = "other"
    if types == {_NAMESPACE}:
        kind = "namespace"
    elif types == {_TABLE} and (left or right):
        kind = "table"
    return TableDifference(table=key_text(entry.key.elements), kind=kind, left=left, right=right)


def _meta(request: CommitRequest) -> models.JsonObject:
    return {
        "message": request.message,
        "authors": [_author()],
        "allProperties": {key: [value] for key, value in request.properties.items()},
    }


def _author() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "lakegate"


def _operations(request: CommitRequest) -> list[models.JsonObject]:
    changed = {pointer.table for pointer in request.puts} | set(request.deletes)
    operations = [
        {
            "type": "PUT",
            "key": {"elements": list(namespace)},
            "content": {"type": _NAMESPACE, "elements": list(namespace)},
        }
        for namespace in request.namespaces
    ]
    operations += [
        {"type": "PUT", "key": {"elements": list(pointer.table.parts)}, "content": _content(pointer)}
        for pointer in request.puts
    ]
    operations += [{"type": "DELETE", "key": {"elements": list(table.parts)}} for table in request.deletes]
    # Nessie allows one operation a key; a put or delete relies on the key as much as UNCHANGED would.
    operations += [
        {"type": "UNCHANGED", "key": {"elements": list(table.parts)}}
        for table in dict.fromkeys(request.unchanged)
        if table not in changed
    ]
    return operations


def _content(pointer: TablePointer) -> models.JsonObject:
    content: models.JsonObject = {
        "type": _TABLE,
        "metadataLocation": pointer.metadata_location,
        "snapshotId": pointer.snapshot_id,
        "schemaId": pointer.schema_id,
        "specId": pointer.spec_id,
        "sortOrderId": pointer.sort_order_id,
    }
    return content if pointer.content_id is None else {**content, "id": pointer.content_id}
