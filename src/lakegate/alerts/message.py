"""Compose a notice's message for any kind of channel, show data in it safely, and send it with retries."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from lakegate.config import NotifySettings, fill_link
from lakegate.credentials.webhook import UndeliveredError, quiet
from lakegate.model.checks import CheckResult
from lakegate.model.downstream import Notice
from lakegate.model.run import Run, changed_rows
from lakegate.model.words import counted, parse_duration
from lakegate.progress import one_line, redact, without_secrets

ELLIPSIS = "…"
TRIES = 4
_FIRST_WAIT_S = 0.3


def clip(text: str, limit: int) -> str:
    """Return ``text`` in at most ``limit`` UTF-16 code units, the strictest way that services count characters.

    Example:
        >>> clip("passenger_count", 10), clip("🐘🐘🐘", 4)
        ('passenger…', '🐘…')
    """
    return cut(text[: limit + 1], limit)


def cell(value: Any, limit: int = 60) -> str:
    """Return a value of a row in readable form.

    Example:
        >>> cell(None), cell(2.5), cell("x" * 99, limit=4)
        ('NULL', '2.5', 'xxx…')
    """
    return "NULL" if value is None else clip(one_line(value), limit)


def cut(pieces: Sequence[str], limit: int) -> str:
    """Join ``pieces``, none of which may be split, in at most ``limit`` UTF-16 code units."""
    widths = [len(piece.encode("utf-16-le", "surrogatepass")) // 2 for piece in pieces]
    if sum(widths) <= limit:
        return "".join(pieces)
    kept, left = [], limit - 1
    for piece, width in zip(pieces, widths, strict=True):
        if width > left:
            break
        kept.append(piece)
        left -= width
    return "".join((*kept, ELLIPSIS)) if limit > 0 else ""


MAX_FAILURES = 10
"""Failed checks that a message shows. The report has all of them."""
MAX_EXAMPLES = 3
"""Failing rows that a message shows per check."""

_MAX_TABLES = 5
"""Tables that a message has commands for. Channels refuse a message that's too long."""

_Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """One check that failed.

    Attributes:
        result: The check's result, without examples unless they're allowed.
    """

    table: str
    result: CheckResult

    @property
    def text(self) -> str:
        """How many rows fail, and why."""
        result = self.result
        of = f" of {result.total_rows:,}" if result.total_rows else ""
        rows = f"{result.failing_rows:,}{of} row{'' if (result.total_rows or result.failing_rows) == 1 else 's'}"
        owner = f"Owner: {result.owner}." if result.owner else None
        text = " ".join(filter(None, (*result.remarks, result.description, owner)))
        return text if text.startswith(rows) else ". ".join(filter(None, (rows, text)))


@dataclass(frozen=True, slots=True)
class Message:
    """What to send.

    Attributes:
        title: What happened, in a few words.
        summary: What happened, in a sentence.
        failures: Failed checks, blocking ones first.
        footnote: That repeats aren't sent for a while, or empty.
    """

    notice: Notice
    title: str
    summary: str
    facts: _Pairs
    failures: tuple[Failure, ...]
    more_failures: int
    commands: _Pairs
    link: str | None
    footnote: str


def compose(notice: Notice, settings: NotifySettings, *, masked: Sequence[str] = ()) -> Message:
    """Return the message for a notice.

    Args:
        settings: Whether to show rows, where reports are, and for how long repeats aren't sent.
        masked: Patterns of columns whose values are hidden.
    """
    run = notice.run
    is_grouped = notice.event not in ("late", "test") and parse_duration(settings.group)
    found = [] if run is None else list(_failures(run, examples=settings.examples, masked=masked))
    return Message(
        notice=notice,
        title=title_of(notice),
        summary=_summary(notice),
        facts=tuple(_facts(notice)),
        failures=tuple(found[:MAX_FAILURES]),
        more_failures=max(len(found) - MAX_FAILURES, 0),
        commands=tuple(_commands(notice)),
        link=_link(run, settings.report_url),
        footnote=f"More like this are sent after {settings.group} at the earliest." if is_grouped else "",
    )


def title_of(notice: Notice) -> str:
    """Return what happened, in a few words."""
    if notice.event == "test":
        return "Test message"
    what = ", ".join(notice.tables) or "a transaction"
    aside = f", {counted(notice.quarantined, 'row')} quarantined" if notice.quarantined else ""
    return f"{what}: {_event(notice)}{aside}{' (recovered)' if notice.recovered else ''}"


def _event(notice: Notice) -> str:
    if notice.event == "given_up":
        return "file given up"
    if notice.delivery is not None:
        return f"not delivered to {notice.delivery.downstream}"
    kind = "" if notice.run is None or notice.run.kind in ("ingest", "branch") else f"{notice.run.kind} "
    return f"{kind}{notice.event}"


def _summary(notice: Notice) -> str:
    if notice.run is not None:
        return _summary_of_run(notice.run)
    if notice.late is not None:
        late = notice.late
        since = "yet" if late.last is None else f"since {late.last:%Y-%m-%d %H:%M} UTC"
        return f"Nothing was published to {late.table} {since}; expected every {late.expected_every}."
    if notice.file is not None:
        tries = counted(notice.file.tries, "time")
        return f"Tried {tries}; won't retry until it changes. {without_secrets(notice.file.reason)}"
    if notice.delivery is not None:
        tries = counted(notice.delivery.tries, "time")
        return f"Tried {tries}; gave up. {without_secrets(notice.delivery.reason or '')}"
    return "This is a test of lakegate's alerts. Nothing happened."


