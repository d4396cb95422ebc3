"""The Python API: :func:`connect` opens a :class:`Lake`, and a ``Lake`` has a method for everything lakegate does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

from lakegate.api.alerts import Alerts
from lakegate.api.audits import audit, publish_branch
from lakegate.api.branches import Branches
from lakegate.api.contracts import Contracts
from lakegate.api.downstream import Downstream
from lakegate.api.files import Files
from lakegate.api.gate import Gate
from lakegate.api.maintenance import Maintenance
from lakegate.api.quarantine import Quarantine
from lakegate.api.reading import compare_rows, compare_tables, plan_query, read_tables, write_snippet
from lakegate.api.refs import find_ref, get_table, resolve_ref
from lakegate.api.runs import full_run_id, get_run, recover_runs
from lakegate.api.table_changes import delete_rows, evolve, truncate
from lakegate.api.tags import Tags
from lakegate.api.transactions import begin, retry_conflicts
from lakegate.components import Components
from lakegate.config import Settings, catalog_flags, find_home, home_at, load_settings, override_settings
from lakegate.context import Context
from lakegate.errors import InputError, LakegateError
from lakegate.intake import Frame, Intake, Paths
from lakegate.model.batch import CsvOptions, FileFormat
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier, validate_orchestrator
from lakegate.model.refs import MAIN, Commit, TableDifference
from lakegate.model.request import (
    IngestKeywords,
    IngestOptions,
    IngestPlan,
    OnFailure,
)
from lakegate.model.run import Run, RunKind, new_run_id
from lakegate.model.schema import Schema
from lakegate.model.states import RunStatus
from lakegate.model.tables import TableMetadata
from lakegate.model.words import refuse_unknown, suggest_keyword, suggest_keywords
from lakegate.ports import Narrator
from lakegate.progress import SilentNarrator
from lakegate.run_text import rejection
from lakegate.table import Query, RowDifference, Table
from lakegate.telemetry import tracing
from lakegate.wap import review
from lakegate.wap.review import discard_run
from lakegate.wap.transaction import Transaction

if TYPE_CHECKING:
    from lakegate.snippets import Snippet
    from lakegate.sources.sample import SourceSample

Checks = Sequence[str | Check]
"""Checks as text (``"not_null(id)"``) or as values from :mod:`lakegate.checks`."""
_Result = TypeVar("_Result")


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
        catalog: Address of Nessie's API v2, or ``sql`` for the local stack without Nessie. Default: what the settings
            say, else the local stack.
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
        **catalog_flags(catalog),
        "catalog.warehouse": warehouse,
    }
    session = None if isinstance(engine, str) else engine
    known = load_settings(folder, flags=flags) if settings is None else override_settings(settings, flags)
    # Airflow sets it in each task: https://airflow.apache.org/docs/apache-airflow/stable/templates-ref.html
    default = "airflow" if "AIRFLOW_CTX_DAG_ID" in os.environ else "python"
    named = validate_orchestrator(default if orchestrator is None else orchestrator)
    return Lake(Components(folder, known, session=session, narrator=narrator or SilentNarrator(), orchestrator=named))


@suggest_keywords
class Lake:
    """A lakehouse that publishes a change only after its audit passed. Open one with :func:`connect`.

    A ``Lake`` is a context manager: leaving it ends sessions and connections, but leaves servers running. Tables are
    named ``namespace.table``. Wherever a method takes ``at``, it's a time, a tag or a commit hash. A time is a
    ``datetime`` or text: ISO 8601 such as ``2026-01-31T07:00:00Z``, or ``10m ago``. A time without a zone is UTC.

    Raises:
        NotFoundError: There's no such table, branch, tag, commit or run.
        RetryableError: The catalog, the journal, the object store or the engine can't be reached, or ``main`` kept
            changing. Nothing was published or changed.
        OutcomeUnknownError: The connection to the catalog broke during the commit. :meth:`recover` finds out.
        NewerFormatError: A newer lakegate wrote to the lake or the branch.

    Attributes:
        alerts: Alerts besides those that each run sends.
        branches: The branches of the catalog.
        contracts: Contracts proposed from data, and tried on it.
        downstream: Systems that are notified of each publish.
        files: Source files and what became of them.
        gate: Branches that other engines write to.
        intake: The steps of ingest, for programs that pass options on as one value.
        maintenance: Keeps tables fast, the warehouse small, and the journal true.
        quarantine: Rows that checks set aside.
        tags: Names of commits that never move.
    """

    def __init__(self, components: Components) -> None:
        self._components = components
        self.intake = Intake(components)
        self.alerts = Alerts(components)
        self.branches = Branches(components)
        self.contracts = Contracts(components, self.intake)
        self.downstream = Downstream(components)
        self.files = Files(components)
        self.maintenance = Maintenance(components)
        self.gate = Gate(components)
        self.quarantine = Quarantine(components)
        self.tags = Tags(components)

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
        on_rejected: Literal["raise", "return"] = "raise",
        **options: Unpack[IngestKeywords],
    ) -> Run:
        """Write files or rows to a branch, audit them, and publish them to ``main``, or publish nothing.

        Each version of a file (its path and content) is published to a table once. Files that are already published
        are skipped. Rows from memory are published once for each ``run_id``.

        Args:
            table: ``namespace.table``. Created if it doesn't exist.
            paths: Files, folders or glob patterns; or rows: a pandas, Polars or Spark frame, a DuckDB relation, an
                Arrow table, reader or dataset, a list of dicts, or a list or generator of these.
            on_rejected: What to do if the audit rejects the batch: ``raise`` an error, or ``return`` the run.
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
            timezone: The zone that times without one are in, such as ``Europe/Berlin``, for columns of times with a
                zone. A new table then has such columns. Default: the table's settings.
            timeout_s: Seconds after which the run is suspended. The next call with its ``run_id`` resumes it.
                Cancelling Spark's work takes a few seconds more. Default: no limit.

        Returns:
            The run: ``published``, or ``skipped`` because no file was new; with ``on_rejected="return"``, perhaps
            ``rejected``.

        Raises:
            AuditFailedError: A check failed, so nothing was published. Its ``run`` has the reports.
            InputError: A file, name or check is wrong, or a key repeats or is NULL. Nothing was written.
            RetryableError: Also when ``timeout_s`` has passed: the run is then suspended.

        Example:
            >>> run = lake.ingest("nyc.trips", "trips/*.parquet", checks=["not_null(trip_id)"])
            >>> run.status, run.publication.rows
            ('published', 100)
            >>> lake.ingest("nyc.trips", "trips/*.parquet").status
            'skipped'
        """
        refuse_unknown("ingest", options, IngestKeywords.__annotations__)
        if on_rejected not in ("raise", "return"):
            raise InputError(f"Invalid value: on_rejected={on_rejected!r}.", hint="Use 'raise' or 'return'.")
        run = self.intake.ingest(table, paths, IngestOptions(**options))
        if run.status == "rejected" and on_rejected == "raise":
            raise rejection(run)
        return run

    def plan(self, table: str, paths: Paths | Frame, **options: Unpack[IngestKeywords]) -> IngestPlan:
        """Return what :meth:`ingest` would do, without writing anything.

        Args:
            table: ``namespace.table``. It doesn't have to exist.
            paths: Files, folders or glob patterns; or rows, as :meth:`ingest` takes them.
            **options: The keywords of :meth:`ingest`.

        Returns:
            The plan: the request, the table's schema, a description of each check, and which files aren't new.

        Example:
            >>> plan = lake.plan("nyc.zones", "trips/*.parquet", checks=["unique(trip_id)"])
            >>> plan.exists, plan.request.batch.rows
            (False, 100)
        """
        refuse_unknown("plan", options, IngestKeywords.__annotations__)
        return self.intake.plan(table, paths, IngestOptions(**options))

    def inspect(
        self,
        paths: Paths,
        *,
        format: FileFormat | None = None,
        csv: CsvOptions | None = None,
        rows: int = 3,
    ) -> SourceSample:
        """Return the columns that a table of these files would have, and the first rows. Needs no catalog or engine.

        Types are inferred from all values.

        Args:
            paths: Files, folders or glob patterns.
            format: ``parquet``, ``csv``, ``json``, ``avro``, ``orc`` or ``excel``. Default: detected from the files.
            csv: How to read CSV.
            rows: Number of rows to return.

        Raises:
            InputError: A file can't be read.

        Example:
            >>> lake.inspect("trips/*.parquet").batch.rows
            100
        """
        from lakegate.sources.sample import inspect

        return inspect(
            [str(path) for path in ([paths] if isinstance(paths, (str, Path)) else paths)],
            format=format,
            csv=csv,
            storage=self.settings.storage,
            narrator=self._components.narrator,
            rows=rows,
        )

    # Ingest in steps, for orchestrators

    def write(self, table: str, paths: Paths | Frame, **options: Unpack[IngestKeywords]) -> Run:
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

        Example:
            >>> lake.write("nyc.fares", "trips/*.parquet", run_id="nightly-1").status
            'staged'
            >>> lake.audit_run("nightly-1").report.passed
            True
            >>> lake.publish_run("nightly-1").status
            'published'
        """
        refuse_unknown("write", options, IngestKeywords.__annotations__)
        return self.intake.write(table, paths, IngestOptions(**options))

    def audit_run(self, run_id: str) -> Run:
        """Audit what a run wrote. If that was lost, write it again first.

        Returns:
            The run: ``rejected`` or ``audited``. A run that had already ended is returned as it is. If it raises
            ``RetryableError``, call it again, or call :meth:`cancel_run`.
        """
        return self.intake.resume(run_id, until="audit")

    def publish_run(self, run_id: str) -> Run:
        """Publish what a run wrote, exactly once. If it isn't written and audited, or must be again, do that first.

        Returns:
            The run: ``published`` or ``rejected``. A run that had already ended is returned as it is. If it raises
            ``RetryableError`` or ``OutcomeUnknownError``, call it again.
        """
        return self.intake.resume(run_id, until="publish")

    def cancel_run(self, run_id: str, *, reason: str = "Cancelled by its orchestrator.") -> Run:
        """End a run that nobody will resume, and drop its branch. What it published stays published.

        The branch of a rejected run stays if ``on_failure`` is ``keep``. Calling it again changes nothing.

        Args:
            run_id: The run's id.
            reason: Why, in one sentence. Stored with the run.

        Raises:
            RetryableError: Another process is working on it, or the catalog can't be reached.
        """
        return self.intake.cancel(run_id, reason=reason)

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
        return begin(self._components, name, branch=branch, on_failure=on_failure)

    def transact(
        self, work: Callable[[Transaction], _Result], *, name: str | None = None, attempts: int = 3
    ) -> _Result:
        """Run a function in a transaction, and return what it returns. On a conflict, run it again on the new ``main``.

        Args:
            work: A function of the transaction. It may be called more than once.
            name: Name of the transaction in the history. Default: the names of its tables.
            attempts: Maximum number of attempts.

        Raises:
            AuditFailedError: A check failed. Nothing was published.
            ConflictError: The last attempt conflicted, too. Nothing was published.

        Example:
            >>> lake.transact(lambda tx: tx.append("nyc.notes", [{"note": "checked"}]))
        """
        return retry_conflicts(self._components, attempts, lambda: self.transaction(name), work)

    def evolve_table(self, table: str, *changes: str, checks: Checks = ()) -> Run:
        """Change a table's columns or partitioning by SQL, audit it, and publish the change, or publish nothing.

        All rows of the table are audited with the checks of its settings. If others publish to the table meanwhile, the
        changes are made again on the new ``main``.

        Args:
            table: ``namespace.table``.
            *changes: What follows ``ALTER TABLE …`` in Spark SQL, such as ``"ADD COLUMN zone STRING"``.
            checks: Checks to run in addition to the table's settings.

        Raises:
            AuditFailedError: A check failed, or the table would no longer have the columns of its contract.
            InputError: A change can't be made.

        Example:
            >>> run = lake.ingest("nyc.airports", [{"code": "JFK"}])
            >>> run = lake.evolve_table("nyc.airports", "ADD COLUMN note STRING")
            >>> [str(change) for change in run.staged[0].schema_changes]
            ['add column note (string)']
        """
        return evolve(self._components, table, changes, checks)

    def delete_rows(self, table: str, where: str) -> Run:
        """Delete rows of a table on ``main``, if the remaining rows pass the table's checks.

        Args:
            table: ``namespace.table``.
            where: Condition in Spark SQL, such as ``"pickup < '2019-01-01'"``.

        Returns:
            The run, a transaction: ``published``, or ``skipped`` if no row meets the condition.

        Raises:
            AuditFailedError: The remaining rows would fail one of the table's checks. Nothing was published.
            ConflictError: The table kept changing. Nothing was published.
            QueryError: The condition can't be used.

        Example:
            >>> lake.delete_rows("nyc.trips", "trip_id < 0").status
            'skipped'
        """
        return delete_rows(self._components, table, where)

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
        """Audit what a branch did to a table, or what is published already. A failed check is no exception.

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

        Raises:
            InputError: The branch didn't change the table, or lakegate doesn't know the run that wrote it. Or the table
                changed after ``since`` by more than appends, compactions and new or widened columns.

        Example:
            >>> report = lake.audit("nyc.fares", branch="fix", checks=["not_null(fare)"])
            >>> report.passed
            False
            >>> lake.audit("nyc.trips", branch="main", checks=["not_null(fare)"]).passed
            True
        """
        return audit(self._components, table, branch, checks, ref=ref, at=at, since=since, explain=explain)

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

        Raises:
            InputError: lakegate doesn't know the run that wrote it, that run was reverted, or the reason is empty.
            AuditFailedError: The audit failed. The branch stays.
            ConflictError: One of its tables changed on ``main``. The branch stays.

        Example:
            >>> lake.publish("fix", accept="The vendor confirmed that fares are missing.").status
            'published'
        """
        return publish_branch(self._components, branch, accept=accept, actor=actor)

    def discard(self, branch: str, *, actor: str | None = None) -> Run | None:
        """Drop a branch and everything written to it.

        Args:
            branch: The branch. ``main`` and tags are refused.
            actor: Who discards it, recorded with the run, if your program acts on somebody's behalf.

        Returns:
            The run that wrote it, ``discarded`` unless it was published before; ``None`` if the journal has no such
            run.
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

        Example:
            >>> run = lake.ingest("nyc.trips", "more/trips.parquet")
            >>> lake.revert(run.run_id).undone[0].rows
            -10
        """
        from lakegate.wap.revert import revert

        return revert(
            self._context,
            self.run(run).run_id if dry_run else full_run_id(self._components, run),
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
            InputError: The commit isn't in the history of ``main``.

        Example:
            >>> before = next(lake.log(limit=1)).hash
            >>> run = lake.ingest("nyc.trips", "more/trips.parquet")
            >>> lake.restore_table("nyc.trips", at=before).undone[0].rows
            -10
        """
        from lakegate.wap.revert import restore_table

        identifier = TableIdentifier.parse(table)
        return restore_table(
            self._context, identifier, resolve_ref(self._components, MAIN, at), new_run_id=new_run_id()
        )

    def drop_table(self, table: str) -> Run:
        """Drop a table on ``main``, in one commit, and its quarantine table with it.

        Older commits still have them; :meth:`restore_table` brings them back. Its source files can be ingested again.

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
        new table. Runs from before the rename can't be reverted any more. To undo it,
        rename the table back.

        Args:
            table: ``namespace.table``.
            name: Its new name. The namespace may change, too.

        Raises:
            AlreadyExistsError: The new name is taken.
            ConfigurationError: The table has a contract or a section in the settings, and the new name has none.

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

        Returns:
            The run, a transaction; ``skipped`` if the table was empty. Reverting it brings the rows back, and their
            files count as published again.

        Raises:
            AuditFailedError: The empty table fails one of its checks. Nothing was published.
            ConflictError: The table kept changing. Nothing was published.

        Example:
            >>> run = lake.ingest("nyc.daily", "more/trips.parquet")
            >>> lake.truncate_table("nyc.daily").publication.rows_removed
            10
            >>> lake.ingest("nyc.daily", "more/trips.parquet").status
            'published'
        """
        return truncate(self._components, table)

    # History

    def log(self, ref: str = MAIN, *, limit: int | None = None, operations: bool = True) -> Iterator[Commit]:
        """Iterate over the commits of a ref, newest first. They are read as you iterate.

        Args:
            ref: Branch, tag or commit hash.
            limit: Maximum number of commits. Default: all.
            operations: Fill :attr:`Commit.tables` and :attr:`Commit.puts`. A catalog with many tables answers faster
                without them. Commits by lakegate also name their tables in the property ``lakegate``.

        Example:
            >>> ["lakegate.run-id" in commit.properties for commit in lake.log(limit=1)]
            [True]
        """
        catalog = self._components.catalog
        return islice(catalog.history(find_ref(self._components, ref).name, operations=operations), limit)

    def diff(self, left: str, right: str, *, two_way: bool = False) -> Sequence[TableDifference]:
        """Return the tables that a ref changes since it branched off another, and how it changes their columns.

        Args:
            left: Branch, tag or commit.
            right: The ref whose changes to return, from the newest commit that it has in common with ``left``.
            two_way: Compare the two as they are, with what changed on ``left`` since.

        Example:
            >>> lake.diff("main", "main")
            []
        """
        return compare_tables(self._components, left, right, two_way=two_way)

    def diff_rows(
        self,
        table: str,
        left: str,
        right: str,
        *,
        two_way: bool = False,
        left_at: str | datetime | None = None,
        key: Sequence[str] = (),
    ) -> RowDifference:
        """Return the rows of a table that a ref changes since it branched off another.

        If ``right`` only appended, just the appended rows are read. Otherwise, all rows of both states are compared by
        all columns, and a changed row counts as one removed and one added, unless ``key`` says which rows are the same.

        Args:
            table: ``namespace.table``.
            left: Branch, tag or commit.
            right: The ref whose changes to return, from the newest commit that it has in common with ``left``.
            two_way: Compare the two as they are, with what changed on ``left`` since.
            left_at: Time, tag or commit: start from what ``left`` was then. Default: now.
            key: Columns that identify a row.

        Returns:
            The rows that were added and removed and, with a key, changed. They're planned, and read when you ask for
            them.

        Raises:
            InputError: On one of the refs, the table lacks a column of ``key``.

        Example:
            >>> lake.diff_rows("nyc.trips", "main", "main")
            RowDifference(added=None, removed=None, changed=None)
        """
        return compare_rows(self._components, table, left, right, left_at, key, two_way=two_way)

    # Tables and queries

    def tables(
        self, ref: str = MAIN, *, on_unreadable: Callable[[str, LakegateError], object] | None = None
    ) -> Sequence[TableMetadata]:
        """Return the metadata of all tables, by name.

        Args:
            ref: Branch or tag.
            on_unreadable: Called with the name of each table whose metadata is damaged or missing, and the error. The
                table is left out. Default: the error is raised.

        Raises:
            ConfigurationError: The object store denies access.
        """
        return read_tables(self._components, ref, on_unreadable)

    def table(self, name: str, *, ref: str = MAIN, at: str | datetime | None = None) -> Table:
        """Return a table's metadata, snapshots and files. Needs no Spark.

        Args:
            name: ``namespace.table``.
            ref: Branch, tag or commit hash.
            at: Time, tag or commit: the table as ``ref`` had it then. Default: now.

        Example:
            >>> lake.table("nyc.trips").rows
            100
        """
        return get_table(self._components, name, ref, at)

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

        Raises:
            InputError: The engine is unknown, or can't read this way.

        Example:
            >>> print(lake.snippet("nyc.trips", "duckdb").text.splitlines()[1])
            INSTALL iceberg; LOAD iceberg;
        """
        return write_snippet(self._components, table, engine, ref=ref, at=at, rest=rest, rest_token=rest_token)

    def query(self, sql: str, *, ref: str = MAIN, at: str | datetime | None = None) -> Query:
        """Plan a Spark SQL query. It reads rows when you ask for them. Plain table names mean the tables on ``ref``.

        Args:
            sql: One statement that only reads.
            ref: Branch, tag or commit hash.
            at: Time, tag or commit: read what ``ref`` was then, with the schema it had. Default: now.

        Raises:
            QueryError: The statement isn't valid, or isn't read-only.

        Example:
            >>> lake.query("SELECT count(*) AS n FROM nyc.trips").to_arrow().to_pylist()
            [{'n': 100}]
        """
        return plan_query(self._components, sql, ref, at)

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

    def superseded(self, run_ids: Sequence[str]) -> Mapping[str, str]:
        """Return which of these runs are rejected ingests that were tried again, each with the newest later attempt.

        A run was if a later one published each of its files, or was rejected with it and is one of these, too.
        """
        return self._components.journal.pages.superseded(run_ids)

    def run(self, run_id: str) -> Run:
        """Return the run with this id, or with an id of which this is the start, if there's only one."""
        return get_run(self._components, run_id)

    def written_schemas(self, run: Run) -> Mapping[str, Schema]:
        """Return the columns of each table that a run wrote, as it left them, unless they can't be read any more.

        Example:
            >>> run = lake.runs(table="nyc.trips", kind="ingest", limit=1)[0]
            >>> "trip_id" in lake.written_schemas(run)["nyc.trips"].names
            True
        """
        schemas = {}
        for staged in run.staged:
            with suppress(LakegateError):
                schemas[str(staged.table)] = self._components.reader.metadata(staged.pointer).table_schema
        return schemas

    def recover(self, run_ids: Sequence[str] = ()) -> Sequence[Run]:
        """Finish or undo every run whose process died. Every ingest does this first.

        Suspended runs are left alone until the time in ``lake.maintenance.suspended_runs()``. Also drops branches that
        runs couldn't drop because the catalog couldn't be reached, and sends what is due to downstream systems.

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
        recovered = recover_runs(self._components, run_ids)
        if not run_ids:
            self.downstream.send_due()
        return recovered
