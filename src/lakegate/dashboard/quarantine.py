"""A table's quarantined rows: how many wait and why, some examples, and commands to run next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from lakegate.dashboard.model import Command, ReadModel
from lakegate.errors import LakegateError
from lakegate.model.base import Value
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.quarantine import (
    COLUMNS,
    POSITION,
    REASONS,
    RELEASED_BY,
    RUN_ID,
    SOURCE_FILE,
    SUFFIX,
    QuarantineSummary,
    RowSelection,
)
from lakegate.model.refs import MAIN, TablePointer
from lakegate.model.rows import json_safe
from lakegate.model.schema import masked_row
from lakegate.wap.release import quarantined_rows, summaries

_MOST_ROWS = 10
_NO_EXAMPLES = re.compile(r"\bexamples=0\b")


class QuarantinedRow(Value):
    """A quarantined row that waits for a decision.

    Attributes:
        values: The row, without masked values.
        position: Its position in ``source``, counted from 0.
    """

    checks: tuple[str, ...]
    columns: tuple[str, ...]
    values: dict[str, Any]
    source: str | None = None
    position: int | None = None
    run_id: str


class QuarantineDetail(Value):
    """The quarantined rows of a table.

    Attributes:
        commit: The commit of ``main`` that was read.
        runs: Counts and reasons for each run that set rows aside, newest first.
        examples: Some of the waiting rows, as far as the settings allow.
    """

    table: str
    rows: int
    waiting: int
    commit: str
    runs: tuple[QuarantineSummary, ...] = ()
    examples: tuple[QuarantinedRow, ...] = ()
    commands: tuple[Command, ...] = ()


def get_quarantine(model: ReadModel, table: str, *, run_id: str | None = None) -> QuarantineDetail | None:
    """Return the quarantined rows of a table on ``main``.

    Args:
        run_id: Only rows that this run set aside.

    Returns:
        The rows; ``None`` if none were ever set aside.
    """
    main = model.catalog.get_ref(MAIN)
    pointer = model.tables(main).get(f"{TableIdentifier.parse(table)}{SUFFIX}")
    if pointer is None:
        return None
    every: tuple[QuarantineSummary, ...] = model.cached(
        "quarantine", pointer, lambda: tuple(summaries(model.reader, pointer))
    )
    found = sorted((one for one in every if run_id in (None, one.run_id)), key=lambda one: one.run_id, reverse=True)
    if not found:
        return None
    waiting = sum(one.waiting for one in found)
    shown = min(model.settings.ui.examples, _MOST_ROWS) if waiting else 0
    return QuarantineDetail(
        table=table,
        rows=sum(one.rows for one in found),
        waiting=waiting,
        commit=main.hash,
        runs=tuple(found),
        examples=_examples(model, pointer, run_id, shown),
        commands=_commands(table, run_id) if waiting else (),
    )


def count_waiting(model: ReadModel, tables: Mapping[str, TablePointer]) -> dict[str, int]:
    """Return how many quarantined rows wait, for each table that has any.

    The counts come from file metrics. All rows of a file without the metric count as waiting.
    """
    pointers = [pointer for name, pointer in tables.items() if name.endswith(SUFFIX)]
    counts = model.read_each(pointers, lambda one: model.cached("waiting", one, lambda: _count_waiting(model, one)))
    return {
        str(pointer.table).removesuffix(SUFFIX): number
        for pointer, number in zip(pointers, counts, strict=True)
        if not isinstance(number, LakegateError) and number
    }


def _count_waiting(model: ReadModel, pointer: TablePointer) -> int:
    total = 0
    for file in model.reader.files(pointer):
        metric = file.columns.get(RELEASED_BY)
        total += file.rows if metric is None or metric.null_count is None else metric.null_count
    return total


def _examples(model: ReadModel, pointer: TablePointer, run_id: str | None, limit: int) -> tuple[QuarantinedRow, ...]:
    if limit <= 0:
        return ()
    masked = model.settings.masked
    rows = quarantined_rows(model.reader, pointer, RowSelection(run_id=run_id), limit)
    shown = {run: _shown_checks(model, run) for run in {row[RUN_ID] for row in rows}}
    return tuple(_row(row, masked) for row in rows if {one["check"] for one in row[REASONS]} <= shown[row[RUN_ID]])


def _shown_checks(model: ReadModel, run_id: str) -> set[str]:
    """Return the names of a run's checks whose rows may be shown: those without ``examples=0``.

    Empty if the journal doesn't know the run, because then nothing says which rows to hide.
    """
    try:
        run = model.journal.get(run_id)
    except LakegateError:
        return set()
    results = [one for report in (() if run is None else run.reports) for one in report.results]
    return {one.name for one in results} - {one.name for one in results if _NO_EXAMPLES.search(one.check)}


def _row(row: Mapping[str, Any], masked: tuple[str, ...]) -> QuarantinedRow:
    data = {name: json_safe(value) for name, value in row.items() if name not in COLUMNS}
    return QuarantinedRow(
        checks=tuple(dict.fromkeys(reason["check"] for reason in row[REASONS])),
        columns=tuple(dict.fromkeys(reason["column"] for reason in row[REASONS] if reason["column"] is not None)),
        values=masked_row(masked, data),
        source=row[SOURCE_FILE],
        position=row[POSITION],
        run_id=row[RUN_ID],
    )


def _commands(table: str, run_id: str | None) -> tuple[Command, ...]:
    which = () if run_id is None else ("--run", run_id)

    def command(purpose: str, *words: str) -> Command:
        return Command(purpose=purpose, command=shlex.join(("lakegate", "quarantine", *words)))

    return (
        command("See them in the terminal", "show", table, *which),
        command("Publish them as they are", "release", table, *which),
        command("Publish them with new values", "fix", table, "--set", "COLUMN=SQL", *which),
        command("Delete them", "drop", table, *which, "--yes"),
    )
