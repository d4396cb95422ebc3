"""Group commit: runs that wait for one table's lock are published in one commit, and each stays a run of its own."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from lakegate.config import Settings
from lakegate.dashboard.history import list_commits
from lakegate.dashboard.model import ReadModel
from lakegate.errors import (
    CatalogUnavailableError,
    LakegateError,
    NewerFormatError,
    OutcomeUnknownError,
    RetryableError,
    StorageUnavailableError,
)
from lakegate.journal.history import JournalCommits
from lakegate.journal.schema import CLAIMS, EVENTS, HISTORY, LEASES, PUBLISH_QUEUE, RUNS
from lakegate.model.batch import KnownFile
from lakegate.model.downstream import Delivery
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, CommitRequest, Ref
from lakegate.model.run import Acceptance, QueuedPublish, Run
from lakegate.wap import failpoints, group_commit
from lakegate.wap.context import Context
from lakegate.wap.discard import discard_run
from lakegate.wap.downstream import describe
from lakegate.wap.group_commit import _TargetHistory
from lakegate.wap.history import (
    EarlierAttemptError,
    events_of,
    files_in,
    find_commit,
    find_publication,
    parts_of,
    published_files,
    run_of,
    sync,
)
from lakegate.wap.ingest import ingest, undo
from lakegate.wap.optimistic_commit import publish_lock
from lakegate.wap.publish import publish
from lakegate.wap.recover import rebuild, recover
from lakegate.wap.table_changes import rename_table
from support.fakes import Died
from support.flow_support import TRIPS, branches, ordered, when_reached
from support.revert_support import House
from support.waiting import wait_until

LOCK = f"main/{TRIPS}"


class Stopped:
    """Runs in threads of their own, which have all come to wait for the publish lock when the body begins."""

    def __init__(self, house: House, works: Sequence[Callable[[], Run]], offered: Sequence[int] = ()) -> None:
        self.futures: list[Future[Run]] = []
        self._house = house
        self._works = works
        self._offered = offered or range(1, len(works) + 1)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        with ThreadPoolExecutor(len(self._works)) as pool, self._house.journal.lock(LOCK, timeout_s=0):
            for number, work in zip(self._offered, self._works, strict=True):
                self.futures.append(pool.submit(work))
                self._wait_for(number)
            yield

    def runs(self) -> list[Run]:
        return [future.result() for future in self.futures]

    def _wait_for(self, number: int) -> None:
        def is_queued() -> bool:
            if len(queued(self._house)) >= number:
                return True
            assert not self.futures[-1].done(), self.futures[-1]  # a result would raise what ended it, Ctrl+C, too
            return False

        wait_until(is_queued, poll_s=0.002)


def queued(house: House) -> list[str]:
    with house.database.reading() as tx:
        return list(tx.scalars(select(PUBLISH_QUEUE.c.run_id).order_by(PUBLISH_QUEUE.c.queued_at)))


def rows_of(number: int) -> list[dict[str, Any]]:
    return [{"id": number, "passengers": number}]


def adds(house: House, *numbers: int, **options: Any) -> list[Callable[[], Run]]:
    return [partial(house.add, f"r{number}", rows_of(number), **options) for number in numbers]


def commits(house: House) -> list[Commit]:
    return list(house.catalog.history("main", operations=True))


@pytest.fixture
def house() -> House:
    return _house().copy()


@pytest.fixture
def shared() -> House:
    """A lakehouse in which r1, r2 and r3 were published in one commit."""
    return _shared().copy()


@cache
def _house() -> House:
    house = House()
    house.add("r0", rows_of(0))
    return house


@cache
def _shared() -> House:
    house = _house().copy()
    stopped = Stopped(house, adds(house, 1, 2, 3))
    with stopped.waiting():
        pass
    assert [run.status for run in stopped.runs()] == ["published"] * 3
    return house


def test_waiting_runs_are_published_in_one_commit(shared: House) -> None:
    newest, oldest = commits(shared)
    order = newest.properties["lakegate.run-ids"].split()

    assert sorted(order) == ["r1", "r2", "r3"]
    assert newest.message == "Publish 3 runs to nyc.trips (3 rows)"
    assert newest.properties["lakegate.run-id"] == order[0]
    assert oldest.properties["lakegate.run-id"] == "r0"
    assert "lakegate.run-ids" not in oldest.properties
    assert shared.rows() == [row for number in range(4) for row in rows_of(number)]
    assert branches(shared) == ["main"]
    assert queued(shared) == []
    for run_id in order:
        run = shared.journal.get(run_id)
        assert run is not None
        assert run.publication is not None
        assert (run.status, run.publication.commit, run.publication.rows) == ("published", newest.hash, 1)


def test_an_included_run_looks_for_its_commit_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: defaultdict[int, list[str | None]] = defaultdict(list)
    history = house.catalog.history

    def noted(ref: str, **options: Any) -> Iterator[Commit]:
        if ref == "main" and options.get("operations"):
            asked[threading.get_ident()].append(options.get("run_id"))
        return history(ref, **options)

    def read(name: str, tables: object) -> Any:
        raise AssertionError(name, tables)

    stopped = Stopped(house, adds(house, 1, 2, 3))
    with monkeypatch.context() as watched, stopped.waiting():
        watched.setattr(house.catalog, "history", noted)
        watched.setattr(house.catalog, "get_ref_with_tables", read)
    assert [run.status for run in stopped.runs()] == ["published"] * 3
    assert list(asked.values()) == [[None]] * 3


def test_a_commit_in_an_unknown_format_hides_all_before_it(house: House) -> None:
    seen = house.head()
    house.add("r1", rows_of(1))
    newest = commits(house)[0]
    newer = newest.model_copy(update={"properties": newest.properties | {"lakegate.files": "nonsense"}})
    past = _TargetHistory(house.context, house.head(), [newer])
    with pytest.raises(NewerFormatError):
        past.since(seen.hash)
    assert past.since(seen.hash) is None
    assert past.since(house.head().hash) == ()


def test_a_run_that_began_long_ago_is_checked_against_the_commits_since(house: House) -> None:
    base = house.head()
    for number in (1, 2, 3):
        house.add(f"r{number}", rows_of(number))
    near = house.journal.commits.is_near
    assert [near("main", base.hash, within=number) for number in (2, 3, 4)] == [False, True, True]
    assert near("main", house.head().hash, within=0)
    assert not near("main", "0" * 16, within=100)


def test_only_speed_depends_on_how_much_was_committed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def away(*arguments: object, **_: object) -> Any:
        asked.append(arguments)
        raise RetryableError("The journal isn't available.")

    monkeypatch.setattr(JournalCommits, "is_near", away)
    assert house.add("r1", rows_of(1)).status == "published"
    assert asked


@pytest.mark.parametrize(("most", "number"), [(group_commit.MOST_COMMITS, 0), (-2, 2)])
def test_a_run_that_began_long_ago_reads_main_before_it_waits(
    house: House, monkeypatch: pytest.MonkeyPatch, most: int, number: int
) -> None:
    reads: list[str] = []
    read = house.catalog.get_ref_with_tables

    def noted(name: str, tables: Any) -> Any:
        reads.append(name)
        return read(name, tables)

    monkeypatch.setattr(house.catalog, "get_ref_with_tables", noted)
    monkeypatch.setattr("lakegate.wap.publish.MOST_COMMITS", most)
    stopped = Stopped(house, adds(house, 1, 2))
    with stopped.waiting():
        assert reads.count("main") == number
    assert [run.status for run in stopped.runs()] == ["published"] * 2


def test_commits_that_the_leader_has_not_read_are_read_once_for_all_runs(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = [house.head()]
    for number in (1, 2, 3):
        house.add(f"r{number}", rows_of(number))
        heads.append(house.head())
    newest, *older = commits(house)
    past = _TargetHistory(house.context, heads[-1], [newest])
    found = past.since(heads[0].hash)
    assert [one.commit.hash for one in found or ()] == [newest.hash, *(one.hash for one in older[:2])]
    monkeypatch.setattr(house.catalog, "history", None)
    assert [len(past.since(head.hash) or ()) for head in heads] == [3, 2, 1, 0]


def test_each_part_of_a_shared_commit_is_as_its_run_would_have_made_it_alone(shared: House) -> None:
    newest = commits(shared)[0]

    for part in parts_of(newest):
        assert part.hash == newest.hash
        assert files_in(part) == ((f"file:///{run_of(part)}.parquet", "1"),)
        assert part.properties["lakegate.audit"] == "1 passed, 0 warned"
        assert part.properties["lakegate.branch"] == f"wap/nyc.trips_{run_of(part)}"
        (event,) = events_of(part)
        assert (event.run_id, event.tables) == (run_of(part), ("nyc.trips",))
    files = [published_files(shared.context, f"r{number}", shared.head())[TRIPS] for number in (1, 2, 3)]
    assert [len(one) for one in files] == [1, 1, 1]
    assert len(frozenset.union(*files)) == 3


def test_a_lakegate_that_knows_no_shared_commits_fails_clearly(shared: House) -> None:
    with pytest.raises(NewerFormatError, match="format 3, known up to 2"):
        files_in(commits(shared)[0])


def test_a_shared_commit_in_an_unknown_format_is_not_misread(shared: House) -> None:
    newest = commits(shared)[0]
    for changed in (
        {"lakegate.files": '{"format":4,"runs":[]}'},
        {"lakegate.files": "nonsense"},
        {"lakegate.run-ids": "r1 r2"},
    ):
        with pytest.raises(NewerFormatError, match="newer lakegate"):
            parts_of(newest.model_copy(update={"properties": newest.properties | changed}))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_can_be_reverted_alone(shared: House, number: int) -> None:
    run = shared.undo(f"r{number}")

    left = [one for one in range(4) if one != number]
    assert shared.rows() == [row for one in left for row in rows_of(one)]
    assert (run.reverts, run.undone[0].data_files) == ((f"r{number}",), -1)
    assert [shared.status(f"r{one}")[0] for one in left] == ["published"] * 3
    assert shared.status(f"r{number}") == ("reverted", f"x-r{number}")
    assert shared.add("again", rows_of(number), file=f"r{number}").status == "published"
    assert shared.add("once-more", rows_of(left[1]), file=f"r{left[1]}").status == "skipped"


def test_a_reverted_run_can_be_restored_and_all_runs_reverted(shared: House) -> None:
    shared.undo("r2")
    shared.undo("x-r2", new="back")
    assert len(shared.rows()) == 4
    assert shared.status("r2")[0] == "published"
    for number in (3, 1, 2, 0):
        shared.undo(f"r{number}", new=f"gone-{number}")
    assert shared.rows() == []


def test_an_earlier_overwrite_is_reverted_and_the_shared_commit_stays(house: House) -> None:
    house.work("over", lambda tx: tx.overwrite("nyc.trips", rows_of(9)))
    stopped = Stopped(house, adds(house, 1, 2, 3))
    with stopped.waiting():
        pass
    house.undo("over")
    assert house.rows() == [row for one in range(4) for row in rows_of(one)]


def test_a_lost_journal_learns_of_each_run(shared: House) -> None:
    shared.undo("r2")
    shared.lose_journal()
    rebuilt = rebuild(shared.context, "main")

    assert rebuilt.runs == 5
    assert [shared.status(f"r{number}")[0] for number in range(4)] == [
        "published",
        "published",
        "reverted",
        "published",
    ]
    assert shared.add("again", rows_of(3), file="r3").status == "skipped"
    assert shared.add("again-2", rows_of(2), file="r2").status == "published"


def test_a_run_that_depends_on_more_than_its_rows_commits_alone(house: House) -> None:
    unique = {"checks": ("unique(id, scope='table')",)}
    works = [*adds(house, 1), lambda: house.add("same", rows_of(1), **unique), *adds(house, 2)]
    stopped = Stopped(house, works, offered=(1, 1, 2))
    with stopped.waiting():
        pass
    first, same, second = stopped.runs()

    assert (first.status, second.status) == ("published", "published")
    assert same.status in ("published", "rejected")
    ids = [row["id"] for row in house.rows()]
    assert ids == ([0, 1, 2] if same.status == "rejected" else [0, 1, 1, 2])


def test_a_conflicting_run_is_left_out_and_fails_by_itself(house: House) -> None:
    others = house.journal
    stopped = Stopped(house, adds(house, 1, 2, 3))
    with stopped.waiting():
        house.lose_journal()  # another project's, whose runs don't wait here
        house.add("theirs", rows_of(2), file="r2")
        house.journal = others
    first, second, third = stopped.runs()

    assert (first.status, second.status, third.status) == ("published", "skipped", "published")
    assert second.skipped_files[0].run_id == "theirs"
    assert [row["id"] for row in house.rows()] == [0, 1, 2, 3]


def test_two_with_the_same_file_do_not_share_a_commit(house: House) -> None:
    house.add("c", rows_of(3))
    runs = [*_two_of_one_file(house), house.journal.get("c")]
    offered = [group_commit.queue_entry(run, "", "", house.head().hash) for run in runs if run is not None]
    usable = led(house, offered).unpublished(offered, house.head(), ())
    assert [one.run.run_id for one in usable] == ["a", "c"], "who comes after it is taken along all the same"


def test_a_run_that_began_too_long_ago_is_passed_over(house: House) -> None:
    house.add("c", rows_of(3))
    old, young = (
        run.model_copy(update={"run_id": run_id}) for run, run_id in zip(_two_of_one_file(house), "xy", strict=True)
    )
    offered = [
        group_commit.queue_entry(old, "", "", "0" * 16),
        group_commit.queue_entry(young.model_copy(update={"request": None}), "", "", house.head().hash),
    ]
    usable = led(house, offered).unpublished(offered, house.head(), ())
    assert [one.run.run_id for one in usable] == ["y"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_file_of_any_run_of_a_shared_commit_is_not_published_again(shared: House, number: int) -> None:
    published = shared.journal.get(f"r{number}")
    assert published is not None
    again = published.model_copy(update={"run_id": "again"})
    offered = [group_commit.queue_entry(again, "", "", commits(shared)[1].hash)]
    assert led(shared, offered).unpublished(offered, shared.head(), ()) == []


def test_a_run_that_creates_its_table_is_not_taken_along_after_a_rename(house: House) -> None:
    """A table that got the name may have the run's files already."""
    before, rides = house.head(), TableIdentifier.parse("nyc.rides")
    rename_table(house.context, TRIPS, rides, new_run_id="away")
    rename_table(house.context, rides, TRIPS, new_run_id="back")
    run = _two_of_one_file(house)[0].model_copy(update={"request": None})
    assert run.staged[0].before is None
    for seen, count in ((before, 0), (house.head(), 1)):
        offered = [group_commit.queue_entry(run, "", "", seen.hash)]
        assert len(led(house, offered).unpublished(offered, house.head(), ())) == count


