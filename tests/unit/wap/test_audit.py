"""Audits: the evidence they use, the earlier batches they compare with, and audits of the published state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from lakegate.checks import parse_checks
from lakegate.context import Context
from lakegate.errors import InputError
from lakegate.iceberg.reader import IcebergTableReader
from lakegate.model.checks import AuditReport, CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref
from lakegate.model.run import RUN_ID_PROPERTY, Run
from lakegate.model.tables import WriteTarget
from lakegate.wap.audit import audit_state, measured_files
from lakegate.wap.ingest import ingest
from lakegate.wap.review import publish_branch
from lakegate.wap.table_changes import rename_table
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, TRIPS, ordered
from support.iceberg_tables import append, iceberg_tables, pointer_to


def row_count(run: Run) -> CheckResult:
    return next(one for report in run.reports for one in report.results if one.check.startswith("row_count"))


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


def audit(house: FakeLakehouse, *texts: str, since: Ref | None = None) -> AuditReport:
    checks = [check for text in texts for check in parse_checks(text)]
    return audit_state(house.context, TRIPS, house.catalog.get_ref("main"), checks, since=since)


def published_twice(house: FakeLakehouse) -> Ref:
    """Publish two batches, and return ``main`` as it was after the first."""
    assert ingest(house.context, ordered(house)).status == "published"
    between = house.catalog.get_ref("main")
    assert ingest(house.context, ordered(house, MORE, run="r2")).status == "published"
    return between


def test_all_rows_are_audited_and_no_run_changes(house: FakeLakehouse) -> None:
    published_twice(house)
    runs, refs = list(house.journal.runs()), list(house.catalog.list_refs())
    total = len(CLEAN) + len(MORE)
    report = audit(house, f"row_count(min={total}, max={total})", "unique(id, scope='table')")
    assert (report.rows, report.run_id, report.branch) == (total, "", "main")
    assert report.results[0].verdict == "pass"
    assert (list(house.journal.runs()), list(house.catalog.list_refs())) == (runs, refs)


def test_only_what_was_added_since_a_commit_is_audited(house: FakeLakehouse) -> None:
    between = published_twice(house)
    assert audit(house, "row_count(min=1)", since=between).rows == len(MORE)
    assert audit(house, "not_null(id)", since=house.catalog.get_ref("main")).rows == 0


def test_a_branch_whose_metadata_miscounts_its_rows_is_not_published(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    branch = house.catalog.create_branch("by-hand", house.catalog.get_ref("main")).name
    by_hand = WriteTarget(table=TRIPS, ref=branch, table_schema=None, snapshot_properties={})
    house.append(house.batch("by hand", MORE), by_hand)
    pointer = house.pointer(branch)
    version = house.versions[pointer.metadata_location]
    doubled = {**version.rows, pointer.snapshot_id: [*version.rows[pointer.snapshot_id]] * 2}
    house.versions[pointer.metadata_location] = replace(version, rows=doubled)
    with pytest.raises(InputError, match="lists 1 added row, but the audit read 2"):
        publish_branch(house.context, branch, configured=lambda _: parse_checks("not_null(id)"))


def test_a_since_from_before_a_rename_is_refused(house: FakeLakehouse) -> None:
    between, new = published_twice(house), TableIdentifier.parse("nyc.rides")
    rename_table(house.context, TRIPS, new, new_run_id="renames")
    head = house.catalog.get_ref("main")
    with pytest.raises(InputError, match=r"nyc\.rides was called nyc\.trips at") as refused:
        audit_state(house.context, new, head, [], since=between)
    assert head.hash[:12] in (refused.value.hint or "")
    assert audit_state(house.context, new, head, [], since=head).rows == 0
