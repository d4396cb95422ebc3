"""What every journal does with source files, and with what the catalog's history says of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from lakegate.ledger.event import PastCommit
from lakegate.model.batch import Claim, KnownFile, SourceFile
from lakegate.model.run import FileCheckpoint, Publication
from support.journals import START, Actor, file, run
from support.ledger_support import past, said

A, B, C = file("a"), file("b"), file("c")
A2 = file("a", "2")
TABLE = "nyc.trips"


def event(
    commit: str, run_id: str, *names: str, reverts: tuple[str, ...] = (), tables: tuple[str, ...] = (TABLE,)
) -> PastCommit:
    files = [file(name) for name in names]
    return past(commit, said(run_id, *tables, files=files, removes=reverts), time=START + timedelta(hours=1))


def published(journal: Actor, number: int, *files: SourceFile) -> None:
    journal.begin(run(number))
    journal.claim(f"r{number:02}", TABLE, files)
    journal.end(run(number, status="published"))


def status(journal: Actor, run_id: str) -> str | None:
    found = journal.get(run_id)
    return None if found is None else found.status


def test_a_version_is_claimed_once_for_each_table(journal: Actor) -> None:
    assert journal.claim("r01", TABLE, [A, B, A]) == Claim(claimed=(A, B))
    assert journal.claim("r02", TABLE, [B, C]) == Claim(claimed=(C,), busy=(KnownFile(file=B, run_id="r01"),))
    assert journal.claim("r02", "other.table", [A]) == Claim(claimed=(A,))


def test_a_run_may_ask_again_for_what_it_has(journal: Actor) -> None:
    journal.claim("r01", TABLE, [A])
    assert journal.claim("r01", TABLE, [A, B]) == Claim(claimed=(A, B))


def test_all_or_nothing(journal: Actor) -> None:
    journal.claim("r01", TABLE, [A])
    answer = journal.claim("r02", TABLE, [A, B], take_free=False)
    assert answer == Claim(busy=(KnownFile(file=A, run_id="r01"),), free=(B,))
    assert journal.claim("r03", TABLE, [B], take_free=False) == Claim(claimed=(B,))


def test_what_was_published_is_not_published_again(journal: Actor) -> None:
    published(journal, 1, A)
    assert journal.claim("r01", TABLE, [A]) == Claim(published=(KnownFile(file=A, run_id="r01"),))
    answer = journal.claim("r02", TABLE, [A, B], take_free=False)
    assert answer == Claim(claimed=(B,), published=(KnownFile(file=A, run_id="r01"),))


def test_another_version_of_what_was_published_is_taken_only_when_asked(journal: Actor) -> None:
    published(journal, 1, A)
    changed = (KnownFile(file=A, run_id="r01"),)
    assert journal.claim("r02", TABLE, [A2]) == Claim(changed=changed)
    assert journal.claim("r02", TABLE, [A2], take_changed=True) == Claim(claimed=(A2,))
    assert journal.claim("r03", TABLE, [A], take_changed=True) == Claim(published=changed)
    journal.end(run(2, status="published"))
    third = file("a", "3")
    assert journal.claim("r03", TABLE, [third]) == Claim(changed=(KnownFile(file=A2, run_id="r02"),))


def test_another_version_of_what_is_claimed_is_busy(journal: Actor) -> None:
    journal.claim("r01", TABLE, [A])
    busy = Claim(busy=(KnownFile(file=A, run_id="r01"),))
    assert journal.claim("r02", TABLE, [A2]) == busy
    assert journal.claim("r02", TABLE, [A2], take_changed=True) == busy


def test_what_a_claim_would_answer_is_told_without_claiming(journal: Actor) -> None:
    published(journal, 1, A)
    journal.claim("r02", TABLE, [B])
    for _ in range(2):
        assert journal.known(TABLE, [A, B, C]) == Claim(
            published=(KnownFile(file=A, run_id="r01"),), busy=(KnownFile(file=B, run_id="r02"),), free=(C,)
        )
    assert journal.known(TABLE, [A2]) == Claim(changed=(KnownFile(file=A, run_id="r01"),))


def test_earlier_versions_are_those_published_under_the_same_path(journal: Actor) -> None:
    published(journal, 1, A, B)
    journal.claim("r02", TABLE, [A2], take_changed=True)
    assert journal.earlier(TABLE, [A2, C]) == [KnownFile(file=A, run_id="r01")]
    assert journal.earlier(TABLE, [A]) == []
    journal.end(run(2, status="published"))
    third = file("a", "3")
    assert [one.run_id for one in journal.earlier(TABLE, [third, B])] == ["r01", "r02"]


@pytest.mark.parametrize("how", ["failed", "rejected", "released"])
def test_claims_of_a_run_that_did_not_publish_are_given_back(journal: Actor, how: str) -> None:
    journal.claim("r01", TABLE, [A])
    if how == "released":
        journal.release("r01")
    else:
        journal.end(run(1, status=how))
    assert journal.claim("r02", TABLE, [A]) == Claim(claimed=(A,))


def test_a_release_keeps_what_was_published(journal: Actor) -> None:
    published(journal, 1, A)
    journal.release("r01")
    assert journal.claim("r02", TABLE, [A]).published


def test_ten_thousand_files_at_once(journal: Actor) -> None:
    files = [file(f"{number}") for number in range(10_000)]
    assert len(journal.claim("r01", TABLE, files).claimed) == 10_000
    assert len(journal.claim("r02", TABLE, [*files, A]).busy) == 10_000
    journal.end(run(1, status="published"))
    assert len(journal.claim("r03", TABLE, files).published) == 10_000


def test_of_many_threads_one_gets_each_file(journal: Actor) -> None:
    files = [file(f"{number}") for number in range(20)]

    def claim(number: int) -> list[str]:
        return [one.uri for chosen in files for one in journal.claim(f"r{number:02}", TABLE, [chosen]).claimed]

    with ThreadPoolExecutor(8) as pool:
        got = [uri for uris in pool.map(claim, range(8)) for uri in uris]
    assert sorted(got) == sorted(one.uri for one in files)


def test_the_commit_that_a_run_ended_with_is_unread_until_the_history_is_recorded(journal: Actor) -> None:
    def end(number: int, commit: str) -> None:
        made = Publication(run_id=f"r{number:02}", target="main", commit=commit, tables=(TABLE,), rows=1)
        journal.begin(run(number))
        journal.end(run(number, status="published", publication=made, finished_at=START))

    end(1, "c1")
    assert journal.synced_and_unread("main") == (None, {"c1"})
    assert journal.synced_and_unread("other") == (None, frozenset())
    journal.record("main", [event("c1", "r01"), event("c2", "r02")], "c2", unread={"c1"})
    end(2, "c2")
    assert journal.synced_and_unread("main") == ("c2", frozenset())
    assert journal.commits.with_prefix("main", "c", limit=9) == ["c1", "c2"]


def test_what_the_history_published_is_published(journal: Actor) -> None:
    journal.record("main", [event("c1", "r01", "a")], "c2")
    assert journal.synced("main") == "c2"
    known = journal.claim("r02", TABLE, [A]).published
    assert [(one.file.uri, one.file.version, one.run_id) for one in known] == [(A.uri, "1", "r01")]
    assert journal.claim("r02", "other.table", [A]).claimed


def test_what_the_history_published_is_published_whoever_claimed_it(journal: Actor) -> None:
    journal.claim("r01", TABLE, [A])
    journal.record("main", [event("c1", "r02", "a")], "c1")
    journal.end(run(1, status="failed"))
    assert journal.claim("r03", TABLE, [A]).published == (KnownFile(file=A, run_id="r02"),)


def test_files_of_a_reverted_run_may_come_again(journal: Actor) -> None:
    published(journal, 1, A, B)
    journal.record("main", [event("c1", "r01", "a", "b"), event("c2", "r02", reverts=("r01",))], "c2")
    assert journal.claim("r03", TABLE, [A]) == Claim(claimed=(A,))
    journal.end(run(3, status="published"))
    journal.record("main", [event("c3", "r03", "a")], "c3")
    assert journal.claim("r04", TABLE, [A, B]) == Claim(claimed=(B,), published=(KnownFile(file=A, run_id="r03"),))


def test_a_revert_takes_back_only_files_of_its_tables_and_runs(journal: Actor) -> None:
    events = [event("c1", "r01", "a"), event("c2", "r01", "a", tables=("x.y",)), event("c3", "r02", "b")]
    journal.record("main", [*events, event("c4", "r03", reverts=("r01",))], "c4")
    assert journal.claim("r04", TABLE, [A]).claimed
    assert journal.claim("r04", TABLE, [B]).published
    assert journal.claim("r04", "x.y", [A]).published


def test_a_commit_counts_once(journal: Actor) -> None:
    first = event("c1", "r01", "a")
    journal.record("main", [first, event("c2", "r02", reverts=("r01",))], "c2")
    journal.record("main", [first], "c1")  # from one who read the history earlier, and was slow
    assert journal.synced("main") == "c2"
    assert journal.claim("r03", TABLE, [A]).claimed


def test_runs_are_marked_as_the_history_tells(journal: Actor) -> None:
    journal.begin(run(1))
    journal.save(run(2, status="published"))
    journal.record("main", [event("c1", "r01", "a"), event("c2", "r03", reverts=("r02",))], "c2")
    first, second = journal.get("r01"), journal.get("r02")
    assert first is not None
    assert first.status == "published"
    assert first.finished_at == START + timedelta(hours=1)
    assert first.publication == Publication(run_id="r01", target="main", commit="c1", tables=(TABLE,), rows=0)
    assert second is not None
    assert (second.status, second.reverted_by) == ("reverted", "r03")


def test_a_run_reverted_in_one_of_its_tables_is_not_reverted(journal: Actor) -> None:
    journal.record("main", [event("c1", "r01", tables=(TABLE, "x.y")), event("c2", "r02", reverts=("r01",))], "c2")
    assert status(journal, "r01") == "published"
    journal.record("main", [event("c3", "r03", reverts=("r01",), tables=("x.y",))], "c3")
    assert status(journal, "r01") == "reverted"
    assert journal.get("r01").reverted_by == "r03"


def test_a_run_that_the_journal_lost_is_made_up_from_its_commit(journal: Actor) -> None:
    journal.record("main", [event("c1", "r01", "a"), event("c2", "r02", reverts=("r01",))], "c2")
    assert (status(journal, "r01"), status(journal, "r02")) == ("reverted", "published")
    found = journal.get("r02")
    assert found is not None
    assert (found.kind, found.started_at, found.tables) == ("revert", START + timedelta(hours=1), (TABLE,))
    assert [one.run_id for one in journal.runs(table=TABLE, status="reverted")] == ["r01"]


def test_a_rebuild_forgets_what_the_history_does_not_say(journal: Actor) -> None:
    published(journal, 1, A)
    journal.claim("r02", TABLE, [C])
    journal.record("main", [event("c1", "r01", "a")], "c1")
    journal.record("main", [event("d1", "r05", "b")], "d1", rebuild=True)
    answer = journal.claim("r03", TABLE, [A, B, C])
    assert answer.claimed == (A,)
    assert [one.run_id for one in answer.published] == ["r05"]
    assert answer.busy == (KnownFile(file=C, run_id="r02"),)
    assert journal.synced("main") == "d1"


def test_a_rebuild_takes_back_what_the_history_does_not_hold(journal: Actor) -> None:
    def landed(name: str, run_id: str | None, **values: Any) -> FileCheckpoint:
        given: dict[str, Any] = {"outcome": "done", "noted_at": START, **values}
        return FileCheckpoint(uri=file(name).uri, stamp="1", run_id=run_id, **given)

    def publication(number: int, target: str) -> Publication:
        return Publication(run_id=f"r{number:02}", target=target, commit=f"c{number}", tables=(TABLE,), rows=1)

    for number, target in ((1, "main"), (2, "main"), (3, "other")):
        journal.save(run(number, status="published", publication=publication(number, target)))
    journal.save(run(4, status="rejected"))
    journal.save(run(5, status="reverted", publication=publication(5, "main"), reverted_by="r06"))
    kept = [landed("a", "r01"), landed("d", "r04", outcome="rejected")]
    journal.save_file_checkpoints(TABLE, [*kept, landed("b", "r02"), landed("c", None)])
    journal.record("main", [event("c1", "r01", "a"), event("c2", "r02", "b")], "c2")
    assert set(journal.file_checkpoints(TABLE, [file(name).uri for name in "abcd"])) == {
        file(name).uri for name in "abcd"
    }

    # main was put back to its first commit, as after a restore of the catalog alone.
    assert journal.published() == {"r01", "r02", "r03", "r05"}
    journal.record("main", [event("c1", "r01", "a")], "c1", rebuild=True, gone={"r02", "r03", "r05"})
    found = journal.file_checkpoints(TABLE, [file(name).uri for name in "abcd"])
    assert list(found.values()) == kept
    assert [status(journal, f"r0{number}") for number in (1, 2, 3, 4, 5)] == [
        "published",
        "discarded",
        "published",
        "rejected",
        "discarded",
    ]
    assert "c2 isn't in main any more" in journal.get("r02").detail
    assert journal.get("r05").reverted_by is None
    assert journal.claim("r06", TABLE, [B]).claimed == (B,)

    journal.record("main", [event("c1", "r01", "a"), event("c2", "r02", "b")], "c2", rebuild=True)
    assert status(journal, "r02") == "published"


def test_what_was_read_before_a_reset_is_not_recorded_after_it(journal: Actor) -> None:
    def read(*names: str) -> dict[str, Any]:
        return {
            "target": "main",
            "commits": [event(name, f"r{name[1:]}", name) for name in names],
            "head": names[-1],
        }

    assert journal.record(**read("c1", "c2", "c3"), rebuild=True, known=None)
    late = read("c4", "c5")
    # Others may record the same commits meanwhile, and more.
    assert journal.record(**read("c4"), known="c3")
    assert journal.record(**late, known="c3")
    assert journal.record(**read("c4"), known="c3")
    assert journal.synced("main") == "c5"

    later = read("c6", "c7")
    assert journal.record(**read("c1", "d9"), rebuild=True, known="c5", gone={"r2", "r3", "r4", "r5"})
    assert not journal.record(**late, known="c3")
    assert not journal.record(**later, known="c5")
    assert journal.synced("main") == "d9"
    assert journal.commits.with_prefix("main", "c", limit=9) == ["c1"]
    assert journal.published() == {"r1", "r9"}


def test_a_rebuild_hears_known_commits_again(journal: Actor) -> None:
    events = [event(f"c{number}", f"r{number}", f"f{number}") for number in range(600)]
    journal.record("main", events, "c599")
    journal.record("main", events, "c599", rebuild=True)
    assert len(journal.runs(limit=1000)) == 600
    assert len(journal.claim("x", TABLE, [file(f"f{number}") for number in range(600)]).published) == 600


OLD = SourceFile(uri="file:///old", size_bytes=9, version="sha256:" + "0" * 64, rows=3)


def test_a_file_found_by_a_link_is_left_out_under_both_names(journal: Actor) -> None:
    """Whoever found it by the link must recognize it among the files that a run left to another one."""
    linked = OLD.model_copy(update={"aliases": ("file:///link",)})
    journal.begin(run(1))
    journal.claim("r01", TABLE, [OLD])
    known = KnownFile(file=linked, run_id="r01")
    assert journal.claim("r02", TABLE, [linked]) == Claim(busy=(known,))
    journal.end(run(1, status="published"))
    assert journal.claim("r02", TABLE, [linked]) == Claim(published=(known,))


@pytest.mark.parametrize("rebuild", [False, True])
def test_the_newest_version_of_a_path_is_the_one_that_was_published_last(journal: Actor, *, rebuild: bool) -> None:
    """Also when it was published before."""
    versions = [("c1", "r01", A), ("c2", "r02", A2), ("c3", "r03", A)]
    events = [past(commit, said(run_id, TABLE, files=[one])) for commit, run_id, one in versions]
    for number, commit in enumerate(("c1", "c2", "c3"), 1):
        journal.record("main", events[:number] if rebuild else events[number - 1 : number], commit, rebuild=rebuild)
        newest, other = (A, A2) if number != 2 else (A2, A)
        run_id = f"r0{number}"
        claim = journal.known(TABLE, [newest])
        assert [(one.run_id, one.file.version) for one in claim.published] == [(run_id, newest.version)]
        assert claim.went_back == ()
        back = journal.known(TABLE, [other])
        assert [(one.run_id, one.file.version) for one in back.went_back] == (
            [] if number == 1 else [(run_id, newest.version)]
        )


def version(number: int) -> SourceFile:
    return file("a", str(number))


def took(number: int, of: int) -> PastCommit:
    """Return a commit by which a run published a version of a file."""
    return past(f"c{number}", said(f"r0{number}", TABLE, files=[version(of)]))


@pytest.mark.parametrize("how", ["each", "together", "rebuilt"])
def test_a_version_that_was_published_again_and_reverted_is_not_there(journal: Actor, how: str) -> None:
    """However the journal came to know."""
    events = [took(1, 1), took(2, 2), took(3, 1), event("c4", "r04", reverts=("r03",))]
    journal.record("main", events[:2], "c2")
    if how == "each":
        journal.record("main", events[2:3], "c3")
    journal.record("main", events if how == "rebuilt" else events[2:], "c4", rebuild=how == "rebuilt")
    answer = journal.known(TABLE, [version(1)])
    assert ([one.run_id for one in answer.changed], answer.published) == (["r02"], ())
    assert journal.known(TABLE, [version(2)]).went_back == ()


@pytest.mark.parametrize("rebuild", [False, True])
def test_what_was_claimed_early_and_published_last_is_the_newest(journal: Actor, *, rebuild: bool) -> None:
    events = [took(1, 1), took(2, 2), took(3, 1), took(4, 3)]
    journal.record("main", events[:2], "c2")
    journal.begin(run(4))
    assert journal.claim("r04", TABLE, [version(3)], take_changed=True).claimed == (version(3),)
    journal.record("main", events[2:3], "c3")
    if rebuild:
        journal.record("main", events, "c4", rebuild=True)
    else:
        journal.record("main", events[3:], "c4")
    assert journal.known(TABLE, [version(3)]).went_back == ()
    assert [one.run_id for one in journal.known(TABLE, [version(1)]).went_back] == ["r04"]


def test_a_version_that_is_published_again_keeps_its_size(journal: Actor) -> None:
    published(journal, 1, A)
    journal.record("main", [took(1, 1), took(2, 2), took(3, 1)], "c3")
    assert journal.known(TABLE, [A]).published == (KnownFile(file=A, run_id="r03"),)


def test_what_others_took_and_lost_leaves_a_claim_of_it(journal: Actor) -> None:
    journal.begin(run(4))
    journal.claim("r04", TABLE, [A])
    journal.record("main", [took(1, 1), event("c2", "r02", reverts=("r01",))], "c2")
    assert journal.known(TABLE, [A]).busy == (KnownFile(file=A, run_id="r04"),)
