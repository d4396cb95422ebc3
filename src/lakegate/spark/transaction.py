"""The Spark side of a transaction: a session of its own, in which plain names mean one branch's tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from lakegate.errors import InputError, QueryError, SchemaError
from lakegate.model.batch import Batch
from lakegate.model.identifiers import TableIdentifier, quote
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.schema import Column, Schema, reserved_names
from lakegate.model.sqltext import sql_string
from lakegate.model.tables import CreateTable
from lakegate.spark.dataframes import to_frame
from lakegate.spark.failures import LOSES, cause_of, condition_of, first_sentence, is_refusal, translated
from lakegate.spark.guard import PLAN_SETTINGS, require_harmless, tokens_of
from lakegate.spark.reader import iceberg_schema, read_batch, with_fields
from lakegate.spark.scans import collected
from lakegate.spark.sessions import CATALOG, SNAPSHOT_PROPERTY, always, end_session, is_connect, planned
from lakegate.spark.statement import Statement, parse_statement
from lakegate.spark.upsert import merge, require_unique

BATCH = "batch"
"""What a user's ``MERGE`` calls the rows of its batch."""
_WHOLE = (
    "map('ignoreNullFields', 'false', 'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX', "
    "'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
)
"""Options of ``to_json`` by which different values are different texts."""
_ROW_IDS = ("_row_id", "_last_updated_sequence_number")
_CATALOG_SETTING = "spark.sql.catalog."
_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_TIMES = frozenset({"timestamp", "timestamp_ntz"})
_DECIMAL = re.compile(r"decimal\(\d+, ?(\d+)\)")


def transaction_settings(settings: Mapping[str, str], run_id: str) -> dict[str, str]:
    """Return the settings of a transaction's session.

    Iceberg writes each ``spark.sql.iceberg.snapshot-property.*`` of a session into the snapshots that the session
    makes, by SQL and by DataFrames (``SparkWriteConf.extraSnapshotMetadata``).

    Args:
        settings: Those of any session whose catalog is bound to the branch.
    """
    return {
        **settings,
        **PLAN_SETTINGS,
        f"{SNAPSHOT_PROPERTY}{RUN_ID_PROPERTY}": run_id,
        "spark.sql.sources.partitionOverwriteMode": "static",
    }


