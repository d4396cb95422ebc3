"""Change tables through their metadata alone, without an engine and without reading or writing a data file.

A rebased snapshot reuses the manifests that the staged snapshot wrote. Their entries carry no sequence numbers but
inherit them from the manifest list (Iceberg spec, "Sequence Number Inheritance"). PyIceberg's ``Snapshot.manifests``
can't be used here: it caches manifests by path for the whole process, with the sequence numbers of the first list that
named them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NoReturn

from pyiceberg.manifest import ManifestContent

from lakegate.errors import InputError, LakegateError, NotFoundError, NotReplayableError
from lakegate.iceberg import metadata
from lakegate.iceberg.files import TableFiles
from lakegate.iceberg.lineage import (
    RUN_AGAIN,
    check_layout,
    check_lineage,
    check_no_downgrade,
    check_schema,
    check_version,
    refuse,
)
from lakegate.iceberg.manifests import ListedManifest, ManifestList
from lakegate.iceberg.metadata import Document
from lakegate.iceberg.snapshot_producer import Head, LoadedTable, SnapshotProducer
from lakegate.iceberg.validation import require_loadable
from lakegate.model.refs import NO_SNAPSHOT, TablePointer


class IcebergTableEditor:
    """Edits tables through their metadata files; implements :class:`~lakegate.ports.TableEditor`, with its errors.

    The editor refuses to read or write a snapshot whose totals differ from its manifests. All methods also raise
    :class:`~lakegate.errors.NotFoundError` when a metadata file is missing, :class:`~lakegate.errors.InputError` when
    one is damaged, and :class:`~lakegate.errors.EngineError` when one can't be read or written right now.

    Args:
        files: Reads and writes the tables' files, and caches parsed metadata. By default, one with default settings.
    """

    def __init__(self, files: TableFiles | None = None) -> None:
        self._files = files or TableFiles()

    def rebase(
        self,
        source: TablePointer,
        snapshot_ids: Sequence[int],
        onto: TablePointer,
        *,
        keep_row_ids: bool = False,
        is_ours: bool = False,
    ) -> TablePointer:
        """Append to ``onto`` the data files that ``snapshot_ids`` (oldest first) appended to ``source``."""
        sources = [(source, snapshot_ids)]
        rebased, refused = self.rebase_each(sources, onto, keep_row_ids=keep_row_ids, is_ours=is_ours)
        for error in refused.values():
            raise error
        return rebased

    def rebase_each(
        self,
        sources: Sequence[tuple[TablePointer, Sequence[int]]],
        onto: TablePointer,
        *,
        keep_row_ids: bool = False,
        is_ours: bool = False,
    ) -> tuple[TablePointer, Mapping[int, LakegateError]]:
        """Append to ``onto`` what each of ``sources`` appended, and write one metadata file for all."""
        table = self._table(onto)
        head: Head | None = None
        added: list[Document] = []
        refused: dict[int, LakegateError] = {}
        for index, (source, snapshot_ids) in enumerate(sources):
            try:
                staged = self._table(source)
                _check_compatible(staged, snapshot_ids, table)
                head = head or Head.of(table)
                new_head, snapshots = head, list[Document]()
                # Check all snapshots of a source before writing anything for it.
                appends = [_staged_append(staged, table, head, one) for one in dict.fromkeys(snapshot_ids)]
                for snapshot, manifests in appends:
                    new_head = _append(table, new_head, snapshot, manifests, keep_row_ids=keep_row_ids, is_ours=is_ours)
                    snapshots.append(new_head.snapshot or {})
            except LakegateError as error:
                refused[index] = error
            except Exception as error:  # noqa: BLE001 - broken metadata of one must not stop the others
                refused[index] = LakegateError(f"Can't read the metadata of table {source.table}: {error!r}")
            else:
                head = new_head
                added += snapshots
        return (_commit(table, added) if added else onto), refused

    def drop_files(self, pointer: TablePointer, paths: Collection[str], summary: Mapping[str, str]) -> TablePointer:
        """Remove the data files at ``paths`` in one new snapshot; return ``pointer`` itself if there are none."""
        if not paths:
            return pointer
        producer = self._producer(pointer)
        kept, dropped = producer.without_files(paths)
        counts = {
            "deleted-data-files": str(len(dropped)),
            "deleted-records": str(sum(entry.file.record_count for entry in dropped)),
            "removed-files-size": str(sum(entry.file.file_size_in_bytes for entry in dropped)),
        }
        listed = ManifestList(producer.head.manifests.meta, tuple(kept))
        return _commit(producer.table, [producer.write(listed, "delete", {**summary, **counts}).snapshot or {}])

    def rebase_problem(self, source: TablePointer, snapshot_ids: Sequence[int], onto: TablePointer) -> str | None:
        """Return why :meth:`rebase` would refuse these snapshots; ``None`` if it wouldn't."""
        staged, table = self._table(source), self._table(onto)
        try:
            _check_compatible(staged, snapshot_ids, table)
            for one in snapshot_ids:
                _staged_append(staged, table, Head.of(table), one)
        except NotReplayableError as error:
            return error.message
        return None

    def with_properties(self, pointer: TablePointer, properties: Mapping[str, str]) -> TablePointer:
        """Return the table with some of its properties set."""
        table = self._table(pointer)
        changed = {"properties": {**metadata.properties(table.document), **properties}}
        document = metadata.next_metadata(table.document, pointer.metadata_location, changed)
        return _save(table, document, pointer.snapshot_id)

    def without_rows(self, pointer: TablePointer) -> TablePointer:
        """Return the table as if nothing had been written to it."""
        table = self._table(pointer)
        lists = dict.fromkeys(("snapshots", "snapshot-log", "statistics", "partition-statistics"), ())
        changed = {**lists, "refs": {}, "current-snapshot-id": NO_SNAPSHOT}
        document = metadata.next_metadata(table.document, pointer.metadata_location, changed)
        return _save(table, document, NO_SNAPSHOT)

    def raise_counters(
        self, pointer: TablePointer, now: TablePointer | None, *, by_sequence: bool = True
    ) -> TablePointer:
        """Return the state at ``pointer`` with the row id and sequence counters of ``now`` where these are higher."""
        if now is None or now.metadata_location == pointer.metadata_location:
            return pointer
        table = self._table(pointer)
        try:
            later = self._table(now).document
        except (NotFoundError, InputError):
            return pointer  # `now` is damaged and about to be replaced: its row ids can't be known
        if table.document["table-uuid"] != later["table-uuid"] or "next-row-id" not in table.document:
            return pointer
        counters = ("next-row-id", "last-sequence-number") if by_sequence else ("next-row-id",)
        changed = {key: later[key] for key in counters if table.document[key] < later.get(key, 0)}
        if not changed:
            return pointer
        document = metadata.next_metadata(table.document, pointer.metadata_location, changed)
        return _save(table, document, pointer.snapshot_id)

    def trim_snapshots(self, pointer: TablePointer, *, at_least: int, before: datetime) -> TablePointer:
        """Return the table with metadata that lists no snapshots older than ``before``."""
        table = self._table(pointer)
        shorter = metadata.trim_snapshots(table.document, pointer.metadata_location, at_least, before)
        return _save_shorter(table, shorter)

    def as_audited(
        self, pointer: TablePointer, published: TablePointer | None, audited: Collection[int]
    ) -> TablePointer:
        """Return the audited state at ``pointer`` with metadata that shows readers nothing else."""
        table = self._table(pointer)
        seen = None if published is None else self._files.metadata(published).document
        return _save_shorter(table, metadata.as_audited(table.document, pointer, seen, audited))

    def _table(self, pointer: TablePointer) -> LoadedTable:
        file = self._files.metadata(pointer)
        metadata.snapshot_of(file.document, pointer)  # raises if the metadata file doesn't have it
        require_loadable(file.document, pointer, as_named=file.as_named)
        return LoadedTable(pointer, file.document, self._files)

    def _producer(self, pointer: TablePointer) -> SnapshotProducer:
        """Return a producer of the table's next snapshot."""
        table = self._table(pointer)
        check_version(table.document, pointer)
        return SnapshotProducer(table, Head.of(table), metadata.new_snapshot_id(table.document))


