"""Results of checks: how many rows fail, with examples, and quarantined rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from markupsafe import Markup

from lakegate.dashboard.model import CheckLine
from lakegate.dashboard.quarantine import QuarantineDetail, QuarantinedRow, get_quarantine
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.actions import offer_release
from lakegate.dashboard.ui.markup import Html, TableColumn
from lakegate.dashboard.ui.session import shared
from lakegate.model.checks import failing_cells
from lakegate.model.quarantine import REASONS, SOURCE_FILE
from lakegate.model.schema import FILE_COLUMN
from lakegate.model.words import count, counted, share

_MAX_UNFOLDED = 5
_CHECKS_PER_PAGE = 30
"""Failed checks per page. The example rows of hundreds would take a browser seconds."""
_MAX_COLUMNS = 40


def show_checks(checks: Sequence[CheckLine]) -> None:
    """Show checks: failed ones with a bar and example rows; many passed ones are folded away."""
    several = len({one.table for one in checks}) > 1
    failed = [one for one in checks if one.verdict == "fail" or one.quarantined]
    passed = [one for one in checks if one.verdict != "fail" and not one.quarantined]
    every, start = len(failed), parts.start_param("checks", len(failed))
    failed = failed[start : start + _CHECKS_PER_PAGE]
    lines = Markup("").join(_line(one, names_table=several) for one in failed)
    rest = Markup("").join(_line(one, names_table=several) for one in passed)
    if failed and len(passed) > _MAX_UNFOLDED:
        or_skipped = " or skipped" if any(one.verdict == "skipped" for one in passed) else ""
        rest = Markup('<details class="check"><summary>{}</summary>{}</details>').format(
            f"{counted(len(passed), 'check')} passed{or_skipped}", rest
        )
    parts.html(lines, rest)
    if every > _CHECKS_PER_PAGE:
        following = start + _CHECKS_PER_PAGE
        parts.show_page_buttons(
            "failed check",
            shown=len(failed),
            following=str(following) if following < every else None,
            total=every,
            cursor_name="checks",
        )


def _line(one: CheckLine, *, names_table: bool) -> Html:
    word: str = "warn" if one.verdict == "fail" and one.severity == "warn" else one.verdict
    name = markup.code(markup.clipped(one.check, longest=300))
    if names_table:
        name += " " + markup.muted(markup.table_link(one.table))
    tone: markup.Tone = "bad" if word == "fail" else "warn"
    failing = markup.bar(one.failing_rows, one.total_rows, tone=tone) if one.verdict == "fail" else ""
    source = {"manifest": "by file metrics", "journal": "by earlier runs"}
    figures = markup.muted(source.get(one.evidence, f"{one.total_rows:,} rows read"))
    if one.quarantined and one.verdict != "fail":
        word, figures = "quarantined", Markup("<b>{:,}</b> set aside").format(one.quarantined)
    if one.verdict == "fail":
        percent = share(one.failing_rows, one.total_rows)
        of_all = markup.muted(f"of {one.total_rows:,}", f" · {percent}" if percent else "")
        figures = Markup("<b>{:,}</b> {}").format(one.failing_rows, of_all)
    return Markup(
        '<div class="check"><div>{}<span>{}</span><span>{}</span><span class="figure">{}</span></div>{}{}</div>'
    ).format(markup.badge(word), name, failing, figures, _detail(one), _examples(one))


def _detail(one: CheckLine) -> Html | str:
    owner = f"Owner: {one.owner}." if one.owner else None
    said = (*one.remarks, " ".join(filter(None, (one.description, owner))))
    lines = (
        Markup('<div class="detail muted">{}</div>').format(markup.text(text, longest=600)) for text in said if text
    )
    return Markup("").join(lines)


def _examples(one: CheckLine) -> Html | str:
    failing = one.failing_rows if one.verdict == "fail" else one.quarantined
    if not failing:
        return ""
    if not one.examples:
        if not one.hidden_examples:
            return ""
        return Markup('<div class="detail muted">{} not shown (setting {}).</div>').format(
            counted(one.hidden_examples, "failing row"), markup.code("ui.examples")
        )
    marked = failing_cells(one.examples[0], one.columns)
    rows = [_first_columns(row, marked) for row in parts.unmasked(one.examples)]
    title = f"{counted(len(rows), 'failing row')}" + (f" of {failing:,}" if failing > len(rows) else "")
    if len(one.examples[0]) > len(rows[0]):
        title += f", {len(rows[0])} of {len(one.examples[0]):,} columns"
    return Markup("<details open><summary>{}</summary>{}</details>").format(
        title, markup.example_rows(rows, marked, caption=f"Rows that fail {one.name}")
    )


def _first_columns(row: Mapping[str, object], own: Sequence[str]) -> Mapping[str, object]:
    """Return a row's first columns, including the check's own, and the row's data file."""
    if len(row) <= _MAX_COLUMNS:
        return row
    kept = {name: row[name] for name in own if name in row}
    file = {FILE_COLUMN: row[FILE_COLUMN]} if FILE_COLUMN in row else {}
    others = (name for name in row if name not in kept and name not in file)
    return kept | {name: row[name] for name in islice(others, max(_MAX_COLUMNS - len(kept | file), 0))} | file


