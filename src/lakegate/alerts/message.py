"""What an alert says, as a value, and its text in the markup of any kind of channel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from lakegate.config import NotifySettings, fill_link
from lakegate.model.checks import CheckResult
from lakegate.model.downstream import Notice
from lakegate.model.run import Run
from lakegate.model.words import command_line, count, counted, moment, parse_duration
from lakegate.progress import one_line, redact, without_secrets
from lakegate.run_text import describe_run, failing, subject_of

MAX_FAILURES = 10
"""Failed checks that a message shows. The report has all of them."""
MAX_EXAMPLES = 3
"""Failing rows that a message shows per check."""
_MAX_COLUMNS = 5
SENTENCE = 600
VALUE = 300
ROW = 500
"""Most characters of a sentence, a value and a row."""

_Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """What to send.

    Attributes:
        title: What happened, in a few words.
        said: What happened and what it means, a sentence or two each.
        failures: Failed checks with their tables, blocking ones first; without examples unless they're allowed.
        footnote: That repeats aren't sent for a while, or empty.
    """

    notice: Notice
    title: str
    said: tuple[str, ...]
    facts: _Pairs
    failures: tuple[tuple[str, CheckResult], ...]
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
    failures = [] if run is None else list(_failures(run, examples=settings.examples, masked=masked))
    return Message(
        notice=notice,
        title=_title(notice),
        said=tuple(_said(notice)),
        facts=tuple((name, value) for name, value in _facts(notice) if value),
        failures=tuple(failures[:MAX_FAILURES]),
        more_failures=max(len(failures) - MAX_FAILURES, 0),
        commands=tuple(_commands(notice)),
        link=_link(run, settings.report_url),
        footnote=f"More like this are sent after {settings.group} at the earliest." if is_grouped else "",
    )


def _title(notice: Notice) -> str:
    if notice.event == "test":
        return "Test message"
    if notice.event == "given_up":
        what = "file given up"
    elif notice.delivery is not None:
        what = f"not delivered to {notice.delivery.downstream}"
    else:
        kind = "" if notice.run is None or notice.run.kind in ("ingest", "branch") else f"{notice.run.kind} "
        what = f"{kind}{notice.event}"
    aside = f", {counted(notice.quarantined, 'row')} quarantined" if notice.quarantined else ""
    of = ", ".join(notice.tables) or ("a transaction" if notice.run is None else subject_of(notice.run))
    return f"{of}: {what}{aside}{' (recovered)' if notice.recovered else ''}"


def _said(notice: Notice) -> Iterator[str]:
    if notice.run is not None:
        status = describe_run(notice.run)
        yield status.happened
        yield status.means
    elif notice.late is not None:
        late = notice.late
        since = "yet" if late.last is None else f"since {late.last:%Y-%m-%d %H:%M} UTC"
        yield f"Nothing was published to {late.table} {since}; expected every {late.expected_every}."
    elif notice.file is not None:
        yield f"Tried {counted(notice.file.tries, 'time')}; won't retry until it changes."
        yield without_secrets(notice.file.reason or "")
    elif notice.delivery is not None:
        yield f"Tried {counted(notice.delivery.tries, 'time')}; gave up."
        yield without_secrets(notice.delivery.reason or "")
    else:
        yield "This is a test of lakegate's alerts. Nothing happened."


def _facts(notice: Notice) -> Iterator[tuple[str, str]]:
    run, file, delivery = notice.run, notice.file, notice.delivery
    if notice.late is None:
        yield "Table", ", ".join(notice.tables)
    if file is not None:
        yield "File", redact(file.uri)
        yield "Run", file.run_id or ""
    if delivery is not None:
        yield "Downstream", delivery.downstream
        yield "Run", delivery.run_id or ""
    if run is not None:
        aside = (one for report in run.reports for one in report.quarantined)
        yield "Run", run.run_id
        yield "Branch", run.branch if run.branch_kept else ""
        yield "Kept until", moment(run.branch_until) if run.branch_kept and run.branch_until else ""
        yield "Quarantined by", ", ".join(f"{one.name} ({one.quarantined:,})" for one in aside)
        yield "Name", run.name or ""
        yield "Written by", ", ".join(run.opening.writers) if run.opening is not None else ""
        yield "Recovery" if notice.recovered else "Note", run.detail or ""
        yield "Hint", without_secrets(run.error.hint or "") if run.error is not None else ""


def _failures(run: Run, *, examples: bool, masked: Sequence[str]) -> Iterator[tuple[str, CheckResult]]:
    results = [(report, result) for report in run.reports for result in report.failures]
    results += [(report, result) for report in run.reports for result in report.warnings]
    for report, result in results:
        shown = result.shown(rows=MAX_EXAMPLES if examples else 0, masked=masked)
        rows = tuple({name: row[name] for name in row if not name.startswith("_")} for row in shown.examples)
        yield report.table, shown.model_copy(update={"examples": rows})


def _commands(notice: Notice) -> Iterator[tuple[str, str]]:
    if notice.run is not None:
        yield from describe_run(notice.run).commands
    elif notice.delivery is not None:
        name = notice.delivery.downstream
        yield "See what's waiting", command_line(("lakegate", "admin", "downstream", "status", name))
        yield "After fixing it", command_line(("lakegate", "admin", "downstream", "retry", name))
    elif notice.file is not None and notice.file.run_id is not None:
        yield "See its last run", command_line(("lakegate", "runs", notice.file.run_id))
    elif notice.late is not None:
        yield "See its runs", command_line(("lakegate", "runs", "--table", notice.late.table))


def _link(run: Run | None, template: str | None) -> str | None:
    if run is None or template is None:
        return None
    return fill_link(template, run_id=run.run_id, table=run.tables[0] if run.tables else "", branch=run.branch)


class Markup(NamedTuple):
    """How a kind of channel writes text from data, so that nothing in it is a mention, a link or markup.

    Attributes:
        text: Writes text in at most so many characters.
        code: The same for a name, a value or a command.
        rows: Writes rows of data, each as a line of text.
        link: Writes a link to a URL with a label.
    """

    text: Callable[[str, int], str]
    code: Callable[[str, int], str]
    rows: Callable[[Sequence[str]], str]
    link: Callable[[str, str], str]


def paragraphs(message: Message, markup: Markup) -> Iterator[str]:
    """Yield what a message says besides its title and its footnote."""
    yield "\n".join(markup.text(text, SENTENCE) for text in message.said if text)
    if message.facts:
        yield "\n".join(f"{name}: {markup.code(value, VALUE)}" for name, value in message.facts)
    for table, result in message.failures:
        of = f" of {markup.code(table, VALUE)}" if len(message.notice.tables) > 1 else ""
        columns = ", ".join(markup.code(column, VALUE) for column in result.columns[:_MAX_COLUMNS])
        about = f", column{'s' if len(result.columns) > 1 else ''} {columns}" if columns else ""
        level = "Failed" if result.blocks else "Warning"
        owner = f"Owner: {result.owner}." if result.owner else None
        rows = None if result.sentence else f"{count(result.failing_rows)}{failing(result)}."
        text = " ".join(filter(None, (rows, *result.remarks, result.description, owner)))
        yield f"{level}{of}: {markup.code(result.name, VALUE)}{about}\n{markup.text(text, SENTENCE)}"
        if result.examples:
            yield markup.rows([", ".join(f"{k}={_cell(v)}" for k, v in row.items()) for row in result.examples])
    if message.more_failures:
        yield f"… and {counted(message.more_failures, 'more check')} failed."
    if message.commands:
        yield "\n".join(f"{purpose}: {markup.code(command, VALUE)}" for purpose, command in message.commands)
    if message.link is not None:
        yield markup.link(message.link, "Report of the run")


def clip(text: str, limit: int) -> str:
    """Return ``text`` in at most ``limit`` UTF-16 code units, the strictest way that services count characters.

    Example:
        >>> clip("passenger_count", 10), clip("🐘🐘🐘", 4)
        ('passenger…', '🐘…')
    """
    return cut(text[: limit + 1], limit)


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
    return "".join((*kept, "…")) if limit > 0 else ""


def _cell(value: Any) -> str:
    return "NULL" if value is None else clip(one_line(value), 60)


class Sender(Protocol):
    """Sends messages to one channel."""

    def send(self, message: Message, timeout_s: float) -> None:
        """Send a message once, in ``timeout_s`` seconds at most. Called again if a retry may help."""
        ...
