"""Read deletion vectors at the offset in their manifest entry, and verify their checksums.

PyIceberg goes by a Puffin file's footer and verifies nothing: a single flipped bit could bring deleted rows back, hide
others, or keep it busy for minutes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.manifest import DataFile, FileFormat

from lakegate.iceberg.manifests import target_data_file, vector_span
from lakegate.model.maintenance import DeletionVector

if TYPE_CHECKING:
    from pyroaring import BitMap64

_MAGIC: Final = bytes.fromhex("d1d33964")
_LENGTH_BYTES: Final = 4
_CHECKSUM_BYTES: Final = 4


def is_vector(delete: DataFile) -> bool:
    """Return whether a delete file's entry is a deletion vector."""
    return bool(delete.file_format == FileFormat.PUFFIN)


def to_deletion_vector(delete: DataFile) -> DeletionVector:
    """Return the deletion vector that an entry (:func:`~lakegate.iceberg.manifests.read_manifest`) describes.

    Raises:
        ValueError: When the entry lacks the data file, or the vector's offset or length.
    """
    target, (offset, length) = target_data_file(delete), vector_span(delete)
    if target is None or offset is None or length is None or offset < 0 or length < 0:
        raise ValueError(f"a deletion vector's entry lacks its data file, offset or length: {delete.file_path}")
    return DeletionVector(delete.file_path, target, offset, length, delete.record_count)


def vectors_by_data_file(deletes: Iterable[DataFile]) -> Mapping[str, DeletionVector]:
    """Return the deletion vectors among ``deletes``, keyed by their data file.

    Raises:
        ValueError: When a data file has two, so that its rows are unknown.
    """
    found: dict[str, DeletionVector] = {}
    for vector in map(to_deletion_vector, filter(is_vector, deletes)):
        if found.setdefault(vector.target, vector) != vector:
            raise ValueError(f"there are two deletion vectors for data file {vector.target}")
    return found


def deleted_positions(vector: DeletionVector, opened: Callable[[str], AbstractContextManager[Any]]) -> BitMap64:
    """Return the positions of the rows that a deletion vector deletes.

    Raises:
        OSError: When its file is missing or can't be read.
        ValueError: When it's truncated, fails its checksum, or deletes another number of rows than its entry says.
    """
    from pyroaring import BitMap64

    with opened(vector.path) as stream:
        stream.seek(vector.offset)
        blob: bytes = stream.read(vector.length)
    content = blob[_LENGTH_BYTES:-_CHECKSUM_BYTES]
    if len(blob) < vector.length or int.from_bytes(blob[:_LENGTH_BYTES], "big") != len(content):
        raise ValueError("the deletion vector isn't at its offset, or is truncated")
    if not content.startswith(_MAGIC) or zlib.crc32(content) != int.from_bytes(blob[-_CHECKSUM_BYTES:], "big"):
        raise ValueError("the deletion vector doesn't match its checksum")
    found = BitMap64.deserialize(content[len(_MAGIC) :])
    if len(found) != vector.rows:
        raise ValueError(f"the deletion vector deletes {len(found):,} rows, not {vector.rows:,}")
    return found
