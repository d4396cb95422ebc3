"""Parse row filters such as ``fare > 10 AND vendor IN ('a', 'b')`` into PyIceberg's expressions.

PyIceberg's own filter language differs from SQL in surprising ways: ``NOT IN`` keeps NULLs, names must be ASCII, and a
timestamp needs its ``T``. Here, a filter means the same as in Spark, which audited the rows: a comparison with NULL is
never true, NaN is greater than every number, and names ignore case.
"""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation, localcontext
from typing import Any, Final, Literal, NoReturn, TypeAlias
from uuid import UUID

from pyiceberg import expressions
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lakegate.errors import InputError
from lakegate.model.sqltext import SqlTextError, SqlToken, sql_tokens
from lakegate.model.words import did_you_mean

Comparison: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]

_ice: Any = expressions
"""PyIceberg's comparisons, untyped: mypy takes them for pydantic models and refuses positional arguments."""
_MAX_DEPTH = 100
_MAX_COLUMNS_SHOWN = 20
_DIGITS = 400
"""Precision to calculate with: a double has up to 309 digits before the decimal point."""
_NEGATED: Final[Mapping[str, Comparison]] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_FLIPPED: Final[Mapping[str, Comparison]] = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_COMPARISONS: Final[Mapping[str, Comparison]] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_BUILDERS: Final[Mapping[str, Callable[[str, Any], BooleanExpression]]] = {
    "=": _ice.EqualTo,
    "<": _ice.LessThan,
    "<=": _ice.LessThanOrEqual,
    ">": _ice.GreaterThan,
    ">=": _ice.GreaterThanOrEqual,
}
_FIRST_AND_LAST: Final = (
    *(date.min, date.max),
    *(datetime.combine(date.min, time.min, zone) for zone in (None, UTC)),
    *(datetime.combine(date.max, time.max, zone) for zone in (None, UTC)),
)
"""The ends of what Python's dates and times can hold."""
_NEGATABLE: Final = {"LIKE", "IN", "BETWEEN"}
_RESERVED: Final = {"AND", "OR", "NOT", "IS", "TRUE", "FALSE", "NULL", *_NEGATABLE}
_NUMBER = re.compile(r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?:BD|[LSYDF])?", re.IGNORECASE)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?")
_TYPED_LITERALS = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})
_END: Final = SqlToken("symbol", "", "", 0, 0, 0)
_HINT = (
    "A filter compares columns with values: fare > 10, vendor IN ('a', 'b'), name LIKE 'New%', day BETWEEN "
    "'2024-01-01' AND '2024-01-31', tip IS NOT NULL. Combine comparisons with AND, OR, NOT and parentheses. For "
    "anything else, use lake.query(), which takes SQL."
)


@dataclass(frozen=True, slots=True)
class _FilterColumn:
    """A column or a struct's field: the full name by which PyIceberg finds it, and its type."""

    name: str
    type: IcebergType


def parse_where(text: str, schema: Schema) -> BooleanExpression:
    """Parse a row filter into a PyIceberg expression that matches the same rows as in Spark SQL.

    Raises:
        InputError: When it's invalid, names an unknown column, or compares one with a value of another type.

    Example:
        >>> from pyiceberg.types import LongType, NestedField
        >>> parse_where("ID != 7", Schema(NestedField(1, "id", LongType())))  # doctest: +ELLIPSIS
        And(left=NotEqualTo(...id...7...), right=NotNull(...id...))
    """
    try:
        tokens = sql_tokens(text)
    except SqlTextError as error:
        raise _syntax_error(str(error).rstrip(".")) from None
    return _FilterParser(tokens, schema).parse()


