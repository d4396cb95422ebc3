"""The Python API: :func:`connect` opens a :class:`Lake`, and a ``Lake`` has a method for everything lakegate does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Never, Self, TypedDict, TypeVar, Unpack, get_args

from lakegate.checks import parse_checks
from lakegate.components import Components
from lakegate.config import (
    HOME_NAME,
    MaintenancePolicy,
    Settings,
    StorageSettings,
    find_home,
    home_at,
    load_settings,
    override_settings,
)
from lakegate.context import Context
from lakegate.errors import (
    AuditFailedError,
    ConfigurationError,
    InputError,
    LakegateError,
    NotFoundError,
    NotReplayableError,
    QueryError,
    RetryableError,
)
from lakegate.ledger.sync import sync
from lakegate.model.batch import Batch, Claim, CsvOptions, FileFormat, KnownFile, SourceFile
from lakegate.model.checks import AuditReport, Check, Tolerance
from lakegate.model.downstream import Delivery, DeliveryState, DownstreamCheck, DownstreamStatus, LateTable
from lakegate.model.identifiers import (
    TableIdentifier,
    is_commit_hash,
    quote,
    validate_orchestrator,
    validate_ref_name,
    validate_run_id,
)
from lakegate.model.maintenance import (
    GcReport,
    JournalStatus,
    MaintenanceReport,
    MaintenanceStep,
    RebuiltJournal,
    VerifyReport,
)
from lakegate.model.quarantine import QuarantineSummary, RowSelection, parse_limit
from lakegate.model.refs import MAIN, Commit, Ref, TableAt, TableDifference, TablePointer
from lakegate.model.request import (
    IngestPlan,
    IngestRequest,
    ModeName,
    OnBusy,
    OnChanged,
    OnFailure,
    SchemaMode,
    WriteMode,
)
from lakegate.model.run import Action, FileCheckpoint, Notification, Run, RunKind, RunStatus, new_run_id
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedRows, Rows, TableMetadata
from lakegate.model.words import (
    LONGEST_AGE,
    counted,
    did_you_mean,
    nearest,
    parse_age,
    refuse_unknown,
    suggest_keyword,
    suggest_keywords,
    unknown_column,
)
from lakegate.points import find, is_hash_prefix, require_branch, resolve, unknown_table
from lakegate.ports import CommitIndex, Narrator
from lakegate.private_files import copies_of, drop_copies, private_folder
from lakegate.progress import SilentNarrator
from lakegate.storage.objects import is_remote
from lakegate.table import Query, RowDifference, Table
from lakegate.telemetry import tracing
from lakegate.telemetry.metrics import Sample
from lakegate.wap import review
from lakegate.wap.alerting import alert_given_up, alert_late, find_late
from lakegate.wap.audit import audit_state
from lakegate.wap.deadline import Deadline
from lakegate.wap.discard import discard, discard_run
from lakegate.wap.downstream import check, send
from lakegate.wap.gc import drop_orphaned_branches, gc, warehouse_time
from lakegate.wap.ingest import Stage, ingest, resume, undo
from lakegate.wap.modes import choose_mode
from lakegate.wap.optimistic_commit import LOSSES_BEFORE_LOCK, holding_publish_lock
from lakegate.wap.plan import contract_check, plan
from lakegate.wap.quarantine import renames_column, require_not_reserved
from lakegate.wap.reachable import require_kept
from lakegate.wap.recover import rebuild, recover, recover_now
from lakegate.wap.release import (
    drop,
    find_quarantine,
    quarantined,
    quarantined_rows,
    release,
)
from lakegate.wap.review import accepted
from lakegate.wap.stage import changes_between
from lakegate.wap.transaction import Transaction, transaction
from lakegate.wap.trial import ContractTrial, try_contract

if TYPE_CHECKING:
    from lakegate.snippets import Snippet
    from lakegate.sources.discovery import FoundFile
    from lakegate.sources.sample import SourceSample

Paths = str | Path | Sequence[str | Path]
"""A file, folder or glob pattern, or several: local paths, ``file://``, ``s3://``, ``gs://`` or ``abfss://`` URIs."""
Frame = Any
"""Rows: a pandas, Polars or Spark frame, a DuckDB relation, an Arrow table, batch, reader or dataset, whatever else is
an Arrow stream, a list of dicts, or a list or generator of any of these."""
Checks = Sequence[str | Check]
"""Checks as text (``"not_null(id)"``) or as values from :mod:`lakegate.checks`."""
_Result = TypeVar("_Result")
_FILES_AT_ONCE = 8
_RETRY_S = 600.0
_HIGHEST_NUMBER = 2**63 - 1
"""Highest number that databases can store."""
_CHOICES = {
    "on_failure": OnFailure,
    "on_changed": OnChanged,
    "on_busy": OnBusy,
    "schema": SchemaMode,
    "mode": ModeName,
    "format": FileFormat,
}
"""Options with a fixed set of values."""
_SHORTEST_PREFIX = len("20260131T0705")


