"""Audits of the published state: nothing is written, and no run changes."""

from __future__ import annotations

import pytest

from lakegate.checks import parse_checks
from lakegate.errors import InputError, NotFoundError
from lakegate.model.checks import AuditReport
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Ref
from lakegate.wap.audit import audit_state
from lakegate.wap.ingest import ingest
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, TRIPS, ordered


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


def test_a_since_that_is_later_than_the_state_is_refused(house: FakeLakehouse) -> None:
    between = published_twice(house)
    head = house.catalog.get_ref("main")
    with pytest.raises(InputError, match=f"Commit {head.hash[:12]} comes after {between.hash[:12]}"):
        audit_state(house.context, TRIPS, between, [], since=head)


def test_what_compares_a_batch_with_what_was_before_it_is_skipped(house: FakeLakehouse) -> None:
    published_twice(house)
    report = audit(house, "schema_changes()", "volume_anomalies()", "row_count(min=1000, percent=10)")
    reason = "It compares a run with what came before, and there is no run here."
    assert [one.verdict for one in report.results] == ["skipped", "skipped", "fail"]
    assert [one.detail for one in report.results[:2]] == [reason] * 2
    assert (report.results[2].detail or "").startswith("The batch has ")


def test_a_table_that_is_not_there(house: FakeLakehouse) -> None:
    with pytest.raises(NotFoundError, match=r"nyc\.nothing doesn't exist on main"):
        audit_state(house.context, TableIdentifier.parse("nyc.nothing"), house.catalog.get_ref("main"), [])
