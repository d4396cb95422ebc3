"""List, inspect, change, compact, restore and drop tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.app import App, group
from lakegate.cli.options import (
    at_option,
    check_option,
    limit_option,
    ref_option,
    require_consent,
    span,
    table_argument,
    yes_option,
)
from lakegate.cli.output import cell, count_at_most, echo_json, safe, say, show_rows, width_or
from lakegate.cli.run_output import show_change, show_revert
from lakegate.cli.wrapping import tell
from lakegate.errors import ExitCode, LakegateError
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.words import count, moment, size
from lakegate.snippets import ENGINES

if TYPE_CHECKING:
    from lakegate.model.tables import Snapshot, TableMetadata

_SNAPSHOTS = 10


@group(
    "table",
    examples=(
        "lakegate table",
        "lakegate table show nyc.trips --ref wap/january",
        "lakegate table files nyc.trips -o json",
        "lakegate table evolve nyc.trips 'ADD COLUMN zone STRING'",
        "lakegate table restore nyc.trips --at 2026-01-31T07:00:00Z",
    ),
    default="list",
)
def table() -> None:
    """List tables; show a table's columns, rows, snapshots and files; change, maintain, restore or drop it.

    Only evolve, delete, truncate and optimize need Spark.
    """


@table.command("list", examples=("lakegate table list", "lakegate table list --ref wap/january"))
@ref_option()
def list_tables(app: App, /, *, ref: str) -> None:
    """List the tables of a branch, tag or commit.

    Row counts come from metadata. If a table has delete files, its count is an upper bound (`≤ 311`; in JSON, `rows` is
    null and `rows_at_most` is 311), and only a query can count the rows exactly.

    Exits with 2 if the metadata of a table can't be read. The others are still listed.
    """
    unreadable: dict[str, LakegateError] = {}
    with app.lake() as lake:
        tables = lake.tables(ref, on_unreadable=unreadable.__setitem__)
    if app.json:
        echo_json([_payload(one) for one in tables])
    elif tables or not unreadable:
        _show_tables(tables, ref)
    for name, error in unreadable.items():
        tell(f"{name} can't be read: {error.message} {error.hint or ''}".rstrip())
    if unreadable:
        raise click.exceptions.Exit(ExitCode.USAGE)


def _show_tables(tables: Sequence[TableMetadata], ref: str) -> None:
    rows = (
        (
            str(one.table),
            count_at_most(one.rows, one.rows_at_most),
            count(one.data_files),
            size(one.size_bytes),
            moment(one.snapshot.time if one.snapshot else None),
        )
        for one in tables
    )
    columns = ("table", "rows", "files", "size", "changed")
    right = ("rows", "files", "size")
    show_rows(columns, rows, right=right, drop=("files", "size", "changed"), empty=f"No tables on {ref}.")


@table.command("show", examples=("lakegate table show nyc.trips", "lakegate table show nyc.trips --at 2026-01-31"))
@table_argument
@ref_option()
@at_option()
def show_table(app: App, /, *, table: str, ref: str, at: str | None) -> None:
    """Show TABLE's columns, partitioning, size and snapshots."""
    with app.lake() as lake:
        one = lake.table(table, ref=ref, at=at)
        metadata, snapshots = one.metadata, one.snapshots()
    if app.json:
        details = {
            "location": metadata.location,
            "columns": metadata.table_schema.columns,
            "partition_by": list(metadata.partition_by),
            "properties": metadata.properties,
            "snapshots": snapshots,
        }
        echo_json({**_payload(metadata), **details})
        return
    say(f"[bold]{safe(metadata.table)}[/] on {safe(f'{ref} at {at}' if at else ref)}")
    facts = {
        "rows": count_at_most(metadata.rows, metadata.rows_at_most),
        "files": count(metadata.data_files),
        "size": size(metadata.size_bytes),
        "partitioned": ", ".join(metadata.partition_by) or "no",
        "location": metadata.location,
        "metadata": metadata.metadata_location,
    }
    say(*(f"  [dim]{name:<12}[/] {safe(value)}" for name, value in facts.items()), "")
    columns = metadata.table_schema.columns
    rows = ((column.name, column.type, "yes" if column.required else "") for column in columns)
    show_rows(("column", "type", "required"), rows, indent=2)
    _show_snapshots(snapshots)


