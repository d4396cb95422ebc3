"""Name the source files of the rows that fail checks: the tables' data files say nothing to users.

Only after a check failed, its batch is read once more. The answer counts only if the files have exactly as many failing
rows as the audit found. Whatever goes wrong here, the verdict stands, without files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from lakegate.checks import Others, row_tests
from lakegate.errors import CheckError
from lakegate.model.batch import Batch
from lakegate.model.checks import AuditReport, Check, CheckResult, FailingFile
from lakegate.model.quarantine import RowTest
from lakegate.model.schema import FILE_COLUMN, POSITION_COLUMN, ROW_COLUMN, Schema, masked_path
from lakegate.model.tables import AddedRows
from lakegate.ports import Engine, Narrator

_LOG = logging.getLogger(__name__)
_MOST_FILES = 5
_MOST_ROWS = 5
_OWN_COPIES = "/.lakegate/sources/"


def with_files(
    report: AuditReport,
    checks: Sequence[Check],
    *,
    rows: AddedRows,
    schema: Schema,
    others: Others,
    batch: Batch,
    engine: Engine,
    narrator: Narrator | None = None,
) -> AuditReport:
    """Return ``report`` with the source files of the failing rows, and with examples that name file and row.

    Args:
        checks: Those of the report, in its order, validated.
        rows: The audited rows. All of them must be from ``batch``, unchanged.
        schema: The table's columns.
        others: As in :func:`lakegate.checks.run_audit`.
    """
    if is_from_memory(batch):
        return report
    doing = f"Finding the files of failing rows of {rows.table}"
    try:
        tests = dict(_tests(report, checks, rows, schema, others))
        if not tests:
            return report
        results = list(report.results)
        with nullcontext() if narrator is None else narrator.step(doing):
            by_test = engine.failing_by_file(batch, schema, tuple(tests.values()))
            located = dict(zip(tests, by_test, strict=True))
            for index, result in enumerate(results):
                files = located.get(result.name, {})
                if sum(number for number, _ in files.values()) == result.failing_rows > 0:
                    worst = min(files, key=lambda file: (-files[file][0], file))
                    found = _examples(result, tests[result.name], worst, rows, batch, schema, engine)
                    results[index] = _located(result, files, worst, found, batch, rows.masked)
    except Exception as error:  # noqa: BLE001 - the verdict counts, and the files may be gone
        _LOG.debug("no source files of failing rows: %s", type(error).__name__)
        return report
    return report.model_copy(update={"results": tuple(results)})


def is_from_memory(batch: Batch) -> bool:
    """Return whether a program gave the rows, so that their files are copies of lakegate's own."""
    return any(_OWN_COPIES in uri for uri in batch.uris)


def with_known_files(report: AuditReport, earlier: AuditReport) -> AuditReport:
    """Return ``report`` with the files that an ``earlier`` one on the same rows named: copies of them may be gone."""
    known = {(one.check, one.failing_rows): one for one in earlier.results if one.files}

    def named(one: CheckResult) -> CheckResult:
        before = known.get((one.check, one.failing_rows))
        if one.files or before is None:
            return one
        kept = {name: getattr(before, name) for name in ("files", "more_files", "examples")}
        return one.model_copy(update=kept)

    return report.model_copy(update={"results": tuple(map(named, report.results))})


def _tests(
    report: AuditReport, checks: Sequence[Check], rows: AddedRows, schema: Schema, others: Others
) -> Iterator[tuple[str, RowTest]]:
    for check, result in zip(checks, report.results, strict=True):
        if result.verdict == "fail":
            with suppress(CheckError):  # it isn't about single rows
                yield result.name, row_tests([(result.name, check)], schema, rows, others, rows.masked)[0]


def _examples(
    result: CheckResult, test: RowTest, file: str, rows: AddedRows, batch: Batch, schema: Schema, engine: Engine
) -> Sequence[dict[str, Any]]:
    """Return the first failing rows of a file in place of a result's examples, if those are rows.

    Rows that share a key are shown together, whatever files they are in.
    """
    if test.keys is not None or not result.examples or FILE_COLUMN not in result.examples[0]:
        return ()
    shown = tuple(name for name in result.examples[0] if name != FILE_COLUMN)
    wanted = rows.model_copy(update={"shown": (*shown, POSITION_COLUMN)})
    return engine.examples_in_file(wanted, batch, schema, test, file, len(result.examples))


def _located(
    result: CheckResult,
    files: Mapping[str, tuple[int, int]],
    worst: str,
    found: Sequence[dict[str, Any]],
    batch: Batch,
    masked: Sequence[str],
) -> CheckResult:
    """Return ``result`` with its files as users know them, and with the examples that were ``found`` in the worst."""
    order = sorted(files, key=lambda file: (file != worst, -files[file][0], file))
    read = batch.files_at(order)
    given = {file: masked_path(masked, (*read[file].aliases, read[file].uri)[0]) for file in order}
    first = {file: (files[file][1] + 1,) for file in order}
    if found:
        first[worst] = tuple(row[POSITION_COLUMN] + 1 for row in found[:_MOST_ROWS])
    shown = ((row.pop(POSITION_COLUMN) + 1, row) for row in map(dict, found))
    examples = tuple({ROW_COLUMN: number} | row | {FILE_COLUMN: given[worst]} for number, row in shown)
    return result.model_copy(
        update={
            "files": tuple(
                FailingFile(file=given[file], rows=files[file][0], first_rows=first[file])
                for file in order[:_MOST_FILES]
            ),
            "more_files": max(0, len(order) - _MOST_FILES),
            "examples": examples or result.examples,
        }
    )
