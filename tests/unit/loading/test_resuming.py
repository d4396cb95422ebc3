"""Ingests with a time limit: suspended runs are found and resumed, and redelivered messages are harmless."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from lakegate.errors import CatalogUnavailableError, EngineError, RetryableError, SourceError
from lakegate.loading.scan import FileLoader
from lakegate.wap.deadline import DeadlineReachedError
from support.loader_support import START, FakeClock, SteppingLake, make_loader

LATE = DeadlineReachedError("The time was over.")


@pytest.fixture
def lake() -> SteppingLake:
    return SteppingLake()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def loader(lake: SteppingLake, clock: FakeClock, **options: Any) -> FileLoader:
    return make_loader(lake, clock, settle_s=0.0, **options)


def take(taking: FileLoader, changed: Sequence[str] | None = None) -> None:
    """Ingest everything that's ready. Trouble stops only its own chunk."""
    found = taking.scan(changed)
    while found.chunks:
        for chunk in found.chunks:
            try:
                taking.ingest(chunk, timeout_s=60.0)
            except RetryableError:
                continue
        found = taking.scan(())


def test_any_of_its_files_resumes_a_suspended_run(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv", "b.csv", "c.csv")
    lake.becomes = lambda _: LATE
    take(loader(lake, clock))
    assert lake.outcomes() == dict.fromkeys(("a.csv", "b.csv", "c.csv"), ("parked", 0))
    (left,) = lake.made
    lake.becomes = lambda _: "published"
    take(loader(lake, clock), ["file:///landing/b.csv"])
    assert lake.names()[-1] == ["a.csv", "b.csv", "c.csv"]
    assert list(lake.made) == [left]
    assert lake.outcomes() == dict.fromkeys(("a.csv", "b.csv", "c.csv"), ("done", 1))


def test_a_suspended_run_that_disappears_blocks_nothing(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv")
    lake.becomes = lambda _: LATE
    take(loader(lake, clock))
    lake.made.clear()
    lake.becomes = lambda _: "published"
    take(loader(lake, clock))
    assert lake.outcomes() == {"a.csv": ("done", 1)}


def test_a_file_replaced_while_its_run_is_suspended_is_ingested_again(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv", "b.csv")
    lake.becomes = lambda _: LATE
    take(loader(lake, clock))
    lake.becomes = lambda _: "published"
    lake.put("a.csv", version=2)
    again = loader(lake, clock)
    suspended, replaced = again.scan().chunks
    again.ingest(suspended, timeout_s=60.0)
    assert again.pending == {"file:///landing/a.csv"}
    again.ingest(replaced, timeout_s=60.0)
    assert not again.pending
    assert len(lake.made) == 2


def test_a_suspended_run_is_not_retried_at_once_after_trouble(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv", "b.csv")
    lake.becomes = lambda _: CatalogUnavailableError("Away.")
    for _ in range(2):
        before = len(lake.taken)
        take(loader(lake, clock))
        assert len(lake.taken) == before + 1
    assert len(lake.made) == 1


def test_files_that_the_engine_fails_at_together_are_retried_alone_at_once(
    lake: SteppingLake, clock: FakeClock
) -> None:
    lake.put("a.csv", "bad.csv", "c.csv")
    lake.becomes = lambda names: EngineError("Out of memory.") if "bad.csv" in names else "published"
    take(loader(lake, clock))
    assert lake.names() == [["a.csv", "bad.csv", "c.csv"], ["a.csv"], ["bad.csv"], ["c.csv"]]
    assert lake.outcomes() == {"a.csv": ("done", 1), "bad.csv": ("failed", 1), "c.csv": ("done", 1)}
    assert lake.made[next(iter(lake.made))].status == "failed"


def test_a_file_left_to_another_run_can_get_a_run_of_its_own(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv")
    lake.becomes = lambda _: "skipped"
    chunk = loader(lake, clock).scan().chunks[0]
    loader(lake, clock).ingest(chunk, timeout_s=60.0)
    lake.known.clear()
    loader(lake, clock).ingest(chunk, timeout_s=60.0)
    assert len(lake.made) == 2


def test_a_rejected_file_is_retried_when_it_is_announced_again(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv")
    lake.becomes = lambda _: "rejected"
    uri = "file:///landing/a.csv"
    take(loader(lake, clock, announced={uri: START}))
    take(loader(lake, clock, announced={uri: START}))
    assert len(lake.taken) == 1
    lake.becomes = lambda _: "published"
    take(loader(lake, clock, announced={uri: START + timedelta(seconds=1)}))
    assert lake.outcomes() == {"a.csv": ("done", 1)}
    assert len(lake.made) == 2, "a run that was rejected is not gone on with"
    take(loader(lake, clock, announced={uri: START + timedelta(days=1)}))
    assert len(lake.taken) == 2, "what is done is done"


def die(lake: SteppingLake, clock: FakeClock, *, run_known: bool = True, **options: Any) -> None:
    """Ingest everything in a process that crashes at bad.csv, then recover its run as another process would."""
    lake.becomes = lambda names: KeyboardInterrupt() if "bad.csv" in names else "published"
    try:
        take(loader(lake, clock, **options))
    except KeyboardInterrupt:
        lake.dead = {run.run_id for run in lake.made.values() if run.finished_at is None}
        lake.recover()
        if not run_known:
            for run_id in lake.dead:
                del lake.made[run_id]
    clock.sleep(600.0)


@pytest.mark.parametrize("run_known", [True, False], ids=["in its run", "before its run was begun"])
def test_a_file_that_crashes_its_process_is_tried_alone_and_given_up(
    lake: SteppingLake, clock: FakeClock, run_known: bool
) -> None:
    lake.put("a.csv", "bad.csv", "c.csv")
    die(lake, clock, run_known=run_known, max_tries=2)
    assert lake.outcomes() == dict.fromkeys(("a.csv", "bad.csv", "c.csv"), ("trying", 0))
    for tries in (1, 2):
        die(lake, clock, run_known=run_known, max_tries=2)
        assert lake.outcomes()["bad.csv"] == ("trying", tries)
    assert [one for one in lake.names() if one == ["c.csv"]] == [["c.csv"]], "healthy ones go by themselves, too"
    take(loader(lake, clock, max_tries=2))
    assert lake.outcomes() == {"a.csv": ("done", 1), "bad.csv": ("failed", 2), "c.csv": ("done", 1)}
    assert [(one.tries, one.reason) for one in lake.given_up] == [(2, "The process that was ingesting it died.")]
    taken = len(lake.taken)
    take(loader(lake, clock, max_tries=2))
    assert len(lake.taken) == taken


def test_trouble_before_a_run_starts_does_not_count_as_a_try(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv")

    def away(*_: object, **__: object) -> Any:
        raise CatalogUnavailableError("Away.")

    for _ in range(5):
        taking = loader(lake, clock, max_tries=1)
        (chunk,) = taking.scan().chunks
        with pytest.MonkeyPatch.context() as patch, pytest.raises(CatalogUnavailableError):
            patch.setattr(lake, "ingest", away)
            taking.ingest(chunk, timeout_s=60.0)
        clock.sleep(600.0)
    take(loader(lake, clock, max_tries=1))
    assert (lake.outcomes(), lake.given_up) == ({"a.csv": ("done", 1)}, [])


def test_sharing_a_chunk_with_a_damaged_file_does_not_count_as_a_try(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv", "bad.csv", "c.csv")
    bad = "/landing/bad.csv"
    lake.becomes = lambda names: SourceError("Damaged.", path=bad) if "bad.csv" in names else "published"
    take(loader(lake, clock, max_tries=1))
    assert lake.names() == [["a.csv", "bad.csv", "c.csv"], ["a.csv", "c.csv"], ["bad.csv"]]
    assert lake.outcomes() == {"a.csv": ("done", 1), "bad.csv": ("failed", 1), "c.csv": ("done", 1)}
