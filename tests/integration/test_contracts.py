"""Contracts, on real Spark and Nessie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakegate.lake import Lake

pytestmark = pytest.mark.jvm


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

    first, second = lake.ingest(table, good), lake.ingest(table, bad)

    assert first.status == "published"
    assert [result.check for result in first.reports[0].warnings] == ["in_range(fare, min=0, severity='warn')"]
    made = lake.table(table).metadata
    assert [(column.name, column.type) for column in made.table_schema.columns] == [
        ("id", "int"), ("zone", "string"), ("fare", "decimal(9, 2)"),
    ]  # fmt: skip
    assert made.partition_by == ("zone",)
    assert second.status == "rejected"
    assert [result.check for result in second.reports[0].failures] == ["not_null(id)"]
