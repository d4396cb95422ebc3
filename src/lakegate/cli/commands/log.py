"""Show the commits of a branch or tag, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import click

from lakegate.cli.app import App, command
from lakegate.cli.options import complete_refs, limit_option
from lakegate.cli.output import clip, echo_json, safe, say, short_hash, width_or
from lakegate.cli.wrapping import tell
from lakegate.errors import NewerFormatError
from lakegate.ledger.event import PROPERTY, UNDOES, Event, event_of, unreadable_in
from lakegate.model.words import moment
from lakegate.progress import one_line

if TYPE_CHECKING:
    from lakegate.lake import Lake
    from lakegate.model.refs import Commit

_LONGEST_VALUE = 300
_MOST_FILES = 3
_HASH = 12
_SHORTEST_MESSAGE = 20


@command("log", examples=("lakegate log", "lakegate log wap/january --oneline --limit 5", "lakegate log -o json"))
@click.argument("ref", default="main", shell_complete=complete_refs)
@limit_option(20)
@click.option("--oneline", is_flag=True, help="Show one line for each commit: its hash, its time and its message.")
def log(app: App, /, *, ref: str, limit: int, oneline: bool) -> None:
    """Show the commits of REF (a branch, tag or commit; main by default), newest first.

    Wherever a command takes a commit, you can pass the first six or more digits of its hash.
    """
    with app.lake() as lake:
        if app.json:
            commits = lake.log(ref, limit=limit + 1)
        else:
            commits = lake.log(ref, limit=limit + 1, operations=False)
            commits = commits if oneline else _with_tables(lake, commits, limit + 1)
        shown = islice(commits, limit)
        if app.json:
            echo_json([commit_payload(commit) for commit in shown])
        elif oneline:
            _show_lines(shown)
        else:
            show_commits(shown)
        if next(commits, None) is not None:
            tell(f"There are earlier commits. To see more, pass --limit {10 * limit}.")


def _with_tables(lake: Lake, commits: Iterable[Commit], limit: int) -> Iterator[Commit]:
    """Yield commits with their tables. Ask the catalog from the first commit that doesn't name its own."""
    for number, commit in enumerate(commits):
        if PROPERTY not in commit.properties:
            yield from lake.log(commit.hash, limit=limit - number)
            return
        yield commit


def commit_payload(commit: Commit) -> dict[str, Any]:
    """Return a commit for JSON output. ``unreadable`` says why the source files that it names can't be read."""
    return {**commit.model_dump(mode="json"), "unreadable": unreadable_in(commit)}


def show_commits(commits: Iterable[Commit]) -> None:
    """Print commits as they come."""
    for commit in commits:
        say(f"[yellow]commit {short_hash(commit.hash)}[/]", f"  [dim]{moment(commit.time)}  {safe(commit.author)}[/]")
        say(*(f"  {safe(line)}" for line in commit.message.splitlines() or [""]))
        unreadable = None
        try:
            facts = [*_facts(commit, event_of(commit) if PROPERTY in commit.properties else None)]
        except NewerFormatError as error:
            facts, unreadable = [*_facts(commit, None)], error.message
        say(*(f"  [dim]{safe(key)}: {safe(_short(value))}[/]" for key, value in facts))
        say(*([] if unreadable is None else [f"  [yellow]{safe(unreadable)}[/]"]), "")


def _facts(commit: Commit, event: Event | None) -> Iterator[tuple[str, str]]:
    """Yield what to show of a commit. ``--output json`` has every property."""
    tables = tuple(event.tables) if event else commit.tables
    yield from [("tables", ", ".join(tables))] if tables else ()
    if event is None:
        yield from ((key.removeprefix("lakegate."), value) for key, value in sorted(commit.properties.items()))
        return
    files = [one_line(unquote(PurePosixPath(urlsplit(uri).path).name)) for uri, _ in event.files]
    if files:
        more = f" and {len(files) - _MOST_FILES:,} more" if len(files) > _MOST_FILES else ""
        yield "files", ", ".join(files[:_MOST_FILES]) + more
    back = dict.fromkeys(run for one in event.tables.values() for run in one.add if run != event.run)
    facts = {
        "accepted": "" if event.accepted is None else event.accepted.reason,
        "accepted-by": "" if event.accepted is None else event.accepted.actor,
        "audit": event.audit,
        "compaction": event.compaction,
        "keys": " ".join(event.keys),
        "kind": event.kind if event.kind in UNDOES else "",
        "mode": event.mode,
        "reads": " ".join(event.reads),
        "renames": ", ".join(f"{old} to {new}" for old, new in event.moved),
        "restores": " ".join(back),
        "reverts": " ".join(event.reverts),
        "run-id": event.run,
        "schema": event.columns,
    }
    yield from ((key, value) for key, value in facts.items() if value)


def _show_lines(commits: Iterable[Commit]) -> None:
    widest = width_or(0)
    for commit in commits:
        when, message = moment(commit.time), one_line(commit.message.partition("\n")[0])
        if widest:
            message = clip(message, max(widest - len(when) - _HASH - 4, _SHORTEST_MESSAGE))
        say(f"[yellow]{commit.hash[:_HASH]}[/]  [dim]{when}[/]  {safe(message)}")


def _short(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}… ({len(value):,} characters)"
