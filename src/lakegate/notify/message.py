"""What a notice says, in words and figures that every kind of channel can show in its own way."""

from __future__ import annotations

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
from lakegate.narration import redact

MAX_FAILURES = 10
"""Failed checks that a message shows; the report has all."""
MAX_EXAMPLES = 3
"""Rows that a message shows of each of them."""

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
        facts=() if run is None else tuple(_facts(run)),
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
    kind = "" if notice.run is None or notice.run.kind in ("ingest", "branch") else f"{notice.run.kind} "
    return f"{what}: {kind}{notice.event}{' (recovered)' if notice.recovered else ''}"


def _summary(notice: Notice) -> str:
    run, late = notice.run, notice.late
    if late is not None:
        since = "yet" if late.last is None else f"since {late.last:%Y-%m-%d %H:%M} UTC"
        return f"Nothing was published to {late.table} {since}; expected every {late.expected_every}."
    if run is None:
        return "This is what a message of lakegate looks like here. Nothing has happened."
    if run.status == "rejected":
        checks = sum(len(report.results) for report in run.reports)
        return f"{len(run.failures)} of {checks} check{'' if checks == 1 else 's'} failed; nothing was published."
    if run.status == "failed":
        why = "" if run.error is None else f" {redact(run.error.message)}"
        return f"Nothing was published.{why}"
    rows = "" if run.publication is None else f"{run.publication.rows:,} rows in commit {run.publication.commit[:12]}."
    warnings = sum(len(report.warnings) for report in run.reports)
    return " ".join(filter(None, (rows, f"{warnings} checks failed that only warn." if warnings else "")))


def _facts(run: Run) -> Iterator[tuple[str, str]]:
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
        yield "Hint", redact(run.error.hint)


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
        for table in notice.tables:
            yield "See its runs", shlex.join(("lakegate", "runs", "--table", table))
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


def _link(run: Run | None, template: str | None) -> str | None:
    if run is None or template is None:
        return None
    values = {"run_id": run.run_id, "table": run.tables[0] if run.tables else "", "branch": run.branch}
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", quote(value, safe="", errors="replace"))
    return template


def _beside(notice: Notice, group: AlertGroup, window_s: float, settings: NotifySettings) -> str:
    told = []
    if group.number > 1:
        told.append(f"{group.number:,} of the same so far.")
    elif group.missed:
        told.append(f"{group.missed:,} more of the same before this, which nobody was told of one by one.")
    if window_s > 0 and group.number == 1 and notice.run is not None:
        told.append(f"More of the same within {settings.group} are counted, not told of one by one.")
    return " ".join(told)
