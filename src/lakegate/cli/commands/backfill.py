"""Ingest the files of a time range, chunk by chunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import click

from lakegate.cli.app import App, command
from lakegate.cli.options import ingest_options, ingest_options_from, partition_option, table_argument
from lakegate.cli.output import Styled, echo_json, next_commands, safe, say, show_rows
from lakegate.cli.run_output import STYLES
from lakegate.cli.stderr import LiveNarrator, make_progress
from lakegate.cli.wrapping import tell
from lakegate.errors import ExitCode, LakegateError
from lakegate.loading.backfill_plan import Outcome
from lakegate.model.words import count, counted, duration, moment, size
from lakegate.progress import SilentNarrator, one_line

if TYPE_CHECKING:
    from rich.progress import TaskID

    from lakegate.loading.backfill import Backfill
    from lakegate.loading.backfill_plan import BackfillChunk, BackfillPlan, BackfillReport, ChunkResult

_MAX_PARALLEL = 64
_SHOWN = 20
_STYLES = {**STYLES, "later": "yellow", "waiting": "yellow", "already": "green"}
_MEANINGS = {
    "already": "published before",
    "empty": "no rows",
    "later": "may succeed if retried",
    "waiting": "not started",
}
_MARKS = {"published": "[green]✓[/]", "already": "[green]✓[/]", "empty": "[yellow]✓[/]"}
_FAILED_MARK = "[red]✗[/]"
_WHOLE_BACKFILL_S = 30 * 86400.0


@command(
    "backfill",
    makes_run=True,
    examples=(
        "lakegate backfill nyc.trips 'trips/%Y-%m-%d.parquet' --from 2024-01-01 --to 2024-03-31 --parallel 4",
        "lakegate backfill nyc.trips 'trips/%Y/%m/green_%Y-%m-%d*.parquet' --from 2024-01 --to 2024-03 --dry-run",
        "lakegate backfill nyc.trips landing/ --by modified --from 2024-06 --chunk '50 files'",
        "lakegate backfill nyc.trips 'trips/%Y-%m/*' -c 'not_null(fare)' --stop-on-failure -o json",
    ),
)
@table_argument
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@click.option(
    "--from",
    "since",
    metavar="TIME",
    help="Start of the range: 2024-01-31, 2024-01 or 2024-01-31T06. Default: the oldest file.",
)
@click.option("--to", "until", metavar="TIME", help="End of the range, inclusive. Default: the newest file.")
@click.option(
    "--by",
    type=click.Choice(["path", "modified"]),
    default="path",
    show_default=True,
    help="Date files by the date in their path, or by their modification time.",
)
@click.option(
    "--chunk",
    metavar="UNIT|N",
    help="What one run ingests: an hour, day, month, year, file, or a number of files. Default: the dates' precision.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, _MAX_PARALLEL),
    default=4,
    show_default=True,
    metavar="N",
    help="Number of chunks to ingest at the same time.",
)
@click.option("--stop-on-failure", is_flag=True, help="Start no more chunks once one isn't published.")
@ingest_options(checked="every chunk", branch_of="chunk")
@partition_option
@click.option(
    "--dry-run", is_flag=True, help="Show the chunks, what's published, and what would be refused. Writes nothing."
)
def backfill(app: App, /, *, dry_run: bool, parallel: int, stop_on_failure: bool, **given: Any) -> None:
    """Ingest the files of a time range into TABLE, oldest first, several chunks at a time.

    PATH is a pattern that says where the date is: 'trips/%Y/%m/day_%d*.parquet', 'trips/year=%Y/month=%m/*'. With --by
    modified, it's a file, a folder or a pattern, with or without a date.

    --from and --to are inclusive: --to 2024-03 means until the end of March. Times are UTC. A file that is only partly
    in the range is ingested whole.

    Each version of a file is published to a table once, however often you retry or link it. So if a backfill
    was stopped, killed, or failed in parts, run it again: it continues where it stopped, and is done when everything is
    published. The same bytes at another path count as another file.

    Exits with 0 if everything is published, with 3 if a retry may get further, otherwise with 2 if a chunk couldn't be
    ingested, otherwise with 1 if one was rejected. A dry run exits with 2 if a chunk would be refused.
    """
    work = _backfill(app, given)
    plan = work.plan()
    if dry_run:
        with app.narrator.step(f"Checking {counted(len(plan.to_do), 'chunk')}"):
            problems = work.find_problems(plan)
        if app.json:
            echo_json(_plan_payload(plan, problems))
        else:
            _show_plan(app, plan, problems)
        raise click.exceptions.Exit(ExitCode.USAGE if problems else ExitCode.OK)
    watcher = _watcher(app, plan)
    with watcher.progress if isinstance(watcher, LiveBackfill) else nullcontext():
        report = work.run_all(plan, parallel=parallel, stop_on_failure=stop_on_failure, watcher=watcher)
    if app.json:
        echo_json(_report_payload(report))
    else:
        _show_report(app, report)
    raise click.exceptions.Exit(_exit_code(report))


def _backfill(app: App, given: dict[str, Any]) -> Backfill:
    from lakegate.loading.backfill import Backfill

    return Backfill(
        partial(app.lake, may_create_project=True),
        given["table"],
        given["paths"],
        given["since"],
        given["until"],
        by=given["by"],
        chunk=given["chunk"],
        options=ingest_options_from(given),
    )


def _exit_code(report: BackfillReport) -> ExitCode:
    if report.interrupted:
        return ExitCode.INTERRUPTED
    if report.again:
        return ExitCode.RETRYABLE
    if report.with_outcome("failed"):
        return ExitCode.USAGE
    return ExitCode.AUDIT_FAILED if report.with_outcome("rejected") else ExitCode.OK


def _plan_payload(plan: BackfillPlan, problems: Mapping[str, LakegateError]) -> dict[str, Any]:
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
                "error": problems[chunk.name].to_dict() if chunk.name in problems else None,
                "files": chunk.files,
            }
            for chunk in plan.chunks
        ],
    }


def _show_plan(app: App, plan: BackfillPlan, problems: Mapping[str, LakegateError]) -> None:
    files = sum(len(chunk.files) for chunk in plan.chunks)
    new = "  (a new table)" if plan.creates else ""
    span = (f" from {moment(plan.since)}" if plan.since else "") + (
        f" until {moment(plan.until)}" if plan.until else ""
    )
    say(
        f"[bold cyan]plan[/]  [bold]{safe(plan.table)}[/]{new}  "
        f"{counted(files, 'file')} in {counted(len(plan.chunks), 'chunk')}{span}"
    )
    if plan.beyond:
        extend = "extends" if plan.beyond == 1 else "extend"
        say(f"  [yellow]{counted(plan.beyond, 'file')} {extend} beyond the range; files are ingested whole[/]")
    numbers = ("files", "published", "to ingest", "size")
    rows = []
    for chunk in plan.chunks:
        done = sum(file.state == "published" for file in chunk.files)
        cells = (chunk.name, count(len(chunk.files)), count(done), count(len(chunk.to_do)), size(chunk.size_bytes))
        refused = chunk.name in problems
        notes = [*_notes(chunk), *(["would be refused"] if refused else [])]
        rows.append(Styled((*cells, ", ".join(notes)), "red" if refused else None if chunk.to_do else "dim"))
    say("")
    show_rows(("chunk", *numbers, "notes"), rows, right=numbers, indent=2)
    to_do = plan.to_do
    say("")
    if not to_do:
        say("Everything is already published.")
        return
    files_to_do = sum(len(chunk.to_do) for chunk in to_do)
    size_bytes = sum(chunk.size_bytes for chunk in to_do)
    say(f"{counted(len(to_do), 'chunk')} to ingest: {counted(files_to_do, 'file')}, {size(size_bytes)}.")
    chunks_of: dict[str, list[str]] = {}  # a year's files often have the same problem
    for name, error in problems.items():
        chunks_of.setdefault(error.message, []).append(name)
    for message, names in list(chunks_of.items())[:_SHOWN]:
        others = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        first, *rest = message.splitlines() or [""]
        say("", f"[red]{safe(names[0])}{others} would be refused:[/] {safe(first)}", *map(safe, rest))
        hint = problems[names[0]].hint
        say(*([f"  [dim]{safe(hint)}[/]"] if hint else []))
    if len(chunks_of) > _SHOWN:
        say("", f"  [dim]… {len(chunks_of) - _SHOWN} more; --output json lists them all[/]")
    next_commands(("Do it", app.command_without_dry_run()))


def _report_payload(report: BackfillReport) -> dict[str, Any]:
    return {
        "table": report.table,
        "interrupted": report.interrupted,
        "chunks": {outcome: len(report.with_outcome(outcome)) for outcome in get_args(Outcome)},
        "files": sum(one.files for one in report.with_outcome("published")),
        "rows": sum(one.rows for one in report.results),
        "seconds": report.seconds,
        "results": report.results,
    }


def _show_report(app: App, report: BackfillReport) -> None:
    published = report.with_outcome("published")
    files, rows = sum(one.files for one in published), sum(one.rows for one in published)
    speed = f", {files / report.seconds:,.1f} files/s" if files and report.seconds > 0 else ""
    say(
        f"[bold]{safe(report.table)}[/]  {counted(rows, 'row')} of {counted(files, 'file')} published in "
        f"{duration(report.seconds)}{speed}",
        "",
    )
    _show_outcomes(report)
    problems = report.with_outcome("rejected", "failed", "later")
    _show_problems(problems)
    if report.given_up:
        say("", "The next command that writes will finish or undo the runs that were in progress.")
    command = app.command_without_dry_run()
    steps = [
        (f"See what went wrong with {one.chunk}", app.command("runs", one.run_id))
        for one in problems[:1]
        if one.run_id is not None
    ]
    if report.again:
        steps.append(("Continue; published files are skipped", command))
    elif problems:
        steps.append(("After fixing the cause, retry these chunks", command))
    next_commands(*steps)


def _show_outcomes(report: BackfillReport) -> None:
    numbers = ("chunks", "files", "rows", "size")
    table = []
    for outcome in get_args(Outcome):
        chunks = report.with_outcome(outcome)
        if not chunks:
            continue
        rows, length = sum(one.rows for one in chunks), sum(one.size_bytes for one in chunks)
        files = sum(one.given for one in chunks)
        cells = (outcome, count(len(chunks)), count(files), count(rows or None), size(length))
        table.append(Styled((*cells, _MEANINGS.get(outcome, "")), _STYLES.get(outcome)))
    show_rows(("outcome", *numbers, ""), table, right=numbers, indent=2)


def _show_problems(problems: tuple[ChunkResult, ...]) -> None:
    if not problems:
        return
    rows = (
        Styled((one.chunk, one.outcome, one.run_id or "", reason(one)), _STYLES.get(one.outcome))
        for one in problems[:_SHOWN]
    )
    say("")
    show_rows(("chunk", "outcome", "run", "why"), rows, whole=("outcome", "run"), indent=2)
    if len(problems) > _SHOWN:
        say(f"  [dim]… {len(problems) - _SHOWN} more; --output json lists them all[/]")


def _notes(chunk: BackfillChunk) -> list[str]:
    states = Counter(file.state for file in chunk.files)
    notes = [f"{states['changed']:,} changed since they were published"] if states["changed"] else []
    return notes + ([f"{states['busy']:,} being ingested"] if states["busy"] else [])


class ChunkLines:
    """Prints one line for each chunk. Implements :class:`lakegate.loading.backfill_plan.BackfillObserver`."""

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print = print_line

    def began(self, chunk: BackfillChunk) -> None:
        """Print nothing: one line per chunk is enough."""

    def ended(self, result: ChunkResult) -> None:
        """Print how a chunk ended."""
        self._print(chunk_line(result))

    def stopping(self, under_way: int) -> None:
        """Print that it will stop."""
        self._print(_stopping_line(under_way))


class LiveBackfill(SilentNarrator):
    """A bar over all files, the time left, and a row for each chunk in progress.

    Implements :class:`lakegate.loading.backfill_plan.BackfillObserver`, and the narrator of the threads' lakes.
    """

    def __init__(self, plan: BackfillPlan) -> None:
        self.progress = make_progress(average_s=_WHOLE_BACKFILL_S)
        self._files = sum(len(chunk.to_do) for chunk in plan.to_do)
        self._done = 0
        # In bytes: files may differ much in size, and this estimates the time left.
        size_bytes = sum(chunk.size_bytes for chunk in plan.to_do)
        self._bar = self.progress.add_task(one_line(plan.table), total=max(size_bytes, 1), amount=self._amount())
        self._rows: dict[str, TaskID] = {}

    def began(self, chunk: BackfillChunk) -> None:
        """Show that a chunk is in progress."""
        self._rows[chunk.name] = self.progress.add_task(f"  {one_line(chunk.name)}", total=None, amount="")

    def ended(self, result: ChunkResult) -> None:
        """Print one line for the chunk, and move the bar."""
        self.progress.remove_task(self._rows.pop(result.chunk))
        self._print(f"{_MARKS.get(result.outcome, _FAILED_MARK)} {safe(chunk_line(result))}")
        self._done += result.given
        self.progress.update(self._bar, advance=result.size_bytes, amount=self._amount())

    def stopping(self, under_way: int) -> None:
        """Print that it will stop."""
        self._print(f"[yellow]{safe(_stopping_line(under_way))}[/]")

    def note(self, text: str) -> None:
        """Print ``text`` above the bar."""
        self._print(f"  [dim]{safe(text)}[/]")

    def _amount(self) -> str:
        return f"{self._done:,} of {counted(self._files, 'file')}"

    def _print(self, markup: str) -> None:
        self.progress.console.print(markup, highlight=False, soft_wrap=True)


def _watcher(app: App, plan: BackfillPlan) -> ChunkLines | LiveBackfill | None:
    """Return what shows the backfill's progress. On a terminal, that's also the narrator."""
    if app.logs is not None:
        return ChunkLines(app.narrator.note)
    if app.quiet:
        return None
    if isinstance(app.narrator, LiveNarrator):
        app.narrator = live = LiveBackfill(plan)
        return live
    return ChunkLines(tell)


def chunk_line(result: ChunkResult) -> str:
    """Return how a chunk ended, in one line."""
    why = reason(result).removesuffix(".")
    if result.outcome == "published":
        ended = f"published {counted(result.rows, 'row')}" + (f"; {why}" if why else "")
    else:
        ended = result.outcome + (f": {why}" if why else "")
    return one_line(f"{result.chunk}  {ended}, {duration(result.seconds)}")


def reason(result: ChunkResult) -> str:
    """Return why a chunk wasn't published; empty if its outcome says it all."""
    if result.error is not None:
        return result.error.message
    if result.failed_checks:
        return ", ".join(result.failed_checks)
    return f"{counted(result.left, 'file')} left to other runs" if result.left else ""


def _stopping_line(under_way: int) -> str:
    return f"Finishing {counted(under_way, 'chunk')}. Interrupt again to stop now; the next command recovers them."
