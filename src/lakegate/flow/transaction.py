"""Transaction: any Spark writes to any number of tables, on one branch, audited and published together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from lakegate.audits import parse_checks, validate_checks
from lakegate.errors import AuditFailedError, ConflictError, InputError
from lakegate.flow import faults
from lakegate.flow.audit import audit, schemas_at
from lakegate.flow.discard import discard
from lakegate.flow.history import sync
from lakegate.flow.inspect import staged_since
from lakegate.flow.publish import RejectedLateError, publish
from lakegate.flow.recover import recover
from lakegate.flow.rooms import Rooms
from lakegate.flow.running import Progress, running
from lakegate.flow.stage import ensure_namespace, fresh_location
from lakegate.model.checks import AuditReport, Check
from lakegate.model.identifiers import TableIdentifier, validate_ref_name
from lakegate.model.order import OnFailure
from lakegate.model.refs import Ref
from lakegate.model.run import Run, StagedTable
from lakegate.model.tables import CreateTable
from lakegate.protocols import EngineTransaction

Configured = Callable[[TableIdentifier], Sequence[Check]]


class Transaction:
    """What :func:`transaction` hands out: writes and reads on the run's branch, where nobody else looks.

    Tables are named as everywhere, ``namespace.table``. Rows are a Spark DataFrame made by this transaction, an Arrow
    table, a pandas frame, or a list of dicts; columns are matched by name.
    """

    def __init__(self, rooms: Rooms, progress: Progress, engine: EngineTransaction, base: Ref) -> None:
        self._rooms = rooms
        self._progress = progress
        self._engine = engine
        self._base = base
        self._checks: dict[TableIdentifier, list[Check]] = {}
        self._reads: dict[TableIdentifier, None] = {}

    @property
    def run(self) -> Run:
        """The run as far as it has come; after the ``with`` block, as it ended."""
        return self._progress.run

    @property
    def branch(self) -> str:
        """The branch that is written to."""
        return self.run.branch

    def table(self, table: str) -> Any:
        """Return a DataFrame of a table as this transaction has it. Publishing then relies on what was read.

        Raises:
            NotFoundError: When it does not exist.
        """
        identifier = TableIdentifier.parse(table)
        self._reads[identifier] = None
        return self._engine.table(identifier)

    def append(self, table: str, rows: Any, *, partition_by: Sequence[str] = ()) -> None:
        """Append rows, creating the table when it does not exist.

        Args:
            table: ``namespace.table``.
            rows: See the class.
            partition_by: Transforms for a table that is created, such as ``days(pickup)``.

        Raises:
            InputError: When the rows do not fit the table.
        """
        identifier = TableIdentifier.parse(table)
        self._engine.append(identifier, rows, self._create(identifier, partition_by))

    def overwrite(self, table: str, rows: Any, *, partition_by: Sequence[str] = ()) -> None:
        """Replace all rows of a table; arguments and errors as for :meth:`append`."""
        identifier = TableIdentifier.parse(table)
        # An empty table is overwritten by appending, but what others append meanwhile must not survive it.
        self._reads[identifier] = None
        self._engine.overwrite(identifier, rows, self._create(identifier, partition_by))

    def upsert(self, table: str, rows: Any, *, keys: Sequence[str], partition_by: Sequence[str] = ()) -> None:
        """Update the rows whose ``keys`` match and insert the others; arguments as for :meth:`append`.

        Raises:
            InputError: When a key is NULL, or two of the given rows have the same one.
        """
        identifier = TableIdentifier.parse(table)
        # What is updated and what is inserted depends on the rows that are there.
        self._reads[identifier] = None
        self._engine.upsert(identifier, rows, keys, self._create(identifier, partition_by))

    def sql(self, statement: str) -> Any:
        """Run one Spark SQL statement in which plain table names mean the branch's tables; return its DataFrame.

        Publishing relies on the tables that it reads, as with :meth:`table`.

        Raises:
            QueryError: When it is refused, or names another branch or catalog.
        """
        for identifier in self._engine.reads(statement):
            self._reads[identifier] = None
        return self._engine.sql(statement)

    def check(self, table: str, *checks: str | Check) -> None:
        """Add checks to those that the settings hold for a table; they are run when the block ends.

        Raises:
            CheckError: When a check cannot be parsed.
        """
        identifier = TableIdentifier.parse(table)
        for check in checks:
            parsed = parse_checks(check) if isinstance(check, str) else (check,)
            self._checks.setdefault(identifier, []).extend(parsed)

    def checks(self, table: TableIdentifier) -> Sequence[Check]:
        """Return the checks that were added for ``table``."""
        return self._checks.get(table, [])

    @property
    def reads(self) -> tuple[str, ...]:
        """Tables of the target that were read."""
        return tuple(str(table) for table in self._reads)

    def _create(self, table: TableIdentifier, partition_by: Sequence[str]) -> CreateTable | None:
        branch = self._rooms.catalog.get_ref(self.branch)
        if self._rooms.catalog.get_table(table, branch) is not None:
            return None
        ensure_namespace(self._rooms, table, self.branch, self.run.run_id)
        return CreateTable(
            location=fresh_location(self._rooms, table, self.run.run_id), partition_by=tuple(partition_by)
        )


@contextmanager
def transaction(
    rooms: Rooms,
    *,
    run_id: str,
    name: str | None,
    branch: str,
    target: str,
    configured: Configured,
    on_failure: OnFailure,
) -> Iterator[Transaction]:
    """Write in the body; at its end audit and publish all it wrote in one commit, or nothing.

    An exception in the body discards everything.

    Raises:
        AuditFailedError: At the end, when a check fails: nothing is published.
        ConflictError: At the end, when the target changed on a table that was read, overwritten or upserted. Nothing
            is published; running the whole block again is what helps.
    """
    validate_ref_name(branch)
    recover(rooms)
    base = sync(rooms, target)
    run = Run(
        run_id=run_id,
        kind="transaction",
        name=name,
        tables=(),
        branch=branch,
        status="running",
        started_at=datetime.now(UTC),
        target=target,
        base=base.hash,
    )
    with running(rooms, run) as progress:
        rooms.require_writable()
        rooms.catalog.create_branch(branch, base)
        faults.reach("after-branch")
        engine = rooms.engine().transaction(branch, run_id)
        tx = Transaction(rooms, progress, engine, base)
        try:
            with progress.step("write"):
                yield tx
        finally:
            engine.close()
        _finish(rooms, progress, tx, base, configured, on_failure)


def _finish(
    rooms: Rooms, progress: Progress, tx: Transaction, base: Ref, configured: Configured, on_failure: OnFailure
) -> None:
    staged = staged_since(
        rooms, base, rooms.catalog.get_ref(tx.branch), target=progress.run.target, run_id=progress.run.run_id
    )
    _require_written(tx, staged)
    tables = tuple(str(one.table) for one in staged)
    progress.update(tables=tables, staged=staged, reads=tx.reads, status="staged", branch_kept=True)
    faults.reach("after-stage")
    if not staged:
        discard(rooms, tx.branch)
        progress.end(status="skipped", branch_kept=False, detail="The transaction changed no table.")
        return
    with progress.step("audit"):
        reports = tuple(_audit(rooms, one, staged, tx, configured) for one in staged)
    progress.update(reports=reports)
    if not all(report.passed for report in reports):
        raise _rejected(rooms, progress, on_failure)
    try:
        with progress.step("publish"):
            publication = publish(
                rooms,
                progress.run,
                fresh=True,
                require_lease=progress.require_lease,
                note_reports=progress.note_reports,
            )
    except RejectedLateError as error:
        progress.update(reports=error.reports)
        raise _rejected(rooms, progress, on_failure) from error
    except ConflictError:
        # What was computed from a target that moved on is worth nothing; only running it again helps.
        discard(rooms, tx.branch)
        raise
    progress.end(status="published", publication=publication, branch_kept=publication.branch_left)


def _require_written(tx: Transaction, staged: Sequence[StagedTable]) -> None:
    unknown = [str(table) for table in tx._checks if table not in {one.table for one in staged}]  # noqa: SLF001
    if unknown:
        raise InputError(
            f"The transaction has checks for {', '.join(unknown)}, but did not write to it.",
            hint="Remove the checks, or write the table in the same transaction.",
            tables=unknown,
            branch=tx.branch,
        )


def _audit(
    rooms: Rooms, one: StagedTable, staged: Sequence[StagedTable], tx: Transaction, configured: Configured
) -> AuditReport:
    checks = {str(check): check for check in (*configured(one.table), *tx.checks(one.table))}
    at = Ref(name=one.target, hash=one.base)
    schema = rooms.reader.metadata(one.pointer).table_schema
    resolved = validate_checks(tuple(checks.values()), schema, schemas_at(rooms, at, staged))
    return audit(rooms, one, resolved, beside=staged)


def _rejected(rooms: Rooms, progress: Progress, on_failure: OnFailure) -> AuditFailedError:
    run = progress.run
    kept = on_failure == "keep"
    if not kept:
        discard(rooms, run.branch)
    progress.end(status="rejected", branch_kept=kept)
    failed = ", ".join(f"{report.table}: {result.name}" for report in run.reports for result in report.failures)
    return AuditFailedError(
        f"The transaction is not published; {failed} failed.",
        hint=f"lakegate runs {run.run_id}",
        run_id=run.run_id,
        tables=list(run.tables),
        branch=run.branch if kept else None,
    )
