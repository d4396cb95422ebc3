"""Points in a lake's history as people type them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from lakegate.errors import InputError, NotFoundError
from lakegate.journal.history import ANY_HEAD
from lakegate.journal.journal import Journal
from lakegate.ledger.event import PastCommit
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, CommitRequest, Ref, TablePointer
from lakegate.points import expand_hash, find, parse_at, resolve, unknown_table
from lakegate.testing import MemoryCatalog
from support.memory_journal import MemoryDatabase

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    for number in range(40):
        head = made.get_ref("main")
        namespaces = ((f"n{number}",),)
        made.commit(CommitRequest(branch="main", base=head.hash, message=str(number), namespaces=namespaces))
    return made


def hashes(catalog: MemoryCatalog) -> list[str]:
    return [commit.hash for commit in catalog.history("main")]


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("10m ago", timedelta(minutes=10)),
        ("10m", timedelta(minutes=10)),
        ("2 hours ago", timedelta(hours=2)),
        ("an hour ago", timedelta(hours=1)),
        ("1 day ago", timedelta(days=1)),
        ("3 weeks ago", timedelta(weeks=3)),
        ("90 mins ago", timedelta(minutes=90)),
        ("Yesterday", timedelta(days=1)),
        ("now", timedelta()),
    ],
)
def test_times_ago(text: str, before: timedelta) -> None:
    assert parse_at(text, now=NOON) == NOON - before


@pytest.mark.parametrize(
    "text", ["", "   ", "99999999999d ago", "999999w ago", "0001-01-01T00:00+05:00", "9999-12-31T23:59:59-05:00"]
)
def test_other_text_is_not_a_time(text: str) -> None:
    with pytest.raises(InputError, match="neither a time, nor a tag, nor a commit"):
        parse_at(text, now=NOON)


def test_times_without_a_zone_are_utc() -> None:
    assert parse_at("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert parse_at(datetime(2026, 1, 31, 12)) == NOON


def test_a_commit_is_found_by_a_prefix(catalog: MemoryCatalog) -> None:
    for commit in hashes(catalog):
        for digits in (12, 20, 63):
            beginning = commit[:digits]
            pinned = resolve(catalog, "main", beginning)
            assert (pinned.name, pinned.hash, pinned.kind) == ("main", commit, "detached")
            assert find(catalog, beginning) == Ref(name=commit, hash=commit, kind="detached")
            assert expand_hash(catalog, beginning) == commit


def test_a_tag_is_a_point_in_time_and_a_branch_is_not(catalog: MemoryCatalog) -> None:
    third = hashes(catalog)[2]
    catalog.create_tag("january-closed", Ref(name=third, hash=third, kind="detached"))
    catalog.create_branch("dev", catalog.get_ref("main"))
    assert resolve(catalog, "main", "january-closed").hash == third
    with pytest.raises(InputError, match="'dev' is a branch, not a point in time") as caught:
        resolve(catalog, "main", "dev")
    assert "--ref dev" in (caught.value.hint or "")


def test_a_name_wins_over_a_prefix(catalog: MemoryCatalog) -> None:
    catalog.create_branch("deadbeef", catalog.get_ref("main"))
    assert find(catalog, "deadbeef").kind == "branch"


@pytest.mark.parametrize("at", ["someday", "2026-13-01", "abcdef", "wap/../x"])
def test_text_that_is_no_point_is_refused(catalog: MemoryCatalog, at: str) -> None:
    with pytest.raises(InputError, match="neither a time, nor a tag, nor a commit"):
        resolve(catalog, "main", at)


def test_a_similar_ref_is_suggested(catalog: MemoryCatalog) -> None:
    catalog.create_branch("wap/january", catalog.get_ref("main"))
    for look in (find, resolve):
        with pytest.raises(NotFoundError, match="'wap/januray' doesn't exist") as caught:
            look(catalog, "wap/januray")
        assert "Did you mean 'wap/january'?" in (caught.value.hint or "")
    with pytest.raises(NotFoundError, match=r"Nothing was committed to .* by [0-9-]+T[0-9:]+Z\.$"):
        resolve(catalog, "wap/january", datetime(1, 1, 1, tzinfo=UTC))


def test_a_similar_table_is_suggested(catalog: MemoryCatalog) -> None:
    pointer = TablePointer(
        table=TableIdentifier.parse("n0.trips"), content_id=None, metadata_location="file:/x.json",
        snapshot_id=1, schema_id=0, spec_id=0, sort_order_id=0,
    )  # fmt: skip
    head = catalog.get_ref("main")
    catalog.commit(CommitRequest(branch="main", base=head.hash, message="t", puts=(pointer,)))
    error = unknown_table(catalog, "n0.trisp", catalog.get_ref("main"))
    assert error.message == "Table n0.trisp doesn't exist on main."
    assert "Did you mean 'n0.trips'?" in (error.hint or "")


def test_a_commit_of_another_branch_is_refused(catalog: MemoryCatalog) -> None:
    base = catalog.get_ref("main")
    branch = catalog.create_branch("wap/x", base)
    unaudited = catalog.commit(
        CommitRequest(branch="wap/x", base=branch.hash, message="x", namespaces=(("unaudited",),))
    )
    catalog.create_tag("staged", unaudited)
    catalog.commit(CommitRequest(branch="main", base=base.hash, message="y", namespaces=(("later",),)))
    for at, what in (("staged", "Tag 'staged'"), (unaudited.hash, f"Commit {unaudited.hash[:12]}")):
        with pytest.raises(InputError, match=f"{what} isn't in the history of 'main'") as refused:
            resolve(catalog, "main", at)
        assert f"pass {at} instead" in (refused.value.hint or "")
        assert resolve(catalog, "wap/x", at).hash == resolve(catalog, at).hash == unaudited.hash
    later = catalog.get_ref("main").hash
    assert resolve(catalog, "main", later).hash == later
    with pytest.raises(InputError, match="isn't in the history of 'wap/x'"):
        resolve(catalog, "wap/x", later[:16])


class SkewedCatalog(MemoryCatalog):
    """A catalog whose clock went back by an hour after half of its commits."""

    def history(self, ref: str, **options: Any) -> Iterator[Commit]:
        for commit in super().history(ref, **options):
            is_later = commit.message.isdecimal() and int(commit.message) >= 20
            yield commit.model_copy(update={"time": commit.time - timedelta(hours=is_later)})

    def resolve(self, ref: str, at: str | datetime | None) -> Ref:
        if not isinstance(at, datetime):
            return super().resolve(ref, at)
        made = (one.hash for one in self.history(ref) if one.time <= at)
        return Ref(name=ref, hash=next(made), kind="detached")


def test_a_commit_before_the_catalog_s_clock_went_back_is_in_the_history() -> None:
    catalog = SkewedCatalog()
    for number in range(40):
        base = catalog.get_ref("main").hash
        catalog.commit(CommitRequest(branch="main", base=base, message=str(number), namespaces=((f"n{number}",),)))
    commits = hashes(catalog)
    catalog.create_branch("wap/x", catalog.get_ref("main"))
    for one in commits:
        assert resolve(catalog, "wap/x", one).hash == one


def test_a_time_in_the_future_is_refused(catalog: MemoryCatalog) -> None:
    with pytest.raises(InputError, match="is in the future: it's ") as refused:
        resolve(catalog, "main", datetime.now(UTC) + timedelta(hours=1))
    assert "zone" in (refused.value.hint or "")
    assert resolve(catalog, "main", datetime.now(UTC)).hash == catalog.get_ref("main").hash


@pytest.mark.parametrize("seed", range(3))
def test_the_index_finds_the_last_commit_by_a_time_even_if_the_catalog_s_clock_goes_back(seed: int) -> None:
    random = Random(seed)
    journal, now, past = Journal(MemoryDatabase()), NOON, list[PastCommit]()
    known: str | None = None
    for batch in range(6):
        read = []
        for number in range(random.randrange(1, 4)):
            now += timedelta(milliseconds=random.randrange(-150, 250))
            read.append(PastCommit(hash=f"{batch}{number}".rjust(64, "a"), time=now))
        past += read
        journal.record("main", read, past[-1].hash, rebuild=batch == 0, known=known)
        known = past[-1].hash
        if batch == 3:  # another process, which was slower
            journal.record("main", past[-len(read) - 1 :], read[-1].hash, rebuild=False, known=ANY_HEAD)
        for time in (one.time for one in past):
            last = [one for one in past if one.time <= time][-1]
            assert journal.commits.at("main", time) == last.hash


def test_commits_of_one_time_are_indexed_in_their_order() -> None:
    """The clock of a catalog may count whole seconds."""
    journal, known, past = Journal(MemoryDatabase()), None, list[PastCommit]()
    for number in range(4):
        past.append(PastCommit(hash=f"{number}".rjust(64, "a"), time=NOON))
        journal.record("main", past[-1:], past[-1].hash, rebuild=number == 0, known=known)
        known = past[-1].hash
    assert journal.commits.at("main", NOON) == known
