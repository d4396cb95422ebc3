"""A lakehouse in memory with short words for what tests of reverting do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import Run
from lakegate.model.tables import REPLACE
from lakegate.wap.ingest import ingest
from lakegate.wap.revert import revert
from lakegate.wap.transaction import Transaction
from support.fakes import FakeLakehouse
from support.flow_support import begun, ordered

A = [{"id": 1, "passengers": 1}]
B = [{"id": 2, "passengers": 2}]
C = [{"id": 3, "passengers": 3}, {"id": 4, "passengers": 4}]
D = [{"id": 5, "passengers": 5}]


class House(FakeLakehouse):
    """A lakehouse with short words for what the tests do."""

    def add(self, run: str, rows: Sequence[dict[str, Any]], **options: Any) -> Run:
        return ingest(self.context, ordered(self, rows, run=run, **options))

    def work(self, run: str, body: Callable[[Transaction], None], **options: Any) -> Run:
        with begun(self.context, run, name=run, **options) as tx:
            body(tx)
        return tx.run

    def undo(self, run: str, **options: Any) -> Run:
        return revert(self.context, run, new_run_id=options.pop("new", f"x-{run}"), **options)

    def rows(self, table: str = "nyc.trips") -> list[Any]:
        return sorted(self.rows_on("main", table), key=lambda row: row["id"])

    def head(self) -> Ref:
        return self.catalog.get_ref("main")

    def status(self, run: str) -> tuple[str, str | None]:
        found = self.journal.get(run)
        assert found is not None
        return found.status, found.reverted_by

    def compact(self, run: str, rows: Sequence[dict[str, Any]] | None = None) -> Run:
        """What ``lakegate table optimize`` does: all rows, or those given, in one new file."""

        def body(tx: Transaction) -> None:
            trips = TableIdentifier.parse("nyc.trips")
            tx.engine.overwrite(trips, self.rows() if rows is None else rows, None)
            pointer = self.catalog.get_table(trips, self.catalog.get_ref(tx.branch))
            assert pointer is not None
            version = self.versions[pointer.metadata_location]
            *before, last = version.snapshots
            snapshots = (*before, last.model_copy(update={"operation": REPLACE}))
            self.versions[pointer.metadata_location] = replace(version, snapshots=snapshots)

        return self.work(run, body, kind="maintenance")

    def rewrite_all_files(self) -> None:
        """What compaction does by hand: all rows in one new file, a commit without a run."""
        branch = self.catalog.create_branch("compact", self.head())
        rows = self.rows()
        tx = self.transaction("compact", "nobody")
        tx.overwrite(TableIdentifier.parse("nyc.trips"), rows, None)
        pointer = self.catalog.get_table(TableIdentifier.parse("nyc.trips"), self.catalog.get_ref("compact"))
        assert pointer is not None
        self.catalog.commit(CommitRequest(branch="main", base=branch.hash, message="compacted", puts=(pointer,)))
