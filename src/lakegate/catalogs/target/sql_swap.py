"""An Iceberg catalog in a SQL database, as a target: a publish points its rows at the staged metadata files.

All tables of a publish change in one transaction, and readers see them at one moment. The metadata files stay as they
were audited. The tables are those of Iceberg's ``JdbcCatalog`` and PyIceberg's ``SqlCatalog``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import cast

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from sqlalchemy import ColumnElement, Connection, Table, and_, delete, insert, inspect, or_, select, update
from sqlalchemy.engine import RootTransaction
from sqlalchemy.exc import DBAPIError, IntegrityError

from lakegate.catalogs.target.capabilities import SQL_SWAP
from lakegate.catalogs.target.pyiceberg_target import PyIcebergTarget, is_denied, reason_of
from lakegate.catalogs.target.targets import StaleError, Step
from lakegate.errors import CatalogUnavailableError, OutcomeUnknownError
from lakegate.iceberg.files import TableFiles
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import TablePointer

_ROWS = cast("Table", IcebergTables.__table__)
_MOST_NAMED = 100
"""Tables to ask for by name. For more, all rows are read: SQLite refuses a condition with a thousand parts."""


class SqlSwapTarget(PyIcebergTarget):
    """A SQL catalog; implements :class:`~lakegate.catalogs.target.targets.Target`."""

    def __init__(self, catalog: SqlCatalog, files: TableFiles, identity: str) -> None:
        super().__init__(catalog, files, identity, SQL_SWAP)
        self._engine = catalog.engine
        self._name = catalog.name

    def tables(self, names: Collection[TableIdentifier]) -> Mapping[TableIdentifier, TablePointer | None]:
        """Return the state of each table now, in one query."""
        wanted = select(_ROWS.c.table_namespace, _ROWS.c.table_name, _ROWS.c.metadata_location)
        are_few = len(names) <= _MOST_NAMED
        named = or_(*map(self._row, names)) if are_few else _ROWS.c.catalog_name == self._name
        with self._answers("read tables"), self._engine.connect() as connection:
            rows = connection.execute(wanted.where(named)).all() if names else []
        found = {f"{namespace}.{name}": location for namespace, name, location in rows}
        return {name: self._pointer(name, found[str(name)]) if found.get(str(name)) else None for name in names}

    def apply(self, steps: Sequence[Step]) -> Sequence[TablePointer | None]:
        """Make all steps or none, in one transaction."""
        done = [None if one.staged is None else self._pointer(one.table, one.staged.metadata_location) for one in steps]
        for step in steps:
            if step.base is None:
                self.create_namespace(step.table.namespace)
        kind, table = self._kind, steps[0].table
        try:
            with self._engine.connect() as connection:
                transaction = connection.begin()
                for step in steps:
                    self._swap(connection, step, kind)
                self._finish(transaction, table)
        except IntegrityError as error:  # somebody has created the table
            raise StaleError(table, reason_of(error)) from error
        except DBAPIError as error:
            if is_denied(error):
                raise self._denied(f"change table {table}", error) from error
            raise CatalogUnavailableError(f"{self._identity} can't be written: {reason_of(error)}.") from error
        return done

    def _finish(self, transaction: RootTransaction, table: TableIdentifier) -> None:
        try:
            transaction.commit()
        except DBAPIError as error:
            raise OutcomeUnknownError(
                f"{self._identity} gave no answer to the change of table {table}: {reason_of(error)}.",
                hint="The next command that reads the lake finds out whether it was published.",
                table=str(table),
            ) from error

    def _swap(self, connection: Connection, step: Step, kind: Mapping[str, str]) -> None:
        namespace, name = ".".join(step.table.namespace), step.table.name
        row = {"catalog_name": self._name, "table_namespace": namespace, "table_name": name}
        location = None if step.staged is None else step.staged.metadata_location
        if step.base is None:
            connection.execute(insert(_ROWS).values(**row, metadata_location=location, **kind))
            return
        was = step.base.metadata_location
        at_base = and_(self._row(step.base.table), _ROWS.c.metadata_location == was)
        if step.staged is None:
            done = connection.execute(delete(_ROWS).where(at_base))
        else:
            moved = {**row, "metadata_location": location, "previous_metadata_location": was}
            done = connection.execute(update(_ROWS).where(at_base).values(**moved))
        if done.rowcount != 1:
            raise StaleError(step.table, "it has changed")

    def _row(self, table: TableIdentifier) -> ColumnElement[bool]:
        return and_(
            _ROWS.c.catalog_name == self._name,
            _ROWS.c.table_namespace == ".".join(table.namespace),
            _ROWS.c.table_name == table.name,
        )

    @cached_property
    def _kind(self) -> Mapping[str, str]:
        """What says that a row is a table's: a database that was created long ago lacks the column."""
        with self._answers("describe its tables"):
            columns = {column["name"] for column in inspect(self._engine).get_columns(_ROWS.name)}
        return {"iceberg_type": "TABLE"} if "iceberg_type" in columns else {}
