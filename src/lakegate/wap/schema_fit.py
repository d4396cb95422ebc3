"""Match a batch's columns with a table's: find which schema changes the table needs, and what doesn't fit."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lakegate.errors import SchemaError
from lakegate.model.batch import DECIMAL_COMMA, FINE_TIME, NAMED_MONTH, TOO_LARGE, ColumnText, FileFormat, accounting
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import SchemaMode
from lakegate.model.schema import Column, Schema, SchemaChange
from lakegate.model.types import (
    UNKNOWN,
    can_promote,
    is_lossless,
    joined_type,
    replace_parts,
    type_differences,
    type_parts,
    without_unknown,
)
from lakegate.model.words import appearance, escaped

# A CSV column's inferred type is the narrowest that fits all values; the file is then parsed as the table's type.
_PARSES_AS = {
    ("long", "int"),
    ("long", "float"),
    ("long", "double"),
    ("double", "float"),
}
_GET_ZONE = frozenset({("timestamp", "timestamptz"), ("date", "timestamptz")})
"""Times that become instants in a time zone."""
_DATE = re.compile(r"([0-9]{1,2})([./-])([0-9]{1,2})\2([0-9]{2,4})")
_WAYS = (
    ("(?i)^[+-]?inf(inity)?$", "write it as Infinity in a column of numbers; dates and times can't hold it"),
    (TOO_LARGE, "a double can't be that large"),
    (f"^{NAMED_MONTH}", "names of months aren't read; write dates as 2026-01-31"),
    (FINE_TIME, "a timestamp has no more than microseconds; shorten it in the file"),
    (
        "^[0-9]{4}-[0-9]{2}-[0-9]{2}",
        "times are written like 2026-01-31 10:00:00, 2026-01-31T10:00:00Z or 2026-01-31T10:00:00+01:00",
    ),
    (
        "^[+-]?[1-9][0-9]{0,2},[0-9]{3}$",
        "if its comma groups digits, pass --numbers accounting; if it's a decimal comma, pass --decimal ','",
    ),
    (r"^-?[0-9]+(\.[0-9]+)?$", "to have numbers, remove the spaces around it; or check --decimal"),
    (DECIMAL_COMMA, "to read its decimal comma, pass --decimal ','"),
    (accounting("."), "to read it as a number, pass --numbers accounting"),
    (accounting(","), "to read it as a number, pass --numbers accounting --decimal ','"),
    ("%$", "a percentage isn't a number; write 5% as 0.05 or 5"),
)
"""What to do about values that match a pattern."""
_MONTHS = 12
_NO_VALUE = frozenset({"", "na", "nan", "none", "null", "nil", "nul", "missing", "unknown", "void"})
"""Letters of words that may say that there's no value."""
_WHOLE = frozenset({("double", "int"), ("double", "long")})
_EXPONENT = 999
_JSON_TEXT = frozenset({"date", "timestamp", "timestamptz"})
_LONG_INTEGER = "decimal(38, 0)"
"""The type of JSON integers beyond 64 bits."""
_ONLY_READ = re.compile(r"uuid|fixed\[.*")
"""Types that Spark reads, but that lakegate doesn't write: other engines made such columns."""
_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")


@dataclass(frozen=True)
class Fit:
    """How a batch fits a table.

    Attributes:
        changes: Schema changes that the table needs first.
        notes: A sentence for each column that only the batch or only the table has.
    """

    changes: tuple[SchemaChange, ...] = ()
    notes: tuple[str, ...] = ()


