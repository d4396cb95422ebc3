"""Checkpoints of the history: reading with them gives the same result as without, and no needed file is deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakegate.errors import ConflictError
from lakegate.model.batch import SourceFile
from lakegate.model.refs import Commit, CommitRequest, Ref
from lakegate.model.run import RUN_ID_PROPERTY
from lakegate.wap import checkpoints, gc, history
from lakegate.wap.checkpoints import CHECKPOINT_PROPERTY
from lakegate.wap.history import FILES_PROPERTY, REVERTS_PROPERTY, TABLES_PROPERTY, encode_files, read_history, sync
from lakegate.wap.recover import rebuild
from support import gc_world
from support.examples import examples
from support.gc_world import NAMES, ROOT, YOUNG, Play, Shelf, World
from support.memory_journal import MemoryDatabase

TABLE = "ns.a"
WRITES = ("write", "write", "write", "replay", "rewrite", "revert", "drop", "branch", "past", "tag", "discard", "stray")
STEPS = (*WRITES, "collect", "collect", "rewind")
STEP = st.tuples(st.sampled_from(STEPS), st.integers(0, 30), st.sampled_from(NAMES), st.booleans())


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a checkpoint every three commits, and use it after one."""
    monkeypatch.setattr(gc, "COMMITS_PER_CHECKPOINT", 3)
    monkeypatch.setattr(history, "_NEAR", 1)


def publish(world: World, run_id: str, *names: str, reverts: str = "") -> str:
    files = [SourceFile(uri=f"file:///{name}", size_bytes=1, version="1", rows=1) for name in names]
    properties = {RUN_ID_PROPERTY: run_id, TABLES_PROPERTY: TABLE}
    properties |= {FILES_PROPERTY: encode_files(files)} if files else {}
    properties |= {REVERTS_PROPERTY: reverts} if reverts else {}
    head = world.catalog.get_ref("main")
    request = CommitRequest(branch="main", base=head.hash, message="m", at_head=True, properties=properties)
    return world.catalog.commit(request).hash


def grown(commits: int = 6) -> World:
    world = World()
    for number in range(commits):
        world.write("main", "a")
        publish(world, f"r{number}", f"f{number}")
    return world


def checkpointed(world: World) -> Commit:
    """Collect, and return the commit that names the checkpoint made."""
    assert world.gc().checkpoint is not None
    return next(iter(world.catalog.history("main")))


def journal_of(world: World) -> Any:
    runs = {run.run_id: (run.status, run.publication, run.reverted_by) for run in world.journal.runs(limit=99)}
    files = world.journal.pages.files(limit=99)
    published = {(one.uri, one.run_id) for one in files if one.published}
    hashes = [world.journal.commits.with_prefix("main", digit, limit=99) for digit in "0123456789abcdef"]
    return runs, published, hashes


def test_a_new_journal_reads_the_commits_since_the_checkpoint() -> None:
    world = grown()
    whole = read_history(world.context, world.catalog.get_ref("main").hash)
    named = checkpointed(world)
    assert CHECKPOINT_PROPERTY in named.properties
    head = publish(world, "r9", "f9", reverts="r1")

    read = read_history(world.context, head)
    assert (len(read.newer), read.whole) == (2, True)
    assert read.commits[: len(whole.commits)] == list(whole.commits)
    assert [one.hash for one in read.commits[-2:]] == [named.hash, head]

    sync(world.context, "main")
    by_checkpoint = journal_of(world)
    world.checkpoints.clear()
    world.journal = type(world.journal)(MemoryDatabase())
    sync(world.context, "main")
    assert journal_of(world) == by_checkpoint
    assert world.journal.commits.head("main") == head


def test_a_checkpoint_that_is_made_while_a_journal_is_rebuilt_hides_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    world = grown()
    record, pending = world.journal.record, [1]

    def overtaken(*arguments: Any, **options: Any) -> bool:
        if pending:
            pending.pop()
            for run_id, name in (("r7", "f7"), ("r8", "f8"), ("r9", "f9")):
                publish(world, run_id, name)
            checkpointed(world)
            publish(world, "r10", "f10")
            sync(world.context, "main")
        return record(*arguments, **options)

    monkeypatch.setattr(world.journal, "record", overtaken)
    rebuilt = rebuild(world.context, "main")
    assert rebuilt.runs == 10
    assert journal_of(world)[1] == {(f"file:///f{n}", f"r{n}") for n in (*range(6), 7, 8, 9, 10)}


