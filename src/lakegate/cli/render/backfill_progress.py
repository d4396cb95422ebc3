"""A backfill under way: a bar over all of it and what runs now on a terminal, else one line for each chunk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from lakegate.cli.narration import LiveNarrator, make_progress
from lakegate.cli.render.text import clip, counted, duration, plain, size

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress, TaskID

    from lakegate.cli.app import App
    from lakegate.intake.backfill_plan import BackfillChunk, BackfillPlan
    from lakegate.intake.backfill_report import ChunkResult
    from lakegate.protocols import Narrator, Step

_MARKS = {"published": "[green]✓[/]", "already": "[green]✓[/]", "empty": "[yellow]✓[/]"}
_FAILED_MARK = "[red]✗[/]"
_ALL_S = 30 * 86400.0
_DOING = 36


class Lines:
    """Tells of each chunk in one line. Implements :class:`lakegate.intake.backfill_report.Watcher`.

    Args:
        tell: Takes the line.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def over(self, plan: BackfillPlan) -> AbstractContextManager[None]:  # noqa: ARG002 - as LiveBackfill
        """Run the body."""
        return _nothing()

    def began(self, chunk: BackfillChunk) -> None:
        """Say nothing: a line for each chunk is enough."""

    def ended(self, result: ChunkResult) -> None:
        """Tell what became of a chunk."""
        self._tell(told(result))

    def stopping(self, under_way: int) -> None:
        """Tell that it will stop."""
        self._tell(told_stopping(under_way))


class LiveBackfill:
    """A bar over all files, the time left, and a line for each chunk that is under way.

    Implements :class:`lakegate.intake.backfill_report.Watcher`, and :class:`lakegate.protocols.Narrator` for the
    lakes of its threads: what a thread does is shown beside its chunk.

    Args:
        narrator: Told of steps that belong to no chunk.
    """

    def __init__(self, narrator: Narrator) -> None:
        self._narrator = narrator
        self._shown: _Shown | None = None
        self._rows: dict[int, tuple[TaskID, str]] = {}

    @contextmanager
    def over(self, plan: BackfillPlan) -> Iterator[None]:
        """Show how far ``plan`` is while the body runs."""
        shown = _Shown.of(plan)
        with shown.live:
            self._shown = shown
            try:
                yield
            finally:
                self._shown = None

    def began(self, chunk: BackfillChunk) -> None:
        """Show a chunk as under way in this thread."""
        if self._shown is not None:
            row = self._shown.rows.add_task(f"  {plain(chunk.name)}", total=None, amount="")
            self._rows[threading.get_ident()] = (row, chunk.name)

    def ended(self, result: ChunkResult) -> None:
        """Leave one line of the chunk, and move the bar."""
        row, _ = self._rows.pop(threading.get_ident(), (None, ""))
        if self._shown is None:
            return
        if row is not None:
            self._shown.rows.remove_task(row)
        self._shown.say(f"{_MARKS.get(result.outcome, _FAILED_MARK)} {_escape(told(result))}")
        self._shown.advance(result)

    def stopping(self, under_way: int) -> None:
        """Tell that it will stop."""
        if self._shown is not None:
            self._shown.say(f"[yellow]{_escape(told_stopping(under_way))}[/]")

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Show ``text`` beside this thread's chunk while the body runs."""
        shown, known = self._shown, self._rows.get(threading.get_ident())
        if shown is None or known is None:
            with self._narrator.step(text) as step:
                yield step
            return
        row, name = known
        shown.rows.update(row, description=f"  {plain(name)}  {clip(plain(text), _DOING)}")
        try:
            yield _RowStep(shown.rows, row)
        finally:
            shown.rows.update(row, description=f"  {plain(name)}", amount="")

    def note(self, text: str) -> None:
        """Print ``text`` above the bar, with this thread's chunk."""
        known = self._rows.get(threading.get_ident())
        if self._shown is None:
            self._narrator.note(text)
        else:
            self._shown.say(f"  [dim]{_escape(text if known is None else f'{known[1]}: {text}')}[/]")


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is on the screen: the bar over all files, and below it a row for each chunk that is under way."""

    live: Live
    bar: Progress
    rows: Progress
    task: TaskID
    files: int

    @classmethod
    def of(cls, plan: BackfillPlan) -> _Shown:
        from rich.console import Console, Group  # noqa: PLC0415 - slow to load, and for terminals only
        from rich.live import Live  # noqa: PLC0415

        bar, rows = make_progress(average_s=_ALL_S), make_progress()
        files = sum(len(chunk.to_do) for chunk in plan.to_do)
        # By bytes: files may differ much in size, and the time left goes by this.
        size_bytes = sum(chunk.size_bytes for chunk in plan.to_do)
        task = bar.add_task(plain(plan.table), total=max(size_bytes, 1), amount=_of_files(0, files), files=0)
        live = Live(Group(bar, rows), console=Console(stderr=True), refresh_per_second=10, transient=True)
        return cls(live, bar, rows, task, files)

    def say(self, markup: str) -> None:
        """Print a line above the bar."""
        self.live.console.print(markup, highlight=False, soft_wrap=True)

    def advance(self, result: ChunkResult) -> None:
        """Move the bar by a chunk."""
        done = self.bar.tasks[0].fields["files"] + result.given
        self.bar.update(self.task, advance=result.size_bytes, files=done, amount=_of_files(done, self.files))


def _of_files(done: int, total: int) -> str:
    return f"{done:,} of {counted(total, 'file')}"


class _RowStep:
    def __init__(self, progress: Progress, row: TaskID) -> None:
        self._progress = progress
        self._row = row

    def progress(self, done: int, total: int, unit: str) -> None:
        amount = f"{size(done)} of {size(total)}" if unit == "bytes" else f"{done:,} of {total:,} {unit}"
        self._progress.update(self._row, amount=amount)


def watcher_for(app: App) -> Lines | LiveBackfill | None:
    """Return who tells of a backfill in this invocation; on a terminal it takes the narrator's place, too."""
    if app.logs is not None:
        return Lines(app.narrator.note)
    if app.quiet:
        return None
    if isinstance(app.narrator, LiveNarrator):
        live = LiveBackfill(app.narrator)
        app.narrator = live
        return live
    return Lines(lambda text: click.echo(text, err=True))


def told(result: ChunkResult) -> str:
    """Return what became of a chunk, in one line."""
    took = f", {duration(result.seconds)}"
    if result.outcome == "published":
        left = f"; {counted(result.left, 'file')} left to other runs" if result.left else ""
        return plain(f"{result.chunk}  published {counted(result.rows, 'row')}{left}{took}")
    return plain(f"{result.chunk}  {result.outcome}{_reason(result)}{took}")


def reason(result: ChunkResult) -> str:
    """Return why a chunk was not published; nothing when there is no more to say than its outcome."""
    if result.error is not None:
        return result.error.message
    if result.failed_checks:
        return ", ".join(result.failed_checks)
    return f"{counted(result.left, 'file')} left to other runs" if result.left else ""


def told_stopping(under_way: int) -> str:
    """Return what is said when somebody interrupts."""
    return f"Finishing {counted(under_way, 'chunk')}; interrupt again to leave them to the next command."


def _reason(result: ChunkResult) -> str:
    why = reason(result).removesuffix(".")
    return f": {why}" if why else ""


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _escape(text: str) -> str:
    from rich.markup import escape  # noqa: PLC0415 - slow to load, and loaded by now

    return escape(plain(text))
