"""The Spark side of a transaction: a separate session, in which plain names mean the tables of one branch."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lakegate.errors import InputError, LakegateError, NotReplayableError, SchemaError
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.schema import Column, Schema, reserved_names
from lakegate.model.sqltext import sql_string
from lakegate.model.tables import CreateTable
from lakegate.model.words import unknown_column
from lakegate.spark.dataframes import to_frame
from lakegate.spark.failures import (
    LOSES,
    cause_of,
    condition_of,
    first_sentence,
    is_iceberg_refusal,
    refusals,
    spark_errors,
)
from lakegate.spark.reader import iceberg_schema, with_fields
from lakegate.spark.sessions import CATALOG, SNAPSHOT_PROPERTY, end_session, is_connect, plan_now
from lakegate.spark.statement import Statement, parse_statement
from lakegate.spark.writer import TableWriter

_CATALOG_SETTING = "spark.sql.catalog."
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_LOST = "Cannot commit rewrite because of a"
"""What Iceberg says of a compaction that lost to concurrent commits."""
_TIMES = frozenset({"timestamp", "timestamp_ntz"})
_DECIMAL = re.compile(r"decimal\(\d+, ?(\d+)\)")


def transaction_settings(settings: Mapping[str, str], run_id: str) -> dict[str, str]:
    """Return the settings of a transaction's session.

    Iceberg writes a session's ``spark.sql.iceberg.snapshot-property.*`` into all snapshots that the session creates,
    through SQL or DataFrames (``SparkWriteConf.extraSnapshotMetadata``).

    Args:
        settings: Settings of a session whose catalog is bound to the branch.
    """
    return {
        **settings,
        f"{SNAPSHOT_PROPERTY}{RUN_ID_PROPERTY}": run_id,
        "spark.sql.sources.partitionOverwriteMode": "static",
    }


class SparkTransaction:
    """Implements :class:`lakegate.ports.EngineTransaction`.

    Args:
        session: A session with :func:`transaction_settings`, whose catalog is bound to ``branch``.
        ended: Called once, when the transaction is closed.
    """

    def __init__(
        self,
        session: Any,
        branch: str,
        *,
        ended: Callable[[], object],
    ) -> None:
        self._session = session
        self._branch = branch
        self._ended = ended
        self._open = True
        self.before_writing: Callable[[TableIdentifier, Schema], None] = lambda *_: None
        self._analysed = ("", Statement(""))
        with spark_errors(f"opening a transaction on branch {branch}"):
            # catalog.setCurrentCatalog would use the thread's active session on classic Spark: the user's.
            session.sql(f"SET CATALOG {CATALOG}")
            self._catalogs = catalogs_of(session)

    def table(self, table: TableIdentifier) -> Any:
        """Return a DataFrame of ``table`` on the branch."""
        with _user_errors(f"reading {table} on branch {self._branch}"):
            return plan_now(self._session.table(table.sql(CATALOG)))

    def append(self, table: TableIdentifier, rows: Any, create: CreateTable | None, *, fills: bool = False) -> None:
        """Append rows by column name."""
        with self._writing(table):
            self._writer(table, create).append(self._align_to_table(table, rows, create, fills=fills))

    def overwrite(self, table: TableIdentifier, rows: Any, create: CreateTable | None) -> None:
        """Replace all rows of the table, without replacing the table."""
        with self._writing(table):
            self._writer(table, create).overwrite(self._align_to_table(table, rows, create))

    def _writer(self, table: TableIdentifier, create: CreateTable | None) -> TableWriter:
        return TableWriter(session=self._session, table=table, branch=self._branch, create=create)

    def upsert(
        self,
        table: TableIdentifier,
        rows: Any,
        keys: Sequence[str],
        create: CreateTable | None,
        *,
        masked: Sequence[str] = (),
    ) -> None:
        """Update the rows whose ``keys`` match, and insert the others."""
        with self._writing(table):
            fitted = self._align_to_table(table, rows, create)
            names = _key_names(fitted, keys, table)
            if create is None:
                fitted = self._cast_keys(table, fitted, names)
            # The rows are read twice, to check and to write them. Computing them twice could give different rows, and
            # Spark's MERGE refuses a nondeterministic source.
            frame = self._checkpoint(fitted)
            changed = [name for name in frame.columns if name not in names]
            self._writer(table, create).upsert(frame, names, changed, masked=masked)

    def compact(self, table: TableIdentifier, *, sort: str | None, where: str | None) -> None:
        """Run Iceberg's ``rewrite_data_files`` in one commit. With ``sort``, it rewrites all files."""
        arguments = [
            f"table => {sql_string('.'.join(map(quote, table.parts)))}",
            # Also rewrite files with deletes, which make every read slower.
            f"options => map('delete-file-threshold', '1', 'rewrite-all', '{str(sort is not None).lower()}')",
        ]
        if sort is not None:
            arguments += ["strategy => 'sort'", f"sort_order => {sql_string(sort)}"]
        if where is not None:
            arguments.append(f"where => {sql_string(where)}")
        try:
            with _user_errors(f"compacting {table} on branch {self._branch}"):
                self._session.sql(f"CALL {CATALOG}.system.rewrite_data_files({', '.join(arguments)})").collect()
        except LakegateError as error:
            if _LOST not in str(error.__cause__):
                raise
            raise NotReplayableError(
                f"{table} couldn't be compacted: other runs changed the same files, or kept changing the table.",
                hint="Run it again when fewer runs write to the table.",
                table=str(table),
                branch=self._branch,
            ) from error

    def count(self, table: TableIdentifier, *, at: str) -> int:
        """Return the table's number of rows at a commit."""
        with _user_errors(f"counting the rows of {table}"):
            return int(self._session.table(table.sql(CATALOG, ref=f"{self._branch}#{at}")).count())

    @property
    def session(self) -> Any:
        """The session, in which plain names mean the tables of the branch."""
        return self._session

    def used_by(self, statement: str) -> tuple[Collection[TableIdentifier], Collection[TableIdentifier]]:
        """Return the tables that ``statement`` reads, and those it changes. Raises what :meth:`sql` does."""
        with _user_errors(f"analysing a statement for branch {self._branch}"):
            analysed = parse_statement(statement, self._catalogs)
        self._analysed = (statement, analysed)
        return analysed.read, analysed.written

    def sql(self, statement: str) -> Any:
        """Run one statement, a query or a change, and return its DataFrame. A change is complete on return."""
        (known, parsed), self._analysed = self._analysed, ("", Statement(""))
        with _user_errors(f"running a statement on branch {self._branch}"):
            if known != statement:
                parsed = parse_statement(statement, self._catalogs)
            self._create_namespaces(parsed)
            return plan_now(self._session.sql(parsed.sql))

    def fetch(self, query: str) -> Sequence[tuple[Any, ...]]:
        """Run a query and return its rows."""
        frame = self.sql(query)
        with _user_errors(f"running a query on branch {self._branch}"):
            rows: Sequence[tuple[Any, ...]] = frame.collect()
        return rows

    def close(self) -> None:
        """End the session. Idempotent."""
        if self._open:
            self._open = False
            self._ended()
            end_session(self._session)

    def _create_namespaces(self, statement: Statement) -> None:
        for table in statement.created:
            for depth in range(1, len(table.namespace) + 1):
                name = ".".join(quote(part) for part in (CATALOG, *table.namespace[:depth]))
                self._session.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")

    def _align_to_table(
        self, table: TableIdentifier, rows: Any, create: CreateTable | None, *, fills: bool = False
    ) -> Any:
        """Return the rows with the table's columns, by name, in its order."""
        frame = to_frame(self._session, rows)
        if frame is None:
            if create is not None:
                raise InputError(f"Can't create table {table} from an empty list: it has no columns.")
            return self.table(table).where("false")
        given = _schema(frame)
        _require_usable_names(given, table)
        if create is not None:
            # lakegate always creates a column without values, which has no type, as text.
            created = frame.selectExpr(*(_typed(column) for column in given.columns))
            self.before_writing(table, iceberg_schema(created.schema))
            return created
        there = self.table(table)
        self.before_writing(table, iceberg_schema(there.schema))
        frame = with_fields(frame, there, fills=fills)
        wanted = _schema(there)
        found = {wanted_column.name: name for name in given.names if (wanted_column := wanted.find(name))}
        self._require_all(table, given, wanted, found)
        return frame.selectExpr(*(f"{quote(found[name])} AS {quote(name)}" for name in wanted.names))

    def _schema_error(self, table: TableIdentifier, message: str, hint: str) -> SchemaError:
        return SchemaError(message, hint=hint, table=str(table), branch=self._branch)

    def _require_all(self, table: TableIdentifier, given: Schema, wanted: Schema, found: Mapping[str, str]) -> None:
        unknown = [name for name in given.names if name not in found.values()]
        if unknown:
            guess = wanted.nearest(unknown[0])
            hint = f"Did you mean '{guess}'?" if guess else "Drop it, or add it with ALTER TABLE … ADD COLUMN."
            message = f"Table {table} on branch {self._branch} has no column {_quoted_list(unknown)}."
            raise self._schema_error(table, message, hint)
        missing = [name for name in wanted.names if name not in found]
        if missing:
            message = f"The rows given for {table} on branch {self._branch} lack column {_quoted_list(missing)}."
            raise self._schema_error(table, message, "Pass all columns of the table, with NULL where there's no value.")

    def _cast_keys(self, table: TableIdentifier, frame: Any, keys: Sequence[str]) -> Any:
        """Cast the keys to the table's types, if that's exact: 1.2 and 1.4 must not both become 1 on writing."""
        given, wanted = _schema(frame), _schema(self.table(table))
        columns = []
        for column, target in zip(given.columns, wanted.columns, strict=True):
            if column.name not in keys or column.type == target.type:
                columns.append(quote(column.name))
                continue
            if not _same_values(column.type, target.type):
                message = f"Key '{column.name}' of {table} has type {target.type}, but {column.type} in the given rows."
                raise self._schema_error(table, message, f"Convert it to {target.type}.")
            columns.append(f"CAST({quote(column.name)} AS {target.type}) AS {quote(column.name)}")
        return frame.selectExpr(*columns)

    def _checkpoint(self, frame: Any) -> Any:
        """Compute ``frame`` once, and let Spark keep its rows.

        PySpark's Connect client returns the result in the thread's active session or the process's default session
        (``proto_to_remote_cached_dataframe``). Those may be missing, closed or not ours, so ours is made active.
        """
        if not is_connect(self._session):
            return frame.localCheckpoint(eager=True)
        from pyspark.sql.connect.session import SparkSession

        active = SparkSession._active_session  # noqa: SLF001 - there is no public way
        before = getattr(active, "session", None)
        active.session = self._session
        try:
            return frame.localCheckpoint(eager=True)
        finally:
            active.session = before

    @contextmanager
    def _writing(self, table: TableIdentifier) -> Iterator[None]:
        from pyspark.errors import AnalysisException

        with spark_errors(f"writing {table} on branch {self._branch}"):
            try:
                yield
            except Exception as error:
                if not (isinstance(error, _user_error_types()) or LOSES in str(error)):
                    raise
                kind = SchemaError if isinstance(error, AnalysisException) else InputError
                cause = cause_of(str(error), (LOSES,)) if LOSES in str(error) else first_sentence(str(error))
                condition = condition_of(error)
                raise kind(
                    f"The rows can't be written to {table} on branch {self._branch}: {condition}.",
                    hint="Convert the values to the table's types first.",
                    detail=cause,
                    table=str(table),
                    branch=self._branch,
                    condition=condition,
                ) from error


