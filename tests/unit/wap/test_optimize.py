"""A compaction on a branch: what it read is compared with what it wrote, and nothing is read if it wrote nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakegate.errors import AuditFailedError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, TablePointer
from lakegate.testing import MemoryCatalog
from lakegate.wap.context import Context
from lakegate.wap.table_changes import optimize
from lakegate.wap.transaction import Transaction

TABLE = TableIdentifier.parse("nyc.trips")


def pointer(location: str) -> TablePointer:
    ids = {"snapshot_id": 1, "schema_id": 0, "spec_id": 0, "sort_order_id": 0}
    return TablePointer(table=TABLE, content_id=None, metadata_location=location, **ids)


class Compaction:
    """A transaction, its engine, and a context: of a table whose rows are said beforehand."""

    def __init__(self, before: Mapping[str, Any], after: Mapping[str, Any], *, compacts: bool = True) -> None:
        self.catalog = MemoryCatalog()
        self.reader = self
        table = CommitRequest(
            branch="main",
            base=self.catalog.get_ref("main").hash,
            message="create",
            namespaces=(("nyc",),),
            puts=(pointer("1"),),
        )
        self.catalog.commit(table)
        self.branch = self.catalog.create_branch("wap/optimize", self.catalog.get_ref("main")).name
        self.engine = self
        self.began = self.catalog.get_ref(self.branch).hash
        self.rows = {self.began: before, None: after}
        self.compacts = compacts
        self.read: list[str | None] = []

    def compact(self, table: TableIdentifier, *, sort: str | None, where: str | None) -> None:
        assert (table, sort, where) == (TABLE, None, None)
        if self.compacts:
            there = self.catalog.get_table(TABLE, self.catalog.get_ref(self.branch))
            assert there is not None
            puts = (pointer("2").model_copy(update={"content_id": there.content_id}),)
            self.catalog.commit(CommitRequest(branch=self.branch, base=self.began, message="compact", puts=puts))

    def metadata(self, pointer: TablePointer) -> Any:
        return SimpleNamespace(partition_by=("region",), format_version=3)

    def has_other_specs(self, pointer: TablePointer) -> bool:
        return pointer.metadata_location != "1"

    def fingerprint(self, table: TableIdentifier, *, by_partition: bool, row_ids: bool, at: str | None = None) -> Any:
        assert (table, by_partition, row_ids) == (TABLE, True, True)
        self.read.append(at)
        return self.rows[at]

    def run(self) -> None:
        optimize(cast("Context", self), cast("Transaction", self), TABLE)


def test_the_rows_are_compared_with_those_that_it_began_with() -> None:
    rows = {"a": (2, 17, 5), "b": (1, 4, None)}
    numbered = Compaction(rows, {**rows, "b": (1, 4, 9)})  # from before an upgrade to version 3: ids are new
    numbered.run()
    assert numbered.read == [numbered.began, None]
    for after in ({"a": (2, 17, 5)}, {**rows, "a": (2, 17, 6)}, {**rows, "a": (1, 17, 5)}, {**rows, "c": (1, 1, 1)}):
        with pytest.raises(AuditFailedError, match="it changed rows"):
            Compaction(rows, after).run()


def test_nothing_is_read_when_nothing_qualifies() -> None:
    nothing = Compaction({}, {}, compacts=False)
    nothing.run()
    assert nothing.read == []
