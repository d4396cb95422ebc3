"""Data that Spark holds and Python doesn't: verdicts, examples and queries are right all the same."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.cli.commands.query import print_json
from lakegate.errors import AuditTimeoutError
from lakegate.lake import Lake, connect
from lakegate.model.run import Run

pytestmark = pytest.mark.jvm


def text(*values: bytes) -> Any:
    """Return a column of text whose bytes nobody has looked at."""
    raw: Any = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), raw.buffers())


def days(*values: int) -> Any:
    array: Any = pa.array(values, pa.int32())
    return array.view(pa.date32())


def times(*values: int, zone: str | None = None) -> Any:
    array: Any = pa.array(values, pa.int64())
    return array.view(pa.timestamp("us", tz=zone))


def nanos(*values: int) -> Any:
    array: Any = pa.array(values, pa.int64())
    return array.view(pa.timestamp("ns"))


def write(path: Path, **columns: Any) -> Path:
    rows = len(next(iter(columns.values())))
    pq.write_table(pa.table({**columns, "n": pa.array([None] * rows, pa.int32())}), path)
    return path


def failing(run: Run) -> dict[str, int]:
    assert run.status == "rejected"
    return {result.check: result.failing_rows for report in run.reports for result in report.results}


def examples(run: Run, check: str) -> list[dict[str, Any]]:
    (found,) = [result for report in run.reports for result in report.results if result.check == check]
    assert json.loads(json.dumps(found.examples, allow_nan=False)) == list(found.examples)
    assert found.examples, found.detail
    return [{name: value for name, value in row.items() if name not in {"_file", "_row"}} for row in found.examples]


def printed(lake: Lake, sql: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    print_json(lake.query(sql).to_arrow())
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_a_guard_holds_although_checks_share_what_it_guards(lake: Lake, namespace: str, tmp_path: Path) -> None:
    """Spark computes what occurs twice once, and first, whatever AND or OR stands before it."""
    path = write(tmp_path / "a.parquet", kind=["n", "t"], value=["7", "x"], a=[6, 1], b=[2, 0])
    checks = [
        "sql('b <> 0 AND a / b > 2')",
        "sql('b <> 0 AND a / b < 0')",
        "expression_is_true('b = 0 OR a / b < 9')",
        "sql('kind = \\'n\\' AND CAST(value AS INT) NOT BETWEEN 1 AND 5')",
    ]
    run = lake.ingest(f"{namespace}.guarded", path, checks=checks, on_rejected="return")
    assert list(failing(run).values()) == [1, 0, 0, 1]
    assert [row["value"] for check in list(failing(run))[::3] for row in examples(run, check)] == ["7", "7"]


def test_examples_have_instants_in_utc_wherever_they_are_fetched(
    lake: Lake, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark returns them in the zone of the machine, where in autumn an hour repeats."""
    hours = [1_729_989_000_000_000, 1_729_992_600_000_000]  # in Berlin, both are 2:30
    at = times(*hours, zone="UTC")
    nested = pa.array([[{"at": one}] for one in at.to_pylist()], pa.list_(pa.struct([("at", at.type)])))
    path = write(tmp_path / "a.parquet", at=at, plain=times(*hours), nested=nested)
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", "Europe/Berlin")
            time.tzset()
            run = lake.ingest(f"{namespace}.zoned", path, checks=["not_null(n)"], on_rejected="return")
    finally:
        time.tzset()
    expected = [f"2024-10-27T{hour:02}:30:00" for hour in (0, 1)]
    rows = sorted(examples(run, "not_null(n)"), key=lambda row: str(row["at"]))
    assert rows == [{"at": one, "plain": one, "nested": [{"at": one}], "n": None} for one in expected]


