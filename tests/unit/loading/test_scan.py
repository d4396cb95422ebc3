"""Scans and ingests: which files are ready when, and which outcomes are saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakegate.errors import (
    CatalogUnavailableError,
    ConfigurationError,
    EngineError,
    NewerFormatError,
    OutcomeUnknownError,
    RetryableError,
    SourceError,
)
from lakegate.loading.file_outcomes import ReadyFile, in_chunks
from lakegate.loading.routes import Routes
from lakegate.loading.scan import Chunk, FileLoader, Scan
from lakegate.model.request import IngestOptions
from lakegate.model.run import Run, RunError
from lakegate.sources.discovery import FoundFile
from support.cli_support import known, make_run
from support.examples import examples
from support.loader_support import START, TABLE, FakeClock, FolderLake, Outcome, make_loader


@pytest.fixture
def lake() -> FolderLake:
    return FolderLake()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def names(found: Scan) -> list[list[str]]:
    return [[uri.rpartition("/")[2] for uri in chunk.uris] for chunk in found.chunks]


def take_all(loader: FileLoader, changed: Sequence[str] | None = None) -> Scan:
    found = loader.scan(changed)
    for chunk in found.chunks:
        loader.ingest(chunk)
    return found


def bad(*bad_names: str, outcome: Outcome = "rejected") -> Callable[[Sequence[str]], Outcome]:
    return lambda taken: outcome if set(bad_names) & set(taken) else "published"


@pytest.mark.parametrize(
    "options", [IngestOptions(mode="upsert", key=("id",)), IngestOptions(mode="replace-partitions")]
)
def test_files_that_may_change_the_same_rows_run_in_order(
    lake: FolderLake, clock: FakeClock, options: IngestOptions
) -> None:
    lake.put("2.csv", "3.csv", "1.csv")
    loader = make_loader(lake, clock, settle_s=0.0, options=options)
    assert names(take_all(loader)) == [["1.csv"], ["2.csv"], ["3.csv"]]
    assert lake.options[0].mode == options.mode


def test_a_file_settles(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv", modified_at=START)
    loader = make_loader(lake, clock, settle_s=5.0)
    found = loader.scan()
    assert (found.chunks, found.settling, found.due_s) == ((), 1, 5.0)
    clock.sleep(4.0)
    lake.put("1.csv", version=2, modified_at=clock.now())
    assert loader.scan(()).settling == 1
    clock.sleep(5.0)
    assert names(loader.scan(())) == [["1.csv"]]


def test_an_impossible_modification_time_is_ignored(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("tomorrow.csv", modified_at=START + timedelta(days=1))
    loader = make_loader(lake, clock, settle_s=5.0)
    assert loader.scan().settling == 1
    clock.sleep(5.0)
    assert names(loader.scan()) == [["tomorrow.csv"]]


def test_the_second_check_sees_an_old_file_grow(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("still.csv", "grows.csv")
    clock.meanwhile = lambda: lake.put("grows.csv", version=2)
    found = make_loader(lake, clock).scan()
    assert (names(found), found.settling) == ([["still.csv"]], 1)


def test_objects_in_a_store_need_no_second_check(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("s3://landing/1.csv")
    loader = make_loader(lake, clock, paths=["s3://landing/"])
    assert names(loader.scan()) == [["1.csv"]]
    assert clock.seconds == 0.0


def test_a_file_that_changes_before_its_ingest_is_left_for_later(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv", "2.csv", "3.csv")
    loader = make_loader(lake, clock)
    [chunk] = loader.scan().chunks
    lake.put("2.csv", version=2)
    del lake.landed["file:///landing/3.csv"]
    assert loader.ingest(chunk) is not None
    assert lake.names() == [["1.csv"]]
    assert lake.outcomes() == {"1.csv": ("done", 1)}


def test_a_rejected_chunk_is_retried_file_by_file(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv", "2.csv", "3.csv")
    lake.becomes = bad("2.csv")
    loader = make_loader(lake, clock, options=IngestOptions(on_failure="keep"))
    take_all(loader)
    take_all(loader, ())
    assert lake.names() == [["1.csv", "2.csv", "3.csv"], ["1.csv"], ["2.csv"], ["3.csv"]]
    assert [options.on_failure for options in lake.options] == ["drop", "keep", "keep", "keep"]
    assert {options.on_busy for options in lake.options} == {"skip"}
    assert lake.outcomes() == {"1.csv": ("done", 1), "2.csv": ("rejected", 1), "3.csv": ("done", 1)}
    [checkpoint] = loader.scan().given_up
    assert (checkpoint.run_id, checkpoint.reason is not None) == ("r3", True)
    assert not loader.pending


def test_a_file_that_fails_is_given_up_until_it_changes(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv")
    lake.becomes = lambda _: SourceError("1.csv is\ncut off.")
    loader = make_loader(lake, clock, max_tries=3)
    tries = 0
    while not loader.scan().given_up:
        found = take_all(loader)
        tries += len(found.chunks)
        clock.sleep(found.due_s or 0.0)
    assert (tries, lake.outcomes()) == (3, {"1.csv": ("failed", 3)})
    again = make_loader(lake, clock, max_tries=3).scan()
    assert [checkpoint.reason for checkpoint in again.given_up] == ["1.csv is cut off."]
    assert again.chunks == ()
    lake.put("1.csv", version=2)
    assert names(loader.scan()) == [["1.csv"]]


def test_retries_pause_but_not_after_a_restart(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv")
    lake.becomes = lambda _: SourceError("no")
    loader = make_loader(lake, clock)
    take_all(loader)
    found = loader.scan()
    assert (found.chunks, found.waiting, found.due_s) == ((), 1, 30.0)
    clock.sleep(1.0)
    assert names(make_loader(lake, clock).scan()) == [["1.csv"]]


@pytest.mark.parametrize(
    "error",
    [
        CatalogUnavailableError("away"),
        OutcomeUnknownError("?"),
        RetryableError("busy"),
        NewerFormatError("Upgrade this watcher."),
    ],
)
def test_trouble_is_not_the_files_fault(lake: FolderLake, clock: FakeClock, error: Exception) -> None:
    lake.put("1.csv", "2.csv")
    lake.becomes = lambda _: error
    loader = make_loader(lake, clock)
    for _ in range(5):
        [chunk] = loader.scan().chunks[:1]
        with pytest.raises(type(error)):
            loader.ingest(chunk)
        found = loader.scan()
        assert (found.chunks, found.waiting) == ((), 2)
        clock.sleep(300.0)
    assert lake.known == {}
    lake.becomes = lambda _: "published"
    take_all(loader)
    assert set(lake.outcomes().values()) == {("done", 1)}


def test_an_engine_failure_counts_as_a_try_of_a_single_file(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv", "2.csv")
    [both] = make_loader(lake, clock).scan().chunks
    single = replace(both, files=both.files[:1])
    ended = make_run("failed", run_id="r1")
    for part, tries in ((both, 0), (single, 1), (single, 2)):
        make_loader(lake, clock, max_tries=2).save_outcomes(part, ended, EngineError("Out of memory."))
        assert lake.outcomes()["1.csv"] == ("failed", tries)
    assert [file.run_id for file in lake.given_up] == ["r1"]


def test_wrong_settings_do_not_count_as_a_try(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv")
    lake.becomes = lambda _: ConfigurationError("no token")
    loader = make_loader(lake, clock)
    with pytest.raises(ConfigurationError):
        take_all(loader)
    assert lake.known == {}


def test_an_internal_error_counts_as_a_failure_of_the_file(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv")
    lake.becomes = lambda _: ZeroDivisionError("s3://me:hunter22@host/x")
    loader = make_loader(lake, clock)
    take_all(loader)
    [checkpoint] = loader.saved
    assert (checkpoint.outcome, checkpoint.reason) == ("failed", "Internal error: ZeroDivisionError.")


def test_a_file_that_another_run_holds_is_checked_later(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("1.csv", "2.csv")
    lake.run_status = {"theirs": "planned", "before": "published"}
    [chunk] = make_loader(lake, clock).scan().chunks
    # The busy one was found through a link, so the run reports it under its real path.
    places = {"theirs": ("file:///real/1.csv", chunk.uris[:1]), "before": (chunk.uris[1], ())}
    skipped = [
        held.model_copy(update={"file": held.file.model_copy(update={"uri": uri, "aliases": aliases})})
        for owner, (uri, aliases) in places.items()
        for held in (known("x.csv", owner),)
    ]
    loader = make_loader(lake, clock)
    loader.save_outcomes(chunk, make_run("skipped", run_id="mine", skipped_files=tuple(skipped)))
    assert lake.outcomes() == {"2.csv": ("done", 1)}
    assert lake.known[TABLE, "file:///landing/2.csv"].run_id == "before"
    assert loader.scan().waiting == 1
    clock.sleep(5.0)
    assert names(loader.scan()) == [["1.csv"]]


@pytest.mark.parametrize(
    ("run", "noted"),
    [
        (make_run("failed", error=RunError(code="source", message="cut off")), {"1.csv": ("failed", 1)}),
        (make_run("failed", error=RunError(code="catalog-unavailable", message="away")), {}),
        (make_run("staged", finished_at=None), {}),
        (make_run("discarded"), {"1.csv": ("failed", 1)}),
        (make_run("reverted"), {"1.csv": ("done", 1)}),
        (None, {"1.csv": ("failed", 1)}),
    ],
)
def test_orchestrators_save_outcomes_of_their_runs(
    lake: FolderLake, clock: FakeClock, run: Run | None, noted: object
) -> None:
    lake.put("1.csv")
    loader = make_loader(lake, clock)
    [chunk] = loader.scan().chunks
    loader.save_outcomes(chunk, run)
    assert lake.outcomes() == noted


def test_only_changed_files_are_scanned(lake: FolderLake, clock: FakeClock) -> None:
    lake.put(*(f"{number}.csv" for number in range(50)))
    lake.put("notes.txt", "_hidden.csv", "file:///elsewhere/1.csv")
    loader = make_loader(lake, clock)
    changed = [f"file:///landing/{name}" for name in ("7.csv", "notes.txt", "_hidden.csv", "gone.csv")]
    found = loader.scan([*changed, "file:///elsewhere/1.csv"])
    assert names(found) == [["7.csv"]]


def test_files_without_a_table_are_reported(lake: FolderLake, clock: FakeClock) -> None:
    lake.put("nyc/trips/1.csv", "nyc/b@d/1.csv", "loose.csv")
    found = make_loader(lake, clock, routes=Routes(["/landing/{namespace}/{table}/*.csv"])).scan()
    assert [chunk.table for chunk in found.chunks] == [TABLE]
    assert {uri for uri, _ in found.unrouted} == {"file:///landing/nyc/b@d/1.csv", "file:///landing/loose.csv"}


FILES = st.lists(st.tuples(st.sampled_from(["nyc.a", "nyc.b"]), st.integers(0, 30), st.booleans()), max_size=60)


@given(files=FILES, max_files=st.integers(1, 7), max_bytes=st.integers(1, 60))
def test_every_file_is_in_one_chunk(files: list[tuple[str, int, bool]], max_files: int, max_bytes: int) -> None:
    ready = [
        ReadyFile(table, FoundFile(f"file:///{number}.{'csv' if number % 2 else 'jsonl'}", size, "s", START), alone)
        for number, (table, size, alone) in enumerate(files)
    ]
    chunks = in_chunks(ready, max_files=max_files, max_bytes=max_bytes)
    assert sorted((c.table, uri) for c in chunks for uri in c.uris) == sorted((r.table, r.file.uri) for r in ready)
    assert all(len(chunk.uris) <= max_files for chunk in chunks)
    sizes = {one.file.uri: one.file.size_bytes for one in ready}
    assert all(sum(sizes[uri] for uri in chunk.uris) <= max_bytes or chunk.alone for chunk in chunks)
    assert all(len({uri.rpartition(".")[2] for uri in chunk.uris}) == 1 for chunk in chunks)
    alone = {one.file.uri for one in ready if one.alone}
    assert all(chunk.alone for chunk in chunks if alone & set(chunk.uris))


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 11)),
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("look"), st.booleans()),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=examples(80, 150))
@given(moves=MOVES, bad_ones=st.sets(st.integers(0, 11)), max_files=st.integers(1, 4))
def test_each_version_of_a_file_is_published_once_or_given_up(
    moves: list[tuple[str, int]], bad_ones: set[int], max_files: int
) -> None:
    lake, clock = FolderLake(), FakeClock()
    lake.becomes = bad(*(f"{number:02}.csv" for number in bad_ones))
    loader = make_loader(lake, clock, max_files=max_files, settle_s=5.0)
    good: list[tuple[str, str]] = []
    alone: list[tuple[str, str]] = []

    def look(changed: list[str] | None) -> Scan:
        found = loader.scan(changed)
        offered = [uri for chunk in found.chunks for uri in chunk.uris]
        assert len(offered) == len(set(offered))
        assert all(len(chunk.uris) <= max_files for chunk in found.chunks)
        for chunk in found.chunks:
            _remember(loader, chunk, good, alone)
        return found

    for version, (move, argument) in enumerate(moves):
        if move == "put":
            lake.put(f"{argument:02}.csv", version=version, modified_at=clock.now())
        elif move == "wait":
            clock.sleep(argument)
        elif move == "look":
            look([] if argument else None)
        else:
            loader = make_loader(lake, clock, max_files=max_files, settle_s=5.0)
    for _ in range(20):
        clock.sleep(6.0)
        look(None)
    assert len(good) == len(set(good))
    assert len(alone) == len(set(alone))
    states = {(uri, file.stamp) for uri, file in lake.landed.items()}
    assert states <= {*good, *alone}
    assert {int(uri[-6:-4]) for uri, _ in alone} <= bad_ones


def _remember(loader: FileLoader, chunk: Chunk, good: list[tuple[str, str]], alone: list[tuple[str, str]]) -> None:
    run = loader.ingest(chunk)
    assert run is not None
    if run.status == "published":
        good += chunk.files
    elif chunk.alone:
        alone += chunk.files


def test_a_stopped_scan_resumes_after_the_last_file_and_still_finds_earlier_arrivals(
    lake: FolderLake, clock: FakeClock
) -> None:
    names = [f"{number:05}.csv" for number in range(10_000)]
    lake.put(*names[1:])
    loader = make_loader(lake, clock, settle_s=0.0, max_files=100)
    looks = 0
    found = loader.scan()
    lake.put(names[0])  # in front of where the listing is by now
    while found.chunks:
        looks += 1
        assert len(loader.pending) <= 1_500
        for chunk in found.chunks:
            loader.ingest(chunk)
        found = loader.scan()
    assert looks >= 10
    assert sum(map(len, lake.names())) == 10_000, "each once"
    assert lake.listed < 4.1 * 10_000, "two listings, one for what landed meanwhile, and a look before each is taken"
