"""Which files' metrics an audit uses, and which runs are batches that later ones are compared with."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from lakegate.checks import parse_checks
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.model.checks import CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.run import RUN_ID_PROPERTY, Run
from lakegate.wap.audit import measured_files
from lakegate.wap.context import Context
from lakegate.wap.ingest import ingest
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, TRIPS, ordered
from support.iceberg_tables import append, iceberg_tables, pointer_to


def row_count(run: Run) -> CheckResult:
    return next(one for report in run.reports for one in report.results if one.check.startswith("row_count"))


def test_only_runs_that_added_rows_are_batches(house: FakeLakehouse) -> None:
    for number in range(5):
        ingest(house.context, ordered(house, run=f"r{number}"))
    # Marked as what they aren't, in the journal: the newest rewrote the table, the one before released rows.
    for run_id, changed in (("r4", {"change": "rewrite"}), ("r3", {})):
        run = house.journal.get(run_id)
        assert run is not None
        (staged,) = run.staged
        own = staged.model_copy(update=changed)
        aside = staged.model_copy(update={"table": TableIdentifier.parse(f"{TRIPS}__quarantine")})
        is_release = run_id == "r3"
        kept: dict[str, object] = {"kind": "transaction", "staged": (own, aside)} if is_release else {"staged": (own,)}
        house.journal.save(run.model_copy(update=kept))
    checks = [str(check) for check in parse_checks("row_count(percent=10)")]
    sixth = row_count(ingest(house.context, ordered(house, run="r6", checks=checks)))
    assert (sixth.verdict, sixth.detail) == (
        "skipped", "It needs 5 earlier batches to compare with; the journal has 3."
    )  # fmt: skip
    ingest(house.context, ordered(house, run="r7"))
    last = row_count(ingest(house.context, ordered(house, [*CLEAN, *CLEAN], run="r8", checks=checks)))
    assert last.verdict == "fail"


def test_metrics_of_another_writer_are_no_evidence(tmp_path: Path) -> None:
    context = cast("Context", SimpleNamespace(reader=IcebergTableReader()))
    with iceberg_tables(tmp_path) as tables:
        table = tables.create()
        table.append(table.scan().to_arrow(), snapshot_properties={RUN_ID_PROPERTY: "r1"})
        ours, theirs = pointer_to(table).snapshot_id, append(table, [1, 2])
        found = {ids: measured_files(context, pointer_to(table), ids) for ids in ((ours,), (ours, theirs), (theirs,))}
    assert {ids: (one.complete, one.rows) for ids, one in found.items()} == {
        (ours,): (True, 0),
        (ours, theirs): (False, 0),
        (theirs,): (False, 0),
    }