@pytest.mark.parametrize("what", ["missing", "cut", "another", "no JSON", "newer"])
def test_untrusted_checkpoints_are_ignored(what: str) -> None:
    world = grown()
    named = checkpointed(world)
    expected = read_history(world.context, named.hash)
    past = checkpoints.checkpoint_in(named)
    assert past is not None
    path = f"{ROOT}/{checkpoints.FOLDER}/{past.past}.gz"
    other = next(one for one in world.checkpoints if one != path)
    if what == "missing":
        del world.checkpoints[path]
    elif what == "cut":
        world.checkpoints[path] = world.checkpoints[path][:-9]
    elif what == "another":
        world.checkpoints[path] = world.checkpoints[other]
    else:
        text = "{" if what == "no JSON" else past.model_dump_json().replace('"format":1', '"format":2')
        forged = {CHECKPOINT_PROPERTY: text}
        base = world.catalog.get_ref("main").hash
        request = CommitRequest(branch="main", base=base, message="m", at_head=True, properties=forged)
        head = world.catalog.commit(request).hash
        assert len(read_history(world.context, head).newer) == 2  # the one before it serves
        return
    read = read_history(world.context, named.hash)
    assert (len(read.newer), read.checkpoint) == (len(read.commits), None)
    assert list(read.commits) == list(expected.commits)


def test_a_checkpoint_of_another_history_hides_no_commit() -> None:
    world = grown()
    named = checkpointed(world)
    found = checkpoints.checkpoint_in(named)
    assert found is not None
    world.branch("elsewhere")
    elsewhere = world.write("elsewhere", "a").hash
    text = found.model_copy(update={"commit": elsewhere}).model_dump_json()
    request = CommitRequest(
        branch="main", base=named.hash, message="m", at_head=True, properties={CHECKPOINT_PROPERTY: text}
    )
    read = read_history(world.context, world.catalog.commit(request).hash)
    assert (len(read.newer), read.checkpoint) == (2, found)


def test_a_history_that_lost_the_checkpoint_is_read_without_it() -> None:
    world = grown()
    base = list(world.catalog.history("main"))[3]
    checkpointed(world)
    sync(world.context, "main")
    main = world.catalog.get_ref("main")
    world.catalog.assign_ref(main, Ref(name="", hash=base.hash, kind="detached"))
    sync(world.context, "main")
    statuses = {run.run_id: run.status for run in world.journal.runs(limit=99)}
    assert [statuses[f"r{number}"] for number in (3, 4, 5)] == ["published", "discarded", "discarded"]
    assert world.journal.commits.head("main") == base.hash
    assert not world.journal.commits.has("main", main.hash)


def test_a_slow_reader_does_not_move_the_head_back() -> None:
    world = grown(1)
    without_runs = world.write("main", "a").hash
    head = publish(world, "r9", "f9")
    sync(world.context, "main")
    world.journal.record("main", [], without_runs)
    assert world.journal.synced("main") == head


def test_after_a_reset_the_commits_since_the_checkpoint_are_read() -> None:
    world = grown()
    named = checkpointed(world)
    sync(world.context, "main")
    gone = publish(world, "gone", "gone")
    sync(world.context, "main")
    main = world.catalog.get_ref("main")
    world.catalog.assign_ref(main, Ref(name="", hash=named.hash, kind="detached"))
    head = publish(world, "r8", "f8")
    read = read_history(world.context, head, until=gone)
    assert (read.whole, len(read.newer)) == (True, 2)
    sync(world.context, "main")
    statuses = {run.run_id: run.status for run in world.journal.runs(limit=99)}
    assert (statuses["gone"], statuses["r8"], statuses["r0"]) == ("discarded", "published", "published")


def test_a_journal_that_is_far_behind_is_found_in_the_checkpoint() -> None:
    world = grown()
    old = list(world.catalog.history("main"))[4].hash
    named = checkpointed(world)
    head = publish(world, "r9", "f9")
    read = read_history(world.context, head, until=old)
    assert not read.whole
    assert [one.hash for one in read.commits[-2:]] == [named.hash, head]
    assert len(read.commits) == 6


