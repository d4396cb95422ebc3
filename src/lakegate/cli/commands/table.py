"""``lakegate table``."""

from __future__ import annotations

from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import group
from lakegate.cli.options import at_option, output_option, ref_option, table_argument
from lakegate.cli.render import tables as render
from lakegate.cli.render.console import echo_json


@group(
    "table",
    examples=(
        "lakegate table list",
        "lakegate table show nyc.trips --ref wap/january",
        "lakegate table files nyc.trips -o json",
    ),
)
def table() -> None:
    """List tables; show one's schema, snapshots and files. Needs no Spark."""


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
