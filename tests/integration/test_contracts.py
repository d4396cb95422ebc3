"""Contracts, on real Spark and Nessie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakegate.checks.parse import parse_check
from lakegate.errors import CheckError, InputError, SourceError
from lakegate.lake import Lake
from support.neighbours import EXAMPLES, ROWS

pytestmark = pytest.mark.jvm

_IN_ONE_SCAN = frozenset(
    {"accepted_values", "casing", "expression_is_true", "in_range", "length_between", "matches",
     "not_accepted_values", "not_empty_string", "not_in_future", "not_match_regex", "not_null", "sql", "valid_email",
     "valid_uuid"}
)  # fmt: skip


@pytest.fixture
def contract(home: Path, namespace: str) -> Iterator[Callable[[str], str]]:
    table = f"{namespace}.fares"
    path = home / "contracts" / f"{table}.yaml"

    def write(text: str) -> str:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"version: 1\ntable: {table}\n{text}", encoding="utf-8")
        return table

    yield write
    path.unlink(missing_ok=True)


def test_what_is_proposed_for_files_is_passed_by_them_and_by_no_other(lake: Lake, tmp_path: Path) -> None:
    rows = ["trip_id,flag,note,at"]
    rows += [f"{n},{'YN'[n % 2]},{chr(34)}it's {n}{chr(34)},2024-01-{n % 28 + 1:02} 07:00:00" for n in range(100)]
    source, other = tmp_path / "trips.csv", tmp_path / "other.csv"
    source.write_text("\n".join(rows) + "\n", encoding="utf-8")
    other.write_text("\n".join([*rows, "99,X,,2020-01-01 07:00:00"]) + "\n", encoding="utf-8")
    contract = tmp_path / "proposed.yaml"
    contract.write_text(lake.contracts.propose("nyc.proposed", source), encoding="utf-8")

    first, second = lake.contracts.test(contract, source), lake.contracts.test(contract, other)

    assert first.passed
    assert not first.report.warnings
    failed = {result.check: result.failing_rows for result in second.report.failures}
    assert failed == {"unique(trip_id)": 2, "accepted_values(flag, values=['N', 'Y'])": 1, "not_null(note)": 1}
    assert [result.check for result in second.report.warnings] == ["in_range(at, min='2024-01-01', severity='warn')"]
    (shown,) = next(result.examples for result in second.report.failures if result.columns == ("flag",))
    assert str(shown["_file"]).endswith("other.csv")


def test_a_contract_makes_the_table_and_audits_what_comes(
    lake: Lake, contract: Callable[[str], str], tmp_path: Path
) -> None:
    table = contract(
        "partition_by: [zone]\n"
        "csv: {header: false}\n"
        "columns:\n"
        "  - {name: id, type: int, required: true, checks: [unique]}\n"
        "  - {name: zone, type: string}\n"
        "  - {name: fare, type: 'decimal(9, 2)', checks: [{in_range: {min: 0, severity: warn}}]}\n"
    )
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("1,1,2.5\n2,2,-1\n", encoding="utf-8")
    bad.write_text("3,1,2.5\n,1,2.5\n", encoding="utf-8")

    first, second = lake.ingest(table, good), lake.ingest(table, bad, on_rejected="return")

    assert first.status == "published"
    assert [result.check for result in first.reports[0].warnings] == ["in_range(fare, min=0, severity='warn')"]
    made = lake.table(table).metadata
    assert [(column.name, column.type) for column in made.table_schema.columns] == [
        ("id", "int"), ("zone", "string"), ("fare", "decimal(9, 2)"),
    ]  # fmt: skip
    assert made.partition_by == ("zone",)
    assert second.status == "rejected"
    assert [result.check for result in second.reports[0].failures] == ["not_null(id)"]


QUARANTINES = """\
columns:
  - {name: id, type: int, required: true}
  - {name: zone, type: int, checks: [{not_null: {severity: quarantine}}]}
  - {name: fare, type: int, checks: [{in_range: {min: 0, severity: quarantine}}, {max: {max: 10}}]}
checks:
  - unique: {columns: [id], severity: quarantine}
