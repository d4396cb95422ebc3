"""Progress on standard error, and the helpers that format values."""

from __future__ import annotations

import io
import json
import re
import sys
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakegate.cli.check_output import fit_columns
from lakegate.cli.output import cell
from lakegate.cli.stderr import LiveNarrator, make_narrator, make_progress
from lakegate.model.rows import json_safe
from lakegate.model.words import share
from lakegate.progress import SilentNarrator, one_line

_STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in place of standard error; not a fixture, since pytest swaps the stream after set-up."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    return screen


def test_only_a_terminal_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    open_terminal(monkeypatch)
    assert isinstance(make_narrator(quiet=False), LiveNarrator)
    assert isinstance(make_narrator(quiet=True), SilentNarrator)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make_narrator(quiet=False), SilentNarrator)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(make_narrator(quiet=False), SilentNarrator)


def test_steps_nest_and_leave_one_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    narrator = LiveNarrator()
    with narrator.step("Outer [red]\x1b[2J") as outer:
        with narrator.step("Inner") as inner:
            inner.progress(5, 10, "tasks")
            inner.progress(0, 0, "tasks")
            inner.progress(10, 10, "bytes")
        outer.progress(1, 2, "rows")
        narrator.note("A fact")
    text = terminal.getvalue()
    assert "✓ Inner" in text
    assert r"✓ Outer [red]\x1b[2J" in text
    assert "A fact" in text
    assert text.index("✓ Inner") < text.index("✓ Outer")


def test_a_step_stays_on_one_line_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    open_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    progress = make_progress()
    long = progress.add_task(f"Trying contracts/{'nyc_trips' * 5}.yaml on 4 batches", total=4, amount="2 of 4 batches")
    with progress.console.capture() as shown:
        for done in (1, 2):
            progress.update(long, completed=done)
        progress.console.print(progress.get_renderable())
    (line,) = shown.get().splitlines()
    assert "2 of 4 batches" in line
    assert len(_STYLES.sub("", line)) <= 80


def test_a_failing_step_is_marked_and_its_error_propagates(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    narrator = LiveNarrator()
    with pytest.raises(KeyError), narrator.step("Doomed"):
        raise KeyError
    assert "✗ Doomed" in terminal.getvalue()
    with narrator.step("Next"):
        pass
    assert "✓ Next" in terminal.getvalue()


@given(st.text())
def test_plain_text_is_printable_and_one_line(text: str) -> None:
    assert one_line(text).isprintable()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals() | st.datetimes(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@given(values)
def test_everything_survives_json(value: object) -> None:
    safe = json_safe(value)
    assert json.loads(json.dumps(safe, allow_nan=False)) == safe
    assert cell(value).isprintable()


def test_times_are_iso() -> None:
    told = json_safe({"d": date(2026, 1, 31), "t": datetime(2026, 1, 31, tzinfo=UTC), "s": timedelta(seconds=1.5)})
    assert told == {"d": "2026-01-31", "t": "2026-01-31T00:00:00+00:00", "s": 1.5}


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_share_says_none_or_all_only_when_it_is(part: int, whole: int) -> None:
    text = share(part, whole)
    if whole and part <= whole:
        assert (text == "0.00 %") == (part == 0)
        assert (text == "100.00 %") == (part == whole)


@given(st.integers(1, 200), st.lists(st.text(st.characters(categories=["L"]), max_size=40), min_size=1, max_size=8))
def test_examples_fit_and_show_the_checks_own_column(width: int, texts: list[str]) -> None:
    row = {f"c{index}": text for index, text in enumerate(texts)}
    own = f"c{len(texts) - 1}"
    columns, cells = fit_columns([row], [own], width)
    assert columns[0] == own
    taken = sum(max(len(name), len(value)) for name, value in zip(columns, cells[0], strict=True))
    assert len(columns) == 1 or taken + 3 * (len(columns) - 1) <= width
