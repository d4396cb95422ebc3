"""The wall time of warm commands: an ingest and a query against bare scripts, and those of every day."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

from benchmarks.harness import Deliveries, Figure, interleave, prepared
from lakegate.lake import Lake

BARE = dedent("""
    import sys
    from pyspark.sql import SparkSession

    url, source, options = sys.argv[1], sys.argv[2], sys.argv[3:]
    spark = SparkSession.builder.remote(url).getOrCreate()
    for option in options:
        key, _, value = option.partition("=")
        spark.conf.set(key, value)
    spark.read.parquet(source).writeTo("lakegate.bench.bare").append()
    spark.stop()
""")


QUERY = dedent("""
    import sys
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    spark.sql("SELECT 1").show()
    spark.stop()
""")
EVERY_DAY = (("branch", "list"), ("log",), ("runs",), ("table", "show", "bench.command"))


def measure(lake: Lake, url: str, settings: dict[str, str], source: Path, rounds: int) -> Iterator[Figure]:
    """Yield the ratios, the peak memory of both clients of the ingest, and the seconds of commands of every day."""
    deliveries = Deliveries(lake.home / "commanded")
    peaks: dict[str, int] = {"ingest": 0, "bare": 0}
    options = [f"{key}={value}" for key, value in settings.items() if key.startswith("spark.sql.catalog.")]
    bare = [sys.executable, "-c", BARE, url, source.as_uri(), *options]
    program = [sys.executable, "-m", "lakegate", "--home", str(lake.home)]
    ingest = [*program, "ingest", "bench.command"]
    ingest += ["--check", "not_null(trip_id)", "--check", "row_count(min=1)"]

    def prepare() -> Any:
        return partial(_run, "ingest", [*ingest, str(deliveries.deliver(source))], {})

    _run("ingest", [*ingest, str(deliveries.deliver(source))], peaks)
    medians = prepared(rounds, {"bare": lambda: partial(_run, "bare", bare, peaks), "ingest": prepare})
    assert len(lake.runs(table="bench.command", status="published", limit=1_000)) == rounds + 2
    detail = f"{medians['ingest']:.2f} s / {medians['bare']:.2f} s, 10,000 rows"
    yield Figure("command ingest / bare Connect script", medians["ingest"] / medians["bare"], 1.75, detail)
    memory = f"{peaks['ingest'] / 1024:.0f} MiB / {peaks['bare'] / 1024:.0f} MiB"
    yield Figure("client peak memory, ingest / bare script", peaks["ingest"] / peaks["bare"], None, memory)
    query, plain = [*program, "query", "SELECT 1"], [sys.executable, "-c", QUERY, url]
    times = interleave(
        rounds * 2,
        {
            "bare": partial(_run, "bare", plain, {}),
            "query": partial(_run, "query", query, {}),
            **{" ".join(words): partial(_run, words[0], [*program, *words], {}) for words in EVERY_DAY},
        },
    )
    detail = f"{times['query']:.2f} s / {times['bare']:.2f} s"
    yield Figure("command query / bare Connect script", times["query"] / times["bare"], 1.3, detail)
    for words in EVERY_DAY:
        yield Figure(f"command {' '.join(words)}, seconds", times[" ".join(words)], 0.6, f"{rounds * 2} rounds")


def _run(name: str, command: Sequence[str], peaks: dict[str, int]) -> None:
    process: Any = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{name} ended with {process.returncode}"
    peaks[name] = max(peaks.get(name, 0), usage.ru_maxrss)
