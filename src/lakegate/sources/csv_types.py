"""Infer the types of CSV columns from all their values, whole columns at a time.

A type is only inferred if Spark's CSV reader, with its default formats, reads every value of the column as that type,
with the same result. In doubt, a column stays a string, so that nothing is lost.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakegate.errors import SchemaError
from lakegate.model.batch import (
    FINE_TIME,
    LONE_DIGIT,
    MISSING_WORDS,
    NAMED_MONTH,
    NON_FINITE,
    SHORTENED,
    TOO_LARGE,
    CsvOptions,
    TimeRewrite,
    accounting,
)

Kind = Literal["unknown", "bool", "int64", "double", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]", "string"]

_INTS = 2**31
INEXACT_IN_DOUBLE = 2**53
"""The first integer that a double can't distinguish from the next one."""
_MISSING = pa.array(MISSING_WORDS)
_FLAGS = pa.array(["t", "true", "y", "yes", "1", "f", "false", "n", "no", "0"])
_NON_FINITE = pa.array(NON_FINITE)
_INSTANT = pa.timestamp("us", tz="UTC")
_NAIVE = pa.timestamp("us")
_PLUS, _MINUS, _ZERO, _NINE, _COLON, _Z, _SPACE = (ord(character) for character in "+-09:Z ")
_FIRST_DAY, _LAST_DAY = ((day - dt.date(1970, 1, 1)).days for day in (dt.date.min, dt.date.max))
_DAY_MICROSECONDS = 86_400_000_000
_MICROSECOND_TEXT = 26  # 2024-01-31T07:05:09.123456
_SECOND_TEXT = 19
_PLAIN_DOUBLES = 1e-3, 1e7
"""From the first to the second, Spark writes doubles without exponents."""
_EXACT_TEXT = 16
"""Length of a double's text, with its point, that has no more than the 15 digits that it always keeps."""
# Spark allows zone offsets up to 18 hours (java.time.ZoneOffset), Arrow up to 23:59.
_WIDE_OFFSET = r"[+-](?:1[89]|2[0-9])(?::?[0-9]{2})?$"
MANY = 999
"""Number of fraction digits to assume for numbers with an exponent."""
_LONG_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?$"
_NUMBER_OR_DATE = re.compile(
    r"[+-]?[1-9][0-9.,' ]*[.,][0-9]+|[+-]?0,[0-9]+|[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}.*"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}.*| +-?[0-9.]+ *|-?[0-9.]+ +|-?[0-9.,]+ ?%"
    rf"|{NAMED_MONTH}.*"
)
_AMOUNT = re.compile(r"[$€£¥(]|-$")
_PROMOTIONS: Mapping[Kind, tuple[Kind, ...]] = {
    "bool": ("bool",),
    "int64": ("int64", "double"),
    "double": ("double",),
    "date32[day]": ("date32[day]", "timestamp[us]"),
    "timestamp[us]": ("timestamp[us]",),
    "timestamp[us, tz=UTC]": ("timestamp[us, tz=UTC]",),
}
# Only a first guess: all values are checked afterwards.
_LOOKS_LIKE: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("int64", re.compile(r"-?[0-9]+")),
    ("double", re.compile(r"-?(?:[0-9.]+(?:[eE][+-]?[0-9]+)?|Inf|Infinity)|NaN")),
    ("bool", re.compile(r"true|false", re.IGNORECASE)),
    ("date32[day]", re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")),
    ("timestamp[us, tz=UTC]", re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]+(?:Z|[+-][0-9:]+)")),
    ("timestamp[us]", re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]+")),
)


