"""The contract of every catalog, as pytest tests: the references, history and commits that lakegate relies on.

Subclass :class:`CatalogContract` in one of your test modules, and override its fixture ``catalog``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from uuid import uuid4

import pytest

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
from lakegate.ports import Catalog

NO_SUCH_HASH = "ab" * 32


@dataclass(frozen=True)
class Sandbox:
    """A test's own branch with one namespace, in a catalog that other tests may use at the same time.

    Attributes:
        root: The empty commit that the branch was created from.
        warehouse: Where the tables' files would be.
    """

    catalog: Catalog
    branch: str
    namespace: str
    root: Ref
    warehouse: str

    def table(self, name: str) -> TableIdentifier:
        """Return the identifier of table ``name`` in the sandbox."""
        return TableIdentifier(namespace=(self.namespace,), name=name)

    def head(self) -> Ref:
        """Return the branch at its current head."""
        return self.catalog.get_ref(self.branch)

    def pointer(self, name: str, version: int = 0, content_id: str | None = None) -> TablePointer:
        """Return a pointer to a version of a table."""
        return TablePointer(
            table=self.table(name),
            content_id=content_id,
            metadata_location=f"{self.warehouse}/{self.namespace}/{name}/v{version}.metadata.json",
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
        drops: tuple[tuple[str, ...], ...] = (),
        run_id: str | None = None,
        at_head: bool = False,
    ) -> Ref:
        """Commit to the branch, with its head as the default base."""
        return self.catalog.commit(
            CommitRequest(
                branch=self.branch,
                base=(base or self.head()).hash,
                message="change",
                puts=puts,
                deletes=tuple(self.table(name) for name in deletes),
                unchanged=tuple(self.table(name) for name in unchanged),
                namespaces=namespaces,
                drops=drops,
                at_head=at_head,
                properties={} if run_id is None else {RUN_ID_PROPERTY: run_id},
            )
        )

    def create(self, name: str) -> Ref:
        """Create a table."""
        return self.commit(self.pointer(name))

    def move(self, name: str, version: int, base: Ref | None = None) -> Ref:
        """Commit a new version of a table, with the content id it has at ``base``."""
        base = base or self.head()
        pointer = self.catalog.get_table(self.table(name), base)
        assert pointer is not None
        return self.commit(self.pointer(name, version, pointer.content_id), base=base)

    def version(self, name: str, at: Ref | None = None) -> int | None:
        """Return a table's version, by default at the head; ``None`` if the table doesn't exist."""
        pointer = self.catalog.get_table(self.table(name), at or self.head())
        return None if pointer is None else pointer.snapshot_id


class CatalogContract:
    """The behaviour that lakegate expects of every catalog.

    Subclass it, name the class ``Test…``, and override the fixture ``catalog``. If the head of ``main`` isn't an empty
    commit, override ``root`` too. The tests leave no references behind and need no table files.

    Attributes:
        page_size: Number of records that your catalog requests per page. Keep it small: the tests list more than two
            pages.
        warehouse: Root of the table files that pointers name. Nothing is written there.
    """

    page_size = 3
    warehouse = "file:///lake"

    @pytest.fixture
    def catalog(self) -> Catalog:
        """Return the catalog under test. Override it."""
        raise NotImplementedError("Override the fixture 'catalog' so that it returns the catalog to test.")

    @pytest.fixture
    def root(self, catalog: Catalog) -> Ref:
        """Return an empty commit to create branches from."""
        return catalog.get_ref("main")

    @pytest.fixture
    def sandbox(self, catalog: Catalog, root: Ref) -> Iterator[Sandbox]:
        """Create a branch with one namespace; afterwards delete all references that the test created."""
        unique = uuid4().hex[:12]
        branch = f"contract/{unique}/odd.name_-1"
        catalog.create_branch(branch, root)
        sandbox = Sandbox(catalog, branch, f"ns_{unique}", root, self.warehouse)
        sandbox.commit(namespaces=((sandbox.namespace,),))
        yield sandbox
        for ref in list(catalog.list_refs()):
            if unique in ref.name:
                catalog.delete_ref(ref)

    # References and their history

    def test_names_may_have_slashes_and_dots(self, sandbox: Sandbox) -> None:
        assert "/" in sandbox.branch
        assert "." in sandbox.branch
        assert sandbox.head().name == sandbox.branch
        assert sandbox.head().kind == "branch"
        assert sandbox.branch in [ref.name for ref in sandbox.catalog.list_refs()]

    @pytest.mark.parametrize("name", ["nowhere", "-", "main~1", "a@b", "a b", "ü", "", "a..b", "a/", "@", "main*2099"])
    def test_a_missing_or_impossible_name_is_not_found(self, catalog: Catalog, name: str) -> None:
        with pytest.raises(NotFoundError, match="branch or tag"):
            catalog.get_ref(name)
        with pytest.raises(NotFoundError):
            list(catalog.history(name))

    @pytest.mark.parametrize("name", ["1st", "a b", "tür", "a//b", "a..b", "deadbeefdeadbeef", "a/", "-"])
    def test_a_bad_name_is_refused_before_anything_is_created(self, catalog: Catalog, name: str) -> None:
        with pytest.raises(IdentifierError):
            catalog.create_branch(name, catalog.get_ref("main"))

    def test_listing_refs_goes_through_all_pages(self, sandbox: Sandbox) -> None:
        names = {f"{sandbox.branch}-{number}" for number in range(2 * self.page_size + 1)}
        for name in names:
            sandbox.catalog.create_tag(name, sandbox.head())
        found = [ref for ref in sandbox.catalog.list_refs() if ref.name in names]
        assert len(found) == len(names)
        assert {ref.kind for ref in found} == {"tag"}
        assert {ref.hash for ref in found} == {sandbox.head().hash}

    def test_creating_what_exists_is_an_error(self, sandbox: Sandbox) -> None:
        with pytest.raises(AlreadyExistsError, match="exists"):
            sandbox.catalog.create_branch(sandbox.branch, sandbox.head())
        with pytest.raises(AlreadyExistsError, match="exists"):
            sandbox.catalog.create_tag(sandbox.branch, sandbox.head())

    def test_creating_at_a_commit_that_does_not_exist_is_an_error(self, sandbox: Sandbox) -> None:
        with pytest.raises(NotFoundError):
            sandbox.catalog.create_branch(f"{sandbox.branch}-x", Ref(name="main", hash=NO_SUCH_HASH))

    def test_a_branch_can_start_behind_the_head(self, sandbox: Sandbox) -> None:
        old = sandbox.create("trips")
        sandbox.move("trips", 1)
        branch = sandbox.catalog.create_branch(f"{sandbox.branch}-old", old)
        assert branch.hash == old.hash
        assert sandbox.version("trips", branch) == 0
        assert sandbox.version("trips") == 1

    def test_a_bare_commit_can_be_resolved(self, sandbox: Sandbox) -> None:
        head = sandbox.head()
        detached = sandbox.catalog.get_ref(head.hash)
        assert (detached.name, detached.hash, detached.kind) == (head.hash, head.hash, "detached")
        assert list(sandbox.catalog.list_namespaces(detached)) == [(sandbox.namespace,)]
        with pytest.raises(NotFoundError):
            sandbox.catalog.get_ref(NO_SUCH_HASH)

    def test_assigning_needs_the_current_hash(self, sandbox: Sandbox) -> None:
        seen = sandbox.create("trips")
        moved = sandbox.move("trips", 1)
        with pytest.raises(ConflictError) as caught:
            sandbox.catalog.assign_ref(seen, sandbox.root)
        assert caught.value.context["ref"] == sandbox.branch
        assert caught.value.context["actual"] == moved.hash
        assert sandbox.catalog.assign_ref(moved, seen) == sandbox.head()
        assert sandbox.head().hash == seen.hash

    def test_assigning_to_or_from_nothing_is_an_error(self, sandbox: Sandbox) -> None:
        with pytest.raises(NotFoundError):
            sandbox.catalog.assign_ref(sandbox.head(), Ref(name="main", hash=NO_SUCH_HASH))
        with pytest.raises(NotFoundError):
            sandbox.catalog.assign_ref(Ref(name=f"{sandbox.branch}-none", hash=sandbox.head().hash), sandbox.head())
        with pytest.raises(InputError):
            sandbox.catalog.assign_ref(sandbox.catalog.get_ref(sandbox.head().hash), sandbox.root)

    def test_deleting_needs_the_current_hash(self, sandbox: Sandbox) -> None:
        branch = sandbox.catalog.create_branch(f"{sandbox.branch}-gone", sandbox.root)
        with pytest.raises(ConflictError):
            sandbox.catalog.delete_ref(branch.model_copy(update={"hash": sandbox.head().hash}))
        sandbox.catalog.delete_ref(branch)
        with pytest.raises(NotFoundError):
            sandbox.catalog.delete_ref(branch)
        with pytest.raises(NotFoundError):
            sandbox.catalog.get_ref(branch.name)
        with pytest.raises(InputError):
            sandbox.catalog.delete_ref(sandbox.catalog.get_ref(sandbox.head().hash))

    def test_history_is_newest_first_through_all_pages(self, sandbox: Sandbox) -> None:
        sandbox.create("trips")
        heads = [sandbox.move("trips", version).hash for version in range(1, 2 * self.page_size + 1)]
        commits = list(sandbox.catalog.history(sandbox.branch))
        assert [commit.hash for commit in commits[: len(heads)]] == heads[::-1]
        assert [commit.parent for commit in commits[:-1]] == [commit.hash for commit in commits[1:]]
        assert commits[-1].parent == sandbox.root.hash
        assert all(commit.time.tzinfo is not None for commit in commits)
        assert all(commit.author and commit.message == "change" for commit in commits)
        assert all(commit.tables == () for commit in commits)

    def test_history_of_a_hash_begins_there(self, sandbox: Sandbox) -> None:
        old = sandbox.create("trips")
        sandbox.move("trips", 1)
        assert next(sandbox.catalog.history(old.hash)).hash == old.hash

    def test_history_stops_before_until(self, sandbox: Sandbox) -> None:
        base = sandbox.create("trips")
        heads = [sandbox.move("trips", version).hash for version in range(1, self.page_size + 3)]
        assert [commit.hash for commit in sandbox.catalog.history(sandbox.branch, until=base.hash)] == heads[::-1]
        assert list(sandbox.catalog.history(sandbox.branch, until=sandbox.head().hash)) == []

    def test_history_reports_changed_keys_on_request(self, sandbox: Sandbox) -> None:
        sandbox.commit(sandbox.pointer("trips"), namespaces=((sandbox.namespace, "deep"),))
        newest = next(sandbox.catalog.history(sandbox.branch, operations=True))
        assert set(newest.tables) == {f"{sandbox.namespace}.trips", f"{sandbox.namespace}.deep"}

    def test_history_reports_table_pointers_on_request(self, sandbox: Sandbox) -> None:
        names = [f"t{number}" for number in range(self.page_size + 1)]
        sandbox.commit(*(sandbox.pointer(name) for name in names), namespaces=((sandbox.namespace, "deep"),))
        for version in range(1, self.page_size + 1):
            sandbox.move("t0", version)
        sandbox.commit(deletes=("t1",))
        dropped, *moves, created = list(sandbox.catalog.history(sandbox.branch, operations=True))[: self.page_size + 2]
        assert dropped.puts == ()
        assert [[put.snapshot_id for put in commit.puts] for commit in moves] == [
            [v] for v in range(self.page_size, 0, -1)
        ]
        assert set(created.puts) == set(sandbox.catalog.list_tables(Ref(name="x", hash=created.hash, kind="detached")))
        assert all(commit.puts == () for commit in sandbox.catalog.history(sandbox.branch))

    @pytest.mark.parametrize("run_id", ["20260131T070509-0badcafe", 'it\'s "quoted" \\ ü \U0001f9ca'])
    def test_history_finds_a_run(self, sandbox: Sandbox, run_id: str) -> None:
        base = sandbox.commit(sandbox.pointer("trips"), run_id="another")
        published = sandbox.commit(sandbox.pointer("zones"), run_id=run_id)
        for version in range(1, self.page_size + 2):
            sandbox.move("trips", version)
        (found,) = sandbox.catalog.history(sandbox.branch, run_id=run_id, until=base.hash)
        assert found.hash == published.hash
        assert found.properties == {RUN_ID_PROPERTY: run_id}
        assert list(sandbox.catalog.history(sandbox.branch, run_id=run_id, until=published.hash)) == []
        assert list(sandbox.catalog.history(sandbox.branch, run_id="never")) == []

    def test_resolving_the_head(self, sandbox: Sandbox) -> None:
        assert sandbox.catalog.resolve(sandbox.branch, None) == sandbox.head()

    def test_resolving_a_hash_pins_it(self, sandbox: Sandbox) -> None:
        old = sandbox.create("trips")
        sandbox.move("trips", 1)
        found = sandbox.catalog.resolve(sandbox.branch, old.hash)
        assert (found.name, found.hash, found.kind) == (sandbox.branch, old.hash, "detached")
        assert sandbox.version("trips", found) == 0
        options = sandbox.catalog.spark_options(found)
        assert (options["ref"], options["ref.hash"]) == (sandbox.branch, old.hash)

    def test_resolving_a_commit_of_another_branch_finds_it(self, sandbox: Sandbox) -> None:
        other = sandbox.catalog.create_branch(f"{sandbox.branch}-other", sandbox.root)
        head = sandbox.create("trips")
        found = sandbox.catalog.resolve(other.name, head.hash)
        assert sandbox.version("trips", found) == 0

    def test_resolving_what_does_not_exist_is_an_error(self, sandbox: Sandbox) -> None:
        with pytest.raises(NotFoundError):
            sandbox.catalog.resolve(sandbox.branch, NO_SUCH_HASH)
        with pytest.raises(NotFoundError):
            sandbox.catalog.resolve(f"{sandbox.branch}-none", sandbox.head().hash)
        with pytest.raises(NotFoundError):
            sandbox.catalog.resolve(f"{sandbox.branch}-none", datetime.now(UTC))
        with pytest.raises(InputError):
            sandbox.catalog.resolve(sandbox.branch, "yesterday")

    def test_resolving_a_time_finds_the_last_commit_at_or_before_it(self, sandbox: Sandbox) -> None:
        sandbox.create("trips")
        for version in range(1, 4):
            sandbox.move("trips", version)
        commits = list(sandbox.catalog.history(sandbox.branch))
        for newer, commit in pairwise(commits):
            assert newer.time > commit.time
            assert sandbox.catalog.resolve(sandbox.branch, commit.time).hash == commit.hash
            before = newer.time - timedelta(microseconds=1)
            assert sandbox.catalog.resolve(sandbox.branch, before).hash == commit.hash
        future = commits[0].time + timedelta(days=900)
        assert sandbox.catalog.resolve(sandbox.branch, future).hash == sandbox.head().hash

    def test_resolving_a_time_respects_its_zone(self, sandbox: Sandbox) -> None:
        commits = [next(sandbox.catalog.history(sandbox.create(name).hash)) for name in ("a", "b")]
        elsewhere = commits[0].time.astimezone(timezone(timedelta(hours=-11)))
        assert sandbox.catalog.resolve(sandbox.branch, elsewhere).hash == commits[0].hash
        with pytest.raises(InputError, match="zone"):
            sandbox.catalog.resolve(sandbox.branch, commits[0].time.replace(tzinfo=None))

    def test_resolving_a_time_before_all_commits_is_an_error(self, sandbox: Sandbox) -> None:
        with pytest.raises(NotFoundError, match=sandbox.branch):
            sandbox.catalog.resolve(sandbox.branch, datetime(1999, 1, 1, tzinfo=UTC))

    def test_diff_reports_added_removed_and_changed(self, sandbox: Sandbox) -> None:
        for name in ("stays", "changes", "goes"):
            sandbox.create(name)
        left = sandbox.head()
        sandbox.commit(sandbox.pointer("comes"), namespaces=((sandbox.namespace, "deep"),))
        sandbox.move("changes", 1)
        sandbox.commit(deletes=("goes",))
        found = {difference.table: difference for difference in sandbox.catalog.diff(left, sandbox.head())}
        changes = {name.removeprefix(f"{sandbox.namespace}."): item.change for name, item in found.items()}
        assert changes == {
            "comes": "added",
            "changes": "changed",
            "goes": "removed",
            "deep": found[f"{sandbox.namespace}.deep"].change,
        }
        changed = found[str(sandbox.table("changes"))]
        assert changed.left is not None
        assert changed.right is not None
        assert (changed.left.snapshot_id, changed.right.snapshot_id) == (0, 1)
        assert found[f"{sandbox.namespace}.deep"].kind == "namespace"
        assert list(sandbox.catalog.diff(left, left)) == []

    def test_diff_from_an_empty_commit_goes_through_all_pages(self, sandbox: Sandbox) -> None:
        names = {f"{sandbox.namespace}.t{number}" for number in range(2 * self.page_size + 1)}
        head = sandbox.commit(*(sandbox.pointer(name.rpartition(".")[2]) for name in names))
        found = {item.table for item in sandbox.catalog.diff(sandbox.root, head)}
        assert found == {sandbox.namespace, *names}

    def test_spark_is_bound_to_a_branch_by_name(self, sandbox: Sandbox) -> None:
        options = sandbox.catalog.spark_options(sandbox.head())
        assert options["ref"] == sandbox.branch
        assert "ref.hash" not in options
        assert sandbox.catalog.spark_options()["ref"] == "main"

    def test_closing_twice_is_fine(self, catalog: Catalog) -> None:
        catalog.close()
        catalog.close()

    # Commits

    def test_a_table_is_created_moved_and_dropped(self, sandbox: Sandbox) -> None:
        created = sandbox.create("trips")
        first = sandbox.catalog.get_table(sandbox.table("trips"), created)
        assert first is not None
        assert first.content_id
        assert first.metadata_location.endswith("v0.metadata.json")
        assert created == sandbox.head()
        sandbox.move("trips", 1)
        second = sandbox.catalog.get_table(sandbox.table("trips"), sandbox.head())
        assert second is not None
        assert (second.content_id, second.snapshot_id) == (first.content_id, 1)
        sandbox.commit(deletes=("trips",))
        assert sandbox.version("trips") is None
        assert sandbox.version("trips", created) == 0

    def test_a_table_is_renamed(self, sandbox: Sandbox) -> None:
        sandbox.create("trips")
        before = sandbox.catalog.get_table(sandbox.table("trips"), sandbox.head())
        assert before is not None
        renamed = before.model_copy(update={"table": sandbox.table("rides")})
        sandbox.commit(renamed, deletes=("trips",))
        assert sandbox.catalog.get_table(sandbox.table("rides"), sandbox.head()) == renamed
        assert sandbox.version("trips") is None

    def test_an_empty_namespace_is_dropped(self, sandbox: Sandbox) -> None:
        deep = (sandbox.namespace, "deep")
        sandbox.commit(namespaces=(deep,))
        with pytest.raises(ConflictError):
            sandbox.commit(drops=((sandbox.namespace,),))
        sandbox.commit(drops=(deep,))
        assert deep not in list(sandbox.catalog.list_namespaces(sandbox.head()))
        with pytest.raises(ConflictError):
            sandbox.commit(drops=(deep,))

    def test_a_ref_and_its_tables_are_found_together(self, sandbox: Sandbox) -> None:
        sandbox.create("trips")
        trips, absent = sandbox.table("trips"), sandbox.table("absent")
        ref, tables = sandbox.catalog.get_ref_with_tables(sandbox.branch, [trips, absent])
        assert ref == sandbox.head()
        assert tables == {trips: sandbox.catalog.get_table(trips, ref), absent: None}
        assert tables[trips] is not None
        tag = sandbox.catalog.create_tag(f"{sandbox.branch}-tag", ref)
        sandbox.move("trips", 1)
        assert sandbox.catalog.get_ref_with_tables(tag.name, [trips]) == (tag, {trips: tables[trips]})
        for name in ("nowhere", "main~1"):
            with pytest.raises(NotFoundError):
                sandbox.catalog.get_ref_with_tables(name, [trips])

    def test_a_table_without_a_snapshot_keeps_snapshot_id_minus_one(self, sandbox: Sandbox) -> None:
        sandbox.commit(sandbox.pointer("empty", -1))
        assert sandbox.version("empty") == -1

    def test_tables_and_namespaces_are_listed_as_of_a_commit(self, sandbox: Sandbox) -> None:
        names = [f"t{number}" for number in range(2 * self.page_size + 1)]
        before = sandbox.head()
        sandbox.commit(*(sandbox.pointer(name) for name in names), namespaces=((sandbox.namespace, "deep"),))
        assert sorted(pointer.table.name for pointer in sandbox.catalog.list_tables(sandbox.head())) == names
        assert set(sandbox.catalog.list_namespaces(sandbox.head())) == {
            (sandbox.namespace,),
            (sandbox.namespace, "deep"),
        }
        assert list(sandbox.catalog.list_tables(before)) == []
        assert list(sandbox.catalog.list_namespaces(sandbox.root)) == []

    def test_a_namespace_is_not_a_table(self, sandbox: Sandbox) -> None:
        sandbox.commit(namespaces=((sandbox.namespace, "deep"),))
        with pytest.raises(InputError, match="a table"):
            sandbox.catalog.get_table(sandbox.table("deep"), sandbox.head())

    def test_namespace_and_table_come_in_one_commit(self, sandbox: Sandbox) -> None:
        table = TableIdentifier(namespace=(sandbox.namespace, "a", "b"), name="t")
        pointer = sandbox.pointer("t").model_copy(update={"table": table})
        head = sandbox.commit(pointer, namespaces=((sandbox.namespace, "a"), (sandbox.namespace, "a", "b")))
        found = sandbox.catalog.get_table(table, head)
        assert found is not None
        assert found.table == table

    def test_a_table_without_its_namespace_conflicts(self, sandbox: Sandbox) -> None:
        pointer = sandbox.pointer("t").model_copy(update={"table": TableIdentifier.parse("no_such_ns.t")})
        with pytest.raises(ConflictError, match="no_such_ns"):
            sandbox.commit(pointer)

    def test_a_table_that_changed_after_the_base_conflicts(self, sandbox: Sandbox) -> None:
        base = sandbox.create("trips")
        sandbox.move("trips", 1)
        with pytest.raises(ConflictError) as caught:
            sandbox.move("trips", 2, base)
        assert caught.value.context["tables"] == [str(sandbox.table("trips"))]
        assert caught.value.context["branch"] == sandbox.branch
        assert str(sandbox.table("trips")) in caught.value.message
        assert sandbox.version("trips") == 1

    def test_another_tables_change_after_the_base_does_not_conflict(self, sandbox: Sandbox) -> None:
        sandbox.create("zones")
        base = sandbox.create("trips")
        sandbox.move("zones", 1)
        sandbox.move("trips", 2, base)
        assert (sandbox.version("zones"), sandbox.version("trips")) == (1, 2)

    def test_relying_on_a_table_that_changed_conflicts(self, sandbox: Sandbox) -> None:
        sandbox.create("zones")
        base = sandbox.create("trips")
        trips = sandbox.catalog.get_table(sandbox.table("trips"), base)
        assert trips is not None
        sandbox.move("zones", 1)
        put = sandbox.pointer("trips", 1, trips.content_id)
        with pytest.raises(ConflictError) as caught:
            sandbox.commit(put, base=base, unchanged=("zones",))
        assert caught.value.context["tables"] == [str(sandbox.table("zones"))]
        sandbox.commit(put, unchanged=("zones",))
        assert sandbox.version("trips") == 1

    def test_relying_on_an_unchanged_table_passes(self, sandbox: Sandbox) -> None:
        sandbox.create("zones")
        base = sandbox.create("trips")
        sandbox.create("other")
        sandbox.commit(sandbox.pointer("new"), base=base, unchanged=("zones", "trips"))
        assert sandbox.version("new") == 0

    def test_relying_on_a_table_that_was_dropped_conflicts(self, sandbox: Sandbox) -> None:
        base = sandbox.create("zones")
        sandbox.commit(deletes=("zones",))
        with pytest.raises(ConflictError, match="zones"):
            sandbox.commit(sandbox.pointer("new"), base=base, unchanged=("zones",))

    def test_relying_on_an_absent_table_passes_at_the_head_and_conflicts_once_created(self, sandbox: Sandbox) -> None:
        base = sandbox.head()
        sandbox.commit(sandbox.pointer("trips"), unchanged=("zones",))
        sandbox.create("zones")
        with pytest.raises(ConflictError, match="zones"):
            sandbox.commit(sandbox.pointer("new"), base=base, unchanged=("zones",))

    def test_relying_on_an_absent_table_conflicts_if_the_head_moved(self, sandbox: Sandbox) -> None:
        base = sandbox.head()
        sandbox.create("trips")
        with pytest.raises(ConflictError, match="zones"):
            sandbox.commit(sandbox.pointer("new"), base=base, unchanged=("zones",))

    def test_a_commit_at_the_head_conflicts_if_the_head_moved(self, sandbox: Sandbox) -> None:
        base = sandbox.head()
        sandbox.create("zones")
        with pytest.raises(ConflictError, match="its head moved"):
            sandbox.commit(sandbox.pointer("trips"), base=base, at_head=True)
        assert sandbox.version("trips") is None
        sandbox.commit(sandbox.pointer("trips"), at_head=True)
        assert sandbox.version("trips") == 0

    def test_a_commit_at_the_head_may_hold_properties_only(self, sandbox: Sandbox) -> None:
        base = sandbox.head()
        head = sandbox.commit(run_id="r" * 100_000, at_head=True)
        [commit] = sandbox.catalog.history(sandbox.branch, until=base.hash, operations=True)
        assert (commit.hash, commit.tables, commit.puts) == (head.hash, (), ())
        assert commit.properties == {RUN_ID_PROPERTY: "r" * 100_000}
        with pytest.raises(ConflictError, match="its head moved"):
            sandbox.commit(base=base, at_head=True)

    def test_relying_on_a_table_that_the_commit_writes_is_allowed(self, sandbox: Sandbox) -> None:
        base = sandbox.create("trips")
        trips = sandbox.catalog.get_table(sandbox.table("trips"), base)
        assert trips is not None
        sandbox.commit(sandbox.pointer("trips", 1, trips.content_id), unchanged=("trips", "trips"))
        assert sandbox.version("trips") == 1

    def test_creating_a_table_that_was_created_after_the_base_conflicts(self, sandbox: Sandbox) -> None:
        base = sandbox.head()
        sandbox.create("trips")
        with pytest.raises(ConflictError, match="trips"):
            sandbox.commit(sandbox.pointer("trips", 9), base=base)
        with pytest.raises(ConflictError, match="trips"):
            sandbox.commit(sandbox.pointer("trips", 9))
        assert sandbox.version("trips") == 0

    def test_creating_a_namespace_that_exists_conflicts(self, sandbox: Sandbox) -> None:
        base = sandbox.head()
        sandbox.commit(namespaces=((sandbox.namespace, "deep"),))
        for at in (base, sandbox.head()):
            with pytest.raises(ConflictError, match="deep"):
                sandbox.commit(namespaces=((sandbox.namespace, "deep"),), base=at)

    def test_a_namespace_with_a_tables_name_conflicts(self, sandbox: Sandbox) -> None:
        sandbox.create("trips")
        with pytest.raises(ConflictError, match="trips"):
            sandbox.commit(namespaces=((sandbox.namespace, "trips"),))

    def test_a_foreign_content_id_conflicts(self, sandbox: Sandbox) -> None:
        sandbox.create("trips")
        with pytest.raises(ConflictError):
            sandbox.commit(sandbox.pointer("trips", 1, str(uuid4())))
        with pytest.raises(ConflictError):
            sandbox.commit(sandbox.pointer("new", 1, str(uuid4())))

    def test_a_table_dropped_after_the_base_conflicts(self, sandbox: Sandbox) -> None:
        base = sandbox.create("trips")
        sandbox.commit(deletes=("trips",))
        with pytest.raises(ConflictError, match="trips"):
            sandbox.move("trips", 1, base)
        with pytest.raises(ConflictError, match="trips"):
            sandbox.commit(deletes=("trips",), base=base)

    def test_a_table_recreated_after_the_base_conflicts(self, sandbox: Sandbox) -> None:
        base = sandbox.create("trips")
        sandbox.commit(deletes=("trips",))
        sandbox.create("trips")
        with pytest.raises(ConflictError, match="trips"):
            sandbox.move("trips", 1, base)
        with pytest.raises(ConflictError, match="trips"):
            sandbox.commit(sandbox.pointer("new"), base=base, unchanged=("trips",))

    def test_dropping_a_missing_table_conflicts(self, sandbox: Sandbox) -> None:
        with pytest.raises(ConflictError, match="nothing"):
            sandbox.commit(deletes=("nothing",))

    def test_a_refused_commit_leaves_nothing_behind(self, sandbox: Sandbox) -> None:
        base = sandbox.create("trips")
        head = sandbox.move("trips", 1)
        with pytest.raises(ConflictError):
            sandbox.commit(
                sandbox.pointer("new"), base=base, unchanged=("trips",), namespaces=((sandbox.namespace, "deep"),)
            )
        assert sandbox.head() == head
        assert sandbox.version("new") is None

    def test_a_commit_needs_a_branch_a_base_on_it_and_something_to_do(self, sandbox: Sandbox) -> None:
        def request(branch: str, base: str) -> CommitRequest:
            return CommitRequest(branch=branch, base=base, message="m", puts=(sandbox.pointer("t"),))

        with pytest.raises(NotFoundError):
            sandbox.catalog.commit(request(f"{sandbox.branch}-none", sandbox.head().hash))
        with pytest.raises(NotFoundError):
            sandbox.catalog.commit(request(sandbox.branch, NO_SUCH_HASH))
        with pytest.raises(InputError):
            sandbox.commit()
        with pytest.raises(InputError):
            sandbox.commit(sandbox.pointer("t"), sandbox.pointer("t", 1))

    def test_committing_to_a_tag_is_an_error(self, sandbox: Sandbox) -> None:
        tag = sandbox.catalog.create_tag(f"{sandbox.branch}-tag", sandbox.head())
        with pytest.raises(LakegateError):
            sandbox.catalog.commit(
                CommitRequest(branch=tag.name, base=tag.hash, message="m", puts=(sandbox.pointer("t"),))
            )
        assert sandbox.catalog.get_ref(tag.name) == tag
