"""Makes ``docs/how-to/migrate-from-another-tool.md`` from the examples of other tools.

Run it to write it anew.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.neighbours import DBT, DQX, GREAT_EXPECTATIONS, SODA, Example

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "migrate-from-another-tool.md"
_HEAD = """# Migrate from Great Expectations, DQX, dbt or Soda

<!-- Made by tests/e2e/docs_neighbours.py from tests/support/neighbours.py. Do not edit it by hand. -->

Find your check in the left column, and write the one beside it. Both find the same number of failing rows unless a
note says otherwise. A test runs each of ours on the rows in `tests/support/neighbours.py`; what theirs find is taken
from Great Expectations' gallery, or follows from the other tools' docs.

For all of them:

- **Rows**: a check judges the rows that a run adds. For keys in the whole table, write `scope='table'`. To audit
  published rows: `lakegate audit TABLE --branch main`.
- **NULL passes**, except where a check is about NULLs, as in all four tools.
- **Tolerance**: `tolerance='5%'` is a share of all judged rows. Great Expectations' `mostly=0.95` is a share of the
  values that aren't NULL: add `where='column IS NOT NULL'`. dbt's `error_if: '>10'` is `tolerance=10`, but for keys and
  accepted values, dbt counts keys and values, and lakegate counts rows. DQX has no tolerance.
- **Severity**: DQX's `criticality: error`, which sets rows aside, is `severity='quarantine'`. Its `criticality: warn`
  and dbt's `severity: warn` are `severity='warn'`.
- **Filters**: Great Expectations' `row_condition`, DQX's `filter` and dbt's `where` are `where='…'`.
- **SQL**: `expression_is_true` fails rows for which the expression is false, `sql` rows for which it's true.
  `custom_sql` is a query whose rows are failures; it reads the batch only.

dbt's `schema.yml` needs no rewriting: `lakegate check import schema.yml` [converts it](write-a-contract.md), and lists
what it can't translate.
"""
_LEFT = {
    "Great Expectations": """\
Without a counterpart: `TableColumnCountToBeBetween` and `TableColumnCountToEqual` (name the columns, with
`columns_match`), `ColumnValuesToBeInTypeList` (name one type), `ColumnValuesToMatchJsonSchema`,
`QueryResultsToMatchComparison` and the tests of distributions (`ColumnChisquareTestPValueToBeGreaterThan`, …).
`UnexpectedRowsExpectation` is `custom_sql`. So is `ColumnValuesToBeIncreasing`, by a column that sorts the rows:
`SELECT at FROM (SELECT at, n, lag(n) OVER (ORDER BY at) AS previous FROM batch) WHERE n <= previous`.
`ColumnValuesToBeOfType` names types of lakegate. Where only one end is excluded (`strict_min`), write SQL.
""",
    "DQX": """\
Without a counterpart: the checks of geometries (`is_point`, `is_geo_within`, …), `does_not_contain_pii`,
`has_json_keys`, `has_valid_json_schema`, `has_no_row_anomalies`, `compare_datasets`, and `aggr_matches_dataset` of
anything but the number of rows. For `has_no_aggr_outliers`, compare a batch with earlier ones: `sum(n, deviations=3)`.
`is_valid_ipv6_address`, `is_ipv4_address_in_cidr`, `is_valid_national_id` and the codes of countries, currencies,
languages and subdivisions are patterns and lists that you write; `is_not_in_near_future` and
`is_data_fresh_per_time_window`, SQL.
""",
    "dbt": """\
For dbt-expectations, see Great Expectations: the names are the same. Without a counterpart: `dbt_utils.equality`,
`group_by_columns`, `expect_table_aggregation_to_equal_other_table`, and moving deviations. Jinja isn't evaluated.
""",
    "Soda": """\
Without a counterpart: `distribution` checks, and failed rows of a query that joins other tables.
""",
}


def render() -> str:
    """Return the page."""
    parts = [
        _part(name, examples)
        for name, examples in (("Great Expectations", GREAT_EXPECTATIONS), ("DQX", DQX), ("dbt", DBT), ("Soda", SODA))
    ]
    return _HEAD + "".join(parts)


def _part(name: str, examples: tuple[Example, ...]) -> str:
    rows = "".join(f"| {_code(one.theirs)} | {_code(one.ours)} | {one.note} |\n" for one in examples)
    return f"\n## {name}\n\n| theirs | ours | note |\n| --- | --- | --- |\n{rows}\n{_LEFT[name]}"


def _code(text: str) -> str:
    ticks = "``" if "`" in text else "`"
    return f"{ticks}{text.replace('|', chr(92) + '|')}{ticks}"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"{PAGE} written\n")