@contextmanager
def _user_errors(doing: str) -> Iterator[None]:
    with spark_errors(doing):
        try:
            yield
        except Exception as error:
            if not (isinstance(error, _user_error_types()) or is_iceberg_refusal(error)):
                raise
            with spark_errors(doing, query=True):
                raise


def _user_error_types() -> tuple[type[Exception], ...]:
    from pyspark import errors

    return (*refusals(), errors.IllegalArgumentException, errors.UnsupportedOperationException)


def catalogs_of(session: Any) -> frozenset[str]:
    """Return the names of a session's Spark catalogs."""
    names = (key.removeprefix(_CATALOG_SETTING) for key in session.conf.getAll if key.startswith(_CATALOG_SETTING))
    return frozenset(name for name in names if "." not in name)


def _schema(frame: Any) -> Schema:
    """Return a frame's columns with Spark's type names."""
    return Schema(
        columns=tuple(Column(name=field.name, type=field.dataType.simpleString()) for field in frame.schema.fields)
    )


def _typed(column: Column) -> str:
    name = quote(column.name)
    return f"CAST({name} AS STRING) AS {name}" if column.type == "void" else name


def _require_usable_names(given: Schema, table: TableIdentifier) -> None:
    names = [name.lower() for name in given.names]
    repeated = [name for name in given.names if names.count(name.lower()) > 1]
    if repeated:
        raise SchemaError(
            f"The rows given for {table} have duplicate column names: {_quoted_list(repeated)}.",
            hint="Names ignore case. Rename or drop all but one.",
            table=str(table),
        )
    reserved = reserved_names(given.names)
    if reserved:
        raise SchemaError(
            f"The rows given for {table} have a column {_quoted_list(reserved)}, the name of an Iceberg metadata "
            "column. The table would become unreadable.",
            hint=f"Rename it, for example to '{reserved[0].lstrip('_')}'.",
            table=str(table),
            column=reserved[0],
        )


def _key_names(frame: Any, keys: Sequence[str], table: TableIdentifier) -> list[str]:
    schema = _schema(frame)
    if isinstance(keys, str) or not keys:
        raise InputError(f"An upsert into {table} needs keys.", hint='Pass them as a list: keys=["id"].')
    names = []
    for key in keys:
        column = schema.find(key)
        if column is None:
            raise unknown_column(f"Table {table} has no key column '{key}'.", key, schema.names, table=str(table))
        names.append(column.name)
    return names


def _same_values(given: str, target: str) -> bool:
    """Return whether a cast between two Spark types keeps every value, or fails."""
    if given == "void" or {given, target} <= _INTEGERS or {given, target} <= _TIMES:
        return True
    narrow, wide = _DECIMAL.fullmatch(given), _DECIMAL.fullmatch(target)
    return narrow is not None and wide is not None and int(narrow[1]) <= int(wide[1])


def _quoted_list(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
