"""What checks found: how many rows fail, and some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from markupsafe import Markup

from lakegate.dashboard.ui import markup, parts
from lakegate.dashboard.ui.markup import Html
from lakegate.dashboard.values import CheckLine
from lakegate.model.figures import counted, share

_SHOWN_PASSED = 5
_ON_A_PAGE = 30
"""Failed checks on a page: the example rows of hundreds take a browser seconds."""
_COLUMNS = 40


def show_checks(checks: Sequence[CheckLine]) -> None:
    """Put checks on the page: failed ones with a bar of failing rows and examples; many passed ones are folded away."""
    several = len({one.table for one in checks}) > 1
    failed = [one for one in checks if one.verdict == "fail" or one.quarantined]
    passed = [one for one in checks if not (one.verdict == "fail" or one.quarantined)]
    every, start = len(failed), _start(len(failed))
    failed = failed[start : start + _ON_A_PAGE]
    lines = Markup("").join(_line(one, names_table=several) for one in failed)
    rest = Markup("").join(_line(one, names_table=several) for one in passed)
    if failed and len(passed) > _SHOWN_PASSED:
        rest = Markup('<details class="check"><summary>{}</summary>{}</details>').format(
            f"{counted(len(passed), 'check')} passed or skipped"
            if any(one.verdict == "skipped" for one in passed)
            else f"{counted(len(passed), 'check')} passed",
            rest,
        )
    parts.html(lines, rest)
    if every > _ON_A_PAGE:
        following = start + _ON_A_PAGE
        parts.turn_pages(
            cursor_name="checks",
            following=str(following) if following < every else None,
            shown=len(failed),
            noun="failed check",
            total=every,
        )


def _start(count: int) -> int:
    """Return the number of the first failed check on this page."""
    given = parts.param("checks") or ""
    start = int(given[:9]) if given.isascii() and given.isdecimal() else 0
    return start if start < count else 0


def _line(one: CheckLine, *, names_table: bool) -> Html:
    word: str = "warn" if one.verdict == "fail" and one.severity == "warn" else one.verdict
    name = markup.code(one.check if len(one.check) <= 300 else one.check[:299] + "…")
    if names_table:
        name += Markup(' <span class="muted">{}</span>').format(markup.table_link(one.table))
    tone: markup.Tone = "bad" if word == "fail" else "warn"
    failing = markup.bar(one.failing_rows, one.total_rows, tone=tone) if one.verdict == "fail" else ""
    figures: object = Markup('<span class="muted">{}</span>').format(
        {"manifest": "by file metrics", "journal": "by earlier runs"}.get(one.evidence, f"{one.total_rows:,} rows read")
    )
    if one.quarantined and one.verdict != "fail":
        word, figures = "quarantined", Markup("<b>{:,}</b> {}").format(one.quarantined, "set aside")
    if one.verdict == "fail":
        percent = share(one.failing_rows, one.total_rows)
        figures = Markup('<b>{:,}</b> <span class="muted">of {:,}{}</span>').format(
            one.failing_rows, one.total_rows, f" · {percent}" if percent else ""
        )
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
    rows = [_narrow(row, one.columns) for row in parts.unmasked(one.examples)]
    title = f"{counted(len(rows), 'failing row')}" + (f" of {failing:,}" if failing > len(rows) else "")
    if len(one.examples[0]) > len(rows[0]):
        title += f", {len(rows[0])} of {len(one.examples[0]):,} columns"
    return Markup("<details open><summary>{}</summary>{}</details>").format(
        title, markup.example_rows(rows, one.columns, caption=f"Rows that fail {one.name}")
    )


def _narrow(row: Mapping[str, object], own: Sequence[str]) -> Mapping[str, object]:
    """Return a row's first columns, the check's own among them."""
    if len(row) <= _COLUMNS:
        return row
    kept = {name: row[name] for name in own if name in row}
    others = (name for name in row if name not in kept)
    return kept | {name: row[name] for name in islice(others, max(_COLUMNS - len(kept), 0))}
