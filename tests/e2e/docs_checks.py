"""Makes ``docs/reference/checks.md``, ``checks/builtin/__init__.py`` and the JSON Schema of contracts from the checks.

Run it to write them anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lakegate.checks.registry import built_in, find_check
from lakegate.contracts.model import contract_schema

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "checks.md"
SCHEMA = ROOT / "src" / "lakegate" / "schemas" / "contract.schema.json"
EXPORTS = ROOT / "src" / "lakegate" / "checks" / "builtin" / "__init__.py"
_WIDTH = 120
_HEAD = """# Checks

<!-- Made by tests/e2e/docs_checks.py from the checks' own docstrings. Do not edit it by hand. -->

Write a check as a call: `check(column, …, name=value)`. The same text works after `--check`, in `lakegate.toml` and in
`lake.ingest(checks=[…])`. In Python, import each from `lakegate.checks`. `lakegate checks` lists them, and
`lakegate checks NAME` explains one.

Values are literals: numbers, quoted text, lists in `[ ]`, `True`, `False`, `None`. Dates and times are ISO 8601 text.
Column names are plain words. Quote names with spaces or special characters: `not_null('Trip Distance')`. Case is
ignored if no column has exactly this name. Write patterns as `r'…'`.

| check | what it requires |
| --- | --- |
"""
_COMMON = """
All checks judge the rows of the batch. `unique(…, scope='table')`, `relationships`, `equal_rowcount` and
`fewer_rows_than` compare them with whole tables, as these would be after publishing.

A column may be a field of a struct: `not_null(address.zip)`, `unique(address.zip)`. A column whose own name contains
dots takes precedence; quote special names in a path with backticks. There are no file metrics for fields, so the rows
are read.

## What every check takes

- `severity='error'` (default): a failure blocks the publish. `severity='warn'`: a failure is only reported.
  `severity='quarantine'`, for checks of single rows: failing rows are [set aside](../how-to/quarantine.md), and the
  others are published.
- `where='vendor_id = 1'`: judge only rows for which this is true. It's a condition on one row, with the limits of
  `sql`. If no row matches, the check is `skipped`, except `row_count(…, where=…)`, which judges a count of 0. With
  `unique(…, scope='table')`, it also selects the table's rows. File metrics can't tell which rows match, so the rows
  are read.
- `tolerance=5` or `tolerance='0.1%'`, for checks of single rows: how many rows, or what share of the judged rows, may
  fail. Shares are compared exactly, without rounding.
- `examples=3`: the maximum number of failing rows to show, 0 to 100 (default 10). With 0, no value of a failing row
  leaves the engine.
- `description='…'`, `owner='…'`, `tags=['…']`: why the check exists, who maintains it, and your labels. Reports,
  alerts and lineage events show them. They aren't part of the check's canonical text.
- `name='…'`: its name in reports. Default: the check itself, such as `not_null(passenger_count)`.
- `scope='batch'` (default) or, for `unique`, `scope='table'`. `relationships` always has scope `table`.
"""
_HISTORY = """
## Against history

`row_count`, `mean`, `sum`, `stddev`, `quantile`, `null_rate` and `distinct_count` can also compare their value with
those of the table's earlier batches that were published and not reverted. Runs that released quarantined rows or did
more than add rows, such as a delete, don't count as batches, and these checks are `skipped` for them. A renamed table
keeps its history. A table that was dropped and created again starts a new one.

- `deviations=3`: within three sample standard deviations of the mean. The deviation counts as at least 1 % of the mean,
  so that after identical batches, a few more rows don't fail.
- `percent=20`: within 20 % of the mean.
- `last=20`: the number of batches to compare with, 5 to 200.
- `weekday=True`: only batches from the same day of the week (UTC, by the start of their run).

From 14 batches on, a single one that is over five deviations from the mean of the others is ignored, and the report
says so. A huge batch that was accepted as a warning therefore doesn't widen the band. Two such batches may be a pattern
and count.

You can combine this with `min` and `max`. With fewer than 5 earlier batches, the check is `skipped` and says so. Audits
of published data (`lakegate audit TABLE --branch main`) skip the comparison, too. Earlier batches are looked for in the
table's newest 5,000 runs. A value hidden by `examples=0` or the setting `audit.mask` isn't stored, so comparing it with
earlier ones is refused.

Row counts are known for every run, other values since the first run with the check. A check with another `where` has
another history. Earlier values come from the journal, so no data is read for them. The report shows the latest values,
their mean and the band.
"""
_RESULTS = """
## Masked values

