"""A CSV file as a stream of UTF-8 bytes for the parser: decompressed, decoded and checked.

Readers disagree about what RFC 4180 leaves open, such as text after a closing quote. The stream refuses such text, so
that the engine reads exactly the rows that were checked.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from lakegate.errors import LakegateError, SourceError
from lakegate.model.batch import CsvOptions
from lakegate.sources.files import Located, shown
from lakegate.sources.inspection import is_gzip, unreadable

if TYPE_CHECKING:
    from _csv import Reader


_LONGEST_FIELD = 2**31 - 1
_LF = 10
_CR = 13
_LINE_END = re.compile(rb"\r\n?|\n")
QUOTE_HINT = (
    "Quote whole values, double the quotes inside them, and close each one. If the file uses another quote character, "
    "set the table's csv.quote."
)
ROW_HINT = "Check its quotes and line endings."
BLOCK_BYTES = 4 << 20
"""Bytes to read and parse at a time. Each row, including the header, must fit."""

_ASCII_COMPATIBLE = frozenset({"utf-8", "us-ascii"})
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(slots=True)
class QuoteScan:
    r"""Tracks the quotes in a stream of ASCII-compatible blocks.

    While quotes only enclose whole values, opening and closing quotes alternate, and a block is checked at once. A
    quote anywhere else sets ``doubtful``: then, the file must be read value by value.

    Attributes:
        quote: The byte of the quote character; ``None`` if values aren't quoted.
        is_open: Whether the stream so far ends inside quotes.
        doubtful: Whether there's a quote that neither opens nor closes a value.
        multiline: Whether a line ends inside quotes.
        line_ends: The kinds of line endings outside quotes.
        first_line_end: The kind of the first line ending, inside or outside quotes; empty before it.
        has_cr: Whether there's a CR inside quotes.

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
    first_line_end: str = ""
    has_cr: bool = False
    _last: int = _LF
    _may_touch: npt.NDArray[np.bool_] = field(init=False, repr=False)  # by byte: whether it may stand beside a quote

    def __post_init__(self) -> None:
        self._may_touch = np.zeros(256, dtype=bool)
        self._may_touch[[self.delimiter, _LF, _CR]] = True
        if self.quote is not None:
            self._may_touch[self.quote] = True

    def feed(self, block: bytes) -> None:
        """Scan the next ``block`` of the stream."""
        if not block:
            return
        if not self.first_line_end:
            self._note_first_line_end(block)
        if not self.doubtful:
            has_quotes = self.quote is not None and block.find(self.quote) >= 0
            if has_quotes or self._closed_at_end() or b"\r" in block or self._last == _CR:
                self._feed_slowly(np.frombuffer(block, dtype=np.uint8))
            elif b"\n" in block:
                self.multiline |= self.is_open
                if not self.is_open:
                    self.line_ends.add("\n")
        self._last = block[-1]

    def _note_first_line_end(self, block: bytes) -> None:
        if self._last == _CR:
            self.first_line_end = "\r\n" if block[0] == _LF else "\r"
            return
        found = _LINE_END.search(block)
        # A CR at the end of the block is handled with the next block.
        if found is not None and (found[0] != b"\r" or found.end() < len(block)):
            self.first_line_end = found[0].decode()

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
        self.has_cr |= bool((block[ends[inside]] == _CR).any())
        outside = ends[~inside]
        after_cr = np.where(outside > 0, block[outside - 1], self._last) == _CR
        is_lf = block[outside] == _LF
        if (is_lf & after_cr).any():
            self.line_ends.add("\r\n")
        if (is_lf & ~after_cr).any():
            self.line_ends.add("\n")
        # A CR at the end of the block is handled with the next block.
        carriage = outside[~is_lf]
        if (block[carriage[carriage < block.size - 1] + 1] != _LF).any() or (
            self._last == _CR and not self.is_open and block[0] != _LF
        ):
            self.line_ends.add("\r")