def fit(
    batch: Schema,
    table: Schema,
    *,
    name: TableIdentifier,
    file_format: FileFormat,
    mode: SchemaMode = "strict",
    texts: Sequence[ColumnText] = (),
    updates: bool = False,
    kept: Mapping[str, str] | None = None,
    timezone: str | None = None,
) -> Fit:
    """Match the columns of a batch with those of a table by name, ignoring case and order.

    Args:
        file_format: The batch's format. CSV is parsed as the table's types.
        texts: What the values of CSV columns look like.
        updates: Whether existing rows keep their values of columns that the batch lacks.
        kept: Columns with missing values, or none at all, that the table gets anyway, and their types.
        timezone: The zone of the batch's times without one.

    Raises:
        SchemaError: Listing every difference that ``mode`` doesn't allow, each with the option that would.
    """
    _require_no_twins(batch, table, name)
    texts_of = {text.name.lower(): text for text in texts}
    evolves, ignores, strict = (
        _Differences(batch, table, file_format, one, texts_of, updates, kept or {}, timezone)
        for one in ("evolve", "ignore_extra", "strict")
    )
    chosen = {"evolve": evolves, "ignore_extra": ignores}.get(mode, strict)
    if not chosen.problems:
        return Fit(changes=tuple(chosen.changes), notes=tuple(chosen.notes))
    missing = [column for column in table.columns if batch.find(column.name) is None]
    extra = [(column.name, column.type) for column in batch.columns if table.find(column.name) is None]
    likely = _likely_renames(missing, extra)
    renames = {name: f"'{new}={old.name}'" for old, new in likely for name in (new, old.name)}
    problems = [
        problem if " pass --" in problem else f"{problem}; {_accepted_by(column, mode, evolves, ignores, renames)}"
        for column, problem in chosen.problems.items()
    ]
    listed = f" {problems[0]}" if len(problems) == 1 else "".join(f"\n- {each}" for each in problems)
    hints = []
    if renames:
        hints.append(
            f"If a column was renamed, pass --column {next(iter(renames.values()))}, or map it in the table's settings "
            "(key columns) or its contract (key was)."
        )
    if not evolves.problems:
        described = ", ".join(evolves.described())
        what = (
            f"To change the table with the batch ({described})" if described else "To leave out columns without values"
        )
        hints.append(f"{what}, pass --schema evolve.")
    if not ignores.problems and mode == "strict":
        hints.append("To leave out what the table lacks, pass --schema ignore_extra.")
    refused = (column for column in table.columns if column.name in chosen.problems and batch.find(column.name))
    if (only_read := next((one for one in refused if _ONLY_READ.fullmatch(one.type)), None)) is not None:
        hints.append(
            f"lakegate doesn't write {only_read.type} columns. Write the rows to a branch with the engine that made "
            "the table; to audit and publish it: lakegate publish BRANCH."
        )
    raise SchemaError(
        f"The batch doesn't fit {name}:{listed}",
        hint=" ".join(hints) or f"To see the table's columns: lakegate table show {name}",
        table=str(name),
        differences=problems,
    )


def _require_no_twins(batch: Schema, table: Schema, name: TableIdentifier) -> None:
    """Refuse a column whose name looks like that of a column of the table, but isn't the same."""
    looks = {appearance(column.name): column.name for column in table.columns}
    for column in batch.columns:
        like = looks.get(appearance(column.name))
        if like is not None and table.find(column.name) is None:
            new, old = escaped(column.name), escaped(like)
            raise SchemaError(
                f"The batch's column '{new}' looks like '{old}' of {name}, but is spelled with other characters.",
                hint=f'Rename it in the files, or from Python: lake.ingest(…, columns={{"{new}": "{old}"}})',
                table=str(name),
                column=column.name,
            )


