"""Read ORC files, stripe by stripe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa

from lakegate.errors import SourceError
from lakegate.sources.files import Located, shown
from lakegate.sources.rows import Rows, columns_of, plain


def read(file: Located, on_read: Callable[[int], None]) -> Rows:
    """Read the rows of ``file``."""
    from pyarrow import orc

    path = shown(file.path)

    def damaged(error: Exception) -> SourceError:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
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
                    yield pa.Table.from_batches([found.read_stripe(index)])
        except (pa.ArrowException, OSError, ValueError) as error:
            raise damaged(error) from error
        on_read(file.size_bytes)

    return Rows(schema=schema, columns=columns_of(schema), batches=tables())
