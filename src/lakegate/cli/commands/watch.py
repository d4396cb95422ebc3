"""Ingest new files as they arrive."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from lakegate.cli.app import App, command
from lakegate.cli.options import complete_branches, complete_tables, ingest_options, ingest_options_from, span
from lakegate.cli.output import clip
from lakegate.cli.run_output import run_payload
from lakegate.cli.stderr import LiveNarrator
from lakegate.cli.streams import as_json, lost_output
from lakegate.cli.wrapping import tell
from lakegate.errors import ExitCode, LakegateError
from lakegate.loading.routes import location
from lakegate.model.rows import json_safe
from lakegate.model.words import counted, duration, parse_duration
from lakegate.progress import bound_to, one_line

if TYPE_CHECKING:
    from lakegate.config import WatchSettings
    from lakegate.lake import Lake
    from lakegate.loading.routes import Routes, WatchedPaths
    from lakegate.loading.scan import Chunk, Scan
    from lakegate.loading.streams import StreamWatch
    from lakegate.loading.watch import Feed, Summary, Watch
    from lakegate.model.run import FileCheckpoint, Run

_STOPPING = b"\nStopping after the current run. Press Ctrl-C again to stop now.\n"
_SHOWN = 20
_SPINNER_WIDTH = 3
_REFRESHED_PER_S = 2


@command(
    "watch",
    makes_run=True,
    examples=(
        "lakegate watch landing/ --table nyc.trips -c 'not_null(passenger_count)'",
        "lakegate watch landing/ --route 'landing/{namespace}/{table}/*.parquet' --every 5m",
        "lakegate watch 'landing/*.csv' --table nyc.trips --once -o json",
        "lakegate watch --branch stream/orders --every 1m",
    ),
)
@click.argument("paths", nargs=-1, metavar="[PATH...]", type=click.Path())
@click.option(
    "--branch",
    "stream",
    metavar="BRANCH",
    shell_complete=complete_branches,
    help="Instead of files: what another engine appends to BRANCH, which `lakegate gate open` has opened.",
)
@click.option("--table", metavar="TABLE", shell_complete=complete_tables, help="Table that all files go to.")
@click.option(
    "--route",
    "routes",
    multiple=True,
    metavar="PATTERN",
    help="Which files go to which table: 'landing/{namespace}/{table}/*.parquet' or "
    "'landing/{table}-*.csv => nyc.{table}'. Repeatable. Default: watch.routes.",
)
@click.option(
    "--every", metavar="TIME", type=span, help="Scan at this interval, such as 5m, instead of on file events."
)
@click.option("--on-event", is_flag=True, help="Scan when a local folder changes. The default for local folders.")
@click.option("--once", is_flag=True, help="Ingest what's there and exit, for example from cron.")
@click.option("--wait", is_flag=True, help="Wait for a PATH that doesn't exist yet.")
@click.option("--again", is_flag=True, help="Retry files that were rejected or given up.")
@click.option(
    "--settle", metavar="TIME", type=span, help="Ingest files that haven't changed for this long, such as 5s."
)
@click.option("--max-files", type=click.IntRange(min=1), metavar="N", help="Maximum number of files in one run.")
@click.option("--max-tries", type=click.IntRange(min=1), metavar="N", help="Attempts before a file is given up.")
@ingest_options(checked="each file", branch_of="file")
def watch(app: App, /, **given: Any) -> None:
    """Ingest new files as they arrive, until you stop it.

    PATH is a file, a folder or a pattern. A file is ingested once it hasn't changed for a while (--settle), and each
    version of it is published once. The journal records what happened to every file, so watch continues where it
    stopped, even after a crash. The same bytes at another path count as another file.

    Files that arrive together go into one run. If that run fails or is rejected, its files are ingested one by one, so
    a bad file doesn't hold up the others. A file is given up when its audit fails, or after --max-tries failed
    attempts, until it changes.

    Ctrl-C or SIGTERM stops it after the current run, with exit code 0. With --once, exits with 0 if all is well, with 1
    if a file was given up, and with 3 if a file must be retried: because it failed, because another process has it,
    because it comes after such a file and may change the same rows, or because you stopped the command before.

    With --branch, what a writer has appended to that branch since the last time is audited and published as a run of
    its own, while the writer goes on. If its audit fails, its rows are kept on a branch, and nothing later is published
    until that branch is published with a reason, or discarded.
    """
    if given["stream"]:
        _watch_stream(app, given)
        return
    if not given["paths"]:
        raise click.UsageError("Name the PATHs to watch, or a branch: --branch BRANCH.")
    settings = app.settings().watch
    view = WatchView(app, given["paths"], max_tries=given["max_tries"] or settings.max_tries)
    with ExitStack() as opened:
        watching = _watch(app, given, settings, view, opened)
        view.on_output_lost = watching.stop
        try:
            with _stopped_by_signals(watching):
                summary = watching.run()
        finally:
            view.summarise(watching.summary)
    if given["once"]:
        raise click.exceptions.Exit(summary.exit_code)


def _watch_stream(app: App, given: dict[str, Any]) -> None:
    from lakegate.loading.streams import StreamWatch

    context = click.get_current_context()
    others = (name for name, value in given.items() if value and name not in {"stream", "every", "once"})
    if any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in others):
        raise click.UsageError("With --branch, watch takes only --every and --once.")
    every_s = (given["every"] or parse_duration(app.settings().watch.every)).total_seconds()
    with app.lake() as lake:
        watching = StreamWatch(lake, given["stream"], StreamView(app), every_s=every_s, once=given["once"])
        with _stopped_by_signals(watching):
            run = watching.run()
    if given["once"] and run is not None and run.status == "rejected":
        raise click.exceptions.Exit(ExitCode.AUDIT_FAILED)


def _watch(app: App, given: dict[str, Any], settings: WatchSettings, view: WatchView, opened: ExitStack) -> Watch:
    from lakegate.checks import parse_checks
    from lakegate.loading.routes import WatchedPaths, require_there
    from lakegate.loading.scan import FileLoader
    from lakegate.loading.watch import Watch

    lakes = opened.enter_context(ExitStack())

    def reopen() -> Lake:
        lakes.close()
        return lakes.enter_context(app.lake(may_create_project=True))

    routes = _routes(given, settings)
    checks = [check for text in given["checks"] for check in parse_checks(text)]
    if not given["wait"]:
        require_there(given["paths"], hint="Check the path, or pass --wait to wait for it.")
    feed = _feed(given, settings, WatchedPaths(given["paths"]))
    opened.callback(feed.close)
    settle_s = settings.settle_s if given["settle"] is None else given["settle"].total_seconds()
    loader = FileLoader(
        reopen(),
        given["paths"],
        routes,
        options=replace(ingest_options_from(given), checks=checks),
        settle_s=settle_s,
        max_files=given["max_files"] or settings.max_files,
        max_bytes=settings.max_bytes,
        max_tries=view.max_tries,
        again=given["again"],
    )
    every = app.settings().maintenance.every
    upkeep = _PeriodicMaintenance(parse_duration(every).total_seconds(), view) if every is not None else lambda _: None
    return Watch(loader, feed, view, reopen=reopen, once=given["once"], settle_s=settle_s, upkeep=upkeep)


def _routes(given: dict[str, Any], settings: WatchSettings) -> Routes:
    from lakegate.loading.routes import Routes

    if given["table"] and given["routes"]:
        raise click.UsageError("--table and --route can't be combined: --table sends all files to one table.")
    if given["table"]:
        return Routes.to(given["table"])
    patterns = given["routes"] or settings.routes
    if not patterns:
        raise click.UsageError("No table is set for the files. Pass --table namespace.table or --route PATTERN.")
    return Routes(patterns)


def _feed(given: dict[str, Any], settings: WatchSettings, places: WatchedPaths) -> Feed:
    from lakegate.loading.watch import EventFeed, PollingFeed

    if given["every"] is not None and given["on_event"]:
        raise click.UsageError("--every and --on-event can't be combined.")
    if given["every"] is not None and not given["every"]:
        raise click.UsageError("--every must be greater than zero.")
    if given["on_event"] and not places.are_local:
        raise click.UsageError("--on-event needs a local folder. For other places, use --every.")
    every_s = (given["every"] or parse_duration(settings.every)).total_seconds()
    if given["every"] is not None or given["once"] or not places.are_local:
        return PollingFeed(every_s)
    return EventFeed(places.folders, every_s)


@contextmanager
def _stopped_by_signals(watching: Watch | StreamWatch) -> Iterator[None]:
    """Stop the watch at the first Ctrl-C or SIGTERM after the current run, and at the second one immediately."""
    is_stopping = False

    def stop(_signal: int, _frame: object) -> None:
        nonlocal is_stopping
        if is_stopping:
            raise KeyboardInterrupt
        is_stopping = True
        watching.stop()
        if sys.stderr.isatty():
            # Not through the stream: the signal may have interrupted another print, and its buffer isn't reentrant.
            os.write(2, _STOPPING)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _PeriodicMaintenance:
    """Maintains the lake's tables when the interval since the last maintenance, by any process, has passed."""

    def __init__(self, every_s: float, view: WatchView) -> None:
        self._every_s = every_s
        self._view = view
        self._due: float | None = None

    def __call__(self, lake: Lake) -> None:
        now = time.monotonic()
        try:
            if self._due is None:
                last = next(iter(lake.runs(kind="maintenance", limit=1)), None)
                since_s = math.inf if last is None else (datetime.now(UTC) - last.started_at).total_seconds()
                self._due = now + self._every_s - min(max(since_s, 0.0), self._every_s)
            if now < self._due:
                return
            self._due = now + self._every_s
            report = lake.maintenance.maintain()
        except LakegateError as error:
            self._view.say("waiting", f"Maintenance: {error.message}")
            return
        for step in report.failures:
            self._view.say("failed", f"Maintenance of {step.table}: {step.error.message if step.error else ''}")
        done = [step for step in report.steps if step.status == "done"]
        if done:
            self._view.say("maintained", ", ".join(f"{step.table} ({step.action})" for step in done[:_SHOWN]))


