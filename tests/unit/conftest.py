"""Fixtures for unit tests of several files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.fakes import FakeLakehouse


@pytest.fixture
def house() -> FakeLakehouse:
    """An empty lakehouse in memory."""
    return FakeLakehouse()


@pytest.fixture(autouse=True)
def _alerts_are_tried_again_at_once() -> Iterator[None]:
    """Skip the seconds between two attempts to send an alert."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakegate.alerts.dispatch._FIRST_WAIT_S", 0.01)
        yield


@pytest.fixture(scope="module", autouse=True)
def _no_session_of_spark_left() -> Iterator[None]:
    """Find which file leaves a session active: columns made in later files would ask its server, which is gone."""
    yield
    loaded = sys.modules.get("pyspark.sql.connect.session")
    assert loaded is None or loaded.SparkSession.getActiveSession() is None


@pytest.fixture(scope="session")
def prefect_harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A server for Prefect's flows. Its tests are in the xdist group ``prefect``, so that only one runs at a time.

    As Prefect's own harness, which imports the server here, too: four seconds of a processor.
    """
    from prefect.context import _temporary_global_settings_context, get_settings_context
    from prefect.events.worker import EventsWorker
    from prefect.settings import (
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        PREFECT_LOCAL_STORAGE_PATH,
        PREFECT_LOGGING_TO_API_ENABLED,
        temporary_settings,
    )

    from support.prefect_server import PrefectServer

    server = PrefectServer(tmp_path_factory.mktemp("prefect"), brief=True)
    try:
        server.start()
        settings: dict[Any, Any] = {
            PREFECT_API_URL: f"{server.url}/api",
            # Prefect stores errors of parameters in its storage, which would be the user's.
            PREFECT_LOCAL_STORAGE_PATH: str(tmp_path_factory.mktemp("storage")),
            # Each flow run waits at its end, up to a second, for the thread of its heartbeats.
            PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
            # What is logged is looked at here, and not on the server.
            PREFECT_LOGGING_TO_API_ENABLED: False,
        }
        # Also in threads and contexts that were there before.
        with temporary_settings(settings), _temporary_global_settings_context(get_settings_context()):
            yield
            EventsWorker.drain_all()
    finally:
        server.kill()


@pytest.fixture
def in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to the folder of a new project, with a terminal of unlimited width and without colors."""
    (tmp_path / ".lakegate").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path
