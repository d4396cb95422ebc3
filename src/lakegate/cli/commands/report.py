"""Write a page about many runs, to send to others."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from lakegate.cli.app import App
from lakegate.cli.commandline import command
from lakegate.cli.options import complete_tables, file_option, since_option
from lakegate.cli.report_output import write
from lakegate.cli.streams import as_json
from lakegate.model.rows import json_safe

_MOST = 2000
"""Runs in a report: reading so many takes a second or two."""


@command(
    "report",
    examples=(
        "lakegate report --since 7d --file week.html",
        "lakegate report --table nyc.trips > trips.html",
        "lakegate report --since 24h --output json",
    ),
    formats=("html", "json"),
)
@click.option("--table", metavar="TABLE", help="Only this table.", shell_complete=complete_tables)
@since_option("Report on runs started since: 2026-01-31T07:00:00Z, 24h, 7d.", default="7d")
@file_option()
def report(app: App, /, *, table: str | None, since: datetime, file: Path | None) -> None:
    """Write what the runs of the last days add up to: what needs a decision, each table, the checks that failed.

    The page is one file that loads nothing, so that it can be mailed or kept. It's made from the journal alone: nothing
    is started. For a page about one run: lakegate runs RUN --output html
    """
    from lakegate.reports.period import period_report

    with app.lake() as lake:
        found = lake.runs(table=table, since=since, limit=_MOST + 1)
        expected = lake.expected_publishes()
    settings = app.settings()
    runs, is_complete = found[:_MOST], len(found) <= _MOST
    summed = period_report(runs, since=since, table=table, expected=expected, is_complete=is_complete)
    if app.json:
        write(app, as_json(json_safe(summed.model_dump()), indent=2) + "\n", file)
        return
    from lakegate.reports.period_page import period_page

    write(app, period_page(summed, runs, link=settings.ui.url), file, page="lakegate-report.html")
