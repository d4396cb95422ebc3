"""Where a parquet footer says that each column's data lies, and which columns are encrypted.

Arrow's own view of a column chunk ends the whole process (``std::terminate``) where the chunk is encrypted, or where
one byte of some statistics is damaged. So this is read here: the footer is a struct in Thrift's compact protocol
(``parquet.thrift``; "Thrift Compact protocol encoding").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

END_BYTES = 8
"""What follows the footer: its length, and the magic bytes."""

_STOP = 0
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT, _UUID = range(1, 14)
_LONG_FORM = 15
_VARINTS = (_I32, _I64, _I16)
_FIXED = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8, _UUID: 16}
# Numbers of fields in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _META_DATA, _CRYPTO_METADATA = 4, 1, 3, 8
_PATH, _COMPRESSED_SIZE, _DATA_PAGE, _DICTIONARY_PAGE = 3, 7, 9, 11


@dataclass(frozen=True, slots=True)
class Chunk:
    """The data of one column in one row group.

    Attributes:
        column: Its path, with dots; empty when even that is encrypted.
        end: Position in the file just behind it.
        encrypted: Whether it can be read with a key only.
    """

    column: str
    end: int
    encrypted: bool


def chunks(footer: bytes) -> Iterator[Chunk]:
    """Yield all column chunks.

    Args:
        footer: The serialized ``FileMetaData``; what follows it does not matter.
    """
    try:
        yield from _Reader(footer).chunks()
    except (IndexError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError("Its columns cannot be read") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def chunks(self) -> Iterator[Chunk]:
        for number, kind in self._fields():
            if number != _ROW_GROUPS or kind != _LIST:
                self._skip(kind)
                continue
            for _ in range(self._list_of(_STRUCT)):
                yield from self._row_group()

    def _row_group(self) -> Iterator[Chunk]:
        for number, kind in self._fields():
            if number != _COLUMNS or kind != _LIST:
                self._skip(kind)
                continue
            for _ in range(self._list_of(_STRUCT)):
                yield self._chunk()

    def _chunk(self) -> Chunk:
        chunk = Chunk("", 0, encrypted=False)
        encrypted = False
        for number, kind in self._fields():
            if number == _META_DATA and kind == _STRUCT:
                chunk = self._meta_data()
                continue
            encrypted = encrypted or number == _CRYPTO_METADATA
            self._skip(kind)
        return Chunk(chunk.column, chunk.end, encrypted=True) if encrypted else chunk

    def _meta_data(self) -> Chunk:
        found = {_COMPRESSED_SIZE: 0, _DATA_PAGE: 0, _DICTIONARY_PAGE: 0}
        path: list[str] = []
        for number, kind in self._fields():
            if number == _PATH and kind == _LIST:
                path = [self._text() for _ in range(self._list_of(_BINARY))]
            elif number in found and kind == _I64:
                found[number] = self._zigzag()
            else:
                self._skip(kind)
        start = found[_DICTIONARY_PAGE] or found[_DATA_PAGE]
        return Chunk(".".join(path), start + found[_COMPRESSED_SIZE], encrypted=False)

    def _fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct; the caller takes its value before it asks for the next."""
        number = 0
        while (header := self._byte()) != _STOP:
            number = number + (header >> 4) if header >> 4 else self._zigzag()
            yield number, header & 15

    def _skip(self, kind: int) -> None:
        if kind in _VARINTS:
            self._varint()
        elif kind == _BINARY:
            self._forward(self._varint())
        elif kind in _FIXED:
            self._forward(_FIXED[kind])
        elif kind == _STRUCT:
            self._skip_struct()
        elif kind in (_LIST, _SET):
            self._skip_list(*self._list())
        elif kind == _MAP:
            self._skip_map()
        else:
            raise IndexError(kind)

    def _skip_struct(self) -> None:
        # Most of a footer is skipped here; without calls of other methods this takes a third of the time.
        data, at = self._data, self._at
        while header := data[at]:
            at += 1
            kind = header & 15
            if not header >> 4:
                while data[at] & 128:
                    at += 1
                at += 1
            if kind in _VARINTS:
                while data[at] & 128:
                    at += 1
                at += 1
            elif kind == _BINARY and data[at] < 128:  # noqa: PLR2004 - a length of one byte
                at += 1 + data[at]
            elif kind > _FALSE:
                self._at = at
                self._skip(kind)
                at = self._at
        self._at = at + 1

    def _skip_list(self, size: int, kind: int) -> None:
        if kind in _FIXED:
            self._forward(size * max(_FIXED[kind], 1))  # a boolean is a byte here
            return
        for _ in range(size):
            self._skip(kind)

    def _skip_map(self) -> None:
        size = self._varint()
        kinds = self._byte() if size else 0
        for _ in range(size):
            self._skip_list(1, kinds >> 4)
            self._skip_list(1, kinds & 15)

    def _list(self) -> tuple[int, int]:
        header = self._byte()
        size = header >> 4
        return (self._varint() if size == _LONG_FORM else size), header & 15

    def _list_of(self, wanted: int) -> int:
        size, kind = self._list()
        if kind != wanted and size:
            raise IndexError(kind)
        return size

    def _text(self) -> str:
        length = self._varint()
        self._forward(length)
        return self._data[self._at - length : self._at].decode()

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _forward(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise IndexError(self._at)

    def _varint(self) -> int:
        data, at = self._data, self._at
        byte = data[at]
        value, shift = byte & 127, 7
        while byte & 128:
            at += 1
            byte = data[at]
            value |= (byte & 127) << shift
            shift += 7
        self._at = at + 1
        return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
