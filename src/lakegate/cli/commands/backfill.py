"""``lakegate backfill``."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast, get_args

import click

from lakegate.cli.app import App, pass_app, redact
from lakegate.cli.commandline import PROGRAM, command
from lakegate.cli.options import check_option, output_option, table_argument
from lakegate.cli.render.console import echo_json
from lakegate.errors import ExitCode
from lakegate.model.order import OnChanged

if TYPE_CHECKING:
    from lakegate.intake.backfill import Backfill
    from lakegate.intake.backfill_report import BackfillReport
    from lakegate.lake.writing import IngestOptions

_MAX_PARALLEL = 64


@command(
    "backfill",
    examples=(
        "lakegate backfill nyc.trips trips/ --from 2024-01-01 --to 2024-03-31 --parallel 4",
        "lakegate backfill nyc.trips 'trips/%Y/%m/green_%Y-%m-%d*.parquet' --from 2024-01 --to 2024-03 --dry-run",
        "lakegate backfill nyc.trips landing/ --by modified --from 2024-06 --chunk '50 files'",
        "lakegate backfill nyc.trips trips/ -c 'not_null(fare)' --stop-on-failure -o json",
    ),
)
@table_argument()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option(
    "--from",
    "since",
    metavar="TIME",
    help="First date, month or time: 2024-01-31, 2024-01, 2024-01-31T06. Default: the oldest file's.",
)
@click.option("--to", "until", metavar="TIME", help="Last one; it is in the range, to its end. Default: the newest's.")
@click.option(
    "--by",
    type=click.Choice(["path", "modified"]),
    default="path",
    show_default=True,
    help="What a file's time is: the date in its path, or the time of its last change.",
)
@click.option(
    "--chunk",
    metavar="UNIT|N",
    help="What one run takes: hour, day, month, year, file, or a number of files. Default: as fine as the dates.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, _MAX_PARALLEL),
    default=4,
    show_default=True,
    metavar="N",
    help="How many chunks at a time.",
)
@click.option("--stop-on-failure", is_flag=True, help="Begin no more chunks after one that was not published.")
@check_option("A rule that every chunk must keep, such as 'in_range(fare, 0, 500)'. Repeatable.")
@click.option("--on-failure", type=click.Choice(["keep", "drop"]), help="What becomes of a rejected chunk's branch.")
@click.option(
    "--on-changed",
    type=click.Choice(get_args(OnChanged)),
    help="A file published before with other content: refuse it, append its rows, or replace the old ones.",
)
@click.option("--partition-by", multiple=True, metavar="TRANSFORM", help="For a new table: 'days(pickup)'. Repeatable.")
@click.option("--format", type=click.Choice(["parquet", "csv"]), help="Default: by the files' names.")
@click.option("--dry-run", is_flag=True, help="Show the chunks and what is published of them; write nothing.")
@output_option()
@pass_app
def backfill(app: App, /, *, dry_run: bool, output: str, parallel: int, stop_on_failure: bool, **given: Any) -> None:
    """Ingest the files of a range of time into TABLE, chunk by chunk, oldest first, some at a time.

    PATH is a file, a folder or a pattern, also one that says where the date stands: 'trips/%Y/%m/day_%d*.parquet'. By
    itself the date is found in names and folders: 2024-01-31, 20240131, 2024-01, 2024/01/31, year=2024/month=01/day=31.

    --from and --to are both in the range: --to 2024-03 is up to the end of March. Times are UTC. A file that is partly
    in the range is ingested whole.

    A file's content is published to a table once. So a backfill that was stopped, killed, or that failed in parts goes
    on when it is called again, and is done when it finds everything published.

    Exits with 0 when all is published, with 3 when trying again may get further, else with 2 when a chunk could not be
    ingested, else with 1 when one was rejected.
    """
    from lakegate.cli.render import backfill as render  # noqa: PLC0415 - completion needs none of this
    from lakegate.cli.render.backfill_progress import watcher_for  # noqa: PLC0415

    watcher = watcher_for(app)
    work = _backfill(app, given)
    plan = work.plan()
    words = [word for word in app.words if word != "--dry-run"]
    again = redact(shlex.join([PROGRAM, *words]))
    if dry_run:
        if output == "json":
            echo_json(render.plan_payload(plan))
        else:
            render.show_plan(plan, again)
        return
    with nullcontext() if watcher is None else watcher.over(plan):
        report = work.run_all(plan, parallel=parallel, stop_on_failure=stop_on_failure, watcher=watcher)
    if output == "json":
        echo_json(render.report_payload(report))
    else:
        render.show_report(app, report, again)
    raise click.exceptions.Exit(_ending(report))


def _backfill(app: App, given: dict[str, Any]) -> Backfill:
    from lakegate.intake.backfill import Backfill  # noqa: PLC0415 - loads pydantic

    options = {key: given[key] for key in ("checks", "on_failure", "on_changed", "partition_by", "format")}
    return Backfill(
        app.lake,
        given["table"],
        given["paths"],
        given["since"],
        given["until"],
        by=given["by"],
        chunk=given["chunk"],
        options=cast("IngestOptions", options),
    )


def _ending(report: BackfillReport) -> ExitCode:
    if report.interrupted:
        return ExitCode.INTERRUPTED
    if report.again:
        return ExitCode.RETRYABLE
    if report.having("failed"):
        return ExitCode.USAGE
    return ExitCode.AUDIT_FAILED if report.having("rejected") else ExitCode.OK
