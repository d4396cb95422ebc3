"""Rows of data in reports: which may be shown, and with the cells marked that fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from lakegate.model.checks import CheckResult
from lakegate.model.figures import counted
from lakegate.reports.page import Html, cell, clipped, framed, tag
from lakegate.reports.story import Mood

ROWS = 5
COLUMNS = 12
MASK = "•••"
_BUDGET = 1_200_000
"""Characters of markup that all examples of one page may take: a page with 200 failing checks stays below 2 MB."""
_NAME = 60


class Examples:
    """How rows may be shown. One object is one page's: it stops when the page would grow too large to be sent.

    Args:
        rows: The most rows to show of a check; 0 shows none.
        masked: Patterns of the columns whose values are never shown, in any case.
    """

    def __init__(self, *, rows: int = ROWS, masked: Sequence[str] = ()) -> None:
        self._rows = min(rows, ROWS)
        self._masked = [pattern.lower() for pattern in masked]
        self._left = _BUDGET

    def permitted(self, result: CheckResult) -> list[dict[str, Any]]:
        """Return the rows of a check that may be shown, the check's own columns first, with masked values hidden."""
        return [
            {
                name: MASK if any(fnmatchcase(name.lower(), pattern) for pattern in self._masked) else row[name]
                for name in _ordered(row, result.columns)
            }
            for row in result.examples[: self._rows]
        ]

    def of(self, result: CheckResult, mood: Mood) -> Html | None:
        """Return the rows that fail a check, as a table with the failing cells marked."""
        rows = self.permitted(result)
        if not rows:
            return None
        if self._left <= 0:
            return tag("p", "Its rows were left out to keep this page small.", class_="small soft")
        shown = _table(rows, result, mood)
        self._left -= len(shown)
        return shown


def _ordered(row: Mapping[str, Any], own: Sequence[str]) -> list[str]:
    first = [name for name in own if name in row]
    others = [name for name in row if name not in own and not name.startswith("_")]
    return [*first, *others]


def _table(rows: Sequence[Mapping[str, Any]], result: CheckResult, mood: Mood) -> Html:
    names = list(rows[0])
    columns = names[:COLUMNS]
    head = tag(
        "tr",
        [
            tag("th", tag("bdi", clipped(name, _NAME)), scope="col", class_="wrong" if name in result.columns else None)
            for name in columns
        ],
    )
    body = [tag("tr", [_cell(row.get(name), wrong=name in result.columns) for name in columns]) for row in rows]
    hidden = [counted(max(result.failing_rows - len(rows), 0), "more row")] * (result.failing_rows > len(rows))
    hidden += [counted(len(names) - len(columns), "more column")] * (len(names) > len(columns))
    first = "A row that fails" if len(rows) == 1 else f"{len(rows)} rows that fail"
    caption = tag("caption", first, f", of {result.failing_rows:,}" if result.failing_rows > len(rows) else "")
    more = tag("p", f"… and {' and '.join(hidden)}", class_="small soft") if hidden else None
    shown = tag("table", caption, tag("thead", head), tag("tbody", body), class_="rows")
    return tag("div", framed(shown, label=f"Rows that fail {clipped(result.name, _NAME)}"), more, class_=mood)


def _cell(value: Any, *, wrong: bool) -> Html:
    # Colour alone says nothing to those who don't see it.
    return tag(
        "td", tag("span", "fails: ", class_="hidden") if wrong else None, cell(value), class_="wrong" if wrong else None
    )
