"""What is behind a lake, for tests that look past its API: its engine, catalog and journal."""

from __future__ import annotations

from typing import Any, cast

from lakegate.components import Components
from lakegate.lake import Lake


def components_of(lake: Lake) -> Components:
    """Return a lake's parts."""
    return lake._components  # noqa: SLF001 - users have no use for them


def session_of(components: Components) -> Any:
    """Return the Spark session of the engine."""
    return cast("Any", components.engine).session
