"""What unit tests of several files share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in the folder of a new project, in a terminal of unlimited width without colours."""
    (tmp_path / ".lakegate").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path
