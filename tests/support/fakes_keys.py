"""Lookups of keys for the lakehouse in memory (``tests/support/fakes.py``), by plain sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lakegate.model.refs import Ref, TableAt
from lakegate.model.tables import AddedRows, Rows, ScanResult
from lakegate.testing import MemoryCatalog

Row = Mapping[str, Any]
Key = tuple[Any, ...]


class KeyLookups:
    """The four methods of an engine that look up keys."""

    catalog: MemoryCatalog
    versions: Mapping[str, Any]

    def count_known(self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows]) -> ScanResult:
        known, total = self._known(rows, columns, others)
        elsewhere = self._keys(others, columns)
        return ScanResult(total=total, failing=(len(known), sum(_key(row, columns) in elsewhere for row in known)))

    def count_orphans(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], other_columns: Sequence[str]
    ) -> ScanResult:
        orphans = self._orphans(rows, columns, others, other_columns)
        return ScanResult(total=len(self._rows_of(rows)), failing=(len(orphans),))

    def known_examples(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], limit: int
    ) -> tuple[dict[str, Any], ...]:
        return tuple({**row, "_file": "mem://file"} for row in self._known(rows, columns, others)[0][:limit])

    def orphan_examples(
        self,
        rows: AddedRows,
        columns: Sequence[str],
        others: Sequence[Rows],
        other_columns: Sequence[str],
        limit: int,
    ) -> tuple[dict[str, Any], ...]:
        orphans = self._orphans(rows, columns, others, other_columns)
        return tuple({**row, "_file": "mem://file"} for row in orphans[:limit])

    def _known(self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows]) -> tuple[list[Row], int]:
        batch = self._rows_of(rows)
        here, elsewhere = Counter(_key(row, columns) for row in batch), self._keys(others, columns)

        def shared(key: Key) -> bool:
            return None not in key and (here[key] > 1 or key in elsewhere)

        return _where(batch, columns, shared), len(batch)

    def _orphans(
        self, rows: AddedRows, columns: Sequence[str], others: Sequence[Rows], other_columns: Sequence[str]
    ) -> list[Row]:
        elsewhere = self._keys(others, other_columns)
        return _where(self._rows_of(rows), columns, lambda key: None not in key and key not in elsewhere)

    def _keys(self, others: Sequence[Rows], columns: Sequence[str]) -> set[Key]:
        return {_key(row, columns) for other in others for row in self._rows_of(other)}

    def _rows_of(self, rows: Rows) -> list[Row]:
        if isinstance(rows, TableAt):
            ref = Ref(name=rows.hash, hash=rows.hash, kind="detached")
        else:
            ref = self.catalog.get_ref(rows.hash or rows.ref)
        pointer = self.catalog.get_table(rows.table, ref)
        assert pointer is not None, f"{rows.table} does not exist on {rows.ref}"
        version = self.versions[pointer.metadata_location]
        groups = added_groups(version, rows) if isinstance(rows, AddedRows) else version.rows.items()
        gone = rows.without if isinstance(rows, TableAt) else ()
        return [row for i, group in groups if f"mem://data/{i}" not in gone for row in group]


def added_groups(version: Any, rows: AddedRows) -> list[tuple[int, Sequence[Row]]]:
    """Return the groups of rows, each of a snapshot, that ``rows`` are of a table's version; ids say nothing of order.

    In a commit that several runs share, a snapshot may come after one that was written later, and has the higher id.
    """
    groups = list(version.rows.items())
    if rows.after_snapshot_id is None:
        return groups
    line = [one.snapshot_id for one in version.snapshots]
    added = line[line.index(rows.after_snapshot_id) + 1 : line.index(rows.snapshot_id) + 1]
    return [(snapshot_id, group) for snapshot_id, group in groups if snapshot_id in added]


def _where(rows: Sequence[Row], columns: Sequence[str], fails: Callable[[Key], bool]) -> list[Row]:
    return [row for row in rows if fails(_key(row, columns))]


def _key(row: Row, columns: Sequence[str]) -> Key:
    return tuple(row[column] for column in columns)
