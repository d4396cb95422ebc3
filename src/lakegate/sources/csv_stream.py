"""A CSV file as a stream of UTF-8 bytes: decompressed, decoded and checked on the way to the parser."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, cast

from lakegate.errors import StorageUnavailableError
from lakegate.model.batch import CsvOptions
from lakegate.sources.csv_quotes import QuoteScan
from lakegate.sources.formats import is_gzip
from lakegate.sources.located import Located
from lakegate.sources.paths import shown
from lakegate.sources.problems import Problem, ProblemError, unreadable

if TYPE_CHECKING:
    from _csv import Reader

BLOCK_BYTES = 4 << 20
"""Bytes read, and handed to the parser, at a time. A row, header included, must fit."""

_ASCII_COMPATIBLE = frozenset({"utf-8", "us-ascii"})
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class CsvStream(io.RawIOBase):
    """Gives a CSV file's rows, without the header, as UTF-8.

    Args:
        file: The file.
        options: How to read it, normalised.
        on_read: Called with the number of bytes of the file (compressed ones, if it is) after each block.

    Attributes:
        columns: Names of the columns.
        next_line: The line after the first row.
        has_data: Whether anything but line ends may follow the header.
        problem: Why reading failed, when the file is to blame.
        trouble: Why reading failed, when its storage is.
        scan: What was seen of quotes and line ends so far.

    Raises:
        ProblemError: From any read: what makes the file unreadable, by file and line.
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
        self.problem: Problem | None = None
        self.trouble: StorageUnavailableError | None = None
        self.scan = QuoteScan(ord(options.delimiter), ord(options.quote) if options.quote else None)
        self.columns = self._take_header()

    def readable(self) -> bool:
        """Return ``True``."""
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
        """Read the first row; keep it only when it is no header."""
        self._pending = self._next_block()
        text = self._pending.decode("utf-8", "ignore")  # a character cut at the block's end is not of the header
        lines = io.StringIO(text, newline="")
        reader = csv_reader(lines, self._options)
        try:
            row: list[str] = next((row for row in reader if row), [])
        except csv.Error as error:
            raise self._fail(
                f"'{self._path}', line {reader.line_num}: the header's quotes do not match ({error}).", QUOTE_HINT
            ) from error
        if self._options.header:
            if lines.tell() == len(text) and len(self._pending) >= BLOCK_BYTES:
                raise self._fail(f"'{self._path}' has no end of line in its first {BLOCK_BYTES:,} bytes.", ROW_HINT)
            self._pending = self._pending[len(text[: lines.tell()].encode()) :]
        self.next_line = lines.readline()
        self.has_data = bool(self._pending.strip(b"\r\n")) or len(self._pending) >= BLOCK_BYTES // 2
        if not row:
            raise self._fail(f"'{self._path}' holds no line of text.", "Write it again, or leave it out.")
        return tuple(row) if self._options.header else tuple(f"_c{index}" for index in range(len(row)))

    def _next_block(self) -> bytes:
        if self.problem is not None:
            raise ProblemError(self.problem)
        block = b""
        while not block:  # a decoder may hold a whole block back
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
        except StorageUnavailableError as error:
            self.trouble = error
            raise
        except OSError as error:
            self.problem = unreadable(self._path, error)
            raise ProblemError(self.problem) from error
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
                f"'{self._path}' is not {self._options.encoding}: {error}.",
                "Say --encoding utf-16le or --encoding utf-16be, or whatever else it is.",
            ) from error
        return raw if self._options.encoding in _ASCII_COMPATIBLE else text.encode()

    def _wrong_encoding(self, raw: bytes, error: UnicodeDecodeError) -> ProblemError:
        line = self._lines + raw[: error.start].count(b"\n") + 1
        if self._lines == 0 and raw.startswith(_UTF16_MARKS):
            hint = "It looks like UTF-16: say --encoding utf-16."
        elif self._options.encoding in _ASCII_COMPATIBLE:
            hint = "Say how it is encoded, for example --encoding windows-1252 or --encoding latin-1."
        else:
            hint = "Say how it is encoded with --encoding."
        byte = error.object[error.start]
        return self._fail(
            f"'{self._path}' is not {self._options.encoding}: byte 0x{byte:02x} in line {line} ({error.reason}).", hint
        )

    def _require_text(self, block: bytes) -> None:
        at = block.find(b"\0")
        if at < 0:
            return
        line = self._lines + block.count(b"\n", 0, at) + 1
        looks_wide = self._lines == 0 and at < 4  # noqa: PLR2004 - the first character or two
        raise self._fail(
            f"'{self._path}' is not text: it holds a NUL byte (line {line}).",
            "It looks like UTF-16: say --encoding utf-16le or utf-16be." if looks_wide else "Copy or write it again.",
        )

    def _fail(self, message: str, hint: str) -> ProblemError:
        # the parser reads in a thread of its own and may put its own words in place of an exception's
        self.problem = Problem(message, hint, self._path)
        return ProblemError(self.problem)


QUOTE_HINT = (
    "Quote whole values, double the quotes inside them, and close each one; if the quote is another character, "
    "set the table's csv.quote."
)
ROW_HINT = "Check its quotes and line ends."


def csv_reader(lines: io.TextIOBase, options: CsvOptions) -> Reader:
    """Return Python's own CSV reader, strict, over ``lines`` opened with ``newline=""``."""
    if not options.quote:
        return csv.reader(lines, delimiter=options.delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=options.delimiter, quotechar=options.quote, doublequote=True, strict=True)
