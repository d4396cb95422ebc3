"""Check results and audit reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakegate.cli.output import (
    Styled,
    cell,
    clip,
    clip_path,
    console,
    count_fitting,
    null,
    safe,
    say,
    say_wrapped,
    show_rows,
    width_or,
)
from lakegate.model.checks import failing_cells
from lakegate.model.words import count, counted, share, size
from lakegate.progress import one_line

if TYPE_CHECKING:
    from lakegate.model.checks import AuditReport, CheckResult

_EXAMPLES = 5
_WIDEST_CELL = 32
_FILE_COLUMN, _ROW_COLUMN = "_file", "_row"
_MARK = "✗ "
"""Before a cell that fails, for terminals and readers without colors."""
_DEFAULT_WIDTH = 110
_EVIDENCE = {"manifest": "by file metrics", "journal": "by earlier runs", "scan": "by reading rows"}


def check_payload(result: CheckResult) -> dict[str, Any]:
    """Return one check's result for JSON output (``schemas/ingest-result.schema.json``)."""
    return result.model_dump(mode="json", exclude={"reads"})


def report_payload(report: AuditReport) -> dict[str, Any]:
    """Return a report for JSON output."""
    return {
        "run_id": report.run_id or None,
        "table": report.table,
        "branch": report.branch,
        "passed": report.passed,
        "rows": report.rows,
        "checks": [check_payload(result) for result in report.results],
        "seconds": report.seconds,
        **({"explanations": [one.model_dump() for one in report.explanations]} if report.explanations else {}),
    }


def summary(*reports: AuditReport) -> str:
    """Return how many checks ran and failed, and how they were answered, such as from file metrics."""
    results = [result for report in reports for result in report.results]
    if not results:
        return "no checks"
    counts = {words: sum(result.evidence == evidence for result in results) for evidence, words in _EVIDENCE.items()}
    answered = [f"{number} {words}" for words, number in counts.items() if number]
    failed = sum(len(report.failures) for report in reports)
    warned = sum(len(report.warnings) for report in reports)
    skipped = sum(len(report.skipped) for report in reports)
    verdict = f"{failed} failed" if failed else "passed"
    if warned:
        verdict += f", {counted(warned, 'warning')}"
    if skipped:
        verdict += f", {skipped} skipped"
    return f"{counted(len(results), 'check')}, {verdict} ({', '.join(answered)})"


def show_failing(title: str, results: Sequence[CheckResult], style: str) -> None:
    """Print failing checks as a table, then example rows for each."""
    if not results:
        return
    say("", f"[bold {style}]{title}[/]")
    rows = (
        (
            result.name,
            ", ".join(result.columns),
            count(result.failing_rows),
            count(result.total_rows),
            share(result.failing_rows, result.total_rows),
        )
        for result in results
    )
    numbers = ("failing rows", "of", "%")
    show_rows(("check", "column", *numbers), rows, right=numbers, drop=("column", "of", "%"), cut="check", indent=2)
    show_evidence(results)


def show_notes(report: AuditReport) -> None:
    """Print why checks were skipped, and what to know about some that passed."""
    notes = [
        f"[yellow]{safe(result.name)} was skipped:[/] {safe(result.detail or 'there was nothing to check.')}"
        for result in report.skipped
    ]
    notes += [safe(one.sentence) for one in report.results if one.verdict == "pass" and one.sentence]
    if notes:
        say("")
        say_wrapped(*notes)


def show_quarantined(results: Sequence[CheckResult]) -> None:
    """Print how many rows each check set aside, then example rows for each."""
    if not results:
        return
    say("", "[bold yellow]Quarantined[/]")
    rows = ((result.name, ", ".join(result.columns), count(result.quarantined)) for result in results)
    show_rows(("check", "column", "rows"), rows, right=("rows",), drop=("column",), cut="check", indent=2)
    for result in results:
        if result.where_from:
            say_wrapped(f"[dim]{safe(result.name)}: {safe(result.where_from)}[/]")
        show_examples(result)


def show_evidence(results: Sequence[CheckResult]) -> None:
    """Print what is known about each failing check, then example rows for each."""
    for result in results:
        owner = result.owner and f"Owner: {result.owner}"
        text = " ".join(filter(None, (*result.remarks, result.description, owner)))
        if text:
            say_wrapped(f"[dim]{safe(text if result.name in text else f'{result.name}: {text}')}[/]")
    for result in results:
        show_examples(result)


