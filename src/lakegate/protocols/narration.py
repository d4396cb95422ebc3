"""Where work in progress is told of."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class Step(Protocol):
    """A piece of work in progress, as its narrator shows it."""

    def progress(self, done: int, total: int, unit: str) -> None:
        """Tell how far it is: ``done`` of ``total`` ``unit`` (``tasks``, ``rows``, ``bytes``)."""
        ...


class Narrator(Protocol):
    """Where work in progress is told of. Front doors decide how it looks, or that it stays quiet."""

    def step(self, text: str) -> AbstractContextManager[Step]:
        """Show ``text`` while the body runs; the step ends with it, however it ends."""
        ...

    def note(self, text: str) -> None:
        """Tell one finished fact."""
        ...
