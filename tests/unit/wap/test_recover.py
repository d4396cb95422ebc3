"""Recovery, when something goes wrong while it works, and rebuilding the journal from the target's history."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from lakegate.context import Context
from lakegate.errors import (
    ConfigurationError,
    EngineUnavailableError,
    LakegateError,
    NotFoundError,
    RetryableError,
    StorageUnavailableError,
)
from lakegate.ledger.publication import find_publication
from lakegate.ledger.sync import sync
from lakegate.model.batch import SourceFile
from lakegate.model.refs import CommitRequest
from lakegate.model.run import FileCheckpoint, Run
from lakegate.progress import SilentNarrator
from lakegate.wap import failpoints
from lakegate.wap import recover as recovery
from lakegate.wap.ingest import ingest
from lakegate.wap.rebuild import rebuild
from lakegate.wap.recover import CannotPublishError, recover, recover_now
from lakegate.wap.revert import revert
from support.fakes import FakeLakehouse
from support.flow_support import branches, ordered, when_reached
from support.ledger_support import properties
from support.revert_support import House


class DiedError(BaseException):
    """The process ends here."""


def rows(number: int) -> list[dict[str, Any]]:
    return [{"id": number, "passengers": 1}]


def test_a_journal_that_goes_away_meanwhile_costs_no_run_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.add("z", rows(9))

    def die(point: str) -> None:
        if point == "before-publish":
            raise DiedError

    with monkeypatch.context() as patched, pytest.raises(DiedError):
        patched.setattr(failpoints, "reach", die)
        ingest(house.context, ordered(house, rows(1), run="a", checks=("unique(id, scope='table')",)))
    house.kill()
    save = house.journal.save
    refused: list[Run] = []

    def away_once(run: Run, *arguments: Any, **options: Any) -> Any:
        if run.run_id == "a" and run.reports and not refused:
            refused.append(run)
            raise RetryableError("The journal isn't available.")
        return save(run, *arguments, **options)

    monkeypatch.setattr(house.journal, "save", away_once)
    with pytest.raises(RetryableError):
        recover(house.context)
    house.kill()
    assert [(run.run_id, run.status) for run in recover(house.context)] == [("a", "published")]
    assert refused
    assert sorted(row["id"] for row in house.rows()) == [1, 9]


@pytest.mark.parametrize(
    "away",
    [
        ConfigurationError("PySpark isn't installed."),
        EngineUnavailableError("Spark is away."),
        StorageUnavailableError("S3 is away."),
    ],
)
def test_what_recovery_needs_and_cannot_reach_costs_no_run_that_passed(
    monkeypatch: pytest.MonkeyPatch, away: LakegateError
) -> None:
    """It stops nobody else either."""
    house = House()
    house.add("z", rows(9))

    def overtake_and_die() -> None:
        house.add("b", rows(2))
        raise DiedError

    def refuse(*_: object, **__: object) -> Any:
        raise away

    with when_reached(monkeypatch, "before-publish", overtake_and_die), pytest.raises(DiedError):
        ingest(house.context, ordered(house, rows(1), run="a", checks=("unique(id, scope='table')",)))
    house.kill()
    with monkeypatch.context() as patched:
        patched.setattr(house, "count_known", refuse)
        patched.setattr(house, "count_failing", refuse)
        assert recover(house.context) == ()
        with pytest.raises(
            CannotPublishError, match=f"can't be published from here right now: {away.message}"
        ) as caught:
            recover_now(house.context, "a")
        assert (caught.value.hint or "").endswith("To give it up, drop its branch: lakegate discard wap/nyc.trips_a")
    assert [(run.run_id, run.status) for run in recover(house.context)] == [("a", "published")]
    assert sorted(row["id"] for row in house.rows()) == [1, 2, 9]


def test_a_run_whose_record_is_damaged_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.add("z", rows(9))
    order = ordered(house, rows(1), run="a")
    house.dies_at(monkeypatch, "before-publish", lambda: ingest(house.context, order))
    with house.database.writing() as tx:
        tx.execute(text("UPDATE runs SET document = '{' WHERE run_id = 'a'"))
    assert [(run.run_id, run.status) for run in recover(house.context)] == [("a", "failed")]
    assert order.branch not in branches(house)


@pytest.mark.parametrize("error", [NotFoundError("A file is missing."), KeyError("secret")])
def test_one_run_that_cannot_be_recovered_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    house = House()
    house.add("z", rows(9))
    house.dies_at(monkeypatch, "before-publish", lambda: ingest(house.context, ordered(house, rows(1), run="a")))
    original, notes, narrator = find_publication, list[str](), SilentNarrator()

    def fail(context: Context, run: Run, **options: Any) -> Any:
        if run.run_id == "a":
            raise error
        return original(context, run, **options)

    with monkeypatch.context() as patched:
        patched.setattr(recovery, "find_publication", fail)
        patched.setattr(narrator, "note", notes.append)
        house.dies_at(monkeypatch, "before-publish", lambda: ingest(house.context, ordered(house, rows(2), run="b")))
        recovered = recover(replace(house.context, narrator=narrator))
        assert [(run.run_id, run.status) for run in recovered] == [("b", "published")]
        with pytest.raises(type(error)):
            recover_now(house.context, "a")
    said = "A file is missing." if isinstance(error, LakegateError) else "Internal error: KeyError."
    note = f"Run a couldn't be recovered: {said} After fixing it: lakegate admin recover a"
    assert note in notes
    # A quiet command in JSON, as cron runs it, writes only warnings and errors.
    assert ("WARNING", note) in [(one.levelname, one.message) for one in caplog.records]
    assert [run.run_id for run in recover(house.context)] == ["a"]


def test_a_recovered_revert_is_a_revert_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.add("a", rows(1))
    house.dies_at(monkeypatch, "after-publish", lambda: revert(house.context, "a", new_run_id="undo"))
    assert [(run.run_id, run.status) for run in recover(house.context)] == [("undo", "published")]
    assert house.status("a") == ("reverted", "undo")


TABLE = "nyc.trips"
_NUMBERS = itertools.count()


def source(name: str, version: str = "1") -> SourceFile:
    return SourceFile(uri=f"file:///{name}", size_bytes=1, version=version, rows=1)


def commit(house: FakeLakehouse, run_id: str | None, *files: SourceFile, reverts: str = "") -> str:
    about = properties(run_id, TABLE, files=files, removes=reverts.split()) if run_id else {}
    base = house.catalog.get_ref("main").hash
    request = CommitRequest(
        branch="main", base=base, message="m", namespaces=((f"n{next(_NUMBERS)}",),), properties=about
    )
    return house.catalog.commit(request).hash


def test_a_lost_journal_learns_what_is_published() -> None:
    house = FakeLakehouse()
    before = len(list(house.catalog.history("main")))
    commit(house, "run-1", source("a"), source("b"))
    commit(house, None)
    head = commit(house, "run-2", source("c"))
    rebuilt = rebuild(house.context, "main")
    assert (rebuilt.head.hash, rebuilt.commits - before, rebuilt.runs, rebuilt.files) == (head, 3, 2, 3)
    known = house.journal.known(TABLE, [source("a"), source("c"), source("d")])
    assert {(one.file.uri, one.run_id) for one in known.published} == {("file:///a", "run-1"), ("file:///c", "run-2")}
    assert house.journal.synced("main") == head


@pytest.mark.parametrize("learn", [rebuild, sync])
def test_runs_whose_commits_are_gone_are_taken_back(learn: Callable[[Context, str], object]) -> None:
    house = FakeLakehouse()
    commit(house, "run-1", source("a"))
    kept = house.catalog.get_ref("main")
    ref = kept.model_copy(update={"hash": commit(house, "run-2", source("b"))})
    sync(house.context, "main")
    about: dict[str, Any] = {"stamp": "1", "outcome": "done", "noted_at": datetime(2026, 1, 1, tzinfo=UTC)}
    landed = [
        FileCheckpoint(uri=f"file:///{name}", run_id=f"run-{number}", **about) for number, name in ((1, "a"), (2, "b"))
    ]
    house.journal.save_file_checkpoints(TABLE, landed)
    house.catalog.assign_ref(ref, kept)
    learn(house.context, "main")
    first, second = (house.journal.get(f"run-{number}") for number in (1, 2))
    assert first is not None
    assert second is not None
    assert (first.status, second.status, second.publication) == ("published", "discarded", None)
    assert "isn't in main any more" in str(second.detail)
    assert list(house.journal.file_checkpoints(TABLE, [one.uri for one in landed])) == ["file:///a"]


@pytest.mark.parametrize("learn", [rebuild, sync])
@pytest.mark.parametrize("moves_on", [False, True])
def test_a_commit_that_main_lost_before_anybody_read_it_is_taken_back(
    monkeypatch: pytest.MonkeyPatch, learn: Callable[[Context, str], object], *, moves_on: bool
) -> None:
    """A catalog's database fails over to a copy that lacks the last commit, whose run was told that it was made."""
    house = House()
    house.add("r1", rows(1))
    before = house.head()

    def lose() -> None:
        house.catalog.assign_ref(house.head(), before)
        if moves_on:
            commit(house, "run-2", source("b"))

    def away(*_: object) -> Any:
        raise RetryableError("The catalog isn't back yet.")

    with monkeypatch.context() as patched, when_reached(monkeypatch, "after-publish", lose):
        patched.setattr(recovery, "sync", away)
        house.add("r2", rows(2))
    assert house.status("r2") == ("published", None)
    learn(house.context, "main")
    run = house.journal.get("r2")
    assert run is not None
    assert (run.status, run.publication) == ("discarded", None)
    assert house.add("r3", rows(2), file="r2").status == "published"
    assert house.rows() == [*rows(1), *rows(2)]
    assert house.journal.synced_and_unread("main") == (house.head().hash, frozenset())


