"""Write–audit–publish on a lakehouse in memory: every step, twice, and with changes in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lakegate.checks import parse_checks
from lakegate.errors import (
    AlreadyExistsError,
    AuditFailedError,
    CatalogUnavailableError,
    ConflictError,
    EngineError,
    EngineUnavailableError,
    InputError,
    NotFoundError,
    OutcomeUnknownError,
    RetryableError,
    SchemaError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.request import IngestRequest
from lakegate.model.run import RUN_ID_PROPERTY, StagedTable
from lakegate.model.tables import CreateTable, WriteTarget
from lakegate.wap import review
from lakegate.wap.audit import audit
from lakegate.wap.discard import discard
from lakegate.wap.ingest import ingest
from lakegate.wap.publish import publish
from lakegate.wap.review import discard_run
from lakegate.wap.stage import find_staged, stage
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, TRIPS, WITH_NULLS, audited, branches, ordered, planned
from support.ledger_support import event_in
from support.steps_support import known


def test_a_clean_batch_is_published_and_its_branch_is_gone(house: FakeLakehouse) -> None:
    run = ingest(house.context, ordered(house))

    assert run.status == "published"
    assert house.rows_on("main", "nyc.trips") == CLEAN
    assert branches(house) == ["main"]
    assert house.journal.get("r1") == run


def test_the_commit_on_main_names_the_run_and_the_audit(house: FakeLakehouse) -> None:
    run = ingest(house.context, ordered(house))

    commit = next(house.catalog.history("main", operations=True))
    assert run.publication is not None
    assert run.publication.commit == commit.hash
    assert commit.properties[RUN_ID_PROPERTY] == "r1"
    assert event_in(commit).files == (("file:///r1.parquet", "1"),)
    assert event_in(commit).audit == "1 passed, 0 warned"
    assert "nyc.trips" in commit.tables


def test_a_failing_batch_never_reaches_main_and_its_branch_is_kept(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    run = ingest(house.context, ordered(house, WITH_NULLS, run="r2"))

    assert run.status == "rejected"
    assert run.report is not None
    assert [(f.columns, f.failing_rows, f.total_rows) for f in run.report.failures] == [(("passengers",), 1, 2)]
    assert run.report.failures[0].examples[0]["id"] == 3
    assert house.rows_on("main", "nyc.trips") == CLEAN
    assert house.rows_on(run.branch, "nyc.trips") == CLEAN + WITH_NULLS
    assert run.branch_kept


def test_a_rejected_run_says_until_when_its_branch_is_kept_beside_a_target(house: FakeLakehouse) -> None:
    assert ingest(house.context, ordered(house, WITH_NULLS)).branch_until is None
    beside_target = replace(house.context, branches_last=timedelta(days=2))
    run = ingest(beside_target, ordered(house, WITH_NULLS, run="r2"))
    assert run.finished_at is not None
    assert run.branch_until == run.finished_at + timedelta(days=2)
    assert ingest(beside_target, ordered(house, WITH_NULLS, run="r3", on_failure="drop")).branch_until is None


def test_a_failing_batch_can_drop_its_branch(house: FakeLakehouse) -> None:
    run = ingest(house.context, ordered(house, WITH_NULLS, on_failure="drop"))

    assert (run.status, run.branch_kept, branches(house)) == ("rejected", False, ["main"])


def test_a_warning_publishes(house: FakeLakehouse) -> None:
    run = ingest(house.context, ordered(house, WITH_NULLS, checks=("not_null(passengers, severity='warn')",)))

    assert run.status == "published"
    assert run.report is not None
    assert len(run.report.warnings) == 1


def test_every_step_done_twice_is_done_once(house: FakeLakehouse) -> None:
    request = IngestRequest.model_validate_json(planned(house).request.model_dump_json())
    staged = stage(house.context, request)
    assert stage(house.context, request) == staged
    assert house.writes == 1

    staged = StagedTable.model_validate_json(staged.model_dump_json())
    report = audit(house.context, staged, request.checks)
    publication = publish(house.context, audited(request, staged, report))
    assert publish(house.context, audited(request, staged, report)) == publication
    assert len(list(house.catalog.history("main"))) == 1


def test_an_existing_branch_is_refused_before_anything_is_done(house: FakeLakehouse) -> None:
    house.catalog.create_branch("mine", house.catalog.get_ref("main"))

    with pytest.raises(AlreadyExistsError, match="mine") as caught:
        planned(house, branch="mine")
    assert caught.value.hint is not None
    assert "lakegate discard mine" in caught.value.hint


def test_lost_rows_are_noticed_and_nothing_is_published(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ordered(house)
    append = house.append

    def lose_one(batch: Any, target: WriteTarget, step: Any = None) -> None:
        house.sources[batch.uris[0]] = CLEAN[:1]
        append(batch, target, step)

    monkeypatch.setattr(house, "append", lose_one)
    with pytest.raises(EngineError, match="1 rows arrived"):
        ingest(house.context, wanted)
    assert branches(house) == ["main"]
    assert house.rows_on("main", "nyc.trips") == []


def test_no_table_is_put_below_a_table(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    before = branches(house)
    below = ordered(house, run="r2", table=TableIdentifier.parse("nyc.trips.branch_main"))
    with pytest.raises(InputError, match=r"^nyc\.trips is a table, not a namespace"):
        ingest(house.context, below)
    assert branches(house) == before


def test_a_branch_that_changed_after_its_audit_is_not_published(house: FakeLakehouse) -> None:
    request = planned(house).request
    staged = stage(house.context, request)
    report = audit(house.context, staged, request.checks)
    house.append(house.batch("late", WITH_NULLS), WriteTarget(table=TRIPS, ref=request.branch, table_schema=None))

    with pytest.raises(ConflictError, match="after it was audited"):
        publish(house.context, audited(request, staged, report))
    assert house.rows_on("main", "nyc.trips") == []


def test_a_branch_that_somebody_else_wrote_another_table_to_is_not_published(house: FakeLakehouse) -> None:
    request = planned(house).request
    staged = stage(house.context, request)
    report = audit(house.context, staged, request.checks)
    other = WriteTarget(
        table=TableIdentifier.parse("nyc.other"),
        ref=request.branch,
        table_schema=None,
        create=CreateTable(location="mem://warehouse/nyc/other"),
    )
    house.append(house.batch("other", CLEAN), other)

    with pytest.raises(ConflictError, match=r"Branch .* also changed nyc\.other"):
        publish(house.context, audited(request, staged, report))
    assert house.rows_on("main", "nyc.trips") == []
    assert request.branch in branches(house)


def test_a_failed_report_cannot_be_published(house: FakeLakehouse) -> None:
    request = planned(house, WITH_NULLS).request
    staged = stage(house.context, request)
    report = audit(house.context, staged, request.checks)

    with pytest.raises(AuditFailedError, match=r"not_null\(passengers\)"):
        publish(house.context, audited(request, staged, report))


def test_a_report_about_something_else_cannot_be_published(house: FakeLakehouse) -> None:
    request = planned(house).request
    staged = stage(house.context, request)
    report = audit(house.context, staged, request.checks).model_copy(update={"metadata_location": "mem://other"})

    with pytest.raises(AuditFailedError, match="hasn't been audited"):
        publish(house.context, audited(request, staged, report))


@pytest.mark.parametrize("arrives", ["at once", "after a look for it", "never", "never, but another run's does"])
def test_a_lost_answer_is_settled_by_reading_the_history(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, arrives: str
) -> None:
    commit, history = house.catalog.commit, house.catalog.history
    answers: Iterator[bool] = iter([True])

    def lossy(request: CommitRequest) -> Ref:
        if request.branch == "main" and next(answers, False):

            def arrive_meanwhile(*_: object, **__: object) -> Iterator[Any]:
                monkeypatch.setattr(house.catalog, "history", history)
                commit(request)
                return iter(())

            if arrives == "at once":
                commit(request)
            elif arrives == "after a look for it":
                monkeypatch.setattr(house.catalog, "history", arrive_meanwhile)
            elif arrives == "never, but another run's does":
                ingest(house.context, ordered(house, run="r2", table=TableIdentifier.parse("nyc.others")))
            raise OutcomeUnknownError("The connection broke.")
        return commit(request)

    monkeypatch.setattr(house.catalog, "commit", lossy)
    run = ingest(house.context, ordered(house))

    assert run.status == "published"
    assert house.rows_on("main", "nyc.trips") == CLEAN
    assert sum("nyc.trips" in one.tables for one in house.catalog.history("main", operations=True)) == 1


def test_a_commit_that_lost_to_its_own_earlier_one_is_found_at_the_last_attempt_too(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = house.catalog.commit
    on_its_way: list[CommitRequest] = []
    house.publish_attempts = 2

    def late(request: CommitRequest) -> Ref:
        if request.branch != "main":
            return commit(request)
        if not on_its_way:
            on_its_way.append(request)
            raise OutcomeUnknownError("The connection broke.")
        commit(on_its_way[0])
        return commit(request)

    monkeypatch.setattr(house.catalog, "commit", late)
    run = ingest(house.context, ordered(house))

    assert (run.status, house.rows_on("main", "nyc.trips")) == ("published", CLEAN)
    assert branches(house) == ["main"]


@pytest.mark.parametrize("what", ["catalog", "journal"])
def test_an_outcome_stays_unknown_when_the_next_attempt_fails_before_its_commit(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A look for the commit right after the lost answer may come before the commit."""
    commit, history = house.catalog.commit, house.catalog.history
    on_its_way: list[CommitRequest] = []
    wanted = ordered(house)

    def away(*_: object, **__: object) -> Any:
        raise CatalogUnavailableError("Nessie is away.") if what == "catalog" else RetryableError("No journal.")

    with monkeypatch.context() as patch:

        def lossy(request: CommitRequest) -> Ref:
            if request.branch != "main":
                return commit(request)
            patch.setattr(house.catalog, "history", look_once)
            on_its_way.append(request)
            raise OutcomeUnknownError("The connection broke.")

        def look_once(*arguments: Any, **options: Any) -> Iterator[Any]:
            patch.setattr(house.catalog, "history", away if what == "catalog" else history)
            if what == "journal":
                patch.setattr(house.journal, "renew", away)
            return history(*arguments, **options)

        patch.setattr(house.catalog, "commit", lossy)
        with pytest.raises(OutcomeUnknownError, match="may or may not") as caught:
            ingest(house.context, wanted)
        assert caught.value.exit_code == 4

    commit(on_its_way[0])
    house.kill()
    run = review.publish_branch(house.context, wanted.branch, configured=lambda _: ())
    assert (run.status, house.rows_on("main", "nyc.trips")) == ("published", CLEAN)


