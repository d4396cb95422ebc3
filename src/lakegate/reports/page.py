"""One-file HTML pages: the frame, building blocks, example rows, and HTML that escapes everything but markup."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from lakegate import __version__
from lakegate.model.checks import CheckResult, failing_cells
from lakegate.model.schema import FILE_COLUMN
from lakegate.model.words import counted
from lakegate.progress import one_line
from lakegate.reports.status_text import StatusText, Tone

# Signs differ in shape, not only in colour. 16 units wide and high.
_SIGNS: dict[Tone, str] = {
    "good": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm3.6 5.3-4.2 4.9a.8.8 0 0 1-1.2 0L4.3 9"
    "a.8.8 0 1 1 1.2-1.1l1.3 1.5 3.6-4.2a.8.8 0 0 1 1.2 1.1Z",
    "bad": "M5 1h6l4 4v6l-4 4H5l-4-4V5l4-4Zm.3 3.2L4.2 5.3 6.9 8l-2.7 2.7 1.1 1.1L8 9.1l2.7 2.7 1.1-1.1L9.1 8l2.7-2.7"
    "-1.1-1.1L8 6.9 5.3 4.2Z",
    "warn": "M8 1 .8 14.5h14.4L8 1Zm-.8 4.8h1.6v4.4H7.2V5.8Zm0 5.6h1.6V13H7.2v-1.6Z",
    "idle": "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1ZM4.2 7.2h7.6v1.6H4.2V7.2Z",
}
_FULL = 1000
CELL = 120
"""Most characters of a value in a cell; the cell says how many more there are."""
_VOID = {"br", "col", "hr", "meta"}
ROWS = 5
COLUMNS = 12
_BUDGET = 1_200_000
"""Most characters of markup for all examples of a page, so that 200 failing checks stay below 2 MB."""
_NAME = 60


@cache
def _sheet() -> str:
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def page(title: str, *content: Child, now: datetime | None = None) -> str:
    """Return a whole page. It runs no script and loads nothing; its policy allows only its own style sheet.

    Args:
        title: Title of the browser window.
    """
    sheet = _sheet()
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"lakegate {__version__}"),
        tag("title", title),
        tag("style", Html(sheet)),
    )
    made = (f"Made by lakegate {__version__}, ", when(now or datetime.now(UTC)), ". All times are UTC.")
    body = (tag("main", *content), tag("footer", tag("p", made, " This page is one file and loads nothing.")))
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def when(time: datetime | None) -> Html:
    """Return a time in UTC, to the second; nothing if there is none."""
    if time is None:
        return Html("")
    at = time.astimezone(UTC)
    # Allow a line break only between date and time.
    parts = tag("span", f"{at:%Y-%m-%d}"), " ", tag("span", f"{at:%H:%M:%S}")
    return tag("time", parts, datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}")


def sign(tone: Tone) -> Html:
    """Return a tone's sign. Screen readers skip it, because a word always follows."""
    path = tag("path", d=_SIGNS[tone], fill="currentColor", fill_rule="evenodd")
    return tag("svg", path, class_="sign", viewBox="0 0 16 16", aria_hidden="true")


def badge(tone: Tone, what: str) -> Html:
    """Return a word, such as a verdict, in its tone's colour and with its sign."""
    return tag("span", sign(tone), what, class_=f"badge {tone}")


def status(status_text: StatusText, *more: Child) -> Html:
    """Return the box at the top of a page: title, what happened, what it means."""
    return tag(
        "section",
        tag("p", sign(status_text.tone), status_text.title, class_="title"),
        tag("p", status_text.happened, class_="happened"),
        tag("p", status_text.means) if status_text.means else None,
        more,
        class_=f"status {status_text.tone}",
        aria_label="Status",
    )


def commands(pairs: Iterable[tuple[str, str]]) -> Html:
    """Return commands to copy, each under its purpose."""
    return tag(
        "dl",
        [tag("div", tag("dt", purpose), tag("dd", tag("code", line))) for purpose, line in pairs],
        class_="commands",
    )


def facts(pairs: Iterable[tuple[str, Child]], *, long: Sequence[str] = ()) -> Html:
    """Return names and values. Empty values are left out; names in ``long`` get double width."""
    shown = [(name, markup) for name, value in pairs if (markup := text(value))]
    return tag(
        "dl",
        [
            tag("div", tag("dt", name), tag("dd", value), class_="long" if name in long else None)
            for name, value in shown
        ],
        class_="facts",
    )


