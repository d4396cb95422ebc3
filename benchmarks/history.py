"""The ingest of one small file into a lake with 5,000 earlier runs against one with 10 (:mod:`benchmarks.past`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, Prepare, prepared
from benchmarks.past import Past, small_file


def measure(few: Past, many: Past, folder: Path, rounds: int) -> Iterator[Figure]:
    """Yield the ratio."""
    medians = prepared(rounds, {"few": _contestant(few, folder), "many": _contestant(many, folder)})
    detail = f"{medians['many'] * 1000:.0f} ms / {medians['few'] * 1000:.0f} ms, one file"
    yield Figure("ingest, 5,000 earlier runs / 10", medians["many"] / medians["few"], 1.2, detail)


def _contestant(past: Past, folder: Path) -> Prepare:
    def prepare() -> Any:
        return partial(_ingest, past, small_file(folder))

    return prepare


def _ingest(past: Past, source: Path) -> None:
    run = past.ingest(source)
    assert run.status == "published", run
    assert run.publication is not None
    assert not run.publication.replayed
