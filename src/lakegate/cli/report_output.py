"""Reports that travel, written to a file or to standard output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakegate.cli.output import writing
from lakegate.errors import ConfigurationError
from lakegate.model.figures import size

if TYPE_CHECKING:
    from lakegate.cli.app import App
    from lakegate.lake import Lake
    from lakegate.model.run import Run
    from lakegate.reports.page import Examples

RUN_FORMATS = ("html", "junit", "openlineage")
"""Values of ``--output`` that write one run for others."""


def write_run(app: App, lake: Lake, run: Run, file: Path | None) -> None:
    """Write one run in the format that ``--output`` names."""
    if app.output == "openlineage":
        write(app, _lineage(lake, run), file)
    elif app.output == "junit":
        from lakegate.reports.junit import junit

        write(app, junit(run, examples=_examples(app)), file)
    else:
        from lakegate.reports.run_page import run_page

        link = app.settings().link_to(run.run_id, ", ".join(run.tables), run.branch)
        write(app, run_page(run, examples=_examples(app), link=link), file, page=f"lakegate-run-{run.run_id}.html")


def _examples(app: App) -> Examples:
    """Return how rows may be shown: a report shows no more than the dashboard does."""
    from lakegate.reports.page import Examples

    settings = app.settings()
    return Examples(rows=settings.ui.examples, masked=settings.masked)


def _lineage(lake: Lake, run: Run) -> str:
    try:
        from lakegate.telemetry import openlineage
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("lakegate"):
            raise
        raise ConfigurationError(
            f"OpenLineage events need the package {error.name}, which isn't installed.",
            hint="pip install 'lakegate[openlineage]'",
            extra="openlineage",
        ) from None
    settings = lake.settings.catalog
    around = openlineage.Around(catalog=settings.uri or settings.warehouse, schemas=lake.written_schemas(run))
    return "".join(f"{openlineage.as_json(event)}\n" for event in openlineage.events(run, around))


def write(app: App, text: str, file: Path | None, *, page: str | None = None) -> None:
    """Write a report as UTF-8, whatever the terminal's encoding is.

    Args:
        file: Where to; ``None`` for standard output.
        page: Name of the file that a page goes to when standard output is a terminal, where nobody could read it.
    """
    if file is None and page is not None and sys.stdout.isatty():
        file = Path(page)
    data = text.encode()
    if file is None:
        click.echo(data, nl=False)
        return
    with writing(file, "report"):
        file.write_bytes(data)
    if not app.quiet:
        click.echo(f"Wrote {file} ({size(len(data))}). Open it: {file.absolute().as_uri()}", err=True)
