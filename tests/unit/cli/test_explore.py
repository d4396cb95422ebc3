"""``lakegate branch``, ``log``, ``diff``, ``table`` and ``query``."""

from __future__ import annotations

import csv
import errno
import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.errors import InputError, LakegateError, NotFoundError
from lakegate.model.refs import Ref, TableDifference
from lakegate.model.schema import ColumnChange
from lakegate.model.tables import TableMetadata
from lakegate.snippets import Snippet
from lakegate.table import RowDifference
from support.cli_support import (
    COMMITS,
    HASH,
    METADATA,
    POINTER,
    PUBLISHED,
    SNAPSHOT,
    START,
    FakeLake,
    FakeTable,
    invoke,
    printed,
    staged,
)

pytestmark = pytest.mark.usefixtures("in_a_project")

ROWS = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "fare": pa.array([Decimal("2.50"), None], pa.decimal128(10, 2)),
        "ratio": pa.array([float("nan"), 0.5]),
        "at": pa.array([START, None], pa.timestamp("us", tz="UTC")),
        "note": pa.array(['say "hi", you', "plain\x1b[2J"]),
    }
)


class FakeQuery:
    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.columns = table.column_names
        self.fetched = False

    def to_arrow(self) -> pa.Table:
        self.fetched = True
        return self._table

    def limit(self, rows: int) -> FakeQuery:
        return FakeQuery(self._table.slice(0, rows))


def test_branch_commands() -> None:
    ref = Ref(name="january", hash=HASH)
    lake = FakeLake(branches_list=[ref], branches_create=ref, branches_delete=ref)
    unknown = {"run_id": None, "status": None, "superseded_by": None}
    assert json.loads(invoke("branch list -o json", lake).stdout) == [{**ref.model_dump(), **unknown}]
    assert "january" in invoke("branch list", lake).stdout
    invoke(f"branch create january --from other --at {HASH}", lake)
    assert lake.asked("branches_create") == {"source": "other", "at": HASH}
    assert f"lakegate branch create january --from {HASH}" in invoke("branch delete january", lake).stdout


def test_branches_show_their_runs_on_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    ref = Ref(name="wap/shop.sales_20260131T070509-0badcafe", hash=HASH)
    runs = {ref.name: (SimpleNamespace(status="rejected", run_id="r1", branch_until=None), "20260131T080509-0badcafe")}
    shown, _ = printed(["branch", "list"], FakeLake(branches_list=[ref], branches_runs=runs), monkeypatch, columns=80)
    assert f"{ref.name}   superseded by 20260131T080509-0badcafe" in shown


def test_log_shows_full_hashes_and_says_when_there_is_more() -> None:
    outcome = invoke("log -n 3", FakeLake(log=COMMITS))
    assert outcome.stdout.count("commit 0") == 3
    assert COMMITS[2].hash in outcome.stdout
    assert "earlier commits" in outcome.stderr
    whole = invoke("log -o json", FakeLake(log=iter(COMMITS)))
    assert len(json.loads(whole.stdout)) == 5
    assert whole.stderr == ""


def test_diff_counts_rows_on_both_sides() -> None:
    added = TableDifference(table="nyc.trips", kind="table", left=None, right=POINTER)
    space = TableDifference(table="nyc", kind="namespace", left=None, right=None)
    lake = FakeLake(diff=[added, space], table=FakeTable())
    told = json.loads(invoke("diff main b -o json", lake).stdout)
    assert [(one["change"], one["left"]) for one in told] == [("added", None), ("changed", None)]
    assert told[0]["right"]["rows"] == 100_000
    text = invoke("diff main b", lake).stdout
    assert "+100,000" in text
    empty = invoke("diff main b", FakeLake(diff=[])).stderr
    assert "b changes no table since it branched off main" in empty
    assert "lakegate diff main b --two-way" in empty
    assert "same tables" in invoke("diff main b --two-way", FakeLake(diff=[])).stderr


def test_diff_keeps_its_columns_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    branch = "wap/nyc.trips_20260131T070509-0badcafe"
    changed = TableDifference(table="nyc.yellow_trips_of_2026", kind="table", left=POINTER, right=POINTER, base=HASH)
    many = {f"column_{at}": [f"a value of {at}", None] for at in range(9)}
    rows = RowDifference(added=queried(pa.table(many)), removed=None)
    lake = FakeLake(diff=[changed], table=FakeTable(), diff_rows=rows)
    shown, _ = printed(["diff", "main", branch, "--rows"], lake, monkeypatch, columns=80)
    assert f"Changes on {branch} since commit {HASH[:12]} of main" in " ".join(shown.split())
    assert lake.asked("diff_rows") == {"key": (), "two_way": True}
    for said in ("table", "change", "before", "after", "difference", "column_8", "a value of 8"):
        assert said in shown
    assert max(map(len, shown.splitlines())) <= 80