class IngestOptions(TypedDict, total=False):
    """The keywords of :meth:`Lake.ingest` and :meth:`Lake.write` as a dict, for code that passes them on."""

    run_id: str | None
    checks: Checks
    branch: str | None
    partition_by: Sequence[str]
    on_failure: OnFailure | None
    on_changed: OnChanged | None
    on_busy: OnBusy | None
    quarantine_limit: Tolerance | None
    schema: SchemaMode | None
    columns: Mapping[str, str]
    mode: ModeName | None
    key: Sequence[str]
    delete_when: str | None
    format: FileFormat | None
    csv: CsvOptions | None
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a run's rows come from, if not from files.

    Attributes:
        reads: Tables of the lake that the rows were computed from.
        at: Commit at which those tables were read.
    """

    reads: tuple[str, ...] = ()
    at: str = ""


@suggest_keyword
def connect(
    home: str | Path | None = None,
    *,
    engine: Any = None,
    catalog: str | None = None,
    warehouse: str | None = None,
    settings: Settings | None = None,
    narrator: Narrator | None = None,
    orchestrator: str | None = None,
) -> Lake:
    """Open a project's lake. This starts nothing: servers start, or connections open, on first use.

    Args:
        home: The project's folder. Default: the current folder or the nearest one above it that has a
            ``lakegate.toml`` or ``.lakegate/``. If none has, the current folder.
        engine: A Spark Connect address (``sc://host:15002``) or a ``SparkSession``, Connect or classic. Default: the
            setting ``engine.url``, else the local stack.
        catalog: Address of Nessie's API v2. Default: the setting ``catalog.uri``, else the local stack.
        warehouse: URI of the folder that holds the tables' files. Default: the setting ``catalog.warehouse``. Required
            with ``catalog``.
        settings: Settings to use, except what the arguments above override. Default: read ``lakegate.toml`` and the
            ``LAKEGATE_*`` variables.
        narrator: Receives progress. Default: silent.
        orchestrator: Name of what starts the runs, recorded with each run: lower-case letters, digits and ``-``.
            Default: ``airflow`` in an Airflow task, else ``python``.

    Returns:
        The lake. Use it as a context manager, or call :meth:`Lake.close`.

    Raises:
        ConfigurationError: A setting is unknown or invalid.
        InputError: The orchestrator's name isn't allowed.

    Example:
        >>> with lakegate.connect() as lake:
        ...     print(lake.query("SELECT 1 AS one").to_arrow().to_pylist())
        [{'one': 1}]
    """
    folder = find_home() if home is None else home_at(home)
    flags = {
        "engine.url": engine if isinstance(engine, str) else None,
        "catalog.uri": catalog,
        "catalog.warehouse": warehouse,
    }
    session = None if isinstance(engine, str) else engine
    known = load_settings(folder, flags=flags) if settings is None else override_settings(settings, flags)
    named = validate_orchestrator(orchestrator) if orchestrator is not None else _detect_orchestrator()
    return Lake(Components(folder, known, session=session, narrator=narrator or SilentNarrator(), orchestrator=named))


@suggest_keywords
class Lake:
    """A lakehouse that publishes a change only after its audit passed. Open one with :func:`connect`.

    A ``Lake`` is a context manager: leaving it ends sessions and connections, but leaves servers running. Tables are
    named ``namespace.table``. Wherever a method takes ``at``, it's a time, a tag or a commit hash. A time is a
    ``datetime`` or text: ISO 8601 such as ``2026-01-31T07:00:00Z``, or ``10m ago``. A time without a zone is UTC.
    """

    def __init__(self, components: Components) -> None:
        self._components = components
        self._origins: dict[str, _Origin] = {}
        self._uploaded: dict[str, tuple[SourceFile, ...]] = {}

    def __repr__(self) -> str:
        """Return the lake's folder."""
        return f"<Lake {self.home}>"

    @property
    def _context(self) -> Context:
        return self._components.context

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._components.settings

    @property
    def home(self) -> Path:
        """The project's folder."""
        return self._components.home

    @property
    def warehouse(self) -> str:
        """Root of the tables' files, a URI."""
        return self._components.warehouse

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End sessions and close connections. Servers keep running. Calling it again does nothing."""
        self._components.close()
        tracing.flush()

    def reconnect(self) -> None:
        """Drop connections to the engine that no longer work. The next call opens new ones.

        Call it in a program that sleeps between calls: the server may have been replaced, or have ended an idle
        session, as Spark does after an hour.
        """
        self._components.reconnect()

    # Ingest

    def ingest(
        self,
        table: str,
        paths: Paths | Frame,
        *,
        run_id: str | None = None,
        checks: Checks = (),
        branch: str | None = None,
        partition_by: Sequence[str] = (),
        on_failure: OnFailure | None = None,
        on_changed: OnChanged | None = None,
        on_busy: OnBusy | None = None,
        quarantine_limit: Tolerance | None = None,
        schema: SchemaMode | None = None,
        columns: Mapping[str, str] = MappingProxyType({}),
        mode: ModeName | None = None,
        key: Sequence[str] = (),
        delete_when: str | None = None,
        format: FileFormat | None = None,
        csv: CsvOptions | None = None,
        timeout_s: float | None = None,
        **unknown: Never,
    ) -> Run:
        """Write files or rows to a branch, audit them, and publish them to ``main``, or publish nothing.

        Each version of a file (its path and content) is published to a table once. Files that are already published
        are skipped. Rows from memory are published once for each ``run_id``.

        Args:
            table: ``namespace.table``. Created if it doesn't exist.
            paths: Files, folders or glob patterns; or rows: a pandas, Polars or Spark frame, a DuckDB relation, an
                Arrow table, reader or dataset, a list of dicts, or a list or generator of these.
            run_id: Id of the run. Default: a new one. With the id of an earlier run, the call resumes that run, or
                returns it if it has ended.
            checks: Checks to run in addition to the table's settings: text (``"not_null(id)"``) or values.
            branch: Name of the branch to write to. Default: one made from the table and the run id.
            partition_by: Transforms for a new table, such as ``"days(pickup)"``. Default: the table's settings.
            on_failure: ``keep`` or ``drop`` the branch of a rejected batch. Default: ``ingest.on_failure``.
            on_changed: What to do with a file that was published before with other content: ``refuse`` the batch,
                ``append`` its rows, or ``replace`` the old rows. Default: ``ingest.on_changed``.
            on_busy: What to do with a file that another run is ingesting: ``wait`` for that run, or ``skip`` the file.
                Default: ``ingest.on_busy``.
            quarantine_limit: How many rows of the batch checks of severity ``quarantine`` may set aside, such as
                ``100`` or ``"5%"``. With more, the batch is rejected. Default: the table's settings.
            schema: What to do if the batch's columns differ from the table's: refuse the batch (``strict``); add new
                columns, widen types, and write NULL where a column is missing (``evolve``); or leave out columns that
                the table lacks (``ignore_extra``). Default: the table's settings, else ``ingest.schema``.
            columns: Columns to rename: the name in the files to the name in the table. Added to those in the table's
                settings.
            mode: What the batch does to existing rows: ``append`` adds its rows; ``overwrite`` replaces all
                rows of the table with them, ``replace-partitions`` those in the same partitions; and ``upsert`` updates
                the rows with the same ``key`` and inserts the others. Default: the table's settings, else ``append``.
            key: Columns that identify a row, for ``upsert``. Default: the table's settings.
            delete_when: Predicate on the batch's rows, such as ``"op = 'D'"``. Where it's true, ``upsert`` deletes the
                row with that key. Default: the table's settings.
            format: ``parquet``, ``csv``, ``json``, ``avro``, ``orc`` or ``excel``. Default: detected from the files.
            csv: How to read CSV. Default: the table's settings.
            timeout_s: Seconds after which the run is suspended. The next call with its ``run_id`` resumes it.
                Cancelling Spark's work takes a few seconds more. Default: no limit.
            unknown: Catches mistyped keywords: the error suggests the one you probably meant.

        Returns:
            The run: ``published``, ``rejected`` by its audit, or ``skipped`` because no file was new.

        Raises:
            InputError: A file, name or check is wrong, or a key repeats or is NULL. Nothing was written.
            RetryableError: The catalog or the engine can't be reached, or ``main`` kept changing. Nothing was
                published. Also raised when ``timeout_s`` has passed: the run is then suspended.
            OutcomeUnknownError: The connection to the catalog broke during the commit. :meth:`recover` finds out.

        Example:
            >>> run = lake.ingest("nyc.trips", "trips/*.parquet", checks=["not_null(trip_id)"])
            >>> run.status, run.publication.rows
            ('published', 100)
            >>> lake.ingest("nyc.trips", "trips/*.parquet").status
            'skipped'
        """
        refuse_unknown("ingest", unknown, IngestOptions.__annotations__)
        options = IngestOptions(
            run_id=run_id,
            checks=checks,
            branch=branch,
            partition_by=partition_by,
            on_failure=on_failure,
            on_changed=on_changed,
            on_busy=on_busy,
            quarantine_limit=quarantine_limit,
            schema=schema,
            columns=columns,
            mode=mode,
            key=key,
            delete_when=delete_when,
            format=format,
            csv=csv,
            timeout_s=timeout_s,
        )
        _require_usable(options)
        if timeout_s is not None or run_id is not None:
            return self._run_step(table, paths, options, until="publish", suspends=timeout_s is not None)
        # Before the context: a damaged file is reported without starting anything.
        wanted: IngestOptions = {**options, "run_id": new_run_id()}
        with self._temporary_copies(wanted):
            request = self._request(table, self._paths(paths, wanted), wanted)
            self._components.open_engine_ahead(request.batch)
            return ingest(self._context, request)

    def plan(self, table: str, paths: Paths | Frame, **options: Unpack[IngestOptions]) -> IngestPlan:
        """Return what :meth:`ingest` would do, without writing anything.

        Args:
            table: ``namespace.table``. It doesn't have to exist.
            paths: Files, folders or glob patterns; or rows, as :meth:`ingest` takes them.
            **options: The keywords of :meth:`ingest`.

        Returns:
            The plan: the request, the table's schema, a description of each check, and which files aren't new.

        Raises:
            InputError: A file, name or check is wrong.
            RetryableError: The catalog or the journal can't be reached.

        Example:
            >>> plan = lake.plan("nyc.zones", "trips/*.parquet", checks=["unique(trip_id)"])
            >>> plan.exists, plan.request.batch.rows
            (False, 100)
        """
        refuse_unknown("plan", options, IngestOptions.__annotations__)
        _require_usable(options)
        wanted: IngestOptions = {**options, "run_id": validate_run_id(options.get("run_id") or new_run_id())}
        with self._temporary_copies(wanted):
            request = self._request(table, self._paths(paths, wanted), wanted)
            planned = plan(self._context, request, base=sync(self._context, MAIN))
        known = self._components.journal.known(table, request.batch.files)
        if not request.mode.appends:
            known = known.with_changed_back()
        return planned.model_copy(update={"known": known})

    def inspect(
        self,
        paths: Paths,
        *,
        format: FileFormat | None = None,
        csv: CsvOptions | None = None,
        rows: int = 3,
    ) -> SourceSample:
        """Return the columns that a table of these files would have, and the first rows. Needs no catalog or engine.

        Args:
            paths: Files, folders or glob patterns.
            format: ``parquet``, ``csv``, ``json``, ``avro``, ``orc`` or ``excel``. Default: detected from the files.
            csv: How to read CSV.
            rows: Number of rows to return.

        Returns:
            The files, their columns with types inferred from all values, and the first rows.

        Raises:
            InputError: A file can't be read.

        Example:
            >>> lake.inspect("trips/*.parquet").batch.rows
            100
        """
        from lakegate.sources.sample import inspect

        given = [paths] if isinstance(paths, (str, Path)) else paths
        return inspect(
            [str(path) for path in given],
            format=format,
            csv=csv,
            storage=self.settings.storage,
            narrator=self._components.narrator,
            rows=rows,
        )

    def mode_of(self, table: str, **options: Unpack[IngestOptions]) -> WriteMode:
        """Return what a batch would do to a table's existing rows.

        Args:
            table: ``namespace.table``.
            **options: The keywords of :meth:`ingest`.

        Raises:
            InputError: The options contradict each other.

        Example:
            >>> lake.mode_of("nyc.trips").name
            'append'
        """
        refuse_unknown("mode_of", options, IngestOptions.__annotations__)
        return choose_mode(
            self._components.contracts.settings_of(TableIdentifier.parse(table)).mode,
            options.get("mode"),
            key=options.get("key", ()),
            delete_when=options.get("delete_when"),
        )

    def propose_contract(
        self,
        table: str,
        paths: Paths | None = None,
        *,
        format: FileFormat | None = None,
        schema: str | None = None,
    ) -> str:
        """Propose a contract for a table by profiling all of its rows, or those of files.

        The profiled rows pass it. A comment beside each proposed check says what the data showed.

        Args:
            table: The table, ``namespace.table``.
            paths: Files, folders or glob patterns to profile instead of the table. Reading them needs Spark; reading a
                table doesn't.
            format: ``parquet``, ``csv``, ``json``, ``avro``, ``orc`` or ``excel``. Default: detected from the files.
            schema: File with the contracts' JSON Schema, which the first line names for editors.

        Returns:
            The contract, as YAML.

        Raises:
            NotFoundError: There's no such table.
            InputError: A file can't be read.
            RetryableError: The catalog or the engine can't be reached.

        Example:
            >>> print(lake.propose_contract("nyc.trips").splitlines()[1])
            version: 1
        """
        from lakegate.contracts.propose import profile, propose  # Arrow

        identifier = TableIdentifier.parse(table)
        narrator = self._components.narrator
        masked = self.settings.audit.mask
        if paths is None:
            found = self.table(table)
            with narrator.step(f"Reading {table}"):
                columns = profile(found.to_batches(), found.schema)
            partition_by = found.metadata.partition_by
            return propose(identifier, columns, source=table, partition_by=partition_by, schema=schema, masked=masked)
        options = IngestOptions(run_id=new_run_id())
        with self._temporary_copies(options):
            csv = self._components.contracts.settings_of(identifier).csv
            batch = self._batch_to_try(paths, format, csv, options)
            engine = self._components.file_engine
            with narrator.step(f"Reading {counted(len(batch.files), 'file')}"):
                source = engine.source_schema(batch)
                engine.read_batch(batch, source)
                columns = profile(engine.stream(engine.frame()), source)
        files = batch.uris[0] if len(batch.uris) == 1 else f"{batch.uris[0]} and {len(batch.uris) - 1} more"
        return propose(identifier, columns, source=files, schema=schema, masked=masked)

    def test_contract(
        self,
        contract: str | Path,
        paths: Paths,
        *,
        format: FileFormat | None = None,
    ) -> ContractTrial:
        """Audit files by a contract, without a table: nothing is written, and neither catalog nor journal is needed.

        Args:
            contract: A contract's file, or a table that has one in the project.
            paths: Files, folders or glob patterns.
            format: ``parquet``, ``csv``, ``json``, ``avro``, ``orc`` or ``excel``. Default: detected from the files.

        Returns:
            The report, also when a check failed, and the checks that weren't tried because they need the lake.

        Raises:
            ConfigurationError: The contract can't be read.
            InputError: A file can't be read, or a check doesn't apply to it.
            RetryableError: The engine can't be reached.

        Example:
            >>> from pathlib import Path
            >>> _ = Path("trips.yaml").write_text("{version: 1, table: nyc.trips, checks: [unique: trip_id]}")
            >>> lake.test_contract("trips.yaml", "trips/*.parquet").passed
            True
        """
        loaded = self._components.contracts.named(contract)
        csv = loaded.settings.csv
        options = IngestOptions(run_id=new_run_id())
        with self._components.narrator.step(f"Trying {loaded.file}"), self._temporary_copies(options):
            engine = self._components.file_engine
            names = loaded.settings.columns
            batch = self._batch_to_try(paths, format, csv, options, columns=names)
            masked = self.settings.audit.mask
            return try_contract(loaded, batch, engine, masked=masked, narrator=self._components.narrator)

    # Ingest in steps, for orchestrators

    def write(self, table: str, paths: Paths | Frame, **options: Unpack[IngestOptions]) -> Run:
        """Write files to a branch and suspend the run, for :meth:`audit_run` and :meth:`publish_run`.

        This is the first step of :meth:`ingest`, for orchestrators. Any process may repeat any step: what is done
        already isn't done again. A suspended run is left alone for ``journal.park_s`` seconds; then :meth:`recover`
        finishes or undoes it.

        Args:
            table: ``namespace.table``. Created if it doesn't exist.
            paths: Files, folders or glob patterns; or rows, as :meth:`ingest` takes them.
            **options: The keywords of :meth:`ingest`. Pass ``run_id``, so that a repeated call finds the same run.

        Returns:
            The run: ``staged``, or ``skipped`` if no file is new. A run that had already ended is returned as it is.

        Raises:
            InputError: A file, name or check is wrong. Nothing was written.
            RetryableError: The catalog or the engine can't be reached. Call it again, or call :meth:`cancel_run`.

        Example:
            >>> lake.write("nyc.fares", "trips/*.parquet", run_id="nightly-1").status
            'staged'
            >>> lake.audit_run("nightly-1").report.passed
            True
            >>> lake.publish_run("nightly-1").status
            'published'
        """
        refuse_unknown("write", options, IngestOptions.__annotations__)
        return self._run_step(table, paths, options, until="write", suspends=True)

    def audit_run(self, run_id: str) -> Run:
        """Audit what a run wrote. If that was lost, write it again first.

        Args:
            run_id: The run's id.

        Returns:
            The run: ``rejected``, or ``staged`` with a report that passed. A run that had already ended is returned as
            it is.

        Raises:
            NotFoundError: There's no such run.
            RetryableError: The catalog or the engine can't be reached. Call it again, or call :meth:`cancel_run`.
        """
        return self._clean_up_if_ended(resume(self._context, run_id, until="audit"))

    def publish_run(self, run_id: str) -> Run:
        """Publish what a run wrote, exactly once. If it isn't written and audited, or must be again, do that first.

        Args:
            run_id: The run's id.

        Returns:
            The run: ``published`` or ``rejected``. A run that had already ended is returned as it is.

        Raises:
            NotFoundError: There's no such run.
            RetryableError: The catalog or the engine can't be reached. Call it again, or call :meth:`cancel_run`.
            OutcomeUnknownError: The connection to the catalog broke during the commit. Call it again to find out.
        """
        return self._clean_up_if_ended(resume(self._context, run_id, until="publish"))

    def cancel_run(self, run_id: str, *, reason: str = "Cancelled by its orchestrator.") -> Run:
        """End a run that nobody will resume, and drop its branch. What it published stays published.

        The branch of a rejected run stays if ``on_failure`` is ``keep``. Calling it again changes nothing.

        Args:
            run_id: The run's id.
            reason: Why, in one sentence. Stored with the run.

        Returns:
            The run as it ended.

        Raises:
            NotFoundError: There's no such run.
            RetryableError: Another process is working on it, or the catalog can't be reached.
        """
        return self._clean_up_if_ended(undo(self._context, run_id, reason=reason))

    # Transactions

    def transaction(
        self, name: str | None = None, *, branch: str | None = None, on_failure: OnFailure | None = None
    ) -> AbstractContextManager[Transaction]:
        """Write to any number of tables on one branch, and publish them together when the block ends, or nothing.

        Each table is audited with the checks of its settings and those added with
        :meth:`~lakegate.wap.transaction.Transaction.check`. An exception in the block discards everything.

        Args:
            name: Name of the transaction in the history. Default: the names of its tables.
            branch: Name of the branch. Default: one made from the run id.
            on_failure: ``keep`` or ``drop`` the branch if an audit fails. Default: ``ingest.on_failure``.

        Returns:
            A context manager that yields the transaction.

        Raises:
            AuditFailedError: A check failed when the block ended. Nothing was published.
            ConflictError: A table that the block read, overwrote or upserted changed on ``main``. Nothing was
                published. Run the block again, or use :meth:`transact`, which does that.

        Example:
            >>> with lake.transaction(name="daily") as tx:
            ...     tx.append("nyc.zones", [{"zone": 1, "name": "Newark"}, {"zone": 2, "name": "Jamaica Bay"}])
            ...     tx.overwrite("nyc.totals", tx.sql("SELECT count(*) AS zones FROM nyc.zones"))
            >>> lake.query("SELECT zones FROM nyc.totals").to_arrow().to_pylist()
            [{'zones': 2}]
        """
        return self._transaction(name, branch=branch, on_failure=on_failure)

    def _transaction(
        self,
        name: str | None,
        *,
        branch: str | None = None,
        on_failure: OnFailure | None = None,
        action: Action | None = None,
        undoes: Callable[[Ref], Sequence[str]] = lambda _: (),
    ) -> AbstractContextManager[Transaction]:
        run_id = new_run_id()
        return transaction(
            self._context,
            run_id=run_id,
            name=name,
            branch=branch or f"{self.settings.ingest.branch_prefix}/transaction_{run_id}",
            target=MAIN,
            configured=self._configured_checks,
            on_failure=on_failure or self.settings.ingest.on_failure,
            action=action,
            undoes=undoes,
        )

    def transact(
        self, work: Callable[[Transaction], _Result], *, name: str | None = None, attempts: int = 3
    ) -> _Result:
        """Run a function in a transaction. On a conflict, run it again on the new ``main``.

        Args:
            work: A function of the transaction. It may be called more than once.
            name: Name of the transaction in the history. Default: the names of its tables.
            attempts: Maximum number of attempts.

        Returns:
            What ``work`` returned in the attempt that was published.

        Raises:
            AuditFailedError: A check failed. Nothing was published.
            ConflictError: The last attempt conflicted, too. Nothing was published.

        Example:
            >>> lake.transact(lambda tx: tx.append("nyc.notes", [{"note": "checked"}]))
        """
        return self._retry_conflicts(attempts, lambda: self.transaction(name), work)

    def _run_transaction(
        self,
        work: Callable[[Transaction], object],
        *,
        name: str | None = None,
        on_failure: OnFailure | None = None,
        action: Action | None = None,
        undoes: Callable[[Ref], Sequence[str]] = lambda _: (),
    ) -> Run:
        def attempt(tx: Transaction) -> Transaction:
            work(tx)
            return tx

        def begin() -> AbstractContextManager[Transaction]:
            return self._transaction(name, on_failure=on_failure, action=action, undoes=undoes)

        return self._retry_conflicts(3, begin, attempt).run

    def _retry_conflicts(
        self,
        attempts: int,
        begin: Callable[[], AbstractContextManager[Transaction]],
        work: Callable[[Transaction], _Result],
    ) -> _Result:
        """Do ``work`` in a transaction, and again each time another run has changed one of its tables.

        Args:
            attempts: How often to try. From the third attempt on, other runs let this one publish first.
        """
        with ExitStack() as stack:
            for attempt in range(1, attempts):
                try:
                    with begin() as tx:
                        return work(tx)
                except NotReplayableError as error:
                    # Only this is worth another attempt: the publish itself rebases onto all other changes.
                    table = str(error.context.get("table"))
                    self._components.narrator.note(
                        f"{table} changed on main meanwhile; running it again on the new main."
                    )
                    if attempt >= LOSSES_BEFORE_LOCK:
                        stack.enter_context(holding_publish_lock(self._context, MAIN, [table]))
            with begin() as tx:
                return work(tx)

    def evolve_table(self, table: str, *changes: str, checks: Checks = ()) -> Run:
        """Change a table's columns or partitioning by SQL, audit it, and publish the change, or publish nothing.

        All rows of the table are audited with the checks of its settings. If others publish to the table meanwhile, the
        changes are made again on the new ``main``.

        Args:
            table: ``namespace.table``.
            *changes: What follows ``ALTER TABLE …`` in Spark SQL, such as ``"ADD COLUMN zone STRING"``.
            checks: Checks to run in addition to the table's settings.

        Returns:
            The run, which can be reverted like any other.

        Raises:
            AuditFailedError: A check failed, or the table would no longer have the columns of its contract. Nothing was
                published.
            InputError: There's no such table, or a change can't be made.

        Example:
            >>> run = lake.ingest("nyc.airports", [{"code": "JFK"}])
            >>> run = lake.evolve_table("nyc.airports", "ADD COLUMN note STRING")
            >>> [str(change) for change in run.staged[0].schema_changes]
            ['add column note (string)']
        """
        identifier = TableIdentifier.parse(table)
        statements = [f"ALTER TABLE {'.'.join(map(quote, identifier.parts))} {change}" for change in changes]
        if not all(map(renames_column, statements)):
            require_not_reserved(identifier)
        _require_list("checks", checks)
        if not changes:
            raise InputError("No change was given.", hint="Pass one as in SQL, such as 'ADD COLUMN zone STRING'.")
        self.table(table)  # Spark isn't started for a table that doesn't exist

        def work(tx: Transaction) -> None:
            for statement in statements:
                tx.sql(statement)
            tx.check(table, *checks)

        return self._run_transaction(work)

    def delete_rows(self, table: str, where: str) -> Run:
        """Delete rows of a table on ``main``, if the remaining rows pass the table's checks.

        Args:
            table: ``namespace.table``.
            where: Condition in Spark SQL, such as ``"pickup < '2019-01-01'"``.

        Returns:
            The run, a transaction, which can be reverted: ``published``, or ``skipped`` if no row meets the condition.

        Raises:
            AuditFailedError: The remaining rows would fail one of the table's checks. Nothing was published.
            ConflictError: The table kept changing. Nothing was published.
            NotFoundError: The table doesn't exist.
            QueryError: The condition can't be used.

        Example:
            >>> lake.delete_rows("nyc.trips", "trip_id < 0").status
            'skipped'
        """
        identifier = TableIdentifier.parse(table)
        require_not_reserved(identifier)
        self.table(table)  # Spark isn't started for a table that doesn't exist
        return self._run_transaction(lambda tx: tx.delete(table, where), name=f"delete rows of {identifier}")

    # Quarantine

    def quarantine_list(self, table: str | None = None) -> Sequence[QuarantineSummary]:
        """Return how many rows of one table, or of all, each run set aside, newest first.

        Args:
            table: ``namespace.table``. Default: all tables.

        Raises:
            NotFoundError: No row of the table was ever quarantined.
        """
        identifier = None if table is None else TableIdentifier.parse(table)
        catalog, reader = self._components.catalog, self._components.reader
        return quarantined(catalog, reader, catalog.get_ref(MAIN), identifier)

    def quarantine_show(
        self, table: str, *, run_id: str | None = None, check: str | None = None, limit: int = 20
    ) -> Sequence[Mapping[str, Any]]:
        """Return rows waiting in quarantine, with their reasons.

        Args:
            table: ``namespace.table``.
            run_id: Only rows that this run set aside.
            check: Only rows that fail the check of this name.
            limit: Maximum number of rows.

        Raises:
            NotFoundError: No row of the table was ever quarantined.
        """
        chosen = RowSelection(run_id=run_id, check=check)
        pointer = self._find_quarantine(TableIdentifier.parse(table))
        return quarantined_rows(self._components.reader, pointer, chosen, limit)

    def quarantine_release(
        self,
        table: str,
        *,
        run_id: str | None = None,
        check: str | None = None,
        where: str | None = None,
        changes: Mapping[str, str] | None = None,
        accept: str | None = None,
        actor: str | None = None,
    ) -> Run:
        """Publish rows waiting in quarantine, as they are or corrected, if they pass today's checks.

        Each row is published once.

        Args:
            table: ``namespace.table``.
            run_id: Only rows that this run set aside.
            check: Only rows that fail the check of this name.
            where: Only rows for which this predicate in Spark SQL is true.
            changes: New values: column to an expression in Spark SQL, such as ``{"fare": "abs(fare)"}``. ``"NULL"``
                leaves out the values of a column that the table no longer has.
            accept: Reason for publishing them even though they fail a check; see :meth:`publish`.
            actor: Who releases them, recorded with the run, if your program acts on somebody's behalf.

        Returns:
            The run, a transaction. The rows stay in the quarantine table, marked with its id.

        Raises:
            AuditFailedError: The rows fail one of the table's checks, all of which block here. Nothing was published.
            InputError: No waiting row matches, or an expression is invalid.
            NotFoundError: No row of the table was ever quarantined.
            SchemaError: The table has no column for a row's value, or the column's type can't hold it.
        """
        identifier = TableIdentifier.parse(table)
        self._find_quarantine(identifier)
        new = dict(changes or {})
        chosen = RowSelection(run_id=run_id, check=check, where=where)
        try:
            return self._run_transaction(
                lambda tx: release(self._context, tx, identifier, chosen, new),
                name=f"release {identifier}",
                on_failure=None if accept is None else "keep",
                action=review.acted("release", actor),
            )
        except AuditFailedError as failed:
            if accept is None:
                raise
            return self.publish(str(failed.context["branch"]), accept=accept, actor=actor)

    def quarantine_drop(
        self,
        table: str,
        *,
        run_id: str | None = None,
        check: str | None = None,
        where: str | None = None,
        actor: str | None = None,
    ) -> Run:
        """Delete rows waiting in quarantine.

        Args:
            table: ``namespace.table``.
            run_id: Only rows that this run set aside.
            check: Only rows that fail the check of this name.
            where: Only rows for which this predicate in Spark SQL is true.
            actor: Who drops them, recorded with the run, if your program acts on somebody's behalf.

        Returns:
            The run, a transaction, which can be reverted.

        Raises:
            InputError: No waiting row matches, or the predicate is invalid.
            NotFoundError: No row of the table was ever quarantined.
        """
        identifier = TableIdentifier.parse(table)
        self._find_quarantine(identifier)
        chosen = RowSelection(run_id=run_id, check=check, where=where)
        return self._run_transaction(
            lambda tx: drop(tx, identifier, chosen),
            name=f"drop quarantined {identifier}",
            action=review.acted("drop", actor),
        )

    def _find_quarantine(self, table: TableIdentifier) -> TablePointer:
        catalog = self._components.catalog
        return find_quarantine(catalog, catalog.get_ref(MAIN), table)

    # Branches: audit, publish, discard

    def audit(
        self,
        table: str,
        *,
        branch: str | None = None,
        checks: Checks | None = None,
        ref: str | None = None,
        at: str | datetime | None = None,
        since: str | datetime | None = None,
        explain: bool = False,
    ) -> AuditReport:
        """Audit what a branch did to a table, or what is published already.

        With ``branch="main"``, or with ``ref``, ``at`` or ``since``, all rows of the table are audited, to see whether
        the checks would have passed. No run changes.

        Args:
            table: ``namespace.table``. With a branch, a table that the branch changed.
            branch: A branch, made by lakegate or by another writer.
            checks: Checks to try out. The run's own report stays as it is. Default: the checks of the run that wrote
                the branch and of the table's settings, whose report :meth:`publish` relies on.
            ref: Branch, tag or commit whose rows to audit, instead of what a branch added.
            at: Audit the rows that the table had at this time, tag or commit.
            since: Audit only the rows added after this time, tag or commit.
            explain: Fill the report's ``explanations``: how each check was answered, why no cheaper way was possible,
                and what it cost.

        Returns:
            The report, also when a check failed.

        Raises:
            NotFoundError: There's no such branch, table or commit.
            InputError: The branch didn't change the table, or lakegate doesn't know the run that wrote it. Or the table
                changed after ``since`` by more than appends, compactions and new or widened columns.
            NewerFormatError: A newer lakegate stored its run on the branch.
            RetryableError: The catalog or the engine can't be reached.

        Example:
            >>> report = lake.audit("nyc.fares", branch="fix", checks=["not_null(fare)"])
            >>> report.passed
            False
            >>> lake.audit("nyc.trips", branch="main", checks=["not_null(fare)"]).passed
            True
        """
        identifier = TableIdentifier.parse(table)
        if branch is not None and ref is not None:
            raise InputError(f"branch='{branch}' and ref='{ref}' can't be combined.", hint="Pass one of them.")
        _require_list("checks", checks)
        tried = None if checks is None else self._checks(identifier, checks, configured=False)
        if branch not in (None, MAIN) and at is None and since is None:
            return review.audit_branch(
                self._context, identifier, branch, checks=tried, configured=self._configured_checks, explain=explain
            )
        if (branch, ref, at, since) == (None, None, None, None):
            raise InputError(
                "Can't tell which rows to audit.",
                hint=f"Pass branch='NAME' for what a branch adds, or branch='{MAIN}' for what is published.",
            )
        name = ref or branch or MAIN
        start = None if since is None else self._resolve(name, since)
        resolved = self._resolve(name, at)
        wanted = self._configured_checks(identifier) if tried is None else tried
        return audit_state(self._context, identifier, resolved, wanted, since=start, explain=explain)

    def publish(self, branch: str, *, accept: str | None = None, actor: str | None = None) -> Run:
        """Publish a branch. Audits it first unless this state of it has passed its audit.

        The branch itself says which run wrote it, with which checks and from which files, so the outcome doesn't depend
        on the journal.

        Args:
            branch: The branch.
            accept: Reason for publishing it even though its audit fails. The reason and the actor (``LAKEGATE_ACTOR``,
                the CI service's user, or user and host) go into the commit, the journal and the alert, beside the
                failing report. It overrides nothing else. Default: publish only what passes.
            actor: Who publishes it, recorded with the run and the reason, if your program acts on somebody's behalf.

        Returns:
            The run, ``published``.

        Raises:
            InputError: lakegate doesn't know the run that wrote it, that run was reverted, or the reason is empty.
            NewerFormatError: A newer lakegate stored its run on the branch.
            AuditFailedError: The audit failed. The branch stays.
            ConflictError: One of its tables changed on ``main``. The branch stays.
            NotFoundError: There's no such branch.

        Example:
            >>> lake.publish("fix", accept="The vendor confirmed that fares are missing.").status
            'published'
        """
        acceptance = None if accept is None else accepted(accept, actor)
        return review.publish_branch(
            self._context,
            branch,
            configured=self._configured_checks,
            acceptance=acceptance,
            action=review.acted("publish", actor),
        )

    def discard(self, branch: str, *, actor: str | None = None) -> Run | None:
        """Drop a branch and everything written to it.

        Args:
            branch: The branch.
            actor: Who discards it, recorded with the run, if your program acts on somebody's behalf.

        Returns:
            The run that wrote it, ``discarded`` unless it was published before; ``None`` if the journal has no such
            run.

        Raises:
            NotFoundError: There's no such branch.
            InputError: It's ``main``, or a tag.
        """
        return discard_run(self._context, branch, action=review.acted("discard", actor))

    # Revert and restore

    def revert(self, run: str, *, dry_run: bool = False, actor: str | None = None) -> Run:
        """Undo what a run published, in one commit across its tables. Later publishes stay.

        That works as long as the data files that the run added are all there, or only appends came since. The run's
        source files can be ingested again.

        Args:
            run: The run's id, or a unique prefix of it that includes at least the minute: ``20260131T0705``.
            dry_run: Change nothing; return what would be done.
            actor: Who reverts it, recorded with the revert, if your program acts on somebody's behalf.

        Returns:
            The revert, a run of its own: ``undone`` says what changed in each table. ``skipped`` for a dry run.

        Raises:
            NotRevertableError: Later runs depend on it, or changed what it wrote; :meth:`restore_table` still works.
            InputError: There's no such run, it wasn't published, it was reverted before, or it's a revert, a restore or
                a rename.
            RetryableError: The catalog or the journal can't be reached, or ``main`` kept changing. Nothing was changed.
            OutcomeUnknownError: The connection to the catalog broke during the commit.

        Example:
            >>> run = lake.ingest("nyc.trips", "more/trips.parquet")
            >>> lake.revert(run.run_id).undone[0].rows
            -10
        """
        from lakegate.wap.revert import revert

        return revert(
            self._context,
            self.run(run).run_id if dry_run else self._full_run_id(run),
            new_run_id=new_run_id(),
            target=MAIN,
            dry_run=dry_run,
            action=review.acted("revert", actor),
        )

    def restore_table(self, table: str, *, at: str | datetime) -> Run:
        """Restore an earlier state of a table on ``main`` in one new commit, whoever changed it since.

        Its quarantine table goes back to that time, too. Source files whose rows it loses can be ingested again; those
        whose rows it regains count as published.

        Args:
            table: ``namespace.table``. It may have been dropped since.
            at: Time, tag or commit.

        Returns:
            The restore, a run of its own; ``skipped`` if the table hasn't changed since.

        Raises:
            NotFoundError: There was no such table then.
            InputError: The commit isn't in the history of ``main``.
            RetryableError: The catalog or the journal can't be reached, or ``main`` kept changing. Nothing was changed.
            OutcomeUnknownError: The connection to the catalog broke during the commit.

        Example:
            >>> before = next(lake.log(limit=1)).hash
            >>> run = lake.ingest("nyc.trips", "more/trips.parquet")
            >>> lake.restore_table("nyc.trips", at=before).undone[0].rows
            -10
        """
        from lakegate.wap.revert import restore_table

        identifier = TableIdentifier.parse(table)
        return restore_table(self._context, identifier, self._resolve(MAIN, at), new_run_id=new_run_id())

    def drop_table(self, table: str) -> Run:
        """Drop a table on ``main``, in one commit, and its quarantine table with it.

        Older commits still have them; :meth:`restore_table` brings them back.

        Args:
            table: ``namespace.table``.

        Returns:
            The run that dropped it. Its source files can be ingested again.

        Raises:
            NotFoundError: There's no such table.
            RetryableError: The catalog or the journal can't be reached, or ``main`` kept changing. Nothing was changed.
            OutcomeUnknownError: The connection to the catalog broke during the commit.

        Example:
            >>> run = lake.ingest("nyc.scratch", "more/trips.parquet")
            >>> lake.drop_table("nyc.scratch").undone[0].dropped
            True
        """
        from lakegate.wap.table_changes import drop_table

        return drop_table(self._context, TableIdentifier.parse(table), new_run_id=new_run_id())

    def rename_table(self, table: str, name: str) -> Run:
        """Rename a table on ``main``, in one commit, and its quarantine table with it. No file is written or moved.

        Files that were published to it count as published under its new name. An ingest into the old name creates a
        new table. Runs from before the rename can't be reverted any more.

        Args:
            table: ``namespace.table``.
            name: Its new name. The namespace may change, too.

        Returns:
            The run. To undo it, rename the table back.

        Raises:
            NotFoundError: There's no such table.
            AlreadyExistsError: The new name is taken.
            ConfigurationError: The table has a contract or a section in the settings, and the new name has none.
            RetryableError: The catalog or the journal can't be reached, or ``main`` kept changing. Nothing was changed.
            OutcomeUnknownError: The connection to the catalog broke during the commit.

        Example:
            >>> run = lake.ingest("nyc.draft", "more/trips.parquet")
            >>> lake.rename_table("nyc.draft", "nyc.final").status
            'published'
            >>> lake.ingest("nyc.final", "more/trips.parquet").status
            'skipped'
        """
        from lakegate.wap.table_changes import rename_table

        old, new = TableIdentifier.parse(table), TableIdentifier.parse(name)
        if old == new:
            raise InputError(f"Table {old} already has that name.", hint="Choose another name.", table=str(old))
        self._components.contracts.require_counterpart(old, new)
        return rename_table(self._context, old, new, new_run_id=new_run_id())

    def truncate_table(self, table: str) -> Run:
        """Delete all rows of a table on ``main``, and its quarantined ones, if an empty table passes its checks.

        Unlike after :meth:`delete_rows`, its source files can be ingested again. Needs Spark.

        Args:
            table: ``namespace.table``.

        Returns:
            The run, a transaction; ``skipped`` if the table was empty. Reverting it brings the rows back, and their
            files count as published again.

        Raises:
            AuditFailedError: The empty table fails one of its checks. Nothing was published.
            ConflictError: The table kept changing. Nothing was published.
            NotFoundError: There's no such table.

        Example:
            >>> run = lake.ingest("nyc.daily", "more/trips.parquet")
            >>> lake.truncate_table("nyc.daily").publication.rows_removed
            10
            >>> lake.ingest("nyc.daily", "more/trips.parquet").status
            'published'
        """
        from lakegate.wap.table_changes import runs_in, truncate

        identifier = TableIdentifier.parse(table)
        require_not_reserved(identifier)
        self.table(table)  # Spark isn't started for a table that doesn't exist
        return self._run_transaction(
            lambda tx: truncate(self._context, tx, identifier),
            name=f"truncate {identifier}",
            undoes=partial(runs_in, self._context, identifier),
        )

    def expire_snapshots(self, table: str, *, older_than: str | timedelta, keep: int = 1) -> Run:
        """Remove old snapshots from a table's metadata on ``main``, in one commit. Deletes no file.

        Tags, branches and older commits keep theirs, so reading with ``at=`` works as before.

        Args:
            table: ``namespace.table``.
            older_than: Age, such as ``30d``.
            keep: Number of newest snapshots to keep, whatever their age.

        Returns:
            The run; ``skipped`` if no snapshot was that old.

        Raises:
            NotFoundError: There's no such table.
            InputError: ``keep`` isn't positive.
            RetryableError: The catalog or the journal can't be reached, or ``main`` kept changing. Nothing was changed.
            OutcomeUnknownError: The connection to the catalog broke during the commit.

        Example:
            >>> lake.expire_snapshots("nyc.trips", older_than="30d").status
            'skipped'
        """
        from lakegate.wap.table_changes import expire_snapshots

        if keep < 1:
            raise InputError("At least one snapshot must be kept: the current one.", hint="keep=1")
        before = datetime.now(UTC) - _duration(older_than)
        identifier = TableIdentifier.parse(table)
        return expire_snapshots(self._context, identifier, before=before, keep=keep, new_run_id=new_run_id())

    def optimize_table(
        self,
        table: str,
        *,
        sort: str | None = None,
        where: str | None = None,
        attempts: int = 3,
    ) -> Run:
        """Compact a table's small files on ``main`` by Iceberg's ``rewrite_data_files``, which changes no row.

        Rows that others append meanwhile stay. Afterwards, the number of rows is compared with the one before.

        Args:
            table: ``namespace.table``.
            sort: Order of the rows in the new files: ``pickup, zone desc``, or ``zorder(pickup, zone)``.
            where: Condition in SQL. Only files that may hold rows for which it's true are rewritten.
            attempts: Maximum number of attempts, if others rewrite the same files meanwhile.

        Returns:
            The run; ``skipped`` if there was nothing to compact.

        Raises:
            NotFoundError: There's no such table.
            SchemaError: It has no such column.
            InputError: The condition or the order can't be used.
            AuditFailedError: The number of rows changed. The hint says how to restore the table.
            ConflictError: The last attempt conflicted, too. Nothing was changed.

        Example:
            >>> lake.optimize_table("nyc.trips").status
            'skipped'
        """
        from lakegate.checks.predicates import PredicateError, read_predicate
        from lakegate.wap.table_changes import optimize, sort_order

        identifier = TableIdentifier.parse(table)
        columns = self.table(table).schema
        order = None if sort is None else sort_order(sort, columns, identifier)
        try:
            condition = None if where is None else read_predicate(where).sql
        except PredicateError as error:
            raise InputError(f"--where {where!r} {error}.", hint="Write a condition about one row.") from None
        return optimize(
            self._context, identifier, sort=order, where=condition, attempts=attempts, new_run_id=new_run_id()
        )

    # Refs

    def branches(self) -> Sequence[Ref]:
        """Return all branches, ``main`` first."""
        refs = (ref for ref in self._components.catalog.list_refs() if ref.kind == "branch")
        return sorted(refs, key=lambda ref: (ref.name != MAIN, ref.name))

    def create_branch(self, name: str, source: str = MAIN, *, at: str | datetime | None = None) -> Ref:
        """Create a branch.

        Args:
            name: Name of the branch.
            source: Branch, tag or commit hash to start from.
            at: Time, tag or commit: start from what ``source`` was then. Default: now.

        Returns:
            The branch.

        Raises:
            AlreadyExistsError: A branch or tag of this name exists.
            NotFoundError: ``source`` doesn't exist, or didn't at that time.
            InputError: The name isn't allowed, or the commit is older than ``gc.keep``.

        Example:
            >>> lake.create_branch("experiment").hash == next(lake.log(limit=1)).hash
            True
            >>> lake.delete_branch("experiment").name
            'experiment'
        """
        commit = self._resolve(source, at)
        require_kept(self._context, commit)
        return self._components.catalog.create_branch(validate_ref_name(name), commit)

    def delete_branch(self, name: str) -> Ref:
        """Delete a branch, whoever made it.

        Args:
            name: The branch.

        Returns:
            The branch as it was.

        Raises:
            NotFoundError: There's no such branch.
            InputError: It's ``main``, a tag or a commit.
        """
        ref = find(self._components.catalog, name)
        require_branch(ref)
        discard(self._context, name)
        return ref

    def reset_branch(self, name: str, *, to: str = MAIN, at: str | datetime | None = None, force: bool = False) -> Ref:
        """Point a branch at another commit. Commits that were only on this branch become unreachable.

        Args:
            name: The branch.
            to: Branch, tag or commit hash.
            at: Time, tag or commit: reset to what ``to`` was then. Default: now.
            force: Required for ``main``, whose history loses published runs. :meth:`revert` and :meth:`restore_table`
                keep the history.

        Returns:
            The branch as it is now.

        Raises:
            NotFoundError: There's no such branch, or no such commit.
            InputError: It's a tag, it's ``main`` without ``force``, or the commit is older than ``gc.keep``.
            ConflictError: Somebody committed to it at the same time.

        Example:
            >>> old = lake.create_branch("experiment", at=datetime.now(UTC))
            >>> lake.reset_branch("experiment", to="main").name
            'experiment'
        """
        from lakegate.wap.revert import reset_branch

        return reset_branch(self._context, name, self._resolve(to, at), force=force)

    def tags(self) -> Sequence[Ref]:
        """Return all tags, by name."""
        refs = (ref for ref in self._components.catalog.list_refs() if ref.kind == "tag")
        return sorted(refs, key=lambda ref: ref.name)

    def create_tag(self, name: str, source: str = MAIN, *, at: str | datetime | None = None) -> Ref:
        """Give a commit a name that never moves.

        Args:
            name: Name of the tag.
            source: Branch, tag or commit hash.
            at: Time, tag or commit: tag what ``source`` was then. Default: now.

        Returns:
            The tag.

        Raises:
            AlreadyExistsError: A branch or tag of this name exists.
            NotFoundError: ``source`` doesn't exist, or didn't at that time.
            InputError: The name isn't allowed, or the commit is older than ``gc.keep``.

        Example:
            >>> tag = lake.create_tag("release-1")
            >>> lake.table("nyc.trips", ref="release-1").rows
            100
        """
        commit = self._resolve(source, at)
        require_kept(self._context, commit)
        return self._components.catalog.create_tag(validate_ref_name(name), commit)

    def delete_tag(self, name: str) -> Ref:
        """Delete a tag. The commit stays in the history of branches.

        Args:
            name: The tag.

        Returns:
            The tag as it was.

        Raises:
            NotFoundError: There's no such tag.
            InputError: It's a branch.
        """
        ref = find(self._components.catalog, name)
        if ref.kind != "tag":
            raise InputError(f"'{name}' isn't a tag.", hint="lakegate tag list", ref=name)
        self._components.catalog.delete_ref(ref)
        return ref

    def log(self, ref: str = MAIN, *, limit: int | None = None, operations: bool = True) -> Iterator[Commit]:
        """Iterate over the commits of a ref, newest first.

        Args:
            ref: Branch, tag or commit hash.
            limit: Maximum number of commits. Default: all.
            operations: Fill :attr:`Commit.tables` and :attr:`Commit.puts`. A catalog with many tables answers faster
                without them. Commits by lakegate also name their tables in the property ``lakegate.tables``.

        Returns:
            The commits, read as you iterate.

        Raises:
            NotFoundError: There's no such ref.

        Example:
            >>> ["lakegate.run-id" in commit.properties for commit in lake.log(limit=1)]
            [True]
        """
        catalog = self._components.catalog
        return islice(catalog.history(self._find_ref(ref).name, operations=operations), limit)

    def diff(self, left: str, right: str) -> Sequence[TableDifference]:
        """Return the tables that differ between two refs.

        Args:
            left: Branch or tag.
            right: Branch or tag to compare it with.

        Returns:
            One difference for each table that isn't the same on both, including how its columns differ.

        Raises:
            NotFoundError: One of the refs doesn't exist.

        Example:
            >>> lake.diff("main", "main")
            []
        """
        catalog, reader = self._components.catalog, self._components.reader
        differences = catalog.diff(self._find_ref(left), self._find_ref(right))
        return [
            one.model_copy(update={"schema_changes": changes_between(reader, one.left, one.right)})
            if one.kind == "table"
            else one
            for one in differences
        ]

    def diff_rows(
        self,
        table: str,
        left: str,
        right: str,
        *,
        left_at: str | datetime | None = None,
        key: Sequence[str] = (),
    ) -> RowDifference:
        """Return the rows of a table that two refs don't share.

        If ``right`` only appended to ``left``, just the appended rows are read. Otherwise, all rows of both are
        compared by all columns, and a changed row counts as one removed and one added, unless ``key`` says which rows
        are the same.

        Args:
            table: ``namespace.table``.
            left: Branch or tag.
            right: Branch or tag to compare it with.
            left_at: Time, tag or commit: compare with what ``left`` was then. Default: now.
            key: Columns that identify a row.

        Returns:
            The rows that were added and removed and, with a key, changed. They're planned, and read when you ask for
            them.

        Raises:
            EngineUnavailableError: Spark can't be reached.
            InputError: On one of the refs, the table lacks a column of ``key``.
            NotFoundError: One of the refs doesn't exist, or neither has the table.

        Example:
            >>> lake.diff_rows("nyc.trips", "main", "main")
            RowDifference(added=None, removed=None, changed=None)
        """
        identifier = TableIdentifier.parse(table)
        catalog, reader = self._components.catalog, self._components.reader
        refs = self._resolve(left, left_at), self._find_ref(right)
        before, after = (
            catalog.get_table(identifier, Ref(name=ref.hash, hash=ref.hash, kind="detached")) for ref in refs
        )
        if before is None and after is None:
            raise NotFoundError(
                f"Table {table} exists neither on {left} nor on {right}.", hint="lakegate table list", table=table
            )
        columns = changes_between(reader, before, after)
        renamed = {one.before: one.column for one in columns if one.before and one.change == "renamed"}
        for pointer, names, ref in ((before, renamed, refs[0]), (after, {}, refs[1])):
            if key and pointer is not None:
                known = reader.metadata(pointer).table_schema.names
                _require_key(key, [names.get(name, name) for name in known], f"{table} on {ref.name}")
        if before == after:
            return RowDifference(None, None)
        # Spark needs a branch beside the hash. For a bare commit, any branch does.
        old, new = (
            TableAt(table=identifier, ref=MAIN if is_commit_hash(ref.name) else ref.name, hash=ref.hash) for ref in refs
        )
        change = reader.change(before, after, evolves=True)
        if before is None or after is None:
            return RowDifference(
                self._rows(new) if before is None else None, self._rows(old) if after is None else None
            )
        if change.only_adds:
            added = AddedRows(
                table=identifier,
                ref=new.ref,
                hash=new.hash,
                after_snapshot_id=change.parent_snapshot_id,
                snapshot_id=after.snapshot_id,
            )
            return RowDifference(self._rows(added), None)
        # A column that was dropped and added again, or that has a default, changes what rows hold, without a snapshot.
        changes_values = change.reason and any(one.change in ("added", "dropped", "retyped") for one in columns)
        if change.kind == "expire" or (change.kind == "metadata" and not changes_values):
            return RowDifference(None, None)
        engine = self._components.engine
        found = engine.compare(old, new, key, renamed=renamed)
        return RowDifference(*(Query(one, engine.fetch, engine.stream) for one in found))

    # Tables and queries

    def tables(
        self, ref: str = MAIN, *, on_unreadable: Callable[[str, LakegateError], object] | None = None
    ) -> Sequence[TableMetadata]:
        """Return the metadata of all tables.

        Args:
            ref: Branch or tag.
            on_unreadable: Called with the name of each table whose metadata is damaged or missing, and the error. The
                table is left out. Default: the error is raised.

        Returns:
            The tables, by name.

        Raises:
            NotFoundError: There's no such ref.
            ConfigurationError: The object store denies access.
            RetryableError: The catalog or the object store can't be reached.
        """
        catalog = self._components.catalog
        found = []
        for pointer in sorted(catalog.list_tables(self._find_ref(ref)), key=lambda pointer: pointer.table.parts):
            try:
                found.append(self._components.reader.metadata(pointer))
            except LakegateError as error:
                if on_unreadable is None or isinstance(error, (ConfigurationError, RetryableError)):
                    raise
                on_unreadable(str(pointer.table), error)
        return found

    def table(self, name: str, *, ref: str = MAIN, at: str | datetime | None = None) -> Table:
        """Return a table's metadata, snapshots and files. Needs no Spark.

        Args:
            name: ``namespace.table``.
            ref: Branch, tag or commit hash.
            at: Time, tag or commit: the table as ``ref`` had it then. Default: now.

        Returns:
            The table at that commit.

        Raises:
            NotFoundError: The table, or the ref, doesn't exist.

        Example:
            >>> lake.table("nyc.trips").rows
            100
        """
        identifier, resolved = TableIdentifier.parse(name), self._resolve(ref, at)
        pointer = self._components.catalog.get_table(identifier, resolved)
        if pointer is None:
            raise unknown_table(self._components.catalog, name, resolved)
        return Table(pointer, self._components.reader, commit=resolved.hash if ref == MAIN and at is None else "")

    def snippet(
        self,
        table: str,
        engine: str,
        *,
        ref: str = MAIN,
        at: str | datetime | None = None,
        rest: str | None = None,
        rest_token: bool = False,
    ) -> Snippet:
        """Return what to paste into another engine to read a table. It holds no secret.

        Args:
            table: ``namespace.table``.
            engine: ``pyiceberg``, ``duckdb``, ``polars``, ``spark`` or ``trino``.
            ref: Branch, tag or commit hash.
            at: Time, tag or commit: the table as ``ref`` had it then. Default: now.
            rest: URL of ``lakegate serve``, to read through it. Default: read the metadata file; Spark and Trino need
                the URL.
            rest_token: Whether that server requires a token.

        Returns:
            The snippet.

        Raises:
            InputError: The engine is unknown, or can't read this way.
            NotFoundError: The table, or the ref, doesn't exist.

        Example:
            >>> print(lake.snippet("nyc.trips", "duckdb").text.splitlines()[1])
            INSTALL iceberg; LOAD iceberg;
        """
        from lakegate.snippets import SnippetTarget, write_snippet

        resolved = self._resolve(ref, at)
        try:
            found = self.table(table, ref=resolved.hash).metadata  # of that very commit, wherever main is by now
        except NotFoundError as error:
            raise unknown_table(self._components.catalog, table, resolved) from error
        target = SnippetTarget(
            table=found.table,
            ref=resolved,
            metadata_location=found.metadata_location,
            warehouse=self._components.warehouse,
            storage=self.settings.storage,
        )
        return write_snippet(engine, target, rest=rest, has_token=rest_token)

    def rows_per_branch(self, table: str) -> Sequence[tuple[Ref, int | None]]:
        """Return how many rows a table has on each branch that has it, from metadata alone.

        Args:
            table: ``namespace.table``.

        Returns:
            Branches and their row counts; ``None`` where delete files hide the count.

        Raises:
            RetryableError: The catalog can't be reached.
        """
        identifier = TableIdentifier.parse(table)
        found: list[tuple[Ref, int | None]] = []
        for ref in self.branches():
            pointer = None
            with suppress(NotFoundError):  # the branch was dropped meanwhile
                pointer = self._components.catalog.get_table(identifier, ref)
            if pointer is not None:
                found.append((ref, self._components.reader.metadata(pointer).rows))
        return found

    def query(self, sql: str, *, ref: str = MAIN, at: str | datetime | None = None) -> Query:
        """Run a Spark SQL query. Plain table names mean the tables on ``ref``.

        Args:
            sql: One statement that only reads.
            ref: Branch, tag or commit hash.
            at: Time, tag or commit: read what ``ref`` was then, with the schema it had. Default: now.

        Returns:
            The query, planned; it reads rows when you ask for them.

        Raises:
            QueryError: The statement isn't valid, or isn't read-only.
            NotFoundError: The ref doesn't exist.

        Example:
            >>> lake.query("SELECT count(*) AS n FROM nyc.trips").to_arrow().to_pylist()
            [{'n': 100}]
        """
        from lakegate.spark.failures import unknown_table
        from lakegate.spark.guard import query_text
        from lakegate.spark.statement import referenced_tables

        query_text(sql)  # before Spark is started for it
        resolved = self._resolve(ref, at)
        engine = self._components.engine
        reads = referenced_tables(sql) if ref == MAIN and at is None else ()
        try:
            planned = engine.query(sql, resolved)
        except QueryError as error:
            unknown = unknown_table(error)
            if unknown is None:
                raise
            there = (str(pointer.table) for pointer in self._components.catalog.list_tables(resolved))
            hint = did_you_mean(unknown, there) + (error.hint or "")
            raise QueryError(error.message, hint=hint, detail=error.detail) from error
        return Query(planned, engine.fetch, engine.stream, reads=reads, commit=resolved.hash)

    # Runs

    def runs(
        self,
        *,
        table: str | None = None,
        status: RunStatus | None = None,
        kind: RunKind | None = None,
        since: datetime | None = None,
        orchestrator: str | None = None,
        source: str | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Return runs, newest first.

        Args:
            table: Only runs that wrote to this table.
            status: Only runs with this status, such as ``published`` or ``rejected``.
            kind: Only runs of this kind: ``ingest``, ``transaction``, ``branch``, ``maintenance``, ``revert`` or
                ``restore``.
            since: Only runs that started at this time or later. A time without a zone is UTC.
            orchestrator: Only runs that this started: ``cli``, ``python``, ``watch``, ``backfill``, ``prefect``,
                ``dbos``, ``aws-lambda``, ``airflow``, or a name given to :func:`lakegate.connect`.
            source: Only runs with a source file whose path contains this text. Searches the newest 20,000 runs.
            limit: Maximum number of runs.

        Returns:
            The runs.

        Raises:
            RetryableError: The journal can't be reached.

        Example:
            >>> [run.status for run in lake.runs(table="nyc.trips", status="published", limit=1)]
            ['published']
        """
        if since is not None and since.tzinfo is None:
            since = since.replace(tzinfo=UTC)
        return self._components.journal.runs(
            table=table,
            status=status,
            kind=kind,
            since=since,
            orchestrator=orchestrator,
            file=source,
            limit=limit,
        )

    def run(self, run_id: str) -> Run:
        """Return one run.

        Args:
            run_id: Its id, or a unique prefix of it.

        Returns:
            The run.

        Raises:
            NotFoundError: No run, or more than one, starts with this.
        """
        exact = self._components.journal.get(run_id)
        found = [exact] if exact is not None else self._components.journal.find(run_id)
        if len(found) == 1:
            return found[0]
        message = f"Several runs start with '{run_id}'." if found else f"Run '{run_id}' doesn't exist."
        raise NotFoundError(message, hint="lakegate runs", run_id=run_id)

    def _full_run_id(self, run_id: str) -> str:
        """Return the full id of a run to change. A prefix of a few digits, such as today's date, isn't enough."""
        found = self.run(run_id).run_id
        if found != run_id and len(run_id) < _SHORTEST_PREFIX:
            raise InputError(
                f"'{run_id}' is too short to choose a run to change, even though only {found} starts with it.",
                hint=f"If you mean that one, pass its id, or at least: {found[:_SHORTEST_PREFIX]}",
                run_id=found,
            )
        return found

    def commits_before(self, run: Run, *, limit: int) -> Sequence[Commit]:
        """Return the commits that others made on ``main`` between a run's base and its publish, newest first.

        Args:
            run: A run. One that isn't published has none.
            limit: Maximum number of commits.

        Returns:
            The commits.

        Raises:
            RetryableError: The catalog can't be reached.

        Example:
            >>> lake.commits_before(lake.runs(table="nyc.trips", limit=1)[0], limit=10)
            []
        """
        if run.publication is None or run.base is None:
            return []
        commits = self._components.catalog.history(run.publication.commit, until=run.base, operations=True)
        return list(islice(commits, 1, limit + 1))

    def written_schemas(self, run: Run) -> Mapping[str, Schema]:
        """Return the columns of each table that a run wrote, as it left them.

        Args:
            run: A run.

        Returns:
            The columns, by table. A table whose metadata can't be read any more isn't in it.

        Example:
            >>> run = lake.runs(table="nyc.trips", kind="ingest", limit=1)[0]
            >>> "trip_id" in lake.written_schemas(run)["nyc.trips"].names
            True
        """
        found = {}
        for staged in run.staged:
            with suppress(LakegateError):
                found[str(staged.table)] = self._components.reader.metadata(staged.pointer).table_schema
        return found

    def metrics(self) -> Sequence[Sample]:
        """Return the metrics of all runs: how they ended, how long steps took, what waited. Takes milliseconds.

        Returns:
            The numbers, by metric and labels (:mod:`lakegate.telemetry.metrics`).

        Raises:
            RetryableError: The journal can't be reached.

        Example:
            >>> any(sample.name == "lakegate_runs" for sample in lake.metrics())
            True
        """
        return self._components.journal.metrics()

    def suspended_runs(self) -> Mapping[str, datetime]:
        """Return the ids of suspended runs and the time until which each is left alone, soonest first."""
        return self._components.journal.suspended()

    # Maintenance

    def recover(self, run_ids: Sequence[str] = ()) -> Sequence[Run]:
        """Finish or undo every run whose process died. Every ingest does this first.

        Suspended runs are left alone until the time in :meth:`suspended_runs`. Also drops branches that runs couldn't
        drop because the catalog couldn't be reached, and sends what is due to downstream systems.

        Args:
            run_ids: Recover only these runs, even suspended ones: ids, or unique prefixes of ids that include at least
                the minute. Default: all whose process died.

        Returns:
            The recovered runs, and those of ``run_ids`` that had already ended.

        Raises:
            NotFoundError: There's no such run, or more than one.
            InputError: A prefix is too short.
            RetryableError: The catalog or the journal can't be reached. Or a process is working on one of ``run_ids``,
                or one that passed its audit can't be published because Spark or the object store can't be reached.
        """
        context = self._context
        if run_ids:
            found = list(dict.fromkeys(self._full_run_id(run_id) for run_id in run_ids))
            return tuple(recover_now(context, run_id) for run_id in found)
        recovered = recover(context)
        drop_orphaned_branches(context)
        self.send_downstream()
        return recovered

    def maintain(
        self,
        tables: Sequence[str] = (),
        *,
        dry_run: bool = False,
        within: str | timedelta | None = None,
        gc: bool | None = None,
        watcher: Callable[[MaintenanceStep], object] | None = None,
    ) -> MaintenanceReport:
        """Compact tables, expire snapshots and collect garbage, where the settings say it's due.

        Each change to a table is a run of its own: if you stop a round, the next one continues. A table that fails
        doesn't hold up the others. Tables with the most small files come first.

        Args:
            tables: Names or patterns, such as ``nyc.*``. Default: all tables on ``main``.
            dry_run: Change nothing; return what is due.
            within: Start no new work after this long, such as ``1h``. Default: ``maintenance.within``.
            gc: Whether to run :meth:`gc` afterwards. Default: ``maintenance.gc``.
            watcher: Called with each step once it has ended.

        Returns:
            What was due, and the outcome of each step.

        Raises:
            NotFoundError: A name or pattern matches no table.
            RetryableError: The catalog or the journal can't be reached, or another process is maintaining the lake.

        Example:
            >>> lake.maintain(["nyc.trips"], dry_run=True).steps
            ()
        """
        from lakegate.wap.maintain import Maintenance

        settings = self.settings.maintenance
        limit = settings.within if within is None else within
        work = Maintenance(
            self._context,
            policy_of=self._maintenance_policy,
            within=None if limit is None else _duration(limit),
            actions={
                "compact": self.optimize_table,
                "expire": self._expire_by_policy,
            },
            gc=partial(self.gc, dry_run=dry_run) if (settings.gc if gc is None else gc) else None,
            on_step=watcher or (lambda _: None),
        )
        return work.plan(tables) if dry_run else work.run(tables)

    def _maintenance_policy(self, table: TableIdentifier) -> MaintenancePolicy:
        own = self._components.contracts.settings_of(table).maintenance
        general = self.settings.maintenance
        return general if own is None else general.model_copy(update=own.model_dump(exclude_unset=True))

    def _expire_by_policy(self, table: str) -> Run:
        policy = self._maintenance_policy(TableIdentifier.parse(table))
        return self.expire_snapshots(table, older_than=policy.expire, keep=policy.keep)

    def gc(
        self,
        *,
        dry_run: bool = False,
        keep_rejected: str | timedelta | None = None,
        grace: str | timedelta | None = None,
    ) -> GcReport:
        """Drop expired branches of rejected and failed runs, and delete files that no ref reaches.

        Files stay for ``gc.keep`` after the last commit that needed them. The warehouse must belong to this catalog
        alone. Also deletes reports of runs that are older than ``journal.keep_detail``.

        Args:
            dry_run: Change nothing; return what would be deleted.
            keep_rejected: How long to keep branches after their run ended, such as ``7d``. Default:
                ``ingest.keep_rejected``.
            grace: Don't delete files younger than this, such as ``1d``. Default: ``gc.keep``.

        Returns:
            What was dropped and deleted.

        Raises:
            ConfigurationError: A duration is invalid, or the warehouse can't be listed or belongs to another catalog.
            RetryableError: The catalog, the journal or the warehouse can't be reached. Some files may already have
                been deleted.

        Example:
            >>> lake.gc(dry_run=True, grace="1d").files
            0
        """
        self._components.require_own_warehouse()
        if not dry_run:
            # Otherwise, an abandoned run would keep its files.
            recover(self._context)
        keep_detail = self.settings.journal.keep_detail
        return gc(
            self._context,
            files=self._components.files,
            keep_rejected=_duration(self.settings.ingest.keep_rejected if keep_rejected is None else keep_rejected),
            grace=_duration(self.settings.gc.keep if grace is None else grace),
            now=datetime.now(UTC) if dry_run else warehouse_time(self._context, self._components.files),
            dry_run=dry_run,
            history=parse_age(self.settings.gc.keep),
            keep_detail=None if keep_detail is None else parse_age(keep_detail),
        )

    def verify(
        self,
        tables: Sequence[str] = (),
        *,
        deep: bool = False,
        since: str | datetime | None = None,
        grace: str | timedelta | None = None,
    ) -> VerifyReport:
        """Check that the journal, the catalog, the tables' metadata and their files agree. Changes nothing.

        Args:
            tables: Tables to check. Default: all, and files that nothing references, too.
            deep: Also count the rows in the footers of all Parquet files.
            since: A time, tag or commit of ``main``. Commits up to it that no run made aren't reported.
            grace: Files younger than this, such as ``1d``, aren't reported as orphaned. Default: ``gc.keep``.

        Returns:
            What was checked, and each problem with the command that fixes it.

        Raises:
            NotFoundError: A table is on no branch or tag, or there is no such commit.
            ConfigurationError: A duration is invalid, or the warehouse can't be listed or belongs to another catalog.
            RetryableError: The catalog, the journal or the warehouse can't be reached.

        Example:
            >>> lake.verify(["nyc.trips"], deep=True).passed
            True
        """
        self._components.require_own_warehouse()
        from lakegate.wap.verify import verify  # which loads the journal's parts

        return verify(
            self._context,
            files=self._components.files,
            grace=_duration(self.settings.gc.keep if grace is None else grace),
            now=datetime.now(UTC),
            tables=[TableIdentifier.parse(table) for table in tables],
            deep=deep,
            since=None if since is None else self._resolve(MAIN, since),
            history=parse_age(self.settings.gc.keep),
        )

    def journal_status(self) -> JournalStatus:
        """Return where the journal is and what it holds. Doesn't contact the catalog."""
        from lakegate.journal.schema import FORMAT

        journal = self._components.journal
        newest = journal.runs(limit=1)
        runs, files = journal.count()
        return JournalStatus(
            location=self.settings.journal.url or str(self.home / HOME_NAME / "journal.db"),
            version=str(FORMAT),
            synced=journal.synced(MAIN),
            runs=dict(runs),
            files=files,
            abandoned=tuple(run.run_id for run in journal.abandoned()),
            newest=newest[0].run_id if newest else None,
        )

    def rebuild_journal(self) -> RebuiltJournal:
        """Rebuild the journal's published runs and files from the history of ``main``, for example after losing it.

        Returns:
            What the journal holds now.

        Raises:
            RetryableError: The catalog or the journal can't be reached. The journal is unchanged.
        """
        return rebuild(self._context, MAIN)

    # Files, for programs that watch folders

    def list_files(
        self,
        paths: Sequence[str],
        *,
        format: FileFormat | None = None,
    ) -> Iterator[FoundFile]:
        """Iterate over the files at ``paths`` without opening any. Paths that don't exist are skipped.

        Args:
            paths: Files, folders or glob patterns.
            format: From folders, take only files with an extension of this format. Default: of any known format.

        Returns:
            The files, as they are found.

        Raises:
            InputError: A path is malformed, or can't be read.

        Example:
            >>> sum(file.size_bytes > 0 for file in lake.list_files(["trips"]))
            1
        """
        from lakegate.sources.discovery import list_files

        return list_files(paths, format=format, storage=self.settings.storage)

    def known_files(self, table: str, uris: Sequence[str]) -> Claim:
        """Return which files are new to a table, published, being ingested, or changed since they were published.

        Claims nothing. Opens only files whose path was published before.

        Args:
            table: ``namespace.table``. It doesn't have to exist.
            uris: Files, as :attr:`lakegate.model.batch.SourceFile.uri` names them.

        Returns:
            Each file once: ``published``, ``busy``, ``changed``, or ``free`` if it's new. Sizes and rows are those of
            the published file, and 0 for new files. Files of ``published`` that changed and have their old content
            again are also in ``went_back``.

        Raises:
            RetryableError: The catalog or the journal can't be reached.

        Example:
            >>> uris = [file.uri for file in lake.list_files(["trips", "more"])]
            >>> known = lake.known_files("nyc.trips", uris)
            >>> len(known.published), len(known.free)
            (1, 1)
        """
        name = str(TableIdentifier.parse(table))
        real = {_real_uri(uri): uri for uri in uris}
        sync(self._context, MAIN)
        known = self._known_files(name, list(real))
        return Claim(
            published=_with_uris(known.published, real),
            busy=_with_uris(known.busy, real),
            changed=_with_uris(known.changed, real),
            went_back=_with_uris(known.went_back, real),
            free=tuple(file.model_copy(update={"uri": real[file.uri]}) for file in known.free),
        )

    def file_checkpoints(self, table: str, uris: Sequence[str]) -> Mapping[str, FileCheckpoint]:
        """Return the outcomes of files that were ingested, or tried, into a table.

        Args:
            table: ``namespace.table``.
            uris: The files.

        Returns:
            Checkpoints by URI, without files that were never tried.

        Raises:
            RetryableError: The journal can't be reached.
        """
        return self._components.journal.file_checkpoints(table, uris)

    def save_file_checkpoints(self, table: str, checkpoints: Sequence[FileCheckpoint]) -> None:
        """Save the outcomes of files. Each checkpoint replaces an earlier one with the same URI.

        Args:
            table: ``namespace.table``.
            checkpoints: The checkpoints.

        Raises:
            RetryableError: The journal can't be reached.
        """
        self._components.journal.save_file_checkpoints(table, checkpoints)

    def lock(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Hold a lock of this project while a block runs; other processes with the same journal wait.

        Args:
            name: Name of the lock.
            timeout_s: Seconds to wait for it.

        Returns:
            A context manager that yields whether the lock was acquired.

        Raises:
            RetryableError: The journal can't be reached.
        """
        return self._components.journal.lock(name, timeout_s=timeout_s)

    # Alerts

    def notify_test(self, channel: str | None = None) -> Sequence[Notification]:
        """Send a test message to one channel, or to all. Starts no server.

        Args:
            channel: Name of the channel. Default: all.

        Returns:
            The outcome for each channel. A message that couldn't be sent isn't an exception.

        Raises:
            NotFoundError: There's no such channel, or none at all.
        """
        notifier = self._components.notifier
        if notifier is None:
            raise NotFoundError(
                "No alert channel is configured.",
                hint="Add a section [[notify.channels]] to lakegate.toml, with name, type and url.",
            )
        return notifier.test(channel)

    def notify_given_up(self, table: str, file: FileCheckpoint) -> None:
        """Send the alert that a file failed too often to be tried again.

        It takes at most ``notify.timeout_s`` seconds, and doesn't raise if the alert fails.

        Args:
            table: The table that the file belongs to.
            file: Its last outcome, and why it failed.
        """
        notifier = self._components.notifier
        if notifier is not None:
            alert_given_up(notifier, self._components.journal, self._components.narrator, table, file)

    def expected_publishes(self) -> Mapping[str, str]:
        """Return how often each table should be published to, as a duration such as ``1d``.

        Covers the tables with a setting ``notify.late`` or a contract with ``freshness``.

        Raises:
            ConfigurationError: A contract can't be read, or a table has both.

        Example:
            >>> lake.expected_publishes()
            {}
        """
        return self._components.contracts.late()

    def notify_late(self) -> Sequence[LateTable]:
        """Find tables to which nothing was published for longer than expected, and send alerts.

        The setting ``notify.late`` and the contracts' ``freshness`` say what is expected. Each late table is announced
        once per expected interval until something is published. Only reads the journal.

        Returns:
            The tables that are late, with the outcome of the alerts.

        Raises:
            RetryableError: The journal can't be reached.
        """
        expected, notifier = self._components.contracts.late(), self._components.notifier
        now = datetime.now(UTC)
        late = find_late(self._components.journal, expected, now) if expected else ()
        if notifier is None:
            return late
        return alert_late(notifier, late, now)

    # Downstream systems

    def downstream_status(self) -> Sequence[DownstreamStatus]:
        """Return what each downstream system was sent and what is queued for it.

        Covers the systems in the settings, and others that the journal still queues for. Only reads the journal.

        Raises:
            RetryableError: The journal can't be reached.
        """
        types = {name: given.type for name, given in self.settings.downstream.items()}
        known = {one.name: one for one in self._components.journal.outbox.status()}
        missing = (DownstreamStatus(name=name) for name in types if name not in known)
        return tuple(one.model_copy(update={"type": types.get(one.name)}) for one in (*known.values(), *missing))

    def deliveries(
        self,
        *,
        downstream: str | None = None,
        run: str | None = None,
        states: Sequence[DeliveryState] = (),
        limit: int = 50,
    ) -> Sequence[Delivery]:
        """Return the events that downstream systems were sent, or have yet to be sent, newest first.

        Args:
            downstream: Only this system.
            run: Only what this run did; a full id.
            states: Only deliveries in these states.
            limit: Maximum number of deliveries.

        Raises:
            RetryableError: The journal can't be reached.
        """
        return self._components.journal.outbox.list(name=downstream, run_id=run, states=states, limit=limit)

    def send_downstream(self, name: str | None = None) -> Sequence[Delivery]:
        """Send downstream systems what is due. Every run that ends does this, too.

        Args:
            name: Only this system.

        Returns:
            The deliveries that were tried. One that failed isn't an exception; it's tried again later.
        """
        if not self.settings.downstream:
            return ()
        return send(self._context, target=MAIN, name=name)

    def downstream_retry(self, name: str | None = None) -> Sequence[Delivery]:
        """Send everything that is queued now, even what was given up.

        Args:
            name: Name of a system. Default: all.

        Returns:
            The deliveries that were tried, with their outcome.

        Raises:
            NotFoundError: The settings name no such system, or none at all.
            RetryableError: The journal can't be reached.
        """
        self._require_downstream(name)
        self._components.journal.outbox.again(name)
        return send(self._context, target=MAIN, name=name, within_s=_RETRY_S)

    def downstream_skip(
        self, name: str, *, delivery: int | None = None, reason: str = "Skipped."
    ) -> Sequence[Delivery]:
        """Skip the oldest waiting delivery for good, so that those behind it can be sent.

        Args:
            name: Name of a system.
            delivery: Number of another waiting delivery. Default: the oldest.
            reason: Why, in one sentence. Stored with the delivery.

        Returns:
            What was skipped.

        Raises:
            NotFoundError: There's no such waiting delivery.
            RetryableError: The journal can't be reached.
        """
        outbox = self._components.journal.outbox
        after = 0 if delivery is None else min(max(delivery, 1), _HIGHEST_NUMBER) - 1
        oldest = outbox.waiting(name, after=after, limit=1)
        found = [one for one in oldest if delivery in (None, one.delivery_id)]
        if not found:
            what = "Nothing" if delivery is None else f"No delivery {delivery}"
            raise NotFoundError(f"{what} is queued for downstream '{name}'.", hint=f"lakegate downstream status {name}")
        outbox.ended(found, "skipped", reason)
        return tuple(one.model_copy(update={"state": "skipped", "reason": reason}) for one in found)

    def downstream_send(self, name: str, tables: Sequence[str] = ()) -> Sequence[Delivery]:
        """Send a system the current state of tables on ``main``, for example because it's new in the settings.

        Args:
            name: Name of a system.
            tables: The tables. Default: all on ``main``.

        Returns:
            The deliveries that were tried, with their outcome.

        Raises:
            NotFoundError: The settings name no such system, or a table doesn't exist.
            RetryableError: The catalog or the journal can't be reached.
        """
        self._require_downstream(name)
        head = sync(self._context, MAIN)
        there = {str(pointer.table) for pointer in self._context.catalog.list_tables(head)}
        missing = [table for table in tables if table not in there]
        if missing:
            raise unknown_table(self._context.catalog, missing[0], head)
        outbox = self._components.journal.outbox
        outbox.again(name)
        outbox.send_current(name, tables or sorted(there), ref=MAIN, commit=head.hash)
        return send(self._context, name=name, within_s=_RETRY_S)

    def downstream_test(self, name: str | None = None) -> Sequence[DownstreamCheck]:
        """Check that downstream systems can be reached with their settings, changing nothing in them.

        Args:
            name: Name of a system. Default: all.

        Raises:
            NotFoundError: The settings name no such system, or none at all.
        """
        self._require_downstream(name)
        return tuple(
            check(one, self.settings.downstream[one.subscription.name].type)
            for one in self._components.downstreams
            if name in (None, one.subscription.name)
        )

    def downstream_policy(self, name: str) -> Mapping[str, Any]:
        """Return the IAM policy that lakegate needs to notify a system. Only the AWS Glue Data Catalog needs one.

        Args:
            name: Name of a system.

        Returns:
            The policy document.

        Raises:
            NotFoundError: The settings name no such system.
            InputError: Systems of its type need no permissions on AWS.
        """
        from lakegate.downstream import policy_of

        self._require_downstream(name)
        return policy_of(name, self.settings.downstream[name])

    def downstream_forget(self, name: str) -> int:
        """Stop queuing for a system that is no longer in the settings, and skip what is queued.

        Returns:
            Number of deliveries that were skipped.

        Raises:
            InputError: It's still in the settings.
            NotFoundError: There's no such system.
            RetryableError: The journal can't be reached.
        """
        if name in self.settings.downstream:
            raise InputError(
                f"Downstream '{name}' is in the settings, so the next run would queue for it again.",
                hint=f"Remove the section [downstream.{name}] first.",
            )
        return self._components.journal.outbox.forget(name)

    # Private

    def _require_downstream(self, name: str | None) -> None:
        known = self.settings.downstream
        if not known:
            raise NotFoundError(
                "No downstream system is configured.",
                hint="Add a section [downstream.NAME] to lakegate.toml, with its type.",
            )
        if name is not None and name not in known:
            guess = nearest(name, list(known))
            raise NotFoundError(
                f"Downstream '{name}' doesn't exist in the settings." + (f" Did you mean '{guess}'?" if guess else ""),
                hint="lakegate downstream status",
                downstream=name,
            )

    def _run_step(
        self, table: str, paths: Paths | Frame, options: IngestOptions, *, until: Stage, suspends: bool
    ) -> Run:
        _require_usable(options)
        run_id = validate_run_id(options.get("run_id") or new_run_id())
        wanted: IngestOptions = {**options, "run_id": run_id}
        given = cache(lambda: self._paths(paths, wanted))  # a generator can be read only once

        def request() -> IngestRequest:
            return self._request(table, given(), wanted)

        try:
            run = resume(
                self._context,
                run_id,
                until=until,
                table=TableIdentifier.parse(table),
                request=request,
                suspends=suspends,
                deadline=Deadline.after(options.get("timeout_s")),
            )
        except Exception:
            with suppress(LakegateError):  # the first error is the one to report
                known = self._components.journal.get(run_id)
                if known is None or known.finished_at is not None:
                    self._drop_copies(run_id)
            raise
        return self._clean_up_if_ended(run)

    def _paths(self, given: Paths | Frame, options: IngestOptions) -> Paths:
        """Return paths as they were given. Write rows to a file, and return its path."""
        # An earlier call of this run may have had other rows.
        self._origins.pop(options["run_id"] or "", None)
        if isinstance(given, (str, Path)):
            return given
        from lakegate.frames import are_rows

        if are_rows(given):
            return self._copy_rows(given, options)
        paths = list(given)
        odd = next((one for one in paths if not isinstance(one, (str, os.PathLike))), None)
        if odd is not None:
            raise InputError(
                f"Can't ingest a list of {type(odd).__name__}.",
                hint='Pass paths, a DataFrame, an Arrow table, or rows as dicts: [{"id": 1}]',
            )
        return paths

    def _copy_rows(self, given: Any, options: IngestOptions) -> Path:
        """Write rows to a file for this run, note which tables they were read from, and return the file's path."""
        from lakegate.frames import spark_frame, to_batches
        from lakegate.sources.copies import write
        from lakegate.sources.inspection import combine
        from lakegate.sources.parquet import schema_problems

        reads = given.reads if isinstance(given, Query) else ()
        if isinstance(given, Table) and given.commit:
            reads = (str(given.metadata.table),)
        if reads and isinstance(given, (Query, Table)):
            self._origins[options["run_id"] or ""] = _Origin(reads, given.commit)
        elif reads is None:
            self._components.narrator.note(
                "Can't tell for certain which tables the query reads. The rows will be published even if one of them "
                "changes meanwhile."
            )
        frame = spark_frame(given)
        if frame is not None:
            from lakegate.spark.dataframes import require_arrow_types
            from lakegate.spark.dataframes import to_batches as from_spark

            require_arrow_types(frame)
            schema, batches = from_spark(frame)
        else:
            schema, batches = to_batches(given)
        folder = private_folder(copies_of(self.home, options["run_id"] or ""))
        kind = type(given)
        target = folder / f"{kind.__module__.partition('.')[0].strip('_')}-{kind.__name__.lower()}.parquet"
        with self._components.narrator.step(f"Reading the rows of this {kind.__name__}"):
            problems = list(schema_problems(f"rows of this {kind.__name__}", schema))
            if problems:
                raise combine(problems)
            write(batches, schema, target)
        return target

    @contextmanager
    def _temporary_copies(self, options: IngestOptions) -> Iterator[None]:
        """Delete the copies of sources that the body makes, when it ends."""
        try:
            yield
        finally:
            self._drop_copies(options["run_id"] or "")

    def _clean_up_if_ended(self, run: Run) -> Run:
        if run.finished_at is not None:
            self._drop_copies(run.run_id, () if run.request is None else run.request.batch.files)
        return run

    def _drop_copies(self, run_id: str, files: Sequence[SourceFile] = ()) -> None:
        self._origins.pop(run_id, None)
        drop_copies(self.home, run_id)
        uploaded = {*self._uploaded.pop(run_id, ()), *files}
        if any(file.copy_uri is not None for file in uploaded):
            from lakegate.sources.copies import drop_uploads

            drop_uploads(tuple(uploaded), self.settings.storage)

    def _upload_if_needed(self, batch: Batch, run_id: str) -> Batch:
        """Copy local files that the engine can't read to the warehouse. Return the batch with those copies."""
        parts = self._components
        private = f"/{HOME_NAME}/sources/"  # copies of files, and rows from memory
        has_copies = any(private in (file.copy_uri or file.uri) for file in batch.files)
        is_readable = parts.shares_files and (not has_copies or parts.reads_private_files)
        if is_readable or not is_remote(parts.warehouse):
            return batch
        from lakegate.sources.copies import upload

        uploaded = upload(batch, parts.warehouse, run_id, self.settings.storage, parts.narrator)
        self._uploaded[run_id] = (*self._uploaded.get(run_id, ()), *uploaded.files)
        if all(file.copy_uri for file in batch.files) and not copies_of(self.home, run_id).is_relative_to(self.home):
            # Only this process reads its own temporary folder, and the disk of a function on AWS Lambda is small.
            drop_copies(self.home, run_id)
        return uploaded

    def _request(self, table: str, paths: Paths, options: IngestOptions) -> IngestRequest:
        from lakegate.sources.discovery import require_csv

        identifier = TableIdentifier.parse(table)
        defaults, contract = self.settings.ingest, self._components.contracts.find(identifier)
        configured = self._components.contracts.settings_of(identifier)
        run_id = validate_run_id(options.get("run_id") or new_run_id())
        schema_mode = options.get("schema") or configured.schema or defaults.schema
        mode = self.mode_of(table, **options)
        origin = self._origins.get(run_id, _Origin())
        batch = self._discover(
            paths,
            options.get("format"),
            options.get("csv") or configured.csv,
            run_id,
            may_differ=schema_mode != "strict",
            columns=configured.columns,
            given=options.get("columns") or {},
        )
        require_csv(options.get("csv"), batch)
        checks = self._checks(identifier, options.get("checks", ()), configured=True)
        return IngestRequest(
            run_id=run_id,
            table=identifier,
            reads=origin.reads,
            reads_at=origin.at,
            batch=self._upload_if_needed(batch.hiding(self._hidden_texts(batch, checks)), run_id),
            checks=checks,
            branch=options.get("branch") or f"{defaults.branch_prefix}/{identifier}_{run_id}",
            partition_by=tuple(options.get("partition_by") or configured.partition_by),
            contract=None if contract is None else contract.terms,
            target=MAIN,
            on_failure=options.get("on_failure") or defaults.on_failure,
            # Only an append would duplicate the rows of a changed file.
            on_changed=options.get("on_changed") or (defaults.on_changed if mode.appends else "append"),
            on_busy=options.get("on_busy") or defaults.on_busy,
            schema_mode=schema_mode,
            mode=mode,
            wait_s=defaults.wait_s,
            quarantine_limit=_merge_limit(options.get("quarantine_limit"), configured.quarantine_limit),
            masked=self._masked_columns,
        )

    def _discover(
        self,
        paths: Paths,
        file_format: FileFormat | None,
        csv: CsvOptions,
        run_id: str,
        *,
        may_differ: bool = False,
        columns: Mapping[str, str] = MappingProxyType({}),
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> Batch:
        from lakegate.sources import discover

        def discovered(*, may_differ: bool) -> Batch:
            return discover(
                [str(path) for path in ([paths] if isinstance(paths, (str, Path)) else paths)],
                format=file_format,
                csv=csv,
                storage=self.settings.storage,
                narrator=self._components.narrator,
                may_differ=may_differ,
                copies=copies_of(self.home, run_id),
            )

        names = {**columns, **given}
        batch = discovered(may_differ=may_differ or bool(names))
        there = [column.name for column in batch.columns]
        for old in given:
            if old.lower() not in map(str.lower, there):
                raise unknown_column(f"The files have no column '{old}'.", old, there)
        batch = batch.renamed(names)
        if not may_differ and not batch.has_one_shape:
            discovered(may_differ=False)  # raises, unless only inferred types differ
        return batch

    def _batch_to_try(
        self,
        paths: Paths,
        file_format: FileFormat | None,
        csv: CsvOptions,
        options: IngestOptions,
        *,
        columns: Mapping[str, str] = MappingProxyType({}),
    ) -> Batch:
        """Return a batch to read but not to ingest."""
        run_id = options["run_id"] or ""
        batch = self._discover(self._paths(paths, options), file_format, csv, run_id, columns=columns)
        return self._upload_if_needed(batch, run_id)

    @property
    def _masked_columns(self) -> tuple[str, ...]:
        return ("*",) if self.settings.ui.examples == 0 else self.settings.masked

    def _hidden_texts(self, batch: Batch, checks: Sequence[Check]) -> tuple[str, ...]:
        """Return patterns of the columns whose values mustn't be stored with a batch."""
        masked = self._masked_columns
        # Without a header, the columns get their names from the table, later.
        is_unnamed = batch.csv is not None and not batch.csv.header
        return ("*",) if (masked and is_unnamed) or any(check.examples == 0 for check in checks) else masked

    def _checks(self, table: TableIdentifier, checks: Checks, *, configured: bool) -> tuple[Check, ...]:
        contract = self._components.contracts.find(table) if configured else None
        texts = (*(self.settings.table(table).checks if configured else ()), *checks)
        parsed = (parse_checks(check) if isinstance(check, str) else (check,) for check in texts)
        found = (*(() if contract is None else (contract.checks,)), *parsed)
        return tuple({str(check): check for group in found for check in group}.values())

    def _configured_checks(self, table: TableIdentifier) -> tuple[Check, ...]:
        contract = self._components.contracts.find(table)
        columns = None if contract is None else contract_check(contract.terms)
        return (*([] if columns is None else [columns]), *self._checks(table, (), configured=True))

    def _rows(self, wanted: Rows) -> Query:
        engine = self._components.engine
        return Query(engine.read(wanted), engine.fetch, engine.stream)

    def _resolve(self, ref: str, at: str | datetime | None) -> Ref:
        index = None if at is None and not is_hash_prefix(ref) else self._commit_index()
        return resolve(self._components.catalog, ref, at, index=index)

    def _find_ref(self, ref: str) -> Ref:
        return find(self._components.catalog, ref, index=self._commit_index() if is_hash_prefix(ref) else None)

    def _commit_index(self) -> CommitIndex | None:
        """Return the journal's index of ``main``'s commits, if it knows all of them."""
        commits = self._components.journal.commits
        with suppress(LakegateError):  # without the index, the history is read
            if commits.head(MAIN) is not None:
                head = sync(self._context, MAIN)
                return commits if commits.head(MAIN) == head.hash else None
        return None

    def _known_files(self, table: str, uris: Sequence[str]) -> Claim:
        journal = self._components.journal
        by_path = journal.known(table, [_source_file(uri) for uri in uris])
        to_read = [known.file.uri for known in by_path.changed]
        if not to_read:
            return by_path
        read = {file.uri: file for file in self._read_versions(to_read)}
        by_content = journal.known(table, list(read.values()))
        return Claim(
            published=by_content.published,
            busy=(*by_path.busy, *by_content.busy),
            changed=by_content.changed,
            went_back=by_content.went_back,
            # The ingest will say why a file can't be read.
            free=(
                *by_path.free,
                *by_content.free,
                *(_source_file(uri) for uri in to_read if uri not in read),
            ),
        )

    def _read_versions(self, uris: Sequence[str]) -> Iterator[SourceFile]:
        read = partial(_read_version, storage=self.settings.storage)
        pool = ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="lakegate-versions")
        try:
            with self._components.narrator.step(f"Comparing {len(uris):,} files with what is published") as step:
                for done, file in enumerate(pool.map(read, uris), start=1):
                    step.progress(done, len(uris), "files")
                    if file is not None:
                        yield file
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _require_usable(options: IngestOptions) -> None:
    """Refuse unknown values of options with a fixed set, and a string where a list of strings belongs."""
    for name, kind in _CHOICES.items():
        value, choices = options.get(name), get_args(kind)
        if value is not None and value not in choices:
            listed = ", ".join(map(repr, choices))
            hint = f"{did_you_mean(str(value), choices)}Use one of {listed}."
            raise InputError(f"Invalid value: {name}={value!r}.", hint=hint)
    for name in ("checks", "partition_by"):
        _require_list(name, options.get(name))
    columns: Any = options.get("columns") or {}
    names = (*columns, *columns.values()) if isinstance(columns, Mapping) else (None,)
    if not all(isinstance(one, str) and one for one in names):
        hint = 'Map each name in the files to the one in the table: columns={"Fare": "fare_amount"}'
        raise InputError(f"columns={columns!r} doesn't map column names to column names.", hint=hint)


def _require_list(name: str, value: object) -> None:
    if isinstance(value, (str, Check)):
        raise InputError(f"{name}={value!r} isn't a list.", hint=f"Put it into one: {name}=[{value!r}]")


def _require_key(key: Sequence[str], columns: Sequence[str], where: str) -> None:
    unknown = next((one for one in key if one.lower() not in map(str.lower, columns)), None)
    if unknown is not None:
        hint = f"Its columns: {', '.join(columns)}."
        raise InputError(f"{where} has no column '{unknown}'.", hint=hint, column=unknown)


def _merge_limit(given: Tolerance | None, configured: Tolerance | None) -> Tolerance | None:
    try:
        return configured if given is None else parse_limit(given)
    except ValueError as error:
        raise InputError(
            f"{error}.", hint="Use a number of rows, such as 100, or a percentage, such as '5%'."
        ) from None


def _detect_orchestrator() -> str:
    # Airflow sets it in each task: https://airflow.apache.org/docs/apache-airflow/stable/templates-ref.html
    return "airflow" if "AIRFLOW_CTX_DAG_ID" in os.environ else "python"


def _duration(value: str | timedelta) -> timedelta:
    return min(value, LONGEST_AGE) if isinstance(value, timedelta) else parse_age(value)


def _real_uri(uri: str) -> str:
    """Resolve a link: claims are recorded for the file that it points to."""
    from lakegate.sources.files import from_uri, to_uri

    return to_uri(os.path.realpath(from_uri(uri))) if uri.startswith("file:") else uri


def _with_uris(files: Sequence[KnownFile], uris: Mapping[str, str]) -> tuple[KnownFile, ...]:
    return tuple(
        one.model_copy(update={"file": one.file.model_copy(update={"uri": uris[one.file.uri]})}) for one in files
    )


def _read_version(uri: str, storage: StorageSettings) -> SourceFile | None:
    from lakegate.sources.files import from_uri, stat_file, stat_object

    try:
        found = stat_object(uri, storage) if is_remote(uri) else stat_file(from_uri(uri))
        return None if found is None else _source_file(uri, found.content_version())
    except OSError:
        return None


def _source_file(uri: str, version: str = "") -> SourceFile:
    return SourceFile(uri=uri, size_bytes=0, version=version, rows=0)
