"""CSV row by row with Python's own reader: slow, exact, and only for files that the fast pass found doubtful."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from dataclasses import dataclass
from typing import BinaryIO, cast

from lakegate.model.batch import CsvOptions
from lakegate.sources.csv_stream import QUOTE_HINT, csv_reader
from lakegate.sources.formats import is_gzip
from lakegate.sources.located import Located
from lakegate.sources.paths import shown
from lakegate.sources.problems import Problem

_MAX_ROWS_NAMED = 3
_LONGEST_FIELD = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RowCheck:
    """What reading a file row by row says.

    Attributes:
        problem: What is wrong with its rows; ``None`` when nothing is.
        multiline: Whether a value spans lines.
    """

    problem: Problem | None
    multiline: bool


def check_rows(file: Located, options: CsvOptions, width: int) -> RowCheck:
    """Find rows that do not have ``width`` values and quotes that do not match, by their lines.

    Stops at the third bad row, or the first bad quote.
    """
    path = shown(file.path)
    csv.field_size_limit(_LONGEST_FIELD)
    multiline = False
    bad: list[str] = []
    encoding = "utf-8-sig" if options.encoding == "utf-8" else options.encoding
    with (
        file.open() as raw,
        cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if is_gzip(file.name) else raw as source,
        io.TextIOWrapper(source, encoding=encoding, newline="") as lines,
    ):
        reader = csv_reader(lines, options)
        before = 0
        try:
            for row in reader:
                if row and len(row) != width:
                    bad.append(f"line {before + 1} has {_values(len(row))}")
                    if len(bad) == _MAX_ROWS_NAMED:
                        break
                multiline |= reader.line_num - before > 1
                before = reader.line_num
        except csv.Error as error:
            where = f"'{path}': the quotes in the row that starts at line {before + 1} do not match ({error})."
            return RowCheck(Problem(where, QUOTE_HINT, path), multiline)
        except (UnicodeError, EOFError, zlib.error, OSError) as error:
            if not bad:
                return RowCheck(_unreadable(path, before + 1, error), multiline)
    if not bad:
        return RowCheck(None, multiline)
    named = "; ".join(bad)
    return RowCheck(
        Problem(
            f"'{path}' has rows of another length than its first ({_values(width)}): {named}.",
            "Quote values that hold the delimiter, and repair rows that were cut off; or check --delimiter.",
            path,
        ),
        multiline,
    )


def _values(count: int) -> str:
    return "1 value" if count == 1 else f"{count} values"


def _unreadable(path: str, line: int, error: Exception) -> Problem:
    return Problem(
        f"'{path}' cannot be read from about line {line} on: {error}.", "Check its encoding, or copy it again.", path
    )