Name columns in the settings, as patterns, to keep their values in the engine: `[audit] mask = ["email", "*_name"]`.
Examples show `•••` instead, there are no histograms of them, and `min`, `max`, `mean`, `sum`, `quantile`, `recency` and
your own checks only say whether they fail, not the value. `examples=0` does the same for one check. The dashboard,
reports and alerts hide these columns like those of `ui.masked`. Values that audits read before you named the column
stay in the journal. If the query of `custom_sql` names a masked column or renames all columns (`struct(*)`,
`AS t(a, b)`, `UNION` with `*`), all values in its result are hidden.

A pattern may also match a field in a struct, list or map, such as `email` or `contact.email`; then the whole column is
masked. If a value is hidden and Spark can't evaluate a check, you only see the error condition, such as
`CAST_INVALID_INPUT`, because Spark's messages quote values.

## Results

For each check, in the report, in `--output json` and in the journal:

| field | meaning |
| --- | --- |
| `name` | its name |
| `check` | its canonical text, which `--check` accepts |
| `columns` | its columns |
| `severity` | `error`, `warn` or `quarantine` |
| `verdict` | `pass`, `fail`, or `skipped` (nothing to judge). A check that can't run is an error, not a verdict |
| `failing_rows` | rows that fail; within the `tolerance`, the check passes |
| `quarantined` | rows that were set aside before the rest was judged; `examples` are taken from them |
| `total_rows` | rows that were judged; with `where`, those that match |
| `evidence` | `manifest`: proven from file metrics. `scan`: rows were read. `journal`: derived from earlier runs |
| `reads` | other tables that the result depends on; see [audits](../explanation/audits.md#other-tables) |
| `sentence` | what was found, in plain English: for failing checks, and if NaN passes `not_null` |
| `condition` | for failing checks: SQL that is true for the failing rows, to query the table by |
| `values` | for `accepted_values` and `not_accepted_values`: the unexpected values with `rows`, most frequent first |
| `passed_run_id` | for failing checks: the latest of the last 250 published runs that passed it |
| `passed_at` | when that run started |
| `value` | the measured number, if the check measures one |
| `measure` | what was measured, as text; results with the same measure form one history |
| `tolerance` | the check's tolerance |
| `description` | the check's description |
| `owner` | the check's owner |
| `tags` | the check's tags |
| `files` | for checks that fail on files: those with failing rows, worst first, each with `file`, `rows` and \
`first_rows`, numbers from 1 without a header; empty if unknown, as for frames and `upsert` |
| `more_files` | number of further files with failing rows |
| `examples` | some failing rows; `_file` and `_row` are the source file and the row's number there; without `_row`, \
`_file` is the data file that holds it |

Checks of your own: [write a check of your own](../how-to/write-your-own-check.md).
"""


def render() -> str:
    """Return the page."""
    checks = [find_check(name) for name in built_in()]
    rows = [f"| [{one.name}](#{one.name}) | {_code(one.summary)} |" for one in checks]
    parts = []
    for one in checks:
        examples = " or ".join(f"`{example}`" for example in one.example.split("  or  "))
        documentation = _code(one.documentation)
        facts = {"NULL": one.nulls, "NaN": one.nans, "Evidence": one.evidence}
        told = " · ".join(f"{name}: {fact}" for name, fact in facts.items() if fact != "–")
        parts.append(f"\n## {one.name}\n\n`{one.signature}`, for example {examples}.\n\n{documentation}\n\n{told}\n")
    return _HEAD + "\n".join(rows) + "\n" + _COMMON + _HISTORY + "".join(parts) + _RESULTS


def exports() -> str:
    """Return the module that exports the checks, for whoever imports and for type checkers."""
    found = [find_check(name) for name in built_in()]
    head = "The checks that come with lakegate. Made by ``tests/e2e/docs_checks.py``: don't edit it."
    names = sorted(one.__name__ for one in found)
    modules = sorted({one.__module__ for one in found})
    imports = "".join(
        _import(module, [one.__name__ for one in found if one.__module__ == module]) for module in modules
    )
    listed = "".join(f'    "{name}",\n' for name in names)
    return f'"""{head}"""\n\n{imports}\n__all__ = [\n{listed}]\n'


def schema() -> str:
    """Return the JSON Schema of contracts that is shipped, with lakegate's own checks."""
    return json.dumps(contract_schema(built_in()), indent=2, ensure_ascii=False) + "\n"


def _import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(sorted(names))}\n"
    if len(line) <= _WIDTH + 1:
        return line
    return f"from {module} import (\n{''.join(f'    {name},{chr(10)}' for name in sorted(names))})\n"


def _code(text: str) -> str:
    return text.replace("``", "`")


if __name__ == "__main__":
    for path, text in ((PAGE, render()), (EXPORTS, exports()), (SCHEMA, schema())):
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path} written\n")
