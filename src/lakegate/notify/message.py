"""What a notice says, in words and figures that every kind of channel can show in its own way."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from lakegate.model.channels import NotifySettings
from lakegate.model.checks import CheckResult
from lakegate.model.notices import AlertGroup, Notice
from lakegate.model.run import Run
from lakegate.narration import redact, without_secrets

MAX_FAILURES = 10
"""Failed checks that a message shows; the report has all."""
MAX_EXAMPLES = 3
"""Rows that a message shows of each of them."""

_PLAIN = re.compile(r"[\w ./:%+=,(){}~'&-]+", re.ASCII)
"""Names of files that all channels show as they are."""
_LONGEST_COMMAND = 280

_Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """One check that failed.

    Attributes:
        table: The table.
        result: What the check found; without examples unless they are allowed.
    """

    table: str
    result: CheckResult

    @property
    def told(self) -> str:
        """How many rows fail, and why."""
        result = self.result
        of = f" of {result.total_rows:,}" if result.total_rows else ""
        rows = f"{result.failing_rows:,}{of} row{'' if (result.total_rows or result.failing_rows) == 1 else 's'}"
        return f"{rows}. {result.detail}" if result.detail else rows


@dataclass(frozen=True, slots=True)
class Message:
    """What is to be told.

    Attributes:
        key: Names the message, at each try alike.
        notice: What it is about.
        title: What happened to what, in a few words.
        summary: The same in a sentence.
        facts: Names and values.
        failures: Checks that failed, those that block the publish first.
        more_failures: How many more there were.
        commands: What to type next, each with its purpose.
        link: Address of a report.
        group: The message's place among those that say the same.
        beside: What that means, in a sentence or two; may be empty.
    """

    key: str
    notice: Notice
    title: str
    summary: str
    facts: _Pairs
    failures: tuple[Failure, ...]
    more_failures: int
    commands: _Pairs
    link: str | None
    group: AlertGroup
    beside: str


def compose(notice: Notice, settings: NotifySettings, group: AlertGroup, *, window_s: float) -> Message:
    """Return what to tell.

    Args:
        notice: What it is about.
        settings: Whether rows may be shown, and where reports are.
        group: The message's place among those that say the same.
        window_s: Seconds for which it stands for them.
    """
    run = notice.run
    found = [] if run is None else list(_failures(run, examples=settings.examples))
    return Message(
        key=f"msg_{secrets.token_hex(12)}",
        notice=notice,
        title=title_of(notice),
        summary=_summary(notice),
        facts=tuple(_facts(notice)),
        failures=tuple(found[:MAX_FAILURES]),
        more_failures=max(len(found) - MAX_FAILURES, 0),
        commands=tuple(_commands(notice, settings, group)),
        link=_link(run, settings.report_url),
        group=group,
        beside=_beside(notice, group, window_s, settings),
    )


def title_of(notice: Notice) -> str:
    """Return what happened to what, in a few words."""
    if notice.event == "test":
        return "Test message"
    what = ", ".join(notice.tables) or "a transaction"
    return f"{what}: {_event(notice)}{' (recovered)' if notice.recovered else ''}"


def _event(notice: Notice) -> str:
    many = notice.counted
    if notice.event == "given_up":
        return "file given up" if many is None else f"{many:,} more file{'' if many == 1 else 's'} given up"
    if many is not None:
        return f"{many:,} more {notice.event}"
    kind = "" if notice.run is None or notice.run.kind in ("ingest", "branch") else f"{notice.run.kind} "
    return f"{kind}{notice.event}"


def _summary(notice: Notice) -> str:
    if notice.counted is not None:
        whom = "It says" if notice.counted == 1 else "They say"
        return f"{whom} the same as an earlier message, which stood for all of them."
    if notice.run is not None:
        return _summary_of_run(notice.run)
    if notice.late is not None:
        late = notice.late
        since = "yet" if late.last is None else f"since {late.last:%Y-%m-%d %H:%M} UTC"
        return f"Nothing was published to {late.table} {since}; expected every {late.expected_every}."
    if notice.file is not None:
        tries = f"{notice.file.tries:,} time{'' if notice.file.tries == 1 else 's'}"
        return f"Tried {tries}, and left alone now until it changes. {without_secrets(notice.file.reason)}"
    return "This is what a message of lakegate looks like here. Nothing has happened."


def _summary_of_run(run: Run) -> str:
    if run.status == "rejected":
        checks = sum(len(report.results) for report in run.reports)
        return f"{len(run.failures)} of {checks} check{'' if checks == 1 else 's'} failed; nothing was published."
    if run.status == "failed":
        why = "" if run.error is None else f" {without_secrets(run.error.message)}"
        return f"Nothing was published.{why}"
    rows = "" if run.publication is None else f"{run.publication.rows:,} rows in commit {run.publication.commit[:12]}."
    warnings = sum(len(report.warnings) for report in run.reports)
    return " ".join(filter(None, (rows, f"{warnings} checks failed that only warn." if warnings else "")))


def _facts(notice: Notice) -> Iterator[tuple[str, str]]:
    run, file = notice.run, notice.file
    if file is not None:
        yield "Table", file.table
        yield "File", redact(file.uri)
        if file.run_id is not None:
            yield "Run", file.run_id
    if run is not None:
        yield from _facts_of_run(run)


def _facts_of_run(run: Run) -> Iterator[tuple[str, str]]:
    yield "Table", ", ".join(run.tables)
    yield "Run", run.run_id
    if run.branch and run.branch_kept:
        yield "Branch", run.branch
    rows = run.request.batch.rows if run.request is not None else sum(staged.rows for staged in run.staged)
    if rows:
        yield "Rows", f"{rows:,}"
    if run.name:
        yield "Name", run.name
    if run.detail:
        yield "Recovery", run.detail
    if run.error is not None and run.error.hint:
        yield "Hint", without_secrets(run.error.hint)


def _failures(run: Run, *, examples: bool) -> Iterator[Failure]:
    for severity in ("error", "warn"):
        for report in run.reports:
            for result in report.failures if severity == "error" else report.warnings:
                kept = tuple(map(_shown, result.examples[:MAX_EXAMPLES])) if examples else ()
                yield Failure(report.table, result.model_copy(update={"examples": kept}))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _commands(notice: Notice, settings: NotifySettings, group: AlertGroup) -> Iterator[tuple[str, str]]:
    run = notice.run
    if run is None:
        yield from _commands_without_run(notice)
        return
    yield "Look at it", shlex.join(("lakegate", "runs", run.run_id))
    if run.branch and run.branch_kept and run.status != "published":
        yield "See what its branch changes", shlex.join(("lakegate", "diff", run.target, run.branch))
        if run.staged:
            yield "Publish it, once its audit passes", shlex.join(("lakegate", "publish", run.branch))
        yield "Or discard it", shlex.join(("lakegate", "discard", run.branch))
    if (group.number > 1 or group.missed) and run.tables:
        # Those that were missed may be from any time before.
        since = ("--since", settings.group) if group.number > 1 else ()
        words = ("lakegate", "runs", "--table", run.tables[0], "--status", run.status, *since)
        yield "See all of the same", shlex.join(words)


def _commands_without_run(notice: Notice) -> Iterator[tuple[str, str]]:
    file = notice.file
    if file is not None:
        if file.run_id is not None:
            yield "Look at its last run", shlex.join(("lakegate", "runs", file.run_id))
        command = shlex.join(("lakegate", "ingest", file.table, redact(file.uri)))
        # Others can be no part of a command that people copy: they do not see all of it, or not as it is.
        if _PLAIN.fullmatch(file.uri) and len(command) <= _LONGEST_COMMAND:
            yield "Try it by hand", command
        return
    status = () if notice.event in ("late", "test", "given_up") else ("--status", notice.event)
    for table in notice.tables:
        yield "See its runs", shlex.join(("lakegate", "runs", "--table", table, *status))


def _link(run: Run | None, template: str | None) -> str | None:
    if run is None or template is None:
        return None
    values = {"run_id": run.run_id, "table": run.tables[0] if run.tables else "", "branch": run.branch}
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", quote(value, safe="", errors="replace"))
    return template


def _beside(notice: Notice, group: AlertGroup, window_s: float, settings: NotifySettings) -> str:
    if notice.event in ("late", "test"):
        return ""
    told = []
    if group.number > 1:
        told.append(f"{group.number:,} of the same {'so far' if notice.counted is None else 'in all'}.")
    elif group.missed and notice.counted is None:
        told.append(f"{group.missed:,} more of the same before this, which nobody was told of one by one.")
    if window_s > 0 and group.number == 1:
        told.append(f"More of the same within {settings.group} are counted, not told of one by one.")
    return " ".join(told)
