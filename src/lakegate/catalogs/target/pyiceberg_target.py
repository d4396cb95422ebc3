"""Any catalog that PyIceberg knows, as a target: one table at a time, by Iceberg's requirements and updates."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from threading import RLock

from pydantic import TypeAdapter
from pyiceberg.catalog import LOCATION, Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationError,
)
from pyiceberg.io import load_file_io
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableRequirement, TableUpdate

from lakegate.catalogs.rules import Key
from lakegate.catalogs.target.capabilities import Capabilities, by_pyiceberg
from lakegate.catalogs.target.targets import StaleError, Step
from lakegate.catalogs.target.updates import Asked, updates_between
from lakegate.errors import (
    CatalogUnavailableError,
    ConfigurationError,
    IdentifierError,
    InputError,
    LakegateError,
    OutcomeUnknownError,
)
from lakegate.iceberg import metadata
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.metadata import Document
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import NO_SNAPSHOT, TablePointer
from lakegate.progress import without_secrets

_REQUIREMENTS: TypeAdapter[tuple[TableRequirement, ...]] = TypeAdapter(tuple[TableRequirement, ...])
_UPDATES: TypeAdapter[tuple[TableUpdate, ...]] = TypeAdapter(tuple[TableUpdate, ...])
_MOVED = (CommitFailedException, TableAlreadyExistsError, NoSuchTableError)
_DENIED = (ForbiddenError, UnauthorizedError, AuthorizationExpiredError, OAuthError)
_DENIED_BY_SQL = ("readonly database", "'42501'", "'25006'", "'28P01'", "'28000'")
"""What SQLite says, and Postgres's codes: no right, a read-only transaction, no sign-in."""
_REFUSED = (BadRequestError, NotImplementedError, ValidationError, ValueError)
_OTHERS_WROTE = ("sequence number", "first-row-id", "first row id", "equirement failed")
"""Words in refusals that mean that somebody else wrote to the table, to another reference of it for instance."""


