"""Sixteen processes that publish to one table at the same time, against sixteen that have a table each.

What they publish is staged and audited before; measured is from their common start to the end of the last one.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.harness import Figure, Prepare, prepared, progress
from benchmarks.staging import ROWS, Staging
from lakegate.components import Components
from lakegate.config import load_settings
from lakegate.context import Context
from lakegate.model.identifiers import TableIdentifier
from lakegate.model.refs import MAIN
from lakegate.model.run import Publication, Run
from lakegate.progress import SilentNarrator
from lakegate.wap.publish import publish
from lakegate.wap.session import RunSession

WRITERS = 16
RUNS = 4
_PATIENCE_S = 300.0


def measure(context: Context, staging: Staging, home: Path, rounds: int) -> Iterator[Figure]:
    """Yield publishes per second to one table against those to a table for each writer."""
    one = [staging.create("bench.shared")] * WRITERS
    each = [staging.create(f"bench.own_{number:02}") for number in range(WRITERS)]
    took: dict[str, list[float]] = {"one": [], "each": []}
    with _writers(home) as writers:
        contestants = {"one": one, "each": each}
        medians = prepared(
            rounds, {name: _contestant(staging, writers, tables, took[name]) for name, tables in contestants.items()}
        )
    for tables in (one, each):
        _require_all_rows(context, tables, (rounds + 1) * WRITERS * RUNS)
    rates = {name: WRITERS * RUNS / seconds for name, seconds in medians.items()}
    p99 = {name: quantiles(seconds, n=100)[98] for name, seconds in took.items()}
    detail = (
        f"{rates['one']:.1f} / {rates['each']:.1f} publishes a second, {WRITERS} processes x {RUNS} runs; "
        f"p99 of one publish {p99['one']:.2f} / {p99['each']:.2f} s"
    )
    yield Figure("publishes, one table / a table each", rates["one"] / rates["each"], 0.45, detail, bound="least")


class _Writers:
    """The processes, and what they and we meet at."""

    def __init__(self, pipes: Sequence[Connection], start: Barrier) -> None:
        self._pipes = pipes
        self._start = start

    def publish(self, shares: Sequence[Sequence[Run]], seconds: list[float]) -> float:
        """Let each writer publish its share; return the seconds from the start to the last one's end.

        How long each publish took is added to ``seconds``.
        """
        for pipe, share in zip(self._pipes, shares, strict=True):
            pipe.send([run.model_dump_json() for run in share])
        self._start.wait(_PATIENCE_S)
        started = time.monotonic()
        ended = 0.0
        for pipe in self._pipes:
            last, took = _answer(pipe)
            ended = max(ended, last)
            seconds += took
        return ended - started


def _answer(pipe: Connection) -> tuple[float, Sequence[float]]:
    assert pipe.poll(_PATIENCE_S), "a writer does not answer"
    answer: tuple[float, Sequence[float]] = pipe.recv()
    return answer


@contextmanager
def _writers(home: Path) -> Iterator[_Writers]:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(WRITERS + 1)
    pairs = [context.Pipe() for _ in range(WRITERS)]
    processes = [context.Process(target=_write, args=(home, theirs, start), daemon=True) for _, theirs in pairs]
    try:
        for process in processes:
            process.start()
        for ours, _ in pairs:
            _answer(ours)
        progress(f"{WRITERS} writers are ready")
        yield _Writers([ours for ours, _ in pairs], start)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _write(home: Path, pipe: Connection, start: Barrier) -> None:
    """Be a writer: publish what comes through ``pipe``, until the end of it all."""
    gc.set_threshold(1_000_000, 50, 100)  # as the command line does; else one full collection decides a round
    components = Components(home, load_settings(home, env={}), session=None, narrator=SilentNarrator())
    context = components.context
    context.catalog.get_ref(MAIN)
    pipe.send((time.monotonic(), ()))
    while True:
        runs = [Run.model_validate_json(text) for text in pipe.recv()]
        # Beginning and ending a run is no part of its publish.
        held = [RunSession(context, run, context.journal.begin(run)) for run in runs]
        start.wait(_PATIENCE_S)
        published = [_publish(context, one) for one in held]
        pipe.send((time.monotonic(), [seconds for _, seconds in published]))
        for one, (publication, _) in zip(held, published, strict=True):
            one.end(status="published", publication=publication, branch_kept=False)


def _publish(context: Context, session: RunSession) -> tuple[Publication, float]:
    began = time.monotonic()
    return publish(context, session.run, fresh=True, session=session), time.monotonic() - began


def _contestant(
    staging: Staging, writers: _Writers, tables: Sequence[TableIdentifier], seconds: list[float]
) -> Prepare:
    def prepare() -> Any:
        shares = [[staging.stage(table) for _ in range(RUNS)] for table in tables]
        return lambda: writers.publish(shares, seconds)

    return prepare


def _require_all_rows(context: Context, tables: Sequence[TableIdentifier], runs: int) -> None:
    head = context.catalog.get_ref(MAIN)
    pointers = [context.catalog.get_table(table, head) for table in dict.fromkeys(tables)]
    files = [file for pointer in pointers if pointer is not None for file in context.reader.files(pointer)]
    assert len({file.path for file in files}) == len(files) == runs, (len(files), runs)
    assert sum(file.rows for file in files) == runs * ROWS
