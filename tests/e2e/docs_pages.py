"""What the documentation's pages hold: fenced blocks, what is said of them in comments, and links.

A comment in the line before a fence says what a test cannot guess::

    <!-- exit: 1 -->              the block's last command exits with 1
    <!-- not run: reason -->      the block cannot be run in a test
    <!-- file: lakegate.toml -->  the block is the content of a file in the project's folder
    <!-- same as: action.yml -->  the block is the content of a file in the checkout
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(
    r"(?:^<!-- (?P<word>exit|not run|file|same as): (?P<said>[^\n]+?) -->\n+)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)|(?:src|href)=\"(?P<attribute>[^\"]+)\"")
_HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page.

    Attributes:
        page: Path of the page, from the root of the checkout.
        line: Line of the opening fence.
        language: Word after the fence.
        text: What is between the fences.
        exit_code: Exit code that the last command must have.
        skipped: Why the block is not run; ``None`` when it is.
        file: Name of the file whose content this is; ``None`` when it is none.
        same_as: Path of the file in the checkout that holds the same; ``None`` when none does.
    """

    page: str
    line: int
    language: str
    text: str
    exit_code: int = 0
    skipped: str | None = None
    file: str | None = None
    same_as: str | None = None

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands of a console block: lines after ``$``, with the lines that a backslash at the end adds."""
        found: list[str] = []
        continued = False
        for line in self.text.splitlines():
            if continued:
                found[-1] += f"\n{line}"
            elif line.startswith("$ "):
                found.append(line.removeprefix("$ "))
            else:
                continue
            continued = line.endswith("\\")
        return tuple(found)


def pages() -> tuple[str, ...]:
    """Return all pages, from the root of the checkout."""
    named = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return tuple(path.relative_to(ROOT).as_posix() for path in [*named, *sorted((ROOT / "docs").rglob("*.md"))])


def blocks(page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        word, said = match["word"], match["said"]
        yield Block(
            page=page,
            line=text.count("\n", 0, match.start("language")) + 1,
            language=match["language"],
            text=match["text"],
            exit_code=int(said) if word == "exit" else 0,
            skipped=said if word == "not run" else None,
            file=said if word == "file" else None,
            same_as=said if word == "same as" else None,
        )


def links(page: str) -> Iterator[str]:
    """Yield the targets of a page's links and pictures, those in code left out."""
    text = _CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for match in _LINK.finditer(text):
        yield match["target"] or match["attribute"]


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = (match["text"].lower().replace(" ", "-") for match in _HEADING.finditer(text))
    return {re.sub(r"[^\w-]", "", heading) for heading in headings}