def test_text_that_is_no_utf_8(
    lake: Lake, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = pa.StructArray.from_arrays([text(b"\xfe", b"b", b"\xfe")], ["s"])
    path = write(tmp_path / "a.parquet", s=text(b"\xff!", b"nul\x00", b"\xff!"), nested=nested)
    checks = ["not_null(n)", "unique(s)", "unique(s, scope='table')", "accepted_values(s, ['ok'])"]
    assert lake.ingest(f"{namespace}.t", path).status == "published"
    again = write(tmp_path / "b.parquet", s=text(b"\xff!", b"nul\x00", b"\xff!"), nested=nested)
    run = lake.ingest(
        f"{namespace}.t", again, checks=checks, on_failure="drop", on_changed="append", on_rejected="return"
    )
    assert list(failing(run).values()) == [3, 2, 3, 3]
    assert {"s": "\\xff!", "nested": {"s": "\ufffd"}, "n": None} in examples(run, "not_null(n)")
    assert [row["s"] for row in examples(run, "unique(s)")] == ["\\xff!"] * 2
    assert len(examples(run, "unique(s, scope='table')")) == 3
    # Iceberg takes "a\ufffd" for the least of these texts: after "aé", which is there all the same.
    lake.ingest(f"{namespace}.u", write(tmp_path / "c.parquet", s=text(b"a\x80", "aé".encode())))
    twice = write(tmp_path / "d.parquet", s=text("aé".encode()))
    run = lake.ingest(
        f"{namespace}.u", twice, checks=["unique(s, scope='table')"], on_failure="drop", on_rejected="return"
    )
    assert list(failing(run).values()) == [1]
    rows = printed(lake, f"SELECT * FROM {namespace}.t", capsys)
    assert {"s": "nul\x00", "nested": {"s": "b"}, "n": None} in rows
    assert {"s": "\\xff!", "nested": {"s": "\\xfe"}, "n": None} in rows
    values = (b"it's", b"a\\d", b"\xff!", b"it's", "é".encode(), b"A", b"it's", b"B", b"\xff!", b"a\\d", b"nul\x00")
    same = {"o": text(*[b"\xff!"] * len(values)), "p": text(*[b"x"] * len(values))}
    path = write(tmp_path / "e.parquet", s=text(*values), **same)
    checks = ["matches(s, '^[^A-Z!]+$')", "not_match_regex(s, 'B|nul')", "accepted_values(s, ['A', 'B'])"]
    checks += ["accepted_values(o, ['\ufffd!'])", "accepted_values(p, ['x'])"]
    run = lake.ingest(f"{namespace}.v", path, checks=checks, on_failure="drop", on_rejected="return")
    assert list(failing(run).values()) == [4, 2, 9, 11, 0]


def test_days_that_no_calendar_of_python_has(
    lake: Lake, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {
        "d": days(4_000_000, -800_000, 0),
        "t": times(2**62, -(2**56), 0),
        "z": times(2**62, -(2**56), 0, zone="UTC"),
        "e": nanos(-(2**63), 2**63 - 1, -1),
        "nested": pa.StructArray.from_arrays([days(4_000_000, 0, 1)], ["d"]),
    }
    path = write(tmp_path / "a.parquet", **columns)
    assert lake.ingest(f"{namespace}.t", path).status == "published"
    again = write(tmp_path / "b.parquet", **columns)
    checks = [
        "not_null(n)",
        "in_range(d, '1900-01-01', '2000-01-01')",
        "in_range(t, '1900-01-01', '2000-01-01')",
        "unique(d, scope='table')",
        "unique(z, scope='table')",
    ]
    run = lake.ingest(
        f"{namespace}.t", again, checks=checks, on_failure="drop", on_changed="append", on_rejected="return"
    )
    assert list(failing(run).values()) == [3, 2, 2, 3, 3]
    shown = examples(run, "not_null(n)")
    assert {row["d"] for row in shown} == {"+12921-08-18", "-0221-09-04", "1970-01-01"}
    # Rounded down to microseconds, also where that is the first one there is.
    ends = {"1677-09-21T00:12:43.145224", "2262-04-11T23:47:16.854775", "1969-12-31T23:59:59.999999"}
    assert {row["e"] for row in shown} == ends
    assert {row["nested"]["d"] for row in shown} == {"+12921-08-18", "1970-01-01", "1970-01-02"}
    assert len(examples(run, "unique(z, scope='table')")) == 3
    rows = printed(lake, f"SELECT d, t, z FROM {namespace}.t ORDER BY d", capsys)
    assert [row["d"] for row in rows] == ["-0221-09-04", "1970-01-01", "+12921-08-18"]


def test_an_audit_with_a_slow_pattern_ends_in_time_and_keeps_its_branch(
    lake: Lake, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.query("SELECT 1").to_arrow()  # Spark is up
    path = write(tmp_path / "a.parquet", s=["a" * 1_200] * 8)  # Spark goes on with it: no cancel ends a Java pattern
    monkeypatch.setenv("LAKEGATE_AUDIT_TIMEOUT_S", "5")
    with connect(lake.home) as limited:
        with pytest.raises(AuditTimeoutError, match=r"longer than audit\.timeout_s=5") as raised:
            limited.ingest(f"{namespace}.slow", path, checks=["matches(s, '.*.*x')"])
        branch = raised.value.context["branch"]
        assert branch in [one.name for one in limited.branches.list()]
        assert f"{namespace}.slow" not in [str(one) for one in limited.tables()]
        limited.discard(branch)
