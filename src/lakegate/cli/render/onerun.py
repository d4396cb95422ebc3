"""All that the journal knows of one run (``lakegate runs RUN``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakegate.cli.render.checks import show_all
from lakegate.cli.render.console import add_row, make_table, only_ascii, safe, say, show
from lakegate.cli.render.notify import show_told
from lakegate.cli.render.picture import draw
from lakegate.cli.render.runs import show_next, show_outcome
from lakegate.cli.render.text import count, duration, moment, share, size

if TYPE_CHECKING:
    from lakegate.cli.app import App
    from lakegate.cli.render.skipped import Statuses
    from lakegate.model.refs import Commit
    from lakegate.model.run import Run, RunStep

_BAR_WIDTH = 24
_OUTCOMES = {"done": "", "failed": "failed", "running": "under way"}


def show_details(app: App, run: Run, statuses: Statuses, newer: Sequence[Commit]) -> None:
    """Print one run: how it ended, its way past main, its steps, files and checks.

    Args:
        app: The invocation.
        run: The run.
        statuses: How the runs stand that have the files it left out.
        newer: Commits of main between the run's base and its publish, newest first; none when they are not known.
    """
    show_outcome(run, statuses)
    facts = [(name, value) for name, value in _facts(run) if value]
    say("", *(f"  [dim]{name:<11}[/] {safe(value)}" for name, value in facts))
    _show_picture(run, newer)
    _show_steps(run.steps)
    _show_files(run)
    for report in run.reports:
        if len(run.reports) > 1:
            say("", f"  Checks of [bold]{safe(report.table)}[/]")
        show_all(report)
    show_told(run.notifications)
    show_next(app, run)


def bar(part: float, whole: float) -> str:
    """Return a bar for a share of the whole; anything above nothing shows.

    Example:
        >>> bar(1, 2), bar(0.001, 5), bar(0, 5)
        ('████████████', '█', '')
    """
    if whole <= 0 or part <= 0:
        return ""
    return "█" * max(1, round(_BAR_WIDTH * min(part / whole, 1.0)))


def _facts(run: Run) -> list[tuple[str, str]]:
    return [
        ("kind", "" if run.kind == "ingest" else run.kind),
        ("name", run.name or ""),
        ("started", moment(run.started_at)),
        ("finished", moment(run.finished_at)),
        ("branch", f"{run.branch} ({'stands' if run.branch_kept else 'gone'})" if run.branch else ""),
        ("base", run.base or ""),
        ("commit", run.publication.commit if run.publication else ""),
        ("replayed", ", ".join(run.publication.replayed) if run.publication else ""),
        ("reads", ", ".join(run.reads)),
        ("reverts", ", ".join(run.reverts)),
        ("reverted by", run.reverted_by or ""),
        ("detail", run.detail or ""),
        ("error", run.error.message if run.error else ""),
        ("hint", (run.error.hint or "") if run.error else ""),
    ]


def _show_picture(run: Run, newer: Sequence[Commit]) -> None:
    lines = draw(run, newer, ascii_only=only_ascii())
    if lines:
        say("", *(f"  {line}" for line in lines))


def _show_steps(steps: Sequence[RunStep]) -> None:
    if not steps:
        return
    total = sum(_seconds(step) for step in steps)
    table = make_table("step", "started", "took", "share", "", "", right=("took", "share"))
    for step in steps:
        took = _seconds(step)
        shown = bar(took, total)
        cells = (
            step.name,
            moment(step.started_at),
            "" if step.finished_at is None else duration(took),
            share(round(1000 * took), round(1000 * total)),
            shown.replace("█", "#") if only_ascii() else shown,
            _OUTCOMES[step.outcome],
        )
        add_row(table, *cells, style="red" if step.outcome == "failed" else None)
    say("")
    show(table, indent=2)


def _seconds(step: RunStep) -> float:
    return 0.0 if step.finished_at is None else (step.finished_at - step.started_at).total_seconds()


def _show_files(run: Run) -> None:
    written = run.request.batch.files if run.request else ()
    left_out = [known for known in run.skipped_files if known.file.uri not in {file.uri for file in written}]
    if not written and not left_out:
        return
    table = make_table("file", "rows", "size", "", right=("rows", "size"))
    for file in written:
        # A run that had nothing to do still lists all that it was given.
        owner = next((known.run_id for known in run.skipped_files if known.file.uri == file.uri), None)
        about = f"version {file.version_id}" if file.version_id else ""
        add_row(table, file.uri, count(file.rows), size(file.size_bytes), f"skipped: {owner}" if owner else about)
    for known in left_out:
        file = known.file
        add_row(table, file.uri, count(file.rows), size(file.size_bytes), f"skipped: {known.run_id}", style="dim")
    say("")
    show(table, indent=2)
