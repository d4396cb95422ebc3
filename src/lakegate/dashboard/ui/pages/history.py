"""History: the commits of main with their runs, unaudited commits of other writers, and reverts."""

from __future__ import annotations

from collections.abc import Iterator

import streamlit as st

from lakegate.dashboard.history import CommitLine, list_commits
from lakegate.dashboard.ui import parts
from lakegate.dashboard.ui.session import shared
from lakegate.model.words import counted

_PAGE_SIZE = 50
_MOST_TABLES = 3


def show() -> None:
    """Draw the page."""
    parts.heading("History")
    found = parts.read_page(lambda cursor: list_commits(shared().model, limit=_PAGE_SIZE, cursor=cursor))
    parts.problems(found.problems)
    if not found.items:
        st.info("There are no commits yet. Publish something:")
        parts.commands(["lakegate ingest nyc.trips trips.parquet"])
        return
    foreign = sum(line.kind == "other" for line in found.items)
    if foreign:
        verb = "was" if foreign == 1 else "were"
        st.warning(
            f"{counted(foreign, 'commit')} on this page {verb} not made by lakegate and never audited. Let only "
            "lakegate commit to main: docs/explanation/security.md"
        )
    parts.listing(
        [_row(line) for line in found.items],
        opens=("run", "run", [line.run_id for line in found.items]),
        label="Commits of main",
    )
    parts.show_pagination(found, "commit")


def _row(line: CommitLine) -> dict[str, object]:
    more = len(line.tables) - _MOST_TABLES
    return {
        "When": line.at,
        "What": _kind(line),
        "Message": line.message,
        "Tables": ", ".join(line.tables[:_MOST_TABLES]) + (f" and {more:,} more" if more > 0 else ""),
        "Run": line.run_id or f"by {line.author}",
        "Remarks": "; ".join(_remarks(line)),
        "Commit": line.hash,
    }


def _kind(line: CommitLine) -> str:
    if line.kind == "other":
        return "not audited"
    if line.reverted_by is not None:
        return "reverted"
    if line.kind == "publish":
        return "accepted" if line.accepted else "published"
    return line.kind


def _remarks(line: CommitLine) -> Iterator[str]:
    if line.reverted_by is not None:
        yield f"reverted by {line.reverted_by}"
    if line.reverts:
        yield f"reverts {', '.join(line.reverts)}"
    if line.accepted:
        yield f"accepted{f' by {line.accepted_by}' if line.accepted_by else ''}: {line.accepted}"


if __name__ == "__main__":
    show()
