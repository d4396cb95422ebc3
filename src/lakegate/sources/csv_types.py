"""Types of CSV columns, inferred over all values and whole columns at a time.

A type is inferred only when Spark's CSV reader, with its default formats, reads every value of the column as that type
and to the same value. Whatever is in doubt stays a string: nothing is lost that way.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakegate.model.batch import MISSING_WORDS

Kind = Literal["unknown", "bool", "int64", "double", "date32[day]", "timestamp[us]", "timestamp[us, tz=UTC]", "string"]

_INEXACT_IN_DOUBLE = 2**53
"""The first integer that a double can't tell from its neighbour."""
_MISSING = pa.array(MISSING_WORDS)
_NON_FINITE = pa.array(["NaN", "Inf", "-Inf", "Infinity", "-Infinity"])
_INSTANT = pa.timestamp("us", tz="UTC")
_NAIVE = pa.timestamp("us")
_PLUS, _MINUS, _ZERO, _NINE, _COLON, _Z = (ord(character) for character in "+-09:Z")
_FIRST_DAY, _LAST_DAY = ((day - dt.date(1970, 1, 1)).days for day in (dt.date.min, dt.date.max))
_DAY_MICROSECONDS = 86_400_000_000
_MICROSECOND_TEXT = 26  # 2024-01-31T07:05:09.123456
# Spark takes zone offsets up to 18 hours (java.time.ZoneOffset), Arrow up to 23:59.
_WIDE_OFFSET = r"[+-](?:1[89]|2[0-9])(?::?[0-9]{2})?$"
_PROMOTIONS: Mapping[Kind, tuple[Kind, ...]] = {
    "bool": ("bool",),
    "int64": ("int64", "double"),
    "double": ("double",),
    "date32[day]": ("date32[day]", "timestamp[us]"),
    "timestamp[us]": ("timestamp[us]",),
    "timestamp[us, tz=UTC]": ("timestamp[us, tz=UTC]",),
}
# Only where to start looking: what these say is checked on all values afterwards.
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
    """What the values seen so far are.

    Attributes:
        kind: Their type; ``unknown`` when all were NULL.
        exact: For integers: whether a double holds each of them exactly.
    """

    kind: Kind = "unknown"
    exact: bool = True

    @property
    def arrow_type(self) -> str:
        """The Arrow type as text; ``null`` for a column without values."""
        return "null" if self.kind == "unknown" else self.kind

    def join(self, other: Inference) -> Inference:
        """Return what the values of both are. Associative and commutative, so files can be looked at in any order.

        Example:
            >>> Inference("int64").join(Inference("double")).kind
            'double'
            >>> Inference("int64").join(Inference("bool")).kind
            'string'
        """
        if "unknown" in {self.kind, other.kind}:
            return other if self.kind == "unknown" else self
        if self.kind == other.kind:
            return Inference(self.kind, self.exact and other.exact)
        kinds = {self.kind, other.kind}
        if kinds == {"int64", "double"} and self.exact and other.exact:
            return Inference("double")
        if kinds == {"date32[day]", "timestamp[us]"}:
            return Inference("timestamp[us]")
        return Inference("string")


def infer(values: Any, so_far: Inference) -> Inference:
    """Return what ``values`` and the values seen so far are.

    Args:
        values: Texts of one column, as an Arrow string array; NULL where the file has none, never empty.
        so_far: What was inferred from earlier values, also the first guess.

    Example:
        >>> infer(pa.array(["1", None, "2.5"]), Inference()).kind, infer(pa.array(["00501"]), Inference()).kind
        ('double', 'string')
    """
    if so_far.kind == "string":
        return so_far
    values = _without_missing_words(values)
    if values.null_count == len(values):
        return so_far
    texts = _Texts(values)
    for kind in _PROMOTIONS.get(so_far.kind if so_far.kind != "unknown" else _guess(values), ()):
        found = _CHECKS[kind](texts)
        if found is not None:
            return so_far.join(found)
    return Inference("string")


def _without_missing_words(values: Any) -> Any:
    missing = pc.is_in(values, value_set=_MISSING)
    return pc.if_else(missing, pa.scalar(None, values.type), values) if pc.any(missing).as_py() else values


