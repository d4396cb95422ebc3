"""Setting rows aside in the lakehouse in memory (``fakes.py``): a snapshot's rows are one data file."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lakegate.model.identifiers import quote
from lakegate.model.quarantine import BatchRows, FailingCount, RowTest
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedRows, Snapshot, WriteTarget
from support.fakes_keys import added_groups

Row = Mapping[str, Any]
_ASIDE = ("_quarantine_id", "_reasons", "_run_id", "_source_file", "_position", "_quarantined_at", "_released_by")


class SettingAside:
    """The three methods of an engine that tell failing rows apart from the others. Knows predicates and batch keys."""

    catalog: Any
    sources: dict[str, Any]
    versions: dict[str, Any]
    snapshot_ids: Any

    def count_failing_rows(self, rows: BatchRows, tests: Sequence[RowTest]) -> FailingCount:
        checks = [{reason["check"] for reason in reasons} for reasons in self._judge(rows, tests).values()]
        by_test = [sum(test.check in failed for failed in checks) for test in tests]
        return FailingCount(len(checks), sum(map(bool, checks)), by_test)

    def quarantine_rows(self, rows: BatchRows, tests: Sequence[RowTest], target: WriteTarget) -> None:
        reasons = self._judge(rows, tests)
        aside = [
            {
                **row,
                "_quarantine_id": f"{path}#{place}",
                "_reasons": reasons[path, place],
                "_run_id": rows.run_id,
                "_source_file": rows.source if rows.batch is None else path,
                "_position": None if rows.batch is None else place,
                "_quarantined_at": rows.at,
                "_released_by": None,
            }
            for path, place, row in self._read(rows)
            if reasons[path, place]
        ]
        self._add(target, aside, Schema(columns=(*rows.schema.columns, *_columns(_ASIDE))))

    def append_passing(self, rows: BatchRows, quarantined: AddedRows, target: WriteTarget) -> None:
        gone = {row["_quarantine_id"] for _, _, row in self._placed(quarantined)}
        kept = [row for path, place, row in self._read(rows) if f"{path}#{place}" not in gone]
        self._add(target, kept, rows.schema)

    def failing_by_file(self, batch: Any, schema: Any, tests: Any) -> Any:
        raise NotImplementedError

    def examples_in_file(self, rows: Any, batch: Any, schema: Any, test: Any, file: Any, limit: Any) -> Any:
        raise NotImplementedError

    def _judge(self, rows: BatchRows, tests: Sequence[RowTest]) -> dict[tuple[str, int], list[dict[str, Any]]]:
        placed = self._read(rows)
        reasons: dict[tuple[str, int], list[dict[str, Any]]] = {(path, place): [] for path, place, _ in placed}
        for test in tests:
            if test.keys is not None:
                columns = test.keys.columns
                counts = Counter(tuple(row[column] for column in columns) for _, _, row in self._placed(test.keys.rows))
                fails = [counts[tuple(row[column] for column in columns)] > 1 for _, _, row in placed]
            else:
                fails = _true_for([row for _, _, row in placed], rows.schema.names, test.predicate or "FALSE")
            for (path, place, row), failing in zip(placed, fails, strict=True):
                if failing:
                    reasons[path, place] += [
                        {
                            "check": test.check,
                            "column": column,
                            "value": str(row[column]) if column in test.shown else None,
                        }
                        for column in test.columns
                    ]
        return reasons

    def _read(self, rows: BatchRows) -> list[tuple[str, int, Row]]:
        if rows.batch is None:
            return self._placed(rows.staged)
        names = rows.schema.names
        return [
            (uri, place, {name: row.get(name) for name in names})
            for uri in rows.batch.uris
            for place, row in enumerate(self.sources[uri])
        ]

    def _placed(self, rows: AddedRows) -> list[tuple[str, int, Row]]:
        groups = added_groups(self._version(rows), rows)
        return [(f"mem://data/{i}", place, row) for i, group in groups for place, row in enumerate(group)]

    def _version(self, rows: AddedRows) -> Any:
        ref = self.catalog.get_ref(rows.ref) if rows.hash is None else Ref(name=rows.hash, hash=rows.hash)
        pointer = self.catalog.get_table(rows.table, ref)
        return self.versions[pointer.metadata_location]

    def _add(self, target: WriteTarget, rows: Sequence[Row], schema: Schema) -> None:
        from support.fakes import TableVersion

        branch = self.catalog.get_ref(target.ref)
        pointer = self.catalog.get_table(target.table, branch)
        if pointer is None:
            assert target.create is not None
            version = TableVersion(schema, target.create.location, properties=target.create.properties)
        else:
            version = self.versions[pointer.metadata_location]
        snapshot = Snapshot(
            snapshot_id=next(self.snapshot_ids),
            parent_id=version.snapshots[-1].snapshot_id if version.snapshots else None,
            time=datetime.now(UTC),
            operation="append",
            summary={**target.snapshot_properties, "added-records": str(len(rows)), "added-data-files": "1"},
        )
        location = f"{version.location}/metadata/{snapshot.snapshot_id}"
        self.versions[location] = TableVersion(
            schema=version.schema,
            location=version.location,
            snapshots=(*version.snapshots, snapshot),
            rows={**version.rows, snapshot.snapshot_id: rows},
            properties=version.properties,
        )
        moved = TablePointer(
            table=target.table,
            content_id=None if pointer is None else pointer.content_id,
            metadata_location=location,
            snapshot_id=snapshot.snapshot_id,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )
        self.catalog.commit(CommitRequest(branch=branch.name, base=branch.hash, message="append", puts=(moved,)))


def _columns(names: Sequence[str]) -> tuple[Column, ...]:
    return tuple(Column(name=name, type="string") for name in names)


def _true_for(rows: Sequence[Row], names: Sequence[str], predicate: str) -> list[bool]:
    with sqlite3.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE batch ({', '.join(map(quote, names))})")
        connection.executemany(
            f"INSERT INTO batch VALUES ({', '.join('?' * len(names))})", [[row[name] for name in names] for row in rows]
        )
        found = connection.execute(f"SELECT coalesce({predicate}, 0) FROM batch ORDER BY rowid").fetchall()
    connection.close()
    return [bool(one[0]) for one in found]
