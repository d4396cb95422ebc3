"""What becomes of a run whose branch somebody discards: it ends as it should, or stays as it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakegate.errors import CatalogUnavailableError, NotFoundError
from lakegate.model.refs import Ref, TablePointer
from lakegate.wap.discard import discard_run
from lakegate.wap.gc import drop_orphaned_branches, expire_branches
from lakegate.wap.ingest import ingest, resume
from lakegate.wap.recover import recover
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, WITH_NULLS, branches, ordered


def test_a_rejected_run_whose_branch_cannot_be_dropped_stays_as_it_was(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ingest(house.context, ordered(house, WITH_NULLS))
    _fail_to_drop(house, monkeypatch, run.branch)
    assert house.journal.get(run.run_id) == run
    discarded = discard_run(house.context, run.branch)
    assert discarded is not None
    assert (discarded.status, branches(house)) == ("discarded", ["main"])


def test_a_run_that_turns_out_to_be_published_is_recorded_as_that(house: FakeLakehouse) -> None:
    run = ingest(house.context, ordered(house))
    assert run.publication is not None
    house.catalog.create_branch(run.branch, Ref(name="main", hash=run.base or ""))
    house.lose_journal()
    lost = {"status": "failed", "publication": None, "branch_kept": True}
    house.journal.save(run.model_copy(update=lost))
    discarded = discard_run(house.context, run.branch)
    assert discarded is not None
    assert (discarded.status, discarded.publication) == ("published", run.publication)
    assert (house.rows_on("main", "nyc.trips"), branches(house)) == (CLEAN, ["main"])


def _fail_to_drop(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, branch: str) -> None:
    def unavailable(_: Ref) -> None:
        raise CatalogUnavailableError("The catalog didn't answer.")

    with monkeypatch.context() as patch:
        patch.setattr(house.catalog, "delete_ref", unavailable)
        with pytest.raises(CatalogUnavailableError):
            discard_run(house.context, branch)


@pytest.mark.parametrize("how", ["recovered", "resumed"])
def test_a_branch_whose_tables_cannot_be_read_is_kept_and_recorded_as_that(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    ingest(house.context, ordered(house, MORE, run="r0"))
    house.dies_at(monkeypatch, "after-stage", lambda: ingest(house.context, ordered(house, branch="mine")))

    def lost(pointer: TablePointer) -> None:
        raise NotFoundError(f"{pointer.metadata_location} doesn't exist.")

    with monkeypatch.context() as patch:
        patch.setattr(house, "snapshots", lost)
        if how == "recovered":
            assert [(run.status, run.branch_kept) for run in recover(house.context)] == [("failed", True)]
            assert drop_orphaned_branches(house.context) == ()
            dropped, kept = expire_branches(house.context, keep=timedelta(0), now=datetime.now(UTC), dry_run=False)
            assert (dropped, [one.subject for one in kept]) == ([], ["mine"])
            assert "doesn't exist" in kept[0].message
        else:
            with pytest.raises(NotFoundError):
                resume(house.context, "r1", until="write", request=lambda: ordered(house, branch="mine"))
            run = house.journal.get("r1")
            assert run is not None
            assert (run.status, run.branch_kept) == ("failed", True)
    assert branches(house) == ["main", "mine"]
    assert [ref.name for ref in drop_orphaned_branches(house.context)] == ["mine"]
