"""Deletion vectors: read by the place that the manifest names, and compared with their checksums.

PyIceberg goes by the footer of a Puffin file and compares nothing, so that one flipped bit brings deleted rows back,
takes others away, or keeps it busy for minutes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.manifest import DataFile, FileFormat

from lakegate.iceberg.manifests import only_target, vector_place
from lakegate.model.maintenance import DeletionVector

if TYPE_CHECKING:
    from pyroaring import BitMap64

_MAGIC: Final = bytes.fromhex("d1d33964")
_LENGTH_BYTES: Final = 4
_CHECKSUM_BYTES: Final = 4


def is_vector(delete: DataFile) -> bool:
    """Return whether an entry with deletes is a deletion vector."""
    return bool(delete.file_format == FileFormat.PUFFIN)


def vector_of(delete: DataFile) -> DeletionVector:
    """Return the deletion vector that an entry (:func:`~lakegate.iceberg.manifests.read_manifest`) describes.

    Raises:
        ValueError: When the entry doesn't say whose rows it deletes, or where the vector is in its file.
    """
    target, (offset, length) = only_target(delete), vector_place(delete)
    if target is None or offset is None or length is None or offset < 0 or length < 0:
        raise ValueError(f"a deletion vector's entry lacks its data file or its place: {delete.file_path}")
    return DeletionVector(delete.file_path, target, offset, length, delete.record_count)


def by_data_file(deletes: Iterable[DataFile]) -> Mapping[str, DeletionVector]:
    """Return the deletion vectors among ``deletes`` by the data file whose rows they delete.

    Raises:
        ValueError: When a data file has two: nobody knows which rows it has.
    """
    found: dict[str, DeletionVector] = {}
    for vector in map(vector_of, filter(is_vector, deletes)):
        if found.setdefault(vector.target, vector) != vector:
            raise ValueError(f"it has two deletion vectors for data file {vector.target}")
    return found


def positions(vector: DeletionVector, opened: Callable[[str], AbstractContextManager[Any]]) -> BitMap64:
    """Return the places of the rows that a deletion vector deletes.

    Raises:
        OSError: When its file is missing or can't be read.
        ValueError: When it isn't whole, isn't what its checksum says, or has another number of rows than its entry.
    """
    from pyroaring import BitMap64

    with opened(vector.path) as stream:
        stream.seek(vector.offset)
        blob: bytes = stream.read(vector.length)
    content = blob[_LENGTH_BYTES:-_CHECKSUM_BYTES]
    if len(blob) < vector.length or int.from_bytes(blob[:_LENGTH_BYTES], "big") != len(content):
        raise ValueError("the deletion vector isn't where the manifest says, or isn't whole")
    if not content.startswith(_MAGIC) or zlib.crc32(content) != int.from_bytes(blob[-_CHECKSUM_BYTES:], "big"):
        raise ValueError("the deletion vector isn't what its checksum says")
    found = BitMap64.deserialize(content[len(_MAGIC) :])
    if len(found) != vector.rows:
        raise ValueError(f"the deletion vector deletes {len(found):,} rows, not {vector.rows:,}")
    return found
