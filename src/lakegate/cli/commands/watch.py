"""``lakegate watch``."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, get_args

import click

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.completions import tables
from lakegate.cli.options import check_option, output_option
from lakegate.errors import InputError
from lakegate.model.durations import parse_duration
from lakegate.model.order import OnChanged, OnFailure

if TYPE_CHECKING:
    from lakegate.config import WatchSettings
    from lakegate.intake.feeds import Feed
    from lakegate.intake.places import Places
    from lakegate.intake.routes import Routes
    from lakegate.intake.watch import Watch
    from lakegate.lake import Lake
    from lakegate.lake.writing import IngestOptions

_STOPPING = b"\nStopping after the run under way. Press Ctrl-C again to give that up.\n"


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    return None if value is None else parse_duration(value).total_seconds()


@command(
    "watch",
    examples=(
        "lakegate watch landing/ --table nyc.trips -c 'not_null(passenger_count)'",
        "lakegate watch landing/ --route 'landing/{namespace}/{table}/*.parquet' --every 5m",
        "lakegate watch 'landing/*.csv' --table nyc.trips --once -o json",
    ),
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option("--table", metavar="TABLE", shell_complete=tables, help="The table all files go to.")
@click.option(
    "--route",
    "routes",
    multiple=True,
    metavar="PATTERN",
    help="Which table each file goes to: 'landing/{namespace}/{table}/*.parquet', or "
    "'landing/{table}-*.csv => nyc.{table}'. Repeatable. Default: watch.routes.",
)
@click.option("--every", metavar="TIME", callback=_seconds, help="Look every 30s, 5m, 1h; listen to no events.")
@click.option("--on-event", is_flag=True, help="Look when a local folder changes (the default where there is one).")
@click.option("--once", is_flag=True, help="Take what is there, and end; for cron and the like.")
@click.option("--wait", is_flag=True, help="Wait for a PATH that does not exist yet.")
@click.option("--again", is_flag=True, help="Take up files again that were rejected or given up before.")
@check_option("A rule each file must keep, beside those of the table's settings. Repeatable.")
@click.option("--settle", metavar="TIME", callback=_seconds, help="Take files that were unchanged for so long: 5s.")
@click.option("--max-files", type=click.IntRange(min=1), metavar="N", help="Files in one run, at most.")
@click.option("--max-tries", type=click.IntRange(min=1), metavar="N", help="Tries before a file is given up.")
@click.option("--on-failure", type=click.Choice(get_args(OnFailure)), help="What becomes of a rejected file's branch.")
@click.option(
    "--on-changed",
    type=click.Choice(get_args(OnChanged)),
    help="A file published before with other content: refuse it, append its rows, or replace the old ones.",
)
@click.option("--format", type=click.Choice(["parquet", "csv"]), help="Default: by the files' names.")
@output_option()
@pass_app
def watch(app: App, /, *, output: str, **given: Any) -> None:
    """Ingest new files as they come, until stopped.

    PATH is a file, a folder or a pattern. A file is taken when it has not changed for a while, and published once; what
    became of it is in the journal, so that another start goes on from there, even after a crash.

    Files that come together go into one run. If that fails, or is rejected, its files are taken one by one: a bad file
    stops no other. It is given up when its audit failed, or after some tries, until it changes.

    Ctrl-C or SIGTERM ends it after the run under way, with 0. With --once it exits with 0 when all is well, with 1 when
    a file was given up, and with 3 when something must be tried again.
    """
    del output  # the application knows it
    from lakegate.cli.render.watch import WatchView  # noqa: PLC0415

    settings = app.settings().watch
    max_tries = given["max_tries"] or settings.max_tries
    view = WatchView(app, given["paths"], max_tries=max_tries, live=_is_live(app))
    with ExitStack() as opened:
        watching = _watch(app, given, settings, view, opened)
        try:
            with _stopped_by_signals(watching):
                summary = watching.run()
        finally:
            view.summarise(watching.summary)
    if given["once"]:
        raise click.exceptions.Exit(summary.exit_code)


def _watch(app: App, given: dict[str, Any], settings: WatchSettings, view: Any, opened: ExitStack) -> Watch:
    from lakegate.intake.places import Places  # noqa: PLC0415
    from lakegate.intake.rounds import Intake  # noqa: PLC0415
    from lakegate.intake.watch import Watch  # noqa: PLC0415

    lakes = opened.enter_context(ExitStack())

    def reopen() -> Lake:
        lakes.close()
        return lakes.enter_context(app.lake())

    paths = list(given["paths"])
    places = Places(paths, given["format"])
    routes = _routes(given, settings)
    options = _options(given)
    if not given["wait"]:
        _require_there(places)
    feed = _feed(given, settings, places)
    opened.callback(feed.close)
    settle_s = settings.settle_s if given["settle"] is None else given["settle"]
    intake = Intake(
        reopen(),
        paths,
        routes,
        options=options,
        settle_s=settle_s,
        max_files=given["max_files"] or settings.max_files,
        max_bytes=settings.max_bytes,
        max_tries=given["max_tries"] or settings.max_tries,
        again=given["again"],
    )
    return Watch(intake, feed, view, reopen=reopen, once=given["once"], settle_s=settle_s)


def _routes(given: dict[str, Any], settings: WatchSettings) -> Routes:
    from lakegate.intake.routes import Routes  # noqa: PLC0415

    if given["table"] and given["routes"]:
        raise click.UsageError("--table sends all files to one table; it does not go with --route.")
    if given["table"]:
        return Routes.to(given["table"])
    patterns = given["routes"] or settings.routes
    if not patterns:
        raise click.UsageError("Say which table the files go to: --table namespace.table, or --route PATTERN.")
    return Routes(patterns)


def _options(given: dict[str, Any]) -> IngestOptions:
    from lakegate.audits import parse_checks  # noqa: PLC0415

    checks = [check for text in given["checks"] for check in parse_checks(text)]
    return {
        "checks": checks,
        "on_failure": given["on_failure"],
        "on_changed": given["on_changed"],
        "format": given["format"],
    }


def _require_there(places: Places) -> None:
    missing = places.missing()
    if missing:
        raise InputError(
            f"'{missing[0]}' does not exist.",
            hint="Check the path, or add --wait to wait until it is there.",
            path=missing[0],
        )


def _feed(given: dict[str, Any], settings: WatchSettings, places: Places) -> Feed:
    from lakegate.intake.feeds import EventFeed, PollingFeed  # noqa: PLC0415

    if given["every"] is not None and given["on_event"]:
        raise click.UsageError("--every looks by the clock; it does not go with --on-event.")
    if given["every"] == 0:
        raise click.UsageError("--every must be longer than nothing.")
    if given["on_event"] and not places.are_local:
        raise click.UsageError("--on-event needs a local folder; other places are looked at by --every.")
    every_s = given["every"] or parse_duration(settings.every).total_seconds()
    if given["every"] is not None or given["once"] or not places.are_local:
        return PollingFeed(every_s)
    return EventFeed(places.folders, every_s)


def _is_live(app: App) -> bool:
    from lakegate.cli.narration import LiveNarrator  # noqa: PLC0415

    return isinstance(app.narrator, LiveNarrator)


@contextmanager
def _stopped_by_signals(watching: Watch) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the watch after the run under way, and the second at once."""
    asked = False

    def stop(_signal: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        watching.stop()
        if sys.stderr.isatty():
            # A handler may come in the middle of another print, which a stream's own buffer would not survive.
            os.write(2, _STOPPING)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
