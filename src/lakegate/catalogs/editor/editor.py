"""Changes of tables by their metadata alone; implements :class:`~lakegate.protocols.TableEditor`.

A replayed snapshot lists the manifests that the staged one wrote: they are taken over, not written again. Their entries
carry no sequence numbers and inherit those of the list they stand in (Iceberg spec, "Sequence Number Inheritance").
PyIceberg keeps manifests by path for all lists of a process, with the numbers of the list it met first, so its
``Snapshot.manifests`` is not used here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple
from uuid import uuid4

from pyiceberg.manifest import ManifestContent

from lakegate.catalogs.editor import metadata as documents
from lakegate.catalogs.editor.changes import NextSnapshot
from lakegate.catalogs.editor.files import TableFiles
from lakegate.catalogs.editor.fit import check_layout, check_schema, check_version, refuse
from lakegate.catalogs.editor.manifests import ListedManifest, ManifestList, no_manifests, read_list, write_list
from lakegate.catalogs.editor.metadata import Document
from lakegate.catalogs.fileio import TableFileIO
from lakegate.config import StorageSettings
from lakegate.model.refs import TablePointer

_RUN_AGAIN = "Run the write again on main as it is now."


class _Table(NamedTuple):
    """A table's state: where it stands, its metadata, and how to reach its files."""

    pointer: TablePointer
    document: Document
    files: TableFiles


class _Head(NamedTuple):
    """A table's newest snapshot and what it lists, while more are put on top of it."""

    snapshot: Document | None
    manifests: ManifestList
    sequence_number: int


class IcebergTableEditor:
    """Edits tables of format version 2 through their metadata files.

    Args:
        storage: How to reach the object stores; default: by the usual ways of their own tools.
        remembered: Number of parsed metadata files to keep; they never change once written.
    """

    def __init__(self, storage: StorageSettings | None = None, *, remembered: int = 16) -> None:
        self._io = TableFileIO(storage).writing
        self._parse = lru_cache(maxsize=remembered)(self._read_document)

    def replay(self, source: TablePointer, snapshot_ids: Sequence[int], onto: TablePointer) -> TablePointer:
        """Append to ``onto`` the data files that ``snapshot_ids`` (oldest first) appended to ``source``.

        Raises:
            NotReplayableError: When they cannot simply be appended there.
            NotFoundError: When a metadata file is missing.
            InputError: When one is damaged.
            EngineError: When one cannot be read or written just now.
        """
        staged, table = self._table(source), self._table(onto)
        for each in (staged, table):
            check_version(each.document, each.pointer)
        check_schema(staged.document, source, table.document, onto)
        head = self._head(table)
        # All is checked before anything is written.
        appends = [self._append_of(staged, table, head, snapshot_id) for snapshot_id in dict.fromkeys(snapshot_ids)]
        added: list[Document] = []
        for snapshot, own in appends:
            head = self._append(table, head, snapshot, own)
            added.append(head.snapshot or {})
        return self._commit(table, added) if added else onto

    def drop_files(self, pointer: TablePointer, paths: Collection[str], summary: Mapping[str, str]) -> TablePointer:
        """Remove exactly the data files at ``paths`` in one new snapshot (operation ``delete``).

        Args:
            pointer: The table's state.
            paths: Data files, as their manifest entries spell them; without any, the state stays as it is.
            summary: Extra entries of the snapshot's summary.

        Raises:
            NotReplayableError: When one of them is not a live data file of this state, or delete files apply to one.
            NotFoundError: When a metadata file is missing.
            InputError: When one is damaged.
            EngineError: When one cannot be read or written just now.
        """
        if not paths:
            return pointer
        table = self._table(pointer)
        check_version(table.document, pointer)
        head = self._head(table)
        following = self._next(table, head, documents.new_snapshot_id(table.document))
        kept, dropped = following.without(head.manifests.manifests, paths)
        told = {
            **summary,
            "deleted-data-files": str(len(dropped)),
            "deleted-records": str(sum(entry.file.record_count for entry in dropped)),
            "removed-files-size": str(sum(entry.file.file_size_in_bytes for entry in dropped)),
        }
        head = _listed(following, head, ManifestList(head.manifests.meta, tuple(kept)), "delete", told)
        return self._commit(table, [head.snapshot or {}])

    def trimmed(self, pointer: TablePointer, *, at_least: int = 1) -> TablePointer:
        """Return the table with metadata that lists no more snapshots than it is to keep (docs/decisions/0010).

        The state itself, its schemas and its files stay as they are. Returns ``pointer`` when nothing is to be done.

        Args:
            pointer: The table's state.
            at_least: Number of the newest snapshots to keep whatever the table's property says.

        Raises:
            NotFoundError: When the metadata file is missing.
            InputError: When it is damaged.
            EngineError: When it cannot be read, or the new one not be written, just now.
        """
        table = self._table(pointer)
        shorter = documents.trimmed(table.document, pointer.metadata_location, at_least)
        return pointer if shorter is table.document else self._save(table, shorter, pointer.snapshot_id)

    def _append_of(self, staged: _Table, table: _Table, head: _Head, snapshot_id: int) -> tuple[Document, ManifestList]:
        """Return a staged snapshot and the manifests with which it added data files, if ``table`` can take them."""
        snapshot = _plain_append(staged, snapshot_id)
        own = self._added_manifests(staged, snapshot)
        ids = {manifest.file.partition_spec_id for manifest in own.manifests}
        check_layout(staged.document, table.document, table.pointer, ids)
        paths = {manifest.file.manifest_path for manifest in own.manifests}
        known = documents.find_snapshot(table.document, snapshot_id) is not None
        if known or any(manifest.file.manifest_path in paths for manifest in head.manifests.manifests):
            refuse(
                table.pointer,
                f"it has snapshot {snapshot_id} already",
                "This run was published before: see 'lakegate log'.",
                snapshot_id=snapshot_id,
            )
        return snapshot, own

    def _append(self, table: _Table, head: _Head, staged: Document, own: ManifestList) -> _Head:
        following = self._next(table, head, staged["snapshot-id"])
        manifests = [following.added(manifest) for manifest in own.manifests]
        manifests += following.merged(head.manifests.manifests)
        meta = head.manifests.meta if head.manifests.manifests else own.meta
        summary = {key: value for key, value in staged["summary"].items() if key != "operation"}
        return _listed(following, head, ManifestList(meta, tuple(manifests)), "append", summary)

    def _added_manifests(self, staged: _Table, snapshot: Document) -> ManifestList:
        """Return the manifests with which ``snapshot`` added data files."""
        snapshot_id = snapshot["snapshot-id"]
        everything = staged.files.read("Manifest list", snapshot["manifest-list"], read_list)
        own = [m for m in everything.manifests if m.file.added_snapshot_id == snapshot_id]
        files = sum(manifest.file.added_files_count or 0 for manifest in own)
        if any(m.file.content != ManifestContent.DATA or m.file.deleted_files_count for m in own) or str(
            snapshot["summary"].get("added-data-files", 0)
        ) != str(files):
            _not_an_append(staged.pointer, snapshot_id)
        # One that only holds what was there before comes from a merge, and adds nothing.
        adding = tuple(ListedManifest(m.file) for m in own if m.file.added_files_count)
        return ManifestList(everything.meta, adding)

    def _next(self, table: _Table, head: _Head, snapshot_id: int) -> NextSnapshot:
        return NextSnapshot(
            files=table.files,
            document=table.document,
            pointer=table.pointer,
            snapshot_id=snapshot_id,
            sequence_number=head.sequence_number + 1,
        )

    def _head(self, table: _Table) -> _Head:
        snapshot = documents.snapshot_of(table.document, table.pointer)
        manifests = no_manifests()
        if snapshot is not None:
            manifests = table.files.read("Manifest list", snapshot["manifest-list"], read_list)
        return _Head(snapshot, manifests, int(table.document["last-sequence-number"]))

    def _commit(self, table: _Table, added: Sequence[Document]) -> TablePointer:
        document = documents.with_snapshots(table.document, table.pointer, added)
        document = documents.without_old_snapshots(document, at_least=len(added))
        return self._save(table, document, added[-1]["snapshot-id"])

    def _save(self, table: _Table, document: Document, snapshot_id: int) -> TablePointer:
        location = table.files.path(documents.next_name(document, table.pointer.metadata_location))
        table.files.write(location, documents.serialise(location, document))
        return table.pointer.model_copy(update={"metadata_location": location, "snapshot_id": snapshot_id})

    def _table(self, pointer: TablePointer) -> _Table:
        document = self._parse(pointer.metadata_location, pointer)
        folder = documents.folder(document)
        return _Table(pointer, document, TableFiles(pointer, self._io(folder), folder))

    def _read_document(self, location: str, pointer: TablePointer) -> Document:
        files = TableFiles(pointer, self._io(location))
        return files.read("Metadata file", location, partial(documents.parse, location))


