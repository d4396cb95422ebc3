"""Work that a killed process started in the engine goes on there, and commits to the run's branch when it's done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakegate.errors import ConflictError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import quarantine_of
from lakegate.model.refs import CommitRequest
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.model.tables import CreateTable, WriteTarget
from lakegate.wap.discard import discard
from lakegate.wap.ingest import ingest, resume, undo
from lakegate.wap.recover import recover, recover_now
from lakegate.wap.review import discard_run
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, MOST, TRIPS, WITH_NULLS, Rows, branches, ordered
from support.steps_support import all_steps, commits, ids, known, step

ZONES = TableIdentifier.parse("nyc.zones")
SET_ASIDE = ("not_null(passengers, severity='quarantine')",)


def before(
    monkeypatch: pytest.MonkeyPatch, house: FakeLakehouse, method: str, do: Callable[[], object], *, times: int = 1
) -> list[Callable[[], object]]:
    """Do something directly before the catalog does what it's asked to, as often as ``times``; return what's left."""
    original, left = getattr(house.catalog, method), [do] * times

    def call(*arguments: Any) -> Any:
        if left and all(getattr(one, "branch", getattr(one, "name", "")) != "main" for one in arguments[:1]):
            left.pop()()
        return original(*arguments)

    monkeypatch.setattr(house.catalog, method, call)
    return left


def late(house: FakeLakehouse, run: str = "r1", table: Any = TRIPS, rows: Rows = CLEAN) -> None:
    """Commit what a process that's dead had asked the engine to write."""
    target = WriteTarget(
        table=table,
        ref=f"wap/{TRIPS}_r1",
        table_schema=None,
        create=CreateTable(location="mem://late"),
        snapshot_properties={RUN_ID_PROPERTY: run},
    )
    house.append(house.batch("late", rows), target)


@pytest.mark.parametrize("point", ["after-branch", "after-stage"])
@pytest.mark.parametrize("how", ["another run", "recovered", "undone", "discarded", "branch deleted", "resumed"])
def test_a_dead_run_is_dropped_with_its_late_commits(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str, how: str
) -> None:
    house.dies_at(monkeypatch, point, lambda: ingest(house.context, ordered(house)))
    left = before(monkeypatch, house, "delete_ref", lambda: late(house), times=3)
    if how == "another run":
        assert ingest(house.context, ordered(house, MORE, run="r2")).status == "published"
    elif how == "recovered":
        assert [run.status for run in recover(house.context)] == ["failed"]
    elif how == "undone":
        assert undo(house.context, "r1", reason="Enough.").status == "failed"
    elif how == "discarded":
        discarded = discard_run(house.context, f"wap/{TRIPS}_r1")
        assert discarded is not None
        assert discarded.status == "discarded"
    elif how == "branch deleted":
        assert discard(house.context, f"wap/{TRIPS}_r1")
    else:
        assert all_steps(house).status == "published"
    assert (left, branches(house)) == ([], ["main"])
    if how in ("another run", "resumed"):
        assert ids(house) == ([5] if how == "another run" else [1, 2])


