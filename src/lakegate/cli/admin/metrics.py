"""Print metrics for Prometheus."""

from __future__ import annotations

from pathlib import Path

import click

from lakegate.cli.app import App, command
from lakegate.cli.output import echo_json, writing
from lakegate.errors import missing_package


@command(
    "metrics",
    examples=(
        "lakegate admin metrics",
        "lakegate admin metrics --file /var/lib/node_exporter/textfile_collector/lakegate.prom",
        "lakegate admin metrics --output json",
    ),
    formats=("prometheus", "json"),
)
@click.option(
    "--file",
    "-f",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Replace this file atomically instead of printing, for node_exporter's textfile collector.",
)
def metrics(app: App, /, *, file: Path | None) -> None:
    """Print metrics in the text format of Prometheus.

    Each run adds its numbers to the journal when it ends, so the metrics cover all processes and machines that share
    the journal. Reading them takes milliseconds and starts nothing.
    """
    if app.json and file is not None:
        raise click.UsageError("--file needs --output prometheus.")
    with app.lake() as lake:
        samples = lake.maintenance.metrics()
    if app.json:
        echo_json([{"name": one.name, "labels": dict(one.labels), "value": one.value} for one in samples])
        return
    try:
        from lakegate.telemetry.prometheus import text
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("lakegate"):
            raise
        raise missing_package("Metrics for Prometheus need", error.name, "metrics") from None
    if file is None:
        click.echo(text(samples), nl=False)
        return
    with writing(file, "metrics") as draft:
        draft.write_text(text(samples), encoding="utf-8")
