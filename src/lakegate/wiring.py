"""Settings → objects: with ``lake.py``, the only place that knows which implementation stands behind a seam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lakegate.catalogs import find_catalog
from lakegate.catalogs.warehouse import require_writable, spark_file_io
from lakegate.config import HOME_NAME, Settings, StorageSettings
from lakegate.credentials.places import is_loopback
from lakegate.credentials.secret import Secret
from lakegate.errors import ConfigurationError
from lakegate.flow.rooms import Rooms
from lakegate.local.stack import LocalStack
from lakegate.local.stores import SparkStores, stores_of
from lakegate.model.batch import Batch, SourceFile
from lakegate.model.refs import Ref
from lakegate.protocols import Catalog, Engine, FileStore, Journal, Narrator, Notifier, TableEditor, TableReader
from lakegate.storage.addresses import canonical, is_remote


def local_stack(home: Path, settings: Settings, narrator: Narrator) -> LocalStack:
    """Return the handle of a project's embedded stack; starts nothing."""

    def warehouse() -> SparkStores:
        return stores_of([settings.catalog.warehouse] if settings.catalog.warehouse else [], settings.storage)

    return LocalStack(home, settings.local, narrator, warehouse)


class Wiring:
    """Makes each room's implementation when it is first asked for.

    Args:
        home: The project's folder.
        settings: Its settings.
        session: A ``SparkSession`` of the user to work beside, instead of ``settings.engine``.
        narrator: Where progress is told of.
    """

    def __init__(self, home: Path, settings: Settings, *, session: Any, narrator: Narrator) -> None:
        self.home = home
        self.settings = settings
        self.narrator = narrator
        self._session = session
        self._is_writable = False

    @cached_property
    def rooms(self) -> Rooms:
        """All rooms; starts or finds the catalog, but not the engine."""
        return Rooms(
            catalog=self.catalog,
            reader=self.reader,
            editor=self.editor,
            engine=lambda: self.engine,
            journal=self.journal,
            narrator=self.narrator,
            warehouse=self.warehouse,
            changed_files=self._changed_files,
            lease_s=self.settings.journal.lease_s,
            park_s=self.settings.journal.park_s,
            notifier=self.notifier,
            require_writable=self._require_writable,
        )

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog that the settings name, or the local stack's."""
        from lakegate.credentials.catalog import catalog_token  # noqa: PLC0415 - loads httpx

        settings = self.settings.catalog
        token = catalog_token(settings)
        uri = settings.uri or self.stack.up().nessie_uri
        return find_catalog(settings.type)(uri, self.warehouse, token=token, timeout_s=settings.timeout_s)

    @cached_property
    def reader(self) -> TableReader:
        """Table metadata without an engine."""
        from lakegate.catalogs.metadata import IcebergTableReader  # noqa: PLC0415 - loads pyiceberg

        return IcebergTableReader(self.settings.storage)

    @cached_property
    def editor(self) -> TableEditor:
        """Changes of table metadata without an engine."""
        from lakegate.catalogs.editor import IcebergTableEditor  # noqa: PLC0415 - loads pyiceberg

        return IcebergTableEditor(self.settings.storage)

    @cached_property
    def files(self) -> FileStore:
        """The warehouse's files."""
        from lakegate.catalogs.filestore import open_file_store  # noqa: PLC0415 - garbage collection only

        return open_file_store(self.warehouse, self.settings.storage)

    @cached_property
    def journal(self) -> Journal:
        """The journal that the settings name, by default ``.lakegate/journal.db``."""
        from lakegate.journal.opening import open_journal  # noqa: PLC0415 - loads sqlalchemy

        return open_journal(self.settings.journal, self.home)

    @cached_property
    def notifier(self) -> Notifier | None:
        """Who tells others of runs that ended; ``None`` when the settings name no channel."""
        if not self.settings.notify.channels:
            return None
        from lakegate.notify.dispatch import Dispatcher  # noqa: PLC0415 - only where somebody is to be told

        return Dispatcher(self.settings.notify, lambda: self.journal)

    @cached_property
    def engine(self) -> Engine:
        """Spark: the user's session, the server the settings name, or the local stack's."""
        from lakegate.engine.sessions import derived_sessions, remote_sessions  # noqa: PLC0415 - loads pyspark
        from lakegate.engine.spark import SparkEngine  # noqa: PLC0415

        given = self.settings.engine
        if self._session is not None:
            sessions, shares_files = derived_sessions(self._session), True
        elif given.url is None:
            return SparkEngine(
                self._local_session,
                self._spark_options,
                shares_files=True,
                before_reading=self._make_readable,
            )
        else:
            token = None if given.token is None else Secret(given.token, setting="engine.token")
            sessions = remote_sessions(given.url, token=token, tls=given.tls, ca_file=given.ca_file)
            shares_files = is_loopback(urlsplit(given.url).hostname or "")
        if not shares_files and self.settings.catalog.uri is None:
            raise ConfigurationError(
                "The engine is on another machine, the catalog is this project's local one, which it cannot reach.",
                hint="Set catalog.uri and catalog.warehouse to ones that both can reach, or leave engine.url unset: "
                "the files on this machine can be read by the local engine only.",
                setting="catalog.uri",
            )
        return SparkEngine(sessions, self._spark_options, shares_files=shares_files)

    @cached_property
    def warehouse(self) -> str:
        """Root of the tables' files, as a URI."""
        settings = self.settings.catalog
        if settings.uri is not None and settings.warehouse is None:
            raise ConfigurationError(
                "catalog.uri is set, catalog.warehouse is not.",
                hint='Add where the tables\' files go, for example warehouse = "s3://bucket/warehouse".',
                setting="catalog.warehouse",
            )
        warehouse = settings.warehouse or (self.home / HOME_NAME / "warehouse").as_uri()
        return canonical(warehouse) if is_remote(warehouse) else warehouse

    @cached_property
    def stack(self) -> LocalStack:
        """The embedded stack of this project."""
        return local_stack(self.home, self.settings, self.narrator)

    def close(self) -> None:
        """Release what was made. Servers keep running."""
        for room in ("engine", "catalog", "journal"):
            made = self.__dict__.get(room)
            if made is not None:
                made.close()
        if "stack" in self.__dict__:
            self.stack.release()

    def _local_session(self, options: Mapping[str, str]) -> Any:
        from lakegate.engine.sessions import remote_sessions  # noqa: PLC0415 - loads pyspark

        return remote_sessions(self.stack.use().spark_url)(options)

    def _make_readable(self, batch: Batch, in_transaction: bool) -> bool:  # noqa: FBT001 - a callback
        """See to it that the local Spark can read the batch; return whether it was started anew for that."""
        stores = stores_of(batch.uris, self.settings.storage)
        if stores.adls:
            raise ConfigurationError(
                f"The local Spark cannot read source files from Azure, such as '{batch.uris[0]}'.",
                hint="Set engine.url to a Spark that can, or copy the files to S3, to Google or to this machine.",
                setting="engine.url",
            )
        return bool(stores) and self.stack.switch(stores, in_transaction=in_transaction)

    def _spark_options(self, ref: Ref | None) -> Mapping[str, str]:
        return {**self.catalog.spark_options(ref), **spark_file_io(self.warehouse, self._spark_storage)}

    @cached_property
    def _spark_storage(self) -> StorageSettings:
        """Where the stores are for Spark: another one's Spark has variables and profiles of its own."""
        storage = self.settings.storage
        if self._session is not None or self.settings.engine.url is not None:
            return storage
        place = stores_of([self.warehouse], storage).s3
        return storage if place is None else storage.model_copy(update={"s3": place})

    def _require_writable(self) -> None:
        # Once is enough: of a right that is taken away later, the write itself tells.
        if not self._is_writable:
            require_writable(self.warehouse, self.settings.storage)
            self._is_writable = True

    def _changed_files(self, batch: Batch) -> Sequence[SourceFile]:
        from lakegate.sources import changed_files  # noqa: PLC0415 - loads pyarrow

        return changed_files(batch, self.settings.storage)
