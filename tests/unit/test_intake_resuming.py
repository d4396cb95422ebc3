"""Taking with a time limit: runs that are left, found and gone on with; messages that come again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from intake_support import START, FakeClock, SteppingLake, make_intake
from lakegate.errors import CatalogUnavailableError, EngineError, RetryableError
from lakegate.flow.deadline import DeadlineReachedError
from lakegate.intake.rounds import Intake, Told

LATE = DeadlineReachedError("The time was over.")


@pytest.fixture
def lake() -> SteppingLake:
    return SteppingLake()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def intake(lake: SteppingLake, clock: FakeClock, **options: Any) -> Intake:
    return make_intake(lake, clock, settle_s=0.0, **options)


def take(taking: Intake, changed: Sequence[str] | None = None) -> None:
    """Take everything that there is to take now; trouble stops only its own chunk."""
    found = taking.look(changed)
    while found.chunks:
        for chunk in found.chunks:
            try:
                taking.take(chunk, timeout_s=60.0)
            except RetryableError:
                continue
        found = taking.look(())


def test_a_run_that_was_left_is_gone_on_with_whichever_of_its_files_comes_again(
    lake: SteppingLake, clock: FakeClock
) -> None:
    lake.put("a.csv", "b.csv", "c.csv")
    lake.becomes = lambda _: LATE
    take(intake(lake, clock))
    assert lake.outcomes() == dict.fromkeys(("a.csv", "b.csv", "c.csv"), ("parked", 0))
    (left,) = lake.runs
    lake.becomes = lambda _: "published"
    take(intake(lake, clock), ["file:///landing/b.csv"])
    assert lake.names()[-1] == ["a.csv", "b.csv", "c.csv"]
    assert list(lake.runs) == [left]
    assert lake.outcomes() == dict.fromkeys(("a.csv", "b.csv", "c.csv"), ("done", 1))


def test_a_chunk_that_died_without_a_word_is_the_same_run_again(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv", "b.csv")
    lake.becomes = lambda _: KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        take(intake(lake, clock))
    assert lake.outcomes() == {}
    lake.becomes = lambda _: "published"
    take(intake(lake, clock))
    assert len(lake.runs) == 1


def test_a_run_that_waits_and_is_gone_meanwhile_is_no_obstacle(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv")
    lake.becomes = lambda _: LATE
    take(intake(lake, clock))
    lake.runs.clear()
    lake.becomes = lambda _: "published"
    take(intake(lake, clock))
    assert lake.outcomes() == {"a.csv": ("done", 1)}


def test_a_file_that_is_replaced_while_its_run_waits_is_not_done_with_it(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv", "b.csv")
    lake.becomes = lambda _: LATE
    take(intake(lake, clock))
    lake.becomes = lambda _: "published"
    lake.put("a.csv", version=2)
    again = intake(lake, clock)
    parked, replaced = again.look().chunks
    again.take(parked, timeout_s=60.0)
    assert again.pending == {"file:///landing/a.csv"}
    again.take(replaced, timeout_s=60.0)
    assert not again.pending
    assert len(lake.runs) == 2


def test_trouble_with_a_run_that_waits_does_not_repeat_at_once(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv", "b.csv")
    lake.becomes = lambda _: CatalogUnavailableError("Away.")
    for _ in range(2):
        before = len(lake.taken)
        take(intake(lake, clock))
        assert len(lake.taken) == before + 1
    assert len(lake.runs) == 1


def test_files_at_which_the_engine_fails_together_go_apart_at_once(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv", "bad.csv", "c.csv")
    lake.becomes = lambda names: EngineError("Out of memory.") if "bad.csv" in names else "published"
    take(intake(lake, clock))
    assert lake.names() == [["a.csv", "bad.csv", "c.csv"], ["a.csv"], ["bad.csv"], ["c.csv"]]
    assert lake.outcomes() == {"a.csv": ("done", 1), "bad.csv": ("parked", 0), "c.csv": ("done", 1)}
    assert lake.runs[next(iter(lake.runs))].status == "failed"


def test_after_a_run_that_left_a_file_to_another_there_can_be_one_more(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv")
    lake.becomes = lambda _: "skipped"
    chunk = intake(lake, clock).look().chunks[0]
    intake(lake, clock).take(chunk, timeout_s=60.0)
    lake.known.clear()
    intake(lake, clock).take(chunk, timeout_s=60.0)
    assert len(lake.runs) == 2


def test_what_was_rejected_before_somebody_told_of_it_again_is_tried_again(
    lake: SteppingLake, clock: FakeClock
) -> None:
    lake.put("a.csv")
    lake.becomes = lambda _: "rejected"
    uri = "file:///landing/a.csv"
    take(intake(lake, clock, told={uri: Told(START)}))
    take(intake(lake, clock, told={uri: Told(START, times=2)}))
    assert len(lake.taken) == 1
    lake.becomes = lambda _: "published"
    take(intake(lake, clock, told={uri: Told(START + timedelta(seconds=1))}))
    assert lake.outcomes() == {"a.csv": ("done", 1)}
    assert len(lake.runs) == 2, "a run that was rejected is not gone on with"
    take(intake(lake, clock, told={uri: Told(START + timedelta(days=1))}))
    assert len(lake.taken) == 2, "what is done is done"


def test_what_nobody_comes_back_from_goes_by_itself(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv", "b.csv", "c.csv")
    told = {f"file:///landing/{name}.csv": Told(START, times) for name, times in (("a", 1), ("b", 2), ("c", 3))}
    take(intake(lake, clock, told=told))
    assert lake.names() == [["a.csv", "b.csv"], ["c.csv"]]


def test_ids_of_runs_name_table_files_and_states(lake: SteppingLake, clock: FakeClock) -> None:
    lake.put("a.csv", "b.csv")
    (chunk,) = intake(lake, clock).look().chunks
    lake.put("b.csv", version=2)
    (other,) = intake(lake, clock).look().chunks
    (single,) = intake(lake, clock).look(["file:///landing/a.csv"]).chunks
    ids = [chunk.id_after(()), other.id_after(()), single.id_after(()), chunk.id_after(["r1"])]
    assert len(set(ids)) == 4
