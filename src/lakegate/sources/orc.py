"""Read ORC files, stripe by stripe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from lakegate.errors import SourceError
from lakegate.sources.files import Located, shown
from lakegate.sources.rows import Rows, columns_of, plain
from lakegate.storage.objects import first_line

_GREGORIAN = -141_427
"""1582-10-15 in days since 1970-01-01. Java's writer (Hive, Spark) counts earlier ones by the Julian calendar."""


def read(file: Located, on_read: Callable[[int], None]) -> Rows:
    """Read the rows of ``file``."""
    from pyarrow import orc

    path = shown(file.path)

    def damaged(error: Exception) -> SourceError:
        reason = first_line(str(error) or type(error).__name__)
        if "out of range for nanosecond" in reason:
            message = f"'{path}' has a time before 1677 or after 2262, which lakegate can't read from ORC."
            return SourceError(message, hint="Write it as parquet.", path=path)
        return SourceError(f"'{path}' is a damaged ORC file: {reason}.", hint="Copy or write it again.", path=path)

    try:
        with file.open() as stream:
            schema = plain(orc.ORCFile(pa.PythonFile(cast("Any", stream), mode="r")).schema)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged(error) from error

    def tables() -> Iterator[pa.Table]:
        try:
            with file.open() as stream:
                found: Any = orc.ORCFile(pa.PythonFile(cast("Any", stream), mode="r"))
                for index in range(found.nstripes):
                    stripe = found.read_stripe(index)
                    if found.writer == "ORC_JAVA" and any(map(_is_julian, stripe.columns)):
                        message = f"'{path}' has a date before 1582-10-15, which lakegate can't read from ORC."
                        raise SourceError(message, hint="Write it as parquet.", path=path)
                    yield pa.Table.from_batches([stripe])
        except (pa.ArrowException, OSError, ValueError) as error:
            raise damaged(error) from error
        on_read(file.size_bytes)

    return Rows(schema=schema, columns=columns_of(schema), batches=tables())


def _is_julian(array: Any) -> bool:
    """Return whether an array has a date, at any depth, that may be in the Julian calendar."""
    if pa.types.is_date32(array.type):
        first = pc.min(array.cast(pa.int32())).as_py()
        return first is not None and bool(first < _GREGORIAN)
    if pa.types.is_map(array.type):
        return _is_julian(array.keys) or _is_julian(array.items)
    if pa.types.is_struct(array.type):
        return any(map(_is_julian, array.flatten()))
    return pa.types.is_list(array.type) and _is_julian(array.flatten())
