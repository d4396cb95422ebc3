"""``lakegate runs``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

import click

from lakegate.cli import completions
from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import limit_option, output_option
from lakegate.cli.render import runs as render
from lakegate.cli.render.console import echo_json
from lakegate.cli.render.onerun import show_details
from lakegate.cli.render.picture import MOST_COMMITS
from lakegate.cli.render.skipped import statuses_of
from lakegate.errors import ConfigurationError, LakegateError
from lakegate.model.durations import parse_duration
from lakegate.model.run import RunKind, RunStatus

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.refs import Commit
    from lakegate.model.run import Run


def _moment(_ctx: click.Context, _param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        return datetime.now(UTC) - parse_duration(value)
    except (ConfigurationError, OverflowError):
        pass
    try:
        given = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"'{value}' is neither a time (2026-01-31T07:00:00Z) nor a length of time (90m, 24h, 7d)."
        ) from None
    return given if given.tzinfo is not None else given.replace(tzinfo=UTC)


@command(
    "runs",
    examples=(
        "lakegate runs",
        "lakegate runs --table nyc.trips --status rejected --since 7d",
        "lakegate runs --kind transaction --since 2026-01-31T07:00:00Z -o json",
        "lakegate runs 20260131T0705",
    ),
)
@click.argument("run", required=False, shell_complete=completions.runs)
@click.option("--table", metavar="TABLE", help="Only runs of this table.", shell_complete=completions.tables)
@click.option("--status", type=click.Choice(get_args(RunStatus)), help="Only runs that stand so.")
@click.option("--kind", type=click.Choice(get_args(RunKind)), help="Only runs that were started so.")
@click.option(
    "--since", metavar="TIME|SPAN", callback=_moment, help="Only runs begun since then: 2026-01-31T07:00:00Z, 24h, 7d."
)
@limit_option(50)
@output_option()
@pass_app
def runs(app: App, /, *, run: str | None, limit: int, output: str, **filters: Any) -> None:
    """List runs, newest first; or show one RUN (its id, or the start of it).

    One run is shown with its way past main, the time of each step, its files, and its audit report. A run's id begins
    with the time it was started, in UTC.
    """
    given = [f"--{name}" for name, value in filters.items() if value is not None]
    if run is not None and given:
        raise click.UsageError(f"{', '.join(given)} choose from the list; they do not go with a RUN.")
    with app.lake() as lake:
        if run is None:
            _list(lake.runs(**filters, limit=limit), output)
        else:
            _show(app, lake, lake.run(run), output)


def _list(found: Sequence[Run], output: str) -> None:
    if output == "json":
        echo_json([render.journal_payload(one) for one in found])
    elif found:
        render.show_runs(found)
    else:
        click.echo("No runs.", err=True)


def _show(app: App, lake: Lake, run: Run, output: str) -> None:
    if output == "json":
        echo_json(render.journal_payload(run))
    else:
        show_details(app, run, statuses_of(lake, run.skipped_files), _newer(app, lake, run))


def _newer(app: App, lake: Lake, run: Run) -> Sequence[Commit]:
    """Return what main got between the run's base and its publish, where that can be asked for without a wait."""
    if run.publication is not None and run.base is not None:
        with suppress(LakegateError):
            if app.catalog_answers():
                return lake.commits_before(run, limit=MOST_COMMITS)
    return ()