@dataclass(frozen=True, slots=True)
class Inference:
    """The type of the values seen so far.

    Attributes:
        kind: Their type; ``unknown`` if all were NULL.
        exact: For integers, whether a double can hold each of them exactly.
        odd: For text, a value that didn't fit the type of the others, if there is one. For doubles, one that Excel may
            have shortened.
        digits: For numbers, the maximum number of digits.
        fraction: For numbers, the maximum number of decimals; :data:`MANY` if one has an exponent.
        words: For text, the :data:`~lakegate.model.batch.MISSING_WORDS` that occur.
        long: For text, whether all values are numbers, some of which a double would round.
        beyond_int: For integers, whether one needs more than 32 bits.
        flags: Whether all values are among the words that Spark reads as booleans.
        whole: For doubles, whether all are whole numbers, such as ``6.0``.
        plain: Whether each value is written as Spark writes it, so that its text can be told from the value.
    """

    kind: Kind = "unknown"
    exact: bool = True
    odd: str = ""
    digits: int = 0
    fraction: int = 0
    words: frozenset[str] = frozenset()
    long: bool = True
    beyond_int: bool = False
    flags: bool = True
    whole: bool = True
    plain: bool = True

    @property
    def are_numbers(self) -> bool:
        """Whether all values are numbers, including those that only a decimal can hold."""
        return self.kind in {"int64", "double"} or (self.kind == "string" and self.long)

    @property
    def arrow_type(self) -> str:
        """The Arrow type as text; ``null`` if there are no values."""
        return "null" if self.kind == "unknown" else self.kind

    def join(self, other: Inference) -> Inference:
        """Return the type that holds the values of both. Associative and commutative, so file order doesn't matter.

        Example:
            >>> Inference("int64").join(Inference("double")).kind
            'double'
            >>> Inference("int64").join(Inference("bool")).kind
            'string'
        """
        both = Inference(
            exact=self.exact and other.exact,
            digits=max(self.digits, other.digits),
            fraction=max(self.fraction, other.fraction),
            words=self.words | other.words,
            beyond_int=self.beyond_int or other.beyond_int,
            flags=self.flags and other.flags,
            long=all(one.kind == "unknown" or one.are_numbers for one in (self, other)),
            whole=self.whole and other.whole,
            plain=False,
        )
        kinds = {self.kind, other.kind} - {"unknown"}
        kind: Kind = "string"
        if len(kinds) <= 1:
            kind, both = next(iter(kinds), "unknown"), replace(both, plain=self.plain and other.plain)
        elif kinds == {"int64", "double"} and self.exact and other.exact:
            kind = "double"
        elif kinds == {"date32[day]", "timestamp[us]"}:
            kind = "timestamp[us]"
        return replace(
            both, kind=kind, odd=min((one.odd for one in (self, other) if one.odd and one.kind == kind), default="")
        )


def infer(values: Any, so_far: Inference) -> Inference:
    """Return the type that holds ``values`` and the values seen so far.

    Args:
        values: Text of one column, as an Arrow string array, with NULL instead of empty strings.
        so_far: The type inferred from earlier values, which is also the first guess.

    Example:
        >>> infer(pa.array(["1", None, "2.5"]), Inference()).kind, infer(pa.array(["00501"]), Inference()).kind
        ('double', 'string')
    """
    given, values = values, _without_missing_words(values)
    words = so_far.words if values is given else so_far.words | _missing_words(given)
    plain = so_far.plain and not words
    so_far = replace(so_far, words=words, flags=so_far.flags and _are_flags(values), plain=plain)
    if values.null_count == len(values) or (so_far.kind == "string" and not so_far.long):
        return so_far
    if so_far.kind == "string":
        return so_far.join(_as_long(values))
    texts = _Texts(values)
    expected = so_far.kind if so_far.kind != "unknown" else _guess(values)
    for kind in _PROMOTIONS.get(expected, ()):
        found = _CHECKS[kind](texts)
        if found is not None:
            return so_far.join(found)
    found = _as_long(values)
    return so_far.join(replace(found, odd="" if found.long else _odd(values, expected)))


def _as_long(values: Any) -> Inference:
    """Return the inference for text that may be numbers of any length."""
    if not pc.all(pc.match_substring_regex(values, _LONG_NUMBER)).as_py():
        return Inference("string", long=False)
    points = np.asarray(pc.find_substring(values, ".").fill_null(-1))
    lengths = np.asarray(pc.binary_length(values).fill_null(0))
    fraction = int(np.where(points >= 0, lengths - points - 1, 0).max())
    return Inference("string", digits=int((lengths - (points >= 0)).max()), fraction=fraction)


