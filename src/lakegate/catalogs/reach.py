"""What a table's metadata reaches: every file that some snapshot in it needs (Iceberg spec, "Table Metadata").

The metadata file is read as plain JSON: only a few of its paths matter here, and it may hold thousands of snapshots.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json
from pyiceberg.avro.file import AvroFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    read_manifest_list,
)

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_GZIP_MAGIC = b"\x1f\x8b"


def reached_from(metadata_location: str, io: FileIO, walked: set[str]) -> Iterator[str]:
    """Yield the location of every file that the table metadata at ``metadata_location`` needs, itself included.

    These are, for all its snapshots, the manifest lists, the manifests, and their live data and delete files; and the
    table's statistics files. The files of the metadata log are not: nothing is read through them.

    Args:
        metadata_location: A metadata file, compressed or not.
        io: Reads it and what it names.
        walked: Metadata files, manifest lists and manifests whose files were yielded before; they are left out, and
            the ones walked to their end now are added.

    Raises:
        OSError: When a file is missing or cannot be read.
        Exception: Whatever the parsers raise about a damaged one.
    """
    if metadata_location in walked:
        return
    with io.new_input(metadata_location).open() as stream:
        content = stream.read()
    metadata = from_json(gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content)
    del content
    # Raises now what is not table metadata, before it looks as if it reached nothing.
    if not isinstance(metadata["table-uuid"], str):
        raise TypeError("table-uuid is not text")
    for snapshot in metadata.get("snapshots") or ():
        yield from _from_snapshot(snapshot, io, walked)
    for statistics in (*(metadata.get("statistics") or ()), *(metadata.get("partition-statistics") or ())):
        yield statistics["statistics-path"]
    yield metadata_location
    walked.add(metadata_location)


def _from_snapshot(snapshot: dict[str, Any], io: FileIO, walked: set[str]) -> Iterator[str]:
    # Version 1 may list the manifests in the snapshot itself.
    location = snapshot.get("manifest-list")
    if location is None:
        for manifest in snapshot["manifests"]:
            yield from _from_manifest(manifest, io, walked)
    elif location not in walked:
        for listed in read_manifest_list(io.new_input(location)):
            yield from _from_manifest(listed.manifest_path, io, walked)
        yield location
        walked.add(location)


def _from_manifest(location: str, io: FileIO, walked: set[str]) -> Iterator[str]:
    if location in walked:
        return
    # As ManifestFile.fetch_manifest_entry reads it, which wants a line of a manifest list and makes a list itself.
    with AvroFile[ManifestEntry](
        io.new_input(location),
        MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus},
    ) as entries:
        for entry in entries:
            if entry.status != ManifestEntryStatus.DELETED:
                yield entry.data_file.file_path
    yield location
    walked.add(location)