def test_gc_reads_only_new_states_and_keeps_the_rest() -> None:
    world = grown()
    checkpointed(world)
    world.looked.clear()
    new = world.write("main", "a")
    stray = world.file(f"{world.folder('a')}/data/stray.parquet")
    before = set(world.files)
    report = world.gc()
    assert {*world.files, stray} == before
    assert (report.files, report.problems) == (1, ())
    pointer = next(iter(world.catalog.list_tables(new)))
    assert set(world.looked) == {pointer.metadata_location}


@pytest.mark.parametrize("new", [0, 3])
def test_the_cost_of_gc_depends_on_new_commits_not_on_the_history(new: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    for commits in (6, 60):
        world = grown(commits)
        checkpointed(world)
        world.looked.clear()
        for number in range(new):
            world.write("main", "a")
            publish(world, f"n{number}", f"n{number}")
        world.file(f"{world.folder('a')}/data/stray.parquet")
        calls: Counter[str] = Counter()
        for name in ("history", "list_tables", "get_table", "get_tables", "get_ref", "list_refs", "commit", "diff"):
            monkeypatch.setattr(world.catalog, name, _counted(calls, name, getattr(world.catalog, name)))
        monkeypatch.setattr(Shelf, "read", _counted(calls, "checkpoint", Shelf.read))
        assert world.gc().files == 1
        monkeypatch.undo()
        monkeypatch.setattr(gc, "COMMITS_PER_CHECKPOINT", 3)
        assert len(world.looked) == new
        asked.append(calls)
    assert asked[0] == asked[1]
    assert asked[0]["commit read"] > new


def _counted(calls: Counter[str], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        calls[name] += 1
        found = call(*args, **options)
        return found if name != "history" else _each(found)

    def _each(found: Iterator[Commit]) -> Iterator[Commit]:
        for commit in found:
            calls["commit read"] += 1
            yield commit

    return counted


def test_a_checkpoint_of_another_root_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    world = grown()
    checkpointed(world)
    link = "file:///private/lake"
    moved = {path.replace(ROOT, link): file for path, file in world.files.items()}
    world.files = {path: file.model_copy(update={"path": path}) for path, file in moved.items()}
    world.checkpoints = {path.replace(ROOT, link): text for path, text in world.checkpoints.items()}
    monkeypatch.setattr(gc_world, "ROOT", link)
    report = world.gc()
    assert (report.files, set(world.files)) == (0, set(moved))
    assert "by a different path" in report.problems[0].message


def test_unreadable_tables_are_left_out_of_checkpoints() -> None:
    world = grown()
    world.broken.add(next(path for path in world.files if path.endswith(".parquet")))
    named = checkpointed(world)
    found = checkpoints.checkpoint_in(named)
    assert found is not None
    assert found.needed is None


def test_old_checkpoint_files_are_deleted_and_the_newest_kept() -> None:
    world = World()
    for _ in range(6):
        for _ in range(3):
            world.write("main", "a")
        checkpointed(world)
    assert len(world.checkpoints) == 8
    head = world.catalog.get_ref("main").hash
    assert len(read_history(world.context, head).newer) == 1


def test_gc_succeeds_when_the_catalog_refuses_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    world = grown()
    stray = world.file(f"{world.folder('a')}/data/stray.parquet")

    commit = world.catalog.commit

    def refuse(request: CommitRequest) -> Ref:
        if request.branch == "main":
            raise ConflictError("moved")
        return commit(request)

    with monkeypatch.context() as patch:
        patch.setattr(world.catalog, "commit", refuse)
        # `gc` itself only makes branches, and commits to one of them.
        assert world.gc().checkpoint is None
    assert stray not in world.files


@settings(max_examples=examples(80, 400))
@given(steps=st.lists(STEP, max_size=40))
def test_no_needed_file_is_deleted_whatever_happens_in_between(steps: list[tuple[str, int, str, bool]]) -> None:
    world = World()
    play = Play(world)
    for step in steps:
        if step[0] == "collect":
            _collect(world)
        elif step[0] == "rewind":
            world.rewind(step[1])
        else:
            play.step(*step)
    _collect(world)


def _collect(world: World) -> None:
    before = dict(world.files)
    expected = {
        path
        for path, file in before.items()
        if path in world.needed() or file.modified_at == YOUNG or path.startswith(f"{ROOT}/exports")
    }
    report = world.gc()
    assert set(world.files) == expected
    assert report.problems == ()
