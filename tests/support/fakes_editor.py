"""Changes of tables' metadata for the lakehouse in memory (``fakes.py``): a snapshot's rows are one data file."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import uuid4

from lakegate.errors import LakegateError, NotReplayableError
from lakegate.model.refs import NO_SNAPSHOT, TablePointer
from lakegate.model.schema import Schema
from lakegate.model.tables import Snapshot


class TableEdits:
    """The methods of :class:`~lakegate.ports.TableEditor`."""

    versions: Any
    snapshot_ids: Iterator[int] = itertools.count(1)

    def rebase(
        self,
        source: TablePointer,
        snapshot_ids: Sequence[int],
        onto: TablePointer,
        *,
        keep_row_ids: bool = False,
        is_ours: bool = False,
    ) -> TablePointer:
        del keep_row_ids, is_ours
        staged, version = self.versions[source.metadata_location], self.versions[onto.metadata_location]
        _check_columns(staged.schema, version.schema, onto)
        by_id = {snapshot.snapshot_id: snapshot for snapshot in staged.snapshots}
        first = by_id.get(snapshot_ids[0]) if snapshot_ids else None
        if staged.location != version.location and first is not None and first.parent_id is not None:
            _refuse(onto, "it was replaced by another table with the same name")
        moved = onto
        for snapshot_id in snapshot_ids:
            snapshot = by_id.get(snapshot_id)
            if snapshot is None:
                _refuse(onto, f"snapshot {snapshot_id} isn't in {source.metadata_location}")
            if snapshot.operation != "append":
                _refuse(onto, f"snapshot {snapshot_id} did more than append data files")
            if snapshot_id in {known.snapshot_id for known in version.snapshots}:
                _refuse(onto, f"it has snapshot {snapshot_id} already")
            parent = version.snapshots[-1].snapshot_id if version.snapshots else None
            version = replace(
                version,
                snapshots=(*version.snapshots, snapshot.model_copy(update={"parent_id": parent})),
                rows={**version.rows, snapshot_id: staged.rows[snapshot_id]},
            )
            moved = self._saved(version, onto)
        return moved

    def rebase_problem(self, source: TablePointer, snapshot_ids: Sequence[int], onto: TablePointer) -> str | None:
        try:
            self.rebase(source, snapshot_ids, onto)
        except NotReplayableError as error:
            return error.message
        return None

    def rebase_each(
        self,
        sources: Sequence[tuple[TablePointer, Sequence[int]]],
        onto: TablePointer,
        *,
        keep_row_ids: bool = False,
        is_ours: bool = False,
    ) -> tuple[TablePointer, Mapping[int, LakegateError]]:
        refused: dict[int, LakegateError] = {}
        for place, (source, snapshot_ids) in enumerate(sources):
            try:
                onto = self.rebase(source, snapshot_ids, onto)
            except NotReplayableError as error:
                refused[place] = error
        return onto, refused

    def with_properties(self, pointer: TablePointer, properties: Mapping[str, str]) -> TablePointer:
        version = self.versions[pointer.metadata_location]
        return self._saved(replace(version, properties={**version.properties, **properties}), pointer)

    def without_rows(self, pointer: TablePointer) -> TablePointer:
        empty = replace(self.versions[pointer.metadata_location], snapshots=(), rows={})
        return self._saved(empty, pointer)

    @staticmethod
    def raise_counters(pointer: TablePointer, now: TablePointer | None, *, by_sequence: bool = True) -> TablePointer:
        del now, by_sequence
        return pointer

    def trim_snapshots(self, pointer: TablePointer, *, at_least: int, before: datetime) -> TablePointer:
        version = self.versions[pointer.metadata_location]
        gone = {one.snapshot_id for one in version.snapshots[:-at_least] if one.time < before}
        return self._with_only(pointer, {one.snapshot_id for one in version.snapshots} - gone)

    def as_audited(
        self, pointer: TablePointer, published: TablePointer | None, audited: Collection[int]
    ) -> TablePointer:
        seen = () if published is None else self.versions[published.metadata_location].snapshots
        return self._with_only(pointer, {*audited, *(one.snapshot_id for one in seen)})

    def _with_only(self, pointer: TablePointer, kept: Collection[int]) -> TablePointer:
        version = self.versions[pointer.metadata_location]
        left = tuple(snapshot for snapshot in version.snapshots if snapshot.snapshot_id in kept)
        if left == version.snapshots:
            return pointer
        return self._saved(replace(version, snapshots=left), pointer)

    def drop_files(self, pointer: TablePointer, paths: Collection[str], summary: Mapping[str, str]) -> TablePointer:
        if not paths:
            return pointer
        version = self.versions[pointer.metadata_location]
        live = {f"mem://data/{snapshot_id}": snapshot_id for snapshot_id in version.rows}
        gone = sorted(set(paths) - live.keys())
        if gone:
            _refuse(pointer, f"{len(gone)} of the {len(paths)} files to drop are no longer in it, such as {gone[0]}")
        dropped = {live[path] for path in paths}
        rows = sum(len(version.rows[snapshot_id]) for snapshot_id in dropped)
        snapshot = Snapshot(
            snapshot_id=next(self.snapshot_ids),
            parent_id=version.snapshots[-1].snapshot_id,
            time=datetime.now(UTC),
            operation="delete",
            summary={**summary, "deleted-data-files": str(len(dropped)), "deleted-records": str(rows)},
        )
        left = {snapshot_id: group for snapshot_id, group in version.rows.items() if snapshot_id not in dropped}
        return self._saved(replace(version, snapshots=(*version.snapshots, snapshot), rows=left), pointer)

    def edit(self, pointer: TablePointer, rows: Sequence[Mapping[str, Any]] | None, operation: str) -> TablePointer:
        """Change a table beside any catalog: append ``rows``, or remove all there are for ``None``."""
        version = self.versions[pointer.metadata_location]
        snapshot = Snapshot(
            snapshot_id=next(self.snapshot_ids),
            parent_id=version.snapshots[-1].snapshot_id if version.snapshots else None,
            time=datetime.now(UTC),
            operation=operation,
            summary={} if rows is None else {"added-records": str(len(rows)), "added-data-files": "1"},
        )
        held = {} if rows is None else {**version.rows, snapshot.snapshot_id: rows}
        return self._saved(replace(version, snapshots=(*version.snapshots, snapshot), rows=held), pointer)

    def _saved(self, version: Any, pointer: TablePointer) -> TablePointer:
        location = f"{version.location}/metadata/{uuid4()}"
        self.versions[location] = version
        newest = version.snapshots[-1].snapshot_id if version.snapshots else NO_SNAPSHOT
        return pointer.model_copy(update={"metadata_location": location, "snapshot_id": newest})


def _check_columns(ours: Schema, theirs: Schema, pointer: TablePointer) -> None:
    for column in ours.columns:
        there = theirs.find(column.name)
        if there is None:
            _refuse(pointer, f"column '{column.name}' isn't in the table")
        if there.type != column.type:
            _refuse(
                pointer, f"column '{column.name}' has type {there.type} in the table and {column.type} in the files"
            )
    for column in theirs.columns:
        if column.required and ours.find(column.name) is None:
            _refuse(pointer, f"column '{column.name}' was added and is required")


def _refuse(pointer: TablePointer, reason: str) -> NoReturn:
    raise NotReplayableError(
        f"Table {pointer.table}: {reason}.", hint="Run the write again on main as it is now.", table=str(pointer.table)
    )