def test_a_commit_by_somebody_else_to_their_branch_is_kept(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.dies_at(monkeypatch, "after-stage", lambda: ingest(house.context, ordered(house, branch="mine")))

    def by_hand() -> None:
        branch = house.catalog.get_ref("mine")
        house.catalog.commit(CommitRequest(branch="mine", base=branch.hash, message="x", namespaces=(("own",),)))

    before(monkeypatch, house, "delete_ref", by_hand)
    assert recover_now(house.context, "r1").status == "failed"
    assert branches(house) == ["main", "mine"]


def test_what_an_unknown_attempt_wrote_of_other_files_is_written_again(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another journal, or a lost one, knows the attempt. The file has changed since, and has as many rows."""
    ingest(house.context, ordered(house, MOST, run="r0"))
    elsewhere = FakeLakehouse()
    context = replace(house.context, journal=elsewhere.journal)
    house.dies_at(monkeypatch, "after-stage", lambda: ingest(context, ordered(house, CLEAN, file="f")))
    rows = [{"id": 7, "passengers": 7}, {"id": 8, "passengers": 8}]
    run = ingest(house.context, ordered(house, rows, file="f", version="2"))
    assert (run.status, ids(house), branches(house)) == ("published", [6, 7, 8], ["main"])


def test_a_late_append_to_the_branch_that_was_made_again_is_not_taken_for_this_attempts(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.dies_at(monkeypatch, "after-branch", lambda: step(house, "write"))
    append = house.append
    pending = [1]

    def twice(*arguments: Any) -> None:
        if pending:
            pending.pop()
            late(house)
        append(*arguments)

    monkeypatch.setattr(house, "append", twice)
    run = resume(house.context, "r1", until="publish", suspends=False, request=lambda: ordered(house))
    assert run.status == "published"
    assert (ids(house), branches(house), commits(house)) == ([1, 2], ["main"], 1)


def test_late_commits_to_a_published_runs_branch_are_dropped_with_it(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = before(monkeypatch, house, "delete_ref", lambda: late(house))
    run = ingest(house.context, ordered(house))
    assert (run.status, run.branch_kept, left) == ("published", False, [])
    assert (ids(house), branches(house)) == ([1, 2], ["main"])


@pytest.mark.parametrize("method", ["delete_ref", "commit"])
@pytest.mark.parametrize("table", [TRIPS, quarantine_of(TRIPS)])
def test_late_commits_during_a_quarantine_are_not_published(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, method: str, table: Any
) -> None:
    rows = [*CLEAN, *WITH_NULLS]
    house.dies_at(monkeypatch, "after-quarantine", lambda: all_steps(house, rows, checks=SET_ASIDE))
    left = before(monkeypatch, house, method, lambda: late(house, table=table))
    run = all_steps(house, rows, checks=SET_ASIDE)
    assert (run.status, run.quarantined, left) == ("published", 1, [])
    assert (ids(house), branches(house), commits(house)) == ([1, 2, 4], ["main"], 1)


@pytest.mark.parametrize("table", [TRIPS, ZONES])
def test_commits_by_others_before_a_quarantine_are_refused_and_kept(
    house: FakeLakehouse, table: TableIdentifier
) -> None:
    rows = [*CLEAN, *WITH_NULLS]
    step(house, "write", rows, checks=SET_ASIDE)
    late(house, run="somebody", table=table)
    before = house.catalog.get_ref(f"wap/{TRIPS}_r1")
    with pytest.raises(ConflictError, match=f"changed .*{table}|{table} changed on branch") as caught:
        step(house, "audit", rows, checks=SET_ASIDE)
    assert caught.value.hint == f"lakegate audit {table} --branch {before.name}"
    assert house.catalog.get_ref(before.name) == before
    assert ids(house) == []


def test_late_rows_in_the_quarantine_table_make_an_audited_run_start_over(house: FakeLakehouse) -> None:
    rows = [*CLEAN, *WITH_NULLS]
    for until in ("write", "audit"):
        step(house, until, rows, checks=SET_ASIDE)
    late(house, table=quarantine_of(TRIPS))
    run = step(house, "publish", rows, checks=SET_ASIDE)
    assert (run.status, run.quarantined) == ("published", 1)
    assert (ids(house), branches(house), commits(house)) == ([1, 2, 4], ["main"], 1)


def test_an_audited_branch_that_others_wrote_to_as_well_is_left_to_the_user(house: FakeLakehouse) -> None:
    step(house, "audit")
    late(house)
    late(house, run="somebody")
    with pytest.raises(ConflictError, match="changed on branch"):
        step(house, "publish")
    assert branches(house) == ["main", known(house).branch]
    assert ids(house) == []
