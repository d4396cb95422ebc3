"""Building blocks of the pages: text from data, lists, filters, pagination, links and errors.

Streamlit reads most texts as Markdown. Text from data goes through :func:`plain`, or into an element that shows it as
it is: a dataframe, ``st.text`` or ``st.code``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import streamlit as st
from structlog.stdlib import get_logger

from lakegate.dashboard.model import CheckLine, Problem, ResultPage, searchable
from lakegate.dashboard.ui.session import shared
from lakegate.errors import InputError, LakegateError
from lakegate.model.checks import failing_cells
from lakegate.model.words import counted, share
from lakegate.progress import one_line

_Result = TypeVar("_Result", bound=ResultPage[Any])
_PAGES = Path(__file__).parent / "pages"
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_ADDRESS = re.compile(r"(\S*(?:://|www\.|@)\S*)", re.IGNORECASE)
"""A word that Streamlit would make a link, even if its punctuation is escaped."""
_LONGEST_TEXT = 1_000
_LONGEST_CELL = 300
_MOST_COLUMNS = 40
_MOST_CHECKS_OPEN = 30
"""Failed checks whose example rows are shown. Those of hundreds would take a browser seconds."""
_log = get_logger(__name__)


def plain(text: object, *, longest: int = _LONGEST_TEXT) -> str:
    r"""Return text from data on one line, so that Markdown shows it as it is, and addresses as code, not as links.

    Example:
        >>> plain("<b>*a*</b> at http://example.com") == r"\<b\>\*a\*\<\/b\> at ` http://example.com `"
        True
    """
    words = _ADDRESS.split(clean(text, longest=longest))
    return "".join(_code(word) if number % 2 else _PUNCTUATION.sub(r"\\\1", word) for number, word in enumerate(words))


def _code(text: str) -> str:
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}"


def clean(text: object, *, longest: int = _LONGEST_CELL) -> str:
    """Return text on one line, without characters that can't be sent, and cut after ``longest`` characters."""
    shown = searchable(one_line(text))
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def heading(title: str) -> None:
    """Put a heading on the page, which also names the browser's tab."""
    st.title(plain(title, longest=300), anchor=False)


def facts(*pairs: tuple[str, object]) -> None:
    """Show names with values, one a line. Empty values are left out."""
    lines = [f"{name}: {clean(value, longest=_LONGEST_TEXT)}" for name, value in pairs if value not in (None, "")]
    st.text("\n".join(lines))


def hint(text: str | None) -> None:
    """Show what to do about an error: a command to copy, or a sentence."""
    if text and text.startswith("lakegate "):
        commands([text])
    elif text:
        st.text(clean(text, longest=_LONGEST_TEXT))


def commands(lines: Iterable[str]) -> None:
    """Show commands to copy."""
    if text := "\n".join(clean(line, longest=_LONGEST_TEXT) for line in lines):
        st.code(text, language=None, wrap_lines=True)


def table(rows: Sequence[Mapping[str, Any]], *, columns: Mapping[str, Any] | None = None, label: str) -> None:
    """Show rows, which all have the same keys, without the columns that are empty in each.

    Args:
        columns: How to show some columns: Streamlit's ``column_config``.
        label: What the table holds, for screen readers.
    """
    _dataframe(_without_empty(rows), columns, label)


def listing(
    rows: Sequence[Mapping[str, Any]],
    *,
    opens: tuple[str, str, Sequence[str | None]],
    columns: Mapping[str, Any] | None = None,
    label: str,
) -> None:
    """Show rows that open a page each, without the columns that are empty in each.

    Args:
        opens: The page, its parameter, and the parameter's value for each row; ``None`` for rows that open nothing.
        columns: How to show some columns: Streamlit's ``column_config``.
        label: What the table holds, for screen readers.
    """
    page, name, values = opens
    visit = st.session_state.setdefault("lg-visit", 0)
    event = _dataframe(
        _without_empty(rows),
        columns,
        label,
        on_select="rerun",
        selection_mode="single-row",
        key=f"lg-{label}-{visit}",
    )
    st.caption("Tick a row to open it.")
    if event.selection.rows and (value := values[event.selection.rows[0]]) is not None:
        # Who comes back finds no row ticked, which would lead here again.
        st.session_state["lg-visit"] += 1
        go(page, **{name: value})


def _dataframe(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Any] | None, label: str, **selection: Any
) -> Any:
    return st.dataframe(
        _arrow(rows),
        hide_index=True,
        height="content",
        column_config=_formats(rows) | dict(columns or {}),
        placeholder="",
        alt=label,
        **selection,
    )


