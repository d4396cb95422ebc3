"""Row filters as text: ``fare > 10 AND vendor IN ('a', 'b')``, turned into PyIceberg's expressions.

PyIceberg has a filter language of its own. It differs from SQL where nobody expects it: ``NOT IN`` keeps NULLs, names
must be ASCII, and a time needs its ``T``. Here a filter means what it means in Spark, which audited the rows: a
comparison with NULL is never true, NaN is greater than every number, names ignore case.
"""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
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
    LongType,
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
"""PyIceberg's comparisons. mypy takes them for plain pydantic models, and refuses the arguments they are made with."""
_DEEPEST = 100
_SHOWN = 20
_DIGITS = 400
"""Digits to calculate with: a double has no more than 309 before the point."""
_NEGATED: Final[Mapping[str, Comparison]] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_FLIPPED: Final[Mapping[str, Comparison]] = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_SPELLED: Final[Mapping[str, Comparison]] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_MADE: Final[Mapping[str, Callable[[str, Any], BooleanExpression]]] = {
    "=": _ice.EqualTo,
    "<": _ice.LessThan,
    "<=": _ice.LessThanOrEqual,
    ">": _ice.GreaterThan,
    ">=": _ice.GreaterThanOrEqual,
}
_CUT: Final = {"LIKE", "IN", "BETWEEN"}
_RESERVED: Final = {"AND", "OR", "NOT", "IS", "TRUE", "FALSE", "NULL", *_CUT}
_NUMBER = re.compile(r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?:BD|[LSYDF])?", re.IGNORECASE)
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?")
_TYPED = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})
_HINT = (
    "A filter compares columns with values: fare > 10, vendor IN ('a', 'b'), name LIKE 'New%', day BETWEEN "
    "'2024-01-01' AND '2024-01-31', tip IS NOT NULL; with AND, OR, NOT and brackets. lake.query() takes all of SQL."
)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column, or a field of a struct: its full name, by which PyIceberg finds it, and its type."""

    name: str
    type: IcebergType


def parse_where(text: str, schema: Schema) -> BooleanExpression:
    """Return a row filter as PyIceberg's expression, true for just the rows for which Spark SQL has it true.

    Raises:
        InputError: When it can't be read, names no column of the table, or compares one with what it can't be.

    Example:
        >>> from pyiceberg.types import LongType, NestedField
        >>> parse_where("ID != 7", Schema(NestedField(1, "id", LongType())))  # doctest: +ELLIPSIS
        And(left=NotEqualTo(...id...7...), right=NotNull(...id...))
    """
    try:
        tokens = sql_tokens(text)
    except SqlTextError as error:
        raise _unreadable(str(error).rstrip(".")) from None
    return _Parser(tokens, schema).parse()


def find_column(schema: Schema, name: str) -> str:
    """Return the full name of a column or a struct's field as the schema spells it; the exact spelling wins.

    Raises:
        InputError: When there is none, naming the nearest.
    """
    known = schema.column_names
    if name in known:
        return name
    found = [one for one in known if one.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    top = [field.name for field in schema.fields[:_SHOWN]]
    more = f" and {len(schema.fields) - _SHOWN} more" if len(schema.fields) > _SHOWN else ""
    raise InputError(
        f"The table has {'several columns' if found else 'no column'} '{name}'.",
        hint=did_you_mean(name, known) + f"Its columns: {', '.join(top)}{more}.",
        column=name,
    )


class _Parser:
    """A filter's grammar, by recursive descent.

    Each method gets whether its part is negated: NOT isn't kept, because what it means for NULL depends on the
    comparison under it.
    """

    def __init__(self, tokens: Sequence[SqlToken], schema: Schema) -> None:
        self._tokens = tokens
        self._schema = schema
        self._at = 0
        self._depth = 0

    def parse(self) -> BooleanExpression:
        if not self._tokens:
            raise _unreadable("it is empty")
        found = self._either(negated=False)
        if self._at < len(self._tokens):
            self._refuse("an end, AND or OR")
        return found

    def _either(self, *, negated: bool) -> BooleanExpression:
        found = [self._all(negated=negated)]
        while self._take("OR"):
            found.append(self._all(negated=negated))
        return _joined(And if negated else Or, found)

    def _all(self, *, negated: bool) -> BooleanExpression:
        found = [self._one(negated=negated)]
        while self._take("AND"):
            found.append(self._one(negated=negated))
        return _joined(Or if negated else And, found)

    def _one(self, *, negated: bool) -> BooleanExpression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _unreadable(f"its brackets are nested more than {_DEEPEST} deep")
        if self._take("NOT"):
            found = self._one(negated=not negated)
        elif self._take("("):
            found = self._either(negated=negated)
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
        if self._is_value():
            value = self._value()
            sign = self._sign()
            if sign is None:
                self._refuse("a comparison")
            return self._compared(self._column(), _FLIPPED[sign], value, negated=negated)
        column = self._column()
        if (sign := self._sign()) is not None:
            return self._compared(column, sign, self._value(), negated=negated)
        if self._take("IS"):
            return self._is(column, negated=bool(self._take("NOT")) != negated)
        return self._worded(column, negated=negated)

    def _worded(self, column: _Column, *, negated: bool) -> BooleanExpression:
        if self._peek() == "NOT" and self._peek(1) in _CUT:
            self._next()
            negated = not negated
        if self._take("IN"):
            return self._in(column, negated=negated)
        if self._take("BETWEEN"):
            low = self._value()
            self._require("AND")
            lower = self._compared(column, ">=", low, negated=negated)
            upper = self._compared(column, "<=", self._value(), negated=negated)
            return Or(lower, upper) if negated else And(lower, upper)
        if self._take("LIKE"):
            return self._like(column, negated=negated)
        if not isinstance(column.type, BooleanType):
            self._refuse(f"a comparison after '{column.name}'")
        return _made("=", column.name, not negated)

    def _call(self, *, negated: bool) -> BooleanExpression:
        token = self._next()
        name = token.upper
        if name not in {"ISNAN", "STARTSWITH"}:
            raise _unreadable(f"it calls {token.name.lower()}(), and only isnan() and startswith() can be called")
        self._require("(")
        column = self._column()
        if name == "ISNAN":
            self._require(")")
            return self._is_nan(column, negated=negated)
        self._require(",")
        prefix = self._text()
        self._require(")")
        return self._starts(column, prefix, negated=negated)

    def _is(self, column: _Column, *, negated: bool) -> BooleanExpression:
        if self._take("NULL"):
            is_null: BooleanExpression = _ice.IsNull(column.name)
            return ~is_null if negated else is_null
        if self._take("NAN"):
            return self._is_nan(column, negated=negated)
        if self._peek() in {"TRUE", "FALSE"} and isinstance(column.type, BooleanType):
            wanted = self._next().upper == "TRUE"
            # Unlike a comparison, IS knows no NULL: it isn't true, so it is NOT TRUE.
            is_other = Or(_ice.EqualTo(column.name, not wanted), _ice.IsNull(column.name))
            return is_other if negated else _made("=", column.name, wanted)
        return self._refuse("NULL or NOT NULL")

    def _in(self, column: _Column, *, negated: bool) -> BooleanExpression:
        self._require("(")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        self._require(")")
        known = {exact for value in values if (exact := _exact(column, value)) is not None}
        found = _ice.In(column.name, known) if known else AlwaysFalse()
        return _not_null(column.name, ~found) if negated else found

    def _like(self, column: _Column, *, negated: bool) -> BooleanExpression:
        pattern = self._text()
        if self._peek() == "ESCAPE":
            raise _unreadable("it has ESCAPE, which isn't supported")
        plain = re.sub(r"\\([%_\\])", "", pattern)
        wild = len(re.findall(r"[%_]", plain))
        prefix = re.sub(r"\\([%_\\])", r"\1", pattern)
        if wild == 0:
            return self._compared(column, "=", prefix, negated=negated)
        if wild > 1 or not plain.endswith("%"):
            raise _unreadable(f"LIKE '{pattern}' isn't a prefix such as 'New%'")
        return self._starts(column, prefix[:-1], negated=negated)

    def _starts(self, column: _Column, prefix: str, *, negated: bool) -> BooleanExpression:
        if not isinstance(column.type, StringType):
            raise _wrong(column, "LIKE and startswith() are for text")
        found = _ice.StartsWith(column.name, prefix) if prefix else AlwaysTrue()
        return _not_null(column.name, ~found if negated else found)

    def _is_nan(self, column: _Column, *, negated: bool) -> BooleanExpression:
        if not isinstance(column.type, (FloatType, DoubleType)):
            raise _wrong(column, "it's never NaN")
        # In Spark isnan(NULL) is false, and so its opposite is true.
        if negated:
            return Or(_ice.NotNaN(column.name), _ice.IsNull(column.name))
        return _not_null(column.name, _ice.IsNaN(column.name))

    def _compared(self, column: _Column, sign: Comparison, value: Any, *, negated: bool) -> BooleanExpression:
        return _comparison(column, _NEGATED[sign] if negated else sign, value)

    # Tokens

    def _peek(self, ahead: int = 0) -> str:
        """Return the word or symbol ahead in upper case; nothing at the end, and ``'`` for texts and quoted names."""
        at = self._at + ahead
        return (self._tokens[at].upper or "'") if at < len(self._tokens) else ""

    def _next(self) -> SqlToken:
        if self._at >= len(self._tokens):
            raise _unreadable("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, word: str) -> bool:
        if self._peek() != word:
            return False
        self._at += 1
        return True

    def _require(self, word: str) -> None:
        if not self._take(word):
            self._refuse(f"'{word}'")

    def _refuse(self, expected: str) -> NoReturn:
        if self._at >= len(self._tokens):
            raise _unreadable(f"it ends where {expected} must follow")
        token = self._tokens[self._at]
        raise _unreadable(f"expected {expected}, not '{token.text[:80]}' at {token.place}")

    def _sign(self) -> Comparison | None:
        text, ahead = "", 0
        while self._peek(ahead) in {"<", ">", "=", "!"} and (ahead == 0 or not self._tokens[self._at + ahead].before):
            text, ahead = text + self._peek(ahead), ahead + 1
        if not text:
            return None
        if text not in _SPELLED:
            self._refuse("a comparison")
        self._at += ahead
        return _SPELLED[text]

    def _column(self) -> _Column:
        parts = [self._name()]
        while self._take("."):
            parts.append(self._name())
        name = find_column(self._schema, ".".join(parts))
        if any("." in part for part in parts):
            # PyIceberg would look for a field of a struct.
            raise _unreadable(f"the name of column '{name}' has a dot, by which PyIceberg can't filter")
        found = self._schema.find_field(name).field_type
        if not found.is_primitive and isinstance(found, StructType):
            first = next(iter(found.fields), None)
            hint = f" Compare a field of it: {name}.{first.name}." if first is not None else ""
            raise InputError(
                f"Rows can't be filtered by column '{name}': it's a struct.{hint}", hint=_HINT, column=name
            )
        return _Column(name, found)

    def _name(self) -> str:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            is_word = token.kind == "word" and token.upper not in _RESERVED and not token.text[0].isdecimal()
            if token.kind == "quoted" or is_word:
                return self._next().name
        return self._refuse("a column")

    def _is_value(self) -> bool:
        if self._at >= len(self._tokens):
            return False
        token = self._tokens[self._at]
        typed = token.upper in _TYPED and self._at + 1 < len(self._tokens)
        return (
            token.kind == "string"
            or token.upper in {"TRUE", "FALSE", "NULL", "+", "-", "."}
            or (token.kind == "word" and token.text[0].isdecimal())
            or (typed and self._tokens[self._at + 1].kind == "string")
        )

    def _text(self) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at].kind != "string":
            self._refuse("a text in quotes")
        return self._next().value

    def _value(self) -> Any:
        if not self._is_value():
            if self._at < len(self._tokens) and self._tokens[self._at].kind in {"word", "quoted"}:
                raise _unreadable(f"'{self._tokens[self._at].text}' isn't a value; put text in quotes")
            self._refuse("a value")
        token = self._tokens[self._at]
        if token.upper == "NULL":
            raise _unreadable("a comparison with NULL is never true; use IS NULL or IS NOT NULL")
        if token.upper in {"TRUE", "FALSE"}:
            return self._next().upper == "TRUE"
        if token.upper in _TYPED:
            self._next()
        if self._tokens[self._at].kind == "string":
            return self._text()
        return self._number()

    def _number(self) -> Decimal:
        text = ""
        while self._peek() in {"+", "-"} and not text:
            text = self._next().text
        first = self._at
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            is_part = token.kind == "word" or token.text == "."
            is_exponent = token.text in {"+", "-"} and text[-1:] in {"e", "E"}
            if (self._at > first and token.before) or not (is_part or is_exponent):
                break
            text += self._next().text
        found = _NUMBER.fullmatch(text.lstrip("+-"))
        if found is None:
            raise _unreadable(f"'{text}' isn't a number")
        number = Decimal(found["number"])
        if number.adjusted() > sys.float_info.max_10_exp:
            raise _unreadable(f"'{text[:80]}' is beyond every number that a table can hold")
        return -number if text.startswith("-") else number