class CsvStream(io.RawIOBase):
    """Streams a CSV file's rows, without the header, as UTF-8.

    Args:
        options: How to read it, normalised.
        on_read: Called with the number of (compressed) bytes of the file after each block.

    Attributes:
        next_line: The line after the first row.
        has_data: Whether anything but line endings may follow the header.
        failure: The error that stopped reading. The parser may replace the exception with its own.
        scan: The quotes and line endings so far.

    Raises:
        SourceError: From any read, when the file is unreadable; it names the file and the line.
    """

    def __init__(self, file: Located, options: CsvOptions, on_read: Callable[[int], None]) -> None:
        super().__init__()
        self._file = file
        self._path = shown(file.path)
        self._options = options
        self._on_read = on_read
        self._raw = file.open()
        self._source = cast("BinaryIO", gzip.GzipFile(fileobj=self._raw)) if is_gzip(file.name) else self._raw
        self._decoder = codecs.getincrementaldecoder(options.encoding)()
        self._position = 0
        self._lines = 0
        self._pending = b""
        self._at_start = True
        self.has_data = False
        self.failure: LakegateError | None = None
        self.scan = QuoteScan(ord(options.delimiter), ord(options.quote) if options.quote else None)
        self.columns = self._take_header()

    def readable(self) -> bool:
        """Return ``True``: the stream is readable."""
        return True

    def close(self) -> None:
        """Close the file. Idempotent."""
        if not self.closed:
            self._source.close()
            self._raw.close()
        super().close()

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes of rows; nothing at the end."""
        if not self._pending:
            self._pending = self._next_block()
        wanted = size if size >= 0 else len(self._pending)
        block, self._pending = self._pending[:wanted], self._pending[wanted:]
        return block

    def _take_header(self) -> tuple[str, ...]:
        """Read the first row, and consume it if it's a header."""
        self._pending = self._next_block()
        text = self._pending.decode("utf-8", "ignore")  # a character cut off at the block's end isn't in the header
        lines = io.StringIO(text, newline="")
        reader = csv_reader(lines, self._options)
        try:
            row: list[str] = next((row for row in reader if row), [])
        except csv.Error as error:
            raise self._fail(
                f"'{self._path}', line {reader.line_num}: the header's quotes don't match ({error}).", QUOTE_HINT
            ) from error
        if self._options.header:
            if lines.tell() == len(text) and len(self._pending) >= BLOCK_BYTES:
                raise self._fail(f"'{self._path}' has no end of line in its first {BLOCK_BYTES:,} bytes.", ROW_HINT)
            self._pending = self._pending[len(text[: lines.tell()].encode()) :]
        self.next_line = lines.readline()
        self.has_data = bool(self._pending.strip(b"\r\n")) or len(self._pending) >= BLOCK_BYTES // 2
        if not row:
            raise self._fail(f"'{self._path}' has no line of text.", "Write it again, or exclude it.")
        return tuple(row) if self._options.header else tuple(f"_c{index}" for index in range(len(row)))

    def _next_block(self) -> bytes:
        if self.failure is not None:
            raise self.failure
        block = b""
        while not block:  # the decoder may buffer a whole block
            raw = self._read_source()
            block = self._to_utf8(raw)
            if not raw:
                break
        if self._at_start:
            block = block.removeprefix(codecs.BOM_UTF8)
            self._at_start = False
        self._require_text(block)
        self.scan.feed(block)
        self._lines += block.count(b"\n")
        return block

    def _read_source(self) -> bytes:
        try:
            raw = self._source.read(BLOCK_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._fail(f"'{self._path}' is damaged gzip ({error}).", "Copy or compress it again.") from error
        except LakegateError as error:
            self.failure = error
            raise
        except OSError as error:
            self.failure = unreadable(self._path, error)
            raise self.failure from error
        position = self._raw.tell()
        self._on_read(position - self._position)
        self._position = position
        return raw

    def _to_utf8(self, raw: bytes) -> bytes:
        if raw.isascii() and self._options.encoding in _ASCII_COMPATIBLE and not self._decoder.getstate()[0]:
            return raw
        try:
            text = self._decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            raise self._wrong_encoding(raw, error) from error
        except UnicodeError as error:  # no byte order mark
            raise self._fail(
                f"'{self._path}' isn't {self._options.encoding}: {error}.",
                "Pass its encoding, such as --encoding utf-16le or --encoding utf-16be.",
            ) from error
        return raw if self._options.encoding in _ASCII_COMPATIBLE else text.encode()

    def _wrong_encoding(self, raw: bytes, error: UnicodeDecodeError) -> SourceError:
        line = self._lines + raw[: error.start].count(b"\n") + 1
        if self._lines == 0 and raw.startswith(_UTF16_MARKS):
            hint = "It looks like UTF-16: pass --encoding utf-16."
        elif self._options.encoding in _ASCII_COMPATIBLE:
            hint = "Pass its encoding, for example --encoding windows-1252 or --encoding latin-1."
        else:
            hint = "Pass its encoding with --encoding."
        byte = error.object[error.start]
        return self._fail(
            f"'{self._path}' isn't {self._options.encoding}: byte 0x{byte:02x} on line {line} ({error.reason}).", hint
        )

    def _require_text(self, block: bytes) -> None:
        at = block.find(b"\0")
        if at < 0:
            return
        line = self._lines + block.count(b"\n", 0, at) + 1
        looks_wide = self._lines == 0 and at < 4  # the first character or two
        raise self._fail(
            f"'{self._path}' isn't text: it has a NUL byte (line {line}).",
            "It looks like UTF-16: pass --encoding utf-16le or utf-16be." if looks_wide else "Copy or write it again.",
        )

    def _fail(self, message: str, hint: str) -> SourceError:
        self.failure = SourceError(message, hint=hint, path=self._path)
        return self.failure


def csv_reader(lines: Iterable[str], options: CsvOptions) -> Reader:
    """Return Python's own CSV reader, in strict mode, for ``lines`` opened with ``newline=""``."""
    csv.field_size_limit(_LONGEST_FIELD)  # of the whole process; by default, 131,072 characters
    if not options.quote:
        return csv.reader(lines, delimiter=options.delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=options.delimiter, quotechar=options.quote, doublequote=True, strict=True)
