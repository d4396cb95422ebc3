"""A run's way past its target, as ``git log --graph`` would draw it: newest on top, the target on the left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lakegate.cli.render.console import safe
from lakegate.cli.render.runs import told_publication
from lakegate.cli.render.text import clip, counted

if TYPE_CHECKING:
    from lakegate.model.refs import Commit
    from lakegate.model.run import Run

MOST_COMMITS = 50
"""How many commits of the target are asked for, at most, to tell what happened between base and publish."""
_NAMED = 3
_SHORT = 12
_MESSAGE = 60
_ASCII = str.maketrans({"●": "o", "◆": "*", "○": "o", "✗": "x", "┊": ":", "│": "|", "├": "|", "─": "-"}) | {
    ord("╮"): "\\",
    ord("╯"): "/",
    ord("…"): "...",
}


def draw(run: Run, newer: Sequence[Commit], *, ascii_only: bool) -> list[str]:
    """Return the picture as lines of markup; none for a run that neither branched nor published.

    Args:
        run: The run.
        newer: Commits of the target between the run's base and its publish, newest first, :data:`MOST_COMMITS` at
            most; none when they are not known.
        ascii_only: Use no other characters.
    """
    if run.base is None or not (run.branch or run.publication):
        return []
    lines = [
        *_on_target_after(run),
        *_branch(run, newer),
        f"[yellow]●[/]    {run.base[:_SHORT]}  {safe(run.target)} as the run found it",
    ]
    return [line.translate(_ASCII) for line in lines] if ascii_only else lines


def _on_target_after(run: Run) -> Iterator[str]:
    if run.reverted_by is not None:
        yield f"[red]✗[/]    reverted by run {safe(run.reverted_by)}"
    if run.publication is not None:
        what = f"{told_publication(run, run.publication)}: {safe(', '.join(run.publication.tables))}"
        yield f"[green]◆[/]    {run.publication.commit[:_SHORT]}  {safe(run.target)}: published, {what}"


def _branch(run: Run, newer: Sequence[Commit]) -> Iterator[str]:
    if not run.branch:
        yield from (f"{mark}    {text}" for mark, text in _newer(run, newer))
        return
    if run.publication is None:
        yield f"┊ [cyan]●[/]  {_written(run)}"
    else:
        yield "├─╮"
        yield f"│ [cyan]●[/]  {_written(run)}"
        yield from (f"{mark} │  {text}" for mark, text in _newer(run, newer))
    yield "├─╯"


def _newer(run: Run, newer: Sequence[Commit]) -> Iterator[tuple[str, str]]:
    """Yield what the target got meanwhile: a mark and a text for each line."""
    replayed = run.publication.replayed if run.publication else ()
    if not newer:
        if replayed:
            yield "○", f"newer changes to {safe(', '.join(replayed))}"
        return
    for commit in newer[:_NAMED]:
        touched = " (replayed onto)" if set(commit.tables) & set(replayed) else ""
        yield "○", f"{commit.hash[:_SHORT]}  {safe(clip(_first_line(commit), _MESSAGE))}{touched}"
    left = len(newer) - _NAMED
    if left > 0:
        more = f"{left} or more other commits" if len(newer) >= MOST_COMMITS else counted(left, "other commit")
        yield "┊", f"{more} on {safe(run.target)} in between"


def _first_line(commit: Commit) -> str:
    return commit.message.split("\n", 1)[0]


def _written(run: Run) -> str:
    head = f"{run.staged[-1].head[:_SHORT]}  " if run.staged else ""
    fate = "stands" if run.branch_kept else "gone"
    return f"{head}{safe(run.branch)}: {', '.join((*_state(run), fate))}"


def _state(run: Run) -> Iterator[str]:
    if not run.staged:
        yield "nothing written" if run.finished_at else "being written"
        return
    yield "written"
    if run.reports:
        yield "audit failed" if run.failures else "audit passed"
