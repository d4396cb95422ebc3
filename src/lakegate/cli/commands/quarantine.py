"""List, show, release and drop quarantined rows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import click

from lakegate.cli.app import App, group
from lakegate.cli.check_output import fit_columns, show_failing, styled, with_marks
from lakegate.cli.options import complete_runs, complete_tables, limit_option, table_argument, with_options
from lakegate.cli.output import cell, echo_json, safe, say, show_rows, width_or
from lakegate.cli.run_output import run_payload, show_result
from lakegate.errors import AuditFailedError
from lakegate.model.checks import failing_cells
from lakegate.model.quarantine import COLUMNS, POSITION, REASONS, RUN_ID, SOURCE_FILE
from lakegate.model.rows import json_safe
from lakegate.model.words import count, counted

_DEFAULT_WIDTH = 110


_run_and_check_options = with_options(
    click.option("--run", "run_id", metavar="RUN", shell_complete=complete_runs, help="Only rows of this run."),
    click.option("--check", metavar="NAME", help="Only rows that fail this check."),
)
_row_options = with_options(
    _run_and_check_options,
    click.option("--where", metavar="PREDICATE", help="Only rows for which this SQL is true."),
)


@group(
    "quarantine",
    examples=(
        "lakegate quarantine",
        "lakegate quarantine show nyc.trips",
        "lakegate quarantine release nyc.trips --check 'not_null(id)'",
        "lakegate quarantine release nyc.trips --set 'fare=abs(fare)'",
        "lakegate quarantine drop nyc.trips --run 20260131T070509-0badcafe --yes",
    ),
    default="list",
)
def quarantine() -> None:
    """List, show, release and drop quarantined rows.

    A check with severity='quarantine' sets its failing rows aside in TABLE__quarantine, and the others are published.
    """


@quarantine.command("list", examples=("lakegate quarantine list", "lakegate quarantine list nyc.trips -o json"))
@click.argument("table", required=False, shell_complete=complete_tables)
def list_quarantined(app: App, /, *, table: str | None) -> None:
    """List the runs that quarantined rows of TABLE, or of any table."""
    with app.lake() as lake:
        found = lake.quarantine.list(table)
    if app.json:
        echo_json(found)
        return
    rows = (
        (
            one.table,
            one.run_id,
            count(one.waiting),
            count(one.rows - one.waiting),
            ", ".join(f"{name} {number:,}" for name, number in sorted(one.checks.items())),
        )
        for one in found
    )
    show_rows(
        ("table", "run", "waiting", "released", "failed checks"),
        rows,
        right=("waiting", "released"),
        whole=("run",),
        drop=("released",),
        empty="No rows are quarantined.",
    )


@quarantine.command(
    "show", examples=("lakegate quarantine show nyc.trips", "lakegate quarantine show nyc.trips --check 'not_null(id)'")
)
@table_argument
@_run_and_check_options
@limit_option(20)
def show_quarantined_rows(app: App, /, *, table: str, limit: int, **chosen: Any) -> None:
    """Show the rows of TABLE that are waiting in quarantine, and why."""
    with app.lake() as lake:
        found = lake.quarantine.show(table, limit=limit, **chosen)
    if app.json:
        echo_json([json_safe(row) for row in found])
        return
    if not found:
        say(f"{safe(table)} has no quarantined rows.")
        return
    failing = [
        failing_cells(row, [one["column"] for one in row[REASONS] if one["column"] is not None]) for row in found
    ]
    shown = [with_marks(_shown(row), own) for row, own in zip(found, failing, strict=True)]
    first = [next(iter(shown[0])), *chain.from_iterable(failing)]
    columns, cells = fit_columns(shown, first, width_or(_DEFAULT_WIDTH))
    show_rows(columns, (tuple(map(styled, row)) for row in cells))
    if left := len(shown[0]) - len(columns):
        say(f"  [dim]… {counted(left, 'more column')}: --output json[/]")
    if len(found) == limit:
        say(f"  [dim]There may be more: --limit {limit * 10}[/]")


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    why = ", ".join(dict.fromkeys(reason["check"] for reason in row[REASONS]))
    data = {name: cell(json_safe(value)) for name, value in row.items() if name not in COLUMNS}
    source = None if row[SOURCE_FILE] is None else row[SOURCE_FILE].rpartition("/")[2]
    place = "" if row[POSITION] is None else f", row {row[POSITION] + 1}"  # as where failing rows are listed
    shown = None if source is None else f"{source}{place}"
    own = (("why", REASONS, why), ("source", SOURCE_FILE, shown), ("run", RUN_ID, row[RUN_ID]))
    # If the table has a column of one of these names, that one keeps the name.
    named = {reserved if name in data else name: value for name, reserved, value in own}
    first, *rest = named.items()
    return dict([first, *data.items(), *rest])


@quarantine.command(
    "release",
    makes_run=True,
    examples=(
        "lakegate quarantine release nyc.trips --run 20260131T070509-0badcafe",
        "lakegate quarantine release nyc.trips --where 'fare BETWEEN -1 AND 0' --accept 'the vendor confirmed them'",
        "lakegate quarantine release nyc.trips --set 'fare=abs(fare)' --where 'fare < 0'",
    ),
)
@table_argument
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="COLUMN=SQL",
    help="The column's new value, as a Spark SQL expression on one row. Repeatable.",
)
@click.option("--accept", metavar="REASON", help="Publish them even if they fail a check, for this reason.")
@_row_options
def release(app: App, /, *, table: str, changes: tuple[str, ...], accept: str | None, **chosen: Any) -> None:
    """Publish quarantined rows of TABLE that pass its checks now.

    They must also pass what set them aside. They are published as they are, or with the new values of --set, stay in
    the quarantine table, marked as released, and are never published twice.
    """
    new = {}
    for text in changes:
        name, equals, expression = text.partition("=")
        if not equals or not name.strip() or not expression.strip():
            raise click.BadParameter(f"'{text}' isn't COLUMN=SQL, such as 'fare=abs(fare)'.", param_hint="--set")
        new[name.strip()] = expression
    with app.lake() as lake:
        try:
            run = lake.quarantine.release(table, changes=new, accept=accept, **chosen)
        except AuditFailedError as failed:
            if not app.json:
                for report in lake.run(str(failed.context["run_id"])).reports:
                    show_failing("Failed checks", report.failures, "red")
            raise
        show_result(app, run)


@quarantine.command(
    "drop", makes_run=True, examples=("lakegate quarantine drop nyc.trips --run 20260131T070509-0badcafe --yes",)
)
@table_argument
@_row_options
@click.option("--yes", is_flag=True, required=True, help="Confirm the deletion.")
def drop(app: App, /, *, table: str, yes: bool, **chosen: Any) -> None:
    """Delete rows of TABLE that are waiting in quarantine. `lakegate revert RUN` brings them back."""
    del yes
    with app.lake() as lake:
        run = lake.quarantine.drop(table, **chosen)
        app.remember_outcome(run)
    dropped = 0 if run.publication is None else run.publication.rows_removed or 0
    if app.json:
        echo_json(run_payload(run))
    else:
        say(f"[green]dropped[/]  {counted(dropped, 'quarantined row')} of {safe(table)}")
        say(f"  [dim]To bring them back: {safe(app.command('revert', run.run_id))}[/]")