def test_a_shared_commit_keeps_the_leaders_own_snapshots(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table may keep fewer than the commit adds; a revert needs each run's."""
    kept: list[int] = []
    rebase_each = house.rebase_each

    def noted(*arguments: Any, at_least: int, is_ours: bool) -> Any:
        kept.append(at_least)
        return rebase_each(*arguments, at_least=at_least, is_ours=is_ours)

    monkeypatch.setattr(house, "rebase_each", noted)
    stopped = Stopped(house, adds(house, 1, 2))
    with stopped.waiting():
        pass
    assert [run.status for run in stopped.runs()] == ["published"] * 2
    assert kept == [1]


def test_a_leader_that_did_not_wait_includes_those_that_do(house: House) -> None:
    offered = [group_commit.queue_entry(run, "", "", house.head().hash) for run in _two_of_one_file(house)]
    leader = led(house, offered)
    assert leader.changes_queue(offered)
    assert not leader.changes_queue(())
    leader.lock_wait.queued = True
    assert leader.changes_queue(())


def test_without_the_journal_no_run_is_included(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who isn't may have been discarded, or taken over by somebody who publishes the run."""

    def away(*_: object, **__: object) -> Any:
        raise RetryableError("The journal isn't available.")

    offered = [group_commit.queue_entry(run, "", "", house.head().hash) for run in _two_of_one_file(house)]
    monkeypatch.setattr(house.journal.publishes, "take", away)
    assert not led(house, offered).renew_leases(offered)


def test_a_run_that_cannot_enter_the_queue_publishes_by_itself(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> Any:
        raise RetryableError("The journal isn't available.")

    def reach(reached: str) -> None:
        if reached == "queued":
            waits.set()

    waits = threading.Event()
    monkeypatch.setattr(house.journal.publishes, "join", away)
    monkeypatch.setattr(failpoints, "reach", reach)
    with ThreadPoolExecutor(1) as pool:
        with house.journal.lock(LOCK, timeout_s=0):
            future = pool.submit(house.add, "r1", rows_of(1))
            assert waits.wait(60)
        assert future.result().status == "published"
    assert [row["id"] for row in house.rows()] == [0, 1]


def test_what_may_share_a_commit(house: House) -> None:
    """Only a small append to one table that depends on nothing else."""
    run = house.journal.get("r0")
    assert run is not None
    assert run.request is not None
    (staged,), (report,), batch = run.staged, run.reports, run.request.batch

    def may(**changes: object) -> bool:
        return group_commit.can_share(run.model_copy(update=changes))

    def requested(number: int, **changes: object) -> object:
        files = batch.model_copy(update={"files": batch.files * number})
        return run.request and run.request.model_copy(update={"batch": files, **changes})

    assert may()
    assert may(request=None)
    assert may(request=requested(500))
    assert not may(request=requested(501))
    assert not may(request=requested(1, replaces=("r9",)))
    assert not may(staged=())
    assert not may(staged=(staged, staged))
    assert not may(staged=(staged.model_copy(update={"change": "rewrite"}),))
    assert not may(staged=(staged.model_copy(update={"snapshot_ids": ()}),))
    assert not may(reads=("nyc.zones",))
    assert not may(accepted=Acceptance(reason="known", actor="ann", at=run.started_at))
    read = report.results[0].model_copy(update={"reads": ("nyc.trips",)})
    assert not may(reports=(report.model_copy(update={"results": (read,)}),))


def test_a_queue_entry_has_only_what_another_process_needs(house: House) -> None:
    run = house.journal.get("r0")
    assert run is not None
    assert run.request is not None
    file = KnownFile(file=run.request.batch.files[0], run_id="r9")
    more = {"order": run.request, "checks": {"nyc.trips": run.request.checks}, "skipped_files": (file,)}
    entry = group_commit.queue_entry(run.model_copy(update={**more, "same_content_as": (file,)}), "t", "1 passed", "c0")
    assert (run.reports, run.steps) > ((), ())
    assert entry.run == run.model_copy(update={"order": None, "reports": (), "checks": {}, "steps": ()})
    assert (entry.token, entry.audit, entry.seen) == ("t", "1 passed", "c0")


def led(house: House, offered: Sequence[QueuedPublish]) -> group_commit.CommitGroup:
    """What a run that has the lock takes along, besides itself."""
    leader = offered[0].run.model_copy(update={"run_id": "leader", "request": None})
    return group_commit.CommitGroup(house.context, leader, group_commit.LockWait(locked=True))


def _two_of_one_file(house: House) -> list[Run]:
    run = house.journal.get("r0")
    assert run is not None
    return [run.model_copy(update={"run_id": run_id}) for run_id in ("a", "b")]


def dying(monkeypatch: pytest.MonkeyPatch, point: str) -> list[str]:
    """Let the first thread that comes to ``point`` die there."""
    died: list[str] = []

    def reach(reached: str) -> None:
        if reached == point and not died:
            died.append(threading.current_thread().name)
            raise Died

    monkeypatch.setattr(failpoints, "reach", reach)
    return died


@pytest.mark.parametrize("point", ["taken", "before-commit", "after-publish"])
def test_all_are_published_once_when_the_leader_dies(house: House, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    died = dying(monkeypatch, point)
    stopped = Stopped(house, adds(house, 1, 2, 3, 4))
    with stopped.waiting():
        pass
    outcomes = [future.exception() for future in stopped.futures]
    monkeypatch.undo()
    house.kill()
    recover(house.context)

    assert len(died) == 1
    assert sum(isinstance(outcome, Died) for outcome in outcomes) == 1
    assert all(outcome is None or isinstance(outcome, Died) for outcome in outcomes)
    assert house.rows() == [row for number in range(5) for row in rows_of(number)]
    assert [house.status(f"r{number}")[0] for number in range(5)] == ["published"] * 5
    runs = [event.run_id for commit in commits(house) for event in events_of(commit)]
    assert sorted(runs) == [f"r{number}" for number in range(5)]
    assert branches(house) == ["main"]
    assert queued(house) == []


def test_a_run_that_is_interrupted_while_it_waits_is_not_published(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reach(reached: str) -> None:
        if reached == "queued":
            raise KeyboardInterrupt

    monkeypatch.setattr(failpoints, "reach", reach)
    with house.journal.lock(LOCK, timeout_s=0), pytest.raises(KeyboardInterrupt, match="Nothing was published"):
        house.add("r1", rows_of(1))
    assert queued(house) == []
    assert house.status("r1")[0] == "failed"
    assert house.add("r2", rows_of(2)).status == "published"
    assert [row["id"] for row in house.rows()] == [0, 2]


@pytest.mark.parametrize("taken", ["taken", "perhaps"])
def test_a_run_that_is_interrupted_after_it_was_taken_reports_an_unknown_outcome(
    house: House, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    def away(*_: object) -> Any:
        raise RetryableError("The journal isn't available.")

    def reach(reached: str) -> None:
        if reached == "queued":
            house.journal.publishes.leave("r1")  # somebody takes it
            if taken == "perhaps":
                monkeypatch.setattr(house.journal.publishes, "leave", away)
            raise KeyboardInterrupt

    monkeypatch.setattr(failpoints, "reach", reach)
    monkeypatch.setattr(group_commit, "_SETTLE_TIMEOUT_S", 0.0)
    with house.journal.lock(LOCK, timeout_s=0), pytest.raises(OutcomeUnknownError) as caught:
        house.add("r1", rows_of(1))
    assert int(caught.value.exit_code) == 4
    assert "wap/nyc.trips_r1" in branches(house)


def test_a_run_that_was_taken_in_vain_publishes_itself(house: House) -> None:
    stopped = Stopped(house, adds(house, 1))
    with stopped.waiting():
        assert house.journal.publishes.leave("r1")  # whoever took it died
    (run,) = stopped.runs()
    assert run.status == "published"
    assert [row["id"] for row in house.rows()] == [0, 1]


def test_a_taken_run_does_not_fail_when_the_catalog_is_unavailable(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> Any:
        raise CatalogUnavailableError("Nessie is away.")

    stopped = Stopped(house, adds(house, 1))
    with stopped.waiting():
        house.journal.publishes.leave("r1")
        monkeypatch.setattr(house.catalog, "history", away)
    assert isinstance(stopped.futures[0].exception(), OutcomeUnknownError)
    monkeypatch.undo()
    assert "wap/nyc.trips_r1" in branches(house)


def test_a_run_with_a_new_owner_is_not_included(house: House) -> None:
    stopped = Stopped(house, adds(house, 1, 2))
    with stopped.waiting(), house.database.writing() as tx:
        tx.execute(update(LEASES).where(LEASES.c.run_id == "r2").values({"token": "other"}))
    outcomes = [future.exception() for future in stopped.futures]

    assert outcomes[0] is None
    assert isinstance(outcomes[1], LakegateError)
    assert outcomes[1].code == "lease-lost"
    assert [row["id"] for row in house.rows()] == [0, 1]
    assert queued(house) == []


@pytest.mark.parametrize("given_up", ["discarded", "undone"])
def test_nobody_gives_up_a_dead_run_that_is_about_to_be_published(
    house: House, monkeypatch: pytest.MonkeyPatch, given_up: str
) -> None:
    errors: list[RetryableError] = []
    here = threading.local()

    def named(number: int) -> Run:
        here.run = f"r{number}"
        return house.add(here.run, rows_of(number))

    commit = house.catalog.commit

    def late(request: CommitRequest) -> Ref:
        if "lakegate.run-ids" in request.properties:
            companion = {"r1": "r2", "r2": "r1"}[here.run]
            house.kill()
            with pytest.raises(RetryableError, match="may be publishing run") as caught:
                if given_up == "discarded":
                    discard_run(house.context, f"wap/nyc.trips_{companion}")
                else:
                    undo(house.context, companion, reason="Cancelled.")
            errors.append(caught.value)
        return commit(request)

    monkeypatch.setattr(house.catalog, "commit", late)
    monkeypatch.setattr(group_commit, "_SETTLE_TIMEOUT_S", 0.0)
    stopped = Stopped(house, [lambda: named(1), lambda: named(2)])
    with stopped.waiting():
        pass
    assert [run.status for run in stopped.runs()] == ["published"] * 2
    assert len(errors) == 1
    assert [row["id"] for row in house.rows()] == [0, 1, 2]


@pytest.mark.parametrize("act", ["discard", "undo", "recover"])
def test_a_run_that_is_about_to_be_committed_cannot_be_cancelled(
    house: House, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    said: list[object] = []

    def late() -> None:
        house.kill()
        if act == "recover":
            said.append(recover(house.context))
            return
        with pytest.raises(RetryableError, match="may be publishing run r1") as caught:
            if act == "discard":
                discard_run(house.context, "wap/nyc.trips_r1")
            else:
                undo(house.context, "r1", reason="Cancelled.")
        said.append(caught.value)

    monkeypatch.setattr(group_commit, "_SETTLE_TIMEOUT_S", 0.0)
    with when_reached(monkeypatch, "confirmed", late):
        if act == "recover":
            house.undo("r0")
        else:
            house.add("r1", rows_of(1), checks=("unique(id, scope='table')",))
    assert len(said) == 1
    assert act != "recover" or said == [()]
    assert house.status("x-r0" if act == "recover" else "r1")[0] == "published"
    assert [row["id"] for row in house.rows()] == ([] if act == "recover" else [0, 1])


def stalled(
    house: House, monkeypatch: pytest.MonkeyPatch, error: BaseException, over: threading.Event | None = None
) -> list[BaseException | None]:
    """Return how two runs end when the first takes the second along and stalls, and the second fails by itself then.

    The first goes on then, or when ``over`` says so.
    """
    came: list[str] = []
    alone = threading.Event()

    def reach(reached: str) -> None:
        if reached != "before-commit":
            return
        came.append(reached)
        if len(came) == 1:
            assert alone.wait(60)
            assert over is None or over.wait(60)
        elif not alone.is_set():
            alone.set()
            raise error

    @contextmanager
    def until_one_stalls(*of: Any, waiting: Callable[[], object] | None = None, **options: Any) -> Iterator[bool]:
        if waiting is None:
            with publish_lock(*of, **options) as locked:
                yield locked
            return
        offers = [waiting]
        while True:
            with publish_lock(*of, timeout_s=0.05, waiting=lambda: offers and offers.pop()()) as locked:
                if locked or came:
                    yield locked
                    return

    monkeypatch.setattr(group_commit, "publish_lock", until_one_stalls)
    monkeypatch.setattr(failpoints, "reach", reach)
    stopped = Stopped(house, adds(house, 1, 2))
    with stopped.waiting():
        pass
    return [future.exception() for future in stopped.futures]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StorageUnavailableError("S3 says 503.")])
def test_a_run_that_fails_while_its_leader_commits_it_is_published(
    house: House, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    outcomes = stalled(house, monkeypatch, error)

    assert [row["id"] for row in house.rows()] == [0, 1, 2]
    assert [house.status(run)[0] for run in ("r1", "r2")] == ["published"] * 2
    said = [str(outcome) for outcome in outcomes if outcome is not None]
    assert len(said) == int(isinstance(error, KeyboardInterrupt))
    assert all("had been published already" in text for text in said)


def test_a_run_that_fails_before_its_leader_is_done_has_an_unknown_outcome(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def look(context: Context, run: Run, error: BaseException) -> None:
        try:
            require_settled(context, run, error)
        finally:
            over.set()

    require_settled = group_commit.require_settled
    monkeypatch.setattr(group_commit, "_SETTLE_TIMEOUT_S", 0.0)
    monkeypatch.setattr("lakegate.wap.publish.require_settled", look)
    outcomes = stalled(house, monkeypatch, StorageUnavailableError("S3 says 503."), over)

    (said,) = [one for one in outcomes if one is not None]
    assert isinstance(said, OutcomeUnknownError)
    assert "Another process is publishing run" in said.message
    assert "catalog" not in said.message


def test_a_run_that_loses_its_lease_at_the_last_moment_is_left_out(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    take = group_commit.CommitGroup.take

    def noted(*args: Any) -> Any:
        pointer, chosen = take(*args)
        taken.extend(one.run.run_id for one in chosen)
        return pointer, chosen

    def reach(reached: str) -> None:
        if reached == "before-commit" and taken:
            with house.database.writing() as tx:
                tx.execute(update(LEASES).where(LEASES.c.run_id == taken[0]).values({"token": "other"}))

    monkeypatch.setattr(group_commit.CommitGroup, "take", noted)
    monkeypatch.setattr(failpoints, "reach", reach)
    stopped = Stopped(house, adds(house, 1, 2))
    with stopped.waiting():
        pass
    outcomes = [future.exception() for future in stopped.futures]
    assert sorted(type(one).__name__ for one in outcomes) == ["LeaseLostError", "NoneType"]
    assert [len(events_of(commit)) for commit in commits(house)] == [1, 1]


def test_an_unreadable_queue_entry_is_left_to_its_run(house: House) -> None:
    stopped = Stopped(house, adds(house, 1, 2))
    with stopped.waiting(), house.database.writing() as tx:
        mine = PUBLISH_QUEUE.c.run_id == "r2"
        newer = json.loads(tx.scalar(select(PUBLISH_QUEUE.c.document).where(mine)) or "")
        newer["run"]["something_new"] = 1
        tx.execute(update(PUBLISH_QUEUE).where(mine).values(document=json.dumps(newer)))
    assert [run.status for run in stopped.runs()] == ["published"] * 2
    assert [row["id"] for row in house.rows()] == [0, 1, 2]


def test_errors_of_other_runs_do_not_stop_the_leader(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise KeyError("format-version")

    monkeypatch.setattr(house, "rebase_each", broken)
    stopped = Stopped(house, adds(house, 1, 2))
    with stopped.waiting():
        pass
    assert [run.status for run in stopped.runs()] == ["published"] * 2


def test_runs_with_many_files_do_not_all_share_one_commit(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_MOST_FILES_TOGETHER", 2)
    stopped = Stopped(house, adds(house, 1, 2, 3))
    with stopped.waiting():
        pass
    assert [run.status for run in stopped.runs()] == ["published"] * 3
    assert sorted(len(events_of(commit)) for commit in commits(house)) == [1, 1, 2]


@pytest.mark.parametrize("run_id", ["r0", "r2"])
def test_a_run_does_not_mistake_an_earlier_attempt_for_its_own(shared: House, run_id: str) -> None:
    run = shared.journal.get(run_id)
    assert run is not None
    found = find_publication(shared.context, run)
    assert found is not None
    assert run.publication is not None
    assert found.commit == run.publication.commit
    with pytest.raises(EarlierAttemptError, match=f"earlier attempt of run {run_id}"):
        find_publication(shared.context, begun_again(run))


@pytest.mark.parametrize("run_id", ["r0", "r2"])
@pytest.mark.parametrize("end", ["recover", "discard", "publish"])
def test_an_earlier_attempt_that_was_published_late_ends_the_next_one(shared: House, run_id: str, end: str) -> None:
    run = shared.journal.get(run_id)
    assert run is not None
    assert run.publication is not None
    again = begun_again(run)
    assert again.request is not None
    with shared.database.writing() as tx:  # nobody has read the commit yet
        for table in (RUNS, HISTORY, EVENTS, CLAIMS):
            tx.execute(delete(table))
    token = shared.journal.begin(again)
    shared.journal.claim(run_id, "nyc.trips", again.request.batch.files, token=token)
    shared.catalog.create_branch(run.branch, shared.head())
    if end == "publish":
        with pytest.raises(EarlierAttemptError):
            publish(shared.context, again)
    else:
        shared.journal.abandon(run_id, token)
        ended = recover(shared.context)[0] if end == "recover" else discard_run(shared.context, run.branch)
        assert ended is not None
        assert (ended.status, ended.publication and ended.publication.commit) == ("published", run.publication.commit)
        known = shared.journal.known("nyc.trips", again.request.batch.files)
        assert (known.published, known.busy, len(known.changed)) == ((), (), 1)
        assert branches(shared) == ["main"]


def begun_again(run: Run) -> Run:
    """The run as another attempt, of a file that has changed, would have staged it."""
    assert run.request is not None
    staged = run.staged[0]
    other = staged.model_copy(
        update={"snapshot_ids": (99,), "pointer": staged.pointer.model_copy(update={"snapshot_id": 99})}
    )
    batch = run.request.batch
    files = tuple(file.model_copy(update={"version": "2"}) for file in batch.files)
    request = run.request.model_copy(update={"batch": batch.model_copy(update={"files": files})})
    changes = {"status": "staged", "publication": None, "finished_at": None, "staged": (other,), "request": request}
    report = run.reports[0].model_copy(update={"metadata_location": other.pointer.metadata_location})
    return run.model_copy(update={**changes, "reports": (report,)})


def test_all_of_a_group_survive_a_conflict(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = house.catalog.commit
    others: list[str] = []

    def overtaken(request: CommitRequest) -> Ref:
        if "lakegate.run-ids" in request.properties and not others:
            others.append("theirs")
            monkeypatch.setattr(house.catalog, "commit", commit)
            journal = house.journal
            house.lose_journal()
            house.add("theirs", rows_of(7))
            house.journal = journal
        return commit(request)

    stopped = Stopped(house, adds(house, 1, 2, 3))
    with stopped.waiting():
        monkeypatch.setattr(house.catalog, "commit", overtaken)
    assert [run.status for run in stopped.runs()] == ["published"] * 3
    assert sorted(row["id"] for row in house.rows()) == [0, 1, 2, 3, 7]
    assert [len(events_of(one)) for one in commits(house)] == [3, 1, 1]


def test_downstream_systems_get_an_event_for_each_run(shared: House) -> None:
    newest = commits(shared)[0]
    told = []
    for run_id in newest.properties["lakegate.run-ids"].split():
        delivery = Delivery(
            delivery_id=1,
            downstream="hook",
            kind="published",
            ref="main",
            commit=newest.hash,
            run_id=run_id,
            tables=(str(TRIPS),),
            queued_at=newest.time,
        )
        event, _ = describe(shared.context, delivery)
        (table,) = event.tables
        told.append((event.event_id, table.snapshot_ids))
        assert (event.run_id, event.commit, table.rows_added) == (run_id, newest.hash, 1)
    assert len(set(told)) == 3
    assert len({snapshot for _, snapshots in told for snapshot in snapshots}) == 3


def test_the_history_shows_a_line_for_each_run(shared: House) -> None:
    shared.undo("r2")
    model = ReadModel(
        catalog=lambda: shared.catalog,
        reader=lambda: shared,
        journal=lambda: shared.journal,
        settings=Settings(),
    )
    lines = {line.run_id: line for line in list_commits(model).items}

    assert set(lines) == {"r0", "r1", "r2", "r3", "x-r2"}
    assert len({lines[run].hash for run in ("r1", "r2", "r3")}) == 1
    assert (lines["r1"].reverted_by, lines["r2"].reverted_by) == (None, "x-r2")


def test_a_table_is_created_by_one_run_alone() -> None:
    house = House()
    stopped = Stopped(house, adds(house, 1, 2, 3))
    with stopped.waiting():
        pass
    assert [run.status for run in stopped.runs()] == ["published"] * 3
    assert [len(events_of(commit)) for commit in commits(house)] == [2, 1]
    house.undo(run_of(commits(house)[1]) or "")
    assert len(house.rows()) == 2


def test_a_run_that_does_not_wait_is_never_queued(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> Any:
        raise AssertionError

    for name in ("join", "leave", "take", "is_waiting"):
        monkeypatch.setattr(house.journal.publishes, name, never)
    assert house.add("r1", rows_of(1)).status == "published"


def test_the_head_that_was_synced_has_every_run(shared: House) -> None:
    assert sync(shared.context, "main") == shared.head()
    assert find_commit(shared.context, "r2", shared.head()).properties["lakegate.run-id"] == "r2"
    assert ingest(shared.context, ordered(shared, rows_of(2), run="r5", file="r2")).status == "skipped"
