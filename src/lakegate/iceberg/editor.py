"""Changes of tables by their metadata alone: no data file is read or written, and no engine is needed.

A replayed snapshot lists the manifests that the staged one wrote: they are reused, not written again. Their entries
carry no sequence numbers and inherit those of the list that names them (Iceberg spec, "Sequence Number Inheritance").
PyIceberg keeps manifests by path for all lists of a process, with the numbers of the list it met first, so its
``Snapshot.manifests`` isn't used here.
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
    is_editable,
    refuse,
    state_of,
)
from lakegate.iceberg.manifests import ListedManifest, ManifestList
from lakegate.iceberg.metadata import Document
from lakegate.iceberg.snapshot_producer import Head, SnapshotProducer, Table
from lakegate.iceberg.validation import require_loadable
from lakegate.model.figures import counted
from lakegate.model.refs import NO_SNAPSHOT, TablePointer
from lakegate.model.run import PARTITIONS_LEFT_PROPERTY

_COUNTED = ("added-", "changed-", "deleted-", "entries-", "manifests-", "operation", "partition", "removed-", "total-")
"""How the entries of a snapshot's summary begin that count what it did."""


class IcebergTableEditor:
    """Edits tables through their metadata files; implements :class:`~lakegate.ports.TableEditor`, with its errors.

    A state whose snapshot counts other rows or files than its manifests hold is neither edited nor made. All methods
    also raise :class:`~lakegate.errors.NotFoundError` when a metadata file is missing,
    :class:`~lakegate.errors.InputError` when one is damaged, and :class:`~lakegate.errors.EngineError` when one can't
    be read or written just now.

    Args:
        files: The tables' files, which remembers parsed metadata; by default one of its own, with default settings.
    """

    def __init__(self, files: TableFiles | None = None) -> None:
        self._files = files or TableFiles()

    def replay(
        self, source: TablePointer, snapshot_ids: Sequence[int], onto: TablePointer, *, keep_row_ids: bool = False
    ) -> TablePointer:
        """Append to ``onto`` the data files that ``snapshot_ids`` (oldest first) appended to ``source``."""
        moved, refused = self.replay_each([(source, snapshot_ids)], onto, keep_row_ids=keep_row_ids)
        for error in refused.values():
            raise error
        return moved

    def replay_each(
        self,
        sources: Sequence[tuple[TablePointer, Sequence[int]]],
        onto: TablePointer,
        *,
        at_least: int = 0,
        keep_row_ids: bool = False,
    ) -> tuple[TablePointer, Mapping[int, LakegateError]]:
        """Append to ``onto`` what each of ``sources`` appended, and write one metadata file for all."""
        table = self._table(onto)
        head: Head | None = None
        added: list[Document] = []
        refused: dict[int, LakegateError] = {}
        for place, (source, snapshot_ids) in enumerate(sources):
            try:
                staged = self._table(source)
                _check_fit(staged, snapshot_ids, table)
                head = head or Head.of(table)
                then, snapshots = head, list[Document]()
                # All is checked before anything is written.
                for snapshot, own in [_append_of(staged, table, head, one) for one in dict.fromkeys(snapshot_ids)]:
                    then = _append(table, then, snapshot, own, keep_row_ids=keep_row_ids)
                    snapshots.append(then.snapshot or {})
            except LakegateError as error:
                refused[place] = error
            except Exception as error:  # noqa: BLE001 - broken metadata of one must not stop the others
                refused[place] = LakegateError(f"The metadata of {source.table} can't be read: {error!r}")
            else:
                head = then
                added += snapshots
        return (_commit(table, added, at_least) if added else onto), refused

    def drop_files(self, pointer: TablePointer, paths: Collection[str], summary: Mapping[str, str]) -> TablePointer:
        """Remove the data files at ``paths`` in one new snapshot; without any, the state stays as it is."""
        if not paths:
            return pointer
        table = self._table(pointer)
        check_version(table.document, pointer)
        head = Head.of(table)
        producer = SnapshotProducer(table, head, metadata.new_snapshot_id(table.document))
        kept, dropped = producer.without(paths)
        counts = {
            "deleted-data-files": str(len(dropped)),
            "deleted-records": str(sum(entry.file.record_count for entry in dropped)),
            "removed-files-size": str(sum(entry.file.file_size_in_bytes for entry in dropped)),
        }
        head = producer.write(ManifestList(head.manifests.meta, tuple(kept)), "delete", {**summary, **counts})
        return _commit(table, [head.snapshot or {}])

    def misfit(self, source: TablePointer, snapshot_ids: Sequence[int], onto: TablePointer) -> str | None:
        """Return why ``onto`` can't take what ``snapshot_ids`` appended to ``source``; ``None`` if it can."""
        staged, table = self._table(source), self._table(onto)
        try:
            _check_fit(staged, snapshot_ids, table)
            for one in snapshot_ids:
                _append_of(staged, table, Head.of(table), one)
        except NotReplayableError as error:
            return error.message
        return None

    def replay_rewrite(self, source: TablePointer, before: TablePointer, onto: TablePointer) -> TablePointer:
        """Replace in ``onto`` the data files that a compaction replaced on the way from ``before`` to ``source``.

        Partitions in which others changed those files are left as they are, and counted in the snapshot's summary
        (:data:`~lakegate.model.run.PARTITIONS_LEFT_PROPERTY`), if there are others.

        Raises:
            NotReplayableError: When it did anything else, or in several snapshots; when ``onto`` doesn't follow
                ``before``, or the table isn't defined in the same way in all three; or when in each partition, or in
                one that can't be told from the others, a file that it replaced isn't in ``onto`` any more, got other
                row ids, or has other delete files than in ``before``.
        """
        staged, table, first = self._table(source), self._table(onto), self._table(before)
        for each in (staged, table):
            check_version(each.document, each.pointer)
        definitions = [state_of(each.document, each.pointer, ()).definition for each in (first, staged, table)]
        if definitions[0] != definitions[1]:
            refuse(onto, "this run also changed its schema, partitioning, sort order or properties", RUN_AGAIN)
        if definitions[0] != definitions[2]:
            refuse(onto, "its schema, partitioning, sort order or properties changed meanwhile", RUN_AGAIN)
        snapshot_id = source.snapshot_id
        check_lineage(staged.document, [snapshot_id], table.document, onto)
        snapshot = metadata.find_snapshot(staged.document, snapshot_id) or {}
        summary = dict(snapshot.get("summary") or {})
        one_step = snapshot.get("parent-snapshot-id") == before.snapshot_id
        if summary.pop("operation", None) != "replace" or not one_step:
            refuse(onto, f"snapshot {snapshot_id} isn't a one-step compaction", RUN_AGAIN, snapshot_id=snapshot_id)
        manifests = staged.manifests_of(snapshot)
        own = [line for line in manifests.manifests if line.file.added_snapshot_id == snapshot_id]
        head = Head.of(table)
        if metadata.find_snapshot(table.document, snapshot_id) is not None:
            refuse(onto, f"it has snapshot {snapshot_id} already", "See 'lakegate log'.", snapshot_id=snapshot_id)
        if not metadata.descends(table.document, onto, before.snapshot_id):
            refuse(onto, f"snapshot {before.snapshot_id}, which this run began with, left its history", RUN_AGAIN)
        producer = SnapshotProducer(table, head, snapshot_id)
        then = SnapshotProducer(first, Head.of(first), snapshot_id)
        done = producer.replacement(own)
        try:
            kept, replaced, deletes = producer.replaced(done.paths, done.deletes, then)
        except NotReplayableError:
            left = producer.moved(done, then)
            others = done.without(left)
            if others is None:
                raise
            summary = {key: value for key, value in summary.items() if not key.startswith(_COUNTED)}
            done, summary = others, {**summary, **others.counts(), PARTITIONS_LEFT_PROPERTY: str(len(left))}
            kept, replaced, deletes = producer.replaced(done.paths, done.deletes, then)
        added = producer.written(done.added)
        rows, rows_replaced = (sum(line.live_rows for line in added), sum(one.file.record_count for one in replaced))
        # Rows that delete files hid are gone from the new files.
        if rows != rows_replaced and not (deletes and rows < rows_replaced):
            refuse(onto, f"snapshot {snapshot_id} replaced {counted(rows_replaced, 'row')} with {rows:,}", RUN_AGAIN)
        head = producer.write(ManifestList(head.manifests.meta, (*added, *kept)), "replace", summary)
        return _commit(table, [head.snapshot or {}])

    def rewrite_manifests(self, pointer: TablePointer, summary: Mapping[str, str]) -> TablePointer:
        """List the same data files in fewer manifests, in one new snapshot (operation ``replace``)."""
        table = self._table(pointer)
        check_version(table.document, pointer)
        head = Head.of(table)
        producer = SnapshotProducer(table, head, metadata.new_snapshot_id(table.document))
        manifests, counts = producer.rewritten()
        if not counts:
            return pointer
        done = {**summary, **{key: str(number) for key, number in counts.items()}}
        head = producer.write(ManifestList(head.manifests.meta, tuple(manifests)), "replace", done)
        return _commit(table, [head.snapshot or {}])

    def can_have_fewer_manifests(self, pointer: TablePointer) -> bool:
        """Return whether :meth:`rewrite_manifests` would do anything."""
        table = self._table(pointer)
        if not is_editable(table.document):
            return False
        return SnapshotProducer(table, Head.of(table), metadata.new_snapshot_id(table.document)).can_have_fewer()

    def with_properties(self, pointer: TablePointer, properties: Mapping[str, str]) -> TablePointer:
        """Return the table with some of its properties set."""
        table = self._table(pointer)
        changed = {"properties": {**metadata.properties(table.document), **properties}}
        return _save(table, metadata.continued(table.document, pointer.metadata_location, changed), pointer.snapshot_id)

    def following(self, pointer: TablePointer, now: TablePointer | None, *, by_sequence: bool = True) -> TablePointer:
        """Return the state at ``pointer``, to follow ``now``: no new row gets an id that one had (format version 3).

        Nor is one's last change numbered like an earlier one, unless appends are still to keep their numbers
        (``by_sequence``).
        """
        if now is None or now.metadata_location == pointer.metadata_location:
            return pointer
        table = self._table(pointer)
        try:
            later = self._table(now).document
        except (NotFoundError, InputError):
            return pointer  # it's damaged, and to be gone: nobody knows what ids its rows had
        if table.document["table-uuid"] != later["table-uuid"] or "next-row-id" not in table.document:
            return pointer
        counters = ("next-row-id", "last-sequence-number") if by_sequence else ("next-row-id",)
        changed = {key: later[key] for key in counters if table.document[key] < later.get(key, 0)}
        if not changed:
            return pointer
        document = metadata.continued(table.document, pointer.metadata_location, changed)
        return _save(table, document, pointer.snapshot_id)

    def trimmed(
        self,
        pointer: TablePointer,
        *,
        at_least: int = 1,
        without: Collection[int] = (),
        before: datetime | None = None,
    ) -> TablePointer:
        """Return the table with metadata that lists no more snapshots than it should (docs/decisions/0010)."""
        table = self._table(pointer)
        shorter = metadata.trimmed(table.document, pointer.metadata_location, at_least, without, before)
        if shorter is table.document:
            return pointer
        Head.of(table)  # raises when its snapshot counts wrong
        return _save(table, shorter, pointer.snapshot_id)

    def appended_without(
        self, pointer: TablePointer, snapshot_ids: Sequence[int], before: TablePointer | None, paths: Collection[str]
    ) -> TablePointer:
        """Return the table as if ``snapshot_ids`` had appended their data files but those at ``paths``, at once."""
        staged = self._table(pointer)
        if before is None:
            empty = pointer.model_copy(update={"snapshot_id": NO_SNAPSHOT})
            table = Table(empty, metadata.without_snapshots(staged.document), self._files)
        else:
            table = self._table(before)
        for each in (staged, table):
            check_version(each.document, each.pointer)
        head = Head.of(table)
        # An id that the staged state doesn't have, either: the one is never to be taken for the other.
        producer = SnapshotProducer(table, head, metadata.new_snapshot_id(staged.document))
        kept: list[ListedManifest] = []
        meta, summary = head.manifests.meta, dict[str, str]()
        size_bytes = left_out = 0
        for snapshot_id in snapshot_ids:
            snapshot, own = _staged(staged, snapshot_id)
            meta = own.meta if not head.manifests.manifests else meta
            summary |= {key: value for key, value in snapshot["summary"].items() if not key.startswith(_COUNTED)}
            for manifest in own.manifests:
                some, size, others = producer.picked(manifest, snapshot_id, without=paths)
                kept += [] if some is None else [some]
                size_bytes, left_out = size_bytes + size, left_out + others
        if left_out != len(set(paths)):
            refuse(pointer, f"these snapshots added {left_out} of the {len(set(paths))} files to leave out", RUN_AGAIN)
        counts = {
            "added-data-files": sum(line.live_files for line in kept),
            "added-records": sum(line.live_rows for line in kept),
            "added-files-size": size_bytes,
        }
        summary |= {key: str(number) for key, number in counts.items()}
        head = producer.write(ManifestList(meta, (*kept, *head.manifests.manifests)), "append", summary)
        # Nothing is trimmed: an audit reads from the snapshot before this one on.
        document = metadata.with_snapshots(table.document, table.pointer, [head.snapshot or {}])
        written = _save(table, document, producer.snapshot_id)
        return written.model_copy(update={"content_id": pointer.content_id})

    def _table(self, pointer: TablePointer) -> Table:
        file = self._files.metadata(pointer)
        metadata.snapshot_of(file.document, pointer)  # raises when the file lacks it
        require_loadable(file.document, pointer, as_named=file.as_named)
        return Table(pointer, file.document, self._files)


