"""What a transaction writes with: a Spark session of its own, in which plain names mean one branch's tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from lakegate.engine.failures import first_sentence, translated
from lakegate.engine.given import given_frame
from lakegate.engine.sessions import CATALOG, end_session, is_connect
from lakegate.engine.statement import Statement, parse_statement
from lakegate.errors import InputError, SchemaError
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import CreateTable

_EXAMPLES = 5
_CATALOG_SETTING = "spark.sql.catalog."
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_TIMES = frozenset({"timestamp", "timestamp_ntz"})


def transaction_settings(settings: Mapping[str, str], run_id: str) -> dict[str, str]:
    """Return the settings of a transaction's session.

    Iceberg writes each ``spark.sql.iceberg.snapshot-property.*`` of a session into the snapshots that the session
    makes, by SQL and by DataFrames (``SparkWriteConf.extraSnapshotMetadata``).

    Args:
        settings: Those of any session whose catalog is bound to the branch.
        run_id: The run that the snapshots will name.
    """
    return {
        **settings,
        f"spark.sql.iceberg.snapshot-property.{RUN_ID_PROPERTY}": run_id,
        "spark.sql.sources.partitionOverwriteMode": "static",
        "spark.sql.storeAssignmentPolicy": "ANSI",
        # Both would let a statement mean something else than what was looked at: parquet.`/path`, ${variable}.
        "spark.sql.runSQLOnFiles": "false",
        "spark.sql.variable.substitute": "false",
    }


class SparkTransaction:
    """Implements :class:`lakegate.protocols.EngineTransaction`.

    Args:
        session: A session with :func:`transaction_settings`, whose catalog is bound to ``branch``.
        branch: The branch, for messages.
        create: Creates a table of what a ``DataFrameWriterV2`` writes.
        ended: Called once when the transaction is closed.
    """

    def __init__(
        self,
        session: Any,
        branch: str,
        *,
        create: Callable[[Any, CreateTable], None],
        ended: Callable[[], object],
    ) -> None:
        self._session = session
        self._branch = branch
        self._create = create
        self._ended = ended
        self._open = True
        with translated(f"opening a transaction on branch {branch}"):
            # Not catalog.setCurrentCatalog: on a classic session that asks the thread's active session, the user's.
            session.sql(f"SET CATALOG {CATALOG}")
            self._catalogs = _catalogs(session)

    def table(self, table: TableIdentifier) -> Any:
        """Return a DataFrame of ``table`` on the branch.

        Raises:
            QueryError: When the branch has no such table.
        """
        with _running(f"reading {table} on branch {self._branch}"):
            frame = self._session.table(table.sql(CATALOG))
            frame.schema  # noqa: B018 - Connect plans lazily; a wrong name must fail here, with its own error
        return frame

    def append(self, table: TableIdentifier, rows: Any, create: CreateTable | None) -> None:
        """Append rows by column name; see :meth:`lakegate.protocols.EngineTransaction.append`.

        Raises:
            InputError: When ``rows`` is nothing that can be written.
            SchemaError: When its columns are not those of the table, or of types that do not fit.
        """
        with self._writing(table):
            writer = self._fitted(table, rows, create).writeTo(table.sql(CATALOG))
            if create is None:
                writer.append()
            else:
                self._create(writer, create)

    def overwrite(self, table: TableIdentifier, rows: Any, create: CreateTable | None) -> None:
        """Replace all rows of the table, which stays the same table; raises as :meth:`append`."""
        if create is not None:
            self.append(table, rows, create)
            return
        with self._writing(table):
            self._fitted(table, rows, None).writeTo(table.sql(CATALOG)).overwrite(self._true())

    def upsert(self, table: TableIdentifier, rows: Any, keys: Sequence[str], create: CreateTable | None) -> None:
        """Update the rows whose ``keys`` match and insert the others; raises as :meth:`append`.

        Raises:
            InputError: When a key is NULL, or two of the given rows have the same one; nothing is written then.
        """
        with self._writing(table):
            fitted = self._fitted(table, rows, create)
            names = _key_names(fitted, keys, table)
            if create is None:
                fitted = self._with_keys_of(table, fitted, names)
            # Looked at first and written then: rows that are computed twice need not be the same, and Spark's MERGE
            # refuses a source that is not deterministic.
            frame = self._own(fitted.localCheckpoint(eager=True))
            self._require_unique(table, frame, names)
            if create is None:
                self._merge(table, frame, names)
            else:
                self._create(frame.writeTo(table.sql(CATALOG)), create)

    def reads(self, statement: str) -> Collection[TableIdentifier]:
        """Return the tables whose rows the outcome of ``statement`` depends on; raises as :meth:`sql`."""
        return parse_statement(statement, self._catalogs).read

    def sql(self, statement: str) -> Any:
        """Run one statement, a query or a change, and return its DataFrame; a change is done then.

        Raises:
            QueryError: When the statement is of a kind or on names that a transaction does not allow, or Spark
                refuses it.
        """
        parsed = parse_statement(statement, self._catalogs)
        with _running(f"running a statement on branch {self._branch}"):
            self._create_namespaces(parsed)
            frame = self._session.sql(parsed.sql)
            frame.schema  # noqa: B018 - as in table()
        return frame

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

    def _fitted(self, table: TableIdentifier, rows: Any, create: CreateTable | None) -> Any:
        """Return the rows with the table's columns, by name, in its order."""
        frame = given_frame(self._session, rows)
        if frame is None:
            if create is not None:
                raise InputError(f"Table {table} cannot be created from no rows: they have no columns.")
            return self.table(table).where("false")
        given = _schema(frame)
        _require_distinct(given, table)
        if create is not None:
            # A column without any value has no type of its own; lakegate creates it as text everywhere.
            return frame.selectExpr(*(_typed(column) for column in given.columns))
        wanted = _schema(self.table(table))
        found = {wanted_column.name: name for name in given.names if (wanted_column := wanted.find(name))}
        self._require_all(table, given, wanted, found)
        return frame.selectExpr(*(f"{quote(found[name])} AS {quote(name)}" for name in wanted.names))

    def _require_all(self, table: TableIdentifier, given: Schema, wanted: Schema, found: Mapping[str, str]) -> None:
        unknown = [name for name in given.names if name not in found.values()]
        if unknown:
            guess = wanted.nearest(unknown[0])
            raise SchemaError(
                f"Table {table} on branch {self._branch} has no column {_listed(unknown)}.",
                hint=f"Did you mean '{guess}'?" if guess else "Leave it out, or add it with ALTER TABLE … ADD COLUMN.",
                table=str(table),
                branch=self._branch,
            )
        missing = [name for name in wanted.names if name not in found]
        if missing:
            raise SchemaError(
                f"The rows given for {table} on branch {self._branch} lack column {_listed(missing)}.",
                hint="Give every column of the table; NULL where there is no value.",
                table=str(table),
                branch=self._branch,
            )

    def _with_keys_of(self, table: TableIdentifier, frame: Any, keys: Sequence[str]) -> Any:
        """Return the frame with its keys in the table's types: 1.2 and 1.4 must not both become 1 on writing."""
        given, wanted = _schema(frame), _schema(self.table(table))
        columns = []
        for column, target in zip(given.columns, wanted.columns, strict=True):
            if column.name not in keys or column.type == target.type:
                columns.append(quote(column.name))
                continue
            if not _same_values(column.type, target.type):
                raise SchemaError(
                    f"Key '{column.name}' of {table} is of type {target.type}, the given rows have {column.type}.",
                    hint=f"Convert it to {target.type}.",
                    table=str(table),
                    branch=self._branch,
                )
            columns.append(f"CAST({quote(column.name)} AS {target.type}) AS {quote(column.name)}")
        return frame.selectExpr(*columns)

    def _own(self, checkpoint: Any) -> Any:
        """Return a checkpoint as a DataFrame of our session.

        PySpark's Connect client gives it to the process's active session (``proto_to_remote_cached_dataframe``), where
        the server does not know it.
        """
        if not is_connect(self._session):
            return checkpoint
        from pyspark.sql.connect.dataframe import DataFrame  # noqa: PLC0415 - heavy

        plan = checkpoint._plan  # noqa: SLF001 - there is no public way
        plan._spark_session = self._session  # noqa: SLF001 - it is asked to forget the checkpoint in the end
        return DataFrame(plan, self._session)

    def _require_unique(self, table: TableIdentifier, frame: Any, keys: Sequence[str]) -> None:
        aliases = [f"k{index}" for index in range(len(keys))]
        null = " OR ".join(f"{alias} IS NULL" for alias in aliases)
        columns = (f"{quote(key)} AS {alias}" for key, alias in zip(keys, aliases, strict=True))
        grouped = frame.selectExpr(*columns).groupBy(*aliases).count()
        wrong = grouped.where(f"count > 1 OR {null}").limit(_EXAMPLES).collect()
        if not wrong:
            return
        has_null = any(value is None for row in wrong for value in row[:-1])
        examples = ", ".join(f"({', '.join(map(_shown, row[:-1]))}) in {row[-1]:,} rows" for row in wrong)
        what = "holds NULL" if has_null else "is not unique"
        raise InputError(
            f"The key {_listed(keys)} {what} in the rows given for {table} on branch {self._branch}: {examples}.",
            hint="Nothing was written. Drop those rows, or keep one of each key.",
            table=str(table),
            branch=self._branch,
        )

    def _merge(self, table: TableIdentifier, frame: Any, keys: Sequence[str]) -> None:
        view = f"lakegate_rows_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(view)
        try:
            self._session.sql(_merge_statement(table, view, frame.columns, keys))
        finally:
            with suppress(Exception):
                self._session.catalog.dropTempView(view)

    def _true(self) -> Any:
        if is_connect(self._session):
            from pyspark.sql.connect.functions import lit  # noqa: PLC0415 - the kind must match the session's
        else:
            from pyspark.sql.functions import lit  # noqa: PLC0415
        return lit(True)  # noqa: FBT003 - it is the value

    @contextmanager
    def _writing(self, table: TableIdentifier) -> Iterator[None]:
        from pyspark.errors import AnalysisException  # noqa: PLC0415 - heavy

        with translated(f"writing {table} on branch {self._branch}"):
            try:
                yield
            except _users_faults() as error:
                kind = SchemaError if isinstance(error, AnalysisException) else InputError
                raise kind(
                    f"The rows cannot be written to {table} on branch {self._branch}: {first_sentence(str(error))}",
                    hint="Convert the values to the table's types first.",
                    table=str(table),
                    branch=self._branch,
                ) from error