def show_examples(result: CheckResult) -> None:
    """Print a few failing rows: the cells that fail, marked, then as many others as fit, and their source files.

    Without those, their files are Iceberg's, whose names say nothing to people.
    """
    rows: Sequence[Mapping[str, Any]] = result.examples[: result.most_rows(_EXAMPLES)]
    if not rows:
        return
    if _ROW_COLUMN not in rows[0]:
        rows = [{name: value for name, value in row.items() if name != _FILE_COLUMN} for row in rows]
    marked = failing_cells(rows[0], result.columns)
    files = tuple(dict.fromkeys(row[_FILE_COLUMN] for row in rows if isinstance(row.get(_FILE_COLUMN), str)))
    shown = [_with_file(row, marked, files) for row in rows]
    columns, cells = fit_columns(shown, (_ROW_COLUMN, *marked, _FILE_COLUMN), width_or(_DEFAULT_WIDTH) - 2)
    say("", f"Rows that fail [bold]{safe(result.name)}[/]")
    show_rows(columns, (tuple(map(styled, row)) for row in cells), indent=2)
    for number, file in enumerate(files, start=1):
        label = "File" if len(files) == 1 else f"File {number}"
        path = clip_path(one_line(_path(file)), console().width - len(f"  {label}: "))
        say(f"  [dim]{label}: {safe(path)}[/]")
    left = len(shown[0]) - len(columns)
    more = [f"{counted(left, 'more column')}"] * (left > 0)
    failing = result.failing_rows if result.verdict == "fail" else result.quarantined
    hidden = failing - len(rows)
    more += [f"{counted(hidden, 'more row')}"] * (hidden > 0)
    if more:
        say(f"  [dim]… {' and '.join(more)}[/]")


def _path(uri: str) -> str:
    """Return where a file is as people type it: a path, relative if it's below the current folder, or a store's URI."""
    from lakegate.sources.files import from_uri, shown

    return shown(from_uri(uri)).removeprefix(f"{Path.cwd()}/") if uri.startswith("file:") else uri


def _with_file(row: Mapping[str, Any], marked: Sequence[str], files: Sequence[str]) -> dict[str, Any]:
    """Return a row with its failing cells marked, and the number of its file if not all rows are in the same one."""
    shown = with_marks(row, marked)
    file = shown.pop(_FILE_COLUMN, None)
    if file is not None and len(files) != 1:
        shown[_FILE_COLUMN] = files.index(file) + 1 if file in files else file
    return shown


def with_marks(row: Mapping[str, Any], marked: Sequence[str]) -> dict[str, Any]:
    """Return a row with the cells of some columns marked as failing."""
    return {name: f"{_MARK}{cell(value)}" if name in marked else value for name, value in row.items()}


def styled(text: str) -> Any:
    """Return a cell, in red if it's marked, dimmed if it's ``NULL``."""
    from rich.text import Text

    return Text(text, style="red") if text.startswith(_MARK) else null(text)


def fit_columns(
    rows: Sequence[Mapping[str, Any]], first: Sequence[str], width: int
) -> tuple[list[str], list[list[str]]]:
    """Choose the columns of ``rows`` that fit in ``width`` characters, starting with those named in ``first``.

    Returns:
        At least one column, and each row's clipped cells.

    Example:
        >>> fit_columns([{"a": 1, "b": None, "c": "x" * 50}], ["b"], 12)
        (['b', 'a'], [['NULL', '1']])
    """
    names = sorted(rows[0], key=lambda name: 0 if name in first else 2 if name == _FILE_COLUMN else 1)
    widest = min(_WIDEST_CELL, width)
    cells = [[clip(cell(row.get(name)), widest) for name in names] for row in rows]
    fitting = count_fitting(names, cells, width)
    return names[:fitting], [row[:fitting] for row in cells]


def show_all(report: AuditReport) -> None:
    """Print every check with its verdict."""
    if not report.results:
        return
    columns = ("check", "verdict", "failing rows", "of", "evidence")
    rows = []
    for result in report.results:
        word = "warn" if result.warns else result.verdict
        style = {"fail": "red", "warn": "yellow", "skipped": "yellow"}.get(word)
        cells = (result.name, word, count(result.failing_rows), count(result.total_rows), result.evidence)
        rows.append(Styled(cells, style))
    # A check can be long, but its verdict must stay on the same line.
    say("")
    drop = ("evidence", "of")
    show_rows(columns, rows, right=("failing rows", "of"), drop=drop, cut="check", indent=2)


def show_explanations(report: AuditReport) -> None:
    """Print how each check was answered, if the report says so, and why no cheaper way was possible."""
    if not report.explanations:
        return
    say("", "[bold]How they were answered[/]")
    rows = [
        (one.check, one.method, count(one.jobs), "?" if one.bytes is None else size(one.bytes))
        for one in report.explanations
    ]
    show_rows(("check", "how", "jobs", "reads"), rows, right=("jobs", "reads"), indent=2)
    reasons: dict[str, list[str]] = {}
    for result, one in zip(report.results, report.explanations, strict=True):
        if one.reason is not None:
            reasons.setdefault(one.reason, []).append(result.name)
    for why, names in reasons.items():
        say_wrapped(f"[dim]{safe(', '.join(names))}: {safe(why)}[/]")
    if any(one.method in ("scan", "bitmaps in the scan") for one in report.explanations):
        say_wrapped("[dim]All checks that say scan share one pass over the rows. Its jobs and bytes show for each.[/]")
