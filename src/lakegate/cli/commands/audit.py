"""Run checks on what a branch adds to a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lakegate.cli.app import App, command
from lakegate.cli.check_output import (
    report_payload,
    show_all,
    show_evidence,
    show_explanations,
    show_notes,
    summary,
)
from lakegate.cli.options import at_option, check_option, complete_branches, complete_refs, table_argument
from lakegate.cli.output import echo_json, next_commands, safe, say, say_wrapped
from lakegate.errors import ExitCode
from lakegate.model.identifiers import is_commit_hash
from lakegate.model.words import counted, duration

if TYPE_CHECKING:
    from lakegate.model.checks import AuditReport


@command(
    "audit",
    makes_run=True,
    examples=(
        "lakegate audit nyc.trips --branch wap/january",
        "lakegate audit nyc.trips --branch wap/january --check 'not_null(passenger_count, severity=\"warn\")'",
        "lakegate audit nyc.trips --branch main --check 'unique(trip_id)'",
        "lakegate audit nyc.trips --branch main --since yesterday",
        "lakegate audit nyc.trips --branch main --explain",
    ),
)
@table_argument
@click.option("--branch", metavar="NAME", help="Branch to audit.", shell_complete=complete_branches)
@click.option(
    "--ref", metavar="REF", help="Audit all rows of this branch, tag or commit.", shell_complete=complete_refs
)
@at_option("Audit all rows as of this time (2026-01-31T07:00:00Z, '10m ago', yesterday), tag or commit.")
@click.option("--since", metavar="TIME|TAG|COMMIT", help="Audit only rows added after this.")
@click.option(
    "--explain",
    is_flag=True,
    help="Show how each check was answered, why no cheaper way was possible, and what it cost.",
)
@check_option("Check to run instead of the configured ones, such as 'unique(trip_id)'. Repeatable.")
def audit(
    app: App,
    /,
    *,
    table: str,
    branch: str | None,
    ref: str | None,
    at: str | None,
    since: str | None,
    explain: bool,
    checks: tuple[str, ...],
) -> None:
    """Run checks on the rows that a branch adds to TABLE, or on what is published. Publishes nothing.

    Without --check, runs the checks of the run that wrote the branch and those in the settings, and records the result
    as the run's verdict. With --check, runs those checks instead and records nothing. Exits with 1 if a check fails.

    With --branch main, --ref, --at or --since, audits all rows that TABLE has there, with the checks in the settings or
    those of --check, and records nothing. Use it to see whether a check would have passed before you adopt it.
    """
    if branch is None and ref is None and at is None and since is None:
        raise click.UsageError(
            "Pass --branch NAME to audit what a branch adds to the table, or --branch main for what is published."
        )
    if branch is not None and ref is not None:
        raise click.UsageError("--branch and --ref can't be combined. Pass one of them.")
    with app.lake() as lake:
        given = {"ref": ref, "at": at, "since": since, "explain": explain or None}
        points: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        report = lake.audit(table, branch=branch, checks=checks or None, **points)
    if app.json:
        echo_json(report_payload(report))
    else:
        _show(app, report, branch, is_tried=bool(checks))
    raise click.exceptions.Exit(ExitCode.OK if report.passed else ExitCode.AUDIT_FAILED)


def _show(app: App, report: AuditReport, branch: str | None, *, is_tried: bool) -> None:
    verdict = "[bold green]passed[/]" if report.passed else "[bold red]failed[/]"
    place = report.branch[:12] if is_commit_hash(report.branch) else report.branch
    say(f"{verdict}  [bold]{safe(report.table)}[/] on {safe(place)}  {counted(report.rows, 'row')}")
    say_wrapped(f"[dim]{safe(summary(report))}, {duration(report.seconds)}[/]")
    show_all(report)
    show_notes(report)
    show_explanations(report)
    show_evidence([*report.failures, *report.warnings])
    if not report.run_id:
        say("", "[dim]Not recorded: what is published doesn't change.[/]")
    elif is_tried or branch is None:
        say("", "[dim]Not recorded: the branch's verdict is unchanged.[/]")
    elif report.passed:
        next_commands(("Publish it", app.command("publish", branch)))
    else:
        next_commands(
            ("Discard it", app.command("discard", branch)),
            ("Or publish it anyway", app.command("publish", branch, "--accept", "REASON")),
        )