def _without_empty(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    filled = {name for row in rows for name, value in row.items() if value not in (None, "")}
    return [{name: value for name, value in row.items() if name in filled} for row in rows]


def _formats(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how to show the columns with times and with whole numbers."""
    time = st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", timezone="UTC", help="UTC")
    number = st.column_config.NumberColumn(format="localized")
    kinds = {name: type(value) for row in rows for name, value in row.items() if value is not None}
    return {name: time if kind is datetime else number for name, kind in kinds.items() if kind in (datetime, int)}


def _arrow(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    shown = [
        {clean(name): clean(value) if isinstance(value, str) else value for name, value in row.items()} for row in rows
    ]
    return pa.Table.from_pylist(shown)


def example_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, label: str) -> None:
    """Show failing rows as text, the failing columns first."""
    if not rows:
        return
    failing = failing_cells(rows[0], columns)
    names = [*failing, *(name for name in rows[0] if name not in failing)][:_MOST_COLUMNS]
    _dataframe([{name: _cell(row.get(name)) for name in names} for row in rows], None, label)


def _cell(value: object) -> str:
    return "NULL" if value is None else str(value)


def show_checks(checks: Sequence[CheckLine]) -> None:
    """Show checks, failed ones first: the column, how many rows fail, and some of them."""
    several = len({line.table for line in checks}) > 1
    rows = [
        {
            "Verdict": f"{line.verdict} ({line.severity})" if line.verdict == "fail" else line.verdict,
            "Column": ", ".join(line.columns),
            "Failing rows": f"{line.failing_rows:,} of {line.total_rows:,}",
            "Share": share(line.failing_rows, line.total_rows) if line.failing_rows else "",
            "Quarantined": line.quarantined or None,
            "Check": line.name,
            "Table": line.table if several else "",
            "Evidence": {"manifest": "file metrics", "journal": "earlier runs"}.get(line.evidence, "rows read"),
        }
        for line in checks
    ]
    table(rows, label="Checks")
    failed = [line for line in checks if line.verdict == "fail" or line.quarantined or line.sentence]
    for line in failed[:_MOST_CHECKS_OPEN]:
        _show_check(line)


def _show_check(line: CheckLine) -> None:
    """Show what a check says about the rows that fail it, and some of them."""
    owner = f"Owner: {line.owner}." if line.owner else None
    hidden = f"{counted(line.hidden_examples, 'failing row')} not shown (setting ui.examples)."
    remarks = [*line.remarks, line.description, owner, hidden if line.hidden_examples else None]
    if not line.examples and not any(remarks):
        return
    with st.container(border=True):
        st.markdown(f"**{plain(line.name, longest=200)}**")
        st.text("\n".join(clean(remark, longest=_LONGEST_TEXT) for remark in remarks if remark))
        example_rows(line.examples, line.columns, label=f"Rows that fail {clean(line.name, longest=80)}")


def param(name: str) -> str | None:
    """Return a query parameter; ``None`` if it's missing or empty."""
    return st.query_params.get(name) or None


def go(page: str, **parameters: str) -> None:
    """Open another page, named like its module in ``pages/``."""
    st.switch_page(_PAGES / f"{page}.py", query_params=parameters)


def link(page: str, label: str, **parameters: str) -> None:
    """Show a link to another page, named like its module in ``pages/``."""
    st.page_link(_PAGES / f"{page}.py", label=plain(label, longest=200), query_params=parameters)


@contextmanager
def boundary(what: str) -> Iterator[None]:
    """Show errors of the body in its place, so that the rest of the page is drawn.

    Args:
        what: What the body draws, such as ``the branches``.
    """
    try:
        yield
    except LakegateError as error:
        shared().model.failed(error)
        show_error(error)
    except Exception as error:  # noqa: BLE001 - an unexpected error must not take the whole page down
        _log.exception("the dashboard couldn't show something", what=what)
        st.error(
            f"Couldn't show {what}: {type(error).__name__}. This is a bug in lakegate. The terminal of `lakegate ui` "
            "has the details."
        )


def show_error(error: LakegateError | Problem) -> None:
    """Show what went wrong, and what to do about it."""
    st.error(plain(error.message))
    hint(error.hint)


def problems(found: Iterable[Problem]) -> None:
    """Show which parts of the lake couldn't be read."""
    for problem in found:
        show_error(problem)


def search_box(label: str, *, key: str) -> str:
    """Show a search field whose text is the query parameter ``key``."""
    text = st.text_input(label, key=key, bind="query-params", max_chars=300, on_change=_first_page)
    return (text or "").strip()


def choice(label: str, options: Sequence[str], *, key: str) -> str | None:
    """Show a select box, empty at first, whose value is the query parameter ``key``."""
    return st.selectbox(
        label, options, index=None, key=key, bind="query-params", placeholder="any", on_change=_first_page
    )


def _first_page() -> None:
    if "after" in st.query_params:
        del st.query_params["after"]


def read_page(read: Callable[[str | None], _Result]) -> _Result:
    """Return the page of results at the URL's cursor; the first page if the cursor is invalid."""
    try:
        return read(param("after"))
    except InputError:
        return read(None)


def show_pagination(page: ResultPage[Any], noun: str) -> None:
    """Show buttons for the next and the first page of results, which are ``noun``s, such as ``run``."""
    cursor = param("after")
    if cursor is None and page.next is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.text(counted(len(page.items), noun) + (f" of {page.total:,}" if page.total is not None else ""))
        if cursor is not None and st.button("First page"):
            del st.query_params["after"]
            st.rerun()
        if page.next is not None and st.button("Next page"):
            st.query_params["after"] = page.next
            st.rerun()
