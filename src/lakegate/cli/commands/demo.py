"""``lakegate demo``: a tour that is a smoke test too. What it promises, it checks."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import output_option
from lakegate.cli.render.checks import show_failing
from lakegate.cli.render.console import add_row, echo_json, make_table, next_commands, safe, say, show
from lakegate.cli.render.runs import headline, run_payload
from lakegate.cli.render.text import count
from lakegate.config import HOME_NAME
from lakegate.errors import LakegateError

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.run import Run

TABLE = "demo.trips"
CHECKS = ("not_null(passenger_count)", "in_range(trip_distance, 0, 200)", "unique(trip_id)", "row_count(min=1)")
AWS_FOLDER = "demo-aws"
_ROWS = 100_000
_NULL_RATE = 0.01
_SEEDS = 2**31


class _Tour(NamedTuple):
    clean: Run
    dirty: Run
    rows_per_branch: list[tuple[str, int | None]]


@command("demo", examples=("lakegate demo", "lakegate demo --rows 10000", "lakegate demo --aws"))
@click.option(
    "--aws",
    "on_aws",
    is_flag=True,
    help="The whole way from an upload to S3: a function, queues and Slack, all on this machine.",
)
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the generated files go. Default: .lakegate/demo in the project. With --aws, a project of its own; "
    "default: .lakegate/demo-aws.",
)
@click.option("--rows", type=click.IntRange(min=1000), default=_ROWS, show_default=True, help="Rows in each file.")
@output_option()
@pass_app
def demo(app: App, /, *, on_aws: bool, folder: Path | None, rows: int, output: str) -> None:
    """See write–audit–publish at work: a clean batch is published, one with NULLs is not.

    Starts the local stack, generates taxi trips, and ingests them into demo.trips. Each run adds a new batch; nothing
    is asked of your own tables.

    With --aws, MiniStack stands in for AWS, with no account and no Docker: the function is deployed, three files are
    uploaded, and one is published, one rejected with an alert, one given up to the dead-letter queue. The first time,
    it fetches MiniStack and the function's packages, about 120 MB.
    """
    if on_aws:
        _demo_on_aws(app, folder or app.folder() / HOME_NAME / AWS_FOLDER, rows, output)
        return
    target = folder or app.folder() / HOME_NAME / "demo"
    _start_stack(app)
    clean, dirty = _generate(app, target, rows)
    with app.lake() as lake:
        tour = _run(lake, clean, dirty)
    _require(tour)
    if output == "json":
        branches = [{"branch": name, "rows": count} for name, count in tour.rows_per_branch]
        clean_run, dirty_run = run_payload(tour.clean), run_payload(tour.dirty)
        echo_json({"published": clean_run, "rejected": dirty_run, "rows_per_branch": branches})
    else:
        _show(app, tour)


def _demo_on_aws(app: App, folder: Path, rows: int, output: str) -> None:
    from lakegate.cli.demo_aws.tour import Plot, play  # noqa: PLC0415 - loads the lake
    from lakegate.cli.render.demo_aws import show_tour, tour_payload  # noqa: PLC0415 - likewise

    if app.engine is not None or app.catalog is not None:
        raise click.UsageError("--aws brings its own Spark and catalog: leave out --engine and --catalog.")
    tour = play(Plot(folder, TABLE, CHECKS, rows, app.generate), app.narrator)
    if output == "json":
        echo_json(tour_payload(tour, TABLE))
    else:
        show_tour(tour, TABLE)


def _start_stack(app: App) -> None:
    settings = app.settings()
    if settings.catalog.uri is None or settings.engine.url is None:
        app.stack().up()


def _generate(app: App, folder: Path, rows: int) -> tuple[list[str], list[str]]:
    seed = secrets.randbelow(_SEEDS)
    common: dict[str, Any] = {"rows": rows, "format": "parquet", "overwrite": True, "narrator": app.narrator}
    clean = app.generate(folder / "clean", files=2, null_rate=0.0, null_columns=(), seed=seed, **common)
    dirty = app.generate(
        folder / "nulls", files=1, null_rate=_NULL_RATE, null_columns=("passenger_count",), seed=seed + 1, **common
    )
    return [str(path) for path in clean], [str(path) for path in dirty]


def _run(lake: Lake, clean: list[str], dirty: list[str]) -> _Tour:
    published = lake.ingest(TABLE, clean, checks=CHECKS, on_failure="keep", on_changed="append")
    rejected = lake.ingest(TABLE, dirty, checks=CHECKS, on_failure="keep", on_changed="append")
    rows = [(ref.name, count) for ref, count in lake.rows_per_branch(TABLE)]
    return _Tour(published, rejected, rows)


def _require(tour: _Tour) -> None:
    """Fail when the tour did not go as told: then something is broken."""
    if tour.clean.status != "published":
        raise LakegateError(
            f"The clean batch was {tour.clean.status}, it should have been published.",
            hint=f"lakegate runs {tour.clean.run_id}",
        )
    failed = [result.columns for result in tour.dirty.failures]
    if tour.dirty.status != "rejected" or failed != [("passenger_count",)]:
        raise LakegateError(
            f"The batch with NULLs was {tour.dirty.status}; it should have been rejected for passenger_count alone.",
            hint=f"lakegate runs {tour.dirty.run_id}",
        )
    if tour.dirty.branch not in dict(tour.rows_per_branch):
        raise LakegateError(f"Branch {tour.dirty.branch} should have been kept, and is not there.")


def _show(app: App, tour: _Tour) -> None:
    branch = tour.dirty.branch
    say("[bold]1. A clean batch[/]", f"   [bold green]published[/]  {headline(tour.clean)}", "")
    say("[bold]2. A batch with NULLs in passenger_count[/]", f"   [bold red]rejected[/]  {headline(tour.dirty)}")
    show_failing("Failed checks", tour.dirty.failures, "red")
    say("", f"[bold]3. What readers of main see, and what is kept aside[/]  rows of {TABLE}")
    table = make_table("branch", "rows", right=("rows",))
    for name, rows in tour.rows_per_branch:
        add_row(table, name, count(rows), style="green" if name == "main" else None)
    show(table, indent=2)
    say("", f"The rejected batch stays on branch [bold]{safe(branch)}[/]; main is as it was.")
    count_rows = f"SELECT count(*) FROM {TABLE}"  # noqa: S608 - shown, not run
    nulls = f"SELECT * FROM {TABLE} WHERE passenger_count IS NULL LIMIT 10"  # noqa: S608 - shown, not run
    next_commands(
        ("Nothing with a NULL has reached main", app.command("query", count_rows)),
        ("Look at the rejected rows", app.command("query", nulls, "--ref", branch)),
        ("See what the branch changes", app.command("diff", "main", branch)),
        ("Drop it", app.command("discard", branch)),
        ("See all runs", app.command("runs")),
        ("Stop the local stack", app.command("down")),
    )
