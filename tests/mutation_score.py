"""Print what ``make mutants`` came to: a line for each module, and each mutant that no test noticed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "mutants"
_SURVIVED, _NOT_TESTED = 0, (5, 33)
"""Exit codes that mutmut keeps for a mutant; ``null`` is for one that was not tried yet."""


def main() -> int:
    """Print the table."""
    total: Counter[str] = Counter()
    left: list[str] = []
    _say(f"{'module':<50} {'mutants':>8} {'killed':>8} {'score':>6}")
    for path in sorted(_FOLDER.rglob("*.meta")):
        codes = json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
        tried = {name: code for name, code in codes.items() if code is not None}
        alive = [name for name, code in tried.items() if code == _SURVIVED or code in _NOT_TESTED]
        left += alive
        total.update(mutants=len(codes), tried=len(tried), killed=len(tried) - len(alive))
        _line(str(path.relative_to(_FOLDER)).removesuffix(".meta"), len(codes), len(tried), len(tried) - len(alive))
    _line("all", total["mutants"], total["tried"], total["killed"])
    for name in left:
        _say(f"alive: {name}")
    _say("To look at one: .venv/bin/uvx mutmut show NAME")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _line(name: str, mutants: int, tried: int, killed: int) -> None:
    score = f"{killed / tried:.0%}" if tried else "-"
    note = "" if tried == mutants else f"  ({tried:,} tried)"
    _say(f"{name:<50} {mutants:>8,} {killed:>8,} {score:>6}{note}")


if __name__ == "__main__":
    sys.exit(main())