def _joined(join: type[And | Or], parts: Sequence[BooleanExpression]) -> BooleanExpression:
    """Return all parts joined at once: PyIceberg balances them, where a chain would be too deep for it."""
    return join(*parts) if len(parts) > 1 else parts[0]


def _made(sign: Comparison, name: str, value: Any) -> BooleanExpression:
    made: BooleanExpression = _MADE[sign](name, value)
    return made


def _not_null(name: str, found: BooleanExpression) -> BooleanExpression:
    """Return ``found``, false for NULL: the opposites of PyIceberg's comparisons are true for it, here and there."""
    return And(found, _ice.NotNull(name))


# Values


def _comparison(column: _Column, sign: Comparison, value: Any) -> BooleanExpression:
    """Return the comparison; false for NULL, and for NaN as if that were the greatest number."""
    name = column.name
    is_floating = isinstance(column.type, (FloatType, DoubleType))
    exact = _exact(column, value)
    if sign in {"=", "!="}:
        equal = AlwaysFalse() if exact is None else _made("=", name, exact)
        return equal if sign == "=" else _not_null(name, ~equal)
    found = _beside(column, sign, value) if exact is None else _made(sign, name, exact)
    return Or(found, _not_null(name, _ice.IsNaN(name))) if is_floating and sign in {">", ">="} else found


