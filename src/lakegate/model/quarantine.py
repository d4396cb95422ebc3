"""Quarantine: rows that a batch's checks set aside, and the table that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from lakegate.errors import IdentifierError
from lakegate.model.base import Value
from lakegate.model.batch import Batch
from lakegate.model.checks import Tolerance, parse_tolerance
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Schema
from lakegate.model.tables import AddedRows, Rows

SUFFIX = "__quarantine"
"""Appended to a table's name to get the name of its quarantine table."""

ROW_ID = "_quarantine_id"
"""Identifies a quarantined row permanently."""
REASONS = "_reasons"
"""``array<struct<check, column, value>>``: a struct for each column of each check that the row fails."""
RUN_ID = "_run_id"
SOURCE_FILE = "_source_file"
POSITION = "_position"
"""The row's position in its source file, from 0."""
QUARANTINED_AT = "_quarantined_at"
RELEASED_BY = "_released_by"
"""The run that released the row; NULL while it waits."""
COLUMNS = (ROW_ID, REASONS, RUN_ID, SOURCE_FILE, POSITION, QUARANTINED_AT, RELEASED_BY)
"""Columns that a quarantine table has in addition to its table's, in this order."""


def is_quarantine(table: TableIdentifier | str) -> bool:
    """Return whether a table's name is that of a quarantine table.

    Example:
        >>> is_quarantine("nyc.trips__quarantine"), is_quarantine("nyc.trips")
        (True, False)
    """
    return str(table).endswith(SUFFIX)


def quarantine_of(table: TableIdentifier) -> TableIdentifier:
    """Return the name of the table that holds the quarantined rows of ``table``.

    Example:
        >>> str(quarantine_of(TableIdentifier.parse("nyc.trips")))
        'nyc.trips__quarantine'
    """
    try:
        return TableIdentifier(namespace=table.namespace, name=f"{table.name}{SUFFIX}")
    except IdentifierError:
        raise IdentifierError(
            f"The name of {table} is too long for a quarantine table, which adds '{SUFFIX}'.",
            hint="Use severity='error' or 'warn', or a shorter table name (116 characters).",
            table=str(table),
        ) from None


def table_of(quarantine: TableIdentifier) -> TableIdentifier:
    """Return the table whose rows a quarantine table holds."""
    return TableIdentifier(namespace=quarantine.namespace, name=quarantine.name.removesuffix(SUFFIX))


def parse_limit(given: object) -> Tolerance:
    """Return a ``quarantine_limit`` in its canonical form.

    Raises:
        ValueError: With the reason, when it's neither a number of rows nor a percentage.

    Example:
        >>> parse_limit("5 %"), parse_limit("100"), parse_limit(0)
        ('5%', 100, 0)
    """
    try:
        return parse_tolerance(given)
    except ValueError as error:
        raise ValueError(str(error).replace("tolerance=", "quarantine_limit=", 1)) from None


class FailingCount(NamedTuple):
    """How many rows fail.

    Attributes:
        rows: All rows.
        failing: Rows that fail at least one test.
        by_test: Rows that fail each test, in the tests' order.
    """

    rows: int
    failing: int
    by_test: Sequence[int]


# Plain dataclasses: a test may hold a Spark Column, which can't be JSON.


@dataclass(frozen=True, slots=True, eq=False)
class KeyTest:
    """Whether a row's key is allowed.

    Attributes:
        rows: The rows that the check judges, with its ``where``.
        others: Other rows to look the keys up in.
        other_columns: Their columns, in the order of ``columns``.
        orphans: Whether keys fail if ``others`` lack them. Otherwise, they fail if ``others`` or two rows have them.
    """

    rows: AddedRows
    columns: tuple[str, ...]
    others: tuple[Rows, ...] = ()
    other_columns: tuple[str, ...] = ()
    orphans: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RowTest:
    """How an engine finds the rows that fail a check.

    Attributes:
        check: The check's name in the report.
        columns: Columns to name in a row's reasons.
        shown: Columns whose values may be written there.
        predicate: SQL. Rows for which it's true fail.
        keys: A key test, instead of a predicate.
    """

    check: str
    columns: tuple[str, ...]
    shown: frozenset[str]
    predicate: str | None = None
    keys: KeyTest | None = None


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The rows of a run's batch, to divide between its table and the quarantine table.

    Attributes:
        at: When rows are set aside.
        staged: The rows as they were staged.
        schema: Their columns and types.
        batch: The files to read the rows from, so that each one's file and place there are known; ``None`` to read the
            staged ones.
        source: URI of the file that all rows are from, if there's only one.
    """

    run_id: str
    at: datetime
    staged: AddedRows
    schema: Schema
    batch: Batch | None = None
    source: str | None = None


class ReasonCount(Value):
    """How many of a run's waiting rows fail a check because of a column.

    Attributes:
        check: The check's name in the run's report.
        column: The column; ``None`` for a check without columns.
    """

    check: str
    column: str | None = None
    rows: int


class QuarantineSummary(Value):
    """The quarantined rows of one run in one table.

    Attributes:
        table: The table that the batch was written to.
        run_id: The run that set them aside.
        rows: Number of rows, released ones included.
        waiting: Number of rows that aren't released.
        checks: How many of the waiting rows fail each check.
        reasons: The same by check and column, most frequent first.
        released_by: Runs that released some of them.
    """

    table: str
    run_id: str
    quarantined_at: datetime
    rows: int
    waiting: int
    checks: dict[str, int]
    reasons: tuple[ReasonCount, ...] = ()
    released_by: tuple[str, ...] = ()


class RowSelection(Value):
    """Selects waiting rows of a quarantine table: those that meet every condition.

    Attributes:
        run_id: The run that set them aside.
        check: Name of a check among their reasons.
        where: Spark SQL predicate on a row of the quarantine table.
    """

    run_id: str | None = None
    check: str | None = None
    where: str | None = None
