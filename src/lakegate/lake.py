"""The facade: everything lakegate does, from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Self

from lakegate.audits import parse_checks
from lakegate.config import Settings, find_home, load_settings
from lakegate.errors import InputError, NotFoundError
from lakegate.flow import review
from lakegate.flow.discard import discard
from lakegate.flow.ingest import ingest
from lakegate.flow.plan import plan
from lakegate.model.batch import Batch, CsvOptions, FileFormat
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier, is_commit_hash, validate_ref_name
from lakegate.model.plan import IngestPlan
from lakegate.model.refs import Commit, Ref, TableDifference
from lakegate.model.run import OnFailure, Run, new_run_id
from lakegate.model.tables import TableMetadata
from lakegate.narration import SilentNarrator
from lakegate.protocols import Narrator
from lakegate.views import Query, Table
from lakegate.wiring import Wiring

MAIN = "main"
Paths = str | Path | Sequence[str | Path]
Checks = Sequence[str | Check]


def connect(
    home: str | Path | None = None,
    *,
    engine: Any = None,
    catalog: str | None = None,
    warehouse: str | None = None,
    settings: Settings | None = None,
    narrator: Narrator | None = None,
) -> Lake:
    """Open the lake of a project. Servers are found or started when something first needs them.

    Args:
        home: The project's folder; by default the nearest one upwards with a ``lakegate.toml`` or ``.lakegate/``.
        engine: Spark Connect address (``sc://host:15002``) or a ``SparkSession`` (Connect or classic). By default
            what the settings say, else the local stack's.
        catalog: Nessie's API v2 address; by default what the settings say, else the local stack's.
        warehouse: Root of the tables' files as a URI; goes with ``catalog``.
        settings: Settings to use instead of reading ``lakegate.toml`` and variables.
        narrator: Where progress is told of; silent by default.

    Raises:
        ConfigurationError: When the settings are wrong.
    """
    folder = find_home() if home is None else Path(home).absolute()
    flags = {
        "engine.url": engine if isinstance(engine, str) else None,
        "catalog.uri": catalog,
        "catalog.warehouse": warehouse,
    }
    known = settings or load_settings(folder, flags=flags)
    session = None if isinstance(engine, str) else engine
    return Lake(Wiring(folder, known, session=session, narrator=narrator or SilentNarrator()))


class Lake:
    """A lakehouse in which changes are audited before anyone reads them. Made by :func:`connect`.

    A context manager: leaving it ends sessions and connections, not servers.
    """

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._wiring.settings

    @property
    def home(self) -> Path:
        """The project's folder."""
        return self._wiring.home

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End sessions and connections. Idempotent."""
        self._wiring.close()

    # Write, audit, publish ------------------------------------------------------------------------------------------

    def ingest(
        self,
        table: str,
        paths: Paths,
        *,
        checks: Checks = (),
        branch: str | None = None,
        partition_by: Sequence[str] = (),
        on_failure: OnFailure | None = None,
        format: FileFormat | None = None,  # noqa: A002 - the field's word
        csv: CsvOptions | None = None,
    ) -> Run:
        """Write files to a branch, audit them, and publish them to ``main``, or not at all.

        Args:
            table: ``namespace.table``; created on the branch when it does not exist.
            paths: Files, globs or folders; parquet or CSV.
            checks: Checks beside those of the table's settings: text (``"not_null(id)"``) or values.
            branch: Name of the branch; by default one made from table and run id.
            partition_by: Transforms for a table that is created (``"days(pickup)"``); default: the table's settings.
            on_failure: ``keep`` or ``drop`` the branch of a rejected batch; default: the settings.
            format: ``parquet`` or ``csv``; by default told from the files.
            csv: How to read CSV; default: the table's settings.

        Returns:
            The run: ``published``, ``rejected`` or ``skipped`` (nothing to publish).

        Raises:
            InputError: When files, names or checks are wrong. Nothing was written.
            RetryableError: When catalog or engine are away, or ``main`` changed meanwhile. Nothing was published.
            OutcomeUnknownError: When the catalog went away with the commit.
        """
        identifier = TableIdentifier.parse(table)
        batch = self._discover(identifier, paths, format, csv)
        if batch.rows == 0:
            return self._skip(identifier, batch)
        planned = self._plan(identifier, batch, checks, branch, partition_by, on_failure)
        return ingest(self._wiring.rooms, planned)

    def plan(
        self,
        table: str,
        paths: Paths,
        *,
        checks: Checks = (),
        branch: str | None = None,
        partition_by: Sequence[str] = (),
        on_failure: OnFailure | None = None,
        format: FileFormat | None = None,  # noqa: A002 - the field's word
        csv: CsvOptions | None = None,
    ) -> IngestPlan:
        """Return what :meth:`ingest` would do, or raise what would stop it. Writes nothing."""
        identifier = TableIdentifier.parse(table)
        batch = self._discover(identifier, paths, format, csv)
        return self._plan(identifier, batch, checks, branch, partition_by, on_failure)

    def audit(self, table: str, *, branch: str, checks: Checks | None = None) -> AuditReport:
        """Audit what ``branch`` added to ``table``, and remember the report for :meth:`publish`.

        Args:
            table: A table that the branch changed.
            branch: A branch, made by lakegate or by hand.
            checks: Default: those of the run that wrote the branch, else the table's settings.

        Raises:
            NotFoundError: When there is no such branch.
            InputError: When the branch did not change the table, or did more than append.
        """
        identifier = TableIdentifier.parse(table)
        given = None if checks is None else self._checks(identifier, checks, configured=False)
        return review.audit_branch(self._wiring.rooms, identifier, branch, checks=given, configured=self._configured)

    def publish(self, branch: str) -> Run:
        """Publish what stands on ``branch``, auditing it first unless this very state passed its audit already.

        Raises:
            AuditFailedError: When the audit fails. The branch stays.
            ConflictError: When ``main`` changed on one of its tables. The branch stays.
            NotFoundError: When there is no such branch.
        """
        return review.publish_branch(self._wiring.rooms, branch, configured=self._configured)

    def discard(self, branch: str) -> Run | None:
        """Drop ``branch`` with all that was written to it.

        Returns:
            The run that wrote it, now ``discarded``; ``None`` when the journal knows none.

        Raises:
            NotFoundError: When there is no such branch.
            InputError: When it is ``main``, or a tag.
        """
        rooms = self._wiring.rooms
        if not discard(rooms, branch):
            raise NotFoundError(f"There is no branch '{branch}'.", hint="lakegate branch list", branch=branch)
        run = rooms.journal.find_by_branch(branch)
        if run is None or run.status == "published":
            return run
        discarded = run.model_copy(update={"status": "discarded", "branch_kept": False})
        rooms.journal.save(discarded)
        return discarded

    # Look -----------------------------------------------------------------------------------------------------------

    def runs(self, *, table: str | None = None, status: str | None = None, limit: int = 50) -> Sequence[Run]:
        """Return runs, newest first."""
        return self._wiring.journal.runs(table=table, status=status, limit=limit)

    def run(self, run_id: str) -> Run:
        """Return one run by its id, or by the beginning of it.

        Raises:
            NotFoundError: When no run, or more than one, starts like this.
        """
        found = self._wiring.journal.find(run_id)
        exact = [run for run in found if run.run_id == run_id] or found
        if len(exact) == 1:
            return exact[0]
        what = f"{len(exact)} runs start with" if exact else "There is no run"
        raise NotFoundError(f"{what} '{run_id}'.", hint="lakegate runs", run_id=run_id)

    def branches(self) -> Sequence[Ref]:
        """Return all branches, ``main`` first."""
        refs = (ref for ref in self._wiring.catalog.list_refs() if ref.kind == "branch")
        return sorted(refs, key=lambda ref: (ref.name != MAIN, ref.name))

    def create_branch(self, name: str, source: str = MAIN, *, at: str | datetime | None = None) -> Ref:
        """Create a branch at ``source``, as it stands or stood ``at`` a time or commit.

        Raises:
            AlreadyExistsError: When there is one of this name.
        """
        return self._wiring.catalog.create_branch(validate_ref_name(name), self._resolve(source, at))

    def delete_branch(self, name: str) -> Ref:
        """Delete a branch, whoever made it.

        Raises:
            NotFoundError: When there is none.
            InputError: When it is ``main``.
        """
        ref = self._wiring.catalog.get_ref(name)
        discard(self._wiring.rooms, name)
        return ref

    def log(self, ref: str = MAIN, *, limit: int | None = None) -> Iterator[Commit]:
        """Yield the commits of ``ref``, newest first."""
        return islice(self._wiring.catalog.history(ref, operations=True), limit)

    def diff(self, left: str, right: str) -> Sequence[TableDifference]:
        """Return the tables that stand differently on two references."""
        catalog = self._wiring.catalog
        return list(catalog.diff(catalog.get_ref(left), catalog.get_ref(right)))

    def tables(self, ref: str = MAIN) -> Sequence[TableMetadata]:
        """Return all tables at ``ref``."""
        catalog = self._wiring.catalog
        pointers = sorted(catalog.list_tables(catalog.get_ref(ref)), key=lambda pointer: pointer.table.parts)
        return [self._wiring.reader.metadata(pointer) for pointer in pointers]

    def table(self, name: str, *, ref: str = MAIN, at: str | datetime | None = None) -> Table:
        """Return a table as it stands on ``ref``, or stood ``at`` a time or commit. No engine is needed.

        Raises:
            NotFoundError: When it does not exist there.
        """
        identifier = TableIdentifier.parse(name)
        resolved = self._resolve(ref, at)
        pointer = self._wiring.catalog.get_table(identifier, resolved)
        if pointer is None:
            raise NotFoundError(
                f"There is no table {name} on {ref}.",
                hint=f"lakegate table list --ref {ref}",
                table=name,
                ref=ref,
            )
        return Table(pointer, self._wiring.reader)

    def rows_per_branch(self, table: str) -> Sequence[tuple[Ref, int | None]]:
        """Return each branch that has ``table`` with its number of rows there, by metadata alone."""
        identifier = TableIdentifier.parse(table)
        found = ((ref, self._wiring.catalog.get_table(identifier, ref)) for ref in self.branches())
        return [(ref, self._wiring.reader.metadata(pointer).rows) for ref, pointer in found if pointer is not None]

    def query(self, sql: str, *, ref: str = MAIN, at: str | datetime | None = None) -> Query:
        """Run a Spark SQL query in which plain table names mean the tables on ``ref``.

        Args:
            sql: One statement that only reads.
            ref: Branch, tag or commit hash.
            at: Commit hash, or time (aware, or taken as UTC; text in ISO 8601): read what ``ref`` was then, with
                the schema of then.

        Raises:
            QueryError: When it is refused, or changes something.
        """
        from lakegate.engine.statement import require_query  # noqa: PLC0415 - loads sqlglot

        require_query(sql)
        engine = self._wiring.engine
        resolved = self._resolve(ref, at)
        if at is not None:
            resolved = resolved.model_copy(update={"kind": "detached"})
        return Query(engine.query(sql, resolved), engine.fetch)

    # Parts ----------------------------------------------------------------------------------------------------------

    def _discover(
        self, table: TableIdentifier, paths: Paths, file_format: FileFormat | None, csv: CsvOptions | None
    ) -> Batch:
        from lakegate.sources import discover  # noqa: PLC0415 - loads pyarrow

        listed = [paths] if isinstance(paths, (str, Path)) else paths
        return discover(
            [str(path) for path in listed],
            format=file_format,
            csv=csv or self.settings.table(table).csv,
            narrator=self._wiring.narrator,
        )

    def _plan(
        self,
        table: TableIdentifier,
        batch: Batch,
        checks: Checks,
        branch: str | None,
        partition_by: Sequence[str],
        on_failure: OnFailure | None,
    ) -> IngestPlan:
        run_id = new_run_id()
        return plan(
            self._wiring.rooms,
            run_id=run_id,
            table=table,
            batch=batch,
            checks=self._checks(table, checks, configured=True),
            branch=branch or f"{self.settings.ingest.branch_prefix}/{table}_{run_id}",
            partition_by=partition_by or self.settings.table(table).partition_by,
            on_failure=on_failure or self.settings.ingest.on_failure,
            target=MAIN,
        )

    def _checks(self, table: TableIdentifier, checks: Checks, *, configured: bool) -> tuple[Check, ...]:
        texts = (*(self.settings.table(table).checks if configured else ()), *checks)
        parsed = (parse_checks(check) if isinstance(check, str) else (check,) for check in texts)
        return tuple({str(check): check for group in parsed for check in group}.values())

    def _configured(self, table: TableIdentifier) -> tuple[Check, ...]:
        return self._checks(table, (), configured=True)

    def _skip(self, table: TableIdentifier, batch: Batch) -> Run:
        now = datetime.now(UTC)
        files = "file holds" if len(batch.files) == 1 else f"{len(batch.files)} files hold"
        run = Run(
            run_id=new_run_id(),
            table=str(table),
            branch="",
            status="skipped",
            started_at=now,
            finished_at=now,
            detail=f"The source {files} no rows; nothing to publish.",
        )
        self._wiring.journal.save(run)
        return run

    def _resolve(self, ref: str, at: str | datetime | None) -> Ref:
        return self._wiring.catalog.resolve(ref, _parse_at(at))


def _parse_at(at: str | datetime | None) -> str | datetime | None:
    if at is None or (isinstance(at, str) and is_commit_hash(at)):
        return at
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise InputError(
                f"'{at}' is neither a commit hash nor a time.",
                hint="Write a time as 2026-01-31T07:00:00Z; `lakegate log` shows times and commits.",
            ) from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
