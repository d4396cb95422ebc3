"""What every catalog does, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from uuid import uuid4

import pytest

from lakegate.catalogs.memory import ROOT_HASH, MemoryCatalog
from lakegate.catalogs.nessie.catalog import NessieCatalog
from lakegate.errors import (
    AlreadyExistsError,
    ConflictError,
    IdentifierError,
    InputError,
    LakegateError,
    NotFoundError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.protocols import Catalog

PAGE_SIZE = 3
NO_SUCH_HASH = "ab" * 32


@dataclass(frozen=True)
class Place:
    """A branch and a namespace of a test's own, made on a catalog that others may use at the same time."""

    catalog: Catalog
    branch: str
    namespace: str
    root: Ref

    def table(self, name: str) -> TableIdentifier:
        return TableIdentifier(namespace=(self.namespace,), name=name)

    def head(self) -> Ref:
        return self.catalog.get_ref(self.branch)

    def pointer(self, name: str, version: int = 0, content_id: str | None = None) -> TablePointer:
        return TablePointer(
            table=self.table(name),
            content_id=content_id,
            metadata_location=f"file:///lake/{self.namespace}/{name}/v{version}.metadata.json",
            snapshot_id=version,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )

    def commit(
        self,
        *puts: TablePointer,
        base: Ref | None = None,
        deletes: tuple[str, ...] = (),
        unchanged: tuple[str, ...] = (),
        namespaces: tuple[tuple[str, ...], ...] = (),
        run_id: str | None = None,
    ) -> Ref:
        return self.catalog.commit(
            CommitRequest(
                branch=self.branch,
                base=(base or self.head()).hash,
                message="change",
                puts=puts,
                deletes=tuple(self.table(name) for name in deletes),
                unchanged=tuple(self.table(name) for name in unchanged),
                namespaces=namespaces,
                properties={} if run_id is None else {RUN_ID_PROPERTY: run_id},
            )
        )

    def create(self, name: str) -> Ref:
        return self.commit(self.pointer(name))

    def move(self, name: str, version: int, base: Ref | None = None) -> Ref:
        """Put a new version of a table, with the content id it has at ``base``."""
        base = base or self.head()
        pointer = self.catalog.get_table(self.table(name), base)
        assert pointer is not None
        return self.commit(self.pointer(name, version, pointer.content_id), base=base)

    def version(self, name: str, at: Ref | None = None) -> int | None:
        pointer = self.catalog.get_table(self.table(name), at or self.head())
        return None if pointer is None else pointer.snapshot_id


def _memory(request: pytest.FixtureRequest) -> Catalog:
    return MemoryCatalog()


def _nessie(request: pytest.FixtureRequest) -> Catalog:
    return NessieCatalog(request.getfixturevalue("nessie_uri"), "file:///lake", page_size=PAGE_SIZE)


@pytest.fixture(
    params=[pytest.param(_memory, id="memory"), pytest.param(_nessie, id="nessie", marks=pytest.mark.jvm)],
)
def catalog(request: pytest.FixtureRequest) -> Iterator[Catalog]:
    make: Callable[[pytest.FixtureRequest], Catalog] = request.param
    catalog = make(request)
    yield catalog
    catalog.close()


@pytest.fixture
def place(catalog: Catalog) -> Iterator[Place]:
    """A branch with nothing but one namespace: the branch is what ``main`` is in real life."""
    unique = uuid4().hex[:12]
    # Nessie's first commit, which holds nothing, is the hash of a constant: so is the fake's.
    root = catalog.get_ref(ROOT_HASH)
    branch = f"contract/{unique}/odd.name_-1"
    catalog.create_branch(branch, root)
    place = Place(catalog, branch, f"ns_{unique}", root)
    place.commit(namespaces=((place.namespace,),))
    yield place
    for ref in list(catalog.list_refs()):
        if unique in ref.name:
            catalog.delete_ref(ref)


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


def test_a_table_is_created_moved_and_dropped(place: Place) -> None:
    created = place.create("trips")
    first = place.catalog.get_table(place.table("trips"), created)
    assert first is not None
    assert first.content_id
    assert first.metadata_location.endswith("v0.metadata.json")
    assert created == place.head()
    place.move("trips", 1)
    second = place.catalog.get_table(place.table("trips"), place.head())
    assert second is not None
    assert (second.content_id, second.snapshot_id) == (first.content_id, 1)
    place.commit(deletes=("trips",))
    assert place.version("trips") is None
    assert place.version("trips", created) == 0


