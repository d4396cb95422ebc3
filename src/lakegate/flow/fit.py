"""Whether a batch's schema fits a table's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakegate.errors import SchemaError
from lakegate.model.batch import FileFormat
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import UNKNOWN, Column, Schema

# Casts that lose nothing: the promotions of the Iceberg spec ("Schema Evolution"), and int to double.
_WIDENS = {("int", "long"), ("float", "double"), ("date", "timestamp"), ("int", "double")}
# CSV types are inferred, the narrowest that takes all values; the file is then parsed as the table's type.
_PARSES_AS = {
    ("long", "int"),
    ("long", "float"),
    ("long", "double"),
    ("double", "float"),
    ("timestamp", "timestamptz"),
    ("date", "timestamptz"),
}
_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")


def require_fit(batch: Schema, table: Schema, *, name: TableIdentifier, file_format: FileFormat) -> None:
    """Check that every column of the batch can be written to the table, and the other way round.

    Raises:
        SchemaError: Listing every difference.
    """
    differences = list(_differences(batch, table, file_format))
    if differences:
        listed = differences[0] if len(differences) == 1 else "".join(f"\n- {each}" for each in differences)
        raise SchemaError(
            f"The batch does not fit {name}: {listed}",
            hint=f"`lakegate table show {name}` prints the table's columns.",
            table=str(name),
            differences=differences,
        )


def _differences(batch: Schema, table: Schema, file_format: FileFormat) -> Iterator[str]:
    for column in table.columns:
        found = batch.find(column.name)
        if found is None:
            yield f"column '{column.name}' ({column.type}) is missing in the batch"
        elif not _fits(found, column, file_format):
            yield f"column '{column.name}' is {found.type} in the batch and {column.type} in the table"
    for column in batch.columns:
        if table.find(column.name) is None:
            guess = table.nearest(column.name)
            like = f" (the table has '{guess}')" if guess else ""
            yield f"column '{column.name}' ({column.type}) is not in the table{like}"


def _fits(batch: Column, table: Column, file_format: FileFormat) -> bool:
    pair = (batch.type, table.type)
    if batch.type in {table.type, UNKNOWN} or pair in _WIDENS or _decimal_widens(*pair):
        return True
    if file_format == "parquet":
        return False
    return (
        pair in _PARSES_AS or table.type == "string" or (batch.type in {"long", "double"} and "decimal" in table.type)
    )


def _decimal_widens(batch: str, table: str) -> bool:
    narrow, wide = _DECIMAL.fullmatch(batch), _DECIMAL.fullmatch(table)
    return bool(narrow and wide and narrow[2] == wide[2] and int(narrow[1]) <= int(wide[1]))