class SparkTransaction:
    """Implements :class:`lakegate.ports.EngineTransaction`.

    Args:
        session: A session with :func:`transaction_settings`, whose catalog is bound to ``branch``.
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
        self.before_writing: Callable[[TableIdentifier, Schema], None] = lambda *_: None
        self._analysed = ("", Statement(""))
        with translated(f"opening a transaction on branch {branch}"):
            # Not catalog.setCurrentCatalog: on a classic session that asks the thread's active session, the user's.
            session.sql(f"SET CATALOG {CATALOG}")
            self._catalogs = catalogs_of(session)

    def table(self, table: TableIdentifier) -> Any:
        """Return a DataFrame of ``table`` on the branch."""
        with _running(f"reading {table} on branch {self._branch}"):
            return planned(self._session.table(table.sql(CATALOG)))

    def append(self, table: TableIdentifier, rows: Any, create: CreateTable | None, *, fills: bool = False) -> None:
        """Append rows by column name."""
        with self._writing(table):
            writer = self._fitted(table, rows, create, fills=fills).writeTo(table.sql(CATALOG))
            if create is None:
                writer.append()
            else:
                self._create(writer, create)

    def overwrite(self, table: TableIdentifier, rows: Any, create: CreateTable | None) -> None:
        """Replace all rows of the table, which stays the same table. Raises what :meth:`append` does."""
        with self._writing(table):
            writer = self._fitted(table, rows, create).writeTo(table.sql(CATALOG))
            if create is None:
                writer.overwrite(always(self._session))
            else:
                self._create(writer, create)

    def upsert(
        self,
        table: TableIdentifier,
        rows: Any,
        keys: Sequence[str],
        create: CreateTable | None,
        *,
        masked: Sequence[str] = (),
    ) -> None:
        """Update the rows whose ``keys`` match and insert the others; raises the same errors as :meth:`append`.

        Raises:
            InputError: When a key is NULL, or two of the given rows have the same one; nothing is written then.
        """
        with self._writing(table):
            fitted = self._fitted(table, rows, create)
            names = _key_names(fitted, keys, table)
            if create is None:
                fitted = self._with_keys_of(table, fitted, names)
            # Looked at first and written then: rows that are computed twice can differ, and Spark's MERGE
            # refuses a source that isn't deterministic.
            frame = self._checkpointed(fitted)
            require_unique(frame, names, table, self._branch, masked=masked)
            if create is None:
                changed = [name for name in frame.columns if name not in names]
                merge(self._session, table.sql(CATALOG), frame, names, changed)
            else:
                self._create(frame.writeTo(table.sql(CATALOG)), create)

    def compact(self, table: TableIdentifier, *, sort: str | None, where: str | None) -> None:
        """Rewrite data files by Iceberg's ``rewrite_data_files``, in one snapshot; all of them where they're sorted."""
        arguments = [
            f"table => {sql_string('.'.join(map(quote, table.parts)))}",
            # Files that deletes apply to are rewritten, too: reading them costs more each time.
            f"options => map('delete-file-threshold', '1', 'rewrite-all', '{str(sort is not None).lower()}')",
        ]
        if sort is not None:
            arguments += ["strategy => 'sort'", f"sort_order => {sql_string(sort)}"]
        if where is not None:
            arguments.append(f"where => {sql_string(where)}")
        with _running(f"compacting {table} on branch {self._branch}"):
            self._session.sql(f"CALL {CATALOG}.system.rewrite_data_files({', '.join(arguments)})").collect()

    def fingerprint(
        self, table: TableIdentifier, *, by_partition: bool, row_ids: bool = False, at: str | None = None
    ) -> Mapping[str, Any]:
        """Return number and content hash of a table's rows, whatever their order, for each of its partitions.

        With ``row_ids``, a hash of their ids and last changes, too; NULL where a row has none yet (format version 3).
        """
        frame = self.table(table)
        name = table.sql(CATALOG) if at is None else table.sql(CATALOG, ref=f"{self._branch}#{at}")
        values = [
            value
            for field in frame.schema.fields
            # A NULL leaves no trace in a hash, and maps and variants have none: what is nested is hashed as text.
            for column in [quote(field.name)]
            for value in (
                f"to_json(struct({column}), {_WHOLE})" if _is_nested(field.dataType) else column,
                f"{column} IS NULL",
            )
        ]
        partition = "CAST(_partition AS STRING)" if by_partition else "''"
        total = f"sum(CAST(xxhash64({', '.join(values)}) AS DECIMAL(38, 0)))"
        lineage = "NULL"
        if row_ids:
            named = f"sum(CAST(xxhash64({', '.join((*values, *_ROW_IDS))}) AS DECIMAL(38, 0)))"
            lineage = f"if(count({_ROW_IDS[0]}) = count(*), {named}, NULL)"
        with _running(f"reading {table} on branch {self._branch}"):
            found = self._session.sql(
                f"SELECT {partition} AS part, count(*) AS rows, {total} AS hash, {lineage} AS ids "  # noqa: S608 - all quoted
                f"FROM {name} GROUP BY 1"
            )
            return {row["part"]: (row["rows"], row["hash"], row["ids"]) for row in collected(found)}

    @property
    def session(self) -> Any:
        """The session, in which plain names mean the branch's tables."""
        return self._session

    def merge(self, batch: Batch, table: TableIdentifier, statement: str) -> None:
        """Run a user's ``MERGE`` over the files of a batch.

        It gets the run's id into its snapshot by the session's settings only.
        """
        doing = f"writing {table} on branch {self._branch}"
        with translated(doing, source=True):
            frame, _ = read_batch(self._session, batch)
        with translated(doing, source=True, query=True):
            self._run_merge(statement, frame)

    def _run_merge(self, statement: str, frame: Any) -> None:
        """Run a user's ``MERGE`` over a batch; what it would do is looked at with an empty one, which reads no file."""
        parsed = parse_merge(statement, self._catalogs)
        view = self._session.createDataFrame([], frame.schema)
        try:
            view.createOrReplaceTempView(BATCH)
            unnamed = require_harmless(self._session, parsed.sql, is_query=False) - parsed.read
            if unnamed:
                raise QueryError(f"The MERGE statement reads {min(map(str, unnamed))} without naming it.")
            frame.createOrReplaceTempView(BATCH)
            planned(self._session.sql(parsed.sql))
        finally:
            with suppress(Exception):
                self._session.catalog.dropTempView(BATCH)

    def used_by(self, statement: str) -> tuple[Collection[TableIdentifier], Collection[TableIdentifier]]:
        """Return the names of the tables that ``statement`` reads, and changes. Raises what :meth:`sql` does."""
        with _running(f"analysing a statement for branch {self._branch}"):
            analysed = self._analyse(statement)
        self._analysed = (statement, analysed)
        return analysed.read, analysed.written

    def sql(self, statement: str) -> Any:
        """Run one statement, a query or a change, and return its DataFrame; a change is done then."""
        (known, parsed), self._analysed = self._analysed, ("", Statement(""))
        with _running(f"running a statement on branch {self._branch}"):
            if known != statement:
                parsed = self._analyse(statement)
            self._create_namespaces(parsed)
            return planned(self._session.sql(parsed.sql))

    def close(self) -> None:
        """End the session. Idempotent."""
        if self._open:
            self._open = False
            self._ended()
            end_session(self._session)

    def _analyse(self, statement: str) -> Statement:
        """Return what a statement does, by its text and by Spark's plan: it reads what either says."""
        parsed = parse_statement(statement, self._catalogs)
        planned = require_harmless(self._session, parsed.sql, is_query=False)
        return replace(parsed, read=parsed.read | planned)

    def _create_namespaces(self, statement: Statement) -> None:
        for table in statement.created:
            for depth in range(1, len(table.namespace) + 1):
                name = ".".join(quote(part) for part in (CATALOG, *table.namespace[:depth]))
                self._session.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")

    def _fitted(self, table: TableIdentifier, rows: Any, create: CreateTable | None, *, fills: bool = False) -> Any:
        """Return the rows with the table's columns, by name, in its order."""
        frame = to_frame(self._session, rows)
        if frame is None:
            if create is not None:
                raise InputError(f"Can't create table {table} from an empty list: it has no columns.")
            return self.table(table).where("false")
        given = _schema(frame)
        _require_usable_names(given, table)
        if create is not None:
            # A column without any value has no type of its own; lakegate creates it as text everywhere.
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
            hint = f"Did you mean '{guess}'?" if guess else "Leave it out, or add it with ALTER TABLE … ADD COLUMN."
            message = f"Table {table} on branch {self._branch} has no column {_listed(unknown)}."
            raise self._schema_error(table, message, hint)
        missing = [name for name in wanted.names if name not in found]
        if missing:
            message = f"The rows given for {table} on branch {self._branch} lack column {_listed(missing)}."
            raise self._schema_error(table, message, "Give every column of the table; NULL where there is no value.")

    def _with_keys_of(self, table: TableIdentifier, frame: Any, keys: Sequence[str]) -> Any:
        """Return the frame with its keys in the table's types: 1.2 and 1.4 must not both become 1 on writing."""
        given, wanted = _schema(frame), _schema(self.table(table))
        columns = []
        for column, target in zip(given.columns, wanted.columns, strict=True):
            if column.name not in keys or column.type == target.type:
                columns.append(quote(column.name))
                continue
            if not _same_values(column.type, target.type):
                message = f"Key '{column.name}' of {table} is of type {target.type}, the given rows have {column.type}."
                raise self._schema_error(table, message, f"Convert it to {target.type}.")
            columns.append(f"CAST({quote(column.name)} AS {target.type}) AS {quote(column.name)}")
        return frame.selectExpr(*columns)

    def _checkpointed(self, frame: Any) -> Any:
        """Return ``frame`` computed once, its rows kept by Spark.

        PySpark's Connect client gives the result to the thread's active session or the process's default one
        (``proto_to_remote_cached_dataframe``), and fails without either. Both may be somebody else's, or closed.
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

        with translated(f"writing {table} on branch {self._branch}"):
            try:
                yield
            except Exception as error:
                if not (isinstance(error, _users_faults()) or LOSES in str(error)):
                    raise
                kind = SchemaError if isinstance(error, AnalysisException) else InputError
                cause = cause_of(str(error), (LOSES,)) if LOSES in str(error) else first_sentence(str(error))
                raise kind(
                    f"The rows can't be written to {table} on branch {self._branch}: {cause}",
                    hint="Convert the values to the table's types first.",
                    table=str(table),
                    branch=self._branch,
                    condition=condition_of(error),
                ) from error


@contextmanager
def _running(doing: str) -> Iterator[None]:
    with translated(doing):
        try:
            yield
        except Exception as error:
            if not (isinstance(error, _users_faults()) or is_refusal(error)):
                raise
            with translated(doing, query=True):
                raise


def _users_faults() -> tuple[type[Exception], ...]:
    """Return what Spark raises for statements and values that fail however often they are tried."""
    from pyspark import errors

    return (
        errors.AnalysisException,
        errors.ArithmeticException,
        errors.ArrayIndexOutOfBoundsException,
        errors.DateTimeException,
        errors.IllegalArgumentException,
        errors.NumberFormatException,
        errors.UnsupportedOperationException,
    )


def catalogs_of(session: Any) -> frozenset[str]:
    """Return the names of a session's Spark catalogs."""
    names = (key.removeprefix(_CATALOG_SETTING) for key in session.conf.getAll if key.startswith(_CATALOG_SETTING))
    return frozenset(name for name in names if "." not in name)