@dataclass
class _Differences:
    """The differences between a batch and a table, as one schema mode sees them."""

    batch: Schema
    table: Schema
    file_format: FileFormat
    mode: str
    texts: Mapping[str, ColumnText]
    updates: bool
    kept: Mapping[str, str]
    timezone: str | None
    problems: dict[str, str] = field(default_factory=dict)
    changes: list[SchemaChange] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: list[Column] = field(default_factory=list)

    def __post_init__(self) -> None:
        for column in self.table.columns:
            self._compare(column)
        for column in self.batch.columns:
            if self.table.find(column.name) is None:
                self._add_extra(column)
        added = [(change.column, change.type) for change in self.changes if change.before is None]
        self.notes += (
            f"Was '{old.name}' renamed to '{new}'? Both are {old.type}; they're kept as two columns."
            for old, new in _likely_renames(self.missing, added)
        )

    def described(self) -> Sequence[str]:
        lacking = "leave {} of existing rows" if self.updates else "write NULL as {}"
        return [*map(str, self.changes), *(lacking.format(column.name) for column in self.missing)]

    def _compare(self, column: Column) -> None:
        found = self.batch.find(column.name)
        if found is None:
            self._add_missing(column)
        elif self._beyond_int(found, column) or not fits(
            found, column, self.file_format, self.texts.get(found.name.lower()), self.timezone
        ):
            if type_parts(found.type) and type_parts(column.type):
                self._compare_fields(found, column)
            elif self.mode == "evolve" and can_promote(column.type, found.type):
                self.changes.append(SchemaChange(column=column.name, type=found.type, before=column.type))
            else:
                why = why_not(found, column, self.texts.get(found.name.lower()))
                self.problems[column.name] = (
                    f"column '{column.name}' is {found.type} in the batch and {column.type} in the table{why}"
                )
        elif (text := self.texts.get(found.name.lower())) is not None and text.beyond_int and column.type == "int":
            if self.mode == "evolve":
                self.changes.append(SchemaChange(column=column.name, type="long", before="int"))
            else:
                self.problems[column.name] = f"column '{column.name}' holds numbers beyond the table's int"
        else:
            rounded = rounding(text, column)
            self.problems |= {column.name: rounded} if rounded else {}

    def _compare_fields(self, found: Column, column: Column) -> None:
        """Match the fields of two nested types, like columns."""
        kept = self.kept.get(found.name)
        beyond = self._beyond_int(found, column)
        start = replace_parts(column.type, beyond, "long") if self.mode == "evolve" else column.type
        wide = joined_type(start, kept or without_unknown(found.type) or column.type, self._widened)
        lacking = {one.path for one in type_differences(kept or "", found.type, (column.name,)) if one.one is None}
        notes, problems = [], {}
        for one in type_differences(column.type, found.type, (column.name,)):
            what = f"field '{one.name}'"
            if one.other is None and self.mode == "evolve" and not self.updates:
                notes.append(f"F{what[1:]} ({one.one}) is missing in the batch; its rows get NULL.")
            elif one.other is None:
                why = ", and updated rows would lose theirs" if self.updates else ""
                problems[one.name] = f"{what} ({one.one}) is missing in the batch{why}"
            elif one.one is None and self.mode == "ignore_extra":
                notes.append(f"F{what[1:]} ({one.other}) isn't in the table; it's left out.")
            elif one.one is None and self.mode != "evolve":
                problems[one.name] = f"{what} ({one.other}) isn't in the table"
            elif (
                one.one is None and (not kept or one.path in lacking) and without_unknown(one.other or UNKNOWN) is None
            ):
                notes.append(f"F{what[1:]} isn't in the table and has no values; it's left out.")
            elif one.one is not None and self._widened(one.one, one.other) is None:
                problems[one.name] = f"{what} is {one.other} in the batch and {one.one} in the table"
            elif self.mode != "evolve" and _below(one.path) in beyond:
                problems[one.name] = f"{what} holds numbers beyond the table's int"
        self.problems |= problems
        self.notes += notes
        if self.mode == "evolve" and not problems and wide is not None and wide != column.type:
            self.changes.append(SchemaChange(column=column.name, type=wide, before=column.type))

    def _beyond_int(self, found: Column, column: Column) -> set[tuple[str, ...]]:
        """Return the fields with numbers that are too large for the table's ``int``."""
        text = self.texts.get(found.name.lower())
        if text is None or not text.fields_beyond_int:
            return set()
        narrow = (one for one in type_differences(column.type, found.type, (column.name,)) if one.one == "int")
        return {_below(one.path) for one in narrow} & set(text.fields_beyond_int)

    def _widened(self, table: str, batch: str) -> str | None:
        """Return the type that a field of the table needs to hold the batch's values; ``None`` if there's none."""
        if _fits_inside(batch, table, self.file_format):
            return table
        return batch if self.mode == "evolve" and can_promote(table, batch) else None

    def _add_missing(self, column: Column) -> None:
        if self.mode != "evolve":
            self.problems[column.name] = f"column '{column.name}' ({column.type}) is missing in the batch"
        elif column.required:
            self.problems[column.name] = (
                f"column '{column.name}' ({column.type}) is missing in the batch, and can't be NULL in the table"
            )
        else:
            self.missing.append(column)
            rows = "updated rows keep their values, and new rows get" if self.updates else "its rows get"
            self.notes.append(f"Column '{column.name}' ({column.type}) is missing in the batch; {rows} NULL.")

    def _add_extra(self, column: Column) -> None:
        if self.mode == "ignore_extra":
            self.notes.append(f"Column '{column.name}' ({column.type}) isn't in the table; it's left out.")
        elif self.mode == "evolve":
            kind = self.kept.get(column.name) or without_unknown(column.type)
            if kind is None:
                self.notes.append(f"Column '{column.name}' isn't in the table and has no values; it's left out.")
            else:
                self.changes.append(SchemaChange(column=column.name, type=kind))
        else:
            guess = self.table.nearest(column.name)
            like = f" (the table has '{guess}')" if guess else ""
            self.problems[column.name] = f"column '{column.name}' ({column.type}) isn't in the table{like}"


