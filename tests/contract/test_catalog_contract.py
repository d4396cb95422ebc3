"""What every catalog does with references and their history, whatever it is made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest

from catalog_place import NO_SUCH_HASH, PAGE_SIZE, Place
from lakegate.errors import (
    AlreadyExistsError,
    ConflictError,
    IdentifierError,
    InputError,
    NotFoundError,
)
from lakegate.model.refs import Ref
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.protocols import Catalog


def test_names_with_slashes_and_dots_are_found_again(place: Place) -> None:
    assert "/" in place.branch
    assert "." in place.branch
    assert place.head().name == place.branch
    assert place.head().kind == "branch"
    assert place.branch in [ref.name for ref in place.catalog.list_refs()]


@pytest.mark.parametrize("name", ["nowhere", "-", "main~1", "a@b", "a b", "ü", "", "a..b", "a/", "@", "main*2099"])
def test_a_name_that_does_not_exist_or_cannot_is_not_found(catalog: Catalog, name: str) -> None:
    with pytest.raises(NotFoundError, match="branch or tag"):
        catalog.get_ref(name)
    with pytest.raises(NotFoundError):
        list(catalog.history(name))


@pytest.mark.parametrize("name", ["1st", "a b", "tür", "a//b", "a..b", "deadbeefdeadbeef", "a/", "-"])
def test_a_bad_name_is_refused_before_anything_is_created(catalog: Catalog, name: str) -> None:
    with pytest.raises(IdentifierError):
        catalog.create_branch(name, catalog.get_ref("main"))


def test_listing_refs_goes_through_all_pages(place: Place) -> None:
    names = {f"{place.branch}-{number}" for number in range(2 * PAGE_SIZE + 1)}
    for name in names:
        place.catalog.create_tag(name, place.head())
    found = [ref for ref in place.catalog.list_refs() if ref.name in names]
    assert len(found) == len(names)
    assert {ref.kind for ref in found} == {"tag"}
    assert {ref.hash for ref in found} == {place.head().hash}


def test_creating_what_exists_is_an_error(place: Place) -> None:
    with pytest.raises(AlreadyExistsError, match="exists"):
        place.catalog.create_branch(place.branch, place.head())
    with pytest.raises(AlreadyExistsError, match="exists"):
        place.catalog.create_tag(place.branch, place.head())


def test_creating_at_a_commit_that_does_not_exist_is_an_error(place: Place) -> None:
    with pytest.raises(NotFoundError):
        place.catalog.create_branch(f"{place.branch}-x", Ref(name="main", hash=NO_SUCH_HASH))


def test_a_branch_can_start_behind_the_head(place: Place) -> None:
    old = place.create("trips")
    place.move("trips", 1)
    branch = place.catalog.create_branch(f"{place.branch}-old", old)
    assert branch.hash == old.hash
    assert place.version("trips", branch) == 0
    assert place.version("trips") == 1


def test_a_bare_commit_can_be_looked_up(place: Place) -> None:
    head = place.head()
    detached = place.catalog.get_ref(head.hash)
    assert (detached.name, detached.hash, detached.kind) == (head.hash, head.hash, "detached")
    assert list(place.catalog.list_namespaces(detached)) == [(place.namespace,)]
    with pytest.raises(NotFoundError):
        place.catalog.get_ref(NO_SUCH_HASH)


def test_assigning_needs_the_hash_it_was_seen_at(place: Place) -> None:
    seen = place.create("trips")
    moved = place.move("trips", 1)
    with pytest.raises(ConflictError) as caught:
        place.catalog.assign_ref(seen, place.root)
    assert caught.value.context["ref"] == place.branch
    assert caught.value.context["actual"] == moved.hash
    assert place.catalog.assign_ref(moved, seen) == place.head()
    assert place.head().hash == seen.hash


def test_assigning_to_or_from_nothing_is_an_error(place: Place) -> None:
    with pytest.raises(NotFoundError):
        place.catalog.assign_ref(place.head(), Ref(name="main", hash=NO_SUCH_HASH))
    with pytest.raises(NotFoundError):
        place.catalog.assign_ref(Ref(name=f"{place.branch}-none", hash=place.head().hash), place.head())
    with pytest.raises(InputError):
        place.catalog.assign_ref(place.catalog.get_ref(place.head().hash), place.root)


def test_deleting_needs_the_hash_it_was_seen_at(place: Place) -> None:
    branch = place.catalog.create_branch(f"{place.branch}-gone", place.root)
    with pytest.raises(ConflictError):
        place.catalog.delete_ref(branch.model_copy(update={"hash": place.head().hash}))
    place.catalog.delete_ref(branch)
    with pytest.raises(NotFoundError):
        place.catalog.delete_ref(branch)
    with pytest.raises(NotFoundError):
        place.catalog.get_ref(branch.name)
    with pytest.raises(InputError):
        place.catalog.delete_ref(place.catalog.get_ref(place.head().hash))


def test_history_is_newest_first_through_all_pages(place: Place) -> None:
    place.create("trips")
    heads = [place.move("trips", version).hash for version in range(1, 2 * PAGE_SIZE + 1)]
    commits = list(place.catalog.history(place.branch))
    assert [commit.hash for commit in commits[: len(heads)]] == heads[::-1]
    assert [commit.parent for commit in commits[:-1]] == [commit.hash for commit in commits[1:]]
    assert commits[-1].parent == place.root.hash
    assert all(commit.time.tzinfo is not None for commit in commits)
    assert all(commit.author and commit.message == "change" for commit in commits)
    assert all(commit.tables == () for commit in commits)


def test_history_of_a_hash_begins_there(place: Place) -> None:
    old = place.create("trips")
    place.move("trips", 1)
    assert next(place.catalog.history(old.hash)).hash == old.hash


def test_history_stops_before_until(place: Place) -> None:
    base = place.create("trips")
    heads = [place.move("trips", version).hash for version in range(1, PAGE_SIZE + 3)]
    assert [commit.hash for commit in place.catalog.history(place.branch, until=base.hash)] == heads[::-1]
    assert list(place.catalog.history(place.branch, until=place.head().hash)) == []


def test_history_tells_what_a_commit_changed_when_asked(place: Place) -> None:
    place.commit(place.pointer("trips"), namespaces=((place.namespace, "deep"),))
    newest = next(place.catalog.history(place.branch, operations=True))
    assert set(newest.tables) == {f"{place.namespace}.trips", f"{place.namespace}.deep"}


def test_history_tells_the_tables_as_commits_left_them_when_asked(place: Place) -> None:
    names = [f"t{number}" for number in range(PAGE_SIZE + 1)]
    place.commit(*(place.pointer(name) for name in names), namespaces=((place.namespace, "deep"),))
    for version in range(1, PAGE_SIZE + 1):
        place.move("t0", version)
    place.commit(deletes=("t1",))
    dropped, *moves, created = list(place.catalog.history(place.branch, operations=True))[: PAGE_SIZE + 2]
    assert dropped.puts == ()
    assert [[put.snapshot_id for put in commit.puts] for commit in moves] == [[v] for v in range(PAGE_SIZE, 0, -1)]
    assert set(created.puts) == set(place.catalog.list_tables(Ref(name="x", hash=created.hash, kind="detached")))
    assert all(commit.puts == () for commit in place.catalog.history(place.branch))


@pytest.mark.parametrize("run_id", ["20260131T070509-0badcafe", 'it\'s "quoted" \\ ü \U0001f9ca'])
def test_history_finds_a_run(place: Place, run_id: str) -> None:
    base = place.commit(place.pointer("trips"), run_id="another")
    published = place.commit(place.pointer("zones"), run_id=run_id)
    for version in range(1, PAGE_SIZE + 2):
        place.move("trips", version)
    (found,) = place.catalog.history(place.branch, run_id=run_id, until=base.hash)
    assert found.hash == published.hash
    assert found.properties == {RUN_ID_PROPERTY: run_id}
    assert list(place.catalog.history(place.branch, run_id=run_id, until=published.hash)) == []
    assert list(place.catalog.history(place.branch, run_id="never")) == []


def test_resolving_the_head(place: Place) -> None:
    assert place.catalog.resolve(place.branch, None) == place.head()


def test_resolving_a_hash_pins_it(place: Place) -> None:
    old = place.create("trips")
    place.move("trips", 1)
    found = place.catalog.resolve(place.branch, old.hash)
    assert (found.name, found.hash, found.kind) == (place.branch, old.hash, "detached")
    assert place.version("trips", found) == 0
    options = place.catalog.spark_options(found)
    assert (options["ref"], options["ref.hash"]) == (place.branch, old.hash)


def test_resolving_a_commit_of_another_branch_finds_it(place: Place) -> None:
    other = place.catalog.create_branch(f"{place.branch}-other", place.root)
    head = place.create("trips")
    found = place.catalog.resolve(other.name, head.hash)
    assert place.version("trips", found) == 0


def test_resolving_what_does_not_exist_is_an_error(place: Place) -> None:
    with pytest.raises(NotFoundError):
        place.catalog.resolve(place.branch, NO_SUCH_HASH)
    with pytest.raises(NotFoundError):
        place.catalog.resolve(f"{place.branch}-none", place.head().hash)
    with pytest.raises(NotFoundError):
        place.catalog.resolve(f"{place.branch}-none", datetime.now(UTC))
    with pytest.raises(InputError):
        place.catalog.resolve(place.branch, "yesterday")


def test_resolving_a_time_finds_the_last_commit_at_or_before_it(place: Place) -> None:
    place.create("trips")
    for version in range(1, 4):
        place.move("trips", version)
    commits = list(place.catalog.history(place.branch))
    for newer, commit in pairwise(commits):
        assert newer.time > commit.time
        assert place.catalog.resolve(place.branch, commit.time).hash == commit.hash
        before = newer.time - timedelta(microseconds=1)
        assert place.catalog.resolve(place.branch, before).hash == commit.hash
    future = commits[0].time + timedelta(days=900)
    assert place.catalog.resolve(place.branch, future).hash == place.head().hash


def test_resolving_a_time_minds_its_zone(place: Place) -> None:
    commits = [next(place.catalog.history(place.create(name).hash)) for name in ("a", "b")]
    elsewhere = commits[0].time.astimezone(timezone(timedelta(hours=-11)))
    assert place.catalog.resolve(place.branch, elsewhere).hash == commits[0].hash
    with pytest.raises(InputError, match="zone"):
        place.catalog.resolve(place.branch, commits[0].time.replace(tzinfo=None))


def test_resolving_a_time_before_all_commits_is_an_error(place: Place) -> None:
    with pytest.raises(NotFoundError, match=place.branch):
        place.catalog.resolve(place.branch, datetime(1999, 1, 1, tzinfo=UTC))


def test_diff_tells_added_removed_and_changed(place: Place) -> None:
    for name in ("stays", "changes", "goes"):
        place.create(name)
    left = place.head()
    place.commit(place.pointer("comes"), namespaces=((place.namespace, "deep"),))
    place.move("changes", 1)
    place.commit(deletes=("goes",))
    found = {difference.table: difference for difference in place.catalog.diff(left, place.head())}
    changes = {name.removeprefix(f"{place.namespace}."): item.change for name, item in found.items()}
    assert changes == {
        "comes": "added",
        "changes": "changed",
        "goes": "removed",
        "deep": found[f"{place.namespace}.deep"].change,
    }
    changed = found[str(place.table("changes"))]
    assert changed.left is not None
    assert changed.right is not None
    assert (changed.left.snapshot_id, changed.right.snapshot_id) == (0, 1)
    assert found[f"{place.namespace}.deep"].kind == "namespace"
    assert list(place.catalog.diff(left, left)) == []


def test_diff_goes_through_all_pages_and_from_nothing(place: Place) -> None:
    names = {f"{place.namespace}.t{number}" for number in range(2 * PAGE_SIZE + 1)}
    head = place.commit(*(place.pointer(name.rpartition(".")[2]) for name in names))
    found = {item.table for item in place.catalog.diff(place.root, head)}
    assert found == {place.namespace, *names}


def test_spark_is_bound_to_a_branch_by_name(place: Place) -> None:
    options = place.catalog.spark_options(place.head())
    assert options["ref"] == place.branch
    assert "ref.hash" not in options
    assert place.catalog.spark_options()["ref"] == "main"


def test_closing_twice_is_fine(catalog: Catalog) -> None:
    catalog.close()
    catalog.close()