def queried(found: pa.Table) -> Any:
    return FakeQuery(found)


def test_diff_shows_columns_and_some_rows_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    wider = ColumnChange(change="retyped", column="id", before="int", after="long")
    changed = TableDifference(table="nyc.trips", kind="table", left=POINTER, right=POINTER, schema_changes=(wider,))
    before, after = {"id": 1, "note": "a", "fare": 2.5}, {"id": 1, "note": "a", "fare": 3.0}
    rows = RowDifference(
        added=queried(pa.table({"id": [5, 6, 7]})),
        removed=queried(pa.table({"id": pa.array([], pa.int64())})),
        changed=queried(pa.table({"before": [before], "after": [after]})),
    )
    wide = RowDifference(
        added=queried(pa.table({f"column_{at}": [1, 2] for at in range(9)})),
        removed=queried(pa.table({"id": pa.array([], pa.int64())})),
        changed=None,
    )
    lake = FakeLake(diff=[changed], table=FakeTable(), diff_rows=rows)
    text = invoke("diff main b --rows 2 --key id", lake).stdout
    assert lake.asked("diff_rows") == {"key": ("id",), "two_way": True}
    for said in ("change column id from int to long", "Rows added in nyc.trips, the first 2", "2.5 → 3.0"):
        assert said in text
    assert "Rows removed" not in text
    narrow = FakeLake(diff=[changed], table=FakeTable(), diff_rows=wide)
    shown, _ = printed(["diff", "main", "b", "--rows", "2"], narrow, monkeypatch, columns=40)
    assert shown.count("column_8") == 2
    told = json.loads(invoke("diff main b --rows 2 -o json", lake).stdout)[0]
    assert told["rows"]["changed"] == [{"before": before, "after": after}]
    assert told["schema_changes"][0]["change"] == "retyped"
    assert "--key needs --rows" in invoke("diff main b --key id", lake).stderr
    assert "b changes nothing in table a.b" in invoke("diff main b --table a.b", lake).stderr
    unknown = NotFoundError("There is no table nyc.tripz on b.", hint="lakegate table list")
    assert (
        "no table nyc.tripz" in invoke("diff main b --table nyc.tripz", FakeLake(diff=[changed], table=unknown)).stderr
    )


def test_evolve_shows_the_changes_and_the_run() -> None:
    change = ColumnChange(change="added", column="zone", after="string")
    one = staged("nyc.trips", change="metadata", rows=0, schema_changes=(change,))
    run = PUBLISHED.model_copy(update={"kind": "transaction", "staged": (one,), "request": None})
    lake = FakeLake(evolve_table=run, runs=[run])
    told = invoke("table evolve nyc.trips 'ADD COLUMN zone STRING'", lake)
    assert told.exit_code == 0
    assert "columns changed in commit" in told.stdout
    assert "nyc.trips: add column zone (string)" in told.stdout
    assert "add column zone (string)" in invoke("runs", lake).stdout


def test_row_counts_with_delete_files_are_upper_bounds() -> None:
    summary = {**SNAPSHOT.summary, "total-delete-files": "1"}
    deleted = METADATA.model_copy(update={"snapshot": SNAPSHOT.model_copy(update={"summary": summary})})
    for output in ("table list", "table show nyc.trips", "diff main b"):
        table = FakeTable(deleted)
        difference = TableDifference(table="nyc.trips", kind="table", left=POINTER, right=POINTER)
        lake = FakeLake(tables=[deleted], table=table, diff=[difference])
        assert "≤ 100,000" in invoke(output, lake).stdout, output
        told = json.loads(invoke(f"{output} -o json", lake).stdout)
        line = told[0].get("left", told[0]) if isinstance(told, list) else told
        assert (line["rows"], line["rows_at_most"]) == (None, 100_000), output


def test_table_connect_prints_a_snippet_to_paste() -> None:
    snippet = Snippet(
        engine="trino",
        language="sql",
        table="nyc.trips",
        ref="main",
        commit="0" * 64,
        metadata_location="file:///lake/1.metadata.json",
        follows=True,
        text="SELECT [1];",
    )
    lake = FakeLake(snippet=snippet)
    shown = invoke("table connect nyc.trips -e trino --ref v1 --rest http://x --rest-token", lake)
    assert shown.stdout == "SELECT [1];\n"
    assert lake.asked("snippet") == {"ref": "v1", "at": None, "rest": "http://x", "rest_token": True}
    assert json.loads(invoke("table connect nyc.trips -e trino -o json", FakeLake(snippet=snippet)).stdout)["follows"]
    assert invoke("table connect nyc.trips -e trino --rest-token", lake).exit_code == 2
    assert "'duckdb'" in invoke("table connect nyc.trips -e dukdb", lake).stderr


