"""Partition transforms as users write them: ``days(pickup)``, ``bucket(16, id)``, ``region``."""

from __future__ import annotations

import re
from typing import Literal, Self

from lakegate.errors import InputError
from lakegate.model.base import Value
from lakegate.model.schema import Schema

TransformName = Literal["identity", "years", "months", "days", "hours", "bucket"]

_CALL = re.compile(r"(?P<name>[a-z]+)\(\s*(?:(?P<width>[0-9]+)\s*,\s*)?(?P<column>[^(),]+?)\s*\)")
_MAX_BUCKETS = 2**31 - 1
_TIME_TYPES = {
    "years": ("date", "timestamp", "timestamptz"),
    "months": ("date", "timestamp", "timestamptz"),
    "days": ("date", "timestamp", "timestamptz"),
    "hours": ("timestamp", "timestamptz"),
}


class PartitionTransform(Value):
    """One partition field (Iceberg spec, "Partition Transforms"). ``width`` is the number of buckets."""

    name: TransformName
    column: str
    width: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a transform.

        Raises:
            InputError: When it is not one of ``column``, ``years|months|days|hours(column)``, ``bucket(n, column)``.

        Example:
            >>> PartitionTransform.parse("bucket(16, id)")
            PartitionTransform(name='bucket', column='id', width=16)
        """
        call = _CALL.fullmatch(text.strip())
        if call is None:
            if "(" not in text and ")" not in text and text.strip():
                return cls(name="identity", column=text.strip())
        elif call["name"] in _TIME_TYPES and call["width"] is None:
            return cls.model_validate({"name": call["name"], "column": call["column"]})
        elif call["name"] == "bucket" and 0 < int(call["width"] or 0) <= _MAX_BUCKETS:
            return cls(name="bucket", column=call["column"], width=int(call["width"]))
        raise InputError(
            f"'{text}' is not a way to partition.",
            hint="Use column, years(column), months(column), days(column), hours(column) or bucket(16, column).",
        )

    def validate_for(self, schema: Schema) -> None:
        """Check that the transform can be applied to ``schema``.

        Raises:
            InputError: When the column is missing (naming the nearest one) or of a type the transform cannot take.
        """
        column = schema.find(self.column)
        if column is None:
            guess = schema.nearest(self.column)
            raise InputError(
                f"Cannot partition by '{self.column}': the batch has no such column.",
                hint=f"Did you mean '{guess}'?" if guess else f"Columns: {', '.join(schema.names)}.",
                column=self.column,
            )
        allowed = _TIME_TYPES.get(self.name)
        if (allowed and column.type not in allowed) or "<" in column.type:
            raise InputError(
                f"Cannot partition by {self.name}({self.column}): the column is of type {column.type}.",
                hint=f"{self.name} takes {' or '.join(allowed)}." if allowed else "Nested columns cannot partition.",
                column=self.column,
            )
