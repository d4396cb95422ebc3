"""What every journal does with runs and leases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import delete

from lakegate.errors import ConfigurationError, LeaseLostError, RetryableError
from lakegate.journal.schema import LEASES
from lakegate.ledger.event import PastCommit
from lakegate.model.checks import AuditReport, CheckResult
from lakegate.model.run import RunStep
from support.journals import START, Actor, FakeHolder, Shelf, file, run
from support.ledger_support import past, said
from support.waiting import wait_until


def ids(journal: Actor, **filters: object) -> list[str]:
    return [one.run_id for one in journal.runs(**filters)]


def test_a_run_comes_back_as_it_was_saved(journal: Actor) -> None:
    step = RunStep(name="write", started_at=START, finished_at=START + timedelta(seconds=2), outcome="done")
    result = CheckResult(
        name="not_null_ö\0", check="not_null(ö)", columns=("ö",), severity="error", verdict="fail", failing_rows=1,
        total_rows=2, evidence="scan", examples=({"ö": None, "text": "nul \0 and ' and \\ and 🐘"},),
    )  # fmt: skip
    report = AuditReport(
        run_id="r01", table="a.b", branch="b1", metadata_location="m", rows=2, results=(result,), seconds=1.5
    )
    saved = run(1, tables=("a.b", "c.d"), name="nightly", kind="transaction", steps=(step,), reports=(report,))
    journal.save(saved)
    assert journal.get("r01") == saved
    assert journal.get("r02") is None


def test_a_journal_belongs_to_the_first_catalog(shelf: Shelf) -> None:
    first, then = shelf.open(), shelf.open()
    first.journal.require_catalog(None)
    first.journal.require_catalog("nessie:1")
    then.journal.require_catalog("nessie:1")
    with pytest.raises(ConfigurationError, match=r"that of another catalog \(nessie:1; this one is nessie:2\)"):
        then.journal.require_catalog("nessie:2")


def test_saving_again_replaces(journal: Actor) -> None:
    journal.save(run(1, tables=("a.b", "c.d")))
    journal.save(run(1, tables=("a.b",), status="published"))
    assert [one.status for one in journal.runs()] == ["published"]
    assert ids(journal, table="c.d") == []


@pytest.mark.parametrize("run_id", ["null", "NULL", "0", "a.b-c_d"])
def test_any_run_id_is_found_among_others(journal: Actor, run_id: str) -> None:
    """In an array, Postgres reads null as NULL."""
    steps = (RunStep(name="write", started_at=START),)
    for status in ("planned", "published"):
        journal.save(run(1, run_id=run_id, tables=("a.b",), steps=steps, status=status))
    assert [one.status for one in journal.runs(table="a.b")] == ["published"]
    assert list(journal.pages.lines([run_id, "other"])) == [run_id]


@pytest.mark.parametrize("name", ["a b", "{a,b}", '"a"', "a\\b", "null", "ü\t🐘"])
def test_any_path_is_found_among_others(journal: Actor, name: str) -> None:
    odd = file(name).model_copy(update={"uri": name})
    assert journal.claim("r01", "nyc.trips", [odd, file("b")]).claimed == (odd, file("b"))
    busy = journal.known("nyc.trips", [odd, file("c")]).busy
    assert [(one.file.uri, one.run_id) for one in busy] == [(name, "r01")]


def test_runs_are_newest_first_filtered_and_limited(journal: Actor) -> None:
    for number in (2, 1, 3):
        journal.save(run(number, tables=("a.b", "nyc.trips") if number == 1 else ("nyc.trips",)))
    journal.save(run(4, status="rejected", kind="transaction"))

    assert ids(journal) == ["r04", "r03", "r02", "r01"]
    assert ids(journal, limit=2) == ["r04", "r03"]
    assert ids(journal, table="a.b") == ["r01"]
    assert ids(journal, table="nyc.trips", limit=2) == ["r04", "r03"]
    assert ids(journal, table="a") == []
    assert ids(journal, status="rejected") == ["r04"]
    assert ids(journal, kind="ingest", status="planned", since=START + timedelta(seconds=2)) == ["r03", "r02"]
    assert ids(journal, table="a.b", since=START + timedelta(seconds=1.5)) == []


def test_the_newest_run_of_a_branch_is_found(journal: Actor) -> None:
    journal.save(run(1, branch="same"))
    journal.save(run(2, branch="same"))
    found = journal.find_by_branch("same")
    assert found is not None
    assert found.run_id == "r02"
    assert journal.find_by_branch("other") is None


def test_runs_are_found_by_the_beginning_of_their_id(journal: Actor) -> None:
    for number in range(1, 13):
        journal.save(run(number))
    assert [one.run_id for one in journal.find("r1")] == ["r12", "r11", "r10"]
    assert [one.run_id for one in journal.find("r11")] == ["r11"]
    assert len(journal.find("r")) == 10
    assert not journal.find("%")
    assert not journal.find("R")


def test_a_run_begun_is_seen_by_others_and_not_abandoned(shelf: Shelf) -> None:
    shelf.open(FakeHolder("a")).begin(run(1))
    other = shelf.open(FakeHolder("b", {"a": True}))
    assert other.get("r01") == run(1)
    assert not other.abandoned()
    assert not other.take_over("r01")


def test_runs_of_dead_processes_are_abandoned_oldest_first_before_their_lease_is_over(shelf: Shelf) -> None:
    dead, alive = shelf.open(FakeHolder("dead")), shelf.open(FakeHolder("alive"))
    for number in (2, 1):
        dead.begin(run(number))
    alive.begin(run(3))
    other = shelf.open(FakeHolder("b", {"dead": False, "alive": True}))
    assert [one.run_id for one in other.abandoned()] == ["r01", "r02"]


def test_a_process_that_lives_keeps_no_run_that_it_does_not_renew(shelf: Shelf) -> None:
    living = shelf.open(lease_s=0.001)
    living.begin(run(1))
    taker = shelf.open()
    assert [one.run_id for one in wait_until(living.abandoned)] == ["r01"]
    assert taker.take_over("r01")
    assert not living.renew("r01")
    assert taker.renew("r01")


def test_two_threads_of_one_process_do_not_share_a_lease(shelf: Shelf) -> None:
    first, second = shelf.open(FakeHolder("same")), shelf.open(FakeHolder("same"))
    first.begin(run(1))
    refusals: list[Callable[[], object]] = [
        lambda: second.begin(run(1)),
        lambda: second.resume("r01"),
        lambda: first.begin(run(1)),
    ]
    for refused in refusals:
        with pytest.raises(RetryableError, match="Another process is working on run r01"):
            refused()
    assert not second.renew("r01")
    assert first.renew("r01")


def test_only_the_token_of_a_lease_changes_its_run(shelf: Shelf) -> None:
    late, taker = shelf.open(FakeHolder("late")), shelf.open(FakeHolder("taker", {"late": False}))
    late.begin(run(1))
    late.claim("r01", "a.b", [file("a")])
    assert taker.take_over("r01")
    token = late.tokens["r01"]
    for change in (
        lambda: late.journal.save(run(1, status="staged"), token),
        lambda: late.journal.end(run(1, status="failed"), token),
        lambda: late.journal.suspend(run(1), token, for_s=60),
        lambda: late.journal.release("r01", token),
        lambda: late.journal.claim("r01", "a.b", [file("b")], token=token),
        lambda: late.journal.save(run(1, status="staged"), ""),
    ):
        with pytest.raises(LeaseLostError, match="Run r01 lost its lease"):
            change()
    late.journal.abandon("r01", token)
    for change in (lambda: late.save(run(1)), lambda: late.amend(run(1), branch_kept=True)):
        with pytest.raises(RetryableError, match="Another process is working on run r01"):
            change()
    assert (taker.get("r01"), taker.renew("r01")) == (run(1), True)
    assert taker.known("a.b", [file("a"), file("b")]).free == (file("b"),)
    assert taker.end(run(1, status="failed")) == run(1, status="failed")
    with pytest.raises(LeaseLostError):
        late.journal.end(run(1, status="published"), token)


def test_a_run_that_ended_is_changed_while_its_status_is_the_same(journal: Actor) -> None:
    assert journal.amend(run(1), branch_kept=True) is None
    journal.save(run(1, status="rejected", branch_kept=True))
    assert journal.amend(run(1, status="rejected"), branch_kept=False) == run(1, status="rejected")
    assert journal.amend(run(1, status="failed"), branch_kept=True) == run(1, status="rejected")
    assert journal.get("r01") == run(1, status="rejected")


@pytest.mark.parametrize("late", ["planned", "staged", "failed", "rejected", "discarded"])
def test_what_the_history_says_of_a_run_is_overruled_by_nobody(journal: Actor, late: str) -> None:
    journal.begin(run(1))
    journal.claim("r01", "nyc.trips", [file("a")])
    journal.record("main", [past("c1", said("r01", "nyc.trips", files=[file("a")]))], "c1")
    kept = journal.end(run(1, status=late))
    assert kept == journal.get("r01")
    assert (kept.status, kept.publication.commit if kept.publication else None) == ("published", "c1")
    assert journal.claim("r02", "nyc.trips", [file("a")]).published

    journal.record("main", [past("c2", said("r9", "nyc.trips", removes=["r01"]))], "c2")
    journal.resume("r01", ended=True)
    assert journal.end(run(1, status="published", publication=kept.publication)).status == "reverted"


def test_where_life_cannot_be_looked_at_the_lease_counts(shelf: Shelf) -> None:
    shelf.open(FakeHolder("far")).begin(run(1))
    shelf.open(FakeHolder("farther"), lease_s=0.001).begin(run(2))
    other = shelf.open(FakeHolder("b"))
    assert [one.run_id for one in wait_until(other.abandoned)] == ["r02"]


def test_a_lease_renewed_lasts_on(shelf: Shelf) -> None:
    far, again = shelf.open(FakeHolder("far"), lease_s=0.001), shelf.open(FakeHolder("far"), lease_s=3600)
    far.begin(run(1))
    assert again.journal.renew("r01", far.tokens["r01"])
    assert not shelf.open(FakeHolder("b")).abandoned()


def test_an_abandoned_run_is_taken_over_once(shelf: Shelf) -> None:
    first, second = (shelf.open(FakeHolder(name, {"dead": False, "b": True, "c": True})) for name in "bc")
    dead = shelf.open(FakeHolder("dead"))
    dead.begin(run(1))
    assert not second.recovering()
    assert [first.take_over("r01"), second.take_over("r01"), first.take_over("r01")] == [True, False, False]
    assert not second.abandoned()
    assert second.recovering() == {"r01": "b"}
    assert first.renew("r01")
    assert not dead.renew("r01")
    assert not first.take_over("r99")


def test_a_run_that_ended_has_no_lease(shelf: Shelf) -> None:
    journal = shelf.open(FakeHolder("a"))
    journal.begin(run(1))
    journal.end(run(1, status="rejected"))
    assert journal.get("r01") == run(1, status="rejected")
    assert not journal.renew("r01")
    assert not shelf.open(FakeHolder("b", {"a": False})).abandoned()


def test_a_lock_is_held_by_one_at_a_time_and_by_name(shelf: Shelf) -> None:
    journal, other = shelf.open(), shelf.open()
    with journal.lock("a b/c", timeout_s=120) as first:
        with other.lock("a b/c", timeout_s=0.05) as second, other.lock("d", timeout_s=0) as elsewhere:
            assert (first, second, elsewhere) == (True, False, True)
        with journal.lock("a b/c", timeout_s=0) as again:
            assert not again
    # Not at once: of files, who waited too long gets the lock for a moment, and gives it back.
    with other.lock("a b/c", timeout_s=120) as later:
        assert later


def test_whoever_asks_whether_a_lock_is_held_holds_nothing(shelf: Shelf) -> None:
    journal, other = shelf.open().journal, shelf.open().journal
    assert not other.is_locked("x")
    with journal.lock("x", timeout_s=0) as ours:
        assert ours
        assert journal.is_locked("x")
        assert other.is_locked("x")
        assert not other.is_locked("y")
    with other.lock("x", timeout_s=120) as later:
        assert later


def test_a_lock_ends_with_an_error_too(journal: Actor) -> None:
    def fail() -> None:
        with journal.lock("x", timeout_s=120):
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    with journal.lock("x", timeout_s=0) as ours:
        assert ours


def test_runs_and_published_files_are_counted(journal: Actor, shelf: Shelf) -> None:
    assert journal.count() == ({}, 0)
    journal.begin(run(1))
    journal.claim("r01", "a.b", [file("a"), file("b")])
    journal.claim("r01", "c.d", [file("a")])
    assert journal.count() == ({"planned": 1}, 0)

    journal.end(run(1, status="published"))
    journal.save(run(2, status="failed"))
    assert journal.count() == ({"published": 1, "failed": 1}, 3)

    # Of a lost lease nothing is known, but what it claimed isn't published.
    journal.begin(run(3))
    journal.claim("r03", "a.b", [file("c")])
    with shelf.databases[0].writing() as tx:
        tx.execute(delete(LEASES))
    assert journal.count() == ({"published": 1, "failed": 1, "planned": 1}, 3)


def test_a_lease_that_was_given_up_may_be_taken_at_once(journal: Actor) -> None:
    journal.begin(run(1))
    journal.abandon("r01")

    assert [one.run_id for one in journal.abandoned()] == ["r01"]
    assert not journal.renew("r01")
    assert journal.take_over("r01")
    assert journal.renew("r01")
    journal.abandon("r02")


def test_the_commits_read_are_found_by_digits_and_by_time(journal: Actor) -> None:
    def commits(*names: str, since: int = 0) -> list[PastCommit]:
        times = (START + timedelta(minutes=since + number) for number in range(len(names)))
        return [PastCommit(hash=name, time=time) for name, time in zip(names, times, strict=True)]

    by_run = {"event": said("r01", "a.b")}
    first = [one.model_copy(update=by_run if one.hash == "c1" else {}) for one in commits("c0", "c1")]
    journal.record("main", first, "c1")
    assert journal.commits.head("main") == "c1"

    journal.record("main", commits("c2", "d3", since=2), "d3")
    found = journal.commits
    assert found.head("main") == "d3"
    assert (found.with_prefix("main", "c", limit=9), found.with_prefix("main", "c", limit=1)) == (
        ["c0", "c1", "c2"],
        ["c0"],
    )
    assert [found.at("main", START + timedelta(seconds=s)) for s in (-1, 0, 61, 9999)] == [None, "c0", "c1", "d3"]
    assert [found.has("main", "c2"), found.has("main", "x"), found.has("other", "c2")] == [True, False, False]

    journal.record("main", commits("c0", "e1"), "e1", rebuild=True)
    assert (found.with_prefix("main", "", limit=9), found.head("main")) == (["c0", "e1"], "e1")


def test_the_detail_of_old_runs_goes_and_what_they_did_stays(journal: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakegate.journal.journal._EXPIRED_AT_ONCE", 1)  # the last of them comes after ones that stay
    step = RunStep(name="write", started_at=START, finished_at=START, outcome="done")
    report = AuditReport(
        run_id="r01", table="nyc.trips", branch="b1", metadata_location="m", rows=2, results=(), seconds=1.5
    )
    detail = {"steps": (step,), "reports": (report,)}
    ended = {"status": "published", "finished_at": START + timedelta(minutes=1), **detail}
    old = run(1, **ended)
    kept = [
        run(2, **{**ended, "finished_at": START + timedelta(days=2)}),
        run(3, **{**ended, "status": "rejected", "branch_kept": True}),
        run(4, **detail),
    ]
    last = run(5, **ended)
    for one in (old, *kept, last):
        journal.save(one)
    for expired in (2, 0):
        assert journal.expire_detail(START + timedelta(days=1), "Deleted.") == expired
        assert journal.get("r05") == last.model_copy(update={"steps": (), "reports": (), "detail": "Deleted."})
        assert journal.get("r01") == old.model_copy(update={"steps": (), "reports": (), "detail": "Deleted."})
        assert [journal.get(one.run_id) for one in kept] == kept