def _summary_of_run(run: Run) -> str:
    if run.status == "rejected":
        checks = sum(len(report.results) for report in run.reports)
        return f"{len(run.failures)} of {checks} check{'' if checks == 1 else 's'} failed; nothing was published."
    if run.status == "failed":
        why = "" if run.error is None else f" {without_secrets(run.error.message)}"
        return f"{'It may have been published nevertheless' if run.may_be_published else 'Nothing was published'}.{why}"
    published = run.publication
    changed = "" if published is None else changed_rows(published.rows, published.rows_removed)
    aside = f", {published.quarantined:,} quarantined" if published is not None and published.quarantined else ""
    rows = "" if published is None else f"{changed}{aside} in commit {published.commit[:12]}."
    if run.accepted is not None:
        failed = f"{counted(len(run.failures), 'check')} failed;"
        rows = f"{rows} {failed} {run.accepted.actor} published it anyway: {run.accepted.reason}"
    warnings = sum(len(report.warnings) for report in run.reports)
    warned = f"{counted(warnings, 'check')} with severity warn failed." if warnings else ""
    return " ".join(filter(None, (rows, warned)))


def _facts(notice: Notice) -> Iterator[tuple[str, str]]:
    run, file = notice.run, notice.file
    if file is not None:
        yield "Table", file.table
        yield "File", redact(file.uri)
        if file.run_id is not None:
            yield "Run", file.run_id
    if notice.delivery is not None:
        yield "Table", ", ".join(notice.delivery.tables)
        yield "Downstream", notice.delivery.downstream
        if notice.delivery.run_id is not None:
            yield "Run", notice.delivery.run_id
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
    if run.quarantined:
        aside = [one for report in run.reports for one in report.quarantined]
        yield "Quarantined by", ", ".join(f"{one.name} ({one.quarantined:,})" for one in aside)
    if run.name:
        yield "Name", run.name
    if run.detail:
        yield "Recovery", run.detail
    if run.error is not None and run.error.hint:
        yield "Hint", without_secrets(run.error.hint)


def _failures(run: Run, *, examples: bool, masked: Sequence[str]) -> Iterator[Failure]:
    for severity in ("error", "warn"):
        for report in run.reports:
            for result in report.failures if severity == "error" else report.warnings:
                shown = result.shown(rows=MAX_EXAMPLES if examples else 0, masked=masked)
                rows = tuple({name: row[name] for name in row if not name.startswith("_")} for row in shown.examples)
                yield Failure(report.table, shown.model_copy(update={"examples": rows}))


def _commands(notice: Notice) -> Iterator[tuple[str, str]]:
    run = notice.run
    if run is None:
        yield from _commands_without_run(notice)
        return
    yield "See the run", shlex.join(("lakegate", "runs", run.run_id))
    if run.quarantined and run.status == "published":
        words = ("lakegate", "quarantine", "show", run.tables[0], "--run", run.run_id)
        yield "See the quarantined rows", shlex.join(words)
    if run.branch and run.branch_kept and run.status != "published":
        yield "See what the branch changes", shlex.join(("lakegate", "diff", run.target, run.branch))
        yield "Discard it", shlex.join(("lakegate", "discard", run.branch))
        if run.staged:
            options = () if run.status != "rejected" else ("--accept", "REASON")
            yield "Or publish it", shlex.join(("lakegate", "publish", run.branch, *options))


def _commands_without_run(notice: Notice) -> Iterator[tuple[str, str]]:
    file = notice.file
    if notice.delivery is not None:
        name = notice.delivery.downstream
        yield "See what's waiting", shlex.join(("lakegate", "downstream", "status", name))
        yield "After fixing it", shlex.join(("lakegate", "downstream", "retry", name))
        return
    if file is not None:
        if file.run_id is not None:
            yield "See its last run", shlex.join(("lakegate", "runs", file.run_id))
        return
    status = () if notice.event in ("late", "test", "given_up") else ("--status", notice.event)
    for table in notice.tables[:_MAX_TABLES]:
        yield "See its runs", shlex.join(("lakegate", "runs", "--table", table, *status))


def _link(run: Run | None, template: str | None) -> str | None:
    if run is None or template is None:
        return None
    return fill_link(template, run_id=run.run_id, table=run.tables[0] if run.tables else "", branch=run.branch)


class SendDeadline:
    """The time by which sending must have ended."""

    def __init__(self, in_s: float) -> None:
        self._at = monotonic() + in_s

    @property
    def left_s(self) -> float:
        """Seconds left; 0 once it has passed."""
        return max(self._at - monotonic(), 0.0)


class Sender(Protocol):
    """Sends messages to one channel."""

    def send(self, message: Message, deadline: SendDeadline) -> None:
        """Send a message once. Called again if a retry may help."""
        ...


def deliver(sender: Sender, message: Message, deadline: SendDeadline) -> None:
    """Send a message, with retries where they may help, but no later than ``deadline``.

    Raises:
        UndeliveredError: If the last try failed.
    """
    from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

    def wait_s(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        retry_after_s = error.after_s if isinstance(error, UndeliveredError) else None
        return _FIRST_WAIT_S * 2 ** (state.attempt_number - 1) if retry_after_s is None else retry_after_s

    def is_too_late(state: RetryCallState) -> bool:
        return state.upcoming_sleep >= deadline.left_s

    trying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, UndeliveredError) and error.again),
        wait=wait_s,
        stop=lambda state: stop_after_attempt(TRIES)(state) or is_too_late(state),
        reraise=True,
    )
    with quiet():
        trying(sender.send, message, deadline)