@pytest.mark.parametrize("learn", [rebuild, sync])
@pytest.mark.parametrize("resets", [False, True])
def test_what_others_record_while_a_journal_is_rebuilt_stays(
    monkeypatch: pytest.MonkeyPatch, learn: Callable[[Context, str], object], *, resets: bool
) -> None:
    """A process that synced before the rebuild is written starts from the new head, and searches no commit before."""
    house = FakeLakehouse()
    commit(house, "run-1", source("a"))
    if resets:
        lost = house.catalog.get_ref("main")
        sync(house.context, "main")
        commit(house, "run-0", source("z"))
        sync(house.context, "main")
        house.catalog.assign_ref(house.catalog.get_ref("main"), lost)
    record = house.journal.record
    pending = [1]

    def overtaken(*arguments: Any, **options: Any) -> Any:
        if pending:
            pending.pop()
            commit(house, "run-2", source("b"))
            sync(house.context, "main")
        return record(*arguments, **options)

    def known_to_the_overtaker(*arguments: Any, **options: Any) -> bool:
        done = overtaken(*arguments, **options)
        assert [one.run_id for one in house.journal.known(TABLE, [source("b")]).published] == ["run-2"]
        return bool(done)

    monkeypatch.setattr(house.journal, "record", known_to_the_overtaker)
    learn(house.context, "main")
    files = [source("a"), source("b"), source("z")]
    assert [one.run_id for one in house.journal.known(TABLE, files).published] == ["run-1", "run-2"]
    assert house.journal.synced("main") == house.catalog.get_ref("main").hash
    assert pending == []
