"""``python -m benchmarks [--rounds N] [--only NAME]``: one line a figure on standard output."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from benchmarks import (
    batches,
    command,
    gate,
    history,
    ingest,
    listing,
    manifest,
    modes,
    package,
    reading,
    replay,
    serving,
    sources,
    watching,
    wide,
    writers,
)
from benchmarks.harness import Figure, progress, write_parquet
from benchmarks.past import Past, make_past
from benchmarks.staging import Staging
from lakegate.components import Components
from lakegate.config import load_settings
from lakegate.lake import Lake
from lakegate.model.identifiers import TableIdentifier
from lakegate.progress import SilentNarrator
from lakegate.spark.engine import SparkEngine
from lakegate.spark.sessions import session_settings


def main() -> None:
    """Measure on a stack of its own, in a folder that goes afterwards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of each contestant")
    parser.add_argument("--only", choices=tuple(_GROUPS), action="append", help="measure only these")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakegate-bench-") as folder:
        home = Path(folder)
        components = Components(home, load_settings(home, env={}), session=None, narrator=SilentNarrator())
        try:
            with Lake(components) as lake, Staging(components.context) as staging:
                bench = _Bench(lake, components, staging, arguments.rounds)
                for name in arguments.only or _GROUPS:
                    progress(name)
                    for figure in _GROUPS[name](bench):
                        print(figure, flush=True)
        finally:
            components.stack.down()


class _Bench:
    """What the benchmarks work with; what only some need is made when they do."""

    def __init__(self, lake: Lake, components: Components, staging: Staging, rounds: int) -> None:
        self.lake = lake
        self.components = components
        self.staging = staging
        self.rounds = rounds

    @property
    def engine(self) -> SparkEngine:
        engine = self.components.engine
        assert isinstance(engine, SparkEngine)
        return engine

    @cached_property
    def few(self) -> Past:
        return make_past(self.components.context, self.lake.home, self.staging, 10)

    @cached_property
    def many(self) -> Past:
        return make_past(self.components.context, self.lake.home, self.staging, 5_000)


def _ingest(bench: _Bench) -> Iterator[Figure]:
    return ingest.measure(bench.lake, bench.engine, bench.lake.home, bench.rounds)


def _modes(bench: _Bench) -> Iterator[Figure]:
    return modes.measure(bench.lake, bench.engine, bench.lake.home / "modes", bench.rounds)


def _sources(bench: _Bench) -> Iterator[Figure]:
    return sources.measure(bench.lake, bench.engine, bench.lake.home / "sources", bench.rounds)


def _manifest(bench: _Bench) -> Iterator[Figure]:
    return manifest.measure(bench.components, bench.engine, bench.rounds * 3)


def _batches(bench: _Bench) -> Iterator[Figure]:
    return batches.measure(bench.lake, bench.engine, bench.lake.home / "batches")


def _command(bench: _Bench) -> Iterator[Figure]:
    source = bench.lake.home / "ten-thousand"
    write_parquet(bench.engine.session.range(0, 10_000, 1, 1).selectExpr(*ingest.COLUMNS), source)
    bench.lake.ingest("bench.bare", source)
    settings = session_settings(bench.components.catalog.spark_options())
    return command.measure(bench.lake, bench.components.stack.up().spark_url, settings, source, bench.rounds)


def _writers(bench: _Bench) -> Iterator[Figure]:
    return writers.measure(bench.components.context, bench.staging, bench.lake.home, bench.rounds)


def _replay(bench: _Bench) -> Iterator[Figure]:
    context, rounds = bench.components.context, bench.rounds * 4
    yield from replay.against_merge(context, bench.staging, bench.components.stack.up().nessie_uri, rounds)
    yield from replay.by_size(context, bench.staging, rounds)
    yield from replay.by_history(bench.few, bench.many, bench.staging, rounds)


def _history(bench: _Bench) -> Iterator[Figure]:
    return history.measure(bench.few, bench.many, bench.lake.home / "small", bench.rounds * 3)


def _serving(bench: _Bench) -> Iterator[Figure]:
    source = bench.lake.home / "served"
    write_parquet(bench.engine.session.range(0, 1_000, 1, 1).selectExpr(*ingest.COLUMNS), source)
    bench.lake.ingest("bench.to_serve", source)
    catalog = bench.components.catalog
    few = catalog.get_table(TableIdentifier.parse("bench.to_serve"), catalog.get_ref("main"))
    assert few is not None
    yield from serving.measure(bench.components, few, bench.rounds * 3)


def _function(bench: _Bench) -> Iterator[Figure]:
    # The servers that it works with are those of the tests.
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    from benchmarks import function

    yield from function.measure(bench.lake.home / "function", bench.rounds)


def _targets(bench: _Bench) -> Iterator[Figure]:
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    from benchmarks import targets

    yield from targets.measure(bench.components.context, bench.staging, bench.lake.home / "targets", bench.rounds)


def _dashboard(bench: _Bench) -> Iterator[Figure]:
    # The lake that it reads is made as for the tests.
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    from benchmarks import dashboard

    return dashboard.measure(bench.lake.home / "dashboard", bench.components.catalog, bench.rounds)


def _browser(bench: _Bench) -> Iterator[Figure]:
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
    from benchmarks import browser

    return browser.measure(bench.lake.home / "browser", bench.rounds * 2)


_GROUPS: dict[str, Callable[[_Bench], Iterator[Figure]]] = {
    "package": lambda bench: package.measure(bench.rounds * 3),
    "ingest": _ingest,
    "modes": _modes,
    "sources": _sources,
    "manifest": _manifest,
    "batches": _batches,
    "wide": lambda bench: wide.measure(bench.components, bench.engine, bench.rounds),
    "command": _command,
    "writers": _writers,
    "replay": _replay,
    "history": _history,
    "listing": lambda _: listing.measure(),
    "serving": _serving,
    "gate": lambda bench: gate.measure(bench.lake, bench.components, bench.rounds),
    "reading": lambda bench: reading.measure(bench.lake.home / "reading"),
    "watching": lambda _: watching.measure(),
    "function": _function,
    "targets": _targets,
    "dashboard": _dashboard,
    "browser": _browser,
}


if __name__ == "__main__":
    main()