def _are_flags(values: Any) -> bool:
    texts = values.drop_null()
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    return longest <= len("false") and pc.all(pc.is_in(pc.ascii_lower(texts), value_set=_FLAGS)).as_py() is not False


def _missing_words(values: Any) -> frozenset[str]:
    found = pc.unique(values.filter(pc.is_in(values, value_set=_MISSING)))
    return frozenset(found.to_pylist())


def _odd(values: Any, expected: Kind) -> str:
    """Return the first value that isn't of the type that's expected or that most have, or that looks like it may be."""
    first: str = next(value.as_py() for value in values if value.is_valid)
    if _NUMBER_OR_DATE.fullmatch(first) is None:
        expected = _most(values) if expected == "string" else expected
    pattern = next((pattern for kind, pattern in _LOOKS_LIKE if kind == expected), None)
    if pattern is not None:
        fits = _fit(values, pattern)
        if expected.startswith(("date", "timestamp")):
            fits = pc.and_(fits, pc.invert(pc.match_substring_regex(values, FINE_TIME)))
        if expected == "double":
            fits = pc.and_(fits, pc.invert(pc.match_substring_regex(values, TOO_LARGE)))
        others = values.filter(pc.invert(fits))
        if len(others):
            return str(others[0])
    is_amount = _AMOUNT.search(first) and any(re.fullmatch(accounting(mark), first) for mark in ".,")
    return first if is_amount or _NUMBER_OR_DATE.fullmatch(first) else ""


def _fit(values: Any, pattern: re.Pattern[str]) -> Any:
    ignores_case = bool(pattern.flags & re.IGNORECASE)
    return pc.match_substring_regex(values, f"^(?:{pattern.pattern})$", ignore_case=ignores_case)


def _most(values: Any) -> Kind:
    """Return the type of most values; ``string`` if they have no other, or wouldn't have it without the rest."""
    for kind, pattern in _LOOKS_LIKE:
        some = values.filter(_fit(values, pattern))
        if 2 * len(some) > len(values) - values.null_count:
            checks = (_CHECKS[promoted] for promoted in _PROMOTIONS[kind])
            if any(check(_Texts(some)) is not None for check in checks):
                return kind
    return "string"


