"""A watch as people see it: a line for each thing that happens, and one for how it stands while nothing does."""

# ruff: noqa: PLC0415 - rich is slow to load, and logs need none
from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from lakegate.cli.render.runs import run_payload
from lakegate.cli.render.text import clip, counted, duration, json_safe, plain
from lakegate.intake.places import location
from lakegate.narration import bound_to

if TYPE_CHECKING:
    from lakegate.cli.app import App
    from lakegate.errors import LakegateError
    from lakegate.intake.rounds import Chunk, Round
    from lakegate.intake.watch import Summary
    from lakegate.model.journal import Landing
    from lakegate.model.run import Run

_TOLD = 20
_SPINNER_WIDTH = 3
_REFRESHED_PER_S = 2


class WatchView:
    """Implements :class:`lakegate.intake.watch.Observer`: lines on standard error, runs as JSON on standard output.

    Args:
        app: The invocation.
        paths: What is watched.
        max_tries: How often a file is tried.
        live: Whether standard error is a terminal, on which one line may change.
    """

    def __init__(self, app: App, paths: Sequence[str], *, max_tries: int, live: bool) -> None:
        self._app = app
        self._paths = ", ".join(paths)
        self._max_tries = max_tries
        self._live = live
        self._unrouted: set[str] = set()

    def say(self, word: str, text: str) -> None:
        """Write a line to standard error."""
        if not self._app.quiet:
            click.echo(plain(f"{word:<9}  {text}"), err=True)

    def looked(self, found: Round) -> None:
        """Tell of files that go nowhere, each once."""
        for uri, reason in found.unrouted:
            if uri not in self._unrouted:
                self._unrouted.add(uri)
                self.say("left out", f"{location(uri)}: {reason}")

    def took(self, chunk: Chunk, run: Run | None, noted: Collection[Landing]) -> None:
        """Tell what became of a chunk."""
        if run is None:
            self._tell_failure(chunk, noted)
            return
        with bound_to(run):
            self._tell_run(chunk, run, noted)
        if self._app.output == "json":
            click.echo(json.dumps(json_safe(run_payload(run)), ensure_ascii=False))

    def troubled(self, error: LakegateError, pause_s: float) -> None:
        """Tell what is away."""
        self.say("waiting", f"{error.message} Trying again in {duration(pause_s)}.")

    @contextmanager
    def waiting(self, summary: Summary, found: Round | None) -> Iterator[None]:
        """Show how things stand, on a terminal, for as long as the body waits."""
        if not self._live:
            yield
            return
        from rich.console import Console
        from rich.markup import escape

        console = Console(stderr=True)
        line = clip(plain(self.status(summary, found)), console.width - _SPINNER_WIDTH)
        with console.status(escape(line), refresh_per_second=_REFRESHED_PER_S):
            yield

    def status(self, summary: Summary, found: Round | None) -> str:
        """Return the line that shows how things stand."""
        facts = [f"Watching {self._paths}", f"{counted(summary.files, 'file')} done"]
        if summary.rows:
            facts.append(f"{counted(summary.rows, 'row')} published")
        if found is not None and found.settling:
            facts.append(f"{found.settling:,} still being written")
        if found is not None and found.waiting:
            facts.append(f"{found.waiting:,} to be tried again")
        if summary.given_up:
            facts.append(f"{counted(len(summary.given_up), 'file')} given up, such as {_told(summary)[0]}")
        if summary.trouble is not None:
            facts.append(summary.trouble.message)
        return " · ".join(facts)

    def summarise(self, summary: Summary) -> None:
        """Tell what was done, and what is left."""
        done = f"{counted(summary.published, 'run')} published {counted(summary.rows, 'row')}"
        self.say("ended", f"{done}; {counted(summary.files, 'file')} done, {summary.ended_badly:,} not.")
        for told in _told(summary)[:_TOLD]:
            self.say("given up", told)
        if summary.given_up:
            more = len(summary.given_up) - _TOLD
            others = f"And {more:,} more. " if more > 0 else ""
            self.say("", f"{others}They are taken up again when they change, or with --again.")
        if summary.settling:
            self.say("", f"{counted(summary.settling, 'file')} still being written: left for the next look.")
        if summary.left:
            self.say("", f"{counted(len(summary.left), 'file')} left to be tried again.")
        if summary.trouble is not None:
            self.say("", summary.trouble.message)

    def _tell_run(self, chunk: Chunk, run: Run, noted: Collection[Landing]) -> None:
        what = f"{chunk.table}: {_files(chunk)}"
        if run.publication is not None:
            took = "" if run.seconds is None else f" in {duration(run.seconds)}"
            self.say("published", f"{what}, {counted(run.publication.rows, 'row')}{took}, run {run.run_id}")
        elif run.status == "rejected":
            reason = next((landing.reason for landing in noted if landing.reason), "Its audit failed.")
            self.say("rejected", f"{what}: {reason} {self._outlook(chunk, noted)} Run {run.run_id}.")
        else:
            self.say(run.status, f"{what}: {run.detail or ''} Run {run.run_id}.")

    def _tell_failure(self, chunk: Chunk, noted: Collection[Landing]) -> None:
        reason = next((landing.reason for landing in noted if landing.reason), None)
        if reason is not None:
            self.say("failed", f"{chunk.table}: {_files(chunk)}: {reason} {self._outlook(chunk, noted)}")

    def _outlook(self, chunk: Chunk, noted: Collection[Landing]) -> str:
        landing = next(iter(noted), None)
        if landing is None or not chunk.alone:
            several = len(noted) > 1
            return f"{'They are' if several else 'It is'} taken {'one by one' if several else 'by itself'} now."
        if landing.outcome == "rejected" or landing.tries >= self._max_tries:
            return "Given up until it changes."
        return f"Try {landing.tries} of {self._max_tries}."


def _files(chunk: Chunk) -> str:
    return location(chunk.uris[0]) if chunk.alone else counted(len(chunk.uris), "file")


def _told(summary: Summary) -> list[str]:
    return [f"{location(landing.uri)}: {landing.reason or landing.outcome}" for landing in summary.given_up.values()]
