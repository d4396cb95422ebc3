"""cuallee and Great Expectations on files of Parquet, in a Spark of their own: run by ``benchmarks.audits``.

It runs in an environment without lakegate. Each line of standard input names a peer and a set of checks; for each, a
line on standard output says how long it took. Loading the files isn't timed; the first run of each is up to the caller.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

NOT_NULL = ("trip_id", "pickup", "passengers", "distance", "fare", "zone", "dropoff_zone")
RANGES: dict[str, tuple[Any, Any]] = {
    "trip_id": (0, 10**15), "passengers": (1, 6), "distance": (0.0, 300.0), "fare": (0, 200), "rate": (0, 99)
}  # fmt: skip
ACCEPTED: dict[str, list[Any]] = {"payment": ["card", "cash", "free"], "vendor": [0, 1, 2]}
PATTERNS = {"zone": "^zone-[0-9]+$", "dropoff_zone": "^zone-[0-9]+$"}
PREDICATES = ("dropoff >= pickup", "tip <= 100", "NOT (airport AND distance < 0)")
"""What every row must meet. Seven, five, two, two and three make nineteen checks."""
KEYS = {"plain": None, "unique": "trip_id", "text": "uid"}


def _cuallee(frame: Any, key: str | None) -> bool:
    check = import_module("cuallee").Check(import_module("cuallee").CheckLevel.ERROR, "bench")
    for name in NOT_NULL:
        check.is_complete(name)
    for name, (low, high) in RANGES.items():
        check.is_between(name, (low, high))
    for name, values in ACCEPTED.items():
        check.is_contained_in(name, tuple(values))
    for name, pattern in PATTERNS.items():
        check.has_pattern(name, pattern)
    for number, predicate in enumerate(PREDICATES):
        check.satisfies(("pickup", "tip", "airport")[number], predicate)
    if key:
        check.is_unique(key)
    return all(row["status"] == "PASS" for row in check.validate(frame).collect())


class _Expectations:
    def __init__(self, frame: Any) -> None:
        self._gx = import_module("great_expectations")
        self._context = self._gx.get_context(mode="ephemeral")
        source = self._context.data_sources.add_spark("spark")
        asset = source.add_dataframe_asset("trips")
        self._batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})

    def __call__(self, _frame: Any, key: str | None) -> bool:
        made, gx = [], self._gx.expectations
        made += [gx.ExpectColumnValuesToNotBeNull(column=name) for name in NOT_NULL]
        made += [
            gx.ExpectColumnValuesToBeBetween(column=name, min_value=low, max_value=high)
            for name, (low, high) in RANGES.items()
        ]
        made += [gx.ExpectColumnValuesToBeInSet(column=name, value_set=values) for name, values in ACCEPTED.items()]
        made += [gx.ExpectColumnValuesToMatchRegex(column=name, regex=pattern) for name, pattern in PATTERNS.items()]
        query = "SELECT * FROM {batch} WHERE NOT "
        made += [gx.UnexpectedRowsExpectation(unexpected_rows_query=f"{query}({one})") for one in PREDICATES]
        if key:
            made.append(gx.ExpectColumnValuesToBeUnique(column=key))
        suite = self._gx.ExpectationSuite(name=f"bench {key}", expectations=made)
        return bool(self._batch.validate(suite, result_format="BOOLEAN_ONLY").success)


def main() -> None:
    """Answer what is asked until standard input ends."""
    builder = import_module("pyspark.sql").SparkSession.builder.master("local[*]")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    # With the default of 1 GB, a peer that counts distinct texts runs out of memory at 10 million rows.
    spark = builder.config("spark.driver.memory", "6g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.read.parquet(*sys.argv[1:])
    peers: dict[str, Callable[[Any, str | None], bool]] = {"cuallee": _cuallee, "gx": _Expectations(frame)}
    for line in sys.stdin:
        peer, checks = line.split()
        began = time.perf_counter()
        try:
            passed, problem = peers[peer](frame, KEYS[checks]), None
        except Exception as error:  # noqa: BLE001 - of a peer, which is then left out
            passed, problem = False, str(error)[:500]
        answer = {"seconds": time.perf_counter() - began, "passed": passed, "problem": problem}
        print("RESULT", json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
