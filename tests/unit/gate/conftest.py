"""The lake that the REST catalog's tests read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lakegate.testing.memory import MemoryCatalog
from support.iceberg_tables import iceberg_tables
from support.rest_world import CountingFiles, RestWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RestWorld]:
    with iceberg_tables(tmp_path) as tables, ExitStack() as opened:
        yield RestWorld(tables, MemoryCatalog(), CountingFiles(), opened)
