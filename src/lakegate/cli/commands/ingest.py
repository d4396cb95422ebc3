"""``lakegate ingest``."""

from __future__ import annotations

import codecs
import shlex
import time
from typing import TYPE_CHECKING, Any, get_args

import click

from lakegate.cli.app import App, pass_app, redact
from lakegate.cli.commandline import PROGRAM, command
from lakegate.cli.options import check_option, output_option, table_argument
from lakegate.cli.render.console import echo_json
from lakegate.cli.render.plan import Policies, plan_payload, show_plan
from lakegate.cli.render.runs import run_payload, show_run
from lakegate.cli.render.skipped import NO_STATUSES, statuses_of
from lakegate.errors import ExitCode, LakegateError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.order import OnBusy, OnChanged

if TYPE_CHECKING:
    from lakegate.model.batch import CsvOptions
    from lakegate.model.run import Run

_ENDINGS = {"published": ExitCode.OK, "skipped": ExitCode.OK, "rejected": ExitCode.AUDIT_FAILED}
_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}


def _one_character(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    delimiter = _DELIMITERS.get(value, value) if value is not None else None
    if delimiter is not None and len(delimiter) != 1:
        raise click.BadParameter(f"'{value}' is not one character (or {', '.join(sorted(_DELIMITERS))}).")
    return delimiter


def _known_encoding(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    try:
        if value is not None:
            codecs.lookup(value)
    except (LookupError, ValueError):
        raise click.BadParameter(f"'{value}' is not an encoding Python knows, such as utf-8 or cp1252.") from None
    return value


@command(
    "ingest",
    examples=(
        "lakegate ingest nyc.trips 'trips/*.parquet' --check 'not_null(passenger_count)'",
        "lakegate ingest nyc.trips january.csv --delimiter ';' --null-value NA --dry-run",
        "lakegate ingest nyc.trips trips/ -c 'unique(trip_id)' --partition-by 'days(pickup)' -o json",
        "lakegate ingest nyc.trips landing/ --on-changed replace --on-busy skip",
    ),
)
@table_argument()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@check_option("A rule the batch must keep, such as 'in_range(fare, 0, 500)'. Repeatable.")
@click.option("--branch", metavar="NAME", help="Branch to write to; it must not exist. Default: one named for the run.")
@click.option("--on-failure", type=click.Choice(["keep", "drop"]), help="What becomes of a rejected batch's branch.")
@click.option(
    "--on-changed",
    type=click.Choice(get_args(OnChanged)),
    help="A file published before with other content: refuse it, append its rows, or replace the old ones.",
)
@click.option(
    "--on-busy",
    type=click.Choice(get_args(OnBusy)),
    help="A file that another run is at: wait for that run, or skip the file.",
)
@click.option("--partition-by", multiple=True, metavar="TRANSFORM", help="For a new table: 'days(pickup)'. Repeatable.")
@click.option("--format", type=click.Choice(["parquet", "csv"]), help="Default: by the files' names.")
@click.option("--delimiter", metavar="CHAR", callback=_one_character, help="CSV: what stands between fields.")
@click.option("--no-header", is_flag=True, help="CSV: the first line is data.")
@click.option("--encoding", metavar="NAME", callback=_known_encoding, help="CSV: the files' encoding.")
@click.option("--null-value", "null_values", multiple=True, metavar="TEXT", help="CSV: means NULL. Repeatable.")
@click.option("--dry-run", is_flag=True, help="Check all that can be checked, write nothing.")
@output_option()
@pass_app
def ingest(app: App, /, *, dry_run: bool, output: str, **given: Any) -> None:
    """Write files to a branch, audit them there, and publish them to main.

    TABLE is namespace.table; it is created when it does not exist. PATH is a file, a folder or a pattern.

    A file's content is published to a table once: files that are on main already are skipped.

    Exits with 0 when published (or when there was nothing to publish), with 1 when the audit failed: then nothing was
    published, and the batch stays on its branch to be looked at.
    """
    arguments = _arguments(app, given)
    if dry_run:
        _plan(app, arguments, output)
        return
    started = time.monotonic()
    with app.lake() as lake:
        run = lake.ingest(**arguments)
        statuses = statuses_of(lake, run.skipped_files) if output == "table" else NO_STATUSES
    _require_ended(run)
    if output == "json":
        _print_json(run, time.monotonic() - started)
    else:
        show_run(app, run, statuses)
    raise click.exceptions.Exit(_ENDINGS[run.status])


def _arguments(app: App, given: dict[str, Any]) -> dict[str, Any]:
    arguments = dict(given)
    csv_given = {
        "header": False if arguments.pop("no_header") else None,
        "delimiter": arguments.pop("delimiter"),
        "encoding": arguments.pop("encoding"),
        "null_values": arguments.pop("null_values") or None,
    }
    changes = {key: value for key, value in csv_given.items() if value is not None}
    if changes and arguments["format"] == "parquet":
        raise click.UsageError(f"CSV options ({', '.join(sorted(changes))}) do not go with --format parquet.")
    arguments["csv"] = _csv_options(app, arguments["table"], changes) if changes else None
    return arguments


def _csv_options(app: App, table: str, changes: dict[str, Any]) -> CsvOptions:
    """Return the table's CSV settings with what the flags change."""
    configured = app.settings().table(TableIdentifier.parse(table)).csv
    return configured.model_copy(update=changes)


def _plan(app: App, arguments: dict[str, Any], output: str) -> None:
    defaults = app.settings().ingest
    policies = Policies(arguments["on_changed"] or defaults.on_changed, arguments["on_busy"] or defaults.on_busy)
    with app.lake() as lake:
        plan = lake.plan(**arguments)
    if output == "json":
        echo_json(plan_payload(plan, policies))
    else:
        words = [word for word in app.words if word != "--dry-run"]
        show_plan(plan, policies, redact(shlex.join([PROGRAM, *words])))


def _print_json(run: Run, elapsed_s: float) -> None:
    payload = run_payload(run)
    echo_json({**payload, "seconds": elapsed_s if payload["seconds"] is None else payload["seconds"]})


def _require_ended(run: Run) -> None:
    if run.status not in _ENDINGS:
        reason = run.error.message if run.error else f"it is {run.status}"
        raise LakegateError(
            f"Run {run.run_id} did not end: {reason}",
            hint=(run.error.hint if run.error else None) or f"lakegate runs {run.run_id}",
            run_id=run.run_id,
        )