_GIVEN: Mapping[str, tuple[str, frozenset[str]]] = {
    "string": ("string", frozenset(_PROMOTIONS) | {"string"}),
    "long": ("int64", frozenset({"int64"})),
    "double": ("double", frozenset({"int64", "double"})),
    "boolean": ("bool", frozenset({"bool"})),
    "date": ("date32[day]", frozenset({"date32[day]"})),
    "timestamp": ("timestamp[us]", frozenset({"date32[day]", "timestamp[us]"})),
    "timestamptz": ("timestamp[us, tz=UTC]", frozenset({"timestamp[us, tz=UTC]"})),
}
_MOST_DIGITS = 38
_GIVEN_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def arrow_type(column: str, given: str, found: Inference) -> str:
    """Return the Arrow type, as text, of a column whose type was given.

    Args:
        given: The type, such as ``string``, ``long`` or ``decimal(10, 2)``.
        found: The type inferred from its values.

    Raises:
        SchemaError: When ``given`` isn't a type, or the values don't fit it.
    """
    decimal = _GIVEN_DECIMAL.fullmatch(given.lower().strip())
    arrow, takes = _GIVEN.get(given.lower().strip(), ("", frozenset()))
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        if not scale <= precision <= _MOST_DIGITS or not precision:
            raise SchemaError(
                f"'{given}' isn't a type for column '{column}'.",
                hint=f"A decimal(P, S) has 1 to {_MOST_DIGITS} digits, S of them after the decimal point.",
                column=column,
            )
        arrow, takes = f"decimal128({precision}, {scale})", frozenset({"int64", "double"})
        takes |= {"string"} if found.are_numbers else set()
        if found.kind in takes and found.fraction > scale:
            raise SchemaError(
                f"You set the type of column '{column}' to {given}, but it has values with {_digits(found.fraction)}.",
                hint="Nothing was ingested. Set a type that doesn't round them.",
                column=column,
            )
    if not arrow:
        raise SchemaError(
            f"'{given}' isn't a type for column '{column}'.",
            hint=f"Types are {', '.join(_GIVEN)} and decimal(P, S).",
            column=column,
        )
    if arrow == "double" and found.kind == "int64" and not found.exact:
        raise SchemaError(
            f"You set the type of column '{column}' to {given}, which would round its integers beyond 2^53.",
            hint=f"Set a type that doesn't round them, such as --types {column}=long.",
            column=column,
        )
    if arrow.endswith("tz=UTC]") and found.kind in {"date32[day]", "timestamp[us]"}:
        raise SchemaError(
            f"You set the type of column '{column}' to {given}, but its times have no zone.",
            hint="Pass the zone that they are in with --timezone, and leave out the type.",
            column=column,
        )
    is_allowed = (arrow == "bool" and found.flags) or (arrow == "int64" and found.kind == "double" and found.whole)
    if found.kind not in takes | {"unknown"} and not is_allowed:
        raise SchemaError(
            f"You set the type of column '{column}' to {given}, but its values are {found.kind}.",
            hint="Nothing was ingested. Correct the values, set another type, or pass the words for NULL with "
            "--null-value.",
            detail=f"One of them is '{found.odd.strip()[:40]}'." if found.odd else None,
            column=column,
        )
    return arrow


def _digits(fraction: int) -> str:
    return "exponents" if fraction == MANY else f"{fraction} digits after the decimal point"


