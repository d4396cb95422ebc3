"""Branches: what waits, why, and what it would change, at a cost that doesn't grow with their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from lakegate.dashboard.branches import BranchOverview, get_branch, list_branches, rows_on_main
from lakegate.dashboard.model import ReadModel, ResultPage
from lakegate.errors import InputError, NotFoundError, RetryableError
from lakegate.model.refs import CommitRequest
from lakegate.model.run import Run
from support.big_lake import BigLake
from support.fakes import FakeLakehouse
from unit.dashboard.conftest import model_of

Load = Callable[..., Run]


def test_a_rejected_branch_says_why_and_what_it_would_change(
    model: ReadModel, house: FakeLakehouse, load: Load
) -> None:
    load({"id": 1}, {"id": 2})
    run = load({"id": None}, {"id": 9}, {"id": 10})
    one = get_branch(model, run.branch, examples=5)
    assert one.branch == run.branch
    assert one.run is not None
    assert (one.run.run_id, one.run.status, one.as_staged) == (run.run_id, "rejected", True)
    [failing] = one.failing
    assert (failing.table, failing.columns, failing.failing_rows, failing.total_rows) == ("nyc.trips", ("id",), 1, 3)
    assert failing.examples[0]["id"] is None
    [change] = one.changes
    assert (change.rows_before, change.rows_after, change.change) == (2, 5, "append")
    assert rows_on_main(model, "nyc.trips") == 2
    assert rows_on_main(model, "nyc.nowhere") is None
    assert list_branches(model).items == (get_branch(model, run.branch, examples=0),)


def test_a_branch_of_another_writer_shows_how_it_differs(model: ReadModel, house: FakeLakehouse, load: Load) -> None:
    load({"id": 1})
    main = house.catalog.get_ref("main")
    (pointer,) = house.catalog.list_tables(main)
    branch = house.catalog.create_branch("dbt/x", main)
    house.catalog.commit(CommitRequest(branch="dbt/x", base=branch.hash, message="m", deletes=(pointer.table,)))
    (one,) = list_branches(model).items
    assert one.run is None
    assert [(change.change, change.rows_before, change.rows_after) for change in one.changes] == [("drop", 1, 0)]
    assert list_branches(model, status="other").total == 1
    assert list_branches(model, status="rejected").total == 0


def test_what_waits_for_a_human_is_first(big: BigLake) -> None:
    model = big.model()
    found = list_branches(model, limit=100)
    statuses = [None if one.run is None else one.run.status for one in found.items]
    assert statuses == sorted(statuses, key=["rejected", "staged", None].index)
    assert Counter(statuses)["rejected"] > 10
    assert found.total == len(found.items) == 28
    pages = [list_branches(model, limit=10, cursor=cursor).items for cursor in (None, "10", "20")]
    assert [one.branch for page in pages for one in page] == [one.branch for one in found.items]
    assert ResultPage[BranchOverview].model_validate_json(found.model_dump_json()) == found
    waiting = found.items[0]
    assert waiting.changes[0].rows_after == (waiting.changes[0].rows_before or 0) + 40


def test_names_that_are_no_branch(model: ReadModel, house: FakeLakehouse) -> None:
    house.catalog.create_tag("v1", house.catalog.get_ref("main"))
    for name in ("main", "v1"):
        with pytest.raises(InputError, match="isn't a branch other than main"):
            get_branch(model, name)
    with pytest.raises(NotFoundError):
        get_branch(model, "<script>")
    with pytest.raises(InputError, match="isn't the start of a page"):
        list_branches(model, cursor="<script>")


def test_without_the_journal_branches_are_listed(house: FakeLakehouse, load: Load) -> None:
    load({"id": None})

    def away() -> Any:
        raise RetryableError("The journal is locked.")

    model = ReadModel(
        catalog=lambda: house.catalog, reader=lambda: house, journal=away, settings=model_of(house).settings
    )
    page = list_branches(model)
    assert [one.part for one in page.problems] == ["journal"]
    assert [one.run for one in page.items] == [None]