def find_column(schema: Schema, name: str) -> str:
    """Return the full name of a column or a struct's field as the schema spells it. An exact match wins.

    Raises:
        InputError: When there is none, or several that differ only by case. It suggests the most similar name.
    """
    known = schema.column_names
    if name in known:
        return name
    found = [one for one in known if one.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    top = [field.name for field in schema.fields[:_MAX_COLUMNS_SHOWN]]
    more = f" and {len(schema.fields) - _MAX_COLUMNS_SHOWN} more" if len(schema.fields) > _MAX_COLUMNS_SHOWN else ""
    raise InputError(
        f"The table has {'several columns' if found else 'no column'} '{name}'.",
        hint=did_you_mean(name, known) + f"Its columns: {', '.join(top)}{more}.",
        column=name,
    )


class _FilterParser:
    """Recursive-descent parser for filters.

    NOT is pushed down to the comparisons, because what it means for NULL depends on them. So each method takes whether
    its part is negated.
    """

    def __init__(self, tokens: Sequence[SqlToken], schema: Schema) -> None:
        self._tokens = tokens
        self._schema = schema
        self._at = 0
        self._depth = 0

    def parse(self) -> BooleanExpression:
        if not self._tokens:
            raise _syntax_error("it's empty")
        found = self._disjunction(negated=False)
        if self._token() is not _END:
            self._refuse("AND, OR or the end")
        return found

    def _disjunction(self, *, negated: bool) -> BooleanExpression:
        found = [self._conjunction(negated=negated)]
        while self._take("OR"):
            found.append(self._conjunction(negated=negated))
        return _join(And if negated else Or, found)

    def _conjunction(self, *, negated: bool) -> BooleanExpression:
        found = [self._term(negated=negated)]
        while self._take("AND"):
            found.append(self._term(negated=negated))
        return _join(Or if negated else And, found)

    def _term(self, *, negated: bool) -> BooleanExpression:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _syntax_error(f"its parentheses are nested more than {_MAX_DEPTH} levels deep")
        if self._take("NOT"):
            found = self._term(negated=not negated)
        elif self._take("("):
            found = self._disjunction(negated=negated)
            self._require(")")
        else:
            found = self._predicate(negated=negated)
        self._depth -= 1
        return found

    def _predicate(self, *, negated: bool) -> BooleanExpression:
        if self._peek() in {"TRUE", "FALSE"} and self._peek(1) in {"", "AND", "OR", ")"}:
            return AlwaysTrue() if (self._next().upper == "TRUE") != negated else AlwaysFalse()
        if self._peek(1) == "(" and self._peek() not in _RESERVED:
            return self._call(negated=negated)
        if self._at_value():
            value = self._value()
            sign = self._sign()
            if sign is None:
                self._refuse("a comparison")
            return _compare(self._column(), _FLIPPED[sign], value, negated=negated)
        column = self._column()
        if (sign := self._sign()) is not None:
            return _compare(column, sign, self._value(), negated=negated)
        if self._take("IS"):
            return self._is(column, negated=bool(self._take("NOT")) != negated)
        return self._keyword_predicate(column, negated=negated)

    def _keyword_predicate(self, column: _FilterColumn, *, negated: bool) -> BooleanExpression:
        if self._peek() == "NOT" and self._peek(1) in _NEGATABLE:
            self._next()
            negated = not negated
        if self._take("IN"):
            return self._in(column, negated=negated)
        if self._take("BETWEEN"):
            low = self._value()
            self._require("AND")
            lower = _compare(column, ">=", low, negated=negated)
            upper = _compare(column, "<=", self._value(), negated=negated)
            return Or(lower, upper) if negated else And(lower, upper)
        if self._take("LIKE"):
            return self._like(column, negated=negated)
        if not isinstance(column.type, BooleanType):
            self._refuse(f"a comparison after '{column.name}'")
        return _build("=", column.name, not negated)

    def _call(self, *, negated: bool) -> BooleanExpression:
        token = self._next()
        name = token.upper
        if name not in {"ISNAN", "STARTSWITH"}:
            raise _syntax_error(f"it calls {token.name.lower()}(), but only isnan() and startswith() are supported")
        self._require("(")
        column = self._column()
        if name == "ISNAN":
            self._require(")")
            return self._is_nan(column, negated=negated)
        self._require(",")
        prefix = self._text()
        self._require(")")
        return self._starts_with(column, prefix, negated=negated)

    def _is(self, column: _FilterColumn, *, negated: bool) -> BooleanExpression:
        if self._take("NULL"):
            is_null: BooleanExpression = _ice.IsNull(column.name)
            return ~is_null if negated else is_null
        if self._take("NAN"):
            return self._is_nan(column, negated=negated)
        if self._peek() in {"TRUE", "FALSE"} and isinstance(column.type, BooleanType):
            wanted = self._next().upper == "TRUE"
            # Unlike a comparison, IS treats NULL as a value: NULL IS NOT TRUE is true.
            is_other = Or(_ice.EqualTo(column.name, not wanted), _ice.IsNull(column.name))
            return is_other if negated else _build("=", column.name, wanted)
        return self._refuse("NULL or NOT NULL")

    def _in(self, column: _FilterColumn, *, negated: bool) -> BooleanExpression:
        self._require("(")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        self._require(")")
        known = {exact for value in values if (exact := _exact_value(column, value)) is not None}
        found = _ice.In(column.name, known) if known else AlwaysFalse()
        if 0.0 in known and isinstance(column.type, (FloatType, DoubleType)):
            found = Or(found, _build("=", column.name, 0.0))  # Arrow's list would lack -0.0
        return _not_null(column.name, ~found) if negated else found

    def _like(self, column: _FilterColumn, *, negated: bool) -> BooleanExpression:
        pattern = self._text()
        if self._peek() == "ESCAPE":
            raise _syntax_error("ESCAPE isn't supported")
        plain = re.sub(r"\\([%_\\])", "", pattern)
        wild = len(re.findall(r"[%_]", plain))
        prefix = re.sub(r"\\([%_\\])", r"\1", pattern)
        if wild == 0:
            return _compare(column, "=", prefix, negated=negated)
        if wild > 1 or not plain.endswith("%"):
            raise _syntax_error(f"LIKE '{pattern}' isn't a prefix pattern such as 'New%'")
        return self._starts_with(column, prefix[:-1], negated=negated)

    def _starts_with(self, column: _FilterColumn, prefix: str, *, negated: bool) -> BooleanExpression:
        if not isinstance(column.type, StringType):
            raise _type_error(column, "LIKE and startswith() are for text")
        found = _ice.StartsWith(column.name, prefix) if prefix else AlwaysTrue()
        return _not_null(column.name, ~found if negated else found)

    def _is_nan(self, column: _FilterColumn, *, negated: bool) -> BooleanExpression:
        if not isinstance(column.type, (FloatType, DoubleType)):
            raise _type_error(column, "it's never NaN")
        # In Spark, isnan(NULL) is false, so its negation is true.
        if negated:
            return Or(_ice.NotNaN(column.name), _ice.IsNull(column.name))
        return _not_null(column.name, _ice.IsNaN(column.name))

    def _token(self, ahead: int = 0) -> SqlToken:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    def _peek(self, ahead: int = 0) -> str:
        """Return the word or symbol ahead in upper case; ``""`` at the end, and ``'`` for strings and quoted names."""
        token = self._token(ahead)
        return "" if token is _END else token.upper or "'"

    def _next(self) -> SqlToken:
        token = self._token()
        if token is _END:
            raise _syntax_error("it ends too early")
        self._at += 1
        return token

    def _take(self, word: str) -> bool:
        if self._peek() != word:
            return False
        self._at += 1
        return True

    def _require(self, word: str) -> None:
        if not self._take(word):
            self._refuse(f"'{word}'")

    def _refuse(self, expected: str) -> NoReturn:
        token = self._token()
        if token is _END:
            raise _syntax_error(f"expected {expected} at the end")
        raise _syntax_error(f"expected {expected}, not '{token.text[:80]}' at {token.position}")

    def _sign(self) -> Comparison | None:
        text, ahead = "", 0
        while self._peek(ahead) in {"<", ">", "=", "!"} and (ahead == 0 or not self._token(ahead).before):
            text, ahead = text + self._peek(ahead), ahead + 1
        if not text:
            return None
        if text not in _COMPARISONS:
            self._refuse("a comparison")
        self._at += ahead
        return _COMPARISONS[text]

    def _column(self) -> _FilterColumn:
        parts = [self._name()]
        while self._take("."):
            parts.append(self._name())
        name = find_column(self._schema, ".".join(parts))
        if any("." in part for part in parts):
            # PyIceberg would look for a struct's field.
            raise _syntax_error(f"the name of column '{name}' has a dot, and PyIceberg can't filter by such columns")
        around, known = name.split("."), self._schema.column_names
        wholes = (".".join(around[:end]) for end in range(1, len(around) + 1))
        for whole in (one for one in wholes if one in known):  # a column's own name may have dots
            kind = self._schema.find_type(whole)
            if isinstance(kind, (ListType, MapType)):  # PyIceberg can't filter by them, not even for NULL
                word = "list" if isinstance(kind, ListType) else "map"
                raise InputError(f"Can't filter by column '{whole}': it's a {word}.", hint=_HINT, column=whole)
        found = self._schema.find_field(name).field_type
        if isinstance(found, StructType):
            first = next(iter(found.fields), None)
            hint = f" Compare one of its fields: {name}.{first.name}." if first is not None else ""
            raise InputError(f"Can't filter by column '{name}': it's a struct.{hint}", hint=_HINT, column=name)
        return _FilterColumn(name, found)

    def _name(self) -> str:
        token = self._token()
        is_word = token.kind == "word" and token.upper not in _RESERVED and not token.text[0].isdecimal()
        return self._next().name if token.kind == "quoted" or is_word else self._refuse("a column")

    def _at_value(self) -> bool:
        token = self._token()
        return (
            token.kind == "string"
            or token.upper in {"TRUE", "FALSE", "NULL", "+", "-", "."}
            or (token.kind == "word" and token.text[0].isdecimal())
            or (token.upper in _TYPED_LITERALS and self._token(1).kind == "string")
        )

    def _text(self) -> str:
        if self._token().kind != "string":
            self._refuse("a quoted string")
        return self._next().value

    def _value(self) -> Any:
        token = self._token()
        if not self._at_value():
            if token.kind in {"word", "quoted"}:
                raise _syntax_error(f"'{token.text}' isn't a value; put text in quotes")
            self._refuse("a value")
        if token.upper == "NULL":
            raise _syntax_error("a comparison with NULL is never true; use IS NULL or IS NOT NULL")
        if token.upper in {"TRUE", "FALSE"}:
            return self._next().upper == "TRUE"
        if token.upper in _TYPED_LITERALS:
            self._next()
        if self._token().kind == "string":
            return self._text()
        return self._number()

    def _number(self) -> Decimal:
        text = ""
        while self._peek() in {"+", "-"} and not text:
            text = self._next().text
        first = self._at
        while (token := self._token()) is not _END:
            is_part = token.kind == "word" or token.text == "."
            is_exponent = token.text in {"+", "-"} and text[-1:] in {"e", "E"}
            if (self._at > first and token.before) or not (is_part or is_exponent):
                break
            text += self._next().text
        found = _NUMBER.fullmatch(text.lstrip("+-"))
        if found is None:
            raise _syntax_error(f"'{text}' isn't a number")
        try:
            number = Decimal(found["number"])
        except InvalidOperation:
            raise _syntax_error(f"'{text[:80]}' has too large an exponent") from None
        if number.adjusted() > sys.float_info.max_10_exp:
            raise _syntax_error(f"'{text[:80]}' is larger than any number that a table can hold")
        return -number if text.startswith("-") else number


def _join(join: type[And | Or], parts: Sequence[BooleanExpression]) -> BooleanExpression:
    """Join all parts in one call, so that PyIceberg builds a balanced tree; a chain would be too deep for it."""
    return join(*parts) if len(parts) > 1 else parts[0]


def _build(sign: Comparison, name: str, value: Any) -> BooleanExpression:
    made: BooleanExpression = _BUILDERS[sign](name, value)
    return made


def _not_null(name: str, found: BooleanExpression) -> BooleanExpression:
    """Make an expression false for NULL: PyIceberg's negated comparisons are sometimes true for it."""
    return And(found, _ice.NotNull(name))


def _compare(column: _FilterColumn, sign: Comparison, value: Any, *, negated: bool) -> BooleanExpression:
    """Return a comparison that is false for NULL and treats NaN as the greatest number."""
    name, sign = column.name, _NEGATED[sign] if negated else sign
    is_floating = isinstance(column.type, (FloatType, DoubleType))
    exact = _exact_value(column, value)
    if sign in {"=", "!="}:
        equal = AlwaysFalse() if exact is None else _build("=", name, exact)
        return equal if sign == "=" else _not_null(name, ~equal)
    if exact in _FIRST_AND_LAST and sign in {"<", ">"}:
        # For months and years, PyIceberg would look for the day or the microsecond before or after it.
        return And(_build("<=" if sign == "<" else ">=", name, exact), _ice.NotEqualTo(name, exact))
    found = _inexact_comparison(column, sign, value) if exact is None else _build(sign, name, exact)
    return Or(found, _not_null(name, _ice.IsNaN(name))) if is_floating and sign in {">", ">="} else found


def _inexact_comparison(column: _FilterColumn, sign: Comparison, number: Decimal) -> BooleanExpression:
    """Return an inequality with a number that the column's type can't hold, using the nearest value that it can."""
    is_lower_bound = sign in {">", ">="}
    near = _nearest(column, number, ROUND_CEILING if is_lower_bound else ROUND_FLOOR)
    if near is not None:
        return _build(">=" if is_lower_bound else "<=", column.name, near)
    # The number is outside the type's range (never for floats), so either all values match, or none.
    return AlwaysFalse() if (number > 0) == is_lower_bound else _not_null(column.name, AlwaysTrue())


def _exact_value(column: _FilterColumn, value: Any) -> Any:
    """Return the value of the column's type that equals ``value``; ``None`` if it's a number and none does."""
    kind = column.type
    match value:
        case bool() if isinstance(kind, BooleanType):
            return value
        case Decimal():
            if isinstance(kind, (IntegerType, LongType, DecimalType, FloatType, DoubleType)):
                near = _nearest(column, value, ROUND_FLOOR)
                return near if near is not None and _is_same(kind, near, value) else None
            if isinstance(kind, StringType):
                raise _type_error(column, "put the value in quotes")
        case str():
            return _from_text(column, value)
    shown = str(value).lower() if isinstance(value, bool) else value
    raise _type_error(column, f"it can't be compared with {shown}")


def _is_same(kind: IcebergType, near: Any, value: Decimal) -> bool:
    # As in Spark, a literal such as 0.1 means the nearest double, which a float may not be able to hold.
    return bool(near == float(value)) if isinstance(kind, (FloatType, DoubleType)) else bool(Decimal(near) == value)


def _nearest(column: _FilterColumn, number: Decimal, rounding: str) -> Any:
    """Round ``number`` up or down to a value of the column's type; ``None`` if it's out of range."""
    kind = column.type
    if isinstance(kind, (FloatType, DoubleType)):
        wide = float(number)
        held = _to_float32(wide, rounding) if isinstance(kind, FloatType) else wide
        if not math.isfinite(held):
            raise _type_error(column, f"{number:.6g} is out of its range")
        return held
    with localcontext(prec=_DIGITS):
        scale = kind.scale if isinstance(kind, DecimalType) else 0
        if abs(number) >= Decimal(10) ** 40:  # out of any type's range, and maybe too long to quantize
            return None
        near = number.quantize(Decimal(1).scaleb(-scale), rounding)
        if isinstance(kind, DecimalType):
            return near if abs(near) < Decimal(10) ** (kind.precision - scale) else None
    limit = 2**31 if isinstance(kind, IntegerType) else 2**63
    return int(near) if -limit <= near < limit else None


def _to_float32(wide: float, rounding: str) -> float:
    """Round a double up or down to a 32-bit float; infinity if it's out of range."""
    up = rounding == ROUND_CEILING
    try:
        near: float = struct.unpack("<f", struct.pack("<f", wide))[0]
    except OverflowError:
        return math.inf
    if near == wide or (near > wide) == up:
        return near
    if near == 0:
        return 2.0**-149 * (1 if up else -1)
    (bits,) = struct.unpack("<i", struct.pack("<f", near))
    following: float = struct.unpack("<f", struct.pack("<i", bits + (1 if (near > 0) == up else -1)))[0]
    return following


def _from_text(column: _FilterColumn, text: str) -> Any:
    kind = column.type
    if isinstance(kind, StringType):
        return text
    try:
        if isinstance(kind, (DateType, TimestampType, TimestamptzType)):
            return _parse_moment(kind, text)
        if isinstance(kind, UUIDType):
            return UUID(text)
    except (ValueError, OverflowError) as error:  # a zone can move a moment out of the years 1 to 9999
        raise _type_error(column, f"it can't be compared with '{text[:80]}': {error}") from None
    if isinstance(kind, (IntegerType, LongType, DecimalType, FloatType, DoubleType)):
        raise _type_error(column, f"it can't be compared with the text '{text[:80]}'; leave out the quotes")
    raise _type_error(column, "only IS NULL and IS NOT NULL work on it")


def _parse_moment(kind: IcebergType, text: str) -> date | datetime:
    stripped = text.strip()
    if not _MOMENT.fullmatch(stripped):
        raise ValueError("write it as 2024-01-31 or 2024-01-31 07:00:00")
    moment = datetime.fromisoformat(stripped)
    if isinstance(kind, DateType):
        if moment.tzinfo is not None or moment.time() != moment.min.time():
            raise ValueError("it has a time of day")
        return moment.date()
    if isinstance(kind, TimestamptzType):
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    if moment.tzinfo is not None:
        raise ValueError("the column has no time zone")
    return moment


def _type_error(column: _FilterColumn, problem: str) -> InputError:
    return InputError(f"Column '{column.name}' has type {column.type}: {problem}.", hint=_HINT, column=column.name)


def _syntax_error(problem: str) -> InputError:
    return InputError(f"Can't read the filter: {problem}.", hint=_HINT)
