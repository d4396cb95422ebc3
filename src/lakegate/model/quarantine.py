"""Quarantine: the rows that a batch's checks set aside, and the table that holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lakegate.errors import IdentifierError
from lakegate.model.base import Value
from lakegate.model.checks import Tolerance, parse_tolerance
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.tables import AddedRows, Rows

SUFFIX = "__quarantine"
"""What the name of a quarantine table ends in, after that of the table whose rows it holds."""

ROW_ID = "_quarantine_id"
"""Identifies a quarantined row, for good."""
REASONS = "_reasons"
"""``array<struct<check, column, value>>``: a struct for each column of each check that the row fails."""
RUN_ID = "_run_id"
SOURCE_FILE = "_source_file"
POSITION = "_position"
"""The row's place in its source file, from 0."""
QUARANTINED_AT = "_quarantined_at"
RELEASED_BY = "_released_by"
"""The run that published the row after all; NULL as long as it waits."""
COLUMNS = (ROW_ID, REASONS, RUN_ID, SOURCE_FILE, POSITION, QUARANTINED_AT, RELEASED_BY)
"""Columns that a quarantine table has in addition to its table's, in this order."""

MOST_IN_ORDER = 32
"""Files of a batch up to which their rows are written in order, a task for each, to know which file a row is from."""


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
            f"The name of {table} is too long for its rows to be quarantined: '{SUFFIX}' is added to it.",
            hint="Use severity='error' or 'warn', or a shorter table name (116 characters).",
            table=str(table),
        ) from None


def table_of(quarantine: TableIdentifier) -> TableIdentifier:
    """Return the table whose rows a quarantine table holds."""
    return TableIdentifier(namespace=quarantine.namespace, name=quarantine.name.removesuffix(SUFFIX))


def parse_limit(given: object) -> Tolerance:
    """Return a ``quarantine_limit`` in its canonical form.

    Raises:
        ValueError: With the reason, when it's neither.

    Example:
        >>> parse_limit("5 %"), parse_limit("100"), parse_limit(0)
        ('5%', 100, 0)
    """
    try:
        return parse_tolerance(given)
    except ValueError as error:
        raise ValueError(str(error).replace("tolerance=", "quarantine_limit=", 1)) from None


@dataclass(frozen=True, slots=True)
class FileCount:
    """How many rows of a data file fail.

    Attributes:
        failing: Those that fail some test.
        by_test: Those that fail each test, in the tests' order.
    """

    rows: int
    failing: int
    by_test: tuple[int, ...]


# Plain dataclasses: a test may hold a Column, which no JSON can.


@dataclass(frozen=True, slots=True, eq=False)
class KeyTest:
    """Whether a row's key is one that it may not have.

    Attributes:
        rows: The rows that the check looks at, with its ``where``.
        others: Other rows to look the keys up in.
        other_columns: Their columns, in the order of ``columns``.
        orphans: Whether keys that ``others`` lack fail; else those that ``others`` have, or that repeat in ``rows``.
    """

    rows: AddedRows
    columns: tuple[str, ...]
    others: tuple[Rows, ...] = ()
    other_columns: tuple[str, ...] = ()
    orphans: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class RowTest:
    """A check as an engine finds its failing rows.

    Attributes:
        check: The check's name in the report.
        columns: Columns to name in a row's reasons.
        shown: Those whose values may be written there.
        predicate: SQL or a ``Column``; rows for which it is true fail.
        keys: Instead of a predicate.
        is_slow: Whether the engine must be able to stop between two rows.
    """

    check: str
    columns: tuple[str, ...]
    shown: frozenset[str]
    predicate: Any = None
    keys: KeyTest | None = None
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where rows that are set aside came from.

    Attributes:
        at: When they are set aside.
        sources: URI and number of rows of each source file, in the order in which they were written; one whose rows
            weren't written in order is known by its URI only if it's the only one.
        offsets: Data file to the number of rows that were written before it, where the rows are in the order of
            ``sources``; empty if they aren't.
    """

    run_id: str
    at: datetime
    sources: Sequence[tuple[str, int]] = ()
    offsets: Mapping[str, int] = field(default_factory=dict)


class ReasonCount(Value):
    """How many of a run's quarantined rows that wait fail a check because of a column.

    Attributes:
        check: Name of the check, as the run's report has it.
        column: The column; ``None`` for a check that names none.
    """

    check: str
    column: str | None = None
    rows: int


class QuarantineSummary(Value):
    """The quarantined rows of one run in one table.

    Attributes:
        table: The table that they were to be published to.
        run_id: The run that set them aside.
        rows: How many there are, released ones among them.
        waiting: How many wait.
        checks: How many of those that wait fail each check.
        reasons: The same by check and column, the most frequent first.
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
    """Which of a table's quarantined rows are meant, of those that wait: all that meet each condition.

    Attributes:
        run_id: The run that set them aside.
        check: Name of a check that they fail, as their reasons have it.
        where: Predicate in Spark SQL about one row of the quarantine table.
        confirmed: How many rows of each run must be meant, or nothing is done; ``None`` for any.
        confirmed_at: The commit that somebody saw them at: nothing is done either if rows of then are gone or changed.
    """

    run_id: str | None = None
    check: str | None = None
    where: str | None = None
    confirmed: Mapping[str, int] | None = None
    confirmed_at: str | None = None
