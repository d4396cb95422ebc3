"""Progress on standard error, and the helpers that format values."""

from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakegate.cli.output import cell
from lakegate.cli.stderr import LiveNarrator
from lakegate.model.rows import json_safe
from lakegate.model.words import share
from lakegate.progress import one_line


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
    narrator.note("word " * 40)
    lines = [line for line in terminal.getvalue().splitlines() if "word" in line]
    assert len(lines) > 1
    assert all(line.startswith("  ") for line in lines), "a second line is indented, too"


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


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_share_says_none_or_all_only_when_it_is(part: int, whole: int) -> None:
    text = share(part, whole)
    if whole and part <= whole:
        assert (text == "0.00 %") == (part == 0)
        assert (text == "100.00 %") == (part == whole)
