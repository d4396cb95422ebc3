"""Text on narrow terminals: nothing is cut inside a word, and what is copied from the screen still runs."""

from __future__ import annotations

import shlex

import pytest

from lakegate.cli.wrapping import shorten, wrapped_command, wrapped_hint
from lakegate.errors import ConfigurationError, ConflictError
from support.cli_support import BRANCH, PUBLISHED, REJECTED, FakeLake, printed

pytestmark = pytest.mark.usefixtures("in_a_project")
WIDTHS = (30, 60, 80)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "command",
    [
        "lakegate ingest nyc.trips trips/trips-0001.parquet trips/*.csv --check 'not_null(passenger_count)' --dry-run",
        f"lakegate query 'SELECT * FROM nyc.trips WHERE a IS NULL OR b IS NULL LIMIT 20' --ref {BRANCH}",
        "lakegate publish wap/january --accept REASON",
        """lakegate ingest nyc.drivers changes.csv --delete-when "op = 'D'" --mode upsert""",
    ],
)
def test_a_command_that_is_broken_is_the_same_to_a_shell(command: str, width: int) -> None:
    lines = wrapped_command(command, width)
    words = [" ".join(word.split()) for word in shlex.split(lines.replace("\\\n", " "))]
    assert words == shlex.split(command)


def test_names_keep_both_ends() -> None:
    assert [shorten(BRANCH, width) for width in (1, 9, 99)] == ["…", "wap/…3c4d", BRANCH]


@pytest.mark.parametrize("columns", WIDTHS)
def test_hints_break_between_words(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hint = f"Others changed the table since. To give it up and drop what it wrote: lakegate discard {BRANCH}"
    _, told = printed(
        ["publish", BRANCH], FakeLake(publish=ConflictError("No.", hint=hint)), monkeypatch, columns=columns
    )
    assert set(hint.split()) <= set(told.split())
    shown = [line for line in told.splitlines() if BRANCH not in line]
    assert max(map(len, shown)) <= columns


def test_a_hint_is_whole_where_programs_read_it() -> None:
    hint = "Pass --home, or change to the folder: lakegate --home /a/b/c status"
    assert wrapped_hint(hint, 200) == hint
    assert wrapped_hint(hint, 40) == "Pass --home, or change to the folder:\nlakegate --home /a/b/c status"


def test_runs_fit_a_terminal_and_show_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    revert = PUBLISHED.model_copy(update={"kind": "revert"})
    shown, _ = printed(["runs"], FakeLake(runs=[PUBLISHED, REJECTED, revert]), monkeypatch, columns=80)
    heading, _, *lines = shown.splitlines()
    assert "kind" in heading
    assert [line.split()[0] for line in lines] == [PUBLISHED.run_id, REJECTED.run_id, revert.run_id]
    assert max(map(len, shown.splitlines())) <= 80
    assert [kind for line in lines for kind in ("ingest", "revert") if kind in line] == ["ingest", "ingest", "revert"]


def test_a_name_that_does_not_fit_loses_its_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    table = "long.table_of_which_there_are_many_rows_and_no_end_is_in_sight_for_its_name"
    run = PUBLISHED.model_copy(update={"tables": (table,)})
    shown, _ = printed(["runs"], FakeLake(runs=[run]), monkeypatch, columns=80)
    assert len(shown.splitlines()) == 3
    assert "long.tab" in shown
    assert "…" in shown


def test_errors_break_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "The quick brown fox jumps over the lazy dog, again and again, until the line is full."
    _, told = printed(["runs"], FakeLake(runs=ConfigurationError(message)), monkeypatch, columns=40)
    assert " ".join(told.split()) == f"error: {message}"
    assert max(map(len, told.splitlines())) <= 40
