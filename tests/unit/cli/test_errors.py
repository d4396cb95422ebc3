"""Errors of commands, and what all commands have in common."""

from __future__ import annotations

import io
import json
from pathlib import Path

import click
import pytest

from lakegate.cli import main, options
from lakegate.cli.app import App
from lakegate.cli.main import cli
from lakegate.errors import (
    AuditFailedError,
    CatalogUnavailableError,
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    QueryError,
)
from support.cli_support import FakeLake, invoke

pytestmark = pytest.mark.usefixtures("in_a_project")


@pytest.mark.parametrize(
    ("command", "words", "option"), [("ingest", "nyc.trips a.csv", "--branch"), ("branch create", "fix", "--from")]
)
def test_a_missing_option_value_names_the_command_and_its_help(command: str, words: str, option: str) -> None:
    outcome = invoke(f"{command} {words} {option}")
    assert outcome.exit_code == 2
    assert f"error: Option '{option}' requires an argument.\nusage: cli {command} " in outcome.stderr
    assert f"For help, run: cli {command} --help" in outcome.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AuditFailedError("no"), 1),
        (NotFoundError("no"), 2),
        (ConflictError("no"), 3),
        (OutcomeUnknownError("no"), 4),
        (KeyboardInterrupt("Branch wap/x was removed."), 130),
        (RuntimeError("bug"), 70),
        (EOFError("truncated"), 70),
    ],
)
def test_errors_become_exit_codes_without_traceback(error: BaseException, code: int) -> None:
    outcome = invoke("publish b -o json", FakeLake(publish=error))
    assert outcome.exit_code == code
    assert "Traceback" not in outcome.stderr
    assert "error:" in outcome.stderr
    told = json.loads(outcome.stdout)["error"]
    assert set(told) == {"code", "message", "hint", "context"}
    assert told["message"] in outcome.stderr
    plain = invoke("publish b", FakeLake(publish=error))
    assert (plain.exit_code, plain.stdout) == (code, "")
    assert "Traceback" in invoke("publish b --debug", FakeLake(publish=error)).stderr


