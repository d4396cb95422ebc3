"""Read corrected rows from a file, in the types of their table instead of inferred ones."""

from __future__ import annotations

import base64
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from lakegate.errors import InputError

_SUFFIXES = (".csv", ".parquet")
_TEXTS = (pa.string(), pa.large_string())


def read_rows(path: Path, schema: pa.Schema, *, ignore: Collection[str], hides: bool = False) -> pa.Table:
    """Read the rows of a local CSV or Parquet file.

    Args:
        path: The file. In CSV, an empty value is NULL unless it's quoted text, and bytes are in base64.
        schema: The types for CSV. Columns that it lacks are text.
        ignore: Columns to skip.
        hides: Keep values out of error messages.

    Raises:
        InputError: When the file has another format, or can't be read with these types.
    """
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(f"{path} is neither a .csv nor a .parquet file.", hint="Rename it to end in .csv or .parquet.")
    try:
        if path.suffix.lower() == ".parquet":
            names = pq.read_schema(path).names
            return pq.read_table(path, columns=[name for name in names if name not in ignore], partitioning=None)
        return _read_csv(path, schema, ignore)
    except FileNotFoundError:
        raise InputError(f"{path} doesn't exist.") from None
    except (OSError, ValueError) as error:  # including those of Arrow and base64
        reason = str(error).partition("\n")[0]
        if hides:
            reason = f"{reason.partition(': invalid value')[0].rstrip('.')} (the settings hide values)"
        raise InputError(
            f"{path} can't be read: {reason}", hint="Write every value in the type of the table's column."
        ) from None


def _read_csv(path: Path, schema: pa.Schema, ignore: Collection[str]) -> pa.Table:
    with pv.open_csv(path) as found:
        names = [name for name in found.schema.names if name not in ignore]
    types = {name: schema.field(name).type if name in schema.names else pa.string() for name in names}
    nested = next((name for name, kind in types.items() if pa.types.is_nested(kind)), None)
    if nested is not None:
        raise InputError(
            f"{path} can't be read: column '{nested}' has type {types[nested]}, which CSV can't represent.",
            hint="Use Parquet: lakegate query '…' --output parquet --file rows.parquet",
        )
    binary = {name: kind for name, kind in types.items() if _is_bytes(kind)}
    types |= dict.fromkeys(binary, pa.string())
    columns: dict[str, Any] = {}
    # A quoted empty value is an empty string in text columns, and NULL in others. So they are read separately.
    for is_text in (True, False):
        wanted = [name for name in names if (types[name] in _TEXTS) is is_text]
        convert = pv.ConvertOptions(
            include_columns=wanted,
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=not is_text,
        )
        if wanted:  # an empty list would read all columns
            options = pv.ParseOptions(newlines_in_values=True)
            part = pv.read_csv(path, parse_options=options, convert_options=convert)
            columns |= dict(zip(wanted, part.columns, strict=True))
    for name, kind in binary.items():
        texts = columns[name].to_pylist()
        values = [None if one is None else base64.b64decode(one, validate=True) for one in texts]
        columns[name] = pa.chunked_array([pa.array(values, kind)])
    return pa.table({name: columns[name] for name in names})


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
