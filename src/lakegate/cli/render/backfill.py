"""Backfills: what one would do, and what it did."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

from lakegate.cli.render.backfill_progress import reason
from lakegate.cli.render.console import add_row, make_table, next_commands, safe, say, show
from lakegate.cli.render.runs import STYLES
from lakegate.cli.render.text import count, counted, duration, moment, size
from lakegate.intake.backfill_report import Outcome

if TYPE_CHECKING:
    from lakegate.cli.app import App
    from lakegate.intake.backfill_plan import BackfillChunk, BackfillPlan
    from lakegate.intake.backfill_report import BackfillReport, ChunkResult

_SHOWN = 20
_STYLES = {**STYLES, "later": "yellow", "waiting": "yellow", "already": "green"}
_MEANINGS = {
    "already": "published before",
    "empty": "no rows in it",
    "later": "another try may help",
    "waiting": "not begun",
}


def plan_payload(plan: BackfillPlan) -> dict[str, Any]:
    """Return the plan for machines."""
    return {
        "table": plan.table,
        "creates": plan.creates,
        "from": plan.since,
        "until": plan.until,
        "files": sum(len(chunk.files) for chunk in plan.chunks),
        "files_to_do": sum(len(chunk.to_do) for chunk in plan.chunks),
        "files_beyond": plan.beyond,
        "size_bytes_to_do": sum(chunk.size_bytes for chunk in plan.chunks),
        "chunks": [
            {
                "name": chunk.name,
                "files_to_do": len(chunk.to_do),
                "size_bytes_to_do": chunk.size_bytes,
                "files": [file.model_dump(mode="json") for file in chunk.files],
            }
            for chunk in plan.chunks
        ],
    }


def show_plan(plan: BackfillPlan, command: str) -> None:
    """Print the plan.

    Args:
        plan: The plan.
        command: The command line that does it.
    """
    files = sum(len(chunk.files) for chunk in plan.chunks)
    new = "  (a new table)" if plan.creates else ""
    say(
        f"[bold cyan]plan[/]  [bold]{safe(plan.table)}[/]{new}  "
        f"{counted(files, 'file')} in {counted(len(plan.chunks), 'chunk')}{_span(plan)}"
    )
    _show_beyond(plan)
    table = make_table(
        "chunk", "files", "published", "to do", "size", "notes", right=("files", "published", "to do", "size")
    )
    for chunk in plan.chunks:
        done = len(chunk.files) - len(chunk.to_do)
        cells = (chunk.name, count(len(chunk.files)), count(done), count(len(chunk.to_do)), size(chunk.size_bytes))
        add_row(table, *cells, ", ".join(_notes(chunk)), style=None if chunk.to_do else "dim")
    say("")
    show(table, indent=2)
    to_do = plan.to_do
    say("")
    if not to_do:
        say("All of it is published already; there is nothing to do.")
        return
    files_to_do = sum(len(chunk.to_do) for chunk in to_do)
    size_bytes = sum(chunk.size_bytes for chunk in to_do)
    say(f"{counted(len(to_do), 'chunk')} to do: {counted(files_to_do, 'file')}, {size(size_bytes)}.")
    next_commands(("Do it", command))


def report_payload(report: BackfillReport) -> dict[str, Any]:
    """Return for machines what a backfill did."""
    return {
        "table": report.table,
        "interrupted": report.interrupted,
        "chunks": {outcome: len(report.having(outcome)) for outcome in get_args(Outcome)},
        "files": sum(one.files for one in report.having("published")),
        "rows": sum(one.rows for one in report.results),
        "seconds": report.seconds,
        "results": [one.model_dump(mode="json") for one in report.results],
    }


def show_report(app: App, report: BackfillReport, command: str) -> None:
    """Print what a backfill did, and what can be done next.

    Args:
        app: The invocation.
        report: What it did.
        command: The command line that goes on with it.
    """
    published = report.having("published")
    files, rows = sum(one.files for one in published), sum(one.rows for one in published)
    speed = f", {files / report.seconds:,.1f} files/s" if files and report.seconds > 0 else ""
    say(
        f"[bold]{safe(report.table)}[/]  {counted(rows, 'row')} of {counted(files, 'file')} published in "
        f"{duration(report.seconds)}{speed}",
        "",
    )
    _show_outcomes(report)
    problems = report.having("rejected", "failed", "later")
    _show_problems(problems)
    if report.given_up:
        say("", "What was under way is finished or undone by the next lakegate command that writes.")
    steps = [_look(app, one) for one in problems[:1] if one.run_id is not None]
    if report.again:
        steps.append(("Go on; what is published stays out", command))
    elif problems:
        steps.append(("Once it is mended, try these chunks again", command))
    if steps:
        next_commands(*steps)


def _show_outcomes(report: BackfillReport) -> None:
    numbers = Counter(one.outcome for one in report.results)
    table = make_table("outcome", "chunks", "files", "rows", "size", "", right=("chunks", "files", "rows", "size"))
    for outcome in get_args(Outcome):
        ones = report.having(outcome)
        if not ones:
            continue
        rows, length = sum(one.rows for one in ones), sum(one.size_bytes for one in ones)
        files = sum(one.given for one in ones)
        cells = (outcome, count(numbers[outcome]), count(files), count(rows or None), size(length))
        add_row(table, *cells, _MEANINGS.get(outcome, ""), style=_STYLES.get(outcome))
    show(table, indent=2)


def _show_problems(problems: tuple[ChunkResult, ...]) -> None:
    if not problems:
        return
    table = make_table("chunk", "outcome", "run", "why", whole=("outcome", "run"))
    for one in problems[:_SHOWN]:
        add_row(table, one.chunk, one.outcome, one.run_id or "", reason(one), style=_STYLES.get(one.outcome))
    say("")
    show(table, indent=2)
    if len(problems) > _SHOWN:
        say(f"  [dim]… {len(problems) - _SHOWN} more; --output json has them all[/]")


def _look(app: App, result: ChunkResult) -> tuple[str, str]:
    return f"See what is wrong with {result.chunk}", app.command("runs", result.run_id or "")


def _notes(chunk: BackfillChunk) -> list[str]:
    states = Counter(file.state for file in chunk.files)
    notes = [f"{states['changed']:,} published with other content"] if states["changed"] else []
    return notes + ([f"{states['busy']:,} being ingested"] if states["busy"] else [])


def _span(plan: BackfillPlan) -> str:
    since = f" from {moment(plan.since)}" if plan.since else ""
    return since + (f" until {moment(plan.until)}" if plan.until else "")


def _show_beyond(plan: BackfillPlan) -> None:
    if plan.beyond:
        reach = "reaches" if plan.beyond == 1 else "reach"
        say(f"  [yellow]{counted(plan.beyond, 'file')} {reach} beyond the range; files are ingested whole[/]")