def _schema(frame: Any) -> Schema:
    """Return a frame's columns with Spark's names of their types."""
    return Schema(
        columns=tuple(Column(name=field.name, type=field.dataType.simpleString()) for field in frame.schema.fields)
    )


def _is_nested(kind: Any) -> bool:
    return any(name in kind.simpleString() for name in ("array<", "map<", "struct<", "variant", "geo"))


def _typed(column: Column) -> str:
    name = quote(column.name)
    return f"CAST({name} AS STRING) AS {name}" if column.type == "void" else name


def _require_usable_names(given: Schema, table: TableIdentifier) -> None:
    names = [name.lower() for name in given.names]
    repeated = [name for name in given.names if names.count(name.lower()) > 1]
    if repeated:
        raise SchemaError(
            f"The rows given for {table} have several columns of one name: {_listed(repeated)}.",
            hint="Names are compared without regard to case; rename or drop all but one.",
            table=str(table),
        )
    reserved = reserved_names(given.names)
    if reserved:
        raise SchemaError(
            f"The rows given for {table} have a column {_listed(reserved)}, the name of an Iceberg metadata column; "
            "a table with it couldn't be read.",
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
            guess = schema.nearest(key)
            raise SchemaError(
                f"There is no key column '{key}' in {table}.",
                hint=f"Did you mean '{guess}'?" if guess else f"Columns: {', '.join(schema.names)}.",
                table=str(table),
            )
        names.append(column.name)
    return names


def _same_values(given: str, target: str) -> bool:
    """Return whether every value of one Spark type is the same value in another, or fails to convert."""
    if given == "void" or {given, target} <= _INTEGERS or {given, target} <= _TIMES:
        return True
    narrow, wide = _DECIMAL.fullmatch(given), _DECIMAL.fullmatch(target)
    return narrow is not None and wide is not None and int(narrow[1]) <= int(wide[1])


def parse_merge(sql: str, catalogs: Collection[str]) -> Statement:
    """Check a ``MERGE`` over a batch, which it calls ``batch``; otherwise as :func:`parse_statement`."""
    first = tokens_of(sql, "statement")[0]
    if first.upper != "MERGE":
        raise QueryError(
            f"The statement starts with {first.text!r}, and only MERGE can be run here.",
            hint="Write MERGE INTO namespace.table AS t USING batch AS s ON …",
        )
    return parse_statement(sql, catalogs, views=(BATCH,))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