class WatchView:
    """Implements :class:`lakegate.loading.watch.WatchObserver`: lines on stderr, runs and errors as JSON on stdout."""

    def __init__(self, app: App, paths: Sequence[str], *, max_tries: int) -> None:
        self._app = app
        self._paths = ", ".join(paths)
        self.max_tries = max_tries
        self._unrouted: set[str] = set()
        self.on_output_lost: Callable[[], None] = lambda: None
        """Called when nobody reads the runs on standard output any more."""

    def say(self, word: str, text: str) -> None:
        """Write a line to standard error."""
        if not self._app.quiet:
            tell(one_line(f"{word:<9}  {text}"))

    def scanned(self, found: Scan) -> None:
        """Report files that no route matches, each only once."""
        for uri, reason in found.unrouted:
            if uri not in self._unrouted:
                self._unrouted.add(uri)
                self.say("ignored", f"{location(uri)}: {reason}")

    def ingested(
        self, chunk: Chunk, run: Run | None, saved: Collection[FileCheckpoint], failure: LakegateError | None
    ) -> None:
        """Report how a chunk's run ended, or why there's none."""
        if run is not None:
            with bound_to(run):
                self._report_run(chunk, run, saved)
            self._print_json(run_payload(run))
            return
        reason = next((checkpoint.reason for checkpoint in saved if checkpoint.reason), None)
        if reason is not None:
            ended = reason if reason.endswith((".", "…")) else f"{reason}."
            self.say("failed", f"{chunk.table}: {_files(chunk)}: {ended} {self._outlook(chunk, saved)}")
        if failure is not None:
            facts = {"table": chunk.table, "files": list(map(location, chunk.uris))}
            self._print_json({"error": {**failure.to_dict(), "context": {**failure.context, **facts}}})

    def backing_off(self, error: LakegateError, pause_s: float) -> None:
        """Report a service that is unavailable."""
        self.say("waiting", f"{error.message} Retrying in {duration(pause_s)}.")

    @contextmanager
    def waiting(self, summary: Summary) -> Iterator[None]:
        """Show the status line, on a terminal, while the body waits."""
        if not isinstance(self._app.narrator, LiveNarrator):
            yield
            return
        from rich.console import Console
        from rich.markup import escape

        console = Console(stderr=True)
        line = clip(one_line(self._status(summary)), console.width - _SPINNER_WIDTH)
        with console.status(escape(line), refresh_per_second=_REFRESHED_PER_S):
            yield

    def _status(self, summary: Summary) -> str:
        facts = [f"Watching {self._paths}", f"{counted(summary.files, 'file')} done"]
        if summary.rows:
            facts.append(f"{counted(summary.rows, 'row')} published")
        if summary.settling:
            facts.append(f"{summary.settling:,} still being written")
        if summary.unfinished:
            facts.append(f"{summary.unfinished:,} to be retried")
        if summary.given_up:
            facts.append(f"{counted(len(summary.given_up), 'file')} given up, such as {_reasons(summary)[0]}")
        if summary.trouble is not None:
            facts.append(summary.trouble.message)
        return " · ".join(facts)

    def summarise(self, summary: Summary) -> None:
        """Report what was done and what is left."""
        done = f"{counted(summary.published, 'run')} published {counted(summary.rows, 'row')}"
        self.say("ended", f"{done}; {counted(summary.files, 'file')} done, {summary.ended_badly:,} not done.")
        for reason in _reasons(summary)[:_SHOWN]:
            self.say("given up", reason)
        if summary.given_up:
            more = len(summary.given_up) - _SHOWN
            others = f"And {more:,} more. " if more > 0 else ""
            self.say("", f"{others}They are retried when they change, or with --again.")
        if summary.settling:
            self.say("", f"{counted(summary.settling, 'file')} still being written; left for the next scan.")
        if summary.unfinished:
            self.say("", f"{counted(summary.unfinished, 'file')} left to retry.")
        if summary.has_more:
            self.say("", "Not all files were scanned.")
        if summary.trouble is not None:
            self.say("", summary.trouble.message)
            self._print_json({"error": summary.trouble.to_dict()})

    def _print_json(self, payload: Mapping[str, Any]) -> None:
        if self._app.json:
            click.echo(as_json(json_safe(payload)))
            if lost_output() is not None:
                self.on_output_lost()

    def _report_run(self, chunk: Chunk, run: Run, saved: Collection[FileCheckpoint]) -> None:
        what = f"{chunk.table}: {_files(chunk)}"
        if run.publication is not None:
            took = "" if run.seconds is None else f" in {duration(run.seconds)}"
            self.say("published", f"{what}, {counted(run.publication.rows, 'row')}{took}, run {run.run_id}")
        elif run.status == "rejected":
            reason = next((checkpoint.reason for checkpoint in saved if checkpoint.reason), "Its audit failed.")
            self.say("rejected", f"{what}: {reason} {self._outlook(chunk, saved)} Run {run.run_id}.")
        else:
            self.say(run.status, f"{what}: {run.detail or ''} Run {run.run_id}.")

    def _outlook(self, chunk: Chunk, saved: Collection[FileCheckpoint]) -> str:
        checkpoint = next(iter(saved), None)
        if checkpoint is None or not chunk.alone:
            return "Retrying them one by one." if len(saved) > 1 else "Retrying it alone."
        if checkpoint.outcome == "rejected" or checkpoint.tries >= self.max_tries:
            return "Given up until it changes."
        return f"Attempt {checkpoint.tries} of {self.max_tries}."