@contextmanager
def _running(doing: str) -> Iterator[None]:
    with translated(doing):
        try:
            yield
        except _users_faults():
            with translated(doing, query=True):
                raise


def _users_faults() -> tuple[type[Exception], ...]:
    """Return what Spark raises for statements and values that will not do, however often they are tried."""
    from pyspark.errors import (  # noqa: PLC0415 - heavy
        AnalysisException,
        ArithmeticException,
        ArrayIndexOutOfBoundsException,
        DateTimeException,
        IllegalArgumentException,
        NumberFormatException,
    )

    return (
        AnalysisException,
        ArithmeticException,
        ArrayIndexOutOfBoundsException,
        DateTimeException,
        IllegalArgumentException,
        NumberFormatException,
    )


def _catalogs(session: Any) -> frozenset[str]:
    names = (key.removeprefix(_CATALOG_SETTING) for key in session.conf.getAll if key.startswith(_CATALOG_SETTING))
    return frozenset(name for name in names if "." not in name)


def _schema(frame: Any) -> Schema:
    """Return a frame's columns with Spark's names of their types."""
    return Schema(
        columns=tuple(Column(name=field.name, type=field.dataType.simpleString()) for field in frame.schema.fields)
    )


def _typed(column: Column) -> str:
    name = quote(column.name)
    return f"CAST({name} AS STRING) AS {name}" if column.type == "void" else name


