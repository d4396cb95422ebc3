"""Read Excel and OpenDocument sheets with python-calamine (``pip install 'lakegate[excel]'``): a header and its rows.

In a spreadsheet, cells have types, but columns don't. A column's type is the common type of its cells. A cell of
another type is refused, with its address, because it's usually a mistake.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from lakegate.errors import SchemaError, SourceError, missing_package
from lakegate.model.batch import MISSING_WORDS, SourceColumn
from lakegate.sources.csv_types import INEXACT_IN_DOUBLE
from lakegate.sources.files import Located, shown
from lakegate.sources.rows import Rows
from lakegate.storage.objects import first_line

_MISSING = frozenset(MISSING_WORDS)
_LETTERS = 26


def read(file: Located, on_read: Callable[[int], None]) -> Rows:
    """Read the rows of ``file``, of which only one sheet may have any.

    Raises:
        SourceError: When it's damaged or encrypted, or doesn't have exactly one sheet with rows.
        SchemaError: When a cell has another type than its column.
        ConfigurationError: When python-calamine isn't installed.
    """
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError as error:
        raise missing_package("Reading Excel workbooks needs", "python-calamine", "excel") from error

    path = shown(file.path)
    try:
        with file.open() as stream:
            book = CalamineWorkbook.from_filelike(stream)
            sheets = [
                (name, cells)
                for name in book.sheet_names
                if (cells := book.get_sheet_by_name(name).to_python(skip_empty_area=False))
            ]
    except (CalamineError, ValueError) as error:
        reason = first_line(str(error) or type(error).__name__)
        message = f"'{path}' can't be read as a workbook: {reason}."
        raise SourceError(message, hint="Save it again, without a password.", path=path) from error
    on_read(file.size_bytes)
    if len(sheets) != 1:
        names = ", ".join(f"'{name}'" for name, _ in sheets)
        what = f"has {len(sheets)} sheets with rows: {names}" if sheets else "has no sheet with rows"
        raise SourceError(f"'{path}' {what}.", hint="Save the sheet to ingest as a separate file.", path=path)
    sheet, cells = sheets[0]
    return _rows(path, sheet, cells)


def _rows(path: str, sheet: str, cells: Sequence[Sequence[Any]]) -> Rows:
    named = (index for index, row in enumerate(cells) if any(str(cell).strip() for cell in row))
    top = next(named, None)
    if top is None:
        raise SourceError(f"'{path}' has no sheet with rows.", hint="Add a header and rows.", path=path)
    header = [_name(cell) for cell in cells[top]]
    rows = [(number, row) for number, row in enumerate(cells[top + 1 :], start=top + 2) if any(c != "" for c in row)]
    for number, row in rows:
        outside = next((index for index, cell in enumerate(row) if cell != "" and not header[index]), None)
        if outside is not None:
            raise SchemaError(
                f"'{path}', sheet '{sheet}', cell {_letters(outside)}{number} has no header above it in row {top + 1}.",
                hint=f"If row {top + 1} isn't the header, delete the rows above it. Else give the column a header.",
                path=path,
            )
    arrays = []
    columns = []
    for index, name in enumerate(header):
        if not name:
            continue
        found = [(number, _present(row[index])) for number, row in rows]
        kind = _kind(path, sheet, index, found)
        arrays.append(pa.array([_as(kind, value) for _, value in found], kind or pa.string()))
        columns.append(SourceColumn(name=name, type="null" if kind is None else str(kind)))
    schema = pa.schema([pa.field(column.name, array.type) for column, array in zip(columns, arrays, strict=True)])
    return Rows(schema=schema, columns=tuple(columns), batches=iter([pa.Table.from_arrays(arrays, schema=schema)]))


def _name(cell: Any) -> str:
    """Return a header as the sheet shows it: a number without the ``.0`` of the double that it's stored as."""
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell).strip()


def _present(cell: Any) -> Any:
    return None if cell == "" else cell


def _kind(path: str, sheet: str, index: int, cells: Sequence[tuple[int, Any]]) -> Any:
    """Return the type of a column; ``None`` if it has no values."""
    seen: dict[str, tuple[int, Any]] = {}
    for number, value in cells:
        if value is not None:
            seen.setdefault(_kind_of(value), (number, value))
    if "text" in seen and len(seen) > 1 and all(v is None or _kind_of(v) != "text" or v in _MISSING for _, v in cells):
        del seen["text"]
    if len(seen) > 1:
        (usual, _), (other, (number, value)) = list(seen.items())[:2]
        total = (
            f"If row {number} is a total or a remark, delete it. Else correct" if number == cells[-1][0] else "Correct"
        )
        raise SchemaError(
            f"'{path}', sheet '{sheet}', cell {_letters(index)}{number} is of type {other}, but the cells above it are "
            f"of type {usual}.",
            hint=f"{total} the cell, or format the whole column as text.",
            detail=f"It holds {str(value)[:40]!r}.",
            path=path,
        )
    if not seen:
        return None
    kind = next(iter(seen))
    if kind == "number":
        whole = all(not isinstance(v, (int, float)) or (v == int(v) and abs(v) < INEXACT_IN_DOUBLE) for _, v in cells)
        return pa.int64() if whole else pa.float64()
    if kind == "date":
        days = all(not isinstance(v, dt.datetime) or v.time() == dt.time() for _, v in cells)
        return pa.date32() if days else pa.timestamp("us")
    return {"boolean": pa.bool_(), "time": pa.time64("us"), "duration": pa.duration("us")}.get(kind, pa.string())


def _kind_of(value: object) -> str:
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "boolean"),
        ((int, float), "number"),
        (dt.date, "date"),
        (dt.time, "time"),
        (dt.timedelta, "duration"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "text")


def _as(kind: Any, value: Any) -> Any:
    if value is None or (isinstance(value, str) and kind != pa.string()):
        return None
    if kind == pa.int64():
        return int(value)
    if kind == pa.date32() and isinstance(value, dt.datetime):
        return value.date()
    if kind == pa.timestamp("us") and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    return value


def _letters(index: int) -> str:
    """Return a column's letters.

    Example:
        >>> _letters(0), _letters(25), _letters(26)
        ('A', 'Z', 'AA')
    """
    text = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, _LETTERS)
        text = chr(ord("A") + rest) + text
    return text
