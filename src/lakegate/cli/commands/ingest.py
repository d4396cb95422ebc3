"""Write files to a branch, audit them, publish them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import click

from lakegate.cli.app import App, command
from lakegate.cli.options import (
    csv_from,
    csv_options,
    ingest_options,
    ingest_options_from,
    partition_option,
    table_argument,
)
from lakegate.cli.output import Styled, echo_json, next_commands, safe, say, say_wrapped, show_rows
from lakegate.cli.run_output import (
    NO_STATUSES,
    left_out_payload,
    run_payload,
    show_left_out,
    show_run,
    skipped_payload,
    statuses_of,
)
from lakegate.errors import ExitCode, LakegateError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.request import IngestOptions, IngestPlan, OnBusy, OnChanged
from lakegate.model.words import count, counted, size

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.run import Run

_EXIT_CODES = {"published": ExitCode.OK, "skipped": ExitCode.OK, "rejected": ExitCode.AUDIT_FAILED}


@command(
    "ingest",
    makes_run=True,
    examples=(
        "lakegate ingest nyc.trips 'trips/*.parquet' --check 'not_null(passenger_count)'",
        "lakegate ingest nyc.trips january.csv --delimiter ';' --null-value NA --dry-run",
        "lakegate ingest nyc.trips trips/ -c 'unique(trip_id)' --partition-by 'days(pickup)' -o json",
        "lakegate ingest nyc.trips landing/ --on-changed replace --on-busy skip",
        "lakegate ingest nyc.daily --sql 'SELECT date(pickup) AS day, count(*) AS trips FROM nyc.trips GROUP BY 1'",
        "lakegate ingest nyc.drivers changes.csv --mode upsert --key driver_id --delete-when \"op = 'D'\"",
        "lakegate ingest nyc.daily daily/ --mode replace-partitions",
    ),
)
@table_argument
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path())
@click.option("--sql", metavar="QUERY", help="Ingest the result of a query over the lake instead of files.")
@ingest_options(checked="the batch", branch_of="batch")
@click.option(
    "--on-busy",
    type=click.Choice(get_args(OnBusy)),
    help="If another run is ingesting a file: wait for that run, or skip the file.",
)
@click.option("--branch", metavar="NAME", help="New branch to write to. Default: one named after the run.")
@partition_option
@csv_options
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check everything that can be checked without writing, and show the plan. Writes nothing.",
)
def ingest(app: App, /, *, dry_run: bool, **given: Any) -> None:
    """Write files to a branch, audit them there, and publish them to main.

    TABLE is namespace.table. It's created if it doesn't exist. PATH is a file, a folder or a pattern. With --sql, the
    rows are the result of a query, and the run fails if a table that the query reads changes before they're published.

    Each version of a file is published to a table once, however often you retry or link it: files that are
    already on main are skipped. The same bytes at another path count as another file.

    By default, the rows are appended. --mode overwrite replaces all rows of the table with them, and
    replace-partitions only those in the same partitions. --mode upsert updates the rows with the same --key and inserts
    the others. In these modes, the whole table is audited, as it would be after publishing.

    Exits with 0 if the batch was published (or there was nothing to publish), and with 1 if its audit failed: then
    nothing is published, and the batch stays on its branch for you to inspect.
    """
    options = _options(app, given)
    if dry_run:
        _dry_run(app, given, options)
        return
    started = time.monotonic()
    with app.lake(may_create_project=True) as lake:
        run = lake.intake.ingest(given["table"], _sources(lake, given), options)
        app.remember_outcome(run)
        statuses = NO_STATUSES if app.json else statuses_of(lake, run.skipped_files)
    _require_ended(run)
    if app.json:
        payload = run_payload(run)
        link = app.settings().link_to(run.run_id, run.table, run.branch)
        payload |= {} if link is None else {"link": link}
        elapsed_s = time.monotonic() - started
        echo_json({**payload, "seconds": elapsed_s if payload["seconds"] is None else payload["seconds"]})
    else:
        show_run(app, run, statuses)
    raise click.exceptions.Exit(_EXIT_CODES[run.status])


def _options(app: App, given: dict[str, Any]) -> IngestOptions:
    if bool(given["paths"]) == (given["sql"] is not None):
        raise click.UsageError("Pass either files, or --sql with a query.")
    if Path(given["table"]).is_file() and not any(Path(path).exists() for path in given["paths"]):
        other = next(iter(given["paths"]), "nyc.trips")
        raise click.UsageError(f"'{given['table']}' is a file; the table comes first: {other} {given['table']}")
    configured = app.settings().table(TableIdentifier.parse(given["table"])).csv
    csv = csv_from(given, configured)
    if csv is not None and given["format"] not in (None, "csv"):
        raise click.UsageError(f"CSV options can't be combined with --format {given['format']}.")
    if csv is not None and not given["paths"]:
        raise click.UsageError("CSV options are for files. They can't be combined with --sql.")
    return ingest_options_from({**given, "csv": csv})


def _sources(lake: Lake, given: dict[str, Any]) -> Any:
    return given["paths"] if given["sql"] is None else lake.query(given["sql"])


def _require_ended(run: Run) -> None:
    if run.status not in _EXIT_CODES:
        reason = run.error.message if run.error else f"its status is {run.status}"
        raise LakegateError(
            f"Run {run.run_id} didn't finish: {reason}",
            hint=(run.error.hint if run.error else None) or f"lakegate runs {run.run_id}",
            run_id=run.run_id,
        )


class _Policies(NamedTuple):
    """What to do with files that the table, or another run, already has."""

    on_changed: OnChanged
    on_busy: OnBusy


def _dry_run(app: App, given: dict[str, Any], options: IngestOptions) -> None:
    defaults = app.settings().ingest
    policies = _Policies(options.on_changed or defaults.on_changed, options.on_busy or defaults.on_busy)
    with app.lake(may_create_project=True) as lake:
        plan = lake.intake.plan(given["table"], _sources(lake, given), options)
    if not plan.request.mode.appends:
        policies = policies._replace(on_changed=plan.request.on_changed)
    if app.json:
        echo_json(_plan_payload(plan, policies))
        return
    request = plan.request
    say(f"[bold]dry run[/]  {_headline(plan, policies)}; nothing written")
    partition = f", partitioned by {safe(', '.join(request.partition_by))}" if request.partition_by else ""
    then = "kept" if request.on_failure == "keep" else "dropped"
    say_wrapped(f"[dim]branch {safe(request.branch)}{partition}; if a check fails, the branch is {then}[/]")
    say("")
    _show_files(plan, policies)
    show_left_out(request.batch)
    say("")
    columns = plan.table_schema.columns
    rows = ((one.name, one.type + (" (required)" if one.required else "")) for one in columns)
    show_rows(("column", "type"), rows, indent=2)
    say("")
    notes = [*(f"Would {change}." for change in request.schema_changes), *plan.notes]
    if notes:
        say(*(f"  [yellow]{safe(note)}[/]" for note in notes), "")
    if request.checks:
        described = zip(request.checks, plan.descriptions, strict=True)
        checks = ((str(check), check.severity, description) for check, description in described)
        show_rows(("check", "severity", "meaning"), checks, indent=2)
    else:
        say("  [yellow]No checks: the rows would be published whatever they contain.[/]")
    next_commands(("Do it", app.command_without_dry_run()))


def _plan_payload(plan: IngestPlan, policies: _Policies) -> dict[str, Any]:
    request, known = plan.request, plan.known
    return {
        "table": str(request.table),
        "exists": plan.exists,
        "branch": request.branch,
        "format": request.batch.format,
        "files": request.batch.files,
        "rows": request.batch.rows,
        "size_bytes": request.batch.size_bytes,
        "columns": plan.table_schema.columns,
        "schema_changes": request.schema_changes,
        "notes": list(plan.notes),
        "partition_by": list(request.partition_by),
        "checks": [
            {"name": check.name, "check": str(check), "severity": check.severity, "description": description}
            for check, description in zip(request.checks, plan.descriptions, strict=True)
        ],
        "mode": request.mode.name,
        "key": list(request.mode.key),
        "on_failure": request.on_failure,
        **policies._asdict(),
        "published_files": skipped_payload(known.published),
        "busy_files": skipped_payload(known.busy),
        "changed_files": skipped_payload(known.changed),
        "left_out": left_out_payload(request.batch),
    }


def _headline(plan: IngestPlan, policies: _Policies) -> str:
    batch, known = plan.request.batch, plan.known
    table = f"[bold]{safe(plan.request.table)}[/]"
    if known.changed and policies.on_changed == "refuse":
        return f"would [red]refuse[/] {counted(len(known.changed), 'file')} published to {table} with other content"
    left_out = (
        *known.published,
        *(known.busy if policies.on_busy == "skip" else ()),
    )
    skipped = {one.file.uri for one in left_out}
    rows = sum(file.rows for file in batch.files if file.uri not in skipped)
    if len(skipped) == len(batch.files):
        return f"would skip all {counted(len(skipped), 'file')} for {table}"
    what = f"would {_VERBS[plan.request.mode.name] if plan.exists else 'create'} {table}: {counted(rows, 'row')}"
    return what + (f", {len(skipped):,} of {counted(len(batch.files), 'file')} skipped" if skipped else "")


def _show_files(plan: IngestPlan, policies: _Policies) -> None:
    notes = _notes(plan, policies)
    titles = ("file", "rows", "size", *(("note",) if notes else ()))
    rows = []
    for file in plan.request.batch.files:
        note, style = notes.get(file.uri, ("new", None))
        rows.append(Styled((file.uri, count(file.rows), size(file.size_bytes), note)[: len(titles)], style))
    show_rows(titles, rows, right=("rows", "size"), indent=2)


_VERBS = {
    "append": "append to",
    "overwrite": "overwrite",
    "replace-partitions": "replace partitions of",
    "upsert": "upsert into",
}
_CHANGED = {
    "refuse": ("would be refused", "red"),
    "append": ("its rows would be added", "yellow"),
    "replace": ("its rows would replace the old ones", "yellow"),
}
_BUSY = {"wait": ("would wait for it", "yellow"), "skip": ("would be skipped", "dim")}


def _notes(plan: IngestPlan, policies: _Policies) -> dict[str, tuple[str, str | None]]:
    """Return, for each file that isn't new, what would happen to it and why, with a style."""
    notes: dict[str, tuple[str, str | None]] = {}
    for one in plan.known.changed:
        action, style = _CHANGED[policies.on_changed]
        notes[one.file.uri] = (f"published by run {one.run_id} with other content: {action}", style)
    for one in plan.known.busy:
        action, style = _BUSY[policies.on_busy]
        notes[one.file.uri] = (f"run {one.run_id} is ingesting it: {action}", style)
    for one in plan.known.published:
        notes[one.file.uri] = (f"published by run {one.run_id}: would be skipped", "dim")
    return notes
