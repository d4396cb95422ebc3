"""Create objects from settings. Besides ``lake.py``, only this module knows which class implements which interface."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlsplit

from lakegate.catalogs import find_catalog
from lakegate.config import HOME_NAME, LOCAL_SQL, Settings, StorageSettings, is_project
from lakegate.context import Context, Subscriber
from lakegate.credentials.secret import Secret
from lakegate.errors import CatalogUnavailableError, ConfigurationError, missing_package
from lakegate.local.stack import LocalStack
from lakegate.local.state import SERVICE_NAMES, ServiceName
from lakegate.local.stores import SparkStores, stores_of
from lakegate.model.batch import Batch, SourceFile
from lakegate.model.downstream import Subscription
from lakegate.model.refs import Ref
from lakegate.model.secrets import is_loopback
from lakegate.model.words import parse_age, parse_duration
from lakegate.ports import Catalog, Engine, Narrator, Notifier, TableEditor, TableReader, WarehouseFiles
from lakegate.storage.objects import canonical, is_remote

if TYPE_CHECKING:
    from lakegate.catalogs.target import TargetCatalog
    from lakegate.contracts.store import Contracts
    from lakegate.gate.app import Engine as EngineAccess
    from lakegate.iceberg.files import TableFiles
    from lakegate.journal.journal import Journal
    from lakegate.spark.file_engine import FileEngine
    from lakegate.spark.sessions import SessionFactory

_PAGE_PATIENCE_S = 2.0
"""Seconds that a page of the dashboard waits for a locked journal."""


def local_stack(home: Path, settings: Settings, narrator: Narrator) -> LocalStack:
    """Return the handle of a project's local stack. Starts nothing."""

    def warehouse() -> SparkStores:
        return stores_of(filter(None, [settings.catalog.root]), settings.storage)

    idle_s = parse_duration(settings.local.idle_stop).total_seconds()
    names: tuple[ServiceName, ...] = SERVICE_NAMES if settings.catalog.needs_nessie else ("spark",)
    return LocalStack(home, settings.local, narrator, warehouse, idle_s=idle_s, names=names)


