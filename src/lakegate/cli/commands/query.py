"""``lakegate query``."""

from __future__ import annotations

import sys

import click

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import at_option, output_option, ref_option
from lakegate.cli.render import query as render


@command(
    "query",
    examples=(
        "lakegate query 'SELECT count(*) FROM nyc.trips'",
        "lakegate query 'SELECT * FROM nyc.trips WHERE fare < 0' --ref wap/january",
        "lakegate query 'SELECT * FROM nyc.trips' --at 2026-01-31T07:00:00Z -o csv > trips.csv",
        "cat report.sql | lakegate query - -o json",
    ),
)
@click.argument("sql")
@ref_option()
@at_option()
@output_option("csv")
@pass_app
def query(app: App, /, *, sql: str, ref: str, at: str | None, output: str) -> None:
    """Run the query SQL; '-' reads it from standard input.

    Plain table names, such as nyc.trips, mean the tables as they stand on --ref. A table shows the first 1,000 rows;
    json and csv hold them all.
    """
    text = sys.stdin.read() if sql == "-" else sql
    if not text.strip():
        raise click.UsageError("The query is empty.")
    with app.lake() as lake:
        asked = lake.query(text, ref=ref, at=at)
        if output == "json":
            render.require_distinct(asked.columns)
        result = asked.to_arrow()
    if output == "json":
        render.print_json(result)
    elif output == "csv":
        render.print_csv(result)
    else:
        render.print_table(result)