_MAX_RUNS = 25
_MAX_REASONS = 50


def show_quarantine(table: str, *, run_id: str | None = None) -> None:
    """Show a table's quarantined rows: how many wait and why, some examples, and commands to run."""
    found = get_quarantine(shared().model, table, run_id=run_id)
    if found is None:
        parts.show_empty("No row is quarantined")
        return
    if found.waiting:
        verb = "waits" if found.waiting == 1 else "wait"
        line = f"{counted(found.waiting, 'row')} {verb}, of {counted(found.rows, 'row')} that were set aside."
    else:
        line = f"None are waiting: all {counted(found.rows, 'row')} that were set aside have been released."
    parts.note(line)
    offer_release(found, run_id)
    parts.html(_reasons(found))
    if run_id is None:
        parts.html(_runs(found))
    if found.waiting:
        parts.html(_waiting_rows(found.examples))
    if found.commands:
        parts.html(markup.facts(*((one.purpose, markup.code(one.command)) for one in found.commands)))


def _reasons(found: QuarantineDetail) -> Html | str:
    total: Counter[tuple[str, str | None]] = Counter()
    for run in found.runs:
        total.update({(one.check, one.column): one.rows for one in run.reasons})
    if not total:
        return ""
    rows = (
        (
            markup.code(check),
            "–" if column is None else column,
            markup.joined(markup.bar(number, found.waiting, tone="warn"), f" {number:,}"),
        )
        for (check, column), number in total.most_common(_MAX_REASONS)
    )
    return markup.table(("Check", "Column", "Rows that wait"), rows, caption="Why rows are quarantined")


def _runs(found: QuarantineDetail) -> Html:
    rows = (
        (
            markup.run_link(one.run_id),
            markup.ago(one.quarantined_at, shared().model.now()),
            count(one.waiting),
            count(one.rows - one.waiting),
            markup.joined(*map(markup.run_link, one.released_by), by=", "),
        )
        for one in found.runs[:_MAX_RUNS]
    )
    columns = (
        "Run",
        TableColumn("When", "fit"),
        TableColumn("Waiting", "num"),
        TableColumn("Released", "num"),
        "Released by",
    )
    more = len(found.runs) - _MAX_RUNS
    rest = markup.note(f"and {counted(more, 'more run')}") if more > 0 else ""
    return markup.joined(markup.table(columns, rows, caption="Runs that quarantined rows"), rest, by="")


def _waiting_rows(rows: Sequence[QuarantinedRow]) -> Html:
    if not rows:
        setting = markup.code("ui.examples")
        return markup.note("Rows aren't shown (setting ", setting, ", or examples=0 of their checks).")
    values = parts.unmasked([one.values for one in rows])
    # If the table has a column of one of these names, use the reserved name for ours.
    why, source = (
        reserved if any(name in row for row in values) else name
        for name, reserved in (("why", REASONS), ("source", SOURCE_FILE))
    )
    shown = [
        {why: ", ".join(one.checks), **row, source: _source_position(one)}
        for one, row in zip(rows, values, strict=True)
    ]
    cells = [failing_cells(row, one.columns) for one, row in zip(rows, values, strict=True)]
    return markup.example_rows(shown, (), cells=cells, caption="Rows that wait")


def _source_position(one: QuarantinedRow) -> str | None:
    if one.source is None:
        return None
    name = one.source.rpartition("/")[2]
    return name if one.position is None else f"{name}:{one.position}"
