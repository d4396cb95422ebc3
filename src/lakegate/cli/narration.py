"""Work in progress as people see it: spinners and bars on standard error, and silence where nobody looks."""

# ruff: noqa: PLC0415 - rich is slow to load, and quiet commands need none
from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from lakegate.cli.render.text import duration, plain, size
from lakegate.narration import SilentNarrator

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from lakegate.protocols import Narrator, Step


def make_narrator(*, quiet: bool) -> Narrator:
    """Return the narrator for this invocation: a live one when standard error is a terminal, else a silent one."""
    live = not quiet and sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return LiveNarrator() if live else SilentNarrator()


class LiveNarrator:
    """Shows steps with a spinner, elapsed time and, where the amount of work is known, a bar and the time left.

    Finished steps stay as one line each. Steps may nest.
    """

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._open = 0

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Show ``text`` while the body runs."""
        progress = self._enter()
        task = progress.add_task(plain(text), total=None, amount="")
        started = monotonic()
        done = False
        try:
            yield _LiveStep(progress, task)
            done = True
        finally:
            progress.remove_task(task)
            mark = "[green]✓[/]" if done else "[red]✗[/]"
            progress.console.print(f"{mark} {_escape(text)} [dim]{duration(monotonic() - started)}[/]", highlight=False)
            self._leave()

    def note(self, text: str) -> None:
        """Print ``text`` above the steps in progress."""
        if self._progress is not None:
            self._progress.console.print(f"  [dim]{_escape(text)}[/]", highlight=False)
        else:
            from rich.console import Console

            Console(stderr=True).print(f"  [dim]{_escape(text)}[/]", highlight=False)

    def _enter(self) -> Progress:
        if self._progress is None:
            self._progress = make_progress()
            self._progress.start()
        self._open += 1
        return self._progress

    def _leave(self) -> None:
        self._open -= 1
        if self._open == 0 and self._progress is not None:
            self._progress.stop()
            self._progress = None


class _LiveStep:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def progress(self, done: int, total: int, unit: str) -> None:
        amount = f"{size(done)} of {size(total)}" if unit == "bytes" else f"{done:,} of {total:,} {unit}"
        # Zero of zero is not "finished": the amount of work is not known yet.
        self._progress.update(self._task, completed=done, total=total or None, amount=amount)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(plain(text))


def make_progress(*, average_s: float = 30.0) -> Progress:
    """Return a display of steps on standard error.

    Args:
        average_s: The time left is told from the speed of this last while, in seconds.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
    from rich.text import Text

    class Bar(BarColumn):
        def render(self, task: Task) -> Text:  # type: ignore[override]  # no bar for work of unknown amount
            return Text() if task.total is None else super().render(task)  # type: ignore[return-value]  # likewise

    class Times(ProgressColumn):
        def render(self, task: Task) -> Text:
            left = "" if task.time_remaining is None else f", about {duration(task.time_remaining)} left"
            return Text(f"{duration(task.elapsed or 0)}{left}", style="dim")

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        Bar(bar_width=24),
        TextColumn("{task.fields[amount]}", style="dim", markup=False),
        Times(),
        console=Console(stderr=True),
        transient=True,
        speed_estimate_period=average_s,
    )