def _beside(column: _Column, sign: Comparison, number: Decimal) -> BooleanExpression:
    """Return a comparison with a number that no value of the column equals: with the nearest one that some may."""
    rises = sign in {">", ">="}
    near = _nearest(column, number, ROUND_CEILING if rises else ROUND_FLOOR)
    if near is not None:
        return _made(">=" if rises else "<=", column.name, near)
    # There is none further on, which can't be with floats: all values are on this side, or none is.
    return AlwaysFalse() if (number > 0) == rises else _not_null(column.name, AlwaysTrue())


def _exact(column: _Column, value: Any) -> Any:
    """Return the value of the column's type that equals ``value``; ``None`` when no number of that type does."""
    kind = column.type
    match value:
        case bool() if isinstance(kind, BooleanType):
            return value
        case Decimal():
            if isinstance(kind, (IntegerType, LongType, DecimalType, FloatType, DoubleType)):
                near = _nearest(column, value, ROUND_FLOOR)
                return near if near is not None and _is_same(kind, near, value) else None
            if isinstance(kind, StringType):
                raise _wrong(column, "put the value in quotes")
        case str():
            return _from_text(column, value)
    shown = str(value).lower() if isinstance(value, bool) else value
    raise _wrong(column, f"it can't be compared with {shown}")


