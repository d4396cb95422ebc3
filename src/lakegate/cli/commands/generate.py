"""Write synthetic taxi trips as Parquet or CSV files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lakegate.cli.app import App, command
from lakegate.cli.output import echo_json, next_commands, show_rows
from lakegate.model.words import count, size


@command(
    "generate",
    examples=(
        "lakegate generate trips",
        "lakegate generate dirty --files 1 --null-rate 0.01 --null-column passenger_count",
        "lakegate generate trips --format csv --rows 1000 --seed 42 --force",
    ),
)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--files", type=click.IntRange(min=1), metavar="N", default=2, show_default=True, help="Number of files.")
@click.option(
    "--rows", type=click.IntRange(min=1), metavar="N", default=100_000, show_default=True, help="Rows in each file."
)
@click.option(
    "--null-rate",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    default=0.0,
    show_default=True,
    help="Share of rows with a NULL, from 0 to 1.",
)
@click.option(
    "--null-column", "null_columns", multiple=True, metavar="COLUMN", help="Column that gets the NULLs. Repeatable."
)
@click.option("--seed", type=int, metavar="N", default=7, show_default=True, help="The same seed gives the same rows.")
@click.option(
    "--format", type=click.Choice(["parquet", "csv"]), default="parquet", show_default=True, help="File format."
)
@click.option("--force", "overwrite", is_flag=True, help="Overwrite existing files.")
def generate(app: App, /, *, folder: Path, **given: Any) -> None:
    """Write synthetic taxi trips as Parquet or CSV files in DIR."""
    from lakegate.sources import synthetic

    paths = synthetic.generate(folder, narrator=app.narrator, **given)
    files = [(str(path), given["rows"], path.stat().st_size) for path in paths]
    if app.json:
        echo_json({"files": [{"path": path, "rows": rows, "size_bytes": length} for path, rows, length in files]})
        return
    cells = ((path, count(rows), size(length)) for path, rows, length in files)
    show_rows(("file", "rows", "size"), cells, right=("rows", "size"))
    words = ("ingest", "nyc.trips", *map(str, paths), "--check", "not_null(passenger_count)")
    next_commands(("Ingest them into a table", app.command(*words)))