@table.command(
    "rows",
    formats=("table", "json", "csv"),
    examples=(
        "lakegate table rows nyc.trips",
        "lakegate table rows nyc.trips --where 'fare < 0' --column trip_id --column fare -n 100",
        "lakegate table rows nyc.trips --at yesterday -o csv",
    ),
)
@table_argument
@ref_option()
@at_option()
@click.option("--where", metavar="FILTER", help="Only rows for which this is true, such as 'fare < 0'.")
@click.option("--column", "columns", multiple=True, metavar="NAME", help="A column to show. Repeatable. Default: all.")
@limit_option(20)
def show_rows_of_table(
    app: App, /, *, table: str, ref: str, at: str | None, where: str | None, columns: tuple[str, ...], limit: int
) -> None:
    """Show some of TABLE's rows, without Spark.

    They come in no particular order. To order them, or for anything else: lakegate query.
    """
    from lakegate.cli.commands.query import print_result

    with app.lake() as lake:
        found = lake.table(table, ref=ref, at=at).to_arrow(columns=columns or None, where=where, limit=limit)
    print_result(app, found, where or "")


@table.command("files", examples=("lakegate table files nyc.trips", "lakegate table files nyc.trips --ref wap/january"))
@table_argument
@ref_option()
@at_option()
def list_files(app: App, /, *, table: str, ref: str, at: str | None) -> None:
    """List TABLE's data files."""
    with app.lake() as lake:
        files = list(lake.table(table, ref=ref, at=at).files())
    if app.json:
        fields = ("path", "rows", "size_bytes", "partition")
        echo_json([{field: getattr(file, field) for field in fields} for file in files])
        return
    rows = (
        (
            file.path.rpartition("/")[2] if width_or(0) else file.path,
            count(file.rows),
            size(file.size_bytes),
            ", ".join(f"{key}={cell(value)}" for key, value in file.partition.items()),
        )
        for file in files
    )
    columns = ("file", "rows", "size", "partition")
    drop, empty = ("size", "rows"), f"{table} has no data files."
    show_rows(columns, rows, right=("rows", "size"), drop=drop, cut="file", empty=empty)


@table.command(
    "evolve",
    makes_run=True,
    examples=(
        "lakegate table evolve nyc.trips 'ADD COLUMN zone STRING'",
        "lakegate table evolve nyc.trips 'RENAME COLUMN fare TO fare_amount' 'ALTER COLUMN id TYPE BIGINT'",
        "lakegate table evolve nyc.trips 'DROP COLUMN note' -o json",
        "lakegate table evolve nyc.trips 'ADD PARTITION FIELD days(pickup)'",
    ),
)
@table_argument
@click.argument("changes", metavar="CHANGE...", nargs=-1, required=True)
@check_option("Another check that the table must pass afterwards, besides its own. Repeatable.")
def evolve_table(app: App, /, *, table: str, changes: tuple[str, ...], checks: tuple[str, ...]) -> None:
    """Change TABLE's columns or partitioning, as an audited run.

    A CHANGE is what follows ALTER TABLE … in Spark SQL: ADD COLUMN name TYPE, DROP COLUMN name, RENAME COLUMN a TO b,
    ALTER COLUMN name TYPE type, ALTER COLUMN name DROP NOT NULL, ADD PARTITION FIELD days(name). Several changes are
    made together, in the given order.

    All rows are audited with the table's checks. If one fails, nothing is published. Otherwise, all changes are
    published in one commit. To undo it: lakegate revert RUN.
    """
    with app.lake() as lake:
        show_change(app, lake.evolve_table(table, *changes, checks=checks))


@table.command("restore", makes_run=True, examples=("lakegate table restore nyc.trips --at 2026-01-31T07:00:00Z",))
@table_argument
@click.option(
    "--at",
    required=True,
    metavar="TIME|TAG|COMMIT",
    help="Time (2026-01-31T07:00:00Z, '10m ago'), tag or commit to go back to.",
)
def restore_table(app: App, /, *, table: str, at: str) -> None:
    """Restore TABLE on main to an earlier state, in one new commit.

    Undoes every later change to TABLE and its quarantine table, whoever made it. Doesn't change other tables, and
    doesn't check what depends on TABLE. If it removes the rows of a source file, you can ingest the file again.
    """
    with app.lake() as lake:
        show_revert(app, lake.restore_table(table, at=at), "restored", table)


