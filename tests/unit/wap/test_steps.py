"""An ingest in steps: each in its own process, called twice, killed in between, undone."""

from __future__ import annotations

from typing import Any

import pytest

from lakegate.errors import NotFoundError, NotReplayableError
from lakegate.model.run import Run
from lakegate.wap import failpoints
from lakegate.wap.ingest import Stage, ingest, resume, undo
from lakegate.wap.recover import recover, recover_now
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, MOST, WITH_NULLS, Rows, branches, ordered
from support.steps_support import STAGES, all_steps, commits, ids, known, step


def test_three_processes_each_do_one_step(house: FakeLakehouse) -> None:
    written = step(house, "write")
    assert (written.status, written.finished_at, written.reports) == ("staged", None, ())
    assert (ids(house), ids(house, written.branch)) == ([], [1, 2])

    audited = step(house, "audit")
    assert audited.report is not None
    assert (audited.status, audited.finished_at, audited.report.passed) == ("audited", None, True)
    assert ids(house) == []

    published = step(house, "publish")
    assert published.status == "published"
    assert (ids(house), branches(house), house.writes) == ([1, 2], ["main"], 1)
    assert [one.name for one in published.steps] == ["write", "audit", "publish"]
    assert known(house) == published


@pytest.mark.parametrize("until", STAGES)
def test_a_step_also_does_those_before_it(house: FakeLakehouse, until: Stage) -> None:
    step(house, until)
    assert all_steps(house).status == "published"
    assert (house.writes, commits(house)) == (1, 1)


def test_every_step_called_twice_is_done_once(house: FakeLakehouse) -> None:
    for until in STAGES:
        assert step(house, until).model_dump(exclude={"steps"}) == step(house, until).model_dump(exclude={"steps"})
    assert (ids(house), house.writes, commits(house)) == ([1, 2], 1, 1)
    for until in STAGES:
        assert step(house, until) == known(house), "a run that has ended is found, whatever is asked of it"


@pytest.mark.parametrize("recovers", [False, True])
def test_a_branch_that_somebody_else_made_after_the_publish_stays(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, *, recovers: bool
) -> None:
    def publish() -> Run:
        return recover_now(house.context, "r1") if recovers else resume(house.context, "r1", until="publish")

    ingest(house.context, ordered(house, run="r1", branch="january"), until="audit", suspends=True)
    house.dies_at(monkeypatch, "after-branch-delete", lambda: resume(house.context, "r1", until="publish"))
    theirs = house.catalog.create_branch("january", house.catalog.get_ref("main"))
    run = publish()
    assert (run.status, run.branch_kept, ids(house)) == ("published", False, [1, 2])
    assert house.catalog.get_ref("january") == theirs


def test_others_leave_a_run_alone_between_its_steps(house: FakeLakehouse) -> None:
    for until in STAGES[:2]:
        step(house, until)
        house.kill()
        assert list(house.journal.suspended()) == ["r1"]
        assert recover(house.context) == ()
        skipped = ingest(house.context, ordered(house, run=f"beside-{until}", file="r1", on_busy="skip"))
        assert (skipped.status, [one.run_id for one in skipped.skipped_files]) == ("skipped", ["r1"])
    assert step(house, "publish").status == "published"
    assert not house.journal.suspended()


@pytest.mark.parametrize("concurrent", [False, True], ids=["alone", "while others publish"])
@pytest.mark.parametrize("point", failpoints.POINTS)
def test_killed_anywhere_and_resumed_each_file_is_published_once(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str, *, concurrent: bool
) -> None:
    ingest(house.context, ordered(house, MORE, run="r0"))
    house.dies_at(monkeypatch, point, lambda: all_steps(house))
    if concurrent:
        # It settles the dead run, too.
        ingest(house.context, ordered(house, MOST, run="r2"))
    run = all_steps(house)

    assert run.status == "published"
    assert run.publication is not None
    assert ids(house) == ([1, 2, 5, 6] if concurrent else [1, 2, 5])
    assert (branches(house), commits(house)) == (["main"], 1)
    assert ingest(house.context, ordered(house, run="r3", file="r1")).status == "skipped"


@pytest.mark.parametrize("until", STAGES[:2])
def test_a_run_that_was_undone_in_between_starts_over(house: FakeLakehouse, until: Stage) -> None:
    step(house, until)
    assert undo(house.context, "r1", reason="Enough.").status == "failed"
    assert (ids(house), branches(house)) == ([], ["main"])
    assert step(house, "publish").status == "published"
    assert (ids(house), branches(house), commits(house)) == ([1, 2], ["main"], 1)


