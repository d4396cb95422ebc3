"""Pieces of HTML. Only constants in this code are markup; all values are escaped where they come in.

Text from data can hold tags, right-to-left writing, invisible characters, or a whole novel. It's escaped, isolated from
its surroundings, and clipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlencode

from markupsafe import Markup, escape

from lakegate.model.words import age, share
from lakegate.progress import one_line

Tone = Literal["ok", "bad", "warn", "live", "off"]
Html = Markup

_LONGEST = 200
_LONGEST_TITLE = 2_000
_FIT_A_PHONE = 3
"""Maximum number of columns that fit on a phone side by side."""

_SIGNS: Mapping[str, tuple[Tone, str]] = {
    "published": ("ok", "✓"),
    "rejected": ("bad", "✕"),
    "failed": ("bad", "!"),
    "running": ("live", "●"),
    "staged": ("live", "…"),
    "discarded": ("off", "–"),
    "skipped": ("off", "»"),
    "reverted": ("off", "↺"),
    "pass": ("ok", "✓"),
    "fail": ("bad", "✕"),
    "warn": ("warn", "!"),
    "quarantined": ("warn", "⇥"),
    "late": ("warn", "!"),
    "on time": ("ok", "✓"),
}


def badge(word: str, *, tone: Tone | None = None, sign: str | None = None) -> Html:
    """Return a status, such as ``published``, as an icon and a word. ``tone`` and ``sign`` override its own."""
    known = _SIGNS.get(word, ("off", "·"))
    return Markup('<span class="badge {}"><i aria-hidden="true">{}</i>{}</span>').format(
        tone or known[0], sign or known[1], clipped(word)
    )


def text(value: object, *, longest: int = _LONGEST) -> Html:
    """Return a value from data. Clipped text shows in full on hover.

    Example:
        >>> text("<script>")
        Markup('<bdi class="value">&lt;script&gt;</bdi>')
    """
    if value is None:
        return Markup('<span class="null">NULL</span>')
    words = one_line(_plain(value))
    if len(words) <= longest:
        return Markup('<bdi class="value">{}</bdi>').format(words)
    title = words[:_LONGEST_TITLE] + ("…" if len(words) > _LONGEST_TITLE else "")
    return Markup('<bdi class="value" title="{}">{}…</bdi>').format(title, words[: longest - 1])


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple, Mapping)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value


def clipped(value: object, *, longest: int = _LONGEST) -> str:
    """Return text from data on one line, for an attribute, a heading or a chart.

    Example:
        >>> clipped("passenger_count", longest=10)
        'passenger…'
    """
    words = one_line(value)
    return words if len(words) <= longest else words[: longest - 1] + "…"


def _shown(value: object) -> object:
    return value if isinstance(value, Markup) else clipped(value)


def muted(*parts: object) -> Html:
    """Return secondary text; plain text among it is escaped."""
    return Markup('<span class="muted">{}</span>').format(joined(*parts, by=""))


def note(*parts: object) -> Html:
    """Return a paragraph of secondary text."""
    return Markup('<p class="muted">{}</p>').format(joined(*parts, by=""))


def code(value: object) -> Html:
    """Return a name or a command in a code font."""
    return Markup("<code>{}</code>").format(one_line(value))


def address(path: str, **parameters: str | int | None) -> str:
    """Return a relative link to a page, which works wherever the dashboard is served. Skips ``None`` parameters.

    Example:
        >>> address("run", run="20260131T070509-1a2b3c4d"), address("runs", table="nyc.trips", status=None)
        ('./run?run=20260131T070509-1a2b3c4d', './runs?table=nyc.trips')
        >>> address("table", table="nyc.größen & co")
        './table?table=nyc.gr%C3%B6%C3%9Fen+%26+co'
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    return f"./{path}" + (f"?{urlencode(given)}" if given else "")


def link(label: object, path: str, **parameters: str | int | None) -> Html:
    """Return a link to a page of the dashboard."""
    shown = label if isinstance(label, Markup) else text(label)
    return Markup('<a class="lg-go" href="{}">{}</a>').format(address(path, **parameters), shown)


def run_link(run_id: str) -> Html:
    """Return a link to a run."""
    return link(code(run_id), "run", run=run_id)


def table_link(table: str) -> Html:
    """Return a link to a table."""
    return link(table, "table", table=table)


def branch_link(branch: str) -> Html:
    """Return a link to a branch."""
    return link(code(branch), "branches", branch=branch)


def ago(moment: datetime | None, now: datetime | None = None) -> Html:
    """Return how long ago a moment was, with the exact time on hover."""
    if moment is None:
        return muted("never")
    exact = moment.astimezone(UTC)
    since = ((now or datetime.now(UTC)) - exact).total_seconds()
    return Markup('<time datetime="{}" title="{:%Y-%m-%d %H:%M:%S} UTC">{}</time>').format(
        exact.isoformat(), exact, age(since)
    )


def clock(at: datetime | None) -> str:
    """Return a time in UTC, to the second."""
    return "–" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def bar(part: int, whole: int, *, tone: Tone = "bad", wide: bool = False) -> Html:
    """Return a bar filled to the share of ``part`` in ``whole``."""
    filled = Markup('<i style="width:{:.2f}%"></i>').format(100 * min(part / whole, 1)) if part > 0 and whole else ""
    return Markup('<span class="bar {}{}" role="img" aria-label="{}">{}</span>').format(
        tone, " wide" if wide else "", share(part, whole), filled
    )