class _Texts:
    """A string array with its bytes within reach of NumPy."""

    def __init__(self, array: Any) -> None:
        self.array = array
        _, offsets, data = array.buffers()
        ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
        self._starts = ends[:-1]
        self._data = np.frombuffer(data, dtype=np.uint8)
        self.lengths: npt.NDArray[np.int32] = np.diff(ends)
        self.present: npt.NDArray[np.bool_] = self.lengths > 0

    def byte(self, index: int) -> npt.NDArray[np.uint8]:
        """Return the byte at ``index`` of each text, 0 where the text is shorter; a negative index counts back."""
        lengths = self.lengths
        at = self._starts + (index if index >= 0 else lengths + index)
        reached = lengths > index if index >= 0 else lengths >= -index
        return np.where(reached, self._data[np.clip(at, 0, self._data.size - 1)], 0).astype(np.uint8)

    def cast(self, to: pa.DataType) -> Any:
        """Return the values as ``to``; ``None`` when one of them is not."""
        try:
            return pc.cast(self.array, to)
        except pa.ArrowInvalid:
            return None

    def has_padded_number(self) -> bool:
        """Return whether a text starts with ``+`` or with a zero before another digit or letter: an identifier."""
        first, second = self.byte(0), self.byte(1)
        negative = first == _MINUS
        if not (negative.any() or (first == _ZERO).any() or (first == _PLUS).any()):
            return False
        leading = np.where(negative, second, first)
        following = np.where(negative, self.byte(2), second)
        # `.`, `e` and `E` may follow a zero; digits and the x of hexadecimal numbers may not
        padded = (leading == _ZERO) & (((following >= _ZERO) & (following <= _NINE)) | (following | 32 == ord("x")))
        return bool((padded | (leading == _PLUS)).any())


def _guess(values: Any) -> Kind:
    first: str = next(value.as_py() for value in values if value.is_valid)
    return next((kind for kind, pattern in _LOOKS_LIKE if pattern.fullmatch(first)), "string")


def _as_bool(texts: _Texts) -> Inference | None:
    # Arrow takes 0 and 1 for booleans, Spark does not
    shortest = len("true")
    if (texts.lengths[texts.present] < shortest).any():
        return None
    return None if texts.cast(pa.bool_()) is None else Inference("bool")


def _as_int(texts: _Texts) -> Inference | None:
    numbers = texts.cast(pa.int64())
    if numbers is None or texts.has_padded_number():
        return None
    bounds = pc.min_max(numbers)
    largest = max(-bounds["min"].as_py(), bounds["max"].as_py())
    return Inference("int64", exact=largest < _INEXACT_IN_DOUBLE)


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
    large = np.abs(filled) >= _INEXACT_IN_DOUBLE
    if large.any():
        integers = pc.match_substring_regex(texts.array.filter(pa.array(large)), r"^-?[0-9]+$")
        if pc.any(integers).as_py():
            return None
    return Inference("double")


def _as_date(texts: _Texts) -> Inference | None:
    days = texts.cast(pa.date32())
    if days is None or not _in_calendar(days.cast(pa.int32()), _FIRST_DAY, _LAST_DAY):
        return None
    return Inference("date32[day]")


def _as_naive(texts: _Texts) -> Inference | None:
    return None if _cast_time(texts, _NAIVE) is None else Inference("timestamp[us]")


def _as_instant(texts: _Texts) -> Inference | None:
    # Spark wants seconds where a zone follows: 2024-01-31T07:05Z isn't a timestamp to it
    if (texts.byte(16)[texts.present] != _COLON).any() or _cast_time(texts, _INSTANT) is None:
        return None
    if (texts.byte(-1)[texts.present] != _Z).any():
        wide = pc.match_substring_regex(texts.array, _WIDE_OFFSET)
        if pc.any(wide).as_py():
            return None
    return Inference("timestamp[us, tz=UTC]")


def _cast_time(texts: _Texts, to: pa.DataType) -> Any:
    found = texts.cast(to)
    if found is None and (texts.lengths > _MICROSECOND_TEXT).any():
        # Spark cuts fractions after the microsecond, Arrow refuses them
        cut = pc.replace_substring_regex(texts.array, r"(\.[0-9]{6})[0-9]{1,3}", r"\1")
        found = _Texts(cut).cast(to)
    if found is None or not _in_calendar(
        found.cast(pa.int64()), _FIRST_DAY * _DAY_MICROSECONDS, (_LAST_DAY + 1) * _DAY_MICROSECONDS - 1
    ):
        return None
    return found


def _in_calendar(values: Any, first: int, last: int) -> bool:
    """Return whether all values lie in the years 1 to 9999; Arrow counts on in both directions."""
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
