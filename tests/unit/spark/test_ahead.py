"""A session that is opened in the background: waited for, used once, and its failures told by who needs it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from lakegate.errors import EngineUnavailableError
from lakegate.model.batch import Batch, SourceColumn, SourceFile
from lakegate.spark.engine import SparkEngine

_FILE = SourceFile(uri="file:///a.parquet", size_bytes=1, version="sha256:1", rows=1)
_BATCH = Batch(format="parquet", files=(_FILE,), columns=(SourceColumn(name="id", type="int64"),))


class _Sessions:
    """Makes sessions that can read nothing, when it is let; the first ``fails`` times it can't."""

    def __init__(self, fails: int = 0) -> None:
        self.may_open = threading.Event()
        self.begun = threading.Event()
        self.fails = fails
        self.made: list[Any] = []

    def __call__(self, settings: Mapping[str, str]) -> Any:
        del settings
        self.begun.set()
        assert self.may_open.wait(120)
        if self.fails:
            self.fails -= 1
            raise EngineUnavailableError("Spark is away.")
        self.made.append(SimpleNamespace())
        return self.made[-1]


def _engine(sessions: _Sessions) -> SparkEngine:
    return SparkEngine(sessions, lambda _: {}, shares_files=True)


def test_who_asks_for_the_session_waits_for_the_one_that_is_being_opened() -> None:
    sessions = _Sessions()
    engine = _engine(sessions)

    engine.open_ahead(_BATCH)
    assert sessions.begun.wait(120)
    threading.Timer(0.05, sessions.may_open.set).start()

    assert engine.session is engine.session
    assert len(sessions.made) == 1


@pytest.mark.parametrize("fails", [1, 2])
def test_what_goes_wrong_in_the_background_is_tried_again_and_told_to_who_needs_it(fails: int) -> None:
    sessions = _Sessions(fails)
    sessions.may_open.set()
    engine = _engine(sessions)

    engine.open_ahead(_BATCH)
    while sessions.fails == fails:
        assert sessions.begun.wait(120)

    if fails == 1:
        assert engine.session is sessions.made[0]
    else:
        with pytest.raises(EngineUnavailableError, match="Spark is away"):
            _ = engine.session


def test_closing_waits_for_what_is_being_opened() -> None:
    sessions = _Sessions()
    engine = _engine(sessions)
    engine.open_ahead(_BATCH)
    assert sessions.begun.wait(120)
    threading.Timer(0.05, sessions.may_open.set).start()

    engine.close()

    assert len(sessions.made) == 1
    _ = engine.session  # a new one: the other has ended
    assert len(sessions.made) == 2