class PyIcebergTarget:
    """A catalog of PyIceberg; implements :class:`~lakegate.catalogs.target.targets.Target`.

    Args:
        files: Reads the tables' metadata.
        identity: What distinguishes the catalog from others. It's shown and stored: no secret may be in it.
        capabilities: What it can do. Default: what PyIceberg's class of this catalog can.
    """

    def __init__(
        self, catalog: Catalog, files: TableFiles, identity: str, capabilities: Capabilities | None = None
    ) -> None:
        self.capabilities = capabilities or by_pyiceberg(type(catalog).__name__)
        self._catalog = catalog
        self._files = files
        self._identity = identity
        # PyIceberg has one connection to Hive, which a second thread would close under the first.
        self._turn = RLock() if type(catalog).__name__ == "HiveCatalog" else nullcontext()

    def identity(self) -> str:
        """Return what distinguishes this catalog from others."""
        return self._identity

    def check(self, steps: Sequence[Step]) -> None:
        """Refuse steps that the product can't make."""
        for step in steps:
            self.capabilities.check(step)

    def tables(self, names: Collection[TableIdentifier]) -> Mapping[TableIdentifier, TablePointer | None]:
        """Return the state of each table now; see :meth:`lakegate.catalogs.target.targets.Target.tables`."""
        return {name: self._table(name) for name in names}

    def list_tables(self) -> Iterator[TableIdentifier]:
        """Yield all tables whose names lakegate allows."""
        for namespace in self.list_namespaces():
            with self._answers(f"list the tables of {'.'.join(namespace)}"):
                found = self._catalog.list_tables(namespace)
            for *parents, name in found:
                try:
                    yield TableIdentifier(namespace=tuple(parents), name=name)
                except IdentifierError:
                    continue

    def list_namespaces(self) -> Iterator[Key]:
        """Yield all namespaces whose names lakegate allows."""
        return self._namespaces_below(())

    def folder(self, namespace: Key) -> str | None:
        """Return the folder that the catalog has for a namespace's tables; ``None`` if it doesn't say."""
        with self._answers(f"load namespace {'.'.join(namespace)}"):
            try:
                found = self._catalog.load_namespace_properties(namespace).get(LOCATION)
            except (NoSuchNamespaceError, NotImplementedError):
                return None
        return found.rstrip("/") if found else None

    def has_namespace(self, name: Key) -> bool:
        """Return whether a namespace exists."""
        with self._answers(f"find namespace {'.'.join(name)}"):
            return self._catalog.namespace_exists(name)

    def create_namespace(self, name: Key) -> None:
        """Create a namespace if it doesn't exist."""
        hint = "If it goes on, create the namespace in the catalog, and try again."
        with self._answers(f"create namespace {'.'.join(name)}", hint):
            self._catalog.create_namespace_if_not_exists(name)

    def document(self, pointer: TablePointer) -> Document:
        """Return the metadata file at ``pointer``."""
        return self._files.metadata(pointer).document

    def writers(self, pointer: TablePointer) -> frozenset[int]:
        """Return the ids of the snapshots that wrote the manifests of a table."""
        snapshot = metadata.snapshot_of(self.document(pointer), pointer)
        listed = () if snapshot is None else self._files.manifest_list(snapshot, pointer).manifests
        return frozenset(one.file.added_snapshot_id for one in listed if one.file.added_snapshot_id is not None)

    def access(self, pointer: TablePointer) -> Document:  # noqa: ARG002 - REST catalogs give something
        """Return nothing: readers have their own credentials."""
        return {}

    def apply(self, steps: Sequence[Step]) -> Sequence[TablePointer | None]:
        """Make one step; see :meth:`lakegate.catalogs.target.targets.Target.apply`."""
        (step,) = steps
        if step.staged is None:
            if step.base is not None:
                self._require(step.base)
                self._drop(step.table)
            return [None]
        asked = self._asked(step, step.staged)
        if step.base is not None and step.old_name is not None:
            self._require(step.base)
            self._rename(step.old_name, step.table)
        if step.base is not None and step.base.metadata_location == step.staged.metadata_location:
            return [step.staged]
        if step.base is None:
            self.create_namespace(step.table.namespace)
        return [self._commit(step.table, step.staged, asked, creates=step.base is None)]

    def _asked(self, step: Step, staged: TablePointer) -> Asked:
        document, newest = self.document(staged), self.capabilities.newest_version
        if document["format-version"] > newest:
            raise InputError(
                f"Table {step.table} has format version {document['format-version']}, and {self._identity} can be "
                f"written up to version {newest} only.",
                hint=f"Create the table with format version {newest}.",
                table=str(step.table),
            )
        base = None if step.base is None else self.document(step.base)
        return updates_between(base, document, step.table)

    def close(self) -> None:
        """Release connections. Idempotent."""
        self._catalog.close()

    def _drop(self, table: TableIdentifier) -> None:
        with self._commits(table):
            self._catalog.drop_table(table.parts)

    def _rename(self, table: TableIdentifier, name: TableIdentifier) -> None:
        with self._commits(table):
            try:
                self._catalog.rename_table(table.parts, name.parts)
            except NoSuchNamespaceError as error:
                reason = reason_of(error)
                raise InputError(
                    f"{self._identity} can't rename {table} to {name}: {reason}.", table=str(table)
                ) from error

    def _require(self, base: TablePointer) -> None:
        """Look at the table once more: neither a drop nor a rename can be made to depend on its state."""
        now = self._table(base.table)
        if now is None or now.metadata_location != base.metadata_location:
            raise StaleError(base.table, "it has changed")

    def _commit(self, name: TableIdentifier, staged: TablePointer, asked: Asked, *, creates: bool) -> TablePointer:
        requirements = _REQUIREMENTS.validate_python(tuple(asked.requirements))
        updates = _UPDATES.validate_python(tuple(asked.updates))
        with self._commits(name):
            table = self._new_table(name, staged) if creates else self._catalog.load_table(name.parts)
            answer = self._catalog.commit_table(table, requirements, updates)
        try:
            return self._pointer(name, answer.metadata_location)
        except LakegateError as error:
            raise OutcomeUnknownError(
                f"Table {name} was published, but its metadata can't be read: {error.message}",
                hint="The next command that reads the lake looks again.",
                table=str(name),
            ) from error

    def _new_table(self, name: TableIdentifier, staged: TablePointer) -> Table:
        document = TableMetadataUtil.parse_obj(dict(self.document(staged)))
        io = load_file_io(self._catalog.properties, document.location)
        return StagedTable(name.parts, document, staged.metadata_location, io, self._catalog)

    def _table(self, name: TableIdentifier) -> TablePointer | None:
        with self._answers(f"load table {name}"):
            try:
                location = self._catalog.load_table(name.parts).metadata_location
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
        return self._pointer(name, location)

    def _pointer(self, name: TableIdentifier, location: str) -> TablePointer:
        """Return the state of a table by its metadata file."""
        unread = TablePointer(
            table=name,
            content_id=None,
            metadata_location=location,
            snapshot_id=NO_SNAPSHOT,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )
        document = self.document(unread)
        snapshot = document.get("current-snapshot-id")
        return unread.model_copy(
            update={
                "content_id": document["table-uuid"],
                "snapshot_id": NO_SNAPSHOT if snapshot is None else snapshot,
                "schema_id": document.get("current-schema-id") or 0,
                "spec_id": document.get("default-spec-id") or 0,
                "sort_order_id": document.get("default-sort-order-id") or 0,
            }
        )

    def _namespaces_below(self, parent: Key) -> Iterator[Key]:
        with self._answers("list namespaces"):
            found = self._catalog.list_namespaces(parent)
        for name in sorted(found):
            if not any("." in part for part in name):  # its name as text would be that of another one
                yield tuple(name)
                yield from self._namespaces_below(tuple(name))

    @contextmanager
    def _answers(self, task: str, hint: str | None = None) -> Iterator[None]:
        """Translate errors of requests that change no table."""
        try:
            with self._turn:
                yield
        except LakegateError:
            raise
        except NamespaceAlreadyExistsError:
            return
        except Exception as error:  # each of PyIceberg's catalogs has errors of its own
            if is_denied(error):
                raise self._denied(task, error) from error
            raise CatalogUnavailableError(f"{self._identity} didn't {task}: {reason_of(error)}.", hint=hint) from error

    @contextmanager
    def _commits(self, table: TableIdentifier) -> Iterator[None]:
        """Translate errors of a request that changes a table. Any other than a refusal may have come too late."""
        try:
            with self._turn:
                yield
        except LakegateError:
            raise
        except _MOVED as error:
            raise StaleError(table, reason_of(error)) from error
        except _DENIED as error:
            raise self._denied(f"change table {table}", error) from error
        except TooManyRequestsError as error:
            raise CatalogUnavailableError(
                f"{self._identity} is too busy to change table {table}: {reason_of(error)}.", hint="Try again later."
            ) from error
        except _REFUSED as error:
            if any(words in str(error) for words in _OTHERS_WROTE):
                raise StaleError(table, reason_of(error)) from error
            raise InputError(
                f"{self._identity} refused the change of table {table}: {reason_of(error)}.", table=str(table)
            ) from error
        except Exception as error:
            raise OutcomeUnknownError(
                f"{self._identity} gave no answer to the change of table {table}: {reason_of(error)}.",
                hint="The next command that reads the lake finds out whether it was published.",
                table=str(table),
            ) from error

    def _denied(self, task: str, error: Exception) -> ConfigurationError:
        return ConfigurationError(
            f"{self._identity} doesn't let this user {task}: {reason_of(error)}.",
            hint="Check the catalog's credentials and the user's rights.",
        )


def is_denied(error: Exception) -> bool:
    """Return whether an error of another program means that a user can't sign in or lacks a right."""
    return isinstance(error, _DENIED) or any(words in str(getattr(error, "orig", "")) for words in _DENIED_BY_SQL)


def reason_of(error: Exception) -> str:
    """Return the first line of an error of another program, without secrets."""
    raised = getattr(error, "orig", None) or error
    told = raised.args[0] if raised.args else None
    text = told["M"] if isinstance(told, dict) and "M" in told else str(raised)  # pg8000 tells by fields
    return (without_secrets(text.strip().partition("\n")[0])[:200] or type(error).__name__).rstrip(".")