def test_a_traceback_has_no_secrets_of_other_programs() -> None:
    error = CatalogUnavailableError("The catalog doesn't respond.")
    error.__cause__ = OSError("GET https://me:hunter2@host/?X-Amz-Signature=0f3a5 failed")
    shown = invoke("publish b --debug", FakeLake(publish=error)).stderr
    assert "OSError: GET https://…@host/?X-Amz-Signature=… failed" in shown
    assert "hunter2" not in shown
    plain = invoke("publish b -o json", FakeLake(publish=RuntimeError("GET https://me:hunter2@host/ failed")))
    assert "internal error: RuntimeError: GET https://…@host/ failed" in plain.stderr
    assert "hunter2" not in plain.output


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_errors_break_between_words_where_a_terminal_would_break_within_one(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "s3://lake/warehouse/" + "x" * 80
    error = QueryError(f"Column 'fare' of {path} isn't what the table's schema says:\n- a double", hint="Look. " * 20)
    monkeypatch.setenv("COLUMNS", "60")
    assert invoke("query SELECT", FakeLake(query=error)).stderr == f"error: {error.message}\nhint:  {error.hint}\n"
    monkeypatch.setattr("sys.stderr", terminal := _Terminal())
    main.report(error, App())
    message, _, hint = terminal.getvalue().partition("hint:")
    assert message.split() == ["error:", *error.message.split()]
    assert [line for line in message.splitlines() if len(line) > 60] == [f"       {path}"]
    assert "\n- a double\n" in message
    assert hint == f"  {error.hint}\n"


def test_names_in_errors_cannot_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    error = QueryError("Column 'a\x1b]0;b\x07' is new:\n- it's a \u202edouble", hint="Drop 'a\x1b]0;b\x07'.")
    monkeypatch.setattr("sys.stderr", terminal := _Terminal())
    main.report(error, App())
    shown = "error: Column 'a\\x1b]0;b\\x07' is new:\n- it's a \\u202edouble\nhint:  Drop 'a\\x1b]0;b\\x07'.\n"
    assert terminal.getvalue() == shown


@pytest.mark.parametrize("words", ["runs", "runs --nope", "ingest nyc.trips a.csv", "config show"])
def test_in_a_folder_that_was_deleted_commands_say_so(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    outcome = invoke(words)
    assert outcome.exit_code == 2
    assert ("No such option" if "--nope" in words else "error: The current folder no longer exists.") in outcome.stderr


def test_hints_and_interruptions_are_printed() -> None:
    error = QueryError("Column x does not exist.", hint="Did you mean y?", column="x")
    outcome = invoke("query SELECT", FakeLake(query=error))
    assert outcome.stderr == "error: Column x does not exist.\nhint:  Did you mean y?\n"
    interrupted = invoke("publish b", FakeLake(publish=KeyboardInterrupt("Branch wap/x was removed.")))
    assert "Interrupted. Branch wap/x was removed." in interrupted.stderr


@pytest.mark.parametrize("words", ["runs -n", "log --limit", "downstream status x -n", "diff main b --rows"])
def test_a_number_that_no_database_or_spark_takes_is_refused(words: str) -> None:
    outcome = invoke(f"{words} 9223372036854775808", FakeLake())
    assert outcome.exit_code == 2
    assert "is too large; the most is 2147483647" in outcome.stderr


@pytest.mark.parametrize(
    ("words", "method", "has_run"),
    [
        ("table delete nyc.trips --where x", "delete_rows", True),
        ("revert 20260131T070509-1a2b3c4d", "revert", True),
        ("branch delete old", "delete_branch", False),
        ("table list", "tables", False),
    ],
)
def test_an_interrupt_points_at_the_run_if_the_command_makes_one(words: str, method: str, has_run: bool) -> None:
    outcome = invoke(words, FakeLake(**{method: KeyboardInterrupt()}))
    assert outcome.exit_code == 130
    assert ("To see how far the run got: lakegate runs" in outcome.stderr) == has_run


def test_answering_no_says_that_nothing_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "confirm", lambda *_, **__: False)
    outcome = invoke("table drop nyc.trips", FakeLake())
    assert (outcome.exit_code, outcome.stderr) == (130, "error: Nothing was changed.\n")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("ingset a b", "Did you mean 'ingest'?"),
        ("ingest a b --chek x", "'--check'"),
        ("branch lst", "list"),
        ("ingest", "Missing argument 'TABLE'"),
        ("table connect nyc.trips", "Missing option '--engine' / '-e'. Choose from: pyiceberg, duckdb, "),
    ],
)
def test_mistyped_commands_suggest_the_nearest(words: str, part: str) -> None:
    outcome = invoke(words)
    assert outcome.exit_code == 2
    assert part in outcome.stderr
    assert "--help" in outcome.stderr


def test_usage_errors_are_json_too_when_json_was_asked_for() -> None:
    outcome = invoke("ingest nyc.trips --nope -o json")
    assert outcome.exit_code == 2
    assert json.loads(outcome.stdout)["error"]["code"] == "usage"


def test_every_command_has_help_with_examples() -> None:
    names = [[name] for name in cli.summaries]
    for words in names:
        outcome = invoke([*words, "-h"])
        assert outcome.exit_code == 0, f"{words}: {outcome.output} {outcome.exception!r}"
        assert f"Examples:\n  {'lakegate' if words != ['completion'] else 'bash:'}" in outcome.stdout, words
        command = cli.get_command(click.Context(cli), words[0])
        if len(words) == 1 and isinstance(command, click.Group):
            names += [[*words, inner] for inner in command.commands]
            assert "..." not in outcome.stdout.partition("Commands:")[2].partition("Examples:")[0], words
    text = invoke("--help").stdout
    assert all(f"  {name} " in text and summary in text for name, summary in cli.summaries.items())


def test_a_new_file_is_a_new_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zap.py").write_text('"""Do something new."""\n')
    (tmp_path / "log.py").write_text('"""Show the log."""\n')
    monkeypatch.setattr(main, "_COMMANDS", tmp_path)
    monkeypatch.setattr(main, "PANELS", {"Explore": ("log",), "Other": ()})
    root = main.Root("lakegate")
    assert root.summaries == {"log": "Show the log.", "zap": "Do something new."}
    assert root.panels == {"Explore": ["log"], "Other": ["zap"]}


def test_global_options_work_before_and_after_the_command(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    homes = str(tmp_path), f"{tmp_path}/below/.."
    for words in (["--home", homes[0], "runs"], ["runs", "--home", homes[0]], ["--home", homes[1], "runs"]):
        lake = FakeLake(runs=[])
        assert invoke(words, lake).exit_code == 0
        assert lake.opened_with["home"] == tmp_path
    assert invoke("--home /nowhere/at/all runs").exit_code == 2
