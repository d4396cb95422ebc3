"""The narrator of programs: silence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakegate.protocols import Step


class _SilentStep:
    def progress(self, done: int, total: int, unit: str) -> None:
        pass


class SilentNarrator:
    """Implements :class:`lakegate.protocols.Narrator` by saying nothing; the default of the Python API."""

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:  # noqa: ARG002 - that is the point
        """Run the body."""
        yield _SilentStep()

    def note(self, text: str) -> None:
        """Say nothing."""
