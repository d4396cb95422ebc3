"""``python -m benchmarks [--rounds N] [--only ingest|manifest|command]``: one line a figure on standard output."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import command, ingest, manifest
from benchmarks.harness import Figure
from lakegate.config import load_settings
from lakegate.engine.sessions import session_settings
from lakegate.engine.spark import SparkEngine
from lakegate.lake import Lake
from lakegate.narration import SilentNarrator
from lakegate.wiring import Wiring


def main() -> None:
    """Measure on a stack of its own, in a folder that goes afterwards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of each contestant")
    parser.add_argument("--only", choices=("ingest", "manifest", "command"), help="measure only these")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakegate-bench-") as folder:
        home = Path(folder)
        wiring = Wiring(home, load_settings(home, env={}), session=None, narrator=SilentNarrator())
        try:
            with Lake(wiring) as lake:
                for figure in _figures(lake, wiring, home, arguments.only, arguments.rounds):
                    print(figure, flush=True)
        finally:
            wiring.stack.down()


def _figures(lake: Lake, wiring: Wiring, home: Path, only: str | None, rounds: int) -> Iterator[Figure]:
    engine = wiring.engine
    assert isinstance(engine, SparkEngine)
    if only in (None, "ingest"):
        yield from ingest.measure(lake, engine, home, rounds)
    if only in (None, "manifest"):
        yield from manifest.measure(wiring, engine, rounds * 3)
    if only in (None, "command"):
        source = home / "ten-thousand"
        engine.session.range(0, 10_000, 1, 1).selectExpr(*ingest.COLUMNS).write.parquet(source.as_uri())
        lake.ingest("bench.bare", source)
        settings = session_settings(wiring.catalog.spark_options())
        yield from command.measure(home, wiring.stack.up().spark_url, settings, source, rounds)


if __name__ == "__main__":
    main()