def _below(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in path[1:])


def _accepted_by(
    name: str, mode: SchemaMode, evolves: _Differences, ignores: _Differences, renames: Mapping[str, str]
) -> str:
    """Return which options would accept a column's difference."""
    modes = [one for one, seen in (("evolve", evolves), ("ignore_extra", ignores)) if name not in seen.problems]
    others = " or ".join(one for one in modes if one != mode)
    options = [f"--column {renames[name]}"] if name in renames else []
    options += [f"--schema {others}"] if others else []
    return f"accepted by {', or '.join(options)}" if options else "no option accepts it"


def _likely_renames(missing: Sequence[Column], added: Sequence[tuple[str, str]]) -> Iterator[tuple[Column, str]]:
    """Yield each missing column with its likely new name: of their type, one column is missing, and one was added.

    Args:
        added: Names and types.
    """
    for old in missing:
        names = [name for name, kind in added if kind == old.type]
        if len(names) == 1 and sum(one.type == old.type for one in missing) == 1:
            yield old, names[0]


def why_not(found: Column, wanted: Column, text: ColumnText | None) -> str:
    """Return, in parentheses, why a batch's column isn't of the type of another one; ``""`` if that's plain."""
    if (found.type, wanted.type) in _GET_ZONE:
        return " (its times have no zone: write one into the files, or pass --timezone with the one they are in)"
    return because(text) if found.type == "string" else ""


def because(text: ColumnText | None) -> str:
    """Return, in parentheses, why a CSV column is text instead of numbers or dates, and what to do about it."""
    if text is not None and text.digits and not text.odd:
        return f" (its numbers have up to {text.digits} digits, and a double would round them)"
    if text is None or not text.odd:
        return ""
    where = f"in {text.odd_at}" if text.odd_at else "among its values"
    return f" ('{text.odd}' is {where}: {next(_ways(text))})"


def _ways(text: ColumnText) -> Iterator[str]:
    """Yield what to do about the value that keeps a column from numbers or dates, likeliest first. None guesses."""
    odd, is_no_value = text.odd, re.sub(r"[^a-z]", "", text.odd.lower()) in _NO_VALUE
    if odd.lower() == text.name.lower():
        yield "it's the column's own name; if files were joined there, delete that line"
    if re.match("[0-9]{4}-[0-9]{2}-[0-9]{2}", odd) and not _is_day(odd[:10]):
        is_zero = not odd.strip("0-:. T")  # as MySQL has it
        yield "there's no such day; correct it there" + (f", or pass --null-value '{odd}'" if is_zero else "")
    if date := _DATE.match(odd):
        yield _date_way(odd, date)
    yield from (way for pattern, way in _WAYS if re.search(pattern, odd))
    if text.odd_is_last and not is_no_value:
        yield "if that line, the last, has totals or a remark, pass --skip-footer 1"
    if is_no_value:
        yield f"if it says that there's no value, pass --null-value '{odd}'"
    yield "correct it there, if the column should have numbers, dates or times"


