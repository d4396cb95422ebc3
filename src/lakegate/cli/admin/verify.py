"""Check that journal, catalog, metadata and files agree."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from lakegate.cli.app import App, command
from lakegate.cli.options import complete_tables, span
from lakegate.cli.output import echo_json, safe, say
from lakegate.errors import ExitCode
from lakegate.model.words import count, counted, size

if TYPE_CHECKING:
    from lakegate.model.maintenance import VerifyFinding, VerifyReport

_MOST_FILES = 3
_MOST_OF_A_KIND = 10


@command(
    "verify",
    examples=(
        "lakegate admin verify",
        "lakegate admin verify nyc.trips --deep",
        "lakegate admin verify --since 2026-q1 -o json",
    ),
)
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_tables)
@click.option(
    "--deep",
    is_flag=True,
    help="Also count the rows in the footers of all Parquet files.",
)
@click.option(
    "--since",
    metavar="TIME|TAG|COMMIT",
    help="Up to this point, don't report commits that no run made. Default: report all on main.",
)
@click.option(
    "--grace",
    metavar="SPAN",
    type=span,
    help="Don't report files younger than this as orphaned, such as 1d. Default: gc.keep.",
)
def verify(app: App, /, *, tables: tuple[str, ...], deep: bool, since: str | None, grace: timedelta | None) -> None:
    """Check that the journal, the catalog, the tables' metadata and their files agree. Changes nothing.

    Checks every state in the history of all branches and tags (as far back as gc.keep). Finds files
    that are missing, damaged or of the wrong size, totals that don't match the manifests, files that nothing
    references, runs whose process died, runs and source files on which the journal and main's commits disagree, and
    commits that no run made. Each problem comes with the command that fixes it. With TABLE, checks only these tables,
    and doesn't look for files that nothing references.

    Exits with 1 if there's a problem. Doesn't need Spark, and can run at any time.
    """
    with app.lake() as lake:
        report = lake.maintenance.verify(tables, deep=deep, since=since, grace=grace)
    if app.json:
        echo_json({**report.model_dump(mode="json"), "passed": report.passed})
    else:
        _show(report)
    raise click.exceptions.Exit(ExitCode.OK if report.passed else ExitCode.AUDIT_FAILED)


def _show(report: VerifyReport) -> None:
    number = len(report.findings)
    say(f"[bold red]{counted(number, 'problem')}[/]" if number else "[bold green]sound[/]  no problems")
    checked = ", ".join(
        (
            f"{counted(report.tables, 'table')} in {counted(report.states, 'state')}",
            f"{counted(report.files, 'file')} ({size(report.size_bytes)})",
            f"{counted(report.commits, 'commit')} of main by {counted(report.runs, 'run')}",
        )
    )
    say(f"  [dim]checked: {checked}[/]")
    kinds: dict[str, list[VerifyFinding]] = {}
    for one in report.findings:
        kinds.setdefault(one.kind, []).append(one)
    for kind, found in kinds.items():
        for one in found[:_MOST_OF_A_KIND]:
            say("", f"  [red]{kind}[/]  {safe(one.message)}")
            say(*(f"    {safe(path)}" for path in one.files[:_MOST_FILES]))
            if one.files and one.number > _MOST_FILES:
                say(f"    [dim]… {count(one.number - _MOST_FILES)} more; --output json lists them[/]")
            say(f"    [cyan]{safe(one.fix)}[/]")
        if len(found) > _MOST_OF_A_KIND:
            say(f"  [dim]… {count(len(found) - _MOST_OF_A_KIND)} more of {kind}; --output json lists them[/]")
