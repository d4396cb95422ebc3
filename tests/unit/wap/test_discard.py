"""What becomes of a run whose branch somebody discards: it ends as it should, or stays as it was."""

from __future__ import annotations

import pytest

from lakegate.errors import CatalogUnavailableError
from lakegate.model.refs import Ref
from lakegate.wap.ingest import ingest
from lakegate.wap.review import discard_run
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, WITH_NULLS, branches, ordered


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
