"""Write a report on many runs, to send to others."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App, command
from lakegate.cli.options import complete_tables, file_option, since_option
from lakegate.cli.output import writing
from lakegate.cli.streams import as_json
from lakegate.cli.wrapping import tell
from lakegate.errors import missing_package
from lakegate.model.rows import json_safe
from lakegate.model.words import size

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.run import Run
    from lakegate.reports.page import Examples

RUN_FORMATS = ("html", "junit", "openlineage")
"""Values of ``--output`` that write one run for others."""


def write_run(app: App, lake: Lake, run: Run, file: Path | None) -> None:
    """Write one run in the format of ``--output``."""
    if app.output == "openlineage":
        write(app, _lineage(lake, run), file)
    elif app.output == "junit":
        from lakegate.reports.junit import junit

        write(app, junit(run, examples=_examples(app)), file)
    else:
        from lakegate.reports.page import run_page

        link = app.settings().link_to(run.run_id, ", ".join(run.tables), run.branch)
        write(app, run_page(run, examples=_examples(app), link=link), file, page=f"lakegate-run-{run.run_id}.html")


def _examples(app: App) -> Examples:
    """Return which rows may be shown: no more than the dashboard shows."""
    from lakegate.reports.page import Examples

    settings = app.settings()
    return Examples(rows=settings.ui.examples, masked=settings.masked)


def _lineage(lake: Lake, run: Run) -> str:
    try:
        from openlineage.client.serde import Serde

        from lakegate.downstream import openlineage
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("lakegate"):
            raise
        raise missing_package("OpenLineage events need", error.name, "openlineage") from None
    settings = lake.settings.catalog
    context = openlineage.EventContext(catalog=settings.place or settings.warehouse, schemas=lake.written_schemas(run))
    return "".join(f"{Serde.to_json(event)}\n" for event in openlineage.events(run, context))


def write(app: App, text: str, file: Path | None, *, page: str | None = None) -> None:
    """Write a report as UTF-8, whatever the terminal's encoding is.

    Args:
        file: Where to; ``None`` for standard output.
        page: Name of the file to write a page to if standard output is a terminal, where nobody could read it.
    """
    if file is None and page is not None and sys.stdout.isatty():
        file = Path(page)
    data = text.encode()
    if file is None:
        click.echo(data, nl=False)
        return
    with writing(file, "report") as draft:
        draft.write_bytes(data)
    if not app.quiet and file.is_file():
        tell(f"Wrote {file} ({size(len(data))}). Open it: {file.absolute().as_uri()}")


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
@since_option("Report on runs started since then, such as 2026-01-31T07:00:00Z, 24h or 7d.", default="7d")
@file_option
def report(app: App, /, *, table: str | None, since: datetime, file: Path | None) -> None:
    """Write a report on the runs of the last days: what needs a decision, each table, and the checks that failed.

    The page is a single file that loads nothing else, so you can mail or archive it. It shows what the dashboard shows,
    from the journal and the catalog. It starts nothing: if the catalog is unavailable, the report is based on the
    journal alone. For a page about one run: lakegate runs RUN --output html
    """
    from lakegate.dashboard.model import open_read_model
    from lakegate.reports.period import period, period_page

    with app.lake() as lake:
        found = period(open_read_model(lake), since=since, table=table)
    if app.json:
        write(app, as_json(json_safe(found.report.model_dump()), indent=2) + "\n", file)
        return
    write(app, period_page(found, link=app.settings().ui.url), file, page="lakegate-report.html")
