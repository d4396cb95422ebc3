"""Concurrent runs: on one table, on one file, and on what a dead run left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lakegate.errors import ConflictError, InputError, RetryableError
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import Run
from lakegate.wap.ingest import ingest
from lakegate.wap.recover import recover
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, MOST, TRIPS, branches, ordered, when_reached


def test_a_run_that_lost_to_another_is_rebased_without_writing_again(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(house.context, ordered(house))
    with when_reached(monkeypatch, "before-publish", lambda: ingest(house.context, ordered(house, MOST, run="r3"))):
        run = ingest(house.context, ordered(house, MORE, run="r2"))

    assert run.publication is not None
    assert (run.status, run.publication.replayed) == ("published", ("nyc.trips",))
    assert house.rows_on("main", "nyc.trips") == [*CLEAN, *MOST, *MORE]
    assert house.writes == 3
    assert branches(house) == ["main"]


def test_a_commit_to_a_branch_during_its_publish_is_not_dropped(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_on() -> None:
        branch = next(ref for ref in house.catalog.list_refs() if ref.name != "main")
        house.catalog.commit(
            CommitRequest(branch=branch.name, base=branch.hash, message="late", namespaces=(("late",),))
        )

    with when_reached(monkeypatch, "before-publish", write_on):
        run = ingest(house.context, ordered(house))

    assert run.status == "published"
    assert run.branch_kept
    assert branches(house) == ["main", run.branch]


def test_two_runs_that_create_one_table_both_publish(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    with when_reached(monkeypatch, "before-publish", lambda: ingest(house.context, ordered(house, MORE, run="r2"))):
        run = ingest(house.context, ordered(house))

    assert run.status == "published"
    assert house.rows_on("main", "nyc.trips") == [*MORE, *CLEAN]


def test_a_file_is_published_once(house: FakeLakehouse) -> None:
    first = ingest(house.context, ordered(house))
    again = ingest(house.context, ordered(house, run="r2", file="r1"))

    assert again.status == "skipped"
    assert [(known.file.uri, known.run_id) for known in again.skipped_files] == [("file:///r1.parquet", first.run_id)]
    assert again.detail is not None
    assert "already published by run r1" in again.detail
    assert house.rows_on("main", "nyc.trips") == CLEAN
    assert branches(house) == ["main"]


def test_a_published_file_is_not_skipped_if_another_writer_dropped_its_table(house: FakeLakehouse) -> None:
    first = ingest(house.context, ordered(house))
    assert first.publication is not None
    head = house.catalog.get_ref("main")
    house.catalog.commit(CommitRequest(branch="main", base=head.hash, message="drop", deletes=(TRIPS,)))
    with pytest.raises(
        InputError, match=r"already published, but nyc\.trips doesn't exist on main any more"
    ) as refused:
        ingest(house.context, ordered(house, run="r2", file="r1"))
    assert refused.value.hint is not None
    assert f"lakegate table restore nyc.trips --at {first.publication.commit[:12]}, " in refused.value.hint


def test_a_file_is_published_once_though_the_journal_was_lost(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    house.lose_journal()
    again = ingest(house.context, ordered(house, run="r2", file="r1"))

    assert again.status == "skipped"
    assert house.rows_on("main", "nyc.trips") == CLEAN
    assert house.journal.get("r1") is not None


def test_a_file_that_two_journals_let_two_runs_claim_is_published_once(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(house.context, ordered(house, MOST, run="r0"))
    journal = house.journal

    def elsewhere() -> None:
        house.lose_journal()
        ingest(house.context, ordered(house, run="r2", file="r1"))
        house.journal = journal

    with when_reached(monkeypatch, "before-publish", elsewhere):
        run = ingest(house.context, ordered(house))

    assert (run.status, run.skipped_files[0].run_id) == ("skipped", "r2")
    assert house.rows_on("main", "nyc.trips") == [*MOST, *CLEAN]
    assert branches(house) == ["main"]


def test_other_content_under_a_published_path_is_refused(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    with pytest.raises(InputError, match=r"was published to nyc\.trips by run r1 with other content") as caught:
        ingest(house.context, ordered(house, MORE, run="r2", file="r1", version="2"))
    assert caught.value.hint is not None
    assert "--on-changed" in caught.value.hint
    assert branches(house) == ["main"]


def test_other_content_replaces_the_rows_of_that_file_when_asked(house: FakeLakehouse) -> None:
    ingest(house.context, ordered(house))
    ingest(house.context, ordered(house, MOST, run="r0"))
    run = ingest(house.context, ordered(house, MORE, run="r2", file="r1", version="2", on_changed="replace"))

    assert run.status == "published"
    assert house.rows_on("main", "nyc.trips") == [*MOST, *MORE]
    replaced = house.journal.get("r1")
    assert replaced is not None
    assert (replaced.status, replaced.reverted_by) == ("reverted", "r2")
    assert len(list(house.catalog.history("main"))) == 3


def test_rows_that_are_replaced_do_not_count_against_unique_keys(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    unique = ("unique(id, scope='table')",)
    ingest(house.context, ordered(house, checks=unique))
    newer = ordered(house, [*CLEAN, *MORE], run="r2", file="r1", version="2", on_changed="replace", checks=unique)
    with when_reached(monkeypatch, "before-publish", lambda: ingest(house.context, ordered(house, MOST, run="r3"))):
        run = ingest(house.context, newer)

    assert run.status == "published"
    assert house.rows_on("main", "nyc.trips") == [*MOST, *CLEAN, *MORE]


def test_a_unique_key_that_a_concurrent_run_published_meanwhile_rejects_the_run(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(house.context, ordered(house))
    unique = ("unique(id, scope='table')",)
    with when_reached(
        monkeypatch, "before-publish", lambda: ingest(house.context, ordered(house, MORE, run="r3", checks=unique))
    ):
        run = ingest(house.context, ordered(house, MORE, run="r2", checks=unique))

    assert run.status == "rejected"
    assert [failure.failing_rows for failure in run.failures] == [1]
    assert house.rows_on("main", "nyc.trips") == [*CLEAN, *MORE]


def test_a_unique_key_is_rechecked_and_passes_when_the_concurrent_run_has_other_keys(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    unique = ("unique(id, scope='table')", "not_null(passengers)")
    ingest(house.context, ordered(house, checks=unique))
    others: list[Run] = []

    def publish_another() -> None:
        others.append(ingest(house.context, ordered(house, MOST, run="r3", checks=unique)))

    with when_reached(monkeypatch, "before-publish", publish_another):
        run = ingest(house.context, ordered(house, MORE, run="r2", checks=unique))

    assert run.status == "published"
    assert others[0].publication is not None
    assert [report.at for report in run.reports] == [others[0].publication.commit], "the state that it was asked of"


@pytest.mark.parametrize(
    ("point", "status", "rows"),
    [
        ("before-stage", "failed", []),
        ("after-branch", "failed", []),
        ("after-stage", "failed", []),
        ("after-audit", "failed", []),
        ("before-publish", "published", CLEAN),
        ("after-publish", "published", CLEAN),
        ("after-branch-delete", "published", CLEAN),
    ],
)
def test_a_dead_run_is_finished_or_undone(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str, status: str, rows: Sequence[dict[str, Any]]
) -> None:
    house.dies_at(monkeypatch, point, lambda: ingest(house.context, ordered(house)))

    (settled,) = recover(house.context)
    assert (settled.run_id, settled.status) == ("r1", status)
    assert house.rows_on("main", "nyc.trips") == rows
    assert branches(house) == ["main"]
    assert recover(house.context) == ()
    again = ingest(house.context, ordered(house, run="r2", file="r1"))
    assert again.status == ("published" if status == "failed" else "skipped")
    assert house.rows_on("main", "nyc.trips") == CLEAN


def test_the_next_ingest_recovers_by_itself(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    house.dies_at(monkeypatch, "after-stage", lambda: ingest(house.context, ordered(house)))
    run = ingest(house.context, ordered(house, run="r2", file="r1"))

    assert run.status == "published"
    assert branches(house) == ["main"]


def test_a_busy_file_is_waited_for_but_not_for_ever(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[RetryableError] = []

    def publish_another() -> None:
        with pytest.raises(RetryableError, match="Run r1 is still working on") as caught:
            ingest(house.context, ordered(house, run="r2", file="r1", wait_s=0.3))
        errors.append(caught.value)

    with when_reached(monkeypatch, "after-stage", publish_another):
        assert ingest(house.context, ordered(house)).status == "published"
    assert errors


def test_a_target_that_keeps_moving_is_a_conflict(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[CommitRequest] = []

    def refuse(request: CommitRequest) -> Ref:
        if request.branch == "main":
            refused.append(request)
            raise ConflictError("No.")
        return commit(request)

    commit = house.catalog.commit
    house.publish_attempts = 3
    monkeypatch.setattr(house.catalog, "commit", refuse)
    with pytest.raises(ConflictError):
        ingest(house.context, ordered(house))
    failed = house.journal.get("r1")
    assert failed is not None
    assert (failed.status, failed.branch_kept, len(refused)) == ("failed", True, 3)
