"""Going back to a state while gc deletes its files: one of the two always notices the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from lakegate.errors import (
    CatalogUnavailableError,
    ConflictError,
    InputError,
    LakegateError,
    NotFoundError,
    OutcomeUnknownError,
    RetryableError,
)
from lakegate.journal.holder import ProcessHolder
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.maintenance import GcReport
from lakegate.model.refs import CommitRequest, Ref, TablePointer
from lakegate.model.run import Run
from lakegate.model.tables import StoredFile
from lakegate.wap import reachable
from lakegate.wap.context import Context
from lakegate.wap.gc import gc
from lakegate.wap.reachable import announce_gc, drop_orphaned_announcements, keep_files_of
from lakegate.wap.revert import reset_branch, restore_table
from support.revert_support import A, B, D, House

TRIPS = TableIdentifier.parse("nyc.trips")
FOLDER = "mem://warehouse/nyc/trips_20260101T000000-00000000"
LATER = datetime.now(UTC) + timedelta(days=30)
FLAG = "wap/lakegate.collecting"
DELETING = "`lakegate gc` is deleting files"


class Lake(House):
    """A lakehouse with files that go, and something that happens when the first of them are about to."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: set[str] = set()
        self.meanwhile: Callable[[], object] = lambda: None

    def reach(self, pointer: TablePointer, walked: set[str] | None = None) -> Iterator[str]:
        del walked
        metadata = f"{FOLDER}/metadata/{pointer.metadata_location.rpartition('/')[2]}"
        if metadata in self.deleted:
            raise NotFoundError(f"{metadata} doesn't exist.")
        yield from (f"{FOLDER}/data/{number}" for number in self.versions[pointer.metadata_location].rows)
        yield metadata

    def missing(self, paths: Sequence[str]) -> Sequence[str]:
        return [path for path in paths if path in self.deleted]

    def list(self, prefix: str) -> Iterator[StoredFile]:
        assert prefix
        names = {f"metadata/{location.rpartition('/')[2]}" for location in self.versions}
        names |= {f"data/{number}" for version in self.versions.values() for number in version.rows}
        for path in sorted(f"{FOLDER}/{name}" for name in names):
            if path not in self.deleted:
                yield StoredFile(path=path, size_bytes=1, modified_at=datetime(2026, 1, 1, tzinfo=UTC))

    def delete(self, paths: Sequence[str]) -> None:
        self.meanwhile()
        self.deleted |= set(paths)

    def collect(self) -> GcReport:
        span = timedelta(days=1)
        return gc(self.context, files=self, keep_rejected=span, grace=timedelta(0), now=LATER, history=span)

    def restore(self, at: Ref, run: str = "y") -> Run:
        pinned = Ref(name="main", hash=at.hash, kind="detached")
        return restore_table(self.context, TRIPS, pinned, new_run_id=run)

    def names(self) -> Sequence[str]:
        return tuple(ref.name for ref in self.catalog.list_refs())

    def is_whole(self, ref: str = "main") -> bool:
        pointer = self.catalog.get_table(TRIPS, self.catalog.get_ref(ref))
        assert pointer is not None
        return not self.missing(list(self.reach(pointer)))


@pytest.fixture
def lake() -> Lake:
    return Lake()


