"""Read from a parquet footer what Arrow can't be asked safely: how the pages are compressed.

Arrow's API for column chunks terminates the process if a chunk is encrypted or some statistics are damaged. A footer
is in Thrift's compact protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from typing import Any

CODECS = ("none", "Snappy", "gzip", "LZO", "Brotli", "LZ4", "Zstandard", "LZ4")
"""The names of parquet's codecs, by number. The first LZ4 is Hadoop's own."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = frozenset({4, 5, 6})
_LONG_FORM = 15
_ROW_GROUPS, _COLUMNS, _META_DATA, _CODEC = 4, 1, 3, 4


def codecs_of(footer: bytes) -> set[int]:
    """Return the numbers of the codecs that a file's first row group uses; nothing if its footer is damaged."""
    try:
        groups = _Compact(footer).struct(first_of=_ROW_GROUPS).get(_ROW_GROUPS) or [{}]
        chunks = groups[0].get(_COLUMNS, [])
        return {chunk[_META_DATA][_CODEC] for chunk in chunks if _META_DATA in chunk}
    except (IndexError, KeyError, ValueError):
        return set()


class _Compact:
    """Decodes structs of Thrift's compact protocol as dictionaries by field number."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, *, first_of: int | None = None) -> dict[int, Any]:
        """Decode a struct.

        Args:
            first_of: A list of which to decode only the first element. What follows it isn't decoded.
        """
        fields: dict[int, Any] = {}
        last = 0
        while (head := self._byte()) != _STOP:
            last = last + (head >> 4) if head >> 4 else self._integer()
            if last == first_of:
                fields[last] = self._list(most=1)
                break
            fields[last] = self._value(head & 15)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in {_TRUE, _FALSE}:
            return kind == _TRUE
        if kind in _INTEGERS:
            return self._integer()
        if kind in {_LIST, _SET}:
            return self._list()
        if kind == _STRUCT:
            return self.struct()
        if kind == _BYTE:
            return self._byte()
        if kind in {_DOUBLE, _BINARY}:
            size = 8 if kind == _DOUBLE else self._varint()
            self._at += size
            return None
        raise ValueError("unknown type")

    def _list(self, most: int | None = None) -> list[Any]:
        head = self._byte()
        size = head >> 4 if head >> 4 != _LONG_FORM else self._varint()
        kind = head & 15
        single = self._byte if kind in {_TRUE, _FALSE} else lambda: self._value(kind)
        return [single() for _ in range(size if most is None else min(size, most))]

    def _integer(self) -> int:
        number = self._varint()
        return (number >> 1) ^ -(number & 1)

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte
