"""``lakegate table``."""

from __future__ import annotations

import click

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import group
from lakegate.cli.options import at_option, output_option, ref_option, table_argument
from lakegate.cli.render import tables as render
from lakegate.cli.render.console import echo_json
from lakegate.cli.render.runs import journal_payload
from lakegate.cli.render.undo import show_undoing


@group(
    "table",
    examples=(
        "lakegate table list",
        "lakegate table show nyc.trips --ref wap/january",
        "lakegate table files nyc.trips -o json",
        "lakegate table restore nyc.trips --at 2026-01-31T07:00:00Z",
    ),
)
def table() -> None:
    """List tables; show one's schema, snapshots and files; put one back as it was. Needs no Spark."""


@table.command("list", examples=("lakegate table list", "lakegate table list --ref wap/january"))
@ref_option()
@output_option()
@pass_app
def list_tables(app: App, /, *, ref: str, output: str) -> None:
    """List the tables of a branch, tag or commit."""
    with app.lake() as lake:
        tables = lake.tables(ref)
    if output == "json":
        echo_json([render.table_payload(one) for one in tables])
    else:
        render.show_tables(tables, ref)


@table.command("show", examples=("lakegate table show nyc.trips", "lakegate table show nyc.trips --at 2026-01-31"))
@table_argument()
@ref_option()
@at_option()
@output_option()
@pass_app
def show_table(app: App, /, *, table: str, ref: str, at: str | None, output: str) -> None:
    """Show TABLE's columns, partitioning, size and snapshots."""
    with app.lake() as lake:
        one = lake.table(table, ref=ref, at=at)
        metadata, snapshots = one.metadata, one.snapshots()
    if output == "json":
        echo_json(render.details_payload(metadata, snapshots))
    else:
        render.show_details(metadata, snapshots, f"{ref} at {at}" if at else ref)


@table.command("files", examples=("lakegate table files nyc.trips", "lakegate table files nyc.trips --ref wap/january"))
@table_argument()
@ref_option()
@at_option()
@output_option()
@pass_app
def list_files(app: App, /, *, table: str, ref: str, at: str | None, output: str) -> None:
    """List the data files of TABLE."""
    with app.lake() as lake:
        files = list(lake.table(table, ref=ref, at=at).files())
    if output == "json":
        echo_json([render.file_payload(file) for file in files])
    else:
        render.show_files(files, table)


@table.command("restore", examples=("lakegate table restore nyc.trips --at 2026-01-31T07:00:00Z",))
@table_argument()
@click.option("--at", required=True, metavar="TIME|COMMIT", help="The time (2026-01-31T07:00:00Z) or commit to go to.")
@output_option()
@pass_app
def restore_table(app: App, /, *, table: str, at: str, output: str) -> None:
    """Put TABLE on main back as it was, whoever changed it since, in one new commit.

    Other tables are not touched, and what relies on TABLE is not asked. The source files that it loses may be ingested
    again.
    """
    with app.lake() as lake:
        run = lake.restore_table(table, at=at)
    if output == "json":
        echo_json(journal_payload(run))
    else:
        show_undoing(app, run, "restored", table)
