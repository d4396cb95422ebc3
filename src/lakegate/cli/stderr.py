"""Standard error: spinners and bars on a terminal, a log of JSON lines, or nothing."""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from lakegate.cli.output import safe
from lakegate.errors import LakegateError
from lakegate.model.words import duration, size
from lakegate.progress import SHORTEST_SECRET, LogNarrator, SilentNarrator, about, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, TaskID

    from lakegate.ports import Narrator, Step


def make_narrator(*, quiet: bool) -> Narrator:
    """Return a live narrator if standard error is a terminal, otherwise a silent one."""
    live = not quiet and sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return LiveNarrator() if live else SilentNarrator()


class LiveNarrator:
    """Shows steps with a spinner, elapsed time and, where the amount of work is known, a bar and the time left.

    A finished step leaves one line. Steps may nest.
    """

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._open = 0

    @contextmanager
    def step(self, text: str) -> Iterator[Step]:
        """Show ``text`` while the body runs."""
        progress = self._enter()
        task = progress.add_task(one_line(text), total=None, amount="")
        started = monotonic()
        done = False
        try:
            yield LiveStep(progress, task)
            done = True
        finally:
            progress.remove_task(task)
            mark = "[green]✓[/]" if done else "[red]✗[/]"
            progress.console.print(f"{mark} {safe(text)} [dim]{duration(monotonic() - started)}[/]", highlight=False)
            self._leave()

    def note(self, text: str) -> None:
        """Print ``text`` above the steps in progress."""
        from rich.console import Console
        from rich.padding import Padding
        from rich.text import Text

        console = Console(stderr=True) if self._progress is None else self._progress.console
        console.print(Padding(Text.from_markup(f"[dim]{safe(text)}[/]"), (0, 0, 0, 2), expand=False))

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


class LiveStep:
    """Shows how much of a step is done, such as ``1.2 MB of 3.0 MB`` or ``2 of 9 files``, with a bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def progress(self, done: int, total: int, unit: str) -> None:
        """Show ``done`` of ``total``."""
        amount = f"{size(done)} of {size(total)}" if unit == "bytes" else f"{done:,} of {total:,} {unit}"
        # Zero of zero isn't "finished": the total isn't known yet.
        self._progress.update(self._task, amount=amount, completed=done, total=total or None)


_WIDE = 100
"""Characters of a terminal that has room for a longer bar."""


def make_progress(*, average_s: float = 30.0) -> Progress:
    """Return a display of steps on standard error. It estimates the time left from the last ``average_s`` seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Bar(ProgressColumn):
        def render(self, task: Task) -> RenderableType:  # no bar if the total is unknown
            return Text() if task.total is None else bar.render(task)

    class Description(TextColumn):
        def render(self, task: Task) -> Text:  # cut where the other columns leave too little room
            text = super().render(task)
            text.no_wrap, text.overflow = True, "ellipsis"
            return text

    class Times(ProgressColumn):
        def render(self, task: Task) -> Text:
            left = "" if task.time_remaining is None else f", about {duration(task.time_remaining)} left"
            return Text(f"{duration(task.elapsed or 0)}{left}", style="dim")

    console, whole = Console(stderr=True), Column(no_wrap=True)
    bar = BarColumn(bar_width=24 if console.width >= _WIDE else 12)
    return Progress(
        SpinnerColumn(),
        Description("{task.description}", markup=False, table_column=Column()),
        Bar(table_column=whole),
        TextColumn("{task.fields[amount]}", style="dim", markup=False),
        Times(table_column=whole),
        console=console,
        transient=True,
        speed_estimate_period=average_s,
    )


_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD")


def secret_variables(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the values of secret environment variables: those that ``settings`` reference, and well-known ones."""
    values = (os.environ.get(name, "") for name in (*_SECRET_VARIABLES, *_references(settings)))
    return tuple(value for value in values if len(value) >= SHORTEST_SECRET)


def _references(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, str) and value.startswith("env:"):
        yield value.removeprefix("env:")


class Logs:
    """Standard error as JSON lines, for progress, the logs and warnings of libraries, and any other text.

    Args:
        command: The command's name, such as ``branch list``.
        debug: Write tracebacks, and everything that libraries log.
        hidden: Secrets, which are never written.
    """

    def __init__(self, command: str | None, *, quiet: bool, debug: bool, hidden: tuple[str, ...]) -> None:
        self.narrator = _Narrator(sys.stderr, level="warning" if quiet else "info", hidden=hidden, command=command)
        self._debug = debug
        self._began = monotonic()
        self._stderr = sys.stderr
        self._text = _LineStream(self.narrator)
        self._handler = self.narrator.handler()
        self._levels = {logging.getLogger(): logging.INFO if debug else logging.WARNING}
        self._levels[logging.getLogger("lakegate")] = logging.INFO
        self._levels_before = {logger: logger.level for logger in self._levels}
        sys.stderr = self._text
        logging.getLogger().addHandler(self._handler)
        logging.captureWarnings(capture=True)
        for logger, level in self._levels.items():
            logger.setLevel(level)

    def error(self, facts: Mapping[str, Any], exit_code: int, error: BaseException | None = None) -> None:
        """Write the error that ended the command. ``facts`` come from ``LakegateError.to_dict``."""
        error_facts = {key: facts[key] for key in ("code", "message", "hint", "context")}
        if self._debug and error is not None:
            # Its causes are other programs' errors, which may quote values.
            chain = not isinstance(error, LakegateError)
            error_facts["exception"] = "".join(traceback.format_exception(error, chain=chain))
        known = facts["context"]
        run = self._only_run() | {key: known[key] for key in ("run_id", "table", "branch") if key in known}
        self.narrator.line(logging.ERROR, facts["message"], **run, **error_facts, exit_code=exit_code)

    def close(self, exit_code: int) -> None:
        """Write how the command ended, and restore standard error."""
        self._text.finish()
        seconds = round(monotonic() - self._began, 3)
        event = f"Ended with exit code {exit_code}"
        self.narrator.line(logging.INFO, event, **self._only_run(), exit_code=exit_code, seconds=seconds)
        for logger, level in self._levels_before.items():
            logger.setLevel(level)
        logging.captureWarnings(capture=False)
        logging.getLogger().removeHandler(self._handler)
        sys.stderr = self._stderr

    def _only_run(self) -> dict[str, object]:
        """Return the facts of the command's run, if it had exactly one."""
        runs = self.narrator.runs
        return dict(next(iter(runs.values()))) if len(runs) == 1 else {}


class _Narrator(LogNarrator):
    """Remembers the command's runs, except those it recovered."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.runs: dict[object, Mapping[str, object]] = {}

    def line(self, level: int, event: str, **facts: object) -> None:
        known = about()
        if known.get("run_id") and known.get("step") != "recover":
            self.runs[known["run_id"]] = {key: known.get(key) for key in ("run_id", "table", "branch")}
        super().line(level, event, **facts)


class _LineStream(io.TextIOBase):
    """A text stream that turns its lines into lines of the log."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, narrator: LogNarrator) -> None:
        self._narrator = narrator
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(str.strip, lines):
            self._narrator.line(logging.INFO, line.rstrip())
        return len(text)

    def finish(self) -> None:
        """Write the last, unterminated line."""
        self.write("\n")