def test_a_ref_and_its_tables_are_found_together(place: Place) -> None:
    place.create("trips")
    trips, absent = place.table("trips"), place.table("absent")
    ref, tables = place.catalog.get_ref_with_tables(place.branch, [trips, absent])
    assert ref == place.head()
    assert tables == {trips: place.catalog.get_table(trips, ref), absent: None}
    assert tables[trips] is not None
    tag = place.catalog.create_tag(f"{place.branch}-tag", ref)
    place.move("trips", 1)
    assert place.catalog.get_ref_with_tables(tag.name, [trips]) == (tag, {trips: tables[trips]})
    for name in ("nowhere", "main~1"):
        with pytest.raises(NotFoundError):
            place.catalog.get_ref_with_tables(name, [trips])


def test_a_table_without_a_snapshot_keeps_its_minus_one(place: Place) -> None:
    place.commit(place.pointer("empty", -1))
    assert place.version("empty") == -1


def test_tables_and_namespaces_are_listed_as_of_a_commit(place: Place) -> None:
    names = [f"t{number}" for number in range(2 * PAGE_SIZE + 1)]
    before = place.head()
    place.commit(*(place.pointer(name) for name in names), namespaces=((place.namespace, "deep"),))
    assert sorted(pointer.table.name for pointer in place.catalog.list_tables(place.head())) == names
    assert set(place.catalog.list_namespaces(place.head())) == {(place.namespace,), (place.namespace, "deep")}
    assert list(place.catalog.list_tables(before)) == []
    assert list(place.catalog.list_namespaces(place.root)) == []


def test_a_namespace_is_not_a_table(place: Place) -> None:
    place.commit(namespaces=((place.namespace, "deep"),))
    with pytest.raises(InputError, match="not a table"):
        place.catalog.get_table(place.table("deep"), place.head())


def test_namespace_and_table_come_in_one_commit(place: Place) -> None:
    table = TableIdentifier(namespace=(place.namespace, "a", "b"), name="t")
    pointer = place.pointer("t").model_copy(update={"table": table})
    head = place.commit(pointer, namespaces=((place.namespace, "a"), (place.namespace, "a", "b")))
    found = place.catalog.get_table(table, head)
    assert found is not None
    assert found.table == table


def test_a_table_without_its_namespace_conflicts(place: Place) -> None:
    pointer = place.pointer("t").model_copy(update={"table": TableIdentifier.parse("no_such_ns.t")})
    with pytest.raises(ConflictError, match="no_such_ns"):
        place.commit(pointer)


def test_a_key_that_moved_after_the_base_conflicts(place: Place) -> None:
    base = place.create("trips")
    place.move("trips", 1)
    with pytest.raises(ConflictError) as caught:
        place.move("trips", 2, base)
    assert caught.value.context["tables"] == [str(place.table("trips"))]
    assert caught.value.context["branch"] == place.branch
    assert str(place.table("trips")) in caught.value.message
    assert place.version("trips") == 1


def test_another_key_that_moved_after_the_base_does_not_conflict(place: Place) -> None:
    place.create("zones")
    base = place.create("trips")
    place.move("zones", 1)
    place.move("trips", 2, base)
    assert (place.version("zones"), place.version("trips")) == (1, 2)


def test_relying_on_a_table_that_moved_conflicts(place: Place) -> None:
    place.create("zones")
    base = place.create("trips")
    trips = place.catalog.get_table(place.table("trips"), base)
    assert trips is not None
    place.move("zones", 1)
    put = place.pointer("trips", 1, trips.content_id)
    with pytest.raises(ConflictError) as caught:
        place.commit(put, base=base, unchanged=("zones",))
    assert caught.value.context["tables"] == [str(place.table("zones"))]
    place.commit(put, unchanged=("zones",))
    assert place.version("trips") == 1


def test_relying_on_a_table_that_stood_still_passes(place: Place) -> None:
    place.create("zones")
    base = place.create("trips")
    place.create("other")
    place.commit(place.pointer("new"), base=base, unchanged=("zones", "trips"))
    assert place.version("new") == 0


def test_relying_on_a_table_that_was_dropped_conflicts(place: Place) -> None:
    base = place.create("zones")
    place.commit(deletes=("zones",))
    with pytest.raises(ConflictError, match="zones"):
        place.commit(place.pointer("new"), base=base, unchanged=("zones",))


