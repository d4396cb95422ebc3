"""An ingest in steps, and what may come between them: outages, concurrent runs, late writers, branches of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakegate.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    EngineError,
    EngineUnavailableError,
    InputError,
    LakegateError,
    LeaseLostError,
    NotFoundError,
    RetryableError,
)
from lakegate.journal.journal import Journal
from lakegate.model.batch import Batch
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import RUN_ID_PROPERTY, Run
from lakegate.model.tables import CreateTable, WriteTarget
from lakegate.wap.ingest import Stage, ingest, resume, undo
from lakegate.wap.recover import recover, recover_now
from lakegate.wap.review import discard_run
from support.fakes import FakeLakehouse
from support.flow_support import MORE, MOST, TRIPS, branches, ordered
from support.journals import FakeHolder
from support.memory_journal import MemoryDatabase
from support.steps_support import STAGES, all_steps, commits, ids, known, step

SCANNED = ("sql('passengers > 9')",)


def fails_once(
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    method: str,
    error: LakegateError,
    *,
    when: Callable[..., bool] = lambda *_: True,
    after: bool = False,
) -> None:
    """Make one call of a method fail; ``after`` it has done its work."""
    original, pending = getattr(owner, method), [error]

    def call(*arguments: Any, **options: Any) -> Any:
        if not pending or not when(*arguments):
            return original(*arguments, **options)
        if after:
            original(*arguments, **options)
        raise pending.pop()

    monkeypatch.setattr(owner, method, call)


def to_main(request: CommitRequest) -> bool:
    return request.branch == "main"


def write_to(house: FakeLakehouse, branch: str, batch: Batch, run: str) -> None:
    """Write as an engine does for a run that was given up and knows nothing of it."""
    create = CreateTable(location="mem://elsewhere", partition_by=())
    properties = {RUN_ID_PROPERTY: run}
    target = WriteTarget(table=TRIPS, ref=branch, table_schema=None, create=create, snapshot_properties=properties)
    house.append(batch, target)


@pytest.mark.parametrize(
    ("until", "owner", "method", "when"),
    [
        ("write", "house", "append", None),
        ("write", "catalog", "create_branch", None),
        ("audit", "house", "count_failing", None),
        ("publish", "catalog", "commit", to_main),
    ],
)
@pytest.mark.parametrize("error", [EngineUnavailableError, CatalogUnavailableError, EngineError])
def test_a_step_that_fails_temporarily_is_resumed(
    house: FakeLakehouse,
    monkeypatch: pytest.MonkeyPatch,
    *,
    until: Stage,
    owner: str,
    method: str,
    when: Callable[..., bool] | None,
    error: type[RetryableError],
) -> None:
    failing = house if owner == "house" else house.catalog
    fails_once(monkeypatch, failing, method, error("It is away."), when=when or (lambda *_: True))
    with pytest.raises(error) as raised:
        step(house, until, checks=SCANNED)

    suspended = known(house)
    assert raised.value.context["run_id"] == "r1"
    assert suspended.error is not None
    assert (suspended.finished_at, suspended.error.message) == (None, "It is away.")
    assert branches(house) == (["main"] if until == "write" else ["main", suspended.branch])
    house.kill()
    assert recover(house.context) == ()

    run = all_steps(house, checks=SCANNED)
    assert (run.status, run.error, known(house).error) == ("published", None, None)
    assert (ids(house), branches(house), commits(house)) == ([1, 2], ["main"], 1)


@pytest.mark.parametrize("until", STAGES)
def test_a_journal_that_was_lost_between_the_steps(house: FakeLakehouse, until: Stage) -> None:
    ingest(house.context, ordered(house, MORE, run="r0"))
    step(house, until)
    house.lose_journal()
    ingest(house.context, ordered(house, MOST, run="r2"))
    assert all_steps(house).status == "published"
    assert (ids(house), branches(house), commits(house)) == ([1, 2, 5, 6], ["main"], 1)


def test_a_step_of_an_unknown_run_needs_its_paths(house: FakeLakehouse) -> None:
    for until in STAGES:
        with pytest.raises(NotFoundError, match="Run 'r1' doesn't exist or can't be resumed"):
            resume(house.context, "r1", until=until)
    assert house.journal.runs() == []


def test_a_branch_that_somebody_dropped_is_written_again(house: FakeLakehouse) -> None:
    for until in STAGES[:2]:
        step(house, until)
        house.catalog.delete_ref(house.catalog.get_ref(known(house).branch))
    assert step(house, "publish").status == "published"
    assert (ids(house), branches(house), commits(house)) == ([1, 2], ["main"], 1)


@pytest.mark.parametrize("until", STAGES[:2])
def test_a_run_whose_branch_was_discarded_has_ended(house: FakeLakehouse, until: Stage) -> None:
    run = step(house, until)
    house.kill()
    discarded = discard_run(house.context, run.branch)
    assert discarded is not None
    assert (discarded.status, discarded.finished_at is None) == ("discarded", False)
    assert step(house, "publish") == discarded
    assert not house.journal.suspended()
    assert ingest(house.context, ordered(house, run="r2", file="r1")).status == "published"


@pytest.mark.parametrize("how", ["discarded", "undone"])
def test_who_dies_giving_up_a_run_that_passed_leaves_nothing_to_publish(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    run, delete = step(house, "audit"), house.catalog.delete_ref

    def dies(ref: Ref) -> None:
        monkeypatch.setattr(house.catalog, "delete_ref", delete)
        house.kill()
        assert [ended.status for ended in recover(house.context)] == ["discarded" if how == "discarded" else "failed"]
        delete(ref)

    monkeypatch.setattr(house.catalog, "delete_ref", dies)
    with pytest.raises(LeaseLostError):
        if how == "discarded":
            discard_run(house.context, run.branch)
        else:
            undo(house.context, "r1", reason="Enough.")
    assert (ids(house), branches(house)) == ([], ["main"])


def test_a_run_that_a_living_process_works_on_is_left_to_it(house: FakeLakehouse) -> None:
    database = MemoryDatabase()
    house.journal = Journal(database, holder=FakeHolder("other"))
    order = ordered(house)
    running = Run(run_id="r1", tables=("nyc.trips",), branch=order.branch, status="planned", started_at=_now(house))
    house.journal.begin(running)
    house.journal = Journal(database, holder=FakeHolder("ours", {"other": True}))
    impatient = replace(house.context, lease_s=0.01)
    refusals: list[Callable[[], object]] = [
        lambda: resume(impatient, "r1", until="publish", request=lambda: order),
        lambda: undo(impatient, "r1", reason=""),
        lambda: recover_now(impatient, "r1"),
    ]
    for call in refusals:
        with pytest.raises(RetryableError, match="Another process is working on run r1"):
            call()
    assert known(house) == running


def test_only_one_of_two_processes_starts_a_run(house: FakeLakehouse) -> None:
    def order() -> Any:
        # While we look at the files, another process begins the run and ends it.
        if house.journal.get("r1") is None:
            all_steps(house)
        return ordered(house)

    with pytest.raises(RetryableError, match="Another process started run r1 meanwhile"):
        resume(house.context, "r1", until="publish", request=order)
    assert known(house).status == "published"
    assert step(house, "publish") == known(house)
    assert commits(house) == 1


def test_files_that_change_before_they_are_written_are_read_again(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_once(monkeypatch, house, "append", EngineError("It was changed while it was read."))
    with pytest.raises(EngineError):
        step(house, "write")
    stale = replace(house.context, changed_files=lambda batch: [one for one in batch.files if one.version == "1"])
    run = resume(stale, "r1", until="publish", request=lambda: ordered(house, MORE, version="2"))
    assert (run.status, ids(house)) == ("published", [5])


@pytest.mark.parametrize("name", ["mine", "backfill-r1", "r1"])
def test_a_branch_of_somebody_else_is_neither_written_to_nor_dropped(house: FakeLakehouse, name: str) -> None:
    house.catalog.create_branch(name, house.catalog.get_ref("main"))
    for until in STAGES:
        with pytest.raises(AlreadyExistsError, match=f"Branch '{name}' exists already"):
            step(house, until, branch=name)
    assert (branches(house), house.writes) == (sorted(["main", name]), 0)


@pytest.mark.parametrize("how", ["recovered", "undone", "gone on with"])
def test_a_branch_that_became_somebody_elses_is_not_dropped(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    ingest(house.context, ordered(house, MORE, run="r0"))
    fails_once(monkeypatch, house, "append", EngineError("away"))
    with pytest.raises(EngineError):
        step(house, "write", branch="mine")
    house.catalog.create_branch("mine", house.catalog.get_ref("main"))
    write_to(house, "mine", house.batch("foreign", MOST), "somebody")
    house.kill()
    if how == "recovered":
        error = recover_now(house.context, "r1").error
        assert error is not None
        assert error.message.endswith("nobody started its next step. Its last attempt failed: away")
    elif how == "undone":
        undo(house.context, "r1", reason="Enough.")
    else:
        with pytest.raises(AlreadyExistsError, match="nothing shows that run"):
            step(house, "write", branch="mine")
    assert known(house).status == "failed"
    assert ids(house, "mine") == [5, 6]


def test_one_id_is_not_for_runs_of_two_tables(house: FakeLakehouse) -> None:
    other = TableIdentifier.parse("nyc.zones")
    for until in STAGES:
        step(house, until)
        with pytest.raises(InputError, match=r"Run r1 belongs to nyc\.trips, not to nyc\.zones"):
            resume(house.context, "r1", until="publish", table=other, request=lambda: ordered(house, table=other))


def _now(house: FakeLakehouse) -> Any:
    return ingest(house.context, ordered(house, MOST, run="clock", table=TableIdentifier.parse("x.y"))).started_at


def test_the_reason_for_cancelling_a_run_is_kept_without_secrets(house: FakeLakehouse) -> None:
    step(house, "write")
    error = undo(house.context, "r1", reason="postgresql://me:hunter22@db/x doesn't answer.").error
    assert error is not None
    assert error.message == "postgresql://…@db/x doesn't answer."


@pytest.mark.parametrize("until", STAGES)
def test_a_cancelled_run_is_taken_up_again_only_with_its_paths(house: FakeLakehouse, until: Stage) -> None:
    step(house, until if until != "publish" else "audit")
    cancelled = undo(house.context, "r1", reason="Enough.")
    assert cancelled.status == "failed"
    for late in STAGES[1:]:
        assert resume(house.context, "r1", until=late) == cancelled
    assert (ids(house), branches(house)) == ([], ["main"])
    assert all_steps(house).status == "published"