def sparkline(values: Sequence[float | None], *, label: str, tone: Tone | None = None) -> Html:
    """Return a small bar chart, the last value on the right.

    Args:
        values: The values; ``None`` for unknown ones.
        tone: ``bad`` for values that should be zero.
    """
    known = [value for value in values if value is not None]
    if not known:
        return muted("–")
    highest = max(known)
    # A page has over a thousand bars: escaping each took half of its time.
    heights = (100 * (value or 0) / highest if highest > 0 else 0 for value in values)
    bars = "".join(
        f'<i class="{"" if value else "zero"}" style="height:{height:.0f}%"></i>'
        for value, height in zip(values, heights, strict=True)
    )
    return Markup('<span class="spark {}" role="img" title="{}" aria-label="{}">{}</span>').format(
        tone or "",
        clipped(label),
        clipped(label),
        Markup(bars),  # noqa: S704 - numbers only
    )


@dataclass(frozen=True)
class TableColumn:
    """A table column: its heading, and whether it holds numbers (``num``) or should be narrow (``fit``)."""

    title: str
    kind: Literal["text", "num", "fit"] = "text"


@dataclass(frozen=True)
class Group:
    """A heading across a table, above a group of rows."""

    title: object


def table(columns: Sequence[str | TableColumn], rows: Iterable[Sequence[object] | Group], *, caption: str) -> Html:
    """Return a table. Cells are markup or text from data.

    Args:
        rows: A cell for each column, or the heading of the rows that follow.
        caption: What the table holds, for screen readers.
    """
    known = [TableColumn(one) if isinstance(one, str) else one for one in columns]
    kinds = ["" if one.kind == "text" else one.kind for one in known]
    # Phones show rows of many cells as cards, in which each cell needs its heading.
    is_wide = len(known) > _FIT_A_PHONE
    cells = [
        Markup('<td class="{}" data-label="{}">').format(kind, clipped(one.title))
        if is_wide and one.title
        else Markup('<td class="{}">').format(kind)
        for one, kind in zip(known, kinds, strict=True)
    ]
    head = Markup().join(
        Markup('<th scope="col" class="{}">{}</th>').format(kind, clipped(one.title))
        for one, kind in zip(known, kinds, strict=True)
    )
    body = Markup().join(_row(row, cells) for row in rows)
    return _framed("cards" if is_wide else "", head, body, caption)


def _framed(kind: str, head: Html, body: Html, caption: str) -> Html:
    """Return a table in a frame that scrolls, also by keyboard."""
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{}"><table class="{}"><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></div>"
    ).format(clipped(caption), kind, head, body)


def _row(row: Sequence[object] | Group, cells: Sequence[Html]) -> Html:
    if isinstance(row, Group):
        return Markup('<tr class="group"><th scope="colgroup" colspan="{}">{}</th></tr>').format(
            len(cells), _shown(row.title)
        )
    filled = (
        Markup("{}{}</td>").format(cell, value if isinstance(value, Markup) else text(value))
        for cell, value in zip(cells, row, strict=True)
    )
    return Markup("<tr>{}</tr>").format(Markup().join(filled))


def example_rows(
    rows: Sequence[Mapping[str, Any]],
    marked: Sequence[str],
    *,
    caption: str,
    cells: Sequence[Sequence[str]] | None = None,
) -> Html:
    """Return example rows as a grid, with the cells of some columns marked and these columns first.

    Args:
        cells: The columns whose cells to mark in each row, instead of ``marked``.
    """
    wrong = [marked] * len(rows) if cells is None else cells
    names = list(dict.fromkeys(name for row in rows for name in row))
    ordered = [name for name in names if name in marked] + [name for name in names if name not in marked]
    head = Markup().join(Markup('<th scope="col">{}</th>').format(text(name, longest=80)) for name in ordered)
    body = Markup().join(
        Markup("<tr>{}</tr>").format(
            Markup().join(
                Markup('<td class="{}">{}</td>').format("mark" if name in own else "", text(row.get(name)))
                for name in ordered
            )
        )
        for row, own in zip(rows, wrong, strict=True)
    )
    return _framed("grid", head, body, caption)


def figures(*pairs: tuple[object, str]) -> Html:
    """Return a few large numbers, each with a label."""
    return Markup('<div class="figures">{}</div>').format(
        Markup().join(
            Markup("<div><b>{}</b><span>{}</span></div>").format(_shown(number), _shown(label))
            for number, label in pairs
        )
    )


def facts(*pairs: tuple[str, object]) -> Html:
    """Return names with values, one per line. Pairs whose value is ``None`` are left out."""
    lines = (
        Markup("<dt>{}</dt><dd>{}</dd>").format(
            clipped(name), value if isinstance(value, Markup) else text(value, longest=600)
        )
        for name, value in pairs
        if value is not None
    )
    return Markup('<dl class="facts">{}</dl>').format(Markup().join(lines))


def empty(title: str, *lines: object) -> Html:
    """Return a placeholder for a page without content: what's missing, and what to do."""
    return Markup('<div class="empty"><p><b>{}</b></p>{}</div>').format(
        _shown(title), Markup().join(note(_shown(line)) for line in lines)
    )


def commands(*lines: str) -> Html:
    """Return commands to run."""
    return Markup("<pre>{}</pre>").format("\n".join(one_line(line) for line in lines))


def joined(*parts: object, by: str = " ") -> Html:
    """Return parts joined by ``by``; text is escaped."""
    return Markup(by).join(escape(part) for part in parts)  # noqa: S704 - a constant of the pages, never data