def _check_fit(staged: Table, snapshot_ids: Sequence[int], table: Table) -> None:
    """Check that ``table`` is one that the files of ``snapshot_ids`` can be in."""
    for each in (staged, table):
        check_version(each.document, each.pointer)
    check_no_downgrade(staged.document, table.document, table.pointer)
    check_lineage(staged.document, snapshot_ids, table.document, table.pointer)
    check_schema(staged.document, staged.pointer, table.document, table.pointer)


def _append_of(staged: Table, table: Table, head: Head, snapshot_id: int) -> tuple[Document, ManifestList]:
    """Return a staged snapshot and the manifests with which it added data files, if ``table`` can take them."""
    snapshot, own = _staged(staged, snapshot_id)
    check_layout(staged.document, table.document, table.pointer, {m.file.partition_spec_id for m in own.manifests})
    paths = {manifest.file.manifest_path for manifest in own.manifests}
    known = metadata.find_snapshot(table.document, snapshot_id) is not None
    if known or any(manifest.file.manifest_path in paths for manifest in head.manifests.manifests):
        refuse(
            table.pointer,
            f"it has snapshot {snapshot_id} already",
            "This run was published before: see 'lakegate log'.",
            snapshot_id=snapshot_id,
        )
    return snapshot, own


def _staged(staged: Table, snapshot_id: int) -> tuple[Document, ManifestList]:
    """Return a staged snapshot and the manifests with which it added data files."""
    snapshot = metadata.find_snapshot(staged.document, snapshot_id)
    if snapshot is None:
        refuse(
            staged.pointer,
            f"snapshot {snapshot_id} isn't in {staged.pointer.metadata_location}",
            f"The branch was changed after it was written. {RUN_AGAIN}",
            snapshot_id=snapshot_id,
        )
    return snapshot, _added_manifests(staged, snapshot)


