"""Errors of a publish, and what it publishes of tables that changed on the target meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakegate.errors import ConflictError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest
from lakegate.model.run import Run
from lakegate.wap.audit import audit
from lakegate.wap.ingest import ingest
from lakegate.wap.publish import publish
from lakegate.wap.stage import stage
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, MOST, TRIPS, audited, begun, branches, ordered, planned, when_reached

TOTALS = [{"zone": "a", "trips": 2}]
BRANCH = "wap/nyc.trips_r1"


def ready(house: FakeLakehouse) -> Run:
    """A second run, audited and not yet published, on a table that is there."""
    ingest(house.context, ordered(house, run="r0"))
    request = planned(house, MORE).request
    staged = stage(house.context, request)
    return audited(request, staged, audit(house.context, staged, request.checks))


def drop(house: FakeLakehouse, branch: str, table: TableIdentifier = TRIPS) -> str:
    head = house.catalog.get_ref(branch)
    request = CommitRequest(branch=branch, base=head.hash, message="Drop it", deletes=(table,))
    return house.catalog.commit(request).hash


def test_a_table_that_was_dropped_from_the_branch_after_its_audit_is_not_published(house: FakeLakehouse) -> None:
    run = ready(house)
    drop(house, BRANCH)
    with pytest.raises(ConflictError, match=rf"nyc\.trips changed on branch {BRANCH} after it was audited") as caught:
        publish(house.context, run)
    assert caught.value.hint == f"lakegate audit nyc.trips --branch {BRANCH}"
    assert {"table": "nyc.trips", "branch": BRANCH}.items() <= caught.value.context.items()


def test_of_two_tables_the_one_that_moved_is_rebased_and_the_other_is_published_as_it_is(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(house.context, ordered(house, run="r0"))

    def rival() -> None:
        monkeypatch.setattr("lakegate.wap.publish_lock._LOCK_TIMEOUT_S", 0.0)
        ingest(house.context, ordered(house, MOST, run="r2"))

    with (
        when_reached(monkeypatch, "before-commit", rival),
        begun(house.context) as tx,
    ):
        tx.append("nyc.trips", MORE)
        tx.append("nyc.totals", TOTALS)

    assert tx.run.status == "published"
    assert tx.run.publication is not None
    assert tx.run.publication.replayed == ("nyc.trips",)
    assert house.rows_on("main", "nyc.trips") == CLEAN + MOST + MORE
    assert house.rows_on("main", "nyc.totals") == TOTALS


@pytest.mark.parametrize("kind", ["data", "metadata"])
@pytest.mark.parametrize("moved", [False, True])
def test_a_run_whose_staged_files_are_gone_is_not_published(house: FakeLakehouse, kind: str, moved: bool) -> None:
    run = ready(house)
    [staged] = run.staged
    [path] = [path for path in house.new_files(staged.before, staged.pointer) if f"/{kind}/" in path]
    if moved:
        ingest(house.context, ordered(house, MOST, run="r2"))
    head = house.catalog.get_ref("main")
    house.gone.add(path)
    context = replace(house.context, warehouse="mem://")  # outside it, nothing is looked up
    with pytest.raises(
        ConflictError, match=rf"{BRANCH} isn't published: nyc\.trips .* {path} can't be found"
    ) as caught:
        publish(context, run)
    assert f"lakegate discard {BRANCH}" in str(caught.value.hint)
    assert house.catalog.get_ref("main") == head

    house.gone.clear()
    assert publish(context, run).rows == len(MORE)


def test_an_ingest_whose_staged_files_are_gone_keeps_its_branch_and_claims_no_file(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = replace(house.context, warehouse="mem://")

    def lose_files() -> None:
        house.gone.add(f"mem://data/{house.pointer(BRANCH).snapshot_id}")

    with when_reached(monkeypatch, "before-publish", lose_files), pytest.raises(ConflictError, match="can't be found"):
        ingest(context, ordered(house, MORE, run="r1"))
    assert BRANCH in branches(house)
    assert ingest(context, ordered(house, MORE, run="r2")).status == "published"


@pytest.mark.parametrize(("change", "kept"), [("append", {98}), ("rewrite", set())])
def test_snapshots_with_rows_that_no_check_read_are_not_published(
    house: FakeLakehouse, change: str, kept: set[int]
) -> None:
    """Anybody could read them by their ids."""
    run = ready(house)
    [staged] = run.staged
    version = house.versions[staged.pointer.metadata_location]
    oldest, own = version.snapshots
    step, rolled_back = (own.model_copy(update={"snapshot_id": number}) for number in (98, 99))
    snapshots = (oldest, step, rolled_back, own.model_copy(update={"parent_id": 98}))
    house.versions[staged.pointer.metadata_location] = replace(version, snapshots=snapshots)
    changed = staged.model_copy(update={"change": change, "snapshot_ids": (98, own.snapshot_id)})
    publish(house.context, run.model_copy(update={"staged": (changed,)}))
    pointer = house.catalog.get_table(staged.table, house.catalog.get_ref("main"))
    assert pointer is not None
    ids = {one.snapshot_id for one in house.snapshots(pointer)}
    assert ids == {oldest.snapshot_id, own.snapshot_id, *kept}
