"""Quarantined rows on the pages of a table and of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from lakegate.dashboard.quarantine import QuarantineDetail, QuarantinedRow, get_quarantine
from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.actions import offer_release
from lakegate.dashboard.ui.markup import Column, Html
from lakegate.dashboard.ui.session import shared
from lakegate.model.figures import count, counted
from lakegate.model.quarantine import REASONS, SOURCE_FILE

_RUNS = 25
_REASONS = 50


def show_quarantine(table: str, *, run_id: str | None = None) -> None:
    """Put a table's quarantined rows on the page: how many wait and why, some of them, and what to type."""
    found = get_quarantine(shared().model, table, run_id=run_id)
    if found is None:
        parts.html(markup.empty("No row is quarantined"))
        return
    if found.waiting:
        verb = "waits" if found.waiting == 1 else "wait"
        line = f"{counted(found.waiting, 'row')} {verb}, of {counted(found.rows, 'row')} that were set aside."
    else:
        line = f"None is waiting: all of {counted(found.rows, 'row')} that were set aside are released."
    parts.html(Markup('<p class="muted">{}</p>').format(line))
    offer_release(found, run_id)
    parts.html(_reasons(found))
    if run_id is None:
        parts.html(_runs(found))
    if found.waiting:
        parts.html(_examples(found.examples))
    if found.commands:
        lines = (
            Markup("<dt>{}</dt><dd>{}</dd>").format(one.purpose, markup.code(one.command)) for one in found.commands
        )
        parts.html(Markup('<dl class="facts">{}</dl>').format(Markup("").join(lines)))


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
        for (check, column), number in total.most_common(_REASONS)
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
        for one in found.runs[:_RUNS]
    )
    columns = ("Run", Column("When", "fit"), Column("Waiting", "num"), Column("Released", "num"), "Released by")
    more = len(found.runs) - _RUNS
    rest = Markup('<p class="muted">and {} more</p>').format(counted(more, "run")) if more > 0 else ""
    return markup.joined(markup.table(columns, rows, caption="Runs that quarantined rows"), rest, by="")


def _examples(rows: Sequence[QuarantinedRow]) -> Html:
    if not rows:
        return Markup('<p class="muted">Rows are not shown (setting {}, or examples=0 of their checks).</p>').format(
            markup.code("ui.examples")
        )
    values = parts.unmasked([one.values for one in rows])
    # Of a column with one of these names, the value is the table's.
    why, source = (
        reserved if any(name in row for row in values) else name
        for name, reserved in (("why", REASONS), ("source", SOURCE_FILE))
    )
    shown = [{why: ", ".join(one.checks), **row, source: _place(one)} for one, row in zip(rows, values, strict=True)]
    return markup.example_rows(shown, (), cells=[one.columns for one in rows], caption="Rows that wait")


def _place(one: QuarantinedRow) -> str | None:
    if one.source is None:
        return None
    name = one.source.rpartition("/")[2]
    return name if one.position is None else f"{name}:{one.position}"