def _is_day(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _date_way(odd: str, date: re.Match[str]) -> str:
    one, mark, other, year = date.groups()
    if len(year) != len("2024"):
        return "write its year with four digits"
    time = odd[date.end() :]
    clock = re.fullmatch(r"(.)[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", time)
    if time and clock is None:
        return "write dates as 2026-01-31, and times as 2026-01-31 10:00:00"
    suffix = f"{clock[1]}%H:%M{':%S' if clock[2] else ''}" if clock else ""
    option = "--timestamp-format" if clock else "--date-format"
    days, months = (f"{option} '{form}{suffix}'" for form in (f"%d{mark}%m{mark}%Y", f"%m{mark}%d{mark}%Y"))
    if int(one) > _MONTHS or int(other) > _MONTHS:
        return f"pass {days if int(one) > _MONTHS else months}"
    return f"if the day comes first, pass {days}; if the month does, {months}"


def rounding(text: ColumnText | None, column: Column) -> str:
    """Return how a table's column would round the numbers in a CSV column; ``""`` if it wouldn't."""
    decimal = _DECIMAL.fullmatch(column.type)
    if text is not None and decimal is None and column.type == "double" and text.inexact_as_double:
        return f"column '{column.name}' has integers of {text.digits} digits, which a double would round"
    if text is None or decimal is None or text.fraction <= int(decimal[2]):
        return ""
    has = "exponents or too many digits" if text.fraction >= _EXPONENT else f"{text.fraction} digits after the point"
    return f"column '{column.name}' has values with {has}, and {column.type} would round them"


def fits(
    batch: Column, table: Column, file_format: FileFormat, text: ColumnText | None = None, timezone: str | None = None
) -> bool:
    """Return whether a batch's column can be written as a table's column. Inferred types give way to the table's.

    The write refuses values that don't fit after all; :func:`rounding` finds those that would be rounded.
    """
    pair = batch.type, table.type
    is_lossless_here = is_lossless(*pair) or (text is not None and text.whole and pair in _WHOLE)
    if is_lossless_here or pair in _GET_ZONE:
        return is_lossless_here or timezone is not None
    if type_parts(batch.type) and type_parts(table.type):
        inside = list(type_differences(table.type, batch.type))
        return all(one.one and one.other and _fits_inside(one.other, one.one, file_format) for one in inside)
    if file_format in {"json", "excel"}:
        if batch.type in {"long", "double", _LONG_INTEGER}:
            is_decimal = _DECIMAL.fullmatch(table.type) is not None
            is_number = (batch.type, table.type) in _PARSES_AS
            return is_decimal or is_number or (batch.type == "long" and table.type == "string")
        # Text in JSON is parsed as the table's type, too.
        is_text = file_format == "json" and batch.type in _JSON_TEXT
        return is_text and (table.type == "string" or (batch.type, table.type) in _PARSES_AS)
    if file_format != "csv":
        # The write refuses numbers that a double would round, fractions in integers, and bytes that aren't text.
        is_fraction = batch.type in {"float", "double"} or _DECIMAL.fullmatch(batch.type) is not None
        is_decided_by_values = is_fraction and table.type in {"int", "long"}
        return is_decided_by_values or (batch.type, table.type) in {("long", "double"), ("binary", "string")}
    return (
        (batch.type, table.type) in _PARSES_AS
        or table.type == "string"
        or (batch.type in {"long", "double"} and table.type.startswith("decimal("))
        or (table.type == "boolean" and text is not None and text.flags)
    )


def _fits_inside(batch: str, table: str, file_format: FileFormat) -> bool:
    """Return whether a nested field can be written as another type. Only top-level columns are parsed from text."""
    if is_lossless(batch, table) or (batch, table) == ("long", "double"):
        return True
    # JSON integers are longs; the write refuses those that don't fit.
    return file_format == "json" and batch == "long" and (table in {"int", "string"} or table.startswith("decimal("))
