"""Fixtures for unit tests of several files."""

from __future__ import annotations

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
        patch.setattr("lakegate.alerts.message._FIRST_WAIT_S", 0.01)
        yield


@pytest.fixture(scope="session")
def prefect_harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prefect's own test server. Its tests are in the xdist group ``prefect``, so that only one runs at a time."""
    from prefect.settings import (
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        PREFECT_LOCAL_STORAGE_PATH,
        PREFECT_LOGGING_TO_API_ENABLED,
        PREFECT_SERVER_ANALYTICS_ENABLED,
        temporary_settings,
    )
    from prefect.testing.utilities import prefect_test_harness

    from support.prefect_server import fill, keep

    database = tmp_path_factory.mktemp("database") / "prefect-test.db"
    fill(database)
    quick: dict[Any, Any] = {
        # Prefect stores errors of parameters in its storage, which would be the user's.
        PREFECT_LOCAL_STORAGE_PATH: str(tmp_path_factory.mktemp("storage")),
        # Each flow run waits at its end, up to a second, for the thread of its heartbeats.
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
        # What is logged is looked at here, and not on the server.
        PREFECT_LOGGING_TO_API_ENABLED: False,
    }
    # Its telemetry locks the database while it waits for a response: without a network, for a minute.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefect.testing.utilities.mkdtemp", lambda: str(database.parent))
        with (
            temporary_settings({PREFECT_SERVER_ANALYTICS_ENABLED: False}),
            prefect_test_harness(server_startup_timeout=240),
            temporary_settings(quick),
        ):
            keep(database)
            yield


@pytest.fixture
def in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to the folder of a new project, with a terminal of unlimited width and without colors."""
    (tmp_path / ".lakegate").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path