@pytest.mark.parametrize("step", ["append", "count_failing"])
def test_an_engine_that_goes_away_leaves_nothing_behind(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    wanted = ordered(house, checks=("in_range(passengers, 0, 9)",))

    def away(*_: object, **__: object) -> None:
        raise EngineUnavailableError("Spark went away.")

    monkeypatch.setattr(house, step, away)
    with pytest.raises(EngineUnavailableError) as caught:
        ingest(house.context, wanted)
    assert caught.value.exit_code == 3
    assert branches(house) == ["main"]
    run = known(house)
    assert run.error is not None
    assert (run.status, run.error.code) == ("failed", "engine-unavailable")


@pytest.mark.parametrize("point", ["before-stage", "after-branch", "after-stage", "after-audit", "before-publish"])
def test_an_interrupt_before_the_commit_removes_the_branch(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv("LAKEGATE_FAULT", f"{point}:interrupt")
    with pytest.raises(KeyboardInterrupt, match="was removed"):
        ingest(house.context, ordered(house))
    assert branches(house) == ["main"]
    assert house.rows_on("main", "nyc.trips") == []
    assert house.cancelled


@pytest.mark.parametrize("point", ["after-publish", "after-branch-delete"])
def test_an_interrupt_after_the_commit_says_that_it_is_published(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv("LAKEGATE_FAULT", f"{point}:interrupt")
    with pytest.raises(KeyboardInterrupt, match="published already"):
        ingest(house.context, ordered(house))
    run = known(house)
    assert (run.status, branches(house)) == ("published", ["main"])
    assert house.rows_on("main", "nyc.trips") == CLEAN


def test_a_batch_that_does_not_fit_lists_every_difference(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))

    with pytest.raises(SchemaError) as caught:
        planned(house, [{"id": "x", "passenger": 1}], run="r2", checks=())
    message = caught.value.message
    assert "'id' is string in the batch and long in the table" in message
    assert "'passengers' (long) is missing in the batch" in message
    assert "'passenger' (long) isn't in the table (the table has 'passengers')" in message


def test_local_files_need_an_engine_that_sees_them(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house, "shares_files", False)
    with pytest.raises(InputError, match="on another one and can't read them"):
        planned(house)


def test_a_branch_written_by_hand_is_audited_before_it_is_published(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    house.catalog.create_branch("byhand", house.catalog.get_ref("main"))
    house.append(house.batch("h", WITH_NULLS), WriteTarget(table=TRIPS, ref="byhand", table_schema=None))

    with pytest.raises(AuditFailedError):
        review.publish_branch(house.context, "byhand", configured=lambda _: list(parse_checks("not_null(passengers)")))
    assert house.rows_on("main", "nyc.trips") == CLEAN


def test_nothing_is_staged_on_a_fresh_branch_on_main_or_nowhere(house: FakeLakehouse) -> None:
    house.catalog.create_branch("fresh", house.catalog.get_ref("main"))
    with pytest.raises(InputError, match="hasn't changed any table"):
        find_staged(house.context, "fresh")
    house.catalog.create_tag("january", house.catalog.get_ref("main"))
    with pytest.raises(InputError, match="'january' is a tag, not a branch"):
        find_staged(house.context, "january")
    with pytest.raises(InputError, match="what everyone reads"):
        find_staged(house.context, "main")
    with pytest.raises(NotFoundError):
        find_staged(house.context, "nowhere")


def test_main_cannot_be_discarded_and_a_missing_branch_is_no_surprise(house: FakeLakehouse) -> None:
    with pytest.raises(InputError):
        discard(house.context, "main")
    assert not discard(house.context, "nowhere")


def test_a_branch_that_no_run_made_is_dropped_as_it_is(house: FakeLakehouse) -> None:
    house.catalog.create_branch("mine", house.catalog.get_ref("main"))
    assert discard_run(house.context, "mine") is None
    assert branches(house) == ["main"]
    with pytest.raises(NotFoundError, match="mine"):
        discard_run(house.context, "mine")
    with pytest.raises(InputError, match="what everyone reads"):
        discard_run(house.context, "main")


def test_a_published_file_is_skipped_whatever_columns_the_table_has(house: FakeLakehouse) -> None:
    wide = [{"id": 3, "passengers": 1, "tip": 2}]
    ingest(house.context, ordered(house))
    ingest(house.context, ordered(house, wide, run="r2", schema_mode="ignore_extra"))

    again = ingest(house.context, ordered(house, wide, run="r3", file="r2"))

    assert (again.status, [known.run_id for known in again.skipped_files]) == ("skipped", ["r2"])
    assert house.journal.get("r3") == again
    with pytest.raises(SchemaError, match="tip"):
        ingest(house.context, ordered(house, wide, run="r4"))
