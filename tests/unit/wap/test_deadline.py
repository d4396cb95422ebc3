"""Deadlines: a run that runs out of time is suspended, wherever it is, and resumed by the next call."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lakegate.errors import EngineError, LakegateError, SourceError
from lakegate.model.run import Run
from lakegate.wap.deadline import NEVER, Deadline, DeadlineReachedError
from lakegate.wap.ingest import resume
from lakegate.wap.recover import recover
from support.fakes import FakeLakehouse
from support.flow_support import CLEAN, TRIPS, branches, ordered, when_reached
from support.steps_support import commits, ids, known

OVER = Deadline(0.0)


def call(house: FakeLakehouse, deadline: Deadline = NEVER, run: str = "r1") -> Run:
    house.kill()
    request = partial(ordered, house, CLEAN, run=run)
    return resume(house.context, run, until="publish", table=TRIPS, request=request, deadline=deadline)


def test_without_time_nothing_is_started(house: FakeLakehouse) -> None:
    with pytest.raises(DeadlineReachedError):
        call(house, OVER)
    assert house.journal.get("r1") is None
    assert branches(house) == ["main"]


@pytest.mark.parametrize("point", ["after-claim", "after-branch", "after-stage", "after-audit"])
def test_a_run_is_suspended_and_resumed(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    with (
        when_reached(monkeypatch, point, lambda: monkeypatch.setattr(Deadline, "left_s", 0.0)),
        pytest.raises(DeadlineReachedError) as caught,
    ):
        call(house, Deadline.after(600))
    monkeypatch.undo()
    assert caught.value.context["run_id"] == "r1"
    assert known(house).finished_at is None
    assert list(house.journal.suspended()) == ["r1"]
    assert ids(house) == []
    assert recover(house.context) == ()
    assert call(house).status == "published"
    assert (ids(house), commits(house), branches(house)) == ([1, 2], 1, ["main"])


def test_what_is_being_published_is_not_stopped(house: FakeLakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    with when_reached(monkeypatch, "before-commit", lambda: monkeypatch.setattr(Deadline, "left_s", 0.0)):
        assert call(house, Deadline.after(600)).status == "published"


@pytest.mark.parametrize("error", [EngineError, SourceError])
def test_the_engines_work_is_cancelled_repeatedly(
    house: FakeLakehouse, error: type[LakegateError], monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled, begun = threading.Semaphore(0), threading.Event()

    class Slow:
        def __getattr__(self, name: str) -> object:
            return getattr(house, name)

        def write(self, *_: object) -> None:
            begun.set()
            for _again in range(2):  # the first one may come before anything runs
                assert cancelled.acquire(timeout=60)
            raise error("Operation has been cancelled.")

        def cancel(self) -> None:
            cancelled.release()

    slow: Any = Slow
    context = replace(house.context, engine=slow)
    request = partial(ordered, house, CLEAN)
    with monkeypatch.context() as patch, pytest.raises(DeadlineReachedError) as caught:
        # Time is over only when the engine works, however long a busy machine takes to get there.
        patch.setattr(Deadline, "left_s", property(lambda _: 0.0 if begun.is_set() else 0.05))
        resume(context, "r1", until="publish", table=TRIPS, request=request, deadline=Deadline.after(600))
    assert isinstance(caught.value.__context__, error)
    assert branches(house) == ["main"], "what was half written is gone"
    assert list(house.journal.suspended()) == ["r1"]
    assert call(house).status == "published"
    assert ids(house) == [1, 2]
