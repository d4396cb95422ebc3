"""An ingest in steps, and what may come between them: outages, concurrent runs, late writers, branches of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakegate.config import Settings
from lakegate.contracts.store import Contracts
from lakegate.errors import (
    AlreadyExistsError,
    CatalogUnavailableError,
    ConflictError,
    EngineError,
    EngineUnavailableError,
    IdentifierError,
    InputError,
    LakegateError,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.journal.journal import Journal
from lakegate.lake import Lake
from lakegate.model.batch import Batch
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import RUN_ID_PROPERTY, Run
from lakegate.model.tables import CreateTable, WriteTarget
from lakegate.wap.discard import discard_run
from lakegate.wap.ingest import Stage, ingest, resume, undo
from lakegate.wap.recover import recover, recover_now
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, MOST, TRIPS, branches, ordered, when_reached
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


def lake_of(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Return a lake; a file's content is named by its path."""
    components: Any = SimpleNamespace(
        settings=Settings(), home=Path("/project"), journal=house.journal, context=house.context,
        contracts=Contracts(Path("/project"), Settings()), shares_files=True,
    )  # fmt: skip
    lake = Lake(components)
    monkeypatch.setattr(lake, "_discover", lambda path, *_, **__: house.batch(path, {"more": MORE}.get(path, CLEAN)))
    return lake


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


@pytest.mark.parametrize("suspends", [True, False])
def test_a_publish_whose_answer_was_lost_is_found(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, *, suspends: bool
) -> None:
    history, silent = house.catalog.history, [False]

    def away(*arguments: Any, **options: Any) -> Any:
        if silent[0]:
            raise CatalogUnavailableError("away")
        return history(*arguments, **options)

    def fall_silent() -> None:
        silent[0] = True

    with monkeypatch.context() as patch:
        fails_once(patch, house.catalog, "commit", OutcomeUnknownError("No answer."), when=to_main, after=True)
        patch.setattr(house.catalog, "history", away)
        with when_reached(patch, "before-commit", fall_silent), pytest.raises(OutcomeUnknownError):
            resume(house.context, "r1", until="publish", request=lambda: ordered(house), suspends=suspends)
    assert known(house).status == ("staged" if suspends else "failed")
    assert step(house, "publish").status == "published"
    assert (ids(house), house.writes, commits(house)) == ([1, 2], 1, 1)


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
        assert [ended.status for ended in recover(house.context)] == ["failed"]
        delete(ref)

    monkeypatch.setattr(house.catalog, "delete_ref", dies)
    with pytest.raises(LeaseLostError):
        if how == "discarded":
            discard_run(house.context, run.branch)
        else:
            undo(house.context, "r1", reason="Enough.")
    assert (ids(house), branches(house)) == ([], ["main"])


@pytest.mark.parametrize("until", STAGES[:2])
def test_a_late_write_of_its_own_makes_a_run_start_over(house: FakeLakehouse, until: Stage) -> None:
    run = step(house, until)
    assert run.request is not None
    write_to(house, run.branch, run.request.batch, "r1")
    assert step(house, "publish").status == "published"
    assert (ids(house), branches(house), commits(house)) == ([1, 2], ["main"], 1)


def test_what_others_write_to_its_branch_is_not_published(house: FakeLakehouse) -> None:
    run = step(house, "audit")
    write_to(house, run.branch, house.batch("foreign", MORE), "somebody")
    for _ in range(2):
        with pytest.raises(ConflictError, match="changed on branch"):
            step(house, "publish")
    assert (ids(house), list(house.journal.suspended())) == ([], ["r1"])
    assert undo(house.context, "r1", reason="Enough.").status == "failed"


def test_a_late_process_publishes_and_records_nothing(house: FakeLakehouse) -> None:
    step(house, "audit")
    late = house.context
    published = step(house, "publish")
    assert resume(late, "r1", until="publish") == published
    assert commits(house) == 1


def test_a_run_that_a_living_process_works_on_is_left_to_it(house: FakeLakehouse) -> None:
    database = MemoryDatabase()
    house.journal = Journal(database, holder=FakeHolder("other"))
    order = ordered(house)
    running = Run(run_id="r1", tables=("nyc.trips",), branch=order.branch, status="running", started_at=_now(house))
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