class StreamView:
    """Implements :class:`lakegate.loading.streams.StreamObserver`: lines on stderr, runs as JSON on stdout."""

    def __init__(self, app: App) -> None:
        self._app = app

    def ended(self, run: Run) -> None:
        """Report how a slice's run ended."""
        rows = run.publication.rows if run.publication is not None else sum(one.rows for one in run.staged)
        failed = "".join(f"; {report.table}: {one.name} failed" for report in run.reports for one in report.failures)
        self._say(run.status, f"{run.table}: {counted(rows, 'row')}{failed}, run {run.run_id}")
        if self._app.json:
            click.echo(as_json(json_safe(run_payload(run))))

    def waiting(self, error: LakegateError) -> None:
        """Report why nothing is published for now."""
        self._say("waiting", f"{error.message} {error.hint or ''}".rstrip())

    def _say(self, word: str, text: str) -> None:
        if not self._app.quiet:
            tell(one_line(f"{word:<9}  {text}"))


def _files(chunk: Chunk) -> str:
    return location(chunk.uris[0]) if chunk.alone else counted(len(chunk.uris), "file")


def _reasons(summary: Summary) -> list[str]:
    return [
        f"{location(checkpoint.uri)}: {checkpoint.reason or checkpoint.outcome}"
        for checkpoint in summary.given_up.values()
    ]
