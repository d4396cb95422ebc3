"""See write–audit–publish at work on generated taxi trips."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.app import App, command
from lakegate.cli.check_output import show_failing
from lakegate.cli.output import Styled, echo_json, next_commands, safe, say, show_rows
from lakegate.cli.run_output import headline, run_payload
from lakegate.config import HOME_NAME
from lakegate.errors import LakegateError
from lakegate.model.identifiers import rows_query
from lakegate.model.words import count

if TYPE_CHECKING:
    from lakegate.model.run import Run

TABLE = "demo.trips"
CHECKS = ("not_null(passenger_count)", "in_range(trip_distance, 0, 200)", "unique(trip_id)", "row_count(min=1)")
_ROWS = 100_000
_NULL_RATE = 0.01
_SEEDS = 2**31


@command("demo", makes_run=True, examples=("lakegate demo", "lakegate demo --rows 10000"))
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the generated files. Default: .lakegate/demo in the project.",
)
@click.option(
    "--rows", type=click.IntRange(min=1000), metavar="N", default=_ROWS, show_default=True, help="Rows in each file."
)
def demo(app: App, /, *, folder: Path | None, rows: int) -> None:
    """See write–audit–publish at work: a clean batch is published, one with NULLs isn't.

    Starts the local stack, generates taxi trips, and ingests them into demo.trips. Each time you run it, it adds a new
    batch. It doesn't touch your own tables.
    """
    target = folder or app.folder() / HOME_NAME / "demo"
    settings = app.settings()
    if settings.catalog.is_local or settings.engine.url is None:
        app.stack().up()
    clean, dirty = _generate(app, target, rows)
    with app.lake(may_create_project=True) as lake:
        published = lake.ingest(TABLE, clean, checks=CHECKS, on_failure="keep", on_changed="append")
        rejected = lake.ingest(
            TABLE, dirty, checks=CHECKS, on_failure="keep", on_changed="append", on_rejected="return"
        )
        rows_per_branch = {ref.name: count for ref, count in lake.branches.row_counts(TABLE)}
    _require_expected(published, rejected, rows_per_branch)
    if app.json:
        branches = [{"branch": name, "rows": count} for name, count in rows_per_branch.items()]
        runs = {"published": run_payload(published), "rejected": run_payload(rejected)}
        echo_json({**runs, "rows_per_branch": branches})
    else:
        _show(app, published, rejected, rows_per_branch)


def _generate(app: App, folder: Path, rows: int) -> tuple[list[str], list[str]]:
    from lakegate.sources import synthetic

    seed = secrets.randbelow(_SEEDS)
    common: dict[str, Any] = {"rows": rows, "format": "parquet", "overwrite": True, "narrator": app.narrator}
    clean = synthetic.generate(folder / "clean", files=2, null_rate=0.0, null_columns=(), seed=seed, **common)
    dirty = synthetic.generate(
        folder / "nulls", files=1, null_rate=_NULL_RATE, null_columns=("passenger_count",), seed=seed + 1, **common
    )
    return [str(path) for path in clean], [str(path) for path in dirty]


def _require_expected(published: Run, rejected: Run, rows_per_branch: Collection[str]) -> None:
    """Fail if the demo didn't go as planned, because something is broken."""
    if published.status != "published":
        raise LakegateError(
            f"The clean batch was {published.status}; it should have been published.",
            hint=f"lakegate runs {published.run_id}",
        )
    failed = [result.columns for result in rejected.failures]
    if rejected.status != "rejected" or failed != [("passenger_count",)]:
        raise LakegateError(
            f"The batch with NULLs was {rejected.status}; it should have been rejected for passenger_count alone.",
            hint=f"lakegate runs {rejected.run_id}",
        )
    if rejected.branch not in rows_per_branch:
        raise LakegateError(f"Branch {rejected.branch} should have been kept, but it doesn't exist.")


def _show(app: App, published: Run, rejected: Run, rows_per_branch: Mapping[str, int | None]) -> None:
    branch = rejected.branch
    say("[bold]1. A clean batch[/]", f"   [bold green]published[/]  {headline(published)}", "")
    say("[bold]2. A batch with NULLs in passenger_count[/]", f"   [bold red]rejected[/]  {headline(rejected)}")
    show_failing("Failed checks", rejected.failures, "red")
    say("", f"[bold]3. What readers of main see, and what is held back[/]  rows of {TABLE}")
    rows = (
        Styled((name, count(number) or "unknown"), "green" if name == "main" else None)
        for name, number in rows_per_branch.items()
    )
    show_rows(("branch", "rows"), rows, right=("rows",), indent=2)
    say("", f"The rejected batch stays on branch [bold]{safe(branch)}[/]; main is unchanged.")
    nulls = rows_query(TABLE, "passenger_count IS NULL", limit=10)
    next_commands(
        ("Check that no NULL reached main", app.command("query", nulls)),
        ("See the rejected rows", app.command("query", nulls, "--ref", branch)),
        ("See what the branch changes", app.command("diff", "main", branch)),
        ("Discard it", app.command("discard", branch)),
        ("See all runs", app.command("runs")),
        ("Open the dashboard", app.command("ui")),
        ("Stop the local stack", app.command("down")),
    )