def test_a_branch_that_the_user_names(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    house.dies_at(monkeypatch, "after-stage", lambda: step(house, "write", branch="mine"))
    assert branches(house) == ["main", "mine"]
    assert all_steps(house, branch="mine").status == "published"
    assert (ids(house), branches(house), commits(house)) == ([1, 2], ["main"], 1)


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


def test_a_run_that_was_not_started_in_steps_is_recovered(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.dies_at(monkeypatch, "before-publish", lambda: ingest(house.context, ordered(house)))
    run = resume(house.context, "r1", until="audit")
    assert (run.status, run.detail) == ("published", "Passed its audit; published by recovery.")


def test_one_id_is_not_for_runs_of_two_tables(house: FakeLakehouse) -> None:
    other = TableIdentifier.parse("nyc.zones")
    for until in STAGES:
        step(house, until)
        with pytest.raises(InputError, match=r"Run r1 belongs to nyc\.trips, not to nyc\.zones"):
            resume(house.context, "r1", until="publish", table=other, request=lambda: ordered(house, table=other))


@pytest.mark.parametrize("run_id", ["", "a/b", "a b", "ö", "-a", "a" * 101, "a\n", "..", "a.lock/x"])
def test_ids_that_cannot_name_a_branch_are_refused(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    lake = lake_of(house, monkeypatch)
    if run_id:
        for call in (lake.write, lake.ingest, lake.plan):
            with pytest.raises(IdentifierError, match="can't name a run"):
                call("nyc.trips", "a", run_id=run_id)
    for look in (lake.audit_run, lake.publish_run, lake.cancel_run):
        with pytest.raises(NotFoundError):
            look(run_id)
    assert house.writes == 0


def test_an_ingest_with_an_id_is_found_when_it_is_called_again(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(house, monkeypatch)
    run = lake.ingest("nyc.trips", "a", run_id="2026-01-31")
    assert (run.run_id, run.status, run.order) == ("2026-01-31", "published", None)
    assert lake.ingest("nyc.trips", "a", run_id="2026-01-31") == run
    assert lake.publish_run("2026-01-31") == run
    assert lake.cancel_run("2026-01-31") == run
    assert (ids(house), house.writes) == ([1, 2], 1)


def test_an_ingest_with_an_id_that_failed_leaves_nothing_and_may_be_tried_again(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(house, monkeypatch)
    fails_once(monkeypatch, house, "append", EngineError("away"))
    with pytest.raises(EngineError):
        lake.ingest("nyc.trips", "a", run_id="x")
    assert (known(house, "x").status, branches(house)) == ("failed", ["main"])
    assert lake.ingest("nyc.trips", "a", run_id="x").status == "published"
    assert commits(house, "x") == 1


def test_the_lake_recovers_runs_by_the_beginning_of_their_ids(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(house, monkeypatch)
    lake.audit_run(lake.write("nyc.trips", "a", run_id="import-of-today-1").run_id)
    lake.write("nyc.trips", "more", run_id="two-2")
    assert list(lake.suspended_runs()) == ["import-of-today-1", "two-2"]

    assert [run.status for run in lake.recover(["import-of-today", "two-2", "two-2"])] == ["published", "failed"]
    assert (lake.suspended_runs(), ids(house), branches(house)) == ({}, [1, 2], ["main"])
    with pytest.raises(NotFoundError, match="Run 'three' doesn't exist"):
        lake.recover(["three"])


def _now(house: FakeLakehouse) -> Any:
    return ingest(house.context, ordered(house, MOST, run="clock", table=TableIdentifier.parse("x.y"))).started_at


def test_the_reason_for_cancelling_a_run_is_kept_without_secrets(house: FakeLakehouse) -> None:
    step(house, "write")
    error = undo(house.context, "r1", reason="postgresql://me:hunter22@db/x doesn't answer.").error
    assert error is not None
    assert error.message == "postgresql://…@db/x doesn't answer."
