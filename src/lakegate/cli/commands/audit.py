"""Run checks on what a branch adds to a table."""

from __future__ import annotations

import click

from lakegate.cli.app import App
from lakegate.cli.check_output import report_payload, show_all, show_evidence, show_skipped_checks, summary
from lakegate.cli.commandline import command
from lakegate.cli.options import check_option, complete_branches, table_argument
from lakegate.cli.output import counted, duration, echo_json, next_commands, safe, say
from lakegate.errors import ExitCode


@command(
    "audit",
    examples=(
        "lakegate audit nyc.trips --branch wap/january",
        "lakegate audit nyc.trips --branch wap/january --check 'not_null(passenger_count, severity=\"warn\")'",
    ),
)
@table_argument()
@click.option("--branch", required=True, metavar="NAME", help="Branch to audit.", shell_complete=complete_branches)
@check_option("Check to run instead of those, such as 'unique(trip_id)'. Repeatable.")
def audit(app: App, /, *, table: str, branch: str, checks: tuple[str, ...]) -> None:
    """Run checks on the rows that a branch adds to TABLE. Publishes nothing.

    Without --check, runs the checks of the run that wrote the branch and those in the settings, and records the result
    as the run's verdict. With --check, runs those checks instead and records nothing. Exits with 1 if a check fails.
    """
    with app.lake() as lake:
        report = lake.audit(table, branch=branch, checks=checks or None)
    if app.json:
        echo_json(report_payload(report))
    else:
        word = "[bold green]passed[/]" if report.passed else "[bold red]failed[/]"
        say(f"{word}  [bold]{safe(report.table)}[/] on {safe(report.branch)}  {counted(report.rows, 'row')}")
        say(f"  [dim]{safe(summary(report))}, {duration(report.seconds)}[/]")
        show_all(report)
        show_evidence([*report.failures, *report.warnings])
        show_skipped_checks(report.skipped)
        if checks:
            say("", "[dim]Not recorded: the branch's verdict is unchanged.[/]")
        elif report.passed:
            next_commands(("Publish it", app.command("publish", branch)))
        else:
            next_commands(
                ("Discard it", app.command("discard", branch)),
                ("Or publish it anyway", app.command("publish", branch, "--accept", "REASON")),
            )
    raise click.exceptions.Exit(ExitCode.OK if report.passed else ExitCode.AUDIT_FAILED)
