"""Transactions: any Spark writes to any number of tables on one branch, audited and published together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from lakegate.checks import parse_checks, require_runnable, validate_checks
from lakegate.context import Context
from lakegate.errors import (
    AlreadyExistsError,
    CheckError,
    ClockError,
    ConflictError,
    InputError,
    QueryError,
)
from lakegate.ledger.sync import sync
from lakegate.model.checks import Check
from lakegate.model.identifiers import TableIdentifier, quote, validate_ref_name
from lakegate.model.refs import Ref
from lakegate.model.request import OnFailure
from lakegate.model.run import Acceptance, Action, Run, RunKind, StagedTable
from lakegate.model.schema import Schema
from lakegate.model.sqltext import SqlTextError, not_pushed_down, sql_text, sql_tokens
from lakegate.model.tables import CreateTable
from lakegate.model.types import type_words
from lakegate.model.words import suggest_keywords
from lakegate.ports import EngineTransaction
from lakegate.run_text import rejection
from lakegate.wap import failpoints
from lakegate.wap.audit import ConfiguredChecks
from lakegate.wap.branches import store_run
from lakegate.wap.discard import discard, ref_exists
from lakegate.wap.modes import require_empty_quarantine
from lakegate.wap.quarantine import renames_column, require_not_reserved
from lakegate.wap.recover import recover, running
from lakegate.wap.session import RunSession
from lakegate.wap.stage import ensure_namespace, new_table, until_when
from lakegate.wap.written import audit_written, publish_written, stage_written

_OTHER_STATE = re.compile(r"(?:at_timestamp|branch|snapshot_id|tag)_.*", re.IGNORECASE)
"""Suffixes by which Iceberg reads another state of a table (``SparkCatalog.load``): ``nyc.trips.branch_audit``."""
_CHANGES_ROWS = re.compile(r"\s*(?:delete|insert|merge|update|with)\b", re.IGNORECASE)

_MISORDERED = frozenset({"double", "float", "uuid"})

# A partition without a value means all partitions, because transactions overwrite statically.
_REPLACES_ROWS = re.compile(
    r"\binsert\s+overwrite\s+(?:table\s+)?(?!table\b)\S+\s+(?!\s|partition\s*\([^)]*=)"
    r"|\A\s*(?:drop|(?:create\s+or\s+)?replace)\s+table\b",
    re.IGNORECASE,
)


@suggest_keywords
class Transaction:
    """Writes and reads on a branch that nobody else reads. Open one with :meth:`lakegate.Lake.transaction`.

    Tables are named ``namespace.table``. Rows are a Spark DataFrame of this transaction, a pandas or Polars
    frame, a DuckDB relation, an Arrow table, or a list of dicts; columns are matched by name.
    """

    def __init__(
        self,
        context: Context,
        session: RunSession,
        engine: EngineTransaction,
        configured: ConfiguredChecks = lambda _: (),
    ) -> None:
        self._context = context
        self._session = session
        self.engine = engine
        engine.before_writing = self._plan_checks
        self._configured = configured
        self._planned: dict[TableIdentifier, Sequence[Check]] = {}
        self._checks: dict[TableIdentifier, list[Check]] = {}
        self._reads: dict[TableIdentifier, None] = {}
        self._written: set[TableIdentifier] = set()

    @property
    def run(self) -> Run:
        """The run so far; after the ``with`` block, as it ended."""
        return self._session.run

    @property
    def branch(self) -> str:
        """The branch that the transaction writes to."""
        return self.run.branch

    def table(self, table: str) -> Any:
        """Return a DataFrame of a table on this transaction's branch. The publish fails if that table has changed.

        Raises:
            QueryError: The table doesn't exist, or the name means another state of it than the branch's.
        """
        identifier = TableIdentifier.parse(table)
        self._reads[self._table_read(identifier)] = None
        return self.engine.table(identifier)

    def append(self, table: str, rows: Any, *, partition_by: Sequence[str] = ()) -> None:
        """Append rows to a table, creating it if it doesn't exist.

        Args:
            table: ``namespace.table``.
            rows: A DataFrame of this transaction, a pandas or Polars frame, a DuckDB relation, an Arrow table, or a
                list of dicts.
            partition_by: Transforms for a new table, such as ``days(pickup)``.

        Raises:
            InputError: The rows don't fit the table.
        """
        identifier = TableIdentifier.parse(table)
        create = self._create(identifier, partition_by)
        self.engine.append(identifier, rows, create)

    def overwrite(self, table: str, rows: Any, *, partition_by: Sequence[str] = ()) -> None:
        """Replace all rows of a table, creating it if it doesn't exist.

        Args:
            table: ``namespace.table``.
            rows: A DataFrame of this transaction, a pandas or Polars frame, a DuckDB relation, an Arrow table, or a
                list of dicts.
            partition_by: Transforms for a new table, such as ``days(pickup)``.

        Raises:
            InputError: The rows don't fit the table, or some of its rows are in quarantine.
        """
        identifier = TableIdentifier.parse(table)
        create = self._create(identifier, partition_by)
        if create is None:
            self._require_empty_quarantine(identifier)
        # An empty table is overwritten by appending, but rows that others append meanwhile must not survive.
        self._reads[identifier] = None
        self.engine.overwrite(identifier, rows, create)

    def upsert(self, table: str, rows: Any, *, keys: Sequence[str], partition_by: Sequence[str] = ()) -> None:
        """Update the rows whose ``keys`` match, and insert the others.

        Args:
            table: ``namespace.table``. Created if it doesn't exist.
            rows: A DataFrame of this transaction, a pandas or Polars frame, a DuckDB relation, an Arrow table, or a
                list of dicts.
            keys: Columns that identify a row.
            partition_by: Transforms for a new table, such as ``days(pickup)``.

        Raises:
            InputError: The rows don't fit the table, a key is NULL, or two of the rows have the same key.
        """
        identifier = TableIdentifier.parse(table)
        create = self._create(identifier, partition_by)
        # Which rows are updated and which are inserted depends on the existing rows.
        self._reads[identifier] = None
        hidden = (column for check in self._all_checks(identifier) if check.examples == 0 for column in check.columns)
        self.engine.upsert(identifier, rows, keys, create, masked=(*self._context.masked, *hidden))

    def delete(self, table: str, where: str) -> None:
        """Delete the rows of a table that meet a condition.

        Args:
            table: ``namespace.table``.
            where: The condition in Spark SQL. It may read other tables; the publish fails if they have changed.

        Raises:
            QueryError: The condition is invalid, or names another branch or catalog.
        """
        try:
            tokens = sql_tokens(where)
            condition = sql_text(tokens)
        except SqlTextError as error:
            raise QueryError(f"The condition can't be used: {error}", table=table, where=where) from None
        if not condition:
            raise QueryError(
                "The condition is empty.", hint=f"To delete all rows: lakegate table truncate {table}", table=table
            )
        identifier = TableIdentifier.parse(table)
        source = f"FROM {'.'.join(map(quote, identifier.parts))} WHERE"
        # Double parentheses: Spark reads `FROM t WHERE (name)` as an alias with a column name.
        condition = f"(({condition}))"
        if {one.name.lower() for one in tokens} & self._misordered(identifier):
            # Try it as it is first: only then does Spark refuse a condition that isn't a boolean.
            self.sql(f"SELECT 1 {source} {condition} LIMIT 0").take(1)
            # By Iceberg's bounds, NaN isn't greater than any number, -0.0 is less than 0, and UUIDs are signed numbers.
            condition = not_pushed_down(condition)
        chosen = f"{source} {condition}"
        # A DELETE without matching rows would still create a snapshot.
        if self.sql(f"SELECT 1 {chosen} LIMIT 1").take(1):
            self.sql(f"DELETE {chosen}")

    def _misordered(self, table: TableIdentifier) -> set[str]:
        """Return the names, in lower case, of columns whose values Iceberg orders differently, perhaps in a struct."""
        pointer = self._context.catalog.get_ref_with_tables(self.branch, [table])[1][table]
        columns = () if pointer is None else self._context.reader.metadata(pointer).table_schema.columns
        return {one.name.lower() for one in columns if type_words(one.type) & _MISORDERED}

    def sql(self, statement: str) -> Any:
        """Run one Spark SQL statement and return its DataFrame. Table names refer to the branch's tables.

        The publish fails if a table that the statement reads has changed, as with :meth:`table`.

        Raises:
            QueryError: The statement is invalid, or names another branch or catalog.
        """
        read, written = self.engine.used_by(statement)
        text = sql_text(sql_tokens(statement)) if written else ""  # without comments
        for identifier in written:
            self._written.add(identifier)
            self._require_writable(identifier, statement)
            if _REPLACES_ROWS.search(text):
                self._require_empty_quarantine(identifier)
            if _CHANGES_ROWS.match(text):
                self._plan_checks(identifier)
        for identifier in read:
            self._reads[self._table_read(identifier)] = None
        return self.engine.sql(statement)

    def check(self, table: str, *checks: str | Check) -> None:
        """Add checks for a table to those in its settings. They run when the block ends.

        Args:
            table: ``namespace.table``.
            *checks: Checks as text (``"not_null(id)"``) or as objects.

        Raises:
            CheckError: A check can't be parsed.
        """
        identifier = TableIdentifier.parse(table)
        for check in checks:
            parsed = parse_checks(check) if isinstance(check, str) else (check,)
            self._checks.setdefault(identifier, []).extend(parsed)

    def checks(self, table: TableIdentifier) -> Sequence[Check]:
        """Return the checks that were added for a table."""
        return self._checks.get(table, [])

    def _all_checks(self, table: TableIdentifier) -> tuple[Check, ...]:
        """Return the checks of a table's settings and those that were added, each once."""
        given = (*self._configured(table), *self.checks(table))
        return tuple({str(check): check for check in given}.values())

    def _plan_checks(self, table: TableIdentifier, schema: Schema | None = None) -> None:
        """Refuse checks whose SQL the engine can't plan, before any rows are written.

        A check may need a column or table that the transaction only adds later; such a check is validated at the end.

        Args:
            schema: The table's columns; by default those on the branch, if the table exists there.

        Raises:
            CheckError: Naming all such checks.
        """
        checks = self._all_checks(table)
        if self._planned.get(table) == checks:
            return
        if schema is None:
            pointer = self._context.catalog.get_table(table, self._context.catalog.get_ref(self.branch))
            if pointer is None:
                return
            schema = self._context.reader.metadata(pointer).table_schema
        usable: list[Check] = []
        for check in checks:
            with suppress(CheckError):
                usable += validate_checks([check], schema, masked=self._context.masked)
        require_runnable(usable, schema, self._context.engine)
        self._planned[table] = checks

    @property
    def reads(self) -> tuple[str, ...]:
        """Tables of the target that were read."""
        return tuple(str(table) for table in self._reads)

    def _table_read(self, name: TableIdentifier) -> TableIdentifier:
        """Return the table that a name reads.

        Iceberg reads a suffix of a table's name as a part or state of the table: ``nyc.trips.files``, ``.changes``,
        ``.branch_main``. A table of that full name takes precedence.

        Raises:
            QueryError: When the name means another state of a table than the transaction's.
        """
        above = self._table_above(name)
        if above is None:
            return name
        if any(_OTHER_STATE.fullmatch(part) for part in name.parts[len(above.parts) :]):
            raise QueryError(
                f"'{name}' means another state of {above} than the one on branch {self.branch}, which this transaction "
                "reads and writes.",
                hint=f"Read {above} itself. To read an older snapshot: {above} VERSION AS OF …",
                table=str(above),
                branch=self.branch,
            )
        return above

    def _require_empty_quarantine(self, table: TableIdentifier) -> None:
        require_empty_quarantine(self._context, table, self._context.catalog.get_ref(self.branch))

    def _require_writable(self, name: TableIdentifier, statement: str = "") -> None:
        if not renames_column(statement):
            require_not_reserved(name)
        above = self._table_above(name)
        if above is not None:
            raise QueryError(
                f"'{name}' can't be changed: on branch {self.branch}, that name means a part of table {above}.",
                hint=f"Change {above} itself.",
                table=str(above),
                branch=self.branch,
            )

    def _table_above(self, name: TableIdentifier) -> TableIdentifier | None:
        """Return the table whose name is a prefix of ``name``; ``None`` if ``name`` is a table itself."""
        if len(name.namespace) == 1:
            return None
        branch = self._context.catalog.get_ref(self.branch)
        prefixes = (name.parts[:length] for length in range(len(name.parts), 1, -1))
        for *namespace, last in prefixes:
            table = TableIdentifier.stored(".".join((*namespace, last)))
            with suppress(InputError):  # it is a namespace
                if self._context.catalog.get_table(table, branch) is not None:
                    return None if table == name else table
        return None

    def _create(self, table: TableIdentifier, partition_by: Sequence[str]) -> CreateTable | None:
        self._written.add(table)
        self._require_writable(table)
        branch = self._context.catalog.get_ref(self.branch)
        if self._context.catalog.get_table(table, branch) is not None:
            return None
        ensure_namespace(self._context, table, self.branch, self.run.run_id)
        return new_table(self._context, table, self.run.run_id, partition_by=partition_by)