def _is_same(kind: IcebergType, near: Any, value: Decimal) -> bool:
    # A literal such as 0.1 means the double nearest to it, as it does in Spark; a float may have no such value.
    return bool(near == float(value)) if isinstance(kind, (FloatType, DoubleType)) else bool(Decimal(near) == value)


def _nearest(column: _Column, number: Decimal, rounding: str) -> Any:
    """Return the nearest value of the column's type on one side of ``number``; ``None`` when there is none."""
    kind = column.type
    if isinstance(kind, (FloatType, DoubleType)):
        wide = float(number)
        held = _single(wide, rounding) if isinstance(kind, FloatType) else wide
        if not math.isfinite(held):
            raise _wrong(column, f"{number:.6g} is beyond it")
        return held
    with localcontext(prec=_DIGITS):
        scale = kind.scale if isinstance(kind, DecimalType) else 0
        if abs(number) >= Decimal(10) ** 40:  # beyond every such type, and maybe too long to write out
            return None
        near = number.quantize(Decimal(1).scaleb(-scale), rounding)
        if isinstance(kind, DecimalType):
            return near if abs(near) < Decimal(10) ** (kind.precision - scale) else None
    limit = 2**31 if isinstance(kind, IntegerType) else 2**63
    return int(near) if -limit <= near < limit else None


def _single(wide: float, rounding: str) -> float:
    """Return the nearest float of 32 bits on one side of a double; infinity beyond the greatest."""
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


def _from_text(column: _Column, text: str) -> Any:
    kind = column.type
    if isinstance(kind, StringType):
        return text
    try:
        if isinstance(kind, (DateType, TimestampType, TimestamptzType)):
            return _moment(kind, text)
        if isinstance(kind, UUIDType):
            return UUID(text)
    except ValueError as error:
        raise _wrong(column, f"it can't be compared with '{text[:80]}': {error}") from None
    if isinstance(kind, (IntegerType, LongType, DecimalType, FloatType, DoubleType)):
        raise _wrong(column, f"it can't be compared with the text '{text[:80]}'; leave out the quotes")
    raise _wrong(column, "it can only be compared by IS NULL and IS NOT NULL")


def _moment(kind: IcebergType, text: str) -> date | datetime:
    stripped = text.strip()
    if not _MOMENT.fullmatch(stripped):
        raise ValueError("write it as 2024-01-31, or 2024-01-31 07:00:00")
    moment = datetime.fromisoformat(stripped)
    if isinstance(kind, DateType):
        if moment.tzinfo is not None or moment.time() != moment.min.time():
            raise ValueError("it has a time of day")
        return moment.date()
    if isinstance(kind, TimestamptzType):
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    if moment.tzinfo is not None:
        raise ValueError("the column's times have no zone")
    return moment


def _wrong(column: _Column, problem: str) -> InputError:
    return InputError(f"Column '{column.name}' is of type {column.type}: {problem}.", hint=_HINT, column=column.name)


def _unreadable(problem: str) -> InputError:
    return InputError(f"Can't read the filter: {problem}.", hint=_HINT)