def _added_manifests(staged: Table, snapshot: Document) -> ManifestList:
    """Return the manifests with which ``snapshot`` added data files."""
    snapshot_id, summary = snapshot["snapshot-id"], snapshot.get("summary") or {}
    if summary.get("operation") != "append":
        _refuse_change(staged.pointer, snapshot_id)
    everything = staged.manifests_of(snapshot)
    own = [m for m in everything.manifests if m.file.added_snapshot_id == snapshot_id]
    files = sum(manifest.file.added_files_count or 0 for manifest in own)
    if any(m.file.content != ManifestContent.DATA or m.file.deleted_files_count for m in own) or str(
        summary.get("added-data-files", 0)
    ) != str(files):
        _refuse_change(staged.pointer, snapshot_id)
    # One that only holds what was there before comes from a merge, and adds nothing.
    return ManifestList(everything.meta, tuple(ListedManifest(m.file) for m in own if m.file.added_files_count))


def _refuse_change(pointer: TablePointer, snapshot_id: int) -> NoReturn:
    refuse(pointer, f"snapshot {snapshot_id} did more than append data files", RUN_AGAIN, snapshot_id=snapshot_id)


def _append(table: Table, head: Head, staged: Document, own: ManifestList, *, keep_row_ids: bool) -> Head:
    # What was published keeps the number of its rows' last change, too.
    at_least = staged["sequence-number"] if keep_row_ids and head.next_row_id is not None else 0
    producer = SnapshotProducer(table, head, staged["snapshot-id"], at_least)
    manifests = [producer.added(manifest, keep_row_ids=keep_row_ids) for manifest in own.manifests]
    manifests += producer.merged(head.manifests.manifests)
    meta = head.manifests.meta if head.manifests.manifests else own.meta
    summary = {key: value for key, value in staged["summary"].items() if key != "operation"}
    return producer.write(ManifestList(meta, tuple(manifests)), "append", summary)


def _commit(table: Table, added: Sequence[Document], at_least: int = 0) -> TablePointer:
    document = metadata.with_snapshots(table.document, table.pointer, added)
    document = metadata.without_old_snapshots(document, at_least=len(added) + at_least)
    return _save(table, document, added[-1]["snapshot-id"])


def _save(table: Table, document: Document, snapshot_id: int) -> TablePointer:
    location = table.new_path(metadata.next_name(document, table.pointer.metadata_location))
    table.files.create(location, metadata.serialise(location, document), table.pointer)
    return table.pointer.model_copy(update={"metadata_location": location, "snapshot_id": snapshot_id})
