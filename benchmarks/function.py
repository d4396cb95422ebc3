"""The function of AWS Lambda, warm and behind AWS's runtime client, against ``Lake.ingest`` of the same files on S3."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.harness import Figure, prepared, progress
from support.lambda_runtime import LambdaFunction
from support.lambda_support import Queue, World, open_lakehouse, parquet
from support.postgres import PostgresServer
from support.s3_server import S3Server

BURST = 200
_SINGLES = 10
"""Of as many single ingests the speed of 200 is told: they all do the same."""


def measure(folder: Path, rounds: int) -> Iterator[Figure]:
    """Yield the ratios for one file and for a burst, and what a cold start takes."""
    s3_server, postgres = S3Server(), PostgresServer()
    try:
        s3_server.start()
        postgres.start()
        with open_lakehouse(folder / "lake", s3_server, postgres) as (lake, variables):
            world = World(lake, s3_server.new_bucket(), variables, folder, "bench")
            try:
                yield from _measure(world, world.function(), rounds)
            finally:
                world.close()
    finally:
        postgres.remove()
        s3_server.remove()
        shutil.rmtree(folder, ignore_errors=True)


def _measure(world: World, function: LambdaFunction, rounds: int) -> Iterator[Figure]:
    names = (f"{number:05}.parquet" for number in itertools.count())
    lake = world.lake
    event = world.put(next(names), parquet(10_000))
    began = time.perf_counter()
    assert function.invoke(event) == {}
    cold_s = time.perf_counter() - began

    def by_event() -> Callable[[], object]:
        return partial(_invoke, function, world.put(next(names), parquet(10_000)))

    def by_ingest() -> Callable[[], object]:
        name = next(names)
        world.put(name, parquet(10_000))
        return partial(lake.ingest, world.table, f"{world.bucket.uri}/{world.key(name)}")

    medians = prepared(rounds, {"event": by_event, "ingest": by_ingest})
    detail = f"{medians['event']:.2f} s / {medians['ingest']:.2f} s, 10,000 rows, warm"
    yield Figure("function, event to published / ingest", medians["event"] / medians["ingest"], 1.5, detail)

    detail = f"{cold_s:.2f} s / {medians['event']:.2f} s; {function.memory_mb():.0f} MiB"
    yield Figure("function, first call / warm call", cold_s / medians["event"], None, detail)

    progress(f"{_SINGLES} single ingests")
    began = time.perf_counter()
    for _ in range(_SINGLES):
        by_ingest()()
    each_s = (time.perf_counter() - began) / _SINGLES
    queue = Queue()
    queue.send(*(world.put(next(names), parquet(10_000)) for _ in range(BURST)))
    progress(f"a burst of {BURST}")
    began = time.perf_counter()
    assert queue.deliver(function, timeout_s=900) == []
    burst_s = (time.perf_counter() - began) / BURST
    detail = f"{1 / burst_s:.1f} / {1 / each_s:.1f} files/s, {BURST} files at once, {_SINGLES} singles"
    yield Figure("function, burst / single ingests, files per second", each_s / burst_s, 5.0, detail, "least")


def _invoke(function: LambdaFunction, event: object) -> None:
    assert function.invoke(event) == {}
