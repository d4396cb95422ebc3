"""Every example of another tool that rows alone answer, tried on files: verdicts and numbers of failing rows."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from lakegate.checks.parse import parse_check
from lakegate.lake import connect
from proofs.result import ProofResult
from support.neighbours import EXAMPLES, ROWS


def prove(home: Path) -> ProofResult:
    """Try them by contracts, in the project in ``home``; nothing is written there."""
    failures: list[str] = []
    tried = 0
    with connect(home) as lake:
        for rows, table in ROWS.items():
            source, contract = home / f"{rows}.parquet", home / f"examples.{rows}.yaml"
            pq.write_table(table, source)
            examples = [one for one in EXAMPLES if one.rows == rows and not one.other_rows]
            listed = "".join(f"  - {json.dumps(one.ours)}\n" for one in examples)
            contract.write_text(f"version: 1\ntable: examples.{rows}\nchecks:\n{listed}", encoding="utf-8")
            found = {one.check: one for one in lake.contracts.test(contract, source).report.results}
            for one in examples:
                result = found[str(parse_check(one.ours))]
                tried += 1
                if (result.verdict == "pass", result.failing_rows) != (one.passed, one.failing or 0):
                    failures.append(f"{one.of}: {one.theirs}, {one.ours}: {result.verdict}, {result.failing_rows} rows")
    return ProofResult("neighbours", tried, failures)