@table.command(
    "optimize",
    makes_run=True,
    examples=(
        "lakegate table optimize nyc.trips",
        "lakegate table optimize nyc.trips --sort 'pickup, zone desc'",
        "lakegate table optimize nyc.trips --sort 'zorder(pickup, zone)' --where \"pickup >= '2026-01-01'\"",
    ),
)
@table_argument
@click.option("--sort", metavar="ORDER", help="Order of the rows: columns with asc or desc, or zorder(a, b).")
@click.option("--where", metavar="SQL", help="Rewrite only files that may hold rows for which this is true.")
def optimize_table(app: App, /, *, table: str, sort: str | None, where: str | None) -> None:
    """Compact TABLE's small files into larger ones, and apply deletes. Needs Spark.

    Iceberg's rewrite_data_files does it on main, and changes no row. Rows that others append in the meantime stay.
    Afterwards, the number of rows is compared with the one before. To go back to the files before: lakegate table
    restore.

    Replaced files stay as long as older commits need them; see lakegate admin gc. Exits with 3 if others kept rewriting
    the same files.
    """
    with app.lake() as lake:
        run = lake.maintenance.optimize(table, sort=sort, where=where)
        app.remember_outcome(run)
    if app.json or run.publication is None:
        show_change(app, run, f"[bold yellow]nothing changed[/]  {safe(table)} has no files to compact")
    else:
        say(f"[bold green]optimized[/]  {safe(table)} in commit {run.publication.commit[:12]}")


@table.command("expire", makes_run=True, examples=("lakegate table expire nyc.trips --older-than 30d --keep 10",))
@table_argument
@click.option("--older-than", required=True, metavar="SPAN", type=span, help="Age of the snapshots, such as 30d.")
@click.option(
    "--keep",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of newest snapshots to keep, whatever their age.",
)
def expire_snapshots(app: App, /, *, table: str, older_than: timedelta, keep: int) -> None:
    """Remove old snapshots from TABLE's metadata on main.

    Makes one new commit, and deletes no file. Tags, branches, older commits and downstream systems keep the metadata
    that they point to. `lakegate admin gc` then deletes what nothing has needed for gc.keep.
    """
    with app.lake() as lake:
        run = lake.maintenance.expire(table, older_than=older_than, keep=keep)
        show_revert(app, run, "expired", f"old snapshots of {table}")


@table.command(
    "rename",
    makes_run=True,
    examples=("lakegate table rename nyc.trips nyc.rides", "lakegate table rename nyc.trips archive.trips_2025 --yes"),
)
@table_argument
@click.argument("name", metavar="NAME")
@yes_option
def rename_table(app: App, /, *, table: str, name: str, yes: bool) -> None:
    """Rename TABLE on main to NAME. Moves no file.

    Makes one new commit, which also renames the quarantine table. Files that were published to TABLE count as published
    under NAME. An ingest into the old name creates a new table, so change routes and jobs first. If TABLE has a
    contract or a section in lakegate.toml, NAME needs one first. To undo it, rename it back; runs from before can't be
    reverted any more.
    """
    question = f"Rename {TableIdentifier.parse(table)} to {TableIdentifier.parse(name)}?"
    require_consent(f"{question} Whatever reads or ingests under the old name must change.", yes=yes)
    with app.lake() as lake:
        show_revert(app, lake.rename_table(table, name), "renamed", f"{table} to {name}")


@table.command(
    "truncate",
    makes_run=True,
    examples=("lakegate table truncate nyc.daily", "lakegate table truncate nyc.daily --yes"),
)
@table_argument
@yes_option
def truncate_table(app: App, /, *, table: str, yes: bool) -> None:
    """Delete all rows of TABLE on main, including quarantined ones. Needs Spark.

    Publishes the change if an empty table passes TABLE's checks. Unlike after `lakegate table delete`, its source files
    can be ingested again. To get the rows back: lakegate revert RUN. Their data stays in the warehouse until
    `lakegate admin gc` may delete it.

    Exits with 0 if the rows are deleted (or there were none), and with 1 if the audit failed: then nothing changes.
    """
    require_consent(f"Delete all rows of {TableIdentifier.parse(table)}?", yes=yes)
    with app.lake() as lake:
        show_change(app, lake.truncate_table(table), f"[bold yellow]nothing changed[/]  {safe(table)} has no rows")


