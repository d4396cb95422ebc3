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

    The page is one file that loads nothing, so that it can be mailed or kept. It shows what the dashboard shows, from
    the journal and the catalog; nothing is started, and if the catalog is unavailable, the journal alone says what is
    waiting. For a page about one run: lakegate runs RUN --output html
    """
    from lakegate.dashboard.model import open_read_model
    from lakegate.dashboard.period import period

    with app.lake() as lake:
        found = period(open_read_model(lake), since=since, table=table)
    if app.json:
        write(app, as_json(json_safe(found.report.model_dump()), indent=2) + "\n", file)
        return
    from lakegate.reports.period_page import period_page

    write(app, period_page(found, link=app.settings().ui.url), file, page="lakegate-report.html")