"""


@pytest.mark.parametrize(
    ("rows", "limit", "counts"),
    [
        ("1,1,5\n2,,5\n3,,-1\n4,4,5\n4,5,5\n", "100%", [2, 1, 2]),
        ("1,1,5\n2,,5\n3,,-1\n4,4,5\n4,5,5\n", "3", None),
        (",1,-5\n1,,99\n2,2,2\n3,3,3\n", "2", [1, 1, 0]),  # what is left has ids and fares up to 10
        (",1,5\n1,,99\n2,2,2\n3,3,3\n", "2", None),
        ("1,1,1\n2,2,2\n", "0", [0, 0, 0]),
    ],
)
def test_files_are_tried_as_an_ingest_audits_them(
    lake: Lake, contract: Callable[[str], str], tmp_path: Path, rows: str, limit: str, counts: list[int] | None
) -> None:
    table = contract(f"csv: {{header: false}}\nquarantine_limit: {limit}\n{QUARANTINES}")
    source = tmp_path / "rows.csv"
    source.write_text(rows, encoding="utf-8")

    tried, run = lake.contracts.test(table, source), lake.ingest(table, source, on_rejected="return")

    assert (tried.passed, tried.over_limit is None) == (run.status == "published", limit != "3")
    assert tried.report.rows == rows.count("\n")
    assert (
        counts is None
        or [result.quarantined for result in tried.report.results if result.severity == "quarantine"] == counts
    )
    found, did = (
        [(one.check, one.verdict, one.quarantined) for one in of.results] for of in (tried.report, run.reports[0])
    )
    assert sorted(found) == sorted(did)


@pytest.mark.parametrize(
    ("terms", "first", "then"),
    [
        ("columns: [{name: id, type: long}, {name: n}]\n", None, "id,N\n1,2\n"),
        ("columns: [{name: id, type: long}, {name: n}]\n", None, "id,m\n1,2\n"),
        ("columns: [{name: id, type: int}]\n", None, "id\nx\n"),
        ("columns: [{name: id, type: long}]\nextra_columns: refuse\n", None, "id,n\n1,2\n"),
        ("partition_by: [days(at)]\n", None, "id\n1\n"),
        ("write_mode: upsert\nkey: [id]\n", None, "id,n\n1,2\n1,3\n"),
        ("checks: [not_null: id]\n", "id,n\n1,2\n", "id,n,extra\n2,3,4\n"),
        ("schema: evolve\nchecks: [not_null: extra]\n", "id,n\n1,2\n", "id,n,extra\n2,3,4\n"),
        ("schema: ignore_extra\n", "id,n\n1,2\n", "id,n,extra\n2,3,4\n"),
        ("checks: [not_null: id]\n", "id,n\n1,2\n", "id,n\n2,x\n"),
    ],
)
def test_files_are_tried_against_the_columns_that_an_ingest_needs(
    lake: Lake, contract: Callable[[str], str], tmp_path: Path, terms: str, first: str | None, then: str
) -> None:
    table, source = contract(terms), tmp_path / "rows.csv"
    if first is not None:
        (tmp_path / "first.csv").write_text(first, encoding="utf-8")
        contract("")
        assert lake.ingest(table, tmp_path / "first.csv").status == "published"
        contract(terms)
    source.write_text(then, encoding="utf-8")

    def outcome(act: Callable[[], bool]) -> tuple[bool, str]:
        try:
            return act(), ""
        except InputError as error:
            return False, error.message

    tried = outcome(lambda: lake.contracts.test(table, source).passed)
    did = outcome(lambda: lake.ingest(table, source).status == "published")
    assert tried[0] == did[0], (tried, did)
    assert tried[1] in (did[1], "")


def test_files_that_cannot_be_read_are_an_error_of_the_input(
    lake: Lake, contract: Callable[[str], str], tmp_path: Path
) -> None:
    table = contract("checks: [unique: n]\n")
    path = tmp_path / "damaged.parquet"
    pq.write_table(pa.table({"n": list(range(5000)), "text": [f"t{n}" for n in range(5000)]}), path)
    start = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 200] = b"\xff" * 200
    path.write_bytes(content)

    with pytest.raises(SourceError, match="couldn't read a source file's data"):
        lake.contracts.test(table, path)


def test_an_ingest_finds_what_other_tools_find_in_the_same_rows(lake: Lake, namespace: str, tmp_path: Path) -> None:
    source = tmp_path / "six.parquet"
    pq.write_table(ROWS["six"], source)
    # In one scan: each query and each key would be a job of its own, and `make prove` tries these.
    asked = {}
    for one in EXAMPLES:
        check = parse_check(one.ours).model_copy(update={"severity": "warn"})
        if one.rows == "six" and not one.other_rows and check.kind in _IN_ONE_SCAN:
            asked[str(check)] = (one, check)

    run = lake.ingest(f"{namespace}.six", source, checks=[check for _, check in asked.values()], on_rejected="return")

    found = [(result.check, result.verdict == "pass", result.failing_rows) for result in run.reports[0].results]
    assert found == [(str(check), one.passed, one.failing) for one, check in asked.values()]
    assert len(found) > 40

    with pytest.raises(CheckError, match="the engine can't run it"):
        lake.audit(f"{namespace}.six", branch="main", checks=["custom_sql('SELECT id / 0 FROM batch')"])