@table.command(
    "drop", makes_run=True, examples=("lakegate table drop nyc.scratch", "lakegate table drop nyc.scratch --yes")
)
@table_argument
@yes_option
def drop_table(app: App, /, *, table: str, yes: bool) -> None:
    """Drop TABLE on main, and its quarantine table, in one new commit.

    Older commits still have them: `lakegate table restore` brings them back. TABLE's source files can be ingested
    again. Its own files stay as long as older commits need them; see lakegate admin gc.
    """
    require_consent(f"Drop {TableIdentifier.parse(table)}? Older commits still have it.", yes=yes)
    with app.lake() as lake:
        show_revert(app, lake.drop_table(table), "dropped", table)


@table.command(
    "delete",
    makes_run=True,
    examples=(
        "lakegate table delete nyc.trips --where \"pickup < '2019-01-01'\"",
        "lakegate table delete nyc.trips --where 'fare < 0' --output json",
    ),
)
@table_argument
@click.option("--where", required=True, metavar="SQL", help="Delete the rows for which this is true, in Spark SQL.")
def delete_rows(app: App, /, *, table: str, where: str) -> None:
    """Delete rows of TABLE on main, if the rest passes its checks.

    It's a run like any other: written to a branch, audited as a whole table, published in one commit. To get the rows
    back: lakegate revert RUN. Their data stays in the warehouse until `lakegate admin gc` may delete it.

    Exits with 0 if the rows are deleted (or there were none), and with 1 if the audit failed: then nothing changes.
    """
    nothing = f"[bold yellow]skipped[/]  no row of [bold]{safe(table)}[/] meets the condition; nothing to delete"
    with app.lake() as lake:
        show_change(app, lake.delete_rows(table, where), nothing)


@table.command(
    "connect",
    examples=(
        "lakegate table connect nyc.trips --engine duckdb",
        "lakegate table connect nyc.trips --engine polars --ref 2026-q1",
        "lakegate table connect nyc.trips --engine duckdb --at 2026-01-31T07:00:00Z",
        "lakegate table connect nyc.trips --engine spark --rest http://127.0.0.1:8181",
    ),
)
@table_argument
@click.option("--engine", "-e", required=True, type=click.Choice(ENGINES), help="Engine or library to read TABLE with.")
@ref_option()
@at_option()
@click.option("--rest", metavar="URL", help="Read from lakegate serve at URL. Default: from the table's own files.")
@click.option("--rest-token", is_flag=True, help="The server at --rest requires a token.")
def connect_table(
    app: App, /, *, table: str, engine: str, ref: str, at: str | None, rest: str | None, rest_token: bool
) -> None:
    """Print what to paste into another engine to read TABLE.

    The snippet contains no secret: a comment says how the engine gets its credentials. Without --rest, it names the
    table's metadata file and always shows that state. With --rest, it reads through lakegate serve, and on main also
    shows later publishes. Spark and Trino need --rest. Give any other engine that reads Iceberg the metadata file that
    -o json prints, or the URL of lakegate serve.
    """
    if rest_token and rest is None:
        raise click.UsageError("--rest-token needs --rest.")
    with app.lake() as lake:
        snippet = lake.snippet(table, engine, ref=ref, at=at, rest=rest, rest_token=rest_token)
    if app.json:
        echo_json(snippet)
        return
    click.echo(snippet.text)


def _payload(metadata: TableMetadata) -> dict[str, Any]:
    snapshot = metadata.snapshot
    return {
        "table": str(metadata.table),
        "rows": metadata.rows,
        "rows_at_most": metadata.rows_at_most,
        "data_files": metadata.data_files,
        "size_bytes": metadata.size_bytes,
        "snapshot_id": snapshot.snapshot_id if snapshot else None,
        "changed_at": snapshot.time if snapshot else None,
        "metadata_location": metadata.metadata_location,
    }


def _show_snapshots(snapshots: Sequence[Snapshot]) -> None:
    if not snapshots:
        return
    say("")
    rows = []
    for snapshot in list(reversed(snapshots))[:_SNAPSHOTS]:
        added = snapshot.summary.get("added-records")
        cells = (str(snapshot.snapshot_id), moment(snapshot.time), snapshot.operation or "")
        rows.append((*cells, count(int(added)) if added else ""))
    columns, right = ("snapshot", "time", "operation", "added rows"), ("added rows",)
    show_rows(columns, rows, right=right, whole=("time",), drop=("operation",), indent=2)
    if len(snapshots) > _SNAPSHOTS:
        say(f"  [dim]… {len(snapshots) - _SNAPSHOTS} earlier snapshots; --output json lists them all[/]")