def figures(items: Iterable[tuple[str, Child, Tone | None]]) -> Html:
    """Return a few large numbers, each with its name and tone."""
    return tag(
        "dl",
        [tag("div", tag("dt", name), tag("dd", value), class_=tone) for name, value, tone in items],
        class_="facts big",
    )


def table(
    columns: Sequence[Child],
    rows: Iterable[Sequence[Child]],
    *,
    label: str,
    caption: str | None = None,
    numbers: Sequence[int] = (),
    wide: Sequence[int] = (),
) -> Html:
    """Return a table that scrolls in its own frame if it's wider than the page.

    Args:
        rows: The cells of each row; the first is the row's heading.
        label: What the table holds, for screen readers.
        caption: Visible caption.
        numbers: Indexes of columns that hold numbers.
        wide: Indexes of columns that hold long text, which may wrap.
    """

    def kind(at: int) -> str | None:
        return "number" if at in numbers else "wide" if at in wide else None

    head = tag("tr", [tag("th", name, scope="col", class_=kind(at)) for at, name in enumerate(columns)])
    body = [
        tag(
            "tr",
            [
                tag("td" if at else "th", value, class_=kind(at), scope=None if at else "row")
                for at, value in enumerate(row)
            ],
        )
        for row in rows
    ]
    written = tag("caption", caption) if caption else None
    return framed(tag("table", written, tag("thead", head), tag("tbody", body)), label=label)


def left_out(number: int, what: str) -> Html | None:
    """Return a line that says what a list leaves out, if ``number`` is above zero."""
    return tag("p", f"… and {what}", class_="small soft") if number > 0 else None


def framed(inner: Html, *, label: str) -> Html:
    """Return a wide element in a frame that scrolls, with the keyboard, too."""
    return tag("div", inner, class_="scroll", role="region", aria_label=label, tabindex=0)


def bar(part: float, whole: float, tone: Tone | None = None) -> Html:
    """Return a bar for a share of the whole. Any share above zero is visible."""
    share = 0.0 if whole <= 0 else min(max(part / whole, 0.0), 1.0)
    width = 0 if share == 0 else max(round(_FULL * share), 12)
    return _gauge("bar", tone, 0, width, height=8, radius=4)


def span(begins: float, ends: float, whole: float, tone: Tone | None = None) -> Html:
    """Return a bar from ``begins`` to ``ends`` on an axis of ``whole`` seconds."""
    scale = _FULL / whole if whole > 0 else 0.0
    width = max(round(scale * (ends - begins)), 6)
    left = min(round(scale * begins), _FULL - width)
    return _gauge("time", tone, max(left, 0), width, height=12, radius=2)


def _gauge(kind: str, tone: Tone | None, left: int, width: int, *, height: int, radius: int) -> Html:
    return tag(
        "svg",
        tag("rect", class_="ground", width=_FULL, height=height, rx=radius),
        tag("rect", class_="part", x=left, width=width, height=height, rx=radius),
        class_=f"{kind} {tone or ''}".strip(),
        viewBox=f"0 0 {_FULL} {height}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


class Html(str):
    """Markup. Only :func:`tag` and constants of this package create it."""

    __slots__ = ()


Child = str | Html | int | None | Iterable["Child"]
"""Content of an element: text (escaped), markup, nothing, or several of these."""


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """Return an element.

    Args:
        **attributes: Attributes by name; ``class_`` becomes ``class``, ``aria_label`` ``aria-label``. ``True`` sets an
            attribute without a value; ``None`` and ``False`` leave it out.

    Example:
        >>> tag("td", "<script>", tag("b", 1), class_="bad", hidden=True)
        '<td class="bad" hidden>&lt;script&gt;<b>1</b></td>'
    """
    written = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    return Html(f"<{name}{written}>" if name in _VOID else f"<{name}{written}>{text(children)}</{name}>")


def text(child: Child) -> Html:
    """Return ``child`` as markup.

    Example:
        >>> text(["a & b", None, tag("br")])
        'a &amp; b<br>'
    """
    if child is None:
        return Html("")
    if isinstance(child, Html):
        return child
    if isinstance(child, (str, int)):
        return Html(escape(one_line(child)))
    return Html("".join(map(text, child)))


def _attribute(name: str, value: str | float | bool | None) -> str:  # noqa: FBT001 - an attribute can be boolean
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape(one_line(value))}"'


