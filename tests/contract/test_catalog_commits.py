"""What every catalog does with commits, whatever it is made of."""

from __future__ import annotations

from uuid import uuid4

import pytest

from catalog_place import NO_SUCH_HASH, PAGE_SIZE, Place
from lakegate.errors import (
    ConflictError,
    InputError,
    LakegateError,
    NotFoundError,
)
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import CommitRequest


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