def test_relying_on_a_table_that_is_absent_passes_at_the_head_and_conflicts_once_created(place: Place) -> None:
    base = place.head()
    place.commit(place.pointer("trips"), unchanged=("zones",))
    place.create("zones")
    with pytest.raises(ConflictError, match="zones"):
        place.commit(place.pointer("new"), base=base, unchanged=("zones",))


def test_relying_on_an_absent_table_conflicts_when_anything_moved(place: Place) -> None:
    base = place.head()
    place.create("trips")
    with pytest.raises(ConflictError, match="zones"):
        place.commit(place.pointer("new"), base=base, unchanged=("zones",))


def test_relying_on_what_is_written_too_is_allowed(place: Place) -> None:
    base = place.create("trips")
    trips = place.catalog.get_table(place.table("trips"), base)
    assert trips is not None
    place.commit(place.pointer("trips", 1, trips.content_id), unchanged=("trips", "trips"))
    assert place.version("trips") == 1


def test_creating_what_was_created_after_the_base_conflicts(place: Place) -> None:
    base = place.head()
    place.create("trips")
    with pytest.raises(ConflictError, match="trips"):
        place.commit(place.pointer("trips", 9), base=base)
    with pytest.raises(ConflictError, match="trips"):
        place.commit(place.pointer("trips", 9))
    assert place.version("trips") == 0


def test_creating_a_namespace_that_exists_conflicts(place: Place) -> None:
    base = place.head()
    place.commit(namespaces=((place.namespace, "deep"),))
    for at in (base, place.head()):
        with pytest.raises(ConflictError, match="deep"):
            place.commit(namespaces=((place.namespace, "deep"),), base=at)


def test_a_foreign_content_id_conflicts(place: Place) -> None:
    place.create("trips")
    with pytest.raises(ConflictError):
        place.commit(place.pointer("trips", 1, str(uuid4())))
    with pytest.raises(ConflictError):
        place.commit(place.pointer("new", 1, str(uuid4())))


def test_a_table_dropped_after_the_base_conflicts(place: Place) -> None:
    base = place.create("trips")
    place.commit(deletes=("trips",))
    with pytest.raises(ConflictError, match="trips"):
        place.move("trips", 1, base)
    with pytest.raises(ConflictError, match="trips"):
        place.commit(deletes=("trips",), base=base)


def test_a_table_made_anew_after_the_base_conflicts(place: Place) -> None:
    base = place.create("trips")
    place.commit(deletes=("trips",))
    place.create("trips")
    with pytest.raises(ConflictError, match="trips"):
        place.move("trips", 1, base)
    with pytest.raises(ConflictError, match="trips"):
        place.commit(place.pointer("new"), base=base, unchanged=("trips",))


def test_dropping_what_does_not_exist_conflicts(place: Place) -> None:
    with pytest.raises(ConflictError, match="nothing"):
        place.commit(deletes=("nothing",))


def test_a_refused_commit_leaves_nothing_behind(place: Place) -> None:
    base = place.create("trips")
    head = place.move("trips", 1)
    with pytest.raises(ConflictError):
        place.commit(place.pointer("new"), base=base, unchanged=("trips",), namespaces=((place.namespace, "deep"),))
    assert place.head() == head
    assert place.version("new") is None


def test_a_commit_needs_a_branch_a_base_on_it_and_something_to_do(place: Place) -> None:
    def request(branch: str, base: str) -> CommitRequest:
        return CommitRequest(branch=branch, base=base, message="m", puts=(place.pointer("t"),))

    with pytest.raises(NotFoundError):
        place.catalog.commit(request(f"{place.branch}-none", place.head().hash))
    with pytest.raises(NotFoundError):
        place.catalog.commit(request(place.branch, NO_SUCH_HASH))
    with pytest.raises(InputError):
        place.commit()
    with pytest.raises(InputError):
        place.commit(place.pointer("t"), place.pointer("t", 1))


def test_a_tag_is_not_committed_to(place: Place) -> None:
    tag = place.catalog.create_tag(f"{place.branch}-tag", place.head())
    with pytest.raises(LakegateError):
        place.catalog.commit(CommitRequest(branch=tag.name, base=tag.hash, message="m", puts=(place.pointer("t"),)))
    assert place.catalog.get_ref(tag.name) == tag


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
