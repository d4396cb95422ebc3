"""Recovery drops the branches that runs couldn't drop because the catalog was unavailable, and no others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest

from lakegate.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    ConfigurationError,
    ConflictError,
    LakegateError,
    OutcomeUnknownError,
)
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.tables import WriteTarget
from lakegate.upkeep.branches import drop_orphaned_branches
from lakegate.wap.ingest import ingest
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, TRIPS, WITH_NULLS, begun, branches, ordered
from support.steps_support import known


def away(*_: object, **__: object) -> Any:
    raise CatalogUnavailableError("Nessie went away.")


def fail(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, order: Any) -> None:
    """Ingest into a catalog that cannot drop branches."""
    with monkeypatch.context() as patch:
        patch.setattr(house.catalog, "delete_ref", away)
        with pytest.raises(LakegateError):
            ingest(house.context, order)


def kept(house: FakeLakehouse, run_id: str = "r1") -> bool:
    run = known(house, run_id)
    return run.branch_kept


def test_a_branch_that_was_half_written(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    append = house.append

    def append_and_lose(batch: Any, target: WriteTarget, step: Any = None) -> None:
        append(batch, target, step)
        away()

    order = ordered(house)
    with monkeypatch.context() as patch:
        patch.setattr(house, "append", append_and_lose)
        fail(house, monkeypatch, order)
    assert (branches(house), kept(house)) == (["main", order.branch], True)

    narrator = MagicMock()
    context = replace(house.context, narrator=narrator)
    assert [ref.name for ref in drop_orphaned_branches(context)] == [order.branch]
    assert order.branch in narrator.note.call_args.args[0]
    assert (branches(house), kept(house)) == (["main"], False)
    assert drop_orphaned_branches(house.context) == ()


def test_a_commit_to_its_own_branch_that_gets_no_answer_publishes_nothing_and_leaves_no_branch(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = house.catalog.commit

    def commit_and_lose(request: CommitRequest) -> Ref:
        commit(request)
        raise OutcomeUnknownError("The connection broke.")

    order = ordered(house)
    with monkeypatch.context() as patch:
        patch.setattr(house.catalog, "commit", commit_and_lose)
        with pytest.raises(CatalogUnavailableError, match="Nothing was published"):
            ingest(house.context, order)
    assert (branches(house), kept(house)) == (["main"], False)


def test_the_branch_of_a_published_run(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    order = ordered(house)
    with monkeypatch.context() as patch:
        patch.setattr(house.catalog, "delete_ref", away)
        assert ingest(house.context, order).status == "published"
    assert branches(house) == ["main", order.branch]

    drop_orphaned_branches(house.context)
    assert (branches(house), kept(house)) == (["main"], False)
    assert house.rows_on("main", str(TRIPS)) == CLEAN


def test_a_branch_that_somebody_else_wrote_to_stays(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    order = ordered(house)
    with monkeypatch.context() as patch:
        patch.setattr(house.catalog, "delete_ref", away)
        ingest(house.context, order)
    head = house.catalog.get_ref(order.branch)
    house.catalog.commit(CommitRequest(branch=head.name, base=head.hash, message="mine", namespaces=(("mine",),)))
    assert drop_orphaned_branches(house.context) == ()
    assert (branches(house), kept(house)) == (["main", order.branch], True)


def test_branches_that_the_user_may_still_need_stay(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    rejected = ordered(house, WITH_NULLS)
    assert ingest(house.context, rejected).status == "rejected"
    conflicting = ordered(house, run="r2")
    commit = house.catalog.commit

    def refuse(request: CommitRequest) -> Ref:
        if request.branch == "main":
            raise ConflictError("main never stands still")
        return commit(request)

    monkeypatch.setattr(house.catalog, "commit", refuse)
    house.publish_attempts = 1
    with pytest.raises(ConflictError):
        ingest(house.context, conflicting)
    assert drop_orphaned_branches(house.context) == ()
    assert sorted(branches(house)) == ["main", rejected.branch, conflicting.branch]


def somebodys(house: FakeLakehouse, name: str = "fix") -> Ref:
    return house.catalog.create_branch(name, house.catalog.get_ref("main"))


def test_a_transaction_begins_on_no_branch_that_it_did_not_make(house: FakeLakehouse) -> None:
    somebodys(house)
    with pytest.raises(AlreadyExistsError, match="Branch 'fix' exists already"), begun(house.context, branch="fix"):
        pytest.fail("the body began")
    assert (branches(house), house.journal.runs()) == (["fix", "main"], [])


@pytest.mark.parametrize("error", [ConfigurationError("Not writable."), KeyboardInterrupt(), ZeroDivisionError()])
def test_a_transaction_that_cannot_begin_leaves_no_branch(house: FakeLakehouse, error: BaseException) -> None:
    def refuse() -> None:
        raise error

    with pytest.raises(type(error)), begun(replace(house.context, require_writable=refuse), "r1", branch="fix"):
        pytest.fail("the body began")
    assert (branches(house), kept(house)) == (["main"], False)
    assert drop_orphaned_branches(house.context) == ()