def _require_distinct(given: Schema, table: TableIdentifier) -> None:
    names = [name.lower() for name in given.names]
    repeated = [name for name in given.names if names.count(name.lower()) > 1]
    if repeated:
        raise SchemaError(
            f"The rows given for {table} have several columns of one name: {_listed(repeated)}.",
            hint="Names are compared without regard to case; rename or drop all but one.",
            table=str(table),
        )


def _key_names(frame: Any, keys: Sequence[str], table: TableIdentifier) -> list[str]:
    schema = _schema(frame)
    if isinstance(keys, str) or not keys:
        raise InputError(f"An upsert into {table} needs keys.", hint='Name them as a list: keys=["id"].')
    names = []
    for key in keys:
        column = schema.find(key)
        if column is None:
            guess = schema.nearest(key)
            raise SchemaError(
                f"There is no key column '{key}' in {table}.",
                hint=f"Did you mean '{guess}'?" if guess else f"Columns: {', '.join(schema.names)}.",
                table=str(table),
            )
        names.append(column.name)
    return names


def _same_values(given: str, target: str) -> bool:
    """Tell whether every value of one Spark type is the same value in another, or fails to convert."""
    if given == "void" or {given, target} <= _INTEGERS or {given, target} <= _TIMES:
        return True
    decimals = [kind.removeprefix("decimal(").rstrip(")").split(",") for kind in (given, target) if "decimal(" in kind]
    return len(decimals) == 2 and int(decimals[0][1]) <= int(decimals[1][1])  # noqa: PLR2004 - both of them


def _merge_statement(table: TableIdentifier, view: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    same = " AND ".join(f"target.{quote(key)} = source.{quote(key)}" for key in keys)
    changed = ", ".join(f"target.{quote(name)} = source.{quote(name)}" for name in columns if name not in keys)
    update = f"WHEN MATCHED THEN UPDATE SET {changed} " if changed else ""
    values = ", ".join(f"source.{quote(name)}" for name in columns)
    insert = f"WHEN NOT MATCHED THEN INSERT ({', '.join(map(quote, columns))}) VALUES ({values})"  # noqa: S608 - all quoted
    return f"MERGE INTO {table.sql(CATALOG)} AS target USING {quote(view)} AS source ON {same} {update}{insert}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _shown(value: object) -> str:
    return "NULL" if value is None else str(value)
