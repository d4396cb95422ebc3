"""Makes ``docs/reference/checks.md``, ``checks/builtin/__init__.py`` and the JSON Schema of contracts from the checks.

Run it to write them anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lakegate.checks.registry import built_in, find_check
from lakegate.contracts.schema import contract_schema

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
Columns are plain words; a name with spaces or odd characters is quoted: `not_null('Trip Distance')`. Case is ignored
when no column has exactly the name. Patterns are best written as `r'…'`.

| check | what it requires |
| --- | --- |
"""
_COMMON = """
All checks are about the rows of the batch. `unique(…, scope='table')`, `relationships`, `equal_rowcount` and
`fewer_rows_than` compare them with whole tables, as these would be after publishing.

A column may be a field of a struct: `not_null(address.zip)`, `unique(address.zip)`. A column whose own name holds dots
comes first; odd names in a path are in backticks. File metrics say nothing of fields, so the rows are read.

## What every check takes

- `severity='error'` (default): a failure blocks the publish. `severity='warn'`: it is only reported.
  `severity='quarantine'`, for checks about single rows: the failing rows are [set aside](../how-to/quarantine.md),
  and the others are published.
- `where='vendor_id = 1'`: only rows for which this is true are looked at: one condition about a row, as `sql` takes
  it. When no row matches, the verdict is `skipped`. `row_count(…, where=…)` counts the matching rows, and judges 0.
  With `unique(…, scope='table')`, it also holds for the rows of the table. Which rows match isn't known from file
  metrics, so the rows are read.
- `tolerance=5` or `tolerance='0.1%'`, for checks about single rows: up to so many failing rows, or such a share of the
  rows looked at, the check passes. Shares are compared exactly, without rounding.
- `examples=3`: failing rows to show at most, 0 to 100 (default 10). With 0, no value of a failing row leaves the
  engine.
- `description='…'`, `owner='…'`, `tags=['…']`: why the check is there, who looks after it, words to find it by.
  Reports, alerts and lineage events show them. They aren't part of the check's canonical text.
- `name='…'`: what to call it in reports. By default the check and its columns: `not_null_passenger_count`.
- `scope='batch'` (default) or, for `unique`, `scope='table'`. `relationships` is always of scope `table`.
"""
_HISTORY = """
## Against history

`row_count`, `mean`, `sum`, `stddev`, `quantile`, `null_rate` and `distinct_count` also compare what they measure with
earlier batches of the table, those that were published and not reverted. Runs that did more than add new rows, such as
a delete, or that released quarantined ones, aren't batches: they don't count, and are `skipped` themselves.
A table that was renamed keeps its batches, and one that was dropped and made anew starts without.

- `deviations=3`: within three sample standard deviations of their mean. A spread of less than 1 % of the mean counts as
  1 %, so that batches that were all alike don't refuse the next one for a handful of rows.
- `percent=20`: within 20 % of their mean.
- `last=20`: how many batches to look at, 5 to 200.
- `weekday=True`: only batches of the same day of the week (UTC, by when their run began).

Of 14 batches or more, one that is more than five deviations from the mean of the others is left out, and the report
says so: a huge batch that was let through as a warning doesn't widen the band. Two such batches may be a pattern, and
count.

Limits by `min` and `max` hold beside them. It takes 5 earlier batches; until then the check is `skipped` and says so.
An audit of what is published already (`lakegate audit TABLE --branch main`) skips the comparison, too. The table's
newest 5,000 runs are searched for earlier batches. A value that `examples=0` or the setting `audit.mask` hides isn't
kept, so a check that compares it with earlier ones is refused.
The number of rows is known of every run; other measures from the first run on that had the check, and those of a check
with another `where` are another history. What earlier batches had is in the journal: nothing is read for it. The report
shows the newest measures, their mean and the band.
"""
_RESULTS = """
## Values that stay where they are

`[audit] mask = ["email", "*_name"]` in the settings names columns, by patterns, whose values no audit reads out of the
engine: examples show `•••`, no histogram is made of them, and `min`, `max`, `mean`, `sum`, `quantile` and `recency` of
them say whether they fail, not what they found; so do your own checks. `examples=0` does so for one check. The
dashboard, reports and alerts hide the columns as those of `ui.masked`; what audits read before they were named stays in
the journal. Of a query of
`custom_sql` that names such a column, or renames all columns (`struct(*)`, `AS t(a, b)`, `UNION` with `*`), all values
are hidden.

A pattern may also mean a field in a struct, list or map, as `email` or `contact.email`: a column with such a field is
masked whole. Where any value is hidden and Spark can't evaluate a check, only its error condition is told, such as
`CAST_INVALID_INPUT`: its messages quote values.

## Results

For each check, in the report, in `--output json` and in the journal:

| field | meaning |
| --- | --- |
| `name` | its name |
| `check` | its canonical text, which can be given to `--check` again |
| `columns` | the columns it is about |
| `severity` | `error`, `warn` or `quarantine` |
| `verdict` | `pass`, `fail`, or `skipped`: nothing to judge. A check that cannot run is an error, not a verdict |
| `failing_rows` | rows that break the check; within its `tolerance` it passes |
| `quarantined` | rows that were set aside before the others were judged; `examples` are of them |
| `total_rows` | rows looked at; with `where`, those that match |
| `evidence` | `manifest`: proven by file metrics. `scan`: rows were read. `journal`: by earlier runs |
| `reads` | tables that the answer depends on beside the batch; see [audits](../explanation/audits.md#other-tables) |
| `sentence` | of a failing check: what was found, in plain English |
| `values` | of `accepted_values` and `not_accepted_values`: the unexpected values, most frequent first, with `rows` |
| `passed_run_id` | of a failing check: the newest published run that passed it, among the last 250 |
| `passed_at` | when that run began |
| `value` | of checks that measure something: the number |
| `measure` | what it is, as text; equal texts are one history |
| `tolerance` | failing rows up to which it passes, as the check has it |
| `description` | as the check has it |
| `owner` | as the check has it |
| `tags` | as the check has them |
| `examples` | some failing rows, when it failed; `_file` is the data file a row is in |

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
