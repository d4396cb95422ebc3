"""Logs: how each run ends, and which run every line is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from lakegate.context import Context
from lakegate.errors import EngineUnavailableError
from lakegate.progress import LogNarrator
from lakegate.wap.ingest import ingest
from lakegate.wap.recover import recover
from support.fakes import FakeLakehouse
from support.flow_support import ordered
from support.log_support import Log, logged


@pytest.fixture
def log() -> Iterator[Log]:
    with logged() as told:
        yield told


def telling(house: FakeLakehouse, log: Log) -> Context:
    return dataclasses.replace(house.context, narrator=LogNarrator(log))


def test_a_published_run_logs_its_rows_and_steps(house: FakeLakehouse, log: Log) -> None:
    ingest(telling(house, log), ordered(house))
    [end] = log.ends
    assert (end["event"], end["level"], end["rows"]) == ("Run r1: published", "info", 2)
    lines = [line for line in log.lines if line["event"] != "Reading the columns of 1 file"]  # before there is a run
    assert all((line["run_id"], line["table"], line["branch"]) == ("r1", "nyc.trips", end["branch"]) for line in lines)
    steps = list(dict.fromkeys(line["step"] for line in lines))
    assert [step for step in steps if step] == ["write", "publish"]


def test_a_failed_run_logs_its_error(house: FakeLakehouse, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ordered(house)

    def away(*_: object, **__: object) -> None:
        raise EngineUnavailableError("Spark went away.")

    monkeypatch.setattr(house, "append", away)
    with pytest.raises(EngineUnavailableError):
        ingest(house.context, wanted)
    [end] = log.ends
    told = (end["status"], end["level"], end["code"], end["message"])
    assert told == ("failed", "warning", "engine-unavailable", "Spark went away.")


def test_a_recovered_run_is_not_the_one_that_recovers_it(
    house: FakeLakehouse, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.dies_at(monkeypatch, "after-stage", lambda: ingest(house.context, ordered(house)))
    recover(telling(house, log))
    [end] = log.ends
    assert (end["run_id"], end["step"], end["status"]) == ("r1", "recover", "failed")
    assert {line["step"] for line in log.lines} == {"recover"}
