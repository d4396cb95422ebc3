"""One-file HTML pages by Jinja, example rows, and the page of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lakegate import __version__
from lakegate.model.checks import CheckResult, failing_cells
from lakegate.model.run import Run
from lakegate.model.schema import FILE_COLUMN, ROW_COLUMN
from lakegate.model.words import count, counted, duration, size
from lakegate.progress import one_line, redact, without_secrets
from lakegate.run_text import change_of, checks_of, describe_run, failing, rows_of, subject_of

if TYPE_CHECKING:
    from jinja2 import Template

CELL = 120
"""Most characters of a value in a cell; the cell says how many more there are."""
_ROWS = 5
_COLUMNS = 12
_MOST_WITH_ROWS = 50
"""Most failing checks whose rows a page shows, so that it stays below 2 MB."""


class Examples:
    """The example rows of one page, as far as the settings allow.

    Args:
        rows: Most rows to show per check, if it asks for so many; 0 shows none.
        masked: Patterns, in any case, of columns whose values are never shown.
    """

    def __init__(self, *, rows: int = _ROWS, masked: Sequence[str] = ()) -> None:
        self._rows = rows
        self._masked = masked

    def permitted(self, result: CheckResult) -> CheckResult:
        """Return a result with its permitted rows: masked values hidden, failing cells first, files by their names."""
        shown = result.shown(rows=min(self._rows, result.most_rows(_ROWS)), masked=self._masked)
        rows = tuple(_ordered(row, failing_cells(row, result.columns)) for row in shown.examples)
        return shown.model_copy(update={"examples": rows})

    def shown(self, result: CheckResult, *, with_rows: bool = True) -> Mapping[str, Any]:
        """Return what a page shows of a failing check: remarks, rows, their columns, and what it leaves out."""
        permitted = self.permitted(result)
        owner = f"Owner: {result.owner}." if result.owner else None
        tags = f"Tags: {', '.join(result.tags)}." if result.tags else None
        remarks = [text for text in (*permitted.remarks, result.description, owner, tags) if text]
        rows = permitted.examples if with_rows else ()
        names = [name for name in (rows[0] if rows else ()) if name != FILE_COLUMN]
        hidden = [counted(result.failing_rows - len(rows), "more row")] * (result.failing_rows > len(rows) > 0)
        hidden += [counted(len(names) - _COLUMNS, "more column")] * (len(names) > _COLUMNS)
        more = f"… and {' and '.join(hidden)}" if hidden else ""
        return {
            "remarks": remarks,
            "rows": rows,
            "columns": [*names[:_COLUMNS], *([FILE_COLUMN] if rows and FILE_COLUMN in rows[0] else [])],
            "wrong": failing_cells(rows[0], result.columns) if rows else (),
            "more": more if with_rows else "Its rows were left out to keep this page small.",
        }


def run_page(run: Run, *, examples: Examples | None = None, link: str | None = None) -> str:
    """Return the page of a run, as one file that loads nothing.

    Args:
        examples: Chooses example rows. Default: as the audit recorded them.
        link: URL of the run on the dashboard.
    """
    given = examples or Examples()
    failed = [id(result) for report in run.reports for result in report.results if result.examples]
    without_rows = set(failed[_MOST_WITH_ROWS:])
    name = f"{run.kind.capitalize()} {run.name}" if run.name else run.kind.capitalize()
    files = [(file, None) for file in (run.request.batch.files if run.request is not None else ())]
    return render(
        status=describe_run(run),
        heading=subject_of(run),
        eyebrow=f"{name} · run {run.run_id}",
        link=link,
        run=run,
        files=[*files, *((known.file, known.run_id) for known in run.skipped_files)],
        examples_of=lambda result: given.shown(result, with_rows=id(result) not in without_rows),
    )


def render(**values: Any) -> str:
    """Return a page: its ``status``, ``heading``, ``eyebrow`` and ``link``, and a ``run`` or what was ``found``."""
    given = {"run": None, "found": None, "now": datetime.now(UTC), **values}
    return _template().render(given, version=__version__)


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        finalize=lambda value: one_line(value) if type(value) is str else value,
        undefined=StrictUndefined,
    )
    filters = (cell, count, duration, redact, size, when)
    environment.filters |= {one.__name__: one for one in filters} | {"clip": clipped, "secretless": without_secrets}
    functions = (change_of, checks_of, counted, failing, rows_of)
    environment.globals |= {one.__name__: one for one in functions} | {"describe": describe_run}
    return environment.get_template("report.html")


def when(time: datetime | None) -> str:
    """Return a time in UTC, to the second; nothing if there is none."""
    return "" if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def clipped(value: object, limit: int) -> str:
    """Return a value as text, cut after ``limit`` characters with the number of those left out.

    Example:
        >>> clipped("x" * 10_000, 5)
        'xxxxx… (9,995 more characters)'
    """
    shown = str(value)
    return shown if len(shown) <= limit else f"{shown[:limit]}… ({len(shown) - limit:,} more characters)"


def cell(value: Any) -> str:
    """Return a JSON-safe value of a row of data as text.

    Example:
        >>> cell("a"), cell(True), cell({"a": 1})
        ('a', 'true', '{"a": 1}')
    """
    return clipped(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str), CELL)


def _ordered(row: Mapping[str, Any], failing: Sequence[str]) -> dict[str, Any]:
    others = [name for name in row if name not in failing and not name.startswith("_")]
    ordered = {name: row[name] for name in (*failing, *others)}
    if isinstance(file := row.get(FILE_COLUMN), str):
        number = f", row {row[ROW_COLUMN]:,}" if isinstance(row.get(ROW_COLUMN), int) else ""
        ordered[FILE_COLUMN] = f"{unquote(file.rpartition('/')[2])}{number}"
    return ordered