def test_table_commands() -> None:
    lake = FakeLake(tables=[METADATA], table=FakeTable())
    listed = json.loads(invoke("table list -o json", lake).stdout)
    assert (listed[0]["table"], listed[0]["rows"], listed[0]["size_bytes"]) == ("nyc.trips", 100_000, 5000)
    assert "5.0 kB" in invoke("table list", lake).stdout
    shown = invoke("table show nyc.trips --ref b --at 2026-01-31", lake).stdout
    assert "passenger_count" in shown
    assert "b at 2026-01-31" in shown
    details = json.loads(invoke("table show nyc.trips -o json", lake).stdout)
    assert details["columns"][0] == {"name": "passenger_count", "type": "long", "required": True}
    files = json.loads(invoke("table files nyc.trips -o json", lake).stdout)
    assert files[0]["partition"] == {"pickup_day": START.isoformat()}
    assert "a.parquet" in invoke("table files nyc.trips", lake).stdout
    assert "None None 20" in invoke("table rows nyc.trips", lake).stdout
    (row,) = json.loads(invoke("table rows nyc.trips --column id --where id>1 -n 3 -o json", lake).stdout)
    assert row == {"asked": "('id',) id>1 3", "at": START.isoformat()}
    assert invoke("table rows nyc.trips -o csv", lake).stdout.startswith("asked,at\n")


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_table_that_cannot_be_read_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    readable = [METADATA]

    def tables(_: FakeLake, _ref: str, *, on_unreadable: Callable[[str, LakegateError], object]) -> list[TableMetadata]:
        on_unreadable("nyc.odd", InputError("Its metadata is damaged.", hint="Restore it."))
        return readable

    monkeypatch.setattr(FakeLake, "tables", tables, raising=False)
    outcome = invoke(f"table list -o {output}", FakeLake())
    assert (outcome.exit_code, "nyc.trips" in outcome.stdout) == (2, True)
    assert outcome.stderr == "nyc.odd can't be read: Its metadata is damaged. Restore it.\n"
    readable.clear()
    assert invoke(f"table list -o {output}", FakeLake()).stdout.strip() == ("[]" if output == "json" else "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["query", "{file}"], "is a file. To run the query in it: lakegate query - < {file}"),
        (["query", "nyc.trips"], "isn't SQL. To see a table's rows: lakegate table rows nyc.trips"),
        (["table", "nyc.trips"], "No such command 'nyc.trips'. Did you mean 'show nyc.trips'?"),
        (["table", "shw"], "Did you mean 'show'?"),
        (["table", "partitions", "nyc.trips"], "No such command 'partitions'. usage:"),
        (["branch", "fix"], "Did you mean 'create fix'?"),
    ],
)
def test_mistakes_suggest_the_right_command(words: list[str], said: str, tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.touch()
    outcome = invoke([word.format(file=file) for word in words], None)
    assert outcome.exit_code == 2
    assert said.format(file=file) in " ".join(outcome.stderr.split())


def test_query_json_keeps_what_json_can_and_nulls_the_rest() -> None:
    outcome = invoke(["query", "SELECT 1", "-o", "json"], FakeLake(query=FakeQuery(ROWS)))
    first, second = json.loads(outcome.stdout, parse_constant=pytest.fail)
    assert first == {"id": 1, "fare": "2.50", "ratio": None, "at": START.isoformat(), "note": 'say "hi", you'}
    assert second["at"] is None
    empty = invoke(["query", "SELECT 1", "-o", "json"], FakeLake(query=FakeQuery(ROWS.slice(0, 0))))
    assert json.loads(empty.stdout) == []


def test_query_csv_reads_back() -> None:
    outcome = invoke(["query", "SELECT 1", "-o", "csv"], FakeLake(query=FakeQuery(ROWS)))
    header, first, second = csv.reader(io.StringIO(outcome.stdout))
    assert header == ROWS.column_names
    assert first == ["1", "2.50", "nan", START.isoformat(), 'say "hi", you']
    assert second[1] == ""


@pytest.mark.parametrize("output", ["csv", "json", "parquet"])
def test_query_writes_a_file(output: str, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    outcome = invoke(["query", "SELECT 1", "-o", output, "--file", str(path)], FakeLake(query=FakeQuery(ROWS)))
    assert (outcome.stdout, f"Wrote 2 rows to {path}" in outcome.stderr) == ("", True)
    if output == "parquet":
        assert repr(pq.read_table(path).to_pylist()) == repr(ROWS.to_pylist())  # NaN differs from itself
    else:
        shown = invoke(["query", "SELECT 1", "-o", output], FakeLake(query=FakeQuery(ROWS)))
        assert path.read_text(encoding="utf-8") == shown.stdout

    nowhere = ["query", "SELECT 1", "-o", output, "--file", str(tmp_path / "none" / "rows")]
    refused = invoke(nowhere, FakeLake(query=FakeQuery(ROWS)))
    assert refused.exit_code == 2
    assert "Can't write the " in refused.stderr


@pytest.mark.parametrize("before", ["earlier\n", None])
def test_a_file_of_rows_is_whole_or_as_it_was(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out" / "rows.csv"
    path.parent.mkdir()
    if before is not None:
        path.write_text(before)

    def fill_disk(_: pa.Table, file: Any) -> None:
        file.write("id\n")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lakegate.cli.commands.query._write_csv", fill_disk)
    cut = invoke(["query", "SELECT 1", "-o", "csv", "--file", str(path)], FakeLake(query=FakeQuery(ROWS)))
    assert (cut.exit_code, f"Can't write the rows to {path}: No space left" in cut.stderr) == (2, True)
    assert [(one.name, one.read_text()) for one in path.parent.iterdir()] == ([("rows.csv", before)] if before else [])


WIDE = pa.table({f"column_{at:02}": [f"value {at}", None] for at in range(12)})


def test_columns_that_a_query_names_come_first_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["query", "SELECT * FROM nyc.trips WHERE column_09 IS NULL"]
    shown, told = printed(words, FakeLake(query=FakeQuery(WIDE)), monkeypatch, columns=80)
    heading, _, first, second = shown.splitlines()
    assert heading.split()[:3] == ["column_09", "column_00", "column_01"]
    assert first.split()[:4] == ["value", "9", "value", "0"]
    assert second.split()[0] == "NULL"
    assert "To see all columns, pass --output vertical" in told
    assert max(map(len, shown.splitlines())) <= 80


def test_vertical_rows_show_every_column() -> None:
    text = invoke(["query", "SELECT * FROM a.b", "-o", "vertical"], FakeLake(query=FakeQuery(WIDE))).stdout
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("column ")] == ["1", "2"]
    assert "column_11   value 11" in text
    assert "column_11   NULL" in text


def test_query_file_needs_a_format() -> None:
    refused = invoke(["query", "SELECT 1", "--file", "rows"], FakeLake(query=FakeQuery(ROWS)))
    assert (refused.exit_code, "--output csv, json or parquet" in refused.stderr) == (2, True)


def test_query_table_says_what_it_leaves_out() -> None:
    many = queried(pa.table({"n": range(1500)}))
    outcome = invoke(["query", "SELECT 1"], FakeLake(query=many))
    assert "the first 1,000 rows" in outcome.stderr
    assert not many.fetched  # it fetches no more rows than the table shows, and one to know that there are more
    assert len(outcome.stdout.splitlines()) == 1002
    text = invoke(["query", "SELECT 1"], FakeLake(query=FakeQuery(ROWS))).stdout
    assert "NULL" in text
    assert "\x1b" not in text


def test_query_reads_standard_input() -> None:
    lake = FakeLake(query=FakeQuery(ROWS))
    assert invoke(["query", "-", "--ref", "b", "--at", HASH], lake, stdin="\ufeffSELECT 2").exit_code == 0
    assert lake.calls[0] == ("query", ("SELECT 2",), {"ref": "b", "at": HASH})
    assert invoke(["query", "-"], lake, stdin="  \n").exit_code == 2
    outcome = invoke(["query", "-"], lake, stdin=b"SELECT '\xe9'")
    assert (outcome.exit_code, "isn't text in UTF-8" in outcome.stderr) == (2, True)


def test_query_shows_values_that_python_lacks() -> None:
    raw: Any = pa.array([b"\xff!", b"ok"], pa.binary())
    text: Any = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    days: Any = pa.array([4_000_000, 0], pa.int32()).view(pa.date32())
    times = pa.array([-(2**63), 5], pa.int64()).view(pa.timestamp("us"))
    nested = pa.StructArray.from_arrays([text, days], ["s", "d"])
    listed: Any = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), text)
    fake = FakeLake(query=queried(pa.table({"s": text, "d": days, "t": times, "n": nested, "l": listed})))
    first, second = json.loads(invoke(["query", "S", "-o", "json"], fake).stdout)
    assert first == {
        "s": "\\xff!",
        "d": "+12921-08-18",
        "t": "-290308-12-21T19:59:05.224192",
        "n": {"s": "\\xff!", "d": "+12921-08-18"},
        "l": ["\\xff!"],
    }
    assert (second["s"], second["d"], second["t"]) == ("ok", "1970-01-01", "1970-01-01T00:00:00.000005")
    assert "\\xff!,+12921-08-18" in invoke(["query", "S", "-o", "csv"], fake).stdout
    assert "+12921-08-18" in invoke(["query", "S"], fake).stdout