@pytest.fixture
def old(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Ref:
    """A commit whose rows were replaced since: beyond the history that is kept, its files are garbage."""
    monkeypatch.setattr(reachable, "_POLL_S", 0.01)
    monkeypatch.setattr(reachable, "_PATIENCE_S", 0.0)
    lake.add("r1", A)
    then = lake.head()
    lake.work("over", lambda tx: tx.overwrite("nyc.trips", D))
    return Ref(name="main", hash=then.hash, kind="detached")


def tag(lake: Lake, old: Ref) -> None:
    with keep_files_of(lake.context, old):
        lake.catalog.create_tag("x", old)


def reset(lake: Lake, old: Ref) -> None:
    reset_branch(lake.context, "main", old, force=True)


WAYS: dict[str, Callable[[Lake, Ref], object]] = {
    "restore": lambda lake, old: lake.restore(old),
    "revert": lambda lake, _: lake.undo("over"),
    "reset": reset,
    "tag": tag,
}


@pytest.mark.parametrize("way", WAYS)
def test_nobody_goes_back_to_a_state_that_is_being_deleted(lake: Lake, old: Ref, way: str) -> None:
    """The collection looked at the references, we come, and then it deletes."""
    refused: list[LakegateError] = []

    def go_back() -> None:
        with pytest.raises(RetryableError, match=DELETING) as caught:
            WAYS[way](lake, old)
        refused.append(caught.value)

    lake.meanwhile = go_back
    head = lake.head()
    assert lake.collect().files == 2
    assert [error.exit_code for error in refused] == [3]
    assert "lakegate branch delete wap/lakegate.gc/" in str(refused[0].hint)
    assert (lake.head(), lake.rows(), lake.is_whole(), lake.names()) == (head, D, True, ("main",))

    # And it is gone for good now.
    with pytest.raises(InputError, match=r"That state of nyc.trips needs files that .*doesn't exist"):
        WAYS[way](lake, old)
    assert (lake.head(), lake.is_whole(), lake.names()) == (head, True, ("main",))


@pytest.mark.parametrize("way", WAYS)
def test_files_of_a_state_that_somebody_goes_back_to_are_kept(
    lake: Lake, old: Ref, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """We have announced it, and a whole collection runs before we look for one."""
    look = reachable.require_no_gc
    reports: list[GcReport] = []

    def collect_first(context: Context) -> None:
        reports.append(lake.collect())
        look(context)

    monkeypatch.setattr(reachable, "require_no_gc", collect_first)
    WAYS[way](lake, old)
    assert [report.files for report in reports] == [0]
    assert lake.is_whole()
    assert lake.rows() == (D if way == "tag" else A)
    assert lake.names() == (("main", "x") if way == "tag" else ("main",))
    lake.collect()
    assert lake.is_whole("x" if way == "tag" else "main")


def test_gc_and_a_restore_at_the_same_time_both_finish(lake: Lake, old: Ref, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both announce before either looks: the files are kept, and we wait."""
    monkeypatch.setattr(reachable, "_PATIENCE_S", 10.0)
    create, commit, runs = lake.catalog.create_branch, lake.catalog.commit, list[Run]()
    other = threading.Thread(target=lambda: runs.append(lake.restore(old)))
    has_announced = threading.Event()

    def announced(name: str, source: Ref) -> Ref:
        made = create(name, source)
        if "lakegate.gc" in name:
            other.start()
            assert has_announced.wait(60)
        return made

    def committed(request: CommitRequest) -> Ref:
        made = commit(request)
        if "lakegate.needed" in request.branch:  # which says which state
            has_announced.set()
        return made

    monkeypatch.setattr(lake.catalog, "create_branch", announced)
    monkeypatch.setattr(lake.catalog, "commit", committed)
    report = lake.collect()
    other.join()
    assert report.files == 0
    assert [run.status for run in runs] == ["published"]
    assert (lake.rows(), lake.is_whole(), lake.names()) == (A, True, ("main",))


def test_a_file_that_is_gone_is_named(lake: Lake, old: Ref) -> None:
    lake.deleted = {f"{FOLDER}/data/1"}
    with pytest.raises(InputError, match=r"any more: mem://warehouse/.*/data/1 can't be found\. Nothing was changed"):
        lake.restore(old)
    assert (lake.rows(), lake.names()) == (D, ("main",))


def test_files_that_main_needs_anyway_are_not_checked(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.add("r1", A)
    lake.add("r2", B)
    asked: list[str] = []

    def note(paths: Sequence[str]) -> Sequence[str]:
        asked.extend(paths)
        return []

    monkeypatch.setattr(lake, "missing", note)
    lake.undo("r2")
    assert len(asked) == 1
    assert "/metadata/" in asked[0]
    with keep_files_of(lake.context, lake.head()):
        assert lake.names() == ("main",)


def test_announcements_of_the_dead_are_dropped(lake: Lake, old: Ref) -> None:
    ended = lake.restore(old)
    lake.catalog.create_branch(f"wap/lakegate.needed/{ended.run_id}.0badcafe", old)
    lake.catalog.create_branch("wap/lakegate.needed/unknown", old)
    lake.collect()
    assert lake.names() == ("main", "wap/lakegate.needed/unknown")


def test_announcements_of_a_killed_process_block_nobody(lake: Lake, old: Ref, monkeypatch: pytest.MonkeyPatch) -> None:
    host, pid, _ = ProcessHolder().identity().split(":")
    gone, elsewhere = f"{host}.{pid}.1", f"{'0' * 16}.{pid}.1"
    lake.catalog.create_branch(FLAG, old)
    lake.catalog.create_branch(f"wap/lakegate.gc/a.{gone}", old)
    lake.catalog.create_branch(f"wap/lakegate.needed/a.b-c.0badcafe.{gone}", old)
    tag(lake, old)  # by whoever goes back
    assert [name for name in lake.names() if "needed" not in name] == ["main", "x"]
    lake.catalog.delete_ref(lake.catalog.get_ref("x"))

    lake.catalog.create_branch(FLAG, old)
    lake.catalog.create_branch(f"wap/lakegate.gc/a.{gone}", old)
    for kind in ("gc", "needed"):
        lake.catalog.create_branch(f"wap/lakegate.{kind}/b.{elsewhere}", old)
    drop_orphaned_announcements(lake.context)  # by the next gc
    left = ["main", FLAG, f"wap/lakegate.gc/b.{elsewhere}", f"wap/lakegate.needed/b.{elsewhere}"]
    assert sorted(lake.names()) == left

    with pytest.raises(RetryableError, match=DELETING):
        tag(lake, old)
    monkeypatch.setattr(ProcessHolder, "is_alive", lambda *_: True)
    with announce_gc(lake.context):
        drop_orphaned_announcements(lake.context)
        assert len(lake.names()) == 5
    assert sorted(lake.names()) == left


def test_a_flag_without_a_gc_blocks_nobody_and_the_next_gc_drops_it(lake: Lake, old: Ref) -> None:
    """As of one that was killed after it had dropped its own branch."""
    lake.catalog.create_branch(FLAG, old)
    tag(lake, old)
    drop_orphaned_announcements(lake.context)
    assert lake.names() == ("main", "x")


def test_whether_files_are_deleted_takes_one_look_up_however_many_branches_there_are(
    lake: Lake, old: Ref, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise CatalogUnavailableError("All branches were listed.")

    monkeypatch.setattr(lake.catalog, "list_refs", away)
    tag(lake, old)
    assert lake.catalog.get_ref("x").hash == old.hash


@pytest.mark.parametrize("order", ["AaBb", "ABab", "ABba", "ABaCbc", "ABbCac", "ABaCcb"])
def test_of_several_gcs_each_is_seen_until_it_has_ended(lake: Lake, old: Ref, order: str) -> None:
    """Capital letters begin, small ones end."""
    under_way: dict[str, AbstractContextManager[None]] = {}
    for step in order:
        if step.isupper():
            under_way[step] = announce_gc(lake.context)
            under_way[step].__enter__()
        else:
            under_way.pop(step.upper()).__exit__(None, None, None)
        if under_way:
            with pytest.raises(RetryableError, match=DELETING):
                tag(lake, old)
    assert lake.names() == ("main",)


def test_a_gc_that_begins_while_the_last_one_ends_is_seen(
    lake: Lake, old: Ref, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one found no other, and is about to drop what says that there is one."""
    delete, second = lake.catalog.delete_ref, ExitStack()

    def meanwhile(ref: Ref) -> None:
        if ref.name == FLAG:
            monkeypatch.setattr(lake.catalog, "delete_ref", delete)
            second.enter_context(announce_gc(lake.context))
        delete(ref)

    with announce_gc(lake.context):
        monkeypatch.setattr(lake.catalog, "delete_ref", meanwhile)
    with second, pytest.raises(RetryableError, match=DELETING):
        tag(lake, old)
    assert lake.names() == ("main",)


def test_nothing_is_deleted_that_could_not_be_announced(lake: Lake, old: Ref, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lake.rows() == D
    assert old.hash != lake.head().hash
    for trouble in (ConflictError("It moved."), OutcomeUnknownError("No answer."), CatalogUnavailableError("Away.")):
        with monkeypatch.context() as patch:
            patch.setattr(lake.catalog, "commit", Mock(side_effect=trouble))
            with pytest.raises(RetryableError):
                lake.collect()
        assert (lake.deleted, lake.names()) == (set(), ("main",))


def test_a_marker_that_cannot_be_dropped_is_reported(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    context = lake.context
    monkeypatch.setattr(context.narrator, "note", notes.append)

    def away(_: Ref) -> None:
        raise CatalogUnavailableError("Nessie doesn't answer.")

    monkeypatch.setattr(lake.catalog, "delete_ref", away)
    with announce_gc(context):
        pass
    assert "lakegate branch delete wap/lakegate.gc/" in notes[0]


@pytest.mark.parametrize("lost", ["create_branch", "delete_ref"])
def test_a_marker_that_a_process_left_behind_is_dropped_by_its_next_gc(
    lake: Lake, old: Ref, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """As by a watcher, which does maintenance for months."""
    create = lake.catalog.create_branch

    def unanswered(*arguments: Any) -> None:
        if lost == "create_branch":
            create(*arguments)
        raise CatalogUnavailableError("Nessie doesn't answer.")

    with monkeypatch.context() as patch:
        patch.setattr(lake.catalog, lost, unanswered)
        with suppress(CatalogUnavailableError), announce_gc(lake.context):
            pass
    assert any(name.startswith("wap/lakegate.gc/") for name in lake.names())
    with announce_gc(lake.context):
        drop_orphaned_announcements(lake.context)
        with pytest.raises(RetryableError, match=DELETING):
            tag(lake, old)
    tag(lake, old)
    assert lake.names() == ("main", "x")


def test_a_flag_that_cannot_be_dropped_blocks_nobody(lake: Lake, old: Ref, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    context, delete = lake.context, lake.catalog.delete_ref
    monkeypatch.setattr(context.narrator, "note", notes.append)

    def away(ref: Ref) -> None:
        if ref.name == FLAG:
            raise CatalogUnavailableError("Nessie doesn't answer.")
        delete(ref)

    monkeypatch.setattr(lake.catalog, "delete_ref", away)
    with announce_gc(context):
        pass
    assert (notes, lake.names()) == ([], ("main", FLAG))
    tag(lake, old)
    monkeypatch.setattr(lake.catalog, "delete_ref", delete)
    lake.collect()
    assert FLAG not in lake.names()
