"""``lakegate audit``."""

from __future__ import annotations

import click

from lakegate.cli import completions
from lakegate.cli.app import App, pass_app
from lakegate.cli.commandline import command
from lakegate.cli.options import check_option, output_option, table_argument
from lakegate.cli.render import checks as render
from lakegate.cli.render.console import echo_json, next_commands, safe, say
from lakegate.cli.render.text import counted, duration
from lakegate.errors import ExitCode


@command(
    "audit",
    examples=(
        "lakegate audit nyc.trips --branch wap/january",
        "lakegate audit nyc.trips --branch wap/january --check 'not_null(passenger_count, severity=\"warn\")'",
    ),
)
@table_argument()
@click.option("--branch", required=True, metavar="NAME", help="Branch to look at.", shell_complete=completions.branches)
@check_option("A rule to ask instead of those of the run. Repeatable.")
@output_option()
@pass_app
def audit(app: App, /, *, table: str, branch: str, checks: tuple[str, ...], output: str) -> None:
    """Run checks on the rows that a branch adds to TABLE. Publishes nothing.

    Without --check, the checks of the run that wrote the branch are asked again. Exits with 1 when one fails.
    """
    with app.lake() as lake:
        report = lake.audit(table, branch=branch, checks=checks or None)
    if output == "json":
        echo_json(render.report_payload(report))
    else:
        word = "[bold green]passed[/]" if report.passed else "[bold red]failed[/]"
        say(f"{word}  [bold]{safe(report.table)}[/] on {safe(report.branch)}  {counted(report.rows, 'row')}")
        say(f"  [dim]{safe(render.summary(report))}, {duration(report.seconds)}[/]")
        render.show_all(report)
        render.show_evidence([*report.failures, *report.warnings])
        if report.passed:
            next_commands(("Publish it", app.command("publish", branch)))
        else:
            next_commands(("Drop it", app.command("discard", branch)))
    raise click.exceptions.Exit(ExitCode.OK if report.passed else ExitCode.AUDIT_FAILED)
