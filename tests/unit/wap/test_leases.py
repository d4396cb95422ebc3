"""Who owns a run: leases that are lost on the way, and a journal that's unavailable when a run ends."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import update

from lakegate.errors import LeaseLostError, OutcomeUnknownError, RetryableError
from lakegate.journal.factory import open_sqlite
from lakegate.journal.schema import LEASES, as_text
from lakegate.ledger.sync import sync
from lakegate.model.refs import CommitRequest, Ref
from lakegate.model.run import Run
from lakegate.wap import session
from lakegate.wap.ingest import ingest
from lakegate.wap.recover import recover
from lakegate.wap.revert import revert
from lakegate.wap.review import discard_run
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, MORE, WITH_NULLS, branches, ordered, when_reached

AWAY = RetryableError("The journal is away.")


def expire(house: FakeLakehouse) -> None:
    """Let all leases run out, as when their owners slept."""
    with house.database.writing() as tx:
        tx.execute(update(LEASES).values(expires_at=as_text(datetime(2000, 1, 1, tzinfo=UTC))))


def takes_over(house: FakeLakehouse) -> list[Run]:
    expire(house)
    return list(recover(house.context))


def commits(house: FakeLakehouse) -> int:
    return len([commit for commit in house.catalog.history("main") if commit.properties])


def known(house: FakeLakehouse, run_id: str = "r1") -> tuple[str, bool]:
    run = house.journal.get(run_id)
    assert run is not None
    return run.status, run.finished_at is not None


@pytest.mark.parametrize("point", ["before-publish", "before-commit", "after-publish"])
def test_an_owner_whose_run_was_published_by_its_recovery_says_so(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    # Its recovery is in this process, and the turn that it waits for is the owner's own.
    monkeypatch.setattr("lakegate.wap.publish_lock._LOCK_TIMEOUT_S", 0.05)
    with when_reached(monkeypatch, point, lambda: takes_over(house)):
        run = ingest(house.context, ordered(house))
    assert (run.status, known(house), commits(house)) == ("published", ("published", True), 1)
    assert house.rows_on("main", "nyc.trips") == CLEAN
    assert ingest(house.context, ordered(house, run="r2", file="r1")).status == "skipped"


@pytest.mark.parametrize("point", ["after-claim", "before-stage", "after-branch", "after-stage", "after-audit"])
def test_an_owner_whose_run_was_undone_lost_its_lease(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    with (
        when_reached(monkeypatch, point, lambda: takes_over(house)),
        pytest.raises(LeaseLostError, match="Run r1 lost its lease") as caught,
    ):
        ingest(house.context, ordered(house))
    assert (int(caught.value.exit_code), known(house), branches(house)) == (3, ("failed", True), ["main"])
    assert ingest(house.context, ordered(house, run="r2", file="r1")).status == "published"


def test_a_commit_that_arrives_after_its_run_was_undone_corrects_the_record(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no lease can prevent: the commit was on its way already, and the connection with its lock was lost."""
    ingest(house.context, ordered(house))
    commit = house.catalog.commit

    def late(request: CommitRequest) -> Ref:
        monkeypatch.undo()
        monkeypatch.setattr("lakegate.wap.recover.require_nobody_publishes", lambda *_: None)
        assert [run.status for run in takes_over(house)] == ["failed"]
        return commit(request)

    monkeypatch.setattr(house.catalog, "commit", late)
    run = revert(house.context, "r1", new_run_id="undo")
    assert (run.status, known(house, "undo"), known(house)[0]) == ("published", ("published", True), "reverted")
    found = house.journal.get("undo")
    assert found is not None
    assert "Was recorded as failed" in str(found.detail)
    assert house.rows_on("main", "nyc.trips") == []


@pytest.mark.parametrize(("rows", "status"), [(CLEAN, "published"), (WITH_NULLS, "rejected")])
def test_a_journal_that_stays_unavailable_does_not_change_the_outcome(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, object]], status: str
) -> None:
    def away(*_: object, **__: object) -> Run:
        raise AWAY

    monkeypatch.setattr(session, "_END_RETRY_S", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(house.journal, "end", away)
        if status == "published":
            patch.setattr("lakegate.wap.recover.sync", away)
        assert ingest(house.context, ordered(house, rows)).status == status
    assert not known(house)[1]
    assert [run.status for run in takes_over(house)] == [status]
    assert known(house) == (status, True)


def test_ctrl_c_is_handled_after_the_commits_answer(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = house.catalog.commit

    def slow(request: CommitRequest) -> Ref:
        if request.branch == "main":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        return commit(request)

    monkeypatch.setattr(house.catalog, "commit", slow)
    with pytest.raises(KeyboardInterrupt, match="Run r1 had been published already"):
        ingest(house.context, ordered(house))
    assert (known(house), house.rows_on("main", "nyc.trips")) == (("published", True), CLEAN)


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_during_a_commit_without_an_answer_leaves_the_run_to_recovery(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, signals: int
) -> None:
    commit, on_its_way = house.catalog.commit, list[CommitRequest]()

    def slow(request: CommitRequest) -> Ref:
        if request.branch != "main":
            return commit(request)
        on_its_way.append(request)
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
        raise OutcomeUnknownError("The connection broke.")

    with monkeypatch.context() as patch:
        patch.setattr(house.catalog, "commit", slow)
        with pytest.raises(KeyboardInterrupt, match="may or may not have been published"):
            ingest(house.context, ordered(house))
    commit(on_its_way[0])
    assert [run.status for run in recover(house.context)] == ["published"]
    assert (commits(house), house.rows_on("main", "nyc.trips"), branches(house)) == (1, CLEAN, ["main"])


def test_a_branch_is_not_discarded_from_under_a_run_that_is_worked_on(
    house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakegate.wap.review._PATIENCE_S", 0.05)
    order = ordered(house)

    def refused() -> None:
        with pytest.raises(RetryableError, match="Another process is working on run r1"):
            discard_run(house.context, order.branch)

    with when_reached(monkeypatch, "before-commit", refused):
        assert ingest(house.context, order).status == "published"
    assert house.rows_on("main", "nyc.trips") == CLEAN


def test_what_is_on_main_is_not_discarded(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    order, answers = ordered(house, MORE), []

    def discarding() -> None:
        expire(house)
        answers.append(discard_run(house.context, order.branch))

    with when_reached(monkeypatch, "after-publish", discarding):
        assert ingest(house.context, order).status == "published"
    assert [run.status for run in answers if run] == ["published"]
    sync(house.context, "main")
    assert known(house) == ("published", True)


def test_the_journal_is_nobody_elses_business(tmp_path: Path) -> None:
    home = tmp_path / ".lakegate"
    (home / "locks").mkdir(parents=True)
    for lax in (home, home / "locks"):
        lax.chmod(0o755)
    (home / "journal.db").touch(0o644)
    before = os.umask(0o022)
    try:
        journal = open_sqlite(home / "journal.db")
        with journal.lock("x", timeout_s=1):
            modes = {path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in (home, *home.rglob("*"))}
        journal.close()
    finally:
        os.umask(before)
    assert {Path(".lakegate/journal.db"), Path(".lakegate/journal.db-wal"), Path(".lakegate/locks")} <= set(modes)
    assert all(mode == (0o700 if (tmp_path / path).is_dir() else 0o600) for path, mode in modes.items()), modes
