"""Schemas, in the type words of the Iceberg spec ("Schemas and Data Types")."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from lakegate.model.base import Value

UNKNOWN = "unknown"
"""Iceberg's type of a column without any value: it fits every table, and is created as ``string``."""


class Column(Value):
    """A top-level column. ``type`` is an Iceberg type: ``long``, ``decimal(10, 2)``, ``list<string>``."""

    name: str
    type: str
    required: bool = False


class Schema(Value):
    """The columns of a batch or of a table at one snapshot, in order."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        """Return the column called ``name``, ignoring case when no column has exactly this name.

        Example:
            >>> Schema(columns=(Column(name="Airport_fee", type="double"),)).find("airport_fee").name
            'Airport_fee'
        """
        by_case = next((column for column in self.columns if column.name == name), None)
        return by_case or next((column for column in self.columns if column.name.lower() == name.lower()), None)

    def nearest(self, name: str) -> str | None:
        """Return the column name most like ``name``, or ``None`` when none is close."""
        return nearest(name, self.names)


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most like ``word``, ignoring case, for hints such as "did you mean".

    Example:
        >>> nearest("pasenger_count", ["passenger_count", "fare_amount"])
        'passenger_count'
    """
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None
