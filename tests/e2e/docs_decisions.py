"""Makes ``docs/decisions/README.md``, the list of decisions: ``python tests/e2e/docs_decisions.py``."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "decisions"
PAGE = FOLDER / "README.md"
_HEAD = """\
# Decisions

<!-- Made by tests/e2e/docs_decisions.py. Do not edit it by hand. -->

Choices that may surprise you, and the reasons, newest first. The first lines of each say which other decisions extend
or supersede it.

"""


def render() -> str:
    """Return the page: the title of each decision, with a link."""
    return _HEAD + "".join(f"- [{_title(path)}]({path.name})\n" for path in sorted(FOLDER.glob("[0-9]*.md"))[::-1])


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    sys.stdout.write(f"{PAGE} written\n")