def with_appends(staged: LoadedTable, snapshot_ids: Sequence[int], table: LoadedTable) -> Document:
    """Return the metadata of ``table`` with what ``snapshot_ids`` appended to ``staged``, as a rebase does.

    Manifest lists are written, the metadata isn't.

    Raises:
        NotReplayableError: As :meth:`IcebergTableEditor.rebase`.
    """
    _check_compatible(staged, snapshot_ids, table)
    head, added = Head.of(table), list[Document]()
    for one in snapshot_ids:
        snapshot, manifests = _staged_append(staged, table, head, one)
        head = _append(table, head, snapshot, manifests, keep_row_ids=False, is_ours=False)
        added.append(head.snapshot or {})
    return metadata.append_snapshots(table.document, table.pointer, added)


def _check_compatible(staged: LoadedTable, snapshot_ids: Sequence[int], table: LoadedTable) -> None:
    """Check that ``table`` can hold the files that ``snapshot_ids`` added to ``staged``."""
    for each in (staged, table):
        check_version(each.document, each.pointer)
    check_no_downgrade(staged.document, table.document, table.pointer)
    check_lineage(staged.document, snapshot_ids, table.document, table.pointer)
    check_schema(staged.document, staged.pointer, table.document, table.pointer)


def _staged_append(
    staged: LoadedTable, table: LoadedTable, head: Head, snapshot_id: int
) -> tuple[Document, ManifestList]:
    """Return a staged snapshot and the manifests of the data files it added; refuse it if ``table`` can't take them."""
    snapshot, own = _staged_snapshot(staged, snapshot_id)
    check_layout(staged.document, table.document, table.pointer, {m.file.partition_spec_id for m in own.manifests})
    paths = {manifest.file.manifest_path for manifest in own.manifests}
    known = metadata.find_snapshot(table.document, snapshot_id) is not None
    if known or any(manifest.file.manifest_path in paths for manifest in head.manifests.manifests):
        refuse(
            table.pointer,
            f"it has snapshot {snapshot_id} already",
            "The run was published before (see 'lakegate log'), or a part of it. How to remove that part, before the "
            "write is run again: lakegate admin verify",
            snapshot_id=snapshot_id,
        )
    return snapshot, own