class Components:
    """Creates the implementation of each interface on first use.

    Args:
        session: The user's ``SparkSession``, used instead of ``settings.engine``.
    """

    def __init__(
        self, home: Path, settings: Settings, *, session: Any, narrator: Narrator, orchestrator: str | None = None
    ) -> None:
        self.home = home
        self.settings = settings
        self.narrator = narrator
        self.orchestrator = orchestrator
        self._session = session
        self._is_writable = False
        self._live_catalog: tuple[str, Catalog] | None = None
        self._old_catalogs: list[Catalog] = []
        self._catalog_lock = threading.Lock()
        self._is_new_project = settings.catalog.is_local and not is_project(home)
        self._serving = ExitStack()

    @cached_property
    def context(self) -> Context:
        """What write–audit–publish needs. Creating it starts or finds the catalog, but not the engine.

        Raises:
            ConfigurationError: If the journal is another catalog's.
        """
        identity = self.catalog.identity()
        self.journal.require_catalog(identity)
        return Context(
            catalog=self.catalog,
            reader=self.reader,
            editor=self.editor,
            engine=lambda: self.engine,
            journal=self.journal,
            narrator=self.narrator,
            warehouse=self.warehouse,
            changed_files=self._changed_files,
            lease_s=self.settings.journal.lease_s,
            suspend_s=self.settings.journal.park_s,
            notifier=self.notifier,
            downstreams=self.downstreams,
            require_writable=self.require_writable,
            orchestrator=self.orchestrator,
            publish_attempts=self.settings.publish.attempts,
            publish_within_s=self.settings.publish.timeout_s,
            masked=self.settings.audit.mask,
            audit_timeout_s=self.settings.audit.timeout_s,
            keep=parse_age(self.settings.gc.keep),
            branches_last=parse_age(self.settings.keep_rejected) if self.settings.catalog.is_target else None,
            format_version=lambda table: (
                self.contracts.settings_of(table).format_version or self.settings.ingest.format_version
            ),
            own_folder=self._own_folder,
        )

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog that the settings name, or the local stack's."""
        if self.settings.catalog.is_target:
            return self._target_catalog()
        return self._catalog_at(self.settings.catalog.uri or self.stack.up().nessie_uri)

    def find_catalog(self, *, timeout_s: float) -> Catalog:
        """Return a catalog like :attr:`catalog`, but start nothing, and give up sooner.

        Call it again when the catalog was unavailable: a local one may have restarted with another address.

        Args:
            timeout_s: Seconds to wait for one response; no more than ``catalog.timeout_s``.
        """
        if self.settings.catalog.is_target:
            return self.catalog
        uri = self.settings.catalog.uri
        if uri is None:
            self.stack.keep()
            nessie = next(service for service in self.stack.status() if service.name == "nessie")
            uri = nessie.address if nessie.state == "running" else None
            if uri is None:
                raise CatalogUnavailableError(
                    f"The catalog of {self.home} isn't available: its local Nessie is {nessie.state}.",
                    hint="Start it: lakegate up",
                )
        with self._catalog_lock:
            if "catalog" not in self.__dict__ or (self._live_catalog is not None and self._live_catalog[0] != uri):
                # Otherwise, the next use of :attr:`catalog` would start the local stack, and Spark with it.
                self._replace_catalog(self._catalog_at(uri))
            if self._live_catalog is None or self._live_catalog[0] != uri:
                patience_s = min(timeout_s, self.settings.catalog.timeout_s)
                self._live_catalog = uri, self._catalog_at(uri, timeout_s=patience_s)
                self._old_catalogs.append(self._live_catalog[1])
            return self._live_catalog[1]

    def _replace_catalog(self, catalog: Catalog) -> None:
        """Use another catalog from now on. :meth:`close` closes the old one, which other threads may still use."""
        if "catalog" in self.__dict__:
            self._old_catalogs.append(self.catalog)
        self.catalog = catalog
        self.__dict__.pop("context", None)

    def _catalog_at(self, uri: str, *, timeout_s: float | None = None) -> Catalog:
        from lakegate.credentials.tokens import catalog_token

        settings = self.settings.catalog
        token = catalog_token(settings)
        wait_s = settings.timeout_s if timeout_s is None else timeout_s
        return find_catalog(settings.type)(uri, self.warehouse, token=token, timeout_s=wait_s)

    def _own_folder(self, namespace: tuple[str, ...]) -> str | None:
        """Return the folder that the catalog has for a namespace's tables; ``None`` if it has none."""
        is_target = self.settings.catalog.is_target
        return cast("TargetCatalog", self.catalog).folder(namespace) if is_target else None

    def _target_catalog(self) -> Catalog:
        from lakegate.catalogs.target import TargetCatalog
        from lakegate.catalogs.target.opening import open_target, target_properties

        settings = self.settings.catalog
        if settings.type == LOCAL_SQL:
            (self.home / HOME_NAME).mkdir(mode=0o700, parents=True, exist_ok=True)
            file = self.home.absolute() / HOME_NAME / "catalog.db"
            properties: Mapping[str, str] = {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": self.warehouse}
        else:
            properties = target_properties(settings, self.home)
        target = open_target(settings.name or "lakegate", properties, self._table_files)
        journal = self.journal
        return TargetCatalog(journal.database, target, knows_run=lambda run_id: journal.get(run_id) is not None)

    @cached_property
    def reader(self) -> TableReader:
        """Table metadata without an engine."""
        from lakegate.iceberg.reader import IcebergTableReader

        return IcebergTableReader(self._table_files)

    @cached_property
    def editor(self) -> TableEditor:
        """Changes of table metadata without an engine."""
        from lakegate.iceberg.editor import IcebergTableEditor

        return IcebergTableEditor(self._table_files)

    @cached_property
    def _table_files(self) -> TableFiles:
        # Shared, because it caches parsed metadata.
        from lakegate.iceberg.files import TableFiles

        return TableFiles(self.settings.storage)

    @cached_property
    def files(self) -> WarehouseFiles:
        """The warehouse's files."""
        from lakegate.iceberg.files import open_file_store

        return open_file_store(self.warehouse, self.settings.storage)

    @cached_property
    def journal(self) -> Journal:
        """The journal that the settings name, by default ``.lakegate/journal.db``."""
        from lakegate.journal.factory import open_journal

        self._announce_project()
        return open_journal(self.settings.journal, self.home)

    @cached_property
    def journal_for_pages(self) -> Journal:
        """The same journal, for reading: it waits for locks no longer than people wait for a page."""
        from lakegate.journal.factory import open_journal

        return open_journal(self.settings.journal, self.home, busy_timeout_s=_PAGE_PATIENCE_S)

    @cached_property
    def contracts(self) -> Contracts:
        """The contracts of the project's tables."""
        from lakegate.contracts.store import Contracts

        return Contracts(self.home, self.settings)

    @cached_property
    def notifier(self) -> Notifier | None:
        """Sends alerts; ``None`` if the settings name no channel."""
        if not self.settings.notify.channels:
            return None
        from lakegate.alerts.dispatch import Dispatcher

        notify = self.settings.notify.model_copy(update={"report_url": self.settings.run_url})
        return Dispatcher(notify, lambda: self.journal, masked=self.settings.masked)

    @cached_property
    def downstreams(self) -> tuple[Subscriber, ...]:
        """The systems to notify of each publish. Their libraries are loaded when there's something to send."""
        if not self.settings.downstream:
            return ()
        from lakegate.downstream import TYPES, DownstreamContext, open_downstream

        context = DownstreamContext(self.home, self.warehouse, self.settings)
        return tuple(
            Subscriber(
                subscription=Subscription(
                    name=name, events=given.events, tables=given.tables, mirrors=TYPES[given.type].mirrors
                ),
                give_up=parse_duration(given.give_up),
                timeout_s=given.timeout_s,
                open=partial(open_downstream, name, given, context),
            )
            for name, given in self.settings.downstream.items()
        )

    @property
    def shares_files(self) -> bool:
        """Whether the engine sees this machine's files under the same paths."""
        url = self.settings.engine.url
        return self._session is not None or url is None or is_loopback(urlsplit(url).hostname or "")

    @property
    def reads_private_files(self) -> bool:
        """Whether the engine can read this user's private files. One at ``localhost`` may run in a container."""
        return self._session is not None or self.settings.engine.url is None

    @cached_property
    def engine(self) -> Engine:
        """Spark: the user's session, the server that the settings name, or the local stack's."""
        from lakegate.spark.engine import SparkEngine

        if not self.shares_files and self.settings.catalog.is_local:
            raise ConfigurationError(
                "The engine is on another machine and can't reach the catalog, which is this project's local one.",
                hint="Set catalog.uri and catalog.warehouse to ones that both can reach, or unset engine.url: "
                "only the local engine can read files on this machine.",
                setting="catalog.uri",
            )
        return SparkEngine(
            self._sessions(), self.spark_options, shares_files=self.shares_files, before_reading=self._before_reading
        )

    @cached_property
    def file_engine(self) -> FileEngine:
        """An engine that audits source files where they are, without a catalog."""
        from lakegate.spark.file_engine import FileEngine

        sessions = partial(self._local_session, alone=True) if self._has_local_spark else self._sessions()
        return FileEngine(sessions, shares_files=self.shares_files, before_reading=self._before_reading)

    @property
    def _has_local_spark(self) -> bool:
        return self._session is None and self.settings.engine.url is None

    @property
    def _before_reading(self) -> Callable[[Batch, bool], bool] | None:
        return self.make_readable if self._has_local_spark else None

    def _sessions(self) -> SessionFactory:
        """Return a factory of sessions on the user's Spark or on the local stack's."""
        from lakegate.spark.sessions import derived_sessions, remote_sessions

        if self._session is not None:
            return derived_sessions(self._session)
        engine = self.settings.engine
        if engine.url is None:
            return self._local_session
        token = None if engine.token is None else Secret(engine.token, setting="engine.token")
        return remote_sessions(engine.url, token=token, tls=engine.tls, ca_file=engine.ca_file)

    def _local_session(self, options: Mapping[str, str], *, alone: bool = False) -> Any:
        from lakegate.local.state import spark_url
        from lakegate.spark.sessions import remote_sessions

        return remote_sessions(spark_url(self.stack.use(alone=alone)))(options)

    def open_engine_ahead(self, batch: Batch) -> None:
        """Have the local Spark analyze ``batch`` while the rest loads, if it has rows and is on this machine."""
        if not self._has_local_spark or not batch.rows or any(is_remote(uri) for uri in batch.read_uris):
            return
        from lakegate.spark.engine import SparkEngine

        engine = self.engine
        if isinstance(engine, SparkEngine):
            self.stack.use()
            engine.open_ahead(batch)

    @cached_property
    def warehouse(self) -> str:
        """Root of the tables' files, as a URI."""
        settings = self.settings.catalog
        warehouse = settings.root
        if not settings.is_local and warehouse is None:
            raise ConfigurationError(
                f"catalog.{'properties' if settings.is_target else 'uri'} is set, but catalog.warehouse isn't.",
                hint='Set the folder for the tables\' files, such as warehouse = "s3://bucket/warehouse".',
                setting="catalog.warehouse",
            )
        warehouse = warehouse or f"file://{self.home.absolute() / HOME_NAME / 'warehouse'}"
        return canonical(warehouse) if is_remote(warehouse) else warehouse

    @cached_property
    def stack(self) -> LocalStack:
        """The local stack of this project."""
        self._announce_project()
        return local_stack(self.home, self.settings, self.narrator)

    def _announce_project(self) -> None:
        """Report a new project, but only once something is created: a mistyped first command creates nothing."""
        if self._is_new_project:
            self._is_new_project = False
            self.narrator.note(f"New project in {self.home}: tables and history go to .lakegate/ there.")

    def reconnect(self) -> None:
        """Drop connections to the engine that no longer work."""
        engine: Engine | None = self.__dict__.get("engine")
        if engine is not None:
            engine.reconnect()

    def close(self) -> None:
        """Close what was opened. Servers keep running."""
        for name in ("engine", "file_engine"):
            self._close(name)
        self._serving.close()
        for name in ("catalog", "journal", "journal_for_pages"):
            self._close(name)
        for catalog in self._old_catalogs:
            catalog.close()
        if "stack" in self.__dict__:
            self.stack.release()

    def _close(self, name: str) -> None:
        part = self.__dict__.get(name)
        if part is not None:
            part.close()

    def make_readable(self, batch: Batch, in_transaction: bool) -> bool:  # noqa: FBT001 - a callback
        """Give the local Spark access to the batch's stores. Return whether it was restarted for that."""
        stores = stores_of(batch.read_uris, self.settings.storage)
        if stores.adls:
            raise ConfigurationError(
                f"The local Spark can't read source files from Azure, such as '{batch.uris[0]}'.",
                hint="Set engine.url to a Spark that can, or copy the files to S3, to Google or to this machine.",
                setting="engine.url",
            )
        return bool(stores) and self.stack.switch(stores, in_transaction=in_transaction)

    def spark_options(self, ref: Ref | None) -> Mapping[str, str]:
        """Return the settings of a Spark catalog that reads and writes ``ref``, or ``main``."""
        from lakegate.iceberg.spark_options import spark_file_io

        options = {**self.catalog.spark_options(ref), **spark_file_io(self.warehouse, self._spark_storage)}
        return {**options, **self._served_options(options)} if self.settings.catalog.is_target else options

    def _served_options(self, options: Mapping[str, str]) -> Mapping[str, str]:
        """Return how Spark reaches branches that a target doesn't have."""
        from lakegate.gate.environment import ENGINE_PATH, rest_options

        commit = options.get("ref.hash")
        state = options["ref"] if commit is None else f"{options['ref']}#{commit}"
        return {
            **rest_options(f"{self._gate_of_engine}{ENGINE_PATH}", self._engine_token),
            "prefix": quote(state, safe=""),
            "rest-metrics-reporting-enabled": "false",
        }

    @cached_property
    def _gate_of_engine(self) -> str:
        """Address of the gate that Spark reads and writes branches through: this process's, unless Spark is away."""
        if self.settings.engine.gate is not None:
            from lakegate.credentials.tokens import require_tls

            require_tls(self.settings.engine.gate, "engine.gate")
            return self.settings.engine.gate.rstrip("/")
        if not self.shares_files:
            raise ConfigurationError(
                f"Spark at {urlsplit(self.settings.engine.url or '').netloc} can't reach the branches: the catalog has "
                "none, so they're in the journal.",
                hint="Run lakegate serve where Spark reaches it, and set engine.gate to its address.",
                setting="engine.gate",
            )
        try:
            from lakegate.gate.app import create_app
            from lakegate.gate.server import serving
        except ImportError as error:
            raise missing_package("Spark's way to the branches needs", error.name, "serve") from error
        nobody = secrets.token_urlsafe
        app = create_app(self.catalog, self._table_files, token=nobody, engine=self.engine_access)
        return self._serving.enter_context(serving(app))

    @property
    def engine_access(self) -> EngineAccess:
        """What lets our Spark in at a gate."""
        from lakegate.gate.app import Engine
        from lakegate.iceberg.spark_options import spark_file_io

        file_io = spark_file_io(self.warehouse, self.settings.storage)
        return Engine(self._engine_token, self.context.folder, file_io)

    @cached_property
    def _engine_token(self) -> str:
        from lakegate.credentials.openings import engine_token

        return engine_token(self.journal.gate_key())

    @cached_property
    def _spark_storage(self) -> StorageSettings:
        """The stores' settings for Spark. A remote Spark has variables and profiles of its own."""
        storage = self.settings.storage
        if not self._has_local_spark:
            return storage
        s3 = stores_of([self.warehouse], storage).s3
        return storage if s3 is None else storage.model_copy(update={"s3": s3})

    def require_own_warehouse(self) -> None:
        """Raise if the warehouse belongs to another catalog."""
        from lakegate.iceberg.files import require_same_catalog

        if not self.settings.catalog.is_target:  # there, nothing is deleted but what lakegate staged
            require_same_catalog(self.warehouse, self.settings.storage, self.catalog.identity())

    def require_writable(self) -> None:
        """Raise if files can't be written to the warehouse.

        It's checked once: if the permission is revoked later, the write itself fails.
        """
        if not self._is_writable and not self.settings.catalog.is_target:  # some of them refuse files of no table
            from lakegate.iceberg.files import require_writable

            require_writable(self.warehouse, self.settings.storage, self.catalog.identity())
            self._is_writable = True

    def _changed_files(self, batch: Batch) -> Sequence[SourceFile]:
        from lakegate.sources import changed_files

        return changed_files(batch, self.settings.storage)
