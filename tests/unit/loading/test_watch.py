"""The watch loop on a scripted lake, and real events of a folder."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakegate.errors import CatalogUnavailableError, ExitCode, LakegateError, SourceError
from lakegate.loading.file_outcomes import Clock
from lakegate.loading.scan import Chunk, FileLoader, Scan
from lakegate.loading.watch import EventFeed, Feed, PollingFeed, Summary, Watch
from lakegate.model.request import IngestOptions
from lakegate.model.run import FileCheckpoint, Run
from lakegate.sources.discovery import list_files
from lakegate.sources.files import to_uri
from support.loader_support import START, FakeClock, FolderLake, SteppingLake, make_loader
from support.waiting import wait_until

BOUND_S = 120.0


class Seen:
    """Records its calls."""

    def __init__(self) -> None:
        self.took_names: list[list[str]] = []
        self.troubles: list[str] = []
        self.waits = 0

    def scanned(self, found: Scan) -> None:
        pass

    def ingested(
        self, chunk: Chunk, run: Run | None, saved: Collection[FileCheckpoint], _failure: LakegateError | None
    ) -> None:
        self.took_names.append([uri.rpartition("/")[2] for uri in chunk.uris])

    def backing_off(self, error: LakegateError, pause_s: float) -> None:
        assert 0 < pause_s <= 60
        self.troubles.append(error.message)

    @contextmanager
    def waiting(self, summary: Summary) -> Iterator[None]:
        self.waits += 1
        yield


class ScriptedFeed:
    """Returns scripted results from waits, and stops the watch at the end."""

    def __init__(self, *hints: Callable[[], Collection[str] | None]) -> None:
        self.hints = list(hints)
        self.acknowledged: list[set[str]] = []
        self.stop: Callable[[], None] = lambda: None

    def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
        if not self.hints:
            self.stop()
            return ()
        return self.hints.pop(0)()

    def acknowledge(self, uris: Collection[str]) -> None:
        self.acknowledged.append(set(uris))

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


def watching(lake: Any, feed: Feed, *, loader: FileLoader | None = None, **options: Any) -> tuple[Watch, Seen]:
    seen = Seen()
    made = loader or make_loader(lake, FakeClock(), settle_s=0.0)
    reopen = options.pop("reopen", lambda: lake)
    watch = Watch(made, feed, seen, reopen=reopen, settle_s=0.0, **options)
    if isinstance(feed, ScriptedFeed):
        feed.stop = watch.stop
    return watch, seen


def failing_on(*names: str, outcome: Any = "rejected") -> Any:
    return lambda taken: outcome if set(names) & set(taken) else "published"


def test_a_watch_ingests_existing_and_new_files() -> None:
    lake = FolderLake()
    lake.put("1.csv", "2.csv")

    def more() -> Collection[str]:
        lake.put("3.csv")
        return ["file:///landing/3.csv"]

    feed = ScriptedFeed(more)
    watch, seen = watching(lake, feed)
    summary = watch.run()
    assert seen.took_names == [["1.csv", "2.csv"], ["3.csv"]]
    assert (summary.published, summary.files, summary.exit_code) == (2, 3, ExitCode.OK)
    assert feed.acknowledged == [{"file:///landing/3.csv"}]


def test_maintenance_follows_a_scans_ingests_but_not_with_once() -> None:
    for once, calls in ((False, 2), (True, 0)):
        lake, seen = FolderLake(), list[Any]()
        lake.put("1.csv")
        watch, _ = watching(lake, ScriptedFeed(lambda: None), once=once, upkeep=seen.append)
        watch.run()
        assert seen[:2] == [lake] * calls


def test_only_finished_files_are_acknowledged() -> None:
    lake = FolderLake()
    lake.becomes = failing_on("1.csv", outcome=SourceError("no"))

    def more() -> Collection[str]:
        lake.put("1.csv", "2.csv")
        return ["file:///landing/1.csv", "file:///landing/2.csv", "file:///landing/gone.csv"]

    feed = ScriptedFeed(more)
    watch, _ = watching(lake, feed)
    watch.run()
    assert set().union(*feed.acknowledged) == {"file:///landing/2.csv", "file:///landing/gone.csv"}


def test_files_that_a_scan_did_not_get_to_are_not_acknowledged() -> None:
    lake = FolderLake()
    names = [f"{number:03}.csv" for number in range(600)]

    class Checked(ScriptedFeed):
        def acknowledge(self, uris: Collection[str]) -> None:
            super().acknowledge(uris)
            assert {uri.rpartition("/")[2] for uri in uris} <= lake.outcomes().keys()

    def more() -> Collection[str]:
        lake.put(*names)
        return [f"file:///landing/{name}" for name in names]

    feed = Checked(more)
    watch, _ = watching(lake, feed, loader=make_loader(lake, FakeClock(), settle_s=0.0, max_files=20))
    assert watch.run().files == len(names)
    assert len(set().union(*feed.acknowledged)) == len(names)


def test_the_lake_is_reopened_after_trouble() -> None:
    lake, other, clock = FolderLake(), FolderLake(), FakeClock()
    for one in (lake, other):
        one.put("1.csv")
    lake.becomes = lambda _: CatalogUnavailableError("The catalog is away.")

    class Later(PollingFeed):
        def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
            clock.sleep(60.0)
            return super().wait(timeout_s)

    loader = make_loader(lake, clock, settle_s=0.0)
    watch, seen = watching(lake, Later(3600), loader=loader, reopen=lambda: other, once=True)
    summary = watch.run()
    assert seen.troubles == ["The catalog is away."]
    assert (lake.known, other.outcomes()) == ({}, {"1.csv": ("done", 1)})
    assert (summary.unfinished, summary.trouble, summary.exit_code) == (0, None, ExitCode.OK)


class UnsteppedLake(SteppingLake):
    """A lake whose own runs are in one step."""

    ingest = FolderLake.ingest


def test_a_run_held_elsewhere_is_left_alone_and_does_not_stop_others() -> None:
    lake = UnsteppedLake()
    lake.leave("1.csv", run_id="files-1")
    lake.at_work.add("files-1")
    lake.put("2.csv")
    watch, _ = watching(lake, PollingFeed(3600), once=True)
    summary = watch.run()
    assert lake.names() == [["2.csv"]]
    assert (summary.unfinished, summary.exit_code) == (1, ExitCode.RETRYABLE)


@pytest.mark.parametrize(
    ("becomes", "code", "looks"),
    [
        (lambda _: "published", ExitCode.OK, ExitCode.OK),
        (failing_on("2.csv"), ExitCode.AUDIT_FAILED, ExitCode.OK),
        (failing_on("2.csv", outcome=SourceError("no")), ExitCode.RETRYABLE, ExitCode.AUDIT_FAILED),
    ],
)
def test_once(becomes: Any, code: ExitCode, looks: ExitCode) -> None:
    lake = FolderLake()
    lake.put("1.csv", "2.csv", "3.csv")
    lake.becomes = becomes
    clock = FakeClock()
    codes = []
    for _ in range(2):
        loader = make_loader(lake, clock, settle_s=0.0, max_tries=2)
        codes.append(watching(lake, PollingFeed(3600), loader=loader, once=True)[0].run().exit_code)
        clock.sleep(1.0)
    assert codes == [code, looks]


def test_once_waits_for_files_to_settle_and_leaves_the_rest() -> None:
    lake, clock = FolderLake(), FakeClock()
    lake.put("1.csv", "grows.csv", modified_at=START)

    class Grows(PollingFeed):
        def wait(self, timeout_s: float | None = None) -> Collection[str] | None:
            clock.sleep(timeout_s or 0.0)
            lake.put("grows.csv", version=int(clock.seconds * 1000), modified_at=clock.now())
            return super().wait(0.01)

    loader = make_loader(lake, clock, settle_s=0.6)
    watch, seen = watching(lake, Grows(3600), loader=loader, once=True)
    summary = watch.run()
    assert seen.took_names == [["1.csv"]]
    assert (summary.settling, summary.exit_code) == (1, ExitCode.OK)


def test_an_unreadable_path_ends_only_the_first_scan() -> None:
    lake = FolderLake()
    lake.refuses = SourceError("permission denied")
    with pytest.raises(SourceError):
        watching(lake, ScriptedFeed())[0].run()
    lake = FolderLake()

    def refused() -> None:
        lake.refuses = SourceError("permission denied")

    def granted() -> tuple[()]:
        lake.refuses = None
        return ()

    watch, seen = watching(lake, ScriptedFeed(refused, granted))
    watch.run()
    assert seen.troubles == ["permission denied"]


def test_stopped_between_two_chunks_before_it_looked_at_all_files() -> None:
    lake = FolderLake()
    lake.put(*(f"{number:02}.csv" for number in range(12)))
    feed = PollingFeed(3600)
    loader = make_loader(lake, FakeClock(), settle_s=0.0, options=IngestOptions(mode="upsert", key=("id",)))
    watch, _ = watching(lake, feed, loader=loader, once=True)

    def stop(_: Sequence[str]) -> str:
        watch.stop()
        return "published"

    lake.becomes = stop
    summary = watch.run()
    assert (summary.published, summary.has_more, summary.exit_code) == (1, True, ExitCode.RETRYABLE)
    assert summary.unfinished > 0
    assert lake.outcomes() == {"00.csv": ("done", 1)}


class RealFolderLake(FolderLake):
    """Like its base class, with existing files."""

    def list_files(self, paths: Sequence[str], **options: Any) -> Any:
        return list_files(paths, **options)


@contextmanager
def running(watch: Watch) -> Iterator[None]:
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.stop()
        thread.join(BOUND_S)
        assert not thread.is_alive()


def test_events_of_a_real_folder(tmp_path: Path) -> None:
    landing, staging = tmp_path / "landing", tmp_path / "staging"
    landing.mkdir()
    (staging / "moved").mkdir(parents=True)
    (staging / "moved" / "4.csv").write_text("x", encoding="utf-8")
    lake = RealFolderLake()
    feed = EventFeed(lambda: [str(landing)] if landing.is_dir() else [], every_s=3600)
    loader = make_loader(lake, Clock(), paths=[str(landing)], settle_s=0.1)
    watch, _ = watching(lake, feed, loader=loader)
    try:
        with running(watch):
            (landing / "1.csv").write_text("x", encoding="utf-8")
            wait_until(lambda: "1.csv" in lake.outcomes())
            (landing / "notes.txt").write_text("x", encoding="utf-8")
            shutil.copytree(staging / "moved", landing / "copied", copy_function=shutil.copy)
            (staging / "moved").rename(landing / "moved")
            wait_until(lambda: "4.csv" in lake.outcomes())
    finally:
        feed.close()
    assert "notes.txt" not in lake.outcomes()


def test_a_new_or_recreated_folder_is_watched_from_the_next_full_scan_on(tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    feed = EventFeed(lambda: [str(landing)] if landing.is_dir() else [], every_s=2.0)

    def is_named() -> bool:
        # A full scan, which finds it, may come between.
        (landing / "1.csv").write_text("x", encoding="utf-8")
        return to_uri(landing / "1.csv") in (feed.wait(5.0) or ())

    try:
        assert feed.wait(0.0) == set()
        for number in range(2):
            landing.mkdir()
            wait_until(lambda: feed.wait(5.0) is None, within_s=BOUND_S)
            wait_until(is_named, within_s=BOUND_S)
            landing.rename(tmp_path / f"gone{number}")
    finally:
        feed.close()