@contextmanager
def transaction(
    context: Context,
    *,
    run_id: str,
    name: str | None,
    branch: str,
    target: str,
    configured: ConfiguredChecks,
    on_failure: OnFailure,
    action: Action | None = None,
    acceptance: Acceptance | None = None,
    kind: RunKind = "transaction",
    undoes: Callable[[Ref], Sequence[str]] = lambda _: (),
    tables: Sequence[str] = (),
) -> Iterator[Transaction]:
    """Let the body write to a branch; at its end, audit and publish all changes in one commit, or nothing.

    An exception in the body discards everything.

    Args:
        action: Who does this, to be recorded with the run.
        acceptance: Publish even if a check fails; it's only recorded then.
        undoes: Given the base, returns the runs whose rows the body removes: their source files can be ingested again.
        tables: Tables that it is about, for the journal until it has written some.

    Raises:
        AuditFailedError: At the end, when a check fails. Nothing is published.
        ConflictError: At the end, when a table that was read, overwritten or upserted changed on the target. Nothing is
            published; run the whole block again.
    """
    validate_ref_name(branch)
    recover(context)
    if ref_exists(context, branch):
        raise AlreadyExistsError(
            f"Branch '{branch}' exists already.",
            hint=f"Choose another branch for the transaction, or drop it: lakegate discard {branch}",
            branch=branch,
        )
    base = sync(context, target)
    run = Run(
        run_id=run_id,
        kind=kind,
        name=name,
        tables=tuple(tables),
        branch=branch,
        status="created",
        on_failure=on_failure,
        started_at=datetime.now(UTC),
        target=target,
        base=base.hash,
        reverts=tuple(undoes(base)),
        actions=() if action is None else (action,),
    )
    with running(context, run) as session:
        context.require_writable()
        store_run(context, session.run, context.catalog.create_branch(branch, base))
        failpoints.reach("after-branch")
        with context.narrator.step("Opening a Spark session"):
            engine = context.engine().transaction(branch, run_id)
        tx = Transaction(context, session, engine, configured)
        try:
            with session.step("write"):
                yield tx
        except ClockError as error:
            written = context.catalog.get_tables(list(tx._written), base)  # noqa: SLF001
            raise until_when(context, error, [one for one in written.values() if one is not None]) from error
        finally:
            engine.close()
        stage_written(
            context,
            session,
            base,
            tx._all_checks,  # noqa: SLF001
            reads=tx.reads,
            require=partial(_require_written, tx),
            nothing="The transaction changed no table.",
        )
        audit_written(context, session, acceptance)
        _publish(context, session)
    if session.run.status == "rejected":
        raise rejection(session.run)


def _publish(context: Context, session: RunSession) -> None:
    try:
        publish_written(context, session)
    except ConflictError:
        # The rows were computed from a target that has changed: only running the block again helps.
        discard(context, session.run.branch)
        raise


def _require_written(tx: Transaction, staged: Sequence[StagedTable]) -> None:
    unknown = [str(table) for table in tx._checks if table not in {one.table for one in staged}]  # noqa: SLF001
    if unknown:
        raise InputError(
            f"The transaction has checks for {', '.join(unknown)}, but didn't write to them.",
            hint="Remove the checks, or write the table in the same transaction.",
            tables=unknown,
            branch=tx.branch,
        )