def clipped(value: object, limit: int) -> str:
    """Return a value as text, cut after ``limit`` characters with the number of those left out.

    Example:
        >>> clipped("x" * 10_000, 5)
        'xxxxx… (9,995 more characters)'
    """
    shown = str(value)
    return shown if len(shown) <= limit else f"{shown[:limit]}… ({len(shown) - limit:,} more characters)"


def cell(value: Any) -> Html:
    """Return a value of a row of data. It can't break out of its cell or affect the writing direction outside it.

    Example:
        >>> cell(None), cell("<b>"), cell({"a": 1}), cell("")
        ('<i>NULL</i>', '<bdi>&lt;b&gt;</bdi>', '<bdi>{&quot;a&quot;: 1}</bdi>', '<i>empty</i>')
    """
    if value is None:
        return tag("i", "NULL")
    if value == "":
        return tag("i", "empty")
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, datetime):
        value = value.isoformat(sep=" ")
    elif isinstance(value, (list, tuple, Mapping)):
        value = json.dumps(value, ensure_ascii=False, default=str)
    elif isinstance(value, bytes):
        value = value.hex()
    return tag("bdi", clipped(value, CELL))


class Examples:
    """Renders example rows of one page as far as the settings allow, and stops before the page gets too large.

    Args:
        rows: Most rows to show per check, if it asks for so many; 0 shows none.
        masked: Patterns, in any case, of columns whose values are never shown.
    """

    def __init__(self, *, rows: int = ROWS, masked: Sequence[str] = ()) -> None:
        self._rows = rows
        self._masked = masked
        self._left = _BUDGET

    def permitted(self, result: CheckResult) -> CheckResult:
        """Return a result with its permitted rows: masked values hidden, failing cells first, files by their names."""
        shown = result.shown(rows=min(self._rows, result.most_rows(ROWS)), masked=self._masked)
        rows = tuple(_ordered(row, failing_cells(row, result.columns)) for row in shown.examples)
        return shown.model_copy(update={"examples": rows})

    def of(self, result: CheckResult, tone: Tone) -> Html | None:
        """Return the rows that fail a check as a table with the failing cells marked."""
        rows = self.permitted(result).examples
        if not rows:
            return None
        if self._left <= 0:
            return tag("p", "Its rows were left out to keep this page small.", class_="small soft")
        shown = _table(rows, result, tone)
        self._left -= len(shown)
        return shown


def _ordered(row: Mapping[str, Any], failing: Sequence[str]) -> dict[str, Any]:
    others = [name for name in row if name not in failing and not name.startswith("_")]
    ordered = {name: row[name] for name in (*failing, *others)}
    if isinstance(file := row.get(FILE_COLUMN), str):
        ordered[FILE_COLUMN] = file.rpartition("/")[2]
    return ordered


def _table(rows: Sequence[Mapping[str, Any]], result: CheckResult, tone: Tone) -> Html:
    names, wrong = [name for name in rows[0] if name != FILE_COLUMN], failing_cells(rows[0], result.columns)
    columns = [*names[:COLUMNS], *([FILE_COLUMN] if FILE_COLUMN in rows[0] else [])]
    head = tag(
        "tr",
        [
            tag("th", tag("bdi", clipped(name, _NAME)), scope="col", class_="wrong" if name in wrong else None)
            for name in columns
        ],
    )
    body = [tag("tr", [_cell(row.get(name), wrong=name in wrong) for name in columns]) for row in rows]
    hidden = [counted(max(result.failing_rows - len(rows), 0), "more row")] * (result.failing_rows > len(rows))
    hidden += [counted(len(names) - COLUMNS, "more column")] * (len(names) > COLUMNS)
    first = "A row that fails" if len(rows) == 1 else f"{len(rows)} rows that fail"
    caption = tag("caption", first, f", of {result.failing_rows:,}" if result.failing_rows > len(rows) else "")
    more = tag("p", f"… and {' and '.join(hidden)}", class_="small soft") if hidden else None
    shown = tag("table", caption, tag("thead", head), tag("tbody", body), class_="rows")
    return tag("div", framed(shown, label=f"Rows that fail {clipped(result.name, _NAME)}"), more, class_=tone)


def _cell(value: Any, *, wrong: bool) -> Html:
    # For screen readers, which don't see the colour.
    return tag(
        "td", tag("span", "fails: ", class_="hidden") if wrong else None, cell(value), class_="wrong" if wrong else None
    )
