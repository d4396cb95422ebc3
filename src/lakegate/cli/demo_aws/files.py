"""The three files of the demo: one that is right, one with NULLs where none may be, one whose end is missing."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

Kind = Literal["clean", "nulls", "truncated"]
Outcome = Literal["published", "rejected", "dead-lettered"]

NULL_COLUMN = "passenger_count"
_NULL_RATE = 0.01
_KEPT = 0.6
_SEEDS = 2**31 - 3


@dataclass(frozen=True, slots=True)
class DemoFile:
    """One file, and what must become of it."""

    kind: Kind
    path: Path
    about: str
    expected: Outcome


def make_files(folder: Path, generate: Callable[..., tuple[Path, ...]], *, rows: int) -> tuple[DemoFile, ...]:
    """Write the three files, new ones each time, and return them in the order to upload them in.

    Args:
        folder: Where to write.
        generate: :func:`lakegate.sources.synthetic.generate`.
        rows: Rows in each file.
    """
    seed = secrets.randbelow(_SEEDS)
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"

    def one(kind: Kind, number: int, **options: Any) -> Path:
        (made,) = generate(folder / kind, files=1, rows=rows, seed=seed + number, overwrite=True, **options)
        named = made.replace(folder / f"{stamp}-{kind}.parquet")
        made.parent.rmdir()
        return named

    clean = one("clean", 0)
    nulls = one("nulls", 1, null_rate=_NULL_RATE, null_columns=(NULL_COLUMN,))
    truncated = one("truncated", 2)
    whole = truncated.read_bytes()
    truncated.write_bytes(whole[: int(len(whole) * _KEPT)])
    return (
        DemoFile("clean", clean, f"{rows:,} good rows", "published"),
        DemoFile("nulls", nulls, f"NULLs in {NULL_COLUMN}", "rejected"),
        DemoFile("truncated", truncated, f"its last {1 - _KEPT:.0%} are missing", "dead-lettered"),
    )