def _staged_snapshot(staged: LoadedTable, snapshot_id: int) -> tuple[Document, ManifestList]:
    """Return a staged snapshot and the manifests of the data files it added."""
    snapshot = metadata.find_snapshot(staged.document, snapshot_id)
    if snapshot is None:
        refuse(
            staged.pointer,
            f"snapshot {snapshot_id} isn't in {staged.pointer.metadata_location}",
            f"The branch changed after the run wrote it. {RUN_AGAIN}",
            snapshot_id=snapshot_id,
        )
    return snapshot, _added_manifests(staged, snapshot)


def _added_manifests(staged: LoadedTable, snapshot: Document) -> ManifestList:
    snapshot_id, summary = snapshot["snapshot-id"], snapshot.get("summary") or {}
    if summary.get("operation") != "append":
        _refuse_change(staged.pointer, snapshot_id)
    everything = staged.manifests_of(snapshot)
    own = [m for m in everything.manifests if m.file.added_snapshot_id == snapshot_id]
    files = sum(manifest.file.added_files_count or 0 for manifest in own)
    has_deletes = any(m.file.content != ManifestContent.DATA and m.file.added_files_count for m in own)
    if (
        has_deletes
        or any(m.file.deleted_files_count for m in own)
        or str(summary.get("added-data-files", 0)) != str(files)
    ):
        _refuse_change(staged.pointer, snapshot_id)
    # A manifest without added files comes from a merge of older manifests.
    return ManifestList(everything.meta, tuple(ListedManifest(m.file) for m in own if m.file.added_files_count))


def _refuse_change(pointer: TablePointer, snapshot_id: int) -> NoReturn:
    refuse(pointer, f"snapshot {snapshot_id} did more than append data files", RUN_AGAIN, snapshot_id=snapshot_id)


def _append(
    table: LoadedTable, head: Head, staged: Document, added: ManifestList, *, keep_row_ids: bool, is_ours: bool
) -> Head:
    # Rows that keep their ids also keep the sequence number of their last change.
    at_least = staged["sequence-number"] if keep_row_ids and head.next_row_id is not None else 0
    producer = SnapshotProducer(table, head, staged["snapshot-id"], at_least)
    manifests = [producer.append_manifest(one, is_ours=is_ours, keep_row_ids=keep_row_ids) for one in added.manifests]
    manifests += producer.merge_manifests(head.manifests.manifests)
    meta = head.manifests.meta if head.manifests.manifests else added.meta
    summary = {key: value for key, value in staged["summary"].items() if key != "operation"}
    return producer.write(ManifestList(meta, tuple(manifests)), "append", summary)


def _commit(table: LoadedTable, added: Sequence[Document]) -> TablePointer:
    document = metadata.append_snapshots(table.document, table.pointer, added)
    document = metadata.without_old_snapshots(document, at_least=len(added))
    return _save(table, document, added[-1]["snapshot-id"])


def _save_shorter(table: LoadedTable, document: Document) -> TablePointer:
    if document is table.document:
        return table.pointer
    Head.of(table)  # raises when the snapshot's totals are wrong
    return _save(table, document, table.pointer.snapshot_id)


def _save(table: LoadedTable, document: Document, snapshot_id: int) -> TablePointer:
    location = table.new_path(metadata.next_name(document, table.pointer.metadata_location))
    table.files.create(location, metadata.serialise(location, document), table.pointer)
    return table.pointer.model_copy(update={"metadata_location": location, "snapshot_id": snapshot_id})
