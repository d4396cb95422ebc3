"""Corrected rows from a file: in the types of the table that they are for, not in those that their text suggests."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from lakegate.errors import InputError

_SUFFIXES = (".csv", ".parquet")


def read_rows(path: Path, schema: pa.Schema, *, ignore: Collection[str]) -> pa.Table:
    """Return the rows of a local CSV or Parquet file.

    Args:
        path: The file. An empty value in CSV is NULL.
        schema: The types that CSV is read as; a column that it lacks is text.
        ignore: Columns to leave out.

    Raises:
        InputError: The file is of another format, or can't be read as these types.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(f"{path} is neither a .csv nor a .parquet file.", hint="Name it by its format.")
    try:
        if path.suffix.lower() == ".parquet":
            names = pq.read_schema(path).names
            return pq.read_table(path, columns=[name for name in names if name not in ignore], partitioning=None)
        with pv.open_csv(path) as found:
            names = [name for name in found.schema.names if name not in ignore]
        types = {name: schema.field(name).type if name in schema.names else pa.string() for name in names}
        convert = pv.ConvertOptions(
            include_columns=names,
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        )
        return pv.read_csv(path, parse_options=pv.ParseOptions(newlines_in_values=True), convert_options=convert)
    except FileNotFoundError:
        raise InputError(f"{path} doesn't exist.") from None
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{path} can't be read: {reason}", hint="Give every value as the table's column has it."
        ) from None
