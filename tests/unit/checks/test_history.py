"""Bands: which earlier batches a measure is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import cast

import pytest

from lakegate.checks import parse_checks, run_audit
from lakegate.checks.history import BatchHistory, PastBatch, judge_band
from lakegate.checks.questions import Band, Finding
from lakegate.errors import CheckError
from lakegate.model.checks import CheckResult
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.schema import Column, Schema
from lakegate.model.tables import AddedFiles, AddedRows, DataFile
from lakegate.ports import Engine

NOW = datetime(2026, 11, 22, tzinfo=UTC)
ROWS = AddedRows(table=TableIdentifier.parse("a.b"), ref="x", after_snapshot_id=1, snapshot_id=2)
SCHEMA = Schema(columns=(Column(name="n", type="long"),))
ADDED = AddedFiles((DataFile(path="f", rows=100, size_bytes=1),), complete=True)


def runs(hours: int, *, rows: int = 100) -> Iterator[PastBatch]:
    for number in count(1):
        yield PastBatch(f"r{number}", NOW - timedelta(hours=hours * number), rows)


def audit(text: str, past: BatchHistory | None, *masked: str) -> CheckResult:
    report = run_audit(
        run_id="r", rows=ROWS.model_copy(update={"masked": masked}), schema=SCHEMA, added=ADDED,
        checks=[check for one in text.split("; ") for check in parse_checks(one)],
        engine=lambda: cast("Engine", None), metadata_location="m", past=past,
    )  # fmt: skip
    return report.results[0]


def test_what_was_no_batch_is_not_compared() -> None:
    deletes = [PastBatch(f"d{n}", NOW, 9_000, is_batch=False) for n in range(50)]
    batches = [PastBatch(f"b{n}", NOW, 100) for n in range(5)]
    check = "row_count(percent=10)"
    assert audit(check, BatchHistory(lambda: [*deletes, *batches])).verdict == "pass"
    skipped = audit(check, BatchHistory(lambda: batches, own=lambda: PastBatch("r", NOW, 100, is_batch=False)))
    assert (skipped.verdict, skipped.detail) == (
        "skipped",
        "Only new rows are compared with earlier batches; this run changed others, or released quarantined ones.",
    )
    published = audit(check, None)
    assert (published.verdict, published.detail) == (
        "skipped",
        "It compares a run with what came before, and there is no run here.",
    )


@pytest.mark.parametrize(
    ("option", "masked", "cause"), [(", examples=0", (), "examples=0"), ("", ("N",), r"audit\.mask")]
)
def test_a_band_on_a_hidden_value_is_refused(option: str, masked: tuple[str, ...], cause: str) -> None:
    with pytest.raises(CheckError, match=f"{cause} hides the value") as caught:
        audit(f"mean(n, deviations=3{option})", BatchHistory(lambda: runs(1)), *masked)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("band", [Band(3, None, 20, weekday=False), Band(None, 20, 20, weekday=False)])
def test_one_batch_unlike_all_others_moves_no_band(band: Band) -> None:
    past = [PastBatch(f"b{n}", NOW, 1_000_000 if n == 7 else 95 + n % 11) for n in range(20)]
    found = {rows: judge_band(Finding(0, value=float(rows)), band, None, past, NOW) for rows in (100, 300, 1_000_000)}
    assert {rows: one.failed for rows, one in found.items()} == {100: False, 300: True, 1_000_000: True}
    assert "the mean of the last 20 batches without the one of 1,000,000, " in str(found[300].detail)
