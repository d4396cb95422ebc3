"""Quotes and line ends of a CSV stream, checked in bulk (RFC 4180, section 2).

Readers disagree on what RFC 4180 leaves open, such as text after a closing quote. What they disagree on must not get
through, or the rows that were checked are not the rows that the engine reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

_LF = 10
_CR = 13


@dataclass(slots=True)
class QuoteScan:
    r"""Follows the quotes through a stream of ASCII-compatible blocks.

    As long as quotes stand only around whole values, every other one opens, and all of a block's can be checked at
    once. ``doubtful`` is set when one stands elsewhere: then only reading value by value can tell.

    Attributes:
        delimiter: The delimiter's byte.
        quote: The quote's byte; ``None`` when nothing is quoted.
        is_open: Whether the stream, as far as it was fed, ends inside quotes.
        doubtful: Whether a quote stands where it neither opens nor closes a value.
        multiline: Whether a line ends inside quotes.
        line_ends: The kinds of line ends seen outside quotes.

    Example:
        >>> scan = QuoteScan(ord(","), ord('"'))
        >>> scan.feed(b'a,b\n1,"x\ny"\n')
        >>> scan.multiline, scan.is_open, scan.doubtful, scan.line_ends
        (True, False, False, {'\n'})
    """

    delimiter: int
    quote: int | None
    is_open: bool = False
    doubtful: bool = False
    multiline: bool = False
    line_ends: set[str] = field(default_factory=set)
    _last: int = _LF
    _may_touch: npt.NDArray[np.bool_] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._may_touch = np.zeros(256, dtype=bool)
        self._may_touch[[self.delimiter, _LF, _CR]] = True
        if self.quote is not None:
            self._may_touch[self.quote] = True

    def feed(self, block: bytes) -> None:
        """Look at the next ``block`` of the stream."""
        if self.doubtful or not block:
            return
        has_quotes = self.quote is not None and block.find(self.quote) >= 0
        if has_quotes or self._closed_at_end() or b"\r" in block or self._last == _CR:
            self._feed_slowly(np.frombuffer(block, dtype=np.uint8))
        elif b"\n" in block:
            self.multiline |= self.is_open
            if not self.is_open:
                self.line_ends.add("\n")
        self._last = block[-1]

    def _closed_at_end(self) -> bool:
        return self._last == self.quote and not self.is_open

    def _feed_slowly(self, block: npt.NDArray[np.uint8]) -> None:
        quotes = np.flatnonzero(block == self.quote) if self.quote is not None else np.empty(0, dtype=np.int64)
        opening, closing = quotes[int(self.is_open) :: 2], quotes[int(not self.is_open) :: 2]
        before = np.where(opening > 0, block[opening - 1], self._last)
        after = block[closing[closing < block.size - 1] + 1]
        if (
            (self._closed_at_end() and not self._may_touch[block[0]])
            or not self._may_touch[before].all()
            or not self._may_touch[after].all()
        ):
            self.doubtful = True
            return
        self._note_line_ends(block, quotes)
        self.is_open ^= bool(quotes.size % 2)

    def _note_line_ends(self, block: npt.NDArray[np.uint8], quotes: npt.NDArray[np.int64]) -> None:
        ends = np.flatnonzero((block == _LF) | (block == _CR))
        inside = (np.searchsorted(quotes, ends) + int(self.is_open)) % 2 == 1
        self.multiline |= bool(inside.any())
        outside = ends[~inside]
        after_cr = np.where(outside > 0, block[outside - 1], self._last) == _CR
        is_lf = block[outside] == _LF
        if (is_lf & after_cr).any():
            self.line_ends.add("\r\n")
        if (is_lf & ~after_cr).any():
            self.line_ends.add("\n")
        # a CR that ends the block counts with the next one
        carriage = outside[~is_lf]
        if (block[carriage[carriage < block.size - 1] + 1] != _LF).any() or (
            self._last == _CR and not self.is_open and block[0] != _LF
        ):
            self.line_ends.add("\r")