def test_recovering_one_run_now(house: FakeLakehouse) -> None:
    step(house, "write")
    step(house, "write", MORE, run="r2")
    undone = recover_now(house.context, "r1")
    assert undone.error is not None
    assert (undone.status, undone.error.message) == (
        "failed",
        "It wasn't audited, and nobody started its next step.",
    )
    assert branches(house) == ["main", "wap/nyc.trips_r2"]
    assert recover_now(house.context, "r1") == undone
    with pytest.raises(NotFoundError, match="Run 'r9' doesn't exist"):
        recover_now(house.context, "r9")


@pytest.mark.parametrize(("rows", "on_failure"), [(CLEAN, "keep"), (WITH_NULLS, "keep"), (WITH_NULLS, "drop")])
def test_what_has_ended_cannot_be_undone(house: FakeLakehouse, rows: Rows, on_failure: str) -> None:
    ended = step(house, "publish", rows, on_failure=on_failure)
    before = branches(house), ids(house)
    assert undo(house.context, "r1", reason="Enough.") == ended
    assert (branches(house), ids(house)) == before


def test_undoing_records_the_reason_and_releases_the_files(house: FakeLakehouse) -> None:
    step(house, "audit")
    undone = undo(house.context, "r1", reason="The other system failed.")
    assert undone.error is not None
    assert (undone.status, undone.error.message) == ("failed", "The other system failed.")
    assert undone.report is not None, "what was found out stays known"
    assert undo(house.context, "r1", reason="Again.") == undone
    assert ingest(house.context, ordered(house, run="r2", file="r1")).status == "published"
    with pytest.raises(NotFoundError):
        undo(house.context, "r9", reason="")


def test_an_undoing_that_was_killed_publishes_nothing(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    step(house, "audit")
    with monkeypatch.context() as patch:

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(house.catalog, "delete_ref", die)
        with pytest.raises(KeyboardInterrupt):
            undo(house.context, "r1", reason="Enough.")
    house.kill()
    assert [run.status for run in recover(house.context)] == ["failed"]
    assert (ids(house), branches(house)) == ([], ["main"])


@pytest.mark.parametrize("on_failure", ["keep", "drop"])
@pytest.mark.parametrize("until", STAGES[1:])
def test_a_rejected_batch_is_a_value(house: FakeLakehouse, until: Stage, on_failure: str) -> None:
    run = step(house, until, WITH_NULLS, on_failure=on_failure)
    assert [failure.name for failure in run.failures] == ["not_null(passengers)"]
    kept = on_failure == "keep"
    assert (run.status, run.branch_kept, ids(house)) == ("rejected", kept, [])
    assert branches(house) == (["main", run.branch] if kept else ["main"])
    assert all_steps(house, WITH_NULLS) == run
    assert house.writes == 1


def test_a_check_that_fails_late_rejects_the_run_in_its_last_step(house: FakeLakehouse) -> None:
    unique = ("unique(id, scope='table')",)
    step(house, "audit", checks=unique)
    ingest(house.context, ordered(house, run="r2"))
    run = step(house, "publish", checks=unique)
    assert (run.status, [failure.columns for failure in run.failures]) == ("rejected", [("id",)])
    assert step(house, "publish", checks=unique) == run
    assert ids(house) == [1, 2]


def test_a_run_that_cannot_be_rebased_starts_over_on_the_current_main(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(house.context, ordered(house, MORE, run="r0"))
    step(house, "audit")
    replay = house.rebase
    refused: list[int] = []

    def refuse_once(*arguments: Any, **options: Any) -> Any:
        if not refused:
            refused.append(1)
            raise NotReplayableError("nyc.trips changed.")
        return replay(*arguments, **options)

    monkeypatch.setattr(house, "rebase", refuse_once)
    ingest(house.context, ordered(house, MOST, run="r2"))
    assert step(house, "publish").status == "published"
    assert refused
    assert (ids(house), branches(house), house.writes) == ([1, 2, 5, 6], ["main"], 4)


def test_a_run_is_published_on_top_of_a_main_that_moved_between_the_steps(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house, MORE, run="r0"))
    step(house, "audit")
    ingest(house.context, ordered(house, MOST, run="r2"))
    run = step(house, "publish")
    assert run.publication is not None
    assert run.publication.replayed == ("nyc.trips",)
    assert (ids(house), house.writes) == ([1, 2, 5, 6], 3)