def _plain_append(staged: _Table, snapshot_id: int) -> Document:
    snapshot = documents.find_snapshot(staged.document, snapshot_id)
    if snapshot is None:
        refuse(
            staged.pointer,
            f"snapshot {snapshot_id} is not in {staged.pointer.metadata_location}",
            f"The branch was changed after it was written. {_RUN_AGAIN}",
            snapshot_id=snapshot_id,
        )
    if snapshot.get("summary", {}).get("operation") != "append":
        _not_an_append(staged.pointer, snapshot_id)
    return snapshot


def _not_an_append(pointer: TablePointer, snapshot_id: int) -> None:
    refuse(
        pointer,
        f"snapshot {snapshot_id} did more than append data files",
        _RUN_AGAIN,
        snapshot_id=snapshot_id,
    )


def _listed(
    following: NextSnapshot, head: _Head, manifests: ManifestList, operation: str, summary: Mapping[str, str]
) -> _Head:
    """Write the manifest list of the next snapshot, and return that snapshot as the new head."""
    snapshot_id, sequence_number = following.snapshot_id, following.sequence_number
    parent_id = None if head.snapshot is None else head.snapshot["snapshot-id"]
    location = following.files.path(f"snap-{snapshot_id}-1-{uuid4()}.avro")
    following.files.write(location, write_list(manifests, snapshot_id, parent_id, sequence_number))
    snapshot = {
        "sequence-number": sequence_number,
        "snapshot-id": snapshot_id,
        **({} if parent_id is None else {"parent-snapshot-id": parent_id}),
        "timestamp-ms": documents.now_ms(following.document),
        "summary": {"operation": operation, **documents.with_totals(summary, head.snapshot)},
        "manifest-list": location,
        "schema-id": documents.schema_id(following.document, following.pointer),
    }
    return _Head(snapshot, manifests, sequence_number)
