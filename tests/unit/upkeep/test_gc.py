"""Garbage collection over a catalog in memory: what is deleted, what stays, and what stops it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakegate.errors import LakegateError
from lakegate.model.downstream import Subscription
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import Commit, Ref
from lakegate.model.states import RunStatus
from lakegate.testing import MemoryCatalog
from lakegate.upkeep.reachable import MARGIN
from support.examples import examples
from support.gc_world import NAMES, NOW, ROOT, YOUNG, Play, World, key, run_on

STEPS = ("write", "write", "write", "replay", "rewrite", "revert", "drop", "branch", "past", "tag", "discard", "stray")


@settings(max_examples=examples(30, 400))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 30), st.sampled_from(NAMES), st.booleans()), max_size=40
    ),
    back=st.none() | st.integers(0, 40),
)
def test_reachable_files_stay_and_unreachable_files_are_deleted(
    steps: list[tuple[str, int, str, bool]], back: int | None
) -> None:
    world = World()
    play = Play(world)
    for step in steps:
        play.step(*step)
    times = [commit.time for commit in world.catalog.history("main")]
    since = None if back is None else times[back % len(times)]
    history = None if since is None else NOW - since - MARGIN
    expected = {
        path
        for path, file in world.files.items()
        if path in world.needed(since) or file.modified_at == YOUNG or path.startswith(f"{ROOT}/exports")
    }
    before = dict(world.files)

    told = world.gc(dry_run=True, history=history)
    assert world.files == before

    report = world.gc(history=history)
    assert set(world.files) == expected
    assert report.problems == ()
    assert (report.files, report.size_bytes) == (len(before) - len(expected), 10 * (len(before) - len(expected)))
    assert told.model_copy(update={"dry_run": False}) == report
    assert world.gc(history=history).files == 0


@pytest.mark.parametrize("status", ["rejected", "failed"])
def test_an_expired_branch_is_dropped_with_its_files(status: RunStatus) -> None:
    world = World()
    world.write("main", "a")
    stays = set(world.files)
    world.branch("wap/x")
    world.write("wap/x", "a")
    run = run_on(world, "wap/x", days_ago=8, status=status)

    told = world.gc(dry_run=True)
    assert [ref.name for ref in world.catalog.list_refs()] == ["main", "wap/x"]
    assert world.journal.get(run.run_id) == run

    report = world.gc()
    assert [(branch.branch, branch.run_id, branch.age_s) for branch in report.branches] == [
        ("wap/x", run.run_id, timedelta(days=8).total_seconds())
    ]
    assert [ref.name for ref in world.catalog.list_refs()] == ["main"]
    assert world.journal.get(run.run_id) == run.model_copy(update={"branch_kept": False})
    assert set(world.files) == stays
    assert told.model_copy(update={"dry_run": False}) == report


@pytest.mark.parametrize(
    ("days_ago", "status", "changes"),
    [
        (6.9, "rejected", {}),
        (8, "staged", {}),
        (8, "planned", {}),
        (8, "rejected", {"branch_kept": False}),
    ],
)
def test_other_branches_stay(days_ago: float, status: RunStatus, changes: dict[str, Any]) -> None:
    world = World()
    world.branch("wap/x")
    world.branch("mine")
    world.write("wap/x", "a")
    run_on(world, "wap/x", days_ago=days_ago, status=status, **changes)
    report = world.gc()
    assert (report.branches, report.files) == ((), 0)
    assert {ref.name for ref in world.catalog.list_refs()} == {"main", "mine", "wap/x"}


def test_a_branch_that_was_written_to_since_stays_and_is_reported() -> None:
    world = World()
    world.branch("wap/x")
    world.write("wap/x", "a")
    run = run_on(world, "wap/x", days_ago=8)
    world.write("wap/x", "a")
    report = world.gc()
    assert (report.branches, report.files) == ((), 0)
    assert [problem.subject for problem in report.problems] == ["wap/x"]
    assert run.run_id in report.problems[0].message
    assert [ref.name for ref in world.catalog.list_refs()] == ["main", "wap/x"]


def test_files_written_since_an_active_run_began_stay() -> None:
    world = World()
    world.branch("wap/x")
    world.write("wap/x", "a")
    run_on(world, "wap/x", days_ago=5, status="planned")
    world.file(f"{world.folder('b')}/data/uncommitted.parquet")
    report = world.gc()
    assert (report.files, report.young_files) == (0, 3)
    assert world.gc(now=NOW + timedelta(days=9)).files == 0


def test_files_that_become_reachable_during_gc_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.write("main", "a")
    late = world.branch("wap/x")
    late = world.write("wap/x", "a")
    world.discard("wap/x")
    # The files were listed and nothing reaches them; then somebody takes the commit up again.
    real = world.catalog.list_refs
    calls = 0

    def listing() -> Iterator[Ref]:
        nonlocal calls
        calls += 1
        if calls == 3:
            world.branch("rescued", late.hash)
        return real()

    monkeypatch.setattr(world.catalog, "list_refs", listing)
    assert world.gc().files == 0
    assert calls >= 3
    assert world.needed() <= set(world.files)


def test_an_unreadable_table_keeps_all_files_that_may_be_its_own() -> None:
    world = World()
    world.write("main", "a")
    damaged = world.catalog.get_table(TableIdentifier.parse("ns.a"), world.catalog.get_ref("main"))
    assert damaged is not None
    world.write("main", "b")
    world.write("main", "b", keep=False)
    for name in NAMES:
        world.branch(f"wap/{name}")
        world.write(f"wap/{name}", name)
        world.discard(f"wap/{name}")
    # Files of a run that made the table anew, replayed onto the one that can't be read.
    elsewhere = world.file(f"{world.folder('a')}/data/replayed.parquet")
    garbage = world.file(f"{world.folder('b')}/data/garbage.parquet")
    world.broken |= {path for path in world.needs[damaged.metadata_location] if "/data/" in path}
    ours = {path for path in world.files if "/a_" in path}

    report = world.gc()
    assert [problem.subject for problem in report.problems] == ["ns.a"]
    assert "damaged" in report.problems[0].message
    assert ours <= set(world.files)
    assert elsewhere in world.files
    assert garbage not in world.files
    assert report.files == 3


def test_views_and_tables_with_names_of_others_keep_their_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    view = world.file("ns/v_1/metadata/00000-1.metadata.json")
    world.runs_of[view] = "made by a transaction"
    history = world.catalog.history

    def with_view(ref: str, **options: Any) -> Iterator[Any]:
        return (commit.model_copy(update={"foreign": (key(view),)}) for commit in history(ref, **options))

    monkeypatch.setattr(world.catalog, "history", with_view)
    assert world.gc().files == 0
    monkeypatch.setattr(world.catalog, "history", history)
    assert world.gc().files == 1


def test_a_folder_that_is_no_table_of_ours_is_never_touched() -> None:
    world = World()
    world.write("main", "a")
    folder = next(iter(world.files)).removeprefix(f"{ROOT}/").partition("/data/")[0]
    kept = [
        world.file("notes.txt"),
        world.file("data/notes.txt"),
        world.file("metadata/v1.metadata.json"),
        world.file("exports/data/1.parquet"),
        world.file("other/table/metadata/v1.metadata.json"),
        world.file("other/table/data/1.parquet"),
        world.file(f"{folder}/README.md"),
    ]
    report = world.gc()
    assert (report.files, report.ignored_files) == (0, len(kept))
    assert set(kept) <= set(world.files)


def test_a_table_that_a_run_made_by_its_own_sql_is_known_by_its_snapshots() -> None:
    world = World()
    world.file("ns/t_0badcafe/data/1.parquet")
    world.file("ns/t_0badcafe/metadata/00000-1.metadata.json")
    world.runs_of[world.file("ns/t_0badcafe/metadata/00001-1.metadata.json")] = "20260101T000000-0badcafe"
    assert world.gc().files == 3
    assert world.files == {}


def test_a_warehouse_under_another_name_loses_nothing() -> None:
    world = World()
    world.write("main", "a")
    # The same files, found by a link.
    for metadata, needed in list(world.needs.items()):
        world.needs[metadata] = frozenset(path.replace(ROOT, "file:///private/lake") for path in needed)
    report = world.gc()
    assert report.files == 0
    assert "catalog.warehouse" in str(report.problems[0].hint)


def test_nothing_is_deleted_when_the_catalog_fails_midway(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.write("main", "a")
    world.file(f"{world.folder('b')}/data/garbage.parquet")
    before = dict(world.files)

    def failing(ref: str, **_: Any) -> Iterator[Any]:
        yield from MemoryCatalog.history(world.catalog, ref)
        raise LakegateError("gone")

    monkeypatch.setattr(world.catalog, "history", failing)
    with pytest.raises(LakegateError, match="gone"):
        world.gc()
    assert world.files == before


def test_states_that_a_downstream_system_mirrors_or_will_be_sent_stay() -> None:
    world = World()
    outbox = world.journal.outbox
    outbox.register([Subscription(name="glue", events=("current",), mirrors=True)])
    kept: list[str] = []
    for _ in ("pointed at", "queued"):
        head = world.write("main", "a", keep=False)
        outbox.send_current("glue", ["ns.a"], ref="main", commit=head.hash)
        pointer = world.catalog.get_table(TableIdentifier.parse("ns.a"), head)
        assert pointer is not None
        kept += world.needs[pointer.metadata_location]
        if len(kept) == 2:
            outbox.sent(outbox.waiting("glue")[0], {"ns.a": pointer})
    world.write("main", "a", keep=False)
    none = timedelta(0)
    assert world.gc(history=none).files == 0
    outbox.forget("glue")
    assert world.gc(history=none).files == len(kept) == 4
    assert world.files.keys().isdisjoint(kept)


def test_a_tag_keeps_its_state_though_a_later_commit_has_an_earlier_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    tagged, *_ = commits = [world.write("main", "a", keep=False) for _ in range(3)]
    world.catalog.create_tag("kept", tagged)
    times = {commit.hash: NOW - timedelta(days=days) for commit, days in zip(commits, (1, 5, 0), strict=True)}
    real = world.catalog.history

    def history(*args: Any, **options: Any) -> Iterator[Commit]:
        for commit in real(*args, **options):  # the second commit's server was behind
            yield commit.model_copy(update={"time": times.get(commit.hash, NOW - timedelta(days=9))})

    monkeypatch.setattr(world.catalog, "history", history)
    assert world.gc(history=timedelta(days=3)).files == 0
    assert world.states[tagged.hash] <= world.files.keys()