def rewritten(values: Any, options: CsvOptions, rules: Sequence[TimeRewrite] = ()) -> Any:
    """Rewrite strings in SQL's notation: dates and times by ``rules``, numbers by ``options``.

    With a decimal comma, a value with a decimal point isn't a number. Appending a space keeps it from becoming one.

    Example:
        >>> rewritten(pa.array(["1.234,5", "7", "1.5"]), CsvOptions(decimal=",")).to_pylist()
        ['1234.5', '7', '1.5 ']
        >>> rewritten(pa.array(["1,234.50", "7-", "($3)"]), CsvOptions(numbers="accounting")).to_pylist()
        ['1234.50', '-7', '-3']
    """
    for rule in rules:
        fits = pc.match_substring_regex(values, rule.pattern)
        if pc.any(fits).as_py():
            made = pc.replace_substring_regex(values, rule.pattern, rule.replacement("\\"))
            made = pc.replace_substring_regex(made, LONE_DIGIT, r"0\1")
            values = pc.if_else(fits, made, values)
    if options.number is not None:
        fits = pc.match_substring_regex(values, options.number)
        digits = pc.replace_substring_regex(values, f"[^0-9+{options.decimal}]", "")
        sign = pc.if_else(pc.match_substring_regex(values, "[-(]"), "-", "")
        made = pc.replace_substring(pc.binary_join_element_wise(sign, digits, ""), ",", ".")
        if options.decimal == ",":
            other = pc.binary_join_element_wise(values, pa.scalar(" "), "")
            ambiguous = pc.match_substring_regex(values, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$")
            values = pc.if_else(fits, made, pc.if_else(ambiguous, other, values))
        else:
            values = pc.if_else(fits, made, values)
    return values


def _without_missing_words(values: Any) -> Any:
    missing = pc.is_in(values, value_set=_MISSING)
    return pc.if_else(missing, pa.scalar(None, values.type), values) if pc.any(missing).as_py() else values


class _Texts:
    """A string array whose bytes NumPy can access."""

    def __init__(self, array: Any) -> None:
        self.array = array
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
        self._starts = ends[:-1]
        self._data = np.frombuffer(data, dtype=np.uint8)
        self.lengths: npt.NDArray[np.int32] = np.diff(ends)
        # A value that was replaced by NULL still has its bytes.
        valid = np.asarray(array.is_valid())
        self.present: npt.NDArray[np.bool_] = (self.lengths > 0) & valid

    def byte(self, index: int) -> npt.NDArray[np.uint8]:
        """Return the byte at ``index`` of each string, 0 if it's shorter. A negative index counts from the end."""
        lengths = self.lengths
        at = self._starts + (index if index >= 0 else lengths + index)
        reached = lengths > index if index >= 0 else lengths >= -index
        return np.where(reached, self._data[np.clip(at, 0, self._data.size - 1)], 0).astype(np.uint8)

    def cast(self, to: pa.DataType) -> Any:
        """Cast the values to ``to``; return ``None`` if one can't be cast."""
        try:
            return pc.cast(self.array, to)
        except pa.ArrowInvalid:
            return None

    def has_padded_number(self) -> bool:
        """Return whether a string starts with ``+``, or with a zero before a digit or ``x``, as identifiers do."""
        first, second = self.byte(0), self.byte(1)
        negative = first == _MINUS
        if not (negative.any() or (first == _ZERO).any() or (first == _PLUS).any()):
            return False
        leading = np.where(negative, second, first)
        following = np.where(negative, self.byte(2), second)
        # `.`, `e` and `E` may follow a zero, but not digits or the x of hexadecimal numbers.
        padded = (leading == _ZERO) & (((following >= _ZERO) & (following <= _NINE)) | (following | 32 == ord("x")))
        return bool((padded | (leading == _PLUS)).any())


def _guess(values: Any) -> Kind:
    first: str = next(value.as_py() for value in values if value.is_valid)
    return next((kind for kind, pattern in _LOOKS_LIKE if pattern.fullmatch(first)), "string")


def _as_bool(texts: _Texts) -> Inference | None:
    # Arrow parses 0 and 1 as booleans, Spark doesn't.
    shortest = len("true")
    if (texts.lengths[texts.present] < shortest).any():
        return None
    if texts.cast(pa.bool_()) is None:
        return None
    return Inference("bool", plain=pc.all(pc.equal(pc.ascii_lower(texts.array), texts.array)).as_py() is not False)


def _as_int(texts: _Texts) -> Inference | None:
    numbers = texts.cast(pa.int64())
    if numbers is None or texts.has_padded_number():
        return None
    is_negative_zero = (texts.byte(0) == _MINUS) & (texts.byte(1) == _ZERO)
    return replace(whole_numbers(numbers), plain=not is_negative_zero.any())


def whole_numbers(numbers: Any) -> Inference:
    """Return the inference for an Arrow array of integers.

    Example:
        >>> whole_numbers(pa.array([-12, None])).digits, whole_numbers(pa.nulls(1, pa.int64())).kind
        (2, 'unknown')
    """
    bounds = pc.min_max(numbers)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is None:
        return Inference()
    largest, beyond_int = max(-low, high), low < -_INTS or high >= _INTS
    return Inference("int64", exact=largest < INEXACT_IN_DOUBLE, digits=len(str(largest)), beyond_int=beyond_int)


def _as_double(texts: _Texts) -> Inference | None:
    numbers = texts.cast(pa.float64())
    if numbers is None or texts.has_padded_number():
        return None
    filled = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    finite = np.isfinite(filled)
    if not finite.all():
        spelled = texts.array.filter(pa.array(~finite))
        if not pc.all(pc.is_in(spelled, value_set=_NON_FINITE)).as_py():
            return None
    large = np.abs(filled) >= INEXACT_IN_DOUBLE
    if large.any():
        spelled_out = pc.match_substring_regex(texts.array.filter(pa.array(large)), r"^-?[0-9.]+$")
        if pc.any(spelled_out).as_py():
            return None
    points = np.asarray(pc.find_substring(texts.array, ".").fill_null(-1))
    fraction = int(np.where(points >= 0, texts.lengths - points - 1, 0).max())
    has_exponent = pc.any(pc.match_substring_regex(texts.array, "[0-9][eE]")).as_py()
    # The decimal point doesn't count as a digit. A sign, or a zero before the point, may.
    digits = int((texts.lengths - (points >= 0)).max())
    plain = not has_exponent and _are_plain(texts, filled, points)
    fraction = MANY if has_exponent else fraction
    whole = not has_exponent and bool((finite & (np.trunc(filled) == filled)).all())
    odd = _shortened(texts.array) if has_exponent else ""
    return Inference("double", odd=odd, digits=digits, fraction=fraction, plain=plain, whole=whole)


def _shortened(values: Any) -> str:
    """Return the first number that Excel may have shortened."""
    found = values.filter(pc.match_substring_regex(values, SHORTENED))
    return str(found[0]) if len(found) else ""


def _are_plain(texts: _Texts, numbers: npt.NDArray[np.float64], points: npt.NDArray[np.int32]) -> bool:
    """Return whether Spark writes all doubles, none of which has an exponent, with the same text."""
    sizes, present = np.abs(numbers), texts.present
    fractions = texts.lengths - points - 1
    has_point = (points > (texts.byte(0) == _MINUS)) & (fractions > 0)
    is_shortest = (fractions == 1) | (texts.byte(-1) != _ZERO)
    has_no_exponent = (sizes == 0) & (fractions == 1) | (sizes >= _PLAIN_DOUBLES[0]) & (sizes < _PLAIN_DOUBLES[1])
    is_exact = texts.lengths <= _EXACT_TEXT
    return bool((has_point & is_shortest & has_no_exponent & is_exact)[present].all())


def _as_date(texts: _Texts) -> Inference | None:
    days = texts.cast(pa.date32())
    if days is None or not _in_calendar(days.cast(pa.int32()), _FIRST_DAY, _LAST_DAY):
        return None
    return Inference("date32[day]")


def _as_naive(texts: _Texts) -> Inference | None:
    if _cast_time(texts, _NAIVE) is None:
        return None
    has_seconds = (texts.lengths == _SECOND_TEXT) & (texts.byte(10) == _SPACE)
    return Inference("timestamp[us]", plain=bool(has_seconds[texts.present].all()))


def _as_instant(texts: _Texts) -> Inference | None:
    # Spark requires seconds before a zone: it doesn't parse 2024-01-31T07:05Z as a timestamp.
    if (texts.byte(16)[texts.present] != _COLON).any() or _cast_time(texts, _INSTANT) is None:
        return None
    if (texts.byte(-1)[texts.present] != _Z).any():
        wide = pc.match_substring_regex(texts.array, _WIDE_OFFSET)
        if pc.any(wide).as_py():
            return None
    return Inference("timestamp[us, tz=UTC]", plain=False)


def _cast_time(texts: _Texts, to: pa.DataType) -> Any:
    found = texts.cast(to)
    if found is None and (texts.lengths > _MICROSECOND_TEXT).any():
        # Arrow refuses digits after the microsecond. Spark cuts them off, so they have to be zeros.
        cut = pc.replace_substring_regex(texts.array, r"(\.[0-9]{6})0{1,3}(Z|[+-].*)?$", r"\1\2")
        found = _Texts(cut).cast(to)
    if found is None or not _in_calendar(
        found.cast(pa.int64()), _FIRST_DAY * _DAY_MICROSECONDS, (_LAST_DAY + 1) * _DAY_MICROSECONDS - 1
    ):
        return None
    return found


def _in_calendar(values: Any, first: int, last: int) -> bool:
    """Return whether all values are in the years 1 to 9999. Arrow also allows others."""
    bounds = pc.min_max(values)
    return bool(first <= bounds["min"].as_py() and bounds["max"].as_py() <= last)


_CHECKS: Mapping[Kind, Callable[[_Texts], Inference | None]] = {
    "bool": _as_bool,
    "int64": _as_int,
    "double": _as_double,
    "date32[day]": _as_date,
    "timestamp[us]": _as_naive,
    "timestamp[us, tz=UTC]": _as_instant,
}
